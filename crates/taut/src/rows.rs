//! The rows of a query, as they are computed.

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
use crate::database::{Background, with_stack};
use crate::waiting::Next;

/// Cancels what a session runs, from any thread.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<Mutex<CancellationToken>>);

impl CancelHandle {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Cancels the statement that runs now, and the rows that are being read; later statements are not concerned.
    pub fn cancel(&self) {
        std::mem::take(&mut *self.0.lock()).cancel();
    }

    fn statement(&self) -> CancellationToken {
        self.0.lock().child_token()
    }
}

/// Is asked, on the thread that waits for a statement or for its rows, whether it goes on.
pub type WaitCallback = Arc<dyn Fn() -> bool + Send + Sync>;

/// How often it is asked.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// What ends a statement early.
pub(crate) struct Watch {
    /// Is cancelled with the session's statements, by the callback, and when nobody waits any more.
    token: CancellationToken,
    wait: Option<WaitCallback>,
    /// When the callback is asked next. Short waits that follow each other count together.
    asked_next: Instant,
    /// Time that the statement may still take. Only the time in which this thread waits for it counts, so that a slow reader
    /// of its rows is not cancelled.
    time_left: Option<Duration>,
    /// When `time_left` is over, while this thread waits.
    deadline: Option<Instant>,
    is_late: bool,
    /// Whether the statement has begun to commit. It is then waited for, because its changes may be there.
    is_settled: Arc<AtomicBool>,
}

impl Watch {
    pub fn new(handle: &CancelHandle, wait: Option<WaitCallback>, limit: Option<Duration>) -> Self {
        let asked_next = Instant::now() + ASKED_EVERY;
        Self {
            token: handle.statement(),
            wait,
            asked_next,
            time_left: limit,
            deadline: None,
            is_late: false,
            is_settled: Arc::default(),
        }
    }

    /// Becomes true when the statement begins to commit.
    pub fn is_settled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_settled)
    }

    /// What the operators of the statement look at.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    fn resume(&mut self) {
        self.deadline = self.time_left.map(|left| Instant::now() + left);
    }

    fn pause(&mut self) {
        if let Some(deadline) = self.deadline.take() {
            self.time_left = Some(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// What who waits for the statement is to do.
    fn next(&mut self) -> Next {
        if self.token.is_cancelled() {
            return Next::Stop;
        }
        if self.wait.is_none() && self.deadline.is_none() {
            return Next::Wait(None);
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.is_late = true;
            return Next::Stop;
        }
        let Some(goes_on) = &self.wait else { return Next::Wait(self.deadline) };
        if now >= self.asked_next {
            if !goes_on() {
                return Next::Stop;
            }
            self.asked_next = Instant::now() + ASKED_EVERY;
        }
        let asked_next = self.asked_next;
        Next::Wait(Some(self.deadline.map_or(asked_next, |deadline| deadline.min(asked_next))))
    }

    /// What a thread is to do that waits for a cancelled statement.
    fn next_if_settled(&self) -> Next {
        match self.is_settled.load(Ordering::SeqCst) {
            true => Next::Wait(Some(Instant::now() + ASKED_EVERY)),
            false => Next::Stop,
        }
    }
}

/// Runs to the end of a future, to the cancellation of its session, or to the end of its time.
///
/// # Errors
/// When this thread waits for another already, and runs this one by a callback of that.
pub(crate) fn unless_cancelled<T>(
    runtime: &Background,
    watch: &mut Watch,
    future: impl Future<Output = T>,
) -> Result<Result<T, QueryError>, Error> {
    let token = watch.token();
    let mut future = pin!(future);
    watch.resume();
    let result = match watch.next() {
        // The future may never have to wait.
        Next::Stop => Ok(None),
        Next::Wait(_) => {
            // Polled for its wakes: who waits looks at the token itself.
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
    // What the statement computes on other threads ends too.
    token.cancel();
    if watch.is_settled.load(Ordering::SeqCst)
        && let Some(result) = runtime.wait(future, || watch.next_if_settled())?
    {
        return Ok(Ok(result));
    }
    Ok(Err(if watch.is_late { QueryError::Timeout } else { QueryError::Cancelled }))
}

/// The rows of a query, batch by batch. Dropping it ends the query.
pub struct Rows {
    schema: SchemaRef,
    source: Source,
    is_over: bool,
}

enum Source {
    /// They are there.
    Ready(std::vec::IntoIter<RecordBatch>),
    Computed(Box<Computed>),
}

/// Rows that are computed as they are read.
struct Computed {
    stream: SendableRecordBatchStream,
    runtime: Arc<Background>,
    watch: Watch,
    may_be_deep: bool,
    /// Ends what still computes when the rows are dropped.
    _guard: DropGuard,
}

impl Rows {
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        runtime: Arc<Background>,
        watch: Watch,
        may_be_deep: bool,
    ) -> Self {
        let schema = stream.schema();
        let guard = watch.token().drop_guard();
        let computed = Computed { stream, runtime, watch, may_be_deep, _guard: guard };
        Self { schema, source: Source::Computed(Box::new(computed)), is_over: false }
    }

    pub(crate) fn ready(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, source: Source::Ready(batches.into_iter()), is_over: false }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, Error> {
        let Computed { stream, watch, runtime, may_be_deep, .. } = match &mut self.source {
            Source::Ready(batches) => return Ok(batches.next()),
            Source::Computed(computed) => computed.as_mut(),
        };
        let next = with_stack(*may_be_deep, stream.next());
        let next = unless_cancelled(runtime, watch, next)??;
        Ok(next.transpose().map_err(QueryError::from)?)
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.read().transpose();
        // After an error nothing sensible follows.
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Debug for Rows {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rows({})", self.schema)
    }
}
