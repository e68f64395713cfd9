//! Key checks of a transaction: locks of keys and of rows. The protocol is in `locks/keys.rs`.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::{Transaction, Waiting, deleted_outside_own_pages};
use crate::delta::{RowId, RowSet};
use crate::error::{CommitError, TransactionError};
use crate::locks::{KeyMode, LockConflict};
use crate::{KeySearch, TableId};

impl Transaction {
    /// Searches for the rows that have one of several keys, like [`KeySearch::find`], in the database as it would be if
    /// the transaction committed now. Rows of other transactions have the row ids of the newest version.
    ///
    /// # Errors
    /// If the transaction could not commit now, or a block cannot be read.
    pub fn find_keys(
        &self,
        table: TableId,
        columns: &[usize],
        keys: &[ArrayRef],
    ) -> Result<Vec<(u32, RowId)>, TransactionError> {
        let no_table = || CommitError::NoTable { table };
        let newest = self.store.newest_unpublished();
        let (base, snapshot) = {
            let changes = &self.state.lock().changes;
            (Arc::clone(&changes.base), Arc::clone(&changes.snapshot))
        };
        let own_table = snapshot.table_of(table).ok_or_else(no_table)?;
        if Arc::ptr_eq(&newest, &base) {
            return Ok(KeySearch::new(own_table, columns).find(keys)?);
        }
        let newest_table = newest.table_of(table);
        let (Some(before), Some(newest_table), false) = (base.table_of(table), newest_table, self.changes_catalog())
        else {
            let preview = self.preview()?;
            return Ok(KeySearch::new(preview.table_of(table).ok_or_else(no_table)?, columns).find(keys)?);
        };
        // A preview would copy all rows that the transaction inserted, and would do so again for each statement.
        let deleted = match self.state.lock().changes.rows.get(&table) {
            Some(rows) => deleted_outside_own_pages(own_table, newest_table, rows, &base.relocations)?,
            None => RowSet::default(),
        };
        let mut matches = KeySearch::new(newest_table, columns).find(keys)?;
        matches.retain(|(_, row)| !deleted.contains(*row));
        matches.extend(KeySearch::new(own_table, columns).excluding_rows_of(before).find(keys)?);
        Ok(matches)
    }

    /// Whether the transaction has made changes other than inserts into the delta and deletions.
    fn changes_catalog(&self) -> bool {
        !self.state.lock().changes.edit.changes().is_empty()
    }

    /// Locks keys of a table, by their hashes ([`crate::key_hashes`]), until the transaction ends. All are locked at
    /// once, so their order does not matter. Waits for transactions that hold conflicting locks.
    ///
    /// # Errors
    /// If one of these transactions waits for this one: a deadlock.
    pub async fn lock_keys(&self, table: TableId, hashes: &[u64], mode: KeyMode) -> Result<(), TransactionError> {
        self.wait(|| self.store.locks().lock_keys(self.id, table, hashes, mode)).await.map(drop)
    }

    /// Locks all keys of a table until the transaction ends, including keys that no row has. Waits for transactions
    /// that hold conflicting locks.
    ///
    /// # Errors
    /// If one of these transactions waits for this one: a deadlock.
    pub async fn lock_all_keys(&self, table: TableId, mode: KeyMode) -> Result<(), TransactionError> {
        self.wait(|| self.store.locks().lock_all_keys(self.id, table, mode)).await.map(drop)
    }

    /// Waits until no other transaction holds a lock on a row. Returns whether it had to wait.
    ///
    /// # Errors
    /// If the other transaction waits for this one: a deadlock.
    pub async fn wait_for_row(&self, table: TableId, row: RowId) -> Result<bool, TransactionError> {
        self.wait(|| self.store.locks().check_unlocked(self.id, table, row)).await
    }

    /// Calls `lock` until it succeeds, and waits for the holder of the lock in between. Returns whether it had to wait.
    async fn wait(&self, lock: impl Fn() -> Result<(), LockConflict>) -> Result<bool, TransactionError> {
        let mut has_waited = false;
        loop {
            match lock() {
                Ok(()) => return Ok(has_waited),
                Err(LockConflict::Deadlock) => return Err(TransactionError::Deadlock),
                Err(LockConflict::Wait(ended)) => {
                    let _waiting = Waiting(self);
                    ended.await;
                    has_waited = true;
                }
            }
        }
    }
}
