//! `TautAggregateExec`, the operator of partial aggregation inside a scan.

use std::fmt::{self, Formatter};
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};

use super::super::morsels::WorkQueue;
use super::super::source::{ScanSource, scan_source};
use super::keys::SHARED_INDEXES_MAX;
use super::plan::{AggregatePlan, ReplaceableAggregate, find_replaceable, groups_estimate};
use super::stream::{self, PartitionWork};

/// Maximum estimated groups. With more, DataFusion aggregates.
const GROUPS_MAX: f64 = (SHARED_INDEXES_MAX / 8) as f64;
/// Number of groups up to which the scan aggregates, however few rows a group has.
const GROUPS_ALWAYS: f64 = 4096.0;
/// Minimum average rows per group for which looking up each group once per segment pays off.
const GROUP_ROWS_MIN: f64 = 8.0;

/// A partial aggregation that reads the segments of a table itself.
#[derive(Debug)]
pub struct TautAggregateExec {
    /// The replaced aggregation.
    replaced: Arc<AggregateExec>,
    plan: Arc<AggregatePlan>,
    /// The scan, as a description of what to read. It is never executed.
    scan: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    /// Remaining segments, shared by all partitions.
    queue: OnceLock<Arc<WorkQueue>>,
    /// The replaced aggregation over the rows of the table's delta pages.
    page_aggregate: OnceLock<Arc<dyn ExecutionPlan>>,
    metrics: ExecutionPlanMetricsSet,
}

impl TautAggregateExec {
    /// Returns the replacement for the root of a plan, or `None` if this operator cannot replace it. If the root
    /// computes the final aggregation too, the replacement has a final aggregation above this operator.
    ///
    /// # Errors
    /// If DataFusion cannot build the final aggregation.
    pub fn try_replace(root: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(aggregate) = root.downcast_ref::<AggregateExec>() else { return Ok(None) };
        let Some(ReplaceableAggregate { plan, scan }) = find_replaceable(aggregate) else { return Ok(None) };
        let Some(source) = scan_source(&scan) else { return Ok(None) };
        let stored = source.table().stored();
        if stored.blocks.is_empty() && !stored.delta.has_no_pages() {
            return Ok(None);
        }
        let groups = groups_estimate(source.table(), &plan.keys);
        let groups_max = GROUPS_ALWAYS.max(stored.block_rows() as f64 / GROUP_ROWS_MIN).min(GROUPS_MAX);
        if !plan.keys.is_empty() && groups > groups_max {
            return Ok(None);
        }
        if *aggregate.mode() == AggregateMode::Partial {
            return Ok(Some(Arc::new(Self::new(Arc::new(aggregate.clone()), Arc::new(plan), scan))));
        }
        let partial = Arc::new(AggregateExec::try_new(
            AggregateMode::Partial,
            aggregate.group_expr().clone(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            Arc::clone(aggregate.input()),
            aggregate.input_schema(),
        )?);
        let mode = match aggregate.mode() {
            AggregateMode::Single => AggregateMode::Final,
            _ => AggregateMode::FinalPartitioned,
        };
        let replacement = AggregateExec::try_new(
            mode,
            aggregate.group_expr().as_final(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            Arc::new(Self::new(partial, Arc::new(plan), scan)),
            aggregate.input_schema(),
        )?;
        let is_same = replacement.schema() == aggregate.schema();
        Ok(is_same.then(|| Arc::new(replacement) as Arc<dyn ExecutionPlan>))
    }

    fn new(replaced: Arc<AggregateExec>, plan: Arc<AggregatePlan>, scan: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::clone(replaced.properties());
        let metrics = ExecutionPlanMetricsSet::new();
        Self { replaced, plan, scan, properties, queue: OnceLock::new(), page_aggregate: OnceLock::new(), metrics }
    }

    /// Returns DataFusion's aggregation of the rows in delta pages, which all partitions share. Returns `None` if there
    /// are no delta pages.
    fn page_aggregate(&self, source: &ScanSource) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if source.table().stored().delta.has_no_pages() {
            return Ok(None);
        }
        if let Some(known) = self.page_aggregate.get() {
            return Ok(Some(Arc::clone(known)));
        }
        // Other rules may have added conditions to the scan since this operator was built. Only `source` has all of
        // them.
        let scan = DataSourceExec::from_data_source(source.pages_only());
        let replaced = Arc::clone(&self.replaced) as Arc<dyn ExecutionPlan>;
        let page_aggregate = replaced.transform_up(|node| {
            Ok(match scan_source(&node) {
                Some(_) => Transformed::yes(Arc::clone(&scan) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })?;
        Ok(Some(Arc::clone(self.page_aggregate.get_or_init(|| page_aggregate.data))))
    }
}

impl DisplayAs for TautAggregateExec {
    fn fmt_as(&self, format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        let keys = self.replaced.group_expr().expr().iter();
        let keys: Vec<String> = keys.map(|(expression, name)| key_label(&expression.to_string(), name)).collect();
        let functions: Vec<&str> = self.replaced.aggr_expr().iter().map(|function| function.name()).collect();
        let (keys, functions) = (keys.join(", "), functions.join(", "));
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(formatter, "TautAggregate: gby=[{keys}], aggr=[{functions}]")
            }
            DisplayFormatType::TreeRender => {
                if !keys.is_empty() {
                    writeln!(formatter, "group_by={keys}")?;
                }
                writeln!(formatter, "aggr={functions}")
            }
        }
    }
}

fn key_label(expression: &str, name: &str) -> String {
    format!("{expression} as {name}")
}

impl ExecutionPlan for TautAggregateExec {
    fn name(&self) -> &str {
        "TautAggregate"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.scan]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(scan), None) if scan_source(&scan).is_some() => {
                Ok(Arc::new(Self::new(Arc::clone(&self.replaced), Arc::clone(&self.plan), scan)))
            }
            _ => internal_err!("an aggregation of Taut has one input, a scan"),
        }
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.replaced.apply_expressions(visit)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(source) = scan_source(&self.scan) else { return internal_err!("an aggregation of Taut reads a scan") };
        let segments = self.queue.get_or_init(|| Arc::new(WorkQueue::blocks(source.table().stored())));
        let work = PartitionWork { segments: Arc::clone(segments), page_aggregate: self.page_aggregate(source)? };
        let metrics = (&self.metrics, partition);
        Ok(stream::open(Arc::clone(&self.plan), source, work, metrics, context))
    }
}
