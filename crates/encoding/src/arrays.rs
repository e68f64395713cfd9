//! Arrow arrays from decoded numbers.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use taut_types::LogicalType;

use crate::kernels::mask_of_bytes;
use crate::native::Native;
use crate::numbers::Numbers;
use crate::{Bitmap, SelectedRuns, VECTOR_ROWS};

/// Where the numbers of an array come from.
pub(crate) trait Source {
    /// The numbers, decoded to a native integer; floating point as keys.
    fn numbers<O: Native>(&self) -> Vec<O>;
}

/// A range of rows.
pub(crate) struct Rows<'a>(pub(crate) &'a Numbers, pub(crate) Range<usize>);
/// Rows in runs.
pub(crate) struct InRuns<'a>(pub(crate) &'a Numbers, pub(crate) &'a SelectedRuns<'a>);
/// Ascending positions.
pub(crate) struct Positions<'a>(pub(crate) &'a Numbers, pub(crate) &'a [u32]);
/// The rows of a selection, of which there are so many.
pub(crate) struct Selected<'a>(pub(crate) &'a Numbers, pub(crate) &'a Bitmap, pub(crate) usize);
/// The distinct numbers of a dictionary.
pub(crate) struct Entries<'a>(pub(crate) &'a Numbers);

impl Source for Rows<'_> {
    fn numbers<O: Native>(&self) -> Vec<O> {
        self.0.decode(self.1.clone())
    }
}

impl Source for InRuns<'_> {
    fn numbers<O: Native>(&self) -> Vec<O> {
        self.0.decode_runs(self.1)
    }
}

impl Source for Positions<'_> {
    fn numbers<O: Native>(&self) -> Vec<O> {
        self.0.gather(self.1)
    }
}

impl Source for Selected<'_> {
    fn numbers<O: Native>(&self) -> Vec<O> {
        self.0.select(self.1, self.2)
    }
}

impl Source for Entries<'_> {
    fn numbers<O: Native>(&self) -> Vec<O> {
        self.0.entries().unwrap_or_default()
    }
}

/// The array of numbers of this type, which is not one of text or bytes.
pub(crate) fn array_of(logical: LogicalType, source: &impl Source, nulls: Option<NullBuffer>) -> ArrayRef {
    match logical {
        LogicalType::Boolean => Arc::new(BooleanArray::new(bits_of(&source.numbers::<u8>()), nulls)),
        LogicalType::SmallInt => of_numbers::<i16>(logical, source, nulls),
        LogicalType::Integer | LogicalType::Date => of_numbers::<i32>(logical, source, nulls),
        LogicalType::BigInt | LogicalType::Timestamp | LogicalType::TimestampTz => {
            of_numbers::<i64>(logical, source, nulls)
        }
        LogicalType::Real => of_keys::<i32>(logical, source, nulls),
        LogicalType::Double => of_keys::<i64>(logical, source, nulls),
        LogicalType::Decimal { .. } => of_numbers::<i128>(logical, source, nulls),
        LogicalType::Varchar | LogicalType::Bytea => arrow_array::new_empty_array(&logical.arrow()),
    }
}

fn of_numbers<O: Native>(logical: LogicalType, source: &impl Source, nulls: Option<NullBuffer>) -> ArrayRef {
    let numbers = source.numbers::<O>();
    let rows = numbers.len();
    array_of_buffer(logical, Buffer::from_vec(numbers), rows, nulls)
}

fn of_keys<O: Native>(logical: LogicalType, source: &impl Source, nulls: Option<NullBuffer>) -> ArrayRef {
    let mut numbers = source.numbers::<O>();
    numbers.iter_mut().for_each(|number| *number = number.flipped());
    let rows = numbers.len();
    array_of_buffer(logical, Buffer::from_vec(numbers), rows, nulls)
}

/// The array over native values laid out as Arrow's, of a type with such values.
pub(crate) fn array_of_buffer(
    logical: LogicalType,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    match logical {
        LogicalType::SmallInt => primitive::<Int16Type>(logical, buffer, rows, nulls),
        LogicalType::Integer => primitive::<Int32Type>(logical, buffer, rows, nulls),
        LogicalType::BigInt => primitive::<Int64Type>(logical, buffer, rows, nulls),
        LogicalType::Real => primitive::<Float32Type>(logical, buffer, rows, nulls),
        LogicalType::Double => primitive::<Float64Type>(logical, buffer, rows, nulls),
        LogicalType::Decimal { .. } => primitive::<Decimal128Type>(logical, buffer, rows, nulls),
        LogicalType::Date => primitive::<Date32Type>(logical, buffer, rows, nulls),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            primitive::<TimestampMicrosecondType>(logical, buffer, rows, nulls)
        }
        LogicalType::Boolean | LogicalType::Varchar | LogicalType::Bytea => {
            arrow_array::new_empty_array(&logical.arrow())
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(
    logical: LogicalType,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let values = ScalarBuffer::<T::Native>::new(buffer, 0, rows);
    Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(logical.arrow()))
}

/// One bit per byte: whether it is not zero.
fn bits_of(bytes: &[u8]) -> BooleanBuffer {
    let mut words: Vec<u64> = Vec::with_capacity(bytes.len().div_ceil(64));
    let mut vector = [0; VECTOR_ROWS];
    for bytes in bytes.chunks(VECTOR_ROWS) {
        for (bit, byte) in vector.iter_mut().zip(bytes) {
            *bit = u8::from(*byte != 0);
        }
        let mask = mask_of_bytes(&vector);
        words.extend_from_slice(&mask[..bytes.len().div_ceil(64)]);
    }
    BooleanBuffer::new(Buffer::from_vec(words), 0, bytes.len())
}
