//! Where the changes of a statement go: to the transaction that it is part of, or each at once to the database.

use std::sync::Arc;

use taut_block::BlockImage;
use taut_store::{Catalog, CatalogEdit, CommitError, NewBlock, Store, Transaction, WriteError};
use taut_types::TableDesign;

/// What a statement reads, and changes.
#[derive(Clone, Debug)]
pub struct Changes {
    store: Arc<Store>,
    transaction: Option<Arc<Transaction>>,
}

impl Changes {
    /// Each change is a commit.
    pub fn at_once(store: Arc<Store>) -> Self {
        Self { store, transaction: None }
    }

    /// All changes happen when the transaction commits.
    pub fn of(store: Arc<Store>, transaction: Arc<Transaction>) -> Self {
        Self { store, transaction: Some(transaction) }
    }

    /// The transaction.
    pub fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.transaction.as_ref()
    }

    /// The database as the next change finds it.
    pub fn snapshot(&self) -> Arc<Catalog> {
        match &self.transaction {
            Some(transaction) => transaction.snapshot(),
            None => self.store.snapshot(),
        }
    }

    /// Makes changes to the catalog, all or none.
    ///
    /// # Errors
    /// What `change` returns, in which case nothing happens; or when the log cannot be written.
    pub fn commit<T, E: From<CommitError>>(
        &self,
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        match &self.transaction {
            Some(transaction) => transaction.change(change),
            None => self.store.commit(change),
        }
    }

    /// Writes a block to a file of its own, durably. Nobody sees it until it is committed.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is left of it then.
    pub fn write_block(&self, image: &BlockImage, design: &TableDesign) -> Result<NewBlock, WriteError> {
        self.store.write_block(image, design)
    }
}
