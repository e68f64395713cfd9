//! Readers of a database while a writer commits, takes checkpoints and removes files: what the readers see, which files
//! the writer keeps for them, and that they change nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{
    READ_ONLY, assert_tidy, change_rows, check, check_snapshot, contents, create_table, drop_table, files_of, open,
    read, replace, rows_of, versioned_step, write,
};
use taut_store::disk::{Disk, Fault, FileDisk, SimulatedDisk};
use taut_store::{CommitError, OpenError, OpenOptions, ReadCounters, Store, verify};

#[test]
fn a_reader_sees_commits_up_to_its_opening_or_last_refresh() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    versioned_step(&writer).unwrap();
    versioned_step(&writer).unwrap();
    let reader = read(&disk).unwrap();
    assert_eq!(check(&reader, "opened"), 2);
    assert!(!reader.refresh().unwrap());
    let first = reader.snapshot();
    versioned_step(&writer).unwrap();
    assert_eq!(check(&reader, "before refresh"), 2);
    assert_eq!(check(&read(&disk).unwrap(), "opened again"), 3);
    assert!(reader.refresh().unwrap());
    assert_eq!(check(&reader, "refreshed"), 3);
    writer.checkpoint().unwrap();
    assert!(!reader.refresh().unwrap());
    for _ in 0..8 {
        versioned_step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    assert!(reader.refresh().unwrap());
    assert_eq!((check(&reader, "refreshed over checkpoints"), check_snapshot(&first, "an old snapshot")), (11, 2));
    assert!(verify(&reader).is_empty() && verify(&writer).is_empty());
    // `definitions_id` changes if a name refers to another table. Cached plans depend on it.
    let before = reader.snapshot().definitions_id();
    drop_table(&writer, "t").unwrap();
    create_table(&writer, "t").unwrap();
    assert!(reader.refresh().unwrap());
    assert_ne!(reader.snapshot().definitions_id(), before);
    let before = reader.snapshot().definitions_id();
    change_rows(&writer, "t", &[1], &[]).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.snapshot().definitions_id(), before);
    drop((reader, first, writer));
    assert_tidy(&open(&disk).unwrap(), &disk, "at the end");
}

#[test]
fn a_reader_writes_nothing() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..5).for_each(|_| versioned_step(&writer).unwrap());
    let reader = read(&disk).unwrap();
    let is_read_only = |error: &CommitError| matches!(error, CommitError::ReadOnly);
    assert!(create_table(&reader, "u").is_err_and(|error| error.downcast_ref().is_some_and(is_read_only)));
    assert!(change_rows(&reader, "t", &[1], &[]).is_err());
    assert!(write(&reader, &[1], "row").is_err());
    assert!(is_read_only(&reader.checkpoint().unwrap_err()));
    // A transaction without changes commits normally.
    reader.begin().commit(Default::default()).unwrap();
    assert_eq!(check(&reader, "after rejected writes"), 5);
}

/// Leftovers of a crash, a load and an interrupted checkpoint stay for the next writer.
#[test]
fn a_reader_does_not_remove_repair_or_upgrade_files() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..5).for_each(|_| versioned_step(&writer).unwrap());
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
    assert!(reader.recovery().torn_tail.is_none());
    reader.refresh().unwrap();
    assert_eq!(verify(&reader).len(), 0);
    let mut files_with_reader = killed.files();
    let registered = files_of(&killed, "readers/");
    assert_eq!(registered.len(), 1);
    files_with_reader.remove(&registered[0]);
    assert_eq!(files_with_reader, before);
    drop(reader);
    assert_eq!(killed.files(), before);
    let writer = open(&killed).unwrap();
    assert!(writer.recovery().torn_tail.is_some());
    assert_eq!(check(&writer, "repaired"), 5);
    assert_tidy(&writer, &killed, "repaired");
}

#[test]
fn files_stay_for_a_reader_until_it_closes_or_is_killed() {
    for is_killed in [false, true] {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..3).for_each(|_| versioned_step(&writer).unwrap());
        let reader = read(&disk).unwrap();
        for _ in 0..12 {
            versioned_step(&writer).unwrap();
            writer.checkpoint().unwrap();
        }
        assert_eq!(check(&reader, "while the writer commits"), 3);
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
fn a_refresh_releases_files_unless_a_running_query_needs_them() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    (0..3).for_each(|_| versioned_step(&writer).unwrap());
    writer.checkpoint().unwrap();
    let reader = read(&disk).unwrap();
    let running = reader.snapshot();
    (0..6).for_each(|_| versioned_step(&writer).unwrap());
    writer.checkpoint().unwrap();
    reader.refresh().unwrap();
    let kept = files_of(&disk, "blocks/").len();
    writer.checkpoint().unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), kept);
    assert_eq!((check_snapshot(&running, "running"), check(&reader, "refreshed")), (3, 9));
    drop(running);
    writer.checkpoint().unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), 1);
    assert_eq!(check(&reader, "after the query"), 9);
}

#[test]
fn files_stay_for_a_reader_when_the_writer_closes_or_crashes_and_opens_again() {
    for crashes in [false, true] {
        let mut disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..3).for_each(|_| versioned_step(&writer).unwrap());
        let reader = read(&disk).unwrap();
        let needed = files_of(&disk, "blocks/");
        (0..3).for_each(|_| versioned_step(&writer).unwrap());
        if crashes {
            disk = disk.after_kill();
        } else {
            drop(writer);
        }
        let writer = open(&disk).unwrap();
        for _ in 0..4 {
            versioned_step(&writer).unwrap();
            writer.checkpoint().unwrap();
        }
        let files = files_of(&disk, "blocks/");
        assert!(needed.iter().all(|name| files.contains(name)), "{needed:?} of {files:?}");
        if !crashes {
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

/// A writer ignores a reader whose file in `readers` was removed externally.
#[test]
fn a_reader_detects_a_removed_registration_and_registers_again() {
    let directory = tempfile::tempdir().unwrap();
    let (simulated, file) = (SimulatedDisk::new(), FileDisk::new(directory.path().join("database")));
    let remove_simulated = |disk: &SimulatedDisk| {
        files_of(disk, "readers/").iter().for_each(|name| disk.remove(name).unwrap());
    };
    /// A disk, and a function that removes the registrations on it.
    type Case<'a> = (Arc<dyn Disk>, Box<dyn Fn() + 'a>);
    let disks: [Case<'_>; 2] = [
        (Arc::new(simulated.clone()), Box::new(|| remove_simulated(&simulated))),
        (Arc::new(file), Box::new(|| std::fs::remove_dir_all(directory.path().join("database/readers")).unwrap())),
    ];
    for (disk, remove_registrations) in disks {
        let open = |options| Store::open_on(Arc::clone(&disk), options).unwrap();
        let writer = open(OpenOptions { create: true, ..OpenOptions::default() });
        (0..3).for_each(|_| versioned_step(&writer).unwrap());
        // `other` reads the header of the block into memory, `reader` reads nothing of the block.
        let (reader, other) = (open(READ_ONLY), open(OpenOptions { cache_bytes: Some(0), ..READ_ONLY }));
        let snapshot = other.snapshot();
        drop(snapshot.table("t").unwrap().blocks[0].open(&ReadCounters::new()).unwrap());
        remove_registrations();
        replace(&writer, &[1]).unwrap();
        let error = contents(&reader).unwrap_err().to_string();
        assert!(error.contains("was removed; refresh or reopen the database"), "{error}");
        assert!(error.contains("readers") && !error.contains("DROP TABLE"), "{error}");
        // The refresh registers the reader again, so the writer keeps files for it.
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

/// A block file that was never committed stays while there are readers. The next block gets another number.
#[test]
fn a_block_file_that_could_not_be_removed_is_not_overwritten() {
    let disk = SimulatedDisk::new();
    drop(open(&disk).unwrap());
    let reader = read(&disk).unwrap();
    disk.put("blocks/0000000000000001.block", b"uncommitted");
    let writer = open(&disk).unwrap();
    (0..2).for_each(|_| versioned_step(&writer).unwrap());
    assert_eq!(disk.files()["blocks/0000000000000001.block"], b"uncommitted");
    drop(reader);
    writer.checkpoint().unwrap();
    assert_tidy(&writer, &disk, "without the reader");
}

/// A reader may see a commit that the writer then cannot make durable. The reader can still read its rows.
#[test]
fn a_reader_that_saw_a_failed_commit_can_read_its_rows() {
    let mut readers_of_failed_commit = 0;
    for fails_from in 0..10 {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..5).for_each(|_| versioned_step(&writer).unwrap());
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
        readers_of_failed_commit += u64::from(seen == 6);
        (0..4).for_each(|_| versioned_step(&writer).unwrap());
        writer.checkpoint().unwrap();
        assert_eq!(check(&reader, "after later commits"), seen);
        reader.refresh().unwrap();
        assert_eq!(check(&reader, "refreshed"), check(&writer, "writer"));
        drop((reader, writer));
        assert_tidy(&open(&disk).unwrap(), &disk, &format!("failed from {fails_from}"));
    }
    assert!(readers_of_failed_commit > 0);
}

#[test]
fn opening_a_missing_database_fails_and_creates_nothing() {
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
    // Another process is creating the database, or was interrupted while creating it.
    std::fs::create_dir_all(root.path().join("begun/blocks")).unwrap();
    std::fs::write(root.path().join("begun/lock"), "4711\n").unwrap();
    let error = open("begun");
    assert!(error.to_string().contains("begun is not a database yet: process 4711"), "{error}");
    let entries = |name: &str| std::fs::read_dir(root.path().join(name)).unwrap().count();
    assert!(!root.path().join("missing").exists());
    assert_eq!((entries("empty"), entries("foreign"), entries("begun")), (0, 1, 2));
}
