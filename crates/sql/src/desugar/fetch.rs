//! `FETCH FIRST`, rewritten to `LIMIT`, or for `WITH TIES` to a condition on the rank of the rows:
//!
//! ```text
//!   SELECT a FROM t ORDER BY b OFFSET 1 FETCH FIRST 3 ROWS ONLY         ... OFFSET 1 LIMIT 3
//!   SELECT a FROM t ORDER BY b OFFSET 1 FETCH FIRST 3 ROWS WITH TIES
//!                                  SELECT a FROM t QUALIFY rank() OVER (ORDER BY b) <= 3 + 1 ORDER BY b OFFSET 1
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, Function, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, Value, WildcardAdditionalOptions, WindowSpec, WindowType,
};

use crate::error::SqlError;
use crate::identifiers::normalize;
use crate::syntax;

/// Alias of the derived table whose rows are ranked.
const ROWS: &str = "taut ties";

/// Replaces the `FETCH` clause of a query.
pub(super) fn rewrite(query: &mut Query) -> ControlFlow<SqlError> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return ControlFlow::Continue(()) };
    if percent {
        let clause = Fetch { with_ties, percent, quantity };
        return ControlFlow::Break(SqlError::unsupported(
            clause.to_string(),
            "FETCH FIRST n ROWS ONLY and FETCH FIRST n ROWS WITH TIES are",
        ));
    }
    let rows = quantity.unwrap_or_else(|| syntax::integer(1));
    if with_ties {
        return keep_ties(query, rows);
    }
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        clause @ None => {
            *clause = Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: Vec::new() });
        }
        Some(_) => return ControlFlow::Break(SqlError::syntax("multiple LIMIT clauses not allowed")),
    }
    ControlFlow::Continue(())
}

/// Limits a query to the rows whose rank is at most `rows`, plus its `OFFSET` if it has one.
fn keep_ties(query: &mut Query, rows: Expr) -> ControlFlow<SqlError> {
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &query.order_by else {
        return ControlFlow::Break(SqlError::syntax("WITH TIES cannot be specified without ORDER BY clause"));
    };
    if matches!(&rows, Expr::Value(value) if value.value == Value::Null) {
        let message = "row count cannot be null in FETCH FIRST ... WITH TIES clause";
        return ControlFlow::Break(SqlError::syntax(message));
    }
    let is_any = operation(rows.clone(), BinaryOperator::Gt, syntax::integer(0));
    let limit = match &query.limit_clause {
        None => rows,
        Some(LimitClause::LimitOffset { limit: None, offset: None, .. }) => rows,
        Some(LimitClause::LimitOffset { limit: None, offset: Some(offset), .. }) => {
            nested(operation(rows, BinaryOperator::Plus, nested(offset.value.clone())))
        }
        Some(_) => return ControlFlow::Break(SqlError::syntax("multiple LIMIT clauses not allowed")),
    };
    let mut order = order.clone();
    let is_plain = |select: &Select| select.distinct.is_none() && select.qualify.is_none();
    match query.body.as_mut() {
        SetExpr::Select(select) if is_plain(select) => {
            order.iter_mut().try_for_each(|item| name_input(item, &select.projection))?;
            select.qualify = Some(operation(rank_at_most(order, limit), BinaryOperator::And, is_any));
        }
        body => {
            order.iter_mut().try_for_each(|item| name_output(item, first_select(body)))?;
            let mut inner = syntax::select(Vec::new(), Vec::new(), None);
            std::mem::swap(body, inner.body.as_mut());
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            let rows = syntax::without_joins(syntax::derived_table(inner, ROWS, &[]));
            *body = *syntax::select(vec![all], vec![rows], None).body;
            if let SetExpr::Select(select) = body {
                select.qualify = Some(operation(rank_at_most(order, limit), BinaryOperator::And, is_any));
            }
        }
    }
    ControlFlow::Continue(())
}

fn rank_at_most(order_by: Vec<OrderByExpr>, limit: Expr) -> Expr {
    let mut rank = syntax::call("rank", Vec::new());
    if let Expr::Function(Function { over, .. }) = &mut rank {
        let window = WindowSpec { window_name: None, partition_by: Vec::new(), order_by, window_frame: None };
        *over = Some(WindowType::WindowSpec(window));
    }
    operation(rank, BinaryOperator::LtEq, limit)
}

/// Replaces a position or an alias in `ORDER BY` by its expression in the select list.
fn name_input(item: &mut OrderByExpr, projection: &[SelectItem]) -> ControlFlow<SqlError> {
    let expression = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr.clone()),
        _ => None,
    };
    if let Some(position) = position(&item.expr) {
        let Some(found) = item_at(projection, position).and_then(expression) else { return unknown_position(item) };
        item.expr = found;
    } else if let Expr::Identifier(name) = &item.expr {
        let is_alias = |item: &&SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if normalize(alias) == normalize(name));
        if let Some(found) = projection.iter().find(is_alias).and_then(expression) {
            item.expr = found;
        }
    }
    ControlFlow::Continue(())
}

/// Replaces a position in `ORDER BY` by the name of the output column.
fn name_output(item: &mut OrderByExpr, first: Option<&Select>) -> ControlFlow<SqlError> {
    let Some(position) = position(&item.expr) else { return ControlFlow::Continue(()) };
    let name = first.and_then(|select| item_at(&select.projection, position)).and_then(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().cloned(),
        _ => None,
    });
    let Some(name) = name else { return unknown_position(item) };
    item.expr = Expr::Identifier(name);
    ControlFlow::Continue(())
}

fn unknown_position(item: &OrderByExpr) -> ControlFlow<SqlError> {
    let what = format!("FETCH FIRST ... WITH TIES of rows ordered by position {}", item.expr);
    ControlFlow::Break(SqlError::unsupported(what, "the name of a column is"))
}

fn position(expression: &Expr) -> Option<usize> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the item of the select list at a position, counted from 1. Returns `None` if there is a wildcard before it.
fn item_at(projection: &[SelectItem], position: usize) -> Option<&SelectItem> {
    let is_value = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    let before = projection.get(..position.checked_sub(1)?)?;
    if before.iter().all(is_value) { projection.get(position - 1) } else { None }
}

/// Returns the `SELECT` that names the output columns of a query body: the first one of a set operation.
fn first_select(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => first_select(&query.body),
        SetExpr::SetOperation { left, .. } => first_select(left),
        _ => None,
    }
}

fn nested(expression: Expr) -> Expr {
    Expr::Nested(Box::new(expression))
}

fn operation(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}
