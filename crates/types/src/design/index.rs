//! Indexes that blocks carry beside their rows.

use serde::{Deserialize, Serialize};

use crate::ColumnIndex;

/// An index of a table: each of its blocks has one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDesign {
    /// Its name in SQL.
    pub name: String,
    /// The structure.
    pub kind: IndexKind,
    /// The columns whose values lead to rows, the first one first.
    pub columns: Vec<ColumnIndex>,
}

/// The structure of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum IndexKind {
    /// A cache-sensitive B+-tree: ranges and single values of one column, or of two.
    #[serde(rename = "csb")]
    CsbTree = 1,
    /// A Bloom filter: single values of one column that do not occur.
    Bloom = 2,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::CsbTree, Self::Bloom];

    /// The name in `CREATE INDEX ... USING` and in system tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::CsbTree => "csb",
            Self::Bloom => "bloom",
        }
    }

    /// The most columns that an index of this kind can have.
    pub fn columns_max(self) -> usize {
        match self {
            Self::CsbTree => 2,
            Self::Bloom => 1,
        }
    }

    /// The kind of a stored code, or `None` for a code that this version does not know.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}
