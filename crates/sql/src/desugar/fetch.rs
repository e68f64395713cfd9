//! `FETCH FIRST 3 ROWS ONLY`, which becomes `LIMIT 3`.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Fetch, LimitClause, Query};

use crate::error::SqlError;
use crate::syntax;

/// Replaces the `FETCH` clause of a query.
pub(super) fn rewrite(query: &mut Query) -> ControlFlow<SqlError> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return ControlFlow::Continue(()) };
    if with_ties || percent {
        let clause = Fetch { with_ties, percent, quantity };
        return ControlFlow::Break(SqlError::unsupported(clause.to_string(), "FETCH FIRST n ROWS ONLY is"));
    }
    let rows = quantity.unwrap_or_else(|| syntax::integer(1));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        clause @ None => {
            *clause = Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: Vec::new() });
        }
        Some(_) => return ControlFlow::Break(SqlError::syntax("multiple LIMIT clauses not allowed")),
    }
    ControlFlow::Continue(())
}
