//! Which directories are opened, created and refused, with real files. A directory that is not a database stays
//! unchanged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{append, contents, create_table, write};
use taut_store::{CommitError, OpenError, OpenOptions, Store, verify};

const CREATE: OpenOptions = OpenOptions { create: true, inspect: false, read_only: false, cache_bytes: None };

fn open(path: &Path) -> Result<Store, OpenError> {
    Store::open(path, OpenOptions::default())
}

fn tree(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let content = |path: &Path| {
        if path.is_dir() { tree(path).into_values().flatten().collect() } else { fs::read(path).unwrap() }
    };
    entries.map(|entry| (entry.file_name().into_string().unwrap(), content(&entry.path()))).collect()
}

#[test]
fn a_database_is_created_and_opened_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("new.taut");
    let store = Store::open(&path, CREATE).unwrap();
    let id = store.snapshot().database_id();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "row").unwrap()]).unwrap();
    let before = contents(&store).unwrap();
    drop(store);
    let store = open(&path).unwrap();
    assert_eq!((contents(&store).unwrap(), store.snapshot().database_id()), (before, id));
    assert_eq!(store.snapshot().version(), 2);
    assert!(verify(&store).is_empty());
    drop(store);
    // An empty directory, or one that an interrupted creation left, also becomes a database.
    let left = root.path().join("left");
    fs::create_dir_all(left.join("blocks")).unwrap();
    fs::write(left.join("lock"), "").unwrap();
    fs::write(left.join("catalog.new"), "half").unwrap();
    assert!(matches!(open(&left), Err(OpenError::Empty { .. })));
    let other = Store::open(&left, CREATE).unwrap().snapshot().database_id();
    assert_ne!(id, other);
}

#[test]
fn other_directories_are_refused_and_stay_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("missing");
    assert!(matches!(open(&missing), Err(OpenError::Missing { .. })));
    assert!(!missing.exists());
    assert!(matches!(Store::open(missing.join("deeper"), CREATE), Err(OpenError::File(_))));

    let file = root.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(matches!(Store::open(&file, CREATE), Err(OpenError::NotADirectory { .. })));

    let foreign = root.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    let before = tree(&foreign);
    for options in [CREATE, OpenOptions::default()] {
        let error = Store::open(&foreign, options).unwrap_err();
        assert!(matches!(&error, OpenError::Foreign { found, .. } if found == "notes.txt"), "{error}");
    }
    assert_eq!(tree(&foreign), before);

    // Blocks without a catalog may be all that is left of a user's data.
    let lost = root.path().join("lost");
    fs::create_dir_all(lost.join("blocks")).unwrap();
    fs::write(lost.join("blocks/0000000000000001.block"), "data").unwrap();
    let before = tree(&lost);
    assert!(matches!(Store::open(&lost, CREATE), Err(OpenError::Foreign { .. })));
    assert_eq!(tree(&lost), before);
}

#[test]
fn errors_name_an_unknown_version_and_damage() {
    let root = tempfile::tempdir().unwrap();
    drop(Store::open(root.path(), CREATE).unwrap());
    let catalog = root.path().join("catalog");
    let bytes = fs::read_to_string(&catalog).unwrap();
    fs::write(&catalog, bytes.replacen("taut-catalog 20", "taut-catalog 9", 1)).unwrap();
    let error = open(root.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("catalog has format version 9; this program reads [2, 4, 7, 8, 11, 12, 14, 17, 18, 20]"),
        "{error}"
    );
    fs::write(&catalog, &bytes[..bytes.len() - 1]).unwrap();
    let error = open(root.path()).unwrap_err();
    let OpenError::Corrupt { path, at, .. } = &error else { panic!("{error}") };
    assert_eq!((path, *at), (&catalog, bytes.len() as u64 - 1), "{error}");
}

#[test]
fn leftovers_of_a_load_are_removed_and_other_files_kept() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), CREATE).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1], "row").unwrap()]).unwrap();
    drop(store);
    let blocks = root.path().join("blocks");
    fs::write(blocks.join("0000000000000009.block"), "half").unwrap();
    fs::write(blocks.join("0000000000000009.block.bak"), "mine").unwrap();
    fs::write(root.path().join("catalog.new"), "half").unwrap();
    let store = open(root.path()).unwrap();
    assert!(!blocks.join("0000000000000009.block").exists() && !root.path().join("catalog.new").exists());
    assert!(blocks.join("0000000000000009.block.bak").exists());
    assert_eq!(verify(&store).len(), 1);
    assert_eq!(contents(&store).unwrap()["t"], [1]);
}

const DATABASE_OF_CHILD: &str = "TAUT_TEST_DATABASE";

/// Not a test: the next test runs it in another process.
#[test]
fn child_holds_the_database() {
    let Some(path) = std::env::var_os(DATABASE_OF_CHILD) else { return };
    let _store = open(Path::new(&path)).unwrap();
    println!("\nopen");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_second_process_is_refused_until_the_first_ends_in_any_way() {
    let root = tempfile::tempdir().unwrap();
    drop(Store::open(root.path(), CREATE).unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_holds_the_database", "--nocapture"])
        .env(DATABASE_OF_CHILD, root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"), "the other process did not open the database");
    for options in [CREATE, OpenOptions { inspect: true, ..OpenOptions::default() }] {
        let error = Store::open(root.path(), options).unwrap_err();
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
        let expected = format!("is in use by process {}", child.id());
        assert!(error.to_string().contains(&expected), "{error}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    open(root.path()).unwrap();
}

#[test]
fn the_database_stays_locked_while_a_snapshot_may_need_its_files() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), CREATE).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1], "row").unwrap()]).unwrap();
    let snapshot = store.snapshot();
    drop(store);
    assert!(matches!(open(root.path()), Err(OpenError::Locked { .. })));
    drop(snapshot);
    open(root.path()).unwrap();
}

#[test]
fn a_second_process_is_refused_although_the_lock_file_was_deleted() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), CREATE).unwrap();
    fs::remove_file(root.path().join("lock")).unwrap();
    for options in [CREATE, OpenOptions { inspect: true, ..OpenOptions::default() }] {
        let error = Store::open(root.path(), options).unwrap_err();
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
        if cfg!(target_os = "linux") {
            let expected = format!("is in use by process {} (", std::process::id());
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
    create_table(&store, "t").unwrap();
    drop(store);
    assert!(open(root.path()).unwrap().snapshot().table("t").is_some());
}

#[test]
fn a_replaced_directory_refuses_commits_and_stays_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("a.taut"), root.path().join("b.taut"));
    let store = Store::open(&path, CREATE).unwrap();
    create_table(&store, "t").unwrap();
    fs::rename(&path, &moved).unwrap();
    let refused = |store: &Store| {
        let error = create_table(store, "u").unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CommitError::DirectoryReplaced { path: found }) if *found == path));
        assert!(matches!(store.checkpoint(), Err(CommitError::DirectoryReplaced { .. })));
    };
    refused(&store);
    drop(Store::open(&path, CREATE).unwrap());
    let before = tree(&path);
    refused(&store);
    drop(store);
    assert_eq!(tree(&path), before);
    let store = open(&moved).unwrap();
    assert!(store.snapshot().table("t").is_some() && store.snapshot().table("u").is_none());
}

#[test]
fn a_directory_with_the_name_of_a_block_file_is_not_removed() {
    let root = tempfile::tempdir().unwrap();
    drop(Store::open(root.path(), CREATE).unwrap());
    let foreign = root.path().join("blocks/0000000000000007.block");
    fs::create_dir(&foreign).unwrap();
    let store = open(root.path()).unwrap();
    let damages = verify(&store);
    assert!(matches!(&damages[..], [damage] if damage.path == foreign), "{damages:?}");
    assert!(foreign.is_dir());
}

#[test]
fn a_block_gets_another_name_if_a_directory_has_it() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), CREATE).unwrap();
    create_table(&store, "t").unwrap();
    // Directories take the names of the next block files: one before the database is opened, one while it is open.
    let foreign = |number: u64| root.path().join(format!("blocks/{number:016x}.block"));
    fs::create_dir(foreign(1)).unwrap();
    drop(store);
    let store = Store::open(root.path(), CREATE).unwrap();
    fs::create_dir(foreign(2)).unwrap();
    fs::write(foreign(2).join("notes.txt"), "mine").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap(), write(&store, &[3], "row").unwrap()]).unwrap();
    drop(store);
    let store = Store::open(root.path(), CREATE).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [1, 2, 3]);
    assert!(foreign(1).is_dir() && foreign(2).join("notes.txt").exists() && foreign(3).is_file());
}
