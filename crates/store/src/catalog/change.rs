//! The changes that a commit makes, as data: applied to a catalog, and kept in the log.

use std::sync::Arc;

use arrow_array::RecordBatch;
use roaring::RoaringBitmap;
use taut_types::{Partitioning, Schema, TableDesign};

use super::{BlockId, Constraints, RowOrder, TableId};
use crate::NewBlock;
use crate::delta::{DeletedRows, UnitId};

/// One change of a catalog.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    CreateTable { table: TableId, name: String, schema: Arc<Schema>, design: Arc<TableDesign> },
    DropTable { table: TableId },
    RenameTable { table: TableId, name: String },
    Truncate { table: TableId },
    AppendBlocks { table: TableId, blocks: Vec<NewBlock> },
    ReplaceRows { table: TableId, old: OldRows, new: Vec<NewBlock>, order: RowOrder },
    SetDesign { table: TableId, design: Arc<TableDesign> },
    SetPartitioning { table: TableId, partitioning: Arc<Partitioning> },
    SetConstraints { table: TableId, constraints: Arc<Constraints> },
    CreateView { name: String, sql: String },
    DropView { name: String },
    InsertRows { table: TableId, page: UnitId, first: u32, rows: RecordBatch },
    DeleteRows { table: TableId, unit: UnitId, segment: u16, rows: RoaringBitmap },
}

impl Change {
    /// The table that it changes, where there is one.
    pub fn table(&self) -> Option<TableId> {
        match self {
            Self::CreateTable { table, .. }
            | Self::DropTable { table }
            | Self::RenameTable { table, .. }
            | Self::Truncate { table }
            | Self::AppendBlocks { table, .. }
            | Self::ReplaceRows { table, .. }
            | Self::SetDesign { table, .. }
            | Self::SetPartitioning { table, .. }
            | Self::SetConstraints { table, .. }
            | Self::InsertRows { table, .. }
            | Self::DeleteRows { table, .. } => Some(*table),
            Self::CreateView { .. } | Self::DropView { .. } => None,
        }
    }
}

/// Blocks and pages whose rows others replace.
#[derive(Clone, Debug, Default)]
pub struct OldRows {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// The pages of the delta, with their rows.
    pub pages: Vec<(UnitId, u32)>,
    /// For each column the nulls of the blocks, deleted rows too; left empty where no page is replaced, and no block has
    /// deleted rows.
    pub nulls: Vec<u64>,
    /// The deleted rows that were left out. In a change from the log, that was checked once.
    pub left_out: Option<Vec<(UnitId, Arc<DeletedRows>)>>,
}

impl OldRows {
    /// Blocks without deleted rows.
    pub fn of_blocks(blocks: &[BlockId]) -> Self {
        Self { blocks: blocks.to_vec(), left_out: Some(Vec::new()), ..Self::default() }
    }
}
