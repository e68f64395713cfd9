//! `PIVOT` and `UNPIVOT` of a table, rewritten to queries. `PIVOT` groups by the columns that it does not mention;
//! `UNPIVOT` repeats them for each value.
//!
//! ```text
//!   t PIVOT (sum(p) FOR k IN (1, 2 AS two))
//!   (SELECT * EXCLUDE (p, k), sum(p) FILTER (WHERE k = 1) AS "1", sum(p) FILTER (WHERE k = 2) AS two
//!    FROM t GROUP BY ALL)
//!
//!   t UNPIVOT (v FOR n IN (a, b))
//!   (SELECT * EXCLUDE (a, b), 'a' AS n, a AS v FROM t WHERE a IS NOT NULL
//!    UNION ALL SELECT * EXCLUDE (a, b), 'b' AS n, b AS v FROM t WHERE b IS NOT NULL)
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, ExprWithAlias, GroupByExpr, Ident, NullInclusion, ObjectName, PivotValueSource, Query,
    SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor, Value, WildcardAdditionalOptions, visit_expressions,
};

use crate::error::SqlError;
use crate::identifiers::normalize;
use crate::syntax::{aliased, all_of, call, equal, is_not_null, is_null, parenthesized, quoted, select, without_joins};

/// Marker: the first pivot column of a `PIVOT` with explicit groups. The group columns and the pivot column follow.
pub(crate) const GROUPS: &str = "taut groups";

/// Replaces `PIVOT` or `UNPIVOT` of a table.
pub(super) fn rewrite(table: &mut TableFactor) -> ControlFlow<SqlError> {
    let (query, alias) = match table {
        // `open_pivots.rs` replaces `ANY` by a list of values before the statement runs.
        TableFactor::Pivot { value_source: PivotValueSource::Any(order), .. } if order.is_empty() => {
            return ControlFlow::Continue(());
        }
        TableFactor::Pivot { table, aggregate_functions, value_column, value_source, default_on_null, alias } => {
            let columns = PivotColumns { aggregates: aggregate_functions, column: value_column, source: value_source };
            (pivot(table, columns, default_on_null.as_ref())?, alias.clone())
        }
        TableFactor::Unpivot { table, value, name, columns, null_inclusion, alias } => {
            let keeps_nulls = matches!(null_inclusion, Some(NullInclusion::IncludeNulls));
            (unpivot(table, (value, name), columns, keeps_nulls)?, alias.clone())
        }
        _ => return ControlFlow::Continue(()),
    };
    *table = TableFactor::Derived { lateral: false, subquery: query, alias, sample: None };
    ControlFlow::Continue(())
}

/// Aggregates, pivot column and values of a `PIVOT`.
struct PivotColumns<'a> {
    aggregates: &'a [ExprWithAlias],
    column: &'a [Expr],
    source: &'a PivotValueSource,
}

fn pivot(table: &TableFactor, columns: PivotColumns<'_>, default: Option<&Expr>) -> ControlFlow<SqlError, Box<Query>> {
    let unsupported = |what: &str| ControlFlow::Break(SqlError::unsupported(what, "PIVOT (sum(a) FOR b IN (1, 2)) is"));
    let is_mark = |name: &Expr| matches!(name, Expr::Identifier(name) if name.value == GROUPS);
    let (groups, column) = match columns.column {
        [column] => (None, column),
        [mark, groups @ .., column] if is_mark(mark) => (Some(groups), column),
        _ => return unsupported("PIVOT for several columns"),
    };
    let PivotValueSource::List(values) = columns.source else {
        return unsupported("PIVOT for values that a query finds");
    };
    let mut used = names_in(column);
    for aggregate in columns.aggregates {
        used.extend(names_in(&aggregate.expr));
    }
    let mut items = match groups {
        Some(groups) => groups.iter().cloned().map(SelectItem::UnnamedExpr).collect(),
        None => vec![all_except(used)],
    };
    for value in values {
        for aggregate in columns.aggregates {
            let Expr::Function(function) = &aggregate.expr else {
                return unsupported(&format!("{} in PIVOT", aggregate.expr));
            };
            let condition = match &value.expr {
                Expr::Value(literal) if literal.value == Value::Null => is_null(column.clone()),
                other => equal(parenthesized(column.clone()), parenthesized(other.clone())),
            };
            let mut function = function.clone();
            let filter = function.filter.take().map(|filter| parenthesized(*filter));
            function.filter = all_of([Some(condition), filter].into_iter().flatten()).map(Box::new);
            let mut result = Expr::Function(function);
            if let Some(default) = default {
                result = call("coalesce", vec![result, default.clone()]);
            }
            let name = match (columns.aggregates, &aggregate.alias) {
                ([_], None) => value_name(value),
                (_, Some(alias)) => format!("{}_{}", value_name(value), normalize(alias)),
                (_, None) => format!("{}_{}", value_name(value), aggregate.expr),
            };
            items.push(aliased(result, &name));
        }
    }
    let mut query = select(items, vec![without_joins(table.clone())], None);
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.group_by = GroupByExpr::All(Vec::new());
    }
    ControlFlow::Continue(query)
}

fn unpivot(
    table: &TableFactor,
    (value, name): (&Expr, &Ident),
    columns: &[ExprWithAlias],
    keeps_nulls: bool,
) -> ControlFlow<SqlError, Box<Query>> {
    let unsupported =
        |what: String| ControlFlow::Break(SqlError::unsupported(what, "UNPIVOT (value FOR name IN (a, b)) is"));
    let Expr::Identifier(value) = value else { return unsupported(format!("UNPIVOT to {value}")) };
    let mut used = Vec::new();
    for column in columns {
        match &column.expr {
            Expr::Identifier(_) => used.extend(names_in(&column.expr)),
            other => return unsupported(format!("UNPIVOT of {other}")),
        }
    }
    let rows = |column: &ExprWithAlias| {
        let text = column.alias.as_ref().map_or_else(|| value_name(column), normalize);
        let items = vec![
            all_except(used.clone()),
            aliased(Expr::value(Value::SingleQuotedString(text)), &normalize(name)),
            aliased(column.expr.clone(), &normalize(value)),
        ];
        let condition = (!keeps_nulls).then(|| is_not_null(column.expr.clone()));
        select(items, vec![without_joins(table.clone())], condition)
    };
    let mut parts = columns.iter().map(rows);
    let Some(mut query) = parts.next() else { return unsupported("UNPIVOT of no columns".to_owned()) };
    for part in parts {
        let left = std::mem::replace(&mut query.body, part.body.clone());
        *query.body = SetExpr::SetOperation {
            op: SetOperator::Union,
            set_quantifier: SetQuantifier::All,
            left,
            right: part.body,
        };
    }
    ControlFlow::Continue(query)
}

/// `* EXCLUDE (names)`.
fn all_except(mut names: Vec<String>) -> SelectItem {
    names.sort();
    names.dedup();
    let names: Vec<ObjectName> = names.iter().map(|name| ObjectName::from(vec![quoted(name)])).collect();
    let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
    SelectItem::Wildcard(WildcardAdditionalOptions { opt_exclude, ..WildcardAdditionalOptions::default() })
}

/// Names of the columns that an expression reads.
fn names_in(expression: &Expr) -> Vec<String> {
    let mut names = Vec::new();
    let _: ControlFlow<()> = visit_expressions(expression, |part| {
        match part {
            Expr::Identifier(name) => names.push(normalize(name)),
            Expr::CompoundIdentifier(parts) => names.extend(parts.last().map(normalize)),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    names
}

/// Returns the name of the output column for a value: its alias, or its text.
fn value_name(value: &ExprWithAlias) -> String {
    match (&value.alias, &value.expr) {
        (Some(alias), _) => normalize(alias),
        (None, Expr::Identifier(name)) => normalize(name),
        (None, Expr::Value(literal)) => match &literal.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        (None, other) => other.to_string(),
    }
}
