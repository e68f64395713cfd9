//! Plans `NOT IN (query)` as a plain anti-join if neither side has a null.
//!
//! If the query returns a null, no row is `NOT IN` it. A row whose left operand is null is `NOT IN` only an empty
//! result. Therefore DataFusion runs `NOT IN` as a null-aware join. This join builds its hash table from all rows of
//! the outer query, and returns them from one thread at the end. Columns are rarely declared `NOT NULL`, but the
//! catalog counts their nulls. If there are none now, a plain anti-join returns the same rows and builds its table from
//! the smaller side.
//!
//! The null counts are valid for the snapshot that the plan reads. Therefore this is a rule on physical plans, which
//! are made for each execution.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::JoinType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::exec::scan::scan_source;

/// Rule that replaces null-aware anti-joins, as the module describes. It runs before DataFusion chooses the build side
/// of hash joins.
#[derive(Debug, Default)]
pub struct NotIn;

impl PhysicalOptimizerRule for NotIn {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>().filter(|join| join.null_aware) else {
                return Ok(Transformed::no(node));
            };
            let has_nulls = join
                .on()
                .iter()
                .any(|(left, right)| !is_never_null(join.left(), left) || !is_never_null(join.right(), right));
            match has_nulls {
                true => Ok(Transformed::no(node)),
                false => Ok(Transformed::yes(Arc::new(join.builder().with_null_aware(false).build()?))),
            }
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "taut_not_in"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether an expression is known to be null in no row of a plan.
fn is_never_null(plan: &Arc<dyn ExecutionPlan>, expression: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        // Such a cast fails on a value that it cannot convert, instead of returning null.
        return !cast.cast_options().safe && is_never_null(plan, cast.expr());
    }
    let Some(column) = expression.downcast_ref::<Column>() else { return false };
    if !plan.schema().field(column.index()).is_nullable() {
        return true;
    }
    if let Some(scan) = scan_source(plan) {
        let null_count =
            scan.table_column(column).map(|column| scan.table().column_statistics(column.index()).null_count);
        return null_count == Some(Precision::Exact(0));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let projected = projection.expr().get(column.index());
        return projected.is_some_and(|projected| is_never_null(projection.input(), &projected.expr));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let index =
            filter.projection().as_ref().map_or(Some(column.index()), |indexes| indexes.get(column.index()).copied());
        return index.is_some_and(|index| is_never_null(filter.input(), &column_at(filter.input(), index)));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return is_never_null_in_join(join, column.index());
    }
    false
}

/// Like [`is_never_null`], for a column of a join. True only for joins that add no nulls to the side of the column.
fn is_never_null_in_join(join: &HashJoinExec, column: usize) -> bool {
    let index = join.projection.as_ref().map_or(Some(column), |indexes| indexes.get(column).copied());
    let (Some(index), left) = (index, join.left().schema().fields().len()) else { return false };
    match join.join_type() {
        JoinType::Inner if index < left => is_never_null(join.left(), &column_at(join.left(), index)),
        JoinType::Inner => is_never_null(join.right(), &column_at(join.right(), index - left)),
        JoinType::LeftSemi | JoinType::LeftAnti => is_never_null(join.left(), &column_at(join.left(), index)),
        _ => false,
    }
}

fn column_at(plan: &Arc<dyn ExecutionPlan>, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(plan.schema().field(index).name(), index))
}
