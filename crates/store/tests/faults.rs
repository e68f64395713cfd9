//! Injected faults: each disk operation fails once, or all operations from one on fail, or the disk fills up. The
//! affected step returns an error and changes nothing, and succeeds when it is repeated without the fault.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{FixedStep, assert_tidy, change_in, change_rows, contents, fixed_steps, open};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{CommitError, Store, Synchronous};

/// Opens a database and runs all steps on a disk with a fault. Removes the fault after the first error, and repeats
/// what failed. Returns whether anything failed.
fn run_with(fault: Fault) -> bool {
    let disk = SimulatedDisk::new();
    disk.set_fault(Some(fault));
    let context = format!("{fault:?}");
    let mut has_failed = false;
    let store = match open(&disk) {
        Ok(store) => store,
        Err(_) => {
            has_failed = true;
            disk.set_fault(None);
            open(&disk).unwrap_or_else(|error| panic!("{context}, then opening again: {error}"))
        }
    };
    let mut before = Default::default();
    for step in fixed_steps() {
        let context = format!("{context}, in step {}", step.name);
        if let Err(error) = (step.run)(&store) {
            assert!(!has_failed, "{context}: a second error: {error}");
            has_failed = true;
            check_failed(&disk, &store, &step, &before, fault, &*error, &context);
            disk.set_fault(None);
            (step.run)(&store).unwrap_or_else(|error| panic!("{context}, again: {error}"));
        }
        // The fault may also hit cleanup after a step that succeeded, or a read of this check. A read fails only
        // once, so the contents are read again.
        let found = contents(&store).or_else(|_| contents(&store));
        assert_eq!(found.unwrap(), step.after, "{context}");
        before = step.after;
    }
    drop(store);
    disk.set_fault(None);
    for disk in [disk.after_kill(), disk.after_power_loss(7), disk.after_power_loss(8)] {
        let store = open(&disk).unwrap_or_else(|error| panic!("{context}, opened at the end: {error}"));
        assert_eq!(contents(&store).unwrap(), before, "{context}, opened at the end");
        assert_tidy(&store, &disk, &context);
    }
    has_failed
}

/// Asserts that a failed step changed nothing, neither in memory nor on the disk. Only an uncertain commit may be on
/// the disk.
fn check_failed(
    disk: &SimulatedDisk,
    store: &Store,
    step: &FixedStep,
    before: &common::Contents,
    fault: Fault,
    error: &(dyn std::error::Error + 'static),
    context: &str,
) {
    let is_uncertain = matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. }));
    assert!(
        // If a write to a log file fails, the log continues in another file. That fails too if the fault is permanent
        // or the disk is full.
        !is_uncertain || matches!(fault, Fault::FailFrom(_) | Fault::Capacity(_)),
        "{context}: a single failure must not leave the outcome uncertain: {error}"
    );
    if let Fault::Capacity(_) = fault {
        let mut source = Some(error);
        let mut kinds = std::iter::from_fn(|| {
            let error = source?;
            source = error.source();
            Some(error.downcast_ref::<std::io::Error>().map(std::io::Error::kind))
        });
        assert!(kinds.any(|kind| kind == Some(std::io::ErrorKind::StorageFull)), "{context}: {error}");
    }
    assert_eq!(contents(store).unwrap(), *before, "{context}: after {error}");
    for seed in 0..12 {
        let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
        let reopened = open(&disk).unwrap_or_else(|error| panic!("{context}, seed {seed}: {error}"));
        let found = contents(&reopened).unwrap();
        let is_after = is_uncertain && found == step.after;
        assert!(found == *before || is_after, "{context}, seed {seed}: {:?}", common::layouts(&reopened));
        assert_tidy(&reopened, &disk, context);
    }
}

fn for_every_operation(fault: impl Fn(u64) -> Fault) {
    let mut failures = 0;
    // A run without an error need not be the last one, because cleanup ignores errors. So the operations are counted.
    let total = {
        let disk = SimulatedDisk::new();
        let store = open(&disk).unwrap();
        fixed_steps().iter().for_each(|step| (step.run)(&store).unwrap());
        contents(&store).unwrap();
        (disk.changes().len() as u64).max(disk.reads())
    };
    for at in 0..total {
        failures += u64::from(run_with(fault(at)));
    }
    assert!(failures > 5, "only {failures} of {total} faults had an effect");
}

#[test]
fn a_change_fails_once() {
    for_every_operation(Fault::FailAt);
}

#[test]
fn a_change_takes_effect_but_returns_an_error() {
    for_every_operation(Fault::FailAfter);
}

#[test]
fn all_changes_fail_from_some_point_on() {
    for_every_operation(Fault::FailFrom);
}

#[test]
fn a_read_fails_once() {
    // The first read opens the database. Steps read nothing, so later faults can only affect reads of the checks.
    assert!(run_with(Fault::FailReadAt(0)));
    for at in 1..40 {
        run_with(Fault::FailReadAt(at));
    }
}

#[test]
fn the_disk_becomes_full_at_many_points() {
    let failures =
        (0..150_u64).map(|step| run_with(Fault::Capacity(step * 409))).filter(|has_failed| *has_failed).count();
    assert!(failures > 50, "the disk was full in only {failures} runs");
}

/// Disk and store before step `number`. If `is_reopened`, the database was closed and opened again after the earlier
/// steps, so step `number` writes to a new log file.
fn disk_before(number: usize, is_reopened: bool) -> (SimulatedDisk, Store) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    fixed_steps()[..number].iter().for_each(|step| (step.run)(&store).unwrap());
    if !is_reopened {
        return (disk, store);
    }
    drop(store);
    let store = open(&disk).unwrap();
    (disk, store)
}

/// Names of the disk changes that a step makes, in order.
fn changes_of(number: usize, is_reopened: bool) -> Vec<String> {
    let (disk, store) = disk_before(number, is_reopened);
    disk.set_fault(None);
    (fixed_steps()[number].run)(&store).unwrap();
    disk.changes()
}

/// It is certain that a commit failed in two cases: all writes to one log file fail but another file can be created, or
/// no log file can be created and the log has no records yet.
#[test]
fn a_commit_that_certainly_failed_is_not_reported_as_uncertain() {
    let (mut log_errors, mut file_errors) = (0, 0);
    for (number, step) in fixed_steps().iter().enumerate() {
        for is_reopened in [false, true] {
            let changes = changes_of(number, is_reopened);
            let log_changes = changes.iter().filter(|change| change.contains(" log") && !change.starts_with("remove "));
            for (change, has_effect) in log_changes.flat_map(|change| [(change, false), (change, true)]) {
                let fault = Fault::FailEvery { change: change.clone().leak(), has_effect };
                let (disk, store) = disk_before(number, is_reopened);
                let before = contents(&store).unwrap();
                disk.set_fault(Some(fault));
                let context = format!("{fault:?} in step {}, reopened: {is_reopened}", step.name);
                let error = (step.run)(&store).expect_err(&context);
                let commit = error.downcast_ref::<CommitError>();
                match commit {
                    Some(CommitError::Log(_)) => log_errors += 1,
                    Some(CommitError::File(_)) => file_errors += 1,
                    _ => panic!("{context}: {error}"),
                }
                check_failed(&disk, &store, step, &before, fault, &*error, &context);
                if matches!(commit, Some(CommitError::Log(_))) && !change.ends_with(" log") {
                    // The log continues in another file, so the step succeeds despite the fault.
                    (step.run)(&store).unwrap_or_else(|error| panic!("{context}, in another log file: {error}"));
                    disk.set_fault(None);
                } else {
                    disk.set_fault(None);
                    (step.run)(&store).unwrap_or_else(|error| panic!("{context}, again: {error}"));
                }
                for seed in 0..6 {
                    let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
                    let reopened = open(&disk).unwrap_or_else(|error| panic!("{context}, seed {seed}: {error}"));
                    assert_eq!(contents(&reopened).unwrap(), step.after, "{context}, seed {seed}");
                }
                assert_tidy(&store, &disk, &format!("{context}, again"));
            }
        }
    }
    assert!(log_errors > 5 && file_errors > 5, "{log_errors} log errors, {file_errors} file errors");
}

/// A commit is uncertain if its record may be in the log and no write succeeds that could invalidate the record.
#[test]
fn an_uncertain_commit_keeps_all_files_until_its_outcome_is_known() {
    for (number, step) in fixed_steps().iter().enumerate() {
        let changes = changes_of(number, false);
        let is_record_change =
            |(_, change): &(usize, &String)| change.ends_with(".log") && !change.starts_with("create");
        for (at, change) in changes.iter().enumerate().filter(is_record_change) {
            let (disk, store) = disk_before(number, false);
            let before = contents(&store).unwrap();
            let fault = Fault::FailFrom(at as u64);
            disk.set_fault(Some(fault));
            let context = format!("{fault:?} ({change}) in step {}", step.name);
            let error = (step.run)(&store).expect_err(&context);
            assert!(matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. })), "{context}: {error}");
            check_failed(&disk, &store, step, &before, fault, &*error, &context);
            let error = (step.run)(&store).expect_err(&context);
            assert!(!matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. })), "{context}, again: {error}");
            assert_eq!(contents(&store).unwrap(), before, "{context}, again");
            // The files also stay if the process ends without another commit.
            let closed = disk.after_kill();
            disk.set_fault(None);
            (step.run)(&store).unwrap_or_else(|error| panic!("{context}, again: {error}"));
            assert_eq!(contents(&store).unwrap(), step.after, "{context}, again");
            assert_tidy(&store, &disk, &format!("{context}, settled"));
            for seed in 0..6 {
                let disk = disk.after_power_loss(seed);
                assert_eq!(contents(&open(&disk).unwrap()).unwrap(), step.after, "{context}, settled, seed {seed}");
            }
            let store = open(&closed).unwrap();
            assert_tidy(&store, &closed, &format!("{context}, closed"));
        }
    }
}

#[test]
fn a_store_closed_after_an_uncertain_commit_keeps_the_files() {
    let steps = fixed_steps();
    let sync = changes_of(1, false).iter().position(|change| change.starts_with("sync log/")).unwrap();
    let (disk, store) = disk_before(1, false);
    disk.set_fault(Some(Fault::FailFrom(sync as u64)));
    let error = (steps[1].run)(&store).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. })), "{error}");
    drop(store);
    disk.set_fault(None);
    let mut seen = [false; 2];
    for seed in 0..40 {
        let disk = disk.after_power_loss(seed);
        let store = open(&disk).unwrap();
        let found = contents(&store).unwrap();
        assert!(found == steps[0].after || found == steps[1].after, "seed {seed}");
        assert_tidy(&store, &disk, &format!("seed {seed}"));
        seen[usize::from(found == steps[1].after)] = true;
    }
    assert_eq!(seen, [true; 2], "both outcomes occur");
}

/// If any change of a checkpoint fails, nothing is lost, commits continue, and the next checkpoint succeeds.
#[test]
fn a_checkpoint_fails_at_every_change() {
    let mut failures = 0;
    for fault in [Fault::FailAt, Fault::FailAfter, Fault::FailFrom] {
        for at in 0.. {
            let (disk, store) = disk_before(4, false);
            change_rows(&store, "u", &[1, 2, 3], &[2_500 * 7]).unwrap();
            disk.set_fault(Some(fault(at)));
            let context = format!("checkpoint, {:?}", fault(at));
            let has_failed = store.checkpoint().is_err();
            failures += u32::from(has_failed);
            let changes = disk.changes().len() as u64;
            disk.set_fault(None);
            change_rows(&store, "u", &[4], &[1]).unwrap_or_else(|error| panic!("{context}: {error}"));
            let expected = contents(&store).unwrap();
            for disk in [disk.after_kill(), disk.after_power_loss(at), disk.after_power_loss(at + 1)] {
                let store = open(&disk).unwrap_or_else(|error| panic!("{context}, opened: {error}"));
                assert_eq!(contents(&store).unwrap(), expected, "{context}, opened");
                assert_tidy(&store, &disk, &context);
            }
            store.checkpoint().unwrap_or_else(|error| panic!("{context}, again: {error}"));
            assert_eq!((contents(&store).unwrap(), store.log_bytes()), (expected, 0), "{context}");
            assert_tidy(&store, &disk, &context);
            if !has_failed && at >= changes {
                break;
            }
        }
    }
    assert!(failures > 20, "only {failures} checkpoints failed");
}

/// Commits without sync are visible before they are durable. They stay if the log then fails.
#[test]
fn visible_commits_survive_a_log_failure() {
    let mut failures = 0;
    for synchronous in [Synchronous::Normal, Synchronous::Off] {
        for fault in [Fault::FailAt, Fault::FailAfter, Fault::FailFrom, |at| Fault::Capacity(700 + 97 * at)] {
            for at in 0..8 {
                let context = format!("{synchronous:?}, {:?}", fault(at));
                let (disk, store) = disk_before(1, false);
                disk.set_fault(Some(fault(at)));
                let mut expected = Vec::new();
                for value in 0..10 {
                    let is_last = value % 5 == 4;
                    let transaction = store.begin();
                    change_in(&transaction, "t", &[value], &[]).unwrap();
                    match transaction.commit(if is_last { Synchronous::Full } else { synchronous }) {
                        Ok(()) => expected.push(value),
                        Err(error) => {
                            let is_log_error = matches!(error, CommitError::Log(_) | CommitError::Uncertain { .. });
                            assert!(is_log_error, "{context}: {error}");
                            failures += 1;
                        }
                    }
                    assert_eq!(contents(&store).unwrap()["t"], expected, "{context}, value {value}");
                }
                disk.set_fault(None);
                change_rows(&store, "t", &[10], &[]).unwrap_or_else(|error| panic!("{context}, again: {error}"));
                expected.push(10);
                assert_tidy(&store, &disk, &context);
                for seed in 0..4 {
                    let store = open(&disk.after_power_loss(seed)).unwrap();
                    assert_eq!(contents(&store).unwrap()["t"], expected, "{context}, seed {seed}");
                }
            }
        }
    }
    assert!(failures > 20, "only {failures} commits failed");
}
