//! A connection: a session on a database.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use arrow_array::{Array, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use datafusion::execution::TaskContextProvider;
use datafusion_ffi::table_provider::FFI_TableProvider;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::input::AnyRecordBatch;
use taut::{BackupOptions, Batches, CancelHandle, Database, LoadOptions, ReadOptions, Session, Settings, Statement};

use crate::backup::{Row, row_of};
use crate::errors::{DataError, InterfaceError, ProgrammingError, exception, statement_exception};
use crate::guarded::{Guarded, SIGNAL_CHECK_INTERVAL, run_awaited_by};
use crate::many::{Interrupted, Many, check_statements, run_in_order};
use crate::parameters::parameters_of;
use crate::result::Result;
use crate::waiting::{Waiting, without_lock};

/// A session on a database.
#[pyclass(module = "taut._taut", frozen)]
pub struct Connection {
    open: Guarded<Option<OpenConnection>>,
    cancel: CancelHandle,
    waiting: Arc<Waiting>,
}

struct OpenConnection {
    database: Database,
    session: Session,
}

impl Connection {
    fn from_database(database: Database, reporter: Option<Py<PyAny>>) -> Self {
        let waiting = Arc::new(Waiting::new(reporter));
        let mut session = database.session();
        session.on_wait(Some(waiting.callback()));
        session.on_progress(waiting.progress_callback());
        let cancel = session.cancel_handle();
        Self { open: Guarded::new(Some(OpenConnection { database, session })), cancel, waiting }
    }

    /// Calls `run` with the open session, and releases the interpreter's lock meanwhile.
    fn with_open<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut OpenConnection) -> std::result::Result<T, taut::Error> + Send,
    ) -> PyResult<T> {
        let mut guard = self.open.lock(py)?;
        let Some(open) = guard.as_mut() else {
            return Err(InterfaceError::new_err("the connection is closed; connect again"));
        };
        let result = without_lock(py, || run(open));
        drop(guard);
        self.waiting.end();
        result.map_err(|error| statement_exception(py, &error, &self.waiting))
    }
}

/// A registered table: its name, its schema and its batches.
type RegisteredTable = (String, SchemaRef, Vec<RecordBatch>);

fn read_batches(py: Python<'_>, name: &str, data: AnyRecordBatch) -> PyResult<RegisteredTable> {
    let reader = data.into_reader()?;
    let schema = reader.schema();
    let batches = without_lock(py, || reader.map(validate_batch).collect::<std::result::Result<Vec<_>, _>>());
    // A KeyboardInterrupt in a Python reader arrives as an error of the reader, or as a signal that is still pending.
    py.check_signals()?;
    match batches {
        Ok(batches) => Ok((name.to_owned(), schema, batches)),
        Err(error) if error.to_string().contains("KeyboardInterrupt") => Err(PyKeyboardInterrupt::new_err(())),
        Err(error) => Err(DataError::new_err(format!("{name}: {error}"))),
    }
}

/// Validates a batch that another library made. Later code trusts its text and its dictionary indices.
fn validate_batch(batch: std::result::Result<RecordBatch, ArrowError>) -> std::result::Result<RecordBatch, ArrowError> {
    let batch = batch?;
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        let check = column.to_data().validate_full();
        check.map_err(|error| ArrowError::InvalidArgumentError(format!("column {:?}: {error}", field.name())))?;
    }
    Ok(batch)
}

/// Reader whose drop closes a channel. The receiver thus notices the drop, on whichever thread it happens.
struct DropSignalReader {
    reader: Box<dyn RecordBatchReader + Send>,
    /// Id of the [`Guarded`] of the connection that inserts the batches.
    connection: u64,
    _drop_signal: mpsc::Sender<()>,
}

impl Iterator for DropSignalReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        run_awaited_by(self.connection, || self.reader.next()).map(validate_batch)
    }
}

#[pymethods]
impl Connection {
    /// Opens a database, or shares it if this process already has it open.
    #[staticmethod]
    #[pyo3(signature = (path, *, threads=None, memory_bytes=None, cache_bytes=None, create=true, read_only=false, reporter=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        memory_bytes: Option<usize>,
        cache_bytes: Option<usize>,
        create: bool,
        read_only: bool,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut settings = Settings { memory_bytes, cache_bytes, create, read_only, ..Settings::default() };
        if let Some(threads) = threads {
            settings.threads = threads;
        }
        let database = py.detach(|| Database::open_shared(&path, &settings));
        let database = database.map_err(|error| exception(py, &error))?;
        if let Some(notice) = database.recovery_notice().and_then(|notice| std::ffi::CString::new(notice).ok()) {
            PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(), &notice, 1)?;
        }
        Ok(Self::from_database(database, reporter))
    }

    /// Advances a read-only database to the last commit. Returns whether there was a newer commit.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_open(py, |open| open.database.refresh())
    }

    /// Opens another session on the same database.
    #[pyo3(signature = (reporter=None))]
    fn duplicate(&self, py: Python<'_>, reporter: Option<Py<PyAny>>) -> PyResult<Self> {
        Ok(Self::from_database(self.with_open(py, |open| Ok(open.database.clone()))?, reporter))
    }

    /// Runs the statements in `sql`, the last one with the parameters, and returns the result of the last one.
    ///
    /// Calls `resolve` with each unknown table name. `resolve` returns Arrow data or `None`.
    #[pyo3(signature = (sql, parameters=None, resolve=None))]
    fn execute(
        &self,
        py: Python<'_>,
        sql: &str,
        parameters: Option<&Bound<'_, PyAny>>,
        resolve: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Result> {
        let parameters = parameters_of(parameters)?;
        let has_resolve = resolve.is_some();
        let (statements, unknown) = self.with_open(py, |open| {
            let statements = open.session.parse(sql)?;
            let unknown = unknown_tables(&open.session, statements.iter().filter(|_| has_resolve))?;
            Ok((statements, unknown))
        })?;
        let Some((last, before)) = statements.split_last() else {
            return Err(ProgrammingError::new_err("the text contains no statement"));
        };
        let variables = variables(py, &unknown, resolve)?;
        let outcome = self.with_open(py, |open| {
            let _registered = RegisteredVariables::new(&open.session, variables)?;
            run_in_order(&open.session, before, last, &parameters)
        })?;
        Ok(Result::new(outcome, Arc::clone(&self.waiting)))
    }

    /// Runs SQL texts with their parameters, given as pairs, all or none. Returns the number of rows written, or `None`
    /// if a statement does not write rows. Rows that a statement returns are discarded.
    ///
    /// Other threads cannot use the connection between two of the statements.
    #[pyo3(signature = (pairs, resolve=None))]
    fn execute_many(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyAny>,
        resolve: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        let many = Many::from_pairs(pairs)?;
        let has_resolve = resolve.is_some();
        let (parsed, unknown) = self.with_open(py, |open| {
            let parsed = many.parse(&open.session)?;
            let unknown = unknown_tables(&open.session, parsed.iter().flatten().filter(|_| has_resolve))?;
            Ok((parsed, unknown))
        })?;
        check_statements(&parsed)?;
        let variables = variables(py, &unknown, resolve)?;
        let continues = self.waiting.callback();
        let written = self.with_open(py, |open| {
            let _registered = RegisteredVariables::new(&open.session, variables)?;
            many.run(&open.session, &parsed, || continues())
        })?;
        written.map_err(|Interrupted| {
            let raised = self.waiting.take_raised();
            raised.unwrap_or_else(|| InterfaceError::new_err("the interpreter is shutting down"))
        })
    }

    /// Number of statements in `sql`.
    fn count_statements(&self, py: Python<'_>, sql: &str) -> PyResult<usize> {
        self.with_open(py, |open| Ok(open.session.parse(sql)?.len()))
    }

    /// Registers Arrow data under a name that statements can use as a table.
    fn register(&self, py: Python<'_>, name: &str, data: AnyRecordBatch) -> PyResult<()> {
        let (name, schema, batches) = read_batches(py, name, data)?;
        self.with_open(py, |open| open.session.register(&name, schema, batches))
    }

    /// Removes a registered name. Returns whether it was registered.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with_open(py, |open| open.session.unregister(name))
    }

    /// Inserts Arrow data into a table and returns the number of rows. Creates the table if it does not exist.
    fn insert(
        &self,
        py: Python<'_>,
        table: &str,
        data: AnyRecordBatch,
        design: Vec<(String, String)>,
    ) -> PyResult<u64> {
        let reader = data.into_reader()?;
        let schema = reader.schema();
        let (sender, mut dropped) = mpsc::channel();
        let partitions: Vec<Batches> =
            vec![Box::new(DropSignalReader { reader, connection: self.open.id(), _drop_signal: sender })];
        let inserted = self.with_open(py, |open| open.session.load_batches(table, schema, partitions, &design));
        if inserted.is_err() {
            // A reader may run Python code, which must not outlive the interpreter: wait until it is dropped. A second
            // interrupt ends this wait.
            loop {
                let dropped = &mut dropped;
                if without_lock(py, move || dropped.recv_timeout(SIGNAL_CHECK_INTERVAL))
                    != Err(RecvTimeoutError::Timeout)
                {
                    break;
                }
                // The reader may be the result of a query on this connection. Only the insert needs that query:
                // cancel it.
                self.cancel.cancel();
                py.check_signals()?;
            }
        }
        inserted
    }

    /// Loads files into a table and returns the number of rows. Creates the table if it does not exist.
    fn load(
        &self,
        py: Python<'_>,
        table: &str,
        files: Vec<PathBuf>,
        read: Vec<(String, String)>,
        design: Vec<(String, String)>,
    ) -> PyResult<u64> {
        self.with_open(py, |open| {
            let options = LoadOptions { read: ReadOptions::from_pairs(&read)?, design };
            open.session.load(table, &files, &options)
        })
    }

    /// Returns a stored table as the capsule that `__datafusion_table_provider__` has to return to the package
    /// `datafusion`.
    fn datafusion_table_provider<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyCapsule>> {
        let table = self.with_open(py, |open| open.database.external_table(table))?;
        let context: Arc<dyn TaskContextProvider> = table.context;
        let provider = FFI_TableProvider::new(table.provider, true, Some(table.runtime), &context, None);
        PyCapsule::new_with_value(py, provider, c"datafusion_table_provider")
    }

    /// Backs up the database to a directory while it stays in use.
    #[pyo3(signature = (directory, log=false, keep=None))]
    fn backup(&self, py: Python<'_>, directory: PathBuf, log: bool, keep: Option<usize>) -> PyResult<Row> {
        let options = BackupOptions { log, keep };
        Ok(row_of(&self.with_open(py, |open| open.session.backup(&directory, options))?))
    }

    /// Cancels the statement that runs on this connection. Any thread can call it.
    fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// Closes the connection and cancels a statement that another thread runs on it. Results that are being read stay
    /// readable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.open.is_from_other_process() {
            return Ok(());
        }
        if self.open.peek(|_| ()).is_none() {
            self.cancel.cancel();
        }
        let open = self.open.lock(py)?.take();
        py.detach(|| {
            if let Some(OpenConnection { database, session }) = open {
                drop(session);
                database.close();
            }
        });
        Ok(())
    }

    /// Whether an explicit transaction is in progress.
    #[getter]
    fn in_transaction(&self) -> bool {
        // A connection that runs a statement is locked: report false instead of waiting.
        self.open
            .peek(|open| open.as_ref().is_some_and(|open: &OpenConnection| open.session.is_in_transaction()))
            .unwrap_or(false)
    }

    /// Whether the database is open read-only.
    #[getter]
    fn read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_open(py, |open| Ok(open.database.is_read_only()))
    }

    /// Whether the connection is closed.
    #[getter]
    fn closed(&self) -> bool {
        // A connection that runs a statement is locked, so it is open.
        self.open.peek(Option::is_none).unwrap_or(false)
    }
}

/// Names of undefined tables in statements.
fn unknown_tables<'a>(
    session: &Session,
    statements: impl Iterator<Item = &'a Statement>,
) -> std::result::Result<Vec<String>, taut::Error> {
    let mut unknown = Vec::new();
    for statement in statements {
        unknown.extend(session.unknown_tables(statement)?);
    }
    Ok(unknown)
}

/// Reads the variables that `resolve` finds for unknown tables.
fn variables(py: Python<'_>, unknown: &[String], resolve: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<RegisteredTable>> {
    let mut variables: Vec<RegisteredTable> = Vec::new();
    for name in unknown {
        if let Some(resolve) = resolve
            && !variables.iter().any(|(other, ..)| other == name)
            && let Some(data) = resolve.call1((name,))?.extract::<Option<AnyRecordBatch>>()?
        {
            variables.push(read_batches(py, name, data)?);
        }
    }
    Ok(variables)
}

/// Drop guard: removes the names of variables once the statement has started or failed.
struct RegisteredVariables<'a> {
    session: &'a Session,
    names: Vec<String>,
}

impl<'a> RegisteredVariables<'a> {
    fn new(session: &'a Session, variables: Vec<RegisteredTable>) -> std::result::Result<Self, taut::Error> {
        let mut registered = Self { session, names: Vec::new() };
        for (name, schema, batches) in variables {
            session.register(&name, schema, batches)?;
            registered.names.push(name);
        }
        Ok(registered)
    }
}

impl Drop for RegisteredVariables<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            // The name was registered, so removing it succeeds.
            let _ = self.session.unregister(name);
        }
    }
}
