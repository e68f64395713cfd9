//! Locks of keys, by their hashes. They prevent two transactions from writing rows with the same key at once.
//!
//! A transaction that writes rows first locks their keys exclusively, until it ends. Then it looks the keys up, in the
//! newest version and in its own. As all transactions do so, two rows with the same key are never both committed. If
//! another transaction has locked a row with the key, perhaps to delete it, the lookup waits for that transaction. A
//! transaction that references a key locks it shared. Keys with the same hash share a lock. A transaction that writes
//! many rows locks all keys of the table.

use std::collections::HashMap;

use super::{LockConflict, LockTable, Locks, TransactionId};
use crate::TableId;

/// Mode of a key lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyMode {
    /// Held with others, by transactions that write rows which reference the key.
    Shared,
    /// Held alone, by a transaction that writes or deletes rows with the key.
    Exclusive,
}

impl KeyMode {
    fn excludes(self, other: Self) -> bool {
        self.max(other) == Self::Exclusive
    }
}

/// The transactions that hold a lock.
#[derive(Debug, Default)]
struct Holders(Vec<(TransactionId, KeyMode)>);

impl Holders {
    /// The holders that a transaction has to wait for if it requests the lock.
    fn excluding(&self, transaction: TransactionId, mode: KeyMode) -> impl Iterator<Item = TransactionId> {
        let others = self.0.iter().filter(move |(holder, held)| *holder != transaction && held.excludes(mode));
        others.map(|(holder, _)| *holder)
    }

    fn has(&self, transaction: TransactionId, mode: KeyMode) -> bool {
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
    all: Holders,
    /// Holders of locks on single keys, each with its strongest mode.
    some: Holders,
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
        self.all.remove(transaction);
        self.some.remove(transaction);
        self.all.0.is_empty() && self.some.0.is_empty()
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
        let known = state.keys.entry(table).or_default();
        if known.all.has(transaction, mode) {
            return Ok(());
        }
        let of_keys = hashes.iter().filter_map(|hash| known.keys.get(hash));
        let holders = of_keys.chain([&known.all]).flat_map(|holders| holders.excluding(transaction, mode));
        let holders: Vec<TransactionId> = holders.collect();
        state.wait(transaction, &holders)?;
        let known = state.keys_of(transaction, table);
        let own = known.hashes.entry(transaction).or_default();
        own.extend(hashes.iter().filter(|hash| known.keys.entry(**hash).or_default().add(transaction, mode)));
        known.some.add(transaction, mode);
        Ok(())
    }

    /// Locks all keys of a table, including keys that no row has.
    pub fn lock_all_keys(&self, transaction: TransactionId, table: TableId, mode: KeyMode) -> Result<(), LockConflict> {
        let state = &mut *self.state.lock();
        let known = state.keys.entry(table).or_default();
        let holders = [&known.all, &known.some].into_iter().flat_map(|holders| holders.excluding(transaction, mode));
        let holders: Vec<TransactionId> = holders.collect();
        state.wait(transaction, &holders)?;
        state.keys_of(transaction, table).all.add(transaction, mode);
        Ok(())
    }
}

impl LockTable {
    /// The key locks of a table. Records that the transaction has locks there.
    fn keys_of(&mut self, transaction: TransactionId, table: TableId) -> &mut TableKeys {
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

    fn begun(count: u64) -> (Locks, Vec<TransactionId>) {
        let (locks, transactions) = (Locks::default(), (1..=count).map(TransactionId).collect::<Vec<_>>());
        transactions.iter().for_each(|transaction| locks.begin(*transaction));
        (locks, transactions)
    }

    fn waits(result: &Result<(), LockConflict>) -> bool {
        matches!(result, Err(LockConflict::Wait(_)))
    }

    #[test]
    fn a_key_is_shared_or_one_has_it_alone() {
        let (locks, of) = begun(3);
        assert!(locks.lock_keys(of[0], TABLE, &[1, 2], Shared).is_ok());
        assert!(locks.lock_keys(of[1], TABLE, &[2, 3], Shared).is_ok());
        assert!(locks.lock_keys(of[2], TABLE, &[4], Exclusive).is_ok());
        assert!(locks.lock_keys(of[2], TableId(2), &[1, 2, 3], Exclusive).is_ok());
        assert!(waits(&locks.lock_keys(of[2], TABLE, &[5, 3], Exclusive)));
        // The failed call has locked neither of its keys.
        assert!(locks.lock_keys(of[0], TABLE, &[5], Exclusive).is_ok());
        // The only holder gets the stronger lock. With another holder it waits, and that one must then not wait for it.
        assert!(locks.lock_keys(of[0], TABLE, &[1], Exclusive).is_ok());
        assert!(waits(&locks.lock_keys(of[0], TABLE, &[2], Exclusive)));
        assert!(matches!(locks.lock_keys(of[1], TABLE, &[2], Exclusive), Err(LockConflict::Deadlock)));
        locks.end(of[1]);
        assert!(locks.lock_keys(of[0], TABLE, &[2], Exclusive).is_ok());
        // An exclusive lock stays exclusive when a shared one is requested.
        assert!(locks.lock_keys(of[0], TABLE, &[2], Shared).is_ok());
        assert!(waits(&locks.lock_keys(of[2], TABLE, &[2], Shared)));
        locks.end(of[0]);
        locks.end(of[2]);
        assert!(locks.state.lock().keys.is_empty());
    }

    #[test]
    fn all_keys_are_those_of_every_hash() {
        let (locks, of) = begun(3);
        assert!(locks.lock_keys(of[0], TABLE, &[1], Shared).is_ok());
        assert!(locks.lock_all_keys(of[1], TABLE, Shared).is_ok());
        assert!(waits(&locks.lock_all_keys(of[2], TABLE, Exclusive)));
        assert!(locks.lock_keys(of[2], TABLE, &[1, 7], Shared).is_ok());
        assert!(waits(&locks.lock_keys(of[0], TABLE, &[9], Exclusive)));
        // This transaction already holds all keys.
        assert!(locks.lock_keys(of[1], TABLE, &[9], Shared).is_ok());
        locks.end(of[0]);
        locks.end(of[2]);
        assert!(locks.lock_all_keys(of[1], TABLE, Exclusive).is_ok());
        locks.begin(of[0]);
        assert!(waits(&locks.lock_keys(of[0], TABLE, &[100], Shared)));
        assert!(locks.lock_all_keys(of[0], TableId(2), Exclusive).is_ok());
        locks.end(of[1]);
        assert!(locks.lock_keys(of[0], TABLE, &[100], Exclusive).is_ok());
        assert!(waits(&locks.lock_all_keys(of[1], TABLE, Shared)));
    }

    #[test]
    fn a_circle_is_seen_through_any_of_several_holders() {
        let (locks, of) = begun(3);
        assert!(locks.lock_keys(of[0], TABLE, &[1], Shared).is_ok());
        assert!(locks.lock_keys(of[1], TABLE, &[1], Shared).is_ok());
        assert!(locks.lock_keys(of[2], TABLE, &[2], Exclusive).is_ok());
        assert!(waits(&locks.lock_keys(of[1], TABLE, &[2], Shared)));
        // The first holder runs. The second one waits for the requester.
        assert!(matches!(locks.lock_keys(of[2], TABLE, &[1], Exclusive), Err(LockConflict::Deadlock)));
        locks.end(of[1]);
        assert!(waits(&locks.lock_keys(of[2], TABLE, &[1], Exclusive)));
        locks.end(of[0]);
        assert!(locks.lock_keys(of[2], TABLE, &[1], Exclusive).is_ok());
    }
}
