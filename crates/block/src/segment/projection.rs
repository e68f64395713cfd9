//! Decodes columns of selected rows of a segment.
//!
//! Consecutive rows and rows with few gaps are decoded in runs, other rows one by one.

use std::ops::Range;

use arrow_array::ArrayRef;
use taut_encoding::ArrayBuilder;
use taut_types::{ColumnIndex, GroupKind};

use super::SegmentReader;
use crate::groups::Piece;
use crate::groups::column::ColumnPiece;
use crate::selection::Rows;
use crate::{BlockError, ScanReport, Selection};

impl SegmentReader<'_> {
    /// Decodes columns of some selected rows. `rows` are ordinals among the selected rows. Returns one array for each
    /// of `columns`, with the Arrow type of the column.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If `rows` exceeds the selection, or the selection is of another segment.
    pub fn project(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        columns: &[ColumnIndex],
        report: &mut ScanReport,
    ) -> Result<Vec<ArrayRef>, BlockError> {
        let rows = selection.slice(rows);
        let arrays = self.read(&rows, columns);
        self.report_read(&rows, columns, report);
        arrays
    }

    /// Like [`SegmentReader::project`], but appends the values to `arrays`, which has one array for each column.
    /// Returns false and appends nothing if `project` is as fast. That is the case if a column is stored with other
    /// columns. It is also the case if the bytes of the column have Arrow's layout and the rows are consecutive in the
    /// segment.
    ///
    /// # Errors
    /// If [`SegmentReader::project`] would fail.
    ///
    /// # Panics
    /// If [`SegmentReader::project`] would panic, or an array has another type than its column.
    pub fn append(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        columns: &[ColumnIndex],
        arrays: &mut [ArrayBuilder],
        report: &mut ScanReport,
    ) -> Result<bool, BlockError> {
        let groups: Vec<usize> = columns.iter().map(|column| self.block.group_and_ordinal(*column).0).collect();
        if groups.iter().any(|group| self.block.group_kind(*group) != GroupKind::Column) {
            return Ok(false);
        }
        self.open_columns(&groups)?;
        let single_column = |group: &usize| self.pieces.get(group).and_then(Piece::single_column);
        let rows = selection.slice(rows);
        let is_range = matches!(rows, Rows::Range(_));
        let must_decode = |piece: &ColumnPiece| !(is_range && piece.chunk.is_decoded());
        if !groups.iter().all(|group| single_column(group).is_some_and(must_decode)) {
            return Ok(false);
        }
        for (group, array) in groups.iter().zip(arrays) {
            if let Some(piece) = single_column(group) {
                piece.append(&rows, array);
            }
        }
        self.report_read(&rows, columns, report);
        Ok(true)
    }

    fn report_read(&mut self, rows: &Rows<'_>, columns: &[ColumnIndex], report: &mut ScanReport) {
        for piece in self.pieces.values_mut() {
            piece.flush_counts(report);
        }
        for column in columns {
            let value_bytes = self.block.column_type(*column).arrow().primitive_width().unwrap_or(size_of::<u128>());
            report.bytes_decoded += (value_bytes * rows.len()) as u64;
        }
    }

    /// Reads columns of some rows. Columns in one group of a row layout are read together.
    pub(super) fn read(&mut self, rows: &Rows<'_>, columns: &[ColumnIndex]) -> Result<Vec<ArrayRef>, BlockError> {
        let block = self.block;
        // Group, ordinals of columns in the group, and their indexes in the result.
        let mut groups: Vec<(usize, Vec<usize>, Vec<usize>)> = vec![];
        for (output, column) in columns.iter().enumerate() {
            let (group, ordinal) = block.group_and_ordinal(*column);
            // Only groups of row layouts have more than one column.
            let group_entry = match block.group_kind(group) {
                GroupKind::Column => None,
                _ => groups.iter_mut().find(|(other, ..)| *other == group),
            };
            match group_entry {
                Some((_, ordinals, outputs)) => {
                    ordinals.push(ordinal);
                    outputs.push(output);
                }
                None => groups.push((group, vec![ordinal], vec![output])),
            }
        }
        self.open_columns(&groups.iter().map(|(group, ..)| *group).collect::<Vec<_>>())?;
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; columns.len()];
        for (group, ordinals, outputs) in groups {
            let group_arrays = self.group_piece(group)?.read(&ordinals, rows)?;
            for (output, array) in outputs.into_iter().zip(group_arrays) {
                arrays[output] = Some(array);
            }
        }
        // Every column is in one group.
        Ok(arrays.into_iter().flatten().collect())
    }
}
