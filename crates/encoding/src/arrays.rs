//! Builds Arrow arrays from the decoded numbers of one or more chunks.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder, ScalarBuffer};
use taut_types::LogicalType;

use crate::kernels::{Native, mask_of_bytes};
use crate::numbers::Numbers;
use crate::{Bitmap, SelectedRuns, VECTOR_ROWS};

/// Source of the numbers of an array.
pub(crate) trait NumberSource {
    /// Length of the array, in rows.
    fn len(&self) -> usize;
    /// Appends the numbers, decoded to a native integer. Floating point is appended as ordered integers, which sort
    /// like the values (see `numbers/mod.rs`).
    fn append<O: Native>(&self, out: &mut Vec<O>);
}

/// Numbers of a range of rows.
pub(crate) struct NumbersInRange<'a>(pub(crate) &'a Numbers, pub(crate) Range<usize>);
/// Numbers of selected runs of rows.
pub(crate) struct NumbersInRuns<'a>(pub(crate) &'a Numbers, pub(crate) &'a SelectedRuns<'a>);
/// Numbers at ascending positions.
pub(crate) struct NumbersAtPositions<'a>(pub(crate) &'a Numbers, pub(crate) &'a [u32]);
/// Numbers of the rows that a bitmap selects. The last field is the number of selected rows.
pub(crate) struct SelectedNumbers<'a>(pub(crate) &'a Numbers, pub(crate) &'a Bitmap, pub(crate) usize);
/// The distinct numbers of a dictionary.
pub(crate) struct DictionaryNumbers<'a>(pub(crate) &'a Numbers);

impl NumberSource for NumbersInRange<'_> {
    fn len(&self) -> usize {
        self.1.len()
    }

    fn append<O: Native>(&self, out: &mut Vec<O>) {
        self.0.append(self.1.clone(), out);
    }
}

impl NumberSource for NumbersInRuns<'_> {
    fn len(&self) -> usize {
        self.1.len()
    }

    fn append<O: Native>(&self, out: &mut Vec<O>) {
        self.0.append_runs(self.1, out);
    }
}

impl NumberSource for NumbersAtPositions<'_> {
    fn len(&self) -> usize {
        self.1.len()
    }

    fn append<O: Native>(&self, out: &mut Vec<O>) {
        self.0.append_at(self.1, out);
    }
}

impl NumberSource for SelectedNumbers<'_> {
    fn len(&self) -> usize {
        self.2
    }

    fn append<O: Native>(&self, out: &mut Vec<O>) {
        self.0.append_selected(self.1, self.2, out);
    }
}

impl NumberSource for DictionaryNumbers<'_> {
    fn len(&self) -> usize {
        self.0.entry_count()
    }

    fn append<O: Native>(&self, out: &mut Vec<O>) {
        self.0.append_entries(out);
    }
}

fn numbers_of<O: Native>(source: &impl NumberSource) -> Vec<O> {
    let mut numbers = Vec::with_capacity(source.len());
    source.append(&mut numbers);
    numbers
}

/// Builds one Arrow array of numbers from rows of several chunks.
pub struct ArrayBuilder {
    logical: LogicalType,
    values: NativeValues,
    nulls: NullBufferBuilder,
}

/// Values in the native types of Arrow.
enum NativeValues {
    SmallInts(Vec<i16>),
    /// `INTEGER`, `DATE`, and the bits of `REAL`.
    Integers(Vec<i32>),
    /// `BIGINT`, timestamps, and the bits of `DOUBLE`.
    BigInts(Vec<i64>),
    Decimals(Vec<i128>),
}

impl ArrayBuilder {
    /// Creates an empty builder for an array of this type, with capacity for `rows` rows. Returns `None` for booleans,
    /// text and bytes, whose arrays are built from one chunk each.
    pub fn new(logical: LogicalType, rows: usize) -> Option<Self> {
        let values = match logical {
            LogicalType::SmallInt => NativeValues::SmallInts(Vec::with_capacity(rows)),
            LogicalType::Integer | LogicalType::Date | LogicalType::Real => {
                NativeValues::Integers(Vec::with_capacity(rows))
            }
            LogicalType::BigInt | LogicalType::Timestamp | LogicalType::TimestampTz | LogicalType::Double => {
                NativeValues::BigInts(Vec::with_capacity(rows))
            }
            LogicalType::Decimal { .. } => NativeValues::Decimals(Vec::with_capacity(rows)),
            LogicalType::Boolean | LogicalType::Varchar | LogicalType::Bytea => return None,
        };
        Some(Self { logical, values, nulls: NullBufferBuilder::new(rows) })
    }

    /// Type of the array.
    pub(crate) fn logical(&self) -> LogicalType {
        self.logical
    }

    /// Appends numbers of the type of the array.
    pub(crate) fn append(&mut self, source: &impl NumberSource, nulls: Option<&NullBuffer>) {
        match &mut self.values {
            NativeValues::SmallInts(values) => append_values(values, source, false),
            NativeValues::Integers(values) => append_values(values, source, self.logical == LogicalType::Real),
            NativeValues::BigInts(values) => append_values(values, source, self.logical == LogicalType::Double),
            NativeValues::Decimals(values) => append_values(values, source, false),
        }
        match nulls {
            Some(nulls) => self.nulls.append_buffer(nulls),
            None => self.nulls.append_n_non_nulls(source.len()),
        }
    }

    /// Appends rows that are null.
    pub(crate) fn append_nulls(&mut self, rows: usize) {
        match &mut self.values {
            NativeValues::SmallInts(values) => values.resize(values.len() + rows, 0),
            NativeValues::Integers(values) => values.resize(values.len() + rows, 0),
            NativeValues::BigInts(values) => values.resize(values.len() + rows, 0),
            NativeValues::Decimals(values) => values.resize(values.len() + rows, 0),
        }
        self.nulls.append_n_nulls(rows);
    }

    /// Returns the finished array.
    pub fn finish(mut self) -> ArrayRef {
        let (buffer, rows) = match self.values {
            NativeValues::SmallInts(values) => into_buffer(values),
            NativeValues::Integers(values) => into_buffer(values),
            NativeValues::BigInts(values) => into_buffer(values),
            NativeValues::Decimals(values) => into_buffer(values),
        };
        array_of_buffer(self.logical, buffer, rows, self.nulls.finish())
    }
}

/// Appends numbers. If `is_float`, converts ordered integers to the bits of floating point.
fn append_values<O: Native>(values: &mut Vec<O>, source: &impl NumberSource, is_float: bool) {
    let start = values.len();
    source.append(values);
    // A damaged chunk may append fewer numbers than it has rows.
    values.resize(start + source.len(), O::default());
    if is_float {
        values[start..].iter_mut().for_each(|number| *number = number.flip_float_order());
    }
}

fn into_buffer<O: Native>(values: Vec<O>) -> (Buffer, usize) {
    let rows = values.len();
    (Buffer::from_vec(values), rows)
}

/// Builds an array of this type from a source. The type must not be text or bytes.
pub(crate) fn array_of(logical: LogicalType, source: &impl NumberSource, nulls: Option<NullBuffer>) -> ArrayRef {
    match ArrayBuilder::new(logical, source.len()) {
        Some(mut array) => {
            array.append(source, nulls.as_ref());
            array.finish()
        }
        None if logical == LogicalType::Boolean => {
            Arc::new(BooleanArray::new(pack_bits(&numbers_of::<u8>(source)), nulls))
        }
        None => arrow_array::new_empty_array(&logical.arrow()),
    }
}

/// Array of native values that have Arrow's layout. Returns an empty array for booleans, text and bytes.
pub(crate) fn array_of_buffer(
    logical: LogicalType,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    match logical {
        LogicalType::SmallInt => primitive_array::<Int16Type>(logical, buffer, rows, nulls),
        LogicalType::Integer => primitive_array::<Int32Type>(logical, buffer, rows, nulls),
        LogicalType::BigInt => primitive_array::<Int64Type>(logical, buffer, rows, nulls),
        LogicalType::Real => primitive_array::<Float32Type>(logical, buffer, rows, nulls),
        LogicalType::Double => primitive_array::<Float64Type>(logical, buffer, rows, nulls),
        LogicalType::Decimal { .. } => primitive_array::<Decimal128Type>(logical, buffer, rows, nulls),
        LogicalType::Date => primitive_array::<Date32Type>(logical, buffer, rows, nulls),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            primitive_array::<TimestampMicrosecondType>(logical, buffer, rows, nulls)
        }
        LogicalType::Boolean | LogicalType::Varchar | LogicalType::Bytea => {
            arrow_array::new_empty_array(&logical.arrow())
        }
    }
}

fn primitive_array<T: ArrowPrimitiveType>(
    logical: LogicalType,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let values = ScalarBuffer::<T::Native>::new(buffer, 0, rows);
    Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(logical.arrow()))
}

/// Packs bytes into bits: a bit is set if its byte is not zero.
fn pack_bits(bytes: &[u8]) -> BooleanBuffer {
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
