//! Rule that computes operands only for the rows that need them. In `x <> 0 AND 10 / x > 2`, the first operand of `AND`
//! guards the division. `OR`, `CASE` and the condition of an aggregate's `FILTER` are guards too. DataFusion computes
//! both operands of `AND` and `OR` for all rows of a batch, and the arguments of an aggregate even for rows that its
//! filter rejects. Therefore this rule replaces the expressions on the left by those on the right:
//!
//! ```text
//!   a AND b                    CASE a WHEN true THEN b WHEN false THEN false ELSE b AND NULL END
//!   a OR b                     CASE a WHEN false THEN b WHEN true THEN true ELSE b OR NULL END
//!   WHERE a AND b, ON a AND b  a AND CASE a WHEN true THEN b ELSE false END
//!   sum(x) FILTER (WHERE a)    sum(CASE a WHEN true THEN x END) FILTER (WHERE a)
//!   CASE WHEN a THEN b END     CASE true WHEN a THEN b END
//! ```
//!
//! The rule guards an operand `b` or `x` only if it may fail, such as a quotient. The conditions of `WHERE` and `ON`
//! stay conjunctions, because scans use each conjunct.
//!
//! DataFusion simplifies a `CASE WHEN a` with boolean results to `AND` and `OR`, and would compute all operands again.
//! It does not simplify a `CASE` that has an operand. Guards therefore have the form `CASE a WHEN true`. For the same
//! reason, a `CASE WHEN a` of the statement becomes `CASE true WHEN a`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_binary, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use super::arithmetic::{input_schema, is_checked_function};
use super::dates::is_text;
use super::domains::has_domain;
use super::frame_exclusion::split_filter;

/// Analyzer rule that guards operands that may fail. It runs after checked arithmetic.
#[derive(Debug, Default)]
pub struct Guards;

impl AnalyzerRule for Guards {
    fn name(&self) -> &str {
        "taut_guards"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            // DataFusion compares sort expressions to find out whether operators have the same order, so this rule does
            // not change them.
            if matches!(node, LogicalPlan::Sort(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = input_schema(&node)?;
            let names = NamePreserver::new(&node);
            let is_condition =
                matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_));
            node.map_expressions(|expression| {
                // Most expressions cannot fail.
                if !may_fail(&expression, &schema)? {
                    return Ok(Transformed::no(expression));
                }
                let name = names.save(&expression);
                let guarded = match is_condition {
                    true => guarded_condition(expression, &schema)?,
                    false => guarded(expression, &schema)?,
                };
                Ok(Transformed::yes(name.restore(guarded)))
            })
        })?;
        Ok(changed.data)
    }
}

/// Maximum number of conjuncts that guard later ones. Each guarded conjunct contains copies of its guards, so more
/// guards would make planning slow.
const GUARDS_MAX: usize = 16;

/// Guards each conjunct that may fail. Its guards are the earlier conjuncts that cannot fail and read no tables other
/// than its own.
fn guarded_condition(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let mut parts: Vec<Expr> = Vec::new();
    let mut guards: Vec<(Expr, Vec<Option<TableReference>>)> = Vec::new();
    for part in split_conjunction_owned(condition) {
        if !may_fail(&part, schema)? {
            if is_guard(&part) && guards.len() < GUARDS_MAX {
                guards.push((part.clone(), tables(&part)));
            }
            parts.push(part);
            continue;
        }
        // DataFusion can use such a conjunct for a join only in its original form.
        if must_keep_form(&part) {
            parts.push(part);
            continue;
        }
        let part = guarded(part, schema)?;
        let tables = tables(&part);
        let reads_the_same = |guard: &&(Expr, Vec<_>)| guard.1.iter().all(|table| tables.contains(table));
        let guard = conjunction(guards.iter().filter(reads_the_same).map(|(guard, _)| guard.clone()));
        parts.push(match guard {
            Some(guard) => case(guard, vec![(lit(true), part)], Some(lit(false))),
            None => part,
        });
    }
    Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
}

/// Whether a condition must not be rewritten: it equates values of different tables, has a subquery or an outer column,
/// or is volatile.
fn must_keep_form(condition: &Expr) -> bool {
    if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition {
        let (left, right) = (tables(left), tables(right));
        if !left.is_empty() && !right.is_empty() && left.iter().all(|table| !right.contains(table)) {
            return true;
        }
    }
    !is_guard(condition) || condition.exists(|part| Ok(matches!(part, Expr::OuterReferenceColumn(..)))).unwrap_or(true)
}

/// Whether a condition can guard others. A guard is computed a second time, so it must not be volatile or have a
/// subquery.
fn is_guard(condition: &Expr) -> bool {
    let has_query = |part: &Expr| {
        Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)))
    };
    !condition.is_volatile() && !condition.exists(has_query).unwrap_or(true)
}

/// Returns the tables whose columns an expression reads. `None` stands for columns without a table.
fn tables(expression: &Expr) -> Vec<Option<TableReference>> {
    let mut tables: Vec<_> = expression.column_refs().iter().map(|column| column.relation.clone()).collect();
    tables.sort();
    tables.dedup();
    tables
}

/// Guards the operands that may fail in an expression. `schema` has the columns that the expression reads.
///
/// # Errors
/// If the type of an operand cannot be determined.
pub fn guarded(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewritten = expression.transform_down(|part| match part {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => guarded_chain(part, op, schema),
        Expr::Case(Case { expr: None, when_then_expr, else_expr })
            if when_then_expr.first().is_some_and(|(_, then)| is_boolean(then, schema)) =>
        {
            let operand = Some(Box::new(lit(true)));
            Ok(Transformed::yes(Expr::Case(Case { expr: operand, when_then_expr, else_expr })))
        }
        Expr::AggregateFunction(mut call) => {
            if let Some(filter) = &call.params.filter {
                guard_arguments(&mut call.params.args, filter, schema)?;
            }
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        Expr::WindowFunction(mut call) => {
            if let Some(filter) = &call.params.filter {
                guard_arguments(&mut call.params.args, filter, schema)?;
            }
            if let Some((arguments, filter)) = split_filter(&call.fun, &mut call.params.args) {
                guard_arguments(arguments, filter, schema)?;
            }
            // Like the expressions of a sort, the other expressions of a window function are not changed.
            Ok(Transformed::new(Expr::WindowFunction(call), true, TreeNodeRecursion::Jump))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

/// Guards the rest of an `AND` or `OR` chain, from the first part that may fail. The parts before it are the guards.
/// Returns the chain unchanged if it has no guard or no such part.
fn guarded_chain(chain: Expr, op: Operator, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let parts = split_binary(&chain, op);
    let mut safe = 0;
    while safe < parts.len() && is_guard(parts[safe]) && !may_fail(parts[safe], schema)? {
        safe += 1;
    }
    if safe == 0 || safe == parts.len() || parts[safe..].iter().any(|part| has_guarded_chain(part, schema)) {
        return Ok(Transformed::no(chain));
    }
    let joined = |parts: &[&Expr]| {
        let mut parts = parts.iter().map(|part| (*part).clone());
        let first = parts.next().unwrap_or_else(|| lit(true));
        parts.fold(first, |left, right| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
    };
    let (guard, rest) = (joined(&parts[..safe]), joined(&parts[safe..]));
    let is_and = op == Operator::And;
    // The value of the guard that determines the result: false for AND, true for OR.
    let decisive = (lit(!is_and), lit(!is_and));
    let null = Box::new(lit(ScalarValue::Boolean(None)));
    let unknown = Expr::BinaryExpr(BinaryExpr::new(Box::new(rest.clone()), op, null));
    Ok(Transformed::yes(case(guard, vec![(lit(is_and), rest), decisive], Some(unknown))))
}

/// Whether a part contains a chain that would be guarded. A guarded chain contains copies of its parts, so nested
/// chains would grow exponentially.
fn has_guarded_chain(part: &Expr, schema: &DFSchema) -> bool {
    part.exists(|inner| {
        Ok(matches!(inner, Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }))
            && may_fail(inner, schema)?)
    })
    .unwrap_or(true)
}

/// Rewrites arguments so that they are computed only for the rows that a filter accepts.
fn guard_arguments(arguments: &mut [Expr], filter: &Expr, schema: &DFSchema) -> Result<()> {
    for argument in arguments {
        if may_fail(argument, schema)? && is_guard(filter) {
            let value = std::mem::take(argument);
            *argument = case(filter.clone(), vec![(lit(true), value)], None);
        }
    }
    Ok(())
}

fn case(operand: Expr, branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let branches = branches.into_iter().map(|(when, then)| (Box::new(when), Box::new(then))).collect();
    Expr::Case(Case { expr: Some(Box::new(operand)), when_then_expr: branches, else_expr: otherwise.map(Box::new) })
}

fn is_boolean(expression: &Expr, schema: &DFSchema) -> bool {
    expression.get_type(schema).is_ok_and(|data_type| data_type == DataType::Boolean)
}

/// Whether an expression has a part that reads columns and may fail for some values: checked arithmetic, a quotient, a
/// function such as `ln`, or a cast of text to another type.
fn may_fail(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    let mut found = false;
    expression.apply(|part| {
        let is_fallible = match part {
            Expr::BinaryExpr(BinaryExpr { op: Operator::Divide | Operator::Modulo, .. }) => true,
            Expr::ScalarFunction(call) => {
                is_checked_function(&call.func)
                    || has_domain(&call.func)
                    || matches!(call.func.name(), "to_date" | "to_number" | "to_timestamp" | "to_timestamp_micros")
            }
            Expr::Cast(Cast { expr, field }) => is_text(&expr.get_type(schema)?) && !is_text(field.data_type()),
            _ => false,
        };
        found |= is_fallible && !part.column_refs().is_empty();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::not;
    use datafusion::prelude::col;

    use super::*;

    fn schema() -> DFSchema {
        let field = |name| Field::new(name, DataType::Int32, true);
        DFSchema::try_from(Schema::new(vec![field("x"), field("y")])).unwrap()
    }

    #[test]
    fn operands_that_may_fail_are_guarded() {
        let quotient = || (lit(10) / col("x")).gt(lit(2));
        let cases = [
            (
                col("y").eq(lit(0)).or(quotient()),
                "CASE y = Int32(0) WHEN Boolean(false) THEN Int32(10) / x > Int32(2) WHEN Boolean(true) THEN Boolean(true) \
                 ELSE Int32(10) / x > Int32(2) OR Boolean(NULL) END",
            ),
            (
                not(col("y").eq(lit(0)).and(quotient())),
                "NOT CASE y = Int32(0) WHEN Boolean(true) THEN Int32(10) / x > Int32(2) WHEN Boolean(false) \
                 THEN Boolean(false) ELSE Int32(10) / x > Int32(2) AND Boolean(NULL) END",
            ),
            (quotient().and(col("y").eq(lit(0))), "Int32(10) / x > Int32(2) AND y = Int32(0)"),
            (col("y").eq(lit(0)).or((lit(10) / lit(0)).gt(col("x"))), "y = Int32(0) OR Int32(10) / Int32(0) > x"),
        ];
        for (expression, expected) in cases {
            assert_eq!(guarded(expression, &schema()).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn conditions_stay_conjunctions() {
        let condition = col("y").eq(lit(0)).and((lit(10) / col("x")).gt(lit(2))).and(col("x").lt(lit(3)));
        // Neither x nor y has a table. They are treated as columns of one table, so the first condition guards the
        // second.
        assert_eq!(
            guarded_condition(condition, &schema()).unwrap().to_string(),
            "y = Int32(0) AND CASE y = Int32(0) WHEN Boolean(true) THEN Int32(10) / x > Int32(2) ELSE Boolean(false) END \
             AND x < Int32(3)"
        );
    }
}
