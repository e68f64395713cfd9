//! Partitions of a table: option `partition_by`.

use serde::{Deserialize, Serialize};

use crate::ColumnIndex;

/// Maximum number of partitions of a table. A load buffers rows by partition, at most 256 MiB in all. At that limit, it
/// writes the block of the fullest partition before the block is full. With 1,024 partitions, this block has at least
/// about 256 KiB. With twice as many, it could be as small as [`crate::BLOCK_BYTES_MIN`].
pub const PARTITIONS_MAX: u32 = 1024;

/// How rows are divided into partitions by one column. Each block holds rows of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionDesign {
    /// How a value determines its partition.
    pub method: PartitionMethod,
    /// The column that divides the rows.
    pub column: ColumnIndex,
    /// Number of partitions for values, 1..=[`PARTITIONS_MAX`]. Nulls are in one more partition.
    pub count: u32,
}

/// How a value determines its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionMethod {
    /// By boundaries. The data determines them, so that partitions have about equally many rows.
    Range,
    /// By a hash of the value.
    Hash,
}

impl PartitionMethod {
    /// Name in `partition_by='name(column, count)'`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Hash => "hash",
        }
    }
}
