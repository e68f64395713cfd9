//! Locks of keys, by their hashes. They prevent two transactions from writing rows with the same key at once.
//!
//! A transaction that writes rows first locks their keys exclusively, until it ends. Then it looks the keys up, in the
//! newest version and in its own. All transactions do so, so two rows with the same key are never both committed. If
//! another transaction has locked a row with the key, perhaps to delete it, the lookup waits for that transaction. A
//! transaction that references a key locks it shared. Keys with the same hash share a lock. A transaction that writes
//! many rows locks all keys of the table.

use std::collections::HashMap;

use super::{LockConflict, LockTable, Locks, TransactionId};
use crate::TableId;

/// Mode of a key lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyMode {
    /// Held by any number of transactions, which write rows that reference the key.
    Shared,
    /// Held by one transaction, which writes or deletes rows with the key.
    Exclusive,
}

impl KeyMode {
    fn conflicts_with(self, other: Self) -> bool {
        self.max(other) == Self::Exclusive
    }
}

/// The transactions that hold a lock.
#[derive(Debug, Default)]
struct Holders(Vec<(TransactionId, KeyMode)>);

impl Holders {
    /// The holders that a transaction has to wait for if it requests the lock.
    fn conflicting_holders(&self, transaction: TransactionId, mode: KeyMode) -> impl Iterator<Item = TransactionId> {
        let others = self.0.iter().filter(move |(holder, held)| *holder != transaction && held.conflicts_with(mode));
        others.map(|(holder, _)| *holder)
    }

    fn holds(&self, transaction: TransactionId, mode: KeyMode) -> bool {
        self.0.iter().any(|(holder, held)| *holder == transaction && *held >= mode)
    }

    /// Adds a holder, or strengthens its lock to `mode`. Returns whether the holder is new.
    fn add(&mut self, transaction: TransactionId, mode: KeyMode) -> bool {
        match self.0.iter_mut().find(|(holder, _)| *holder == transaction) {
            Some((_, held)) => *held = mode.max(*held),
            None => {
                self.0.push((transaction, mode));
                return true;
            }
        }
        false
    }

    fn remove(&mut self, transaction: TransactionId) {
        self.0.retain(|(holder, _)| *holder != transaction);
    }
}

/// The key locks of one table.
#[derive(Debug, Default)]
pub(super) struct TableKeys {
    keys: HashMap<u64, Holders>,
    /// Holders of a lock on all keys at once.
    all_keys: Holders,
    /// Holders of locks on single keys, each with its strongest mode.
    single_keys: Holders,
    /// Hashes that each transaction has locked.
    hashes: HashMap<TransactionId, Vec<u64>>,
}

impl TableKeys {
    /// Releases the locks of a transaction. Returns whether no locks are left.
    pub fn end(&mut self, transaction: TransactionId) -> bool {
        for hash in self.hashes.remove(&transaction).unwrap_or_default() {
            if let Some(holders) = self.keys.get_mut(&hash) {
                holders.remove(transaction);
                if holders.0.is_empty() {
                    self.keys.remove(&hash);
                }
            }
        }
        self.all_keys.remove(transaction);
        self.single_keys.remove(transaction);
        self.all_keys.0.is_empty() && self.single_keys.0.is_empty()
    }
}

impl Locks {
    /// Locks keys of a table, all or none.
    pub fn lock_keys(
        &self,
        transaction: TransactionId,
        table: TableId,
        hashes: &[u64],
        mode: KeyMode,
    ) -> Result<(), LockConflict> {
        let state = &mut *self.state.lock();
        let table_keys = state.keys.entry(table).or_default();
        if table_keys.all_keys.holds(transaction, mode) {
            return Ok(());
        }
        let holders_of_keys = hashes.iter().filter_map(|hash| table_keys.keys.get(hash));
        let holders = holders_of_keys
            .chain([&table_keys.all_keys])
            .flat_map(|holders| holders.conflicting_holders(transaction, mode));
        let holders: Vec<TransactionId> = holders.collect();
        state.wait(transaction, &holders)?;
        let table_keys = state.table_keys_mut(transaction, table);
        let own_hashes = table_keys.hashes.entry(transaction).or_default();
        own_hashes
            .extend(hashes.iter().filter(|hash| table_keys.keys.entry(**hash).or_default().add(transaction, mode)));
        table_keys.single_keys.add(transaction, mode);
        Ok(())
    }

    /// Locks all keys of a table, including keys that no row has.
    pub fn lock_all_keys(&self, transaction: TransactionId, table: TableId, mode: KeyMode) -> Result<(), LockConflict> {
        let state = &mut *self.state.lock();
        let table_keys = state.keys.entry(table).or_default();
        let holders = [&table_keys.all_keys, &table_keys.single_keys]
            .into_iter()
            .flat_map(|holders| holders.conflicting_holders(transaction, mode));
        let holders: Vec<TransactionId> = holders.collect();
        state.wait(transaction, &holders)?;
        state.table_keys_mut(transaction, table).all_keys.add(transaction, mode);
        Ok(())
    }
}

impl LockTable {
    /// The key locks of a table. Records that the transaction has locks in it.
    fn table_keys_mut(&mut self, transaction: TransactionId, table: TableId) -> &mut TableKeys {
        let tables = &mut self.running.entry(transaction).or_default().keys;
        if !tables.contains(&table) {
            tables.push(table);
        }
        self.keys.entry(table).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::KeyMode::{Exclusive, Shared};
    use super::*;

    const TABLE: TableId = TableId(1);

    fn begin_transactions(count: u64) -> (Locks, Vec<TransactionId>) {
        let (locks, transactions) = (Locks::default(), (1..=count).map(TransactionId).collect::<Vec<_>>());
        transactions.iter().for_each(|transaction| locks.begin(*transaction));
        (locks, transactions)
    }

    fn waits(result: &Result<(), LockConflict>) -> bool {
        matches!(result, Err(LockConflict::Wait(_)))
    }

    #[test]
    fn a_key_lock_is_shared_or_exclusive() {
        let (locks, transactions) = begin_transactions(3);
        assert!(locks.lock_keys(transactions[0], TABLE, &[1, 2], Shared).is_ok());
        assert!(locks.lock_keys(transactions[1], TABLE, &[2, 3], Shared).is_ok());
        assert!(locks.lock_keys(transactions[2], TABLE, &[4], Exclusive).is_ok());
        assert!(locks.lock_keys(transactions[2], TableId(2), &[1, 2, 3], Exclusive).is_ok());
        assert!(waits(&locks.lock_keys(transactions[2], TABLE, &[5, 3], Exclusive)));
        // The failed call has locked neither of its keys.
        assert!(locks.lock_keys(transactions[0], TABLE, &[5], Exclusive).is_ok());
        // The only holder gets the stronger lock. With another holder it waits. If that holder requests the stronger
        // lock too, this is a deadlock.
        assert!(locks.lock_keys(transactions[0], TABLE, &[1], Exclusive).is_ok());
        assert!(waits(&locks.lock_keys(transactions[0], TABLE, &[2], Exclusive)));
        assert!(matches!(locks.lock_keys(transactions[1], TABLE, &[2], Exclusive), Err(LockConflict::Deadlock)));
        locks.end(transactions[1]);
        assert!(locks.lock_keys(transactions[0], TABLE, &[2], Exclusive).is_ok());
        // An exclusive lock stays exclusive when a shared one is requested.
        assert!(locks.lock_keys(transactions[0], TABLE, &[2], Shared).is_ok());
        assert!(waits(&locks.lock_keys(transactions[2], TABLE, &[2], Shared)));
        locks.end(transactions[0]);
        locks.end(transactions[2]);
        assert!(locks.state.lock().keys.is_empty());
    }

    #[test]
    fn a_lock_on_all_keys_conflicts_with_locks_of_every_hash() {
        let (locks, transactions) = begin_transactions(3);
        assert!(locks.lock_keys(transactions[0], TABLE, &[1], Shared).is_ok());
        assert!(locks.lock_all_keys(transactions[1], TABLE, Shared).is_ok());
        assert!(waits(&locks.lock_all_keys(transactions[2], TABLE, Exclusive)));
        assert!(locks.lock_keys(transactions[2], TABLE, &[1, 7], Shared).is_ok());
        assert!(waits(&locks.lock_keys(transactions[0], TABLE, &[9], Exclusive)));
        // This transaction already holds all keys.
        assert!(locks.lock_keys(transactions[1], TABLE, &[9], Shared).is_ok());
        locks.end(transactions[0]);
        locks.end(transactions[2]);
        assert!(locks.lock_all_keys(transactions[1], TABLE, Exclusive).is_ok());
        locks.begin(transactions[0]);
        assert!(waits(&locks.lock_keys(transactions[0], TABLE, &[100], Shared)));
        assert!(locks.lock_all_keys(transactions[0], TableId(2), Exclusive).is_ok());
        locks.end(transactions[1]);
        assert!(locks.lock_keys(transactions[0], TABLE, &[100], Exclusive).is_ok());
        assert!(waits(&locks.lock_all_keys(transactions[1], TABLE, Shared)));
    }

    #[test]
    fn a_cycle_is_detected_through_any_of_several_holders() {
        let (locks, transactions) = begin_transactions(3);
        assert!(locks.lock_keys(transactions[0], TABLE, &[1], Shared).is_ok());
        assert!(locks.lock_keys(transactions[1], TABLE, &[1], Shared).is_ok());
        assert!(locks.lock_keys(transactions[2], TABLE, &[2], Exclusive).is_ok());
        assert!(waits(&locks.lock_keys(transactions[1], TABLE, &[2], Shared)));
        // The first holder runs. The second one waits for the requester.
        assert!(matches!(locks.lock_keys(transactions[2], TABLE, &[1], Exclusive), Err(LockConflict::Deadlock)));
        locks.end(transactions[1]);
        assert!(waits(&locks.lock_keys(transactions[2], TABLE, &[1], Exclusive)));
        locks.end(transactions[0]);
        assert!(locks.lock_keys(transactions[2], TABLE, &[1], Exclusive).is_ok());
    }
}
