//! Windows that refer to another window, such as `OVER w` and `OVER (w ORDER BY x)`. The planner ignores the reference
//! in refinements and does not resolve it in `ORDER BY`, so the clauses of the named window are copied.
//!
//! ```text
//! sum(x) OVER (w ORDER BY y) ... WINDOW w AS (PARTITION BY z)    sum(x) OVER (PARTITION BY z ORDER BY y)
//! ```
//!
//! As in PostgreSQL, a refinement may add an order and a frame, and a window with a frame cannot be refined.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, OrderBy, OrderByKind, Query, Select, SetExpr, VisitMut,
    VisitorMut, WindowSpec, WindowType,
};

use super::frame_exclusion::FrameExclusion;
use crate::error::SqlError;
use crate::identifiers::normalize;

/// Replaces named windows in the `ORDER BY` of a query.
pub(super) fn resolve_in_query(query: &mut Query) -> ControlFlow<SqlError> {
    let Query { body, order_by, .. } = query;
    if let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) =
        (body.as_mut(), order_by)
    {
        resolve_definitions(&mut select.named_window)?;
        order.visit(&mut Resolver { windows: &select.named_window, depth: 0 })?;
    }
    ControlFlow::Continue(())
}

/// Replaces named windows in a `SELECT`. Subqueries have their own windows.
pub(super) fn resolve_in_select(select: &mut Select) -> ControlFlow<SqlError> {
    let Select { distinct, projection, qualify, named_window, .. } = select;
    resolve_definitions(named_window)?;
    let mut resolver = Resolver { windows: named_window, depth: 0 };
    distinct.visit(&mut resolver)?;
    projection.visit(&mut resolver)?;
    qualify.visit(&mut resolver)
}

/// Replaces definitions that refine or repeat an earlier one. Returns an error for two windows with the same name.
fn resolve_definitions(windows: &mut [NamedWindowDefinition]) -> ControlFlow<SqlError> {
    for index in 0..windows.len() {
        let (earlier, rest) = windows.split_at_mut(index);
        let NamedWindowDefinition(name, window) = &mut rest[0];
        if earlier.iter().any(|NamedWindowDefinition(other, _)| normalize(other) == normalize(name)) {
            let message = format!("window {:?} is already defined", normalize(name));
            return ControlFlow::Break(SqlError::Window { message });
        }
        match window {
            NamedWindowExpr::NamedWindow(name) => {
                *window = NamedWindowExpr::WindowSpec(find(earlier, name)?.clone());
            }
            NamedWindowExpr::WindowSpec(window) => refine(window, earlier)?,
        }
    }
    ControlFlow::Continue(())
}

/// Visitor that replaces the named windows of a query, outside of its subqueries.
struct Resolver<'a> {
    windows: &'a [NamedWindowDefinition],
    /// Number of subqueries around the visited expression.
    depth: usize,
}

impl VisitorMut for Resolver<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        match &mut function.over {
            Some(WindowType::WindowSpec(window)) if self.depth == 0 => refine(window, self.windows),
            Some(WindowType::NamedWindow(name)) if self.depth == 0 => {
                let window = find(self.windows, name)?.clone();
                function.over = Some(WindowType::WindowSpec(window));
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Copies the clauses of the window that `window` refers to, if any. Moves the exclusion of its frame.
fn refine(window: &mut WindowSpec, windows: &[NamedWindowDefinition]) -> ControlFlow<SqlError> {
    let exclusion = FrameExclusion::take(window);
    copy_clauses(window, windows)?;
    window.partition_by.extend(exclusion.map(FrameExclusion::partition_key));
    ControlFlow::Continue(())
}

fn copy_clauses(window: &mut WindowSpec, windows: &[NamedWindowDefinition]) -> ControlFlow<SqlError> {
    let Some(name) = window.window_name.take() else { return ControlFlow::Continue(()) };
    let base = find(windows, &name)?;
    let window_error = |message: String| ControlFlow::Break(SqlError::Window { message });
    let name = normalize(&name);
    if !window.partition_by.is_empty() {
        return window_error(format!("cannot override PARTITION BY clause of window {name:?}"));
    }
    if !window.order_by.is_empty() && !base.order_by.is_empty() {
        return window_error(format!("cannot override ORDER BY clause of window {name:?}"));
    }
    if base.window_frame.is_some() {
        return window_error(format!("cannot copy window {name:?} because it has a frame clause"));
    }
    window.partition_by.clone_from(&base.partition_by);
    if window.order_by.is_empty() {
        window.order_by.clone_from(&base.order_by);
    }
    ControlFlow::Continue(())
}

fn find<'a>(windows: &'a [NamedWindowDefinition], name: &Ident) -> ControlFlow<SqlError, &'a WindowSpec> {
    let found = windows.iter().find_map(|NamedWindowDefinition(other, window)| match window {
        NamedWindowExpr::WindowSpec(window) if normalize(other) == normalize(name) => Some(window),
        _ => None,
    });
    match found {
        Some(window) => ControlFlow::Continue(window),
        None => ControlFlow::Break(SqlError::NoWindow { name: normalize(name) }),
    }
}
