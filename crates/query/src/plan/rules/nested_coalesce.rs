//! Merges nested calls of `coalesce` into one call.
//!
//! The simplifier replaces `coalesce(x, y)` by `CASE WHEN x IS NOT NULL THEN x ELSE y END`, which contains `x` twice.
//! If `x` is such a call too, its own first argument then occurs four times. Each level of nesting doubles the
//! expression. Therefore this rule merges nested calls:
//!
//! ```text
//!   coalesce(coalesce(a, b), c)   ->   coalesce(a, b, c)
//! ```
//!
//! Calls with other functions in between cannot be merged. They are refused if the copies would make them too large.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::functions::core;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::error::QueryError;

/// Maximum number of parts (subexpressions) after the simplifier has copied arguments.
const PARTS_MAX: u64 = 100_000;
/// Factor by which copies may enlarge an expression even if it then exceeds [`PARTS_MAX`].
const COPIES_MAX: u64 = 16;

/// Rule that merges nested calls. It runs before types are coerced.
#[derive(Debug, Default)]
pub struct NestedCoalesce;

impl AnalyzerRule for NestedCoalesce {
    fn name(&self) -> &str {
        "taut_nested_coalesce"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let mut is_nested = false;
            node.apply_expressions(|expression| {
                is_nested |= expression.exists(|part| Ok(coalesce_arguments(part).is_some_and(contains_coalesce)))?;
                Ok(if is_nested { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })?;
            if !is_nested {
                return Ok(Transformed::no(node));
            }
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let joined = expression.transform_up(|part| Ok(flatten(part)))?.data;
                check_size(&joined)?;
                Ok(Transformed::yes(name.restore(joined)))
            })
        })?;
        Ok(changed.data)
    }
}

/// Arguments of a call of `coalesce` or `nvl`. `ifnull` is an alias of `nvl`.
fn coalesce_arguments(expression: &Expr) -> Option<&[Expr]> {
    match expression {
        Expr::ScalarFunction(call) if matches!(call.func.name(), "coalesce" | "nvl") => Some(&call.args),
        _ => None,
    }
}

/// Whether these arguments contain a call of `coalesce`, at any depth.
fn contains_coalesce(arguments: &[Expr]) -> bool {
    let is_coalesce = |part: &Expr| Ok(is_coalesce(part));
    arguments.iter().any(|argument| argument.exists(is_coalesce).unwrap_or(true))
}

/// Merges a call with the calls that are its arguments.
fn flatten(expression: Expr) -> Transformed<Expr> {
    if !coalesce_arguments(&expression).is_some_and(|arguments| arguments.iter().any(is_coalesce)) {
        return Transformed::no(expression);
    }
    let Expr::ScalarFunction(outer) = expression else { return Transformed::no(expression) };
    let mut args = Vec::new();
    for argument in outer.args {
        match argument {
            Expr::ScalarFunction(inner) if matches!(inner.func.name(), "coalesce" | "nvl") => args.extend(inner.args),
            argument => args.push(argument),
        }
    }
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(core::coalesce(), args)))
}

fn is_coalesce(expression: &Expr) -> bool {
    coalesce_arguments(expression).is_some()
}

/// Refuses an expression whose arguments of `coalesce` would be copied too often.
fn check_size(expression: &Expr) -> Result<()> {
    let (parts, with_copies) = count_parts(expression)?;
    if with_copies <= PARTS_MAX || with_copies / parts < COPIES_MAX {
        return Ok(());
    }
    Err(DataFusionError::External(Box::new(QueryError::unsupported(
        "coalesce in arguments of coalesce, with other functions in between, over this many levels,",
        "a subquery can compute the inner ones",
    ))))
}

/// Number of parts of an expression before and after the simplifier copies arguments.
fn count_parts(expression: &Expr) -> Result<(u64, u64)> {
    let copied = coalesce_arguments(expression).map_or(0, |arguments| arguments.len().saturating_sub(1));
    let (mut parts, mut with_copies, mut position) = (1_u64, 1_u64, 0);
    expression.apply_children(|child| {
        let (of_child, copies_of_child) = count_parts(child)?;
        let copies = if position < copied { 2 } else { 1 };
        parts = parts.saturating_add(of_child);
        with_copies = with_copies.saturating_add(copies_of_child.saturating_mul(copies));
        position += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((parts, with_copies))
}
