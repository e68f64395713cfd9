//! Tests in which the machine stops at every change of the disk during one life of a log. It then stops at every change
//! during the next life.

use super::*;
use crate::disk::Fault;
use crate::log::remove_before;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append,
    Written,
    Synced,
    Rotate,
    /// The catalog names the next file as the first, and earlier files are removed.
    Checkpoint,
}

const STEPS: [Step; 38] = {
    use Step::{Append as A, Checkpoint as C, Rotate as R, Synced as S, Written as W};
    [A, S, A, W, A, A, S, A, A, A, W, A, W, A, S, A, R, A, W, R, R, A, A, A, A, A, A, W, A, A, S, A, S, C, A, W, A, S]
};

/// The expected state of a log.
#[derive(Clone, Debug, Default)]
struct History {
    /// Number of the first valid file, and the last record before it, as in the catalog.
    first: Option<(u64, u64)>,
    /// The life in which each record was written, from number 1 on.
    lives: Vec<u8>,
    /// Last records acknowledged as written and as synced.
    written: u64,
    synced: u64,
}

impl History {
    /// Reads the log. It must contain all acknowledged records, and may contain later appended ones.
    fn check(&self, disk: &SimulatedDisk, acknowledged: u64, context: &str) -> Option<(LogEnd, Payloads)> {
        let (first, before) = self.first?;
        let (end, records) = read(disk, first, Some(before)).unwrap_or_else(|error| panic!("{context}: {error}"));
        let possible = acknowledged.max(before)..=self.lives.len() as u64;
        assert!(possible.contains(&end.last_sequence), "{context}: record {}, not {possible:?}", end.last_sequence);
        let expected = before + 1..=end.last_sequence;
        let expected: Payloads =
            expected.map(|sequence| (sequence, payload_of(sequence, self.lives[sequence as usize - 1]))).collect();
        assert!(records == expected, "{context}: other payloads");
        Some((end, records))
    }

    /// One life of a process: opens the log and executes steps until one fails.
    fn live(&mut self, disk: &SimulatedDisk, life: u8, steps: &[Step]) -> Option<()> {
        let log = match self.first {
            Some((first, before)) => {
                let (end, _) = read(disk, first, Some(before)).ok()?;
                let log = Log::resume(shared(disk), DATABASE, &end).ok()?;
                self.lives.truncate(end.last_sequence as usize);
                log
            }
            None => Log::create(shared(disk), DATABASE, 1, 0).ok()?,
        };
        self.first.get_or_insert((1, 0));
        let seen = log.last_sequence();
        assert_eq!((seen, log.durable_sequence()), (self.lives.len() as u64, seen));
        (self.written, self.synced) = (seen, seen);
        let mut last = None;
        for step in steps {
            match step {
                Step::Append => {
                    last = Some(append(&log, life).ok()?);
                    self.lives.push(life);
                }
                Step::Written => {
                    log.flush(last?, Durability::Written).ok()?;
                    self.written = last?.sequence();
                }
                Step::Synced => {
                    log.flush(last?, Durability::Synced).ok()?;
                    (self.written, self.synced) = (last?.sequence(), last?.sequence());
                }
                Step::Rotate | Step::Checkpoint => {
                    let number = log.rotate().ok()?;
                    (self.written, self.synced) = (log.last_sequence(), log.last_sequence());
                    if matches!(step, Step::Checkpoint) {
                        self.first = Some((number, log.last_sequence()));
                        remove_before(disk, number).ok()?;
                    }
                }
            }
        }
        Some(())
    }
}

/// Stops the machine at each change, and calls `check`. The arguments are each possible state of the disk, the history
/// so far, and the sequence number of the last acknowledged record. Returns the number of changes.
fn for_every_crash(
    disk: &SimulatedDisk,
    before: &History,
    (life, steps, seeds): (u8, &[Step], u64),
    mut check: impl FnMut(SimulatedDisk, &History, u64, &str),
) -> u64 {
    for at in 0.. {
        let (disk, mut history) = (disk.after_kill(), before.clone());
        disk.set_fault(Some(Fault::CrashAt(at)));
        let finished = history.live(&disk, life, steps);
        if !disk.is_crashed() {
            assert!(finished.is_some());
            return at;
        }
        let context = format!("crash at change {at} ({:?}) of life {life}", disk.changes().last());
        for seed in 0..seeds {
            let lost = disk.after_power_loss(seed + 1_000 * at);
            check(lost, &history, history.synced, &format!("{context}, seed {seed}"));
        }
        check(disk.after_kill(), &history, history.written, &format!("{context}, killed"));
    }
    unreachable!()
}

#[test]
fn a_crash_leaves_a_prefix_with_all_acknowledged_records() {
    for (step, extensions) in [(0, 0), (1_000, 7), (10_000, 4)] {
        let disk = new_disk().with_extension_step(step);
        let points = for_every_crash(&disk, &History::default(), (0, &STEPS, 8), |disk, history, least, context| {
            let context = format!("step {step}, {context}");
            history.check(&disk, least, &context);
            let mut history = history.clone();
            history.live(&disk, 1, &STEPS).unwrap_or_else(|| panic!("{context}: the next life fails"));
            let all = history.lives.len() as u64;
            history.check(&disk, all, &format!("{context}, then another life"));
            history.check(&disk.after_power_loss(3), all, &format!("{context}, then another life and power loss"));
        });
        assert!(points > 40, "only {points} changes were interrupted");
        History::default().live(&disk, 0, &STEPS).unwrap();
        let extended = disk.changes().iter().filter(|change| change.starts_with("extend ")).count();
        assert_eq!(extended, extensions, "step {step}");
    }
}

/// Records that a replay finds after the first crash may not be durable yet. They are durable from the moment the log
/// is resumed.
#[test]
fn a_second_crash_loses_no_record_that_was_read() {
    use Step::{Append, Rotate, Synced, Written};
    let second = [Append, Written, Append, Append, Synced, Append, Rotate, Append, Synced];
    for_every_crash(&new_disk(), &History::default(), (0, &STEPS, 2), |disk, history, least, context| {
        // A life that is interrupted before the log is resumed leaves the records of the previous life.
        let before = History { written: least, synced: history.synced, ..history.clone() };
        for_every_crash(&disk, &before, (1, &second, 2), |disk, history, least, again| {
            let context = format!("{context}; {again}");
            history.check(&disk, least, &context);
            let mut history = history.clone();
            history.live(&disk, 2, &second).unwrap_or_else(|| panic!("{context}: the next life fails"));
            history.check(&disk, history.lives.len() as u64, &format!("{context}, then another life"));
        });
    });
}

/// A process killed during a rotation leaves a name that is not durable. The name of the next file must not become
/// durable before it.
#[test]
fn no_file_name_is_durable_before_the_name_of_the_previous_file() {
    let disk = new_disk();
    let mut history = History::default();
    history.live(&disk, 0, &[Step::Append, Step::Synced]).unwrap();
    let (end, _) = read(&disk, 1, Some(0)).unwrap();
    let log = Log::resume(shared(&disk), DATABASE, &end).unwrap();
    disk.set_fault(Some(Fault::FailEvery { change: "sync log", has_effect: false }));
    log.rotate().unwrap_err();
    for at in 0..10 {
        let killed = disk.after_kill();
        let mut history = history.clone();
        killed.set_fault(Some(Fault::CrashAt(at)));
        history.live(&killed, 1, &[Step::Append, Step::Synced]);
        for seed in 0..40 {
            history.check(&killed.after_power_loss(seed), history.synced, &format!("crash at {at}, seed {seed}"));
        }
    }
}
