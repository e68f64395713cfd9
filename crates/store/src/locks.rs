//! Row locks of transactions, and the wait graph that detects deadlocks.
//!
//! A row is locked by the transaction that changes it, until that transaction ends. Others wait for its end with
//! [`Ended`]. A wait that would close a cycle fails as a deadlock.

mod keys;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::TableId;
use crate::delta::{ContainerId, RowId, RowSet};
use crate::relocations::{RelocationsSince, RowRelocations};

pub use keys::KeyMode;
use keys::TableKeys;

/// Id of a transaction while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId(pub u64);

/// The locks of all transactions of a database.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<LockTable>,
}

/// Row locks, key locks and waits of running transactions.
#[derive(Debug, Default)]
struct LockTable {
    rows: HashMap<(TableId, ContainerId, u16), Vec<(TransactionId, RoaringBitmap)>>,
    keys: HashMap<TableId, TableKeys>,
    running: HashMap<TransactionId, Running>,
    waits_for: HashMap<TransactionId, TransactionId>,
}

#[derive(Debug, Default)]
struct Running {
    end: Arc<TransactionEnd>,
    /// The segments in which the transaction has row locks.
    segments: Vec<(TableId, ContainerId, u16)>,
    /// The tables in which the transaction has key locks.
    keys: Vec<TableId>,
}

/// Why a lock was not granted.
pub(crate) enum LockConflict {
    /// Another transaction holds a conflicting lock.
    Wait(Ended),
    /// Waiting would close a cycle.
    Deadlock,
}

impl Locks {
    /// Registers a running transaction.
    pub fn begin(&self, transaction: TransactionId) {
        self.state.lock().running.insert(transaction, Running::default());
    }

    /// Locks rows of a table, all or none. The row ids belong to one version of the table. The row ids that these rows
    /// got later, according to `relocations_since`, are locked too, because another transaction may refer to a row by
    /// any of them.
    pub fn lock(
        &self,
        transaction: TransactionId,
        table: TableId,
        rows: &RowSet,
        relocations_since: &RelocationsSince,
    ) -> Result<(), LockConflict> {
        let state = &mut *self.state.lock();
        let rows = relocations_since.all_row_ids(table, rows);
        for (container, segment, requested) in rows.segments() {
            let Some(holders) = state.rows.get(&(table, container, segment)) else { continue };
            let holder = holders.iter().find(|(holder, held)| *holder != transaction && !held.is_disjoint(requested));
            let Some(holder) = holder.map(|(holder, _)| *holder) else { continue };
            state.wait(transaction, &[holder])?;
        }
        state.waits_for.remove(&transaction);
        state.grant(transaction, table, &rows);
        Ok(())
    }

    /// Checks that no other transaction has locked a row.
    pub fn check_unlocked(&self, transaction: TransactionId, table: TableId, row: RowId) -> Result<(), LockConflict> {
        let state = &mut *self.state.lock();
        let holders = state.rows.get(&(table, row.container(), row.segment())).into_iter().flatten();
        let others = holders.filter(|(holder, rows)| *holder != transaction && rows.contains(row.row().into()));
        let others: Vec<TransactionId> = others.map(|(holder, _)| *holder).collect();
        state.wait(transaction, &others)
    }

    /// Publishes row relocations by calling `publish`, and extends the existing row locks to the new row ids. No other
    /// transaction locks a row in between. So any other transaction that locks the row, before or after, uses a row id
    /// that the holder has locked too.
    pub fn extend_to_relocations(&self, relocations: &[(TableId, Arc<RowRelocations>)], publish: impl FnOnce()) {
        let state = &mut *self.state.lock();
        publish();
        for (table, relocations) in relocations {
            let locked_segments = state.rows.iter().filter(|((locked_table, ..), _)| locked_table == table);
            let relocated = locked_segments.flat_map(|((_, container, segment), holders)| {
                holders
                    .iter()
                    .filter_map(|(holder, rows)| Some((*holder, relocations.new_row_ids(*container, *segment, rows)?)))
            });
            let extended: Vec<(TransactionId, RowSet)> = relocated.collect();
            extended.iter().for_each(|(holder, rows)| state.grant(*holder, *table, rows));
        }
    }

    /// Removes a transaction from the wait graph.
    pub fn stop_waiting(&self, transaction: TransactionId) {
        self.state.lock().waits_for.remove(&transaction);
    }

    /// Whether a transaction other than `own` has locked rows of a table in a container that `is_container` accepts.
    pub fn is_any_locked_by_others(
        &self,
        table: TableId,
        own: Option<TransactionId>,
        is_container: impl Fn(ContainerId) -> bool,
    ) -> bool {
        let state = self.state.lock();
        let mut locked = state
            .rows
            .iter()
            .filter(|((locked_table, container, _), _)| *locked_table == table && is_container(*container));
        locked.any(|(_, holders)| holders.iter().any(|(holder, _)| Some(*holder) != own))
    }

    /// Whether a transaction has locked rows or keys of permanent tables.
    pub fn has_permanent_locks(&self, transaction: TransactionId) -> bool {
        let state = self.state.lock();
        state.running.get(&transaction).is_some_and(|Running { segments, keys, .. }| {
            segments.iter().map(|(table, ..)| table).chain(keys).any(|table| !table.is_temporary())
        })
    }

    /// Ends a transaction: releases its locks and wakes the transactions that wait for it.
    pub fn end(&self, transaction: TransactionId) {
        let state = &mut *self.state.lock();
        state.waits_for.remove(&transaction);
        let Some(ended) = state.running.remove(&transaction) else { return };
        for segment in ended.segments {
            if let Some(holders) = state.rows.get_mut(&segment) {
                holders.retain(|(holder, _)| *holder != transaction);
                if holders.is_empty() {
                    state.rows.remove(&segment);
                }
            }
        }
        for table in ended.keys {
            if state.keys.get_mut(&table).is_some_and(|keys| keys.end(transaction)) {
                state.keys.remove(&table);
            }
        }
        let mut end = ended.end.0.lock();
        end.has_ended = true;
        end.waiting.drain(..).for_each(Waker::wake);
    }
}

impl LockTable {
    /// Makes a transaction wait for others, one at a time. Returns a deadlock if one of them waits for it. Succeeds if
    /// none of them is still running.
    fn wait(&mut self, transaction: TransactionId, holders: &[TransactionId]) -> Result<(), LockConflict> {
        self.waits_for.remove(&transaction);
        for holder in holders {
            let mut next = Some(*holder);
            while let Some(waiting) = next {
                if waiting == transaction {
                    return Err(LockConflict::Deadlock);
                }
                next = self.waits_for.get(&waiting).copied();
            }
        }
        // A transaction that has ended holds no lock any more.
        let running = holders.iter().find_map(|holder| Some((*holder, self.running.get(holder)?)));
        let Some((holder, running)) = running else { return Ok(()) };
        let ended = Ended(Arc::clone(&running.end));
        self.waits_for.insert(transaction, holder);
        Err(LockConflict::Wait(ended))
    }

    fn grant(&mut self, transaction: TransactionId, table: TableId, rows: &RowSet) {
        for (container, segment, requested) in rows.segments() {
            let holders = self.rows.entry((table, container, segment)).or_default();
            match holders.iter_mut().find(|(holder, _)| *holder == transaction) {
                Some((_, held)) => *held |= requested,
                None => {
                    holders.push((transaction, requested.clone()));
                    self.running.entry(transaction).or_default().segments.push((table, container, segment));
                }
            }
        }
    }
}

/// The end of a transaction, for which others may wait.
#[derive(Debug, Default)]
struct TransactionEnd(Mutex<EndState>);

#[derive(Debug, Default)]
struct EndState {
    has_ended: bool,
    /// Wakers of the futures that wait for the end.
    waiting: Vec<Waker>,
}

/// Future that is ready when a transaction has ended.
#[derive(Debug)]
pub struct Ended(Arc<TransactionEnd>);

impl Future for Ended {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut end = self.0.0.lock();
        if end.has_ended {
            return Poll::Ready(());
        }
        if !end.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            end.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::RowId;

    fn rows(rows: &[u16]) -> RowSet {
        rows.iter().map(|row| RowId::new(ContainerId(1), 0, *row)).collect()
    }

    #[test]
    fn a_row_has_one_holder_and_cycles_are_deadlocks() {
        let (locks, table, relocations_since) = (Locks::default(), TableId(1), RelocationsSince::default());
        let [one, two, three] = [1, 2, 3].map(TransactionId);
        [one, two, three].into_iter().for_each(|transaction| locks.begin(transaction));
        assert!(locks.lock(one, table, &rows(&[1, 2]), &relocations_since).is_ok());
        assert!(locks.lock(one, table, &rows(&[2, 3]), &relocations_since).is_ok());
        assert!(locks.lock(two, TableId(2), &rows(&[1]), &relocations_since).is_ok());
        assert!(locks.lock(two, table, &rows(&[4]), &relocations_since).is_ok());
        let Err(LockConflict::Wait(mut ended)) = locks.lock(three, table, &rows(&[0, 3]), &relocations_since) else {
            panic!("locked although another transaction holds row 3")
        };
        assert!(matches!(locks.lock(two, table, &rows(&[1]), &relocations_since), Err(LockConflict::Wait(_))));
        assert!(matches!(locks.lock(one, table, &rows(&[4]), &relocations_since), Err(LockConflict::Deadlock)));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut ended).poll(&mut context), Poll::Pending);
        locks.end(one);
        assert_eq!(Pin::new(&mut ended).poll(&mut context), Poll::Ready(()));
        assert!(locks.lock(two, table, &rows(&[1]), &relocations_since).is_ok());
        assert!(locks.lock(three, table, &rows(&[0, 3]), &relocations_since).is_ok());
    }
}
