//! Calls volatile functions after rows are sorted, as PostgreSQL does. In `SELECT nextval('s'), a FROM t ORDER BY a`
//! the numbers ascend in the order of the result. With a `LIMIT`, only its rows get numbers.
//!
//! ```text
//!   Sort: t.a                            Projection: nextval('s'), t.a
//!     Projection: nextval('s'), t.a  =>    Sort: t.a
//!                                            Projection: t.a
//! ```
//!
//! An expression that the rows are sorted by is computed before the sort.

use std::collections::BTreeSet;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, Sort, ident};
use datafusion::optimizer::AnalyzerRule;

/// Rule that calls volatile functions after a sort.
#[derive(Debug, Default)]
pub struct LateVolatile;

impl AnalyzerRule for LateVolatile {
    fn name(&self) -> &str {
        "taut_late_volatile"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let changed = match &node {
                LogicalPlan::Sort(sort) => match sort.input.as_ref() {
                    LogicalPlan::Projection(projection) => computed_after(sort, projection)?,
                    _ => None,
                },
                _ => None,
            };
            Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })?;
        Ok(changed.data)
    }
}

/// Moves a sort below the volatile expressions of its projection. Returns `None` if no expression can be computed
/// later.
fn computed_after(sort: &Sort, projection: &Projection) -> Result<Option<LogicalPlan>> {
    let mut keys = BTreeSet::new();
    for order in &sort.expr {
        keys.extend(order.expr.column_refs().into_iter().cloned());
    }
    let outputs = projection.schema.columns();
    let is_late = |(expression, output): &(&Expr, &Column)| {
        expression.is_volatile() && !keys.contains(*output) && !has_subquery(expression)
    };
    let late: Vec<bool> = projection.expr.iter().zip(&outputs).map(|item| is_late(&item)).collect();
    if !late.contains(&true) {
        return Ok(None);
    }
    let mut sorted = Vec::new();
    // Columns that only late expressions need. The sort carries them from its input to the final projection.
    let mut carried: Vec<Column> = Vec::new();
    let mut computed = Vec::new();
    for ((expression, output), is_late) in projection.expr.iter().zip(&outputs).zip(&late) {
        if !is_late {
            sorted.push(expression.clone());
            computed.push(Expr::Column(output.clone()));
            continue;
        }
        let replaced = expression.clone().transform(|part| match part {
            Expr::Column(column) => {
                let index = carried.iter().position(|known| *known == column).unwrap_or_else(|| {
                    carried.push(column);
                    carried.len() - 1
                });
                Ok(Transformed::yes(ident(carried_name(index))))
            }
            part => Ok(Transformed::no(part)),
        })?;
        let computed_later = replaced.data.unalias();
        computed.push(computed_later.alias_qualified(output.relation.clone(), &output.name));
    }
    sorted
        .extend(carried.into_iter().enumerate().map(|(index, column)| Expr::Column(column).alias(carried_name(index))));
    let input = projection.input.as_ref().clone();
    let sorted = LogicalPlanBuilder::from(input).project(sorted)?.sort_with_limit(sort.expr.clone(), sort.fetch)?;
    Ok(Some(sorted.project(computed)?.build()?))
}

fn has_subquery(expression: &Expr) -> bool {
    let is_subquery = |part: &Expr| {
        matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    expression.exists(|part| Ok(is_subquery(part))).unwrap_or(true)
}

fn carried_name(index: usize) -> String {
    format!("taut carried {index}")
}
