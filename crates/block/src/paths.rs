//! Access paths other than a scan (Chasseur and Patel, 2013, sections 4.4 and 4.6). Bloom filters rule out segments,
//! binary search finds rows in sorted zones, and CSB+-tree indexes find rows.
//!
//! The paths combine: the rows that an index finds are intersected with those that zone maps and binary search have
//! left.
//!
//! A search in an index returns the number of matching rows before any row is read. The index is used if that number is
//! zero, or if reading the matching rows costs less than testing all remaining rows. The index is not searched at all
//! if the search alone costs more.
//!
//! The cost constants below are for segments in memory that are not in the cache of the processor. They were measured
//! with `cargo run --release -p taut-block --example paths`.

use taut_index::{RowRanges, Zone};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, GroupKind, IndexKind};

use crate::indexes::{Asked, Found, INTERVALS_MAX, TreeIndex, bloom_rules_out, codes_that_pass};
use crate::segment::{IndexUse, PlannedPredicate, SegmentReader};
use crate::{AccessPaths, BlockError, ScanReport};

/// Nanoseconds of a search in an index, including the lookup of its section.
const SEARCH_COST: f64 = 3000.0;
/// Nanoseconds per key or range of keys that a search looks up.
const INTERVAL_COST: f64 = 110.0;
/// Nanoseconds per row that an index finds.
const FOUND_ROW_COST: f64 = 0.8;
/// Expected share of passing rows above which an index is not searched. Reading so large a share through an index costs
/// about as much as testing all rows, in any layout.
const SHARE_MAX: f64 = 0.6;

/// Length of a list up to which columns are assumed to compare with its numbers one by one.
const COMPARED_MAX: usize = 6;
/// Difference between the greatest and the least number of a list below which columns are assumed to use a lookup
/// table.
const NEIGHBOURS_SPAN: u128 = 1 << 16;

/// Estimated nanoseconds to test one row. If `has_codes`, text is compared by its dictionary codes.
fn cost_in(kind: GroupKind, predicate: &DatumPredicate, has_codes: bool) -> f64 {
    let is_text = matches!(predicate, DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_)) && !has_codes;
    value_cost(kind, is_text) + list_cost(kind, predicate)
}

/// Estimated nanoseconds to test one value: a number or a code, or text if `is_text`.
fn value_cost(kind: GroupKind, is_text: bool) -> f64 {
    match (kind, is_text) {
        (GroupKind::Column, false) => 0.2,
        (GroupKind::Column, true) => 20.0,
        (GroupKind::PackedRows, false) => 3.3,
        (GroupKind::PackedRows, true) => 25.0,
        (GroupKind::SlottedRows, false) => 7.0,
        (GroupKind::SlottedRows, true) => 10.0,
    }
}

/// Estimated extra nanoseconds per row if the predicate is a list of numbers. Columns compare with the numbers of a
/// short list one by one, use a lookup table if the numbers are close, and hash other lists. Row layouts hash every
/// list.
fn list_cost(kind: GroupKind, predicate: &DatumPredicate) -> f64 {
    let DatumPredicate::OneOf(numbers) = predicate else { return 0.0 };
    let span = numbers.last().zip(numbers.first()).map_or(0, |(last, first)| last.abs_diff(*first));
    match kind {
        GroupKind::PackedRows | GroupKind::SlottedRows => 2.5,
        GroupKind::Column if numbers.len() <= COMPARED_MAX => 0.02 * numbers.len() as f64,
        GroupKind::Column if span < NEIGHBOURS_SPAN => 0.5,
        GroupKind::Column => 1.5,
    }
}

impl SegmentReader<'_> {
    /// Whether a Bloom filter proves that no row of this segment passes one of the column predicates.
    pub(crate) fn bloom_rules_out(&self, planned: &[PlannedPredicate<'_>]) -> Result<bool, BlockError> {
        let header = &self.block.header;
        for index in (0..header.indexes()).filter(|index| header.index(*index).0 == IndexKind::Bloom) {
            let columns = header.index(index).1;
            for planned in planned.iter().filter(|planned| columns.contains(&planned.predicate.column)) {
                if planned.predicate.negated || planned.is_answered() {
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

    /// Narrows `ranges` by binary search in the zones in which the column of a predicate ascends. The search decides
    /// the predicate for all rows of these zones.
    pub(crate) fn search_sorted(
        &mut self,
        planned: &mut [PlannedPredicate<'_>],
        ranges: &mut RowRanges,
        report: &mut ScanReport,
    ) -> Result<(), BlockError> {
        for planned in planned {
            let predicate = planned.predicate;
            let is_searchable = !predicate.negated && predicate.condition != DatumPredicate::Null;
            if !is_searchable || planned.is_answered() {
                continue;
            }
            let summary = self.block.summary(self.sections, predicate.column)?;
            let Some(hull) = ranges.hull() else { return Ok(()) };
            let zones = summary.zones(self.segment).zones_of(&hull);
            if zones.1.iter().any(|zone| zone.is_ascending) && self.search_zones(planned, zones, ranges)? {
                report.sorted_searches += 1;
                report.paths |= AccessPaths::SORTED_SEARCH;
            }
        }
        Ok(())
    }

    /// Searches the ascending zones of a column that have undecided rows. Returns whether any zone was searched.
    /// `zones` are all zones from the first to the last row of `ranges`, and `start` is the first row of the first
    /// zone.
    fn search_zones(
        &mut self,
        planned: &mut PlannedPredicate<'_>,
        (mut start, zones): (u32, &[Zone]),
        ranges: &mut RowRanges,
    ) -> Result<bool, BlockError> {
        let predicate = planned.predicate;
        let uncertain = ranges.without(&planned.certain);
        let (mut kept, mut certain, mut searched) = (RowRanges::none(), RowRanges::none(), false);
        for zone in zones {
            let rows = start..zone.rows_end;
            start = rows.end;
            let found = if zone.is_ascending && uncertain.overlaps(&rows) {
                let (piece, place) = self.piece(predicate.column)?;
                piece.search(place, &predicate.condition, rows.start as usize..rows.end as usize)?
            } else {
                None
            };
            match found {
                Some(found) => {
                    searched = true;
                    for part in found {
                        // Rows of a zone fit 32 bits.
                        kept.push(part.start as u32..part.end as u32);
                        certain.push(part.start as u32..part.end as u32);
                    }
                }
                None => {
                    planned.certain.within(rows.clone()).for_each(|part| certain.push(part));
                    kept.push(rows);
                }
            }
        }
        if searched {
            ranges.intersect(&kept);
            planned.certain = certain;
            planned.uncertain = ranges.without(&planned.certain);
        }
        Ok(searched)
    }

    /// Chooses the CSB+-tree index with the lowest cost. Returns `None` if testing the rows costs less than each index.
    pub(crate) fn choose_index(&mut self, planned: &[PlannedPredicate<'_>]) -> Result<Option<Choice>, BlockError> {
        let mut best: Option<(f64, Choice)> = None;
        for index in 0..self.block.header.indexes() {
            let (kind, columns) = self.block.header.index(index);
            let on = |column: ColumnIndex| {
                planned.iter().position(|planned| planned.predicate.column == column && planned.can_be_looked_up())
            };
            let Some(first) = on(columns[0]).filter(|_| kind == IndexKind::CsbTree) else { continue };
            let is_forced = self.index_use == IndexUse::Always;
            if planned[first].share > SHARE_MAX && !is_forced {
                continue;
            }
            let second = columns.get(1).and_then(|column| on(*column));
            let section = self.block.header.index_section(self.segment, index);
            let tree = TreeIndex::parse(&self.sections.section(section)?, self.rows, columns.len())
                .map_err(|corrupt| corrupt.in_section(section))?;
            let left = |at: usize| planned[at].uncertain.rows() as f64;
            let asked = std::iter::once((0, first)).chain(second.map(|at| (1, at)));
            let cost_at_most: f64 = asked
                .clone()
                .map(|(place, at)| {
                    left(at) * self.predicate_cost_at_most(planned[at].predicate, tree.takes_codes(place))
                })
                .sum();
            let keys_max = match is_forced {
                true => INTERVALS_MAX,
                // A negative number becomes zero in the conversion.
                false => INTERVALS_MAX.min(((cost_at_most - SEARCH_COST) / INTERVAL_COST) as usize),
            };
            let second_predicate = second.map(|at| planned[at].predicate);
            let Some(found) = self.search_index(&tree, planned[first].predicate, second_predicate, keys_max)? else {
                continue;
            };
            if found.rows == 0 {
                // No row passes, so the cost does not matter.
                return Ok(Some(Choice { tree, found, first, second }));
            }
            let mut costs = [0.0; 2];
            for (place, at) in asked {
                costs[place] = self.predicate_cost(planned[at].predicate, tree.takes_codes(place))?;
            }
            let first_cost = left(first) * costs[0];
            let second_cost = second.map_or(0.0, |at| left(at) * costs[1]);
            let found_rows = found.rows as f64;
            // If the search is not exact, the rows that it finds must be tested.
            let tested = |is_exact: bool, cost: f64| if is_exact { 0.0 } else { found_rows * cost };
            let mut index_cost = SEARCH_COST + INTERVAL_COST * found.intervals() as f64 + FOUND_ROW_COST * found_rows;
            index_cost += tested(found.first_is_exact, costs[0]);
            let mut scan_cost = first_cost;
            if let Some(is_exact) = found.second_is_exact {
                index_cost += tested(is_exact, costs[1]);
                scan_cost += second_cost;
            }
            if (index_cost < scan_cost || is_forced) && best.as_ref().is_none_or(|(cost, _)| index_cost < *cost) {
                best = Some((index_cost, Choice { tree, found, first, second }));
            }
        }
        Ok(best.map(|(_, choice)| choice))
    }

    fn search_index(
        &mut self,
        tree: &TreeIndex,
        first: &ColumnPredicate,
        second: Option<&ColumnPredicate>,
        keys_max: usize,
    ) -> Result<Option<Found>, BlockError> {
        let mut codes = |place: usize, predicate: &ColumnPredicate| match tree.takes_codes(place)
            && predicate.condition != DatumPredicate::Null
        {
            true => self.piece(predicate.column).map(|(piece, at)| codes_that_pass(piece, at, &predicate.condition)),
            false => Ok(None),
        };
        let first_codes = codes(0, first)?;
        let second_codes = second.map(|second| codes(1, second)).transpose()?.flatten();
        let first = Asked { predicate: &first.condition, codes: first_codes.as_deref() };
        let second = second.map(|second| Asked { predicate: &second.condition, codes: second_codes.as_deref() });
        Ok(tree.search(first, second, keys_max))
    }

    /// Estimated nanoseconds to test one row.
    fn predicate_cost(&mut self, predicate: &ColumnPredicate, has_codes: bool) -> Result<f64, BlockError> {
        let mut kind = self.kind(predicate);
        if kind != GroupKind::Column {
            // An abstraction level of a row layout is tested like a column.
            let (piece, place) = self.piece(predicate.column)?;
            kind = if piece.chunk(place).is_some() { GroupKind::Column } else { kind };
        }
        Ok(cost_in(kind, &predicate.condition, has_codes))
    }

    /// Upper bound of the nanoseconds to test one row. It is valid whether or not the column is an abstraction level,
    /// so no section is read to find that out.
    fn predicate_cost_at_most(&self, predicate: &ColumnPredicate, has_codes: bool) -> f64 {
        let cost = |kind| cost_in(kind, &predicate.condition, has_codes);
        cost(self.kind(predicate)).max(cost(GroupKind::Column))
    }

    fn kind(&self, predicate: &ColumnPredicate) -> GroupKind {
        self.block.header.kind(self.block.header.place(predicate.column.index()).0)
    }
}

/// An index and the result of its search.
pub(crate) struct Choice {
    pub tree: TreeIndex,
    pub found: Found,
    /// Ordinal, in the planned predicates, of the predicate on the first column of the index.
    first: usize,
    /// Ordinal, in the planned predicates, of the predicate on the second column. Unused if the search did not use this
    /// predicate.
    second: Option<usize>,
}

impl Choice {
    /// Whether every row that the index found passes the predicate with the ordinal `predicate` in the planned predicates.
    pub fn answers(&self, predicate: usize) -> bool {
        (predicate == self.first && self.found.first_is_exact)
            || (Some(predicate) == self.second && self.found.second_is_exact == Some(true))
    }
}
