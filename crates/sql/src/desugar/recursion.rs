//! `ORDER BY`, `LIMIT` and `OFFSET` after a union in `WITH RECURSIVE`. The planner ignores these clauses. If the union
//! reads its own result, they are an error. Otherwise the union and its clauses become a subquery, in which the planner
//! applies them.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Cte, LimitClause, Query, SelectItem, SetExpr, WildcardAdditionalOptions, visit_relations,
};

use crate::error::SqlError;
use crate::identifiers::normalize;
use crate::syntax;

/// Returns an error for clauses after a union that reads its own result. Moves each other union with such clauses into
/// a subquery.
pub(super) fn rewrite(query: &mut Query) -> ControlFlow<SqlError> {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return ControlFlow::Continue(()) };
    let is_union = |table: &&mut Cte| matches!(*table.query.body, SetExpr::SetOperation { .. });
    for table in with.cte_tables.iter_mut().filter(is_union) {
        let Query { order_by, limit_clause, fetch, .. } = table.query.as_ref();
        let clause = match limit_clause {
            _ if order_by.is_some() => "ORDER BY",
            Some(LimitClause::LimitOffset { limit: None, offset: Some(_), .. }) => "OFFSET",
            Some(_) => "LIMIT",
            None if fetch.is_some() => "LIMIT",
            None => continue,
        };
        if !is_recursive(table) {
            let union = syntax::without_joins(syntax::derived_table(table.query.clone(), "taut union", &[]));
            let all = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            table.query = syntax::select(all, vec![union], None);
            continue;
        }
        return ControlFlow::Break(SqlError::unsupported(
            format!("{clause} in a recursive query"),
            format!("{clause} in a query that reads its result is"),
        ));
    }
    ControlFlow::Continue(())
}

/// Whether the second part of a union in `WITH` reads the result of the union.
fn is_recursive(table: &Cte) -> bool {
    let SetExpr::SetOperation { right, .. } = table.query.body.as_ref() else { return false };
    let name = normalize(&table.alias.name);
    let is_same = |relation: &datafusion_sql::sqlparser::ast::ObjectName| match relation.0.as_slice() {
        [part] if part.as_ident().is_some_and(|ident| normalize(ident) == name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_relations(right, is_same).is_break()
}
