//! The columns that `CREATE TABLE` declares.

use datafusion_sql::sqlparser::ast::{ColumnDef, ColumnOption};
use taut_types::Column;

use crate::declared::Declared;
use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::types::{TYPES_ALLOWED, has_length, logical_type_of};

/// Converts column definitions to columns, and to their constraints and defaults. Adds a notice for each declaration
/// that is accepted but not enforced.
///
/// # Errors
/// If a type or a constraint is not supported.
pub fn convert_columns(definitions: &[ColumnDef], notices: &mut Vec<String>) -> Result<(Vec<Column>, Declared)> {
    let mut declared = Declared::default();
    let columns = definitions.iter().map(|definition| convert_column(definition, &mut declared, notices));
    Ok((columns.collect::<Result<_>>()?, declared))
}

fn convert_column(definition: &ColumnDef, declared: &mut Declared, notices: &mut Vec<String>) -> Result<Column> {
    let name = normalize(&definition.name);
    let Some(logical_type) = logical_type_of(&definition.data_type) else {
        return Err(SqlError::unsupported(format!("type {} of column {name:?}", definition.data_type), TYPES_ALLOWED));
    };
    if has_length(&definition.data_type) {
        notices.push(format!("column {name:?}: the length of {} is not enforced", definition.data_type));
    }
    let mut nullable = true;
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => nullable = false,
            other => {
                if declared.add_column_option(&name, option.name.as_ref(), other)?.is_none() {
                    return Err(SqlError::unsupported(
                        format!("{other} on column {name:?}"),
                        "NOT NULL, DEFAULT, PRIMARY KEY, UNIQUE, CHECK and REFERENCES are",
                    ));
                }
            }
        }
    }
    Ok(Column::new(name, logical_type, nullable))
}
