//! Distances from a base in two bytes each: encoding `two_byte_delta`.
//!
//! ```text
//! part: rows * 2   u16 each: number - base
//! ```
//!
//! `base`, the least number, is in the head. `width` is 16. Row `r` is at byte `2 * r`. The encoding suits columns that
//! are looked up by position, because the offsets are fixed and the numbers are narrower than plain ones. It cannot
//! hold numbers more than 65,535 apart. Numbers less than 32,768 apart are smaller if packed.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::{Native, with_wide_vectors};
use crate::lane_predicate::{LanePredicate, filter_vectors};
use crate::numbers::statistics::Statistics;
use crate::{Bitmap, VECTOR_ROWS};

/// Bits of a distance.
pub(crate) const WIDTH: usize = 16;

/// Distances from a base, of two bytes each.
#[derive(Clone, Debug)]
pub(crate) struct TwoByteDelta {
    base: i128,
    distances: ScalarBuffer<u16>,
}

/// Bytes of the part. Returns `None` if the numbers are too far apart.
pub(crate) fn estimate<N: Native>(statistics: &Statistics<'_, N>) -> Option<usize> {
    let spread = statistics.spread()?;
    (spread <= u16::MAX.into()).then(|| padded(2 * statistics.rows()))
}

/// Writes numbers as one part, and sets the head fields that describe it. The numbers must be at most 65,535 above
/// `min`.
pub(crate) fn write<N: Native>(values: &[N], min: N, head: &mut Head, writer: &mut Writer) {
    (head.base, head.width) = (min.to_number(), WIDTH);
    // No distance is truncated, because the caller has checked the greatest.
    let distances: Vec<u16> = with_wide_vectors(move || values.iter().map(|value| value.minus(min) as u16).collect());
    writer.push_part(distances.as_slice().to_byte_slice());
}

impl TwoByteDelta {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.width != WIDTH {
            return Err(CorruptChunk { at: 2, expected: "distances of 16 bits" });
        }
        let distances = parts.read_part(2 * head.rows, "distances of two bytes")?;
        Ok(Self { base: head.base, distances: ScalarBuffer::from(distances) })
    }

    /// The number of a row.
    pub(crate) fn value(&self, row: usize) -> i128 {
        self.base.wrapping_add(self.distances[row].into())
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        let distances = &self.distances[rows];
        let greatest = i64::try_from(self.base.saturating_add(u16::MAX.into()));
        match (size_of::<O>(), i64::try_from(self.base).and_then(|base| greatest.map(|_| base))) {
            // Widening to 128 bits is faster after the sum than before it, if the sum fits 64 bits.
            (16, Ok(base)) => with_wide_vectors(move || {
                out.extend(
                    distances.iter().map(|distance| O::from_number(base.wrapping_add(i64::from(*distance)).into())),
                );
            }),
            _ => {
                let base = O::from_number(self.base);
                with_wide_vectors(move || out.extend(distances.iter().map(|distance| base.plus((*distance).into()))));
            }
        }
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let base = O::from_number(self.base);
        out.extend(positions.iter().map(|row| base.plus(self.distances[*row as usize].into())));
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let domain = (self.base, self.base.saturating_add(u16::MAX.into()));
        let predicate = LanePredicate::<u16>::new(predicate, negated, domain, self.base);
        match predicate.fixed_result() {
            Some(true) => {}
            Some(false) => selection.clear_range(rows),
            None => filter_vectors(rows, selection, |vector| {
                let lanes = &self.distances[vector * VECTOR_ROWS..];
                predicate.mask(&lanes[..lanes.len().min(VECTOR_ROWS)])
            }),
        }
    }
}
