//! Numbers as native integers: encoding `plain`, and the entries of a dictionary.
//!
//! ```text
//! part: rows * plain_bytes   native integers, little-endian; floating point as its IEEE 754 bits
//! ```
//!
//! A column decodes without copying if its native integer has the width of Arrow's. This is true for all types except
//! booleans and decimals of up to 18 digits.

use std::ops::Range;

use arrow_buffer::{Buffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::Bitmap;
use crate::head::{CorruptChunk, Parts, Writer, padded};
use crate::kernels::{Lane, LaneSource, Native, with_native, with_wide_vectors};
use crate::lane_predicate::LanePredicate;
use crate::numbers::statistics::Statistics;

/// Native integers, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    bytes: usize,
    is_float: bool,
    values: Buffer,
}

/// Bytes of the part.
pub(crate) fn estimate<N: Native>(statistics: &Statistics<'_, N>) -> usize {
    padded(statistics.rows() * statistics.plain_bytes)
}

/// Writes numbers as one part of native integers of `bytes` bytes. The numbers must fit. If `is_float`, the numbers are
/// ordered integers of floating point.
pub(crate) fn write<N: Native>(values: &[N], bytes: usize, is_float: bool, writer: &mut Writer) {
    if size_of::<N>() == bytes && !is_float {
        writer.push_part(values.to_byte_slice());
        return;
    }
    with_native!(bytes, T => {
        let native = |value: &N| T::from_number(value.to_number());
        let native = |value: &N| if is_float { native(value).flip_float_order() } else { native(value) };
        let values: Vec<T> = values.iter().map(native).collect();
        writer.push_part(values.as_slice().to_byte_slice());
    });
}

impl Plain {
    /// Reads `rows` numbers of `bytes` bytes each.
    pub(crate) fn parse(parts: &mut Parts, bytes: usize, is_float: bool, rows: usize) -> Result<Self, CorruptChunk> {
        Ok(Self { bytes, is_float, values: parts.read_part(rows * bytes, "plain numbers")? })
    }

    /// Bytes of the numbers, in the layout of Arrow if its native type is as wide.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.values
    }

    /// Bytes of one number.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Count of the numbers.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.bytes
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        with_native!(self.bytes, N => {
            let values = &self.values.typed_data::<N>()[rows];
            let is_float = self.is_float;
            with_wide_vectors(move || if is_float {
                out.extend(values.iter().map(|value| O::from_number(value.flip_float_order().to_number())));
            } else {
                out.extend(values.iter().map(|value| O::from_number(value.to_number())));
            });
        });
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        with_native!(self.bytes, N => {
            let values = self.values.typed_data::<N>();
            let number = |row: &u32| values[*row as usize];
            if self.is_float {
                out.extend(positions.iter().map(|row| O::from_number(number(row).flip_float_order().to_number())));
            } else {
                out.extend(positions.iter().map(|row| O::from_number(number(row).to_number())));
            }
        });
    }

    /// Appends the number at the index that each code is. Codes past the end are read as the last index.
    pub(crate) fn append_codes<O: Native>(&self, codes: &[u16], out: &mut Vec<O>) {
        with_native!(self.bytes, N => {
            let values = self.values.typed_data::<N>();
            if let Some(last) = values.len().checked_sub(1) {
                let number = |code: &u16| values[usize::from(*code).min(last)];
                out.extend(codes.iter().map(|code| O::from_number(number(code).to_number())));
            }
        });
    }

    /// Number of one row.
    pub(crate) fn value(&self, row: usize) -> i128 {
        with_native!(self.bytes, N => {
            let value = self.values.typed_data::<N>()[row];
            if self.is_float { value.flip_float_order().to_number() } else { value.to_number() }
        })
    }

    /// Index of the first number that is not less than `number`. The numbers must ascend.
    pub(crate) fn lower_bound(&self, number: i128) -> usize {
        with_native!(self.bytes, N => {
            self.values.typed_data::<N>().partition_point(|value| value.to_number() < number)
        })
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        match self.bytes {
            1 => self.filter_lanes::<u8, u8>(predicate, negated, rows, selection),
            2 => self.filter_lanes::<i16, u16>(predicate, negated, rows, selection),
            4 => self.filter_lanes::<i32, u32>(predicate, negated, rows, selection),
            8 => self.filter_lanes::<i64, u64>(predicate, negated, rows, selection),
            _ => self.filter_lanes::<i128, u128>(predicate, negated, rows, selection),
        }
    }

    fn filter_lanes<N: Native, L: Lane>(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: Range<usize>,
        selection: &mut Bitmap,
    ) {
        let predicate = LanePredicate::<L>::new(predicate, negated, (N::MIN.to_number(), N::MAX.to_number()), 0);
        let lanes = self.values.typed_data();
        predicate.filter(
            if self.is_float { LaneSource::Floats(lanes) } else { LaneSource::Plain(lanes) },
            rows,
            selection,
        );
    }
}
