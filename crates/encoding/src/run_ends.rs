//! Ends of runs of equal values.
//!
//! ```text
//! part: runs * 2   u16 each: the last row of the run, ascending; the last run ends with the last row
//! ```
//!
//! The run of a row is found by binary search. Ends that do not ascend, or end too early, give wrong runs, but never
//! rows outside the requested range.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};

use crate::CHUNK_ROWS_MAX;
use crate::head::{CorruptChunk, Parts};

/// Ends of runs, stored as the last row of each run.
#[derive(Clone, Debug)]
pub(crate) struct RunEnds {
    last_rows: ScalarBuffer<u16>,
}

/// First row of each run of equal values.
pub(crate) fn run_starts<T: PartialEq>(values: &[T]) -> Vec<usize> {
    let changes = values.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]).map(|(row, _)| row + 1);
    std::iter::once(0).chain(changes).collect()
}

/// Bytes of the ends of runs that begin at these rows.
pub(crate) fn write(starts: &[usize], rows: usize) -> Vec<u8> {
    let ends = starts.iter().skip(1).copied().chain([rows]);
    // A chunk has at most 2^16 rows, and no run is empty.
    let last_rows: Vec<u16> = ends.map(|end| (end - 1) as u16).collect();
    last_rows.as_slice().to_byte_slice().to_vec()
}

impl RunEnds {
    /// Reads the ends of `runs` runs. Fails if `runs` is zero.
    pub(crate) fn parse(parts: &mut Parts, runs: usize) -> Result<Self, CorruptChunk> {
        if runs == 0 {
            return Err(CorruptChunk { at: 32, expected: "at least one run" });
        }
        let last_rows = parts.read_part(2 * runs, "ends of runs")?;
        Ok(Self { last_rows: ScalarBuffer::from(last_rows) })
    }

    /// Ends of runs of `length + 1` rows each. Returns `None` if the lengths do not add up to `rows`.
    pub(crate) fn from_lengths(lengths: impl ExactSizeIterator<Item = u64>, rows: usize) -> Option<Self> {
        let (mut end, mut last_rows) = (0, Vec::with_capacity(lengths.len()));
        for length in lengths {
            end = length.saturating_add(end + 1).min(CHUNK_ROWS_MAX as u64 + 1);
            last_rows.push((end - 1) as u16);
        }
        (!last_rows.is_empty() && end == rows as u64).then(|| Self { last_rows: ScalarBuffer::from(last_rows) })
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.last_rows.len()
    }

    /// Index of the run that a row belongs to.
    pub(crate) fn run_of(&self, row: usize) -> usize {
        self.last_rows.partition_point(|last| usize::from(*last) < row).min(self.last_rows.len() - 1)
    }

    /// Runs that a range of rows touches.
    pub(crate) fn runs_of(&self, rows: &Range<usize>) -> Range<usize> {
        if rows.is_empty() {
            return 0..0;
        }
        let first = self.run_of(rows.start);
        first..self.run_of(rows.end - 1).max(first) + 1
    }

    /// Visits the runs of a range of rows, each with its rows within the range.
    #[inline]
    pub(crate) fn visit(&self, rows: Range<usize>, mut visit: impl FnMut(usize, Range<usize>)) {
        let runs = self.runs_of(&rows);
        let mut start = rows.start;
        for run in runs.clone() {
            let end = usize::from(self.last_rows[run]) + 1;
            let end = if run + 1 == runs.end { rows.end } else { end.clamp(start, rows.end) };
            if start < end {
                visit(run, start..end);
            }
            start = end;
        }
    }

    /// Visits the run of each of the ascending positions.
    #[inline]
    pub(crate) fn visit_at(&self, positions: &[u32], mut visit: impl FnMut(usize)) {
        let mut run = 0;
        for row in positions {
            let row = *row as usize;
            if usize::from(self.last_rows[run]) < row {
                // Neighbouring positions are often in neighbouring runs.
                let next = (run + 1).min(self.last_rows.len() - 1);
                run = if usize::from(self.last_rows[next]) >= row { next } else { self.run_of(row) };
            }
            visit(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_buffer::Buffer;

    fn ends(last_rows: Vec<u16>) -> RunEnds {
        RunEnds { last_rows: ScalarBuffer::from(last_rows) }
    }

    #[test]
    fn runs_round_trip() {
        let values = [7, 7, 8, 7, 7, 7, 9];
        let starts = run_starts(&values);
        assert_eq!(starts, [0, 2, 3, 6]);
        let runs = RunEnds { last_rows: ScalarBuffer::from(Buffer::from(write(&starts, values.len()))) };
        for start in 0..values.len() {
            assert_eq!(values[starts[runs.run_of(start)]], values[start]);
            for end in start..=values.len() {
                let mut found = vec![];
                runs.visit(start..end, |run, rows| rows.for_each(|_| found.push(values[starts[run]])));
                assert_eq!(found, values[start..end]);
            }
        }
        let mut found = vec![];
        runs.visit_at(&[0, 1, 3, 6], |run| found.push(run));
        assert_eq!(found, [0, 0, 2, 3]);
    }

    #[test]
    fn hostile_ends_cover_each_row_once() {
        for last_rows in [vec![0], vec![9, 2, 1], vec![5, 5, 5], vec![u16::MAX, 0], vec![0, 1, 2]] {
            let runs = ends(last_rows);
            for (start, end) in [(0, 0), (0, 10), (3, 7), (9, 10)] {
                let mut next = start;
                runs.visit(start..end, |run, rows| {
                    assert!(run < runs.len() && rows.start == next && rows.end > next);
                    next = rows.end;
                });
                assert_eq!(next, end);
            }
            runs.visit_at(&[0, 4, 9], |run| assert!(run < runs.len()));
        }
    }
}
