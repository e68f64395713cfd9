//! Interleavings of a reader and a writer: the writer commits between any two disk operations of the reader, and the
//! reader opens the database between any two disk operations of the writer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{assert_tidy, check, files_of, open, read, read_on, versioned_step};
use parking_lot::Mutex;
use taut_store::disk::{DirectoryEntry, Disk, FileDisk, Lock, ReadFile, Registration, SimulatedDisk, WriteFile};
use taut_store::{OpenError, OpenOptions, Store, verify};

/// Number of a disk operation, and a function to call before it.
type Hook = (u64, Box<dyn FnOnce() + Send>);

/// A disk that counts its operations, calls a hook before one of them, and may be read-only.
struct Hooked {
    disk: Arc<dyn Disk>,
    count: AtomicU64,
    hook: Mutex<Option<Hook>>,
    is_read_only: bool,
    /// Byte range that is zero in the first read of a whole log file.
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

    /// Counts an operation. Calls the hook first if it belongs to this operation.
    fn begin(&self) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let hook = self.hook.lock().take_if(|(at, _)| *at == number);
        if let Some((_, hook)) = hook {
            hook();
        }
    }

    /// Counts an operation that changes the disk. Fails if the disk is read-only.
    fn begin_change(&self) -> io::Result<()> {
        self.begin();
        if self.is_read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }
}

/// A log file of a hooked disk.
#[derive(Debug)]
struct HookedLog(Arc<dyn ReadFile>, Arc<Hooked>);

impl ReadFile for HookedLog {
    fn length(&self) -> io::Result<u64> {
        self.1.begin();
        self.0.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.begin();
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
        self.0.begin_change()?;
        self.0.disk.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.0.begin();
        let file = self.0.disk.open(name)?;
        Ok(if name.ends_with(".log") { Arc::new(HookedLog(file, Arc::clone(&self.0))) } else { file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.begin_change()?;
        self.0.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.begin_change()?;
        self.0.disk.remove(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.0.begin();
        self.0.disk.list(directory)
    }

    fn create_directory(&self, name: &str) -> io::Result<()> {
        self.0.begin_change()?;
        self.0.disk.create_directory(name)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        self.0.begin();
        self.0.disk.sync_directory(name)
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.begin();
        self.0.disk.lock(name)
    }

    fn lock_shared(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.begin();
        self.0.disk.lock_shared(name)
    }

    fn register(&self, name: &str, content: &[u8]) -> io::Result<Option<Box<dyn Registration>>> {
        self.0.begin_change()?;
        self.0.disk.register(name, content)
    }

    fn read_registration(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.begin();
        self.0.disk.read_registration(name)
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.0.begin();
        self.0.disk.sync_file(name)
    }

    fn extension_step(&self) -> u64 {
        self.0.disk.extension_step()
    }
}

/// A reader that opens or refreshes sees a consistent state, although a writer commits and takes checkpoints between
/// two of its operations.
#[test]
fn a_writer_commits_between_any_two_operations_of_a_reader() {
    let prepare = || {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..4).for_each(|_| versioned_step(&writer).unwrap());
        writer.checkpoint().unwrap();
        (0..3).for_each(|_| versioned_step(&writer).unwrap());
        (disk, writer)
    };
    let write = |writer: Store| {
        move || {
            for _ in 0..2 {
                (0..3).for_each(|_| versioned_step(&writer).unwrap());
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
                (0..3).for_each(|_| versioned_step(&writer).unwrap());
            }
            let start = hooked.count.load(Ordering::Relaxed);
            *hooked.hook.lock() = Some((start + at, Box::new(write(writer.clone()))));
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
            (0..4).for_each(|_| versioned_step(&writer).unwrap());
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

/// A reader that opens or refreshes between two operations of a writer sees a consistent state, which does not change.
#[test]
fn a_reader_opens_between_any_two_operations_of_a_writer() {
    let write = |writer: &Store| {
        for _ in 0..2 {
            (0..4).for_each(|_| versioned_step(writer).unwrap());
            writer.checkpoint().unwrap();
        }
    };
    for at in 0.. {
        let disk = SimulatedDisk::new();
        let hooked = Arc::new(Hooked::new(disk.clone()));
        let options = OpenOptions { create: true, ..OpenOptions::default() };
        let writer = Store::open_on(Arc::new(Shared(Arc::clone(&hooked))), options).unwrap();
        (0..3).for_each(|_| versioned_step(&writer).unwrap());
        let early = read(&disk).unwrap();
        let seen = Arc::new(Mutex::new(None));
        let start = hooked.count.load(Ordering::Relaxed);
        let (seen_by_hook, reader_disk) = (Arc::clone(&seen), disk.clone());
        let hook = move || {
            early.refresh().unwrap();
            let late = read(&reader_disk).unwrap();
            let (early_version, late_version) = (check(&early, "refreshed"), check(&late, "opened"));
            *seen_by_hook.lock() = Some([(early, early_version), (late, late_version)]);
        };
        *hooked.hook.lock() = Some((start + at, Box::new(hook)));
        write(&writer);
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
fn a_record_written_while_the_log_is_read_is_not_damage() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..6).for_each(|_| versioned_step(&writer).unwrap());
    let log = files_of(&disk, "log/").pop().unwrap();
    let bytes = disk.files().remove(&log).unwrap();
    let magics: Vec<usize> =
        (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(&[0xd7, 0x72, 0x65, 0x63])).collect();
    let stale = magics[2]..magics[3];
    let hooked = Arc::new(Hooked::new(disk.clone()));
    *hooked.stale.lock() = Some(stale.clone());
    assert_eq!(check(&read_on(Shared(Arc::clone(&hooked))).unwrap(), "one record is zero in the first read"), 6);
    assert!(hooked.stale.lock().is_none());
    // Zeros in every read are damage.
    let mut damaged = bytes;
    damaged[stale].fill(0);
    disk.put(&log, &damaged);
    assert!(matches!(read(&disk), Err(OpenError::Corrupt { .. })));
}

#[test]
fn a_read_only_disk_can_be_read_unless_there_is_a_writer() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..5).for_each(|_| versioned_step(&writer).unwrap());
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

/// A reader that cannot register holds the lock, so that opening for writing fails.
#[test]
fn a_reader_that_cannot_register_excludes_writers() {
    let root = tempfile::tempdir().unwrap();
    let writer = Store::open(root.path(), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    versioned_step(&writer).unwrap();
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
