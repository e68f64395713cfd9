//! The changes of a commit as data. They are applied to a catalog and written to the log.

use std::sync::Arc;

use arrow_array::RecordBatch;
use roaring::RoaringBitmap;
use taut_types::{Column, ColumnIndex, Datum, LogicalType, Partitioning, Schema, TableDesign};

use super::{BlockId, CommentTarget, Constraints, Function, RowOrder, Sequence, SequenceId, Table, TableId, View};
use crate::NewBlock;
use crate::delta::{ContainerId, DeletedRows, RowSet};
use crate::error::CommitError;
use crate::relocations::RowRelocations;

/// One change of a catalog.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    CreateSchema {
        name: String,
    },
    DropSchema {
        name: String,
    },
    CreateTable {
        table: TableId,
        name: String,
        schema: Arc<Schema>,
        design: Arc<TableDesign>,
    },
    DropTable {
        table: TableId,
    },
    RenameTable {
        table: TableId,
        name: String,
    },
    Truncate {
        table: TableId,
    },
    AppendBlocks {
        table: TableId,
        blocks: Vec<NewBlock>,
    },
    ReplaceRows {
        table: TableId,
        old: OldRows,
        new: Vec<NewBlock>,
        order: RowOrder,
    },
    SetDesign {
        table: TableId,
        design: Arc<TableDesign>,
    },
    SetPartitioning {
        table: TableId,
        partitioning: Arc<Partitioning>,
    },
    SetConstraints {
        table: TableId,
        constraints: Arc<Constraints>,
    },
    SetNullable {
        table: TableId,
        column: ColumnIndex,
        nullable: bool,
    },
    AddColumn {
        table: TableId,
        column: Column,
        value: Option<Datum>,
    },
    DropColumn {
        table: TableId,
        column: ColumnIndex,
    },
    RenameColumn {
        table: TableId,
        column: ColumnIndex,
        name: String,
    },
    SetType {
        table: TableId,
        column: ColumnIndex,
        logical_type: LogicalType,
    },
    CreateView {
        view: View,
        replaces: bool,
    },
    DropView {
        name: String,
    },
    CreateFunction {
        function: Function,
        replaces: bool,
    },
    DropFunction {
        name: String,
    },
    CreateSequence {
        sequence: Sequence,
    },
    DropSequence {
        sequence: SequenceId,
    },
    /// Replaces the definition of a sequence. The last number stays, unless `restarts`.
    AlterSequence {
        sequence: Sequence,
        restarts: bool,
    },
    AdvanceSequence {
        sequence: SequenceId,
        last: i64,
        is_called: bool,
    },
    /// `None` removes the comment.
    SetComment {
        on: CommentTarget,
        comment: Option<String>,
    },
    InsertRows {
        table: TableId,
        page: ContainerId,
        first: u32,
        rows: RecordBatch,
    },
    DeleteRows {
        table: TableId,
        container: ContainerId,
        segment: u16,
        rows: RoaringBitmap,
    },
}

impl Change {
    /// The table that the change affects, if any.
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
            | Self::AddColumn { table, .. }
            | Self::DropColumn { table, .. }
            | Self::RenameColumn { table, .. }
            | Self::SetType { table, .. }
            | Self::InsertRows { table, .. }
            | Self::DeleteRows { table, .. } => Some(*table),
            Self::SetComment { on, .. } => on.table(),
            Self::CreateSchema { .. }
            | Self::DropSchema { .. }
            | Self::CreateView { .. }
            | Self::DropView { .. }
            | Self::CreateFunction { .. }
            | Self::DropFunction { .. }
            | Self::CreateSequence { .. }
            | Self::DropSequence { .. }
            | Self::AlterSequence { .. }
            | Self::AdvanceSequence { .. } => None,
        }
    }

    /// Whether the change only inserts rows into the delta, deletes rows or advances a sequence. Definitions then stay
    /// the same.
    pub fn changes_only_rows(&self) -> bool {
        matches!(self, Self::InsertRows { .. } | Self::DeleteRows { .. } | Self::AdvanceSequence { .. })
    }
}

/// Blocks and pages to be replaced by new blocks.
#[derive(Clone, Debug, Default)]
pub struct OldRows {
    /// Blocks to replace.
    pub blocks: Vec<BlockId>,
    /// Delta pages to replace, each with its row count.
    pub pages: Vec<(ContainerId, u32)>,
    /// Number of nulls in the blocks for each column, deleted rows included. Empty if no page is replaced and no block
    /// has deleted rows.
    pub nulls: Vec<u64>,
    /// The deleted rows that the new blocks omit. `None` in a change from the log, which was checked before.
    pub omitted: Option<Vec<(ContainerId, Arc<DeletedRows>)>>,
    /// Relocations of the rows that the new blocks contain. If given, other transactions may delete and lock these rows
    /// until the commit. Their locks and deletions are then carried over to the new row ids.
    pub relocations: Option<Arc<RowRelocations>>,
}

impl OldRows {
    /// All rows of blocks without deleted rows.
    pub fn of_blocks(blocks: &[BlockId]) -> Self {
        Self { blocks: blocks.to_vec(), omitted: Some(Vec::new()), ..Self::default() }
    }

    /// The ids of the blocks and pages.
    pub(crate) fn containers(&self) -> impl Iterator<Item = ContainerId> {
        let blocks = self.blocks.iter().filter_map(|block| ContainerId::of(*block));
        blocks.chain(self.pages.iter().map(|(page, _)| *page))
    }

    /// Number of omitted rows. `None` in a change from the log.
    pub(crate) fn omitted_rows(&self) -> Option<u64> {
        let omitted = self.omitted.as_ref()?;
        Some(self.containers().filter_map(|container| deleted_in(omitted, container)).map(|rows| rows.count()).sum())
    }

    /// Number of relocated rows that are not omitted. `None` if the relocations are not known.
    pub(crate) fn relocated_rows(&self) -> Option<u64> {
        let relocations = self.relocations.as_ref()?;
        let omitted = self.omitted.iter().flatten();
        let relocated = omitted.flat_map(|(container, rows)| {
            let rows = rows.segments();
            rows.filter_map(|(segment, rows)| Some(relocations.new_row_ids(*container, segment, rows)?.len()))
        });
        Some(relocations.rows().saturating_sub(relocated.sum()))
    }

    /// New row ids of the deleted rows of a table that are not in `omitted`. They were deleted after the rows of the
    /// new blocks had been read, so the new blocks contain them.
    ///
    /// # Errors
    /// If there are such rows and their relocations are not known.
    pub(crate) fn later_deletions(&self, table: &Table) -> Result<RowSet, CommitError> {
        let changed = || CommitError::RowsChanged { table: table.name.clone() };
        let mut later = RowSet::default();
        let Some(all_omitted) = &self.omitted else { return Ok(later) };
        for container in self.containers() {
            let deleted = table.delta.deleted(container);
            let omitted = deleted_in(all_omitted, container);
            if omitted == deleted {
                continue;
            }
            let (relocations, deleted) = (self.relocations.as_ref().ok_or_else(changed)?, deleted.ok_or_else(changed)?);
            if omitted.is_some_and(|omitted| !deleted.contains_all(omitted)) {
                return Err(changed());
            }
            for (segment, rows) in deleted.segments() {
                let omitted = omitted.and_then(|omitted| omitted.segment(usize::from(segment)));
                let rows = omitted.map_or_else(|| rows.as_ref().clone(), |omitted| rows.as_ref() - omitted.as_ref());
                let new_ids = relocations.new_row_ids(container, segment, &rows).unwrap_or_default();
                if new_ids.len() != rows.len() {
                    return Err(changed());
                }
                later.extend(&new_ids);
            }
        }
        Ok(later)
    }
}

/// The deleted rows of a container in `omitted`.
fn deleted_in(omitted: &[(ContainerId, Arc<DeletedRows>)], container: ContainerId) -> Option<&Arc<DeletedRows>> {
    omitted.iter().find(|(id, _)| *id == container).map(|(_, rows)| rows)
}
