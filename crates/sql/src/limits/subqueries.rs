//! Limit on the nesting of subqueries.

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{Expr, Visit, Visitor};

use crate::error::{Result, SqlError};

/// Maximum nested subqueries of expressions. The planner visits each subquery twice, with everything in it, so the time
/// doubles with each level.
const SUBQUERIES_MAX: usize = 16;

/// Checks that a statement does not nest more subqueries in expressions than can be planned.
///
/// # Errors
/// If subqueries of expressions are nested deeper than [`SUBQUERIES_MAX`].
pub(crate) fn check(statement: &PlannerStatement) -> Result<()> {
    let visited = match statement {
        PlannerStatement::Statement(ast) => ast.visit(&mut SubqueryDepth { depth: 0 }),
        PlannerStatement::Explain(explain) => return check(&explain.statement),
        _ => ControlFlow::Continue(()),
    };
    if visited.is_continue() {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("nesting subqueries in expressions more than {SUBQUERIES_MAX} levels deep"),
        "subqueries in FROM and WITH, and joins, can nest deeper",
    ))
}

struct SubqueryDepth {
    depth: usize,
}

fn is_subquery(expression: &Expr) -> bool {
    matches!(expression, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

impl Visitor for SubqueryDepth {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.depth += usize::from(is_subquery(expression));
        if self.depth > SUBQUERIES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.depth -= usize::from(is_subquery(expression));
        ControlFlow::Continue(())
    }
}
