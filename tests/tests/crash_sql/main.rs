//! A simulated machine crashes at a change of its disk, while a session runs SQL and the mover works. Each run is
//! repeated with crashes at many such changes. The statements change rows under all kinds of constraints, run DDL in
//! transactions, rewrite layouts, build indexes, run VACUUM and take checkpoints. After the crash, the database must
//! contain every acknowledged statement, and all or nothing of the statement that was running.
//!
//! A seed determines the statements of each run. A run on a working disk records the contents of the database after
//! each step.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of this file is a test")]

mod script;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::util::pretty::pretty_format_batches;
use taut::{Database, Error, MoverOptions, Session, Settings};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::verify;
use taut_testkit::number_from_environment;

use crate::script::{Step, steps};

/// Number of crash points of each test. Nightly runs have more.
const CRASH_POINTS: u64 = 60;
/// Number of crash points of one seed. A run has several hundred changes of the disk.
const POINTS_OF_A_RUN: u64 = 20;
/// Maximum number of retries of a step that conflicts with the mover.
const TRIES: usize = 50;

/// Definitions and rows of the tables of a database, as text.
type Contents = Vec<String>;

/// Settings with thresholds that a few rows reach. The mover is on for odd seeds.
fn settings(seed: u64) -> Settings {
    let mover = MoverOptions {
        is_on: seed % 2 == 1,
        delta_rows: 40,
        deleted_rows: 5,
        merge_inputs: 2,
        compaction_rows: 3_000,
        idle: Duration::from_millis(5),
        log_bytes: 20_000,
        ..MoverOptions::default()
    };
    Settings { threads: 2, memory_bytes: Some(256 << 20), mover, ..Settings::default() }
}

fn open(disk: &SimulatedDisk, seed: u64) -> Result<Database, Error> {
    Database::open_on(Arc::new(disk.clone()), &settings(seed))
}

fn text(session: &Session, sql: &str) -> String {
    let batches: Result<Vec<_>, Error> = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).collect();
    pretty_format_batches(&batches.unwrap_or_else(|error| panic!("{sql}: {error}"))).unwrap().to_string()
}

fn numbers(session: &Session, sql: &str) -> Vec<i64> {
    let batches: Result<Vec<_>, Error> = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).collect();
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

fn tables(session: &Session) -> Vec<String> {
    let batches = session.query("SELECT table_name FROM taut.tables ORDER BY 1").unwrap().map(Result::unwrap);
    batches
        .flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn contents(session: &Session) -> Contents {
    let definitions = [
        "SELECT table_name, layout, groups, sort_by, options, rows FROM taut.tables ORDER BY 1",
        "SELECT table_name, index_name, method, columns FROM taut.indexes ORDER BY 1, 2",
        "SELECT * FROM taut.constraints ORDER BY 1, 2",
    ];
    let rows = tables(session).into_iter().map(|table| text(session, &format!("SELECT * FROM {table} ORDER BY 1, 2")));
    definitions.iter().map(|sql| text(session, sql)).chain(rows).collect()
}

/// Runs a step. Returns an error if the step was not acknowledged. A step that fails with its expected constraint
/// violation is a success.
fn run(session: &Session, step: &Step) -> Result<(), Error> {
    let mut tries = 0;
    'again: loop {
        for statement in &step.statements {
            let Err(error) = session.execute(statement) else { continue };
            if session.is_in_transaction() {
                session.execute("ROLLBACK")?;
            }
            return match error.sqlstate() {
                "40001" if tries < TRIES => {
                    tries += 1;
                    continue 'again;
                }
                state if Some(state) == step.refused => Ok(()),
                _ => Err(error),
            };
        }
        return Ok(());
    }
}

/// Contents of a database after each step.
struct History {
    seed: u64,
    steps: Vec<Step>,
    states: Vec<Contents>,
    /// Number of disk changes of all steps.
    changes: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let (disk, steps) = (SimulatedDisk::new(), steps(seed));
        let session = open(&disk, seed).unwrap().session();
        let mut states = vec![contents(&session)];
        for step in &steps {
            run(&session, step).unwrap_or_else(|error| panic!("seed {seed}, {step:?}: {error}"));
            states.push(contents(&session));
        }
        let changes = disk.changes().len() as u64;
        Self { seed, steps, states, changes }
    }

    /// Runs the steps until the machine crashes at disk change `at`. Returns the number of acknowledged steps.
    fn run(&self, disk: &SimulatedDisk, at: u64) -> usize {
        disk.set_fault(Some(Fault::CrashAt(at)));
        let database = match open(disk, self.seed) {
            Ok(database) => database,
            Err(error) => {
                assert!(disk.is_crashed(), "seed {}, crash at {at}: {error}", self.seed);
                return 0;
            }
        };
        let session = database.session();
        let failed = |step: &Step| match run(&session, step) {
            Ok(()) => false,
            Err(_) if disk.is_crashed() => true,
            Err(error) => panic!("seed {}, crash at {at}, {step:?}: {error}", self.seed),
        };
        self.steps.iter().position(failed).unwrap_or(self.steps.len())
    }

    /// Opens the database and asserts that its contents are those after one of the `possible` numbers of steps. Returns
    /// the database and the greatest such number.
    fn check(&self, disk: &SimulatedDisk, possible: RangeInclusive<usize>, context: &str) -> (Database, usize) {
        let database = open(disk, self.seed).unwrap_or_else(|error| panic!("{context}: {error}"));
        let session = database.session();
        let found = contents(&session);
        let steps = possible.clone().rev().find(|steps| self.states[*steps] == found).unwrap_or_else(|| {
            let steps = &self.steps[possible.start().saturating_sub(1)..*possible.end()];
            let states: Vec<String> = self.states[possible.clone()].iter().map(|state| state.join("\n")).collect();
            panic!("{context}: after {steps:?} expected {}\nfound {}", states.join("\nor "), found.join("\n"))
        });
        assert_whole(&database, context);
        (database, steps)
    }

    fn possible(&self, acknowledged: usize) -> RangeInclusive<usize> {
        acknowledged..=(acknowledged + 1).min(self.steps.len())
    }
}

/// Asserts that indexes and statistics agree with the rows, no file is damaged, and keys are unique.
fn assert_whole(database: &Database, context: &str) {
    let session = database.session();
    session.execute("SET mover = off").unwrap();
    let damages: Vec<String> = verify(database.store()).iter().map(ToString::to_string).collect();
    assert!(damages.is_empty(), "{context}: {damages:?}");
    for table in tables(&session) {
        let keys = numbers(&session, &format!("SELECT k FROM {table}"));
        let known = format!("SELECT count(*) AS rows, min(k) AS least, max(k) AS most FROM {table}");
        let counted = format!("SELECT count(k + 0) AS rows, min(k + 0) AS least, max(k + 0) AS most FROM {table}");
        assert_eq!(text(&session, &known), text(&session, &counted), "{context}: statistics of {table}");
        for key in keys.iter().step_by(keys.len() / 10 + 1) {
            let found = numbers(&session, &format!("SELECT k FROM {table} WHERE k = {key}"));
            assert_eq!(found, [*key], "{context}: a key of {table}");
            let doubled = session.execute(&format!("INSERT INTO {table} (k) VALUES ({key})")).map(|_| ());
            let state = doubled.err().map(|error| error.sqlstate());
            assert_eq!(state, Some("23505"), "{context}: the key {key} of {table} once more");
        }
        for value in [0, 7, 30] {
            let found = |test: &str| numbers(&session, &format!("SELECT k FROM {table} WHERE v {test} ORDER BY k"));
            assert_eq!(found(&format!("= {value}")), found(&format!("+ 0 = {value}")), "{context}: index of {table}");
        }
    }
    session.execute("SET mover = on").unwrap();
}

/// Calls `test` with the disk after crashes at points spread evenly over each run. Uses as many seeds as necessary. The
/// number of changes varies with the timing of the mover, so a run may end before its crash point. Such a point is not
/// counted.
fn for_crashes(first_seed: u64, test: impl Fn(&History, &SimulatedDisk, usize, &str)) {
    let wanted = number_from_environment("TAUT_CRASH_POINTS").unwrap_or(CRASH_POINTS);
    let (mut tested, mut seed) = (0, first_seed);
    while tested < wanted {
        let history = History::new(seed);
        let points = POINTS_OF_A_RUN.min(history.changes);
        for point in 0..points {
            // The crash points shift with the seed.
            let at = (history.changes * (point * points + seed * 7 % points)) / (points * points);
            let disk = SimulatedDisk::new();
            let acknowledged = history.run(&disk, at);
            if !disk.is_crashed() {
                continue;
            }
            tested += 1;
            let change = disk.changes().pop();
            let context = format!("seed {seed}, crash at change {at} ({change:?}), {acknowledged} steps done");
            test(&history, &disk, acknowledged, &context);
        }
        seed += 1;
    }
    println!("{tested} crash points in runs of the seeds {first_seed} to {}", seed - 1);
}

#[test]
fn every_acknowledged_statement_survives_whole_and_later_ones_run() {
    for_crashes(0, |history, disk, acknowledged, context| {
        let possible = history.possible(acknowledged);
        // 0 means a killed process, which loses no data on disk. Other values are seeds of power losses.
        for loss in 0..4 {
            let disk = if loss == 0 { disk.after_kill() } else { disk.after_power_loss(loss) };
            let context = format!("{context}, {}", if loss == 0 { "killed".into() } else { format!("loss {loss}") });
            let (database, done) = history.check(&disk, possible.clone(), &context);
            drop(database);
            // A state that was visible once survives another power loss. The remaining steps lead to the expected end
            // state.
            let (database, _) = history.check(&disk.after_power_loss(loss), done..=done, &format!("{context}, seen"));
            let session = database.session();
            for step in &history.steps[done..] {
                run(&session, step).unwrap_or_else(|error| panic!("{context}, then {step:?}: {error}"));
            }
            assert!(contents(&session) == history.states[history.steps.len()], "{context}, then all steps");
            assert_whole(&database, &format!("{context}, then all steps"));
        }
    });
}

#[test]
fn a_crash_while_opening_after_a_crash_changes_nothing() {
    for_crashes(1_000, |history, disk, acknowledged, context| {
        let disk = disk.after_power_loss(acknowledged as u64);
        let (database, done) = history.check(&disk.after_kill(), history.possible(acknowledged), context);
        drop(database);
        for again in 0.. {
            let reopened = disk.after_kill();
            reopened.set_fault(Some(Fault::CrashAt(again)));
            drop(Database::open_on(Arc::new(reopened.clone()), &settings(0)));
            if !reopened.is_crashed() {
                break;
            }
            let context = format!("{context}; crash {again} while opening");
            history.check(&reopened.after_power_loss(again), done..=done, &context);
        }
    });
}
