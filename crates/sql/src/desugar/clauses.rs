//! Clauses that the planner rejects or interprets differently, and their replacements:
//!
//! ```text
//!   FROM t                               SELECT * FROM t
//!   SELECT a, sum(b) ... ORDER BY ALL    SELECT a, sum(b) ... ORDER BY 1, 2
//!   GROUP BY ()                          GROUP BY GROUPING SETS (())
//!   GROUP BY (a, b), ROLLUP (c)          GROUP BY a, b, ROLLUP (c)
//!   SELECT DISTINCT ON (1, a) a, b       SELECT DISTINCT ON (a) a, b
//!   ... DISTINCT ON (a, b) ORDER BY b, a ... DISTINCT ON (b, a) ORDER BY b, a
//!   SELECT 1 HAVING true                 SELECT 1 GROUP BY GROUPING SETS (()) HAVING true
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectFlavor, SelectItem, SetExpr,
    UnaryOperator, Value, Visit, WildcardAdditionalOptions, visit_expressions,
};

use super::grouping_sets;
use crate::error::SqlError;

/// Replaces positions in `DISTINCT ON` by expressions of the select list, and removes repetitions.
pub(super) fn distinct_on(select: &mut Select) -> ControlFlow<SqlError> {
    let Some(Distinct::On(keys)) = &mut select.distinct else { return ControlFlow::Continue(()) };
    let mut known: Vec<Expr> = Vec::new();
    for key in std::mem::take(keys) {
        let key = match position_of(&key) {
            Some(position) => expression_at(&select.projection, &position)?,
            None if matches!(&key, Expr::UnaryOp { op: UnaryOperator::Minus, expr } if position_of(expr).is_some()) => {
                let error = format!("SELECT DISTINCT ON position {key} is not in select list");
                return ControlFlow::Break(SqlError::syntax(error));
            }
            None if matches!(&key, Expr::Value(value) if !matches!(value.value, Value::Placeholder(_))) => {
                return ControlFlow::Break(SqlError::syntax("non-integer constant in DISTINCT ON".to_owned()));
            }
            None => key,
        };
        if !known.contains(&key) {
            known.push(key);
        }
    }
    *keys = known;
    ControlFlow::Continue(())
}

/// Puts the expressions of `DISTINCT ON` into the order in which `ORDER BY` begins with them.
pub(super) fn order_distinct_on(query: &mut Query) -> ControlFlow<SqlError> {
    let Query { body, order_by, .. } = query;
    let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) =
        (body.as_mut(), order_by)
    else {
        return ControlFlow::Continue(());
    };
    distinct_on(select)?;
    let Some(Distinct::On(keys)) = &mut select.distinct else { return ControlFlow::Continue(()) };
    let mut others = std::mem::take(keys);
    for order in order.iter() {
        let key = match position_of(&order.expr) {
            Some(position) => expression_at(&select.projection, &position)?,
            None => order.expr.clone(),
        };
        match others.iter().position(|other| *other == key) {
            Some(index) => keys.push(others.remove(index)),
            None if keys.contains(&key) => {}
            None => break,
        }
    }
    keys.append(&mut others);
    // A repeated expression orders nothing, and the planner would compare it with the next key.
    let mut known: Vec<Expr> = Vec::new();
    order.retain(|order| {
        let is_new = !known.contains(&order.expr);
        known.push(order.expr.clone());
        is_new
    });
    ControlFlow::Continue(())
}

/// The number in an expression that is a position in the select list.
fn position_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) if number.bytes().all(|byte| byte.is_ascii_digit()) => Some(number.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn expression_at(projection: &[SelectItem], position: &str) -> ControlFlow<SqlError, Expr> {
    let index = position.parse::<usize>().ok().and_then(|position| position.checked_sub(1));
    let before = &projection[..index.unwrap_or(0).min(projection.len())];
    let is_wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    match index.and_then(|index| projection.get(index)) {
        Some(SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. })
            if !before.iter().any(is_wildcard) =>
        {
            ControlFlow::Continue(value.clone())
        }
        None if !projection.iter().any(is_wildcard) => ControlFlow::Break(SqlError::syntax(format!(
            "SELECT DISTINCT ON position {position} is not in select list"
        ))),
        _ => ControlFlow::Break(SqlError::unsupported("a position in DISTINCT ON beside *", "the name of a column is")),
    }
}

/// Adds the select list `*` to a query that is only a `FROM` clause.
pub(super) fn select_all(select: &mut Select) {
    if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
        select.projection.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        select.flavor = SelectFlavor::Standard;
    }
}

/// Replaces lists in `GROUP BY` by their columns, and `GROUP BY ()`, which makes one group of all rows, by an empty
/// grouping set.
///
/// # Errors
/// If a `CUBE` is too large.
pub(super) fn group_by_columns(select: &mut Select) -> ControlFlow<SqlError> {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return ControlFlow::Continue(()) };
    groups.iter_mut().try_for_each(grouping_sets::rewrite)?;
    // The planner does not form a group for a condition without an aggregate.
    if let (Some(having), []) = (&select.having, groups.as_slice())
        && !calls_function(having)
        && !select.projection.iter().any(calls_function)
    {
        groups.push(Expr::GroupingSets(vec![Vec::new()]));
    }
    if !groups.iter().any(|group| matches!(group, Expr::Tuple(_))) {
        return ControlFlow::Continue(());
    }
    let columns = std::mem::take(groups).into_iter().flat_map(|group| match group {
        Expr::Tuple(columns) => columns,
        group => vec![group],
    });
    groups.extend(columns);
    if groups.is_empty() {
        groups.push(Expr::GroupingSets(vec![Vec::new()]));
    }
    ControlFlow::Continue(())
}

fn calls_function(part: &impl Visit) -> bool {
    let visited = visit_expressions(part, |part| match part {
        Expr::Function(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    visited.is_break()
}

/// Replaces `ORDER BY ALL` by the positions of the columns, unless the select list has a `*`.
pub(super) fn order_by_positions(query: &mut Query) {
    let Query { body, order_by, .. } = query;
    let (SetExpr::Select(select), Some(OrderBy { kind: kind @ OrderByKind::All(_), .. })) = (body.as_ref(), order_by)
    else {
        return;
    };
    let OrderByKind::All(options) = &*kind else { return };
    let is_value = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if !select.projection.iter().all(is_value) {
        return;
    }
    let position = |position: usize| Expr::value(Value::Number(position.to_string(), false));
    let order = (1..=select.projection.len()).map(|number| OrderByExpr {
        expr: position(number),
        options: *options,
        with_fill: None,
    });
    *kind = OrderByKind::Expressions(order.collect());
}
