//! Databases that each format version wrote (`tests/databases`) are read, verified, changed and repaired.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use common::{Contents, READ_ONLY, change_rows, contents, create_table, ready, rows_with_ids};
use taut_store::{OpenError, OpenOptions, RowSet, Store, Synchronous, repair, verify};
use tempfile::TempDir;

/// Values of column `id` of the deleted rows, in the tables with 220 rows.
const DELETED: [i64; 13] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 205, 206, 215];

fn databases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/databases")
}

/// Format version of a catalog file.
fn version_of(database: &Path) -> u64 {
    let catalog = fs::read(database.join("catalog")).unwrap();
    let line = catalog.split(|byte| *byte == b'\n').next().unwrap();
    std::str::from_utf8(line).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Format versions with a database in `tests/databases`, ascending.
fn versions() -> BTreeSet<u64> {
    let names = fs::read_dir(databases()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_prefix('v')?.parse().ok()).collect()
}

/// Values of column `id` of each table in the database of a version.
fn expected(version: u64) -> Contents {
    let all: Vec<i64> = match version {
        ..7 => (1..=200).collect(),
        _ => (1..=220).filter(|id| !DELETED.contains(id)).collect(),
    };
    let tables: &[(u64, &str, Vec<i64>)] = &[
        (2, "slotted", all.clone()),
        (2, "packed", all.clone()),
        (2, "columns", all.clone()),
        (2, "grouped", all.clone()),
        (2, "empty", vec![]),
        (4, "ranged", all.clone()),
        (4, "hashed", all.clone()),
        (7, "late", (1..=10).collect()),
        (8, "accounts", (1..=51).collect()),
        (8, "orders", (1..=81).collect()),
        (12, "numbered", (1..=5).collect()),
        (12, "altered", all),
        (14, "computed", (1..=4).collect()),
        (17, "shop.articles", (1..=3).collect()),
        (17, "indexed", (1..=5).collect()),
    ];
    tables
        .iter()
        .filter(|(since, ..)| version >= *since)
        .map(|(_, name, ids)| ((*name).to_owned(), ids.clone()))
        .collect()
}

/// Values of column `id` of each table, ascending.
fn ids(store: &Store) -> Contents {
    let mut contents = contents(store).unwrap();
    contents.values_mut().for_each(|ids| ids.sort_unstable());
    contents
}

/// Content of each file by path.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

/// Copies the database of a version to a new directory.
fn copy_of(version: u64) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (databases().join(format!("v{version}")), root.path().join("copy"));
    for (path, content) in files(&from) {
        let path = to.join(path.strip_prefix(&from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    (root, to)
}

fn open(path: &Path) -> Store {
    Store::open(path, OpenOptions::default()).unwrap()
}

fn assert_undamaged(store: &Store, context: &str) {
    let damages: Vec<String> = verify(store).iter().map(ToString::to_string).collect();
    assert!(damages.is_empty(), "{context}: {damages:?}");
}

/// Deletes the rows with these values of column `id` from all tables.
fn delete(store: &Store, ids: &[i64]) {
    for name in contents(store).unwrap().into_keys() {
        let transaction = store.begin();
        let snapshot = transaction.snapshot();
        let table = snapshot.table(&name).unwrap();
        let rows = rows_with_ids(table).unwrap().into_iter().filter(|(_, id)| ids.contains(id));
        let rows: RowSet = rows.map(|(row, _)| row).collect();
        if !rows.is_empty() {
            ready(transaction.delete_rows(table.id, &rows)).unwrap();
            transaction.commit(Synchronous::Full).unwrap();
        }
    }
}

/// Fails if a format version has no database: see `tests/databases/README.md`.
#[test]
fn each_readable_version_has_a_database() {
    for version in versions() {
        assert_eq!(version_of(&databases().join(format!("v{version}"))), version);
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("new");
    drop(Store::open(&path, OpenOptions { create: true, ..OpenOptions::default() }).unwrap());
    assert!(versions().contains(&version_of(&path)), "the current version {} has no database", version_of(&path));
    fs::write(path.join("catalog"), "taut-catalog 99999 bytes=0 xxh3=0000000000000000\n").unwrap();
    match Store::open(&path, OpenOptions::default()) {
        Err(OpenError::Version { readable, .. }) => {
            assert_eq!(readable.iter().copied().collect::<BTreeSet<_>>(), versions())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_version_is_read_and_stays_unchanged() {
    for version in versions() {
        let (_root, path) = copy_of(version);
        let before = files(&path);
        let store = Store::open(&path, READ_ONLY).unwrap();
        assert_eq!(ids(&store), expected(version), "version {version}");
        assert_undamaged(&store, &format!("version {version}"));
        drop(store);
        assert!(files(&path) == before, "version {version}: a reader changed a file");
    }
}

#[test]
fn each_version_is_changed_and_becomes_the_current_one() {
    let current = *versions().last().unwrap();
    for version in versions() {
        let context = format!("version {version}");
        let (_root, path) = copy_of(version);
        let store = open(&path);
        let mut expected = expected(version);
        assert_eq!(ids(&store), expected, "{context}");
        assert_undamaged(&store, &context);
        delete(&store, &[1, 7, 150, 219]);
        create_table(&store, "added").unwrap();
        change_rows(&store, "added", &[1, 2, 3], &[]).unwrap();
        expected.values_mut().for_each(|ids| ids.retain(|id| ![1, 7, 150, 219].contains(id)));
        expected.insert("added".to_owned(), vec![1, 2, 3]);
        assert_eq!(ids(&store), expected, "{context}, changed");
        drop(store);
        let store = open(&path);
        assert_eq!(ids(&store), expected, "{context}, opened again");
        store.checkpoint().unwrap();
        drop(store);
        assert_eq!(version_of(&path), current, "{context}");
        let store = Store::open(&path, READ_ONLY).unwrap();
        assert_eq!(ids(&store), expected, "{context}, after a checkpoint");
        assert_undamaged(&store, &format!("{context}, after a checkpoint"));
    }
}

#[test]
fn each_version_is_repaired_without_a_loss() {
    for version in versions() {
        let (root, path) = copy_of(version);
        let to = root.path().join("repaired");
        let report = repair(&path, &to).unwrap();
        assert!(report.is_complete(), "version {version}: {report:?}");
        let store = open(&to);
        assert_eq!(ids(&store), expected(version), "version {version}");
        assert_undamaged(&store, &format!("version {version}, repaired"));
    }
}
