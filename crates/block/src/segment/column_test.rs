//! One column test on encoded values: of all numbers, of those that other tests left, or by extremes where these are kept.
//!
//! A test that few rows pass, at one end of all numbers of the segment, reads the extremes of a column
//! (`taut_encoding`, `numbers/extremes.rs`) in place of its numbers. No file has them: they are made when such a test is
//! run on a section that was read before, and kept beside it for as long as whoever holds the sections likes.

use taut_encoding::{Bitmap, Extreme};
use taut_types::Test;

use super::{Planned, SegmentReader};
use crate::section::Beside;
use crate::{AccessPaths, BlockError, ScanReport, Selection};

/// Extremes are made where one row or fewer of so many pass. Of more, a scan takes no longer than they do together with
/// the rows that are then handed out, which a scan has brought near. To make them takes as long as seven scans. Measured, as the
/// next: `cargo run --release -p taut-encoding --example few_rows`.
const FEW: usize = 200;
/// Where one row or fewer of so many are left, each is tested by itself.
const LEFT: usize = 80;

/// What is kept of one end of a column's numbers.
type KeptExtremes = Option<(Extreme, Beside)>;

impl SegmentReader<'_> {
    /// The rows that pass a test, of which those that may are all that are in question. Where extremes tell, no bit is set
    /// for any row.
    pub(super) fn select_by_test(
        &mut self,
        planned: &Planned<'_>,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        let kept = self.kept_extremes(planned)?;
        if let Some(found) = self.find_by_extremes(planned, &kept, report)? {
            return Ok(Selection::of_few(found));
        }
        let (rows, all) = (planned.uncertain.rows() as usize, self.rows);
        let (piece, place) = self.piece(planned.test.column)?;
        if let Some(chunk) = piece.chunk(place).filter(|_| rows == all) {
            let mut selection = Bitmap::none(0);
            chunk.select_passing(planned.test, &mut selection);
            let left = self.scanned(planned, rows, &kept, &selection, report)?;
            return Ok(Selection::of_counted(selection, left));
        }
        let mut selection = self.bits_of(&planned.uncertain);
        let left = self.scan_column(planned, rows, &kept, &mut selection, report)?;
        Ok(Selection::of_counted(selection, left))
    }

    /// Clears selected rows, of which there are `before`, that fail a test, and tells how many are left.
    pub(super) fn test_column(
        &mut self,
        planned: &Planned<'_>,
        before: usize,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        let (test, uncertain) = (planned.test, &planned.uncertain);
        let (piece, place) = self.piece(test.column)?;
        if before * LEFT <= uncertain.rows() as usize
            && let Some(chunk) = piece.chunk(place)
            && chunk.filter_selected(test, before, selection)
        {
            report.saw_column_scan(before as u64);
            return Ok(selection.count());
        }
        let kept = self.kept_extremes(planned)?;
        if let Some(mut found) = self.find_by_extremes(planned, &kept, report)? {
            found.retain(|row| selection.get(*row as usize));
            uncertain.iter().for_each(|rows| selection.clear_range(rows.start as usize..rows.end as usize));
            found.iter().for_each(|row| selection.set(*row as usize));
            return Ok(selection.count());
        }
        self.scan_column(planned, before, &kept, selection, report)
    }

    /// The extremes of a test's column, where it lets one end of the numbers pass.
    fn kept_extremes(&mut self, planned: &Planned<'_>) -> Result<KeptExtremes, BlockError> {
        let (sections, extreme) = (self.sections, self.extreme_of(planned)?);
        let (piece, _) = self.piece(planned.test.column)?;
        let kept = |extreme| Some((extreme, sections.extremes(piece.single_column()?.section, extreme)));
        Ok(extreme.and_then(kept))
    }

    /// The rows that pass a test among those that may, by extremes; `None` where these do not tell.
    fn find_by_extremes(
        &mut self,
        planned: &Planned<'_>,
        kept: &KeptExtremes,
        report: &mut ScanReport,
    ) -> Result<Option<Vec<u32>>, BlockError> {
        let Some((extreme, Beside::Kept(extremes))) = kept else { return Ok(None) };
        let (piece, place) = self.piece(planned.test.column)?;
        let Some(chunk) = piece.chunk(place) else { return Ok(None) };
        let (mut all, mut all_looked_at) = (vec![], 0);
        for rows in planned.uncertain.iter() {
            let rows = rows.start as usize..rows.end as usize;
            let Some((found, looked_at)) = chunk.find_by_extremes(planned.test, (*extreme, extremes), rows) else {
                return Ok(None);
            };
            all_looked_at += looked_at as u64;
            if all.is_empty() { all = found } else { all.extend(found) }
        }
        report.saw_column_scan(all_looked_at);
        report.paths |= AccessPaths::EXTREMES;
        Ok(Some(all))
    }

    /// As [`SegmentReader::test_column`], by a scan; extremes are made for the next one, where it would have gained from them.
    fn scan_column(
        &mut self,
        planned: &Planned<'_>,
        before: usize,
        kept: &KeptExtremes,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        let (piece, place) = self.piece(planned.test.column)?;
        piece.filter(place, planned.test, &planned.uncertain, selection)?;
        self.scanned(planned, before, kept, selection, report)
    }

    /// Notes that a column was scanned, which left these rows of so many, and tells how many they are.
    fn scanned(
        &mut self,
        planned: &Planned<'_>,
        before: usize,
        kept: &KeptExtremes,
        selection: &Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        report.saw_column_scan(planned.uncertain.rows());
        let (sections, rows, left) = (self.sections, self.rows, selection.count());
        let (piece, _) = self.piece(planned.test.column)?;
        if let Some((extreme, Beside::Missed)) = kept
            && planned.uncertain.rows() as usize * 2 > rows
            && left * FEW <= before
            && let Some(column) = piece.single_column()
            && let Some(extremes) = column.chunk.extremes(*extreme)
        {
            sections.keep_extremes(column.section, *extreme, extremes);
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
