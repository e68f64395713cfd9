//! Arrow arrays in the making: values of one column, appended page by page.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray, UInt32Array,
    new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder, ScalarBuffer};
use arrow_select::take::take;
use taut_types::{LogicalType, f32_from_key, f64_from_key};

use crate::error::Corrupt;

/// A column of a result that is being read.
pub(crate) struct Output {
    pub values: Values,
    pub nulls: NullBufferBuilder,
    logical: LogicalType,
}

/// Its values so far.
pub(crate) enum Values {
    Booleans(Vec<bool>),
    Small(Vec<i16>),
    /// Integers and dates.
    Integers(Vec<i32>),
    /// Big integers and timestamps.
    Bigs(Vec<i64>),
    Reals(Vec<f32>),
    Doubles(Vec<f64>),
    /// Decimals, stored narrow or wide.
    Decimals(Vec<i128>),
    /// Codes of a dictionary.
    Codes(Vec<u32>),
    /// Text and bytes.
    Views(Views),
    /// Only nulls; counts them.
    Nulls(usize),
}

/// A native value as it comes from the key that was stored. Keys are stored in as many bits as the type has, so that
/// nothing but damage that keeps the checksum can make them wrap.
pub(crate) trait Native: Copy {
    /// The value of a key.
    fn of(key: i64) -> Self;
}

impl Native for bool {
    fn of(key: i64) -> Self {
        key != 0
    }
}
impl Native for i16 {
    fn of(key: i64) -> Self {
        key as Self
    }
}
impl Native for i32 {
    fn of(key: i64) -> Self {
        key as Self
    }
}
impl Native for i64 {
    fn of(key: i64) -> Self {
        key
    }
}
impl Native for i128 {
    fn of(key: i64) -> Self {
        key.into()
    }
}
impl Native for f32 {
    fn of(key: i64) -> Self {
        f32_from_key(key as i32)
    }
}
impl Native for f64 {
    fn of(key: i64) -> Self {
        f64_from_key(key)
    }
}

/// Runs one expression for the vector of whichever native type an output has.
macro_rules! with_natives {
    ($values:expr, $vector:ident => $body:expr, else $other:expr) => {
        match $values {
            $crate::groups::output::Values::Booleans($vector) => $body,
            $crate::groups::output::Values::Small($vector) => $body,
            $crate::groups::output::Values::Integers($vector) => $body,
            $crate::groups::output::Values::Bigs($vector) => $body,
            $crate::groups::output::Values::Reals($vector) => $body,
            $crate::groups::output::Values::Doubles($vector) => $body,
            $crate::groups::output::Values::Decimals($vector) => $body,
            _ => $other,
        }
    };
}
pub(crate) use with_natives;

impl Output {
    /// An empty column of a type, with room for `rows`.
    pub fn new(logical: LogicalType, rows: usize) -> Self {
        let values = match logical {
            LogicalType::Boolean => Values::Booleans(Vec::with_capacity(rows)),
            LogicalType::SmallInt => Values::Small(Vec::with_capacity(rows)),
            LogicalType::Integer | LogicalType::Date => Values::Integers(Vec::with_capacity(rows)),
            LogicalType::BigInt | LogicalType::Timestamp | LogicalType::TimestampTz => {
                Values::Bigs(Vec::with_capacity(rows))
            }
            LogicalType::Real => Values::Reals(Vec::with_capacity(rows)),
            LogicalType::Double => Values::Doubles(Vec::with_capacity(rows)),
            LogicalType::Decimal { .. } => Values::Decimals(Vec::with_capacity(rows)),
            LogicalType::Varchar | LogicalType::Bytea => Values::Views(Views::new(rows)),
        };
        Self { values, nulls: NullBufferBuilder::new(rows), logical }
    }

    /// An empty column of codes of a dictionary.
    pub fn of_codes(logical: LogicalType, rows: usize) -> Self {
        Self { values: Values::Codes(Vec::with_capacity(rows)), nulls: NullBufferBuilder::new(rows), logical }
    }

    /// A column of nulls.
    pub fn of_nulls(logical: LogicalType) -> Self {
        Self { values: Values::Nulls(0), nulls: NullBufferBuilder::new(0), logical }
    }

    /// The array; codes are looked up in `dictionary`.
    pub fn finish(mut self, dictionary: Option<&ArrayRef>) -> Result<ArrayRef, &'static str> {
        let nulls = self.nulls.finish();
        Ok(match (self.values, self.logical) {
            (Values::Booleans(values), _) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            (Values::Small(values), logical) => primitive::<Int16Type>(values, nulls, logical),
            (Values::Integers(values), LogicalType::Date) => primitive::<Date32Type>(values, nulls, self.logical),
            (Values::Integers(values), logical) => primitive::<Int32Type>(values, nulls, logical),
            (Values::Bigs(values), LogicalType::BigInt) => primitive::<Int64Type>(values, nulls, self.logical),
            (Values::Bigs(values), logical) => primitive::<TimestampMicrosecondType>(values, nulls, logical),
            (Values::Reals(values), logical) => primitive::<Float32Type>(values, nulls, logical),
            (Values::Doubles(values), logical) => primitive::<Float64Type>(values, nulls, logical),
            (Values::Decimals(values), logical) => primitive::<Decimal128Type>(values, nulls, logical),
            (Values::Codes(codes), _) => {
                let dictionary = dictionary.ok_or("a dictionary")?;
                let greatest = codes.iter().max().copied().unwrap_or(0) as usize;
                if greatest >= dictionary.len().max(1) {
                    return Err("codes of the dictionary");
                }
                take(dictionary, &UInt32Array::new(codes.into(), nulls), None).map_err(|_| "codes of the dictionary")?
            }
            (Values::Views(views), logical) => views.finish(nulls, logical)?,
            (Values::Nulls(rows), logical) => new_null_array(&logical.arrow(), rows),
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(
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

/// Text or bytes as views: short values in the view, longer ones where they lie.
pub(crate) struct Views {
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    /// Values that lie nowhere as they are. Becomes the last buffer.
    own: Vec<u8>,
    /// Views into `own`, whose buffer has no number yet.
    into_own: Vec<usize>,
}

impl Views {
    /// The longest value that a view holds itself.
    const SHORT: usize = 12;
    /// How many of the last buffers are compared with one that is used again.
    const RECENT: usize = 4;
    /// A view reaches this far into its buffer.
    const REACH: usize = u32::MAX as usize;

    fn new(rows: usize) -> Self {
        Self { views: Vec::with_capacity(rows), buffers: vec![], own: vec![], into_own: vec![] }
    }

    /// Appends the value at a range of a buffer, which must lie inside.
    #[inline]
    pub fn push(&mut self, buffer: &Buffer, start: usize, end: usize) {
        let value = &buffer[start..end];
        if value.len() <= Self::SHORT {
            self.views.push(make_view(value, 0, 0));
            return;
        }
        if end > Self::REACH {
            self.push_own(|own| own.extend_from_slice(value));
            return;
        }
        let is_buffer = |other: &Buffer| other.as_ptr() == buffer.as_ptr() && other.len() == buffer.len();
        let number = match self.buffers.iter().rev().take(Self::RECENT).position(is_buffer) {
            Some(back) => self.buffers.len() - 1 - back,
            None => {
                self.buffers.push(buffer.clone());
                self.buffers.len() - 1
            }
        };
        // A value is at most 4 GiB long and a result has fewer buffers than rows.
        self.views.push(make_view(value, number as u32, start as u32));
    }

    /// Appends a value that `write` makes. Past 4 GiB of them, values are lost to the check in `finish`.
    #[inline]
    pub fn push_own(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.own.len();
        write(&mut self.own);
        let value = &self.own[start..];
        if value.len() <= Self::SHORT {
            self.views.push(make_view(value, 0, 0));
            self.own.truncate(start);
        } else {
            self.into_own.push(self.views.len());
            self.views.push(make_view(value, 0, start as u32));
        }
    }

    /// Appends a null.
    #[inline]
    pub fn push_null(&mut self) {
        self.views.push(0);
    }

    fn finish(mut self, nulls: Option<NullBuffer>, logical: LogicalType) -> Result<ArrayRef, &'static str> {
        if self.own.len() > Self::REACH {
            return Err("at most 4 GiB of text in one result");
        }
        let number = (self.buffers.len() as u128) << 64;
        for index in self.into_own {
            self.views[index] |= number;
        }
        if !self.own.is_empty() {
            self.buffers.push(Buffer::from_vec(self.own));
        }
        let views = ScalarBuffer::from(self.views);
        Ok(match logical {
            LogicalType::Varchar => {
                Arc::new(StringViewArray::try_new(views, self.buffers, nulls).map_err(|_| "UTF-8 text")?)
            }
            _ => Arc::new(BinaryViewArray::try_new(views, self.buffers, nulls).map_err(|_| "bytes")?),
        })
    }
}

/// Names a page of a piece where values go wrong.
pub(crate) fn wrong(at: usize, expected: &'static str) -> Corrupt {
    Corrupt { at, expected }
}
