//! Coercion of decimals to floating point where both occur in one operation.
//!
//! As in PostgreSQL, a decimal that is compared or combined with a double precision number is cast to double precision.
//! Without this rule the engine compares them as decimals of 30 digits. Very large numbers overflow these, and very
//! small ones lose their digits.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, cast};
use datafusion::optimizer::AnalyzerRule;

/// Rule that casts decimals to double precision. It runs before the engine's own type coercion.
#[derive(Debug, Default)]
pub struct FloatingPoint;

impl AnalyzerRule for FloatingPoint {
    fn name(&self) -> &str {
        "taut_floating_point"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let mapped = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let coerced =
                    expression.transform_up(|expression| Ok(coerce_to_floating_point(expression, &schema)))?;
                Ok(coerced.update_data(|expression| name.restore(expression)))
            })?;
            if mapped.transformed { mapped.map_data(LogicalPlan::recompute_schema) } else { Ok(mapped) }
        })?;
        Ok(changed.data)
    }
}

/// Casts the decimal operands of an expression to double precision if another operand is floating point.
pub fn coerce_to_floating_point(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let changed = widen(&mut [left.as_mut(), right.as_mut()], schema);
            changed_if(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
            let changed = widen(&mut [expr.as_mut(), low.as_mut(), high.as_mut()], schema);
            changed_if(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let mut parts: Vec<&mut Expr> = vec![expr.as_mut()];
            parts.extend(list.iter_mut());
            let changed = widen(&mut parts, schema);
            changed_if(Expr::InList(InList { expr, list, negated }), changed)
        }
        other => Transformed::no(other),
    }
}

fn changed_if(expression: Expr, changed: bool) -> Transformed<Expr> {
    if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
}

/// Casts the decimals among some expressions if any of them is floating point. Returns whether it changed any.
fn widen(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    // A part whose type is not known yet is left to the engine.
    let types: Vec<Option<DataType>> = parts.iter().map(|part| part.get_type(schema).ok()).collect();
    let mut changed = false;
    if types.iter().flatten().any(DataType::is_floating) {
        for (part, data_type) in parts.iter_mut().zip(&types) {
            if data_type.as_ref().is_some_and(DataType::is_decimal) {
                let decimal = std::mem::take(*part);
                **part = cast(decimal, DataType::Float64);
                changed = true;
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn decimals_are_cast_only_beside_floating_point() {
        use datafusion::arrow::datatypes::{Field, Schema};
        let fields = vec![Field::new("d", DataType::Float64, true), Field::new("i", DataType::Int32, true)];
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let tenth = || lit(ScalarValue::Decimal128(Some(1), 1, 1));
        assert!(coerce_to_floating_point(col("d").eq(tenth()), &schema).transformed);
        assert!(coerce_to_floating_point(tenth().lt(col("d")), &schema).transformed);
        assert!(coerce_to_floating_point(col("d").between(tenth(), lit(1)), &schema).transformed);
        assert!(coerce_to_floating_point(col("d").in_list(vec![lit(1), tenth()], true), &schema).transformed);
        assert!(!coerce_to_floating_point(col("i").eq(tenth()), &schema).transformed);
        assert!(!coerce_to_floating_point(col("d").eq(lit(1.5)), &schema).transformed);
    }
}
