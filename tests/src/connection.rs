//! The database of one test file, in its own directory, and the sessions on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqllogictest::DBOutput;
use taut::{Database, Outcome, Session, Statement};
use tempfile::TempDir;

use crate::{Arrangement, Kind, RunOptions, Style, format};

/// Reason why a statement has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Error of Taut.
    #[error(transparent)]
    Taut(#[from] taut::Error),
    /// The database directory could not be created.
    #[error("no directory for the database: {0}")]
    Directory(#[from] std::io::Error),
    /// A restart closed the database and has not opened it again.
    #[error("the database is closed")]
    Closed,
    /// A cached plan returned other rows than the first execution.
    #[error("the cached plan of the query gives {again}, and gave {first}")]
    Differs {
        /// Result of the first execution.
        first: String,
        /// Result of the later execution.
        again: String,
    },
}

/// Column kinds that the current record expects. They determine the text of values for the corpora of SQLite.
#[derive(Clone, Default)]
pub(crate) struct ExpectedKinds(Arc<Mutex<Vec<Kind>>>);

impl ExpectedKinds {
    pub(crate) fn set(&self, kinds: Vec<Kind>) {
        *locked(&self.0) = kinds;
    }

    fn get(&self) -> Vec<Kind> {
        locked(&self.0).clone()
    }
}

/// Database of one test file.
#[derive(Clone)]
pub(crate) struct Server {
    directory: Arc<TempDir>,
    database: Arc<Mutex<Option<Database>>>,
    arrangement: Arrangement,
    style: Style,
    expected: ExpectedKinds,
    has_sequences: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn new(options: &RunOptions) -> Result<Self, RunError> {
        let server = Self {
            directory: Arc::new(TempDir::with_prefix("taut-slt-")?),
            database: Arc::default(),
            arrangement: options.arrangement,
            style: options.style,
            expected: ExpectedKinds::default(),
            has_sequences: Arc::default(),
        };
        server.open()?;
        Ok(server)
    }

    pub(crate) fn expected_kinds(&self) -> ExpectedKinds {
        self.expected.clone()
    }

    pub(crate) fn connect(&self) -> Result<Connection, RunError> {
        Ok(Connection { session: Some(self.session()?), server: self.clone() })
    }

    fn open(&self) -> Result<(), RunError> {
        *locked(&self.database) = Some(Database::open(self.directory.path().join("database"))?);
        Ok(())
    }

    /// Records whether a statement may create a sequence. Later statements then run only once, because each run would
    /// take new numbers: a rollback does not reset a sequence.
    fn note_sequences(&self, sql: &str) {
        let sql = sql.to_lowercase();
        let mut words = sql.split(|character: char| !character.is_alphanumeric());
        if words.any(|word| ["sequence", "serial", "bigserial", "smallserial", "identity"].contains(&word)) {
            self.has_sequences.store(true, Ordering::Relaxed);
        }
    }

    fn session(&self) -> Result<Session, RunError> {
        locked(&self.database).as_ref().map(Database::session).ok_or(RunError::Closed)
    }
}

/// One session on the database of a test file.
pub struct Connection {
    session: Option<Session>,
    server: Server,
}

impl Connection {
    /// Closes and reopens the database. Other connections of the file must not have a session yet: a session keeps its
    /// database open.
    fn restart(&mut self) -> Result<(), RunError> {
        self.session = None;
        *locked(&self.server.database) = None;
        self.server.open()?;
        self.session = Some(self.server.session()?);
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<DBOutput<Kind>, RunError> {
        let session = self.session.as_ref().ok_or(RunError::Closed)?;
        let mut output = DBOutput::StatementComplete(0);
        for text in self.server.arrangement.statements(sql) {
            self.server.note_sequences(&text);
            let runs_once = self.server.has_sequences.load(Ordering::Relaxed);
            for statement in session.parse(&text)? {
                if runs_once {
                    output = self.read(session.run(&statement)?)?;
                    continue;
                }
                if matches!(statement, Statement::Mutation { explain: None, .. }) {
                    output = self.change(session, &statement)?;
                    continue;
                }
                output = self.read(session.run(&statement)?)?;
                // EXPLAIN ANALYZE of a change also changes rows, so it does not run again.
                if !matches!(statement, Statement::Mutation { .. } | Statement::ModifyingWith { .. }) {
                    self.run_again(session, &statement, &output)?;
                }
            }
            if self.server.arrangement.seals(&text) && !session.is_in_transaction() {
                for statement in session.parse("VACUUM")? {
                    session.run(&statement)?;
                }
            }
            self.server.arrangement.arrange_created(session, &text)?;
        }
        Ok(output)
    }

    /// Runs a query up to two more times. Later executions may use a cached plan, which must return the same rows.
    fn run_again(&self, session: &Session, statement: &Statement, first: &DBOutput<Kind>) -> Result<(), RunError> {
        let DBOutput::Rows { types, rows } = first else { return Ok(()) };
        let sorted = |rows: &[Vec<String>]| {
            let mut rows = rows.to_vec();
            rows.sort_unstable();
            rows
        };
        for _ in 0..2 {
            let again = self.read(session.run(statement)?)?;
            if !session.has_cached_plan(statement) {
                break;
            }
            match again {
                DBOutput::Rows { types: kinds, rows: again } if kinds == *types && sorted(&again) == sorted(rows) => {}
                DBOutput::Rows { rows: again, .. } => {
                    return Err(RunError::Differs { first: format!("{rows:?}"), again: format!("{again:?}") });
                }
                _ => return Err(RunError::Closed),
            }
        }
        Ok(())
    }

    /// Runs a statement that changes rows three times, each time from the same savepoint. Returns an error if the
    /// results differ, for example because of a cached plan.
    fn change(&self, session: &Session, statement: &Statement) -> Result<DBOutput<Kind>, RunError> {
        let is_alone = !session.is_in_transaction();
        if is_alone {
            session.execute("BEGIN")?;
        }
        let run = || {
            session.execute("SAVEPOINT \"before the change\"")?;
            let first = self.read(session.run(statement)?)?;
            for _ in 0..2 {
                session.execute("ROLLBACK TO SAVEPOINT \"before the change\"")?;
                let again = self.read(session.run(statement)?)?;
                let (before, after) = (sorted_text(&first), sorted_text(&again));
                if before != after {
                    return Err(RunError::Differs { first: before, again: after });
                }
            }
            session.execute("RELEASE SAVEPOINT \"before the change\"")?;
            Ok(first)
        };
        let done = run();
        if is_alone {
            session.execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        }
        done
    }

    fn read(&self, outcome: Outcome) -> Result<DBOutput<Kind>, RunError> {
        let rows = match outcome {
            Outcome::Rows(rows) => rows,
            Outcome::Done(done) => return Ok(DBOutput::StatementComplete(done.rows.unwrap_or(0))),
        };
        let schema = rows.schema();
        let mut types: Vec<_> = schema.fields().iter().map(|field| Kind::of(field.data_type())).collect();
        let mut text = Vec::new();
        let expected = self.server.expected.get();
        for batch in rows {
            text.extend(format::rows(&batch?, self.server.style, &expected));
        }
        if self.server.style == Style::Sqlite && expected.len() == types.len() {
            types = expected;
        }
        Ok(DBOutput::Rows { types, rows: text })
    }
}

impl sqllogictest::DB for Connection {
    type Error = RunError;
    type ColumnType = Kind;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Kind>, RunError> {
        if sql.trim().trim_end_matches(';').eq_ignore_ascii_case("restart") {
            self.restart()?;
            return Ok(DBOutput::StatementComplete(0));
        }
        self.execute(sql)
    }

    fn engine_name(&self) -> &str {
        "taut"
    }
}

/// Text of a result, independent of the order of its rows.
fn sorted_text(output: &DBOutput<Kind>) -> String {
    match output {
        DBOutput::Rows { types, rows } => {
            let mut rows = rows.clone();
            rows.sort_unstable();
            format!("{types:?} {rows:?}")
        }
        DBOutput::StatementComplete(rows) => format!("{rows} rows"),
        _ => "nothing that is known".to_owned(),
    }
}

/// Locks a mutex and ignores poisoning: a panic in one statement must not hide the results of the next ones.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
