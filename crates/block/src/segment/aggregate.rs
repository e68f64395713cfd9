//! Reads one segment for an aggregation: codes, runs and 64-bit numbers of selected rows, and statistics from zones.
//!
//! Codes and runs exist for columns that are stored alone, and for abstraction levels (sort columns stored in the head
//! of a row layout; see `groups/levels.rs`). Numbers exist for every layout. In tuples of row layouts, they are first
//! decoded to Arrow arrays.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use taut_encoding::{Chunk, NullableNumbers};
use taut_types::{ColumnIndex, LogicalType};

use super::SegmentReader;
use crate::selection::Rows;
use crate::{BlockError, Selection};

/// Statistics of a column of numbers over all rows of a segment. Excluded rows count too: without them, there may be
/// fewer nulls and narrower bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberSummary {
    /// Number of null rows.
    pub nulls: u64,
    /// Least and greatest number of the rows that are not null, or `None` if all rows are null.
    pub bounds: Option<(i128, i128)>,
}

impl SegmentReader<'_> {
    /// Number of rows of the segment, including excluded rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of codes of a column in this segment, including the code of null. Returns `None` if the column has no
    /// codes. Some codes may occur only in excluded rows.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    pub fn code_count(&mut self, column: ColumnIndex) -> Result<Option<usize>, BlockError> {
        let (piece, ordinal) = self.piece(column)?;
        Ok(piece.chunk(ordinal).and_then(Chunk::code_count))
    }

    /// Values of the codes of a column of text or bytes, in the order of the codes, which is ascending. Null has the
    /// code after the last value. Returns `None` if the column has no codes.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    pub fn values_of_codes(&mut self, column: ColumnIndex) -> Result<Option<ArrayRef>, BlockError> {
        if !self.block.column_type(column).is_bytes() {
            return Ok(None);
        }
        let (piece, ordinal) = self.piece(column)?;
        Ok(piece.chunk(ordinal).filter(|chunk| chunk.code_count().is_some()).and_then(Chunk::dictionary))
    }

    /// Codes of some selected rows, each below [`SegmentReader::code_count`]. `rows` are ordinals among the selected
    /// rows. Returns `None` if the column has no codes.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If `rows` exceeds the selection, or the selection is of another segment.
    pub fn codes(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        column: ColumnIndex,
    ) -> Result<Option<Vec<u16>>, BlockError> {
        let (piece, ordinal) = self.piece(column)?;
        Ok(piece.chunk(ordinal).and_then(|chunk| match selection.slice(rows) {
            Rows::Range(rows) => chunk.codes_of(rows),
            Rows::Runs(runs) => chunk.codes_of_runs(&runs),
            Rows::Positions(positions) => chunk.codes_at(positions),
            Rows::Bits(bits) => chunk.codes_at(bits.positions()),
        }))
    }

    /// Runs of equal codes in some selected rows: the code and the number of rows of each run. `rows` are ordinals
    /// among the selected rows. Returns `None` if these rows have many gaps, or if the column is not stored in runs.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If `rows` exceeds the selection, or the selection is of another segment.
    pub fn code_runs(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        column: ColumnIndex,
    ) -> Result<Option<Vec<(u16, usize)>>, BlockError> {
        let (piece, ordinal) = self.piece(column)?;
        let Some(chunk) = piece.chunk(ordinal) else { return Ok(None) };
        Ok(match selection.slice(rows) {
            Rows::Range(rows) => code_runs(chunk, std::iter::once(rows)),
            Rows::Runs(runs) => code_runs(chunk, runs.iter()),
            Rows::Positions(_) | Rows::Bits(_) => None,
        })
    }

    /// Low 64 bits of the numbers of some selected rows. `rows` are ordinals among the selected rows. Returns `None` if
    /// the column is text, bytes or floating point.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If `rows` exceeds the selection, or the selection is of another segment.
    pub fn numbers(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        column: ColumnIndex,
    ) -> Result<Option<NullableNumbers>, BlockError> {
        let logical = self.block.column_type(column);
        let rows = selection.slice(rows);
        let (piece, ordinal) = self.piece(column)?;
        match (piece.chunk(ordinal), &rows) {
            (Some(chunk), Rows::Range(rows)) => Ok(chunk.numbers(rows.clone())),
            (Some(chunk), Rows::Runs(runs)) => Ok(chunk.numbers_of_runs(runs)),
            (Some(chunk), Rows::Positions(positions)) => Ok(chunk.numbers_at(positions)),
            (Some(chunk), Rows::Bits(bits)) => Ok(chunk.numbers_at(bits.positions())),
            (None, rows) => Ok(piece.read(&[ordinal], rows)?.first().and_then(|array| numbers_of(array, logical))),
        }
    }

    /// Sum of a column over the whole segment: see [`taut_encoding::Chunk::sum_of_runs`]. Returns `None` if the column
    /// is not stored in runs, or if rows are excluded. The sum has no meaning for floating point.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    pub fn sum_of_runs(&mut self, column: ColumnIndex) -> Result<Option<i128>, BlockError> {
        if self.excluded.is_some() {
            return Ok(None);
        }
        let (piece, ordinal) = self.piece(column)?;
        Ok(piece.chunk(ordinal).and_then(Chunk::sum_of_runs))
    }

    /// Statistics of a column of numbers from its zones, including excluded rows. Returns `None` for text, bytes and
    /// floating point.
    ///
    /// # Errors
    /// If statistics cannot be read or parsed.
    pub fn number_summary(&self, column: ColumnIndex) -> Result<Option<NumberSummary>, BlockError> {
        let logical = self.block.column_type(column);
        if logical.is_bytes() || matches!(logical, LogicalType::Real | LogicalType::Double) {
            return Ok(None);
        }
        let summary = self.block.summary(self.sections, column)?;
        let segment = summary.segment(self.segment);
        let mut bounds: Option<(i128, i128)> = None;
        for zone in segment.zones.zones() {
            let Some((low, high)) = &zone.bounds else { continue };
            let (Some(low), Some(high)) = (low.number(), high.as_ref().and_then(taut_types::Datum::number)) else {
                return Ok(None);
            };
            bounds = Some(bounds.map_or((low, high), |(least, greatest)| (least.min(low), greatest.max(high))));
        }
        Ok(Some(NumberSummary { nulls: segment.nulls, bounds }))
    }
}

/// Runs of codes in several ranges of rows. Runs of one code are joined across the gaps between ranges.
fn code_runs(chunk: &Chunk, ranges: impl Iterator<Item = Range<usize>>) -> Option<Vec<(u16, usize)>> {
    let mut runs: Vec<(u16, usize)> = vec![];
    for rows in ranges {
        let mut start = rows.start;
        for (code, end) in chunk.code_runs(rows)? {
            let length = end - std::mem::replace(&mut start, end);
            match runs.last_mut() {
                Some((last, rows)) if *last == code => *rows += length,
                _ => runs.push((code, length)),
            }
        }
    }
    Some(runs)
}

/// Low 64 bits of the numbers of an array.
fn numbers_of(array: &ArrayRef, logical: LogicalType) -> Option<NullableNumbers> {
    let numbers = match logical {
        LogicalType::Boolean => array.as_boolean().values().iter().map(i64::from).collect(),
        LogicalType::SmallInt => {
            array.as_primitive::<Int16Type>().values().iter().map(|value| i64::from(*value)).collect()
        }
        LogicalType::Integer => {
            array.as_primitive::<Int32Type>().values().iter().map(|value| i64::from(*value)).collect()
        }
        LogicalType::Date => {
            array.as_primitive::<Date32Type>().values().iter().map(|value| i64::from(*value)).collect()
        }
        LogicalType::BigInt => array.as_primitive::<Int64Type>().values().to_vec(),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            array.as_primitive::<TimestampMicrosecondType>().values().to_vec()
        }
        LogicalType::Decimal { .. } => {
            array.as_primitive::<Decimal128Type>().values().iter().map(|value| *value as i64).collect()
        }
        LogicalType::Real | LogicalType::Double | LogicalType::Varchar | LogicalType::Bytea => return None,
    };
    Some((numbers, array.nulls().filter(|nulls| nulls.null_count() > 0).cloned()))
}
