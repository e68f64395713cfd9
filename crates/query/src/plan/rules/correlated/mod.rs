//! Correlated scalar subqueries and lateral joins that DataFusion cannot decorrelate. They compare outer columns other
//! than by equality, have no aggregate, or have a limit.
//!
//! The *domain* of a subquery is the set of the distinct values of its outer columns. The subquery is computed once for
//! the whole domain, and the result is joined (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015, section 3):
//!
//! ```text
//!   SELECT (SELECT count(*) FROM u WHERE u.x < t.x) FROM t
//!
//!   Projection: value
//!     Left Join: t.x IS NOT DISTINCT FROM key
//!       t
//!       Aggregate of each key: count(*)          a key without rows has count 0
//!         Filter: u.x < key
//!           Cross Join
//!             Distinct: t.x AS key               the domain
//!             u
//! ```

mod domain;
mod predicates;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result, not_impl_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, FetchType, Join, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit,
};
use datafusion::optimizer::AnalyzerRule;

use self::domain::{
    Domain, Unnested, all_conditions, as_expressions, has_correlated, has_outer, other_columns, renamed, same_values,
    unique, uses_outer,
};
use super::subqueries::recompute_schema;
use crate::expressions::single_row;

pub(super) use self::domain::{outer_columns, restart_names};
pub(super) use self::predicates::flattened;

/// Rule that joins correlated scalar subqueries and lateral subqueries. It runs after type coercion.
#[derive(Debug, Default)]
pub struct CorrelatedSubqueries;

impl AnalyzerRule for CorrelatedSubqueries {
    fn name(&self) -> &str {
        "taut_correlated_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) => joined_condition(join)?.transform_data(|node| match node {
                LogicalPlan::Join(join) => joined_lateral(join),
                node => Ok(Transformed::no(node)),
            }),
            node => joined_values(node),
        })?;
        match changed.transformed {
            // A joined value can be null, so the schemas of the nodes above may change.
            true => {
                Ok(changed.data.transform_up_with_subqueries(|node| recompute_schema(node).map(Transformed::yes))?.data)
            }
            false => Ok(changed.data),
        }
    }
}

/// Joins the correlated scalar subqueries in the expressions of a node with its input.
fn joined_values(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_supported = matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Window(_)
    );
    check_aggregates(&node)?;
    if !is_supported || !has_joined(&node)? {
        return Ok(Transformed::no(node));
    }
    let engine_joins = matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_));
    let columns = node.schema().columns();
    let input = node.inputs()[0].clone();
    let (mut joined, mut expressions) = (input.clone(), node.expressions());
    if let LogicalPlan::Filter(filter) = &node {
        // Conditions without such a subquery are applied first, which leaves fewer values to compute.
        let (with, without): (Vec<&Expr>, Vec<&Expr>) = split_conjunction(&filter.predicate)
            .into_iter()
            .partition(|part| contains_joined(part, input.schema(), true));
        if let Some(condition) = without.into_iter().cloned().reduce(Expr::and) {
            joined = LogicalPlanBuilder::from(joined).filter(condition)?.build()?;
        }
        expressions = with.into_iter().cloned().reduce(Expr::and).into_iter().collect();
    }
    let source = joined.clone();
    let names = NamePreserver::new(&node);
    let expressions = expressions.into_iter().map(|expression| {
        let name = names.save(&expression);
        let replaced = expression.transform_down(|part| match part {
            Expr::ScalarSubquery(subquery) if is_joined(&subquery, input.schema(), engine_joins) => {
                let (plan, value) = join_value(&source, joined.clone(), &subquery)?;
                joined = plan;
                Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(replaced.data))
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let has_input_columns = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_));
    let changed = node.with_new_exprs(expressions, vec![joined])?;
    let changed = match has_input_columns {
        true => LogicalPlanBuilder::from(changed).project(columns.into_iter().map(Expr::Column))?.build()?,
        false => changed,
    };
    Ok(Transformed::yes(changed))
}

/// Refuses aggregates of outer columns alone. In SQL they are aggregates of the query that has these columns.
fn check_aggregates(node: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Aggregate(aggregate) = node else { return Ok(()) };
    for call in &aggregate.aggr_expr {
        if has_outer(call) && call.column_refs().is_empty() {
            return not_impl_err!(
                "an aggregate of columns of an outer query alone is not supported in a subquery; compute it in the outer \
                 query"
            );
        }
    }
    Ok(())
}

fn has_joined(node: &LogicalPlan) -> Result<bool> {
    let engine_joins = matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_));
    let mut has = false;
    let schema = Arc::clone(node.inputs()[0].schema());
    node.apply_expressions(|expression| {
        has |= contains_joined(expression, &schema, engine_joins);
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has)
}

fn contains_joined(expression: &Expr, schema: &DFSchema, engine_joins: bool) -> bool {
    expression
        .exists(|part| Ok(matches!(part, Expr::ScalarSubquery(subquery) if is_joined(subquery, schema, engine_joins))))
        .unwrap_or(false)
}

/// Whether this rule joins a scalar subquery of a node whose input has `schema`. `engine_joins` is whether DataFusion
/// joins subqueries of such a node.
fn is_joined(subquery: &Subquery, schema: &DFSchema, engine_joins: bool) -> bool {
    let outer = outer_columns(&subquery.subquery).unwrap_or_default();
    let is_for_engine = engine_joins
        && is_for_engine(&subquery.subquery)
        && !selects_cast(&subquery.subquery)
        && are_resolved(&outer, schema, &subquery.subquery);
    !outer.is_empty() && !is_for_engine
}

/// Whether a subquery selects a value that has the name of a column, as casts have. DataFusion would select the column
/// beside it, to join by it.
fn selects_cast(subquery: &LogicalPlan) -> bool {
    let is_cast = |value: &Expr| match value {
        Expr::Column(_) | Expr::Alias(_) => false,
        value => value.column_refs().iter().any(|column| column.flat_name() == value.schema_name().to_string()),
    };
    subquery
        .exists(|node| Ok(matches!(node, LogicalPlan::Projection(node) if node.expr.iter().any(is_cast))))
        .unwrap_or(true)
}

/// Whether DataFusion joins `EXISTS` or `IN` of a subquery in a condition on rows with `schema`.
pub(super) fn is_predicate_for_engine(subquery: &Subquery, schema: &DFSchema) -> bool {
    let outer = outer_columns(&subquery.subquery).unwrap_or_default();
    let plan = &subquery.subquery;
    outer.is_empty() || (has_only_filters(plan, &|_| true) && are_resolved(&outer, schema, plan))
}

/// Whether DataFusion resolves the columns of a subquery. The query around it must have the outer columns. The subquery
/// must have no column with the name of an outer column, and its columns must have different names.
fn are_resolved(outer: &BTreeSet<Column>, schema: &DFSchema, subquery: &LogicalPlan) -> bool {
    fn exposes(plan: &LogicalPlan, column: &Column) -> bool {
        plan.schema().has_column(column) || plan.inputs().iter().any(|input| exposes(input, column))
    }
    outer.iter().all(|column| schema.has_column(column) && !exposes(subquery, column)) && has_distinct_names(subquery)
}

/// Whether the columns that a subquery returns, or compares with outer columns, have different names. DataFusion joins
/// by these columns under one alias for the whole subquery, so it would confuse `q.id` with `p.id`.
fn has_distinct_names(subquery: &LogicalPlan) -> bool {
    let mut joined: BTreeSet<Column> = subquery.schema().columns().into_iter().collect();
    let collected = subquery.apply(|node| {
        node.apply_expressions(|expression| {
            for part in split_conjunction(expression).into_iter().filter(|part| has_outer(part)) {
                joined.extend(part.column_refs().into_iter().cloned());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    });
    let names: BTreeSet<&str> = joined.iter().map(|column| column.name.as_str()).collect();
    collected.is_ok() && names.len() == joined.len()
}

/// Whether DataFusion joins a scalar subquery: an aggregate without groups over filters that compare outer columns by
/// equality.
fn is_for_engine(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => !node.expr.iter().any(has_outer) && is_for_engine(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_for_engine(&node.input),
        LogicalPlan::Aggregate(node) => {
            node.group_expr.is_empty()
                && !node.aggr_expr.iter().any(has_outer)
                && has_only_filters(&node.input, &is_equality)
        }
        _ => false,
    }
}

/// Whether outer columns are used only in filters whose conjuncts are all `allowed`.
fn has_only_filters(plan: &LogicalPlan, allowed: &impl Fn(&Expr) -> bool) -> bool {
    match plan {
        LogicalPlan::Filter(node) => {
            split_conjunction(&node.predicate)
                .into_iter()
                .all(|part| !has_correlated(part) && (!has_outer(part) || allowed(part)))
                && has_only_filters(&node.input, allowed)
        }
        LogicalPlan::Projection(node) => !node.expr.iter().any(has_outer) && has_only_filters(&node.input, allowed),
        LogicalPlan::SubqueryAlias(node) => has_only_filters(&node.input, allowed),
        LogicalPlan::Subquery(node) => has_only_filters(&node.subquery, allowed),
        other => !uses_outer(other).unwrap_or(true),
    }
}

/// Whether a condition compares an outer column with a value of the subquery by equality. An equality of intervals
/// becomes one of their lengths.
fn is_equality(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let is_outer = |side: &Expr| match side {
                Expr::OuterReferenceColumn(field, _) => !matches!(field.data_type(), DataType::Interval(_)),
                _ => false,
            };
            let is_inner = |side: &Expr| !has_outer(side) && !side.column_refs().is_empty();
            (is_outer(left) && is_inner(right)) || (is_inner(left) && is_outer(right))
        }
        _ => false,
    }
}

/// Joins the value of a subquery for each row of `source` with the rows of `input`, which has the columns of `source`.
/// Returns the joined rows and the column of the value.
fn join_value(source: &LogicalPlan, input: LogicalPlan, subquery: &Subquery) -> Result<(LogicalPlan, Expr)> {
    let domain = Domain::new(source, &subquery.subquery)?;
    let unnested = domain.unnest(&subquery.subquery)?;
    let unnested = match has_at_most_one_row(&subquery.subquery) {
        true => unnested,
        false => domain.first_rows(unnested)?,
    };
    let mut columns_of_value = other_columns(&unnested.plan, &unnested.keys).into_iter();
    let Some(value) = columns_of_value.next() else {
        return not_impl_err!("a correlated subquery without a column is not supported");
    };
    let rows = columns_of_value.next().filter(|_| !has_at_most_one_row(&subquery.subquery));
    // Selects only the value and the keys: another column could have the name of a column of the input.
    let alias = unique("taut value");
    let names: Vec<String> = unnested.keys.iter().map(|_| unique("taut key")).collect();
    let columns = as_expressions(&unnested.keys).zip(&names).map(|(key, name)| key.alias(name));
    let columns: Vec<Expr> = columns
        .chain([Expr::Column(value).alias("value")])
        .chain(rows.iter().map(|rows| Expr::Column(rows.clone()).alias("rows")))
        .collect();
    let values = LogicalPlanBuilder::from(unnested.plan).project(columns)?.alias(alias.as_str())?.build()?;
    let keys: Vec<Column> = names.into_iter().map(|name| Column::new(Some(alias.as_str()), name)).collect();
    let mut same = same_values(&domain.outer, &keys, [input.schema(), values.schema()])?;
    if same.is_empty() {
        same.push(lit(true));
    }
    let joined = LogicalPlanBuilder::from(input).join_on(values, JoinType::Left, same)?;
    let column = |name: &str| Expr::Column(Column::new(Some(alias.as_str()), name));
    // A subquery with several rows is an error only if a row of the query needs its value.
    let value = match rows {
        Some(_) => single_row(column("value"), column("rows")),
        None => column("value"),
    };
    Ok((joined.build()?, value))
}

/// Whether a subquery has at most one row for each combination of its outer columns.
fn has_at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => has_at_most_one_row(&node.input),
        LogicalPlan::SubqueryAlias(node) => has_at_most_one_row(&node.input),
        LogicalPlan::Filter(node) => has_at_most_one_row(&node.input),
        LogicalPlan::Sort(node) => has_at_most_one_row(&node.input),
        LogicalPlan::Aggregate(node) => node.group_expr.is_empty(),
        LogicalPlan::Limit(node) => matches!(node.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1)))),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(node) => node.values.len() <= 1,
        _ => false,
    }
}

/// Joins the correlated scalar subqueries in the condition of a join with the side that has their outer columns. For an
/// inner join, subqueries with outer columns of both sides become a filter above the join.
fn joined_condition(join: Join) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(&join.schema);
    let contains = |expression: &Expr| contains_joined(expression, &schema, false);
    let is_affected = join.filter.as_ref().is_some_and(contains)
        || join.on.iter().any(|(left, right)| contains(left) || contains(right));
    if !is_affected {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let columns = schema.columns();
    let (mut left, mut right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let (mut conditions, mut filters) = (Vec::new(), Vec::new());
    for condition in all_conditions(&join) {
        let mut is_filter = false;
        let replaced = condition.clone().transform_down(|part| match part {
            Expr::ScalarSubquery(subquery) if is_joined(&subquery, &schema, false) => {
                let outer = outer_columns(&subquery.subquery)?;
                let has_outer = |side: &LogicalPlan| outer.iter().any(|column| side.schema().has_column(column));
                let (side, source) = match (has_outer(&join.left), has_outer(&join.right)) {
                    (true, true) => {
                        is_filter = true;
                        return Ok(Transformed::new(Expr::ScalarSubquery(subquery), false, TreeNodeRecursion::Jump));
                    }
                    (_, true) => (&mut right, &join.right),
                    _ => (&mut left, &join.left),
                };
                let (joined, value) = join_value(source, side.clone(), &subquery)?;
                *side = joined;
                Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })?;
        if is_filter && join.join_type != JoinType::Inner {
            let kind = join.join_type.to_string().to_uppercase();
            return not_impl_err!(
                "a subquery with columns of both sides in the condition of a {kind} JOIN is not supported"
            );
        }
        if is_filter { filters.push(condition) } else { conditions.push(replaced.data) }
    }
    if conditions.is_empty() {
        conditions.push(lit(true));
    }
    let mut joined = LogicalPlanBuilder::from(left).join_on(right, join.join_type, conditions)?.build()?;
    if let Some(filter) = filters.into_iter().reduce(Expr::and) {
        joined = joined_values(LogicalPlanBuilder::from(joined).filter(filter)?.build()?)?.data;
    }
    Ok(Transformed::yes(LogicalPlanBuilder::from(joined).project(as_expressions(&columns))?.build()?))
}

/// Joins a lateral subquery with the left side of its join, which has the outer columns.
fn joined_lateral(join: Join) -> Result<Transformed<LogicalPlan>> {
    let outer = outer_columns(&join.right)?;
    let is_lateral = outer.iter().any(|column| join.left.schema().has_column(column));
    let is_for_engine =
        has_only_filters(&join.right, &|_| true) && are_resolved(&outer, join.left.schema(), &join.right);
    if !is_lateral || is_for_engine || !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let columns = join.schema.columns();
    if join.join_type == JoinType::Inner && reads_no_table(&join.right) {
        return Ok(Transformed::yes(expanded(&join)?));
    }
    let domain = Domain::new(&join.left, &join.right)?;
    let Unnested { plan, keys } = domain.unnest(&join.right)?;
    let names: Vec<String> = keys.iter().map(|_| unique("taut key")).collect();
    let right = renamed(plan, &keys, &names)?;
    let keys: Vec<Column> = names.into_iter().map(Column::from_name).collect();
    let same = same_values(&domain.outer, &keys, [join.left.schema(), right.schema()])?;
    let conditions: Vec<Expr> = same.into_iter().chain(all_conditions(&join)).collect();
    let joined =
        LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.left)).join_on(right, join.join_type, conditions)?;
    Ok(Transformed::yes(joined.project(as_expressions(&columns))?.build()?))
}

/// Whether a subquery reads no table. It computes its rows from outer columns alone, for example by `unnest`.
fn reads_no_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(node) => reads_no_table(&node.subquery),
        LogicalPlan::SubqueryAlias(node) => reads_no_table(&node.input),
        LogicalPlan::Projection(node) => reads_no_table(&node.input),
        LogicalPlan::Filter(node) => reads_no_table(&node.input),
        LogicalPlan::Unnest(node) => reads_no_table(&node.input),
        LogicalPlan::EmptyRelation(node) => node.produce_one_row,
        _ => false,
    }
}

/// Returns the rows of a join whose lateral subquery reads no table. The left side is read once, and the subquery is
/// computed for each of its rows.
fn expanded(join: &Join) -> Result<LogicalPlan> {
    let domain = Domain::of_rows(&join.left);
    let Unnested { plan, keys } = domain.unnest(&join.right)?;
    let left = keys
        .iter()
        .zip(domain.outer)
        .map(|(key, column)| Expr::Column(key.clone()).alias_qualified(column.relation, column.name));
    let columns: Vec<Expr> = left.chain(as_expressions(&other_columns(&plan, &keys))).collect();
    let mut rows = LogicalPlanBuilder::from(plan).project(columns)?;
    if let Some(condition) = all_conditions(join).into_iter().reduce(Expr::and) {
        rows = rows.filter(condition)?;
    }
    rows.build()
}
