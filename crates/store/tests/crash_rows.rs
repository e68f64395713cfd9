//! The machine stops at every change of the disk while small transactions insert, delete and relocate rows, and indexes
//! are built. Whatever remains on the disk, the database reopens with every acknowledged commit. A commit that was not
//! acknowledged is present completely or not at all.
//!
//! A seed determines the steps of each run. The expected contents are known by version: a run on a working disk records
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a run prints its number of crash points")]

mod common;

use std::collections::BTreeSet;

use common::random_steps::random_step;
use common::{Contents, assert_tidy, contents, for_crashes_while_opening, open};
use taut_store::disk::{Disk, Fault, SimulatedDisk};
use taut_store::{ContainerId, OpenError, Store, Synchronous};
use taut_testkit::number_from_environment;

/// Approximate number of crash points of each test, over all of its seeds. Nightly runs have more.
const CRASH_POINTS: u64 = 150;
const CRASH_POINTS_VARIABLE: &str = "TAUT_CRASH_POINTS";
/// Number of steps of a run.
const STEPS: u64 = 24;
/// Number of disks to check after power loss.
const LOSSES: u64 = 4;

fn crash_points() -> u64 {
    number_from_environment(CRASH_POINTS_VARIABLE).unwrap_or(CRASH_POINTS)
}

/// Contents of a database after each step, with the number of commits so far.
struct History {
    seed: u64,
    synchronous: Synchronous,
    states: Vec<(u64, Contents)>,
    /// Number of disk changes of all steps.
    changes: u64,
    /// Changes that belong to a switch to another log file.
    switches: Vec<u64>,
}

/// Whether a change of the disk, given as operation and name, belongs to a switch to another log file.
fn is_of_switch(change: &str) -> bool {
    change.contains(".log.new") || change.ends_with("sync log") || change.starts_with("rename log/")
}

impl History {
    fn new(seed: u64, synchronous: Synchronous) -> Self {
        let disk = SimulatedDisk::new();
        let store = open(&disk).unwrap();
        let mut states = vec![(0, Contents::new())];
        for number in 0..STEPS {
            random_step(&store, seed, number, synchronous)
                .unwrap_or_else(|error| panic!("seed {seed}, {number}: {error}"));
            states.push((store.snapshot().version(), contents(&store).unwrap()));
        }
        drop(store);
        let changes = disk.changes();
        let switches = (0..).zip(&changes).filter(|(_, change)| is_of_switch(change)).map(|(at, _)| at).collect();
        Self { seed, synchronous, states, changes: changes.len() as u64, switches }
    }

    /// Runs the steps until the machine stops. Returns the number of acknowledged steps.
    fn run(&self, disk: &SimulatedDisk, at: u64) -> usize {
        disk.set_fault(Some(Fault::CrashAt(at)));
        let Ok(store) = open(disk) else { return 0 };
        let steps = (0..STEPS).take_while(|number| random_step(&store, self.seed, *number, self.synchronous).is_ok());
        steps.count()
    }

    /// Opens the database, which must have the contents after one of the `possible` numbers of steps and no leftover
    /// files. Returns the greatest such number.
    fn check(&self, disk: &SimulatedDisk, possible: std::ops::RangeInclusive<usize>, context: &str) -> usize {
        let store = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        let (version, found) = (store.snapshot().version(), contents(&store));
        let found = found.unwrap_or_else(|error| panic!("{context}: {error}"));
        let steps = self.states.iter().rposition(|(of, _)| *of == version);
        let steps = steps.unwrap_or_else(|| panic!("{context}: no step led to version {version}"));
        assert!(found == self.states[steps].1, "{context}: version {version} holds other rows");
        let (first, last) = (self.states[*possible.start()].0, self.states[*possible.end()].0);
        assert!((first..=last).contains(&version), "{context}: version {version}, expected {first} to {last}");
        assert_statistics(&store, context);
        assert_tidy(&store, disk, context);
        steps
    }

    fn possible(&self, acknowledged: usize) -> std::ops::RangeInclusive<usize> {
        acknowledged..=(acknowledged + 1).min(self.states.len() - 1)
    }

    fn last(&self) -> usize {
        self.states.len() - 1
    }
}

/// Asserts that column statistics cover the rows in blocks, and that deleted rows are in existing containers.
fn assert_statistics(store: &Store, context: &str) {
    for table in store.snapshot().tables() {
        assert_eq!(table.statistics[0].rows, table.block_rows(), "{context}: rows of {}", table.name);
        let blocks = table.blocks.iter().filter_map(|block| ContainerId::of(block.id()));
        let containers: BTreeSet<ContainerId> =
            blocks.chain(table.delta.pages().iter().map(|page| page.id())).collect();
        let deleted: Vec<ContainerId> = table.delta.all_deleted().map(|(container, _)| container).collect();
        assert!(
            deleted.iter().all(|container| containers.contains(container)),
            "{context}: {deleted:?} of {containers:?}"
        );
    }
}

/// Calls `check` with the disk at crash points spread evenly over the runs of several seeds. A run has at most as many
/// points as disk changes, so more points need more seeds.
fn for_crashes(seeds: u64, synchronous: Synchronous, check: impl Fn(&History, &SimulatedDisk, usize, &str)) {
    let (wanted, mut tested) = (crash_points(), 0);
    for seed in 0.. {
        if seed >= seeds && tested >= wanted {
            println!("{tested} crash points in runs of the seeds 0 to {}", seed - 1);
            break;
        }
        let history = History::new(seed, synchronous);
        let points = (wanted / seeds).clamp(1, history.changes);
        tested += points;
        for point in 0..points {
            let at = history.changes * point / points;
            let disk = SimulatedDisk::new();
            let acknowledged = history.run(&disk, at);
            let change = disk.changes().pop();
            let context = format!("seed {seed}, crash at change {at} ({change:?}), {acknowledged} steps done");
            check(&history, &disk, acknowledged, &context);
        }
    }
}

/// The machine stops at each change of a switch to another log file. Then the database opens. If one of its log files
/// is removed, opening fails, unless the file contained no acknowledged commit.
#[test]
fn after_a_crash_between_two_log_files_the_database_opens_and_a_missing_file_is_detected() {
    let (wanted, mut points, mut noticed, mut harmless) = (crash_points(), 0, 0, 0);
    for seed in 0.. {
        if points >= wanted {
            println!("{points} crash points at log switches in runs of the seeds 0 to {}", seed - 1);
            println!("{noticed} missing log files were detected, {harmless} contained no acknowledged commit");
            break;
        }
        let history = History::new(seed, Synchronous::Full);
        for at in &history.switches {
            points += 1;
            let disk = SimulatedDisk::new();
            let acknowledged = history.run(&disk, *at);
            let context = format!("seed {seed}, crash at change {at} ({:?})", disk.changes().pop());
            for loss in 0..=LOSSES {
                let disk = if loss == 0 { disk.after_kill() } else { disk.after_power_loss(loss) };
                let context = format!("{context}, loss {loss}");
                let logs = disk.files().into_keys().filter(|name| name.ends_with(".log"));
                for name in logs.collect::<Vec<_>>() {
                    let without = disk.after_kill();
                    without.remove(&name).unwrap();
                    match open(&without) {
                        Err(OpenError::MissingLog { .. }) => noticed += 1,
                        Err(OpenError::Foreign { .. } | OpenError::Missing { .. }) if acknowledged == 0 => {
                            harmless += 1
                        }
                        Err(error) => panic!("{context}, without {name}: {error}"),
                        Ok(store) => {
                            let least = history.states[acknowledged].0;
                            assert!(
                                store.snapshot().version() >= least,
                                "{context}, without {name}: commits are missing"
                            );
                            harmless += 1;
                        }
                    }
                }
                let done = history.check(&disk, history.possible(acknowledged), &context);
                history.check(&disk.after_power_loss(loss), done..=done, &format!("{context}, seen"));
            }
        }
    }
    assert!(noticed > points && harmless > 0, "{noticed} {harmless}");
}

#[test]
fn acknowledged_commits_survive_completely_and_new_commits_work() {
    for_crashes(10, Synchronous::Full, |history, disk, acknowledged, context| {
        let possible = history.possible(acknowledged);
        for seed in 0..=LOSSES {
            let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
            let context = format!("{context}, {}", if seed == 0 { "killed".into() } else { format!("loss {seed}") });
            let done = history.check(&disk, possible.clone(), &context);
            // The state that was found stays, and the remaining steps lead to the expected end state.
            history.check(&disk.after_power_loss(seed), done..=done, &format!("{context}, seen"));
            let store = open(&disk).unwrap();
            for number in done as u64..STEPS {
                let result = random_step(&store, history.seed, number, Synchronous::Full);
                result.unwrap_or_else(|error| panic!("{context}, then step {number}: {error}"));
            }
            drop(store);
            history.check(&disk, history.last()..=history.last(), &format!("{context}, then all steps"));
        }
    });
}

#[test]
fn a_crash_while_opening_after_a_crash_changes_nothing() {
    for_crashes(5, Synchronous::Full, |history, disk, acknowledged, context| {
        let disk = disk.after_power_loss(acknowledged as u64);
        let done = history.check(&disk.after_kill(), history.possible(acknowledged), context);
        for_crashes_while_opening(&disk, |reopened, again| {
            for seed in 0..2 {
                let context = format!("{context}; crash {again} while opening, loss {seed}");
                history.check(&reopened.after_power_loss(seed), done..=done, &context);
            }
            history.check(&reopened.after_kill(), done..=done, &format!("{context}; crash {again}, killed"));
        });
    });
}

/// If commits are written but not synced, a killed process loses no acknowledged commit, and power loss loses only the
/// last commits.
#[test]
fn written_but_unsynced_commits_survive_a_killed_process() {
    for_crashes(6, Synchronous::Normal, |history, disk, acknowledged, context| {
        let possible = history.possible(acknowledged);
        history.check(&disk.after_kill(), possible.clone(), &format!("{context}, killed"));
        for seed in 0..LOSSES {
            let context = format!("{context}, loss {seed}");
            let disk = disk.after_power_loss(seed);
            let done = history.check(&disk, 0..=*possible.end(), &context);
            history.check(&disk.after_power_loss(seed), done..=done, &format!("{context}, seen"));
        }
    });
}

#[test]
fn a_crash_loses_only_the_last_unwritten_commits() {
    for_crashes(6, Synchronous::Off, |history, disk, acknowledged, context| {
        let possible = history.possible(acknowledged);
        for seed in 0..=LOSSES {
            let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
            history.check(&disk, 0..=*possible.end(), &format!("{context}, loss {seed}"));
        }
    });
    // A proper close loses nothing.
    for seed in 0..6 {
        let (history, disk) = (History::new(seed, Synchronous::Off), SimulatedDisk::new());
        assert_eq!(history.run(&disk, u64::MAX) as u64, STEPS);
        history.check(&disk.after_power_loss(seed), history.last()..=history.last(), &format!("seed {seed}, closed"));
    }
}
