//! Rewrites `VALUES` lists with subqueries, which the planner supports in `SELECT` only, and lists whose literals get
//! the type of another row.

use datafusion_sql::sqlparser::ast::{CastKind, DataType, Expr, Parens, Query, SetExpr, TableFactor, Value, Values};

use super::unions::union_all;
use crate::syntax::{aliased, has_query, is_default, select};

/// Maximum number of rows with subqueries in a `VALUES` list that is rewritten. Planning more rows takes too long.
const QUERY_ROWS_MAX: usize = 256;

/// Rewrites rows of `VALUES` with subqueries as `SELECT ... UNION ALL ...`. Rows without a subquery stay in `VALUES`. A
/// list with `DEFAULT` stays unchanged.
pub(crate) fn rewrite_values_with_queries(body: &mut SetExpr) {
    rewrite_values_with(body, &has_query);
}

/// Like [`rewrite_values_with_queries`], for rows with a value that `is_query` finds.
pub fn rewrite_values_with(body: &mut SetExpr, is_query: &dyn Fn(&Expr) -> bool) {
    let SetExpr::Values(values) = body else { return };
    let has_query = |row: &Parens<Vec<Expr>>| row.content.iter().any(is_query);
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

/// Casts literals of a `VALUES` list in `FROM` to the type that another row names, as PostgreSQL does. The planner
/// rejects a column with a date in one row and text in another. It converts a column with double precision and `0.5` to
/// decimals.
///
/// ```text
///   (VALUES (date '2024-01-05'), ('2024-01-06')) AS v    the text is a date
///   (VALUES ('NaN'::double precision), (0.5)) AS v       the number is double precision
/// ```
///
/// If the rows of a column name several types, only numbers are cast, to the first floating-point type among them.
pub(super) fn cast_literals_in_table(table: &mut TableFactor) {
    if let TableFactor::Derived { subquery, .. } = table {
        cast_literals(&mut subquery.body);
    }
}

/// Casts literals like [`cast_literals_in_table`], in the queries of a `WITH` clause.
pub(super) fn cast_literals_in_with(query: &mut Query) {
    for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        cast_literals(&mut table.query.body);
    }
}

fn cast_literals(body: &mut SetExpr) {
    let SetExpr::Values(values) = body else { return };
    let columns = values.rows.first().map_or(0, |row| row.content.len());
    for column in 0..columns {
        let named = values.rows.iter().filter_map(|row| named_type(row.content.get(column)?));
        let mut named = named.fold(Vec::new(), |mut types, named| {
            if !types.contains(&named) {
                types.push(named);
            }
            types
        });
        let is_only = named.len() == 1;
        let Some(target) = named.iter().position(is_floating).or(is_only.then_some(0)) else { continue };
        let target = named.swap_remove(target);
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(column)) {
            let is_cast = match value {
                Expr::Value(literal) => match literal.value {
                    Value::Number(..) => is_floating(&target),
                    Value::SingleQuotedString(_) => is_only && keeps_value(&target),
                    _ => false,
                },
                Expr::UnaryOp { expr, .. } => {
                    is_floating(&target)
                        && matches!(expr.as_ref(), Expr::Value(literal) if matches!(literal.value, Value::Number(..)))
                }
                _ => false,
            };
            if is_cast {
                *value = Expr::Cast {
                    kind: CastKind::DoubleColon,
                    expr: Box::new(value.clone()),
                    data_type: target.clone(),
                    array: false,
                    format: None,
                };
            }
        }
    }
}

/// Returns the type in an expression such as `date '2024-01-05'` or `x::date`. A number with an exponent is double
/// precision. Returns `None` for other expressions.
fn named_type(expression: &Expr) -> Option<DataType> {
    match expression {
        Expr::Value(literal) => match &literal.value {
            Value::Number(number, _) if number.contains(['e', 'E']) => Some(DataType::DoublePrecision),
            _ => None,
        },
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, data_type, .. } => Some(data_type.clone()),
        Expr::TypedString(literal) => Some(literal.data_type.clone()),
        Expr::Interval(_) => Some(DataType::Interval { fields: None, precision: None }),
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => named_type(inner),
        _ => None,
    }
}

/// Whether a cast to a type keeps every value that it can read. A cast to `varchar(1)` truncates, and PostgreSQL
/// ignores the length of a type if it differs between rows.
fn keeps_value(data_type: &DataType) -> bool {
    is_floating(data_type)
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Bool
                | DataType::SmallInt(None)
                | DataType::Int2(None)
                | DataType::Int(None)
                | DataType::Int4(None)
                | DataType::Integer(None)
                | DataType::BigInt(None)
                | DataType::Int8(None)
                | DataType::Date
                | DataType::Time(None, _)
                | DataType::Timestamp(None, _)
                | DataType::Datetime(None)
                | DataType::Interval { precision: None, .. }
        )
}

fn is_floating(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Real
            | DataType::Float(_)
            | DataType::Float4
            | DataType::Float8
            | DataType::Float32
            | DataType::Float64
            | DataType::Double(_)
            | DataType::DoublePrecision
    )
}
