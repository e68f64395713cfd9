//! Reading one segment: which rows pass a predicate, and the columns of those that do.
//!
//! `filter` goes from the cheap to the dear: zone maps rule rows out or let them pass unseen, then column tests run on
//! encoded values (the one that leaves fewest rows for its cost first), then row tests run on what is left, once per
//! entry where the column has a dictionary. Zone maps of a sorted column leave at most a zone at each end of a range,
//! which is why there is no search by single values on top of them. `project` decodes consecutive rows, and gathers
//! others. Pieces are opened when first needed and kept while the reader lives.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::BooleanBuffer;
use hashbrown::HashMap;
use taut_encoding::Bitmap;
use taut_index::RowRanges;
use taut_types::{ColumnIndex, ColumnTest, GroupKind, Predicate, RowTest};

use crate::groups::Piece;
use crate::order::rank;
use crate::selection::Rows;
use crate::statistics::ColumnSummary;
use crate::{Block, BlockError, ScanReport, Sections, Selection};

/// Rows that a row test is evaluated on at a time.
const ROW_TEST_ROWS: usize = 8192;

/// A segment that is being read.
pub struct SegmentReader<'a> {
    block: &'a Block,
    sections: &'a dyn Sections,
    segment: usize,
    rows: usize,
    pieces: HashMap<usize, Piece<'a>>,
    ignore_zones: bool,
}

/// A column test with what zone maps know about it.
struct Planned<'t> {
    test: &'t ColumnTest,
    /// Rows that pass without being looked at.
    certain: RowRanges,
    rank: f64,
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn new(block: &'a Block, sections: &'a dyn Sections, segment: usize) -> Self {
        let rows = block.segment_rows(segment);
        Self { block, sections, segment, rows, pieces: HashMap::new(), ignore_zones: false }
    }

    /// Makes this reader look at every row. Answers stay the same; tests compare the two.
    pub fn ignore_zones(&mut self) {
        self.ignore_zones = true;
    }

    /// The rows that pass a predicate.
    ///
    /// # Errors
    /// When a section cannot be read or parsed, or a row test fails on a row that all column tests let pass.
    pub fn filter(&mut self, predicate: &Predicate, report: &mut ScanReport) -> Result<Selection, BlockError> {
        report.segments += 1;
        let selection = self.select(predicate, report);
        for piece in self.pieces.values_mut() {
            piece.report(report);
        }
        let selection = selection?;
        report.rows_out += selection.len() as u64;
        Ok(selection)
    }

    fn select(&mut self, predicate: &Predicate, report: &mut ScanReport) -> Result<Selection, BlockError> {
        if predicate.is_always_true() {
            return Ok(Selection::All(self.rows));
        }
        // A segment has at most 65,536 rows.
        let mut ranges = RowRanges::full(self.rows as u32);
        let planned = self.plan(&predicate.column_tests, &mut ranges, report)?;
        if ranges.is_empty() {
            report.segments_skipped += 1;
            return Ok(Selection::none());
        }
        report.rows_in += ranges.rows();
        let mut selection = Bitmap::none(self.rows);
        for rows in ranges.iter() {
            selection.set_range(rows.start as usize..rows.end as usize);
        }
        for Planned { test, certain, .. } in planned {
            let uncertain = ranges.without(&certain);
            if uncertain.is_empty() {
                report.zone_answers += 1;
                continue;
            }
            report.column_scans += 1;
            let (piece, place) = self.piece(test.column)?;
            piece.filter(place, test, &uncertain, &mut selection)?;
            if selection.next_set(0).is_none() {
                return Ok(Selection::none());
            }
        }
        for test in &predicate.row_tests {
            self.filter_rows(test, &ranges, &mut selection, report)?;
        }
        Ok(Selection::of(&selection))
    }

    /// Asks zone maps about each test, and brings the tests into the order in which they run.
    fn plan<'t>(
        &self,
        tests: &'t [ColumnTest],
        ranges: &mut RowRanges,
        report: &mut ScanReport,
    ) -> Result<Vec<Planned<'t>>, BlockError> {
        if self.ignore_zones {
            return Ok(tests.iter().map(|test| Planned { test, certain: RowRanges::none(), rank: 0.0 }).collect());
        }
        let summaries: Vec<Arc<ColumnSummary>> =
            tests.iter().map(|test| self.block.summary(self.sections, test.column)).collect::<Result<_, _>>()?;
        for (test, summary) in tests.iter().zip(&summaries) {
            let zones = summary.zones(self.segment);
            report.zones += zones.zones().len() as u64;
            report.zones_skipped += zones.candidates(test, ranges) as u64;
        }
        if ranges.is_empty() {
            return Ok(vec![]);
        }
        let mut planned: Vec<_> = tests
            .iter()
            .zip(&summaries)
            .map(|(test, summary)| {
                let zones = summary.zones(self.segment);
                Planned { test, certain: zones.certain(test), rank: rank(test, zones) }
            })
            .collect();
        planned.sort_by(|left, right| left.rank.total_cmp(&right.rank));
        Ok(planned)
    }

    /// Clears selected rows that fail a row test.
    fn filter_rows(
        &mut self,
        test: &Arc<dyn RowTest>,
        ranges: &RowRanges,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<(), BlockError> {
        if let [column] = test.columns() {
            let selected = selection.count();
            let (piece, place) = self.piece(*column)?;
            if let Some(dictionary) = piece.dictionary(place)
                && dictionary.len() <= selected
                && let Some((flags, null_passes)) = test_entries(test, &dictionary)
            {
                report.dictionary_tests += 1;
                return piece.filter_codes(place, &flags, null_passes, ranges, selection);
            }
        }
        report.row_tests += 1;
        let columns = test.columns().to_vec();
        for positions in selection.positions().chunks(ROW_TEST_ROWS) {
            let arrays = self.read(&Rows::of(positions), &columns)?;
            let passes = test.evaluate(&arrays, positions.len())?;
            for (row, position) in positions.iter().enumerate() {
                if !is_true(&passes, row) {
                    selection.clear(*position as usize);
                }
            }
        }
        Ok(())
    }

    /// Some columns of the `rows.start`-th to `rows.end`-th selected rows, in the Arrow types of their columns.
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    ///
    /// # Panics
    /// When the selection has fewer rows, or is not one of this segment.
    pub fn project(
        &mut self,
        selection: &Selection,
        rows: std::ops::Range<usize>,
        columns: &[ColumnIndex],
        report: &mut ScanReport,
    ) -> Result<Vec<ArrayRef>, BlockError> {
        let rows = selection.slice(rows);
        let arrays = self.read(&rows, columns);
        for piece in self.pieces.values_mut() {
            piece.report(report);
        }
        for column in columns {
            let value_bytes = self.block.column_type(*column).arrow().primitive_width().unwrap_or(size_of::<u128>());
            report.bytes_decoded += (value_bytes * rows.len()) as u64;
        }
        arrays
    }

    /// Columns at some rows; those of one group of rows are read together.
    fn read(&mut self, rows: &Rows<'_>, columns: &[ColumnIndex]) -> Result<Vec<ArrayRef>, BlockError> {
        let header = &self.block.header;
        // Group, places in it, and where they go in the result.
        let mut groups: Vec<(usize, Vec<usize>, Vec<usize>)> = vec![];
        for (output, column) in columns.iter().enumerate() {
            let (group, place) = header.place(column.index());
            // Only groups of rows have more than one column.
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
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; columns.len()];
        for (group, places, outputs) in groups {
            let read = self.piece_of(group)?.read(&places, rows)?;
            for (output, array) in outputs.into_iter().zip(read) {
                arrays[output] = Some(array);
            }
        }
        // Every column has one group.
        Ok(arrays.into_iter().flatten().collect())
    }

    fn piece(&mut self, column: ColumnIndex) -> Result<(&mut Piece<'a>, usize), BlockError> {
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

/// The answers of a row test for the entries of a dictionary and for null. `None` where it fails on one of them:
/// that entry may belong to no row that is left.
fn test_entries(test: &Arc<dyn RowTest>, dictionary: &ArrayRef) -> Option<(BooleanBuffer, bool)> {
    let answers = test.evaluate(std::slice::from_ref(dictionary), dictionary.len()).ok()?;
    let null = test.evaluate(&[new_null_array(dictionary.data_type(), 1)], 1).ok()?;
    let flags = BooleanBuffer::collect_bool(dictionary.len(), |entry| is_true(&answers, entry));
    Some((flags, is_true(&null, 0)))
}
