//! Selected rows that are mostly contiguous. All rows from the first to the last are decoded together. The values of
//! unselected rows are then removed.
//!
//! ```text
//! runs      2..5  6..9                      span 2..9
//! decoded   c d e f g h i   ->   c d e g h i
//! ```

use std::ops::Range;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

use crate::Bitmap;

/// Selected rows as ascending ranges, restricted to one range.
#[derive(Clone, Debug)]
pub struct SelectedRuns<'a> {
    /// Every range overlaps `span`.
    ranges: &'a [Range<u32>],
    /// Begins and ends with a selected row.
    span: Range<u32>,
    len: usize,
}

impl<'a> SelectedRuns<'a> {
    /// The rows of `ranges` that lie in `rows`. The ranges must ascend, must not be empty, and must not touch each
    /// other.
    pub fn new(ranges: &'a [Range<u32>], rows: Range<u32>) -> Self {
        let first = ranges.partition_point(|range| range.end <= rows.start);
        let ranges = &ranges[first..];
        let ranges = &ranges[..ranges.partition_point(|range| range.start < rows.end)];
        let (Some(head), Some(tail), false) = (ranges.first(), ranges.last(), rows.is_empty()) else {
            return Self { ranges: &[], span: 0..0, len: 0 };
        };
        let span = head.start.max(rows.start)..tail.end.min(rows.end);
        let outside = (span.start - head.start) + (tail.end - span.end);
        let total: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        Self { ranges, span, len: total - outside as usize }
    }

    /// The selected rows that lie in `rows`.
    pub fn within(&self, rows: Range<u32>) -> Self {
        Self::new(self.ranges, rows.start.max(self.span.start)..rows.end.min(self.span.end))
    }

    /// Number of selected rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is selected.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Range from the first selected row to the last.
    pub fn span(&self) -> Range<usize> {
        self.span.start as usize..self.span.end as usize
    }

    /// The runs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let span = self.span.clone();
        self.ranges.iter().map(move |range| range.start.max(span.start) as usize..range.end.min(span.end) as usize)
    }

    /// Moves the values of the selected rows to the front and returns their number. `values` has one value for each row
    /// of the span. The values after the moved ones are undefined.
    ///
    /// # Panics
    /// If there are fewer values than rows in the span.
    pub(crate) fn close_gaps<T: Copy>(&self, values: &mut [T]) -> usize {
        let (start, mut count) = (self.span().start, 0);
        for run in self.iter() {
            let from = run.start - start;
            values.copy_within(from..from + run.len(), count);
            count += run.len();
        }
        count
    }

    /// Validity of the selected rows. `nulls` is the validity of all rows of the span. Returns `None` if no selected
    /// row is null.
    pub(crate) fn nulls(&self, nulls: Option<NullBuffer>) -> Option<NullBuffer> {
        let nulls = nulls?;
        let mut valid = Bitmap::none(nulls.len());
        valid
            .words_mut()
            .iter_mut()
            .zip(nulls.inner().bit_chunks().iter_padded())
            .for_each(|(word, bits)| *word = bits);
        // One more word, for the bits that are shifted out of the last one.
        let mut words = vec![0; self.len.div_ceil(64) + 1];
        let (start, mut count) = (self.span().start, 0);
        for run in self.iter() {
            let (from, end) = (run.start - start, run.end - start);
            for row in (from..end).step_by(64) {
                let bits = valid.bits_from(row, end);
                words[count / 64] |= bits << (count % 64);
                words[count / 64 + 1] |= bits >> 1 >> (63 - count % 64);
                count += 64.min(end - row);
            }
        }
        let valid = BooleanBuffer::new(Buffer::from_vec(words), 0, count);
        Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_clipped_to_a_range() {
        let ranges = [2..5, 6..9, 20..21];
        let rows: Vec<u32> = ranges.iter().cloned().flatten().collect();
        for start in 0..23 {
            for end in start..23 {
                let expected: Vec<usize> =
                    rows.iter().filter(|row| (start..end).contains(*row)).map(|row| *row as usize).collect();
                for runs in
                    [SelectedRuns::new(&ranges, start..end), SelectedRuns::new(&ranges, 1..22).within(start..end)]
                {
                    assert!(runs.iter().all(|run| !run.is_empty()));
                    assert_eq!(runs.iter().flatten().collect::<Vec<_>>(), expected);
                    assert_eq!((runs.len(), runs.is_empty()), (expected.len(), expected.is_empty()));
                    let span = expected.first().map_or(0..0, |first| *first..expected[expected.len() - 1] + 1);
                    assert_eq!(runs.span(), span);
                    let mut values: Vec<usize> = span.clone().collect();
                    let count = runs.close_gaps(&mut values);
                    values.truncate(count);
                    assert_eq!(values, expected);
                    let is_valid = |row: usize| !row.is_multiple_of(3);
                    let all = NullBuffer::from_iter((0..30).map(is_valid));
                    let found = runs.nulls(Some(all.slice(span.start, span.len())));
                    let found: Vec<bool> = found.map_or(vec![true; expected.len()], |nulls| nulls.iter().collect());
                    assert!(found.into_iter().eq(expected.iter().map(|row| is_valid(*row))));
                }
            }
        }
        assert!(SelectedRuns::new(&ranges, 0..22).nulls(None).is_none());
    }
}
