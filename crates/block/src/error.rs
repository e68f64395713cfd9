//! Errors of blocks: corrupt bytes, sections that cannot be read, and rows that cannot be stored.

use arrow_schema::ArrowError;
use taut_encoding::{CorruptChunk, EncodeError};
use taut_index::{CorruptIndex, CorruptZoneMap};

/// Corrupt block header: its bytes are not what a builder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block header, byte {at}: expected {expected}")]
pub struct CorruptBlock {
    /// Offset in the header.
    pub at: usize,
    /// What was expected at this offset.
    pub expected: &'static str,
}

/// Corrupt encoded rows: the bytes are not what [`crate::rows::encode`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rows, byte {at}: expected {expected}")]
pub struct CorruptRows {
    /// Offset in the bytes.
    pub at: usize,
    /// What was expected at this offset.
    pub expected: &'static str,
}

/// Why a section is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// The bytes of the section cannot be read.
    #[error("section {section}: {source}")]
    Io {
        /// The section.
        section: u32,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The bytes of the section differ from the bytes that were written, or the block has no section with this number.
    #[error("section {section}: expected {expected}")]
    Corrupt {
        /// The section.
        section: u32,
        /// The condition that the bytes do not meet.
        expected: &'static str,
    },
}

/// Why reading a block fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// A section is not available.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A section matches its checksum, but its contents are not what a builder writes.
    #[error("section {section}, byte {at}: expected {expected}")]
    Corrupt {
        /// The section.
        section: u32,
        /// Offset in the section.
        at: usize,
        /// What was expected at this offset.
        expected: &'static str,
    },
    /// A row predicate failed on a value.
    #[error("a row predicate failed: {0}")]
    Predicate(#[from] ArrowError),
}

/// Why rows cannot be built into a block, or encoded by [`crate::rows::encode`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The columns of a batch differ from the columns of the schema.
    #[error("column {column}: expected {expected}, found {found}")]
    Mismatch {
        /// Index of the column.
        column: usize,
        /// The Arrow type in the schema, or "no column" if the schema has fewer columns.
        expected: String,
        /// The Arrow type in the batch, or "no column" if the batch has fewer columns.
        found: String,
    },
    /// A null in a column that is not nullable.
    #[error("column {column:?} cannot contain nulls")]
    Null {
        /// The name of the column.
        column: String,
    },
    /// A decimal with more digits than its type allows.
    #[error("column {column:?} of type {logical_type} cannot hold the unscaled value {value}")]
    Range {
        /// The name of the column.
        column: String,
        /// The type of the column, as SQL writes it.
        logical_type: String,
        /// The value.
        value: i128,
    },
    /// The design of the table ([`TableDesign`](taut_types::TableDesign)) does not fit the schema, or the schema and
    /// the design cannot be written to the block.
    #[error("the design does not fit the schema: expected {expected}")]
    Design {
        /// The condition that the design does not meet.
        expected: &'static str,
    },
    /// A column that is stored as a chunk, alone or as a level, cannot have the encoding that its design forces.
    #[error("column {column:?}: {source}")]
    Encode {
        /// The name of the column.
        column: String,
        /// Cause of the failure.
        source: EncodeError,
    },
    /// A column that is stored in the tuples of packed or slotted rows cannot have the encoding that its design forces.
    #[error("column {column:?} cannot be {encoding}: {reason}")]
    Field {
        /// The name of the column.
        column: String,
        /// The encoding.
        encoding: &'static str,
        /// Why the column cannot have this encoding.
        reason: &'static str,
    },
    /// A block cannot be read: the one being built, or the one whose indexes are replaced.
    #[error(transparent)]
    Read(#[from] BlockError),
    /// The block has more bytes, sections or rows than the format can count.
    #[error("a block cannot hold {found} {what}")]
    TooLarge {
        /// What exceeds the limit, for example "sections".
        what: &'static str,
        /// The count that exceeds the limit.
        found: u64,
    },
}

/// Corrupt bytes in a section. Becomes [`BlockError::Corrupt`] once the section is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt {
    pub at: usize,
    pub expected: &'static str,
}

/// Creates an error: `expected` should be at offset `at`, but is not.
pub(crate) fn corrupt_at(at: usize, expected: &'static str) -> Corrupt {
    Corrupt { at, expected }
}

impl Corrupt {
    /// Converts into an error that names the section.
    pub fn in_section(self, section: u32) -> BlockError {
        BlockError::Corrupt { section, at: self.at, expected: self.expected }
    }

    /// Adds `bytes` to the offset. Converts an offset in a part of a section to an offset in the section, where the
    /// part begins at offset `bytes`.
    pub fn shifted_by(self, bytes: usize) -> Self {
        Self { at: self.at + bytes, ..self }
    }
}

impl From<CorruptZoneMap> for Corrupt {
    fn from(corrupt: CorruptZoneMap) -> Self {
        Self { at: corrupt.at, expected: corrupt.expected }
    }
}

impl From<CorruptIndex> for Corrupt {
    fn from(corrupt: CorruptIndex) -> Self {
        Self { at: corrupt.at, expected: corrupt.expected }
    }
}

impl From<CorruptChunk> for Corrupt {
    fn from(corrupt: CorruptChunk) -> Self {
        Self { at: corrupt.at, expected: corrupt.expected }
    }
}
