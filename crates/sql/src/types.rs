//! SQL types: their names, and conversions between the syntax of a type and its logical type.

use arrow_schema::DataType as ArrowType;
use datafusion_sql::sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};
use taut_types::LogicalType;

/// Types that a column of a table can have, for error messages.
pub(crate) const TYPES_ALLOWED: &str = "allowed are boolean, smallint, integer, bigint, real, double precision, \
                             decimal(precision 1 to 38, scale 0 to precision), date, timestamp, timestamptz, \
                             varchar, text and bytea";

/// Type of a decimal that is declared without precision and scale, as in DataFusion.
const DECIMAL_DEFAULT: LogicalType = LogicalType::Decimal { precision: 38, scale: 10 };

/// SQL name of an Arrow type, even if no table can store the type.
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

/// Logical type that a column definition declares. `None` if no table can store the type.
pub(crate) fn logical_type_of(data_type: &DataType) -> Option<LogicalType> {
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

/// Whether a type is a string type with a declared length. Taut does not enforce the length.
pub(crate) fn has_length(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Varchar(Some(_))
            | DataType::CharacterVarying(Some(_))
            | DataType::CharVarying(Some(_))
            | DataType::Char(_)
            | DataType::Character(_)
    )
}

/// SQL type to which values of a column are cast. Returns `None` for integers, which [`crate::assignment_function`]
/// casts, and for types that the planner would map to another type.
pub(crate) fn sql_type(logical: LogicalType) -> Option<DataType> {
    Some(match logical {
        LogicalType::Boolean => DataType::Boolean,
        LogicalType::Real => DataType::Real,
        LogicalType::Double => DataType::DoublePrecision,
        LogicalType::Decimal { precision, scale } => {
            DataType::Decimal(ExactNumberInfo::PrecisionAndScale(u64::from(precision), i64::from(scale)))
        }
        LogicalType::Date => DataType::Date,
        LogicalType::Timestamp => DataType::Timestamp(Some(6), TimezoneInfo::None),
        LogicalType::Varchar => DataType::Varchar(None),
        LogicalType::SmallInt | LogicalType::Integer | LogicalType::BigInt => return None,
        LogicalType::TimestampTz => DataType::Timestamp(Some(6), TimezoneInfo::WithTimeZone),
        LogicalType::Bytea => return None,
    })
}
