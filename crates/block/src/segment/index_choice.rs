//! Use of the indexes of a segment: Bloom filters that rule out the segment, and the choice of a CSB+-tree index that
//! finds rows (Chasseur and Patel, 2013, sections 4.4 and 4.6).
//!
//! The rows that an index finds are intersected with the rows that remain after zone maps and binary search.
//!
//! A search in an index returns the number of matching rows before any row is read. The index is used if that number is
//! zero, or if reading the matching rows costs less than testing all remaining rows. The index is not searched at all
//! if the search alone costs more.
//!
//! The cost constants below are for segments in memory that are not in the cache of the processor. They were measured
//! with `cargo bench -p taut-block --bench paths`.

use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, GroupKind, IndexKind};

use super::scan_cost::row_test_cost;
use super::{IndexUse, PlannedPredicate, SegmentReader};
use crate::BlockError;
use crate::indexes::{INTERVALS_MAX, IndexMatches, ProbePredicate, TreeIndex, bloom_rules_out, codes_that_pass};

/// Nanoseconds of a search in an index, including the lookup of its section.
const SEARCH_COST: f64 = 3000.0;
/// Nanoseconds per key or range of keys that a search looks up.
const INTERVAL_COST: f64 = 110.0;
/// Nanoseconds per row that an index finds.
const FOUND_ROW_COST: f64 = 0.8;
/// Expected share of passing rows above which an index is not searched. Reading this share of the rows through an index
/// costs about as much as testing all rows, in any layout.
const SHARE_MAX: f64 = 0.6;

/// An index and the result of its search.
pub(super) struct IndexChoice {
    pub tree: TreeIndex,
    pub matches: IndexMatches,
    /// Ordinal, in the planned predicates, of the predicate on the first column of the index.
    first: usize,
    /// Ordinal, in the planned predicates, of the predicate on the second column. Unused if the search did not use this
    /// predicate.
    second: Option<usize>,
}

impl IndexChoice {
    /// Whether every row that the index found passes the predicate with the ordinal `predicate` in the planned
    /// predicates.
    pub fn decides(&self, predicate: usize) -> bool {
        (predicate == self.first && self.matches.first_is_exact)
            || (Some(predicate) == self.second && self.matches.second_is_exact == Some(true))
    }
}

/// An index to search, and the ordinals of the planned predicates to search for.
struct IndexCandidate {
    index: usize,
    /// Number of columns of the index.
    columns: usize,
    first: usize,
    second: Option<usize>,
}

impl SegmentReader<'_> {
    /// Whether a Bloom filter proves that no row of this segment passes one of the column predicates.
    pub(super) fn bloom_rules_out(&self, planned: &[PlannedPredicate<'_>]) -> Result<bool, BlockError> {
        let header = &self.block.header;
        for index in 0..header.indexes() {
            let Some((IndexKind::Bloom, columns)) = self.block.index(index) else { continue };
            for planned in planned.iter().filter(|planned| columns.contains(&planned.predicate.column)) {
                if planned.predicate.negated || planned.is_decided() {
                    continue;
                }
                let section = header.index_section(self.segment, index);
                let bytes = self.sections.section(section)?;
                let ruled_out = bloom_rules_out(&bytes, &planned.predicate.condition)
                    .map_err(|corrupt| crate::error::Corrupt::from(corrupt).in_section(section))?;
                if ruled_out {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Chooses the CSB+-tree index with the lowest cost. Returns `None` if testing the rows costs less than each index.
    pub(super) fn choose_index(&mut self, planned: &[PlannedPredicate<'_>]) -> Result<Option<IndexChoice>, BlockError> {
        let mut best: Option<(f64, IndexChoice)> = None;
        for index in 0..self.block.header.indexes() {
            let Some(candidate) = self.index_candidate(index, planned) else { continue };
            let Some((cost, choice)) = self.search_candidate(&candidate, planned)? else { continue };
            if choice.matches.rows == 0 {
                // No row passes, so the cost does not matter.
                return Ok(Some(choice));
            }
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, choice));
            }
        }
        Ok(best.map(|(_, choice)| choice))
    }

    /// The search of an index for one or two of the planned predicates. Returns `None` if no planned predicate on the
    /// first column can be looked up. Also if more than [`SHARE_MAX`] of the rows are expected to pass this predicate,
    /// unless the use of indexes is forced.
    fn index_candidate(&self, index: usize, planned: &[PlannedPredicate<'_>]) -> Option<IndexCandidate> {
        let (kind, columns) = self.block.index(index)?;
        let predicate_on = |column: ColumnIndex| {
            planned.iter().position(|planned| planned.predicate.column == column && planned.can_be_looked_up())
        };
        let first = predicate_on(columns[0]).filter(|_| kind == IndexKind::CsbTree)?;
        let is_worthwhile = planned[first].share <= SHARE_MAX || self.index_use == IndexUse::Always;
        let second = columns.get(1).and_then(|column| predicate_on(*column));
        is_worthwhile.then_some(IndexCandidate { index, columns: columns.len(), first, second })
    }

    /// Searches an index. Returns the estimated cost and the result of the search, or `None` if testing all rows costs
    /// less.
    fn search_candidate(
        &mut self,
        candidate: &IndexCandidate,
        planned: &[PlannedPredicate<'_>],
    ) -> Result<Option<(f64, IndexChoice)>, BlockError> {
        let IndexCandidate { index, columns, first, second } = *candidate;
        let section = self.block.header.index_section(self.segment, index);
        let tree = TreeIndex::parse(&self.sections.section(section)?, self.rows, columns)
            .map_err(|corrupt| corrupt.in_section(section))?;
        let rows_left = |ordinal: usize| planned[ordinal].uncertain.rows() as f64;
        let searched = std::iter::once((0, first)).chain(second.map(|second| (1, second)));
        let scan_cost_max: f64 = searched
            .clone()
            .map(|(column, ordinal)| {
                let row_cost = self.predicate_cost_max(planned[ordinal].predicate, tree.has_code_keys(column));
                rows_left(ordinal) * row_cost
            })
            .sum();
        let is_forced = self.index_use == IndexUse::Always;
        let keys_max = match is_forced {
            true => INTERVALS_MAX,
            // A negative number becomes zero in the conversion.
            false => INTERVALS_MAX.min(((scan_cost_max - SEARCH_COST) / INTERVAL_COST) as usize),
        };
        let second_predicate = second.map(|second| planned[second].predicate);
        let Some(matches) = self.search_index(&tree, planned[first].predicate, second_predicate, keys_max)? else {
            return Ok(None);
        };
        if matches.rows == 0 {
            return Ok(Some((0.0, IndexChoice { tree, matches, first, second })));
        }
        let mut row_costs = [0.0; 2];
        for (column, ordinal) in searched {
            row_costs[column] = self.predicate_cost(planned[ordinal].predicate, tree.has_code_keys(column))?;
        }
        let index_cost = search_cost(&matches, row_costs);
        let mut scan_cost = rows_left(first) * row_costs[0];
        if matches.second_is_exact.is_some() {
            scan_cost += second.map_or(0.0, |second| rows_left(second) * row_costs[1]);
        }
        let is_chosen = index_cost < scan_cost || is_forced;
        Ok(is_chosen.then_some((index_cost, IndexChoice { tree, matches, first, second })))
    }

    fn search_index(
        &mut self,
        tree: &TreeIndex,
        first: &ColumnPredicate,
        second: Option<&ColumnPredicate>,
        keys_max: usize,
    ) -> Result<Option<IndexMatches>, BlockError> {
        let mut codes = |column: usize, predicate: &ColumnPredicate| match tree.has_code_keys(column)
            && predicate.condition != DatumPredicate::Null
        {
            true => self
                .piece(predicate.column)
                .map(|(piece, ordinal)| codes_that_pass(piece, ordinal, &predicate.condition)),
            false => Ok(None),
        };
        let first_codes = codes(0, first)?;
        let second_codes = second.map(|second| codes(1, second)).transpose()?.flatten();
        let first = ProbePredicate { predicate: &first.condition, codes: first_codes.as_deref() };
        let second =
            second.map(|second| ProbePredicate { predicate: &second.condition, codes: second_codes.as_deref() });
        Ok(tree.search(first, second, keys_max))
    }

    /// Estimated nanoseconds to test one row.
    fn predicate_cost(&mut self, predicate: &ColumnPredicate, has_codes: bool) -> Result<f64, BlockError> {
        let mut kind = self.group_kind(predicate);
        if kind != GroupKind::Column {
            // A sort column of a row layout may be an abstraction level: a chunk of its own in the head of the piece
            // (see `groups/levels.rs`). It is tested like a column that is stored alone.
            let (piece, ordinal) = self.piece(predicate.column)?;
            kind = if piece.chunk(ordinal).is_some() { GroupKind::Column } else { kind };
        }
        Ok(row_test_cost(kind, &predicate.condition, has_codes))
    }

    /// Upper bound of the nanoseconds to test one row. Reads no section, because the bound holds whether or not the
    /// column is an abstraction level.
    fn predicate_cost_max(&self, predicate: &ColumnPredicate, has_codes: bool) -> f64 {
        let cost = |kind| row_test_cost(kind, &predicate.condition, has_codes);
        cost(self.group_kind(predicate)).max(cost(GroupKind::Column))
    }

    fn group_kind(&self, predicate: &ColumnPredicate) -> GroupKind {
        self.block.group_kind(self.block.group_and_ordinal(predicate.column).0)
    }
}

/// Estimated nanoseconds of a search in an index, and of testing the rows found if the search is not exact.
/// `row_costs` are the nanoseconds to test one row, for the predicates on the first and the second column.
fn search_cost(matches: &IndexMatches, row_costs: [f64; 2]) -> f64 {
    let rows = matches.rows as f64;
    let test_cost = |is_exact: bool, row_cost: f64| if is_exact { 0.0 } else { rows * row_cost };
    SEARCH_COST
        + INTERVAL_COST * matches.intervals() as f64
        + FOUND_ROW_COST * rows
        + test_cost(matches.first_is_exact, row_costs[0])
        + matches.second_is_exact.map_or(0.0, |is_exact| test_cost(is_exact, row_costs[1]))
}
