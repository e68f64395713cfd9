//! Rows that are computed once and read by several parts of a plan: the rows of a `WITH` query.
//!
//! ```text
//!   input ──> batches, in memory or in a spill file ──┬──> reader
//!                                                     └──> reader
//! ```
//!
//! The fastest reader advances the input, and the other readers read stored batches. If memory runs short, the stored
//! batches move to a spill file.
//!
//! Each reader has its own `MaterializeExec` with its own copy of the input plan. Only the copy of the reader that
//! starts first is executed.

use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};

use crate::runtime::shared_rows::{Fetched, SharedRows};

/// Operator that returns the rows of its input, which are computed once for all readers of its [`SharedRows`]. Without
/// shared rows, it only prevents the pushdown of conditions, limits and projections into its input.
#[derive(Debug)]
pub struct MaterializeExec {
    name: Arc<str>,
    input: Arc<dyn ExecutionPlan>,
    rows: Option<Arc<SharedRows>>,
    /// Order of the input when it was planned. All inputs of the same rows have this order, because any of them may be
    /// executed.
    order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MaterializeExec {
    /// Creates the operator for a `WITH` query of this name. `rows` is `None` if the query has one reader.
    pub fn new(name: Arc<str>, input: Arc<dyn ExecutionPlan>, rows: Option<Arc<SharedRows>>) -> Self {
        let order = input.output_ordering().cloned();
        Self::with_order(name, input, rows, order)
    }

    fn with_order(
        name: Arc<str>,
        input: Arc<dyn ExecutionPlan>,
        rows: Option<Arc<SharedRows>>,
        order: Option<LexOrdering>,
    ) -> Self {
        let (equivalence, partitioning) = match rows {
            Some(_) => (
                EquivalenceProperties::new_with_orderings(input.schema(), order.clone()),
                Partitioning::UnknownPartitioning(1),
            ),
            None => (input.equivalence_properties().clone(), input.output_partitioning().clone()),
        };
        let properties = PlanProperties::new(equivalence, partitioning, input.pipeline_behavior(), input.boundedness());
        Self { name, input, rows, order, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Whether the input reads the rows of the previous step of a recursive query. Its rows then differ between steps.
    fn reads_work_table(&self) -> Result<bool> {
        self.input.exists(|node| Ok(node.downcast_ref::<WorkTableExec>().is_some()))
    }
}

impl DisplayAs for MaterializeExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "MaterializeExec: {}", self.name)
    }
}

impl ExecutionPlan for MaterializeExec {
    fn name(&self) -> &str {
        "MaterializeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![match self.rows {
            Some(_) => Distribution::SinglePartition,
            None => Distribution::UnspecifiedDistribution,
        }]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(|order| OrderingRequirements::new(order.into()))]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => {
                let (name, rows, order) = (Arc::clone(&self.name), self.rows.clone(), self.order.clone());
                Ok(Arc::new(Self::with_order(name, input, rows, order)))
            }
            _ => internal_err!("a materialization has one input"),
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(rows) = &self.rows
            && self.reads_work_table()?
        {
            rows.reset();
        }
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(rows) = &self.rows else { return self.input.execute(partition, context) };
        let spilled_bytes = MetricBuilder::new(&self.metrics).counter("spilled_bytes", partition);
        let input = Arc::clone(&self.input);
        let reader = SharedReader { rows: Arc::clone(rows), input, context, next: 0, reading: None, spilled_bytes };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), reader)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition.filter(|_| self.rows.is_none()))]
    }

    /// Never exact. The planner could answer an aggregate from exact statistics, without calling the functions of the
    /// input.
    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::new(input.as_ref().clone().to_inexact())),
            _ => internal_err!("a materialization has one input"),
        }
    }
}

/// A reader of the shared rows.
struct SharedReader {
    rows: Arc<SharedRows>,
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    /// Ordinal of the next batch.
    next: usize,
    /// Current read of the next batch from the spill file.
    reading: Option<BoxFuture<'static, Result<RecordBatch>>>,
    spilled_bytes: Count,
}

impl SharedReader {
    fn fetch(&mut self, task: &mut Context<'_>) -> Poll<Result<Option<Fetched>>> {
        let Self { rows, input, context, next, spilled_bytes, .. } = self;
        let start = || Ok((input.execute(0, Arc::clone(context))?, Arc::clone(context)));
        rows.poll_batch(*next, task, start, spilled_bytes)
    }
}

impl Stream for SharedReader {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.reading.is_none() {
            match ready!(self.fetch(task)) {
                Ok(Some(Fetched::Batch(batch))) => {
                    self.next += 1;
                    return Poll::Ready(Some(Ok(batch)));
                }
                Ok(Some(Fetched::Spilled(read))) => self.reading = Some(read),
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let batch = ready!(reading.poll_unpin(task));
        self.reading = None;
        self.next += 1;
        Poll::Ready(Some(batch))
    }
}
