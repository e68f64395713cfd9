//! Rewrites of subqueries that DataFusion does not support, or for which it returns false instead of null.
//!
//! - DataFusion runs `x IN (query)` under `OR` and `NOT` as a join that marks rows with a partner, and returns false
//!   for the other rows. For these, SQL returns null if `x` is null or the query has a null. `NOT` of null is null too.
//! - `EXISTS` and `IN` become counts in expressions whose value is used.
//! - A scalar subquery without a row is null, even if its column is not nullable.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue, Spans};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, Union, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::correlated::{flattened, is_predicate_for_engine};

/// Rule that rewrites subqueries. It runs after DataFusion's own type coercion.
#[derive(Debug, Default)]
pub struct Subqueries;

impl AnalyzerRule for Subqueries {
    fn name(&self) -> &str {
        "taut_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            if !has_subquery(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let is_filter = matches!(node, LogicalPlan::Filter(_));
            let names = NamePreserver::new(&node);
            let mapped = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let changed = if is_filter {
                    rewrite_condition(expression, &schema)?
                } else {
                    rewrite_value(expression, &schema)?
                };
                Ok(Transformed::yes(name.restore(changed)))
            })?;
            mapped.map_data(LogicalPlan::recompute_schema)
        })?;
        match changed.transformed {
            // Nodes above store the nullability of their columns, which must be recomputed.
            true => {
                Ok(changed.data.transform_up_with_subqueries(|node| recompute_schema(node).map(Transformed::yes))?.data)
            }
            false => Ok(changed.data),
        }
    }
}

/// Returns a node with the schema that its inputs imply. DataFusion does not recompute the schema of a union.
pub fn recompute_schema(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Union(Union { inputs, schema }) = node else { return node.recompute_schema() };
    let is_nullable = |index: usize| inputs.iter().any(|input| input.schema().field(index).is_nullable());
    let fields = schema.iter().enumerate().map(|(index, (qualifier, field))| {
        let field = field.as_ref().clone().with_nullable(is_nullable(index));
        (qualifier.cloned(), Arc::new(field))
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?;
    Ok(LogicalPlan::Union(Union { inputs, schema: Arc::new(schema) }))
}

fn has_subquery(node: &LogicalPlan) -> Result<bool> {
    let mut has = false;
    node.apply_expressions(|expression| {
        has |= expression
            .exists(|part| Ok(matches!(part, Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_))))?;
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has)
}

/// Rewrites a condition on rows, in which null has the same effect as false.
fn rewrite_condition(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let parts = split_conjunction_owned(expression).into_iter().map(|part| {
        let (inner, is_not) = match &part {
            Expr::Not(inner) => (inner.as_ref(), true),
            part => (part, false),
        };
        let is_join = match inner {
            Expr::Exists(inner) => {
                !selects_expressions(&inner.subquery.subquery) && is_predicate_for_engine(&inner.subquery, schema)
            }
            // DataFusion's join handles nulls if the subquery is not correlated.
            Expr::InSubquery(inner) => {
                let is_negated = inner.negated != is_not;
                // DataFusion's join treats null as false if the operand is a constant or is simplified to one.
                let is_correlated = !inner.subquery.outer_ref_columns.is_empty();
                !is_correlated && (!is_negated || is_column(&inner.expr))
            }
            _ => false,
        };
        if is_join { named_column(part) } else { rewrite_conjunct(part, schema) }
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
}

/// Rewrites a conjunct that DataFusion cannot join as a whole. Descends into the operands of `AND` and `OR`.
fn rewrite_conjunct(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Or | Operator::And), right }) => {
            let (left, right) = (rewrite_conjunct(*left, schema)?, rewrite_conjunct(*right, schema)?);
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        Expr::InSubquery(InSubquery { negated: false, ref subquery, .. }) if subquery.outer_ref_columns.is_empty() => {
            named_column(expression)
        }
        // In a condition, null has the same effect as false.
        Expr::InSubquery(part) if !part.negated && is_predicate_for_engine(&part.subquery, schema) => {
            Ok(found_condition(&part, schema)?)
        }
        other => Ok(other
            .transform_up(|part| match part {
                Expr::InSubquery(part) if is_predicate_for_engine(&part.subquery, schema) => {
                    let is_found = match part.subquery.outer_ref_columns.is_empty() {
                        true => named_column(Expr::InSubquery(InSubquery { negated: false, ..part.clone() }))?,
                        false => found_condition(&part, schema)?,
                    };
                    three_valued_in(part, is_found, schema, exists_condition).map(Transformed::yes)
                }
                Expr::Exists(part) if is_predicate_for_engine(&part.subquery, schema) => {
                    let subquery = match selects_expressions(&part.subquery.subquery) {
                        true => flattened(&part.subquery.subquery)?,
                        false => None,
                    };
                    Ok(Transformed::yes(Expr::Exists(Exists { subquery: subquery.unwrap_or(part.subquery), ..part })))
                }
                part => rewrite_subquery(part, schema),
            })?
            .data),
    }
}

/// Rewrites an expression whose value is used. DataFusion computes such expressions without joins.
fn rewrite_value(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expression.transform_up(|part| rewrite_subquery(part, schema))?.data)
}

/// Rewrites a subquery to a value.
fn rewrite_subquery(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match part {
        Expr::Exists(Exists { subquery, negated }) => {
            let is_found = match always_has_rows(&subquery.subquery) {
                true => lit(true),
                false => count_condition(subquery_rows(&subquery)?, &subquery, &[])?,
            };
            Ok(Transformed::yes(if negated { Expr::Not(Box::new(is_found)) } else { is_found }))
        }
        Expr::InSubquery(part) => {
            let (rows, outer) = found_rows(&part, schema)?;
            let is_found = count_condition(rows, &part.subquery, &outer)?;
            three_valued_in(part, is_found, schema, |rows, subquery| count_condition(rows, subquery, &[]))
                .map(Transformed::yes)
        }
        Expr::ScalarSubquery(part) => rewrite_scalar(part),
        part => Ok(Transformed::no(part)),
    }
}

/// Returns the rows of a correlated subquery that equal the operand, and the outer columns of the operand.
fn found_rows(part: &InSubquery, schema: &DFSchema) -> Result<(LogicalPlanBuilder, Vec<Expr>)> {
    let mut outer = Vec::new();
    let operand = part.expr.as_ref().clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let (qualifier, field) = schema.qualified_field_from_column(&column)?;
            let column = Column::new(qualifier.cloned(), field.name());
            outer.push(Expr::OuterReferenceColumn(Arc::clone(field), column));
            Ok(Transformed::yes(outer[outer.len() - 1].clone()))
        }
        part => Ok(Transformed::no(part)),
    })?;
    let rows = subquery_rows(&part.subquery)?;
    Ok((rows.clone().filter(only_column(&rows).eq(operand.data))?, outer))
}

/// Returns the condition that a correlated subquery has a row that equals the operand.
fn found_condition(part: &InSubquery, schema: &DFSchema) -> Result<Expr> {
    let (rows, outer) = found_rows(part, schema)?;
    match flattened(rows.plan())? {
        Some(subquery) => Ok(Expr::Exists(Exists { subquery, negated: false })),
        None => count_condition(rows, &part.subquery, &outer),
    }
}

/// Creates a subquery of a plan, with the outer columns of `subquery` and the columns in `outer`.
fn with_outer(plan: LogicalPlan, subquery: &Subquery, outer: &[Expr]) -> Subquery {
    let outer_ref_columns = subquery.outer_ref_columns.iter().chain(outer).cloned().collect();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}

/// Renames the column of an `IN` subquery, unless a column of a table is compared with a column. Otherwise both sides
/// of DataFusion's join could have a column of the same name.
fn named_column(condition: Expr) -> Result<Expr> {
    let named = condition.transform_up(|part| match part {
        Expr::InSubquery(mut part) if !is_column(&part.expr) || !selects_columns(&part.subquery.subquery) => {
            let rows = LogicalPlanBuilder::from(part.subquery.subquery.as_ref().clone());
            let column = only_column(&rows).alias("taut column");
            part.subquery.subquery = Arc::new(rows.project([column])?.build()?);
            Ok(Transformed::yes(Expr::InSubquery(part)))
        }
        part => Ok(Transformed::no(part)),
    })?;
    Ok(named.data)
}

/// Whether a query selects only columns of tables.
fn selects_columns(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let is_of_table = |value: &Expr| matches!(value, Expr::Column(column) if column.relation.is_some());
            projection.expr.iter().all(is_of_table)
        }
        _ => false,
    }
}

/// Whether a query selects anything else than columns and literals.
fn selects_expressions(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().any(|value| !matches!(value, Expr::Column(_) | Expr::Literal(..)))
        }
        _ => false,
    }
}

/// Whether an operand is a column, possibly cast.
fn is_column(operand: &Expr) -> bool {
    match operand {
        Expr::Column(_) => true,
        Expr::Cast(cast) => is_column(&cast.expr),
        _ => false,
    }
}

/// `IN` with SQL's three-valued logic: true if a row is found, else null if a null prevents a decision, else false.
/// `any` builds the condition that a subquery has rows.
fn three_valued_in(
    part: InSubquery,
    is_found: Expr,
    schema: &DFSchema,
    any: impl Fn(LogicalPlanBuilder, &Subquery) -> Result<Expr>,
) -> Result<Expr> {
    let InSubquery { expr, subquery, negated } = part;
    let rows = subquery_rows(&subquery)?;
    let mut unknown = Vec::new();
    if expr.nullable(schema)? {
        unknown.push(expr.is_null().and(any(rows.clone(), &subquery)?));
    }
    if subquery.subquery.schema().field(0).is_nullable() {
        unknown.push(any(rows.clone().filter(only_column(&rows).is_null())?, &subquery)?);
    }
    let is_in = match unknown.into_iter().reduce(Expr::or) {
        None => is_found,
        Some(unknown) => {
            when(is_found, lit(true)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(false))?
        }
    };
    Ok(if negated { Expr::Not(Box::new(is_in)) } else { is_in })
}

/// Returns the rows of a subquery under an alias that no outer column has. A subquery with outer columns gets no alias,
/// because DataFusion does not resolve outer columns below an alias.
fn subquery_rows(subquery: &Subquery) -> Result<LogicalPlanBuilder> {
    let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    if subquery.outer_ref_columns.is_empty() { rows.alias("taut subquery") } else { Ok(rows) }
}

/// The only column of a subquery.
fn only_column(rows: &LogicalPlanBuilder) -> Expr {
    Expr::Column(rows.schema().columns().swap_remove(0))
}

/// Returns the condition that a subquery has rows. Without outer columns it is a count, computed once. With outer
/// columns in filters it is an `EXISTS`, which DataFusion runs as a join. With others it is a count for each row.
fn exists_condition(rows: LogicalPlanBuilder, subquery: &Subquery) -> Result<Expr> {
    if subquery.outer_ref_columns.is_empty() {
        return count_condition(rows, subquery, &[]);
    }
    match flattened(rows.plan())? {
        Some(subquery) => Ok(Expr::Exists(Exists { subquery, negated: false })),
        None => count_condition(rows, subquery, &[]),
    }
}

/// Returns the condition that a subquery has rows, as a count. `outer` are outer columns that `subquery` itself lacks.
fn count_condition(rows: LogicalPlanBuilder, subquery: &Subquery, outer: &[Expr]) -> Result<Expr> {
    let is_correlated = !subquery.outer_ref_columns.is_empty() || !outer.is_empty();
    let rows = if is_correlated { rows } else { rows.limit(0, Some(1))? };
    let counted = rows.aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64)).alias("taut count")])?.build()?;
    Ok(Expr::ScalarSubquery(with_outer(counted, subquery, outer)).gt(lit(0_i64)))
}

/// Makes the column of a scalar subquery nullable, because the result is null if there is no row. DataFusion derives
/// nullability from the column alone, even after simplification.
fn rewrite_scalar(subquery: Subquery) -> Result<Transformed<Expr>> {
    let plan = &subquery.subquery;
    if always_has_rows(plan) || !subquery.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let rows = subquery_rows(&subquery)?;
    let column = only_column(&rows);
    let joined = LogicalPlanBuilder::empty(true).join_on(rows.build()?, JoinType::Left, [lit(true)])?;
    let joined = joined.project([column])?.build()?;
    Ok(Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: Arc::new(joined), ..subquery })))
}

/// Whether a plan always has at least one row.
fn always_has_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => always_has_rows(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_has_rows(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        _ => false,
    }
}
