//! Columns beside a wildcard that have the name of one of its columns, as in `SELECT a, * FROM t`. The planner refuses
//! two columns of one name. Which columns a wildcard has is known only when the statement is planned. Therefore this
//! module builds a second form of the statement, in which the other columns have names that no column has. In a
//! subquery, only columns get other names. Its aliases stay, because other parts of the statement refer to them.
//!
//! ```text
//! written        SELECT a, lower(b) AS b, * FROM t
//! second form    SELECT a AS "taut repeated a", lower(b) AS "taut repeated b", * FROM t
//! ```

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Expr, OrderBy, OrderByKind, Query, Select, SelectItem, Statement as Ast, VisitMut, VisitorMut,
};

use crate::identifiers::normalize;
use crate::syntax::aliased;

const PREFIX: &str = "taut repeated ";

/// Returns the second form of a statement. Returns `None` if no column stands beside a wildcard.
pub fn mark_repeated_names(statement: &PlannerStatement) -> Option<PlannerStatement> {
    match statement {
        PlannerStatement::Statement(ast) if matches!(**ast, Ast::Query(_) | Ast::Insert(_)) => {
            let mut ast = ast.clone();
            let mut rewriter = RepeatedNames::default();
            match VisitMut::visit(&mut ast, &mut rewriter) {
                ControlFlow::Continue(()) => rewriter.is_changed.then_some(PlannerStatement::Statement(ast)),
                ControlFlow::Break(Ambiguous) => None,
            }
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

/// The statement is ordered by a name that several of its columns may have.
struct Ambiguous;

#[derive(Default)]
struct RepeatedNames {
    is_changed: bool,
    /// Number of queries around the visited part.
    depth: usize,
    /// Names in the `ORDER BY` of the outermost query.
    order: Vec<String>,
}

impl VisitorMut for RepeatedNames {
    type Break = Ambiguous;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Ambiguous> {
        self.depth += 1;
        if let (1, Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) = (self.depth, &query.order_by) {
            let names = order.iter().filter(|order| matches!(order.expr, Expr::Identifier(_)));
            self.order = names.filter_map(|order| column_name(&order.expr)).collect();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Ambiguous> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Ambiguous> {
        let is_wildcard =
            |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        if !select.projection.iter().any(is_wildcard) {
            return ControlFlow::Continue(());
        }
        for item in &mut select.projection {
            let (expr, name) = match &*item {
                SelectItem::UnnamedExpr(expr) => match column_name(expr) {
                    Some(name) => (expr, name),
                    None => continue,
                },
                SelectItem::ExprWithAlias { expr, alias } if self.depth == 1 => (expr, normalize(alias)),
                _ => continue,
            };
            if self.depth == 1 && self.order.contains(&name) && column_name(expr).as_ref() != Some(&name) {
                return ControlFlow::Break(Ambiguous);
            }
            // A repeated name may already have a number.
            *item = aliased(expr.clone(), &format!("{PREFIX}{name}"));
            self.is_changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// The name of a column, without its relation. Returns `None` for other expressions.
fn column_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(name) => Some(normalize(name)),
        Expr::CompoundIdentifier(names) => names.last().map(normalize),
        _ => None,
    }
}
