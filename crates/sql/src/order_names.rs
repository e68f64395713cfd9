//! Names in expressions of `ORDER BY` that are both an input column and an alias.
//!
//! The planner uses the alias, PostgreSQL the column. If the name is qualified, the planner finds both and fails.
//! Whether there is such a column is known only when the statement is planned. Therefore this module builds a second
//! form of the statement, in which the name can only be the column. The caller plans this form first. If that fails,
//! the name is the alias, and the statement is planned as it is written.
//!
//! ```text
//! written        SELECT -a AS a FROM t ORDER BY a + 0
//! second form    SELECT * EXCLUDE ("taut order 0")
//!                FROM (SELECT -a AS a, a + 0 AS "taut order 0" FROM t ORDER BY "taut order 0") AS "taut ordered"
//! ```
//!
//! `ORDER BY` expressions with subqueries get the second form too.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, ObjectName, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Visit,
    VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use crate::identifiers::normalize;
use crate::syntax;

/// Returns the second form of a statement, in which names in expressions of `ORDER BY` are input columns. Returns
/// `None` if `ORDER BY` needs no second form.
pub fn order_by_columns(statement: &PlannerStatement) -> Option<PlannerStatement> {
    match statement {
        PlannerStatement::Statement(ast) => {
            if ast.visit(&mut Finder).is_continue() {
                return None;
            }
            let mut ast = ast.clone();
            let _: ControlFlow<()> = VisitMut::visit(&mut ast, &mut Rewriter);
            Some(PlannerStatement::Statement(ast))
        }
        PlannerStatement::Explain(explain) => {
            let mut explain = explain.clone();
            explain.statement = Box::new(order_by_columns(&explain.statement)?);
            Some(PlannerStatement::Explain(explain))
        }
        _ => None,
    }
}

/// Visitor that stops at the first query whose `ORDER BY` needs the second form.
struct Finder;

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let is_affected = select_with_order(query).is_some_and(|(select, order)| {
            let aliases = aliases(select);
            order.iter().any(|order| uses_alias(&order.expr, &aliases))
        });
        if is_affected { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn select_with_order(query: &Query) -> Option<(&Select, &[OrderByExpr])> {
    match (query.body.as_ref(), &query.order_by) {
        (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. }))
            if select.distinct.is_none() =>
        {
            Some((select.as_ref(), order.as_slice()))
        }
        _ => None,
    }
}

/// Aliases of a select list, except aliases that equal the name of their column, such as `a AS a`.
fn aliases(select: &Select) -> HashSet<String> {
    let alias = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias } if normalize(name) == normalize(alias) => {
            None
        }
        SelectItem::ExprWithAlias { alias, .. } => Some(normalize(alias)),
        _ => None,
    };
    select.projection.iter().filter_map(alias).collect()
}

fn column_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(name) => Some(normalize(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(normalize),
        _ => None,
    }
}

/// Whether an expression of `ORDER BY`, other than an unqualified name, uses one of the aliases outside of subqueries,
/// or has a subquery.
fn uses_alias(expression: &Expr, aliases: &HashSet<String>) -> bool {
    struct Uses<'a> {
        aliases: &'a HashSet<String>,
        depth: usize,
    }
    impl Visitor for Uses<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                expression
                    if self.depth == 0 && column_name(expression).is_some_and(|name| self.aliases.contains(&name)) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    // The planner adds the columns that an ORDER BY needs to the select list, but not the columns that its subqueries
    // need.
    let has_subquery = || syntax::has_query(expression);
    let names_alias = || !aliases.is_empty() && expression.visit(&mut Uses { aliases, depth: 0 }).is_break();
    !matches!(expression, Expr::Identifier(_)) && (has_subquery() || names_alias())
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Some((select, _)) = select_with_order(query) else { return ControlFlow::Continue(()) };
        let aliases = aliases(select);
        let mut added = Vec::new();
        if let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) =
            (query.body.as_mut(), &mut query.order_by)
        {
            for order in order.iter_mut().filter(|order| uses_alias(&order.expr, &aliases)) {
                let name = format!("taut order {}", added.len());
                let column = Expr::Identifier(syntax::quoted(&name));
                let expression = std::mem::replace(&mut order.expr, column);
                select.projection.push(syntax::aliased(expression, &name));
                added.push(ObjectName::from(syntax::quoted(&name)));
            }
        }
        if !added.is_empty() {
            let options = WildcardAdditionalOptions {
                opt_exclude: Some(ExcludeSelectItem::Multiple(added)),
                ..WildcardAdditionalOptions::default()
            };
            let outer = syntax::select(vec![SelectItem::Wildcard(options)], Vec::new(), None);
            let ordered = Box::new(std::mem::replace(query, *outer));
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.from.push(syntax::without_joins(syntax::derived_table(ordered, "taut ordered", &[])));
            }
        }
        ControlFlow::Continue(())
    }
}
