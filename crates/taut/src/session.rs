//! Session: runs statements, loads and backups.

use std::fmt::{self, Debug, Formatter};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use taut_query::{
    Batches, Done, Mover, Parameters, ProgressCallback, QueryError, QuerySession, ReadOptions, Statement,
};
use taut_store::Store;
use tokio::task::{JoinError, JoinHandle};

use crate::backup::{BackupOptions, BackupReport};
use crate::database::{Background, on_large_stack, poll_with_stack};
use crate::rows::{Watch, run_until_cancelled};
use crate::waiting::Next;
use crate::{CancelHandle, Error, Rows, WaitCallback};

/// Connection to a database. Runs statements one at a time. Outside a transaction, each statement reads the newest
/// state.
pub struct Session {
    pub(crate) query: Arc<QuerySession>,
    runtime: Arc<Background>,
    cancel: CancelHandle,
    wait: Option<WaitCallback>,
    /// The task of a cancelled statement that has not ended yet. The next statement waits for it.
    cancelled: Mutex<Option<Task>>,
}

/// A statement that runs on another thread.
type Task = JoinHandle<Result<taut_query::Outcome, QueryError>>;

/// Maximum wait for a cancelled statement to end.
const CANCEL_WAIT: Duration = Duration::from_millis(100);

/// Result of a statement: rows, or a completion tag.
#[derive(Debug)]
pub enum Outcome {
    /// Rows, computed as they are read.
    Rows(Rows),
    /// The statement is done and returns no rows.
    Done(Done),
}

/// Options for loading files.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How the files are read.
    pub read: ReadOptions,
    /// Options for the design of a table that the load creates, such as `layout` and `sort_by`.
    pub design: Vec<(String, String)>,
}

impl Session {
    pub(crate) fn new(store: Arc<Store>, mover: Arc<Mover>, runtime: Arc<Background>) -> Self {
        let query = Arc::new(QuerySession::new(store, mover));
        Self { query, runtime, cancel: CancelHandle::new(), wait: None, cancelled: Mutex::default() }
    }

    /// Parses a text into its statements, which are separated by semicolons.
    ///
    /// # Errors
    /// If a statement cannot be parsed.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>, Error> {
        let parse = || self.query.parse(sql);
        Ok(if taut_query::is_long(sql) { on_large_stack(parse) } else { parse() }?)
    }

    /// Same as [`Database::refresh`](crate::Database::refresh), for the database of this session.
    ///
    /// # Errors
    /// If [`Database::refresh`](crate::Database::refresh) fails.
    pub fn refresh(&self) -> Result<bool, Error> {
        Ok(self.query.store().refresh()? | self.query.store().refresh_attached()?)
    }

    /// Whether the database is open read-only.
    pub fn is_read_only(&self) -> bool {
        self.query.store().is_read_only()
    }

    /// Whether an explicit transaction is in progress, for example one that `BEGIN` started.
    pub fn is_in_transaction(&self) -> bool {
        self.query.is_in_transaction()
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// If the statement fails. An error while its rows are computed is returned by the iterator [`Rows`].
    pub fn run(&self, statement: &Statement) -> Result<Outcome, Error> {
        self.run_with(statement, &Parameters::default())
    }

    /// Runs a statement with values for its parameters.
    ///
    /// # Errors
    /// If the statement fails, or `parameters` do not match its parameters.
    pub fn run_with(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome, Error> {
        let mut watch = self.begin_with_limit(self.query.time_limit(statement))?;
        if let Some((schema, batches)) = self.query.look_up(statement, parameters)? {
            return Ok(Outcome::Rows(Rows::from_batches(schema, batches)));
        }
        let needs_large_stack = self.query.needs_large_stack(statement);
        let outcome = match self.query.is_quick(statement) {
            true => self.block_on(needs_large_stack, &mut watch, self.query.run(statement, parameters))?,
            false => self.run_on_other_thread(statement, parameters, &mut watch)?,
        };
        Ok(match outcome {
            taut_query::Outcome::Rows(stream) => {
                Outcome::Rows(Rows::new(stream, Arc::clone(&self.runtime), watch, needs_large_stack))
            }
            taut_query::Outcome::Done(done) => Outcome::Done(done),
        })
    }

    /// Begins a statement. First waits until the previous statement, if cancelled, has ended.
    fn begin(&self) -> Result<Watch, Error> {
        self.begin_with_limit(self.query.statement_timeout())
    }

    fn begin_with_limit(&self, limit: Option<Duration>) -> Result<Watch, Error> {
        let mut watch = Watch::new(&self.cancel, self.wait.clone(), limit);
        let cancelled = self.cancelled.lock().take();
        if let Some(mut task) = cancelled
            && let Err(error) = run_until_cancelled(&self.runtime, &mut watch, &mut task)?
        {
            *self.cancelled.lock() = Some(task);
            return Err(error.into());
        }
        self.query.interrupt_by(watch.token(), watch.committing_flag());
        Ok(watch)
    }

    /// Runs a statement on another thread. This thread can then return soon after a cancellation, even if the statement
    /// is in a long computation.
    fn run_on_other_thread(
        &self,
        statement: &Statement,
        parameters: &Parameters,
        watch: &mut Watch,
    ) -> Result<taut_query::Outcome, Error> {
        let (query, statement, parameters) = (Arc::clone(&self.query), statement.clone(), parameters.clone());
        let mut task = self.runtime.handle()?.spawn(async move { query.run(&statement, &parameters).await });
        match run_until_cancelled(&self.runtime, watch, &mut task)? {
            Ok(ended) => match ended.map_err(JoinError::try_into_panic) {
                Ok(outcome) => Ok(outcome?),
                Err(Ok(panic)) => resume_unwind(panic),
                Err(Err(_)) => Err(QueryError::Cancelled.into()),
            },
            Err(cancelled) => {
                task.abort();
                // The task nearly always ends within this time, so a caller that then checks the session sees the
                // statement ended.
                let deadline = Instant::now() + CANCEL_WAIT;
                let next = || if Instant::now() < deadline { Next::Wait(Some(deadline)) } else { Next::Stop };
                match self.runtime.wait(&mut task, next)? {
                    // The statement was done before it could be cancelled.
                    Some(Ok(Ok(done @ taut_query::Outcome::Done(_)))) => return Ok(done),
                    Some(_) => {}
                    None => *self.cancelled.lock() = Some(task),
                }
                Err(cancelled.into())
            }
        }
    }

    /// Whether a statement has a valid cached plan. The plan of a query is cached when it has run twice: see
    /// `docs/adr/0013-cached-plans.md`.
    pub fn has_cached_plan(&self, statement: &Statement) -> bool {
        self.query.has_cached_plan(statement)
    }

    /// Runs all statements of a text. Their rows are computed when the returned iterators are read.
    ///
    /// # Errors
    /// If the text cannot be parsed, or a statement fails. The statements before it have taken effect.
    pub fn execute(&self, sql: &str) -> Result<Vec<Outcome>, Error> {
        self.parse(sql)?.iter().map(|statement| self.run(statement)).collect()
    }

    /// Runs one statement that returns rows.
    ///
    /// # Errors
    /// If the statement fails or returns no rows, or if the text is not exactly one statement.
    pub fn query(&self, sql: &str) -> Result<Rows, Error> {
        self.query_with(sql, &Parameters::default())
    }

    /// Runs one statement that returns rows, with values for its parameters.
    ///
    /// # Errors
    /// If the statement fails or returns no rows, if `parameters` do not match its parameters, or if the text is not
    /// exactly one statement.
    pub fn query_with(&self, sql: &str, parameters: &Parameters) -> Result<Rows, Error> {
        match self.parse(sql)?.as_slice() {
            [statement] => match self.run_with(statement, parameters)? {
                Outcome::Rows(rows) => Ok(rows),
                Outcome::Done(done) => Err(Error::no_rows(done.tag)),
            },
            statements => Err(Error::statement_count(statements.len())),
        }
    }

    /// Registers batches as a table that statements of this session can use by name.
    ///
    /// # Errors
    /// If a table or view has the name, or the batches differ in their columns.
    pub fn register(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<(), Error> {
        Ok(self.query.register(name, schema, batches)?)
    }

    /// Removes a table that [`Session::register`] added. Returns whether there was one.
    ///
    /// # Errors
    /// If the name is malformed.
    pub fn unregister(&self, name: &str) -> Result<bool, Error> {
        Ok(self.query.unregister(name)?)
    }

    /// Names of tables in a statement that are not defined. The caller may register them before it runs the statement.
    ///
    /// # Errors
    /// If the statement has malformed names.
    pub fn unknown_tables(&self, statement: &Statement) -> Result<Vec<String>, Error> {
        if self.query.has_cached_plan(statement) {
            return Ok(Vec::new());
        }
        self.block_on(false, &mut self.begin()?, self.query.unknown_tables(statement))
    }

    /// Loads files into a table, all or nothing, and returns the number of rows. A table that does not exist is created
    /// with the columns of the first file.
    ///
    /// # Errors
    /// If a file or a value in it is invalid. No row is loaded then.
    pub fn load(&self, table: &str, files: &[impl AsRef<Path>], options: &LoadOptions) -> Result<u64, Error> {
        let files: Vec<PathBuf> = files.iter().map(|file| file.as_ref().to_owned()).collect();
        let load = self.query.load_files(table, &files, &options.read, &options.design);
        self.block_on(false, &mut self.begin()?, load)
    }

    /// Loads batches into a table, all or nothing, and returns the number of rows. Each iterator of `partitions` runs
    /// on its own thread. A table that does not exist is created with the columns of the batches.
    ///
    /// # Errors
    /// If an iterator fails, or the columns do not fit. No row is loaded then.
    pub fn load_batches(
        &self,
        table: &str,
        schema: SchemaRef,
        partitions: Vec<Batches>,
        design: &[(String, String)],
    ) -> Result<u64, Error> {
        self.block_on(false, &mut self.begin()?, self.query.load_batches(table, schema, partitions, design))
    }

    /// Backs up the database to a directory while all sessions continue. Copies only blocks that no earlier backup in
    /// that directory has. The backup holds all commits so far.
    ///
    /// # Errors
    /// If a transaction is in progress, or the directory is inside the database, holds other files or cannot be
    /// written.
    pub fn backup(&self, directory: impl AsRef<Path>, options: BackupOptions) -> Result<BackupReport, Error> {
        self.block_on(false, &mut self.begin()?, self.query.backup(directory.as_ref(), options))
    }

    /// Sets the callback that receives the progress of loads, rewrites and queries.
    pub fn on_progress(&self, callback: Option<ProgressCallback>) {
        self.query.on_progress(callback);
    }

    /// Sets the callback that decides whether a running statement continues. It is called on the waiting thread,
    /// several times a second.
    pub fn on_wait(&mut self, callback: Option<WaitCallback>) {
        self.wait = callback;
    }

    /// Handle that cancels the statements of this session.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    fn block_on<T>(
        &self,
        needs_large_stack: bool,
        watch: &mut Watch,
        future: impl Future<Output = Result<T, QueryError>>,
    ) -> Result<T, Error> {
        // Pinned here: passing a future by value copies it, and this one is several kilobytes.
        let future = pin!(future);
        Ok(run_until_cancelled(&self.runtime, watch, poll_with_stack(needs_large_stack, future))???)
    }
}

impl Debug for Session {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Session")
    }
}
