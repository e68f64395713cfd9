//! Columns beside a wildcard that have the name of one of its columns, as in `SELECT a, * FROM t`. The planner refuses
//! two columns of one name. Which columns a wildcard has is known only when the statement is planned. Therefore this
//! module builds a second form of the statement, in which the other columns have names that no column has:
//!
//! ```text
//! written        SELECT a, lower(b) AS b, * FROM t
//! second form    SELECT a AS "taut repeated a", lower(b) AS "taut repeated b", * FROM t
//! ```

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{Expr, Select, SelectItem, VisitMut, VisitorMut};

use crate::identifiers::normalize;
use crate::syntax::aliased;

const PREFIX: &str = "taut repeated ";

/// Returns the second form of a statement. Returns `None` if no column stands beside a wildcard.
pub fn mark_repeated_names(statement: &PlannerStatement) -> Option<PlannerStatement> {
    match statement {
        PlannerStatement::Statement(ast) => {
            let mut ast = ast.clone();
            let mut rewriter = RepeatedNames { is_changed: false };
            let _: ControlFlow<()> = VisitMut::visit(&mut ast, &mut rewriter);
            rewriter.is_changed.then_some(PlannerStatement::Statement(ast))
        }
        PlannerStatement::Explain(explain) => {
            let mut explain = explain.clone();
            explain.statement = Box::new(mark_repeated_names(&explain.statement)?);
            Some(PlannerStatement::Explain(explain))
        }
        _ => None,
    }
}

/// Returns the name of a column as the statement writes it. Returns `None` for names without a mark.
pub fn unmarked_name(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

struct RepeatedNames {
    is_changed: bool,
}

impl VisitorMut for RepeatedNames {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let is_wildcard =
            |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        if !select.projection.iter().any(is_wildcard) {
            return ControlFlow::Continue(());
        }
        for item in &mut select.projection {
            let (expr, name) = match &*item {
                SelectItem::UnnamedExpr(expr @ Expr::Identifier(name)) => (expr, normalize(name)),
                SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(names)) => match names.last() {
                    Some(name) => (expr, normalize(name)),
                    None => continue,
                },
                SelectItem::ExprWithAlias { expr, alias } => (expr, normalize(alias)),
                _ => continue,
            };
            // A repeated name may already have a number.
            *item = aliased(expr.clone(), &format!("{PREFIX}{name}"));
            self.is_changed = true;
        }
        ControlFlow::Continue(())
    }
}
