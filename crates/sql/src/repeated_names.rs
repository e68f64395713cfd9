//! Columns beside a wildcard that have the name of one of its columns, as in `SELECT a, * FROM t`. The planner refuses
//! two columns of one name. Which columns a wildcard has is known only when the statement is planned. Therefore this
//! module builds a second form of the statement, in which the other columns have names that no column has. In a
//! subquery, only columns get other names. Its aliases stay, because other parts of the statement refer to them.
//!
//! ```text
//! written        SELECT a, lower(b) AS b, * FROM t
//! second form    SELECT a AS "taut repeated a", lower(b) AS "taut repeated b", * FROM t
//! ```
//!
//! A wildcard that repeats columns of another one becomes a null, whose name says which columns it stands for:
//!
//! ```text
//! written        SELECT *, t.* FROM t, u
//! second form    SELECT *, NULL AS "taut wildcard 1 t" FROM t, u
//! ```

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Expr, OrderBy, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement as Ast,
    Value, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use crate::identifiers::normalize;
use crate::syntax::aliased;

const PREFIX: &str = "taut repeated ";
const WILDCARD: &str = "taut wildcard ";

/// Returns the second form of a statement. Returns `None` if no column stands beside a wildcard.
pub fn mark_repeated_names(statement: &PlannerStatement) -> Option<PlannerStatement> {
    match statement {
        PlannerStatement::Statement(ast) if matches!(**ast, Ast::Query(_) | Ast::Insert(_)) => {
            let mut ast = ast.clone();
            let mut rewriter = RepeatedNames { is_query: matches!(*ast, Ast::Query(_)), ..RepeatedNames::default() };
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

/// Returns the relation whose columns a column of the second form stands for, or `Some(None)` for those of all
/// relations. `None` for other columns.
pub fn repeated_wildcard(name: &str) -> Option<Option<&str>> {
    let (_, relation) = name.strip_prefix(WILDCARD)?.split_once(' ')?;
    Some(Some(relation).filter(|relation| !relation.is_empty()))
}

/// The statement is ordered by a name that several of its columns may have.
struct Ambiguous;

#[derive(Default)]
struct RepeatedNames {
    is_changed: bool,
    /// Whether the statement is a query, so that its select list has the columns of the result.
    is_query: bool,
    /// Number of queries around the visited part.
    depth: usize,
    /// Names in the `ORDER BY` of the outermost query.
    order: Vec<String>,
}

impl VisitorMut for RepeatedNames {
    type Break = Ambiguous;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Ambiguous> {
        self.depth += 1;
        if let (1, true, SetExpr::Select(select)) = (self.depth, self.is_query, query.body.as_mut()) {
            self.is_changed |= replace_wildcards(&mut select.projection);
        }
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
                SelectItem::ExprWithAlias { expr, alias } if self.depth == 1 && !alias.value.starts_with(WILDCARD) => {
                    (expr, normalize(alias))
                }
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

/// Replaces the wildcards of a select list whose columns another wildcard has. Returns whether there are any.
fn replace_wildcards(items: &mut [SelectItem]) -> bool {
    let relations: Vec<Option<String>> = items.iter().map(wildcard_relation).collect();
    let all = relations.iter().position(|relation| relation.as_deref() == Some(""));
    let mut is_changed = false;
    for (index, relation) in relations.iter().enumerate() {
        let Some(name) = relation else { continue };
        let is_first = match all {
            Some(all) => index == all,
            None => !relations[..index].contains(relation),
        };
        if !is_first {
            items[index] = aliased(Expr::value(Value::Null), &format!("{WILDCARD}{index} {name}"));
            is_changed = true;
        }
    }
    is_changed
}

/// The relation of a wildcard without options, or an empty text for `*`. Returns `None` for other items.
fn wildcard_relation(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default() => Some(String::new()),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
            if *options == WildcardAdditionalOptions::default() =>
        {
            name.0.last()?.as_ident().map(normalize)
        }
        _ => None,
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
