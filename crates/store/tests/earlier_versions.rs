//! Databases of earlier versions of Taut are read. A database without a log gets a log with its first commit. Log files
//! that were not closed are closed when the next one is begun.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{Contents, append, assert_tidy, change_rows, contents, create_table, open, schema, view, write};
use serde_json::Value;
use taut_block::checksum;
use taut_store::disk::{Disk, Fault, SimulatedDisk};
use taut_store::{CommitError, OpenError, OpenOptions, Store, repair_on, verify};

/// Format versions of databases without a log.
const VERSIONS: [u64; 2] = [2, 4];

/// A database as an earlier version left it: two tables and a view, and all rows in blocks.
fn database_of(version: u64) -> (SimulatedDisk, Contents) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "column").unwrap(), write(&store, &[4], "row").unwrap()])
        .unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_table("u", schema(), common::design("row"))).unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_view(view("v", "select 1"), false)).unwrap();
    let contents = contents(&store).unwrap();
    drop(store);
    let bytes = disk.files().remove("catalog").unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let mut json: Value = serde_json::from_slice(&bytes[line + 1..]).unwrap();
    let fields = json.as_object_mut().unwrap();
    assert!(fields.remove("log").is_some() && fields.remove("delta").is_none());
    assert!(fields.remove("timelines").is_some());
    if version == 2 {
        // Version 2 also did not store the bounds of a block.
        let blocks = fields["tables"].as_array_mut().unwrap().iter_mut().map(|table| &mut table["blocks"]);
        for block in blocks.flat_map(|blocks| blocks.as_array_mut().unwrap()) {
            assert!(block.as_array_mut().unwrap().pop().is_some());
        }
    }
    let json = serde_json::to_vec(&json).unwrap();
    let line = format!("taut-catalog {version} bytes={} xxh3={:016x}\n", json.len(), checksum(&json));
    let earlier = SimulatedDisk::new();
    earlier.create_directory("").unwrap();
    earlier.create_directory("blocks").unwrap();
    earlier.sync_directory("").unwrap();
    for (name, bytes) in disk.files().into_iter().filter(|(name, _)| name.starts_with("blocks/")) {
        earlier.put(&name, &bytes);
    }
    earlier.put("catalog", &[line.as_bytes(), &json].concat());
    (earlier, contents)
}

fn has_log(disk: &SimulatedDisk) -> bool {
    disk.files().keys().any(|name| name.starts_with("log/"))
}

#[test]
fn reading_changes_no_file() {
    for version in VERSIONS {
        let (disk, expected) = database_of(version);
        for inspect in [true, false] {
            let options = OpenOptions { inspect, ..OpenOptions::default() };
            let store = Store::open_on(std::sync::Arc::new(disk.clone()), options).unwrap();
            assert_eq!(contents(&store).unwrap(), expected);
            assert_eq!((store.recovery().commits, store.log_bytes(), store.snapshot().version()), (0, 0, 4));
            assert_tidy(&store, &disk, &format!("version {version}, inspected: {inspect}"));
        }
        let before = disk.files();
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let reader = Store::open_on(std::sync::Arc::new(disk.clone()), options).unwrap();
        assert_eq!(contents(&reader).unwrap(), expected);
        assert!(!reader.refresh().unwrap() && verify(&reader).is_empty());
        drop(reader);
        assert_eq!(disk.files(), before);
        assert!(!has_log(&disk), "version {version}");
        let catalog = disk.files().remove("catalog").unwrap();
        assert!(catalog.starts_with(format!("taut-catalog {version} ").as_bytes()));
    }
}

/// A reader of a database without a log sees the first commit, which starts a log.
#[test]
fn a_reader_sees_the_log_that_a_writer_starts() {
    for version in VERSIONS {
        let (disk, mut expected) = database_of(version);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let reader = Store::open_on(std::sync::Arc::new(disk.clone()), options).unwrap();
        let writer = open(&disk).unwrap();
        change_rows(&writer, "t", &[5], &[2]).unwrap();
        assert_eq!(contents(&reader).unwrap(), expected);
        assert!(reader.refresh().unwrap());
        expected.insert("t".to_owned(), vec![1, 3, 4, 5]);
        assert_eq!(contents(&reader).unwrap(), expected);
    }
}

#[test]
fn the_first_commit_or_checkpoint_starts_a_log() {
    for version in VERSIONS {
        for is_checkpoint in [false, true] {
            let (disk, mut expected) = database_of(version);
            let store = open(&disk).unwrap();
            match is_checkpoint {
                true => store.checkpoint().unwrap(),
                false => {
                    change_rows(&store, "t", &[5], &[2]).unwrap();
                    expected.insert("t".to_owned(), vec![1, 3, 4, 5]);
                }
            }
            assert!(has_log(&disk));
            assert_tidy(&store, &disk, "begun");
            for disk in [disk.after_kill(), disk.after_power_loss(1), disk.after_power_loss(2)] {
                let store = open(&disk).unwrap();
                assert_eq!(contents(&store).unwrap(), expected, "version {version}");
                assert_tidy(&store, &disk, "opened again");
            }
        }
    }
}

#[test]
fn a_crash_while_a_log_is_started_loses_nothing() {
    for version in VERSIONS {
        for at in 0.. {
            let (disk, before) = database_of(version);
            disk.set_fault(Some(Fault::CrashAt(at)));
            let is_committed = open(&disk).is_ok_and(|store| change_rows(&store, "t", &[5], &[2]).is_ok());
            let is_over = !disk.is_crashed();
            let after = Contents::from([("t".to_owned(), vec![1, 3, 4, 5]), ("u".to_owned(), vec![])]);
            for seed in 0..9 {
                let context = format!("version {version}, crash at {at} ({:?}), seed {seed}", disk.changes().last());
                let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
                let store = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                let found = contents(&store).unwrap();
                assert!(found == after || (found == before && !is_committed), "{context}: {found:?}");
                assert_tidy(&store, &disk, &context);
                change_rows(&store, "u", &[6], &[]).unwrap();
                drop(store);
                let store = open(&disk).unwrap_or_else(|error| panic!("{context}, then: {error}"));
                assert_eq!(contents(&store).unwrap()["u"], [6], "{context}");
                assert_eq!(contents(&store).unwrap()["t"], found["t"], "{context}");
            }
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn a_failure_while_a_log_is_started_changes_nothing() {
    for version in VERSIONS {
        for fault in [Fault::FailAt, Fault::FailAfter, Fault::FailFrom] {
            let mut failures = 0;
            for at in 0..20 {
                let (disk, before) = database_of(version);
                let store = open(&disk).unwrap();
                disk.set_fault(Some(fault(at)));
                let context = format!("version {version}, {:?}", fault(at));
                let result = change_rows(&store, "t", &[5], &[2]);
                disk.set_fault(None);
                if let Err(error) = result {
                    failures += 1;
                    assert_eq!(contents(&store).unwrap(), before, "{context}: {error}");
                    let is_uncertain = matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. }));
                    for seed in 0..5 {
                        let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
                        let again = open(&disk).unwrap_or_else(|error| panic!("{context}, seed {seed}: {error}"));
                        assert!(contents(&again).unwrap() == before || is_uncertain, "{context}, seed {seed}");
                    }
                    change_rows(&store, "t", &[5], &[2]).unwrap_or_else(|error| panic!("{context}, again: {error}"));
                }
                assert_eq!(contents(&store).unwrap()["t"], [1, 3, 4, 5], "{context}");
                let lost = disk.after_power_loss(at);
                assert_eq!(contents(&open(&lost).unwrap()).unwrap()["t"], [1, 3, 4, 5], "{context}, power lost");
            }
            assert!(failures > 5, "only {failures} failures");
        }
    }
}

#[test]
fn catalogs_from_before_constraints_are_read() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "column").unwrap()]).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let text = String::from_utf8(disk.files().remove("catalog").unwrap()).unwrap();
    assert!(!text.contains("constraints"), "{text}");
    disk.put("catalog", text.replacen("taut-catalog 17", "taut-catalog 7", 1).as_bytes());
    let store = open(&disk).unwrap();
    assert!(store.snapshot().table("t").unwrap().constraints.is_empty());
    change_rows(&store, "t", &[5], &[2]).unwrap();
    drop(store);
    assert_eq!(contents(&open(&disk).unwrap()).unwrap(), Contents::from([("t".to_owned(), vec![1, 3, 5])]));
    assert!(disk.files().remove("catalog").unwrap().starts_with(b"taut-catalog 20 "));
}

/// Earlier versions did not close log files, so nothing showed that a later one exists.
#[test]
fn unclosed_log_files_are_read_and_closed_when_the_next_one_is_begun() {
    let mut disk = SimulatedDisk::new();
    for value in [1, 2, 3] {
        let store = open(&disk).unwrap();
        if value == 1 {
            create_table(&store, "t").unwrap();
        }
        change_rows(&store, "t", &[value], &[]).unwrap();
        disk = disk.after_kill();
    }
    let logs = |disk: &SimulatedDisk| -> Vec<String> {
        disk.files().into_keys().filter(|name| name.starts_with("log/")).collect()
    };
    for name in logs(&disk) {
        disk.rename(&name, &name.replace(".closed", "")).unwrap();
    }
    disk.sync_directory("log").unwrap();
    let store = open(&disk.after_kill()).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], [1, 2, 3]);
    drop(store);
    let store = open(&disk).unwrap();
    change_rows(&store, "t", &[4], &[]).unwrap();
    let left = disk.after_kill();
    assert_eq!(logs(&left).iter().map(|name| name.contains(".closed.")).collect::<Vec<_>>(), [true, true, true, false]);
    for name in logs(&left) {
        let without = left.after_kill();
        without.remove(&name).unwrap();
        assert!(matches!(open(&without), Err(OpenError::MissingLog { .. })), "{name}");
    }
    assert_eq!(contents(&open(&left).unwrap()).unwrap()["t"], [1, 2, 3, 4]);
}

#[test]
fn databases_of_earlier_versions_are_repaired() {
    for version in VERSIONS {
        let (disk, before) = database_of(version);
        let (files, to) = (disk.files(), SimulatedDisk::new());
        let report = repair_on(Arc::new(disk.clone()), Arc::new(to.clone())).unwrap();
        assert!(report.is_complete() && disk.files() == files, "version {version}");
        let store = open(&to).unwrap();
        assert_eq!(contents(&store).unwrap(), before, "version {version}");
        assert_tidy(&store, &to, "repaired");
    }
}
