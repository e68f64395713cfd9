//! The columns that `CREATE TABLE` declares, and changes of columns by `ALTER TABLE`.

use datafusion_sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, DataType, DropBehavior,
};
use taut_types::{Column, LogicalType};

use crate::declared::{ColumnChange, Declared};
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
    let logical_type = column_type(&name, &definition.data_type, notices)?;
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

fn column_type(name: &str, data_type: &DataType, notices: &mut Vec<String>) -> Result<LogicalType> {
    let Some(logical_type) = logical_type_of(data_type) else {
        return Err(SqlError::unsupported(format!("type {data_type} of column {name:?}"), TYPES_ALLOWED));
    };
    if has_length(data_type) {
        notices.push(format!("column {name:?}: the length of {data_type} is not enforced"));
    }
    Ok(logical_type)
}

/// Converts a change of columns. Returns `None` for other changes of a table.
///
/// # Errors
/// If a type, a constraint or a position of the column is not supported.
pub fn column_changes(operation: &AlterTableOperation, notices: &mut Vec<String>) -> Result<Option<Vec<ColumnChange>>> {
    Ok(Some(match operation {
        AlterTableOperation::AddColumn { column_position: Some(position), .. } => {
            return Err(SqlError::unsupported(
                format!("ADD COLUMN ... {position}"),
                "a column is added after the others",
            ));
        }
        AlterTableOperation::AddColumn { if_not_exists, column_def, .. } => {
            let (mut columns, declared) = convert_columns(std::slice::from_ref(column_def), notices)?;
            let mut column = columns.remove(0);
            column.nullable &= !declared.is_primary(&column.name);
            vec![ColumnChange::Add { column, declared, if_not_exists: *if_not_exists }]
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            let cascade = *drop_behavior == Some(DropBehavior::Cascade);
            let drop = |name| ColumnChange::Drop { column: normalize(name), if_exists: *if_exists, cascade };
            column_names.iter().map(drop).collect()
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            vec![ColumnChange::Rename { column: normalize(old_column_name), name: normalize(new_column_name) }]
        }
        AlterTableOperation::AlterColumn {
            column_name,
            op: AlterColumnOperation::SetDataType { data_type, using, .. },
        } => {
            let column = normalize(column_name);
            let logical_type = column_type(&column, data_type, notices)?;
            vec![ColumnChange::SetType { column, logical_type, using: using.clone().map(Box::new) }]
        }
        _ => return Ok(None),
    }))
}
