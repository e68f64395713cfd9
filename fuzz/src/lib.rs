//! Shared by the fuzz targets: columns of every type, and damage of valid bytes.
//!
//! Arbitrary bytes seldom look like a block. So most inputs instead describe how to damage a valid one:
//!
//! ```text
//! byte 0    0: the rest is the file itself; n: the rest damages valid bytes, which the target chooses by n - 1
//! byte 1    bit 0: truncate the end; other bits: free for the target
//! then      damages of 4 bytes each: offset (u24, little-endian, modulo the length), byte to XOR with
//! last      0 to 3 bytes: if bit 0 of byte 1 is set, number of bytes to truncate, big-endian after an implied byte 1
//! ```

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, StringViewArray, TimestampMicrosecondArray,
};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, LogicalType};

/// Every logical type, with decimals of 9 and 38 digits.
pub fn types() -> Vec<LogicalType> {
    vec![
        LogicalType::Boolean,
        LogicalType::SmallInt,
        LogicalType::Integer,
        LogicalType::BigInt,
        LogicalType::Real,
        LogicalType::Double,
        LogicalType::Decimal { precision: 9, scale: 2 },
        LogicalType::Decimal { precision: 38, scale: 10 },
        LogicalType::Date,
        LogicalType::Timestamp,
        LogicalType::TimestampTz,
        LogicalType::Varchar,
        LogicalType::Bytea,
    ]
}

/// Distribution of the values of a generated column.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// One value.
    Constant,
    /// Consecutive numbers.
    Sequence,
    /// Ascending in small steps, each value up to three times.
    Tight,
    /// Long runs with five distinct values.
    Runs,
    /// Pseudorandom values, some of them null.
    Noise,
    /// Values close together, except for one row in fifty.
    Outliers,
    /// Only nulls.
    Null,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 7] =
        [Self::Constant, Self::Sequence, Self::Tight, Self::Runs, Self::Noise, Self::Outliers, Self::Null];

    fn at(self, row: usize) -> Option<i64> {
        let row = row as i64;
        match self {
            Self::Constant => Some(42),
            Self::Sequence => Some(row),
            Self::Tight => Some(row / 12 * 25 + row % 12 * 2 / 5),
            Self::Runs => Some(row / 37 % 5),
            Self::Noise => (row % 11 != 3).then(|| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> (row % 60)),
            Self::Outliers => Some(if row % 50 == 7 { i64::MAX / (row + 1) } else { 500 - row * 7919 % 1000 }),
            Self::Null => None,
        }
    }
}

/// Generates a column of `rows` values.
pub fn column(logical: LogicalType, shape: Shape, rows: usize) -> ArrayRef {
    let values: Vec<Option<i64>> = (0..rows).map(|row| shape.at(row)).collect();
    array(logical, &values)
}

/// Converts numbers to a column of a type. Numbers are truncated to narrower types and divided by 8 for floating point.
/// Text and bytes contain them in a URL.
pub fn array(logical: LogicalType, values: &[Option<i64>]) -> ArrayRef {
    let values = || values.iter().copied();
    let text = |value: i64| format!("https://example.org/{value}");
    match logical {
        LogicalType::Boolean => Arc::new(values().map(|v| v.map(|v| v & 1 == 1)).collect::<BooleanArray>()),
        LogicalType::SmallInt => Arc::new(values().map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
        LogicalType::Integer => Arc::new(values().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        LogicalType::BigInt => Arc::new(values().collect::<Int64Array>()),
        LogicalType::Real => Arc::new(values().map(|v| v.map(|v| v as f32 / 8.0)).collect::<Float32Array>()),
        LogicalType::Double => Arc::new(values().map(|v| v.map(|v| v as f64 / 8.0)).collect::<Float64Array>()),
        LogicalType::Decimal { precision, scale } => {
            let modulus = 10_i128.pow(u32::from(precision));
            let array: Decimal128Array = values().map(|v| v.map(|v| i128::from(v) % modulus)).collect();
            Arc::new(array.with_data_type(arrow_schema::DataType::Decimal128(precision, scale as i8)))
        }
        LogicalType::Date => Arc::new(values().map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        LogicalType::Timestamp => Arc::new(values().collect::<TimestampMicrosecondArray>()),
        LogicalType::TimestampTz => {
            Arc::new(values().collect::<TimestampMicrosecondArray>().with_data_type(logical.arrow()))
        }
        LogicalType::Varchar => Arc::new(values().map(|v| v.map(text)).collect::<StringViewArray>()),
        LogicalType::Bytea => Arc::new(values().map(|v| v.map(|v| text(v).into_bytes())).collect::<BinaryViewArray>()),
    }
}

/// Bytes that an input describes: its own bytes, or valid bytes with damage. `valid` returns the valid bytes for an
/// index from 0. Returns `None` for an input of less than two bytes.
pub fn damaged<'a>(input: &[u8], valid: impl Fn(usize) -> &'a [u8]) -> Option<Vec<u8>> {
    let (first_byte, rest) = (*input.first()?, input.get(2..)?);
    let Some(valid_index) = usize::from(first_byte).checked_sub(1) else { return Some(rest.to_vec()) };
    let mut bytes = valid(valid_index).to_vec();
    let (damages, last) = rest.as_chunks::<4>();
    for [a, b, c, flip] in damages {
        let offset = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let length = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(offset % length) {
            *byte ^= flip;
        }
    }
    if input[1] & 1 == 1 {
        let cut = last.iter().fold(1, |cut, byte| cut * 256 + usize::from(*byte));
        bytes.truncate(bytes.len() - cut % (bytes.len() + 1));
    }
    Some(bytes)
}

/// Predicates for a column of a type that match some, all or no rows.
pub fn predicates(column: u32, logical: LogicalType) -> Vec<ColumnPredicate> {
    let number = |low, high| DatumPredicate::Range { low, high };
    let bytes = |text: &str| Box::<[u8]>::from(text.as_bytes());
    let plain = if logical.is_bytes() {
        let low = std::ops::Bound::Excluded(bytes("https://example.org/3"));
        vec![
            DatumPredicate::BytesRange { low, high: std::ops::Bound::Unbounded },
            DatumPredicate::BytesOneOf([bytes(""), bytes("https://example.org/42")].into()),
            DatumPredicate::Null,
        ]
    } else {
        vec![
            number(3, 42),
            number(i128::MIN, 0),
            number(i128::MIN, i128::MAX),
            DatumPredicate::OneOf([-7, 0, 42].into()),
            DatumPredicate::Null,
        ]
    };
    let column = ColumnIndex(column);
    plain
        .into_iter()
        .flat_map(|predicate| {
            [false, true].map(|negated| ColumnPredicate { column, condition: predicate.clone(), negated })
        })
        .collect()
}

/// Checks that an array from storage has the expected type and length and is valid Arrow data.
pub fn check_array(array: &ArrayRef, logical: LogicalType, rows: usize) {
    assert_eq!(array.data_type(), &logical.arrow());
    assert_eq!(array.len(), rows);
    array.to_data().validate_full().expect("an array from storage is not valid Arrow data");
}
