//! Runner of SQL logic tests on Taut, used by `taut-sqllogictest` and `cargo test -p taut-tests`.
//!
//! ```text
//! file.slt -> records (crate sqllogictest) -> Connection -> taut::Session
//!                                               |  arrangement: options for every CREATE TABLE that names no layout
//!                                               '- format: Arrow values -> text
//! ```
//!
//! Each file under `tests/sql` runs once in every [`Arrangement`], so it tests all layouts. In addition to the standard
//! records, files may contain the statement `restart`, which closes and reopens the database.

mod arrangement;
mod cancelling;
mod connection;
mod format;
mod small_disk;

use std::path::Path;
use std::sync::Arc;

use sqllogictest::{QueryExpect, Record, Runner, TestErrorKind};

pub use arrangement::Arrangement;
pub use cancelling::run_and_cancel;
pub use connection::{Connection, RunError};
pub use format::{Kind, Style};
pub use small_disk::SmallDisk;

/// Result of one test file.
#[derive(Debug)]
pub struct Outcome {
    /// Number of statements and queries that gave the expected result.
    pub passed: usize,
    /// Error messages, one per failed record, with the position of the record in the file.
    pub failures: Vec<String>,
}

/// Options of a test run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Layout of tables without layout options.
    pub arrangement: Arrangement,
    /// Text format of values.
    pub style: Style,
    /// Whether a file stops at its first failure.
    pub stop_at_failure: bool,
    /// Whether expected results have one value per line, as in the SQLite corpora.
    pub valuewise: bool,
    /// Labels for `skipif` and `onlyif`, in addition to `taut` and the layout.
    pub labels: Vec<String>,
}

/// Runs one test file on a new database in its own directory.
///
/// # Errors
/// If the file cannot be read or parsed, or the database cannot be created. Failed records are part of the outcome.
pub fn run_file(path: &Path, options: &RunOptions) -> Result<Outcome, String> {
    let records = match options.style {
        Style::Taut => sqllogictest::parse_file::<Kind>(path).map_err(|error| error.to_string())?,
        Style::Sqlite => {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
            let name: Arc<str> = path.display().to_string().into();
            sqllogictest::parse_with_name::<Kind>(&without_remarks(&text), name).map_err(|error| error.to_string())?
        }
    };
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
        // The SQLite corpora contain a hash instead of results with more than eight values.
        runner.with_hash_threshold(8);
        // The runner has no setter for the result mode, but a control record sets it.
        let mode = sqllogictest::Control::ResultMode(sqllogictest::ResultMode::ValueWise);
        let _ = runner.run(Record::Control(mode));
    }
}

/// Removes comments after the conditions of a SQLite script, such as `# not compatible` in `skipif mysql # not
/// compatible`.
fn without_remarks(script: &str) -> String {
    let is_condition = |line: &str| line.starts_with("skipif") || line.starts_with("onlyif");
    let plain = script.lines().map(|line| match line.split_once('#') {
        Some((condition, _)) if is_condition(line) => condition.trim_end(),
        _ => line,
    });
    plain.collect::<Vec<_>>().join("\n")
}
