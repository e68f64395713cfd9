//! Two transactions that change the same rows, and changes that another transaction makes impossible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Wake, Waker};

use taut_store::disk::SimulatedDisk;
use taut_store::{BlockId, CommitError, OldRows, RowOrder, Store, Synchronous, TableId, TransactionError};

use crate::common::{
    all_old_rows, append, assert_tidy, batch, change_in, change_rows, contents, create_table, design, open, ready,
    schema, write,
};
use crate::rows::{Deleting, delete, is_changed, poll, rows_with};

/// Counts wake-ups.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A table with rows 1 and 2 in a block, and rows 3 and 4 in a delta page.
fn sample() -> (SimulatedDisk, Store, TableId) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    change_rows(&store, "t", &[3, 4], &[]).unwrap();
    let table = store.snapshot().table("t").unwrap().id;
    (disk, store, table)
}

#[test]
fn the_second_deletion_of_a_row_waits_and_fails_after_a_commit() {
    for values in [[1], [3]] {
        let (_, store, table) = sample();
        let (one, two) = (store.begin(), store.begin());
        delete(&one, table, &values).unwrap();
        let rows = rows_with(&two, table, &[1, 2, 3, 4]);
        let mut deleting: Deleting<'_> = Box::pin(two.delete_rows(table, &rows));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        assert!(poll(&mut deleting, &waker).is_pending());
        assert!(poll(&mut deleting, &waker).is_pending());
        one.commit(Synchronous::Full).unwrap();
        assert!(count.get() > 0, "no wake-up although the other transaction ended");
        let Poll::Ready(Err(error)) = poll(&mut deleting, &waker) else { panic!("not refused") };
        assert!(is_changed(&error), "{error}");
        drop(deleting);
        assert_eq!(two.snapshot().table_of(table).unwrap().rows(), 4, "the transaction still sees all rows");
        // Its other changes can still be committed.
        two.insert_rows(table, &batch(&[9])).unwrap();
        two.commit(Synchronous::Full).unwrap();
        assert_eq!(store.snapshot().table_of(table).unwrap().rows(), 4);
    }
}

#[test]
fn the_second_deletion_of_a_row_succeeds_after_a_rollback() {
    let (_, store, table) = sample();
    let (one, two) = (store.begin(), store.begin());
    delete(&one, table, &[2, 3]).unwrap();
    // Other rows of the same block and page are not locked.
    delete(&two, table, &[1, 4]).unwrap();
    let rows = rows_with(&two, table, &[2, 3]);
    let mut deleting: Deleting<'_> = Box::pin(two.delete_rows(table, &rows));
    assert!(poll(&mut deleting, Waker::noop()).is_pending());
    drop(one);
    assert!(matches!(poll(&mut deleting, Waker::noop()), Poll::Ready(Ok(()))));
    drop(deleting);
    two.commit(Synchronous::Full).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [0_i64; 0]);
}

#[test]
fn a_failed_commit_wakes_waiting_transactions() {
    let (disk, store, table) = sample();
    let (one, two) = (store.begin(), store.begin());
    delete(&one, table, &[1]).unwrap();
    let rows = rows_with(&two, table, &[1]);
    let mut deleting: Deleting<'_> = Box::pin(two.delete_rows(table, &rows));
    assert!(poll(&mut deleting, Waker::noop()).is_pending());
    disk.set_fault(Some(taut_store::disk::Fault::FailAt(0)));
    assert!(matches!(one.commit(Synchronous::Full), Err(CommitError::Log(_))));
    disk.set_fault(None);
    assert!(matches!(poll(&mut deleting, Waker::noop()), Poll::Ready(Ok(()))));
    drop(deleting);
    two.commit(Synchronous::Full).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [2, 3, 4]);
}

#[test]
fn a_deadlock_is_refused() {
    let (_, store, table) = sample();
    let transactions = [store.begin(), store.begin(), store.begin()];
    for (transaction, value) in transactions.iter().zip(1..) {
        delete(transaction, table, &[value]).unwrap();
    }
    let [one, two, three] = &transactions;
    let sets = [&[2][..], &[3], &[1]].map(|values| rows_with(&store.begin(), table, values));
    let mut first: Deleting<'_> = Box::pin(one.delete_rows(table, &sets[0]));
    let mut second: Deleting<'_> = Box::pin(two.delete_rows(table, &sets[1]));
    assert!(poll(&mut first, Waker::noop()).is_pending());
    assert!(poll(&mut second, Waker::noop()).is_pending());
    assert!(matches!(ready(three.delete_rows(table, &sets[2])), Err(TransactionError::Deadlock)));
    // A transaction that stops waiting leaves the cycle and keeps its locks.
    drop(second);
    let mut third: Deleting<'_> = Box::pin(three.delete_rows(table, &sets[2]));
    assert!(poll(&mut third, Waker::noop()).is_pending());
    assert!(poll(&mut first, Waker::noop()).is_pending());
    drop((first, third));
    let [one, two, three] = transactions;
    drop(two);
    one.commit(Synchronous::Full).unwrap();
    three.commit(Synchronous::Full).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [2, 4]);
}

#[test]
fn dropping_a_waiting_deletion_releases_its_row_locks() {
    let (_, store, table) = sample();
    let (one, two, three) = (store.begin(), store.begin(), store.begin());
    delete(&one, table, &[1]).unwrap();
    let rows = rows_with(&two, table, &[1, 2]);
    let mut deleting: Deleting<'_> = Box::pin(two.delete_rows(table, &rows));
    assert!(poll(&mut deleting, Waker::noop()).is_pending());
    drop(deleting);
    delete(&three, table, &[2]).unwrap();
    drop(one);
    delete(&two, table, &[1]).unwrap();
    three.commit(Synchronous::Full).unwrap();
    two.commit(Synchronous::Full).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [3, 4]);
}

#[test]
fn a_transaction_whose_table_was_dropped_fails_and_leaves_nothing() {
    let (disk, store, table) = sample();
    let one = store.begin();
    change_in(&one, "t", &[5, 6], &[1, 3]).unwrap();
    let block = write(&store, &[7], "row").unwrap();
    one.change::<_, CommitError>(|edit| {
        edit.append_blocks(table, vec![block])?;
        edit.create_table("u", schema(), design("row"))
    })
    .unwrap();
    store.commit::<_, CommitError>(|edit| edit.drop_table(table)).unwrap();
    assert_eq!(one.snapshot().table_of(table).unwrap().rows(), 5, "the transaction still sees its snapshot");
    assert!(matches!(one.refresh(), Err(CommitError::NoTable { .. })));
    let error = one.commit(Synchronous::Full).unwrap_err();
    assert!(matches!(error, CommitError::NoTable { table: gone } if gone == table), "{error}");
    assert!(contents(&store).unwrap().is_empty());
    assert_tidy(&store, &disk, "after a commit that failed");
    let reopened = open(&disk.after_power_loss(1)).unwrap();
    assert!(contents(&reopened).unwrap().is_empty());
}

#[test]
fn deleting_a_row_and_replacing_its_block_without_relocations_conflict() {
    let (_, store, table) = sample();
    let old: Vec<BlockId> = store.snapshot().table_of(table).unwrap().blocks.iter().map(|block| block.id()).collect();
    let rewrite = || {
        let new = vec![write(&store, &[1, 2], "row").unwrap()];
        store.commit::<_, CommitError>(|edit| edit.replace_blocks(table, &old, new, RowOrder::SameOrder))
    };
    let one = store.begin();
    delete(&one, table, &[1]).unwrap();
    assert!(matches!(rewrite(), Err(CommitError::RowsLocked)));
    drop(one);
    let two = store.begin();
    rewrite().unwrap();
    assert!(is_changed(&delete(&two, table, &[1]).unwrap_err()));
    delete(&two, table, &[3]).unwrap();
    two.commit(Synchronous::Full).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [1, 2, 4]);
}

/// A transaction refers to its deleted rows by their block, so it cannot replace that block itself.
#[test]
fn a_transaction_cannot_relocate_rows_that_it_deleted() {
    for order in [RowOrder::SamePositions, RowOrder::SameOrder, RowOrder::Sorted] {
        let (_, store, table) = sample();
        let one = store.begin();
        delete(&one, table, &[1]).unwrap();
        let old = OldRows { pages: vec![], ..all_old_rows(one.snapshot().table_of(table).unwrap()) };
        let values: &[i64] = if order == RowOrder::SamePositions { &[1, 2] } else { &[2] };
        let new = vec![write(&store, values, "row").unwrap()];
        let result = one.change::<_, CommitError>(|edit| edit.replace_rows(table, old, new, order));
        assert!(matches!(result, Err(CommitError::OwnRows { .. })), "{order:?}: {result:?}");
        one.commit(Synchronous::Full).unwrap();
        assert_eq!(contents(&store).unwrap()["t"], [2, 3, 4], "{order:?}");
    }
}

#[test]
fn a_transaction_without_changes_commits_nothing() {
    let (_, store, _) = sample();
    let version = store.snapshot().version();
    let transaction = store.begin();
    assert!(transaction.is_read_only());
    transaction.commit(Synchronous::Full).unwrap();
    assert_eq!(store.snapshot().version(), version);
}

#[test]
fn a_table_that_must_stay_unchanged_makes_the_commit_fail_if_others_change_its_rows() {
    let replace = |store: &Store, table: TableId| {
        let transaction = store.begin();
        transaction.require_unchanged(table);
        change_in(&transaction, "t", &[5], &[]).unwrap();
        transaction.change::<_, CommitError>(|edit| edit.drop_table(table)).unwrap();
        transaction
    };
    for (inserted, deleted) in [(&[6][..], &[][..]), (&[], &[1]), (&[], &[3])] {
        let (_, store, table) = sample();
        let transaction = replace(&store, table);
        change_rows(&store, "t", inserted, deleted).unwrap();
        assert!(matches!(transaction.refresh(), Err(CommitError::RowsChanged { .. })));
        let error = transaction.commit(Synchronous::Full).unwrap_err();
        assert!(matches!(&error, CommitError::RowsChanged { table } if table == "t"), "{error}");
        assert!(store.snapshot().table_of(table).is_some());
    }
    // The transaction's own changes, and changes of other tables, do not make it fail.
    let (_, store, table) = sample();
    let transaction = replace(&store, table);
    create_table(&store, "u").unwrap();
    transaction.refresh().unwrap();
    transaction.commit(Synchronous::Full).unwrap();
    assert!(store.snapshot().table_of(table).is_none());
}

#[test]
fn rolling_back_to_a_savepoint_forgets_that_a_table_must_stay_unchanged() {
    let (_, store, table) = sample();
    let transaction = store.begin();
    transaction.savepoint("s");
    transaction.require_unchanged(table);
    transaction.roll_back_to("s").unwrap();
    change_in(&transaction, "t", &[5], &[]).unwrap();
    change_rows(&store, "t", &[6], &[]).unwrap();
    transaction.commit(Synchronous::Full).unwrap();
}
