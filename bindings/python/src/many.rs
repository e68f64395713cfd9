//! `executemany`: one statement with many sets of parameters, all or none.

use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyString;
use taut::{Error, Outcome, Parameters, Session, Statement};

use crate::errors::ProgrammingError;
use crate::guarded::SIGNAL_CHECK_INTERVAL;
use crate::parameters::parameters_of;

/// Name of the savepoint inside a transaction of the user. The newest savepoint of a name hides older ones.
const SAVEPOINT: &str = "taut_executemany";

/// SQL texts, and the sets of parameters with which they run.
pub struct Many {
    texts: Vec<String>,
    /// Index of the text, and the parameters of its last statement.
    runs: Vec<(usize, Parameters)>,
}

impl Many {
    /// Converts pairs of a text and its parameters. All parameters are converted before a statement runs.
    pub fn from_pairs(pairs: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (mut texts, mut runs) = (Vec::<String>::new(), Vec::new());
        for pair in pairs.try_iter()? {
            let (text, parameters): (Bound<'_, PyString>, Bound<'_, PyAny>) = pair?.extract()?;
            let text = text.to_str()?;
            if texts.last().is_none_or(|last| last != text) {
                texts.push(text.to_owned());
            }
            runs.push((texts.len() - 1, parameters_of(Some(&parameters))?));
        }
        Ok(Self { texts, runs })
    }

    /// Parses each text once, even if it runs with several sets of parameters.
    pub fn parse(&self, session: &Session) -> Result<Vec<Vec<Statement>>, Error> {
        self.texts.iter().map(|text| session.parse(text)).collect()
    }

    /// Runs the statements and returns the number of rows written. `None` if a statement does not write rows.
    ///
    /// Calls `continues` between two statements, several times a second. Returns [`Interrupted`] if `continues` returns
    /// false.
    pub fn run(
        &self,
        session: &Session,
        parsed: &[Vec<Statement>],
        continues: impl Fn() -> bool,
    ) -> Result<Result<Option<u64>, Interrupted>, Error> {
        let mut undo = Undo::begin(session, self.runs.len() > 1 || parsed.iter().any(|text| text.len() > 1))?;
        let (mut written, mut checked) = (Some(0), Instant::now());
        for (text, parameters) in &self.runs {
            if checked.elapsed() >= SIGNAL_CHECK_INTERVAL {
                if !continues() {
                    undo.undo()?;
                    return Ok(Err(Interrupted));
                }
                checked = Instant::now();
            }
            let Some((last, before)) = parsed[*text].split_last() else { continue };
            written = match run_in_order(session, before, last, parameters)? {
                Outcome::Done(done) => written.zip(done.rows).map(|(sum, rows)| sum + rows),
                Outcome::Rows(mut rows) => {
                    rows.try_for_each(|batch| batch.map(drop))?;
                    None
                }
            };
        }
        undo.keep()?;
        Ok(Ok(written))
    }
}

/// Checks that a text has statements and that none of them begins or ends a transaction.
pub fn check_statements(parsed: &[Vec<Statement>]) -> PyResult<()> {
    if parsed.iter().any(Vec::is_empty) {
        return Err(ProgrammingError::new_err("the text contains no statement"));
    }
    let ends_transaction = |statement: &Statement| {
        matches!(
            statement,
            Statement::Begin { .. } | Statement::Commit | Statement::Rollback { .. } | Statement::Release { .. }
        )
    };
    if parsed.iter().flatten().any(ends_transaction) {
        return Err(ProgrammingError::new_err(
            "executemany runs in one transaction, so BEGIN, COMMIT, ROLLBACK and RELEASE are not allowed in it; call \
             begin() before it",
        ));
    }
    Ok(())
}

/// A signal handler or another thread ended the run between two statements.
pub struct Interrupted;

/// Drop guard: rolls back the transaction of a run that has not ended.
struct Undo<'a> {
    session: &'a Session,
    scope: Scope,
}

/// How the statements of a run can be undone.
enum Scope {
    /// Not at all: the run is a single statement, which is atomic, or it has ended.
    None,
    /// By rolling back the transaction that the run began.
    Transaction,
    /// By rolling back to a savepoint in the user's transaction, after an interrupt between two statements. A failed
    /// statement fails the user's transaction, as without `executemany`.
    Savepoint,
}

impl<'a> Undo<'a> {
    fn begin(session: &'a Session, has_many: bool) -> Result<Self, Error> {
        let scope = match (has_many, session.is_in_transaction()) {
            (false, _) => Scope::None,
            (true, false) => {
                session.execute("BEGIN")?;
                Scope::Transaction
            }
            (true, true) => {
                session.execute(&format!("SAVEPOINT {SAVEPOINT}"))?;
                Scope::Savepoint
            }
        };
        Ok(Self { session, scope })
    }

    /// Keeps the changes: commits the transaction of the run, or releases the savepoint.
    fn keep(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.scope, Scope::None) {
            Scope::Transaction => self.session.execute("COMMIT").map(drop),
            Scope::Savepoint => self.session.execute(&format!("RELEASE SAVEPOINT {SAVEPOINT}")).map(drop),
            Scope::None => Ok(()),
        }
    }

    /// Undoes the changes. A transaction of the user continues.
    fn undo(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.scope, Scope::None) {
            Scope::Transaction => self.session.execute("ROLLBACK").map(drop),
            Scope::Savepoint => {
                let undo = format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}; RELEASE SAVEPOINT {SAVEPOINT}");
                self.session.execute(&undo).map(drop)
            }
            Scope::None => Ok(()),
        }
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if matches!(self.scope, Scope::Transaction) {
            // The caller gets the error of the run, not the error of the rollback.
            let _ = self.undo();
        }
    }
}

/// Runs all statements of a text, the last one with the parameters, and returns the outcome of the last. Rows of the
/// statements before it are discarded.
pub fn run_in_order(
    session: &Session,
    before: &[Statement],
    last: &Statement,
    parameters: &Parameters,
) -> Result<Outcome, Error> {
    for statement in before {
        if let Outcome::Rows(mut rows) = session.run(statement)? {
            rows.try_for_each(|batch| batch.map(drop))?;
        }
    }
    session.run_with(last, parameters)
}
