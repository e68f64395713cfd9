//! Writes the rows of a load in the sort order of the table.
//!
//! ```text
//! input partitions ──> checked as they arrive ──> blocks      while each row is in order
//!                                  │
//!                                  └ the first row out of order: the written blocks are dropped
//! input partitions, again ──> sort ──> merge ──> blocks
//! ```
//!
//! Each partition is checked separately. Partitions are then ordered by their first rows.
//!
//! Data that is loaded into a sorted table is mostly sorted already. The check compares each row with the row before
//! it. It saves a sort, which takes several times as long as the rest of the load and needs memory for all rows.

use std::cmp::Ordering;
use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};
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
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use futures::Stream;
use parking_lot::Mutex;
use taut_store::Table;
use taut_types::SortColumn;

use super::{LoadInput, Target};
use crate::exec::batches::with_config;
use crate::exec::scan::ScanSource;
use crate::write::blocks::CoercedStream;

/// Maximum rows of a batch in a sort, for tables without strings. For each output batch, a merge visits all batches
/// that it holds, so a few large batches are faster than many small ones.
const BATCH_ROWS_MAX: usize = 65_536;
/// Maximum bytes of such a batch. A sort that spills holds four batches, and reserves 10 MiB for them.
const BATCH_BYTES_MAX: usize = 2 << 20;

/// How the rows of a load are brought into the order of the table.
#[derive(Clone, Debug)]
pub(super) enum InputOrder {
    /// The table has no sort order.
    Any,
    /// The planner ensures that the input returns its rows in order, with a sort if necessary. The input has one
    /// partition, or several that follow one another.
    Required(SortKey),
    /// Rows are written as they arrive. If a row is out of order, all rows are read again and sorted.
    Checked(SortKey),
    /// Rows are sorted after conversion to the types of the table.
    Sorted(SortKey),
}

impl InputOrder {
    pub fn for_input(target: &Target, input: &Arc<dyn ExecutionPlan>) -> Self {
        let Some(key) = SortKey::new(&target.design().sort_by) else { return Self::Any };
        let (from, to) = (input.schema(), target.schema().arrow());
        let type_of = |schema: &SchemaRef, index: usize| schema.fields().get(index).map(|f| f.data_type().clone());
        // Strings have another order than the numbers that they are cast to. Generated columns have no values yet.
        let is_cast = key.0.iter().any(|(index, _)| type_of(&from, *index) != type_of(&to, *index))
            || target.has_generated(key.0.iter().map(|(index, _)| *index));
        if can_rerun(input) {
            Self::Checked(key)
        } else if is_cast || reads_files(input) {
            // A file may declare an order that is valid only within each part of the file.
            Self::Sorted(key)
        } else {
            Self::Required(key)
        }
    }

    /// Input order for a plan from [`with_table_order`], whose rows are in order already.
    pub fn required(target: &Target) -> Self {
        SortKey::new(&target.design().sort_by).map_or(Self::Any, Self::Required)
    }

    /// Input order for a plan that is not optimized further. Equals [`InputOrder::for_input`], but the load itself
    /// sorts the rows where the planner would add a sort.
    pub fn for_physical_plan(target: &Target, input: &Arc<dyn ExecutionPlan>) -> Self {
        match Self::for_input(target, input) {
            Self::Required(key) => Self::Sorted(key),
            other => other,
        }
    }
}

/// Columns of a sort order, as ordinals, with their options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortKey(Vec<(usize, SortOptions)>);

impl SortKey {
    /// Returns the sort key of a table, or `None` if the table has no sort order.
    fn new(sort_by: &[SortColumn]) -> Option<Self> {
        let options = |sort: &SortColumn| SortOptions { descending: sort.descending, nulls_first: sort.nulls_first };
        let columns: Vec<_> = sort_by.iter().map(|sort| (sort.column.index(), options(sort))).collect();
        (!columns.is_empty()).then_some(Self(columns))
    }

    /// Returns the key as expressions on the columns of `schema`, which begins with the columns of the table.
    pub fn ordering(&self, schema: &SchemaRef) -> Option<LexOrdering> {
        self.ordering_with_offset(0, schema)
    }

    /// Returns the key as expressions on the columns of `schema`, in which the columns of the table start at ordinal
    /// `offset`.
    fn ordering_with_offset(&self, offset: usize, schema: &SchemaRef) -> Option<LexOrdering> {
        LexOrdering::new(self.0.iter().map(|(index, options)| {
            let index = offset + index;
            let expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(index).name(), index));
            PhysicalSortExpr { expr, options: *options }
        }))
    }

    /// Whether each row of a batch sorts at or after the row before it.
    fn is_sorted(&self, batch: &RecordBatch) -> Result<bool> {
        let Some(pairs) = batch.num_rows().checked_sub(1).filter(|pairs| *pairs > 0) else { return Ok(true) };
        // Pairs of neighbouring rows that are equal in the columns compared so far.
        let mut tied = BooleanBuffer::new_set(pairs);
        for (index, options) in &self.0 {
            let column = batch.column(*index);
            let (before, after) = (column.slice(0, pairs), column.slice(1, pairs));
            let (descends, same) = if column.logical_null_count() == 0 {
                let descends = if options.descending { cmp::lt(&before, &after) } else { cmp::gt(&before, &after) };
                (descends?.values().clone(), cmp::eq(&before, &after)?.values().clone())
            } else {
                let compare = make_comparator(&before, &after, *options)?;
                let pairs_with = |wanted| BooleanBuffer::collect_bool(pairs, |pair| compare(pair, pair) == wanted);
                (pairs_with(Ordering::Greater), pairs_with(Ordering::Equal))
            };
            if (&descends & &tied).count_set_bits() > 0 {
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
        self.0.iter().map(|(index, _)| batch.column(*index).slice(row, 1)).collect()
    }

    /// Whether `row` sorts at or after `before`.
    fn is_at_or_after(&self, row: &[ArrayRef], before: &[ArrayRef]) -> Result<bool> {
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

/// Error of a load that writes rows as they arrive: a row is out of order.
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

/// Whether a load failed only because its rows are out of order.
pub(super) fn is_out_of_order(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(error) if error.is::<OutOfOrder>())
}

/// Values of a row in the columns of a sort key, as arrays of one value.
type KeyRow = Vec<ArrayRef>;

/// First and last row of each input partition. Partitions are ordered by these rows.
#[derive(Debug)]
pub(super) struct PartitionEnds {
    key: SortKey,
    rows: Mutex<Vec<Option<(KeyRow, KeyRow)>>>,
    /// Set when a partition is out of order, so that the other partitions stop.
    has_failed: AtomicBool,
}

impl PartitionEnds {
    pub fn new(key: SortKey, partitions: usize) -> Arc<Self> {
        Arc::new(Self { key, rows: Mutex::new(vec![None; partitions]), has_failed: AtomicBool::new(false) })
    }

    /// Wraps the rows of a partition in a stream that fails at the first batch that is out of order.
    pub fn check_order(self: &Arc<Self>, partition: usize, rows: CoercedStream) -> CoercedStream {
        Box::pin(OrderCheckedStream { ends: Arc::clone(self), partition, rows })
    }

    fn check(&self, partition: usize, batch: &RecordBatch) -> Result<()> {
        if self.has_failed.load(atomic::Ordering::Relaxed) || !self.is_in_order_after(partition, batch)? {
            self.has_failed.store(true, atomic::Ordering::Relaxed);
            return Err(out_of_order());
        }
        Ok(())
    }

    fn is_in_order_after(&self, partition: usize, batch: &RecordBatch) -> Result<bool> {
        let Some(last) = batch.num_rows().checked_sub(1) else { return Ok(true) };
        if !self.key.is_sorted(batch)? {
            return Ok(false);
        }
        let (first, last) = (self.key.row(batch, 0), self.key.row(batch, last));
        let mut rows = self.rows.lock();
        let (begin, is_in_order) = match rows[partition].take() {
            Some((begin, before)) => (begin, self.key.is_at_or_after(&first, &before)?),
            None => (first, true),
        };
        rows[partition] = Some((begin, last));
        Ok(is_in_order)
    }

    /// Concatenates the results of the partitions, in the order of their rows.
    ///
    /// # Errors
    /// If rows of one partition sort between rows of another.
    pub fn concatenate<T>(&self, mut parts: Vec<Vec<T>>) -> Result<Vec<T>> {
        let rows = self.rows.lock();
        let mut order: Vec<(usize, &(KeyRow, KeyRow))> = Vec::with_capacity(parts.len());
        for (partition, ends) in rows.iter().enumerate().filter_map(|(index, ends)| Some((index, ends.as_ref()?))) {
            let mut at = order.len();
            while at > 0 && !self.key.is_at_or_after(&ends.0, &order[at - 1].1.0)? {
                at -= 1;
            }
            order.insert(at, (partition, ends));
        }
        for pair in order.windows(2) {
            if !self.key.is_at_or_after(&pair[1].1.0, &pair[0].1.1)? {
                return Err(out_of_order());
            }
        }
        Ok(order.into_iter().flat_map(|(partition, _)| std::mem::take(&mut parts[partition])).collect())
    }
}

struct OrderCheckedStream {
    ends: Arc<PartitionEnds>,
    partition: usize,
    rows: CoercedStream,
}

impl Stream for OrderCheckedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = ready!(self.rows.as_mut().poll_next(context)).transpose()?;
        if let Some(batch) = &batch {
            self.ends.check(self.partition, batch)?;
        }
        Poll::Ready(batch.map(Ok))
    }
}

/// Whether a plan returns its rows in partitions that follow each other, and returns the same rows when it runs again.
/// True for files and for rows listed in the statement. False if a volatile function computes one of their columns, for
/// example `nextval` in a default.
pub(super) fn can_rerun(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let source = scan.data_source();
        return source.downcast_ref::<FileScanConfig>().is_some()
            || source.downcast_ref::<MemorySourceConfig>().is_some();
    }
    let is_repeatable = match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => !projection.expr().iter().any(|item| is_volatile(&item.expr)),
        None => match plan.downcast_ref::<FilterExec>() {
            Some(filter) => !is_volatile(filter.predicate()),
            None => plan.downcast_ref::<CooperativeExec>().is_some(),
        },
    };
    is_repeatable && plan.children().into_iter().all(can_rerun)
}

/// Returns a plan with the same rows in the sort order of a table, in one partition or in several that follow one
/// another. The columns of the table start at ordinal `offset`. Returns `None` if a scan of the whole table cannot
/// provide the order. Also returns `None` if the order depends on generated columns, which are computed later.
///
/// # Errors
/// If DataFusion cannot compute the plan.
pub(crate) fn with_table_order(
    plan: &Arc<dyn ExecutionPlan>,
    table: &Table,
    offset: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_generated = |sort: &SortColumn| table.constraints.generated.contains_key(&sort.column);
    if table.design.sort_by.iter().any(is_generated) {
        return Ok(None);
    }
    let key = SortKey::new(&table.design.sort_by);
    let Some(ordering) = key.and_then(|key| key.ordering_with_offset(offset, &plan.schema())) else { return Ok(None) };
    let Some(stored) = fully_scanned_table(plan) else { return Ok(None) };
    let SortOrderPushdownResult::Exact { inner } = plan.try_pushdown_sort(&ordering)? else { return Ok(None) };
    // A single sort run is divided between partitions at block boundaries; several sort runs overlap.
    let is_one_run = stored.runs.len() <= 1;
    Ok(Some(if is_one_run { inner } else { Arc::new(SortPreservingMergeExec::new(ordering, inner)) }))
}

/// Returns the table if a plan reads all its rows, partition by partition. Returns `None` if an operator redistributes
/// rows, which would lose the order. Also returns `None` for a scan with conditions, which may leave few rows: threads
/// then share the work better without an order.
fn fully_scanned_table(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Table>> {
    match (plan.downcast_ref::<DataSourceExec>(), plan.children().as_slice()) {
        (Some(scan), _) => {
            let source = scan.data_source().downcast_ref::<ScanSource>()?;
            (!source.has_conditions()).then(|| Arc::clone(source.table().stored()))
        }
        (None, [input]) => {
            let is_row_wise =
                plan.downcast_ref::<ProjectionExec>().is_some() || plan.downcast_ref::<CooperativeExec>().is_some();
            if is_row_wise { fully_scanned_table(input) } else { None }
        }
        (None, _) => None,
    }
}

fn reads_files(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let scan = plan.downcast_ref::<DataSourceExec>();
    scan.is_some_and(|scan| scan.data_source().downcast_ref::<FileScanConfig>().is_some())
        || plan.children().into_iter().any(reads_files)
}

/// Returns all rows sorted, in one stream.
pub(super) fn sort_rows(key: &SortKey, rows: &Arc<LoadInput>, context: Arc<TaskContext>) -> Result<CoercedStream> {
    let schema = &rows.coercion.schema;
    let Some(ordering) = key.ordering(schema) else {
        return datafusion::common::internal_err!("the sort key has no columns");
    };
    let partition =
        |partition| Arc::new(LoadPartition { rows: Arc::clone(rows), partition }) as Arc<dyn PartitionStream>;
    let partitions = (0..rows.input.output_partitioning().partition_count()).map(partition).collect();
    let unsorted = Arc::new(StreamingTableExec::try_new(Arc::clone(schema), partitions, None, [], false, None)?);
    let mut config = context.session_config().clone();
    // Only the default batch size is changed, not one that the user has set.
    if config.batch_size() == SessionConfig::new().batch_size() {
        let pool = context.memory_pool().memory_limit();
        config = config.clone().with_batch_size(batch_rows(rows, &pool).max(config.batch_size()));
    }
    let context = with_config(&context, config);
    let sorted = Arc::new(SortExec::new(ordering.clone(), unsorted).with_preserve_partitioning(true));
    let merged = SortPreservingMergeExec::new(ordering, sorted);
    Ok(Box::pin(merged.execute(0, context)?))
}

fn batch_rows(rows: &LoadInput, pool: &MemoryLimit) -> usize {
    let widths = rows.schema.columns().iter().map(|column| column.logical_type.plain_bytes());
    let Some(row_bytes) = widths.sum::<Option<usize>>() else { return 0 };
    let partitions = rows.input.output_partitioning().partition_count();
    let bytes = match pool {
        MemoryLimit::Finite(bytes) => BATCH_BYTES_MAX.min(bytes / (16 * partitions.max(1))),
        MemoryLimit::Infinite | MemoryLimit::Unknown => BATCH_BYTES_MAX,
    };
    (bytes / row_bytes.max(1)).min(BATCH_ROWS_MAX)
}

/// A partition of the rows of a load, in the types of the table.
struct LoadPartition {
    rows: Arc<LoadInput>,
    partition: usize,
}

impl Debug for LoadPartition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Partition({})", self.partition)
    }
}

impl PartitionStream for LoadPartition {
    fn schema(&self) -> &SchemaRef {
        &self.rows.coercion.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(self.schema());
        match self.rows.partition(self.partition, context) {
            Ok(rows) => Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
            Err(error) => Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter([Err(error)]))),
        }
    }
}
