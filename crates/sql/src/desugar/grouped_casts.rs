//! Casts in queries with `GROUP BY`. The planner omits casts from the names of expressions, so `ts` and `ts::date`
//! would be two groups with the same name. Each cast therefore becomes the argument of a function:
//!
//! ```text
//!   written    SELECT ts, ts::date, count(*) FROM t GROUP BY ts, ts::date
//!   planned    SELECT ts, named_cast(ts::date), count(*) FROM t GROUP BY ts, named_cast(ts::date)
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, GroupByExpr, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
};

use crate::error::SqlError;
use crate::syntax;

/// Name of a function that returns its argument, a cast. Its result column has the text of the cast as its name.
pub const NAMED_CAST: &str = "named_cast";

/// Wraps the casts in the `ORDER BY` of a query with `GROUP BY` in calls of [`NAMED_CAST`].
pub(super) fn name_in_query(query: &mut Query) -> ControlFlow<SqlError> {
    let Query { body, order_by, .. } = query;
    if let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) =
        (body.as_ref(), order_by)
        && is_grouped(select)
    {
        order.visit(&mut Casts { depth: 0 })?;
    }
    ControlFlow::Continue(())
}

/// Wraps the casts in a `SELECT` with `GROUP BY`, except those in `WHERE`, in calls of [`NAMED_CAST`].
pub(super) fn name_in_select(select: &mut Select) -> ControlFlow<SqlError> {
    if !is_grouped(select) {
        return ControlFlow::Continue(());
    }
    let Select { projection, group_by, having, qualify, .. } = select;
    projection.iter_mut().for_each(name_constant);
    projection.visit(&mut Casts { depth: 0 })?;
    group_by.visit(&mut Casts { depth: 0 })?;
    having.visit(&mut Casts { depth: 0 })?;
    qualify.visit(&mut Casts { depth: 0 })
}

/// Wraps a cast of a constant that is a whole item of the select list. It can be a group by its position or alias.
/// Other constants must stay literals, which some functions require.
fn name_constant(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } = item
        && matches!(&*value, Expr::Cast { expr, .. } if matches!(expr.as_ref(), Expr::Value(_)))
    {
        *value = syntax::call(NAMED_CAST, vec![value.clone()]);
    }
}

/// Whether a query has a `GROUP BY` whose casts can be wrapped. Grouping sets lose the names when they are simplified.
fn is_grouped(select: &Select) -> bool {
    let is_set = |group: &Expr| matches!(group, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_));
    match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(groups, _) => !groups.is_empty() && !groups.iter().any(is_set),
    }
}

/// Visitor that wraps casts outside of subqueries in calls of [`NAMED_CAST`].
struct Casts {
    depth: usize,
}

impl VisitorMut for Casts {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        if self.depth == 0
            && let Expr::Cast { expr, .. } = &*expression
            && !matches!(expr.as_ref(), Expr::Value(_))
        {
            *expression = syntax::call(NAMED_CAST, vec![expression.clone()]);
        }
        ControlFlow::Continue(())
    }
}
