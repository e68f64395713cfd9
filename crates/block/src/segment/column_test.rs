//! One column test on encoded values: of all numbers, of those that other tests left, or by extremes where these are kept.
//!
//! A test that few rows pass, at one end of all numbers of the segment, reads the extremes of a column
//! (`taut_encoding`, `numbers/extremes.rs`) in place of its numbers. No file has them: they are made when such a test is
//! run on a section that was read before, and kept beside it for as long as whoever holds the sections likes.

use taut_encoding::{Bitmap, Extreme};
use taut_types::Test;

use super::{Planned, SegmentReader};
use crate::section::Beside;
use crate::{AccessPaths, BlockError, ScanReport};

/// Extremes are made where one row or fewer of so many pass: of more, in no order, they leave out too few. To make them takes
/// as long as five scans. Measured, as the next: `cargo run --release -p taut-encoding --example few_rows`.
const FEW: usize = 400;
/// Where one row or fewer of so many are left, each is tested by itself.
const LEFT: usize = 80;

impl SegmentReader<'_> {
    /// Clears selected rows, of which there are `before`, that fail a test, and tells how many are left.
    pub(super) fn test_column(
        &mut self,
        planned: &Planned<'_>,
        before: usize,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        report.column_scans += 1;
        report.paths |= AccessPaths::ENCODED_SCAN;
        let (test, uncertain) = (planned.test, &planned.uncertain);
        let (sections, extreme, rows) = (self.sections, self.extreme_of(planned)?, self.rows);
        let (piece, place) = self.piece(test.column)?;
        if before * LEFT <= uncertain.rows() as usize
            && let Some(chunk) = piece.chunk(place)
            && chunk.filter_selected(test, before, selection)
        {
            report.values_tested += before as u64;
            return Ok(selection.count());
        }
        let column = extreme.and_then(|extreme| Some((piece.single_column()?, extreme)));
        let Some((column, extreme)) = column else {
            report.values_tested += uncertain.rows();
            piece.filter(place, test, uncertain, selection)?;
            return Ok(selection.count());
        };
        let beside = sections.extremes(column.section, extreme);
        for range in uncertain.iter().map(|rows| rows.start as usize..rows.end as usize) {
            let looked_at = match &beside {
                Beside::Kept(extremes) => {
                    column.chunk.filter_by_extremes(test, (extreme, extremes), range.clone(), selection)
                }
                Beside::Missed | Beside::Nothing => None,
            };
            if looked_at.is_some() {
                report.paths |= AccessPaths::EXTREMES;
            } else {
                column.chunk.filter(test, range.clone(), selection);
            }
            report.values_tested += looked_at.unwrap_or(range.len()) as u64;
        }
        let left = selection.count();
        let is_worth_it = uncertain.rows() as usize * 2 > rows && left * FEW <= before;
        if is_worth_it
            && matches!(beside, Beside::Missed)
            && let Some(extremes) = column.chunk.extremes(extreme)
        {
            sections.keep_extremes(column.section, extreme, extremes);
        }
        Ok(left)
    }

    /// The end of the segment's numbers up to which a test lets them pass, where it is one end.
    fn extreme_of(&self, planned: &Planned<'_>) -> Result<Option<Extreme>, BlockError> {
        let Test::Range { low, high } = planned.test.test else { return Ok(None) };
        if self.ignore_zones || planned.test.negated {
            return Ok(None);
        }
        let summary = self.block.summary(self.sections, planned.test.column)?;
        let Some((least, greatest)) = summary.zones(self.segment).number_bounds() else { return Ok(None) };
        Ok(match (low <= least, high >= greatest) {
            (false, true) => Some(Extreme::Greatest),
            (true, false) => Some(Extreme::Least),
            _ => None,
        })
    }
}
