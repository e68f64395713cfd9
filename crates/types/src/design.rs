//! Design of a table: layout, sort order, encodings, partitions and indexes of its blocks, as plain data.
//!
//! SQL declares it in `WITH (...)`, which `options` parses. Storage builds blocks from it. Columns are given as
//! [`ColumnIndex`], so that lower layers never see a name that does not exist.

mod abstraction;
mod index;
mod options;
mod partition;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ColumnIndex, LogicalType, Schema};

pub use abstraction::{Abstraction, LevelColumns};
pub use index::{IndexDesign, IndexKind};
pub use options::{TableOption, quote_identifier};
pub use partition::{PARTITIONS_MAX, PartitionDesign, PartitionMethod};

/// Default bytes of plain values in a block: see [`BlockSize::Auto`].
pub const BLOCK_BYTES_DEFAULT: u64 = 16 << 20;
/// Minimum block size of a design, in bytes.
pub const BLOCK_BYTES_MIN: u64 = 128 << 10;

/// How the rows of a table are laid out in its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDesign {
    /// Arrangement of the columns.
    pub layout: Layout,
    /// Sort order of rows in blocks and across a load. If empty, rows stay in insertion order.
    pub sort_by: Vec<SortColumn>,
    /// How the encodings of columns without a forced encoding are chosen.
    pub compression: Compression,
    /// Forced encodings, which override `compression`.
    pub encodings: BTreeMap<ColumnIndex, Encoding>,
    /// Size at which a block is full.
    pub block_size: BlockSize,
    /// How many leading sort columns are abstraction levels: stored alone in the head of each piece of a row layout.
    #[serde(default, skip_serializing_if = "is_default")]
    pub abstraction: Abstraction,
    /// How rows are divided into partitions. The design in a block file omits them: only the catalog records the
    /// partition of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_by: Option<PartitionDesign>,
    /// Indexes that `CREATE INDEX` has added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDesign>,
}

fn is_default(abstraction: &Abstraction) -> bool {
    *abstraction == Abstraction::default()
}

/// Arrangement of the columns of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Whole rows in slotted pages.
    Row,
    /// Whole rows as packed rows: dense and bit-aligned.
    PackedRow,
    /// Each column separately.
    #[default]
    Column,
    /// Column groups, each column in exactly one. A group of several columns is stored as packed rows, a single column
    /// as column chunks.
    Groups(Vec<Vec<ColumnIndex>>),
}

/// Storage format of one column group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupKind {
    /// Rows in slotted pages: the standard row store.
    SlottedRows = 1,
    /// Packed rows in pages, called super-tuples in the literature.
    PackedRows = 2,
    /// One encoded column.
    Column = 3,
}

impl GroupKind {
    /// Kind with a stored code. Returns `None` for a code that this version does not know.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::SlottedRows, Self::PackedRows, Self::Column].into_iter().find(|kind| *kind as u8 == code)
    }

    /// Name in system tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlottedRows => "slotted_rows",
            Self::PackedRows => "packed_rows",
            Self::Column => "column",
        }
    }
}

/// Column group: columns that are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Storage format of the group.
    pub kind: GroupKind,
    /// Columns of the group, in stored order.
    pub columns: Vec<ColumnIndex>,
}

/// One column of a sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortColumn {
    /// The column.
    pub column: ColumnIndex,
    /// Whether greater values come first.
    pub descending: bool,
    /// Whether nulls come before all values. By default nulls are greater than any value, as in PostgreSQL: last if
    /// ascending, first if descending.
    pub nulls_first: bool,
}

/// How encodings are chosen for columns without a forced encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// The encoding is chosen per column and segment, by size and cost of decoding.
    #[default]
    Auto,
    /// Plain values everywhere.
    None,
}

/// Encoding of the values of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Encoding {
    /// Values unchanged, one after the other.
    Plain = 1,
    /// Numbers from zero up, each in as many bits as the greatest needs.
    BitPacked = 2,
    /// Differences from the least number, bit-packed.
    FrameOfReference = 3,
    /// The distinct values once, sorted, and a code per row.
    Dictionary = 4,
    /// One value and one end per run of equal values.
    RunLength = 5,
    /// Text and bytes, compressed with a table of frequent short strings.
    Fsst = 6,
    /// One value for all rows.
    Constant = 7,
    /// Differences of adjacent numbers, bit-packed.
    Delta = 8,
    /// One packed word per run of equal numbers: its length, and the difference from the run before.
    RunLengthDelta = 9,
    /// Strictly ascending numbers as set bits of a bitmap.
    Bitmap = 10,
    /// Differences from the least number, two bytes each.
    TwoByteDelta = 11,
    /// Differences from a low number, each in as many bits as most need. Exceptions are stored separately.
    Patched = 12,
    /// Text and bytes, each without the prefix that it shares with the value before.
    FrontCoded = 13,
    /// Floating point as decimal integers, bit-packed. Exceptions are stored unchanged.
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

    /// Name in `encoding='column=name'` and in system tables.
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

    /// What the encoding stores, one sentence of Markdown without links.
    pub fn description(self) -> &'static str {
        match self {
            Self::Plain => "Unchanged values, little-endian; texts with offsets.",
            Self::BitPacked => "Numbers in as many bits as the largest needs.",
            Self::FrameOfReference => "The minimum once, and bit-packed differences to it.",
            Self::Dictionary => "Each distinct value once, sorted, and bit-packed codes.",
            Self::RunLength => "Each run of equal values once, with its length.",
            Self::Fsst => "Texts with frequent parts of up to 8 bytes replaced by one-byte symbols.",
            Self::Constant => "One value for all rows.",
            Self::Delta => "Bit-packed differences of neighbours, with exceptions for rare large ones.",
            Self::RunLengthDelta => {
                "Runs of equal numbers, each as its length and the difference from the previous run; for ascending sequences."
            }
            Self::Bitmap => "Strictly ascending numbers with few gaps, as set bits.",
            Self::TwoByteDelta => "Distances from the minimum in two bytes each, so that every row has a fixed offset.",
            Self::Patched => "A frame of reference for most numbers, and exceptions stored separately.",
            Self::FrontCoded => "Texts without the prefix that they share with the previous text.",
            Self::Alp => "Floating-point numbers as decimal integers, and exceptions stored separately.",
        }
    }

    /// Encoding with a stored code. Returns `None` for a code that this version does not know.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| *encoding as u8 == code)
    }

    /// Whether a design may force this encoding on a column of the given type, in a column group of the given kind.
    ///
    /// Packed rows need fields of a fixed number of bits and slotted rows need plain values, so they allow fewer
    /// encodings.
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

/// Size at which a block is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSize {
    /// At [`BLOCK_BYTES_DEFAULT`] of plain values or at a whole segment, whichever comes last. The chunks of a wide
    /// table then have as many rows as the chunks of a narrow one. A segment that reaches its maximum of bytes before
    /// its maximum of rows also ends the block.
    #[default]
    Auto,
    /// At about the given bytes of plain values, at least [`BLOCK_BYTES_MIN`].
    Bytes(u64),
    /// Never: each load writes one block per partition of the table. For a table without partitions, it writes one
    /// per partition of the plan that computes the rows.
    File,
}

/// Error: options do not form a valid design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesignError {
    /// Unknown option.
    #[error("unknown table option {name:?}; allowed are {}", TableDesign::OPTIONS.map(|option| option.name).join(", "))]
    UnknownOption {
        /// Name of the option.
        name: String,
    },
    /// Value that the option does not allow, or that does not fit the types of the columns or the other options.
    #[error("table option {option}: {found:?} is not allowed; allowed is {allowed}")]
    Value {
        /// Name of the option.
        option: &'static str,
        /// The value, or the invalid part of it.
        found: String,
        /// Values that the option allows.
        allowed: String,
    },
    /// Column that the table does not have.
    #[error("table option {option}: the table has no column {column:?}; it has {columns}")]
    UnknownColumn {
        /// Name of the option.
        option: &'static str,
        /// Name of the missing column.
        column: String,
        /// Names of the table's columns.
        columns: String,
    },
    /// Column that an option names twice.
    #[error("table option {option}: column {column:?} specified more than once")]
    DuplicateColumn {
        /// Name of the option.
        option: &'static str,
        /// Name of the column.
        column: String,
    },
    /// Option `groups` without layout `groups`, or the reverse.
    #[error("layout 'groups' and option groups='(a,b),(c)' go together: {missing}")]
    GroupsWithoutLayout {
        /// What is missing.
        missing: &'static str,
    },
    /// Column that is in no group of option `groups`.
    #[error("table option groups: column {column:?} is in no group; every column must be in exactly one")]
    UngroupedColumn {
        /// Name of the column.
        column: String,
    },
}

impl TableDesign {
    /// Column groups in which the columns of a schema are stored, as the layout declares.
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

    /// The same design for a table to which `column` is appended as the last column. In layout `groups`, the new column
    /// is alone in a group.
    #[must_use]
    pub fn with_column(&self, column: ColumnIndex) -> Self {
        let mut design = self.clone();
        if let Layout::Groups(groups) = &mut design.layout {
            groups.push(vec![column]);
        }
        design
    }

    /// The same design for a table without the column `dropped`. Returns `None` if `dropped` is a sort column, the
    /// partition column or in an index.
    pub fn without_column(&self, dropped: ColumnIndex) -> Option<Self> {
        let mut design = self.clone();
        let shift = |column: &mut ColumnIndex| column.after_drop(dropped).map(|index| *column = index);
        for sort in &mut design.sort_by {
            shift(&mut sort.column)?;
        }
        if let Some(partition_by) = &mut design.partition_by {
            shift(&mut partition_by.column)?;
        }
        for column in design.indexes.iter_mut().flat_map(|index| &mut index.columns) {
            shift(column)?;
        }
        if let Layout::Groups(groups) = &mut design.layout {
            for group in groups.iter_mut() {
                *group = group.iter().filter_map(|column| column.after_drop(dropped)).collect();
            }
            groups.retain(|group| !group.is_empty());
        }
        let encodings = self.encodings.iter();
        design.encodings =
            encodings.filter_map(|(column, encoding)| Some((column.after_drop(dropped)?, *encoding))).collect();
        Some(design)
    }

    pub(crate) fn check_encodings(&self, schema: &Schema) -> Result<(), DesignError> {
        if self.encodings.is_empty() {
            return Ok(());
        }
        for group in self.groups(schema) {
            for column in group.columns {
                let Some(encoding) = self.encodings.get(&column) else { continue };
                let definition = schema.column(column);
                // A level is stored like a separate column.
                let kind = if self.is_forced_level(column) { GroupKind::Column } else { group.kind };
                if !encoding.is_allowed(definition.logical_type, kind) {
                    let is_allowed = |other: &Encoding| other.is_allowed(definition.logical_type, kind);
                    let allowed: Vec<_> = Encoding::ALL.into_iter().filter(is_allowed).map(Encoding::name).collect();
                    return Err(DesignError::Value {
                        option: "encoding",
                        found: format!("{}={}", definition.name, encoding.name()),
                        allowed: format!(
                            "{} for columns of type {} in {}",
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
    /// Name in `layout='...'`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::PackedRow => "packed_row",
            Self::Column => "column",
            Self::Groups(_) => "groups",
        }
    }
}
