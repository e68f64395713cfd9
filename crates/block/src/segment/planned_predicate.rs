//! Column predicates of a scan in one segment: what zone maps prove about them, and the order in which they run.

use std::sync::Arc;

use taut_index::RowRanges;
use taut_types::{ColumnIndex, ColumnPredicate, NonNullPredicate, Predicate, RowPredicate};

use super::SegmentReader;
use crate::order::{PredicateHistory, expected_share, rank};
use crate::statistics::ColumnSummary;
use crate::{BlockError, ScanReport};

/// Column predicates with their ordinals in the [`PredicateHistory`] of a scan, and row predicates.
type SegmentPredicates<'t> = (Vec<(usize, &'t ColumnPredicate)>, Vec<&'t Arc<dyn RowPredicate>>);

/// A column predicate, and what zone maps and searches prove about its rows.
pub(super) struct PlannedPredicate<'t> {
    pub predicate: &'t ColumnPredicate,
    /// Ordinal in the [`PredicateHistory`] of the scan.
    pub ordinal: usize,
    /// Rows that are proved to pass.
    pub certain: RowRanges,
    /// Remaining rows that may pass or fail.
    pub uncertain: RowRanges,
    /// Estimated share of rows that pass, from the bounds of zones.
    pub share: f64,
    rank: f64,
}

impl PlannedPredicate<'_> {
    /// Whether the predicate is decided for all rows, so that no value needs to be read.
    pub fn is_decided(&self) -> bool {
        self.uncertain.is_empty()
    }

    /// Whether an index can be searched for the predicate. An index finds given values, so it cannot find the rows of a
    /// negated predicate.
    pub fn can_be_looked_up(&self) -> bool {
        !self.predicate.negated && !self.is_decided()
    }
}

impl SegmentReader<'_> {
    /// Predicates to run on this segment: column predicates with their ordinals in the history, and row predicates. If
    /// a column has no nulls in this segment, a row predicate on it may imply or equal a column predicate
    /// ([`NonNullPredicate`]). The column predicate is then added, with an ordinal after the scan's other column
    /// predicates. If both predicates are equal on this segment, the row predicate is omitted.
    pub(super) fn segment_predicates<'t>(&self, predicate: &'t Predicate) -> Result<SegmentPredicates<'t>, BlockError> {
        let Predicate { column_predicates, row_predicates } = predicate;
        let mut segment_predicates: SegmentPredicates<'t> =
            (column_predicates.iter().enumerate().collect(), Vec::new());
        for (ordinal, row_predicate) in row_predicates.iter().enumerate() {
            let mut is_decided = false;
            if !self.scan_all_rows
                && let Some(NonNullPredicate { predicate: conjunct, is_exact }) = row_predicate.non_null_predicate()
                && self.block.summary(self.sections, conjunct.column)?.segment(self.segment).nulls == 0
            {
                segment_predicates.0.push((column_predicates.len() + ordinal, conjunct));
                is_decided = *is_exact;
            }
            if !is_decided {
                segment_predicates.1.push(row_predicate);
            }
        }
        Ok(segment_predicates)
    }

    /// Evaluates column predicates on zone maps, and sorts them into the order in which they run. Removes from `ranges`
    /// the rows that zone maps rule out.
    pub(super) fn plan_predicates<'t>(
        &self,
        predicates: &[(usize, &'t ColumnPredicate)],
        history: &PredicateHistory,
        ranges: &mut RowRanges,
        report: &mut ScanReport,
    ) -> Result<Vec<PlannedPredicate<'t>>, BlockError> {
        if self.scan_all_rows {
            let planned = |(ordinal, predicate): &(usize, &'t ColumnPredicate)| PlannedPredicate {
                predicate,
                ordinal: *ordinal,
                certain: RowRanges::none(),
                uncertain: ranges.clone(),
                share: 0.0,
                rank: 0.0,
            };
            return Ok(predicates.iter().map(planned).collect());
        }
        let summaries: Vec<Arc<ColumnSummary>> = predicates
            .iter()
            .map(|(_, predicate)| self.block.summary(self.sections, predicate.column))
            .collect::<Result<_, _>>()?;
        for ((_, predicate), summary) in predicates.iter().zip(&summaries) {
            let zones = summary.zones(self.segment);
            report.zones += zones.zones().len() as u64;
            report.zones_skipped += zones.prune(predicate, ranges) as u64;
        }
        if ranges.is_empty() {
            return Ok(vec![]);
        }
        // Shares are needed only to order several predicates, or to choose between an index and a scan.
        let is_ranked = predicates.len() > 1 || self.block.header.indexes() > 0;
        let mut planned: Vec<_> = predicates
            .iter()
            .zip(&summaries)
            .map(|(&(ordinal, predicate), summary)| {
                let zones = summary.zones(self.segment);
                let certain = zones.rows_certain_to_pass(predicate);
                let share = if is_ranked { expected_share(predicate, zones) } else { 1.0 };
                // The observed share is of the rows that remain after other access paths. An index needs the share of
                // all rows.
                let remaining_share = history.observed_share(ordinal).unwrap_or(share);
                let rank =
                    if is_ranked { rank(predicate, remaining_share, self.row_bytes(predicate.column)) } else { 0.0 };
                PlannedPredicate { predicate, ordinal, uncertain: ranges.without(&certain), certain, share, rank }
            })
            .collect();
        planned.sort_by(|left, right| left.rank.total_cmp(&right.rank));
        Ok(planned)
    }

    /// Bytes that a scan of a column reads per row, including columns that are stored together with it.
    fn row_bytes(&self, column: ColumnIndex) -> f64 {
        let header = &self.block.header;
        let (group, _) = self.block.group_and_ordinal(column);
        if self.block.added_column(group).is_some() {
            return 0.0;
        }
        // A piece (one column group of one segment) has one or more sections, which are consecutive.
        let sections = header.piece_sections(self.segment, group);
        let (first, last) = (header.section(sections.start as usize), header.section(sections.end as usize - 1));
        (last.offset + last.length - first.offset) as f64 / self.rows as f64
    }
}
