//! A connection: a session on a database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use datafusion::execution::TaskContextProvider;
use datafusion_ffi::table_provider::FFI_TableProvider;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::input::AnyRecordBatch;
use taut::{Batches, CancelHandle, Database, LoadOptions, Outcome, ReadOptions, Session, Settings};

use crate::errors::{DataError, InterfaceError, ProgrammingError, exception, raised};
use crate::parameters::parameters_of;
use crate::result::Result;
use crate::waiting::Waiting;

/// How often who waits for another thread's statement looks after signals.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// A session on a database.
#[pyclass(module = "taut._taut", frozen)]
pub struct Connection {
    open: Mutex<Option<Open>>,
    cancel: CancelHandle,
    waiting: Arc<Waiting>,
    /// Threads do not survive a fork.
    process: u32,
}

struct Open {
    database: Database,
    session: Session,
}

impl Connection {
    fn on(database: Database, reporter: Option<Py<PyAny>>) -> Self {
        let waiting = Arc::new(Waiting::new(reporter));
        let mut session = database.session();
        session.on_wait(Some(waiting.callback()));
        session.on_progress(waiting.progress_callback());
        let cancel = session.cancel_handle();
        Self { open: Mutex::new(Some(Open { database, session })), cancel, waiting, process: std::process::id() }
    }

    /// Does something with the session while other threads of Python go on.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Open) -> std::result::Result<T, taut::Error> + Send,
    ) -> PyResult<T> {
        let result = self.locked(py, |open| open.as_mut().map(run))?;
        self.waiting.end();
        match result {
            Some(result) => result.map_err(|error| raised(py, &error, &self.waiting)),
            None => Err(InterfaceError::new_err("the connection is closed; connect again")),
        }
    }

    /// Does something once no other thread runs a statement here.
    fn locked<T: Send>(&self, py: Python<'_>, run: impl FnOnce(&mut Option<Open>) -> T + Send) -> PyResult<T> {
        if self.process != std::process::id() {
            return Err(InterfaceError::new_err(
                "this connection was opened before the process was forked; connect again in the new one, or use the \
                 start method 'spawn' of multiprocessing",
            ));
        }
        let mut run = Some(run);
        loop {
            let result = py.detach(|| {
                let mut open = self.open.try_lock_for(ASKED_EVERY)?;
                Some(run.take()?(&mut open))
            });
            match result {
                Some(result) => return Ok(result),
                None => py.check_signals()?,
            }
        }
    }
}

/// A batch that is read, and the name it gets.
type Named = (String, SchemaRef, Vec<RecordBatch>);

fn read(py: Python<'_>, name: &str, data: AnyRecordBatch) -> PyResult<Named> {
    let reader = data.into_reader()?;
    let schema = reader.schema();
    let batches = py.detach(|| reader.collect::<std::result::Result<Vec<_>, _>>());
    let batches = batches.map_err(|error| DataError::new_err(format!("{name}: {error}")))?;
    Ok((name.to_owned(), schema, batches))
}

#[pymethods]
impl Connection {
    /// Opens a database, or joins those who have it open in this process.
    #[staticmethod]
    #[pyo3(signature = (path, *, threads=None, memory_bytes=None, cache_bytes=None, create=true, reporter=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        memory_bytes: Option<usize>,
        cache_bytes: Option<usize>,
        create: bool,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut settings = Settings { memory_bytes, cache_bytes, create, ..Settings::default() };
        if let Some(threads) = threads {
            settings.threads = threads;
        }
        let database = py.detach(|| Database::open_shared(&path, &settings));
        Ok(Self::on(database.map_err(|error| exception(py, &error))?, reporter))
    }

    /// Another session on the same database.
    #[pyo3(signature = (reporter=None))]
    fn duplicate(&self, py: Python<'_>, reporter: Option<Py<PyAny>>) -> PyResult<Self> {
        Ok(Self::on(self.with(py, |open| Ok(open.database.clone()))?, reporter))
    }

    /// Runs the statements of a text, the last of them with parameters, and gives the result of that.
    ///
    /// `resolve` is asked for each name of a table that stands for nothing; it gives Arrow data or `None`.
    #[pyo3(signature = (sql, parameters=None, resolve=None))]
    fn execute(
        &self,
        py: Python<'_>,
        sql: &str,
        parameters: Option<&Bound<'_, PyAny>>,
        resolve: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Result> {
        let parameters = parameters_of(parameters)?;
        let is_resolved = resolve.is_some();
        let (statements, unknown) = self.with(py, |open| {
            let statements = open.session.parse(sql)?;
            let mut unknown = Vec::new();
            for statement in statements.iter().filter(|_| is_resolved) {
                unknown.extend(open.session.unknown_tables(statement)?);
            }
            Ok((statements, unknown))
        })?;
        let Some((last, before)) = statements.split_last() else {
            return Err(ProgrammingError::new_err("the text holds no statement"));
        };
        let mut variables: Vec<Named> = Vec::new();
        for name in &unknown {
            if let Some(resolve) = resolve
                && !variables.iter().any(|(other, ..)| other == name)
                && let Some(data) = resolve.call1((name,))?.extract::<Option<AnyRecordBatch>>()?
            {
                variables.push(read(py, name, data)?);
            }
        }
        let outcome = self.with(py, |open| {
            let names: Vec<String> = variables.iter().map(|(name, ..)| name.clone()).collect();
            for (name, schema, batches) in variables {
                open.session.register(&name, schema, batches)?;
            }
            let outcome = run_all(&open.session, before, last, &parameters);
            for name in &names {
                open.session.unregister(name)?;
            }
            outcome
        })?;
        Ok(Result::new(outcome, Arc::clone(&self.waiting)))
    }

    /// Gives what holds Arrow data a name that statements can use as a table.
    fn register(&self, py: Python<'_>, name: &str, data: AnyRecordBatch) -> PyResult<()> {
        let (name, schema, batches) = read(py, name, data)?;
        self.with(py, |open| open.session.register(&name, schema, batches))
    }

    /// Takes a name back, and tells whether it was given.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with(py, |open| open.session.unregister(name))
    }

    /// Inserts what holds Arrow data into a table, which is made where it does not exist, and tells how many rows.
    fn insert(
        &self,
        py: Python<'_>,
        table: &str,
        data: AnyRecordBatch,
        design: Vec<(String, String)>,
    ) -> PyResult<u64> {
        let reader = data.into_reader()?;
        let schema = reader.schema();
        let partitions: Vec<Batches> = vec![Box::new(reader)];
        self.with(py, |open| open.session.load_batches(table, schema, partitions, &design))
    }

    /// Loads files into a table, which is made where it does not exist, and tells how many rows.
    fn load(
        &self,
        py: Python<'_>,
        table: &str,
        files: Vec<PathBuf>,
        read: Vec<(String, String)>,
        design: Vec<(String, String)>,
    ) -> PyResult<u64> {
        self.with(py, |open| {
            let options = LoadOptions { read: ReadOptions::from_pairs(&read)?, design };
            open.session.load(table, &files, &options)
        })
    }

    /// A stored table for the package `datafusion`: a capsule as its `__datafusion_table_provider__` has to give.
    fn datafusion_table_provider<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyCapsule>> {
        let table = self.with(py, |open| open.database.external_table(table))?;
        let context: Arc<dyn TaskContextProvider> = table.context;
        let provider = FFI_TableProvider::new(table.provider, true, Some(table.runtime), &context, None);
        PyCapsule::new_with_value(py, provider, c"datafusion_table_provider")
    }

    /// Ends what runs on this connection, from any thread.
    fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// Ends the connection. What it has started to read goes on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.locked(py, |open| drop(open.take()))
    }

    /// Whether the connection is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        // Who runs a statement is open.
        py.detach(|| self.open.try_lock().is_some_and(|open| open.is_none()))
    }
}

/// Runs statements, reads the rows of all but the last, and gives what that one gives.
fn run_all(
    session: &Session,
    before: &[taut::Statement],
    last: &taut::Statement,
    parameters: &taut::Parameters,
) -> std::result::Result<Outcome, taut::Error> {
    for statement in before {
        if let Outcome::Rows(mut rows) = session.run(statement)? {
            rows.try_for_each(|batch| batch.map(drop))?;
        }
    }
    session.run_with(last, parameters)
}
