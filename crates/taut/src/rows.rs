//! The rows of a query, as they are computed.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use taut_query::QueryError;
use tokio::sync::watch;

use crate::Error;
use crate::database::Background;

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

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Runs to the end of a future, or to the cancellation of its session.
pub(crate) async fn unless_cancelled<T>(
    cancelled: &mut watch::Receiver<u64>,
    future: impl Future<Output = T>,
) -> Result<T, QueryError> {
    tokio::select! {
        biased;
        Ok(()) = cancelled.changed() => Err(QueryError::Cancelled),
        result = future => Ok(result),
    }
}

/// The rows of a query, batch by batch. Dropping it ends the query.
pub struct Rows {
    stream: SendableRecordBatchStream,
    runtime: Arc<Background>,
    cancelled: watch::Receiver<u64>,
    may_be_deep: bool,
    is_over: bool,
}

impl Rows {
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        runtime: Arc<Background>,
        cancelled: watch::Receiver<u64>,
        may_be_deep: bool,
    ) -> Self {
        Self { stream, runtime, cancelled, may_be_deep, is_over: false }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, Error> {
        let Self { stream, cancelled, .. } = self;
        let next = self.runtime.block_on(self.may_be_deep, unless_cancelled(cancelled, stream.next()))??;
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
        write!(formatter, "Rows({})", self.stream.schema())
    }
}
