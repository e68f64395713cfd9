//! What can go wrong with a block: its bytes, the way to its bytes, or what is asked of it.

use arrow_schema::ArrowError;
use taut_encoding::{CorruptChunk, EncodeError};
use taut_index::{CorruptIndex, CorruptZoneMap};

/// A header's bytes are not what a builder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block header, byte {at}: expected {expected}")]
pub struct CorruptBlock {
    /// Offset in the header.
    pub at: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// Bytes are not those of rows, as [`crate::rows::encode`] writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rows, byte {at}: expected {expected}")]
pub struct CorruptRows {
    /// Offset in the bytes.
    pub at: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// Why a section cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// Its bytes cannot be read.
    #[error("section {section}: {source}")]
    Io {
        /// The section.
        section: u32,
        /// Why not.
        source: std::io::Error,
    },
    /// Its bytes are not those that were written.
    #[error("section {section}: expected {expected}")]
    Corrupt {
        /// The section.
        section: u32,
        /// What they fail.
        expected: &'static str,
    },
}

/// Why a block does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// A section cannot be had.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A section passes its checksum but holds what no builder writes.
    #[error("section {section}, byte {at}: expected {expected}")]
    Corrupt {
        /// The section.
        section: u32,
        /// Offset in the section.
        at: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A row test failed on a value.
    #[error("a test of rows failed: {0}")]
    Test(#[from] ArrowError),
}

/// Why rows make no block.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A batch with other columns than the schema.
    #[error("column {column}: expected {expected}, found {found}")]
    Mismatch {
        /// The column, counted from zero.
        column: usize,
        /// The Arrow type of the schema, or that it is missing.
        expected: String,
        /// The type of the batch.
        found: String,
    },
    /// A null in a column that takes none.
    #[error("column {column:?} takes no null")]
    Null {
        /// The name of the column.
        column: String,
    },
    /// A decimal with more digits than its type.
    #[error("column {column:?} of type {logical_type} cannot hold the unscaled value {value}")]
    Range {
        /// The name of the column.
        column: String,
        /// Its type, as SQL writes it.
        logical_type: String,
        /// The value.
        value: i128,
    },
    /// A design that does not fit the schema.
    #[error("the design does not fit the schema: {expected}")]
    Design {
        /// What should hold.
        expected: &'static str,
    },
    /// A column cannot be stored as its design forces.
    #[error("column {column:?}: {source}")]
    Encode {
        /// The name of the column.
        column: String,
        /// Why not.
        source: EncodeError,
    },
    /// A field of packed rows cannot be stored as its design forces.
    #[error("column {column:?} cannot be {encoding}: {reason}")]
    Field {
        /// The name of the column.
        column: String,
        /// The encoding.
        encoding: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// What was built, or is to be built anew, cannot be read.
    #[error(transparent)]
    Read(#[from] BlockError),
    /// More bytes, sections or rows than the format can count.
    #[error("a block cannot hold {found} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: u64,
    },
}

/// Bytes inside one section that are not what a builder writes: [`BlockError::Corrupt`] before the section is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt {
    pub at: usize,
    pub expected: &'static str,
}

impl Corrupt {
    /// Names the section.
    pub fn in_section(self, section: u32) -> BlockError {
        BlockError::Corrupt { section, at: self.at, expected: self.expected }
    }

    /// Shifts the offset by where the bytes begin in their section.
    pub fn behind(self, bytes: usize) -> Self {
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
