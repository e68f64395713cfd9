//! `ARRAY(SELECT ...)`: an array of the values that a query returns, in the order of the query.
//!
//! ```text
//!   ARRAY(SELECT a FROM t ORDER BY a)
//!   taut_array_or_empty((SELECT array_agg("taut array"."taut value")
//!                        FROM (SELECT a FROM t ORDER BY a) AS "taut array" ("taut value")))
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Expr, FunctionArguments, ObjectNamePart, Query, SelectItem, SetExpr};

use crate::error::SqlError;
use crate::syntax::{call, column, derived_table, select, without_joins};

/// Alias of the query as a derived table.
const ROWS: &str = "taut array";
/// Alias of the only column of [`ROWS`].
const VALUE: &str = "taut value";

/// Replaces `ARRAY(SELECT ...)` by a scalar subquery.
pub(super) fn rewrite(expression: &mut Expr) -> ControlFlow<SqlError> {
    let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
    let ([ObjectNamePart::Identifier(name)], FunctionArguments::Subquery(query)) =
        (function.name.0.as_slice(), &function.args)
    else {
        return ControlFlow::Continue(());
    };
    if name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("array") {
        return ControlFlow::Continue(());
    }
    if has_several_columns(query) {
        return ControlFlow::Break(SqlError::syntax("subquery must return only one column"));
    }
    let rows = derived_table(query.clone(), ROWS, &[VALUE]);
    let values = call("array_agg", vec![column(ROWS, VALUE)]);
    let query = select(vec![SelectItem::UnnamedExpr(values)], vec![without_joins(rows)], None);
    *expression = call("taut_array_or_empty", vec![Expr::Subquery(query)]);
    ControlFlow::Continue(())
}

/// Whether a query visibly returns several columns. Returns false for `*`, which is a single item of the select list.
fn has_several_columns(query: &Query) -> bool {
    match query.body.as_ref() {
        SetExpr::Select(select) => select.projection.len() > 1,
        SetExpr::Values(values) => values.rows.iter().any(|row| row.content.len() > 1),
        _ => false,
    }
}
