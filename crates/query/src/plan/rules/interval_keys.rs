//! Intervals as keys of groups and joins. As in PostgreSQL, `'1 day'` and `'24 hours'` are equal, so they are in one
//! group and match each other. DataFusion compares the parts of intervals. The rule therefore takes the lengths as
//! keys, also of intervals in arrays and rows. A group has the interval of one of its rows.
//!
//! ```text
//!   SELECT x, count(*) FROM t GROUP BY x        SELECT first_value(x) AS x, count(*) FROM t GROUP BY length(x)
//!   x IN (SELECT y FROM u)                      length(x) IN (SELECT length(y) FROM u)
//! ```
//!
//! Sorts, windows and comparisons are rewritten by the rule of checked arithmetic.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Projection, Subquery,
    when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::error::QueryError;
use crate::expressions::{has_interval, interval_length};

/// Rule that groups and joins by the lengths of intervals. It runs when types are coerced and correlated subqueries are
/// joined.
#[derive(Debug, Default)]
pub struct IntervalKeys;

impl AnalyzerRule for IntervalKeys {
    fn name(&self) -> &str {
        "taut_interval_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) => grouped_by_length(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => match has_intervals(input.schema()) {
                true => {
                    let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
                    grouped_by_length(Aggregate::try_new(input, columns, Vec::new())?)
                }
                false => Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input)))),
            },
            LogicalPlan::Distinct(Distinct::On(distinct)) => distinct_by_length(distinct),
            LogicalPlan::Join(join) => joined_by_length(join),
            LogicalPlan::RecursiveQuery(query) if query.is_distinct && has_intervals(query.static_term.schema()) => {
                let error = QueryError::unsupported(
                    "UNION with intervals in WITH RECURSIVE",
                    "UNION ALL and the text of intervals are",
                );
                Err(DataFusionError::External(Box::new(error)))
            }
            node => compared_by_length(node),
        })?;
        Ok(changed.data)
    }
}

fn is_interval(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(has_interval(&expression.get_type(schema)?))
}

fn has_intervals(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| has_interval(field.data_type()))
}

/// Replaces intervals in the groups of an aggregation by columns with their lengths, which a projection below computes.
/// A projection above returns the first interval of each group. The length of a group of another grouping set is null.
fn grouped_by_length(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let schema = aggregate.input.schema();
    let groups: Vec<Expr> = grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().cloned().collect();
    let mut intervals: Vec<(Expr, Column, String)> = Vec::new();
    for group in groups.iter().map(|group| group.clone().unalias()) {
        if is_interval(&group, schema)? && intervals.iter().all(|(known, ..)| *known != group) {
            let index = intervals.len();
            let length = Column::new_unqualified(format!("taut length {index}"));
            intervals.push((group, length, format!("taut interval {index}")));
        }
    }
    if intervals.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let columns = schema.columns().into_iter().map(Expr::Column);
    let lengths = intervals.iter().map(|(group, length, _)| interval_length(group.clone(), false).alias(&length.name));
    let input = Projection::try_new(columns.chain(lengths).collect(), Arc::clone(&aggregate.input))?;
    let length_of = |group: &Expr| intervals.iter().find(|(known, ..)| known == group);
    // Only whole keys are replaced: another key may contain the same interval.
    let by_length = |key: Expr| match length_of(&key.clone().unalias()) {
        Some((_, length, _)) => Expr::Column(length.clone()),
        None => key,
    };
    let all_by_length = |keys: Vec<Expr>| keys.into_iter().map(by_length).collect::<Vec<_>>();
    let keys = aggregate.group_expr.into_iter().map(|group| match group {
        Expr::GroupingSet(set) => Expr::GroupingSet(match set {
            GroupingSet::Rollup(keys) => GroupingSet::Rollup(all_by_length(keys)),
            GroupingSet::Cube(keys) => GroupingSet::Cube(all_by_length(keys)),
            GroupingSet::GroupingSets(sets) => GroupingSet::GroupingSets(sets.into_iter().map(all_by_length).collect()),
        }),
        group => by_length(group),
    });
    let keys: Vec<Expr> = keys.collect();
    let firsts = intervals.iter().map(|(group, _, first)| first_value_udaf().call(vec![group.clone()]).alias(first));
    let aggregates = aggregate.aggr_expr.into_iter().chain(firsts).collect();
    let grouped = Aggregate::try_new(Arc::new(LogicalPlan::Projection(input)), keys, aggregates)?;
    let mut outputs = Vec::new();
    for (index, (qualifier, field)) in aggregate.schema.iter().enumerate() {
        let value = match groups.get(index).and_then(|group| length_of(&group.clone().unalias())) {
            Some((_, length, first)) => {
                let first = Expr::Column(Column::new_unqualified(first));
                when(Expr::Column(length.clone()).is_not_null(), first).end()?
            }
            None => Expr::Column(Column::from(grouped.schema.qualified_field(index))),
        };
        outputs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped)).project(outputs)?.build()?;
    Ok(Transformed::yes(plan))
}

/// Replaces the intervals in `DISTINCT ON` by their lengths. The keys of its sort become the same lengths later.
fn distinct_by_length(mut distinct: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(distinct.input.schema());
    let mut is_changed = false;
    let sorted = distinct.sort_expr.iter_mut().flatten().map(|sort| &mut sort.expr);
    for key in distinct.on_expr.iter_mut().chain(sorted) {
        if is_interval(key, &schema)? {
            *key = interval_length(std::mem::take(key), false);
            is_changed = true;
        }
    }
    let node = LogicalPlan::Distinct(Distinct::On(distinct));
    Ok(if is_changed { Transformed::yes(node) } else { Transformed::no(node) })
}

fn joined_by_length(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut is_changed = false;
    for (left, right) in &mut join.on {
        if is_interval(left, join.left.schema())? && is_interval(right, join.right.schema())? {
            *left = interval_length(std::mem::take(left), false);
            *right = interval_length(std::mem::take(right), false);
            is_changed = true;
        }
    }
    let compared = compared_by_length(LogicalPlan::Join(join))?;
    Ok(if is_changed { Transformed::yes(compared.data) } else { compared })
}

/// Replaces the intervals of `IN (SELECT ...)` and of comparisons with `ANY (SELECT ...)` and `ALL` by their lengths.
fn compared_by_length(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    node.map_expressions(|expression| {
        let name = names.save(&expression);
        let compared = expression.transform_up(|part| match part {
            Expr::InSubquery(mut test) if is_interval(&test.expr, &schema)? => {
                test.subquery = lengths_of(&test.subquery)?;
                test.expr = Box::new(interval_length(*test.expr, false));
                Ok(Transformed::yes(Expr::InSubquery(test)))
            }
            Expr::SetComparison(mut comparison) if is_interval(&comparison.expr, &schema)? => {
                comparison.subquery = lengths_of(&comparison.subquery)?;
                comparison.expr = Box::new(interval_length(*comparison.expr, false));
                Ok(Transformed::yes(Expr::SetComparison(comparison)))
            }
            part => Ok(Transformed::no(part)),
        })?;
        Ok(compared.update_data(|expression| name.restore(expression)))
    })
}

/// A subquery that returns the lengths of the intervals that `subquery` returns.
fn lengths_of(subquery: &Subquery) -> Result<Subquery> {
    let columns = subquery.subquery.schema().columns().into_iter();
    let lengths = columns.map(|column| interval_length(Expr::Column(column), false));
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone()).project(lengths)?.build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}
