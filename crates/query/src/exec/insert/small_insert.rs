//! Small inserts: their rows go to the delta of the table, because they are too few for a block.

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

use crate::write::blocks::string_bytes;
use crate::write::coerce::Coercion;

/// Maximum rows of a small insert, and maximum bytes of its strings.
const ROWS_MAX: usize = 4_096;
const BYTES_MAX: u64 = 4 << 20;
/// Maximum number of batches that are read ahead from each input partition.
const BUFFERED_BATCHES: usize = 1;

/// Rows of a plan, after some or all have been read.
pub(super) enum BufferedInput {
    /// All rows, in the types of the table.
    FitsInDelta(Vec<RecordBatch>),
    /// Plan that returns all rows. It can run only once.
    TooLarge(Arc<dyn ExecutionPlan>),
}

/// Whether a batch is small enough for the delta.
pub fn fits_in_delta(rows: &RecordBatch) -> bool {
    rows.num_rows() <= ROWS_MAX && rows.columns().iter().map(string_bytes).sum::<u64>() <= BYTES_MAX
}

/// Whether a plan may return few enough rows for the delta, according to its statistics. False for a table whose design
/// ([`TableDesign`](taut_types::TableDesign)) prescribes encodings: its rows go straight to blocks, which check whether
/// the rows fit the encodings.
pub(super) fn may_fit_in_delta(input: &Arc<dyn ExecutionPlan>, table: &Table) -> bool {
    let statistics = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new());
    let rows = statistics.ok().and_then(|statistics| statistics.num_rows.get_value().copied());
    table.design.encodings.is_empty() && rows.is_none_or(|rows| rows <= ROWS_MAX)
}

/// Reads the rows of a plan until its end, or until they are too many for the delta. The rows stay in their partitions.
pub(super) async fn buffer_input(
    input: &Arc<dyn ExecutionPlan>,
    table: &Table,
    context: &Arc<TaskContext>,
) -> Result<BufferedInput> {
    let coercion = Coercion::for_table(&input.schema(), table)?.in_zone(context.session_config().options());
    let mut readers = PartitionReaders::open(input, context)?;
    let mut coerced = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    while let Some((partition, batch)) = readers.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        bytes += batch.columns().iter().map(string_bytes).sum::<u64>();
        let is_too_large = rows > ROWS_MAX || bytes > BYTES_MAX;
        if !is_too_large {
            coerced.push((partition, coercion.coerce(&batch)?));
        }
        readers.0[partition].buffered.push(batch);
        if is_too_large {
            let schema = input.schema();
            let partitions = readers.0.into_iter().map(|reader| reader.into_partition_stream(&schema)).collect();
            return Ok(BufferedInput::TooLarge(Arc::new(StreamingTableExec::try_new(
                schema,
                partitions,
                None,
                [],
                false,
                None,
            )?)));
        }
    }
    coerced.retain(|(_, batch)| batch.num_rows() > 0);
    // Orders the batches by partition. The sort is stable, so the batches of one partition stay in order.
    coerced.sort_by_key(|(partition, _)| *partition);
    Ok(BufferedInput::FitsInDelta(coerced.into_iter().map(|(_, batch)| batch).collect()))
}

/// An input partition that is being read.
struct PartitionReader {
    buffered: Vec<RecordBatch>,
    /// Rows that follow the rows in `buffered`.
    rest: Fuse<SendableRecordBatchStream>,
}

impl PartitionReader {
    /// Returns all rows of the partition: first `buffered`, then `rest`.
    fn into_partition_stream(self, schema: &SchemaRef) -> Arc<dyn PartitionStream> {
        let all = futures::stream::iter(self.buffered.into_iter().map(Ok)).chain(self.rest);
        let rows: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), all));
        Arc::new(OneShotPartition { schema: Arc::clone(schema), rows: Mutex::new(Some(rows)) })
    }
}

/// All partitions of a plan.
struct PartitionReaders(Vec<PartitionReader>);

impl PartitionReaders {
    fn open(input: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Self> {
        let count = input.output_partitioning().partition_count();
        let open = |partition| {
            let rows = input.execute(partition, Arc::clone(context))?;
            // Several partitions run in parallel.
            let rows = if count > 1 { spawn_buffered(rows, BUFFERED_BATCHES) } else { rows };
            Ok(PartitionReader { buffered: Vec::new(), rest: rows.fuse() })
        };
        Ok(Self((0..count).map(open).collect::<Result<_>>()?))
    }

    /// Returns the next batch of any partition, with the index of the partition. Returns `None` after the last batch
    /// of the last partition.
    async fn next(&mut self) -> Option<(usize, Result<RecordBatch>)> {
        poll_fn(|context| {
            let mut is_done = true;
            for (index, reader) in self.0.iter_mut().enumerate() {
                match reader.rest.poll_next_unpin(context) {
                    Poll::Ready(Some(batch)) => return Poll::Ready(Some((index, batch))),
                    Poll::Ready(None) => {}
                    Poll::Pending => is_done = false,
                }
            }
            if is_done { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

/// Partition whose rows can be read only once.
struct OneShotPartition {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl Debug for OneShotPartition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "OneShotPartition")
    }
}

impl PartitionStream for OneShotPartition {
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
