//! Rewrite of `VALUES` lists with subqueries, which the planner supports in `SELECT` only.

use datafusion_sql::sqlparser::ast::{Expr, Parens, SetExpr, Values};

use super::unions::union_all;
use crate::syntax::{aliased, has_query, is_default, select};

/// Maximum rows with subqueries in a `VALUES` list that is rewritten. More rows are too many for the planner.
const QUERY_ROWS_MAX: usize = 256;

/// Rewrites rows of `VALUES` with subqueries as `SELECT ... UNION ALL ...`. The rows between them stay in `VALUES`. A
/// list with `DEFAULT` stays as it is.
pub(crate) fn rewrite_values_with_queries(body: &mut SetExpr) {
    let SetExpr::Values(values) = body else { return };
    let has_query = |row: &Parens<Vec<Expr>>| row.content.iter().any(has_query);
    let with_queries = values.rows.iter().filter(|row| has_query(row)).count();
    let has_default = || values.rows.iter().flat_map(|row| &row.content).any(is_default);
    if !(1..=QUERY_ROWS_MAX).contains(&with_queries) || has_default() {
        return;
    }
    let rows = std::mem::take(&mut values.rows);
    let mut parts: Vec<SetExpr> = Vec::new();
    for row in rows {
        if has_query(&row) {
            let columns =
                row.content.into_iter().zip(1..).map(|(value, index)| aliased(value, &format!("column{index}")));
            parts.push(*select(columns.collect(), Vec::new(), None).body);
        } else if let Some(SetExpr::Values(plain)) = parts.last_mut() {
            plain.rows.push(row);
        } else {
            parts.push(SetExpr::Values(Values { rows: vec![row], ..values.clone() }));
        }
    }
    *body = union_all(parts);
}
