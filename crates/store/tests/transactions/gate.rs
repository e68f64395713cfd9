//! Tests a commit without sync that runs while an earlier commit, which replaces blocks, is not durable yet.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use taut_store::disk::{DirectoryEntry, Disk, Fault, Lock, ReadFile, SimulatedDisk, WriteFile};
use taut_store::{CommitError, OpenOptions, RowOrder, Store, Synchronous};

use crate::common::{append, change_in, contents, create_table, open, write};

/// A disk that writes and syncs log files only while the gate is open.
#[derive(Clone, Debug, Default)]
struct GatedDisk {
    disk: SimulatedDisk,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    has_changed: Condvar,
    is_awaited: AtomicBool,
}

impl Gate {
    fn close(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.has_changed.notify_all();
    }

    fn pass(&self) {
        let mut is_closed = self.is_closed.lock().unwrap();
        while *is_closed {
            self.is_awaited.store(true, Ordering::Release);
            is_closed = self.has_changed.wait(is_closed).unwrap();
        }
    }
}

#[derive(Debug)]
struct GatedFile(Box<dyn WriteFile>, Option<Arc<Gate>>);

impl WriteFile for GatedFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.iter().for_each(|gate| gate.pass());
        self.0.write_all(bytes)
    }

    fn extend(&mut self, length: u64) -> io::Result<()> {
        self.0.extend(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.iter().for_each(|gate| gate.pass());
        self.0.sync()
    }
}

impl Disk for GatedDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let gate = name.starts_with("log/").then(|| Arc::clone(&self.gate));
        Ok(Box::new(GatedFile(self.disk.create(name)?, gate)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.disk.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.disk.list(directory)
    }

    fn create_directory(&self, name: &str) -> io::Result<()> {
        self.disk.create_directory(name)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        self.disk.sync_directory(name)
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.disk.lock(name)
    }

    fn extension_step(&self) -> u64 {
        self.disk.extension_step()
    }
}

/// Replaces a block, and meanwhile inserts a row without waiting for the disk. Returns both outcomes.
fn replace_and_insert(
    gated: &GatedDisk,
    store: &Store,
    synchronous: Synchronous,
    fault: Option<Fault>,
) -> [Result<(), CommitError>; 2] {
    create_table(store, "t").unwrap();
    append(store, "t", vec![write(store, &[1, 2], "column").unwrap()]).unwrap();
    let (table, block) = {
        let snapshot = store.snapshot();
        let table = snapshot.table("t").unwrap();
        (table.id, table.blocks[0].id())
    };
    let new = vec![write(store, &[1, 2], "row").unwrap()];
    let transaction = store.begin();
    change_in(&transaction, "t", &[3], &[]).unwrap();
    gated.gate.close(true);
    std::thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            store.commit::<_, CommitError>(|edit| edit.replace_blocks(table, &[block], new, RowOrder::SameOrder))
        });
        while !gated.gate.is_awaited.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let inserting = scope.spawn(|| transaction.commit(synchronous));
        // The insert has to wait. The test cannot observe that, but checks that a power loss at this point leaves all
        // needed files.
        for seed in 0..60 {
            assert_opens(&gated.disk, seed, synchronous);
        }
        gated.disk.set_fault(fault);
        gated.gate.close(false);
        [replacing.join().unwrap(), inserting.join().unwrap()]
    })
}

fn assert_opens(disk: &SimulatedDisk, seed: u64, synchronous: Synchronous) {
    let disk = disk.after_power_loss(seed);
    let store = open(&disk).unwrap_or_else(|error| panic!("{synchronous:?}, seed {seed}: {error}"));
    assert_eq!(contents(&store).unwrap()["t"][..2], [1, 2], "{synchronous:?}, seed {seed}");
}

#[test]
fn files_stay_until_the_commit_that_replaced_them_is_durable() {
    for synchronous in [Synchronous::Normal, Synchronous::Off] {
        for is_full in [false, true] {
            let gated = GatedDisk::default();
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let store = Store::open_on(Arc::new(gated.clone()), options).unwrap();
            let fault = is_full.then_some(Fault::Capacity(0));
            let outcomes = replace_and_insert(&gated, &store, synchronous, fault);
            for outcome in &outcomes {
                // A commit after the failure does not even start.
                let is_failed = matches!(outcome, Err(CommitError::Uncertain { .. } | CommitError::Log(_)));
                assert!(
                    if is_full { is_failed } else { outcome.is_ok() },
                    "{synchronous:?}, full: {is_full}: {outcome:?}"
                );
            }
            assert_eq!(contents(&store).unwrap()["t"], if is_full { vec![1, 2] } else { vec![1, 2, 3] });
            for seed in 0..20 {
                assert_opens(&gated.disk, seed, synchronous);
            }
            gated.disk.set_fault(None);
            append(&store, "t", vec![write(&store, &[4], "row").unwrap()]).unwrap();
        }
    }
}
