//! A backup holds the state of one commit and shares blocks with other backups. With the log, every commit between
//! backups can be restored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use common::steps::step;
use common::{
    Contents, append, assert_tidy, change_rows, contents, create_table, design, drop_table, open, replace_all, schema,
    write,
};
use taut_store::backup::{
    BackupError, BackupLog, BackupOptions, BackupProgress, BackupReport, Backups, RestoreOptions, RestoreReport,
};
use taut_store::disk::{Disk, FileDisk, SimulatedDisk};
use taut_store::{CommitError, OpenOptions, RowOrder, Store, Synchronous, verify};
use taut_testkit::Random;

const WHOLE: BackupOptions = BackupOptions { log: false, keep: None };
const WITH_LOG: BackupOptions = BackupOptions { log: true, keep: None };
const LAST: RestoreOptions = RestoreOptions { backup: None, time: None };

fn go_on(_: BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn back_up(store: &Store, to: &SimulatedDisk, options: BackupOptions) -> Result<BackupReport, BackupError> {
    store.backup_to(Arc::new(to.clone()), options, &mut go_on)
}

fn restore(from: &SimulatedDisk, options: RestoreOptions) -> Result<(SimulatedDisk, RestoreReport), BackupError> {
    let disk = SimulatedDisk::new();
    let report = Backups::open_on(Arc::new(from.clone()))?.restore_to(Arc::new(disk.clone()), options, &mut go_on)?;
    Ok((disk, report))
}

/// Contents of a restored database, after checking its files.
fn restored(from: &SimulatedDisk, options: RestoreOptions) -> Result<(Contents, RestoreReport), BackupError> {
    let (disk, report) = restore(from, options)?;
    let store = open(&disk).unwrap();
    assert_tidy(&store, &disk, "restored");
    assert_eq!(store.snapshot().version(), report.commit);
    Ok((contents(&store).unwrap(), report))
}

/// Replaces all blocks and delta pages of a table by one block with the same rows.
fn rewrite(store: &Store, name: &str, rows: &[i64], layout: &str) {
    let (snapshot, block) = (store.snapshot(), write(store, rows, layout).unwrap());
    let table = snapshot.table(name).unwrap();
    let old = common::everything(table);
    store.commit::<_, CommitError>(|edit| edit.replace_rows(table.id, old, vec![block], RowOrder::Sorted)).unwrap();
}

/// Current time. It is later than every commit so far, and earlier than the next one.
fn now() -> i64 {
    let read = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let first = read();
    while read() == first {}
    first
}

fn at(time: i64) -> RestoreOptions {
    RestoreOptions { backup: None, time: Some(time) }
}

#[test]
fn a_database_comes_back_in_every_layout_with_its_rows_in_no_block() {
    for layout in ["column", "row", "packed_row"] {
        let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
        let store = open(&disk).unwrap();
        store.commit::<_, CommitError>(|edit| edit.create_table("t", schema(), design(layout)).map(drop)).unwrap();
        create_table(&store, "empty").unwrap();
        store.commit::<_, CommitError>(|edit| edit.create_view("v", "select 1")).unwrap();
        let rows: Vec<i64> = (0..70_000).collect();
        append(&store, "t", vec![write(&store, &rows, layout).unwrap(), write(&store, &[7, 8], layout).unwrap()])
            .unwrap();
        change_rows(&store, "t", &[100_001, 100_002], &[3, 69_999, 8]).unwrap();
        change_rows(&store, "t", &[100_003], &[100_001]).unwrap();
        let report = back_up(&store, &backups, WHOLE).unwrap();
        assert_eq!((report.number, report.commit, report.log), (1, 6, BackupLog::None));
        assert_eq!((report.copied_blocks, report.shared_blocks), (2, 0));
        let (restored_disk, restored_report) = restore(&backups, LAST).unwrap();
        assert_eq!((restored_report.backup, restored_report.commit, restored_report.time), (1, 6, report.time));
        let again = open(&restored_disk).unwrap();
        assert_tidy(&again, &restored_disk, layout);
        assert_eq!(contents(&again).unwrap(), contents(&store).unwrap(), "{layout}");
        assert_eq!(again.snapshot().view("v").unwrap().sql, "select 1");
        assert_eq!(again.snapshot().table("t").unwrap().design.layout.name(), layout);
        assert_ne!(again.snapshot().database(), store.snapshot().database());
        // Both databases continue independently.
        change_rows(&again, "t", &[-1], &[7]).unwrap();
        create_table(&again, "new").unwrap();
        append(&again, "new", vec![write(&again, &[1], layout).unwrap()]).unwrap();
        drop(again);
        let again = open(&restored_disk).unwrap();
        assert_tidy(&again, &restored_disk, layout);
        assert_eq!(contents(&again).unwrap()["new"], [1]);
        assert!(contents(&store).unwrap()["t"].contains(&7));
    }
}

#[test]
fn a_database_in_memory_and_one_of_nothing_are_backed_up_to_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let (backups, first, second) =
        (directory.path().join("backups"), directory.path().join("first"), directory.path().join("second"));
    store.backup(&backups, WHOLE, &mut go_on).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap()]).unwrap();
    change_rows(&store, "t", &[3], &[1]).unwrap();
    store.backup(&backups, WHOLE, &mut go_on).unwrap();
    let from = Backups::open(&backups).unwrap();
    from.restore(&first, RestoreOptions { backup: Some(1), time: None }, &mut go_on).unwrap();
    from.restore(&second, LAST, &mut go_on).unwrap();
    let open = |path: &Path| Store::open(path, OpenOptions::default()).unwrap();
    assert_eq!(contents(&open(&first)).unwrap(), Contents::new());
    assert_eq!(contents(&open(&second)).unwrap()["t"], [2, 3]);
    assert!(verify(&open(&second)).is_empty());
}

fn bytes_below(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| if entry.path().is_dir() { bytes_below(&entry.path()) } else { entry.metadata().unwrap().len() })
        .sum()
}

#[test]
fn a_later_backup_copies_only_the_blocks_that_are_new() {
    let directory = tempfile::tempdir().unwrap();
    let (database, backups) = (directory.path().join("database"), directory.path().join("backups"));
    let store = Store::open(&database, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    let mut random = Random(1);
    let rows: Vec<i64> = (0..60_000).map(|_| random.range(0..1_000_003)).collect();
    append(&store, "t", vec![write(&store, &rows, "column").unwrap()]).unwrap();
    let first = store.backup(&backups, WHOLE, &mut go_on).unwrap();
    let before = bytes_below(&backups);
    assert!(first.written_bytes > 60_000, "{first:?}");
    // Without changes, only a catalog and a manifest are written.
    let second = store.backup(&backups, WHOLE, &mut go_on).unwrap();
    assert_eq!((second.copied_blocks, second.shared_blocks), (0, 1));
    let grown = bytes_below(&backups) - before;
    assert!(second.written_bytes < 3_000 && grown < second.written_bytes + 3_000, "{second:?}, {grown}");
    // One small block was added.
    let block = write(&store, &[1, 2, 3], "column").unwrap();
    let block_bytes = block.entry().file_bytes;
    append(&store, "t", vec![block]).unwrap();
    let before = bytes_below(&backups);
    let third = store.backup(&backups, WHOLE, &mut go_on).unwrap();
    assert_eq!((third.copied_blocks, third.shared_blocks), (1, 1));
    let grown = bytes_below(&backups) - before;
    assert!((block_bytes..block_bytes + 6_000).contains(&grown), "{grown} for a block of {block_bytes}");
    assert!((block_bytes..grown).contains(&third.written_bytes), "{third:?}, {grown}");
    // The first block is replaced. Its copy stays as long as a backup needs it.
    rewrite(&store, "t", &[&rows[..], &[1, 2, 3]].concat(), "row");
    let fourth = store.backup(&backups, WHOLE, &mut go_on).unwrap();
    assert_eq!((fourth.copied_blocks, fourth.shared_blocks), (1, 0));
    let blocks = || fs::read_dir(backups.join("blocks")).unwrap().count();
    assert_eq!(blocks(), 3);
    let fifth = store.backup(&backups, BackupOptions { log: false, keep: Some(3) }, &mut go_on).unwrap();
    assert_eq!((fifth.removed, blocks()), (vec![1, 2], 3));
    let sixth = store.backup(&backups, BackupOptions { log: false, keep: Some(2) }, &mut go_on).unwrap();
    assert_eq!((sixth.removed, blocks()), (vec![3, 4], 1));
    let from = Backups::open(&backups).unwrap();
    assert_eq!(from.list().iter().map(|info| info.number).collect::<Vec<_>>(), [5, 6]);
    from.restore(directory.path().join("restored"), LAST, &mut go_on).unwrap();
    let error =
        from.restore(directory.path().join("other"), RestoreOptions { backup: Some(4), time: None }, &mut go_on);
    assert!(error.unwrap_err().to_string().ends_with("has no backup 4; it has 5, 6"));
}

#[test]
fn a_block_that_is_damaged_in_the_backup_is_copied_again() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "column").unwrap()]).unwrap();
    back_up(&store, &backups, WHOLE).unwrap();
    let (name, bytes) = backups.files().into_iter().find(|(name, _)| name.ends_with(".block")).unwrap();
    for damaged in [&bytes[..100], &[&[0][..], &bytes[1..]].concat()] {
        backups.put(&name, damaged);
        assert_eq!(back_up(&store, &backups, WHOLE).unwrap().copied_blocks, 1);
        assert_eq!(backups.files()[&name], bytes);
    }
}

#[test]
fn a_damaged_block_of_the_database_is_named_and_not_backed_up() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &(0..300).collect::<Vec<_>>(), "column").unwrap()]).unwrap();
    let (name, bytes) = disk.files().into_iter().find(|(name, _)| name.ends_with(".block")).unwrap();
    for at in [0, 40, bytes.len() / 2, bytes.len() - 64] {
        let (backups, mut flipped) = (SimulatedDisk::new(), bytes.clone());
        flipped[at] ^= 1;
        disk.put(&name, &flipped);
        match back_up(&store, &backups, WHOLE) {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("table \"t\" cannot be backed up") && text.contains(&name), "{text}");
                assert!(!backups.files().keys().any(|name| name.ends_with(".manifest")));
            }
            // Padding bytes, which are not verified.
            Ok(_) => assert_eq!(bytes[at], 0, "byte {at}"),
        }
    }
}

#[test]
fn a_backup_is_the_state_at_its_commit_while_others_write_and_take_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let (database, backups) = (directory.path().join("database"), directory.path().join("backups"));
    let store = Store::open(&database, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    for table in ["a", "b"] {
        create_table(&store, table).unwrap();
        append(&store, table, vec![write(&store, &(0..5_000).collect::<Vec<_>>(), "column").unwrap()]).unwrap();
    }
    // Contents of the database after each commit. Commits hold the lock, the backup does not.
    let states = Mutex::new(BTreeMap::from([(store.snapshot().version(), contents(&store).unwrap())]));
    let is_over = AtomicBool::new(false);
    let reports = std::thread::scope(|scope| {
        for (name, first) in [("a", 1_000_000), ("b", 2_000_000)] {
            let (store, states, is_over) = (&store, &states, &is_over);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut states = states.lock().unwrap();
                    let before = states.last_key_value().unwrap().1.clone();
                    let deleted = before[name].get(number as usize % before[name].len()).copied().unwrap();
                    if number % 40 == 39 {
                        let rows = &before[name];
                        rewrite(store, name, rows, "packed_row");
                    } else {
                        change_rows(store, name, &[first + number], &[deleted]).unwrap();
                    }
                    states.insert(store.snapshot().version(), contents(store).unwrap());
                }
            });
        }
        let (store, is_over) = (&store, &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        let reports: Vec<BackupReport> = (0..12)
            .map(|number| {
                let mut slowly = |_| {
                    std::thread::sleep(std::time::Duration::from_millis(3));
                    ControlFlow::Continue(())
                };
                let options = BackupOptions { log: number % 3 != 0, keep: None };
                store.backup(&backups, options, &mut slowly).unwrap()
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        reports
    });
    let states = states.into_inner().unwrap();
    assert!(states.len() > 20, "only {} commits", states.len());
    assert!(reports.first().unwrap().commit < reports.last().unwrap().commit);
    let from = Backups::open(&backups).unwrap();
    for report in &reports {
        let path = directory.path().join(report.number.to_string());
        let restored =
            from.restore(&path, RestoreOptions { backup: Some(report.number), time: None }, &mut go_on).unwrap();
        assert_eq!(restored.commit, report.commit);
        let store = Store::open(&path, OpenOptions::default()).unwrap();
        assert!(verify(&store).is_empty());
        let found = contents(&store).unwrap();
        assert!(found == states[&report.commit], "backup {} holds other rows", report.number);
    }
    drop(store);
    let again = Store::open(&database, OpenOptions::default()).unwrap();
    assert!(contents(&again).unwrap() == *states.last_key_value().unwrap().1);
}

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
            step(&store, seed, number, Synchronous::Full)
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
    println!("{commits} points in time, {replayed} commits made again");
    assert!(commits > 300 && replayed > 300, "{commits} {replayed}");
}

#[test]
fn without_the_log_only_whole_backups_can_be_restored() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let first = back_up(&store, &backups, WHOLE).unwrap();
    change_rows(&store, "t", &[1], &[]).unwrap();
    let between = now();
    change_rows(&store, "t", &[2], &[]).unwrap();
    let second = back_up(&store, &backups, WHOLE).unwrap();
    assert!(!store.retains_log());
    let text = restored(&backups, at(between)).unwrap_err().to_string();
    assert!(text.contains("were not archived; complete backups are 1 (") && text.contains("), 2 ("), "{text}");
    assert_eq!(restored(&backups, at(first.time)).unwrap().0["t"], [0; 0]);
    assert_eq!(restored(&backups, at(second.time)).unwrap().0["t"], [1, 2]);
}

#[test]
fn the_log_stays_until_the_next_backup_and_goes_where_it_is_not_asked_for() {
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
    // There is one retained log. Another backup directory takes it over only if its backup has the log.
    let others = SimulatedDisk::new();
    back_up(&store, &others, WHOLE).unwrap();
    assert!(store.retains_log());
    change_rows(&store, "t", &[10], &[]).unwrap();
    let report = back_up(&store, &backups, WITH_LOG).unwrap();
    assert_eq!(report.log, BackupLog::Continued { base: 2, commits: 1 });
    assert_eq!(back_up(&store, &others, WITH_LOG).unwrap().log, BackupLog::Begun);
    assert_eq!(back_up(&store, &backups, WITH_LOG).unwrap().log, BackupLog::Begun);
    // A backup without the log ends log retention.
    back_up(&store, &backups, WHOLE).unwrap();
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
fn a_backup_by_a_reader_between_those_with_the_log_changes_nothing_for_them() {
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
            let report = back_up(&reader, &backups, WHOLE).unwrap();
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
fn a_log_that_was_removed_from_outside_begins_anew() {
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
fn keeping_the_last_backups_keeps_every_point_between_them() {
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
    // Only the files that manifests name remain: three states, and two blocks that only the log needs.
    let blocks = backups.files().keys().filter(|name| name.ends_with(".block")).count();
    assert_eq!(blocks, 5, "{:?}", backups.files().keys());
}

#[test]
fn damage_of_each_file_is_noticed_and_named() {
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
    let manifests_name = unnoticed.iter().all(|name| name.ends_with(".block"));
    assert!(manifests_name, "{unnoticed:?}");
    let whole: usize =
        files.keys().filter(|name| !name.ends_with(".block") && *name != "lock" && !name.ends_with(".log")).count();
    let of_whole = noticed.iter().filter(|(name, _)| !name.ends_with(".block") && !name.ends_with(".log")).count();
    assert_eq!(of_whole, whole * 4);
}

#[test]
fn a_damaged_manifest_hides_no_other_backup_and_keeps_its_files() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1], "column").unwrap()]).unwrap();
    back_up(&store, &backups, WHOLE).unwrap();
    replace_all(&store, "t", vec![write(&store, &[2], "row").unwrap()], "row").unwrap();
    back_up(&store, &backups, WHOLE).unwrap();
    let name = "backups/00000002.manifest";
    let whole = backups.files()[name].clone();
    backups.put(name, &[&whole[..30], b"x", &whole[31..]].concat());
    let from = Backups::open_on(Arc::new(backups.clone())).unwrap();
    assert_eq!((from.list().len(), from.damaged().len()), (1, 1));
    drop(from);
    // The last state was requested, so no other is restored instead.
    assert!(restored(&backups, LAST).unwrap_err().to_string().contains(name));
    assert_eq!(restored(&backups, RestoreOptions { backup: Some(1), time: None }).unwrap().0["t"], [1]);
    let error = back_up(&store, &backups, BackupOptions { log: false, keep: Some(1) }).unwrap_err();
    assert!(error.to_string().contains("old backups are not removed"), "{error}");
    assert_eq!(restored(&backups, LAST).unwrap().0["t"], [2]);
    backups.put(name, &whole);
    assert_eq!(restored(&backups, RestoreOptions { backup: Some(2), time: None }).unwrap().0["t"], [2]);
    let text = String::from_utf8(whole).unwrap().replacen("taut-backup 1 ", "taut-backup 9 ", 1);
    backups.put(name, text.as_bytes());
    let error = restored(&backups, RestoreOptions { backup: Some(2), time: None }).unwrap_err().to_string();
    assert!(error.contains("expected format version 1, found 9"), "{error}");
}

#[test]
fn nothing_is_overwritten_and_directories_do_not_overlap() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = Store::open(path("database"), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    let refused = |name: &str| store.backup(path(name), WHOLE, &mut go_on).unwrap_err().to_string();
    fs::create_dir(path("database/other")).unwrap();
    for name in ["database", "database/backups", "database/a/b", "database/../database/x", "."] {
        assert!(refused(name).contains("must not lie within each other"), "{name}: {}", refused(name));
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(path("database"), path("link")).unwrap();
        assert!(refused("link/backups").contains("must not lie within each other"));
    }
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/thesis.txt"), "text").unwrap();
    assert!(refused("full").contains("is not a backup directory: it holds \"thesis.txt\""));
    fs::write(path("file"), "text").unwrap();
    assert!(refused("file").contains("is a file"));
    store.backup(path("backups"), WHOLE, &mut go_on).unwrap();
    let error = store.backup(path("backups"), BackupOptions { log: false, keep: Some(0) }, &mut go_on).unwrap_err();
    assert_eq!(error.to_string(), "at least one backup must be kept");

    let from = Backups::open(path("backups")).unwrap();
    let in_use = store.backup(path("backups"), WHOLE, &mut go_on).unwrap_err().to_string();
    assert!(in_use.contains("is in use by process"), "{in_use}");
    for name in ["database", "full", "file", "backups", "backups/new"] {
        let error = from.restore(path(name), LAST, &mut go_on).unwrap_err().to_string();
        let expected =
            if name.starts_with("backups") { "must not lie within" } else { "already exists and is not empty" };
        assert!(error.contains(expected), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(path("full/thesis.txt")).unwrap(), "text");
    fs::create_dir(path("empty")).unwrap();
    from.restore(path("empty"), LAST, &mut go_on).unwrap();
    assert!(from.restore(path("empty"), LAST, &mut go_on).is_err());
    drop(from);
    let other = Store::open(path("empty"), OpenOptions::default()).unwrap();
    let error = other.backup(path("backups"), WHOLE, &mut go_on).unwrap_err().to_string();
    assert!(error.contains("holds backups of another database"), "{error}");
    for name in ["nothing", "full", "file"] {
        assert!(Backups::open(path(name)).is_err());
    }
    let missing = Backups::open(path("nothing")).unwrap_err().to_string();
    assert!(missing.starts_with("there is no backup directory at"), "{missing}");
    let disk = FileDisk::new(path("none"));
    disk.create_directory("").unwrap();
    let none = Backups::open(path("none")).unwrap().restore(path("new"), LAST, &mut go_on).unwrap_err().to_string();
    assert!(none.contains("has no complete backup") && !path("new").exists(), "{none}");
}

#[test]
fn a_cancelled_backup_or_restore_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = Store::open(path("database"), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap(), write(&store, &[3], "row").unwrap()]).unwrap();
    for log in [false, true] {
        let options = BackupOptions { log, keep: None };
        let cancelled = store.backup(path("backups"), options, &mut |_| ControlFlow::Break(()));
        assert!(matches!(cancelled, Err(BackupError::Cancelled)), "{cancelled:?}");
        assert!(!store.retains_log());
        assert_eq!(fs::read_dir(path("backups/blocks")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(path("backups/backups")).unwrap().count(), 0);
    }
    store.backup(path("backups"), WITH_LOG, &mut go_on).unwrap();
    let from = Backups::open(path("backups")).unwrap();
    let cancelled = from.restore(path("new"), LAST, &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(BackupError::Cancelled)), "{cancelled:?}");
    assert!(!path("new").exists(), "it would be opened as an empty database");
    fs::create_dir(path("empty")).unwrap();
    from.restore(path("empty"), LAST, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(fs::read_dir(path("empty")).unwrap().count(), 0);
    let no_backup = RestoreOptions { backup: Some(9), ..LAST };
    from.restore(path("database"), no_backup, &mut go_on).unwrap_err();
    assert!(path("database/lock").exists() && path("database/catalog").exists());
    from.restore(path("new"), LAST, &mut go_on).unwrap();
    assert_eq!(contents(&Store::open(path("new"), OpenOptions::default()).unwrap()).unwrap()["t"], [1, 2, 3]);
}
