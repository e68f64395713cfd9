//! Where the changes of a statement go: to the transaction that it is part of, or each at once to the database.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use taut_block::BlockImage;
use taut_store::{
    BlockFile, Catalog, CatalogEdit, CommitError, NewBlock, RowSet, Store, Table, Transaction, WriteError,
};
use taut_types::{ColumnIndex, TableDesign};

use crate::operators::Interrupt;

/// What a statement reads, and changes.
#[derive(Clone, Debug)]
pub struct Changes {
    store: Arc<Store>,
    transaction: Option<Arc<Transaction>>,
    /// Of a statement whose one change is all that it does.
    interrupt: Option<Interrupt>,
    /// The columns that the statement may give other values; `None` for all.
    assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
    written: Arc<Mutex<Vec<Written>>>,
}

/// Rows that a statement changed in a table whose keys are to be looked at before it ends.
#[derive(Debug)]
pub struct Written {
    /// The table, as it was when they were changed.
    pub table: Arc<Table>,
    /// What happened.
    pub rows: WrittenRows,
}

/// How rows were changed.
#[derive(Debug)]
pub enum WrittenRows {
    /// Few of them were inserted, or got these values.
    New(RecordBatch),
    /// Many of them, in blocks.
    Blocks(Vec<Arc<BlockFile>>),
    /// They were deleted.
    Deleted(RowSet),
    /// They were deleted since others took their place.
    Replaced(RowSet),
}

impl Changes {
    /// Each change is a commit.
    pub fn at_once(store: Arc<Store>) -> Self {
        Self { store, transaction: None, interrupt: None, assigned: None, written: Arc::default() }
    }

    /// All changes happen when the transaction commits.
    pub fn of(store: Arc<Store>, transaction: Arc<Transaction>) -> Self {
        Self { transaction: Some(transaction), ..Self::at_once(store) }
    }

    /// The same, for a statement that is no longer cancelled when its change is made.
    #[must_use]
    pub fn settling(self, interrupt: Interrupt) -> Self {
        Self { interrupt: Some(interrupt), ..self }
    }

    /// The same, where a statement gives no other columns new values; `None` for any.
    #[must_use]
    pub fn assigning(&self, columns: Option<Arc<BTreeSet<ColumnIndex>>>) -> Self {
        Self { assigned: columns, ..self.clone() }
    }

    /// Whether a statement may give any of some columns other values.
    fn assigns(&self, columns: &[ColumnIndex]) -> bool {
        self.assigned.as_ref().is_none_or(|assigned| columns.iter().any(|column| assigned.contains(column)))
    }

    /// Remembers rows that were changed, where keys of their table, or to it, say something of them.
    pub fn wrote(&self, table: &Arc<Table>, rows: WrittenRows) {
        let constraints = &table.constraints;
        let is_referenced = !constraints.referenced_by.is_empty();
        let assigns_key = || constraints.keys.iter().any(|key| self.assigns(&key.columns));
        let matters = match &rows {
            WrittenRows::New(_) | WrittenRows::Blocks(_) => {
                assigns_key() || constraints.foreign_keys.iter().any(|key| self.assigns(&key.columns))
            }
            WrittenRows::Deleted(_) => is_referenced,
            WrittenRows::Replaced(_) => is_referenced && assigns_key(),
        };
        if matters && self.transaction.is_some() {
            self.written.lock().push(Written { table: Arc::clone(table), rows });
        }
    }

    /// What was remembered since the last time.
    pub fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut self.written.lock())
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
            None => match &self.interrupt {
                Some(interrupt) => interrupt.settle(|| self.store.commit(change)),
                None => self.store.commit(change),
            },
        }
    }

    /// Runs work that the outcome of the statement does not depend on, until the statement is cancelled.
    pub async fn run_leftover(&self, work: impl Future) {
        match &self.interrupt {
            Some(interrupt) => interrupt.run_leftover(work).await,
            None => drop(work.await),
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
