//! The machine, or only the writer, stops at any change of the disk while other processes read the database. The
//! database reopens in a possible state, live readers can still read their snapshots, and their files are removed when
//! they have ended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a run prints its number of crash points")]

mod common;

use std::collections::BTreeMap;

use common::{Failure, assert_tidy, check, check_snapshot, files_of, for_crash_points, open, read, versioned_step};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{Store, verify};
use taut_testkit::{Random, number_from_environment};

/// Minimum number of crash points of the test, over all of its seeds. Nightly runs have more.
const CRASH_POINTS: u64 = 250;
const CRASH_POINTS_VARIABLE: &str = "TAUT_CRASH_POINTS";
/// Number of steps of a run.
const STEPS: u64 = 30;
/// Number of disks to check after power loss.
const LOSSES: u64 = 3;

/// Returns an error if the machine has stopped. Some operations do not report that.
fn works(disk: &SimulatedDisk) -> Result<(), Failure> {
    if disk.is_crashed() { Err("the machine has stopped".into()) } else { Ok(()) }
}

/// State of a run until the machine stopped.
struct Run {
    acknowledged: u64,
    /// Live readers.
    readers: Vec<Store>,
    /// The writer. It is kept until the checks are done: dropping it would close the database, but its process ended
    /// without warning.
    writer: Option<Store>,
    has_killed_readers: bool,
}

impl Run {
    fn new(disk: &SimulatedDisk, seed: u64, at: u64) -> Self {
        disk.set_fault(Some(Fault::CrashAt(at)));
        let mut run = Self { acknowledged: 0, readers: Vec::new(), writer: None, has_killed_readers: false };
        let mut random = Random(seed);
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
            0..6 => {
                versioned_step(writer)?;
                self.acknowledged = writer.snapshot().version();
            }
            6..9 => writer.checkpoint()?,
            9..12 => {
                let reader = read(disk)?;
                works(disk)?;
                assert_eq!(check_snapshot(&reader.snapshot(), "opened"), self.acknowledged);
                self.readers.push(reader);
            }
            12 if !self.readers.is_empty() => {
                self.readers[some].refresh()?;
                works(disk)?;
                assert_eq!(check_snapshot(&self.readers[some].snapshot(), "refreshed"), self.acknowledged);
            }
            13 if !self.readers.is_empty() => drop(self.readers.swap_remove(some)),
            14 => {
                // Kills all readers, because the disk cannot distinguish them.
                disk.kill_readers();
                self.readers.clear();
                self.has_killed_readers = true;
            }
            15 => {
                self.writer = None;
                self.writer = Some(open(disk)?);
            }
            _ => {}
        }
        works(disk)?;
        for reader in &self.readers {
            check_snapshot(&reader.snapshot(), "while the writer continues");
        }
        Ok(())
    }

    /// Block files that live readers may read, with their content.
    fn needed(&self, disk: &SimulatedDisk) -> BTreeMap<String, Vec<u8>> {
        let snapshots: Vec<_> = self.readers.iter().map(Store::snapshot).collect();
        let blocks = snapshots.iter().flat_map(|snapshot| snapshot.tables()).flat_map(|table| table.blocks.iter());
        let names = blocks.map(|block| format!("blocks/{}.block", block.id()));
        let files = disk.files();
        names.map(|name| (name.clone(), files[&name].clone())).collect()
    }
}

fn check_version(store: &Store, acknowledged: u64, context: &str) -> u64 {
    let version = check(store, context);
    assert!((acknowledged..=acknowledged + 1).contains(&version), "{context}: {version}, acknowledged {acknowledged}");
    version
}

/// Checks the disk after the writer process was killed, while the readers are live.
fn check_killed(run: &Run, crashed: &SimulatedDisk, context: &str) {
    let (disk, needed) = (crashed.after_kill(), run.needed(crashed));
    // If nothing was committed, there may be no database yet.
    let early = read(&disk).ok();
    let seen = early.as_ref().map(|early| check_version(early, run.acknowledged, context));
    let writer = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let version = check_version(&writer, run.acknowledged, context);
    assert!(seen.is_none_or(|seen| seen == version), "{context}: {seen:?} and {version}");
    for _ in 0..4 {
        versioned_step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    let files = disk.files();
    for (name, content) in &needed {
        assert_eq!(files.get(name), Some(content), "{context}: {name}");
    }
    if let Some(early) = early {
        assert_eq!(Some(check(&early, context)), seen, "{context}");
        early.refresh().unwrap();
        assert_eq!(check(&early, context), version + 4, "{context}");
    }
    assert!(verify(&writer).is_empty(), "{context}");
    disk.kill_readers();
    writer.checkpoint().unwrap();
    assert_tidy(&writer, &disk, context);
    assert!(files_of(&disk, "readers/").is_empty());
}

/// Checks the disk after the machine stopped. No process survives.
fn check_power_loss(run: &Run, crashed: &SimulatedDisk, seed: u64, context: &str) {
    let disk = crashed.after_power_loss(seed);
    let seen = read(&disk).ok().map(|early| check_version(&early, run.acknowledged, context));
    // A state that a reader has read survives the next power loss.
    let disk = disk.after_power_loss(seed + 1);
    let writer = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let version = check_version(&writer, run.acknowledged, context);
    assert!(seen.is_none_or(|seen| seen == version), "{context}: {seen:?} and {version}");
    assert_tidy(&writer, &disk, context);
}

#[test]
fn a_crash_beside_readers_loses_nothing_and_leaves_nothing() {
    let wanted = number_from_environment(CRASH_POINTS_VARIABLE).unwrap_or(CRASH_POINTS);
    let (mut with_readers, mut with_dead) = (0, 0);
    let (tested, seeds) = for_crash_points(wanted, 3, |seed, at| {
        let disk = SimulatedDisk::new();
        let run = Run::new(&disk, seed, at);
        if !disk.is_crashed() {
            return false;
        }
        let context = format!("seed {seed}, crash at change {at} ({:?})", disk.changes().last());
        check_killed(&run, &disk, &format!("{context}, killed"));
        for loss in 0..LOSSES {
            check_power_loss(&run, &disk, loss, &format!("{context}, loss {loss}"));
        }
        with_readers += u64::from(!run.readers.is_empty());
        with_dead += u64::from(run.has_killed_readers);
        true
    });
    println!("{tested} crash points of {seeds} seeds, {with_readers} with live readers, {with_dead} with dead ones");
    assert!(with_readers > wanted / 4, "{with_readers}");
}
