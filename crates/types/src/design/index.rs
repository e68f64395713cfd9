//! Indexes in blocks, stored beside the rows.

use serde::{Deserialize, Serialize};

use crate::ColumnIndex;

/// Index of a table. Each block has its own index structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDesign {
    /// Name of the index in SQL.
    pub name: String,
    /// Structure of the index.
    pub kind: IndexKind,
    /// Indexed columns, in order.
    pub columns: Vec<ColumnIndex>,
}

/// The structure of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum IndexKind {
    /// Cache-sensitive B+-tree (CSB+-tree): finds ranges and single values of one or two columns.
    #[serde(rename = "csb")]
    CsbTree = 1,
    /// Bloom filter: excludes single values of one column that do not occur.
    Bloom = 2,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::CsbTree, Self::Bloom];

    /// Name in `CREATE INDEX ... USING` and in system tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::CsbTree => "csb",
            Self::Bloom => "bloom",
        }
    }

    /// Maximum number of columns by which an index of this kind is searched.
    pub fn columns_max(self) -> usize {
        match self {
            Self::CsbTree => 2,
            Self::Bloom => 1,
        }
    }

    /// Kind of a stored code, or `None` for a code that this version does not know.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}
