//! Values of keys: columns by which a row is told from others, in a form in which equal values have equal bits.
//!
//! As SQL compares in Taut, both zeros of floating point are equal, and so are all that are not a number. Integers, dates,
//! timestamps and booleans have one form, and so have both kinds of floating point, so that a key and one that refers to
//! it have one hash.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, PrimitiveArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use twox_hash::XxHash3_64;

/// For each row of some columns, in the Arrow types of a table, a hash of its values; `None` where one is null. Equal
/// values have equal hashes, whatever table they are of; the order of the columns counts.
///
/// # Panics
/// When the columns differ in length, or one has a type that no column of a table has.
pub fn key_hashes(columns: &[ArrayRef]) -> Vec<Option<u64>> {
    let values = KeyValues::of(columns);
    (0..values.len()).map(|row| values.hash(row)).collect()
}

/// The keys of some rows.
#[derive(Debug)]
pub(crate) struct KeyValues {
    columns: Vec<Values>,
    /// Rows with a null in any column.
    nulls: Option<NullBuffer>,
    hashes: Vec<u64>,
}

/// The values of one column.
#[derive(Debug)]
enum Values {
    Narrow(ScalarBuffer<i64>),
    Wide(ScalarBuffer<i128>),
    Bytes(BinaryViewArray),
}

impl KeyValues {
    /// Those of columns, as [`key_hashes`] takes them.
    pub fn of(columns: &[ArrayRef]) -> Self {
        let nulls = columns.iter().fold(None, |all, column| NullBuffer::union(all.as_ref(), column.nulls()));
        let mut hashes = vec![SEED; columns.first().map_or(0, |column| column.len())];
        let columns: Vec<Values> = columns.iter().map(Values::of).collect();
        columns.iter().for_each(|values| values.hash(&mut hashes));
        Self { columns, nulls, hashes }
    }

    /// How many keys, those with nulls too.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The hash of a key; `None` where it has a null.
    pub fn hash(&self, row: usize) -> Option<u64> {
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        (!is_null).then(|| self.hashes[row])
    }

    /// Whether a key without nulls equals another one without nulls.
    pub fn equals(&self, row: usize, other: &Self, other_row: usize) -> bool {
        let mut columns = self.columns.iter().zip(&other.columns);
        columns.all(|columns| match columns {
            (Values::Narrow(left), Values::Narrow(right)) => left[row] == right[other_row],
            (Values::Wide(left), Values::Wide(right)) => left[row] == right[other_row],
            (Values::Bytes(left), Values::Bytes(right)) => left.value(row) == right.value(other_row),
            _ => false,
        })
    }
}

impl Values {
    fn of(array: &ArrayRef) -> Self {
        fn widen<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &PrimitiveArray<T>) -> Values {
            Values::Narrow(array.values().iter().map(|value| (*value).into()).collect())
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
                Self::Narrow(values.iter().map(|value| bits(f64::from(*value))).collect())
            }
            DataType::Float64 => {
                Self::Narrow(array.as_primitive::<Float64Type>().values().iter().map(|value| bits(*value)).collect())
            }
            DataType::Decimal128(..) => Self::Wide(array.as_primitive::<Decimal128Type>().values().clone()),
            DataType::Utf8View => Self::Bytes(array.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Self::Bytes(array.as_binary_view().clone()),
            other => unreachable!("no column of a table has type {other}"),
        }
    }

    /// Makes a column part of the hashes of rows.
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

/// What a hash begins with: any number but zero, which is mixed to itself.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The last step of splitmix64 (Steele et al. 2014): no two numbers are mixed to one.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The bits of a number, which are those of all that equal it.
fn bits(value: f64) -> i64 {
    // -0.0 + 0.0 is 0.0.
    let same = if value.is_nan() { f64::NAN } else { value + 0.0 };
    same.to_bits() as i64
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
    fn every_column_and_their_order_count() {
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
