//! The scan that DataFusion plans: its columns, pushed filters, limit and order, and the properties of its output.

use std::any::Any;
use std::fmt::{self, Formatter};
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics};
use datafusion::datasource::source::{DataSource, DataSourceExec, OpenArgs};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion::physical_plan::{DisplayFormatType, Partitioning, PhysicalExpr};
use taut_types::ColumnPredicate;

use super::morsels::WorkQueue;
use super::order::{SortedBlocks, satisfies_order};
use super::predicate::{map_columns, translate};
use super::runs::ScanRuns;
use super::stream;
use crate::exec::scan::TautTable;

/// A scan of one table in one snapshot.
#[derive(Clone, Debug)]
pub struct ScanSource {
    pub(super) table: Arc<TautTable>,
    /// Indexes of the output columns in the table, in order. `output` has their names. The index after the last column
    /// stands for row ids.
    pub(super) columns: Arc<[usize]>,
    pub(super) output: SchemaRef,
    /// Conditions over the table's columns, dynamic filters included. The scan returns only rows that pass all of them.
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Number of rows after which a partition of the scan may stop.
    pub(super) limit: Option<usize>,
    pub(super) distribution: Distribution,
    pub(super) metrics: ExecutionPlanMetricsSet,
    partitions: usize,
    /// Estimated share of rows that pass the conditions known at planning. `None` without conditions.
    selectivity: Option<f64>,
    ordering: Option<LexOrdering>,
}

/// Distribution of the work among the partitions of the scan, which run in parallel.
#[derive(Clone, Debug)]
pub(super) enum Distribution {
    /// Any partition takes the next segment or page, until none remains.
    Shared,
    /// Any partition takes the next page. Another operator reads the blocks.
    Pages,
    /// Each partition reads its blocks in order. There are no pages.
    Ordered(Arc<[Range<usize>]>),
}

/// Returns the [`ScanSource`] of an operator that scans a stored table; `None` for other operators.
pub fn scan_source(plan: &Arc<dyn ExecutionPlan>) -> Option<&ScanSource> {
    plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<ScanSource>()
}

impl ScanSource {
    /// Builds a scan of some columns of a table that returns the rows that pass all filters.
    ///
    /// # Errors
    /// If a column does not exist.
    pub fn try_new(
        table: Arc<TautTable>,
        columns: Vec<usize>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        selectivity: Option<f64>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let output = Arc::new(table.output(&columns)?);
        Ok(Self {
            table,
            columns: columns.into(),
            output,
            filters,
            limit,
            distribution: Distribution::Shared,
            metrics: ExecutionPlanMetricsSet::new(),
            partitions: partitions.max(1),
            selectivity,
            ordering: None,
        })
    }

    /// Returns the same scan with other column names.
    pub fn with_output(self, output: &SchemaRef) -> Self {
        Self { output: Arc::clone(output), ..self }
    }

    /// The table that the scan reads.
    pub fn table(&self) -> &Arc<TautTable> {
        &self.table
    }

    /// Whether the scan filters rows.
    pub fn has_conditions(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Column predicates that all returned rows pass, as far as they are known at planning. Empty if none are known.
    pub fn predicates_at_planning(&self) -> Vec<ColumnPredicate> {
        let known: Vec<_> = self.filters.iter().filter(|filter| !is_dynamic(filter)).cloned().collect();
        let predicate = translate(&known, &self.table.stored().schema, &self.table.arrow(), None);
        predicate.map(|predicate| predicate.column_predicates).unwrap_or_default()
    }

    /// Whether any partition may read any segment, and all segments are read.
    pub(super) fn is_unordered(&self) -> bool {
        matches!(self.distribution, Distribution::Shared) && self.limit.is_none() && self.ordering.is_none()
    }

    /// Whether several partitions share the work of the scan, and return rows in any order.
    pub fn is_shared(&self) -> bool {
        matches!(self.distribution, Distribution::Shared) && self.partitions > 1
    }

    /// Whether the scan has at most one segment or page, so that one partition returns all rows.
    pub fn has_one_morsel(&self) -> bool {
        let table = self.table.stored();
        let segments = table.blocks.iter().map(|block| block.entry().segments as usize).sum::<usize>();
        segments + table.delta.pages().len() <= 1
    }

    /// Returns the same scan, restricted to delta pages.
    pub(super) fn pages_only(&self) -> Self {
        Self { distribution: Distribution::Pages, ..self.clone() }
    }

    /// Whether the output has row ids.
    pub(super) fn has_row_ids(&self) -> bool {
        self.columns.iter().any(|column| self.table.is_row_id(*column))
    }

    /// Converts an output column to a column of the table. Returns `None` for the row ids, which no condition can use.
    pub fn table_column(&self, column: &Column) -> Option<Column> {
        let index = self.columns.get(column.index()).copied().filter(|index| !self.table.is_row_id(*index))?;
        Some(Column::new(self.table.arrow().field(index).name(), index))
    }

    /// Whether an expression over the output reads only stored columns.
    fn reads_only_stored_columns(&self, expression: &Arc<dyn PhysicalExpr>) -> bool {
        collect_columns(expression).iter().all(|column| self.table_column(column).is_some())
    }

    fn fmt_details(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let table = self.table.stored();
        write!(
            formatter,
            "table={}, layout={}, blocks={}",
            table.name,
            table.design.layout.name(),
            table.blocks.len()
        )?;
        for (name, rows) in [("delta_rows", table.delta.rows()), ("deleted", table.delta.deleted_block_rows())] {
            if rows > 0 {
                write!(formatter, ", {name}={rows}")?;
            }
        }
        let names: Vec<_> = self.output.fields().iter().map(|field| field.name().as_str()).collect();
        write!(formatter, ", columns=[{}]", names.join(", "))?;
        if !self.filters.is_empty() {
            let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
            write!(formatter, ", filter={}", filters.join(" AND "))?;
        }
        if let Some(limit) = self.limit {
            write!(formatter, ", limit={limit}")?;
        }
        if let Some(ordering) = &self.ordering {
            write!(formatter, ", ordering=[{ordering}]")?;
        }
        Ok(())
    }
}

impl DataSource for ScanSource {
    fn open(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.open_with_args(OpenArgs::new(partition, context))
    }

    fn create_sibling_state(&self, _config: &ConfigOptions) -> Option<Arc<dyn Any + Send + Sync>> {
        let table = self.table.stored();
        match self.distribution {
            Distribution::Shared => Some(Arc::new(WorkQueue::all(table))),
            Distribution::Pages => Some(Arc::new(WorkQueue::pages(table))),
            Distribution::Ordered(_) => None,
        }
    }

    fn open_with_args(&self, args: OpenArgs) -> Result<SendableRecordBatchStream> {
        let table = self.table.stored();
        let shared = args.sibling_state.and_then(|state| state.downcast::<WorkQueue>().ok());
        let runs = args.context.session_config().get_extension::<ScanRuns>();
        let queue = match (&self.distribution, shared) {
            (Distribution::Shared, _) if let Some(runs) = runs => Arc::new(runs.take(table)),
            (Distribution::Shared | Distribution::Pages, Some(queue)) => queue,
            // Opened without shared state: the first partition does all the work.
            (Distribution::Shared, None) if args.partition == 0 => Arc::new(WorkQueue::all(table)),
            (Distribution::Pages, None) if args.partition == 0 => Arc::new(WorkQueue::pages(table)),
            (Distribution::Shared | Distribution::Pages, None) => Arc::new(WorkQueue::empty()),
            (Distribution::Ordered(ranges), _) => {
                Arc::new(WorkQueue::new(table, ranges.get(args.partition).cloned().unwrap_or(0..0)))
            }
        };
        Ok(stream::open(self, queue, args.partition, args.context))
    }

    fn fmt_as(&self, format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => self.fmt_details(formatter),
            DisplayFormatType::TreeRender => {
                let table = self.table.stored();
                writeln!(formatter, "table={}", table.name)?;
                writeln!(formatter, "layout={}", table.design.layout.name())
            }
        }
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.partitions)
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        let mut properties = EquivalenceProperties::new_with_orderings(Arc::clone(&self.output), self.ordering.clone());
        // A projection pushed into the scan may select a column twice.
        for (index, column) in self.columns.iter().enumerate() {
            let Some(first) = self.columns[..index].iter().position(|other| other == column) else { continue };
            let output = |index: usize| Arc::new(Column::new(self.output.field(index).name(), index));
            // Equal columns cannot contradict an ordering.
            let _ = properties.add_equal_conditions(output(first), output(index));
        }
        properties
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let reads_blocks = !matches!(self.distribution, Distribution::Pages);
        let all_rows = if reads_blocks { self.table.rows() } else { self.table.stored().delta.rows() };
        let is_exact = reads_blocks && self.filters.is_empty() && self.limit.is_none() && partition.is_none();
        let mut columns: Vec<_> = self.columns.iter().map(|column| self.table.column_statistics(*column)).collect();
        let mut rows = all_rows as f64 * self.selectivity.unwrap_or(1.0);
        if partition.is_some() {
            rows /= self.partitions as f64;
        }
        let rows = self.limit.map_or(rows, |limit| rows.min(limit as f64)).ceil() as usize;
        let row_bytes: f64 = self.columns.iter().map(|column| self.table.row_bytes(*column)).sum();
        let total_byte_size = Precision::Inexact((rows as f64 * row_bytes) as usize);
        if is_exact {
            let num_rows = Precision::Exact(usize::try_from(all_rows).unwrap_or(usize::MAX));
            return Ok(Arc::new(Statistics { num_rows, total_byte_size, column_statistics: columns }));
        }
        for column in &mut columns {
            *column = column.clone().to_inexact();
            column.null_count = column.null_count.min(&Precision::Inexact(rows));
            column.distinct_count = column.distinct_count.min(&Precision::Inexact(rows));
        }
        Ok(Arc::new(Statistics { num_rows: Precision::Inexact(rows), total_byte_size, column_statistics: columns }))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        Some(Arc::new(Self { limit, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.metrics.clone()
    }

    /// Absorbs a projection that only selects, renames and reorders columns.
    fn try_swapping_with_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn DataSource>>> {
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for item in projection.iter() {
            let Some(column) = item.expr.downcast_ref::<Column>() else { return Ok(None) };
            columns.push(self.columns[column.index()]);
            fields.push(self.output.field(column.index()).clone().with_name(&item.alias));
        }
        if self.ordering.is_some() {
            return Ok(None);
        }
        let output = Arc::new(ArrowSchema::new(fields));
        Ok(Some(Arc::new(Self { columns: columns.into(), output, ..self.clone() })))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let mut source = self.clone();
        let mut answers = Vec::with_capacity(filters.len());
        for filter in &filters {
            if self.has_row_ids() && !self.reads_only_stored_columns(filter) {
                answers.push(PushedDown::No);
                continue;
            }
            answers.push(PushedDown::Yes);
            let mapped = map_columns(filter, |column| self.table_column(column))?;
            source.filters.push(mapped);
        }
        // The selectivity of a dynamic filter is not known yet. The filter is accepted anyway. Otherwise a sort between
        // the scan and a join would evaluate the join's filter, and compare floating point bit by bit. Scans do not
        // compare in this way: see `predicate.rs`.
        let pushed = filters.iter().zip(&answers).filter(|(_, answer)| matches!(answer, PushedDown::Yes));
        if pushed.into_iter().any(|(filter, _)| !is_dynamic(filter)) {
            const FILTER_SELECTIVITY: f64 = 0.2;
            source.selectivity = Some(source.selectivity.unwrap_or(1.0) * FILTER_SELECTIVITY);
        }
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        Ok(propagation.with_updated_node(Arc::new(source) as Arc<dyn DataSource>))
    }

    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn DataSource>>> {
        let stored = self.table.stored();
        let partitions = Some(stored)
            .filter(|stored| stored.delta.has_no_pages())
            .and_then(|stored| SortedBlocks::from_table(stored))
            .filter(|_| satisfies_order(&stored.design.sort_by, order, &self.columns))
            .and_then(|sorted| sorted.partitions(self.partitions));
        let Some(partitions) = partitions else { return Ok(SortOrderPushdownResult::Unsupported) };
        let source = Self {
            partitions: partitions.len(),
            distribution: Distribution::Ordered(partitions.into()),
            ordering: LexOrdering::new(order.to_vec()),
            ..self.clone()
        };
        Ok(SortOrderPushdownResult::Exact { inner: Arc::new(source) })
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // A hash join fills its dynamic filter only if it finds the filter in a visit of the scan.
        for filter in &self.filters {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

/// Whether an expression contains a dynamic filter, which a join, sort or aggregation fills while the query runs.
fn is_dynamic(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.exists(|node| Ok(node.downcast_ref::<DynamicFilterPhysicalExpr>().is_some())).unwrap_or(true)
}
