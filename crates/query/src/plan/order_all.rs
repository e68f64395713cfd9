//! `ORDER BY ALL`, which [`taut_sql::mark_order_by_all`] has marked: an order by all columns of a query.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use taut_sql::ALL_COLUMNS;

/// Replaces the marks in a plan.
///
/// # Errors
/// Those of rebuilding plans.
pub fn order_by_all_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let ordered = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Sort(mut sort) if let [key, mark] = sort.expr.as_slice() && is_mark(&mark.expr) => {
            let columns = sort.input.schema().columns().into_iter();
            let key = key.clone();
            sort.expr = columns.map(|column| SortExpr { expr: Expr::Column(column), ..key.clone() }).collect();
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(ordered.data)
}

fn is_mark(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) if text == ALL_COLUMNS)
}
