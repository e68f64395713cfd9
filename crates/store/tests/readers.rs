//! Databases opened read-only while a writer commits, takes checkpoints and removes files: what readers see, which
//! files the writer keeps for them, and that readers change nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{
    append, assert_tidy, change_rows, check, check_snapshot, contents, create_table, drop_table, files_of, open,
    replace, rows_of, step, write,
};
use parking_lot::Mutex;
use taut_store::disk::{DirectoryEntry, Disk, Fault, FileDisk, Lock, ReadFile, Registration, SimulatedDisk, WriteFile};
use taut_store::{CommitError, OpenError, OpenOptions, ReadCounters, Store, verify};

const READ_ONLY: OpenOptions =
    OpenOptions { create: false, inspect: false, read_only: true, cache_bytes: Some(1 << 20) };

fn read(disk: &SimulatedDisk) -> Result<Store, OpenError> {
    read_on(disk.clone())
}

fn read_on(disk: impl Disk + 'static) -> Result<Store, OpenError> {
    Store::open_on(Arc::new(disk), READ_ONLY)
}

#[test]
fn a_reader_sees_the_last_commit_when_it_opened_or_refreshed() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    step(&writer).unwrap();
    step(&writer).unwrap();
    let reader = read(&disk).unwrap();
    assert_eq!(check(&reader, "opened"), 2);
    assert!(!reader.refresh().unwrap());
    let first = reader.snapshot();
    step(&writer).unwrap();
    assert_eq!(check(&reader, "before refresh"), 2);
    assert_eq!(check(&read(&disk).unwrap(), "opened again"), 3);
    assert!(reader.refresh().unwrap());
    assert_eq!(check(&reader, "refreshed"), 3);
    writer.checkpoint().unwrap();
    assert!(!reader.refresh().unwrap());
    for _ in 0..8 {
        step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    assert!(reader.refresh().unwrap());
    assert_eq!((check(&reader, "far"), check_snapshot(&first, "a snapshot from before")), (11, 2));
    assert!(verify(&reader).is_empty() && verify(&writer).is_empty());
    // The number `definitions` identifies the meaning of names. Cached plans depend on it.
    let before = reader.snapshot().definitions();
    drop_table(&writer, "t").unwrap();
    create_table(&writer, "t").unwrap();
    assert!(reader.refresh().unwrap());
    assert_ne!(reader.snapshot().definitions(), before);
    let before = reader.snapshot().definitions();
    change_rows(&writer, "t", &[1], &[]).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.snapshot().definitions(), before);
    drop((reader, first, writer));
    assert_tidy(&open(&disk).unwrap(), &disk, "at the end");
}

#[test]
fn a_reader_writes_nothing() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..5).for_each(|_| step(&writer).unwrap());
    let reader = read(&disk).unwrap();
    let refused = |error: &CommitError| matches!(error, CommitError::ReadOnly);
    assert!(create_table(&reader, "u").is_err_and(|error| error.downcast_ref().is_some_and(refused)));
    assert!(change_rows(&reader, "t", &[1], &[]).is_err());
    assert!(write(&reader, &[1], "row").is_err());
    assert!(refused(&reader.checkpoint().unwrap_err()));
    // A transaction without changes commits normally.
    reader.begin().commit(Default::default()).unwrap();
    assert_eq!(check(&reader, "after refusals"), 5);
}

/// Leftovers of a crash, a load and an interrupted checkpoint stay for the next writer.
#[test]
fn nothing_is_removed_repaired_or_upgraded() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..5).for_each(|_| step(&writer).unwrap());
    let killed = disk.after_kill();
    let log = files_of(&killed, "log/").pop().unwrap();
    let mut bytes = killed.files().remove(&log).unwrap();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.extend_from_slice(&[0xd7, 0x72, 0x65, 0x63, 9, 9, 9]);
    killed.put(&log, &bytes);
    killed.put("log/00000000000000ff.log.new", b"half");
    killed.put("log/0000000000000000.log", b"old");
    killed.put("log/0000000000000000.delta", b"old");
    killed.put("blocks/00000000000000ff.block", b"half");
    killed.put("catalog.new", b"half");
    let before = killed.files();
    let reader = read(&killed).unwrap();
    assert_eq!(check(&reader, "opened"), 5);
    assert!(reader.recovery().cut.is_none());
    reader.refresh().unwrap();
    assert_eq!(verify(&reader).len(), 0);
    let mut with_reader = killed.files();
    let registered = files_of(&killed, "readers/");
    assert_eq!(registered.len(), 1);
    with_reader.remove(&registered[0]);
    assert_eq!(with_reader, before);
    drop(reader);
    assert_eq!(killed.files(), before);
    let writer = open(&killed).unwrap();
    assert!(writer.recovery().cut.is_some());
    assert_eq!(check(&writer, "repaired"), 5);
    assert_tidy(&writer, &killed, "repaired");
}

#[test]
fn files_of_a_live_reader_stay_and_those_of_a_dead_one_go() {
    for is_killed in [false, true] {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..3).for_each(|_| step(&writer).unwrap());
        let reader = read(&disk).unwrap();
        for _ in 0..12 {
            step(&writer).unwrap();
            writer.checkpoint().unwrap();
        }
        assert_eq!(check(&reader, "while the writer goes on"), 3);
        assert!(files_of(&disk, "blocks/").len() > 1);
        assert!(verify(&writer).is_empty(), "{:?}", verify(&writer));
        if is_killed {
            disk.kill_readers();
        } else {
            drop(reader);
        }
        assert!(files_of(&disk, "blocks/").len() > 1);
        writer.checkpoint().unwrap();
        assert_tidy(&writer, &disk, "after the next checkpoint");
        assert!(files_of(&disk, "log/").len() <= 2, "{:?}", files_of(&disk, "log/"));
    }
}

#[test]
fn a_refresh_lets_files_go_and_a_running_query_keeps_them() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..3).for_each(|_| step(&writer).unwrap());
    writer.checkpoint().unwrap();
    let reader = read(&disk).unwrap();
    let running = reader.snapshot();
    (0..6).for_each(|_| step(&writer).unwrap());
    writer.checkpoint().unwrap();
    reader.refresh().unwrap();
    let kept = files_of(&disk, "blocks/").len();
    writer.checkpoint().unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), kept);
    assert_eq!((check_snapshot(&running, "running"), check(&reader, "refreshed")), (3, 9));
    drop(running);
    writer.checkpoint().unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), 1);
    assert_eq!(check(&reader, "still"), 9);
}

#[test]
fn files_stay_for_a_reader_when_the_writer_ends_or_crashes_and_opens_again() {
    for crash in [false, true] {
        let mut disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..3).for_each(|_| step(&writer).unwrap());
        let reader = read(&disk).unwrap();
        let needed = files_of(&disk, "blocks/");
        (0..3).for_each(|_| step(&writer).unwrap());
        if crash {
            disk = disk.after_kill();
        } else {
            drop(writer);
        }
        let writer = open(&disk).unwrap();
        // A block of a load that never was committed has the next number.
        for _ in 0..4 {
            step(&writer).unwrap();
            writer.checkpoint().unwrap();
        }
        let files = files_of(&disk, "blocks/");
        assert!(needed.iter().all(|name| files.contains(name)), "{needed:?} of {files:?}");
        if !crash {
            assert_eq!(check(&reader, "after the writer opened again"), 3);
            reader.refresh().unwrap();
            assert_eq!(check(&reader, "refreshed"), 10);
        }
        drop(reader);
        disk.kill_readers();
        drop(writer);
        let writer = open(&disk).unwrap();
        assert_tidy(&writer, &disk, "opened again without readers");
        assert_eq!(check(&writer, "opened again"), 10);
    }
}

/// The file of a block that was never committed stays while there are readers. The next block gets another number.
/// A writer cannot know of a reader whose file in `readers` was removed from outside.
#[test]
fn a_reader_whose_registration_was_removed_is_told_so_and_registers_again() {
    let directory = tempfile::tempdir().unwrap();
    let (simulated, file) = (SimulatedDisk::new(), FileDisk::new(directory.path().join("database")));
    let remove_simulated = |disk: &SimulatedDisk| {
        files_of(disk, "readers/").iter().for_each(|name| disk.remove(name).unwrap());
    };
    let disks: [(Arc<dyn Disk>, Box<dyn Fn()>); 2] = [
        (Arc::new(simulated.clone()), Box::new(|| remove_simulated(&simulated))),
        (Arc::new(file), Box::new(|| std::fs::remove_dir_all(directory.path().join("database/readers")).unwrap())),
    ];
    for (disk, remove_registrations) in disks {
        let open = |options| Store::open_on(Arc::clone(&disk), options).unwrap();
        let writer = open(OpenOptions { create: true, ..OpenOptions::default() });
        (0..3).for_each(|_| step(&writer).unwrap());
        // Of one reader the header of the block is in memory, of the other nothing is.
        let (reader, other) = (open(READ_ONLY), open(OpenOptions { cache_bytes: Some(0), ..READ_ONLY }));
        let snapshot = other.snapshot();
        drop(snapshot.table("t").unwrap().blocks[0].open(&ReadCounters::new()).unwrap());
        remove_registrations();
        replace(&writer, &[1]).unwrap();
        let error = contents(&reader).unwrap_err().to_string();
        assert!(error.contains("was removed; refresh or reopen the database"), "{error}");
        assert!(error.contains("readers") && !error.contains("DROP TABLE"), "{error}");
        // From the refresh on, the writer knows of the reader again.
        assert!(reader.refresh().unwrap());
        assert_eq!(contents(&reader).unwrap()["t"], [1]);
        let before = reader.snapshot();
        replace(&writer, &[2]).unwrap();
        writer.checkpoint().unwrap();
        assert_eq!(rows_of(before.table("t").unwrap()).unwrap(), [1]);
        // A file that is missing for another reason is damage.
        drop(snapshot);
        assert!(other.refresh().unwrap());
        let block = other.snapshot().table("t").unwrap().blocks[0].id();
        disk.remove(&format!("blocks/{block}.block")).unwrap();
        let error = contents(&other).unwrap_err().to_string();
        assert!(error.contains("is missing") && error.contains("DROP TABLE"), "{error}");
    }
}

#[test]
fn a_block_file_that_stays_is_not_overwritten() {
    let disk = SimulatedDisk::new();
    drop(open(&disk).unwrap());
    let reader = read(&disk).unwrap();
    disk.put("blocks/0000000000000001.block", b"of somebody");
    let writer = open(&disk).unwrap();
    (0..2).for_each(|_| step(&writer).unwrap());
    assert_eq!(disk.files()["blocks/0000000000000001.block"], b"of somebody");
    drop(reader);
    writer.checkpoint().unwrap();
    assert_tidy(&writer, &disk, "without the reader");
}

/// A reader may see a commit that the writer then cannot make durable. The data that it has seen stays readable.
#[test]
fn what_a_failed_commit_wrote_can_be_read_by_who_has_seen_it() {
    let mut seen_later = 0;
    for fails_from in 0..10 {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..5).for_each(|_| step(&writer).unwrap());
        disk.set_fault(Some(Fault::FailFrom(fails_from)));
        let rows = [50, 51, 52];
        if replace(&writer, &rows).is_ok() {
            break;
        }
        disk.set_fault(None);
        // The writer has not abandoned the commit yet.
        let reader = read(&disk).unwrap();
        let seen = check(&reader, "seen");
        assert!(seen == 5 || seen == 6, "{seen}");
        seen_later += u64::from(seen == 6);
        (0..4).for_each(|_| step(&writer).unwrap());
        writer.checkpoint().unwrap();
        assert_eq!(check(&reader, "seen and still there"), seen);
        reader.refresh().unwrap();
        assert_eq!(check(&reader, "refreshed"), check(&writer, "writer"));
        drop((reader, writer));
        assert_tidy(&open(&disk).unwrap(), &disk, &format!("failed from {fails_from}"));
    }
    assert!(seen_later > 0);
}

#[test]
fn what_is_not_there_is_refused_and_nothing_created() {
    let root = tempfile::tempdir().unwrap();
    let open = |name: &str| Store::open(root.path().join(name), READ_ONLY).unwrap_err();
    assert!(matches!(open("missing"), OpenError::Missing { .. }));
    assert!(matches!(
        Store::open(root.path().join("missing"), OpenOptions { create: true, ..READ_ONLY }),
        Err(OpenError::Missing { .. })
    ));
    std::fs::create_dir(root.path().join("empty")).unwrap();
    assert!(matches!(open("empty"), OpenError::Empty { .. }));
    std::fs::write(root.path().join("file"), "text").unwrap();
    assert!(matches!(open("file"), OpenError::NotADirectory { .. }));
    std::fs::create_dir(root.path().join("foreign")).unwrap();
    std::fs::write(root.path().join("foreign/notes.txt"), "mine").unwrap();
    assert!(matches!(open("foreign"), OpenError::Foreign { .. }));
    // Another process is creating the database, or was interrupted.
    std::fs::create_dir_all(root.path().join("begun/blocks")).unwrap();
    std::fs::write(root.path().join("begun/lock"), "4711\n").unwrap();
    let error = open("begun");
    assert!(error.to_string().contains("begun is no database yet: process 4711"), "{error}");
    let names = |name: &str| std::fs::read_dir(root.path().join(name)).unwrap().count();
    assert!(!root.path().join("missing").exists());
    assert_eq!((names("empty"), names("foreign"), names("begun")), (0, 1, 2));
}

/// Number of an operation, and a function to call before it.
type Hook = (u64, Box<dyn FnOnce() + Send>);

/// A disk that counts operations, calls a hook before one of them, and may be read-only.
struct Hooked {
    disk: Arc<dyn Disk>,
    count: AtomicU64,
    hook: Mutex<Option<Hook>>,
    is_read_only: bool,
    /// Byte range that the first full read of a log file returns as zeros.
    stale: Mutex<Option<std::ops::Range<usize>>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Hooked")
    }
}

impl Hooked {
    fn new(disk: impl Disk + 'static) -> Self {
        Self {
            disk: Arc::new(disk),
            count: AtomicU64::new(0),
            hook: Mutex::new(None),
            is_read_only: false,
            stale: Mutex::default(),
        }
    }

    fn read_only(disk: impl Disk + 'static) -> Arc<Self> {
        Arc::new(Self { is_read_only: true, ..Self::new(disk) })
    }

    fn count(&self) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let hook = self.hook.lock().take_if(|(at, _)| *at == number);
        if let Some((_, hook)) = hook {
            hook();
        }
    }

    fn change(&self) -> io::Result<()> {
        self.count();
        if self.is_read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct StaleFile(Arc<dyn ReadFile>, Arc<Hooked>);

impl ReadFile for StaleFile {
    fn length(&self) -> io::Result<u64> {
        self.1.count();
        self.0.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.count();
        self.0.read_at(offset, into)?;
        if let Some(stale) = self.1.stale.lock().take_if(|stale| into.len() > stale.end) {
            into[stale].fill(0);
        }
        Ok(())
    }
}

/// A hooked disk that a test and a store share.
#[derive(Debug)]
struct Shared(Arc<Hooked>);

impl Disk for Shared {
    fn path(&self, name: &str) -> PathBuf {
        self.0.disk.path(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        self.0.change()?;
        self.0.disk.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.0.count();
        let file = self.0.disk.open(name)?;
        Ok(if name.ends_with(".log") { Arc::new(StaleFile(file, Arc::clone(&self.0))) } else { file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.change()?;
        self.0.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.change()?;
        self.0.disk.remove(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.0.count();
        self.0.disk.list(directory)
    }

    fn create_directory(&self, name: &str) -> io::Result<()> {
        self.0.change()?;
        self.0.disk.create_directory(name)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        self.0.count();
        self.0.disk.sync_directory(name)
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.count();
        self.0.disk.lock(name)
    }

    fn lock_shared(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.count();
        self.0.disk.lock_shared(name)
    }

    fn register(&self, name: &str, content: &[u8]) -> io::Result<Option<Box<dyn Registration>>> {
        self.0.change()?;
        self.0.disk.register(name, content)
    }

    fn registered(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.count();
        self.0.disk.registered(name)
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.0.count();
        self.0.disk.sync_file(name)
    }

    fn extension_step(&self) -> u64 {
        self.0.disk.extension_step()
    }
}

/// Whatever a writer does between two operations of a reader that opens or refreshes, the reader sees a consistent
/// state.
#[test]
fn a_writer_may_do_anything_between_two_operations_of_a_reader() {
    let prepare = || {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..4).for_each(|_| step(&writer).unwrap());
        writer.checkpoint().unwrap();
        (0..3).for_each(|_| step(&writer).unwrap());
        (disk, writer)
    };
    let race = |writer: Store| {
        move || {
            for _ in 0..2 {
                (0..3).for_each(|_| step(&writer).unwrap());
                writer.checkpoint().unwrap();
            }
        }
    };
    let mut interleavings = 0;
    for refreshes in [false, true] {
        for at in 0.. {
            let (disk, writer) = prepare();
            let hooked = Arc::new(Hooked::new(disk.clone()));
            let mut reader = None;
            if refreshes {
                reader = Some(read_on(Shared(Arc::clone(&hooked))).unwrap());
                (0..3).for_each(|_| step(&writer).unwrap());
            }
            let start = hooked.count.load(Ordering::Relaxed);
            *hooked.hook.lock() = Some((start + at, Box::new(race(writer.clone()))));
            let reader = match reader {
                None => read_on(Shared(Arc::clone(&hooked))).unwrap(),
                Some(reader) => {
                    reader.refresh().unwrap();
                    reader
                }
            };
            let has_run = hooked.hook.lock().take().is_none();
            let context = format!("refreshes: {refreshes}, operation {at}");
            let version = check(&reader, &context);
            (0..4).for_each(|_| step(&writer).unwrap());
            writer.checkpoint().unwrap();
            assert_eq!(check(&reader, &context), version);
            drop(reader);
            writer.checkpoint().unwrap();
            assert_tidy(&writer, &disk, &context);
            if !has_run {
                break;
            }
            interleavings += 1;
        }
    }
    assert!(interleavings > 20, "{interleavings}");
}

/// A reader that opens or refreshes between two operations of a writer sees a consistent state, and continues to see
/// it.
#[test]
fn a_reader_may_open_between_two_operations_of_a_writer() {
    let work = |writer: &Store| {
        for _ in 0..2 {
            (0..4).for_each(|_| step(writer).unwrap());
            writer.checkpoint().unwrap();
        }
    };
    for at in 0.. {
        let disk = SimulatedDisk::new();
        let hooked = Arc::new(Hooked::new(disk.clone()));
        let options = OpenOptions { create: true, ..OpenOptions::default() };
        let writer = Store::open_on(Arc::new(Shared(Arc::clone(&hooked))), options).unwrap();
        (0..3).for_each(|_| step(&writer).unwrap());
        let early = read(&disk).unwrap();
        let seen = Arc::new(Mutex::new(None));
        let start = hooked.count.load(Ordering::Relaxed);
        let (shared, of_reader) = (Arc::clone(&seen), disk.clone());
        let hook = move || {
            early.refresh().unwrap();
            let late = read(&of_reader).unwrap();
            let (early_version, late_version) = (check(&early, "refreshed"), check(&late, "opened"));
            *shared.lock() = Some([(early, early_version), (late, late_version)]);
        };
        *hooked.hook.lock() = Some((start + at, Box::new(hook)));
        work(&writer);
        let operations = hooked.count.load(Ordering::Relaxed) - start;
        let context = format!("operation {at} of {operations}");
        let Some(readers) = seen.lock().take() else {
            assert!(at > 50, "{context}");
            break;
        };
        for (reader, version) in &readers {
            assert_eq!(check(reader, &context), *version);
        }
        drop(readers);
        *hooked.hook.lock() = None;
        writer.checkpoint().unwrap();
        assert_tidy(&writer, &disk, &context);
    }
}

#[test]
fn a_record_that_was_written_while_the_log_was_read_is_no_damage() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..6).for_each(|_| step(&writer).unwrap());
    let log = files_of(&disk, "log/").pop().unwrap();
    let bytes = disk.files().remove(&log).unwrap();
    let magics: Vec<usize> =
        (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(&[0xd7, 0x72, 0x65, 0x63])).collect();
    let stale = magics[2]..magics[3];
    let hooked = Arc::new(Hooked::new(disk.clone()));
    *hooked.stale.lock() = Some(stale.clone());
    assert_eq!(check(&read_on(Shared(Arc::clone(&hooked))).unwrap(), "a record is missing once"), 6);
    assert!(hooked.stale.lock().is_none());
    // Zeros that stay are damage.
    let mut damaged = bytes;
    damaged[stale].fill(0);
    disk.put(&log, &damaged);
    assert!(matches!(read(&disk), Err(OpenError::Corrupt { .. })));
}

#[test]
fn a_disk_that_cannot_be_written_is_read_while_no_writer_is_there() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..5).for_each(|_| step(&writer).unwrap());
    let error = read_on(Shared(Hooked::read_only(disk.clone()))).unwrap_err();
    assert!(matches!(error, OpenError::NotRegistered { .. }), "{error}");
    assert!(error.to_string().contains("cannot be read meanwhile"), "{error}");
    let crashed = disk.after_kill();
    let before = crashed.files();
    let reader = read_on(Shared(Hooked::read_only(crashed.clone()))).unwrap();
    let other = read_on(Shared(Hooked::read_only(crashed.clone()))).unwrap();
    assert_eq!((check(&reader, "first"), check(&other, "second")), (5, 5));
    assert!(!reader.refresh().unwrap());
    assert!(verify(&reader).is_empty());
    assert!(matches!(open(&crashed), Err(OpenError::Locked { .. })));
    drop((reader, other));
    assert_eq!(crashed.files(), before);
    assert_eq!(check(&open(&crashed).unwrap(), "writer"), 5);
}

/// What a reader saw after the writer was killed survives a power loss.
#[test]
fn what_a_reader_saw_is_durable() {
    for seed in 0..40 {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        create_table(&writer, "t").unwrap();
        for row in 0..4 {
            let transaction = writer.begin();
            common::change_in(&transaction, "t", &[row], &[]).unwrap();
            transaction.commit(taut_store::Synchronous::Normal).unwrap();
        }
        let killed = disk.after_kill();
        let reader = read(&killed).unwrap();
        let seen = contents(&reader).unwrap();
        assert_eq!(seen["t"], [0, 1, 2, 3]);
        assert_eq!(contents(&open(&killed.after_power_loss(seed)).unwrap()).unwrap(), seen, "seed {seed}");
    }
}

#[test]
fn a_replaced_directory_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("a.taut"), root.path().join("b.taut"));
    let create = OpenOptions { create: true, ..OpenOptions::default() };
    let writer = Store::open(&path, create).unwrap();
    step(&writer).unwrap();
    let reader = Store::open(&path, READ_ONLY).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    assert!(matches!(reader.refresh(), Err(OpenError::Missing { .. })));
    drop(Store::open(&path, create).unwrap());
    assert!(matches!(reader.refresh(), Err(OpenError::Replaced { .. })));
    assert_eq!(check_snapshot(&reader.snapshot(), "as before"), 1);
}

#[test]
fn readers_and_a_writer_share_real_files() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.taut");
    let writer = Store::open(&path, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    (0..3).for_each(|_| step(&writer).unwrap());
    let error = Store::open(&path, OpenOptions::default()).unwrap_err();
    assert!(error.to_string().ends_with("; it can be opened read-only"), "{error}");
    let readers: Vec<Store> = (0..20).map(|_| Store::open(&path, READ_ONLY).unwrap()).collect();
    for _ in 0..10 {
        step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    for reader in &readers {
        assert_eq!(check(reader, "on real files"), 3);
    }
    let entries = |name: &str| std::fs::read_dir(path.join(name)).unwrap().count();
    assert_eq!(entries("readers"), 20);
    assert!(entries("blocks") > 1 && verify(&writer).is_empty());
    readers[0].refresh().unwrap();
    assert_eq!(check(&readers[0], "refreshed"), 13);
    drop(readers);
    assert_eq!(entries("readers"), 0);
    writer.checkpoint().unwrap();
    assert_eq!(entries("blocks"), 1);
}

/// A reader that cannot register holds the lock, so that opening for writing fails.
#[test]
fn a_reader_that_cannot_register_keeps_writers_away() {
    let root = tempfile::tempdir().unwrap();
    let writer = Store::open(root.path(), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    step(&writer).unwrap();
    let unregistered = || read_on(Shared(Hooked::read_only(FileDisk::new(root.path()))));
    let error = unregistered().unwrap_err();
    assert!(matches!(error, OpenError::NotRegistered { .. }), "{error}");
    drop(writer);
    let readers = [unregistered().unwrap(), unregistered().unwrap()];
    assert!(matches!(Store::open(root.path(), OpenOptions::default()), Err(OpenError::Locked { .. })));
    assert_eq!(check(&readers[1], "unregistered"), 1);
    drop(readers);
    Store::open(root.path(), OpenOptions::default()).unwrap();
}

#[test]
fn readers_open_and_refresh_while_a_writer_thread_commits() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.taut");
    let writer = Store::open(&path, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    step(&writer).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        let read = || {
            let (mut versions, mut opened) = (Vec::new(), 0);
            while !is_done.load(Ordering::Relaxed) {
                let reader = Store::open(&path, READ_ONLY).unwrap();
                opened += 1;
                for _ in 0..3 {
                    versions.push(check(&reader, "while others write"));
                    reader.refresh().unwrap();
                }
            }
            assert!(versions.is_sorted());
            (versions, opened)
        };
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(read)).collect();
        let write = || {
            for number in 0..150 {
                step(&writer).unwrap();
                if number % 5 == 0 {
                    writer.checkpoint().unwrap();
                }
            }
        };
        let written = scope.spawn(write).join();
        is_done.store(true, Ordering::Relaxed);
        written.unwrap();
        for reader in readers {
            let (versions, opened) = reader.join().unwrap();
            assert!(opened > 1);
            versions.into_iter().for_each(|version| *seen.entry(version).or_insert(0) += 1);
        }
    });
    assert!(seen.len() > 3, "{seen:?}");
    writer.checkpoint().unwrap();
    let blocks = std::fs::read_dir(path.join("blocks")).unwrap().count();
    assert_eq!(blocks, 1);
}

const DATABASE_OF_CHILD: &str = "TAUT_TEST_READ_DATABASE";

/// Not a test: the next test runs it in another process.
#[test]
fn child_reads_the_database() {
    use std::io::BufRead;
    let Some(path) = std::env::var_os(DATABASE_OF_CHILD) else { return };
    let reader = Store::open(PathBuf::from(path), READ_ONLY).unwrap();
    let mut output = io::stdout().lock();
    io::Write::write_all(&mut output, b"\nopen\n").unwrap();
    for line in io::stdin().lock().lines() {
        if line.unwrap() == "refresh" {
            reader.refresh().unwrap();
        }
        let version = check(&reader, "in the other process");
        io::Write::write_all(&mut output, format!("version {version}\n").as_bytes()).unwrap();
    }
}

#[test]
fn another_process_reads_until_it_is_killed() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let root = tempfile::tempdir().unwrap();
    let writer = Store::open(root.path(), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    (0..3).for_each(|_| step(&writer).unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_reads_the_database", "--nocapture"])
        .env(DATABASE_OF_CHILD, root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "open"));
    let mut ask = |what: &str| {
        writeln!(input, "{what}").unwrap();
        lines.next().unwrap()
    };
    assert_eq!(ask("read"), "version 3");
    for _ in 0..5 {
        step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    assert_eq!(ask("read"), "version 3");
    assert_eq!(ask("refresh"), "version 8");
    let entries = |name: &str| std::fs::read_dir(root.path().join(name)).unwrap().count();
    for _ in 0..5 {
        step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    assert_eq!(ask("read"), "version 8");
    assert!(entries("blocks") > 1 && entries("readers") == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    writer.checkpoint().unwrap();
    assert_eq!((entries("blocks"), entries("readers")), (1, 0));
}

#[test]
fn an_append_is_seen_without_what_was_in_memory() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    create_table(&writer, "t").unwrap();
    append(&writer, "t", vec![write(&writer, &[1, 2], "column").unwrap()]).unwrap();
    let reader = read(&disk).unwrap();
    let first = Arc::clone(&reader.snapshot().table("t").unwrap().blocks[0]);
    append(&writer, "t", vec![write(&writer, &[3], "row").unwrap()]).unwrap();
    reader.refresh().unwrap();
    assert_eq!(contents(&reader).unwrap()["t"], [1, 2, 3]);
    // The new snapshot reuses the open block of the earlier one.
    assert!(Arc::ptr_eq(&first, &reader.snapshot().table("t").unwrap().blocks[0]));
}

/// If a read or a change of a reader fails, the reader keeps its state and can retry. A writer that cannot list the
/// readers removes nothing.
#[test]
fn a_failure_of_a_reader_or_of_a_look_at_readers_costs_nothing() {
    for (refreshes, of_reads) in [(false, false), (false, true), (true, false), (true, true)] {
        for at in 0.. {
            let disk = SimulatedDisk::new();
            let writer = open(&disk).unwrap();
            (0..4).for_each(|_| step(&writer).unwrap());
            let reader = read(&disk).unwrap();
            (0..3).for_each(|_| step(&writer).unwrap());
            disk.set_fault(Some(if of_reads { Fault::FailReadAt(at) } else { Fault::FailAt(at) }));
            let result = if refreshes { reader.refresh().map(drop) } else { read(&disk).map(drop) };
            let had_fault = if of_reads { disk.reads() > at } else { disk.changes().len() as u64 > at };
            disk.set_fault(None);
            let context = format!("refreshes: {refreshes}, failure {at}, of reads: {of_reads}: {result:?}");
            let expected = if refreshes && result.is_ok() { 7 } else { 4 };
            assert_eq!(check(&reader, &context), expected, "{context}");
            (0..3).for_each(|_| step(&writer).unwrap());
            writer.checkpoint().unwrap();
            assert_eq!(check(&reader, &context), expected, "{context}");
            reader.refresh().unwrap();
            assert_eq!(check(&reader, &context), 10, "{context}");
            drop(reader);
            writer.checkpoint().unwrap();
            assert_tidy(&writer, &disk, &context);
            if !had_fault {
                break;
            }
        }
    }
    for at in 0.. {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..4).for_each(|_| step(&writer).unwrap());
        let reader = read(&disk).unwrap();
        disk.set_fault(Some(Fault::FailReadAt(at)));
        let done = (0..3).all(|_| step(&writer).is_ok()) && writer.checkpoint().is_ok();
        let had_fault = disk.reads() > at;
        disk.set_fault(None);
        assert_eq!(check(&reader, &format!("failure {at}, done: {done}")), 4);
        if !had_fault {
            assert!(done && at > 2, "{at}");
            break;
        }
    }
}
