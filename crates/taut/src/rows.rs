//! Rows of a query, computed while they are read.

use std::fmt::{self, Debug, Formatter};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use parking_lot::Mutex;
use taut_query::QueryError;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Error;
use crate::database::{Background, poll_with_stack};
use crate::waiting::Next;

/// Cancels the statements of a session, from any thread.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<Mutex<CancellationToken>>);

impl CancelHandle {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Cancels the running statement and the rows that are being read. Later statements are not affected.
    pub fn cancel(&self) {
        std::mem::take(&mut *self.0.lock()).cancel();
    }

    fn statement_token(&self) -> CancellationToken {
        self.0.lock().child_token()
    }
}

/// Callback that returns whether a statement continues. It runs on the thread that waits for the statement or its rows.
pub type WaitCallback = Arc<dyn Fn() -> bool + Send + Sync>;

/// Minimum interval between two calls of the [`WaitCallback`]. Also the interval at which a thread checks whether a
/// cancelled statement is still committing.
const CALLBACK_INTERVAL: Duration = Duration::from_millis(50);

/// Ends a statement early: by cancellation, by the callback or by its time limit.
pub(crate) struct Watch {
    /// Cancelled by [`CancelHandle::cancel`], by the callback, by the time limit, or when the rows are dropped.
    token: CancellationToken,
    wait: Option<WaitCallback>,
    /// When the callback is called next. A new wait does not restart the interval, so that the callback is also called
    /// if every wait is short.
    next_callback: Instant,
    /// Time that the statement may still take. Only time spent waiting counts, so that a slow reader of its rows is not
    /// cancelled.
    time_left: Option<Duration>,
    /// When `time_left` ends. `None` if there is no time limit or this thread does not wait.
    deadline: Option<Instant>,
    has_timed_out: bool,
    /// Whether the statement has begun to commit. A cancelled caller then waits until the commit ends, because only the
    /// end shows whether the changes are committed.
    is_committing: Arc<AtomicBool>,
}

impl Watch {
    pub fn new(handle: &CancelHandle, wait: Option<WaitCallback>, limit: Option<Duration>) -> Self {
        let next_callback = Instant::now() + CALLBACK_INTERVAL;
        Self {
            token: handle.statement_token(),
            wait,
            next_callback,
            time_left: limit,
            deadline: None,
            has_timed_out: false,
            is_committing: Arc::default(),
        }
    }

    /// Flag that becomes true when the statement begins to commit.
    pub fn committing_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_committing)
    }

    /// Token that the operators of the statement check.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Starts the clock of the time limit.
    fn resume(&mut self) {
        self.deadline = self.time_left.map(|left| Instant::now() + left);
    }

    /// Stops the clock of the time limit.
    fn pause(&mut self) {
        if let Some(deadline) = self.deadline.take() {
            self.time_left = Some(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// What the thread that waits for the statement does next.
    fn next(&mut self) -> Next {
        if self.token.is_cancelled() {
            return Next::Stop;
        }
        if self.wait.is_none() && self.deadline.is_none() {
            return Next::Wait(None);
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.has_timed_out = true;
            return Next::Stop;
        }
        let Some(continues) = &self.wait else { return Next::Wait(self.deadline) };
        if now >= self.next_callback {
            if !continues() {
                return Next::Stop;
            }
            self.next_callback = Instant::now() + CALLBACK_INTERVAL;
        }
        let next_callback = self.next_callback;
        Next::Wait(Some(self.deadline.map_or(next_callback, |deadline| deadline.min(next_callback))))
    }

    /// What the thread that waits for a cancelled statement does next.
    fn next_while_committing(&self) -> Next {
        match self.is_committing.load(Ordering::SeqCst) {
            true => Next::Wait(Some(Instant::now() + CALLBACK_INTERVAL)),
            false => Next::Stop,
        }
    }
}

/// Runs the future of a statement until it is ready. Stops early on a cancellation or at the time limit, unless the
/// statement has begun to commit.
///
/// # Errors
/// If a [`WaitCallback`] calls this function, because its thread is already waiting, or the database is closed.
pub(crate) fn run_until_cancelled<T>(
    runtime: &Background,
    watch: &mut Watch,
    future: impl Future<Output = T>,
) -> Result<Result<T, QueryError>, Error> {
    let token = watch.token();
    let mut future = pin!(future);
    watch.resume();
    // Checks for a cancellation before the first poll. A future that is ready at once would otherwise skip the check.
    let result = match watch.next() {
        Next::Stop => Ok(None),
        Next::Wait(_) => {
            // A cancellation must wake this thread, which may be parked.
            let cancelled = token.clone().cancelled_owned();
            let both = async {
                tokio::select! {
                    biased;
                    () = cancelled => None,
                    result = &mut future => Some(result),
                }
            };
            runtime.wait(both, || watch.next())
        }
    };
    watch.pause();
    if let Some(result) = result?.flatten() {
        return Ok(Ok(result));
    }
    // Work of the statement on other threads ends too.
    token.cancel();
    if watch.is_committing.load(Ordering::SeqCst)
        && let Some(result) = runtime.wait(future, || watch.next_while_committing())?
    {
        return Ok(Ok(result));
    }
    Ok(Err(if watch.has_timed_out { QueryError::Timeout } else { QueryError::Cancelled }))
}

/// Rows of a query, as an iterator of batches. Dropping it ends the query.
pub struct Rows {
    schema: SchemaRef,
    source: Source,
    has_ended: bool,
}

enum Source {
    /// Batches that were computed before.
    Ready(std::vec::IntoIter<RecordBatch>),
    /// Batches that the query computes while they are read.
    Running(Box<RunningQuery>),
}

/// A running query, with the runtime and the limits for computing its batches.
struct RunningQuery {
    stream: SendableRecordBatchStream,
    runtime: Arc<Background>,
    watch: Watch,
    /// Whether the plan may be nested deeply. The stream is then polled on a large stack.
    needs_large_stack: bool,
    /// Ends running computations when the rows are dropped.
    _guard: DropGuard,
}

impl Rows {
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        runtime: Arc<Background>,
        watch: Watch,
        needs_large_stack: bool,
    ) -> Self {
        let schema = stream.schema();
        let guard = watch.token().drop_guard();
        let running = RunningQuery { stream, runtime, watch, needs_large_stack, _guard: guard };
        Self { schema, source: Source::Running(Box::new(running)), has_ended: false }
    }

    pub(crate) fn from_batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, source: Source::Ready(batches.into_iter()), has_ended: false }
    }

    /// The columns of the rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        let RunningQuery { stream, watch, runtime, needs_large_stack, .. } = match &mut self.source {
            Source::Ready(batches) => return Ok(batches.next()),
            Source::Running(running) => running.as_mut(),
        };
        let next = poll_with_stack(*needs_large_stack, stream.next());
        let next = run_until_cancelled(runtime, watch, next)??;
        Ok(next.transpose().map_err(QueryError::from)?)
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.next_batch().transpose();
        // No batch is meaningful after an error.
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Debug for Rows {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rows({})", self.schema)
    }
}
