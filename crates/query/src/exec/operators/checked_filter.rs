//! Join conditions that check whether their statement was cancelled.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{JoinType, Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};

use super::Interrupt;

/// Wraps the condition of a join so that each evaluation first checks for cancellation. A semi, anti or mark hash join
/// without a condition gets one that is always true. Other operators are returned unchanged.
///
/// # Errors
/// If the join cannot be rebuilt.
pub(super) fn with_checked_filter(
    plan: Arc<dyn ExecutionPlan>,
    interrupt: &Interrupt,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let filter = match join.filter() {
            Some(filter) => with_cancellation_check(filter, interrupt),
            None if !join.null_aware && returns_rows_at_most_once(*join.join_type()) => always_true(interrupt),
            None => return Ok(plan),
        };
        return Ok(Arc::new(join.builder().with_filter(Some(filter)).build()?));
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let filter = with_cancellation_check(filter, interrupt);
        return Ok(Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?));
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>()
        && let Some(filter) = join.filter()
    {
        let join = SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            Some(with_cancellation_check(filter, interrupt)),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        return Ok(Arc::new(join));
    }
    Ok(plan)
}

/// Whether a join returns each row of a side at most once, however many rows match it. Such a join may visit any number
/// of pairs without returning a batch.
fn returns_rows_at_most_once(join_type: JoinType) -> bool {
    match join_type {
        JoinType::LeftSemi
        | JoinType::RightSemi
        | JoinType::LeftAnti
        | JoinType::RightAnti
        | JoinType::LeftMark
        | JoinType::RightMark => true,
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => false,
    }
}

fn with_cancellation_check(filter: &JoinFilter, interrupt: &Interrupt) -> JoinFilter {
    let condition = Arc::new(CheckedExpr { inner: Arc::clone(filter.expression()), interrupt: interrupt.clone() });
    JoinFilter::new(condition, filter.column_indices().to_vec(), Arc::clone(filter.schema()))
}

/// Returns a condition that is true for every pair of rows, so that a join without a condition also checks for
/// cancellation.
fn always_true(interrupt: &Interrupt) -> JoinFilter {
    let condition = Arc::new(Literal::new(ScalarValue::Boolean(Some(true))));
    let condition = Arc::new(CheckedExpr { inner: condition, interrupt: interrupt.clone() });
    JoinFilter::new(condition, Vec::new(), Arc::new(Schema::empty()))
}

/// An expression that fails if its statement was cancelled.
#[derive(Debug)]
struct CheckedExpr {
    inner: Arc<dyn PhysicalExpr>,
    interrupt: Interrupt,
}

impl PartialEq for CheckedExpr {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for CheckedExpr {}

impl Hash for CheckedExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl Display for CheckedExpr {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.inner, formatter)
    }
}

impl PhysicalExpr for CheckedExpr {
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.inner.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.inner.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.inner.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.interrupt.check()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Self { inner, interrupt: self.interrupt.clone() }))
    }

    fn fmt_sql(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(formatter)
    }
}
