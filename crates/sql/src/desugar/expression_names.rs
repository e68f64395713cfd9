//! Names of output columns without an alias: the text of the expression, as in DuckDB, with the names of functions in
//! lower case. A cast of a column has the name of the column.
//!
//! ```text
//!   SELECT SUM(x), a + 1, b::int     columns: sum(x), a + 1, b
//! ```
//!
//! The statement itself, subqueries in `FROM` and `WITH` queries get such names. The column names of other subqueries
//! are not visible. They get names only if the subquery has an `ORDER BY`; [`name_in_ordered`] explains why.
//! An expression of `ORDER BY` that repeats one of the select list becomes its position.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    CopySource, Delete, Distinct, Expr, Ident, Insert, ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem,
    SetExpr, Statement, TableFactor, Update, Value, VisitMut, VisitorMut, WindowType, visit_expressions,
};

use super::frame_exclusion::FrameExclusion;
use crate::identifiers::normalize;

/// Names the output columns of the query that a statement runs or stores.
pub(super) fn name_in_statement(statement: &mut Statement) {
    match statement {
        Statement::Query(query) | Statement::Copy { source: CopySource::Query(query), .. } => name_in_query(query),
        Statement::CreateTable(create) => create.query.as_deref_mut().map_or((), name_in_query),
        Statement::CreateView(create) => name_in_query(&mut create.query),
        Statement::Insert(Insert { returning: Some(items), .. })
        | Statement::Update(Update { returning: Some(items), .. })
        | Statement::Delete(Delete { returning: Some(items), .. }) => {
            items.iter_mut().for_each(|item| name_item(item, &[]))
        }
        _ => {}
    }
}

/// Names the output columns of a subquery in `FROM`.
pub(super) fn name_in_table(table: &mut TableFactor) {
    if let TableFactor::Derived { subquery, .. } = table {
        name_in_query(subquery);
    }
}

/// Names the output columns of the queries of a `WITH` clause.
pub(super) fn name_in_with(query: &mut Query) {
    for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        name_in_query(&mut table.query);
    }
}

/// Names the output columns of a query with `ORDER BY`. The planner adds the columns that it sorts by to the select
/// list. There, a cast without an alias would have the same name as the column that it casts.
pub(super) fn name_in_ordered(query: &mut Query) {
    if query.order_by.is_some() {
        name_in_query(query);
    }
}

/// Names the output columns of a query.
fn name_in_query(query: &mut Query) {
    let Query { body, order_by, .. } = query;
    let mut used = Vec::new();
    if let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) =
        (body.as_ref(), order_by)
    {
        for item in order.iter_mut() {
            refer_by_position(&mut item.expr, select);
        }
        // A name within an expression of ORDER BY is a column of the input, so no cast may take that name.
        used = order.iter().flat_map(|item| names_in(&item.expr)).collect();
    }
    name_in_body(body, &used);
}

/// Returns the unqualified names in an expression. Returns none if the whole expression is a name.
fn names_in(expression: &Expr) -> Vec<String> {
    let mut names = Vec::new();
    if !matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        let _: ControlFlow<()> = visit_expressions(expression, |part| {
            if let Expr::Identifier(name) = part {
                names.push(normalize(name));
            }
            ControlFlow::Continue(())
        });
    }
    names
}

/// Names the columns of a query body. The result of a set operation has the names of its first `SELECT`.
fn name_in_body(body: &mut SetExpr, used: &[String]) {
    match body {
        SetExpr::Select(select) => select.projection.iter_mut().for_each(|item| name_item(item, used)),
        SetExpr::Query(query) => name_in_query(query),
        SetExpr::SetOperation { left, .. } => name_in_body(left, used),
        _ => {}
    }
}

/// Replaces an expression of `ORDER BY` by its position if the select list contains the same expression.
fn refer_by_position(expression: &mut Expr, select: &Select) {
    let is_name = matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_));
    let has_wildcard = select
        .projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    if is_name || has_wildcard || matches!(select.distinct, Some(Distinct::On(_))) {
        return;
    }
    let is_same = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(other) if other == expression);
    if let Some(index) = select.projection.iter().position(is_same) {
        *expression = Expr::value(Value::Number((index + 1).to_string(), false));
    }
}

/// Adds an alias to an item of the select list. A cast of a column gets the name of the column, unless `used` contains
/// that name.
fn name_item(item: &mut SelectItem, used: &[String]) {
    if let SelectItem::UnnamedExpr(expr) = item
        && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        && let Some(name) = name(expr, used)
    {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
    }
}

/// Returns the output name of an expression. Returns `None` for a wildcard.
fn name(expression: &Expr, used: &[String]) -> Option<String> {
    let mut inner = expression;
    while let Expr::Cast { expr, .. } | Expr::Nested(expr) = inner {
        inner = expr;
    }
    let column = match inner {
        Expr::Identifier(column) => Some(normalize(column)),
        Expr::CompoundIdentifier(parts) => parts.last().map(normalize),
        Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => return None,
        _ => None,
    };
    if let Some(column) = column.filter(|column| !used.contains(column)) {
        return Some(column);
    }
    let mut text = expression.clone();
    while let Expr::Nested(inner) = text {
        text = *inner;
    }
    let _: ControlFlow<()> = text.visit(&mut LowerCase);
    Some(text.to_string())
}

/// Visitor that writes the names of functions in lower case, and leaves out the exclusions of window frames.
struct LowerCase;

impl VisitorMut for LowerCase {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression {
            for part in &mut function.name.0 {
                if let ObjectNamePart::Identifier(ident) = part
                    && ident.quote_style.is_none()
                {
                    ident.value = ident.value.to_lowercase();
                }
            }
            if let Some(WindowType::WindowSpec(window)) = &mut function.over {
                FrameExclusion::take(window);
            }
        }
        ControlFlow::Continue(())
    }
}
