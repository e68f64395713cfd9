//! The machine stops at every write, sync, rename and removal of a small database. Whatever remains on the disk, the
//! database reopens in the state before or after the interrupted step, complete and without leftover files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Contents, FixedStep, assert_tidy, contents, fixed_steps, for_crashes_while_opening, layouts, open};
use taut_store::disk::{Fault, SimulatedDisk};

const SEEDS: u64 = 8;

/// Contents of a database, and the layouts of its tables.
type State = (Contents, Vec<(String, String, Vec<String>)>);

/// States after 0, 1, 2, ... steps.
fn states(steps: &[FixedStep]) -> Vec<State> {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let mut states = vec![(Contents::new(), Vec::new())];
    for step in steps {
        (step.run)(&store).unwrap();
        states.push((contents(&store).unwrap(), layouts(&store)));
        assert_eq!(states.last().unwrap().0, step.after, "{}", step.name);
    }
    states
}

/// Opens the database, which must be in one of the `possible` states and have no leftover files. `possible` and the
/// result are indexes in `states`.
fn check(disk: &SimulatedDisk, states: &[State], possible: std::ops::RangeInclusive<usize>, context: &str) -> usize {
    let store = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = (contents(&store).unwrap_or_else(|error| panic!("{context}: {error}")), layouts(&store));
    let state = possible.clone().find(|state| states[*state] == found);
    assert_tidy(&store, disk, context);
    state.unwrap_or_else(|| panic!("{context}: none of the states {possible:?}, but {:?}", found.1))
}

/// Runs the steps until the machine stops. Returns the number of acknowledged steps, or `None` if it did not stop.
fn run_until_crash(disk: &SimulatedDisk, steps: &[FixedStep], at: u64) -> Option<usize> {
    disk.set_fault(Some(Fault::CrashAt(at)));
    let mut acknowledged = 0;
    if let Ok(store) = open(disk) {
        for step in steps {
            if (step.run)(&store).is_err() {
                break;
            }
            acknowledged += 1;
        }
    }
    disk.is_crashed().then_some(acknowledged)
}

/// Calls `check` for every crash point, with several possible disks after power loss and the disk after a killed
/// process. Returns the number of crash points.
fn for_every_crash(check: impl Fn(SimulatedDisk, &[FixedStep], &[State], usize, &str)) -> u64 {
    let steps = fixed_steps();
    let states = states(&steps);
    for at in 0.. {
        let disk = SimulatedDisk::new();
        let Some(acknowledged) = run_until_crash(&disk, &steps, at) else { return at };
        let changes = disk.changes();
        let context = format!("crash at change {at} ({:?}), {acknowledged} steps done", changes.last());
        for seed in 0..SEEDS {
            let context = format!("{context}, seed {seed}");
            check(disk.after_power_loss(seed + 1_000 * at), &steps, &states, acknowledged, &context);
        }
        check(disk.after_kill(), &steps, &states, acknowledged, &format!("{context}, killed"));
    }
    unreachable!()
}

fn possible(acknowledged: usize, states: &[State]) -> std::ops::RangeInclusive<usize> {
    acknowledged..=(acknowledged + 1).min(states.len() - 1)
}

#[test]
fn a_crash_leaves_the_state_before_or_after_and_new_commits_work() {
    let points = for_every_crash(|disk, steps, states, acknowledged, context| {
        let found = check(&disk, states, possible(acknowledged, states), context);
        let store = open(&disk).unwrap();
        for step in &steps[found..] {
            (step.run)(&store).unwrap_or_else(|error| panic!("{context}, then {}: {error}", step.name));
        }
        drop(store);
        check(&disk, states, states.len() - 1..=states.len() - 1, &format!("{context}, then all steps"));
    });
    assert!(points > 50, "only {points} changes were interrupted");
}

/// A state that was read after a crash survives the next crash, even if the killed process had not made it durable.
#[test]
fn a_state_seen_after_a_crash_survives_the_next_crash() {
    for_every_crash(|disk, _, states, acknowledged, context| {
        let found = check(&disk, states, possible(acknowledged, states), context);
        for seed in 0..4 {
            let context = format!("{context}, seen, then power loss by seed {seed}");
            check(&disk.after_power_loss(seed), states, found..=found, &context);
        }
    });
}

#[test]
fn a_crash_while_opening_after_a_crash_changes_nothing() {
    for_every_crash(|disk, _, states, acknowledged, context| {
        for_crashes_while_opening(&disk, |reopened, again| {
            let changes = reopened.changes();
            for seed in 0..3 {
                let context = format!("{context}; crash {again} ({:?}) while opening, seed {seed}", changes.last());
                let lost = reopened.after_power_loss(seed);
                check(&lost, states, possible(acknowledged, states), &context);
            }
        });
    });
}
