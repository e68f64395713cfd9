//! The rank that a row would have among the rows of a group: `rank(v) WITHIN GROUP (ORDER BY x)`, and likewise
//! `dense_rank`, `percent_rank` and `cume_dist`. They are counts of the rows before the row `v`.
//!
//! ```text
//!   rank(v) WITHIN GROUP (ORDER BY x)        1 + count(*) FILTER (WHERE x is before v)
//!   cume_dist(v) WITHIN GROUP (ORDER BY x)   (1 + count(*) FILTER (WHERE x is before v, or equal)) / (1 + count(*))
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, OrderByExpr,
};

use crate::dialect::parse_expression;
use crate::error::SqlError;

/// Names of the functions.
const NAMES: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Refuses a call whose number of values is not that of the keys.
pub(super) fn check(function: &Function) -> ControlFlow<SqlError> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return ControlFlow::Continue(()) };
    let FunctionArguments::List(list) = &function.args else { return ControlFlow::Continue(()) };
    let (values, keys) = (list.args.len(), function.within_group.len());
    let is_rank = NAMES.iter().any(|rank| name.value.eq_ignore_ascii_case(rank));
    if is_rank && keys > 0 && values != keys {
        return ControlFlow::Break(SqlError::unsupported(
            format!("{name} WITHIN GROUP with arguments (here {values}) and columns (here {keys}) of different number"),
            "an argument for each column is",
        ));
    }
    ControlFlow::Continue(())
}

/// Replaces a call by counts. Returns `None` for other calls, and if the number of values is not that of the keys.
pub(super) fn replaced(function: &Function, name: &str) -> Option<Expr> {
    if function.within_group.is_empty() || function.over.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.to_string()),
        _ => None,
    };
    let values: Vec<String> = list.args.iter().map(value).collect::<Option<_>>()?;
    let is_plain = list.clauses.is_empty() && list.duplicate_treatment.is_none();
    if values.len() != function.within_group.len() || !is_plain {
        return None;
    }
    let keys: Vec<(&OrderByExpr, String)> = function.within_group.iter().zip(values).collect();
    let (before, peers) = (before(&keys), peers(&keys));
    let filter = function.filter.as_ref().map_or_else(String::new, |filter| format!(" AND ({filter})"));
    let filtered = |rows: &str| format!("FILTER (WHERE ({rows}){filter})");
    let columns: Vec<String> = keys.iter().map(|(key, _)| format!("({})", key.expr)).collect();
    let sql = match name {
        "rank" => format!("(1 + count(*) {})", filtered(&before)),
        "dense_rank" => format!("(1 + count(DISTINCT struct({})) {})", columns.join(", "), filtered(&before)),
        "percent_rank" => {
            let (ranked, all) = (filtered(&before), filtered("TRUE"));
            format!("coalesce(CAST(count(*) {ranked} AS double precision) / nullif(count(*) {all}, 0), 0)")
        }
        "cume_dist" => {
            let (ranked, all) = (filtered(&format!("{before} OR {peers}")), filtered("TRUE"));
            format!("(CAST(1 + count(*) {ranked} AS double precision) / (1 + count(*) {all}))")
        }
        _ => return None,
    };
    parse_expression(&sql).ok()
}

/// The condition that a row comes before the values.
fn before(keys: &[(&OrderByExpr, String)]) -> String {
    let mut alternatives = Vec::new();
    for (index, (key, value)) in keys.iter().enumerate() {
        let descends = key.options.asc == Some(false);
        let nulls_first = key.options.nulls_first.unwrap_or(descends);
        let (column, operator) = (&key.expr, if descends { ">" } else { "<" });
        let nulls = match nulls_first {
            true => format!("WHEN ({value}) IS NULL THEN FALSE WHEN ({column}) IS NULL THEN TRUE"),
            false => format!("WHEN ({column}) IS NULL THEN FALSE WHEN ({value}) IS NULL THEN TRUE"),
        };
        let is_before = format!("CASE {nulls} ELSE ({column}) {operator} ({value}) END");
        alternatives.push(match index {
            0 => is_before,
            index => format!("({} AND {is_before})", peers(&keys[..index])),
        });
    }
    format!("({})", alternatives.join(" OR "))
}

/// The condition that a row has exactly the values.
fn peers(keys: &[(&OrderByExpr, String)]) -> String {
    let equal: Vec<_> =
        keys.iter().map(|(key, value)| format!("(({}) IS NOT DISTINCT FROM ({value}))", key.expr)).collect();
    format!("({})", equal.join(" AND "))
}
