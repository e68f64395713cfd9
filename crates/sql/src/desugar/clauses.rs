//! Clauses that the planner rejects or interprets differently, and their replacements:
//!
//! ```text
//!   FROM t                               SELECT * FROM t
//!   SELECT a, sum(b) ... ORDER BY ALL    SELECT a, sum(b) ... ORDER BY 1, 2
//!   GROUP BY ()                          GROUP BY GROUPING SETS (())
//!   GROUP BY (a, b), ROLLUP (c)          GROUP BY a, b, ROLLUP (c)
//!   DISTINCT ON (a, a)                   DISTINCT ON (a)
//! ```

use datafusion_sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectFlavor, SelectItem, SetExpr,
    Value, WildcardAdditionalOptions,
};

/// Removes repeated expressions from `DISTINCT ON`.
pub(super) fn distinct_on(select: &mut Select) {
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        let mut known: Vec<Expr> = Vec::new();
        keys.retain(|key| {
            let is_new = !known.contains(key);
            known.push(key.clone());
            is_new
        });
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
pub(super) fn group_by_columns(select: &mut Select) {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return };
    if !groups.iter().any(|group| matches!(group, Expr::Tuple(_))) {
        return;
    }
    let columns = std::mem::take(groups).into_iter().flat_map(|group| match group {
        Expr::Tuple(columns) => columns,
        group => vec![group],
    });
    groups.extend(columns);
    if groups.is_empty() {
        groups.push(Expr::GroupingSets(vec![Vec::new()]));
    }
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
