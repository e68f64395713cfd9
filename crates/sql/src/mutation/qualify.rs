//! Qualification of columns in clauses that can only refer to one relation.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Expr, Query, VisitMut, VisitorMut};

use super::TargetColumn;
use crate::identifiers::normalize;
use crate::syntax::column;

/// Qualifies unqualified columns of the target in an expression with the name of `relation`.
///
/// Columns within subqueries do not change: they may belong to a subquery's own tables.
pub(super) fn qualify_columns(expression: &Expr, columns: &[TargetColumn<'_>], relation: &str) -> Expr {
    let mut expression = expression.clone();
    let _: ControlFlow<()> = expression.visit(&mut Qualify { columns, relation, subquery_depth: 0 });
    expression
}

struct Qualify<'a> {
    columns: &'a [TargetColumn<'a>],
    relation: &'a str,
    /// Depth of subqueries at the current expression.
    subquery_depth: usize,
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subquery_depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subquery_depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.subquery_depth == 0
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
