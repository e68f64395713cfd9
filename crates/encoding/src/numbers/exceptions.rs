//! Numbers that do not fit the width of the packed ones: exceptions of `patched` and `alp`, and steps of `delta`.
//!
//! ```text
//! part: entries * 2             u16 each: the rows of the exceptions, ascending
//! part: entries * plain_bytes   their numbers; floating point as ordered integers
//! ```
//!
//! The packed distance of an exception is zero and is ignored. Exceptions are found by binary search. If the rows of
//! damaged bytes do not ascend, numbers are wrong, but no rows outside the requested ones are written.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::{MASK_WORDS, Native, with_wide_vectors};
use crate::numbers::plain::{self, Plain};
use crate::packed::width_of;
use crate::{Bitmap, VECTOR_ROWS};

/// Bits of the row of an exception.
const ROW_BITS: usize = 16;

/// Bits of an exception, row included.
pub(crate) fn bits(plain_bytes: usize) -> usize {
    ROW_BITS + 8 * plain_bytes
}

/// Rows of the exceptions, and their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Exceptions {
    rows: ScalarBuffer<u16>,
    numbers: Plain,
}

/// Writes the parts of the exceptions at these rows, and sets the head fields that describe them.
pub(crate) fn write<N: Native>(values: &[N], rows: &[u16], head: &mut Head, writer: &mut Writer) {
    let numbers: Vec<N> = rows.iter().map(|row| values[usize::from(*row)]).collect();
    head.entries = rows.len();
    writer.push_part(rows.to_byte_slice());
    plain::write(&numbers, head.plain_bytes, false, writer);
}

impl Exceptions {
    /// Reads the exceptions that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let rows = ScalarBuffer::from(parts.read_part(2 * head.entries, "rows of exceptions")?);
        Ok(Self { rows, numbers: Plain::parse(parts, head.plain_bytes, false, head.entries)? })
    }

    /// Number of exceptions.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Least number among the exceptions. Returns `None` if there are no exceptions.
    pub(crate) fn least(&self) -> Option<i128> {
        (0..self.rows.len()).map(|index| self.numbers.value(index)).min()
    }

    /// The number of a row, if it is an exception.
    pub(crate) fn number(&self, row: usize) -> Option<i128> {
        let row = u16::try_from(row).ok()?;
        self.rows.binary_search(&row).ok().map(|index| self.numbers.value(index))
    }

    /// Whether a range of rows has exceptions.
    pub(crate) fn any_within(&self, rows: Range<usize>) -> bool {
        self.within(rows).next().is_some()
    }

    /// Exceptions of a range of rows, each with its offset in the range.
    pub(crate) fn within(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, i128)> {
        let first = self.rows.partition_point(|row| usize::from(*row) < rows.start);
        let exception_rows = self.rows[first..].iter().take_while(move |row| usize::from(**row) < rows.end).enumerate();
        exception_rows.filter_map(move |(index, row)| {
            Some((usize::from(*row).checked_sub(rows.start)?, self.numbers.value(first + index)))
        })
    }

    /// Overwrites the numbers of a range with its exceptions.
    pub(crate) fn apply<O: Native>(&self, rows: Range<usize>, numbers: &mut [O]) {
        for (offset, number) in self.within(rows) {
            if let Some(target) = numbers.get_mut(offset) {
                *target = O::from_number(number);
            }
        }
    }

    /// Overwrites the numbers at ascending positions with the exceptions there.
    pub(crate) fn apply_at<O: Native>(&self, positions: &[u32], numbers: &mut [O]) {
        let mut next = 0;
        for (row, target) in positions.iter().zip(numbers) {
            // Few exceptions lie between one position and the next.
            while self.rows.get(next).is_some_and(|exception| u32::from(*exception) < *row) {
                next += 1;
            }
            if self.rows.get(next).is_some_and(|exception| u32::from(*exception) == *row) {
                *target = O::from_number(self.numbers.value(next));
            }
        }
    }

    /// Evaluates a predicate on the exceptions of a range. Returns a function that sets their bits in the mask of one
    /// vector. The caller must pass the vectors in ascending order, and may skip some.
    pub(crate) fn mask_corrector(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: Range<usize>,
    ) -> impl FnMut(usize, &mut [u64; MASK_WORDS]) {
        let first_row = rows.start - rows.start % VECTOR_ROWS;
        let mut next = self.rows.partition_point(|row| usize::from(*row) < first_row);
        let end = self.rows.partition_point(|row| usize::from(*row) < rows.end).max(next);
        let mut passing = Bitmap::all_set(self.rows.len());
        self.numbers.filter(predicate, negated, next..end, &mut passing);
        move |vector, mask| {
            let first = vector * VECTOR_ROWS;
            while let Some(row) = self.rows[next..end].first().map(|row| usize::from(*row))
                && row < first + VECTOR_ROWS
            {
                if let Some(offset) = row.checked_sub(first) {
                    let (word, bit) = (&mut mask[offset / 64], offset % 64);
                    *word = *word & !(1 << bit) | u64::from(passing.get(next)) << bit;
                }
                next += 1;
            }
        }
    }
}

/// Range of the numbers that are packed: all numbers from `base` that fit the width. Other numbers are exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window<N> {
    pub(crate) base: N,
    /// Last number of the window.
    pub(crate) top: N,
    pub(crate) width: usize,
}

impl<N: Native> Window<N> {
    /// Window with which a sample takes the fewest bits. Sorts the sample. If the width allows, the window is extended
    /// to `min` or `max`, the bounds of all numbers.
    pub(crate) fn from_sample(sample: &mut [N], (min, max): (N, N), plain_bytes: usize) -> Self {
        sample.sort_unstable();
        let rows = sample.len();
        // Shares of exceptions that are tried: an eighth of the rows, a sixteenth and so on, and none. More than an
        // eighth saves nothing.
        let shares = (3..=9).map(|shift| rows >> shift).chain([0]);
        let cost = |(width, exceptions): (usize, usize)| rows * width + exceptions * bits(plain_bytes);
        let narrowest = |exceptions: usize| {
            let spans = sample.windows(rows - exceptions).enumerate();
            let widths = spans.filter_map(|(start, window)| Some((width_of(window[0], *window.last()?)?, start)));
            widths.min().map(|(width, start)| (width, exceptions, start))
        };
        let best = shares.filter_map(narrowest).min_by_key(|(width, exceptions, _)| cost((*width, *exceptions)));
        let Some((width, exceptions, start)) = best else { return Self { base: min, top: min, width: 0 } };
        let (low, high) = (sample[start].to_number(), sample[start + rows - exceptions - 1].to_number());
        let reach = if width == 0 { 0 } else { i128::from(u64::MAX >> (64 - width)) };
        let slack = reach - (high - low);
        let (min, max) = (min.to_number(), max.to_number());
        let base = if low.saturating_sub(min) <= slack {
            min
        } else if max.saturating_sub(high) <= slack {
            max - reach
        } else {
            low - slack / 2
        };
        let top = base.saturating_add(reach).min(N::MAX.to_number());
        Self { base: N::from_number(base), top: N::from_number(top), width }
    }

    /// Count of the numbers outside the window.
    pub(crate) fn count_outside(self, values: &[N]) -> usize {
        with_wide_vectors(move || {
            // Counted in parts of 128 numbers, so that each count fits a byte.
            let count = |part: &[N]| part.iter().map(|value| u8::from(!self.contains(*value))).sum::<u8>();
            values.chunks(128).map(|part| usize::from(count(part))).sum()
        })
    }

    #[inline(always)]
    pub(crate) fn contains(self, value: N) -> bool {
        (value >= self.base) & (value <= self.top)
    }

    /// Bits of `rows` numbers with `exceptions` among them, the last vector padded.
    pub(crate) fn bits(self, rows: usize, exceptions: usize, plain_bytes: usize) -> usize {
        rows.next_multiple_of(VECTOR_ROWS) * self.width + exceptions * bits(plain_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_exclude_outliers_on_both_sides() {
        let window = |values: &[i64]| {
            let bounds = (values.iter().copied().min().unwrap(), values.iter().copied().max().unwrap());
            Window::from_sample(&mut values.to_vec(), bounds, 8)
        };
        let core: Vec<i64> = (1000..2000).collect();
        let with = |others: &[i64]| window(&[&core[..], others].concat());
        assert_eq!(with(&[]), Window { base: 1000, top: 2023, width: 10 });
        assert_eq!(with(&[i64::MAX]), Window { base: 1000, top: 2023, width: 10 });
        assert_eq!(with(&[i64::MIN]), Window { base: 976, top: 1999, width: 10 });
        assert_eq!(with(&[i64::MIN, i64::MAX]), Window { base: 988, top: 2011, width: 10 });
        assert_eq!(with(&[i64::MIN, i64::MAX]).count_outside(&[987, 988, 2011, 2012]), 2);
        assert_eq!(window(&[i64::MIN, i64::MAX]).width, 64);
        // No two of these numbers are within 64 bits, so one is packed and the others are exceptions.
        let wide = Window::from_sample(&mut [i128::MIN, 0, i128::MAX], (i128::MIN, i128::MAX), 16);
        assert_eq!((wide.base, wide.width), (i128::MIN, 0));
    }
}
