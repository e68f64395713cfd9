//! Encodes an Arrow array to the bytes of a chunk.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use taut_types::{Encoding, LogicalType, f32_to_ordered, f64_to_ordered};

use crate::choice::{Choice, EncodeError};
use crate::head::{Head, Writer, repeat_only_row};
use crate::kernels::{Native, with_wide_vectors};
use crate::numbers::Nesting;
use crate::{CHUNK_ROWS_MAX, bytes, numbers};

/// Encodes an array of 1 to 65,536 rows in the Arrow type of `logical`. If all rows are null, the chunk is `constant`,
/// whatever the choice.
///
/// # Errors
/// If the array has another type or number of rows, or a forced encoding cannot hold the values. Also if a decimal
/// exceeds the plain width of its type, or text or bytes exceed 2 GiB.
pub fn encode(array: &ArrayRef, logical: LogicalType, choice: Choice) -> Result<Vec<u8>, EncodeError> {
    let rows = array.len();
    if !(1..=CHUNK_ROWS_MAX).contains(&rows) {
        return Err(EncodeError::Rows { found: rows });
    }
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let head = Head {
        plain_bytes: logical.plain_bytes().unwrap_or(0),
        rows,
        nulls: nulls.map_or(0, NullBuffer::null_count),
        ..Head::new(Encoding::Constant)
    };
    let mut writer = Writer::with_capacity(rows * head.plain_bytes);
    if head.nulls == rows {
        return Ok(writer.finish(head));
    }
    if let Some(nulls) = nulls {
        writer.push_part(&nulls.inner().sliced());
    }
    let wrong_type = || EncodeError::WrongType { logical, found: array.data_type().to_string() };
    let input = ChunkInput { nulls, choice, head, writer };
    match logical {
        LogicalType::Boolean => {
            let array = array.as_boolean_opt().ok_or_else(wrong_type)?;
            let bits: Vec<u8> = array.values().iter().map(u8::from).collect();
            input.numbers(bits, false)
        }
        LogicalType::SmallInt => input.numbers(values::<Int16Type>(array).ok_or_else(wrong_type)?, false),
        LogicalType::Integer => input.numbers(values::<Int32Type>(array).ok_or_else(wrong_type)?, false),
        LogicalType::BigInt => input.numbers(values::<Int64Type>(array).ok_or_else(wrong_type)?, false),
        LogicalType::Date => input.numbers(values::<Date32Type>(array).ok_or_else(wrong_type)?, false),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            input.numbers(values::<TimestampMicrosecondType>(array).ok_or_else(wrong_type)?, false)
        }
        LogicalType::Real => {
            let values = values::<Float32Type>(array).ok_or_else(wrong_type)?;
            input.numbers(values.iter().map(|value| f32_to_ordered(*value)).collect::<Vec<_>>(), true)
        }
        LogicalType::Double => {
            let values = values::<Float64Type>(array).ok_or_else(wrong_type)?;
            input.numbers(values.iter().map(|value| f64_to_ordered(*value)).collect::<Vec<_>>(), true)
        }
        LogicalType::Decimal { .. } => input.decimals(values::<Decimal128Type>(array).ok_or_else(wrong_type)?, logical),
        LogicalType::Varchar => {
            let array = array.as_string_view_opt().ok_or_else(wrong_type)?;
            bytes::encode(&array.clone().to_binary_view(), input.choice, input.head, input.writer)
        }
        LogicalType::Bytea => {
            let array = array.as_binary_view_opt().ok_or_else(wrong_type)?;
            bytes::encode(array, input.choice, input.head, input.writer)
        }
    }
}

/// Encodes `rows` rows with the value of the only row of an array in the Arrow type of `logical`, as `constant`. Takes
/// the same time for any number of rows.
///
/// # Errors
/// If the array does not have one row, or if [`encode`] would fail for `rows` rows with its value.
pub fn encode_repeated(array: &ArrayRef, logical: LogicalType, rows: usize) -> Result<Vec<u8>, EncodeError> {
    if array.len() != 1 {
        return Err(EncodeError::Rows { found: array.len() });
    }
    if !(1..=CHUNK_ROWS_MAX).contains(&rows) {
        return Err(EncodeError::Rows { found: rows });
    }
    let mut chunk = encode(array, logical, Choice::Forced(Encoding::Constant))?;
    repeat_only_row(&mut chunk, rows);
    Ok(chunk)
}

/// Native values of an array. Returns `None` if the array has another Arrow type.
fn values<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<&[T::Native]> {
    array.as_primitive_opt::<T>().map(|array| &**array.values())
}

/// Input of the functions that encode one chunk, except its values.
struct ChunkInput<'a> {
    nulls: Option<&'a NullBuffer>,
    choice: Choice,
    head: Head,
    writer: Writer,
}

impl ChunkInput<'_> {
    fn numbers<'v, N: Native>(self, values: impl Into<Cow<'v, [N]>>, is_float: bool) -> Result<Vec<u8>, EncodeError> {
        let mut values = values.into();
        if let Some(nulls) = self.nulls {
            fill_nulls(values.to_mut(), nulls);
        }
        numbers::encode(&values, Nesting::for_column(is_float), self.choice, self.head, self.writer)
    }

    /// Encodes decimals, in 64 bits if all of them fit. Most columns fit, whatever their precision.
    fn decimals(self, values: &[i128], logical: LogicalType) -> Result<Vec<u8>, EncodeError> {
        let plain_bytes = self.head.plain_bytes;
        if let Some(narrow) = narrow_to_i64(values).filter(|_| plain_bytes == 8) {
            return self.numbers(narrow, false);
        }
        // The values of null rows may not fit.
        let mut values = values.to_vec();
        if let Some(nulls) = self.nulls {
            fill_nulls(&mut values, nulls);
        }
        let bound = i128::MAX >> (128 - 8 * plain_bytes);
        if values.iter().any(|value| !(-bound - 1..=bound).contains(value)) {
            return Err(EncodeError::OutOfRange { logical });
        }
        match narrow_to_i64(&values) {
            Some(narrow) => numbers::encode(&narrow, Nesting::for_column(false), self.choice, self.head, self.writer),
            None => numbers::encode(&values, Nesting::for_column(false), self.choice, self.head, self.writer),
        }
    }
}

/// Numbers as 64-bit integers. Returns `None` if a number does not fit.
fn narrow_to_i64(values: &[i128]) -> Option<Vec<i64>> {
    with_wide_vectors(move || {
        let mut all_fit = true;
        let narrow = values.iter().map(|value| {
            all_fit &= i128::from(*value as i64) == *value;
            *value as i64
        });
        let narrow = narrow.collect();
        all_fit.then_some(narrow)
    })
}

/// Replaces the value of each null row by the last value before it that is not null. Then nulls take no space in the
/// encoding. Nulls before the first such value are replaced by that value.
fn fill_nulls<N: Native>(values: &mut [N], nulls: &NullBuffer) {
    let Some(mut last) = nulls.valid_indices().next().map(|row| values[row]) else { return };
    for (value, is_valid) in values.iter_mut().zip(nulls.iter()) {
        last = if is_valid { *value } else { last };
        *value = last;
    }
}
