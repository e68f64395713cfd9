//! Evaluates one column predicate on encoded values: on all rows, only on the rows that are still selected, or by
//! cached extremes.
//!
//! A row is *uncertain* if zone maps and searches prove neither that it passes nor that it fails.
//!
//! *Extremes* are the greatest, or the least, of each group of neighbouring numbers (`taut_encoding`,
//! `numbers/extremes.rs`). If a range predicate passes few rows, and only the greatest or the least numbers, the scan
//! reads extremes instead of numbers. No file contains extremes. A scan builds them, and the owner of the sections
//! caches them: see [`Sections::extremes`](crate::Sections::extremes).

use taut_encoding::{Bitmap, Extreme};
use taut_types::DatumPredicate;

use super::{PlannedPredicate, SegmentReader};
use crate::groups::field_predicate::deselect_ranges;
use crate::section::DerivedLookup;
use crate::{AccessPaths, BlockError, ScanReport, Selection};

/// Minimum ratio of compared rows to rows that pass, for which extremes are built. If more rows pass, extremes save
/// nothing, because a scan also brings the rows that are read next into the processor cache. Building extremes takes as
/// long as seven scans.
///
/// Measured, like the next constant: `cargo bench -p taut-encoding --bench few_rows`.
const ROWS_PER_MATCH_MIN: usize = 200;
/// Minimum ratio of uncertain rows to selected rows, for which the predicate is evaluated row by row.
const ROWS_PER_SELECTED_MIN: usize = 80;

/// Result of a lookup of the extremes at one end of a column's numbers.
type CachedExtremes = Option<(Extreme, DerivedLookup)>;

impl SegmentReader<'_> {
    /// Rows that pass a column predicate, if it is the only predicate that remains to be evaluated and no row is
    /// excluded. Builds no bitmap if extremes find the rows.
    pub(super) fn select_on_column(
        &mut self,
        planned: &PlannedPredicate<'_>,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        let cached = self.cached_extremes(planned)?;
        if let Some(positions) = self.find_by_extremes(planned, &cached, report)? {
            return Ok(Selection::from_positions(positions));
        }
        let (rows, all) = (planned.uncertain.rows() as usize, self.rows);
        let (piece, ordinal) = self.piece(planned.predicate.column)?;
        if let Some(chunk) = piece.chunk(ordinal).filter(|_| rows == all) {
            let mut selection = Bitmap::none(0);
            chunk.select_passing(planned.predicate, &mut selection);
            let remaining = self.finish_scan(planned, rows, &cached, &selection, report)?;
            return Ok(Selection::from_counted_bitmap(selection, remaining));
        }
        let mut selection = self.ranges_bitmap(&planned.uncertain);
        let remaining = self.scan_column(planned, rows, &cached, &mut selection, report)?;
        Ok(Selection::from_counted_bitmap(selection, remaining))
    }

    /// Deselects the rows that fail a column predicate. `selected` is the number of selected rows. Returns the number
    /// of rows that stay selected.
    pub(super) fn evaluate_on_column(
        &mut self,
        planned: &PlannedPredicate<'_>,
        selected: usize,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        let (predicate, uncertain) = (planned.predicate, &planned.uncertain);
        let (piece, ordinal) = self.piece(predicate.column)?;
        if selected * ROWS_PER_SELECTED_MIN <= uncertain.rows() as usize
            && let Some(chunk) = piece.chunk(ordinal)
            && chunk.filter_selected(predicate, selected, selection)
        {
            report.count_column_scan(selected as u64);
            return Ok(selection.count());
        }
        let cached = self.cached_extremes(planned)?;
        if let Some(mut found) = self.find_by_extremes(planned, &cached, report)? {
            found.retain(|row| selection.get(*row as usize));
            deselect_ranges(uncertain, selection);
            found.iter().for_each(|row| selection.set(*row as usize));
            return Ok(selection.count());
        }
        self.scan_column(planned, selected, &cached, selection, report)
    }

    /// Looks up cached extremes for a predicate. Returns `None` unless the column is stored alone and the predicate
    /// passes only the greatest or only the least numbers of the column.
    fn cached_extremes(&mut self, planned: &PlannedPredicate<'_>) -> Result<CachedExtremes, BlockError> {
        let (sections, extreme) = (self.sections, self.passing_extreme(planned)?);
        let (piece, _) = self.piece(planned.predicate.column)?;
        let cached = |extreme| Some((extreme, sections.extremes(piece.single_column()?.section, extreme)));
        Ok(extreme.and_then(cached))
    }

    /// Uncertain rows that pass a predicate, found by extremes. Returns `None` if no extremes are cached or they cannot
    /// decide the predicate.
    fn find_by_extremes(
        &mut self,
        planned: &PlannedPredicate<'_>,
        cached: &CachedExtremes,
        report: &mut ScanReport,
    ) -> Result<Option<Vec<u32>>, BlockError> {
        let Some((extreme, DerivedLookup::Hit(extremes))) = cached else { return Ok(None) };
        let (piece, ordinal) = self.piece(planned.predicate.column)?;
        let Some(chunk) = piece.chunk(ordinal) else { return Ok(None) };
        let (mut positions, mut compared) = (vec![], 0);
        for rows in planned.uncertain.iter() {
            let rows = rows.start as usize..rows.end as usize;
            let Some((found, rows_compared)) = chunk.find_by_extremes(planned.predicate, (*extreme, extremes), rows)
            else {
                return Ok(None);
            };
            compared += rows_compared as u64;
            if positions.is_empty() { positions = found } else { positions.extend(found) }
        }
        report.count_column_scan(compared);
        report.paths |= AccessPaths::EXTREMES;
        Ok(Some(positions))
    }

    /// Like [`SegmentReader::evaluate_on_column`], but always scans all uncertain rows. Builds extremes if they would
    /// have made this scan faster.
    fn scan_column(
        &mut self,
        planned: &PlannedPredicate<'_>,
        selected: usize,
        cached: &CachedExtremes,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        let (piece, ordinal) = self.piece(planned.predicate.column)?;
        piece.filter(ordinal, planned.predicate, &planned.uncertain, selection)?;
        self.finish_scan(planned, selected, cached, selection, report)
    }

    /// Reports a scan of a column that reduced `selected` rows to `selection`, and builds extremes if few rows passed.
    /// Returns the number of selected rows.
    fn finish_scan(
        &mut self,
        planned: &PlannedPredicate<'_>,
        selected: usize,
        cached: &CachedExtremes,
        selection: &Bitmap,
        report: &mut ScanReport,
    ) -> Result<usize, BlockError> {
        report.count_column_scan(planned.uncertain.rows());
        let (sections, rows, remaining) = (self.sections, self.rows, selection.count());
        let (piece, _) = self.piece(planned.predicate.column)?;
        if let Some((extreme, DerivedLookup::Miss)) = cached
            && planned.uncertain.rows() as usize * 2 > rows
            && remaining * ROWS_PER_MATCH_MIN <= selected
            && let Some(column) = piece.single_column()
            && let Some(extremes) = column.chunk.extremes(*extreme)
        {
            sections.cache_extremes(column.section, *extreme, extremes);
        }
        Ok(remaining)
    }

    /// The extreme that a range predicate passes: [`Extreme::Greatest`] if it passes only the greatest numbers of the
    /// segment, [`Extreme::Least`] if only the least. Returns `None` for other predicates.
    fn passing_extreme(&self, planned: &PlannedPredicate<'_>) -> Result<Option<Extreme>, BlockError> {
        let DatumPredicate::Range { low, high } = planned.predicate.condition else { return Ok(None) };
        if self.scan_all_rows || planned.predicate.negated {
            return Ok(None);
        }
        let summary = self.block.summary(self.sections, planned.predicate.column)?;
        let Some((least, greatest)) = summary.zones(self.segment).number_bounds() else { return Ok(None) };
        Ok(match (low <= least, high >= greatest) {
            (false, true) => Some(Extreme::Greatest),
            (true, false) => Some(Extreme::Least),
            _ => None,
        })
    }
}
