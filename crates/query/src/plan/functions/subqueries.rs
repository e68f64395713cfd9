//! Outer columns of subqueries.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

use crate::plan::rules::recompute_schema;

/// Replaces outer columns in the expressions of a node.
pub(super) fn replaced_columns(
    node: LogicalPlan,
    replacement: &dyn Fn(&Column) -> Option<Result<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Subquery(mut subquery) = node {
        subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        // Without outer columns, it is an ordinary derived table.
        return Ok(Transformed::yes(match subquery.outer_ref_columns.is_empty() {
            true => subquery.subquery.as_ref().clone(),
            false => LogicalPlan::Subquery(subquery),
        }));
    }
    let node = recompute_schema(node)?;
    let names = NamePreserver::new(&node);
    let mapped = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let replaced = expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => match replacement(&column) {
                Some(argument) => argument.map(Transformed::yes),
                None => Ok(Transformed::no(Expr::OuterReferenceColumn(field, column))),
            },
            // The plans of subqueries were changed before.
            other => with_outer_columns_listed(other),
        })?;
        Ok(replaced.update_data(|expression| name.restore(expression)))
    })?;
    mapped.map_data(LogicalPlan::recompute_schema)
}

/// Columns of an expression as outer columns of a subquery.
pub(super) fn outer(expression: &Expr, schema: &DFSchema) -> Result<Expr> {
    let changed = expression.clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

pub(super) fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::InSubquery(part) => Some(&part.subquery),
        Expr::Exists(part) => Some(&part.subquery),
        Expr::SetComparison(part) => Some(&part.subquery),
        _ => None,
    }
}

/// Lists the outer columns of a subquery again, after its plan was changed.
pub(super) fn with_outer_columns_listed(expression: Expr) -> Result<Transformed<Expr>> {
    with_subquery(expression, &Ok)
}

/// Changes the plan of a subquery, and lists its outer columns again. Returns other expressions unchanged.
pub(super) fn with_subquery(
    mut expression: Expr,
    change: &dyn Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<Expr>> {
    let subquery = match &mut expression {
        Expr::ScalarSubquery(subquery) => subquery,
        Expr::InSubquery(part) => &mut part.subquery,
        Expr::Exists(part) => &mut part.subquery,
        Expr::SetComparison(part) => &mut part.subquery,
        _ => return Ok(Transformed::no(expression)),
    };
    let plan = change(subquery.subquery.as_ref().clone())?;
    subquery.outer_ref_columns = plan.all_out_ref_exprs();
    subquery.subquery = Arc::new(plan);
    Ok(Transformed::yes(expression))
}
