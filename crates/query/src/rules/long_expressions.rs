//! Fast type inference for long chains of operators.
//!
//! To find the type of `a + b + c + ...`, the engine finds the type of everything before the last operator. It does so
//! again for each operator, so the time grows with the square of the length. The type of a cast is known without its
//! operand. Therefore this rule casts the value every few levels to the type that it has:
//!
//! ```text
//!   (((a + b) + c) + d) + e        (CAST((a + b) + c AS int) + d) + e
//! ```
//!
//! The physical plan no longer has these casts.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

/// Levels between two casts.
const STEP: usize = 32;

/// Rule that adds the casts. It runs before all rules that need types.
#[derive(Debug, Default)]
pub struct LongExpressions;

impl AnalyzerRule for LongExpressions {
    fn name(&self) -> &str {
        "taut_long_expressions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let mut is_long = false;
            node.apply_expressions(|expression| {
                is_long |= expression.exists(|part| Ok(is_long_chain(part)))?;
                Ok(if is_long { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })?;
            if !is_long {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                Ok(Transformed::yes(name.restore(in_steps(expression, &schema)?)))
            })
        })?;
        Ok(changed.data)
    }
}

/// Whether an expression is a chain of at least [`STEP`] operators in which each is the first operand of the one
/// before, or each is the last.
fn is_long_chain(expression: &Expr) -> bool {
    has_levels(expression, |binary| &binary.left) || has_levels(expression, |binary| &binary.right)
}

fn has_levels(expression: &Expr, side: fn(&BinaryExpr) -> &Expr) -> bool {
    let mut level = expression;
    for _ in 0..STEP {
        level = match level {
            Expr::BinaryExpr(binary) if computes(level) => side(binary),
            Expr::Negative(inner) => inner,
            _ => return false,
        };
    }
    true
}

/// Whether an expression is an operator that computes a value. Conditions do not count: other rules split them, and
/// their type is always the same.
fn computes(expression: &Expr) -> bool {
    let operator = match expression {
        Expr::Negative(_) => return true,
        Expr::BinaryExpr(binary) => binary.op,
        _ => return false,
    };
    operator.is_numerical_operators()
        || matches!(
            operator,
            Operator::StringConcat
                | Operator::BitwiseAnd
                | Operator::BitwiseOr
                | Operator::BitwiseXor
                | Operator::BitwiseShiftLeft
                | Operator::BitwiseShiftRight
        )
}

/// State of a subexpression, used when its parent is visited.
#[derive(Clone, Copy, Default)]
struct Below {
    /// Levels down to the next cast.
    levels: usize,
    /// Whether the type depends on a parameter whose type is not known yet.
    is_open: bool,
}

/// Adds a cast every few levels of an expression.
fn in_steps(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let mut visited: Vec<Below> = Vec::new();
    let cast = expression.transform_up(|part| {
        let mut children = 0;
        part.apply_children(|_| {
            children += 1;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut below = Below::default();
        for child in visited.drain(visited.len().saturating_sub(children)..) {
            below = Below { levels: below.levels.max(child.levels), is_open: below.is_open || child.is_open };
        }
        below.levels += 1;
        below.is_open |= matches!(&part, Expr::Placeholder(placeholder) if placeholder.field.is_none());
        let is_due = below.levels >= STEP && !below.is_open;
        if is_due
            && computes(&part)
            && let Ok(data_type) = part.get_type(schema)
            && data_type != DataType::Null
        {
            visited.push(Below::default());
            return Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(part), data_type))));
        }
        visited.push(below);
        Ok(Transformed::no(part))
    })?;
    Ok(cast.data)
}
