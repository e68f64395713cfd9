//! Unqualified columns, where the statement's own rules say whose they are.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, VisitMut, VisitorMut};

use super::TargetColumn;
use super::build::column;
use crate::statement::normalize;

/// An expression in which columns of the target that are named by themselves are those of a relation.
///
/// Those within subqueries are left alone: they may be columns of a subquery's own tables.
pub(super) fn qualified(expression: &Expr, columns: &[TargetColumn<'_>], relation: &str) -> Expr {
    let mut expression = expression.clone();
    let _: ControlFlow<()> = expression.visit(&mut Qualify { columns, relation, subqueries: 0 });
    expression
}

struct Qualify<'a> {
    columns: &'a [TargetColumn<'a>],
    relation: &'a str,
    /// How many subqueries are open.
    subqueries: usize,
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.subqueries == 0
            && let Expr::Identifier(name) = expression
        {
            let name = normalize(name);
            if self.columns.iter().any(|column| column.name == name) {
                *expression = column(self.relation, &name);
            }
        }
        ControlFlow::Continue(())
    }
}
