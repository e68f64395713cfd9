//! Destination of a statement's changes: the statement's transaction, or immediate commits.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use taut_block::BlockImage;
use taut_store::{
    BlockFile, Catalog, CatalogEdit, CommitError, NewBlock, RowSet, Store, Table, Transaction, WriteError,
};
use taut_types::{ColumnIndex, TableDesign};

use crate::error::QueryError;
use crate::runtime::cancellation::Cancellation;

/// Reads snapshots for a statement and applies its changes.
#[derive(Clone, Debug)]
pub struct Changes {
    store: Arc<Store>,
    transaction: Option<Arc<Transaction>>,
    /// Cancellation of the statement; `None` for work in the background.
    cancellation: Option<Cancellation>,
    /// Columns whose values the statement may change; `None` for all.
    assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
    written: Arc<Mutex<Vec<ChangedTable>>>,
}

/// Changed rows of a table whose keys must be checked before the statement ends.
#[derive(Debug)]
pub struct ChangedTable {
    /// The table, in the version in which the rows were changed.
    pub table: Arc<Table>,
    /// The changed rows.
    pub rows: WrittenRows,
}

/// Changed rows, by kind of change.
#[derive(Debug)]
pub enum WrittenRows {
    /// A few inserted rows, or updated rows with their new values.
    New(RecordBatch),
    /// Many inserted rows, as blocks.
    Blocks(Vec<Arc<BlockFile>>),
    /// Deleted rows.
    Deleted(RowSet),
    /// Old versions of updated rows.
    Replaced(RowSet),
}

impl Changes {
    /// Commits each change immediately.
    pub fn autocommit(store: Arc<Store>) -> Self {
        Self { store, transaction: None, cancellation: None, assigned: None, written: Arc::default() }
    }

    /// Collects all changes in a transaction, until it commits.
    pub fn in_transaction(store: Arc<Store>, transaction: Arc<Transaction>) -> Self {
        Self { transaction: Some(transaction), ..Self::autocommit(store) }
    }

    /// Sets the cancellation of the statement, which [`Changes::commit_last`] checks.
    #[must_use]
    pub fn with_cancellation(self, cancellation: Cancellation) -> Self {
        Self { cancellation: Some(cancellation), ..self }
    }

    /// Returns a copy for a statement that changes only values of `columns`. `None` means any column.
    #[must_use]
    pub fn with_assigned_columns(&self, columns: Option<Arc<BTreeSet<ColumnIndex>>>) -> Self {
        Self { assigned: columns, ..self.clone() }
    }

    /// Whether the statement may change the value of one of these columns.
    fn assigns(&self, columns: &[ColumnIndex]) -> bool {
        self.assigned.as_ref().is_none_or(|assigned| columns.iter().any(|column| assigned.contains(column)))
    }

    /// Records changed rows if keys of the table, or foreign keys that reference it, must be checked for them.
    pub fn record_written(&self, table: &Arc<Table>, rows: WrittenRows) {
        let constraints = &table.constraints;
        let is_referenced = !constraints.referenced_by.is_empty();
        let assigns_key = || constraints.keys.iter().any(|key| self.assigns(&key.columns));
        let must_check = match &rows {
            WrittenRows::New(_) | WrittenRows::Blocks(_) => {
                assigns_key() || constraints.foreign_keys.iter().any(|key| self.assigns(&key.columns))
            }
            WrittenRows::Deleted(_) => is_referenced,
            WrittenRows::Replaced(_) => is_referenced && assigns_key(),
        };
        if must_check && self.transaction.is_some() {
            self.written.lock().push(ChangedTable { table: Arc::clone(table), rows });
        }
    }

    /// Removes and returns the changed rows recorded since the last call.
    pub fn take_written(&self) -> Vec<ChangedTable> {
        std::mem::take(&mut self.written.lock())
    }

    /// The transaction that collects the changes; `None` if each change commits immediately.
    pub fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.transaction.as_ref()
    }

    /// Snapshot that the next change is based on.
    pub fn snapshot(&self) -> Arc<Catalog> {
        match &self.transaction {
            Some(transaction) => transaction.snapshot(),
            None => self.store.snapshot(),
        }
    }

    /// Applies changes to the catalog, all or none of them.
    ///
    /// # Errors
    /// If `change` returns an error, or if the log cannot be written. The catalog is then unchanged.
    pub fn commit<T, E: From<CommitError>>(
        &self,
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        match &self.transaction {
            Some(transaction) => transaction.change(change),
            None => self.store.commit(change),
        }
    }

    /// Like [`Changes::commit`], for the last change of a statement. Fails if the statement is already cancelled.
    /// Otherwise the statement can no longer be cancelled.
    ///
    /// # Errors
    /// If the statement is cancelled, `change` returns an error, or the log cannot be written. The catalog is then
    /// unchanged.
    pub fn commit_last<T, E>(&self, change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>) -> Result<T, QueryError>
    where
        E: From<CommitError>,
        QueryError: From<E>,
    {
        match &self.cancellation {
            Some(cancellation) => cancellation.commit_unless_cancelled(|| self.commit(change)),
            None => Ok(self.commit(change)?),
        }
    }

    /// Runs optional work after the commit, until the statement is cancelled. The work does not affect the result of
    /// the statement.
    pub async fn run_after_commit(&self, work: impl Future) {
        match &self.cancellation {
            Some(cancellation) => cancellation.run_after_commit(work).await,
            None => drop(work.await),
        }
    }

    /// Writes a block of a table to a new file, durably if the table is permanent. The block is not visible until it is
    /// committed.
    ///
    /// # Errors
    /// If the file cannot be written. The incomplete file is removed.
    pub fn write_block(
        &self,
        is_temporary: bool,
        image: &BlockImage,
        design: &TableDesign,
    ) -> Result<NewBlock, WriteError> {
        match is_temporary {
            true => self.store.write_temporary_block(image, design),
            false => self.store.write_block(image, design),
        }
    }
}
