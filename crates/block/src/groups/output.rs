//! Builds Arrow arrays: the values of one column are appended page by page.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, LargeBinaryArray, LargeStringArray, PrimitiveArray,
    StringViewArray, UInt32Array, new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_select::take::take;
use taut_types::{LogicalType, f32_from_ordered, f64_from_ordered};

/// Builder of the array of one column.
pub(crate) struct Output {
    pub values: Values,
    pub nulls: NullBufferBuilder,
    /// Total bytes of the values that were copied from overflow sections.
    pub overflow_bytes: usize,
    logical: LogicalType,
}

/// Values appended so far.
pub(crate) enum Values {
    Booleans(Vec<bool>),
    SmallInts(Vec<i16>),
    /// Integers and dates.
    Integers(Vec<i32>),
    /// Big integers and timestamps.
    BigInts(Vec<i64>),
    Reals(Vec<f32>),
    Doubles(Vec<f64>),
    /// Decimals, stored as integers of 64 or 128 bits.
    Decimals(Vec<i128>),
    /// Codes of a dictionary.
    Codes(Vec<u32>),
    /// Text and bytes.
    Text(Text),
    /// Number of rows, if all are null.
    Nulls(usize),
}

/// Type of a value that blocks store as an integer. The integer fits the type, unless damaged bytes match their
/// checksum. An integer that does not fit wraps.
pub(crate) trait StoredNumber: Copy {
    /// Converts an integer that a block stores.
    fn from_stored(number: i64) -> Self;
}

impl StoredNumber for bool {
    fn from_stored(number: i64) -> Self {
        number != 0
    }
}
impl StoredNumber for i16 {
    fn from_stored(number: i64) -> Self {
        number as Self
    }
}
impl StoredNumber for i32 {
    fn from_stored(number: i64) -> Self {
        number as Self
    }
}
impl StoredNumber for i64 {
    fn from_stored(number: i64) -> Self {
        number
    }
}
impl StoredNumber for i128 {
    fn from_stored(number: i64) -> Self {
        number.into()
    }
}
impl StoredNumber for f32 {
    fn from_stored(number: i64) -> Self {
        f32_from_ordered(number as i32)
    }
}
impl StoredNumber for f64 {
    fn from_stored(number: i64) -> Self {
        f64_from_ordered(number)
    }
}

/// Evaluates `$body` with `$vector` bound to the vector of numbers in `$values`. If `$values` contains no numbers,
/// evaluates `$other`.
macro_rules! with_numbers {
    ($values:expr, $vector:ident => $body:expr, else $other:expr) => {
        match $values {
            $crate::groups::output::Values::Booleans($vector) => $body,
            $crate::groups::output::Values::SmallInts($vector) => $body,
            $crate::groups::output::Values::Integers($vector) => $body,
            $crate::groups::output::Values::BigInts($vector) => $body,
            $crate::groups::output::Values::Reals($vector) => $body,
            $crate::groups::output::Values::Doubles($vector) => $body,
            $crate::groups::output::Values::Decimals($vector) => $body,
            _ => $other,
        }
    };
}
pub(crate) use with_numbers;

impl Output {
    /// An empty column of a type, with capacity for `rows` rows.
    pub fn new(logical: LogicalType, rows: usize) -> Self {
        let values = match logical {
            LogicalType::Boolean => Values::Booleans(Vec::with_capacity(rows)),
            LogicalType::SmallInt => Values::SmallInts(Vec::with_capacity(rows)),
            LogicalType::Integer | LogicalType::Date => Values::Integers(Vec::with_capacity(rows)),
            LogicalType::BigInt | LogicalType::Timestamp | LogicalType::TimestampTz => {
                Values::BigInts(Vec::with_capacity(rows))
            }
            LogicalType::Real => Values::Reals(Vec::with_capacity(rows)),
            LogicalType::Double => Values::Doubles(Vec::with_capacity(rows)),
            LogicalType::Decimal { .. } => Values::Decimals(Vec::with_capacity(rows)),
            LogicalType::Varchar | LogicalType::Bytea => Values::Text(Text::new(rows)),
        };
        Self { values, nulls: NullBufferBuilder::new(rows), overflow_bytes: 0, logical }
    }

    /// An empty column of dictionary codes.
    pub fn of_codes(logical: LogicalType, rows: usize) -> Self {
        Self {
            values: Values::Codes(Vec::with_capacity(rows)),
            nulls: NullBufferBuilder::new(rows),
            overflow_bytes: 0,
            logical,
        }
    }

    /// A column of text or bytes with all its values. The caller appends the validity.
    pub fn of_text(logical: LogicalType, text: Text) -> Self {
        Self { values: Values::Text(text), nulls: NullBufferBuilder::new(0), overflow_bytes: 0, logical }
    }

    /// A column of nulls.
    pub fn of_nulls(logical: LogicalType) -> Self {
        Self { values: Values::Nulls(0), nulls: NullBufferBuilder::new(0), overflow_bytes: 0, logical }
    }

    /// Builds the array. Replaces codes by their entries in `dictionary`. If values are corrupt, the error is what was
    /// expected, for example "UTF-8 text".
    pub fn finish(mut self, dictionary: Option<&ArrayRef>) -> Result<ArrayRef, &'static str> {
        let nulls = self.nulls.finish();
        Ok(match (self.values, self.logical) {
            (Values::Booleans(values), _) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            (Values::SmallInts(values), logical) => primitive_array::<Int16Type>(values, nulls, logical),
            (Values::Integers(values), LogicalType::Date) => primitive_array::<Date32Type>(values, nulls, self.logical),
            (Values::Integers(values), logical) => primitive_array::<Int32Type>(values, nulls, logical),
            (Values::BigInts(values), LogicalType::BigInt) => primitive_array::<Int64Type>(values, nulls, self.logical),
            (Values::BigInts(values), logical) => primitive_array::<TimestampMicrosecondType>(values, nulls, logical),
            (Values::Reals(values), logical) => primitive_array::<Float32Type>(values, nulls, logical),
            (Values::Doubles(values), logical) => primitive_array::<Float64Type>(values, nulls, logical),
            (Values::Decimals(values), logical) => primitive_array::<Decimal128Type>(values, nulls, logical),
            (Values::Codes(codes), _) => {
                let dictionary = dictionary.ok_or("a dictionary")?;
                let greatest = codes.iter().max().copied().unwrap_or(0) as usize;
                if greatest >= dictionary.len().max(1) {
                    return Err("codes of the dictionary");
                }
                if let ([code], None) = (codes.as_slice(), &nulls) {
                    return Ok(dictionary.slice(*code as usize, 1));
                }
                take(dictionary, &UInt32Array::new(codes.into(), nulls), None).map_err(|_| "codes of the dictionary")?
            }
            (Values::Text(text), logical) => text.finish(nulls, logical)?,
            (Values::Nulls(rows), logical) => new_null_array(&logical.arrow(), rows),
        })
    }
}

fn primitive_array<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    logical: LogicalType,
) -> ArrayRef {
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    match logical {
        LogicalType::Decimal { .. } | LogicalType::TimestampTz => Arc::new(array.with_data_type(logical.arrow())),
        _ => Arc::new(array),
    }
}

/// Text or bytes, stored end to end.
///
/// Values are copied out of pages. Arrow then validates the UTF-8 of all values at once and builds the views. Views
/// into pages would be slower, because Arrow would validate each value separately.
pub(crate) struct Text {
    /// Bytes of the values, followed by free space.
    heap: Vec<u8>,
    used: usize,
    ends: Vec<i64>,
}

impl Text {
    /// Initial capacity per row in bytes, enough for short values.
    const BYTES_PER_ROW: usize = 16;

    fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { heap: vec![0; rows * Self::BYTES_PER_ROW], used: 0, ends }
    }

    /// Creates a column from values stored end to end. `ends` are Arrow offsets: the start of each value, then the end
    /// of the last value.
    pub fn from_parts(heap: Vec<u8>, ends: Vec<i64>) -> Self {
        Self { used: heap.len(), heap, ends }
    }

    /// Appends a value. For a null row, callers append the empty value.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        self.push_with(value.len(), |free| {
            free[..value.len()].copy_from_slice(value);
            value.len()
        });
    }

    /// Appends a value. `write` writes it into a buffer of `bytes_max` bytes and returns the number of bytes used.
    #[inline]
    pub fn push_with(&mut self, bytes_max: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let end = self.used + bytes_max;
        if end > self.heap.len() {
            self.heap.resize(end.max(2 * self.heap.len()), 0);
        }
        self.used += write(&mut self.heap[self.used..end]).min(bytes_max);
        // Memory is exhausted long before 63 bits overflow.
        self.ends.push(self.used as i64);
    }

    fn finish(mut self, nulls: Option<NullBuffer>, logical: LogicalType) -> Result<ArrayRef, &'static str> {
        self.heap.truncate(self.used);
        let (heap, ends) = (Buffer::from_vec(self.heap), OffsetBuffer::new(self.ends.into()));
        Ok(match logical {
            LogicalType::Varchar => {
                let text = LargeStringArray::try_new(ends, heap, nulls).map_err(|_| "UTF-8 text")?;
                Arc::new(StringViewArray::from(&text))
            }
            _ => {
                let bytes = LargeBinaryArray::try_new(ends, heap, nulls).map_err(|_| "bytes")?;
                Arc::new(BinaryViewArray::from(&bytes))
            }
        })
    }
}
