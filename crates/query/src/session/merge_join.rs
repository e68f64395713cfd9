//! Falls back to merge joins if hash joins do not fit in memory.
//!
//! A hash join holds the rows of one side in memory and cannot spill. If they do not fit, it fails before it has
//! returned a row. The statement is then planned again with merge joins, whose sorts can spill.

use std::time::Duration;

use async_stream::try_stream;
use datafusion::common::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::error::{QueryError, Result};

/// Maximum number of waits for memory, of one millisecond each.
const WAITS_MAX: usize = 200;

/// Returns the state with a preference for merge joins over hash joins.
pub(super) fn with_merge_joins_preferred(mut state: SessionState) -> SessionState {
    state.config_mut().options_mut().optimizer.prefer_hash_join = false;
    state
}

/// Whether a statement failed for lack of memory.
pub(super) fn is_out_of_memory(error: &QueryError) -> bool {
    matches!(error, QueryError::Engine(error) if is_exhausted(error))
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Waits briefly until the failed operators have released their memory. Operators in other tasks end after the operator
/// that reported the error. The wait is limited, because concurrent statements do not release their memory.
pub(super) async fn wait_for_memory(runtime: &RuntimeEnv) {
    for _ in 0..WAITS_MAX {
        if runtime.memory_pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the rows of a plan. If memory runs out before the first batch, returns the rows of the plan that `replan`
/// starts.
pub(super) fn with_merge_join_fallback<F>(
    mut rows: SendableRecordBatchStream,
    replan: impl FnOnce() -> F + Send + 'static,
) -> SendableRecordBatchStream
where
    F: Future<Output = Result<SendableRecordBatchStream>> + Send,
{
    let schema = rows.schema();
    let stream = try_stream! {
        let mut first = rows.next().await;
        if matches!(&first, Some(Err(error)) if is_exhausted(error)) {
            // Releases the memory of the old operators before the new ones reserve memory.
            drop(rows);
            rows = replan().await.map_err(|error| match error {
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
