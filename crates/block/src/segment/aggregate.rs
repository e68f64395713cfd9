//! Reading one segment for an aggregation: codes, runs and 64-bit numbers of selected rows, and what zones know.
//!
//! Only columns that are stored by themselves, levels of rows too, have codes and runs; numbers come from every format, by way of arrays where the
//! bytes do not lend themselves.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use taut_encoding::{Chunk, NullableNumbers};
use taut_types::{ColumnIndex, LogicalType};

use super::SegmentReader;
use crate::selection::Rows;
use crate::{BlockError, Selection};

/// What the statistics of a segment say about a column of numbers, of all rows: where some are excluded, fewer may be null
/// and the bounds may be wider than the numbers that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberSummary {
    /// How many rows are null.
    pub nulls: u64,
    /// Least and greatest number of the rows that are not null.
    pub bounds: Option<(i128, i128)>,
}

impl SegmentReader<'_> {
    /// Rows of the segment, excluded ones too.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many codes a column has in this segment, with that of null; `None` where it has none. Some may be of excluded
    /// rows only.
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    pub fn code_count(&mut self, column: ColumnIndex) -> Result<Option<usize>, BlockError> {
        let (piece, place) = self.piece(column)?;
        Ok(piece.chunk(place).and_then(Chunk::code_count))
    }

    /// The values that the codes of a column of text or bytes stand for, ascending as codes are; the code behind them is that of
    /// null. `None` where it has no codes.
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    pub fn values_of_codes(&mut self, column: ColumnIndex) -> Result<Option<ArrayRef>, BlockError> {
        if !self.block.column_type(column).is_bytes() {
            return Ok(None);
        }
        let (piece, place) = self.piece(column)?;
        Ok(piece.chunk(place).filter(|chunk| chunk.code_count().is_some()).and_then(Chunk::dictionary))
    }

    /// The codes of the `rows.start`-th to `rows.end`-th selected rows, each below [`SegmentReader::code_count`].
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    ///
    /// # Panics
    /// When the selection has fewer rows, or is not one of this segment.
    pub fn codes(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        column: ColumnIndex,
    ) -> Result<Option<Vec<u16>>, BlockError> {
        let (piece, place) = self.piece(column)?;
        Ok(piece.chunk(place).and_then(|chunk| match selection.slice(rows) {
            Rows::Range(rows) => chunk.codes_of(rows),
            Rows::Runs(runs) => chunk.codes_of_runs(&runs),
            Rows::Positions(positions) => chunk.codes_at(positions),
            Rows::Bits(bits) => chunk.codes_at(bits.positions()),
        }))
    }

    /// The runs of the `rows.start`-th to `rows.end`-th selected rows: the code of each, and how many rows it has.
    /// `None` where these rows have many gaps, or are not stored in runs.
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    ///
    /// # Panics
    /// When the selection has fewer rows, or is not one of this segment.
    pub fn code_runs(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        column: ColumnIndex,
    ) -> Result<Option<Vec<(u16, usize)>>, BlockError> {
        let (piece, place) = self.piece(column)?;
        let Some(chunk) = piece.chunk(place) else { return Ok(None) };
        Ok(match selection.slice(rows) {
            Rows::Range(rows) => code_runs(chunk, std::iter::once(rows)),
            Rows::Runs(runs) => code_runs(chunk, runs.iter()),
            Rows::Positions(_) | Rows::Bits(_) => None,
        })
    }

    /// The numbers of the `rows.start`-th to `rows.end`-th selected rows, in their low 64 bits; `None` where the column
    /// is text, bytes or floating point.
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    ///
    /// # Panics
    /// When the selection has fewer rows, or is not one of this segment.
    pub fn numbers(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        column: ColumnIndex,
    ) -> Result<Option<NullableNumbers>, BlockError> {
        let logical = self.block.column_type(column);
        let rows = selection.slice(rows);
        let (piece, place) = self.piece(column)?;
        match (piece.chunk(place), &rows) {
            (Some(chunk), Rows::Range(rows)) => Ok(chunk.numbers(rows.clone())),
            (Some(chunk), Rows::Runs(runs)) => Ok(chunk.numbers_of_runs(runs)),
            (Some(chunk), Rows::Positions(positions)) => Ok(chunk.numbers_at(positions)),
            (Some(chunk), Rows::Bits(bits)) => Ok(chunk.numbers_at(bits.positions())),
            (None, rows) => Ok(piece.read(&[place], rows)?.first().and_then(|array| numbers_of(array, logical))),
        }
    }

    /// The sum of a column over the whole segment, where it is stored in runs: see [`taut_encoding::Chunk::sum_of_runs`].
    /// `None` too where rows are excluded. Meaningless for floating point.
    ///
    /// # Errors
    /// When a section cannot be read or parsed.
    pub fn sum_of_runs(&mut self, column: ColumnIndex) -> Result<Option<i128>, BlockError> {
        if self.excluded.is_some() {
            return Ok(None);
        }
        let (piece, place) = self.piece(column)?;
        Ok(piece.chunk(place).and_then(Chunk::sum_of_runs))
    }

    /// What zones know about a column of numbers, excluded rows included; `None` for text, bytes and floating point.
    ///
    /// # Errors
    /// When statistics cannot be read or parsed.
    pub fn number_summary(&self, column: ColumnIndex) -> Result<Option<NumberSummary>, BlockError> {
        let logical = self.block.column_type(column);
        if logical.is_bytes() || matches!(logical, LogicalType::Real | LogicalType::Double) {
            return Ok(None);
        }
        let summary = self.block.summary(self.sections, column)?;
        let known = summary.segment(self.segment);
        let mut bounds: Option<(i128, i128)> = None;
        for zone in known.zones.zones() {
            let Some((low, high)) = &zone.bounds else { continue };
            let (Some(low), Some(high)) = (low.number(), high.as_ref().and_then(taut_types::Key::number)) else {
                return Ok(None);
            };
            bounds = Some(bounds.map_or((low, high), |(least, greatest)| (least.min(low), greatest.max(high))));
        }
        Ok(Some(NumberSummary { nulls: known.nulls, bounds }))
    }
}

/// The runs of codes of stretches of rows, those that a gap divides as one.
fn code_runs(chunk: &Chunk, stretches: impl Iterator<Item = Range<usize>>) -> Option<Vec<(u16, usize)>> {
    let mut runs: Vec<(u16, usize)> = vec![];
    for rows in stretches {
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

/// The numbers of an array, in their low 64 bits.
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
