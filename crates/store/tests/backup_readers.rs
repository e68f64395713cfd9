//! Backups with the log, concurrent readers, and damage, in combination. A file is kept as long as a backup or a reader
//! needs it, and no longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a run prints its number of crash points")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::backups::{LAST, WITH_LOG, WITHOUT_LOG, at, back_up, list, now, restored};
use common::random_steps::random_step;
use common::{
    Contents, Failure, append, assert_tidy, change_rows, contents, create_table, drop_table, files_of,
    for_crash_points, open, read, replace_all, rows_of, write,
};
use taut_store::backup::{BackupError, BackupLog, Backups, RestoreOptions};
use taut_store::disk::{Disk, Fault, SimulatedDisk};
use taut_store::{Catalog, OpenError, OpenOptions, Store, Synchronous, repair_on, verify};
use taut_testkit::{Random, number_from_environment};

/// Minimum number of crash points of the test, over all of its seeds. Nightly runs have more.
const CRASH_POINTS: u64 = 120;
const CRASH_POINTS_VARIABLE: &str = "TAUT_CRASH_POINTS";
/// Number of steps of a run.
const STEPS: u64 = 26;

fn rows_in(snapshot: &Catalog) -> Contents {
    snapshot.tables().map(|table| (table.name.clone(), rows_of(table).unwrap())).collect()
}

/// Replaces all rows of table `t` by one block.
fn replace(store: &Store, rows: &[i64]) {
    replace_all(store, "t", vec![write(store, rows, "column").unwrap()], "column").unwrap();
}

#[test]
fn blocks_that_a_reader_uses_stay_after_a_backup_archived_them() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    append(&store, "t", vec![write(&store, &[1], "column").unwrap()]).unwrap();
    store.checkpoint().unwrap();
    let reader = read(&disk).unwrap();
    (2..5).for_each(|number| replace(&store, &[number]));
    store.checkpoint().unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), 4);
    let taken = back_up(&store, &backups, WITH_LOG).unwrap();
    assert_eq!((taken.log, taken.copied_blocks), (BackupLog::Continued { base: 1, commits: 4 }, 4));
    // The backup no longer needs these files, but they stay for the reader, even after the writer reopens.
    assert_eq!(contents(&reader).unwrap()["t"], [1]);
    drop(store);
    let store = open(&disk).unwrap();
    assert!(store.retains_log() && verify(&store).is_empty());
    assert!(verify(&reader).is_empty(), "{:?}", verify(&reader));
    assert_eq!(contents(&reader).unwrap()["t"], [1]);
    // The retained log keeps its files after the reader ended.
    (5..7).for_each(|number| replace(&store, &[number]));
    drop(reader);
    store.checkpoint().unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), 2);
    let taken = back_up(&store, &backups, WITH_LOG).unwrap();
    assert_eq!(taken.log, BackupLog::Continued { base: 2, commits: 2 });
    store.stop_log_retention().unwrap();
    store.checkpoint().unwrap();
    assert_tidy(&store, &disk, "at the end");
}

#[test]
fn a_reader_backs_up_its_snapshot_while_the_writer_continues() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1], "column").unwrap()]).unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    let reader = read(&disk).unwrap();
    let mut times = Vec::new();
    for number in 2..8 {
        replace(&store, &[number]);
        change_rows(&store, "t", &[number + 100], &[]).unwrap();
        store.checkpoint().unwrap();
        let expected = contents(&store).unwrap();
        let time = now();
        times.push((time, expected.clone()));
        assert!(matches!(back_up(&reader, &backups, WITH_LOG), Err(BackupError::ReadOnly)));
        // A backup by a reader has the time of the state that the reader shows, although a checkpoint does not store
        // that time.
        let reader_from_now = read(&disk).unwrap();
        reader.refresh().unwrap();
        let (commit, later) = (store.snapshot().version(), now());
        change_rows(&store, "t", &[number + 200], &[]).unwrap();
        for reader in [&reader, &reader_from_now] {
            let taken = back_up(reader, &backups, WITHOUT_LOG).unwrap();
            assert!(taken.commit == commit && (time..=later).contains(&taken.time), "{time} {taken:?} {later}");
            let options = RestoreOptions { backup: Some(taken.number), time: None };
            let (rows, report) = restored(&backups, options).unwrap();
            assert_eq!((report.commit, rows), (commit, expected.clone()));
        }
        reader.refresh().unwrap();
        let taken = back_up(&reader, &backups, WITHOUT_LOG).unwrap();
        assert_eq!(taken.commit, store.snapshot().version());
        assert!(taken.time > later, "{taken:?} {later}");
        let options = RestoreOptions { backup: Some(taken.number), time: None };
        assert_eq!(restored(&backups, options).unwrap().0, contents(&store).unwrap());
        if number % 3 == 0 {
            let taken = back_up(&store, &backups, WITH_LOG).unwrap();
            assert!(matches!(taken.log, BackupLog::Continued { .. }), "{taken:?}");
        }
    }
    let taken = back_up(&store, &backups, WITH_LOG).unwrap();
    assert!(matches!(taken.log, BackupLog::Continued { .. }), "{taken:?}");
    for (time, expected) in times {
        assert_eq!(restored(&backups, at(time)).unwrap().0, expected);
    }
}

#[test]
fn a_reader_of_a_damaged_database_reads_the_other_tables() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    for name in ["t", "u"] {
        create_table(&store, name).unwrap();
        append(&store, name, vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    }
    let lost = format!("blocks/{}.block", store.snapshot().table("t").unwrap().blocks[0].id());
    let early = read(&disk).unwrap();
    disk.remove(&lost).unwrap();
    let reader = read(&disk).unwrap();
    let missing: Vec<_> = reader.recovery().missing_blocks.iter().map(|missing| missing.table.clone()).collect();
    assert_eq!(missing, ["t"]);
    for reader in [&early, &reader] {
        assert_eq!(rows_of(reader.snapshot().table("u").unwrap()).unwrap(), [1, 2]);
        let error = rows_of(reader.snapshot().table("t").unwrap()).unwrap_err().to_string();
        assert!(error.contains("table \"t\" is damaged: block file"), "{error}");
        assert_eq!(verify(reader).len(), 1);
        change_rows(&store, "u", &[3], &[3]).unwrap();
        assert!(reader.refresh().unwrap());
        assert!(back_up(reader, &SimulatedDisk::new(), WITHOUT_LOG).unwrap_err().to_string().contains("\"t\""));
    }
    // A reader also detects a missing log file.
    store.checkpoint().unwrap();
    change_rows(&store, "u", &[4], &[]).unwrap();
    let killed = disk.after_kill();
    let last = files_of(&killed, "log/").into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    killed.remove(&last).unwrap();
    assert!(matches!(read(&killed), Err(OpenError::MissingLog { .. })), "{:?}", read(&killed).err());
}

/// A database with a retained log. Table `t` is replaced repeatedly, table `u` is not.
fn retaining() -> (SimulatedDisk, SimulatedDisk, Store) {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    for name in ["t", "u"] {
        create_table(&store, name).unwrap();
    }
    back_up(&store, &backups, WITH_LOG).unwrap();
    append(&store, "u", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    append(&store, "t", vec![write(&store, &[0], "column").unwrap()]).unwrap();
    for number in 1..4 {
        replace(&store, &[number]);
        store.checkpoint().unwrap();
    }
    change_rows(&store, "t", &[10], &[]).unwrap();
    (disk, backups, store)
}

#[test]
fn a_lost_block_removes_neither_retained_files_nor_backups() {
    let (disk, backups, store) = retaining();
    let expected = contents(&store).unwrap()["t"].clone();
    let lost = format!("blocks/{}.block", store.snapshot().table("u").unwrap().blocks[0].id());
    drop(store);
    disk.remove(&lost).unwrap();
    let retained = files_of(&disk, "blocks/");
    disk.put("blocks/00000000000000ff.block", b"a lost block, perhaps");
    let store = open(&disk).unwrap();
    // Only the block of a table counts as missing, and no file is removed.
    assert_eq!(store.recovery().missing_blocks.len(), 1);
    assert!(files_of(&disk, "blocks/").len() == retained.len() + 1);
    assert!(store.retains_log());
    assert!(back_up(&store, &backups, WITH_LOG).unwrap_err().to_string().contains("\"u\""));
    assert!(store.retains_log() && list(&backups).len() == 1);
    drop_table(&store, "u").unwrap();
    assert_eq!(back_up(&store, &backups, WITH_LOG).unwrap().log, BackupLog::Begun);
    assert_eq!(restored(&backups, LAST).unwrap().0, BTreeMap::from([("t".to_owned(), expected)]));
    store.stop_log_retention().unwrap();
    drop(store);
    assert_tidy(&open(&disk).unwrap(), &disk, "opened again");
}

/// A block is lost while the database is open, and its table is dropped. The commits since the last backup cannot be
/// replayed, so the next backup begins a new log instead of failing forever.
#[test]
fn losing_a_retained_block_restarts_the_archived_log() {
    let (disk, backups, store) = retaining();
    let expected = contents(&store).unwrap()["t"].clone();
    disk.remove(&format!("blocks/{}.block", store.snapshot().table("u").unwrap().blocks[0].id())).unwrap();
    assert!(back_up(&store, &backups, WITH_LOG).unwrap_err().to_string().contains("\"u\""));
    assert!(store.retains_log());
    drop_table(&store, "u").unwrap();
    let taken = back_up(&store, &backups, WITH_LOG).unwrap();
    assert_eq!((taken.number, taken.log), (2, BackupLog::Begun));
    assert_eq!(restored(&backups, LAST).unwrap().0, BTreeMap::from([("t".to_owned(), expected)]));
    change_rows(&store, "t", &[11], &[]).unwrap();
    assert!(matches!(back_up(&store, &backups, WITH_LOG).unwrap().log, BackupLog::Continued { base: 2, .. }));
    store.stop_log_retention().unwrap();
    assert_tidy(&store, &disk, "stopped");
}

/// Repair does not salvage the retained log: the new database has another identity, and needs another backup directory.
#[test]
fn a_repaired_database_retains_no_log() {
    let (disk, backups, store) = retaining();
    let expected = contents(&store).unwrap();
    let reader = read(&disk).unwrap();
    let killed = disk.after_kill();
    drop(reader);
    let before = killed.files();
    let to = SimulatedDisk::new();
    let report = repair_on(Arc::new(killed.clone()), Arc::new(to.clone())).unwrap();
    assert!(report.losses.is_empty() && report.tables.iter().all(|table| table.losses.is_empty()), "{report:?}");
    assert!(report.retained_log && killed.files() == before);
    let new = open(&to).unwrap();
    assert_eq!(contents(&new).unwrap(), expected);
    assert!(!new.retains_log());
    assert_tidy(&new, &to, "repaired");
    assert!(matches!(back_up(&new, &backups, WITH_LOG), Err(BackupError::OtherDatabase { .. })));
    let others = SimulatedDisk::new();
    assert_eq!(back_up(&new, &others, WITH_LOG).unwrap().log, BackupLog::Begun);
    // If a log file is missing, repair restores the last commit before it, even if the log is retained for a backup.
    let last = files_of(&killed, "log/").into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    killed.remove(&last).unwrap();
    assert!(matches!(
        Store::open_on(Arc::new(killed.clone()), OpenOptions::default()),
        Err(OpenError::MissingLog { .. })
    ));
    let to = SimulatedDisk::new();
    let report = repair_on(Arc::new(killed), Arc::new(to.clone())).unwrap();
    assert_eq!(report.losses.len(), 1, "{report:?}");
    let new = open(&to).unwrap();
    assert_eq!(contents(&new).unwrap()["t"], [3]);
    assert_tidy(&new, &to, "repaired without the last log file");
}

/// State of a run until the machine stopped.
struct Run {
    seed: u64,
    next: u64,
    backups: SimulatedDisk,
    writer: Option<Store>,
    readers: Vec<Store>,
    /// Commit, a time before the next commit, and contents of the database.
    states: Vec<(u64, i64, Contents)>,
    /// Number of the last acknowledged backup with the log.
    last: Option<u64>,
}

impl Run {
    fn new(disk: &SimulatedDisk, seed: u64, at: u64) -> Self {
        disk.set_fault(Some(Fault::CrashAt(at)));
        let backups = SimulatedDisk::new();
        let (readers, states) = (Vec::new(), Vec::new());
        let mut run = Self { seed, next: 0, backups, writer: None, readers, states, last: None };
        let mut random = Random(seed.wrapping_mul(7_919).wrapping_add(1));
        for _ in 0..STEPS {
            if run.step(disk, &mut random).is_err() {
                break;
            }
        }
        run
    }

    fn step(&mut self, disk: &SimulatedDisk, random: &mut Random) -> Result<(), Failure> {
        let Some(writer) = &self.writer else {
            self.writer = Some(open(disk)?);
            return Ok(());
        };
        let some = random.below(self.readers.len().max(1));
        match random.below(16) {
            0..7 => {
                random_step(writer, self.seed, self.next, Synchronous::Full)?;
                self.next += 1;
                self.states.push((writer.snapshot().version(), now(), contents(writer)?));
            }
            7 | 8 => writer.checkpoint()?,
            9 | 10 => self.last = Some(back_up(writer, &self.backups, WITH_LOG)?.number),
            11 | 12 => self.readers.push(read(disk)?),
            13 if !self.readers.is_empty() => drop(self.readers[some].refresh()?),
            14 if !self.readers.is_empty() => drop(self.readers.swap_remove(some)),
            15 => {
                self.writer = None;
                self.writer = Some(open(disk)?);
            }
            _ => {}
        }
        if disk.is_crashed() { Err("the machine has stopped".into()) } else { Ok(()) }
    }

    fn acknowledged(&self) -> u64 {
        self.states.last().map_or(0, |(commit, ..)| *commit)
    }

    /// Restores every second commit between the first and the last backup.
    fn check(&self, states: &[(u64, i64, Contents)], backups: &SimulatedDisk, context: &str) {
        let found = list(backups);
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return };
        let is_covered = |time: i64| time >= first.time && time <= last.time;
        for (commit, time, expected) in states.iter().filter(|(_, time, _)| is_covered(*time)).step_by(2) {
            let (rows, report) =
                restored(backups, at(*time)).unwrap_or_else(|error| panic!("{context}: commit {commit}: {error}"));
            let is_right = report.commit == *commit && rows == *expected;
            assert!(is_right, "{context}: commit {commit}, found {}", report.commit);
        }
    }
}

/// Checks a database after a crash: it is undamaged, the next backup continues the last one, and then nothing is
/// retained.
fn check_after(run: &Run, disk: &SimulatedDisk, backups: &SimulatedDisk, context: &str) {
    let last = Backups::open_on(Arc::new(backups.clone())).ok().and_then(|found| found.list().pop());
    assert!(last.as_ref().map(|last| last.number) >= run.last, "{context}: {last:?}");
    let seen = read(disk).ok().map(|early| (early.snapshot().version(), contents(&early).unwrap()));
    let writer = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let (commit, rows) = (writer.snapshot().version(), contents(&writer).unwrap());
    assert!(seen.is_none_or(|seen| seen == (commit, rows.clone())), "{context}");
    assert!(commit >= run.acknowledged() && commit <= run.acknowledged() + 1, "{context}: {commit}");
    assert!(verify(&writer).is_empty(), "{context}: {:?}", verify(&writer));
    let mut states = run.states.clone();
    states.push((commit, now(), rows));
    for number in 0..2 {
        random_step(&writer, run.seed, 1_000 + number, Synchronous::Full).unwrap();
        states.push((writer.snapshot().version(), now(), contents(&writer).unwrap()));
        writer.checkpoint().unwrap();
    }
    let next = back_up(&writer, backups, WITH_LOG).unwrap();
    match last {
        Some(last) => assert!(
            matches!(next.log, BackupLog::Continued { base, .. } if base == last.number),
            "{context}: {next:?} after {last:?}"
        ),
        None => assert_eq!(next.log, BackupLog::Begun, "{context}"),
    }
    run.check(&states, backups, context);
    disk.kill_readers();
    writer.stop_log_retention().unwrap();
    writer.checkpoint().unwrap();
    assert_tidy(&writer, disk, context);
}

#[test]
fn a_crash_beside_readers_loses_no_commit_from_the_backups() {
    let wanted = number_from_environment(CRASH_POINTS_VARIABLE).unwrap_or(CRASH_POINTS);
    let (mut with_readers, mut with_backups) = (0, 0);
    let (tested, seeds) = for_crash_points(wanted, 7, |seed, at| {
        let disk = SimulatedDisk::new();
        let run = Run::new(&disk, seed, at);
        if !disk.is_crashed() {
            return false;
        }
        let context = format!("seed {seed}, crash at change {at} ({:?})", disk.changes().last());
        let shown: Vec<_> = run.readers.iter().map(|reader| files_of_snapshot(&reader.snapshot())).collect();
        let killed = disk.after_kill();
        // Files of live readers stay while another writer continues.
        let before = killed.files();
        {
            let copy = killed.after_kill();
            let writer = open(&copy).unwrap_or_else(|error| panic!("{context}: {error}"));
            for number in 0..2 {
                random_step(&writer, seed, 2_000 + number, Synchronous::Full).unwrap();
                writer.checkpoint().unwrap();
            }
            back_up(&writer, &run.backups.after_kill(), WITH_LOG).unwrap();
            let after = copy.files();
            for name in shown.iter().flatten() {
                assert_eq!(after.get(name), before.get(name), "{context}: {name}");
            }
            assert!(verify(&writer).is_empty(), "{context}");
        }
        check_after(&run, &killed, &run.backups.after_kill(), &format!("{context}, killed"));
        for loss in 0..2 {
            let disk = disk.after_power_loss(seed * 31 + loss);
            check_after(&run, &disk, &run.backups.after_kill(), &format!("{context}, loss {loss}"));
        }
        with_readers += u64::from(!run.readers.is_empty());
        with_backups += u64::from(run.last.is_some());
        true
    });
    println!("{tested} crash points of {seeds} seeds, {with_readers} with readers, {with_backups} with backups");
    assert!(with_readers > wanted / 4 && with_backups > wanted / 4, "{with_readers} {with_backups}");
}

fn files_of_snapshot(snapshot: &Catalog) -> Vec<String> {
    let blocks = snapshot.tables().flat_map(|table| table.blocks.iter());
    blocks.map(|block| format!("blocks/{}.block", block.id())).collect()
}

#[test]
fn snapshots_of_readers_equal_those_of_the_writer() {
    let (disk, backups, store) = retaining();
    let reader = read(&disk).unwrap();
    let snapshot = reader.snapshot();
    let expected = contents(&store).unwrap();
    replace(&store, &[77]);
    store.checkpoint().unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    reader.refresh().unwrap();
    assert_eq!(rows_in(&snapshot), expected);
    assert_eq!(contents(&reader).unwrap(), contents(&store).unwrap());
}
