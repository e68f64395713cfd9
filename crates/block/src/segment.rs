//! Reads one segment: finds the rows that pass a predicate, and decodes columns of these rows.
//!
//! `filter` runs the cheapest filters first. Zone maps rule out rows, or prove that rows pass, without reading values.
//! Binary search and indexes narrow the remaining rows where that pays (see `paths`). Column predicates run on encoded
//! values (see `column_predicate`). The one that rules out most rows for its cost runs first (see `order`). Row predicates
//! run last. If the column has a dictionary, they run once per entry instead of once per row. Excluded rows are removed
//! before row predicates run.
//!
//! `project` decodes rows in runs if they are consecutive or have few gaps, and one by one otherwise. Pieces are opened
//! on first use and stay open as long as the reader exists.

mod aggregate;
mod column_predicate;
mod excluded;

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::BooleanBuffer;
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use taut_encoding::{ArrayBuilder, Bitmap};
use taut_index::RowRanges;
use taut_types::{ColumnIndex, ColumnPredicate, GroupKind, NonNullPredicate, Predicate, RowPredicate};

use crate::groups::Piece;
use crate::groups::column::ColumnPiece;
use crate::order::{PredicateHistory, expected_share, rank};
use crate::paths::Choice;
use crate::selection::{BITS_MIN, Rows};
use crate::statistics::ColumnSummary;
use crate::{AccessPaths, Block, BlockError, ScanReport, Sections, Selection};

pub use aggregate::NumberSummary;

/// Rows on which a row predicate is evaluated at a time.
const ROW_TEST_ROWS: usize = 8192;

/// Maximum number of rows from an index that are put in order by sorting. More rows are put in order by setting bits in
/// a bitmap of the segment.
const SORTED_MAX: usize = 200;

/// Reader of one segment of a block.
pub struct SegmentReader<'a> {
    pub(crate) block: &'a Block,
    pub(crate) sections: &'a dyn Sections,
    pub(crate) segment: usize,
    pub(crate) rows: usize,
    /// Excluded rows, if there are any.
    excluded: Option<Cow<'a, RoaringBitmap>>,
    pieces: HashMap<usize, Piece<'a>>,
    ignore_zones: bool,
    pub(crate) index_use: IndexUse,
}

/// Whether a reader uses indexes and binary search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexUse {
    Never,
    WhereCheaper,
    Always,
}

/// Column predicates with their ordinals in the [`PredicateHistory`] of a scan, and row predicates.
type SegmentPredicates<'t> = (Vec<(usize, &'t ColumnPredicate)>, Vec<&'t Arc<dyn RowPredicate>>);

/// A column predicate, and what zone maps and searches prove about its rows.
pub(crate) struct Planned<'t> {
    pub predicate: &'t ColumnPredicate,
    /// Ordinal in the [`PredicateHistory`] of the scan.
    place: usize,
    /// Rows that are proved to pass.
    pub certain: RowRanges,
    /// Remaining rows that may pass or fail.
    pub uncertain: RowRanges,
    /// Estimated share of rows that pass, from the bounds of zones.
    pub share: f64,
    rank: f64,
}

impl Planned<'_> {
    /// Whether the predicate is decided for all rows, so that no value needs to be read.
    pub fn is_answered(&self) -> bool {
        self.uncertain.is_empty()
    }

    /// Whether an index can be searched for the predicate. Indexes find values that pass, not values that fail.
    pub fn can_be_looked_up(&self) -> bool {
        !self.predicate.negated && !self.is_answered()
    }
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn new(block: &'a Block, sections: &'a dyn Sections, segment: usize) -> Self {
        let rows = block.segment_rows(segment);
        let (pieces, index_use) = (HashMap::new(), IndexUse::WhereCheaper);
        Self { block, sections, segment, rows, excluded: None, pieces, ignore_zones: false, index_use }
    }

    /// Disables zone maps, indexes and binary search, so that every row is tested. Results stay the same, for
    /// comparison in tests.
    pub fn ignore_zones(&mut self) {
        (self.ignore_zones, self.index_use) = (true, IndexUse::Never);
    }

    /// Makes this reader use neither indexes nor binary search. Results stay the same, for comparison in tests and
    /// measurements.
    pub fn ignore_indexes(&mut self) {
        self.index_use = IndexUse::Never;
    }

    /// Makes this reader use indexes even if a scan is expected to be faster. Results stay the same, for comparison in
    /// tests and measurements.
    pub fn always_use_indexes(&mut self) {
        self.index_use = IndexUse::Always;
    }

    /// Rows that pass a predicate, without excluded rows.
    ///
    /// # Errors
    /// If a section cannot be read or parsed. If a row predicate fails on a row that is not excluded and that passes
    /// all column predicates.
    pub fn filter(&mut self, predicate: &Predicate, report: &mut ScanReport) -> Result<Selection, BlockError> {
        self.filter_in_order(predicate, &mut PredicateHistory::default(), report)
    }

    /// Rows that pass a predicate, without excluded rows. The order of the column predicates adapts to their
    /// selectivity in the segments that `history` has recorded.
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
        let selection = self.select(predicate, history, report);
        for piece in self.pieces.values_mut() {
            piece.report(report);
        }
        let selection = selection?;
        report.rows_out += selection.len() as u64;
        Ok(selection)
    }

    fn select(
        &mut self,
        predicate: &Predicate,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Selection, BlockError> {
        if predicate.is_always_true() {
            return Ok(self.kept().map_or(Selection::All(self.rows), Selection::of));
        }
        if self.excludes_all() {
            return Ok(Selection::none());
        }
        // A segment has at most 65,536 rows.
        let mut ranges = RowRanges::full(self.rows as u32);
        let (column_predicates, row_predicates) = self.segment_predicates(predicate)?;
        let mut planned = self.plan(&column_predicates, history, &mut ranges, report)?;
        if ranges.is_empty() {
            report.segments_skipped += 1;
            report.paths |= AccessPaths::ZONE_MAP;
            return Ok(Selection::none());
        }
        let answered = planned.iter().filter(|planned| planned.is_answered()).count();
        if answered > 0 {
            report.zone_answers += answered as u64;
            report.paths |= AccessPaths::ZONE_MAP;
        }
        if self.index_use != IndexUse::Never {
            if self.bloom_rules_out(&planned)? {
                report.segments_skipped_by_bloom += 1;
                report.paths |= AccessPaths::BLOOM;
                return Ok(Selection::none());
            }
            self.search_sorted(&mut planned, &mut ranges, report)?;
        }
        for planned in &mut planned {
            planned.uncertain = ranges.without(&planned.certain);
        }
        let excluded = self.excluded_count(&ranges);
        if excluded == ranges.rows() {
            return Ok(Selection::none());
        }
        report.rows_in += ranges.rows() - excluded;
        if row_predicates.is_empty()
            && planned.iter().all(Planned::is_answered)
            && let Some(selection) = Selection::of_ranges(&ranges, self.rows, |row| self.is_left_out(row))
        {
            return Ok(selection);
        }
        let choice = if self.index_use == IndexUse::Never { None } else { self.choose_index(&planned)? };
        let mut open = planned.iter().filter(|planned| !planned.is_answered());
        if let (Some(only), None) = (open.next(), open.next())
            && only.uncertain.rows() == ranges.rows()
            && row_predicates.is_empty()
            && excluded == 0
            && choice.is_none()
        {
            let selection = self.select_by_predicate(only, report)?;
            history.saw_column_predicate(only.place, ranges.rows() as usize, selection.len());
            return Ok(selection);
        }
        if let Some(choice) = &choice {
            let is_answered =
                |(conjunct, planned): (usize, &Planned<'_>)| planned.is_answered() || choice.answers(conjunct);
            if choice.found.rows == 0 {
                report.saw_index_find_none();
                return Ok(Selection::none());
            }
            if row_predicates.is_empty() && planned.iter().enumerate().all(is_answered) {
                return Ok(self.select_found(choice, &ranges, report));
            }
        }
        let mut selection = self.bits_of(&ranges);
        let mut is_left_out = excluded == 0;
        if excluded > ranges.rows() / 2 {
            self.leave_out(&mut selection, &ranges);
            is_left_out = true;
        }
        let is_found = choice.is_some();
        if let Some(choice) = choice {
            self.look_up(&choice, &mut planned, &mut selection, report);
        }
        // If no row of the ranges has been deselected, the number of selected rows is known without counting bits.
        let mut left = if excluded == 0 && !is_found { ranges.rows() as usize } else { selection.count() };
        for planned in planned {
            if planned.is_answered() {
                continue;
            }
            let before = left;
            left = self.evaluate_on_column(&planned, before, &mut selection, report)?;
            history.saw_column_predicate(planned.place, before, left);
            if left == 0 {
                return Ok(Selection::none());
            }
        }
        if is_left_out && row_predicates.is_empty() {
            return Ok(Selection::of_counted(selection, left));
        }
        if !is_left_out {
            self.leave_out(&mut selection, &ranges);
        }
        // Row predicates run in the order in which they were written. A later one may fail with an error on a row that
        // an earlier one rules out.
        for conjunct in row_predicates {
            self.filter_rows(conjunct, &ranges, &mut selection, report)?;
        }
        Ok(Selection::of(selection))
    }

    /// Rows of `ranges` that an index found, without excluded rows. The index must decide all predicates.
    fn select_found(&self, choice: &Choice, ranges: &RowRanges, report: &mut ScanReport) -> Selection {
        report.saw_index_search();
        if choice.found.rows <= SORTED_MAX && choice.found.rows * BITS_MIN < self.rows {
            let mut rows = Vec::with_capacity(choice.found.rows);
            choice.tree.visit(&choice.found, |row| {
                if ranges.contains(row) && !self.is_left_out(row) {
                    rows.push(row);
                }
            });
            rows.sort_unstable();
            // A damaged index may find a row twice.
            rows.dedup();
            return Selection::of_few(rows);
        }
        let mut selection = self.found_bits(choice);
        if ranges.rows() < self.rows as u64 {
            selection.intersect(&self.bits_of(ranges));
        }
        self.leave_out(&mut selection, ranges);
        Selection::of(selection)
    }

    /// Bitmap of the segment with the rows that an index found.
    fn found_bits(&self, choice: &Choice) -> Bitmap {
        let mut found = Bitmap::none(self.rows);
        choice.tree.visit(&choice.found, |row| found.set(row as usize));
        found
    }

    /// Deselects the rows that an index did not find. Marks the predicates that the index decides as answered.
    fn look_up(&self, choice: &Choice, planned: &mut [Planned<'_>], selection: &mut Bitmap, report: &mut ScanReport) {
        report.saw_index_search();
        selection.intersect(&self.found_bits(choice));
        for (predicate, planned) in planned.iter_mut().enumerate() {
            if choice.answers(predicate) {
                planned.uncertain = RowRanges::none();
            }
        }
    }

    /// Bitmap of the segment with the rows of some ranges.
    fn bits_of(&self, ranges: &RowRanges) -> Bitmap {
        if ranges.rows() == self.rows as u64 {
            return Bitmap::all_set(self.rows);
        }
        let mut bits = Bitmap::none(self.rows);
        ranges.iter().for_each(|rows| bits.set_range(rows.start as usize..rows.end as usize));
        bits
    }

    /// Predicates to run on this segment: column predicates with their ordinals in the history, and row predicates. If
    /// a column has no nulls in this segment, a row predicate on it may imply or equal a column predicate
    /// ([`NonNullPredicate`]). That column predicate is then added, with an ordinal after those of the scan. If they are
    /// equal, the row predicate is left out.
    fn segment_predicates<'t>(&self, predicate: &'t Predicate) -> Result<SegmentPredicates<'t>, BlockError> {
        let Predicate { column_predicates, row_predicates } = predicate;
        let mut here: SegmentPredicates<'t> = (column_predicates.iter().enumerate().collect(), Vec::new());
        for (place, row_predicate) in row_predicates.iter().enumerate() {
            let mut is_answered = false;
            if !self.ignore_zones
                && let Some(NonNullPredicate { predicate: conjunct, is_exact }) = row_predicate.non_null_predicate()
                && self.block.summary(self.sections, conjunct.column)?.segment(self.segment).nulls == 0
            {
                here.0.push((column_predicates.len() + place, conjunct));
                is_answered = *is_exact;
            }
            if !is_answered {
                here.1.push(row_predicate);
            }
        }
        Ok(here)
    }

    /// Evaluates column predicates on zone maps, and sorts them into the order in which they run. Removes from `ranges`
    /// the rows that zone maps rule out.
    fn plan<'t>(
        &self,
        predicates: &[(usize, &'t ColumnPredicate)],
        history: &PredicateHistory,
        ranges: &mut RowRanges,
        report: &mut ScanReport,
    ) -> Result<Vec<Planned<'t>>, BlockError> {
        if self.ignore_zones {
            let planned = |(place, predicate): &(usize, &'t ColumnPredicate)| Planned {
                predicate,
                place: *place,
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
            report.zones_skipped += zones.candidates(predicate, ranges) as u64;
        }
        if ranges.is_empty() {
            return Ok(vec![]);
        }
        // Shares are needed only to order several predicates, or to choose between an index and a scan.
        let is_asked = predicates.len() > 1 || self.block.header.indexes() > 0;
        let mut planned: Vec<_> = predicates
            .iter()
            .zip(&summaries)
            .map(|(&(place, predicate), summary)| {
                let zones = summary.zones(self.segment);
                let certain = zones.certain(predicate);
                let share = if is_asked { expected_share(predicate, zones) } else { 1.0 };
                // The observed share is of the rows that other access paths have left. An index needs the share of all
                // rows.
                let share_of_left = history.share(place).unwrap_or(share);
                let rank =
                    if is_asked { rank(predicate, share_of_left, self.row_bytes(predicate.column)) } else { 0.0 };
                Planned { predicate, place, uncertain: ranges.without(&certain), certain, share, rank }
            })
            .collect();
        planned.sort_by(|left, right| left.rank.total_cmp(&right.rank));
        Ok(planned)
    }

    /// Bytes that a scan of a column reads per row, including columns that are stored together with it.
    fn row_bytes(&self, column: ColumnIndex) -> f64 {
        let header = &self.block.header;
        let (group, _) = header.place(column.index());
        // A piece has one or more sections, which are consecutive.
        let sections = header.piece(self.segment, group);
        let (first, last) = (header.section(sections.start as usize), header.section(sections.end as usize - 1));
        (last.offset + last.length - first.offset) as f64 / self.rows as f64
    }

    /// Deselects rows that fail a row predicate.
    fn filter_rows(
        &mut self,
        predicate: &Arc<dyn RowPredicate>,
        ranges: &RowRanges,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<(), BlockError> {
        if let [column] = predicate.columns() {
            let selected = selection.count();
            let (piece, place) = self.piece(*column)?;
            if let Some(dictionary) = piece.dictionary(place)
                && dictionary.len() <= selected
                && let Some((flags, null_passes)) = evaluate_on_entries(predicate, &dictionary)
            {
                report.dictionary_predicates += 1;
                report.paths |= AccessPaths::DICTIONARY;
                return piece.filter_codes(place, &flags, null_passes, ranges, selection);
            }
        }
        report.row_predicates += 1;
        report.paths |= AccessPaths::DECODED_SCAN;
        let columns = predicate.columns().to_vec();
        let selected = Selection::of(selection.clone());
        for first in (0..selected.len()).step_by(ROW_TEST_ROWS) {
            let rows = selected.slice(first..selected.len().min(first + ROW_TEST_ROWS));
            let arrays = self.read(&rows, &columns)?;
            let answers = predicate.evaluate(&arrays, rows.len())?;
            let passes = match answers.nulls() {
                Some(known) => answers.values() & known.inner(),
                None => answers.values().clone(),
            };
            rows.deselect_failing(&passes, selection);
        }
        Ok(())
    }

    /// Decodes columns of some selected rows. `rows` are ordinals among the selected rows. The arrays have the Arrow
    /// types of the columns.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If `rows` exceeds the selection, or the selection is of another segment.
    pub fn project(
        &mut self,
        selection: &Selection,
        rows: std::ops::Range<usize>,
        columns: &[ColumnIndex],
        report: &mut ScanReport,
    ) -> Result<Vec<ArrayRef>, BlockError> {
        let rows = selection.slice(rows);
        let arrays = self.read(&rows, columns);
        self.report_read(&rows, columns, report);
        arrays
    }

    /// Like [`SegmentReader::project`], but appends the values to `arrays`, which has one array for each column.
    /// Returns false and appends nothing if `project` is as fast. That is the case if a column is stored with others,
    /// or if its values are stored decoded and `rows` are consecutive.
    ///
    /// # Errors
    /// If [`SegmentReader::project`] would fail.
    ///
    /// # Panics
    /// If [`SegmentReader::project`] would panic, or an array has another type than its column.
    pub fn append(
        &mut self,
        selection: &Selection,
        rows: std::ops::Range<usize>,
        columns: &[ColumnIndex],
        arrays: &mut [ArrayBuilder],
        report: &mut ScanReport,
    ) -> Result<bool, BlockError> {
        let groups: Vec<usize> = columns.iter().map(|column| self.block.header.place(column.index()).0).collect();
        if groups.iter().any(|group| self.block.header.kind(*group) != GroupKind::Column) {
            return Ok(false);
        }
        self.open_columns(&groups)?;
        let piece_of = |group: &usize| self.pieces.get(group).and_then(Piece::single_column);
        let rows = selection.slice(rows);
        let is_range = matches!(rows, Rows::Range(_));
        let is_to_decode = |piece: &ColumnPiece| !(is_range && piece.chunk.is_decoded());
        if !groups.iter().all(|group| piece_of(group).is_some_and(is_to_decode)) {
            return Ok(false);
        }
        for (group, array) in groups.iter().zip(arrays) {
            if let Some(piece) = piece_of(group) {
                piece.append(&rows, array);
            }
        }
        self.report_read(&rows, columns, report);
        Ok(true)
    }

    fn report_read(&mut self, rows: &Rows<'_>, columns: &[ColumnIndex], report: &mut ScanReport) {
        for piece in self.pieces.values_mut() {
            piece.report(report);
        }
        for column in columns {
            let value_bytes = self.block.column_type(*column).arrow().primitive_width().unwrap_or(size_of::<u128>());
            report.bytes_decoded += (value_bytes * rows.len()) as u64;
        }
    }

    /// Reads columns of some rows. Columns in one group of a row layout are read together.
    fn read(&mut self, rows: &Rows<'_>, columns: &[ColumnIndex]) -> Result<Vec<ArrayRef>, BlockError> {
        let header = &self.block.header;
        // Group, ordinals of columns in the group, and their indexes in the result.
        let mut groups: Vec<(usize, Vec<usize>, Vec<usize>)> = vec![];
        for (output, column) in columns.iter().enumerate() {
            let (group, place) = header.place(column.index());
            // Only groups of row layouts have more than one column.
            let known = match header.kind(group) {
                GroupKind::Column => None,
                _ => groups.iter_mut().find(|(other, ..)| *other == group),
            };
            match known {
                Some((_, places, outputs)) => {
                    places.push(place);
                    outputs.push(output);
                }
                None => groups.push((group, vec![place], vec![output])),
            }
        }
        self.open_columns(&groups.iter().map(|(group, ..)| *group).collect::<Vec<_>>())?;
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; columns.len()];
        for (group, places, outputs) in groups {
            let read = self.piece_of(group)?.read(&places, rows)?;
            for (output, array) in outputs.into_iter().zip(read) {
                arrays[output] = Some(array);
            }
        }
        // Every column is in one group.
        Ok(arrays.into_iter().flatten().collect())
    }

    /// Opens the pieces of those groups that store a single column. The first byte of each is read before any is
    /// parsed, so that the processor fetches them from memory at the same time. If few rows of many columns are read,
    /// fetching them one after the other would take as long as reading the rows.
    fn open_columns(&mut self, groups: &[usize]) -> Result<(), BlockError> {
        let header = &self.block.header;
        let mut read = Vec::with_capacity(groups.len());
        for group in groups {
            if header.kind(*group) == GroupKind::Column && !self.pieces.contains_key(group) {
                let section = header.piece(self.segment, *group).start;
                read.push((*group, section, self.sections.section(section)?));
            }
        }
        black_box(read.iter().fold(0, |all, (.., bytes)| all ^ bytes.first().unwrap_or(&0)));
        self.pieces.reserve(read.len());
        for (group, section, bytes) in read {
            let logical = self.block.column_type(header.first_column(group));
            self.pieces.insert(group, Piece::open_column(section, bytes, logical, self.rows)?);
        }
        Ok(())
    }

    pub(crate) fn piece(&mut self, column: ColumnIndex) -> Result<(&mut Piece<'a>, usize), BlockError> {
        let (group, place) = self.block.header.place(column.index());
        Ok((self.piece_of(group)?, place))
    }

    fn piece_of(&mut self, group: usize) -> Result<&mut Piece<'a>, BlockError> {
        match self.pieces.entry(group) {
            hashbrown::hash_map::Entry::Occupied(piece) => Ok(piece.into_mut()),
            hashbrown::hash_map::Entry::Vacant(place) => {
                Ok(place.insert(self.block.open_piece(self.sections, self.segment, group)?))
            }
        }
    }
}

fn is_true(answers: &BooleanArray, row: usize) -> bool {
    answers.is_valid(row) && answers.value(row)
}

/// Results of a row predicate for the entries of a dictionary and for null. Returns `None` if the predicate fails on
/// one of them, because that entry may belong to no remaining row.
fn evaluate_on_entries(predicate: &Arc<dyn RowPredicate>, dictionary: &ArrayRef) -> Option<(BooleanBuffer, bool)> {
    let answers = predicate.evaluate(std::slice::from_ref(dictionary), dictionary.len()).ok()?;
    let null = predicate.evaluate(&[new_null_array(dictionary.data_type(), 1)], 1).ok()?;
    let flags = BooleanBuffer::collect_bool(dictionary.len(), |entry| is_true(&answers, entry));
    Some((flags, is_true(&null, 0)))
}
