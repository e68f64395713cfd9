//! Threads that insert, delete, relocate and checkpoint concurrently, on a working disk and on a failing one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{CommitError, RowSet, Store, Synchronous, Transaction, TransactionError};
use taut_testkit::Random;

use crate::common::{Relocation, append, assert_tidy, batch, contents, create_table, open, rows_with_ids, write};

const THREADS: i64 = 8;
/// Number of values that belong to each thread.
const VALUES: i64 = 1_000_000;

/// Wakes a thread that waits for a future.
#[derive(Default)]
struct Wakes(Mutex<bool>, Condvar);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// Blocks until a future is ready, and returns its value.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let mut is_woken = wakes.0.lock().unwrap();
        while !std::mem::take(&mut *is_woken) {
            is_woken = wakes.1.wait(is_woken).unwrap();
        }
    }
}

/// Values of a thread in table `t`. Asserts that they are distinct.
fn own_values(snapshot: &taut_store::Catalog, thread: i64) -> BTreeSet<i64> {
    let rows = rows_with_ids(snapshot.table("t").unwrap()).unwrap();
    let own = rows.into_iter().map(|(_, value)| value).filter(|value| value / VALUES == thread);
    let (values, mut count) = (own.clone().collect::<BTreeSet<_>>(), 0);
    own.for_each(|_| count += 1);
    assert_eq!(values.len(), count, "thread {thread}: a row occurs twice");
    values
}

/// Inserts and deletes some rows of a thread.
fn change(transaction: &Transaction, inserted: &[i64], deleted: &BTreeSet<i64>) -> Result<(), TransactionError> {
    let snapshot = transaction.snapshot();
    let table = snapshot.table("t").unwrap();
    transaction.insert_rows(table.id, &batch(inserted))?;
    if deleted.is_empty() {
        return Ok(());
    }
    let rows: RowSet = rows_with_ids(table)
        .unwrap()
        .into_iter()
        .filter(|(_, value)| deleted.contains(value))
        .map(|(row, _)| row)
        .collect();
    assert_eq!(rows.len(), deleted.len() as u64);
    block_on(transaction.delete_rows(table.id, &rows))
}

/// Relocates all rows of the table to a block, except the rows of the last page, to which other threads append. Returns
/// whether there were any rows to relocate.
fn rewrite(store: &Store, random: &mut Random) -> bool {
    let snapshot = store.snapshot();
    let table = snapshot.table("t").unwrap();
    let relocation = Relocation::read(
        store,
        &table.restricted_to(&(0..table.blocks.len()).collect::<Vec<_>>(), table.delta.pages().len().saturating_sub(1)),
        random,
    )
    .unwrap();
    let has_rows = !relocation.rows.is_empty();
    relocation.commit(store).unwrap();
    has_rows
}

/// Calls `run` until all threads are done.
fn until(is_done: &AtomicBool, mut run: impl FnMut()) {
    while !is_done.load(Ordering::Relaxed) {
        run();
        std::thread::yield_now();
    }
}

#[test]
fn threads_insert_and_delete_at_once() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let is_done = AtomicBool::new(false);
    let work = |thread: i64| {
        let (mut random, mut expected, mut next) = (Random(thread as u64), BTreeSet::new(), thread * VALUES);
        for round in 0..60 {
            let inserted: Vec<i64> = (next..next + [1, 1, 3, 40, 1_100][random.below(5)]).collect();
            next += inserted.len() as i64;
            let deleted: BTreeSet<i64> = expected.iter().copied().filter(|_| random.below(3) == 0).collect();
            let transaction = store.begin();
            // No other thread changes these rows, and their relocation is not a conflict.
            change(&transaction, &inserted, &deleted)
                .unwrap_or_else(|error| panic!("thread {thread}, round {round}: {error}"));
            if random.below(4) > 0 {
                let synchronous = random.pick(&[Synchronous::Full, Synchronous::Normal, Synchronous::Off]);
                transaction.commit(synchronous).unwrap_or_else(|error| panic!("thread {thread}, {round}: {error}"));
                expected.retain(|value| !deleted.contains(value));
                expected.extend(inserted);
            } else {
                drop(transaction);
            }
            assert_eq!(own_values(&store.snapshot(), thread), expected, "thread {thread}, round {round}");
        }
        expected
    };
    let all: BTreeSet<i64> = std::thread::scope(|scope| {
        let rewriting = scope.spawn(|| {
            let (mut done, mut random) = (0, Random(5));
            until(&is_done, || done += u32::from(rewrite(&store, &mut random)));
            done
        });
        scope.spawn(|| until(&is_done, || store.checkpoint().unwrap()));
        // A power loss at any moment leaves all needed files.
        let power_losses = scope.spawn(|| {
            let mut seed = 0;
            until(&is_done, || {
                seed += 1;
                let disk = disk.after_power_loss(seed);
                let store = open(&disk).unwrap_or_else(|error| panic!("power lost, seed {seed}: {error}"));
                contents(&store).unwrap_or_else(|error| panic!("power lost, seed {seed}: {error}"));
                assert_tidy(&store, &disk, &format!("power lost, seed {seed}"));
            });
            seed
        });
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let all = threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>();
        is_done.store(true, Ordering::Relaxed);
        assert!(rewriting.join().unwrap() > 0, "nothing was relocated");
        assert!(power_losses.join().unwrap() > 0, "the power was never lost");
        all.into_iter().flat_map(|values| values.unwrap()).collect()
    });
    let sorted = |store: &Store| contents(store).unwrap()["t"].iter().copied().collect::<BTreeSet<i64>>();
    assert_eq!(sorted(&store), all);
    assert_tidy(&store, &disk, "at the end");
    // Commits without sync may not be durable yet. The checkpoint makes them durable.
    store.checkpoint().unwrap();
    let lost = disk.after_power_loss(3);
    drop(store);
    for disk in [disk, lost] {
        let store = open(&disk).unwrap();
        assert_eq!(sorted(&store), all, "opened again");
        assert_tidy(&store, &disk, "opened again");
    }
}

/// Commits fail sometimes, for one thread or for all that share a write. A failed commit changes nothing, and a
/// successful one stays.
#[test]
fn threads_commit_while_the_disk_fails() {
    for seed in 0..6 {
        threads_on_a_failing_disk(seed);
    }
}

fn threads_on_a_failing_disk(seed: u64) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let (is_done, failures) = (AtomicBool::new(false), Mutex::new([0_u32; 2]));
    let work = |thread: i64| {
        let mut random = Random(seed * 100 + thread as u64);
        let (mut expected, mut uncertain, mut next) = (BTreeSet::new(), BTreeSet::new(), thread * VALUES);
        for round in 0..60 {
            let context = format!("seed {seed}, thread {thread}, round {round}");
            let inserted: Vec<i64> = (next..next + 1 + random.below(4) as i64).collect();
            next += inserted.len() as i64;
            let deleted: BTreeSet<i64> = expected.iter().copied().filter(|_| random.below(3) == 0).collect();
            let transaction = store.begin();
            change(&transaction, &inserted, &deleted).unwrap_or_else(|error| panic!("{context}: {error}"));
            let synchronous = random.pick(&[Synchronous::Full, Synchronous::Normal, Synchronous::Off]);
            match transaction.commit(synchronous) {
                Ok(()) => {
                    expected.retain(|value| !deleted.contains(value));
                    expected.extend(inserted);
                }
                Err(CommitError::Uncertain { .. }) => {
                    failures.lock().unwrap()[0] += 1;
                    expected.retain(|value| !deleted.contains(value));
                    uncertain.extend(inserted);
                    uncertain.extend(deleted);
                }
                Err(CommitError::Log(_)) => failures.lock().unwrap()[1] += 1,
                Err(error) => panic!("{context}: {error}"),
            }
            let mut found = own_values(&store.snapshot(), thread);
            found.retain(|value| !uncertain.contains(value));
            assert_eq!(found, expected, "{context}");
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        scope.spawn(|| {
            let mut random = Random(seed);
            until(&is_done, || {
                let at = random.below(12) as u64;
                let fault = [Fault::FailAt, Fault::FailAfter, Fault::FailAt, Fault::FailFrom][random.below(4)];
                disk.set_fault(Some(fault(at)));
                for _ in 0..200 {
                    std::thread::yield_now();
                }
                disk.set_fault(None);
                // A failed commit leaves its block, which is removed when the outcome of the commit is known.
                let block = write(&store, &[THREADS * VALUES], "row").unwrap();
                let _ = append(&store, "t", vec![block]);
            });
        });
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    disk.set_fault(None);
    append(&store, "t", vec![write(&store, &[-1], "row").unwrap()]).unwrap();
    let expected = contents(&store).unwrap();
    assert_tidy(&store, &disk, &format!("seed {seed}"));
    for disk in [disk.after_kill(), disk.after_power_loss(seed), disk.after_power_loss(seed + 1)] {
        let store = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(contents(&store).unwrap(), expected, "seed {seed}, opened again");
        assert_tidy(&store, &disk, &format!("seed {seed}, opened again"));
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures[1] > 0, "seed {seed}: {failures:?} commits failed");
}
