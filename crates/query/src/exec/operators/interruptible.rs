//! Operators that end when their statement is cancelled.
//!
//! DataFusion's operators yield only where a task awaits something that is not ready. Joins, merges of sorted runs and
//! aggregations over them may compute for a long time without such an await. Therefore each operator of a plan is
//! wrapped before the plan runs. The wrapper checks before each batch whether the statement was cancelled. From time to
//! time it yields to other tasks of the runtime. If the condition of a join is true for few pairs of rows, the join may
//! compute for a long time without returning a batch. Therefore join conditions check too.
//!
//! A wrapped operator displays its name, metrics and children as without the wrapper.

use std::any::Any;
use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, Result, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{CardinalityEffect, InvariantLevel};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use super::checked_filter::with_checked_filter;
use super::distinct_keys::DistinctKeys;
use super::join_keys::{JoinKeys, KeyCollector};
use super::string_views;
use crate::runtime::cancellation::Cancellation;

/// Shared state of the operators of a statement. It is an extension of the configuration for planning and execution.
/// Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    cancellation: Cancellation,
    has_hash_join: Arc<AtomicBool>,
    join_keys: Arc<JoinKeys>,
}

impl Interrupt {
    /// Creates the state of a statement that ends when `token` is cancelled. The statement sets `is_committing` when it
    /// begins to commit.
    pub fn new(token: CancellationToken, is_committing: Arc<AtomicBool>) -> Self {
        Self { cancellation: Cancellation::new(token, is_committing), ..Self::default() }
    }

    /// The cancellation state of the statement.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Whether a plan of the statement had a hash join.
    pub fn has_hash_join(&self) -> bool {
        self.has_hash_join.load(Ordering::Relaxed)
    }

    /// Keys on the build sides of the statement's hash joins.
    pub fn join_keys(&self) -> &Arc<JoinKeys> {
        &self.join_keys
    }

    /// Checks that the statement was not cancelled.
    ///
    /// # Errors
    /// If the statement was cancelled before it began to commit.
    pub fn check(&self) -> Result<()> {
        self.cancellation.check()
    }
}

/// Wraps the operators of a plan so that they end when the statement is cancelled.
///
/// # Errors
/// If an operator does not accept its wrapped children.
pub fn make_interruptible(plan: Arc<dyn ExecutionPlan>, interrupt: &Interrupt) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        // A source needs no wrapper. It awaits between parts of its data, and ends there if the task that reads it is
        // dropped.
        if node.children().is_empty() {
            return Ok(Transformed::no(node));
        }
        let mut collector = None;
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            interrupt.has_hash_join.store(true, Ordering::Relaxed);
            collector = KeyCollector::for_join(join, interrupt.join_keys())?;
        }
        let node = with_wrapped_sides(node, collector.as_ref(), interrupt)?;
        let node = with_checked_filter(node, interrupt)?;
        let wrapped =
            InterruptibleExec { keys: collector.map(KeysRole::Join), ..InterruptibleExec::wrap(node, interrupt) };
        Ok(Transformed::yes(Arc::new(wrapped) as _))
    })?;
    Ok(plan.data)
}

/// Wraps the inputs of a join: the build side collects its keys, and the inner side drops duplicate keys. Other
/// operators are returned unchanged.
fn with_wrapped_sides(
    node: Arc<dyn ExecutionPlan>,
    collector: Option<&Arc<KeyCollector>>,
    interrupt: &Interrupt,
) -> Result<Arc<dyn ExecutionPlan>> {
    let distinct = DistinctKeys::from_join(&node);
    if collector.is_none() && distinct.is_none() {
        return Ok(node);
    }
    let (distinct_side, distinct_keys) = distinct.unzip();
    let wrapped = |input: &Arc<dyn ExecutionPlan>, side: JoinSide| {
        let keys =
            collector.filter(|_| side == JoinSide::Left).map(|collector| KeysRole::BuildSide(Arc::clone(collector)));
        let distinct_keys = distinct_keys.clone().filter(|_| distinct_side == Some(side));
        if keys.is_none() && distinct_keys.is_none() {
            return Arc::clone(input);
        }
        let unkeyed = InterruptibleExec::wrap(Arc::clone(input), interrupt);
        Arc::new(InterruptibleExec { keys, distinct_keys, ..unkeyed }) as _
    };
    let sides = [JoinSide::Left, JoinSide::Right];
    let children = node.children().into_iter().zip(sides).map(|(input, side)| wrapped(input, side)).collect();
    node.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// Role of an operator in collecting the keys of a join.
#[derive(Clone, Debug)]
enum KeysRole {
    /// The operator is the build side.
    BuildSide(Arc<KeyCollector>),
    /// The operator is the join. Scans use the keys until all rows of the join are read.
    Join(Arc<KeyCollector>),
}

/// Wrapper that checks before each batch whether its statement was cancelled.
#[derive(Debug)]
struct InterruptibleExec {
    inner: Arc<dyn ExecutionPlan>,
    interrupt: Interrupt,
    keys: Option<KeysRole>,
    /// Keys whose duplicates are dropped, if the operator is the inner side of a join.
    distinct_keys: Option<Arc<DistinctKeys>>,
}

impl InterruptibleExec {
    fn wrap(inner: Arc<dyn ExecutionPlan>, interrupt: &Interrupt) -> Self {
        Self { inner, interrupt: interrupt.clone(), keys: None, distinct_keys: None }
    }

    fn rewrap(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let (keys, distinct_keys) = (self.keys.clone(), self.distinct_keys.clone());
        Arc::new(Self { inner, interrupt: self.interrupt.clone(), keys, distinct_keys })
    }
}

impl DisplayAs for InterruptibleExec {
    fn fmt_as(&self, format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(format, formatter)
    }
}

impl ExecutionPlan for InterruptibleExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn check_invariants(&self, check: InvariantLevel) -> Result<()> {
        self.inner.check_invariants(check)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.dynamic_expressions_produced()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.inner.input_distribution_requirements()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.inner.required_input_ordering()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.inner.benefits_from_input_partitioning()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn apply_expressions(
        &self,
        apply: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(apply)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.rewrap(Arc::clone(&self.inner).replace_children(children, options)?))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.rewrap(Arc::clone(&self.inner).reset_state()?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let pool = Arc::clone(context.memory_pool());
        let mut inner = self.inner.execute(partition, context)?;
        if let Some(keys) = &self.distinct_keys {
            inner = keys.drop_duplicates(inner, &pool);
        }
        let (inner, join_keys) = match &self.keys {
            Some(KeysRole::BuildSide(collector)) => (collector.collect_from(inner, &pool), None),
            Some(KeysRole::Join(collector)) => (inner, Some(Arc::clone(collector))),
            None => (inner, None),
        };
        let stream =
            InterruptibleStream { inner, interrupt: self.interrupt.clone(), has_ended: false, _join_keys: join_keys };
        Ok(Box::pin(stream))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.inner.statistics_from_inputs(inputs, arguments)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.inner.supports_limit_pushdown()
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner.cardinality_effect()
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.rewrap(self.inner.with_new_state(state)?))
    }
}

struct InterruptibleStream {
    inner: SendableRecordBatchStream,
    interrupt: Interrupt,
    has_ended: bool,
    _join_keys: Option<Arc<KeyCollector>>,
}

impl Stream for InterruptibleStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Err(cancelled) = self.interrupt.check() {
            self.has_ended = true;
            return Poll::Ready(Some(Err(cancelled)));
        }
        let budget = ready!(coop::poll_proceed(context));
        let next = self.inner.poll_next_unpin(context);
        if next.is_ready() {
            budget.made_progress();
        }
        match next {
            Poll::Ready(Some(Ok(batch))) => Poll::Ready(Some(string_views::compact(batch))),
            other => other,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl RecordBatchStream for InterruptibleStream {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

impl Debug for InterruptibleStream {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("InterruptibleStream")
    }
}
