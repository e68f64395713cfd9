//! Comparisons with all rows of a subquery: `x > ALL (query)`, `x = ANY (query)`. DataFusion compares `x` with the
//! column of the query by name, and mistakes `x` for that column if both have the same name.
//!
//! `= ANY` and `<> ALL` are `IN` and `NOT IN`. Other comparisons are computed from aggregates of the query: the number
//! of rows, the number of values, the least and the greatest value. The aggregates are computed once if the query is
//! not correlated. The first condition that is true determines the result:
//!
//! ```text
//!   x > ALL (query)    no rows: true            x > max is false: false    x or a value null: null    else true
//!   x > ANY (query)    x > min is true: true    no rows: false             x or a value null: null    else false
//!   x = ALL (query)    like x > ALL (query), with x = min AND x = max instead of x > max
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, Spans, plan_err};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::correlated::{is_predicate_for_engine, restart_names};
use crate::expressions::{maximum, minimum};

/// Column name of the aggregates that replace a comparison.
const VALUE: &str = "taut value";
/// Maximum number of such aggregates in the subquery of another comparison. Each comparison copies its subquery several
/// times.
const NESTED_MAX: usize = 12;

/// Rule that replaces comparisons with the rows of a subquery. It runs after type coercion.
#[derive(Debug, Default)]
pub struct SetComparisons;

impl AnalyzerRule for SetComparisons {
    fn name(&self) -> &str {
        "taut_set_comparisons"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        restart_names();
        let changed = plan.transform_up_with_subqueries(|node| {
            if !has_comparison(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let is_condition = matches!(node, LogicalPlan::Filter(_));
            let names = NamePreserver::new(&node);
            let mapped = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let replaced = expression.transform_up(|part| match part {
                    Expr::SetComparison(comparison) => {
                        Ok(Transformed::yes(replaced(comparison, is_condition, &schema)?))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(replaced.update_data(|expression| name.restore(expression)))
            })?;
            if mapped.transformed { mapped.map_data(LogicalPlan::recompute_schema) } else { Ok(mapped) }
        })?;
        Ok(changed.data)
    }
}

fn has_comparison(node: &LogicalPlan) -> Result<bool> {
    let mut has = false;
    node.apply_expressions(|expression| {
        has |= expression.exists(|part| Ok(matches!(part, Expr::SetComparison(_))))?;
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has)
}

/// Number of aggregates in a subquery that come from comparisons which this rule has replaced.
fn replaced_comparisons(plan: &LogicalPlan) -> Result<usize> {
    let mut number = 0;
    plan.apply_with_subqueries(|node| {
        number += usize::from(node.schema().fields().iter().any(|field| field.name() == VALUE));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(number)
}

/// Gives the value that a subquery computes a name of its own. A cast has the name of the column that it casts, beside
/// which DataFusion cannot select it.
fn with_named_value(plan: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    Ok(match plan.as_ref() {
        LogicalPlan::Projection(Projection { expr, input, .. }) if !matches!(expr.as_slice(), [Expr::Column(_)]) => {
            let named = expr.iter().map(|value| value.clone().unalias().alias("taut column")).collect();
            Arc::new(LogicalPlan::Projection(Projection::try_new(named, Arc::clone(input))?))
        }
        _ => Arc::clone(plan),
    })
}

/// Replaces a comparison by one with aggregates. A comparison in a filter is not replaced if its subquery is correlated
/// and DataFusion can join it.
fn replaced(comparison: SetComparison, is_condition: bool, schema: &DFSchema) -> Result<Expr> {
    let SetComparison { expr, subquery, op, quantifier } = comparison;
    let outer_ref_columns = &subquery.outer_ref_columns;
    let is_any = quantifier == SetQuantifier::Any;
    if subquery.subquery.schema().fields().len() != 1 {
        return plan_err!("Too many columns! The subquery should only return one column");
    }
    if matches!((op, is_any), (Operator::Eq, true) | (Operator::NotEq, false)) {
        return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated: !is_any }));
    }
    if is_condition && !outer_ref_columns.is_empty() && is_predicate_for_engine(&subquery, schema) {
        let subquery = Subquery { subquery: with_named_value(&subquery.subquery)?, ..subquery };
        return Ok(Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }));
    }
    if replaced_comparisons(&subquery.subquery)? > NESTED_MAX {
        return plan_err!(
            "ANY and ALL in subqueries of several ANY and ALL are not supported; compare with aggregates"
        );
    }
    let column = Expr::Column(subquery.subquery.schema().columns().swap_remove(0));
    let value = |aggregate: Expr| {
        let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
        let plan = rows.aggregate(Vec::<Expr>::new(), vec![aggregate.alias(VALUE)])?.build()?;
        let subquery =
            Subquery { subquery: Arc::new(plan), outer_ref_columns: outer_ref_columns.clone(), spans: Spans::new() };
        Ok::<_, DataFusionError>(Expr::ScalarSubquery(subquery))
    };
    let compared = |extreme: Expr| Expr::BinaryExpr(BinaryExpr::new(expr.clone(), op, Box::new(extreme)));
    let least = || Ok::<_, DataFusionError>(compared(value(minimum(column.clone()))?));
    let greatest = || Ok::<_, DataFusionError>(compared(value(maximum(column.clone()))?));
    let decisive = match op {
        Operator::Gt | Operator::GtEq => {
            if is_any {
                least()?
            } else {
                greatest()?
            }
        }
        Operator::Lt | Operator::LtEq => {
            if is_any {
                greatest()?
            } else {
                least()?
            }
        }
        Operator::Eq => least()?.and(greatest()?),
        Operator::NotEq => least()?.or(greatest()?),
        other => return plan_err!("{other} {quantifier} is not supported; =, <>, <, <=, > and >= are"),
    };
    let rows = value(count(lit(1_i64)))?;
    let values = value(count(column.clone()))?;
    let is_empty = rows.clone().eq(lit(0_i64));
    let is_unknown = expr.is_null().or(rows.not_eq(values));
    let null = lit(ScalarValue::Boolean(None));
    match is_any {
        true => when(decisive, lit(true)).when(is_empty, lit(false)).when(is_unknown, null).otherwise(lit(false)),
        false => {
            let is_false = Expr::IsFalse(Box::new(decisive));
            when(is_empty, lit(true)).when(is_false, lit(false)).when(is_unknown, null).otherwise(lit(true))
        }
    }
}
