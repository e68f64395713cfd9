//! With the log, every commit between backups can be restored. Damage of a file is detected, and the error names it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::backups::{LAST, WITH_LOG, WITHOUT_LOG, at, back_up, now, restored, rewrite};
use common::random_steps::random_step;
use common::{
    Contents, append, assert_tidy, change_rows, contents, create_table, drop_table, open, replace_all, write,
};
use taut_store::backup::{BackupError, BackupLog, BackupOptions, BackupReport, Backups, RestoreOptions};
use taut_store::disk::{Disk, SimulatedDisk};
use taut_store::{OpenOptions, Store, Synchronous};

/// A history with backups, and the contents of the database after each commit.
struct History {
    backups: SimulatedDisk,
    /// Commit, a time before the next commit, and contents of the database.
    states: Vec<(u64, i64, Contents)>,
    reports: Vec<BackupReport>,
}

impl History {
    fn new(seed: u64, steps: u64) -> Self {
        let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
        let mut store = open(&disk).unwrap();
        let (mut states, mut reports) = (Vec::new(), Vec::new());
        for number in 0..steps {
            if number % 7 == 3 {
                reports.push(back_up(&store, &backups, WITH_LOG).unwrap());
            }
            if number % 11 == 9 {
                drop(store);
                store = open(&disk).unwrap();
            }
            random_step(&store, seed, number, Synchronous::Full)
                .unwrap_or_else(|error| panic!("seed {seed}, {number}: {error}"));
            states.push((store.snapshot().version(), now(), contents(&store).unwrap()));
        }
        reports.push(back_up(&store, &backups, WITH_LOG).unwrap());
        Self { backups, states, reports }
    }
}

#[test]
fn every_commit_between_two_backups_with_the_log_can_be_restored() {
    let (mut commits, mut replayed) = (0, 0);
    for seed in 0..12 {
        let history = History::new(seed, 40);
        let (first, last) = (history.reports.first().unwrap(), history.reports.last().unwrap());
        let continued = history.reports.iter().skip(1).all(|report| matches!(report.log, BackupLog::Continued { .. }));
        assert!(continued && first.log == BackupLog::Begun, "{:?}", history.reports);
        for (commit, time, expected) in &history.states {
            let found = restored(&history.backups, at(*time));
            if *time < first.time {
                let text = found.unwrap_err().to_string();
                assert!(text.contains("the first backup was taken later") && text.contains("1 (2"), "{text}");
                continue;
            }
            let (found, report) = found.unwrap_or_else(|error| panic!("seed {seed}, commit {commit}: {error}"));
            assert_eq!(report.commit, *commit, "seed {seed}");
            assert!(found == *expected, "seed {seed}: commit {commit} holds other rows");
            commits += 1;
            replayed += report.replayed_commits;
            // Restores from an earlier backup, which replays several logs.
            let options = RestoreOptions { backup: Some(1), time: Some(*time) };
            let (found, report) = restored(&history.backups, options).unwrap();
            assert!(found == *expected && report.commit == *commit, "seed {seed}: commit {commit} from backup 1");
        }
        let text = restored(&history.backups, at(last.time + 1)).unwrap_err().to_string();
        assert!(text.contains("the last one, are in no backup"), "{text}");
    }
    println!("{commits} points in time, {replayed} replayed commits");
    assert!(commits > 300 && replayed > 300, "{commits} {replayed}");
}

#[test]
fn without_the_log_only_complete_backups_can_be_restored() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let first = back_up(&store, &backups, WITHOUT_LOG).unwrap();
    change_rows(&store, "t", &[1], &[]).unwrap();
    let between = now();
    change_rows(&store, "t", &[2], &[]).unwrap();
    let second = back_up(&store, &backups, WITHOUT_LOG).unwrap();
    assert!(!store.retains_log());
    let text = restored(&backups, at(between)).unwrap_err().to_string();
    assert!(text.contains("were not archived; complete backups are 1 (") && text.contains("), 2 ("), "{text}");
    assert_eq!(restored(&backups, at(first.time)).unwrap().0["t"], [0; 0]);
    assert_eq!(restored(&backups, at(second.time)).unwrap().0["t"], [1, 2]);
}

#[test]
fn the_log_stays_until_the_next_backup_and_a_backup_without_it_removes_it() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    assert!(store.retains_log());
    let count = |part: &str| disk.files().keys().filter(|name| name.ends_with(part)).count();
    for number in 0..4 {
        let block = write(&store, &[number], "column").unwrap();
        match number {
            0 => append(&store, "t", vec![block]).unwrap(),
            _ => replace_all(&store, "t", vec![block], "column").unwrap(),
        }
        store.checkpoint().unwrap();
    }
    assert!(count(".log") >= 5 && count(".block") == 4, "{:?}", disk.files().keys());
    drop(store);
    let store = open(&disk).unwrap();
    assert!(store.retains_log() && count(".log") >= 5 && count(".block") == 4);
    let report = back_up(&store, &backups, WITH_LOG).unwrap();
    assert_eq!(report.log, BackupLog::Continued { base: 1, commits: 4 });
    assert_eq!((report.copied_blocks, count(".block")), (4, 1));
    store.checkpoint().unwrap();
    assert!(count(".log") <= 2, "{:?}", disk.files().keys());
    // There is only one retained log. A backup to another directory uses it only if that backup includes the log.
    let others = SimulatedDisk::new();
    back_up(&store, &others, WITHOUT_LOG).unwrap();
    assert!(store.retains_log());
    change_rows(&store, "t", &[10], &[]).unwrap();
    let report = back_up(&store, &backups, WITH_LOG).unwrap();
    assert_eq!(report.log, BackupLog::Continued { base: 2, commits: 1 });
    assert_eq!(back_up(&store, &others, WITH_LOG).unwrap().log, BackupLog::Begun);
    assert_eq!(back_up(&store, &backups, WITH_LOG).unwrap().log, BackupLog::Begun);
    // A backup without the log ends log retention.
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    assert!(!store.retains_log());
    assert!(!disk.files().contains_key("log/retained"));
    back_up(&store, &backups, WITH_LOG).unwrap();
    append(&store, "t", vec![write(&store, &[77], "column").unwrap()]).unwrap();
    drop_table(&store, "t").unwrap();
    assert_eq!(count(".block"), 1);
    store.stop_log_retention().unwrap();
    assert!(!store.retains_log());
    assert_tidy(&store, &disk, "stopped");
    assert_eq!(back_up(&store, &backups, WITH_LOG).unwrap().log, BackupLog::Begun);
}

#[test]
fn a_backup_by_a_reader_does_not_affect_backups_with_the_log() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    let mut times = Vec::new();
    for number in 0..6 {
        change_rows(&store, "t", &[number], &[]).unwrap();
        append(&store, "t", vec![write(&store, &[number + 100], "row").unwrap()]).unwrap();
        times.push((now(), contents(&store).unwrap()));
        if number % 2 == 0 {
            let options = OpenOptions { inspect: true, ..OpenOptions::default() };
            let reader = Store::open_on(Arc::new(disk.after_kill()), options).unwrap();
            assert!(matches!(back_up(&reader, &backups, WITH_LOG), Err(BackupError::ReadOnly)));
            let report = back_up(&reader, &backups, WITHOUT_LOG).unwrap();
            let options = RestoreOptions { backup: Some(report.number), time: None };
            assert_eq!(restored(&backups, options).unwrap().0, times.last().unwrap().1);
        } else {
            let report = back_up(&store, &backups, WITH_LOG).unwrap();
            assert!(matches!(report.log, BackupLog::Continued { commits: 4, .. }), "{report:?}");
        }
    }
    for (time, expected) in &times {
        assert_eq!(restored(&backups, at(*time)).unwrap().0, *expected);
    }
    let last = back_up(&store, &backups, BackupOptions { log: true, keep: Some(3) }).unwrap();
    assert_eq!((last.number, last.removed.len()), (8, 5));
    let list = Backups::open_on(Arc::new(backups.clone())).unwrap().list();
    let logs: Vec<_> = list.iter().map(|info| (info.number, info.log_since)).collect();
    assert_eq!(logs, [(6, None), (7, None), (8, Some(7))]);
    assert_eq!(restored(&backups, LAST).unwrap().0, times.last().unwrap().1);
}

#[test]
fn a_retained_log_that_was_removed_externally_is_restarted() {
    for victim in ["log", "block", "note"] {
        let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
        let store = open(&disk).unwrap();
        create_table(&store, "t").unwrap();
        back_up(&store, &backups, WITH_LOG).unwrap();
        append(&store, "t", vec![write(&store, &[1], "column").unwrap()]).unwrap();
        let first = disk.files().into_keys().find(|name| name.ends_with(".block")).unwrap();
        replace_all(&store, "t", vec![write(&store, &[2], "column").unwrap()], "column").unwrap();
        store.checkpoint().unwrap();
        drop(store);
        match victim {
            "log" => disk.remove(disk.files().keys().find(|name| name.ends_with(".log")).unwrap()).unwrap(),
            "block" => disk.remove(&first).unwrap(),
            // The file that names the first retained log file.
            _ => disk.put("log/retained", b"no note"),
        }
        let store = open(&disk).unwrap();
        change_rows(&store, "t", &[3], &[]).unwrap();
        change_rows(&store, "t", &[4], &[]).unwrap();
        assert_eq!(back_up(&store, &backups, WITH_LOG).unwrap().log, BackupLog::Begun, "{victim}");
        assert_eq!(restored(&backups, LAST).unwrap().0["t"], [2, 3, 4], "{victim}");
        assert_tidy(&store, &disk, victim);
    }
}

#[test]
fn keeping_the_last_backups_keeps_every_point_in_time_between_them() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let mut times = Vec::new();
    for number in 0..6 {
        append(&store, "t", vec![write(&store, &[number], "column").unwrap()]).unwrap();
        times.push((now(), contents(&store).unwrap()));
        let rows = contents(&store).unwrap()["t"].clone();
        rewrite(&store, "t", &rows, "row");
        let report = back_up(&store, &backups, BackupOptions { log: true, keep: Some(3) }).unwrap();
        assert_eq!(report.removed, if number < 3 { vec![] } else { vec![number as u64 - 2] });
    }
    for (number, (time, expected)) in times.iter().enumerate() {
        match restored(&backups, at(*time)) {
            Ok((found, _)) => assert!(number >= 4 && found == *expected, "{number}"),
            Err(error) => assert!(number < 4, "{number}: {error}"),
        }
    }
    let list = Backups::open_on(Arc::new(backups.clone())).unwrap().list();
    assert_eq!(
        list.iter().map(|info| (info.number, info.log_since)).collect::<Vec<_>>(),
        [(4, None), (5, Some(4)), (6, Some(5))]
    );
    // Only the files that manifests name remain: one block of each of the three backups, and two that only the log
    // needs.
    let blocks = backups.files().keys().filter(|name| name.ends_with(".block")).count();
    assert_eq!(blocks, 5, "{:?}", backups.files().keys());
}

#[test]
fn damage_of_each_file_is_detected_and_named() {
    let history = History::new(3, 30);
    let files = history.backups.files();
    let last = history.reports.last().unwrap();
    // A time whose restore needs the last log.
    let within = history.states.iter().rfind(|(_, time, _)| *time < last.time).unwrap().1 - 1;
    let mut noticed = BTreeSet::new();
    for (name, bytes) in files.iter().filter(|(name, _)| *name != "lock") {
        let middle = bytes.len() / 2;
        for at_byte in [None, Some(0), Some(middle), Some(bytes.len() - 1)] {
            let damaged = history.backups.after_kill();
            match at_byte {
                None => damaged.remove(name).unwrap(),
                Some(at) => {
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 0x10;
                    damaged.put(name, &flipped);
                }
            }
            let numbers: Vec<u64> = history.reports.iter().map(|report| report.number).collect();
            let states = numbers.iter().map(|number| RestoreOptions { backup: Some(*number), time: None });
            for options in states.chain([at(within)]) {
                let Err(error) = restored(&damaged, options) else { continue };
                let text = error.to_string();
                let is_missing = at_byte.is_none() && (name.ends_with(".manifest"));
                assert!(text.contains(name) || is_missing, "{name}, {at_byte:?}, {options:?}: {text}");
                if name.ends_with(".block") {
                    assert!(text.contains("(table \""), "{text}");
                }
                noticed.insert((name.clone(), at_byte));
            }
            for report in &history.reports {
                // Every successful restore returns the right rows.
                let options = RestoreOptions { backup: Some(report.number), time: None };
                if let Ok((found, _)) = restored(&damaged, options) {
                    let state = history.states.iter().find(|(commit, _, _)| *commit == report.commit).unwrap();
                    assert!(found == state.2, "{name}, {at_byte:?}");
                }
            }
        }
    }
    // A restore does not read the blocks that only other points in time need.
    let unnoticed: Vec<&String> = files
        .keys()
        .filter(|name| *name != "lock" && !name.ends_with(".log"))
        .filter(|name| !noticed.iter().any(|(noticed, _)| noticed == *name))
        .collect();
    let only_blocks = unnoticed.iter().all(|name| name.ends_with(".block"));
    assert!(only_blocks, "{unnoticed:?}");
    let others: usize =
        files.keys().filter(|name| !name.ends_with(".block") && *name != "lock" && !name.ends_with(".log")).count();
    let noticed_others =
        noticed.iter().filter(|(name, _)| !name.ends_with(".block") && !name.ends_with(".log")).count();
    assert_eq!(noticed_others, others * 4);
}
