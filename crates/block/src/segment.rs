//! Reads one segment: finds the rows that pass a predicate, and decodes columns of these rows.
//!
//! `filter` first plans (see `plan`), then runs the plan (see `execution`). The cheapest filters come first. Zone maps
//! rule out rows, or prove that rows pass, without reading values. Binary search and indexes narrow the remaining rows
//! if that costs less than a scan (see `sorted_search` and `index_choice`). Column predicates run on encoded values
//! (see `column_predicate`). The predicate that rules out most rows for its cost runs first (see `order`). Row
//! predicates, which are expressions that this crate cannot analyze, run last, on rows that are not excluded (see
//! `row_predicate`).
//!
//! `project` decodes columns of the rows that were found (see `projection`).

mod aggregate;
mod column_predicate;
mod excluded;
mod execution;
mod index_choice;
mod pieces;
mod plan;
mod planned_predicate;
mod projection;
mod row_predicate;
mod scan_cost;
mod sorted_search;

use std::borrow::Cow;

use hashbrown::HashMap;
use roaring::RoaringBitmap;
use taut_types::Predicate;

use crate::groups::Piece;
use crate::order::PredicateHistory;
use crate::{Block, BlockError, ScanReport, Sections, Selection};
use planned_predicate::PlannedPredicate;

pub use aggregate::NumberSummary;

/// Reader of one segment of a block.
pub struct SegmentReader<'a> {
    block: &'a Block,
    sections: &'a dyn Sections,
    segment: usize,
    rows: usize,
    /// Rows that this reader skips, for example deleted rows. `None` if there are none.
    excluded: Option<Cow<'a, RoaringBitmap>>,
    pieces: HashMap<usize, Piece<'a>>,
    scan_all_rows: bool,
    index_use: IndexUse,
}

/// Whether a reader uses indexes and binary search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IndexUse {
    Never,
    WhereCheaper,
    Always,
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn new(block: &'a Block, sections: &'a dyn Sections, segment: usize) -> Self {
        let rows = block.segment_rows(segment);
        let (pieces, index_use) = (HashMap::new(), IndexUse::WhereCheaper);
        Self { block, sections, segment, rows, excluded: None, pieces, scan_all_rows: false, index_use }
    }

    /// Disables zone maps, indexes and binary search, so that every row is tested. Results stay the same, for
    /// comparison in tests.
    pub fn scan_all_rows(&mut self) {
        (self.scan_all_rows, self.index_use) = (true, IndexUse::Never);
    }

    /// Disables indexes and binary search. Results stay the same, for comparison in tests and measurements.
    pub fn ignore_indexes(&mut self) {
        self.index_use = IndexUse::Never;
    }

    /// Makes this reader use indexes even if a scan is expected to be faster. Results stay the same, for comparison in
    /// tests and measurements.
    pub fn always_use_indexes(&mut self) {
        self.index_use = IndexUse::Always;
    }

    /// Finds the rows that pass a predicate, without excluded rows. Adds counters of the scan to `report`.
    ///
    /// # Errors
    /// If a section cannot be read or parsed. If a row predicate fails on a row that is not excluded and that passes
    /// all column predicates.
    pub fn filter(&mut self, predicate: &Predicate, report: &mut ScanReport) -> Result<Selection, BlockError> {
        self.filter_in_order(predicate, &mut PredicateHistory::default(), report)
    }

    /// Like [`SegmentReader::filter`], but the order of the column predicates adapts to their selectivity in earlier
    /// segments. `history` records that selectivity, and must belong to the same predicate.
    ///
    /// # Errors
    /// If [`SegmentReader::filter`] would fail.
    pub fn filter_in_order(
        &mut self,
        predicate: &Predicate,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        report.segments += 1;
        let plan = self.plan_selection(predicate, history, report);
        let selection = plan.and_then(|plan| self.run_plan(plan, history, report));
        for piece in self.pieces.values_mut() {
            piece.flush_counts(report);
        }
        let selection = selection?;
        report.rows_out += selection.len() as u64;
        Ok(selection)
    }
}
