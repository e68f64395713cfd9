//! Arrow arrays of datums: the inverse of `taut_types::datum_at`.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use taut_types::{Datum, LogicalType, f32_from_ordered, f64_from_ordered};

/// Array of the given values, in the Arrow type of `logical`.
///
/// The native value of a null, which no reader may use, is the greatest of its type, or NaN for floating point.
///
/// # Panics
/// If a datum is not of the type `logical`.
pub fn array_of(values: &[Option<Datum>], logical: LogicalType) -> ArrayRef {
    match logical {
        LogicalType::Boolean => {
            let bits = BooleanBuffer::collect_bool(values.len(), |row| number(&values[row]).is_none_or(|bit| bit != 0));
            Arc::new(BooleanArray::new(bits, nulls_of(values)))
        }
        LogicalType::SmallInt => primitive::<Int16Type>(values, logical, i16::MAX, |datum| datum as i16),
        LogicalType::Integer => primitive::<Int32Type>(values, logical, i32::MAX, |datum| datum as i32),
        LogicalType::BigInt => primitive::<Int64Type>(values, logical, i64::MAX, |datum| datum as i64),
        LogicalType::Real => {
            primitive::<Float32Type>(values, logical, f32::NAN, |datum| f32_from_ordered(datum as i32))
        }
        LogicalType::Double => {
            primitive::<Float64Type>(values, logical, f64::NAN, |datum| f64_from_ordered(datum as i64))
        }
        LogicalType::Decimal { .. } => primitive::<Decimal128Type>(values, logical, i128::MAX, |datum| datum),
        LogicalType::Date => primitive::<Date32Type>(values, logical, i32::MAX, |datum| datum as i32),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            primitive::<TimestampMicrosecondType>(values, logical, i64::MAX, |datum| datum as i64)
        }
        LogicalType::Varchar => {
            let text = |datum: &Option<Datum>| {
                datum.as_ref().map(|datum| str::from_utf8(datum.bytes().unwrap()).unwrap().to_owned())
            };
            Arc::new(values.iter().map(text).collect::<StringViewArray>())
        }
        LogicalType::Bytea => {
            let bytes = |datum: &Option<Datum>| datum.as_ref().map(|datum| datum.bytes().unwrap().to_vec());
            Arc::new(values.iter().map(bytes).collect::<BinaryViewArray>())
        }
    }
}

fn number(value: &Option<Datum>) -> Option<i128> {
    value.as_ref().map(|datum| datum.number().expect("a number"))
}

fn nulls_of(values: &[Option<Datum>]) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(values.len(), |row| values[row].is_some()));
    (nulls.null_count() > 0).then_some(nulls)
}

fn primitive<T: ArrowPrimitiveType>(
    values: &[Option<Datum>],
    logical: LogicalType,
    under_null: T::Native,
    native: impl Fn(i128) -> T::Native,
) -> ArrayRef {
    let numbers: Vec<T::Native> = values.iter().map(|value| number(value).map_or(under_null, &native)).collect();
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(numbers), nulls_of(values));
    Arc::new(array.with_data_type(logical.arrow()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nulls, Shape, TYPES, column_values};
    use arrow_array::Array;
    use rand::SeedableRng;
    use taut_types::datum_at;

    #[test]
    fn datums_round_trip() {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for logical in TYPES {
            for shape in Shape::ALL {
                for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
                    let values = column_values(logical, shape, nulls, 300, &mut random);
                    let array = array_of(&values, logical);
                    assert_eq!(array.data_type(), &logical.arrow());
                    for (row, value) in values.iter().enumerate() {
                        assert_eq!(&datum_at(&array, logical, row), value, "{logical} {shape:?} row {row}");
                    }
                }
            }
        }
    }
}
