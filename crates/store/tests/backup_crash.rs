//! The machine stops, or the disk fails or is full, at any change during backups and restores. Complete backups stay
//! valid, every commit between them can be restored, and the next backup continues the last one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a run prints its number of crash points")]

mod common;

use std::sync::Arc;

use common::backups::{LAST, WITH_LOG, at, back_up, list, never_cancel, now, restored};
use common::random_steps::random_step;
use common::{Contents, assert_tidy, contents, open};
use taut_store::backup::{BackupLog, BackupOptions, Backups, RestoreOptions};
use taut_store::disk::{Disk, Fault, SimulatedDisk};
use taut_store::{OpenError, OpenOptions, Store, Synchronous, verify};
use taut_testkit::number_from_environment;

/// Approximate number of crash points of each test. Nightly runs have more.
const CRASH_POINTS: u64 = 100;
const CRASH_POINTS_VARIABLE: &str = "TAUT_CRASH_POINTS";

fn crash_points() -> u64 {
    number_from_environment(CRASH_POINTS_VARIABLE).unwrap_or(CRASH_POINTS)
}

/// A database, and its contents after each commit.
struct Life {
    disk: SimulatedDisk,
    seed: u64,
    next: u64,
    /// Commit, a time before the next commit, and contents of the database.
    states: Vec<(u64, i64, Contents)>,
}

impl Life {
    fn new(seed: u64) -> Self {
        Self { disk: SimulatedDisk::new(), seed, next: 0, states: Vec::new() }
    }

    fn steps(&mut self, store: &Store, count: u64) -> Result<(), common::Failure> {
        for _ in 0..count {
            random_step(store, self.seed, self.next, Synchronous::Full)?;
            self.next += 1;
            self.states.push((store.snapshot().version(), now(), contents(store)?));
        }
        Ok(())
    }

    fn state(&self, commit: u64) -> &Contents {
        let state = self.states.iter().rfind(|(of, _, _)| *of == commit);
        &state.unwrap_or_else(|| panic!("no step led to commit {commit}")).2
    }

    /// Restores each backup, and every third commit between the first and the last backup. The length of `context`
    /// selects the first of these commits. The backups `numbers` must exist.
    fn check(&self, backups: &SimulatedDisk, numbers: &[u64], context: &str) {
        let found = list(backups);
        for number in numbers {
            assert!(found.iter().any(|info| info.number == *number), "{context}: no backup {number}, but {found:?}");
        }
        for info in &found {
            let options = RestoreOptions { backup: Some(info.number), time: None };
            let (rows, report) = restored(backups, options)
                .unwrap_or_else(|error| panic!("{context}: backup {} of {found:?}: {error}", info.number));
            let is_right = report.commit == info.commit && rows == *self.state(info.commit);
            assert!(is_right, "{context}: backup {}", info.number);
        }
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return };
        let is_covered = |time: i64| time >= first.time && time <= last.time;
        let covered = self.states.iter().filter(|(_, time, _)| is_covered(*time));
        for (commit, time, expected) in covered.skip(context.len() % 3).step_by(3) {
            let (rows, report) =
                restored(backups, at(*time)).unwrap_or_else(|error| panic!("{context}: commit {commit}: {error}"));
            let is_right = report.commit == *commit && rows == *expected;
            assert!(is_right, "{context}: commit {commit}, found {}", report.commit);
        }
    }
}

/// Asserts that a backup directory holds only the files that its manifests name.
fn assert_no_leftovers(backups: &SimulatedDisk, context: &str) {
    let files = backups.files();
    assert!(!files.keys().any(|name| name.ends_with(".new")), "{context}: {:?}", files.keys());
    let needed: u64 = {
        // Backups share blocks, so a manifest must name each block.
        let manifests = files.iter().filter(|(name, _)| name.ends_with(".manifest"));
        let texts: Vec<String> = manifests.map(|(_, bytes)| String::from_utf8(bytes.clone()).unwrap()).collect();
        let blocks = files.keys().filter(|name| name.ends_with(".block"));
        for block in blocks {
            let (id, header) = block["blocks/".len()..block.len() - ".block".len()].split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let start = format!("[{},", number(id));
            let header = format!(",{},", number(header));
            let is_needed = texts.iter().any(|text| text.contains(&start) && text.contains(&header));
            assert!(is_needed, "{context}: no backup needs {block}");
        }
        texts.len() as u64
    };
    let parts = files.keys().filter(|name| name.starts_with("backups/"));
    let numbers: std::collections::BTreeSet<&str> = parts.map(|name| &name["backups/".len()..][..8]).collect();
    assert_eq!(numbers.len() as u64, needed, "{context}: {:?}", files.keys());
}

/// Possible disks after a crash: one after a killed process, and several after power loss.
fn after_crash(disk: &SimulatedDisk, seed: u64) -> Vec<(String, SimulatedDisk)> {
    let lost = (0..3).map(|loss| (format!("loss {loss}"), disk.after_power_loss(seed * 31 + loss)));
    std::iter::once(("killed".to_owned(), disk.after_kill())).chain(lost).collect()
}

/// Takes two backups, makes more commits, and calls `check`, which interrupts a third backup at change `at`. Repeats
/// this for each change until `check` returns false. Does so for at least `seeds` seeds. The second backup keeps `keep`
/// backups. Returns the number of interrupted backups.
fn for_each_change(
    keep: Option<usize>,
    seeds: u64,
    mut check: impl FnMut(&Life, &Store, &SimulatedDisk, u64) -> bool,
) -> u64 {
    let (wanted, mut points) = (crash_points(), 0);
    for seed in 0.. {
        if seed >= seeds && points >= wanted {
            break;
        }
        for at in 0.. {
            let mut life = Life::new(seed);
            let store = open(&life.disk).unwrap();
            let backups = SimulatedDisk::new();
            life.steps(&store, 7).unwrap();
            back_up(&store, &backups, WITH_LOG).unwrap();
            life.steps(&store, 8).unwrap();
            back_up(&store, &backups, BackupOptions { log: true, keep }).unwrap();
            life.steps(&store, 8).unwrap();
            if !check(&life, &store, &backups, at) {
                break;
            }
            points += 1;
        }
    }
    points
}

#[test]
fn an_interrupted_backup_leaves_the_earlier_ones_complete() {
    for keep in [None, Some(2)] {
        let options = BackupOptions { log: true, keep };
        let points = for_each_change(None, 3, |life, store, backups, at| {
            backups.set_fault(Some(Fault::CrashAt(at)));
            let taken = back_up(store, backups, options);
            if !backups.is_crashed() {
                taken.unwrap();
                return false;
            }
            let change = backups.changes().pop();
            for (which, found) in after_crash(backups, at) {
                let context = format!("seed {}, keep {keep:?}, crash at {at} ({change:?}), {which}", life.seed);
                let is_complete = list(&found).last().unwrap().number == 3;
                let numbers: &[u64] = match (is_complete, keep) {
                    (false, _) => &[1, 2],
                    (true, None) => &[1, 2, 3],
                    (true, Some(_)) => &[2, 3],
                };
                life.check(&found, numbers, &context);
                // Backups that were listed survive a power loss. The next backup of the reopened database continues the
                // last one.
                life.check(&found.after_power_loss(at), numbers, &format!("{context}, seen"));
                let base = list(&found).last().unwrap().number;
                let copy = life.disk.after_kill();
                let again = open(&copy).unwrap();
                let next = back_up(&again, &found, WITH_LOG).unwrap();
                assert!(
                    matches!(next.log, BackupLog::Continued { base: found, .. } if found == base),
                    "{context}: {next:?} after {base}"
                );
                life.check(&found, &[base, next.number], &format!("{context}, next"));
                assert_no_leftovers(&found, &context);
            }
            true
        });
        println!("keep {keep:?}: {points} crash points, each with 4 outcomes");
        assert!(points >= crash_points());
    }
}

#[test]
fn a_failing_or_full_disk_fails_only_the_backup() {
    let mut points = 0;
    for fault in [Fault::FailAt as fn(u64) -> Fault, Fault::FailAfter, Fault::FailFrom, Fault::FailReadAt, |at| {
        Fault::Capacity(at * 2_500)
    }] {
        let mut successes_in_a_row = 0;
        points += for_each_change(None, 1, |life, store, backups, at| {
            backups.set_fault(Some(fault(at)));
            let taken = back_up(store, backups, WITH_LOG);
            let context = format!("{:?}: {:?}", fault(at), taken.as_ref().err().map(ToString::to_string));
            backups.set_fault(None);
            // A failed cleanup does not fail the backup. So one backup that succeeds does not mean that `at` is past
            // the last change, but four in a row do.
            successes_in_a_row = if taken.is_ok() { successes_in_a_row + 1 } else { 0 };
            let complete = if taken.is_ok() { vec![1, 2, 3] } else { vec![1, 2] };
            life.check(backups, &complete, &context);
            let base = list(backups).last().unwrap().number;
            let next = back_up(store, backups, WITH_LOG).unwrap();
            assert!(
                matches!(next.log, BackupLog::Continued { base: found, .. } if found == base),
                "{context}: {next:?} after {base}"
            );
            life.check(backups, &[base, next.number], &format!("{context}, next"));
            assert_no_leftovers(backups, &context);
            assert!(verify(store).is_empty(), "{context}");
            let is_at_end = successes_in_a_row > 3 || (matches!(fault(at), Fault::Capacity(_)) && taken.is_ok());
            !is_at_end
        });
    }
    println!("{points} faults");
    assert!(points > 150, "{points}");
}

/// A commit or a backup fails once at any change of the database disk. All later ones succeed.
#[test]
fn a_failing_disk_of_the_database_leaves_no_gap_in_the_backups() {
    let (mut points, mut failures) = (0, 0);
    for (seed, fault) in [(0, Fault::FailAt as fn(u64) -> Fault), (1, Fault::FailAfter), (2, Fault::FailAt)] {
        let changes = {
            let mut life = Life::new(seed);
            live(&mut life, &SimulatedDisk::new()).unwrap();
            life.disk.changes().len() as u64
        };
        let of_seed = (crash_points() / 2).min(changes);
        for point in 0..of_seed {
            let at = changes * point / of_seed;
            let (mut life, backups) = (Life::new(seed), SimulatedDisk::new());
            life.disk.set_fault(Some(fault(at)));
            let context = format!("seed {seed}, {:?}", fault(at));
            let Ok(mut store) = open(&life.disk) else { continue };
            points += 1;
            let mut note = |is_ok: bool| failures += u64::from(!is_ok);
            for round in 0..4 {
                for _ in 0..6 {
                    note(random_step(&store, seed, life.next, Synchronous::Full).is_ok());
                    life.next += 1;
                    life.states.push((store.snapshot().version(), now(), contents(&store).unwrap()));
                }
                if round == 2 {
                    drop(store);
                    let Ok(again) = open(&life.disk).or_else(|_| open(&life.disk)) else {
                        panic!("{context}: the second attempt to open fails too");
                    };
                    store = again;
                    // Opening the database determines the outcome of an uncertain commit.
                    life.states.push((store.snapshot().version(), now(), contents(&store).unwrap()));
                }
                note(back_up(&store, &backups, WITH_LOG).is_ok());
                note(store.checkpoint().is_ok());
            }
            life.disk.set_fault(None);
            assert!(verify(&store).is_empty(), "{context}");
            let next = back_up(&store, &backups, WITH_LOG).unwrap();
            life.check(&backups, &[next.number], &context);
            store.stop_log_retention().unwrap();
            // Reopening removes a file that could not be removed before.
            drop(store);
            assert_tidy(&open(&life.disk).unwrap(), &life.disk, &context);
        }
    }
    println!("{points} faults, {failures} failures");
    assert!(failures > 30, "{failures}");
}

/// Runs steps with backups in between. Returns the number of backups.
fn live(life: &mut Life, backups: &SimulatedDisk) -> Result<u64, common::Failure> {
    let mut taken = 0;
    let mut store = open(&life.disk)?;
    for round in 0..4 {
        life.steps(&store, 4)?;
        if round == 2 {
            drop(store);
            store = open(&life.disk)?;
        }
        back_up(&store, backups, WITH_LOG)?;
        taken += 1;
        life.steps(&store, 2)?;
        store.checkpoint()?;
    }
    Ok(taken)
}

#[test]
fn a_crash_of_the_database_loses_no_commit_from_the_backups() {
    let (wanted, mut points) = (crash_points() * 2, 0);
    let seeds = 4;
    for seed in 0.. {
        if seed >= seeds && points >= wanted {
            break;
        }
        let changes = {
            let mut life = Life::new(seed);
            life.disk.set_fault(None);
            live(&mut life, &SimulatedDisk::new()).unwrap();
            life.disk.changes().len() as u64
        };
        let of_seed = (wanted / seeds).min(changes);
        for point in 0..of_seed {
            let at = changes * point / of_seed;
            let (mut life, backups) = (Life::new(seed), SimulatedDisk::new());
            life.disk.set_fault(Some(Fault::CrashAt(at)));
            let _ = live(&mut life, &backups);
            assert!(life.disk.is_crashed());
            let change = life.disk.changes().pop();
            points += 1;
            for (which, disk) in after_crash(&life.disk, at) {
                let context = format!("seed {seed}, crash at {at} ({change:?}), {which}");
                let backups = backups.after_kill();
                let last = Backups::open_on(Arc::new(backups.clone())).ok().and_then(|found| found.list().pop());
                let store = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(verify(&store).is_empty(), "{context}");
                let mut life = Life { disk: disk.clone(), states: life.states.clone(), ..life };
                let (commit, rows) = (store.snapshot().version(), contents(&store).unwrap());
                let acknowledged = life.states.last().map_or(0, |(commit, _, _)| *commit);
                if commit > acknowledged {
                    // The interrupted step was committed.
                    life.states.push((commit, now(), rows));
                    life.next += 1;
                } else {
                    assert!(commit == acknowledged && (commit == 0 || rows == *life.state(commit)), "{context}");
                }
                assert!(last.as_ref().is_none_or(|last| last.commit <= commit), "{context}: {last:?} at {commit}");
                life.steps(&store, 2).unwrap();
                store.checkpoint().unwrap();
                let next = back_up(&store, &backups, WITH_LOG).unwrap();
                match last {
                    Some(last) => assert!(
                        matches!(next.log, BackupLog::Continued { base, .. } if base == last.number),
                        "{context}: {next:?} after {last:?}"
                    ),
                    None => assert_eq!(next.log, BackupLog::Begun, "{context}"),
                }
                life.check(&backups, &[next.number], &context);
                // No file is left over once nothing is retained for the next backup.
                store.stop_log_retention().unwrap();
                store.checkpoint().unwrap();
                assert_tidy(&store, &disk, &context);
            }
        }
    }
    println!("{points} crash points, each with 4 outcomes");
    assert!(points >= wanted, "{points}");
}

#[test]
fn an_interrupted_restore_leaves_no_database_or_the_complete_one() {
    let mut life = Life::new(5);
    let store = open(&life.disk).unwrap();
    let backups = SimulatedDisk::new();
    life.steps(&store, 9).unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    life.steps(&store, 9).unwrap();
    back_up(&store, &backups, WITH_LOG).unwrap();
    let from = Backups::open_on(Arc::new(backups)).unwrap();
    let (commit, time, expected) = life.states[life.states.len() - 2].clone();
    let mut points = 0;
    for options in [LAST, RestoreOptions { backup: Some(1), time: Some(time) }] {
        for fault in [Fault::CrashAt, Fault::FailAt, Fault::FailFrom] {
            for at in 0.. {
                let disk = SimulatedDisk::new();
                disk.set_fault(Some(fault(at)));
                let restored = from.restore_to(Arc::new(disk.clone()), options, &mut never_cancel);
                // After a successful restore, `at` is past the last change, unless it is one of the first five changes.
                // A restore may tolerate that one of these fails, and the later changes must still be tested.
                if restored.is_ok() && !disk.is_crashed() && !matches!(fault(at), Fault::FailAt(_) if at < 5) {
                    break;
                }
                points += 1;
                for (which, found) in after_crash(&disk, at) {
                    let context = format!("{:?} ({:?}), {which}", fault(at), disk.changes().last());
                    // The target did not exist before the crash, so it must not open as an empty database.
                    let is_missing = found.list("").is_err();
                    let options_of_open = OpenOptions { create: !is_missing, ..OpenOptions::default() };
                    let store = match Store::open_on(Arc::new(found.clone()), options_of_open) {
                        Ok(store) => store,
                        Err(OpenError::Missing { .. }) if is_missing => continue,
                        Err(OpenError::Incomplete { .. }) => {
                            let again = from.restore_to(Arc::new(found.clone()), options, &mut never_cancel);
                            again.unwrap_or_else(|error| panic!("{context}: {error}"));
                            open(&found).unwrap_or_else(|error| panic!("{context}, again: {error}"))
                        }
                        Err(error) => panic!("{context}: {error}"),
                    };
                    let expected = if options.time.is_some() {
                        (commit, &expected)
                    } else {
                        let last = life.states.last().unwrap();
                        (last.0, &last.2)
                    };
                    assert_eq!(store.snapshot().version(), expected.0, "{context}");
                    assert!(contents(&store).unwrap() == *expected.1, "{context}");
                    assert_tidy(&store, &found, &context);
                }
                if matches!(fault(at), Fault::FailAt(_)) && restored.is_err() {
                    // A failed restore removes its files, so that it can be repeated.
                    disk.set_fault(None);
                    from.restore_to(Arc::new(disk.clone()), options, &mut never_cancel)
                        .unwrap_or_else(|error| panic!("at {at}: {error}"));
                }
            }
        }
    }
    println!("{points} crash points and faults");
    assert!(points > 40, "{points}");
}
