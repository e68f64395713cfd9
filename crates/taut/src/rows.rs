//! The rows of a query, as they are computed.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use taut_query::QueryError;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Error;
use crate::database::{Background, with_stack};

/// Cancels what a session runs, from any thread.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<watch::Sender<u64>>);

impl CancelHandle {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Cancels the statement that runs now, and the rows that are being read; later statements are not concerned.
    pub fn cancel(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Is asked, on the thread that waits for a statement or for its rows, whether it goes on.
pub type WaitCallback = Arc<dyn Fn() -> bool + Send + Sync>;

/// How often it is asked.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// What ends a statement early.
#[derive(Clone)]
pub(crate) struct Watch {
    cancelled: watch::Receiver<u64>,
    wait: Option<WaitCallback>,
    /// When the callback is asked next. Short waits that follow each other count together.
    asked_next: Instant,
}

impl Watch {
    pub fn new(handle: &CancelHandle, wait: Option<WaitCallback>) -> Self {
        Self { cancelled: handle.0.subscribe(), wait, asked_next: Instant::now() + ASKED_EVERY }
    }

    /// Ends when the statement is to.
    async fn ended(&mut self) {
        let Self { cancelled, wait, asked_next } = self;
        let stopped = async {
            let Some(goes_on) = wait else { return std::future::pending().await };
            loop {
                tokio::time::sleep_until(*asked_next).await;
                if !goes_on() {
                    return;
                }
                *asked_next = Instant::now() + ASKED_EVERY;
            }
        };
        tokio::select! {
            // A handle that is gone cancels nothing.
            Ok(()) = cancelled.changed() => {}
            () = stopped => {}
        }
    }
}

/// Runs to the end of a future, or to the cancellation of its session.
pub(crate) async fn unless_cancelled<T>(watch: &mut Watch, future: impl Future<Output = T>) -> Result<T, QueryError> {
    tokio::select! {
        biased;
        () = watch.ended() => Err(QueryError::Cancelled),
        result = future => Ok(result),
    }
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
}

impl Rows {
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        runtime: Arc<Background>,
        watch: Watch,
        may_be_deep: bool,
    ) -> Self {
        let schema = stream.schema();
        let computed = Computed { stream, runtime, watch, may_be_deep };
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
        let Computed { stream, watch, runtime, may_be_deep } = match &mut self.source {
            Source::Ready(batches) => return Ok(batches.next()),
            Source::Computed(computed) => computed.as_mut(),
        };
        let next = with_stack(*may_be_deep, stream.next());
        let next = runtime.block_on(unless_cancelled(watch, next))??;
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
