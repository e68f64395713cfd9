//! Index columns: the hidden generated columns that hold the expressions of indexes, and the values of partial
//! indexes.

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast;
use taut_sql::{parse_expression, type_name};
use taut_store::{IndexColumn, Table};
use taut_types::{ColumnIndex, LogicalType, Schema, quote_identifier};

use super::expressions::plan_index_clause;
use crate::error::{IndexClause, QueryError, Result};

/// An index column as the planner sees it. Columns in its expressions have no qualifiers.
#[derive(Debug)]
pub struct PlannedIndexColumn {
    /// The hidden column.
    pub column: ColumnIndex,
    /// The indexed expression.
    pub value: Expr,
    /// Conditions of a partial index. The column has values only in rows for which all of them are true. It is null in
    /// other rows.
    pub predicate: Vec<Expr>,
}

/// Plans the index columns of a table.
///
/// # Errors
/// If an expression can no longer be planned.
pub fn plan_index_columns(table: &Table) -> Result<Vec<PlannedIndexColumn>> {
    let schema = DFSchema::try_from(table.schema.arrow())?;
    let columns = table.constraints.index_columns.iter();
    columns.map(|(column, part)| plan_index_column(*column, part, &schema)).collect()
}

fn plan_index_column(column: ColumnIndex, part: &IndexColumn, schema: &DFSchema) -> Result<PlannedIndexColumn> {
    let value = plan_index_clause(&part.expression, schema, IndexClause::Expression)?;
    let predicate = part.predicate.as_deref().map(|predicate| plan_index_predicate(predicate, schema)).transpose()?;
    Ok(PlannedIndexColumn { column, value, predicate: predicate.unwrap_or_default() })
}

/// Plans the predicate of an index as a list of conjuncts.
///
/// # Errors
/// If the text is not a condition over single rows, or its result does not depend on the row alone.
pub fn plan_index_predicate(sql: &str, schema: &DFSchema) -> Result<Vec<Expr>> {
    let conditions = split_conjunction_owned(plan_index_clause(sql, schema, IndexClause::Predicate)?);
    let is_true = |condition: &Expr| matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
    Ok(conditions.into_iter().filter(|condition| !is_true(condition)).collect())
}

/// Returns the type of the values of an index column over the columns of a table.
///
/// # Errors
/// If its expression or its predicate cannot be planned, or no column can hold its values.
pub fn type_of_index_column(part: &IndexColumn, schema: &Schema) -> Result<LogicalType> {
    let planned = DFSchema::try_from(schema.arrow())?;
    let column = plan_index_column(ColumnIndex::from(schema.len()), part, &planned)?;
    let data_type = column.value.get_type(&planned)?;
    LogicalType::from_arrow(&data_type).ok_or_else(|| {
        let what = format!("an index on {}, which is of type {},", part.expression, type_name(&data_type));
        QueryError::unsupported(what, "expressions of the types that columns have are")
    })
}

/// Returns how messages and system tables show a column of an index: by its name, or by its indexed expression.
pub fn shown_name(table: &Table, column: ColumnIndex) -> String {
    match table.constraints.index_columns.get(&column) {
        Some(part) => shown_expression(part),
        None => table.schema.column(column).name.clone(),
    }
}

/// Returns the indexed expression, with parentheses around it where `CREATE INDEX` needs them.
fn shown_expression(part: &IndexColumn) -> String {
    match parse_expression(&part.expression) {
        Ok(ast::Expr::Identifier(name)) => name.value,
        Ok(expression) if taut_sql::is_index_part(&expression) => part.expression.clone(),
        _ => format!("({})", part.expression),
    }
}

/// Returns the index column for a plain column of a partial index.
pub fn index_column_of(name: &str, predicate: Option<String>) -> IndexColumn {
    IndexColumn { expression: quote_identifier(name), predicate }
}
