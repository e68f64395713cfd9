//! Rewrites the subquery of `EXISTS` so that DataFusion can join it: the correlated conditions are at the top, over
//! columns with new names. A condition, and the new plan of its subquery:
//!
//! ```text
//!   EXISTS (SELECT a + 1 FROM (SELECT * FROM u WHERE p) z WHERE z.a > t.x)
//!
//!   Filter: "taut column 1" > outer(t.x)
//!     Projection: u.a AS "taut column 1"
//!       Filter: p
//!         u
//! ```
//!
//! DataFusion's own join fails if the subquery selects an expression that is also compared with an outer column.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, Spans};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery, lit};

use super::domain::{has_correlated, has_outer, unique, uses_outer};

/// Returns a subquery that has rows if and only if `plan` has. `None` if `plan` uses outer columns outside of filters.
pub fn flattened(plan: &LogicalPlan) -> Result<Option<Subquery>> {
    let Some((input, conditions)) = flatten(plan, Vec::new())? else { return Ok(None) };
    if conditions.iter().any(has_correlated) {
        return Ok(None);
    }
    let (correlated, plain): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(has_outer);
    let mut rows = LogicalPlanBuilder::from(input.clone());
    if let Some(condition) = conjunction(plain) {
        rows = rows.filter(condition)?;
    }
    let mut names: HashMap<Column, String> = HashMap::new();
    let conditions = correlated.into_iter().map(|condition| {
        let renamed = condition.transform_up(|part| match part {
            Expr::Column(column) => {
                let name = names.entry(column).or_insert_with(|| unique("taut column"));
                Ok(Transformed::yes(Expr::Column(Column::from_name(name.as_str()))))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(renamed.data)
    });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let mut columns: Vec<_> = names.into_iter().collect();
    columns.sort();
    let mut columns: Vec<Expr> = columns.into_iter().map(|(column, name)| Expr::Column(column).alias(name)).collect();
    if columns.is_empty() {
        columns.push(lit(1_i64).alias(unique("taut column")));
    }
    rows = rows.project(columns)?;
    if let Some(condition) = conjunction(conditions) {
        rows = rows.filter(condition)?;
    }
    let plan = rows.build()?;
    Ok(Some(Subquery { outer_ref_columns: plan.all_out_ref_exprs(), subquery: Arc::new(plan), spans: Spans::new() }))
}

/// Returns the part of a plan below all uses of outer columns, and all conditions above that part, in terms of its
/// columns.
fn flatten(plan: &LogicalPlan, mut conditions: Vec<Expr>) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    if !uses_outer(plan)? {
        return Ok(Some((plan.clone(), conditions)));
    }
    match plan {
        LogicalPlan::Filter(filter) => {
            conditions.extend(split_conjunction(&filter.predicate).into_iter().cloned());
            flatten(&filter.input, conditions)
        }
        LogicalPlan::Projection(projection) => {
            if projection.expr.iter().any(Expr::is_volatile) {
                return Ok(None);
            }
            let value = |index: usize| projection.expr[index].clone().unalias();
            flatten(&projection.input, replaced(conditions, &projection.schema, value)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns();
            flatten(&alias.input, replaced(conditions, &alias.schema, |index| Expr::Column(columns[index].clone()))?)
        }
        LogicalPlan::Subquery(subquery) => flatten(&subquery.subquery, conditions),
        _ => Ok(None),
    }
}

/// Replaces the columns in conditions. `value` returns the replacement of a column, given its index in `schema`.
fn replaced(conditions: Vec<Expr>, schema: &DFSchema, value: impl Fn(usize) -> Expr) -> Result<Vec<Expr>> {
    let replace = |condition: Expr| {
        let replaced = condition.transform_up(|part| match &part {
            Expr::Column(column) => Ok(Transformed::yes(value(schema.index_of_column(column)?))),
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(replaced.data)
    };
    conditions.into_iter().map(replace).collect()
}
