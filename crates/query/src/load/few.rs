//! Few rows: they are not worth a block, and go to the table's delta.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use parking_lot::Mutex;
use taut_store::Table;

use super::blocks::string_bytes;
use crate::conform::Conform;

/// Rows that are few, and bytes of them.
const ROWS_MAX: usize = 4_096;
const BYTES_MAX: u64 = 4 << 20;

/// The rows of a plan, once some have been looked at.
pub(super) enum Gathered {
    /// All of them, in the types of the table.
    Few(Vec<RecordBatch>),
    /// A plan that gives all of them, once.
    Many(Arc<dyn ExecutionPlan>),
}

/// Whether rows are few.
pub fn is_few(rows: &RecordBatch) -> bool {
    rows.num_rows() <= ROWS_MAX && rows.columns().iter().map(string_bytes).sum::<u64>() <= BYTES_MAX
}

/// Whether the rows of a plan may be few, as far as it is known. Those of a table that asks for encodings go to blocks at
/// once, which say whether they admit them.
pub(super) fn may_be_few(input: &Arc<dyn ExecutionPlan>, table: &Table) -> bool {
    let statistics = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new());
    let rows = statistics.ok().and_then(|statistics| statistics.num_rows.get_value().copied());
    table.design.encodings.is_empty() && rows.is_none_or(|rows| rows <= ROWS_MAX)
}

/// Looks at the rows of a plan, until they are many.
pub(super) async fn gather(
    input: &Arc<dyn ExecutionPlan>,
    table: &Table,
    context: &Arc<TaskContext>,
) -> Result<Gathered> {
    let conform = Conform::of_table(&input.schema(), table)?;
    let single: Arc<dyn ExecutionPlan> = match input.output_partitioning().partition_count() {
        1 => Arc::clone(input),
        _ => Arc::new(CoalescePartitionsExec::new(Arc::clone(input))),
    };
    let mut stream = single.execute(0, Arc::clone(context))?;
    let (mut seen, mut conformed) = (Vec::new(), Vec::new());
    let (mut rows, mut bytes) = (0, 0);
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        bytes += batch.columns().iter().map(string_bytes).sum::<u64>();
        if rows <= ROWS_MAX && bytes <= BYTES_MAX {
            conformed.push(conform.batch(&batch)?);
            seen.push(batch);
            continue;
        }
        seen.push(batch);
        let schema = input.schema();
        let all = futures::stream::iter(seen.into_iter().map(Ok)).chain(stream);
        let rows: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), all));
        let once = Arc::new(Once { schema: Arc::clone(&schema), rows: Mutex::new(Some(rows)) });
        return Ok(Gathered::Many(Arc::new(StreamingTableExec::try_new(schema, vec![once], None, [], false, None)?)));
    }
    conformed.retain(|batch| batch.num_rows() > 0);
    Ok(Gathered::Few(conformed))
}

/// Rows that can be read once.
struct Once {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl Debug for Once {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Once")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        match self.rows.lock().take() {
            Some(rows) => rows,
            None => {
                let error = datafusion::common::internal_datafusion_err!("rows are read a second time");
                Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter([Err(error)])))
            }
        }
    }
}
