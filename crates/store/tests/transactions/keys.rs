//! Threads that write rows with distinct values, with the protocol that `src/locks/keys.rs` describes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use arrow_array::{ArrayRef, Int64Array};
use taut_store::disk::SimulatedDisk;
use taut_store::{
    Catalog, KeyMode, KeySearch, RowId, RowSet, Store, Synchronous, TableId, Transaction, TransactionError, key_hashes,
};
use taut_testkit::Random;

use crate::common::{Relocation, append, batch, create_table, open, ready, rows_of, rows_with_ids, write};
use crate::threads::block_on;

fn key(value: i64) -> [ArrayRef; 1] {
    [Arc::new(Int64Array::from(vec![value]))]
}

fn hash(value: i64) -> u64 {
    key_hashes(&key(value))[0].unwrap()
}

/// Row ids of the rows with a value.
fn find(version: &Catalog, table: TableId, value: i64) -> Vec<RowId> {
    let table = version.table_of(table).unwrap();
    KeySearch::new(table, &[0]).find(&key(value)).unwrap().into_iter().map(|(_, row)| row).collect()
}

/// Inserts a value unless a row has it. Returns whether it was inserted.
fn insert_distinct(transaction: &Transaction, table: TableId, value: i64) -> Result<bool, TransactionError> {
    block_on(transaction.lock_keys(table, &[hash(value)], KeyMode::Exclusive))?;
    while let Some((_, row)) = transaction.find_keys(table, &[0], &key(value))?.first() {
        if !block_on(transaction.wait_for_row(table, *row))? {
            return Ok(false);
        }
    }
    transaction.insert_rows(table, &batch(&[value]))?;
    // Lets other threads search while the row is not committed.
    (0..8).for_each(|_| std::thread::yield_now());
    Ok(true)
}

/// Deletes the rows with a value. Returns their number.
fn delete(transaction: &Transaction, table: TableId, value: i64) -> Result<usize, TransactionError> {
    let rows: RowSet = find(&transaction.snapshot(), table, value).into_iter().collect();
    block_on(transaction.delete_rows(table, &rows))?;
    Ok(rows.len() as usize)
}

/// Random insertions and deletions. Returns the change of the number of rows.
fn work(transaction: &Transaction, table: TableId, random: &mut Random) -> Result<isize, TransactionError> {
    let mut added = 0;
    for _ in 0..1 + random.below(4) {
        let value = random.below(30) as i64;
        if random.below(3) == 0 {
            added -= delete(transaction, table, value)? as isize;
        }
        if random.below(3) > 0 {
            added += isize::from(insert_distinct(transaction, table, value)?);
        }
    }
    Ok(added)
}

fn new_store(values: &[i64]) -> (Store, TableId) {
    let store = open(&SimulatedDisk::new()).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, values, "column").unwrap()]).unwrap();
    let table = store.snapshot().table("t").unwrap().id;
    (store, table)
}

/// Number of rows. Asserts that their values are distinct.
fn distinct_values(store: &Store) -> usize {
    let values = rows_of(store.snapshot().table("t").unwrap()).unwrap();
    let distinct: BTreeSet<i64> = values.iter().copied().collect();
    assert_eq!(distinct.len(), values.len(), "{values:?}");
    values.len()
}

#[test]
fn values_written_by_several_threads_stay_distinct() {
    let (store, table) = new_store(&(0..10).collect::<Vec<_>>());
    let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let thread = |thread: u64| {
        let (mut random, mut added) = (Random(thread), 0);
        for _ in 0..60 {
            let transaction = store.begin();
            let changed = work(&transaction, table, &mut random);
            match changed.and_then(|changed| Ok((changed, transaction.commit(Synchronous::Off)?))) {
                Ok((changed, ())) => {
                    added += changed;
                    distinct_values(&store);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                // A deadlock, or a row that another transaction deleted first.
                Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
            }
        }
        added
    };
    let added: isize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|number| scope.spawn(move || thread(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(distinct_values(&store) as isize, 10 + added);
    assert!(done.load(Ordering::Relaxed) > 60, "{refused:?} were refused");
}

#[test]
fn a_preview_contains_own_and_concurrent_changes() {
    let (store, table) = new_store(&[1, 2, 3]);
    let row_ids: Vec<RowId> =
        rows_with_ids(store.snapshot().table("t").unwrap()).unwrap().into_iter().map(|(row, _)| row).collect();
    let (mine, other) = (store.begin(), store.begin());
    ready(other.delete_rows(table, &[row_ids[2]].into_iter().collect())).unwrap();
    other.insert_rows(table, &batch(&[5])).unwrap();
    other.commit(Synchronous::Off).unwrap();
    mine.insert_rows(table, &batch(&[4])).unwrap();
    ready(mine.delete_rows(table, &[row_ids[0]].into_iter().collect())).unwrap();
    let found =
        |version: &Catalog| (1..=5).filter(|value| !find(version, table, *value).is_empty()).collect::<Vec<_>>();
    assert_eq!(found(&mine.snapshot()), [2, 3, 4]);
    assert_eq!(found(&mine.preview().unwrap()), [2, 4, 5]);
    let now = |value: &i64| !mine.find_keys(table, &[0], &key(*value)).unwrap().is_empty();
    assert_eq!((1..=5).filter(now).collect::<Vec<_>>(), [2, 4, 5]);
    // A transaction does not wait for its own rows, nor for rows that no transaction changes.
    assert!(!ready(mine.wait_for_row(table, row_ids[0])).unwrap());
    assert!(!ready(store.begin().wait_for_row(table, row_ids[1])).unwrap());
}

#[test]
fn keys_are_found_after_relocations() {
    let (store, table) = new_store(&[1, 2, 3]);
    let rows = rows_with_ids(store.snapshot().table("t").unwrap()).unwrap();
    let (mine, other) = (store.begin(), store.begin());
    ready(mine.delete_rows(table, &[rows[0].0].into_iter().collect())).unwrap();
    mine.insert_rows(table, &batch(&[3, 4])).unwrap();
    for seed in 1..3 {
        let snapshot = store.snapshot();
        Relocation::read(&store, snapshot.table("t").unwrap(), &mut Random(seed)).unwrap().commit(&store).unwrap();
    }
    let found = |transaction: &Transaction| {
        (1..=4).map(|value| transaction.find_keys(table, &[0], &key(value)).unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!((found(&mine), found(&other)), (vec![0, 1, 2, 1], vec![1, 1, 1, 0]));
    mine.commit(Synchronous::Off).unwrap();
    assert_eq!(found(&other), [0, 1, 2, 1]);
}

#[test]
fn a_transaction_waiting_for_a_row_continues_when_its_holder_ends() {
    let (store, table) = new_store(&[1]);
    let row = rows_with_ids(store.snapshot().table("t").unwrap()).unwrap()[0].0;
    let (holder, waiting) = (store.begin(), store.begin());
    ready(holder.delete_rows(table, &[row].into_iter().collect())).unwrap();
    ready(waiting.lock_all_keys(table, KeyMode::Exclusive)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut free = std::pin::pin!(waiting.wait_for_row(table, row));
    assert!(free.as_mut().poll(&mut context).is_pending());
    let circle = ready(holder.lock_keys(table, &[hash(1)], KeyMode::Shared));
    assert!(matches!(circle, Err(TransactionError::Deadlock)), "{circle:?}");
    holder.commit(Synchronous::Off).unwrap();
    assert!(matches!(free.as_mut().poll(&mut context), Poll::Ready(Ok(true))));
    assert_eq!(find(&waiting.preview().unwrap(), table, 1), []);
}
