//! How deep statements may be nested.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Expr, Visit, Visitor};

use crate::error::{QueryError, Result};

/// What the parser counts while it descends: at least one for each parenthesis, CASE, function or subquery, in some places
/// three. It grows its stack as it needs.
pub(super) const LEVELS_MAX: usize = 3_000;

/// Subqueries in expressions that may stand in each other. The planner visits each of them twice, with all that it holds: the
/// time doubles with each.
const SUBQUERIES_MAX: usize = 16;

/// Refuses a statement with more subqueries in each other than can be planned.
///
/// # Errors
/// When there are more.
pub(super) fn check(statement: &EngineStatement) -> Result<()> {
    let deepest = match statement {
        EngineStatement::Statement(ast) => ast.visit(&mut Subqueries { open: 0 }),
        EngineStatement::Explain(explain) => return check(&explain.statement),
        _ => ControlFlow::Continue(()),
    };
    if deepest.is_continue() {
        return Ok(());
    }
    Err(QueryError::unsupported(
        format!("more than {SUBQUERIES_MAX} subqueries of expressions in each other"),
        "subqueries in FROM and in WITH, and joins, may stand in each other more often",
    ))
}

struct Subqueries {
    open: usize,
}

fn is_subquery(expression: &Expr) -> bool {
    matches!(expression, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

impl Visitor for Subqueries {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.open += usize::from(is_subquery(expression));
        if self.open > SUBQUERIES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.open -= usize::from(is_subquery(expression));
        ControlFlow::Continue(())
    }
}
