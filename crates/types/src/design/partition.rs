//! How a table's rows are divided into partitions: what option `partition_by` says.

use serde::{Deserialize, Serialize};

use crate::ColumnIndex;

/// Partitions of a table at most. A load holds at most 256 MiB of rows that wait for their partitions' blocks to fill, and
/// then writes the fullest partition's: with more partitions than this such a block could be about as small as
/// [`crate::BLOCK_BYTES_MIN`].
pub const PARTITIONS_MAX: u32 = 1024;

/// A column by which rows are divided, and how. Each block holds rows of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionDesign {
    /// How a value leads to its partition.
    pub method: PartitionMethod,
    /// The column.
    pub column: ColumnIndex,
    /// Partitions that values are divided into, 1..=[`PARTITIONS_MAX`]. Nulls have one more.
    pub count: u32,
}

/// How a value leads to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionMethod {
    /// By boundaries, which are chosen from the data so that partitions have about as many rows each.
    Range,
    /// By a hash of the value.
    Hash,
}

impl PartitionMethod {
    /// The name in `partition_by='name(column, count)'`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Hash => "hash",
        }
    }
}
