//! The changes that a commit makes, as data: applied to a catalog, and kept in the log.

use std::sync::Arc;

use arrow_array::RecordBatch;
use roaring::RoaringBitmap;
use taut_types::{ColumnIndex, Partitioning, Schema, TableDesign};

use super::{BlockId, Constraints, RowOrder, Table, TableId};
use crate::NewBlock;
use crate::delta::{DeletedRows, RowSet, UnitId};
use crate::error::CommitError;
use crate::moves::Moves;

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
    SetNullable { table: TableId, column: ColumnIndex, nullable: bool },
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
            | Self::SetNullable { table, .. }
            | Self::InsertRows { table, .. }
            | Self::DeleteRows { table, .. } => Some(*table),
            Self::CreateView { .. } | Self::DropView { .. } => None,
        }
    }

    /// Whether it only inserts or deletes rows: every name then means the same as before.
    pub fn is_of_rows(&self) -> bool {
        matches!(self, Self::InsertRows { .. } | Self::DeleteRows { .. })
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
    /// Where each of the other rows goes. Where this is said, others may delete and lock these rows meanwhile: what they
    /// do happens to the new ones.
    pub moves: Option<Arc<Moves>>,
}

impl OldRows {
    /// Blocks without deleted rows.
    pub fn of_blocks(blocks: &[BlockId]) -> Self {
        Self { blocks: blocks.to_vec(), left_out: Some(Vec::new()), ..Self::default() }
    }

    /// The names of the blocks and pages.
    pub(crate) fn units(&self) -> impl Iterator<Item = UnitId> {
        let blocks = self.blocks.iter().filter_map(|block| UnitId::of(*block));
        blocks.chain(self.pages.iter().map(|(page, _)| *page))
    }

    /// How many rows were left out; `None` in a change from the log.
    pub(crate) fn left_out_rows(&self) -> Option<u64> {
        let left_out = self.left_out.as_ref()?;
        Some(self.units().filter_map(|unit| seen_of(left_out, unit)).map(|rows| rows.count()).sum())
    }

    /// How many rows went somewhere that were not left out; `None` where it is not known where they went.
    pub(crate) fn moved_rows(&self) -> Option<u64> {
        let moves = self.moves.as_ref()?;
        let left_out = self.left_out.iter().flatten();
        let strays = left_out.flat_map(|(unit, rows)| {
            let rows = rows.segments();
            rows.filter_map(|(segment, rows)| Some(moves.follow(*unit, segment, rows)?.len()))
        });
        Some(moves.rows().saturating_sub(strays.sum()))
    }

    /// The new names of the rows that were deleted in a table since those that were left out.
    ///
    /// # Errors
    /// When rows were deleted and it is not known where they go.
    pub(crate) fn deleted_since(&self, table: &Table) -> Result<RowSet, CommitError> {
        let changed = || CommitError::RowsChanged { table: table.name.clone() };
        let mut since = RowSet::default();
        let Some(left_out) = &self.left_out else { return Ok(since) };
        for unit in self.units() {
            let deleted = table.delta.deleted(unit);
            let seen = seen_of(left_out, unit);
            if seen == deleted {
                continue;
            }
            let (moves, deleted) = (self.moves.as_ref().ok_or_else(changed)?, deleted.ok_or_else(changed)?);
            if seen.is_some_and(|seen| !deleted.contains_all(seen)) {
                return Err(changed());
            }
            for (segment, rows) in deleted.segments() {
                let seen = seen.and_then(|seen| seen.segment(usize::from(segment)));
                let rows = seen.map_or_else(|| rows.as_ref().clone(), |seen| rows.as_ref() - seen.as_ref());
                let moved = moves.follow(unit, segment, &rows).unwrap_or_default();
                if moved.len() != rows.len() {
                    return Err(changed());
                }
                since.extend(&moved);
            }
        }
        Ok(since)
    }
}

fn seen_of(left_out: &[(UnitId, Arc<DeletedRows>)], unit: UnitId) -> Option<&Arc<DeletedRows>> {
    left_out.iter().find(|(seen, _)| *seen == unit).map(|(_, rows)| rows)
}
