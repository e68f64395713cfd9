//! Merges the rows of all partitions of a plan into one stream.
//!
//! ```text
//!   partition 1 --task--> [ | | | ] --+
//!   partition 2 --task--> [       ] --+--> reader: reads what is ready,
//!   partition 0 -----------------------+    else computes partition 0 itself
//! ```
//!
//! There are as many partitions as processors. If each partition ran in a task, the reading thread would displace one
//! of these tasks whenever it wakes for a batch. In short queries, these switches would take most of the time.
//!
//! Only plans that pass on the rows of a scan are merged in this way. Their partitions take segments from one queue and
//! do not wait for each other. They soon return a batch or yield, so the reader can check for cancellation. A partition
//! of a join could compute for minutes without yielding. Furthermore, the reader does not poll partition 0 while other
//! partitions have rows ready. Rows that a repartitioning operator sends to partition 0 would pile up.

use std::panic::resume_unwind;
use std::sync::Arc;

use async_stream::try_stream;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use datafusion_common_runtime::JoinSet;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinError;

/// Maximum number of batches that wait to be read, per partition. With this buffer, partitions can continue while the
/// reader computes.
const WAITING_MAX: usize = 2;

/// Starts a plan that passes on the rows of a scan. Returns the rows of all partitions, in no particular order.
/// Dropping the stream stops the plan.
///
/// # Errors
/// If a partition cannot be started.
pub(super) fn execute_merged(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let partitions = plan.output_partitioning().partition_count();
    if partitions < 2 {
        return execute_stream(Arc::clone(plan), Arc::clone(context));
    }
    let mut first_partition = Some(plan.execute(0, Arc::clone(context))?);
    let (sender, mut ready) = mpsc::channel(WAITING_MAX * partitions);
    let mut other_partitions = JoinSet::new();
    for partition in 1..partitions {
        let (sender, mut stream) = (sender.clone(), plan.execute(partition, Arc::clone(context))?);
        other_partitions.spawn(async move {
            while let Some(batch) = stream.next().await {
                let is_last = batch.is_err();
                // The receiver is gone if the stream was dropped.
                if sender.send(batch).await.is_err() || is_last {
                    return;
                }
            }
        });
    }
    drop(sender);
    let stream = try_stream! {
        loop {
            let next = tokio::select! {
                biased;
                Some(batch) = ready.recv() => Some(batch),
                Some(ended) = other_partitions.join_next() => {
                    match ended.map_err(JoinError::try_into_panic) {
                        Ok(()) => continue,
                        Err(Ok(panic)) => resume_unwind(panic),
                        Err(Err(error)) => Some(Err(DataFusionError::External(Box::new(error)))),
                    }
                }
                batch = next_batch(&mut first_partition), if first_partition.is_some() => batch,
                else => break,
            };
            match next {
                Some(batch) => yield batch?,
                // Releases the resources of the partition.
                None => first_partition = None,
            }
        }
    };
    Ok(Box::pin(RecordBatchStreamAdapter::new(plan.schema(), stream)))
}

async fn next_batch(stream: &mut Option<SendableRecordBatchStream>) -> Option<Result<RecordBatch>> {
    match stream {
        Some(stream) => stream.next().await,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

    use super::*;

    /// Partition that yields a hundred numbers from `first` on, one per batch. It then ends as `end` specifies.
    #[derive(Debug)]
    struct Numbers {
        schema: SchemaRef,
        first: i64,
        end: End,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        Finished,
        Never,
        Error,
        Panic,
    }

    impl PartitionStream for Numbers {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let (schema, first, end) = (Arc::clone(&self.schema), self.first, self.end);
            let numbers = try_stream! {
                for number in first..first + 100 {
                    let column = Arc::new(Int64Array::from(vec![number]));
                    yield RecordBatch::try_new(Arc::clone(&schema), vec![column])?;
                    tokio::task::yield_now().await;
                }
                assert!(end != End::Panic, "the panic of the test");
                if end == End::Never {
                    futures::future::pending::<()>().await;
                }
                if end == End::Error {
                    Err(DataFusionError::Execution("the error of the test".to_owned()))?;
                }
            };
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), numbers))
        }
    }

    async fn run(ends: &[End]) -> Result<Vec<i64>> {
        let schema = Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]));
        let partition = |(index, end): (usize, &End)| {
            let numbers = Numbers { schema: Arc::clone(&schema), first: 100 * index as i64, end: *end };
            Arc::new(numbers) as Arc<dyn PartitionStream>
        };
        let partitions = ends.iter().enumerate().map(partition).collect();
        let plan = StreamingTableExec::try_new(Arc::clone(&schema), partitions, None, [], false, None)?;
        let mut stream = execute_merged(&(Arc::new(plan) as _), &Arc::default())?;
        let mut found = vec![];
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            let column = batch.column(0).as_any().downcast_ref::<Int64Array>();
            found.extend(column.iter().flat_map(|column| column.values().iter().copied()));
        }
        Ok(found)
    }

    #[tokio::test]
    async fn all_rows_of_all_partitions_arrive() {
        for partitions in 1..5 {
            let mut found = run(&vec![End::Finished; partitions]).await.unwrap();
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..100 * partitions as i64), "{partitions}");
        }
    }

    #[tokio::test]
    async fn an_error_of_any_partition_arrives() {
        for index in 0..3 {
            let mut ends = [End::Never; 3];
            ends[index] = End::Error;
            let error = run(&ends).await.unwrap_err();
            assert_eq!(error.strip_backtrace(), "Execution error: the error of the test");
        }
    }

    #[tokio::test]
    async fn a_panic_of_any_partition_arrives() {
        for index in 0..3 {
            // The other partitions never end, so the stream must not wait for them.
            let mut ends = [End::Never; 3];
            ends[index] = End::Panic;
            let ended = tokio::spawn(async move { run(&ends).await }).await;
            assert!(ended.unwrap_err().is_panic(), "{index}");
        }
    }
}
