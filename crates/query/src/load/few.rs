//! Few rows: they are not worth a block, and go to the table's delta.

use std::fmt::{self, Debug, Formatter};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use futures::stream::Fuse;
use parking_lot::Mutex;
use taut_store::Table;

use super::blocks::string_bytes;
use crate::conform::Conform;

/// Rows that are few, and bytes of them.
const ROWS_MAX: usize = 4_096;
const BYTES_MAX: u64 = 4 << 20;
/// Batches of a partition that wait to be looked at.
const BUFFERED_BATCHES: usize = 1;

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

/// Looks at the rows of a plan, until they are many. Those of a partition stay together.
pub(super) async fn gather(
    input: &Arc<dyn ExecutionPlan>,
    table: &Table,
    context: &Arc<TaskContext>,
) -> Result<Gathered> {
    let conform = Conform::of_table(&input.schema(), table)?;
    let mut parts = Parts::of(input, context)?;
    let mut conformed = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    while let Some((part, batch)) = parts.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        bytes += batch.columns().iter().map(string_bytes).sum::<u64>();
        let is_many = rows > ROWS_MAX || bytes > BYTES_MAX;
        if !is_many {
            conformed.push(conform.batch(&batch)?);
        }
        parts.0[part].seen.push(batch);
        if is_many {
            let schema = input.schema();
            let once = parts.0.into_iter().map(|part| part.whole(&schema)).collect();
            return Ok(Gathered::Many(Arc::new(StreamingTableExec::try_new(schema, once, None, [], false, None)?)));
        }
    }
    conformed.retain(|batch| batch.num_rows() > 0);
    Ok(Gathered::Few(conformed))
}

/// A partition of rows that are looked at.
struct Part {
    seen: Vec<RecordBatch>,
    /// Those behind them.
    rest: Fuse<SendableRecordBatchStream>,
}

impl Part {
    /// All of its rows.
    fn whole(self, schema: &SchemaRef) -> Arc<dyn PartitionStream> {
        let all = futures::stream::iter(self.seen.into_iter().map(Ok)).chain(self.rest);
        let rows: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), all));
        Arc::new(Once { schema: Arc::clone(schema), rows: Mutex::new(Some(rows)) })
    }
}

/// All partitions.
struct Parts(Vec<Part>);

impl Parts {
    fn of(input: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Self> {
        let count = input.output_partitioning().partition_count();
        let part = |partition| {
            let rows = input.execute(partition, Arc::clone(context))?;
            // Several run beside each other.
            let rows = if count > 1 { spawn_buffered(rows, BUFFERED_BATCHES) } else { rows };
            Ok(Part { seen: Vec::new(), rest: rows.fuse() })
        };
        Ok(Self((0..count).map(part).collect::<Result<_>>()?))
    }

    /// The next batch of any, and of which; `None` behind the last of all.
    async fn next(&mut self) -> Option<(usize, Result<RecordBatch>)> {
        poll_fn(|context| {
            let mut is_done = true;
            for (place, part) in self.0.iter_mut().enumerate() {
                match part.rest.poll_next_unpin(context) {
                    Poll::Ready(Some(batch)) => return Poll::Ready(Some((place, batch))),
                    Poll::Ready(None) => {}
                    Poll::Pending => is_done = false,
                }
            }
            if is_done { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
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
