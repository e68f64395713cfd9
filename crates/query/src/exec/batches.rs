//! Record batches of the caller as a table, and a task context with another configuration.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;

use crate::error::Result;

/// Iterator over record batches, which produces them on demand.
pub type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send>;

/// Returns a logical plan that reads the batches of iterators. Each iterator is one partition and runs on its own
/// thread. The plan can run only once.
///
/// # Errors
/// If DataFusion cannot create a plan for the schema.
pub fn scan_batches(schema: SchemaRef, partitions: Vec<Batches>) -> Result<LogicalPlan> {
    let partition = |batches| {
        let partition = CallerBatches { schema: Arc::clone(&schema), batches: Mutex::new(Some(batches)) };
        Arc::new(partition) as Arc<dyn PartitionStream>
    };
    let partitions = partitions.into_iter().map(partition).collect();
    let table = StreamingTable::try_new(Arc::clone(&schema), partitions)?;
    Ok(LogicalPlanBuilder::scan("batches", provider_as_source(Arc::new(table)), None)?.build()?)
}

/// Returns a copy of a task context with another session configuration.
pub(crate) fn with_config(context: &TaskContext, config: SessionConfig) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

struct CallerBatches {
    schema: SchemaRef,
    batches: Mutex<Option<Batches>>,
}

impl Debug for CallerBatches {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "CallerBatches({})", self.schema)
    }
}

impl PartitionStream for CallerBatches {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        /// Maximum number of batches that are produced ahead of the reader.
        const BATCHES_AHEAD: usize = 4;
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), BATCHES_AHEAD);
        let sender = builder.tx();
        let batches = self.batches.lock().take();
        builder.spawn_blocking(move || {
            let Some(batches) = batches else {
                return Err(DataFusionError::Execution("batches of a caller can be read once".to_owned()));
            };
            for batch in batches {
                let failed = batch.is_err();
                // `blocking_send` fails if the statement was cancelled or another part of it has failed.
                if sender.blocking_send(batch.map_err(DataFusionError::from)).is_err() || failed {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}
