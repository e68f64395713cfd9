//! A column that is stored alone: one chunk of `taut_encoding`. It is the only section of a group of a single column,
//! or an abstraction level (see `levels`) in the head of a row layout.

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer};
use taut_encoding::{ArrayBuilder, Bitmap, Choice, Chunk, encode};
use taut_index::RowRanges;
use taut_types::{ColumnPredicate, Encoding, LevelColumns, LogicalType};

use super::pages::ZONE_ROWS;
use crate::error::Corrupt;
use crate::selection::Rows;
use crate::values::ColumnValues;
use crate::{BlockError, BuildError};

/// Builds a piece (the rows of one segment) of one column. Returns its only section, and the end row (exclusive) of
/// each zone.
pub(crate) fn build(
    values: &ColumnValues,
    choice: Choice,
    name: &str,
    levels: &LevelColumns,
) -> Result<(Vec<Vec<u8>>, Vec<u32>), BuildError> {
    let encode_as_chosen = || {
        encode(&values.array, values.logical, choice)
            .map_err(|source| BuildError::Encode { column: name.to_owned(), source })
    };
    let chunk = match (levels.ordinals.is_empty(), levels.forced) {
        (true, _) => encode_as_chosen()?,
        (false, true) => encode_level(values, choice, name)?,
        (false, false) => {
            let (chunk, level) = (encode_as_chosen()?, encode_level(values, choice, name)?);
            if is_level_worthwhile(level.len(), chunk.len()) { level } else { chunk }
        }
    };
    // A segment has at most 65,536 rows.
    let rows = values.rows() as u32;
    Ok((vec![chunk], (1..=rows.div_ceil(ZONE_ROWS)).map(|zone| (zone * ZONE_ROWS).min(rows)).collect()))
}

/// Encodes a column with the smallest encoding that uses the order of rows, such as run-length or delta. A forced
/// encoding takes precedence.
pub(crate) fn encode_level(values: &ColumnValues, choice: Choice, name: &str) -> Result<Vec<u8>, BuildError> {
    let choice = if matches!(choice, Choice::Forced(_)) { choice } else { Choice::Ordered };
    encode(&values.array, values.logical, choice)
        .map_err(|source| BuildError::Encode { column: name.to_owned(), source })
}

/// Whether a level of `level_bytes` bytes saves enough. The column otherwise takes `bytes` bytes, as a field of tuples
/// or as a chunk in the usual encoding. A level must save a quarter, because finding a single row in a level is slower
/// than in a field or in bit-packed numbers.
pub(crate) fn is_level_worthwhile(level_bytes: usize, bytes: usize) -> bool {
    level_bytes <= bytes - bytes / 4
}

/// A column that is stored alone, open for reading: the piece of a group of a single column, or a level.
pub(crate) struct ColumnPiece {
    pub chunk: Chunk,
    /// Ordinal of the level, if the column is a level.
    level: Option<usize>,
    /// Ordinal in the block of the section with the chunk.
    pub section: u32,
    /// Offset of the chunk in its section.
    chunk_at: usize,
    stored_bytes: u64,
    /// Bytes read since the last report.
    pub bytes_read: u64,
}

impl ColumnPiece {
    /// Parses the chunk of a group of a single column. `bytes` is its whole section.
    pub fn open(section: u32, bytes: Buffer, logical: LogicalType, rows: usize) -> Result<Self, BlockError> {
        let stored_bytes = bytes.len() as u64;
        let chunk = Chunk::parse(bytes, logical, rows).map_err(|corrupt| Corrupt::from(corrupt).in_section(section))?;
        Ok(Self { chunk, level: None, section, chunk_at: 0, stored_bytes, bytes_read: stored_bytes })
    }

    /// Creates the column of a level. Its chunk begins at byte `chunk_at` of the head. `bytes_read` starts at zero,
    /// because [`Pages`](super::pages::Pages) counts the head.
    pub fn from_level(chunk: Chunk, level: usize, section: u32, chunk_at: usize, stored_bytes: u64) -> Self {
        Self { chunk, level: Some(level), section, chunk_at, stored_bytes, bytes_read: 0 }
    }

    /// Checks the parts of the chunk that parsing does not check.
    pub fn check(&self) -> Result<(), BlockError> {
        self.chunk.check().map_err(|corrupt| Corrupt::from(corrupt).shifted_by(self.chunk_at).in_section(self.section))
    }

    /// Reads the values of some rows.
    pub fn read(&self, rows: &Rows<'_>) -> ArrayRef {
        match rows {
            Rows::Range(rows) => self.chunk.decode(rows.clone()),
            Rows::Runs(runs) => self.chunk.decode_runs(runs),
            Rows::Positions(positions) => self.chunk.gather(positions),
            Rows::Bits(bits) => {
                let selected = self.chunk.select(bits.bitmap(), bits.count());
                selected.unwrap_or_else(|| self.chunk.gather(bits.positions()))
            }
        }
    }

    /// Appends the values of some rows to an array of their type.
    pub fn append(&self, rows: &Rows<'_>, array: &mut ArrayBuilder) {
        match rows {
            Rows::Range(rows) => self.chunk.append(rows.clone(), array),
            Rows::Runs(runs) => self.chunk.append_runs(runs, array),
            Rows::Positions(positions) => self.chunk.append_at(positions, array),
            Rows::Bits(bits) => {
                if !self.chunk.append_selected(bits.bitmap(), bits.count(), array) {
                    self.chunk.append_at(bits.positions(), array);
                }
            }
        }
    }

    /// Deselects rows in `ranges` that fail a predicate.
    pub fn filter(&self, predicate: &ColumnPredicate, ranges: &RowRanges, selection: &mut Bitmap) {
        for rows in ranges.iter() {
            self.chunk.filter(predicate, rows.start as usize..rows.end as usize, selection);
        }
    }

    /// Deselects rows in `ranges` whose dictionary entry has a false flag. Null rows stay selected if and only if
    /// `null_passes` is true.
    pub fn filter_codes(&self, flags: &BooleanBuffer, null_passes: bool, ranges: &RowRanges, selection: &mut Bitmap) {
        for rows in ranges.iter() {
            self.chunk.filter_codes(flags, null_passes, rows.start as usize..rows.end as usize, selection);
        }
    }

    /// Storage of the column: outermost encoding, its description, and stored bytes.
    pub fn storage(&self) -> (Encoding, String, u64) {
        let level = self.level.map_or(String::new(), |level| format!("level {}: ", level + 1));
        (self.chunk.encoding(), level + &self.chunk.description(), self.stored_bytes)
    }
}
