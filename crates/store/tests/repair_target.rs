//! The directory to which a repair writes. If the repair is stopped at any change, or its disk fails, the directory is
//! either the complete database or cannot be opened. It never opens as an empty database. The next repair to it
//! succeeds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a run prints its number of crash points")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{Contents, append, assert_tidy, change_rows, contents, create_table, open, write};
use taut_store::disk::{Disk, Fault, FileDisk, SimulatedDisk};
use taut_store::{OpenError, OpenOptions, RepairError, Store, repair, repair_on, verify};

const CREATE: OpenOptions = OpenOptions { create: true, inspect: false, read_only: false, cache_bytes: None };
const READ: OpenOptions = OpenOptions { create: false, inspect: false, read_only: true, cache_bytes: None };

/// Fills a database with blocks, rows in no block, and deleted rows. Returns its contents.
fn fill(store: &Store) -> Contents {
    for name in ["t", "u"] {
        create_table(store, name).unwrap();
        let blocks = vec![write(store, &[1, 2, 3], "column").unwrap(), write(store, &[4, 5], "packed_row").unwrap()];
        append(store, name, blocks).unwrap();
        change_rows(store, name, &[6, 7], &[2]).unwrap();
    }
    contents(store).unwrap()
}

/// Fills a database with delta rows only, so that no block file shows that the directory is not empty. Returns its
/// contents.
fn fill_delta(store: &Store) -> Contents {
    create_table(store, "t").unwrap();
    change_rows(store, "t", &[1, 2], &[]).unwrap();
    contents(store).unwrap()
}

/// A target of a repair: missing, or an empty directory.
fn target(exists: bool) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    if exists {
        disk.create_directory("").unwrap();
    }
    disk
}

/// Checks a target after a repair was stopped. Returns whether it is a complete database.
fn check(to: &SimulatedDisk, existed: bool, expected: &Contents, context: &str) -> bool {
    let is_untouched = match to.list("") {
        Ok(entries) => existed && entries.is_empty(),
        Err(_) => !existed,
    };
    if is_untouched {
        return false;
    }
    for options in [CREATE, OpenOptions::default(), READ] {
        match Store::open_on(Arc::new(to.after_kill()), options) {
            Ok(store) => assert_eq!(contents(&store).unwrap(), *expected, "{context}, {options:?}"),
            Err(OpenError::Incomplete { .. }) => {}
            Err(error) => panic!("{context}, {options:?}: {error}"),
        }
    }
    let Ok(store) = Store::open_on(Arc::new(to.clone()), CREATE) else { return false };
    assert!(verify(&store).is_empty(), "{context}");
    assert_tidy(&store, to, context);
    true
}

#[test]
fn a_stopped_repair_leaves_no_database_or_the_complete_one() {
    let mut points = 0;
    for (fill, existed) in [(fill as fn(&Store) -> Contents, false), (fill, true), (fill_delta, false)] {
        let disk = SimulatedDisk::new();
        let store = open(&disk).unwrap();
        let expected = fill(&store);
        drop(store);
        for fault in [Fault::CrashAt as fn(u64) -> Fault, Fault::FailAt, Fault::FailAfter, Fault::FailFrom] {
            let mut complete = 0;
            for at in 0.. {
                let to = target(existed);
                to.set_fault(Some(fault(at)));
                let result = repair_on(Arc::new(disk.after_kill()), Arc::new(to.clone()));
                if to.changes().len() as u64 <= at {
                    result.unwrap();
                    assert!(at > 10, "{at}");
                    break;
                }
                points += 1;
                let lost = (0..if to.is_crashed() { 20 } else { 0 }).map(|seed| to.after_power_loss(seed));
                for found in std::iter::once(to.after_kill()).chain(lost) {
                    let context = format!("existed: {existed}, {:?} ({:?})", fault(at), to.changes().last());
                    if check(&found, existed, &expected, &context) {
                        complete += 1;
                        continue;
                    }
                    assert!(result.is_err(), "{context}");
                    // The next repair starts from the beginning.
                    repair_on(Arc::new(disk.after_kill()), Arc::new(found.clone()))
                        .unwrap_or_else(|error| panic!("{context}: {error}"));
                    let found = found.after_power_loss(at);
                    assert!(check(&found, existed, &expected, &format!("{context}, again")), "{context}");
                }
            }
            // Some crashes come after the database is complete. A repair that fails without a crash removes what it
            // wrote, so it need not leave a complete database.
            let is_crash = fault(0) == Fault::CrashAt(0);
            assert!(complete > 0 || !is_crash);
        }
    }
    println!("{points} crash points and faults");
    assert!(points > 150, "{points}");
}

/// A repair that fails removes what it wrote, including the directory if the repair created it.
#[test]
fn a_failed_repair_leaves_the_path_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let store = Store::open(path("from"), CREATE).unwrap();
    let expected = fill(&store);
    drop(store);
    let names = |path: &Path| -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    // A file where the directory of the new database must be created.
    fs::write(path("file"), "text").unwrap();
    repair(path("from"), path("file/to")).unwrap_err();
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("from/catalog"), "nothing").unwrap();
    for to in ["to", "empty"] {
        assert!(matches!(repair(path("from"), path(to)), Err(RepairError::NoCatalog { .. })));
    }
    assert_eq!(names(root.path()), ["empty", "file", "from"]);
    assert!(names(&path("empty")).is_empty());
    let again = Store::open(path("again"), CREATE).unwrap();
    assert_eq!(fill(&again), expected);
    drop(again);
    repair(path("again"), path("to")).unwrap();
    repair(path("again"), path("empty")).unwrap();
    assert_eq!(names(root.path()), ["again", "empty", "file", "from", "to"], "no other directory remains");
    for to in ["to", "empty"] {
        assert_eq!(contents(&Store::open(path(to), OpenOptions::default()).unwrap()).unwrap(), expected);
        assert!(matches!(repair(path("again"), path(to)), Err(RepairError::Exists { .. })));
    }
}

/// A repair replaces the remains of a killed repair and no other files. It fails while another process has locked the
/// directory.
#[test]
fn only_the_remains_of_a_repair_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let store = Store::open(&from, CREATE).unwrap();
    let expected = fill(&store);
    drop(store);
    for name in ["blocks", "log"] {
        fs::create_dir_all(to.join(name)).unwrap();
    }
    for name in ["incomplete", "lock", "catalog", "blocks/00000000000000ff.block", "log/0000000000000001.delta"] {
        fs::write(to.join(name), "remains").unwrap();
    }
    for options in [CREATE, READ] {
        let error = Store::open(&to, options).unwrap_err();
        assert!(matches!(error, OpenError::Incomplete { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("is not a complete database: a repair or restore is writing it"), "{text}");
    }
    for name in ["notes.txt", "blocks/notes.txt", "log/notes.txt"] {
        fs::write(to.join(name), "mine").unwrap();
        assert!(matches!(repair(&from, &to), Err(RepairError::Exists { .. })), "{name}");
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), "mine");
        fs::remove_file(to.join(name)).unwrap();
    }
    let held = FileDisk::new(&to).lock("lock").unwrap().unwrap();
    assert!(matches!(repair(&from, &to), Err(RepairError::Exists { .. })));
    assert!(to.join("blocks/00000000000000ff.block").exists());
    drop(held);
    repair(&from, &to).unwrap();
    let store = Store::open(&to, OpenOptions::default()).unwrap();
    assert_eq!(contents(&store).unwrap(), expected);
    assert!(verify(&store).is_empty());
    assert!(!to.join("blocks/00000000000000ff.block").exists());
}

#[test]
fn a_repair_refuses_unusable_sources_and_targets() {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    assert!(matches!(repair(&from, &to), Err(RepairError::Open(OpenError::Missing { .. }))));
    let options = taut_store::OpenOptions { create: true, ..Default::default() };
    let store = Store::open(&from, options).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    let error = repair(&from, &to).unwrap_err();
    assert!(matches!(&error, RepairError::Open(OpenError::Locked { .. })), "{error}");
    assert!(!to.exists());
    drop(store);
    for inside in [from.clone(), from.join("new"), from.join("a/b/new"), from.join("blocks/new")] {
        let error = repair(&from, &inside).unwrap_err();
        assert!(matches!(&error, RepairError::Inside { .. }), "{error}");
    }
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("notes.txt"), "mine").unwrap();
    assert!(matches!(repair(&from, &to), Err(RepairError::Exists { .. })));
    std::fs::remove_file(to.join("notes.txt")).unwrap();
    // The lock file contains the process that last opened the database, and stays unchanged.
    std::fs::write(from.join("lock"), "12345\n").unwrap();
    assert!(repair(&from, &to).unwrap().is_complete());
    assert_eq!(std::fs::read_to_string(from.join("lock")).unwrap(), "12345\n");
    let store = Store::open(&to, taut_store::OpenOptions::default()).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [1, 2]);
    assert!(verify(&store).is_empty());
    std::fs::remove_file(from.join("lock")).unwrap();
    assert!(repair(&from, root.path().join("again")).unwrap().is_complete());
    assert!(!from.join("lock").exists());
}
