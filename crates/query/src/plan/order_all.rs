//! `ORDER BY ALL`, which [`taut_sql::mark_order_by_all`] has marked: an order by all columns of a query.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use taut_sql::ALL_COLUMNS;

/// Replaces each marked order of a plan by an order by all columns.
///
/// # Errors
/// If DataFusion cannot rebuild the plan.
pub fn order_by_all_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let ordered = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Sort(mut sort) => {
            let Some(key) = direction(&sort.expr).cloned() else { return Ok(Transformed::no(LogicalPlan::Sort(sort))) };
            let columns = sort.input.schema().columns().into_iter();
            sort.expr = columns.map(|column| SortExpr { expr: Expr::Column(column), ..key.clone() }).collect();
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(ordered.data)
}

/// Returns the key with the direction of a marked order, or `None` for other orders.
fn direction(keys: &[SortExpr]) -> Option<&SortExpr> {
    let [key, SortExpr { expr: Expr::Literal(mark, _), .. }] = keys else { return None };
    let is_mark =
        matches!(mark, ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) if text == ALL_COLUMNS);
    is_mark.then_some(key)
}
