//! Compares dates with dates where a comparison has a timestamp on the other side.
//!
//! A date plus an interval is a timestamp, so a column of dates is cast before it is compared with one. Scans know the
//! bounds of the column, but not those of the cast:
//!
//! ```text
//!   day::timestamp <  timestamp '2024-01-05 00:00'    ->   day <  date '2024-01-05'
//!   day::timestamp <  timestamp '2024-01-05 10:00'    ->   day <= date '2024-01-05'
//!   day::timestamp =  timestamp '2024-01-05 10:00'         stays as it is
//! ```

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use taut_types::LogicalType;

const MICROSECONDS_PER_DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// Rule that removes casts of dates from comparisons with constants. It runs after the simplifier, which computes the
/// constants and replaces `BETWEEN`.
#[derive(Debug, Default)]
pub struct DateComparisons;

impl OptimizerRule for DateComparisons {
    fn name(&self) -> &str {
        "taut_date_comparisons"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut has_casts = false;
        plan.apply_expressions(|expression| {
            has_casts |= expression.exists(|part| Ok(matches!(part, Expr::Cast(cast) if is_timestamp(cast))))?;
            Ok(if has_casts { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !has_casts {
            return Ok(Transformed::no(plan));
        }
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|part| Ok(without_cast(part, &schema)))?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    }
}

/// Removes the cast of a date from a comparison with constants, if no row changes its side.
fn without_cast(comparison: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match &comparison {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let read = match (cast_date(left, schema), moment(right), cast_date(right, schema), moment(left)) {
                (Some(date), Some(moment), _, _) => Some((date, *op, moment)),
                (_, _, Some(date), Some(moment)) => op.swap().map(|operator| (date, operator, moment)),
                _ => None,
            };
            match read.and_then(|(date, operator, moment)| compared(date, operator, moment)) {
                Some(changed) => Transformed::yes(changed),
                None => Transformed::no(comparison),
            }
        }
        Expr::InList(InList { expr, list, negated }) => {
            let days = |part: &Expr| moment(part).filter(|at| at % MICROSECONDS_PER_DAY == 0).and_then(day);
            match (cast_date(expr, schema), list.iter().map(days).collect::<Option<Vec<_>>>()) {
                (Some(date), Some(days)) => {
                    let days = days.into_iter().map(date_literal).collect();
                    Transformed::yes(date.clone().in_list(days, *negated))
                }
                _ => Transformed::no(comparison),
            }
        }
        _ => Transformed::no(comparison),
    }
}

/// Returns the comparison of a date with a day that has the same result as one with `moment`. Returns `None` if no
/// operator has.
fn compared(date: &Expr, operator: Operator, moment: i64) -> Option<Expr> {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let is_midnight = moment % MICROSECONDS_PER_DAY == 0;
    let operator = match operator {
        Eq | NotEq | IsDistinctFrom | IsNotDistinctFrom | Lt | GtEq if is_midnight => operator,
        Lt => LtEq,
        GtEq => Gt,
        LtEq | Gt => operator,
        _ => return None,
    };
    let day = date_literal(day(moment)?);
    Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(date.clone()), operator, Box::new(day))))
}

/// The day of a moment, as a number of days since 1970-01-01.
fn day(moment: i64) -> Option<i32> {
    i32::try_from(moment.div_euclid(MICROSECONDS_PER_DAY)).ok()
}

fn date_literal(day: i32) -> Expr {
    lit(ScalarValue::Date32(Some(day)))
}

/// The date that an expression casts to a timestamp.
fn cast_date<'a>(expression: &'a Expr, schema: &DFSchema) -> Option<&'a Expr> {
    match expression {
        Expr::Cast(cast) if is_timestamp(cast) => {
            Some(cast.expr.as_ref()).filter(|date| date.get_type(schema).is_ok_and(|part| part == DataType::Date32))
        }
        _ => None,
    }
}

fn is_timestamp(cast: &Cast) -> bool {
    *cast.field.data_type() == LogicalType::Timestamp.arrow()
}

/// The value of a timestamp literal, in microseconds since 1970-01-01.
fn moment(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(moment), None), _) => Some(*moment),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    /// A date is compared as before the rewrite, for all operators and for moments on and beside midnight, also before
    /// 1970.
    #[test]
    fn dates_compare_with_days_as_with_moments() {
        for moment in [0, 1, -1, MICROSECONDS_PER_DAY, MICROSECONDS_PER_DAY - 1, -MICROSECONDS_PER_DAY] {
            for day in -2_i64..=2 {
                let date = day * MICROSECONDS_PER_DAY;
                for (operator, expected) in [
                    (Operator::Eq, date == moment),
                    (Operator::NotEq, date != moment),
                    (Operator::Lt, date < moment),
                    (Operator::LtEq, date <= moment),
                    (Operator::Gt, date > moment),
                    (Operator::GtEq, date >= moment),
                ] {
                    let Some(Expr::BinaryExpr(changed)) = compared(&col("day"), operator, moment) else {
                        assert_ne!(moment % MICROSECONDS_PER_DAY, 0, "{operator} is not rewritten");
                        continue;
                    };
                    let Expr::Literal(ScalarValue::Date32(Some(literal)), _) = *changed.right else {
                        panic!("{} is no date", changed.right)
                    };
                    let literal = i64::from(literal);
                    let found = match changed.op {
                        Operator::Eq => day == literal,
                        Operator::NotEq => day != literal,
                        Operator::Lt => day < literal,
                        Operator::LtEq => day <= literal,
                        Operator::Gt => day > literal,
                        Operator::GtEq => day >= literal,
                        other => panic!("{other} is no comparison"),
                    };
                    assert_eq!(found, expected, "day {day} {operator} {moment}");
                }
            }
        }
    }
}
