//! Cardinality estimates of plans from the catalog's statistics.
//!
//! The assumptions are the textbook ones (Selinger et al., 1979). Values are uniform between the bounds, and columns
//! are independent. The larger set of join keys contains the smaller. An estimate affects only the plan, never the
//! result.

use std::collections::HashMap;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::{Column, JoinType, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use taut_types::{ColumnStatistics, Datum, LogicalType, f32_from_ordered, f64_from_ordered};

use super::materialized::Materialize;
use crate::exec::scan::TautTable;
use crate::exec::scan::literal_datum;

/// Share of rows that pass a condition without statistics.
const UNKNOWN_SELECTIVITY: f64 = 0.25;
/// Share of rows that pass a `LIKE` pattern.
const LIKE_SELECTIVITY: f64 = 0.05;
/// Share of rows that pass an equality of other operands than a column and a literal.
const EQUALITY_SELECTIVITY: f64 = 0.05;
/// Share of rows that pass an inequality of two columns.
const INEQUALITY_SELECTIVITY: f64 = 1.0 / 3.0;
/// Share of nulls in an expression without statistics.
const NULL_SHARE: f64 = 0.1;
/// Minimum share of rows between two bounds.
const RANGE_MIN: f64 = 0.001;
/// Share of groups that pass a condition on an aggregate. Such conditions usually select exceptional groups.
const HAVING_SELECTIVITY: f64 = 0.05;

/// Estimated size of a plan's output.
#[derive(Clone, Debug)]
pub struct RelationEstimate {
    /// Estimated rows, at least one.
    pub rows: f64,
    /// Rows before conditions. They bound the distinct combinations of several columns.
    pub base_rows: f64,
    /// Distinct values by column, before conditions, for columns with statistics.
    pub distinct: HashMap<Column, f64>,
}

impl RelationEstimate {
    fn with_selectivity(mut self, share: f64) -> Self {
        self.rows = (self.rows * share).max(1.0);
        self
    }

    /// Rows and base rows.
    pub fn size(&self) -> Cardinality {
        Cardinality { rows: self.rows, base_rows: self.base_rows }
    }

    /// Distinct values of a join key, before conditions. A key without statistics is assumed to be unique among the
    /// rows that pass the conditions.
    pub fn distinct_estimate_of(&self, key: &Expr) -> f64 {
        let distinct_values = match key {
            Expr::Column(column) => self.distinct.get(column).copied(),
            Expr::Cast(cast) => return self.distinct_estimate_of(&cast.expr),
            _ => None,
        };
        distinct_values.unwrap_or(self.rows).max(1.0)
    }
}

/// Estimates a plan. Returns `None` if it reads a table without statistics.
pub fn estimate(plan: &LogicalPlan) -> Option<RelationEstimate> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source).ok()?;
            let table = provider.downcast_ref::<TautTable>()?;
            let rows = (table.rows() as f64).max(1.0);
            let share = table.selectivity(&scan.filters);
            // Statistics are looked up by name, because a statement may see only some columns of the table.
            let count = |column: &Column| table.distinct_estimate_of(column.name());
            let columns = scan.projected_schema.columns().into_iter();
            let distinct = columns.filter_map(|column| Some((column.clone(), count(&column)?))).collect();
            Some(RelationEstimate { rows, base_rows: rows, distinct }.with_selectivity(share))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = estimate(&alias.input)?;
            let renamed = alias.input.schema().columns().into_iter().zip(alias.schema.columns());
            let distinct = renamed.filter_map(|(old, new)| Some((new, *inner.distinct.get(&old)?))).collect();
            Some(RelationEstimate { distinct, ..inner })
        }
        LogicalPlan::Projection(projection) => {
            let inner = estimate(&projection.input)?;
            let named = projection.expr.iter().zip(projection.schema.columns());
            let distinct = named
                .filter_map(|(expression, new)| match expression.clone().unalias() {
                    Expr::Column(old) => Some((new, *inner.distinct.get(&old)?)),
                    _ => None,
                })
                .collect();
            Some(RelationEstimate { distinct, ..inner })
        }
        LogicalPlan::Filter(filter) => {
            let inner = estimate(&filter.input)?;
            let share = if above_aggregate(&filter.input) {
                HAVING_SELECTIVITY
            } else {
                filter_selectivity(&filter.predicate, &filter.input)
            };
            Some(inner.with_selectivity(share))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let inner = estimate(&aggregate.input)?;
            let groups: f64 = aggregate.group_expr.iter().map(|group| inner.distinct_estimate_of(group)).product();
            let rows = groups.min(inner.rows).max(1.0);
            let distinct = inner.distinct.into_iter().map(|(column, count)| (column, count.min(rows))).collect();
            Some(RelationEstimate { rows, base_rows: rows, distinct })
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (estimate(&join.left)?, estimate(&join.right)?);
            let share = join.filter.as_ref().map_or(1.0, |_| INEQUALITY_SELECTIVITY);
            Some(match join.join_type {
                JoinType::LeftSemi => {
                    let share = semi_join_selectivity(&left, &right, &join.on);
                    left.with_selectivity(share)
                }
                JoinType::LeftAnti => {
                    let share = 1.0 - semi_join_selectivity(&left, &right, &join.on);
                    left.with_selectivity(share.max(0.1))
                }
                JoinType::RightSemi | JoinType::RightAnti => right,
                JoinType::LeftMark | JoinType::RightMark => left,
                JoinType::Inner => join_estimates(&left, &right, &join.on).with_selectivity(share),
                JoinType::Left => at_least(join_estimates(&left, &right, &join.on), left.rows),
                JoinType::Right => at_least(join_estimates(&left, &right, &join.on), right.rows),
                JoinType::Full => at_least(join_estimates(&left, &right, &join.on), left.rows + right.rows),
            })
        }
        LogicalPlan::Limit(limit) => estimate(&limit.input),
        LogicalPlan::Sort(sort) => estimate(&sort.input),
        LogicalPlan::Distinct(distinct) => estimate(distinct.input()),
        LogicalPlan::Repartition(repartition) => estimate(&repartition.input),
        other => estimate(Materialize::from_plan(other)?.input()),
    }
}

fn at_least(mut relation: RelationEstimate, rows: f64) -> RelationEstimate {
    relation.rows = relation.rows.max(rows);
    relation
}

fn above_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_) => true,
        LogicalPlan::Projection(projection) => above_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => above_aggregate(&alias.input),
        _ => false,
    }
}

/// Share of rows that pass a filter. If the filter is directly above a scan, it comes from the statistics of the table.
/// For any other input, it comes from the constants of this file.
fn filter_selectivity(predicate: &Expr, input: &LogicalPlan) -> f64 {
    let mut plan = input;
    while let LogicalPlan::SubqueryAlias(alias) = plan {
        plan = &alias.input;
    }
    if let LogicalPlan::TableScan(scan) = plan
        && let Ok(provider) = source_as_provider(&scan.source)
        && let Some(table) = provider.downcast_ref::<TautTable>()
    {
        return table.selectivity(std::slice::from_ref(predicate));
    }
    selectivity_of(predicate, &|_| None)
}

/// Rows and base rows of a relation.
#[derive(Clone, Copy, Debug)]
pub struct Cardinality {
    /// Estimated rows, at least one.
    pub rows: f64,
    /// Rows before conditions.
    pub base_rows: f64,
}

impl Cardinality {
    /// Size of a join on keys with these numbers of distinct values, left and right.
    ///
    /// For a single key, the larger set of keys contains the smaller one. For several keys, each side has at most one
    /// combination per row. One side contains all combinations of the other side, so the smaller count bounds the
    /// combinations with a partner.
    pub fn join(self, other: Self, keys: &[(f64, f64)]) -> Self {
        let key_count = match keys {
            [] => 1.0,
            [(left, right)] => left.max(*right),
            _ => {
                let left: f64 = keys.iter().map(|(left, _)| left).product();
                let right: f64 = keys.iter().map(|(_, right)| right).product();
                left.min(self.base_rows).min(right.min(other.base_rows)).max(1.0)
            }
        };
        let rows = (self.rows * other.rows / key_count).max(1.0);
        Self { rows, base_rows: self.base_rows.max(other.base_rows) }
    }
}

/// The join of two relations on pairs of keys.
fn join_estimates(left: &RelationEstimate, right: &RelationEstimate, on: &[(Expr, Expr)]) -> RelationEstimate {
    let keys: Vec<_> = on
        .iter()
        .map(|(left_key, right_key)| (left.distinct_estimate_of(left_key), right.distinct_estimate_of(right_key)))
        .collect();
    let Cardinality { rows, base_rows } = left.size().join(right.size(), &keys);
    let mut distinct = left.distinct.clone();
    distinct.extend(right.distinct.iter().map(|(column, count)| (column.clone(), *count)));
    RelationEstimate { rows, base_rows, distinct }
}

/// Share of left rows that have a partner.
pub fn semi_join_selectivity(left: &RelationEstimate, right: &RelationEstimate, on: &[(Expr, Expr)]) -> f64 {
    on.iter()
        .map(|(left_key, right_key)| {
            (right.distinct_estimate_of(right_key).min(right.rows) / left.distinct_estimate_of(left_key))
                .clamp(0.0, 1.0)
        })
        .fold(1.0, f64::min)
}

/// Type and statistics of a column, as [`selectivity`] looks them up.
pub type KnownColumn<'a> = (LogicalType, &'a ColumnStatistics);

/// Share of rows that pass all conditions, by the statistics of their columns. It is 1 without conditions. Columns are
/// assumed to be independent, but two bounds of one column form a range.
pub fn selectivity<'a>(conditions: &[Expr], statistics_of: &dyn Fn(&Column) -> Option<KnownColumn<'a>>) -> f64 {
    let mut share = 1.0;
    let mut bounds: Vec<(&Column, bool, f64)> = Vec::new();
    for condition in conditions.iter().flat_map(split_conjunction) {
        let passing = selectivity_of(condition, statistics_of);
        let Some((column, is_upper)) = bounded_column(condition) else {
            share *= passing;
            continue;
        };
        match bounds.iter().position(|(other, upper, _)| *other == column && *upper != is_upper) {
            Some(index) => share *= (bounds.swap_remove(index).2 + passing - 1.0).max(RANGE_MIN),
            None => bounds.push((column, is_upper, passing)),
        }
    }
    share * bounds.iter().map(|(.., passing)| passing).product::<f64>()
}

/// Column that a condition bounds, and whether it is an upper bound.
fn bounded_column(condition: &Expr) -> Option<(&Column, bool)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (column, is_upper) = match (column_of(left), column_of(right), op) {
        (Some(column), None, Operator::Lt | Operator::LtEq) => (column, true),
        (Some(column), None, Operator::Gt | Operator::GtEq) => (column, false),
        (None, Some(column), Operator::Lt | Operator::LtEq) => (column, false),
        (None, Some(column), Operator::Gt | Operator::GtEq) => (column, true),
        _ => return None,
    };
    (literal_of(left).is_some() || literal_of(right).is_some()).then_some((column, is_upper))
}

/// Share of rows that pass a condition.
fn selectivity_of<'a>(condition: &Expr, statistics_of: &dyn Fn(&Column) -> Option<KnownColumn<'a>>) -> f64 {
    match condition {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
            selectivity(std::slice::from_ref(condition), statistics_of)
        }
        Expr::BinaryExpr(binary) => binary_share(binary, statistics_of),
        Expr::Not(inner) => 1.0 - selectivity_of(inner, statistics_of),
        Expr::IsNull(inner) => null_share(inner, statistics_of),
        Expr::IsNotNull(inner) => 1.0 - null_share(inner, statistics_of),
        Expr::Between(between) => {
            let column = column_of(&between.expr).and_then(statistics_of);
            let (low, high) = (literal_of(&between.low), literal_of(&between.high));
            let inside = match (column, low, high) {
                (Some(column), Some(low), Some(high)) => (fraction_below(column, high) - fraction_below(column, low))
                    .max(equality_selectivity(column))
                    .clamp(0.0, 1.0),
                _ => UNKNOWN_SELECTIVITY,
            };
            if between.negated { 1.0 - inside } else { inside }
        }
        Expr::InList(list) => {
            let inside = match column_of(&list.expr).and_then(statistics_of) {
                Some(column) => (list.list.len() as f64 * equality_selectivity(column)).min(1.0),
                None => UNKNOWN_SELECTIVITY,
            };
            if list.negated { 1.0 - inside } else { inside }
        }
        Expr::Like(like) => {
            if like.negated {
                1.0 - LIKE_SELECTIVITY
            } else {
                LIKE_SELECTIVITY
            }
        }
        Expr::Literal(ScalarValue::Boolean(Some(flag)), _) => f64::from(u8::from(*flag)),
        _ => UNKNOWN_SELECTIVITY,
    }
}

fn binary_share<'a>(binary: &BinaryExpr, statistics_of: &dyn Fn(&Column) -> Option<KnownColumn<'a>>) -> f64 {
    if binary.op == Operator::Or {
        let (left, right) = (selectivity_of(&binary.left, statistics_of), selectivity_of(&binary.right, statistics_of));
        return left + right - left * right;
    }
    let (column, operator, literal) = match (column_of(&binary.left), literal_of(&binary.right)) {
        (Some(column), Some(literal)) => (column, binary.op, literal),
        _ => match (literal_of(&binary.left), column_of(&binary.right), binary.op.swap()) {
            (Some(literal), Some(column), Some(operator)) => (column, operator, literal),
            _ if binary.op == Operator::Eq => return EQUALITY_SELECTIVITY,
            _ => return INEQUALITY_SELECTIVITY,
        },
    };
    let Some(column) = statistics_of(column) else { return UNKNOWN_SELECTIVITY };
    match operator {
        Operator::Eq => equality_selectivity(column),
        Operator::NotEq => 1.0 - equality_selectivity(column),
        Operator::Lt | Operator::LtEq => fraction_below(column, literal),
        Operator::Gt | Operator::GtEq => 1.0 - fraction_below(column, literal),
        Operator::LikeMatch => LIKE_SELECTIVITY,
        _ => UNKNOWN_SELECTIVITY,
    }
}

fn column_of(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Cast(cast) => column_of(&cast.expr),
        _ => None,
    }
}

fn literal_of(expression: &Expr) -> Option<&ScalarValue> {
    match expression {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn null_share<'a>(expression: &Expr, statistics_of: &dyn Fn(&Column) -> Option<KnownColumn<'a>>) -> f64 {
    match column_of(expression).and_then(statistics_of) {
        Some((_, statistics)) => statistics.nulls as f64 / (statistics.rows as f64).max(1.0),
        None => NULL_SHARE,
    }
}

fn equality_selectivity((_, statistics): KnownColumn<'_>) -> f64 {
    1.0 / (statistics.distinct_estimate() as f64).max(1.0)
}

/// Share of values below a literal, by its position between the minimum and the maximum.
fn fraction_below((logical_type, statistics): KnownColumn<'_>, literal: &ScalarValue) -> f64 {
    let as_number = |key: &Datum| match (key, logical_type) {
        (Datum::Number(number), LogicalType::Double) => f64_from_ordered(*number as i64),
        (Datum::Number(number), LogicalType::Real) => f64::from(f32_from_ordered(*number as i32)),
        (Datum::Number(number), _) => *number as f64,
        (Datum::Bytes(bytes), _) => bytes.iter().take(8).fold((0.0, 1.0 / 256.0), prefix_digit).0,
    };
    match (literal_datum(literal, logical_type).flatten(), &statistics.min, &statistics.max) {
        (Some(key), Some(min), Some(max)) => {
            let (low, high, at) = (as_number(min), as_number(max), as_number(&key));
            let share = if high > low { (at - low) / (high - low) } else { f64::from(u8::from(at >= low)) };
            if share.is_finite() { share.clamp(0.0, 1.0) } else { UNKNOWN_SELECTIVITY }
        }
        _ => INEQUALITY_SELECTIVITY,
    }
}

/// Adds the next byte of a string that is read as a fraction in base 256.
fn prefix_digit((sum, weight): (f64, f64), byte: &u8) -> (f64, f64) {
    (sum + f64::from(*byte) * weight, weight / 256.0)
}
