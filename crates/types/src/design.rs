//! The design of a table: how its blocks are laid out, as plain data.
//!
//! Storage builds from it, the catalog shows it, SQL declares it in `WITH (...)`: see the options. Columns are named by
//! their places, so that no room below meets a name that does not exist.

mod abstraction;
mod index;
mod options;
mod partition;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ColumnIndex, LogicalType, Schema};

pub use abstraction::{Abstraction, LevelColumns};
pub use index::{IndexDesign, IndexKind};
pub use options::quote_identifier;
pub use partition::{PARTITIONS_MAX, PartitionDesign, PartitionMethod};

/// Plain bytes of rows that a block aims at where the design does not say: see [`BlockSize::Auto`].
pub const BLOCK_BYTES_DEFAULT: u64 = 16 << 20;
/// The least block size a design may ask for.
pub const BLOCK_BYTES_MIN: u64 = 128 << 10;

/// How the rows of a table are laid out in its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDesign {
    /// The arrangement of the columns.
    pub layout: Layout,
    /// The order kept inside blocks and across a load; empty for the order of arrival.
    pub sort_by: Vec<SortColumn>,
    /// Whether encodings are chosen by the data.
    pub compression: Compression,
    /// Columns whose encoding is forced.
    pub encodings: BTreeMap<ColumnIndex, Encoding>,
    /// When a block is full.
    pub block_size: BlockSize,
    /// How many of the leading sort columns are stored by themselves, as levels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub abstraction: Abstraction,
    /// By what rows are divided into blocks. A block's own design does not say it: which partition a block holds is
    /// known to the catalog alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_by: Option<PartitionDesign>,
    /// Indexes, by `CREATE INDEX`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDesign>,
}

fn is_default(abstraction: &Abstraction) -> bool {
    *abstraction == Abstraction::default()
}

/// The arrangement of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Slotted pages of whole rows.
    Row,
    /// Super tuples: dense, bit-aligned whole rows.
    PackedRow,
    /// Every column by itself.
    #[default]
    Column,
    /// A partition of the columns: packed rows for each group of several, a column chunk for each single one.
    Groups(Vec<Vec<ColumnIndex>>),
}

/// How one group of columns is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupKind {
    /// Slotted pages: the standard row store.
    SlottedRows = 1,
    /// Packed pages: super tuples.
    PackedRows = 2,
    /// One encoded column.
    Column = 3,
}

impl GroupKind {
    /// The kind of a stored code, or `None` for a code that this version does not know.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::SlottedRows, Self::PackedRows, Self::Column].into_iter().find(|kind| *kind as u8 == code)
    }

    /// The name shown in system tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlottedRows => "slotted_rows",
            Self::PackedRows => "packed_rows",
            Self::Column => "column",
        }
    }
}

/// Columns that are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The format.
    pub kind: GroupKind,
    /// Its columns, in stored order.
    pub columns: Vec<ColumnIndex>,
}

/// A column of a sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortColumn {
    /// The column.
    pub column: ColumnIndex,
    /// Whether greater values come first.
    pub descending: bool,
    /// Whether nulls come before all values. As in PostgreSQL, they count as greater than any value where the
    /// declaration does not say: last ascending, first descending.
    pub nulls_first: bool,
}

/// Whether encodings are chosen by the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// The smallest encoding that pays, per column and segment.
    #[default]
    Auto,
    /// Plain values throughout.
    None,
}

/// A technique for the values of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Encoding {
    /// Values as they are, side by side.
    Plain = 1,
    /// Numbers from zero in as few bits as the greatest needs.
    BitPacked = 2,
    /// Distances from the least number, bit-packed.
    FrameOfReference = 3,
    /// Sorted distinct values once, and a code per row.
    Dictionary = 4,
    /// A value and an end per run of equal values.
    RunLength = 5,
    /// Text and bytes by a table of frequent short strings.
    Fsst = 6,
    /// One value for all rows.
    Constant = 7,
    /// Differences of neighbouring numbers, bit-packed.
    Delta = 8,
    /// For each run of equal numbers its length and the difference from the run before, in one packed word.
    RunLengthDelta = 9,
    /// Strictly ascending numbers as the bits that are set in a bitmap.
    Bitmap = 10,
    /// Distances from the least number, two bytes each.
    TwoByteDelta = 11,
    /// Distances from a low number in as few bits as most need, and the others as they are.
    Patched = 12,
    /// Text and bytes by what each shares with the value before.
    FrontCoded = 13,
    /// Floating point as decimal integers, bit-packed, and what is none as it is.
    Alp = 14,
}

impl Encoding {
    /// All encodings.
    pub const ALL: [Self; 14] = [
        Self::Plain,
        Self::BitPacked,
        Self::FrameOfReference,
        Self::Dictionary,
        Self::RunLength,
        Self::Fsst,
        Self::Constant,
        Self::Delta,
        Self::RunLengthDelta,
        Self::Bitmap,
        Self::TwoByteDelta,
        Self::Patched,
        Self::FrontCoded,
        Self::Alp,
    ];

    /// The name in `encoding='column=name'` and in system tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::BitPacked => "bit_packed",
            Self::FrameOfReference => "frame_of_reference",
            Self::Dictionary => "dictionary",
            Self::RunLength => "run_length",
            Self::Fsst => "fsst",
            Self::Constant => "constant",
            Self::Delta => "delta",
            Self::RunLengthDelta => "run_length_delta",
            Self::Bitmap => "bitmap",
            Self::TwoByteDelta => "two_byte_delta",
            Self::Patched => "patched",
            Self::FrontCoded => "front_coded",
            Self::Alp => "alp",
        }
    }

    /// The encoding of a stored code, or `None` for a code that this version does not know.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| *encoding as u8 == code)
    }

    /// Whether a design may force this encoding on a column of this type in this kind of group.
    ///
    /// Packed rows are made of fields of a fixed number of bits, and slotted rows of plain values, which leaves them
    /// fewer.
    pub fn is_allowed(self, logical_type: LogicalType, kind: GroupKind) -> bool {
        let fits_type = match self {
            Self::Plain | Self::Dictionary | Self::RunLength | Self::Constant => true,
            Self::BitPacked | Self::FrameOfReference | Self::Patched => !logical_type.is_bytes(),
            Self::Fsst | Self::FrontCoded => logical_type.is_bytes(),
            Self::Delta | Self::RunLengthDelta | Self::Bitmap | Self::TwoByteDelta => !logical_type.is_bytes(),
            Self::Alp => matches!(logical_type, LogicalType::Real | LogicalType::Double),
        };
        let fits_group = match kind {
            GroupKind::Column => true,
            GroupKind::PackedRows => {
                matches!(self, Self::Plain | Self::BitPacked | Self::FrameOfReference | Self::Dictionary | Self::Fsst)
            }
            GroupKind::SlottedRows => matches!(self, Self::Plain),
        };
        fits_type && fits_group
    }
}

/// When a block is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSize {
    /// At [`BLOCK_BYTES_DEFAULT`] of plain values, but not before it holds a whole segment, so that the columns of a wide
    /// table come in chunks as long as those of a narrow one.
    #[default]
    Auto,
    /// At about this many bytes of plain values, at least [`BLOCK_BYTES_MIN`].
    Bytes(u64),
    /// Never: one block per load and partition, of the table or else of the rows that come in.
    File,
}

/// Why options make no design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesignError {
    /// An option that does not exist.
    #[error("unknown table option {name:?}; allowed are {}", TableDesign::OPTIONS.join(", "))]
    UnknownOption {
        /// Its name.
        name: String,
    },
    /// A value that an option does not take.
    #[error("table option {option}: {found:?} is not allowed; allowed is {allowed}")]
    Value {
        /// The option.
        option: &'static str,
        /// The value, or the part of it that is wrong.
        found: String,
        /// What the option takes.
        allowed: String,
    },
    /// A column that the table does not have.
    #[error("table option {option}: the table has no column {column:?}; it has {columns}")]
    UnknownColumn {
        /// The option.
        option: &'static str,
        /// The name given.
        column: String,
        /// The names there are.
        columns: String,
    },
    /// A column named twice.
    #[error("table option {option}: column {column:?} is named twice")]
    DuplicateColumn {
        /// The option.
        option: &'static str,
        /// The column.
        column: String,
    },
    /// Option `groups` without layout `groups`, or the other way around.
    #[error("layout 'groups' and option groups='(a,b),(c)' go together: {missing}")]
    GroupsWithoutLayout {
        /// What is missing.
        missing: &'static str,
    },
    /// The columns of `groups` are no partition of the table's columns.
    #[error("table option groups: column {column:?} is in no group; every column must be in exactly one")]
    UngroupedColumn {
        /// The column left out.
        column: String,
    },
}

impl TableDesign {
    /// The groups in which the columns of a schema are stored.
    pub fn groups(&self, schema: &Schema) -> Vec<Group> {
        let all = || (0..schema.len()).map(ColumnIndex::from);
        let single = |column| Group { kind: GroupKind::Column, columns: vec![column] };
        match &self.layout {
            Layout::Row => vec![Group { kind: GroupKind::SlottedRows, columns: all().collect() }],
            Layout::PackedRow => vec![Group { kind: GroupKind::PackedRows, columns: all().collect() }],
            Layout::Column => all().map(single).collect(),
            Layout::Groups(groups) => groups
                .iter()
                .map(|columns| match columns.as_slice() {
                    [column] => single(*column),
                    _ => Group { kind: GroupKind::PackedRows, columns: columns.clone() },
                })
                .collect(),
        }
    }

    pub(crate) fn check_encodings(&self, schema: &Schema) -> Result<(), DesignError> {
        if self.encodings.is_empty() {
            return Ok(());
        }
        for group in self.groups(schema) {
            for column in group.columns {
                let Some(encoding) = self.encodings.get(&column) else { continue };
                let definition = schema.column(column);
                // A level is stored as a column by itself is.
                let kind = if self.is_forced_level(column) { GroupKind::Column } else { group.kind };
                if !encoding.is_allowed(definition.logical_type, kind) {
                    let is_allowed = |other: &Encoding| other.is_allowed(definition.logical_type, kind);
                    let allowed: Vec<_> = Encoding::ALL.into_iter().filter(is_allowed).map(Encoding::name).collect();
                    return Err(DesignError::Value {
                        option: "encoding",
                        found: format!("{}={}", definition.name, encoding.name()),
                        allowed: format!(
                            "{} for a {} column in {}",
                            allowed.join(", "),
                            definition.logical_type,
                            kind.name()
                        ),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Layout {
    /// The name in `layout='...'`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::PackedRow => "packed_row",
            Self::Column => "column",
            Self::Groups(_) => "groups",
        }
    }
}
