//! `ORDER BY ALL` of queries whose number of columns is known only when they are planned: `SELECT *`, `UNION` and
//! `VALUES`.
//!
//! The planner orders `SELECT *` by column name, which is ambiguous if two columns have the same name. It ignores the
//! clause in `UNION` and `VALUES`. Therefore this module marks the clause, and the caller replaces the mark in the
//! plan:
//!
//! ```text
//! written    SELECT * FROM t ORDER BY ALL DESC
//! marked     SELECT * FROM t ORDER BY 1 DESC, 'taut all columns'
//! ```

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Expr, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::syntax::integer;

/// Last key of an order by all columns. The key before it has the direction.
pub const ALL_COLUMNS: &str = "taut all columns";

/// Returns the statement with marks in place of `ORDER BY ALL`. Returns `None` if the statement has no such clause.
pub fn mark_order_by_all(statement: &PlannerStatement) -> Option<PlannerStatement> {
    match statement {
        PlannerStatement::Statement(ast) => {
            if ast.visit(&mut OrderAllFinder).is_continue() {
                return None;
            }
            let mut ast = ast.clone();
            let _: ControlFlow<()> = VisitMut::visit(&mut ast, &mut Marker);
            Some(PlannerStatement::Statement(ast))
        }
        PlannerStatement::Explain(explain) => {
            let mut explain = explain.clone();
            explain.statement = Box::new(mark_order_by_all(&explain.statement)?);
            Some(PlannerStatement::Explain(explain))
        }
        _ => None,
    }
}

/// Visitor that stops at the first `ORDER BY ALL`.
struct OrderAllFinder;

impl Visitor for OrderAllFinder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match query.order_by {
            Some(OrderBy { kind: OrderByKind::All(_), .. }) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Marker;

impl VisitorMut for Marker {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(OrderBy { kind, .. }) = &mut query.order_by
            && let OrderByKind::All(options) = kind
        {
            let options = *options;
            let mark = Expr::value(Value::SingleQuotedString(ALL_COLUMNS.to_owned()));
            let key = |expr, options| OrderByExpr { expr, options, with_fill: None };
            *kind = OrderByKind::Expressions(vec![key(integer(1), options), key(mark, OrderByOptions::default())]);
        }
        ControlFlow::Continue(())
    }
}
