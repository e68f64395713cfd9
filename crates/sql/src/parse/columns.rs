//! Converts column definitions of `CREATE TABLE` and column changes of `ALTER TABLE`.

use datafusion_sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, DataType, DropBehavior, GeneratedAs,
};
use taut_store::Identity;
use taut_types::{Column, LogicalType};

use super::sequences::identity_options;
use crate::declared::{ColumnChange, Declared, DeclaredSequence, SequenceOptions};
use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::syntax::has_query;
use crate::types::{TYPES_ALLOWED, has_length, logical_type_of};

/// Returns the declared columns, and their constraints, defaults, sequences and generation expressions. Adds a notice
/// for each declaration that is accepted but not enforced.
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
    let mut nullable = true;
    let logical_type = match serial_type(&definition.data_type) {
        Some(logical_type) => {
            let column = name.clone();
            declared.sequences.push(DeclaredSequence { column, identity: None, options: SequenceOptions::default() });
            nullable = false;
            logical_type
        }
        None => column_type(&name, &definition.data_type, notices)?,
    };
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => nullable = false,
            ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                let identity = identity_of(generated_as);
                let options = identity_options(sequence_options.as_deref().unwrap_or_default(), notices)?;
                declared.sequences.push(DeclaredSequence { column: name.clone(), identity: Some(identity), options });
                nullable = false;
            }
            // The parser accepts `STORED` only, not `VIRTUAL`.
            ColumnOption::Generated { generation_expr: Some(expression), .. } => {
                declared.generated.push((name.clone(), expression.clone()));
            }
            other => {
                if declared.add_column_option(&name, option.name.as_ref(), other)?.is_none() {
                    return Err(SqlError::unsupported(
                        format!("{other} on column {name:?}"),
                        "NOT NULL, DEFAULT, PRIMARY KEY, UNIQUE, CHECK, REFERENCES, GENERATED ... AS IDENTITY and GENERATED \
                         ALWAYS AS (expression) STORED are",
                    ));
                }
            }
        }
    }
    check_one_value(&name, declared)?;
    Ok(Column::new(name, logical_type, nullable))
}

/// Returns an error if a column has more than one of a default, an identity and a generation expression.
fn check_one_value(column: &str, declared: &Declared) -> Result<()> {
    let default = declared.defaults.iter().filter(|(name, _)| name == column).map(|_| "default");
    let sequences = declared.sequences.iter().filter(|sequence| sequence.column == column);
    let sequences = sequences.map(|sequence| sequence.identity.map_or("default", |_| "identity"));
    let generated = declared.generated.iter().filter(|(name, _)| name == column).map(|_| "generation expression");
    let values: Vec<&str> = default.chain(sequences).chain(generated).collect();
    match values.as_slice() {
        [] | [_] => Ok(()),
        [first, second, ..] if first == second => {
            Err(SqlError::syntax(format!("multiple {first} values specified for column {column:?}")))
        }
        [first, second, ..] => {
            Err(SqlError::syntax(format!("both {first} and {second} specified for column {column:?}")))
        }
    }
}

/// Integer type of a `SERIAL` column. Returns `None` for other types.
fn serial_type(data_type: &DataType) -> Option<LogicalType> {
    let DataType::Custom(name, arguments) = data_type else { return None };
    let [part] = name.0.as_slice() else { return None };
    match part.as_ident().filter(|_| arguments.is_empty()).map(normalize)?.as_str() {
        "smallserial" | "serial2" => Some(LogicalType::SmallInt),
        "serial" | "serial4" => Some(LogicalType::Integer),
        "bigserial" | "serial8" => Some(LogicalType::BigInt),
        _ => None,
    }
}

/// Converts `ALWAYS` or `BY DEFAULT` of an identity column.
pub(super) fn identity_of(generated_as: &GeneratedAs) -> Identity {
    match generated_as {
        GeneratedAs::Always | GeneratedAs::ExpStored => Identity::Always,
        GeneratedAs::ByDefault => Identity::ByDefault,
    }
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
            if using.as_ref().is_some_and(has_query) {
                return Err(SqlError::unsupported("a subquery in USING", "an expression over the row is"));
            }
            vec![ColumnChange::SetType { column, logical_type, using: using.clone().map(Box::new) }]
        }
        _ => return Ok(None),
    }))
}
