//! Qualifies columns in clauses that can refer to only one relation, and finds references to the other relation.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Expr, Query, TableFactor, Visit, VisitMut, Visitor, VisitorMut};

use super::TargetColumn;
use crate::identifiers::normalize;
use crate::syntax::{column, relation_name};

/// Qualifies unqualified columns of the target in an expression with the name of `relation`.
///
/// Columns within subqueries do not change: they may belong to a subquery's own tables.
pub(super) fn qualify_columns(expression: &Expr, columns: &[TargetColumn<'_>], relation: &str) -> Expr {
    let mut expression = expression.clone();
    let _: ControlFlow<()> = VisitMut::visit(&mut expression, &mut Qualify { columns, relation, subquery_depth: 0 });
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

/// Whether a clause refers to columns of `relation` by its name. If a subquery has a relation with the same name,
/// references in subqueries are ignored.
pub(super) fn refers_to(clause: &impl Visit, relation: &str) -> bool {
    let reads_same_name = clause.visit(&mut RelationFinder { relation }).is_break();
    let mut references = ReferenceFinder { relation, enters_subqueries: !reads_same_name, subquery_depth: 0 };
    clause.visit(&mut references).is_break()
}

/// Visitor that stops at a relation with a given name.
struct RelationFinder<'a> {
    relation: &'a str,
}

impl Visitor for RelationFinder<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match relation_name(factor).is_some_and(|name| name == self.relation) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Visitor that stops at a column that is qualified with the name of a relation.
struct ReferenceFinder<'a> {
    relation: &'a str,
    enters_subqueries: bool,
    subquery_depth: usize,
}

impl Visitor for ReferenceFinder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.subquery_depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.subquery_depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::CompoundIdentifier(parts)
                if (self.enters_subqueries || self.subquery_depth == 0)
                    && parts.first().is_some_and(|first| normalize(first) == self.relation) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
