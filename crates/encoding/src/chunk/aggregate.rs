//! Access for aggregations: small codes instead of values, runs instead of rows, and numbers of any type in 64 bits.
//!
//! ```text
//! encoding     code of a row                    codes
//! constant     0                                1
//! dictionary   its entry                        entries
//! run_length   its run (text: its entry)        runs
//! null rows    the code after all other codes   one more, if any row is null
//! ```
//!
//! Rows with the same code have the same value. Two codes may stand for one value, for example the codes of two runs.
//! Other encodings have no codes: an aggregation groups their rows by the values.

use std::ops::Range;

use arrow_buffer::{BooleanBuffer, NullBuffer};
use taut_types::LogicalType;

use super::{Chunk, ChunkValues};
use crate::SelectedRuns;
use crate::bytes::Bytes;
use crate::codes::Codes;
use crate::numbers::Numbers;
use crate::run_ends::RunEnds;

/// Codes have 16 bits.
const CODES_MAX: usize = 1 << 16;

/// Numbers and their validity. The number of a null row is arbitrary.
pub type NullableNumbers = (Vec<i64>, Option<NullBuffer>);

/// Source of the codes of a chunk, except the code of null.
enum CodeSource<'a> {
    /// All rows have one code.
    Constant,
    /// Codes of a dictionary, and its number of entries.
    Codes(&'a Codes, usize),
    /// The ordinal of the run is the code.
    Runs(&'a RunEnds),
}

impl CodeSource<'_> {
    fn count(&self) -> usize {
        match self {
            Self::Constant => 1,
            Self::Codes(_, entries) => *entries,
            Self::Runs(ends) => ends.len(),
        }
    }
}

impl Chunk {
    fn code_source(&self) -> Option<CodeSource<'_>> {
        match &self.values {
            ChunkValues::Null | ChunkValues::Numbers(Numbers::Constant(_)) | ChunkValues::Bytes(Bytes::Constant(_)) => {
                Some(CodeSource::Constant)
            }
            ChunkValues::Numbers(Numbers::Dictionary(dictionary)) => {
                Some(CodeSource::Codes(dictionary.codes(), dictionary.entries().len()))
            }
            ChunkValues::Bytes(Bytes::Dictionary(dictionary)) => {
                Some(CodeSource::Codes(dictionary.codes(), dictionary.entries().len()))
            }
            ChunkValues::Numbers(Numbers::RunLength(runs)) => Some(CodeSource::Runs(runs.ends())),
            _ => None,
        }
    }

    /// Number of codes, including the code of null. Returns `None` if the rows have no codes.
    pub fn code_count(&self) -> Option<usize> {
        let count = self.code_source()?.count() + usize::from(self.nulls > 0);
        (count <= CODES_MAX).then_some(count)
    }

    /// Sum of the stored numbers of all rows, computed from the runs. The stored numbers of floating point are the
    /// integers that sort like the values. Returns `None` if the encoding has no runs and is not constant, a row is
    /// null, or the sum overflows.
    pub fn sum_of_runs(&self) -> Option<i128> {
        let ChunkValues::Numbers(numbers) = &self.values else { return None };
        if self.nulls > 0 {
            return None;
        }
        let mut sum = Some(0_i128);
        let mut add = |value: i128, rows: usize| {
            let part = i128::try_from(rows).ok().and_then(|rows| value.checked_mul(rows));
            sum = sum.zip(part).and_then(|(sum, part)| sum.checked_add(part));
        };
        match numbers {
            Numbers::Constant(value) => add(*value, self.rows),
            Numbers::RunLength(runs) => runs.runs(0..self.rows).into_iter().for_each(|(value, rows)| add(value, rows)),
            Numbers::RunLengthDelta(runs) => runs.visit_runs(add),
            _ => return None,
        }
        sum
    }

    /// Codes of a range of rows, each below [`Chunk::code_count`]. Returns `None` if the rows have no codes.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk.
    pub fn codes_of(&self, rows: Range<usize>) -> Option<Vec<u16>> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let (count, source) = (self.code_count()?, self.code_source()?);
        let mut codes = Vec::with_capacity(rows.len());
        match source {
            CodeSource::Constant => codes.resize(rows.len(), 0),
            CodeSource::Codes(packed, _) => packed.visit(rows.clone(), |part| codes.extend_from_slice(part)),
            CodeSource::Runs(ends) => ends.visit(rows.clone(), |run, part| {
                // There are at most as many runs as codes.
                codes.resize(codes.len() + part.len(), run as u16);
            }),
        }
        self.finish_codes(count, &mut codes, |row| rows.start + row);
        Some(codes)
    }

    /// Codes of the rows of selected runs, like [`Chunk::codes_of`].
    ///
    /// # Panics
    /// If a run is not within the rows of the chunk.
    pub fn codes_of_runs(&self, runs: &SelectedRuns<'_>) -> Option<Vec<u16>> {
        let mut codes = self.codes_of(runs.span())?;
        let count = runs.close_gaps(&mut codes);
        codes.truncate(count);
        Some(codes)
    }

    /// Codes at ascending positions, like [`Chunk::codes_of`].
    ///
    /// # Panics
    /// If a position is not within the rows of the chunk.
    pub fn codes_at(&self, positions: &[u32]) -> Option<Vec<u16>> {
        let last = positions.last().map_or(0, |last| *last as usize + 1);
        assert!(last <= self.rows, "row {last} of {}", self.rows);
        let (count, source) = (self.code_count()?, self.code_source()?);
        let mut codes = match source {
            CodeSource::Constant => vec![0; positions.len()],
            CodeSource::Codes(packed, _) => packed.gather(positions),
            CodeSource::Runs(ends) => {
                let mut codes = Vec::with_capacity(positions.len());
                // There are at most as many runs as codes.
                ends.visit_at(positions, |run| codes.push(run as u16));
                codes
            }
        };
        self.finish_codes(count, &mut codes, |row| positions[row] as usize);
        Some(codes)
    }

    /// Sets the code of null rows. Replaces codes out of range, which occur only in damaged bytes.
    fn finish_codes(&self, count: usize, codes: &mut [u16], position: impl Fn(usize) -> usize) {
        // There are 1 to 65,536 codes.
        let last = (count - 1) as u16;
        if self.nulls == self.rows {
            return codes.fill(last);
        }
        let greatest = last - u16::from(self.nulls > 0);
        codes.iter_mut().for_each(|code| *code = (*code).min(greatest));
        if let Some(validity) = &self.validity {
            for (row, code) in codes.iter_mut().enumerate() {
                if !validity.value(position(row)) {
                    *code = last;
                }
            }
        }
    }

    /// Runs of a range of rows: the code of each run, and the row at which it ends (exclusive). Returns `None` if the
    /// rows are not in runs, or if the range is empty. Also if some rows of the chunk are null and others are not.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk.
    pub fn code_runs(&self, rows: Range<usize>) -> Option<Vec<(u16, usize)>> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let (count, source) = (self.code_count()?, self.code_source()?);
        if self.validity.is_some() || rows.is_empty() {
            return None;
        }
        // There are 1 to 65,536 codes.
        let last = (count - 1) as u16;
        let mut runs = vec![];
        match source {
            CodeSource::Constant => runs.push((last, rows.end)),
            CodeSource::Codes(Codes::Packed(_), _) => return None,
            CodeSource::Codes(codes, _) => codes.visit_runs(rows, |code, part| runs.push((code.min(last), part.end))),
            CodeSource::Runs(ends) => ends.visit(rows, |run, part| runs.push((run as u16, part.end))),
        }
        Some(runs)
    }

    /// Numbers of a range of rows as they are stored (unscaled decimals, days, microseconds), in their low 64 bits.
    /// Returns `None` for text, bytes and floating point.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk.
    pub fn numbers(&self, rows: Range<usize>) -> Option<NullableNumbers> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        Some(match self.exact_numbers()? {
            Some(numbers) => (numbers.decode(rows.clone()), self.nulls_of(&rows)),
            None => all_null(rows.len()),
        })
    }

    /// Numbers of the rows of selected runs, like [`Chunk::numbers`].
    ///
    /// # Panics
    /// If a run is not within the rows of the chunk.
    pub fn numbers_of_runs(&self, runs: &SelectedRuns<'_>) -> Option<NullableNumbers> {
        let rows = runs.span();
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        Some(match self.exact_numbers()? {
            Some(numbers) => (numbers.decode_runs(runs), runs.nulls(self.nulls_of(&rows))),
            None => all_null(runs.len()),
        })
    }

    /// Numbers at ascending positions, like [`Chunk::numbers`].
    ///
    /// # Panics
    /// If a position is not within the rows of the chunk.
    pub fn numbers_at(&self, positions: &[u32]) -> Option<NullableNumbers> {
        let last = positions.last().map_or(0, |last| *last as usize + 1);
        assert!(last <= self.rows, "row {last} of {}", self.rows);
        let Some(numbers) = self.exact_numbers()? else { return Some(all_null(positions.len())) };
        let is_valid = |bits: &BooleanBuffer| positions.iter().map(|row| bits.value(*row as usize)).collect();
        let nulls = self.validity.as_ref().map(is_valid).filter(|nulls: &NullBuffer| nulls.null_count() > 0);
        Some((numbers.gather(positions), nulls))
    }

    /// Numbers of a column that is not text, bytes or floating point. The inner `None` means that all rows are null.
    fn exact_numbers(&self) -> Option<Option<&Numbers>> {
        match &self.values {
            _ if self.logical.is_bytes() || matches!(self.logical, LogicalType::Real | LogicalType::Double) => None,
            ChunkValues::Null => Some(None),
            ChunkValues::Numbers(numbers) => Some(Some(numbers)),
            ChunkValues::Bytes(_) => None,
        }
    }
}

fn all_null(rows: usize) -> NullableNumbers {
    (vec![0; rows], Some(NullBuffer::new_null(rows)).filter(|_| rows > 0))
}
