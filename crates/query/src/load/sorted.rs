//! The order of rows that a load writes.
//!
//! ```text
//! input partitions ──> as they come, looked at ──> blocks      while each row is in order
//!                                  │
//!                                  └ the first row that is not: what was written is dropped
//! input partitions, again ──> sort ──> merge ──> blocks
//! ```
//!
//! Data that is loaded into a sorted table mostly comes sorted. To see it costs a comparison of neighbours, and saves a
//! sort that takes several times what the rest of the load does, and all of the rows in memory.

use std::cmp::Ordering;
use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{Array, ArrayRef, make_comparator};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::compute::kernels::cmp;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::Stream;
use parking_lot::Mutex;
use taut_types::SortColumn;

use super::{Conformed, Rows, Target, with_config};

/// Rows of a batch on its way through a sort: a merge looks at each of the batches it holds for each that it makes, so
/// that few large ones take less than many small ones.
const BATCH_ROWS_MAX: usize = 65_536;
/// Bytes of such a batch, about: a sort that spills holds one of each run.
const BATCH_BYTES: u64 = 4 << 20;
/// What a string takes, about.
const STRING_BYTES: u64 = 32;

/// How the rows of a load come to be in the order of its table.
#[derive(Clone, Debug)]
pub(super) enum InputOrder {
    /// The table has none.
    Any,
    /// The plan that yields the rows is made to yield them in order, by an order that they have or by a sort.
    Required(SortKey),
    /// Rows are written as they come, and sorted if they are found not to be in order.
    Watched(SortKey),
    /// Rows are sorted here, in the types of the table.
    Sorted(SortKey),
}

impl InputOrder {
    pub fn of(target: &Target, input: &Arc<dyn ExecutionPlan>) -> Self {
        let Some(key) = SortKey::of(&target.design().sort_by) else { return Self::Any };
        let (from, to) = (input.schema(), target.schema().arrow());
        let type_of = |schema: &SchemaRef, place: usize| schema.fields().get(place).map(|f| f.data_type().clone());
        // Text is in another order than the numbers that it becomes.
        let is_cast = key.0.iter().any(|(place, _)| type_of(&from, *place) != type_of(&to, *place));
        if can_rerun(input) {
            Self::Watched(key)
        } else if is_cast {
            Self::Sorted(key)
        } else {
            Self::Required(key)
        }
    }
}

/// The columns that rows are sorted by, by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortKey(Vec<(usize, SortOptions)>);

impl SortKey {
    /// That of a design, or `None` where it keeps no order.
    fn of(sort_by: &[SortColumn]) -> Option<Self> {
        let options = |sort: &SortColumn| SortOptions { descending: sort.descending, nulls_first: sort.nulls_first };
        let columns: Vec<_> = sort_by.iter().map(|sort| (sort.column.index(), options(sort))).collect();
        (!columns.is_empty()).then_some(Self(columns))
    }

    /// The order of rows that have these columns.
    pub fn ordering(&self, schema: &SchemaRef) -> Option<LexOrdering> {
        LexOrdering::new(self.0.iter().map(|(place, options)| {
            let expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(*place).name(), *place));
            PhysicalSortExpr { expr, options: *options }
        }))
    }

    /// Whether each row of a batch is at or behind the one before it.
    fn ascends(&self, batch: &RecordBatch) -> Result<bool> {
        let Some(pairs) = batch.num_rows().checked_sub(1).filter(|pairs| *pairs > 0) else { return Ok(true) };
        // Neighbours that are equal in the columns so far.
        let mut tied = BooleanBuffer::new_set(pairs);
        for (place, options) in &self.0 {
            let column = batch.column(*place);
            let (before, after) = (column.slice(0, pairs), column.slice(1, pairs));
            let (wrong, same) = if column.logical_null_count() == 0 {
                let wrong = if options.descending { cmp::lt(&before, &after) } else { cmp::gt(&before, &after) };
                (wrong?.values().clone(), cmp::eq(&before, &after)?.values().clone())
            } else {
                let compare = make_comparator(&before, &after, *options)?;
                let is = |wanted| BooleanBuffer::collect_bool(pairs, |pair| compare(pair, pair) == wanted);
                (is(Ordering::Greater), is(Ordering::Equal))
            };
            if (&wrong & &tied).count_set_bits() > 0 {
                return Ok(false);
            }
            tied = &same & &tied;
            if tied.count_set_bits() == 0 {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn row(&self, batch: &RecordBatch, row: usize) -> KeyRow {
        self.0.iter().map(|(place, _)| batch.column(*place).slice(row, 1)).collect()
    }

    /// Whether a row is at or behind another.
    fn follows(&self, row: &[ArrayRef], before: &[ArrayRef]) -> Result<bool> {
        for ((before, row), (_, options)) in before.iter().zip(row).zip(&self.0) {
            match make_comparator(before, row, *options)?(0, 0) {
                Ordering::Less => return Ok(true),
                Ordering::Equal => {}
                Ordering::Greater => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// How an attempt to write rows as they come ends where they are not in order.
#[derive(Debug)]
struct OutOfOrder;

impl fmt::Display for OutOfOrder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("rows are not in the order of the table")
    }
}

impl std::error::Error for OutOfOrder {}

fn out_of_order() -> DataFusionError {
    DataFusionError::External(Box::new(OutOfOrder))
}

/// Whether an attempt failed by nothing but the order of rows.
pub(super) fn is_out_of_order(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(error) if error.is::<OutOfOrder>())
}

/// A row's values in the columns of a sort key, as arrays of one value.
type KeyRow = Vec<ArrayRef>;

/// The first and the last row of each partition, which follow each other if all rows are in order.
#[derive(Debug)]
pub(super) struct Ends {
    key: SortKey,
    rows: Mutex<Vec<Option<(KeyRow, KeyRow)>>>,
}

impl Ends {
    pub fn new(key: SortKey, partitions: usize) -> Arc<Self> {
        Arc::new(Self { key, rows: Mutex::new(vec![None; partitions]) })
    }

    /// The rows of a partition, which end with an error at the first batch that is not in order.
    pub fn watch(self: &Arc<Self>, partition: usize, rows: Conformed) -> Conformed {
        Box::pin(Watched { ends: Arc::clone(self), partition, rows })
    }

    fn check(&self, partition: usize, batch: &RecordBatch) -> Result<()> {
        let Some(last) = batch.num_rows().checked_sub(1) else { return Ok(()) };
        if !self.key.ascends(batch)? {
            return Err(out_of_order());
        }
        let (first, last) = (self.key.row(batch, 0), self.key.row(batch, last));
        let mut rows = self.rows.lock();
        rows[partition] = match rows[partition].take() {
            None => Some((first, last)),
            Some((_, before)) if !self.key.follows(&first, &before)? => return Err(out_of_order()),
            Some((begin, _)) => Some((begin, last)),
        };
        Ok(())
    }

    /// Checks that each partition follows the one before.
    ///
    /// # Errors
    /// When one does not.
    pub fn check_partitions(&self) -> Result<()> {
        let rows = self.rows.lock();
        let partitions: Vec<_> = rows.iter().flatten().collect();
        for pair in partitions.windows(2) {
            if !self.key.follows(&pair[1].0, &pair[0].1)? {
                return Err(out_of_order());
            }
        }
        Ok(())
    }
}

struct Watched {
    ends: Arc<Ends>,
    partition: usize,
    rows: Conformed,
}

impl Stream for Watched {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = ready!(self.rows.as_mut().poll_next(context)).transpose()?;
        if let Some(batch) = &batch {
            self.ends.check(self.partition, batch)?;
        }
        Poll::Ready(batch.map(Ok))
    }
}

/// Whether a plan yields its rows by partitions that follow each other, and again when it is run again: of files, and of
/// rows that a statement lists.
pub(super) fn can_rerun(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let source = scan.data_source();
        return source.downcast_ref::<FileScanConfig>().is_some()
            || source.downcast_ref::<MemorySourceConfig>().is_some();
    }
    let passes = plan.downcast_ref::<ProjectionExec>().is_some()
        || plan.downcast_ref::<FilterExec>().is_some()
        || plan.downcast_ref::<CooperativeExec>().is_some();
    passes && plan.children().into_iter().all(can_rerun)
}

/// All rows in one stream, sorted.
pub(super) fn sorted(key: &SortKey, rows: &Arc<Rows>, context: Arc<TaskContext>) -> Result<Conformed> {
    let schema = rows.conform.target();
    let Some(ordering) = key.ordering(schema) else {
        return datafusion::common::internal_err!("a sort key has a column");
    };
    let partition = |partition| Arc::new(Partition { rows: Arc::clone(rows), partition }) as Arc<dyn PartitionStream>;
    let partitions = (0..rows.input.output_partitioning().partition_count()).map(partition).collect();
    let unsorted = Arc::new(StreamingTableExec::try_new(Arc::clone(schema), partitions, None, [], false, None)?);
    let batch_rows = batch_rows(rows).max(context.session_config().batch_size());
    let config = context.session_config().clone().with_batch_size(batch_rows);
    let context = with_config(&context, config);
    let sorted = Arc::new(SortExec::new(ordering.clone(), unsorted).with_preserve_partitioning(true));
    let merged = SortPreservingMergeExec::new(ordering, sorted);
    Ok(Box::pin(merged.execute(0, context)?))
}

fn batch_rows(rows: &Rows) -> usize {
    let bytes = |column: &taut_types::Column| column.logical_type.plain_bytes().map_or(STRING_BYTES, |b| b as u64);
    let row_bytes: u64 = rows.schema.columns().iter().map(bytes).sum();
    usize::try_from(BATCH_BYTES / row_bytes.max(1)).map_or(BATCH_ROWS_MAX, |rows| rows.min(BATCH_ROWS_MAX))
}

/// A partition of the rows of a load, in the types of its table.
struct Partition {
    rows: Arc<Rows>,
    partition: usize,
}

impl Debug for Partition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Partition({})", self.partition)
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        self.rows.conform.target()
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(self.schema());
        match self.rows.partition(self.partition, context) {
            Ok(rows) => Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
            Err(error) => Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter([Err(error)]))),
        }
    }
}
