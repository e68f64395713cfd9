//! What a transaction needs to check keys: their locks, and what others have done. The protocol is in `locks/keys.rs`.

use std::sync::Arc;

use super::{Transaction, Waiting};
use crate::delta::RowId;
use crate::error::TransactionError;
use crate::locks::{Busy, KeyMode};
use crate::{Catalog, TableId};

impl Transaction {
    /// Locks keys of a table, by their hashes ([`crate::key_hashes`]), until it ends; all at once, so that the order in
    /// which they come means nothing. Waits for those who have them locked.
    ///
    /// # Errors
    /// When one of these waits for this one.
    pub async fn lock_keys(&self, table: TableId, hashes: &[u64], mode: KeyMode) -> Result<(), TransactionError> {
        self.wait(|| self.store.locks().lock_keys(self.id, table, hashes, mode)).await.map(drop)
    }

    /// Locks all keys of a table, those too that no row has, until it ends. Waits for those who have any locked.
    ///
    /// # Errors
    /// When one of these waits for this one.
    pub async fn lock_all_keys(&self, table: TableId, mode: KeyMode) -> Result<(), TransactionError> {
        self.wait(|| self.store.locks().lock_all_keys(self.id, table, mode)).await.map(drop)
    }

    /// Waits until no other transaction has a row locked; tells whether one had.
    ///
    /// # Errors
    /// When that one waits for this one.
    pub async fn wait_for_row(&self, table: TableId, row: RowId) -> Result<bool, TransactionError> {
        self.wait(|| self.store.locks().find_free(self.id, table, row)).await
    }

    /// What all commits so far lead to, those too that are not durable yet and that nobody sees.
    pub fn newest(&self) -> Arc<Catalog> {
        self.store.newest()
    }

    /// What its snapshot grew from: the rows that it has beside these are its own.
    pub fn base(&self) -> Arc<Catalog> {
        Arc::clone(&self.state.lock().work.base)
    }

    /// Whether it has deleted a row, or removed it in another way: truncated or dropped its table, or moved it.
    pub fn has_deleted(&self, table: TableId, row: RowId) -> bool {
        let work = &self.state.lock().work;
        let has = |catalog: &Catalog| catalog.table_of(table).is_some_and(|table| table.has_row(row));
        let deleted = work.rows.get(&table).and_then(|rows| rows.deleted.segment(row.unit(), row.segment()));
        let is_deleted = deleted.is_some_and(|deleted| deleted.contains(row.row().into()));
        is_deleted || (has(&work.base) && !has(&work.snapshot))
    }

    /// Asks for a lock until there is nobody to wait for; tells whether there was.
    async fn wait(&self, lock: impl Fn() -> Result<(), Busy>) -> Result<bool, TransactionError> {
        let mut has_waited = false;
        loop {
            match lock() {
                Ok(()) => return Ok(has_waited),
                Err(Busy::Deadlock) => return Err(TransactionError::Deadlock),
                Err(Busy::Wait(ended)) => {
                    let _waiting = Waiting(self);
                    ended.await;
                    has_waited = true;
                }
            }
        }
    }
}
