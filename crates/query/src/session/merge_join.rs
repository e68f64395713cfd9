//! Joins that do not fit in memory.
//!
//! A hash join keeps the rows of one side in memory and cannot spill. Where they do not fit it fails before it has
//! returned a row, and the statement is planned again with merge joins, whose sorts do spill.

use std::time::Duration;

use async_stream::try_stream;
use datafusion::common::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::error::{QueryError, Result};

/// Milliseconds that memory is waited for.
const WAITS_MAX: usize = 200;

/// The state, with merge joins in place of hash joins.
pub(super) fn preferring_merge_joins(mut state: SessionState) -> SessionState {
    state.config_mut().options_mut().optimizer.prefer_hash_join = false;
    state
}

/// Whether a statement failed because there was no memory left for it.
pub(super) fn is_out_of_memory(error: &QueryError) -> bool {
    matches!(error, QueryError::Engine(error) if is_exhausted(error))
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Waits a moment until operators that have ended have given back their memory: those of other tasks end after the one that
/// failed. Statements that run beside this one go on holding theirs.
pub(super) async fn memory_is_back(runtime: &RuntimeEnv) {
    for _ in 0..WAITS_MAX {
        if runtime.memory_pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The rows of a plan, or of what `again` plans where memory is exhausted before the first row.
pub(super) fn or_again<F>(
    mut rows: SendableRecordBatchStream,
    again: impl FnOnce() -> F + Send + 'static,
) -> SendableRecordBatchStream
where
    F: Future<Output = Result<SendableRecordBatchStream>> + Send,
{
    let schema = rows.schema();
    let stream = try_stream! {
        let mut first = rows.next().await;
        if matches!(&first, Some(Err(error)) if is_exhausted(error)) {
            // What the operators hold is given back before others ask for it.
            drop(rows);
            rows = again().await.map_err(|error| match error {
                QueryError::Engine(error) => error,
                other => DataFusionError::External(Box::new(other)),
            })?;
            first = rows.next().await;
        }
        if let Some(first) = first {
            yield first?;
            while let Some(batch) = rows.next().await {
                yield batch?;
            }
        }
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}
