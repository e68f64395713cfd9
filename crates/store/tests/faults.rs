//! Every operation fails once, or for good, and the disk fills up at every place: the step returns an error, nothing
//! has changed, and it works when it is tried again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Step, assert_tidy, contents, open, steps};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{CommitError, Store};

/// Runs the steps, each until it works; the fault is lifted after the first error. Returns whether there was one.
fn run(fault: Fault) -> bool {
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
    for step in steps() {
        let context = format!("{context}, in step {}", step.name);
        if let Err(error) = (step.run)(&store) {
            assert!(!has_failed, "{context}: a second error: {error}");
            has_failed = true;
            check_failed(&disk, &store, &step, &before, fault, &*error, &context);
            disk.set_fault(None);
            (step.run)(&store).unwrap_or_else(|error| panic!("{context}, again: {error}"));
        }
        // A fault may also hit what a step does after its success is certain, or a read of this check itself.
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

/// After an error: the state is the one before the step, in memory and, unless it is uncertain, on the disk.
fn check_failed(
    disk: &SimulatedDisk,
    store: &Store,
    step: &Step,
    before: &common::Contents,
    fault: Fault,
    error: &(dyn std::error::Error + 'static),
    context: &str,
) {
    let is_uncertain = matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. }));
    assert!(
        !is_uncertain || matches!(fault, Fault::FailFrom(_) | Fault::FailEvery(..)),
        "{context}: one failure is no reason for {error}"
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
        let again = open(&disk).unwrap_or_else(|error| panic!("{context}, seed {seed}: {error}"));
        let found = contents(&again).unwrap();
        let is_after = is_uncertain && found == step.after;
        assert!(found == *before || is_after, "{context}, seed {seed}: {:?}", common::layouts(&again));
        assert_tidy(&again, &disk, context);
    }
}

fn for_every_operation(fault: impl Fn(u64) -> Fault) {
    let mut failures = 0;
    // Operations of cleaning up fail without an error, so a run without one is not yet the last.
    let total = {
        let disk = SimulatedDisk::new();
        let store = open(&disk).unwrap();
        steps().iter().for_each(|step| (step.run)(&store).unwrap());
        contents(&store).unwrap();
        (disk.changes().len() as u64).max(disk.reads())
    };
    for at in 0..total {
        failures += u64::from(run(fault(at)));
    }
    assert!(failures > 5, "only {failures} of {total} faults had an effect");
}

#[test]
fn a_change_fails_once() {
    for_every_operation(Fault::FailAt);
}

#[test]
fn a_change_happens_but_reports_a_failure() {
    for_every_operation(Fault::FailAfter);
}

#[test]
fn all_changes_fail_from_some_time_on() {
    for_every_operation(Fault::FailFrom);
}

#[test]
fn a_read_fails_once() {
    // Steps read nothing; opening does.
    assert!(run(Fault::FailReadAt(0)));
    for at in 1..40 {
        run(Fault::FailReadAt(at));
    }
}

#[test]
fn the_disk_is_full_at_many_places() {
    let full = (0..150_u64).map(|place| run(Fault::Capacity(place * 409))).filter(|failed| *failed).count();
    assert!(full > 50, "the disk was full in {full} runs");
}

/// The new catalog is in place, but neither it nor the old one can be made durable.
#[test]
fn an_uncertain_commit_keeps_all_files_until_it_is_settled() {
    for fault in
        ["sync ", "rename catalog"].map(|change| [true, false].map(|effect| Fault::FailEvery(change, effect))).concat()
    {
        for (number, step) in steps().iter().enumerate() {
            let disk = SimulatedDisk::new();
            let store = open(&disk).unwrap();
            steps()[..number].iter().for_each(|step| (step.run)(&store).unwrap());
            let before = contents(&store).unwrap();
            disk.set_fault(Some(fault));
            let context = format!("{fault:?} in step {}", step.name);
            let error = (step.run)(&store).expect_err(&context);
            assert!(matches!(error.downcast_ref(), Some(CommitError::Uncertain { .. })), "{context}: {error}");
            check_failed(&disk, &store, step, &before, fault, &*error, &context);
            // Closed without another commit, the files are still there.
            let closed = disk.after_kill();
            disk.set_fault(None);
            (step.run)(&store).unwrap_or_else(|error| panic!("{context}, again: {error}"));
            assert_eq!(contents(&store).unwrap(), step.after, "{context}, again");
            assert_tidy(&store, &disk, &format!("{context}, settled"));
            let store = open(&closed).unwrap();
            assert_tidy(&store, &closed, &format!("{context}, closed"));
        }
    }
}

#[test]
fn a_store_closed_after_an_uncertain_commit_leaves_the_files() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let steps = steps();
    (steps[0].run)(&store).unwrap();
    disk.set_fault(Some(Fault::FailEvery("sync ", false)));
    (steps[1].run)(&store).unwrap_err();
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
    assert_eq!(seen, [true; 2], "both outcomes are possible");
}
