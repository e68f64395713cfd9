//! Key values: columns that identify a row, in a representation in which equal values have equal bits.
//!
//! Values are equal as in Taut's SQL: both floating-point zeros are equal, and so are all NaNs. Integers, dates,
//! timestamps and booleans share one representation, and so do both floating-point types. So a key and a foreign key
//! that references it have the same hash.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, PrimitiveArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use twox_hash::XxHash3_64;

/// Hash of the values of each row of some columns, in the Arrow types of a table. `None` if a value is null. Equal
/// values have equal hashes across tables. The order of the columns matters.
///
/// # Panics
/// If the columns differ in length, or one has a type that no column of a table has.
pub fn key_hashes(columns: &[ArrayRef]) -> Vec<Option<u64>> {
    let values = KeyValues::from_columns(columns);
    (0..values.len()).map(|row| values.hash(row)).collect()
}

/// The keys of some rows, one key per row.
#[derive(Debug)]
pub(crate) struct KeyValues {
    columns: Vec<ColumnValues>,
    /// Rows with a null in any column.
    nulls: Option<NullBuffer>,
    hashes: Vec<u64>,
}

/// The values of one column.
#[derive(Debug)]
enum ColumnValues {
    Narrow(ScalarBuffer<i64>),
    Wide(ScalarBuffer<i128>),
    Bytes(BinaryViewArray),
}

impl KeyValues {
    /// Keys of the rows of some columns. Panics as [`key_hashes`] does.
    pub fn from_columns(columns: &[ArrayRef]) -> Self {
        let nulls = columns.iter().fold(None, |all, column| NullBuffer::union(all.as_ref(), column.nulls()));
        let mut hashes = vec![SEED; columns.first().map_or(0, |column| column.len())];
        let columns: Vec<ColumnValues> = columns.iter().map(ColumnValues::of).collect();
        columns.iter().for_each(|values| values.hash(&mut hashes));
        Self { columns, nulls, hashes }
    }

    /// Number of keys, including keys with nulls.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The hash of a key. `None` if it has a null.
    pub fn hash(&self, row: usize) -> Option<u64> {
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        (!is_null).then(|| self.hashes[row])
    }

    /// Whether two keys without nulls are equal.
    pub fn equals(&self, row: usize, other: &Self, other_row: usize) -> bool {
        let mut columns = self.columns.iter().zip(&other.columns);
        columns.all(|columns| match columns {
            (ColumnValues::Narrow(left), ColumnValues::Narrow(right)) => left[row] == right[other_row],
            (ColumnValues::Wide(left), ColumnValues::Wide(right)) => left[row] == right[other_row],
            (ColumnValues::Bytes(left), ColumnValues::Bytes(right)) => left.value(row) == right.value(other_row),
            _ => false,
        })
    }
}

impl ColumnValues {
    fn of(array: &ArrayRef) -> Self {
        fn widen<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &PrimitiveArray<T>) -> ColumnValues {
            ColumnValues::Narrow(array.values().iter().map(|value| (*value).into()).collect())
        }
        match array.data_type() {
            DataType::Boolean => Self::Narrow(array.as_boolean().values().iter().map(i64::from).collect()),
            DataType::Int16 => widen(array.as_primitive::<Int16Type>()),
            DataType::Int32 => widen(array.as_primitive::<Int32Type>()),
            DataType::Date32 => widen(array.as_primitive::<Date32Type>()),
            DataType::Int64 => Self::Narrow(array.as_primitive::<Int64Type>().values().clone()),
            DataType::Timestamp(..) => Self::Narrow(array.as_primitive::<TimestampMicrosecondType>().values().clone()),
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values();
                Self::Narrow(values.iter().map(|value| canonical_bits(f64::from(*value))).collect())
            }
            DataType::Float64 => Self::Narrow(
                array.as_primitive::<Float64Type>().values().iter().map(|value| canonical_bits(*value)).collect(),
            ),
            DataType::Decimal128(..) => Self::Wide(array.as_primitive::<Decimal128Type>().values().clone()),
            DataType::Utf8View => Self::Bytes(array.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Self::Bytes(array.as_binary_view().clone()),
            other => unreachable!("no column of a table has type {other}"),
        }
    }

    /// Mixes the values of a column into the hashes of the rows.
    fn hash(&self, hashes: &mut [u64]) {
        match self {
            Self::Narrow(values) => {
                hashes.iter_mut().zip(values).for_each(|(hash, value)| *hash = mix(*hash ^ *value as u64));
            }
            Self::Wide(values) => hashes.iter_mut().zip(values).for_each(|(hash, value)| {
                *hash = mix(mix(*hash ^ *value as u64) ^ (*value >> u64::BITS) as u64);
            }),
            Self::Bytes(values) => hashes.iter_mut().enumerate().for_each(|(row, hash)| {
                *hash = XxHash3_64::oneshot_with_seed(*hash, values.value(row));
            }),
        }
    }
}

/// Initial hash. Any number except zero, which [`mix`] maps to itself.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The last step of splitmix64 (Steele et al. 2014), a bijection.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The canonical bits of a number: the same for all numbers that are equal to it.
fn canonical_bits(value: f64) -> i64 {
    // -0.0 + 0.0 is 0.0.
    let canonical = if value.is_nan() { f64::NAN } else { value + 0.0 };
    canonical.to_bits() as i64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Decimal128Array, Float32Array, Float64Array, Int16Array, Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn equal_values_have_equal_hashes() {
        let array = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
        let negative_nan = -f64::NAN;
        let doubles = key_hashes(&[array(vec![0.0, -0.0, f64::NAN, negative_nan, 1.5, f64::INFINITY])]);
        assert!(doubles[0] == doubles[1] && doubles[2] == doubles[3]);
        assert!(doubles[0] != doubles[2] && doubles[4] != doubles[0] && doubles[5] != doubles[2]);
        let reals: ArrayRef = Arc::new(Float32Array::from(vec![0.0, -0.0, f32::NAN, -f32::NAN, 1.5, f32::INFINITY]));
        assert_eq!(key_hashes(&[reals]), doubles);
        let small: ArrayRef = Arc::new(Int16Array::from(vec![Some(-7), None]));
        let large: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None]));
        assert_eq!(key_hashes(&[small]), key_hashes(&[large]));
    }

    #[test]
    fn each_column_and_the_column_order_affect_the_hash() {
        let number = |value: Option<i64>| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
        let text = |value: &str| -> ArrayRef { Arc::new(StringViewArray::from(vec![value])) };
        let decimal: ArrayRef = Arc::new(Decimal128Array::from(vec![i128::from(i64::MAX) + 1]));
        let keys = [
            vec![number(Some(1))],
            vec![number(Some(1)), number(Some(2))],
            vec![number(Some(2)), number(Some(1))],
            vec![text("ab"), text("c")],
            vec![text("a"), text("bc")],
            vec![text("a longer text than fits a view"), decimal],
        ];
        let hashes: Vec<Option<u64>> = keys.iter().map(|key| key_hashes(key)[0]).collect();
        let distinct: std::collections::BTreeSet<_> = hashes.iter().flatten().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(key_hashes(&[number(Some(1)), number(None)]), [None]);
        assert_eq!(key_hashes(&[number(None), number(Some(1))]), [None]);
    }
}
