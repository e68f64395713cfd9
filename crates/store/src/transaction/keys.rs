//! What a transaction needs to check keys: their locks, and who has rows to himself. The protocol is in `locks/keys.rs`.

use super::{Transaction, Waiting};
use crate::TableId;
use crate::delta::RowId;
use crate::error::TransactionError;
use crate::locks::{Busy, KeyMode};

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
