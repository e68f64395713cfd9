//! Types of the operands of an operator, where PostgreSQL and the engine differ.
//!
//! A decimal that is compared or combined with a double precision number is cast to double precision. Without this rule
//! the engine compares them as decimals of 30 digits. Very large numbers overflow these, and very small ones lose their
//! digits.
//!
//! Values of different kinds are not compared: `date > 5` is an error. The engine casts one of the two to the type of
//! the other, and would compare days or text. A string literal takes the type of the other operand.
//!
//! `SIMILAR TO` becomes a comparison with a regular expression.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::AnalyzerRule;

use super::similar_to::similar_to;

/// Rule that casts decimals and checks comparisons. It runs before the engine's own type coercion.
#[derive(Debug, Default)]
pub struct OperandTypes;

impl AnalyzerRule for OperandTypes {
    fn name(&self) -> &str {
        "taut_operand_types"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let mapped = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let coerced = expression.transform_up(|expression| coerce_operands(expression, &schema))?;
                Ok(coerced.update_data(|expression| name.restore(expression)))
            })?;
            if mapped.transformed { mapped.map_data(LogicalPlan::recompute_schema) } else { Ok(mapped) }
        })?;
        Ok(changed.data)
    }
}

/// Casts the decimal operands of an expression to double precision if another operand is floating point.
///
/// # Errors
/// If it compares values of different kinds.
pub fn coerce_operands(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expression {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let comparison = is_comparison(op).then(|| op.to_string());
            let changed = widen(&mut [left.as_mut(), right.as_mut()], comparison.as_deref(), schema)?;
            changed_if(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
            let changed = widen(&mut [expr.as_mut(), low.as_mut(), high.as_mut()], Some(">="), schema)?;
            changed_if(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let mut parts: Vec<&mut Expr> = vec![expr.as_mut()];
            parts.extend(list.iter_mut());
            let changed = widen(&mut parts, Some("="), schema)?;
            changed_if(Expr::InList(InList { expr, list, negated }), changed)
        }
        Expr::SimilarTo(comparison) => Transformed::yes(similar_to(comparison)),
        other => Transformed::no(other),
    })
}

fn changed_if(expression: Expr, changed: bool) -> Transformed<Expr> {
    if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
}

/// Casts the decimals among some expressions if any of them is floating point. Returns whether it changed any. Checks
/// that a comparison of the first expression with each of the others is possible.
fn widen(parts: &mut [&mut Expr], comparison: Option<&str>, schema: &DFSchema) -> Result<bool> {
    // A part whose type is not known yet is left to the engine.
    let types: Vec<Option<DataType>> = parts.iter().map(|part| part.get_type(schema).ok()).collect();
    if let (Some(operator), [Some(left), others @ ..]) = (comparison, types.as_slice()) {
        let left_kind = Kind::of(parts[0], left);
        for (part, right) in parts[1..].iter().zip(others) {
            let Some(right) = right else { continue };
            if left_kind.zip(Kind::of(part, right)).is_some_and(|(left, right)| left != right) {
                return plan_err!(
                    "Cannot infer common argument type for comparison operation {left} {operator} {right}"
                );
            }
        }
    }
    let mut changed = false;
    // The engine has no implicit cast from text to boolean.
    if comparison.is_some() && types.contains(&Some(DataType::Boolean)) {
        for part in parts.iter_mut().filter(|part| is_string_literal(part)) {
            let literal = std::mem::take(*part);
            **part = cast(literal, DataType::Boolean);
            changed = true;
        }
    }
    if types.iter().flatten().any(DataType::is_floating) {
        for (part, data_type) in parts.iter_mut().zip(&types) {
            if data_type.as_ref().is_some_and(DataType::is_decimal) {
                let decimal = std::mem::take(*part);
                **part = cast(decimal, DataType::Float64);
                changed = true;
            }
        }
    }
    Ok(changed)
}

/// Whether an operator compares two values.
pub(super) fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_string_literal(expression: &Expr) -> bool {
    use ScalarValue::{LargeUtf8, Utf8, Utf8View};
    matches!(expression, Expr::Literal(Utf8(Some(_)) | LargeUtf8(Some(_)) | Utf8View(Some(_)), _))
}

/// Kinds of values. Values of one kind can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Boolean,
    Number,
    Text,
    Bytes,
    /// Dates and timestamps.
    Instant,
    Time,
    Interval,
}

impl Kind {
    /// Kind of an expression. `None` for strings that take another type, nulls, parameters, and types that only the
    /// engine knows.
    fn of(expression: &Expr, data_type: &DataType) -> Option<Self> {
        if matches!(expression, Expr::Placeholder(_)) {
            return None;
        }
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            number if number.is_numeric() => Self::Number,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if !matches!(expression, Expr::Literal(..)) => {
                Self::Text
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::Bytes,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Self::Instant,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Interval(_) | DataType::Duration(_) => Self::Interval,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn decimals_are_cast_only_beside_floating_point() {
        use datafusion::arrow::datatypes::{Field, Schema};
        let fields = vec![Field::new("d", DataType::Float64, true), Field::new("i", DataType::Int32, true)];
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let tenth = || lit(ScalarValue::Decimal128(Some(1), 1, 1));
        assert!(coerce_operands(col("d").eq(tenth()), &schema).unwrap().transformed);
        assert!(coerce_operands(tenth().lt(col("d")), &schema).unwrap().transformed);
        assert!(coerce_operands(col("d").between(tenth(), lit(1)), &schema).unwrap().transformed);
        assert!(coerce_operands(col("d").in_list(vec![lit(1), tenth()], true), &schema).unwrap().transformed);
        assert!(!coerce_operands(col("i").eq(tenth()), &schema).unwrap().transformed);
        assert!(!coerce_operands(col("d").eq(lit(1.5)), &schema).unwrap().transformed);
    }

    #[test]
    fn values_of_different_kinds_are_not_compared() {
        use datafusion::arrow::datatypes::{Field, Schema};
        let fields = vec![
            Field::new("day", DataType::Date32, true),
            Field::new("s", DataType::Utf8View, true),
            Field::new("i", DataType::Int32, true),
        ];
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let refused = [col("day").gt(lit(5)), col("s").eq(col("i")), col("i").in_list(vec![lit(1), lit(true)], false)];
        for comparison in refused {
            let error = coerce_operands(comparison, &schema).unwrap_err().to_string();
            assert!(error.contains("Cannot infer common argument type"), "{error}");
        }
        let allowed = [col("day").gt(lit("2024-01-01")), col("i").eq(lit("5")), col("s").eq(lit("x"))];
        for comparison in allowed {
            assert!(coerce_operands(comparison, &schema).is_ok());
        }
    }
}
