//! Runs the plan of a selection: one function for each kind of plan.

use taut_encoding::Bitmap;
use taut_index::RowRanges;

use super::index_choice::IndexChoice;
use super::plan::{BitmapFilter, NoRows, SelectionPlan};
use super::{PlannedPredicate, SegmentReader};
use crate::order::PredicateHistory;
use crate::{BlockError, ScanReport, Selection};

/// Maximum number of rows from an index that are put in order by sorting. More rows are put in order by setting bits in
/// a bitmap of the segment.
const SORTED_ROWS_MAX: usize = 200;

impl SegmentReader<'_> {
    /// Runs a plan. Returns the selected rows.
    pub(super) fn run_plan(
        &mut self,
        plan: SelectionPlan<'_>,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        match plan {
            SelectionPlan::Everything => Ok(self.select_everything()),
            SelectionPlan::Nothing(reason) => Ok(select_nothing(reason, report)),
            SelectionPlan::Ranges(ranges) => Ok(self.select_ranges(&ranges)),
            SelectionPlan::Index(index, ranges) => Ok(self.select_by_index(&index, &ranges, report)),
            SelectionPlan::ColumnPredicate(planned) => self.select_by_predicate(&planned, history, report),
            SelectionPlan::Bitmap(filter) => self.select_by_bitmap(filter, history, report),
        }
    }

    /// All rows except excluded ones.
    fn select_everything(&self) -> Selection {
        self.not_excluded().map_or(Selection::All(self.rows), Selection::from_bitmap)
    }

    /// Rows of `ranges` except excluded ones, as positions. The ranges should contain few rows.
    fn select_ranges(&self, ranges: &RowRanges) -> Selection {
        Selection::from_positions(ranges.iter().flatten().filter(|row| !self.is_excluded(*row)).collect())
    }

    /// Rows of `ranges` that an index found, except excluded rows. The index must decide all predicates.
    fn select_by_index(&self, index: &IndexChoice, ranges: &RowRanges, report: &mut ScanReport) -> Selection {
        report.count_index_search();
        if index.matches.rows <= SORTED_ROWS_MAX && Selection::is_stored_as_positions(index.matches.rows, self.rows) {
            let mut rows = Vec::with_capacity(index.matches.rows);
            index.tree.visit_rows(&index.matches, |row| {
                if ranges.contains(row) && !self.is_excluded(row) {
                    rows.push(row);
                }
            });
            rows.sort_unstable();
            // A damaged index may find a row twice.
            rows.dedup();
            return Selection::from_positions(rows);
        }
        let mut selection = self.index_bitmap(index);
        if ranges.rows() < self.rows as u64 {
            selection.intersect(&self.ranges_bitmap(ranges));
        }
        self.deselect_excluded(&mut selection, ranges);
        Selection::from_bitmap(selection)
    }

    /// Rows that pass the only column predicate that remains to be evaluated. It is evaluated on all of its uncertain
    /// rows.
    fn select_by_predicate(
        &mut self,
        planned: &PlannedPredicate<'_>,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        let selection = self.select_on_column(planned, report)?;
        history.record(planned.ordinal, planned.uncertain.rows() as usize, selection.len());
        Ok(selection)
    }

    /// Rows that pass all predicates of a filter. Excluded rows are deselected before row predicates run, and before
    /// column predicates if they are the majority.
    fn select_by_bitmap(
        &mut self,
        filter: BitmapFilter<'_>,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        let BitmapFilter { ranges, excluded, mut column_predicates, row_predicates, index } = filter;
        let mut selection = self.ranges_bitmap(&ranges);
        let exclude_first = excluded > ranges.rows() / 2;
        if exclude_first {
            self.deselect_excluded(&mut selection, &ranges);
        }
        if let Some(index) = &index {
            self.apply_index(index, &mut column_predicates, &mut selection, report);
        }
        // If no row of the ranges has been deselected, the number of selected rows is known without counting bits.
        let is_complete = excluded == 0 && index.is_none();
        let rows = if is_complete { ranges.rows() as usize } else { selection.count() };
        let Some(rows) = self.evaluate_on_columns(&column_predicates, rows, &mut selection, history, report)? else {
            return Ok(Selection::none());
        };
        let has_excluded = excluded > 0 && !exclude_first;
        if !has_excluded && row_predicates.is_empty() {
            return Ok(Selection::from_counted_bitmap(selection, rows));
        }
        if has_excluded {
            self.deselect_excluded(&mut selection, &ranges);
        }
        // Row predicates run in the order in which they were written. A later one may fail with an error on a row that
        // an earlier one rules out.
        for predicate in row_predicates {
            self.evaluate_on_rows(predicate, &ranges, &mut selection, report)?;
        }
        Ok(Selection::from_bitmap(selection))
    }

    /// Deselects the rows that fail any of the column predicates. `rows` is the number of selected rows. Returns the
    /// number of rows that stay selected, or `None` as soon as no row stays selected.
    fn evaluate_on_columns(
        &mut self,
        column_predicates: &[PlannedPredicate<'_>],
        mut rows: usize,
        selection: &mut Bitmap,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Option<usize>, BlockError> {
        for planned in column_predicates.iter().filter(|planned| !planned.is_decided()) {
            let passed = self.evaluate_on_column(planned, rows, selection, report)?;
            history.record(planned.ordinal, rows, passed);
            if passed == 0 {
                return Ok(None);
            }
            rows = passed;
        }
        Ok(Some(rows))
    }

    /// Deselects the rows that an index did not find. Marks the predicates that the index decides.
    fn apply_index(
        &self,
        index: &IndexChoice,
        column_predicates: &mut [PlannedPredicate<'_>],
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) {
        report.count_index_search();
        selection.intersect(&self.index_bitmap(index));
        for (ordinal, planned) in column_predicates.iter_mut().enumerate() {
            if index.decides(ordinal) {
                planned.uncertain = RowRanges::none();
            }
        }
    }

    /// Bitmap of the segment with the rows that an index found.
    fn index_bitmap(&self, index: &IndexChoice) -> Bitmap {
        let mut bitmap = Bitmap::none(self.rows);
        index.tree.visit_rows(&index.matches, |row| bitmap.set(row as usize));
        bitmap
    }

    /// Bitmap of the segment with the rows of some ranges.
    pub(super) fn ranges_bitmap(&self, ranges: &RowRanges) -> Bitmap {
        if ranges.rows() == self.rows as u64 {
            return Bitmap::all_set(self.rows);
        }
        let mut bits = Bitmap::none(self.rows);
        ranges.iter().for_each(|rows| bits.set_range(rows.start as usize..rows.end as usize));
        bits
    }
}

/// Reports why no row is selected.
fn select_nothing(reason: NoRows, report: &mut ScanReport) -> Selection {
    match reason {
        NoRows::Excluded => {}
        NoRows::ZoneMaps => report.count_skip_by_zone_maps(),
        NoRows::Bloom => report.count_skip_by_bloom(),
        NoRows::CsbTree => report.count_skip_by_csb(),
    }
    Selection::none()
}
