//! Abstraction levels: sort columns of a row layout that are stored alone, in the head of the piece (one column group
//! of one segment). The idea is column abstraction (Halverson et al., 2006, section 2.2, figure 1 b and c).
//!
//! A level is a chunk of `taut_encoding` over all rows of the segment. Its encoding uses the order of rows, such as
//! run-length or delta. Tuples do not contain its column. Reading a row still touches two sections, the head and one
//! page. A predicate on a level reads no page.
//!
//! ```text
//! head         as in `pages`, for the columns that are not levels; bytes 24..28 are the number of levels, L, and
//!              bytes 28..32 the offset of their records, a multiple of 64; both are zero without levels
//! levels_at    L * 16    records, in the order of the sort columns
//!                        zeros to a multiple of 64
//!              ...       chunks, each at a multiple of 64
//!
//! record
//! offset  size  field
//! 0       4     ordinal       ordinal of the column in the group
//! 4       4     chunk_at      offset in the head
//! 8       4     chunk_length
//! 12      4     zero
//! ```

use arrow_buffer::Buffer;
use taut_encoding::{Choice, Chunk};
use taut_types::{GroupKind, LevelColumns, LogicalType};

use super::column::{ColumnPiece, encode_level, is_level_worthwhile};
use super::packed;
use super::pages::{HEAD_BYTES, LEVELS_AT};
use crate::bytes::u32_at;
use crate::error::{Corrupt, corrupt_at};
use crate::values::ColumnValues;
use crate::{BuildError, PAGE_BYTES};

const RECORD_BYTES: usize = 16;
/// Maximum bytes of the levels of one piece, unless the design ([`TableDesign`](taut_types::TableDesign)) forces them.
/// Keeps the head about as short as two pages.
const LEVEL_BYTES_MAX: usize = 2 * PAGE_BYTES;

/// A column of a piece that is stored as a level.
pub(crate) struct Level {
    /// Ordinal of the column in its group.
    pub ordinal: usize,
    chunk: Vec<u8>,
}

/// Chooses the levels of a piece in a row layout. If the design forces levels, these are all candidates. Otherwise they
/// are the leading candidates that take fewer bytes as levels (see [`is_level_worthwhile`]).
pub(crate) fn choose(
    kind: GroupKind,
    columns: &[(&ColumnValues, Choice, &str)],
    candidates: &LevelColumns,
) -> Result<Vec<Level>, BuildError> {
    let mut levels = vec![];
    let mut bytes_left = LEVEL_BYTES_MAX;
    for ordinal in &candidates.ordinals {
        let (values, choice, name) = columns[*ordinal];
        let field_bytes = match kind {
            _ if candidates.forced => usize::MAX,
            GroupKind::PackedRows => packed::field_bytes(values, choice, name)?,
            // A slotted tuple stores the plain value, and an end of two bytes if the type has variable width.
            _ => values.plain_bytes() as usize + if values.logical.is_bytes() { 2 * values.rows() } else { 0 },
        };
        if field_bytes == 0 {
            // A constant column takes no bytes in packed tuples. The sort columns after it may still become levels.
            continue;
        }
        let chunk = encode_level(values, choice, name)?;
        if !candidates.forced {
            if !is_level_worthwhile(chunk.len(), field_bytes) || chunk.len() > bytes_left {
                break;
            }
            bytes_left -= chunk.len();
        }
        levels.push(Level { ordinal: *ordinal, chunk });
    }
    Ok(levels)
}

/// Appends levels to the head of their piece.
pub(crate) fn append(head: &mut Vec<u8>, levels: Vec<Level>) -> Result<(), BuildError> {
    if levels.is_empty() {
        return Ok(());
    }
    head.resize(head.len().next_multiple_of(64), 0);
    let levels_at = head.len();
    let mut chunk_at = (levels_at + levels.len() * RECORD_BYTES).next_multiple_of(64);
    let word = |number: usize| {
        let too_large = |_| BuildError::TooLarge { what: "bytes of levels", found: number as u64 };
        u32::try_from(number).map(u32::to_le_bytes).map_err(too_large)
    };
    head[LEVELS_AT..LEVELS_AT + 4].copy_from_slice(&word(levels.len())?);
    head[LEVELS_AT + 4..LEVELS_AT + 8].copy_from_slice(&word(levels_at)?);
    for level in &levels {
        for field in [level.ordinal, chunk_at, level.chunk.len(), 0] {
            head.extend_from_slice(&word(field)?);
        }
        chunk_at = (chunk_at + level.chunk.len()).next_multiple_of(64);
    }
    for level in levels {
        head.resize(head.len().next_multiple_of(64), 0);
        head.extend_from_slice(&level.chunk);
    }
    Ok(())
}

/// Storage of each column of an open piece: alone, or as a field of tuples.
#[expect(clippy::large_enum_variant, reason = "most pieces are of one column, and a box is an allocation for each")]
pub(crate) enum Levels {
    /// The column of a group of a single column. This variant avoids an allocation.
    Single(ColumnPiece),
    /// A row layout: the columns that are stored alone, if any, and the storage of each column of the group.
    OfRows { columns: Vec<ColumnPiece>, storage: Vec<ColumnStorageIndex> },
}

/// Storage of one column of a piece, by reference.
pub(crate) enum ColumnStorage<'l> {
    /// Stored alone: the column of a group of a single column, or a level.
    Column(&'l ColumnPiece),
    /// Stored in tuples, as the field with this ordinal.
    Field(usize),
}

/// Storage of one column in a row layout, by ordinal.
#[derive(Clone, Copy)]
pub(crate) enum ColumnStorageIndex {
    Column(usize),
    Field(usize),
}

impl Levels {
    /// Parses and checks the levels in the head of a piece with columns of these types. `section` is the section of the
    /// head.
    pub fn parse(head: &Buffer, section: u32, types: &[LogicalType], rows: usize) -> Result<Self, Corrupt> {
        if head.len() < HEAD_BYTES {
            return Err(corrupt_at(head.len(), "the head of a piece"));
        }
        let (count, levels_at) = (u32_at(head, LEVELS_AT) as usize, u32_at(head, LEVELS_AT + 4) as usize);
        if count > types.len() || (count == 0 && levels_at != 0) {
            return Err(corrupt_at(LEVELS_AT, "no more levels than the group has columns"));
        }
        let records_end = levels_at + count * RECORD_BYTES;
        if !levels_at.is_multiple_of(64) || (count > 0 && levels_at < HEAD_BYTES) || records_end > head.len() {
            return Err(corrupt_at(LEVELS_AT + 4, "records of levels inside the head"));
        }
        let mut columns = vec![];
        let mut level_of_column: Vec<Option<usize>> = vec![None; types.len()];
        for level in 0..count {
            let at = levels_at + level * RECORD_BYTES;
            let word = |field: usize| u32_at(head, at + 4 * field) as usize;
            let (ordinal, chunk_at, length) = (word(0), word(1), word(2));
            let unassigned = level_of_column.get_mut(ordinal).filter(|other| other.is_none());
            *unassigned.ok_or(corrupt_at(at, "a column of the group that is not a level yet"))? = Some(level);
            let is_inside = chunk_at >= records_end && chunk_at.is_multiple_of(64) && chunk_at + length <= head.len();
            if !is_inside || word(3) != 0 {
                return Err(corrupt_at(at + 4, "the chunk of a level inside the head"));
            }
            let chunk = Chunk::parse(head.slice_with_length(chunk_at, length), types[ordinal], rows)
                .map_err(|corrupt| Corrupt::from(corrupt).shifted_by(chunk_at))?;
            columns.push(ColumnPiece::from_level(chunk, level, section, chunk_at, length as u64));
        }
        let mut fields = 0..;
        let storage_of = |level: Option<usize>| match level {
            Some(level) => Some(ColumnStorageIndex::Column(level)),
            None => fields.next().map(ColumnStorageIndex::Field),
        };
        Ok(Self::OfRows { columns, storage: level_of_column.into_iter().filter_map(storage_of).collect() })
    }

    /// Types of the columns that are fields. `types` contains the types of all columns.
    pub fn field_types(&self, types: &[LogicalType]) -> Vec<LogicalType> {
        let is_field = |(ordinal, _): &(usize, _)| matches!(self.column_storage(*ordinal), ColumnStorage::Field(_));
        types.iter().copied().enumerate().filter(is_field).map(|(_, logical)| logical).collect()
    }

    /// All columns that are stored alone.
    pub fn columns(&self) -> &[ColumnPiece] {
        match self {
            Self::Single(column) => std::slice::from_ref(column),
            Self::OfRows { columns, .. } => columns,
        }
    }

    /// All columns that are stored alone, mutable so that a report can reset their counters.
    pub fn columns_mut(&mut self) -> &mut [ColumnPiece] {
        match self {
            Self::Single(column) => std::slice::from_mut(column),
            Self::OfRows { columns, .. } => columns,
        }
    }

    /// Storage of the column with this ordinal in the group.
    pub fn column_storage(&self, ordinal: usize) -> ColumnStorage<'_> {
        match self {
            Self::Single(column) => ColumnStorage::Column(column),
            Self::OfRows { columns, storage } => match storage[ordinal] {
                ColumnStorageIndex::Column(column) => ColumnStorage::Column(&columns[column]),
                ColumnStorageIndex::Field(field) => ColumnStorage::Field(field),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array};

    const TYPES: [LogicalType; 3] = [LogicalType::BigInt, LogicalType::Integer, LogicalType::Integer];

    /// A head with two levels: the last column, then the column before it.
    fn head() -> Vec<u8> {
        let values = |values: [i32; 3]| {
            let array: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
            ColumnValues::new(array, LogicalType::Integer).unwrap()
        };
        let level =
            |ordinal, numbers| Level { ordinal, chunk: encode_level(&values(numbers), Choice::Auto, "a").unwrap() };
        let mut head = vec![0; 70];
        append(&mut head, vec![level(2, [7, 7, 7]), level(1, [1, 1, 2])]).unwrap();
        head
    }

    fn parse(head: &[u8]) -> Result<Levels, Corrupt> {
        Levels::parse(&Buffer::from(head), 0, &TYPES, 3)
    }

    #[test]
    fn columns_without_a_level_become_fields() {
        let levels = parse(&head()).unwrap();
        assert_eq!(levels.field_types(&TYPES), [LogicalType::BigInt]);
        assert!(matches!(levels.column_storage(0), ColumnStorage::Field(0)));
        let stored = |ordinal| match levels.column_storage(ordinal) {
            ColumnStorage::Column(column) => column.storage().1,
            ColumnStorage::Field(_) => String::new(),
        };
        assert!(stored(1).starts_with("level 2: run_length"), "{}", stored(1));
        assert_eq!(stored(2), "level 1: constant");
        let none = parse(&[0; HEAD_BYTES]).unwrap();
        assert_eq!(none.field_types(&TYPES), TYPES);
    }

    #[test]
    fn errors_name_the_byte_of_a_wrong_record() {
        let set = |at: usize, value: u32| {
            let mut head = head();
            head[at..at + 4].copy_from_slice(&value.to_le_bytes());
            parse(&head).map(|_| ()).unwrap_err().at
        };
        let (records, length) = (128, head().len() as u32);
        assert_eq!(u32_at(&head(), LEVELS_AT + 4), records);
        let records = records as usize;
        // Offset of a changed word of the head, its new value, and the offset that the error names.
        let cases = [
            (LEVELS_AT, 0, LEVELS_AT),
            (LEVELS_AT, 4, LEVELS_AT),
            (LEVELS_AT, u32::MAX, LEVELS_AT),
            (LEVELS_AT + 4, 0, LEVELS_AT + 4),
            (LEVELS_AT + 4, 129, LEVELS_AT + 4),
            (LEVELS_AT + 4, length.next_multiple_of(64), LEVELS_AT + 4),
            (LEVELS_AT + 4, u32::MAX - 63, LEVELS_AT + 4),
            (records, 3, records),
            (records, 1, records + 16),
            (records + 4, 0, records + 4),
            (records + 4, 193, records + 4),
            (records + 4, u32::MAX - 63, records + 4),
            (records + 8, u32::MAX, records + 4),
            (records + 12, 1, records + 4),
            // The chunk itself: its number of rows is wrong.
            (196, 4, 196),
        ];
        for (at, value, expected) in cases {
            assert_eq!(set(at, value), expected, "{value} at {at}");
        }
        for length in 0..head().len() {
            assert!(parse(&head()[..length]).is_err(), "{length} bytes");
        }
    }
}
