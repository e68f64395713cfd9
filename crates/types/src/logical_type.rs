//! The types a column can have, and the one Arrow type that carries each of them.

use arrow_schema::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

/// The type of a column. Every type is nullable; nullability belongs to the column.
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
    /// Exact number of `precision` digits (1 to 38), `scale` of them (0 to `precision`) after the point.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the decimal point.
        scale: u8,
    },
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01 00:00:00, in no zone.
    Timestamp,
    /// Microseconds since 1970-01-01 00:00:00 UTC: an instant.
    TimestampTz,
    /// UTF-8 text.
    Varchar,
    /// Bytes.
    Bytea,
}

/// An Arrow type that no column of Taut can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column:?} has type {found}, which Taut does not store; it stores boolean, smallint, integer, bigint, \
     real, double, decimal(p,s), date, timestamp, timestamptz, varchar and bytea"
)]
pub struct UnsupportedType {
    /// The column of the source.
    pub column: String,
    /// Its type there, as Arrow writes it.
    pub found: String,
}

/// The zone that instants carry in Arrow.
const UTC: &str = "+00:00";

impl LogicalType {
    /// The Arrow type in which values of this type enter and leave the storage rooms.
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

    /// The narrowest type that holds every value of an Arrow type, or `None` where there is none.
    ///
    /// Timestamps of nanoseconds map to microseconds; whether a value fits is checked when it is cast.
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

    /// Bytes of one value in its plain form; `None` for text and bytes, whose length varies.
    ///
    /// Decimals take the narrowest of 4, 8 and 16 bytes that holds their precision.
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

    /// Whether values are strings of bytes, not numbers.
    pub fn is_bytes(&self) -> bool {
        self.plain_bytes().is_none()
    }

    /// The name in SQL, as `DESCRIBE` shows it.
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

    /// Code in block files, never reused: kind, then the two parameters of a decimal, else zeros.
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

    /// The type of a code, or `None` for a code that this version does not know.
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
    fn codes_and_arrow_types_lead_back() {
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
