//! The rows of a query, as they are computed.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
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
}

impl Watch {
    pub fn new(handle: &CancelHandle, wait: Option<WaitCallback>) -> Self {
        Self { token: handle.statement(), wait, asked_next: Instant::now() + ASKED_EVERY }
    }

    /// What the operators of the statement look at.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// What who waits for the statement is to do.
    fn next(&mut self) -> Next {
        if self.token.is_cancelled() {
            return Next::Stop;
        }
        let Some(goes_on) = &self.wait else { return Next::Wait(None) };
        if Instant::now() >= self.asked_next {
            if !goes_on() {
                return Next::Stop;
            }
            self.asked_next = Instant::now() + ASKED_EVERY;
        }
        Next::Wait(Some(self.asked_next))
    }
}

/// Runs to the end of a future, or to the cancellation of its session.
///
/// # Errors
/// When this thread waits for another already, and runs this one by a callback of that.
pub(crate) fn unless_cancelled<T>(
    runtime: &Background,
    watch: &mut Watch,
    future: impl Future<Output = T>,
) -> Result<Result<T, QueryError>, Error> {
    let token = watch.token();
    // Polled for its wakes: who waits looks at the token itself.
    let cancelled = token.clone().cancelled_owned();
    let both = async {
        tokio::select! {
            biased;
            () = cancelled => None,
            result = future => Some(result),
        }
    };
    let result = runtime.wait(both, || watch.next())?.flatten();
    Ok(result.ok_or_else(|| {
        // What the statement computes on other threads ends too.
        token.cancel();
        QueryError::Cancelled
    }))
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
