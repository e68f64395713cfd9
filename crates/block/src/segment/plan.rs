//! Plans how a reader finds the rows of its segment that pass a predicate.
//!
//! Planning reads zone maps, Bloom filters and indexes, and searches in sorted zones. Execution of the plan evaluates
//! predicates on values outside of sorted zones (see `execution`). No plan selects *excluded* rows, for example deleted
//! rows (see `excluded`).

use std::sync::Arc;

use taut_index::RowRanges;
use taut_types::{Predicate, RowPredicate};

use super::index_choice::IndexChoice;
use super::{IndexUse, PlannedPredicate, SegmentReader};
use crate::order::PredicateHistory;
use crate::{BlockError, ScanReport, Selection};

/// Plan for finding the rows that pass a predicate. Planning prefers earlier variants to later ones.
pub(super) enum SelectionPlan<'t> {
    /// Select every row that is not excluded. The predicate is always true.
    Everything,
    /// Select no row.
    Nothing(NoRows),
    /// Select the rows of some ranges, except excluded rows. Zone maps and binary search have decided all predicates.
    /// The ranges contain few rows.
    Ranges(RowRanges),
    /// Select the rows that an index has found and that are in the ranges, except excluded rows. The index decides all
    /// predicates that zone maps and binary search have not decided.
    Index(IndexChoice, RowRanges),
    /// Evaluate one column predicate on all rows that zone maps and binary search have not decided. None of these rows
    /// is excluded.
    ColumnPredicate(PlannedPredicate<'t>),
    /// Evaluate predicates one after the other on a bitmap of the segment.
    Bitmap(BitmapFilter<'t>),
}

/// Why no row of a segment is selected.
#[derive(Clone, Copy)]
pub(super) enum NoRows {
    /// All rows that could pass are excluded.
    Excluded,
    /// Zone maps rule out all rows.
    ZoneMaps,
    /// A Bloom filter rules out all rows.
    Bloom,
    /// A CSB+-tree index has no row that passes.
    CsbTree,
}

/// Predicates to evaluate on the rows that remain after zone maps, binary search and indexes.
pub(super) struct BitmapFilter<'t> {
    /// Rows that may pass.
    pub ranges: RowRanges,
    /// Number of excluded rows in the ranges.
    pub excluded: u64,
    /// Column predicates in the order in which they run.
    pub column_predicates: Vec<PlannedPredicate<'t>>,
    /// Row predicates in the order in which they were written.
    pub row_predicates: Vec<&'t Arc<dyn RowPredicate>>,
    /// Result of a search in an index. The rows that it did not find are deselected before predicates run.
    pub index: Option<IndexChoice>,
}

impl<'t> BitmapFilter<'t> {
    /// The simplest plan that selects the same rows.
    fn simplified(mut self) -> SelectionPlan<'t> {
        match self.index {
            Some(index) if index.matches.rows == 0 => SelectionPlan::Nothing(NoRows::CsbTree),
            Some(index) if self.row_predicates.is_empty() && decides_all(&index, &self.column_predicates) => {
                SelectionPlan::Index(index, self.ranges)
            }
            None if self.excluded == 0 && self.row_predicates.is_empty() => match self.take_only_predicate() {
                Some(predicate) => SelectionPlan::ColumnPredicate(predicate),
                None => SelectionPlan::Bitmap(self),
            },
            _ => SelectionPlan::Bitmap(self),
        }
    }

    /// Removes the only column predicate that is not decided, if it must be evaluated on all rows of the ranges.
    /// Returns `None`, and removes nothing, if there is no such predicate.
    fn take_only_predicate(&mut self) -> Option<PlannedPredicate<'t>> {
        let is_undecided = |planned: &PlannedPredicate<'_>| !planned.is_decided();
        let first = self.column_predicates.iter().position(is_undecided)?;
        let is_only = !self.column_predicates[first + 1..].iter().any(is_undecided);
        let is_on_all_rows = self.column_predicates[first].uncertain.rows() == self.ranges.rows();
        (is_only && is_on_all_rows).then(|| self.column_predicates.swap_remove(first))
    }
}

/// Whether every row that an index found passes all column predicates.
fn decides_all(index: &IndexChoice, column_predicates: &[PlannedPredicate<'_>]) -> bool {
    let mut numbered = column_predicates.iter().enumerate();
    numbered.all(|(ordinal, planned)| planned.is_decided() || index.decides(ordinal))
}

impl SegmentReader<'_> {
    /// Plans how to find the rows that pass a predicate, and reports what zone maps, Bloom filters and binary search
    /// have decided.
    pub(super) fn plan_selection<'t>(
        &mut self,
        predicate: &'t Predicate,
        history: &PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<SelectionPlan<'t>, BlockError> {
        if predicate.is_always_true() {
            return Ok(SelectionPlan::Everything);
        }
        if self.excludes_all() {
            return Ok(SelectionPlan::Nothing(NoRows::Excluded));
        }
        // A segment has at most 65,536 rows.
        let mut ranges = RowRanges::full(self.rows as u32);
        let (column_predicates, row_predicates) = self.segment_predicates(predicate)?;
        let mut column_predicates = self.plan_predicates(&column_predicates, history, &mut ranges, report)?;
        if ranges.is_empty() {
            return Ok(SelectionPlan::Nothing(NoRows::ZoneMaps));
        }
        report.count_decided_by_zone_maps(column_predicates.iter().filter(|planned| planned.is_decided()).count());
        if self.index_use != IndexUse::Never {
            if self.bloom_rules_out(&column_predicates)? {
                return Ok(SelectionPlan::Nothing(NoRows::Bloom));
            }
            self.search_sorted(&mut column_predicates, &mut ranges, report)?;
        }
        for planned in &mut column_predicates {
            planned.uncertain = ranges.without(&planned.certain);
        }
        let excluded = self.excluded_count(&ranges);
        if excluded == ranges.rows() {
            return Ok(SelectionPlan::Nothing(NoRows::Excluded));
        }
        report.rows_in += ranges.rows() - excluded;
        let are_decided = row_predicates.is_empty() && column_predicates.iter().all(PlannedPredicate::is_decided);
        if are_decided && Selection::is_stored_as_positions(ranges.rows() as usize, self.rows) {
            return Ok(SelectionPlan::Ranges(ranges));
        }
        let index = if self.index_use == IndexUse::Never { None } else { self.choose_index(&column_predicates)? };
        Ok(BitmapFilter { ranges, excluded, column_predicates, row_predicates, index }.simplified())
    }
}
