//! Types of columns, and the Arrow type of each.

use std::ops::RangeInclusive;

use arrow_schema::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

/// Type of a column. Nullability is a property of the column, not of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogicalType {
    /// True or false.
    Boolean,
    /// 16-bit signed integer.
    SmallInt,
    /// 32-bit signed integer.
    Integer,
    /// 64-bit signed integer.
    BigInt,
    /// 32-bit IEEE 754 number.
    Real,
    /// 64-bit IEEE 754 number.
    Double,
    /// Exact number of `precision` digits (1 to 38), with `scale` digits (0 to `precision`) after the decimal point.
    Decimal {
        /// Digits in total.
        precision: u8,
        /// Digits after the decimal point.
        scale: u8,
    },
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01 00:00:00, without a time zone.
    Timestamp,
    /// Microseconds since 1970-01-01 00:00:00 UTC: an instant.
    TimestampTz,
    /// UTF-8 text.
    Varchar,
    /// Bytes.
    Bytea,
}

/// Error: a column has an Arrow type that Taut does not store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column:?} has type {found}, which Taut does not store; it stores boolean, smallint, integer, bigint, \
     real, double, decimal(p,s), date, timestamp, timestamptz, varchar and bytea"
)]
pub struct UnsupportedType {
    /// Name of the column.
    pub column: String,
    /// Type of the column, as SQL writes it if SQL has it.
    pub found: String,
}

/// SQL name of an Arrow type, also of types that are not stored. Other types have Arrow's name.
pub(crate) fn shown_type(arrow: &DataType) -> String {
    match arrow {
        DataType::Interval(_) | DataType::Duration(_) => "interval".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            format!("{}[]", shown_type(element.data_type()))
        }
        other => LogicalType::from_arrow(other).map_or_else(|| other.to_string(), |stored| stored.to_string()),
    }
}

/// Time zone in the Arrow type of [`LogicalType::TimestampTz`].
const UTC: &str = "+00:00";

impl LogicalType {
    /// Arrow type in which values are written to storage and read from it.
    pub fn arrow(&self) -> DataType {
        match *self {
            Self::Boolean => DataType::Boolean,
            Self::SmallInt => DataType::Int16,
            Self::Integer => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            Self::Varchar => DataType::Utf8View,
            Self::Bytea => DataType::BinaryView,
        }
    }

    /// Narrowest type that holds every value of an Arrow type, or `None` if no type does.
    ///
    /// Nanosecond timestamps map to microseconds. A cast checks that each value fits.
    pub fn from_arrow(arrow: &DataType) -> Option<Self> {
        Some(match arrow {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => Self::SmallInt,
            DataType::UInt16 | DataType::Int32 => Self::Integer,
            DataType::UInt32 | DataType::Int64 => Self::BigInt,
            DataType::UInt64 => Self::Decimal { precision: 20, scale: 0 },
            DataType::Float16 | DataType::Float32 => Self::Real,
            DataType::Float64 => Self::Double,
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale)
                if (1..=38).contains(precision) && (0..=*precision as i8).contains(scale) =>
            {
                Self::Decimal { precision: *precision, scale: *scale as u8 }
            }
            DataType::Date32 => Self::Date,
            DataType::Date64 | DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::TimestampTz,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Varchar,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Self::Bytea
            }
            DataType::Dictionary(_, values) => return Self::from_arrow(values),
            _ => return None,
        })
    }

    /// Bytes of one unencoded value, or `None` for text and bytes, whose length varies.
    ///
    /// A decimal takes the narrowest of 4, 8 and 16 bytes that holds its precision.
    pub fn plain_bytes(&self) -> Option<usize> {
        match *self {
            Self::Boolean => Some(1),
            Self::SmallInt => Some(2),
            Self::Integer | Self::Real | Self::Date => Some(4),
            Self::BigInt | Self::Double | Self::Timestamp | Self::TimestampTz => Some(8),
            Self::Decimal { precision: ..=9, .. } => Some(4),
            Self::Decimal { precision: ..=18, .. } => Some(8),
            Self::Decimal { .. } => Some(16),
            Self::Varchar | Self::Bytea => None,
        }
    }

    /// The numbers that a type of integers can hold. `None` for other types.
    pub fn integer_range(&self) -> Option<RangeInclusive<i64>> {
        match self {
            Self::SmallInt => Some(i16::MIN.into()..=i16::MAX.into()),
            Self::Integer => Some(i32::MIN.into()..=i32::MAX.into()),
            Self::BigInt => Some(i64::MIN..=i64::MAX),
            _ => None,
        }
    }

    /// Whether values are byte strings, not numbers.
    pub fn is_bytes(&self) -> bool {
        self.plain_bytes().is_none()
    }

    /// Name in SQL, as `DESCRIBE` shows it.
    pub fn sql_name(&self) -> String {
        match self {
            Self::Boolean => "boolean".into(),
            Self::SmallInt => "smallint".into(),
            Self::Integer => "integer".into(),
            Self::BigInt => "bigint".into(),
            Self::Real => "real".into(),
            Self::Double => "double".into(),
            Self::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
            Self::Date => "date".into(),
            Self::Timestamp => "timestamp".into(),
            Self::TimestampTz => "timestamptz".into(),
            Self::Varchar => "varchar".into(),
            Self::Bytea => "bytea".into(),
        }
    }

    /// Code in block files, never reused: the kind, then precision and scale of a decimal. Both are zero for other
    /// types.
    pub fn code(&self) -> [u8; 3] {
        match *self {
            Self::Boolean => [1, 0, 0],
            Self::SmallInt => [2, 0, 0],
            Self::Integer => [3, 0, 0],
            Self::BigInt => [4, 0, 0],
            Self::Real => [5, 0, 0],
            Self::Double => [6, 0, 0],
            Self::Decimal { precision, scale } => [7, precision, scale],
            Self::Date => [8, 0, 0],
            Self::Timestamp => [9, 0, 0],
            Self::TimestampTz => [10, 0, 0],
            Self::Varchar => [11, 0, 0],
            Self::Bytea => [12, 0, 0],
        }
    }

    /// Type of a code in block files, or `None` for a code that this version does not know.
    pub fn from_code(code: [u8; 3]) -> Option<Self> {
        Some(match code {
            [1, 0, 0] => Self::Boolean,
            [2, 0, 0] => Self::SmallInt,
            [3, 0, 0] => Self::Integer,
            [4, 0, 0] => Self::BigInt,
            [5, 0, 0] => Self::Real,
            [6, 0, 0] => Self::Double,
            [7, precision @ 1..=38, scale] if scale <= precision => Self::Decimal { precision, scale },
            [8, 0, 0] => Self::Date,
            [9, 0, 0] => Self::Timestamp,
            [10, 0, 0] => Self::TimestampTz,
            [11, 0, 0] => Self::Varchar,
            [12, 0, 0] => Self::Bytea,
            _ => return None,
        })
    }
}

impl std::fmt::Display for LogicalType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.sql_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_arrow_types_round_trip() {
        let all = [
            LogicalType::Boolean,
            LogicalType::SmallInt,
            LogicalType::Integer,
            LogicalType::BigInt,
            LogicalType::Real,
            LogicalType::Double,
            LogicalType::Decimal { precision: 38, scale: 38 },
            LogicalType::Decimal { precision: 1, scale: 0 },
            LogicalType::Date,
            LogicalType::Timestamp,
            LogicalType::TimestampTz,
            LogicalType::Varchar,
            LogicalType::Bytea,
        ];
        for logical in all {
            assert_eq!(LogicalType::from_code(logical.code()), Some(logical));
            assert_eq!(LogicalType::from_arrow(&logical.arrow()), Some(logical));
        }
        assert_eq!(LogicalType::from_code([7, 39, 0]), None);
        assert_eq!(LogicalType::from_code([0, 0, 0]), None);
    }
}
