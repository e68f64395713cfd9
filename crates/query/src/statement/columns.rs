//! The columns that `CREATE TABLE` declares, and the names of types.

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::sql::sqlparser::ast::{ColumnDef, ColumnOption, DataType, ExactNumberInfo, TimezoneInfo};
use taut_types::{Column, LogicalType};

use super::{Declared, normalize};
use crate::error::{QueryError, Result};

const TYPES_ALLOWED: &str = "allowed are boolean, smallint, integer, bigint, real, double precision, \
                             decimal(precision 1 to 38, scale 0 to precision), date, timestamp, timestamptz, \
                             varchar, text and bytea";

/// Type of a decimal that is declared without precision and scale, as in DataFusion.
const DECIMAL_DEFAULT: LogicalType = LogicalType::Decimal { precision: 38, scale: 10 };

/// SQL name of the type of a result column, even if no table can store the type.
pub fn type_name(arrow: &ArrowType) -> String {
    match arrow {
        ArrowType::Null => "unknown".into(),
        ArrowType::Interval(_) | ArrowType::Duration(_) => "interval".into(),
        ArrowType::Time32(_) | ArrowType::Time64(_) => "time".into(),
        ArrowType::List(item) | ArrowType::LargeList(item) | ArrowType::FixedSizeList(item, _) => {
            format!("{}[]", type_name(item.data_type()))
        }
        _ => LogicalType::from_arrow(arrow).map_or_else(|| arrow.to_string(), |logical| logical.sql_name()),
    }
}

/// Converts column definitions to columns, and to their constraints and defaults. Adds a notice for each declaration
/// that is accepted but not enforced.
///
/// # Errors
/// If a type or a constraint is not supported.
pub fn columns_of(definitions: &[ColumnDef], notices: &mut Vec<String>) -> Result<(Vec<Column>, Declared)> {
    let mut declared = Declared::default();
    let columns = definitions.iter().map(|definition| column_of(definition, &mut declared, notices));
    Ok((columns.collect::<Result<_>>()?, declared))
}

fn column_of(definition: &ColumnDef, declared: &mut Declared, notices: &mut Vec<String>) -> Result<Column> {
    let name = normalize(&definition.name);
    let Some(logical_type) = logical_type_of(&definition.data_type) else {
        return Err(QueryError::unsupported(
            format!("type {} of column {name:?}", definition.data_type),
            TYPES_ALLOWED,
        ));
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
                if declared.take(&name, option.name.as_ref(), other)?.is_none() {
                    return Err(QueryError::unsupported(
                        format!("{other} on column {name:?}"),
                        "NOT NULL, DEFAULT, PRIMARY KEY, UNIQUE, CHECK and REFERENCES are",
                    ));
                }
            }
        }
    }
    Ok(Column::new(name, logical_type, nullable))
}

fn logical_type_of(data_type: &DataType) -> Option<LogicalType> {
    Some(match data_type {
        DataType::Boolean | DataType::Bool => LogicalType::Boolean,
        DataType::SmallInt(_) | DataType::Int2(_) => LogicalType::SmallInt,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => LogicalType::Integer,
        DataType::BigInt(_) | DataType::Int8(_) => LogicalType::BigInt,
        DataType::Real | DataType::Float4 => LogicalType::Real,
        DataType::DoublePrecision | DataType::Float8 | DataType::Double(ExactNumberInfo::None) => LogicalType::Double,
        DataType::Float(ExactNumberInfo::None) => LogicalType::Double,
        DataType::Float(ExactNumberInfo::Precision(1..=24)) => LogicalType::Real,
        DataType::Float(ExactNumberInfo::Precision(25..=53)) => LogicalType::Double,
        DataType::Decimal(digits) | DataType::Numeric(digits) | DataType::Dec(digits) => decimal(digits)?,
        DataType::Date => LogicalType::Date,
        DataType::Timestamp(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            LogicalType::Timestamp
        }
        DataType::Timestamp(None | Some(6), _) => LogicalType::TimestampTz,
        DataType::Varchar(_)
        | DataType::CharacterVarying(_)
        | DataType::CharVarying(_)
        | DataType::Char(_)
        | DataType::Character(_)
        | DataType::Text
        | DataType::String(_) => LogicalType::Varchar,
        DataType::Bytea | DataType::Blob(None) => LogicalType::Bytea,
        _ => return None,
    })
}

fn decimal(digits: &ExactNumberInfo) -> Option<LogicalType> {
    let (precision, scale) = match *digits {
        ExactNumberInfo::None => return Some(DECIMAL_DEFAULT),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let precision = u8::try_from(precision).ok().filter(|precision| (1..=38).contains(precision))?;
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= precision)?;
    Some(LogicalType::Decimal { precision, scale })
}

fn has_length(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Varchar(Some(_))
            | DataType::CharacterVarying(Some(_))
            | DataType::CharVarying(Some(_))
            | DataType::Char(_)
            | DataType::Character(_)
    )
}
