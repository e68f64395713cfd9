//! Group commit: of many threads, one writes and syncs for all, in the order of the appends.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;

use super::*;
use crate::disk::{DirectoryEntry, Lock, MemoryDisk, ReadFile, WriteFile};

/// A disk whose file syncs signal that they have begun, and then wait for a signal to continue.
#[derive(Debug)]
struct GatedDisk {
    disk: MemoryDisk,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct GatedFile(Box<dyn WriteFile>, Arc<Gate>);

impl WriteFile for GatedFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn extend(&mut self, length: u64) -> io::Result<()> {
        self.0.extend(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.begun.send(()).unwrap();
        self.1.go.lock().recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.0.sync()
    }
}

impl Disk for GatedDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(GatedFile(self.disk.create(name)?, Arc::clone(&self.gate))))
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

/// A log with gated syncs, the receiver of their begin signals, and the sender of their continue signals.
fn gated() -> (Arc<GatedDisk>, Log, Receiver<()>, Sender<()>) {
    let ((begun, has_begun), (go, gone)) = (channel(), channel());
    let gate = Arc::new(Gate { begun, go: Mutex::new(gone) });
    let disk = Arc::new(GatedDisk { disk: MemoryDisk::new(), gate });
    go.send(()).unwrap();
    let log = Log::create(Arc::<GatedDisk>::clone(&disk), DATABASE, 1, 0).unwrap();
    has_begun.recv().unwrap();
    (disk, log, has_begun, go)
}

#[test]
fn followers_of_a_leader_share_the_next_sync() {
    const FOLLOWERS: u64 = 8;
    let (disk, log, has_begun, go) = gated();
    let log = &log;
    let first = append(log, 0).unwrap();
    thread::scope(|scope| {
        let leader = scope.spawn(move || log.flush(first, Durability::Synced).unwrap());
        has_begun.recv().unwrap();
        // The lock is not held while the leader syncs.
        let followers: Vec<Position> = (0..FOLLOWERS).map(|_| append(log, 0).unwrap()).collect();
        assert_eq!(log.durable_sequence(), 0);
        for position in followers {
            scope.spawn(move || log.flush(position, Durability::Synced).unwrap());
        }
        go.send(()).unwrap();
        leader.join().unwrap();
        has_begun.recv().unwrap();
        assert_eq!(log.durable_sequence(), 1);
        go.send(()).unwrap();
    });
    assert_eq!(log.durable_sequence(), 1 + FOLLOWERS);
    assert!(has_begun.try_recv().is_err(), "a third sync");
    let (end, records) = read(&*disk, 1, Some(0)).unwrap();
    assert_eq!(records, payloads(1..=1 + FOLLOWERS, 0));
    // The second group states that the first is durable.
    assert_eq!(end.durable_sequence, 1);
}

#[test]
fn a_flush_that_only_writes_does_not_sync() {
    let (_, log, has_begun, go) = gated();
    let position = append(&log, 0).unwrap();
    log.flush(position, Durability::Written).unwrap();
    assert!(has_begun.try_recv().is_err());
    go.send(()).unwrap();
    log.flush(position, Durability::Synced).unwrap();
    assert_eq!(log.durable_sequence(), 1);
}

#[test]
fn followers_get_the_failure_of_the_leader() {
    let (_, log, has_begun, go) = gated();
    let log = &log;
    let first = append(log, 0).unwrap();
    thread::scope(|scope| {
        let leader = scope.spawn(move || log.flush(first, Durability::Synced).unwrap_err().to_string());
        has_begun.recv().unwrap();
        let second = append(log, 0).unwrap();
        let follower = scope.spawn(move || log.flush(second, Durability::Written).unwrap_err().to_string());
        let rotating = scope.spawn(move || log.rotate().unwrap_err().to_string());
        drop(go);
        let cause = leader.join().unwrap();
        assert!(cause.contains("cannot sync :memory:/log/0000000000000001.log"), "{cause}");
        assert_eq!((follower.join().unwrap(), rotating.join().unwrap()), (cause.clone(), cause));
    });
}

#[test]
fn threads_append_flush_and_rotate_at_once() {
    const THREADS: u64 = 6;
    const RECORDS: u64 = 60;
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    let commits = Mutex::new(());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, commits) = (&log, &commits);
            scope.spawn(move || {
                for record in 0..RECORDS {
                    let position = {
                        let _commit = commits.lock();
                        if thread == 0 && record % 10 == 0 {
                            log.rotate().unwrap();
                            assert_eq!(log.durable_sequence(), log.last_sequence());
                        }
                        append(log, 0).unwrap()
                    };
                    let durability = if thread % 2 == 0 { Durability::Synced } else { Durability::Written };
                    log.flush(position, durability).unwrap();
                    assert!(durability == Durability::Written || log.durable_sequence() >= position.sequence());
                }
            });
        }
    });
    log.close().unwrap();
    assert_eq!(log.number(), 1 + RECORDS / 10);
    let (end, records) = read(&disk.after_power_loss(1), 1, Some(0)).unwrap();
    assert_eq!((records, end.torn_tail), (payloads(1..=THREADS * RECORDS, 0), None));
}
