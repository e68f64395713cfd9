//! Values that `SET` assigns to columns.

use datafusion_sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, Select,
    SelectItem, SetExpr,
};

use super::TargetColumn;
use super::target::Target;
use crate::error::{ObjectKind, Result, SqlError};
use crate::syntax::{aliased, column, derived_table, select, without_joins};

/// Assigned value of each column, in table order. `None` for columns that are not assigned.
pub(super) fn assigned_values(
    assignments: &[Assignment],
    target: &Target,
    columns: &[TargetColumn<'_>],
) -> Result<Vec<Option<Expr>>> {
    let mut values = vec![None; columns.len()];
    let mut assign = |name: &ObjectName, value: &Expr| {
        let index = target.index(name, columns)?;
        if values[index].is_some() {
            return Err(SqlError::Duplicate { kind: ObjectKind::Column, name: columns[index].name.to_owned() });
        }
        values[index] = Some(columns[index].assigned_value(value)?);
        Ok(())
    };
    for assignment in assignments {
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => assign(name, &assignment.value)?,
            AssignmentTarget::Tuple(names) => {
                for (name, value) in names.iter().zip(row_values(names.len(), &assignment.value)?) {
                    assign(name, &value)?;
                }
            }
        }
    }
    Ok(values)
}

/// Values of a row expression that is assigned to `expected` columns.
fn row_values(expected: usize, value: &Expr) -> Result<Vec<Expr>> {
    let values = match value {
        Expr::Tuple(values) => values.clone(),
        Expr::Nested(value) if expected == 1 => vec![value.as_ref().clone()],
        Expr::Subquery(_) if expected == 1 => vec![value.clone()],
        Expr::Subquery(query) => split_subquery(expected, query)?,
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => match &function.args {
            FunctionArguments::List(list) => list.args.iter().filter_map(positional_argument).collect(),
            _ => Vec::new(),
        },
        other => {
            return Err(SqlError::unsupported(
                format!("{other} for several columns"),
                "SET (a, b) = (1, 2), = ROW(1, 2) and = (SELECT c, d ...) are",
            ));
        }
    };
    check_count(expected, values.len())?;
    Ok(values)
}

fn check_count(expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let message = format!("number of columns ({expected}) does not match number of values ({found})");
    Err(SqlError::syntax(message))
}

fn positional_argument(argument: &FunctionArg) -> Option<Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    }
}

/// Splits a subquery of several columns into one scalar subquery per column, which the planner supports.
fn split_subquery(expected: usize, query: &Query) -> Result<Vec<Expr>> {
    let subquery = |query| Expr::Subquery(Box::new(query));
    // If a `SELECT` has neither `ORDER BY` nor `DISTINCT`, selecting fewer of its columns does not change its rows.
    // Such a subquery may refer to columns of the target.
    if let SetExpr::Select(plain) = query.body.as_ref()
        && query.order_by.is_none()
        && plain.distinct.is_none()
    {
        let is_value =
            |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
        if plain.projection.iter().all(is_value) {
            check_count(expected, plain.projection.len())?;
            let single_column = |item: &SelectItem| {
                let select = Select { projection: vec![item.clone()], ..plain.as_ref().clone() };
                subquery(Query { body: Box::new(SetExpr::Select(Box::new(select))), ..query.clone() })
            };
            return Ok(plain.projection.iter().map(single_column).collect());
        }
    }
    let names: Vec<String> = (1..=expected).map(|index| format!("taut value {index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let single_column = |name: &&str| {
        let rows = derived_table(Box::new(query.clone()), "taut values", &names);
        subquery(*select(vec![aliased(column("taut values", name), name)], vec![without_joins(rows)], None))
    };
    Ok(names.iter().map(single_column).collect())
}
