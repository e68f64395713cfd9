//! SQL logic tests on Taut: the runner behind `taut-sqllogictest` and behind `cargo test -p taut-tests`.
//!
//! ```text
//! file.slt -> records (crate sqllogictest) -> Connection -> taut::Session
//!                                               |  arrangement: options for every CREATE TABLE that names no layout
//!                                               '- format: Arrow values -> text
//! ```
//!
//! The files under `tests/sql` run once in every [`Arrangement`], so that each of them tests each layout. Beside the
//! records of the format they may use the statement `restart`, which closes the database and opens it again.

mod arrangement;
mod connection;
mod format;

use std::path::Path;

use sqllogictest::{QueryExpect, Record, Runner, TestErrorKind};

pub use arrangement::Arrangement;
pub use connection::{Connection, RunError};
pub use format::{Kind, Style};

/// What a run of one file did.
#[derive(Debug)]
pub struct Outcome {
    /// Records that ran and gave what the file says.
    pub passed: usize,
    /// What went wrong, one text per record, with its place.
    pub failures: Vec<String>,
}

/// How files are run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Options of tables that name no layout.
    pub arrangement: Arrangement,
    /// How values become text.
    pub style: Style,
    /// Stop a file at its first failure.
    pub stop_at_failure: bool,
    /// Results with one value per line, as in the corpora of SQLite.
    pub valuewise: bool,
    /// Labels for `skipif` and `onlyif` beside `taut`.
    pub labels: Vec<String>,
}

/// Runs one file against a new database in a directory of its own.
///
/// # Errors
/// When the file cannot be read or parsed. What fails in it is part of the outcome.
pub fn run_file(path: &Path, options: &RunOptions) -> Result<Outcome, String> {
    let records = sqllogictest::parse_file::<Kind>(path).map_err(|error| error.to_string())?;
    let server = connection::Server::new(options).map_err(|error| error.to_string())?;
    let expected = server.expected_kinds();
    let mut runner = Runner::new(|| {
        let connection = server.connect();
        async move { connection }
    });
    configure(&mut runner, options);
    let mut outcome = Outcome { passed: 0, failures: Vec::new() };
    for record in records {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        let counts = matches!(record, Record::Statement { .. } | Record::Query { .. });
        expected.set(match &record {
            Record::Query { expected: QueryExpect::Results { types, .. }, .. } => types.clone(),
            _ => Vec::new(),
        });
        match runner.run(record) {
            Ok(_) => outcome.passed += usize::from(counts),
            Err(error) => {
                outcome.failures.push(error.to_string());
                if options.stop_at_failure || matches!(error.kind(), TestErrorKind::ParseError(_)) {
                    break;
                }
            }
        }
    }
    Ok(outcome)
}

fn configure<M>(runner: &mut Runner<Connection, M>, options: &RunOptions)
where
    M: sqllogictest::MakeConnection<Conn = Connection>,
{
    runner.with_column_validator(format::kinds_agree);
    runner.set_var("LAYOUT".to_owned(), options.arrangement.layout().to_owned());
    runner.add_label(options.arrangement.layout());
    for label in &options.labels {
        runner.add_label(label);
    }
    if options.valuewise {
        // The result mode is private to the runner; a record of the format sets it.
        let mode = sqllogictest::Control::ResultMode(sqllogictest::ResultMode::ValueWise);
        let _ = runner.run(Record::Control(mode));
    }
}
