//! A backup directory contains backups of one history: it refuses a copy of the database that has diverged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::backups::{LAST, WITH_LOG, WITHOUT_LOG, back_up, restored};
use common::{append, change_rows, create_table, open, read, write};
use taut_store::Store;
use taut_store::backup::{BackupError, BackupLog};
use taut_store::disk::SimulatedDisk;

/// A database with a table, and its disk.
fn sample() -> (SimulatedDisk, Store) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "column").unwrap()]).unwrap();
    (disk, store)
}

fn assert_refused(store: &Store, backups: &SimulatedDisk, context: &str) {
    let before = backups.files();
    match back_up(store, backups, WITHOUT_LOG) {
        Err(error @ BackupError::Diverged { .. }) => {
            let text = error.to_string();
            assert!(text.contains("/simulated") && text.contains("use another directory"), "{context}: {text}");
        }
        other => panic!("{context}: {other:?}"),
    }
    assert!(back_up(store, backups, WITH_LOG).is_err(), "{context}");
    assert!(!store.retains_log(), "{context}");
    assert!(backups.files() == before, "{context}: the backups have changed");
}

#[test]
fn diverged_copies_are_not_mixed_in_a_directory() {
    // `is_open`: the database is not closed before the copy is made, so the commits so far are in its log, not in its
    // catalog. `is_closed_after`: both are closed before they are backed up, so their later commits are in the catalog.
    for (is_open, is_closed_after) in [(false, true), (true, true), (false, false), (true, false)] {
        // Commits of the database and of its copy.
        for (commits, of_copy) in [(1, 1), (1, 2), (2, 1), (3, 5)] {
            let context = format!("{is_open}, {is_closed_after}, {commits}, {of_copy}");
            let (disk, store) = sample();
            let (store, copy) = match is_open {
                true => (store, disk.after_kill()),
                false => {
                    drop(store);
                    (open(&disk).unwrap(), disk.after_kill())
                }
            };
            let other = open(&copy).unwrap();
            (0..commits).for_each(|row| change_rows(&store, "t", &[10 + row], &[]).unwrap());
            (0..of_copy).for_each(|row| change_rows(&other, "t", &[20 + row], &[]).unwrap());
            let (store, other) = match is_closed_after {
                true => {
                    drop((store, other));
                    (open(&disk).unwrap(), open(&copy).unwrap())
                }
                false => (store, other),
            };
            let (backups, of_other) = (SimulatedDisk::new(), SimulatedDisk::new());
            back_up(&store, &backups, WITHOUT_LOG).unwrap();
            back_up(&other, &of_other, WITHOUT_LOG).unwrap();
            assert_refused(&other, &backups, &context);
            assert_refused(&store, &of_other, &context);
            // More commits and checkpoints make no difference, and neither does a reader.
            (0..8).for_each(|row| change_rows(&other, "t", &[30 + row], &[]).unwrap());
            other.checkpoint().unwrap();
            assert_refused(&other, &backups, &context);
            assert_refused(&read(&copy).unwrap(), &backups, &context);
            // Each of them continues in its own directory.
            change_rows(&store, "t", &[40], &[]).unwrap();
            back_up(&store, &backups, WITHOUT_LOG).unwrap();
            back_up(&other, &of_other, WITH_LOG).unwrap();
            assert!(restored(&backups, LAST).unwrap().0["t"].contains(&40), "{context}");
            assert!(restored(&of_other, LAST).unwrap().0["t"].contains(&37), "{context}");
        }
    }
}

#[test]
fn backups_of_a_copy_without_commits_of_its_own_belong_to_the_database() {
    let (disk, store) = sample();
    let backups = SimulatedDisk::new();
    for round in 0..4 {
        change_rows(&store, "t", &[10 + round], &[]).unwrap();
        // The copy is opened for writing, which begins a log file, but it commits nothing.
        let copy = open(&disk.after_kill()).unwrap();
        assert_eq!(back_up(&copy, &backups, WITHOUT_LOG).unwrap().commit, store.snapshot().version());
        change_rows(&store, "t", &[20 + round], &[]).unwrap();
        back_up(&store, &backups, WITHOUT_LOG).unwrap();
        back_up(&read(&disk).unwrap(), &backups, WITHOUT_LOG).unwrap();
    }
    // The history continues in a copy, after a crash.
    let copy = disk.after_kill();
    drop(store);
    let store = open(&copy).unwrap();
    change_rows(&store, "t", &[100], &[]).unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    // The backups now hold a commit of the copy, so backups of the original database are refused.
    let before = open(&disk).unwrap();
    assert_refused(&before, &backups, "an earlier state");
    change_rows(&before, "t", &[200], &[]).unwrap();
    assert_refused(&before, &backups, "another commit");
}

#[test]
fn only_the_copy_that_makes_the_next_backup_continues_the_log() {
    for has_commits in [false, true] {
        let (disk, store) = sample();
        let backups = SimulatedDisk::new();
        back_up(&store, &backups, WITH_LOG).unwrap();
        change_rows(&store, "t", &[10], &[]).unwrap();
        drop(store);
        let copy = open(&disk.after_kill()).unwrap();
        if has_commits {
            change_rows(&copy, "t", &[20], &[]).unwrap();
        }
        assert!(matches!(back_up(&copy, &backups, WITH_LOG).unwrap().log, BackupLog::Continued { .. }));
        let store = open(&disk).unwrap();
        change_rows(&store, "t", &[30], &[]).unwrap();
        change_rows(&store, "t", &[31], &[]).unwrap();
        match (has_commits, back_up(&store, &backups, WITH_LOG)) {
            (true, Err(BackupError::Diverged { number, .. })) => assert_eq!(number, 2),
            // The backup of the copy has already archived the commits that both have, so the database begins a new log
            // archive.
            (false, Ok(report)) => {
                assert_eq!(report.log, BackupLog::Begun);
                assert_eq!(restored(&backups, LAST).unwrap().0["t"], [1, 2, 3, 10, 30, 31]);
            }
            (_, other) => panic!("{has_commits}: {other:?}"),
        }
    }
}

#[test]
fn a_reader_backs_up_a_state_before_the_last_backup() {
    let (disk, store) = sample();
    let backups = SimulatedDisk::new();
    let reader = read(&disk).unwrap();
    change_rows(&store, "t", &[10], &[]).unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    assert_eq!(back_up(&reader, &backups, WITHOUT_LOG).unwrap().commit, 2);
    reader.refresh().unwrap();
    assert_eq!(back_up(&reader, &backups, WITHOUT_LOG).unwrap().commit, 3);
}
