//! Selected rows as a bitmap, with their positions and runs.

use std::ops::Range;
use std::sync::OnceLock;

use taut_encoding::{Bitmap, SelectedRuns};

use super::Rows;

/// Minimum average length of a run, in rows, for selected rows to be read run by run.
const RUN_ROWS_MIN: usize = 12;
/// Maximum ratio of the span (first to last selected row) to the count of selected rows, for rows to be read run by
/// run. Reading numbers run by run decodes the whole span, unless their encoding is plain.
const ROWS_PER_SELECTED_IN_RUNS_MAX: usize = 2;

/// Selected rows as a bitmap. Positions and runs are derived on first use.
#[derive(Clone, Debug)]
pub struct SelectedBits {
    bitmap: Bitmap,
    count: usize,
    positions: OnceLock<Vec<u32>>,
    runs: OnceLock<Option<Runs>>,
}

/// Runs of selected rows. The runs are long and close together.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    ranges: Vec<Range<u32>>,
    /// Number of rows in all earlier runs, for each run.
    rows_before: Vec<u32>,
}

impl Runs {
    /// Runs of a bitmap with `count` set bits. Returns `None` unless the runs are long and close together.
    fn from_bitmap(bitmap: &Bitmap, count: usize) -> Option<Self> {
        if bitmap.run_count() * RUN_ROWS_MIN > count {
            return None;
        }
        let ranges = bitmap.runs();
        let (first, last) = (ranges.first()?, ranges.last()?);
        if (last.end - first.start) as usize > ROWS_PER_SELECTED_IN_RUNS_MAX * count {
            return None;
        }
        let mut rows = 0;
        let count_before = |range: &Range<u32>| {
            rows += range.end - range.start;
            rows - (range.end - range.start)
        };
        let rows_before = ranges.iter().map(count_before).collect();
        Some(Self { ranges, rows_before })
    }

    /// Position in the segment of the selected row with ordinal `index`.
    pub(super) fn row(&self, index: usize) -> u32 {
        // A segment has at most 65,536 rows.
        let index = index as u32;
        let run = self.rows_before.partition_point(|rows| *rows <= index) - 1;
        self.ranges[run].start + (index - self.rows_before[run])
    }

    /// Number of selected rows before a row of the segment.
    pub(super) fn count_before(&self, row: u32) -> usize {
        let Some(run) = self.ranges.partition_point(|range| range.start < row).checked_sub(1) else { return 0 };
        let range = &self.ranges[run];
        (self.rows_before[run] + (row.min(range.end) - range.start)) as usize
    }

    /// The selected rows with the ordinals `rows`, as a range if they are consecutive.
    pub(super) fn slice(&self, rows: Range<usize>) -> Rows<'_> {
        if rows.is_empty() {
            return Rows::Range(0..0);
        }
        let runs = SelectedRuns::new(&self.ranges, self.row(rows.start)..self.row(rows.end - 1) + 1);
        if runs.span().len() == runs.len() { Rows::Range(runs.span()) } else { Rows::Runs(runs) }
    }
}

impl SelectedBits {
    pub(super) fn new(bitmap: Bitmap, count: usize) -> Self {
        Self { bitmap, count, positions: OnceLock::new(), runs: OnceLock::new() }
    }

    /// The rows as runs. Returns `None` unless the runs are long and close together. Derived on first use.
    pub(super) fn runs(&self) -> Option<&Runs> {
        self.runs.get_or_init(|| Runs::from_bitmap(&self.bitmap, self.count)).as_ref()
    }

    /// Bitmap of the selected rows.
    pub(crate) fn bitmap(&self) -> &Bitmap {
        &self.bitmap
    }

    /// Number of selected rows.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Positions of the selected rows. Derived on first use.
    pub(crate) fn positions(&self) -> &[u32] {
        self.positions.get_or_init(|| self.bitmap.positions())
    }
}

impl PartialEq for SelectedBits {
    fn eq(&self, other: &Self) -> bool {
        self.bitmap == other.bitmap
    }
}

impl Eq for SelectedBits {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_or_distant_runs_are_read_by_position() {
        for cleared in [(0..1000).step_by(12).map(|row| row..row + 1).collect(), vec![20..490, 510..980]] {
            let mut bitmap = Bitmap::all_set(1000);
            cleared.into_iter().for_each(|rows| bitmap.clear_range(rows));
            let bits = SelectedBits::new(bitmap.clone(), bitmap.count());
            assert!(bits.runs().is_none() && bits.positions() == bitmap.positions());
        }
    }
}
