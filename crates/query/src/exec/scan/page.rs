//! Reads a delta page: the rows that pass a predicate, and their columns.
//!
//! A page is filtered by the same predicate as blocks, on comparable datums, so that a condition has the same meaning
//! in both. First, deleted rows are removed. Then column predicates are evaluated, which never return an error. Row
//! predicates come last, each on the rows that remain: they may return errors for the other rows.

mod passing;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanBufferBuilder, UInt32Array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::take;
use datafusion::common::Result;
use taut_block::Selection;
use taut_store::{DeltaPage, Table};
use taut_types::{ColumnIndex, Predicate, RowPredicate};

use self::passing::passing_rows;

/// Number of consecutive rows of a page that can be copied in the time of one lookup of a row.
const COPIED_ROWS_PER_ROW: usize = 16;

/// Reader of one delta page.
pub struct PageReader<'a> {
    table: &'a Table,
    page: &'a DeltaPage,
    /// Requested columns by index. Opening a column copies it from the page.
    columns: BTreeMap<usize, ArrayRef>,
}

impl<'a> PageReader<'a> {
    /// Opens a page of a table.
    pub fn new(table: &'a Table, page: &'a DeltaPage) -> Self {
        Self { table, page, columns: BTreeMap::new() }
    }

    /// The page that is read.
    pub fn page(&self) -> &'a DeltaPage {
        self.page
    }

    /// Rows that are not deleted and pass a predicate.
    ///
    /// # Errors
    /// If a row predicate returns an error for a row that is not deleted and passes all predicates before it.
    pub fn filter(&mut self, predicate: &Predicate) -> Result<Selection> {
        let mut candidates = self.live_rows();
        if !predicate.column_predicates.is_empty() && candidates.has_true() {
            self.open_columns(predicate.column_predicates.iter().map(|conjunct| conjunct.column));
        }
        for conjunct in &predicate.column_predicates {
            if !candidates.has_true() {
                break;
            }
            let logical_type = self.table.schema.column(conjunct.column).logical_type;
            candidates = passing_rows(&self.column(conjunct.column), logical_type, conjunct, candidates);
        }
        let mut selection = selection_of(&candidates);
        for conjunct in &predicate.row_predicates {
            if selection.is_empty() {
                break;
            }
            selection = self.filter_rows(conjunct.as_ref(), &selection)?;
        }
        Ok(selection)
    }

    /// Returns `columns` of the rows at the ordinals `rows` of the selection.
    ///
    /// # Errors
    /// If the selection is not of this page, which is a bug.
    pub fn project(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        columns: &[ColumnIndex],
    ) -> Result<Vec<ArrayRef>> {
        let ordinals: Vec<usize> = columns.iter().map(|column| column.index()).collect();
        let is_new = |ordinal: &usize| !self.columns.contains_key(ordinal);
        if rows.len() * COPIED_ROWS_PER_ROW < self.page.rows() && ordinals.iter().all(is_new) {
            let rows: Vec<u32> = rows.map(|row| selection.position(row)).collect();
            return Ok(self.page.rows_at(&ordinals, &rows)?);
        }
        self.open_columns(columns.iter().copied());
        let arrays = columns.iter().map(|column| self.column(*column));
        match consecutive_start(selection, &rows) {
            Some(first) => Ok(arrays.map(|array| array.slice(first, rows.len())).collect()),
            None => {
                let positions = UInt32Array::from_iter_values(rows.map(|row| selection.position(row)));
                Ok(arrays.map(|array| take(&array, &positions, None)).collect::<Result<_, _>>()?)
            }
        }
    }

    /// Rows that are not deleted, as bits.
    fn live_rows(&self) -> BooleanBuffer {
        let rows = self.page.rows();
        let mut live = BooleanBufferBuilder::new(rows);
        live.append_n(rows, true);
        let deleted = self.table.delta.deleted(self.page.id());
        if let Some(deleted) = deleted.and_then(|deleted| deleted.segment(0)) {
            let deleted = deleted.iter().map(|row| row as usize);
            deleted.take_while(|row| *row < rows).for_each(|row| live.set_bit(row, false));
        }
        live.finish()
    }

    fn filter_rows(&mut self, predicate: &dyn RowPredicate, selection: &Selection) -> Result<Selection> {
        let rows = selection.len();
        let arrays = self.project(selection, 0..rows, predicate.columns())?;
        let passes = predicate.evaluate(&arrays, rows)?;
        let passes = |row: &usize| passes.is_valid(*row) && passes.value(*row);
        let passing: Vec<u32> = (0..rows).filter(passes).map(|row| selection.position(row)).collect();
        Ok(if passing.len() == rows { selection.clone() } else { Selection::Positions(passing) })
    }

    /// Copies from the page the columns that are not open yet.
    fn open_columns(&mut self, columns: impl Iterator<Item = ColumnIndex>) {
        let mut missing: Vec<usize> = columns.map(ColumnIndex::index).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|ordinal| !self.columns.contains_key(ordinal));
        if !missing.is_empty() {
            let arrays = self.page.columns(&missing);
            self.columns.extend(missing.into_iter().zip(arrays));
        }
    }

    /// Returns a column, copied from the page if it is not open.
    fn column(&self, column: ColumnIndex) -> ArrayRef {
        match self.columns.get(&column.index()) {
            Some(array) => Arc::clone(array),
            None => self.page.columns(&[column.index()]).swap_remove(0),
        }
    }
}

/// Selection of the rows whose bits are set.
fn selection_of(bits: &BooleanBuffer) -> Selection {
    let count = bits.count_set_bits();
    if count == bits.len() {
        return Selection::All(count);
    }
    Selection::Positions(bits.set_indices_u32().collect())
}

/// Position in the page of the first row of `rows`, if the positions of all of them are consecutive; else `None`.
fn consecutive_start(selection: &Selection, rows: &Range<usize>) -> Option<usize> {
    if rows.is_empty() {
        return Some(0);
    }
    let (first, last) = (selection.position(rows.start), selection.position(rows.end - 1));
    ((last - first) as usize + 1 == rows.len()).then_some(first as usize)
}
