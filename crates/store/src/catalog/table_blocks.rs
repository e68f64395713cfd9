//! Changes to the blocks of one table: their order in runs, their partitions, and the statistics of columns.

use std::collections::BTreeSet;
use std::sync::Arc;

use taut_types::{ColumnIndex, Partitioning, Schema, TableDesign};

use super::change::OldRows;
use super::edit::RowOrder;
use super::{BlockId, Table, TablePartitions};
use crate::delta::ContainerId;
use crate::error::CommitError;
use crate::{BlockFile, NewBlock};

/// Adds the blocks of a load.
pub(super) fn append_blocks(table: &mut Table, blocks: &[NewBlock]) -> Result<(), CommitError> {
    check_columns(table, blocks)?;
    let partitions = assign_partitions(table, blocks);
    let (mut all, mut runs) = (table.blocks.as_ref().clone(), table.runs.as_ref().clone());
    for (index, block) in blocks.iter().enumerate() {
        all.push(Arc::clone(&block.file));
        Arc::make_mut(&mut table.statistics).iter_mut().zip(&block.statistics).for_each(|(all, new)| all.merge(new));
        if index == 0 || !continues_run(table, &partitions[index - 1], &partitions[index]) {
            runs.push(all.len() - 1);
        }
    }
    (table.blocks, table.runs) = (Arc::new(all), Arc::new(runs));
    if let Some(partitions_of_table) = &mut table.partitions {
        Arc::make_mut(partitions_of_table).of_blocks.extend(partitions.iter().map(|of_block| of_block.partition));
    }
    Ok(())
}

/// Replaces old rows by new blocks. Returns the blocks that held the old rows.
pub(super) fn replace_rows(
    table: &mut Table,
    old: &OldRows,
    new: &[NewBlock],
    order: RowOrder,
) -> Result<Vec<Arc<BlockFile>>, CommitError> {
    check_columns(table, new)?;
    let old_blocks: BTreeSet<BlockId> = old.blocks.iter().copied().collect();
    let present: BTreeSet<BlockId> = table.blocks.iter().map(|block| block.id()).collect();
    if let Some(block) = old_blocks.difference(&present).next() {
        return Err(CommitError::NoBlock { table: table.name.clone(), block: *block });
    }
    let is_old = |block: &Arc<BlockFile>| old_blocks.contains(&block.id());
    let are_neighbours = table.runs().filter(|run| run.iter().any(is_old)).count() == 1
        && table.blocks.split(|block| !is_old(block)).filter(|part| !part.is_empty()).count() == 1;
    if order != RowOrder::Sorted && !(are_neighbours && old.pages.is_empty()) {
        return Err(CommitError::NotOneRun { table: table.name.clone() });
    }
    let removed: Vec<_> = table.blocks.iter().filter(|block| is_old(block)).map(Arc::clone).collect();
    if order == RowOrder::SamePositions {
        move_deletions(table, &removed, new)?;
    } else {
        remove_old_rows(table, old, &removed, new)?;
    }
    let partitions = assign_partitions(table, new);
    let new: Vec<_> = new.iter().map(|block| Arc::clone(&block.file)).zip(partitions).collect();
    match removed.is_empty() {
        true => {
            let first = table.blocks.len();
            let (mut all, mut runs) = (table.blocks.as_ref().clone(), table.runs.as_ref().clone());
            for (index, (block, of_block)) in new.iter().enumerate() {
                if index == 0 || !continues_run(table, &new[index - 1].1, of_block) {
                    runs.push(first + index);
                }
                all.push(Arc::clone(block));
            }
            (table.blocks, table.runs) = (Arc::new(all), Arc::new(runs));
            if let Some(partitions_of_table) = &mut table.partitions {
                Arc::make_mut(partitions_of_table).of_blocks.extend(new.iter().map(|(_, of_block)| of_block.partition));
            }
        }
        false => splice(table, &old_blocks, &new, order),
    }
    Ok(removed)
}

/// Moves the deletions of old blocks to new ones that have the same rows at the same positions.
fn move_deletions(table: &mut Table, old: &[Arc<BlockFile>], new: &[NewBlock]) -> Result<(), CommitError> {
    let rows = |entry: &crate::BlockEntry| (entry.rows, entry.segments);
    let is_same = old.iter().map(|block| rows(block.entry())).eq(new.iter().map(|block| rows(block.entry())));
    if !is_same {
        let (expected, found) =
            (total_rows(old.iter().map(|block| block.entry())), total_rows(new.iter().map(NewBlock::entry)));
        return Err(CommitError::RowsDiffer { table: table.name.clone(), expected, found });
    }
    for (old, new) in old.iter().zip(new) {
        let (Some(old), new) = (ContainerId::of(old.id()), ContainerId::of(new.file.id())) else { continue };
        let Some(deleted) = table.delta.deleted(old).cloned() else { continue };
        let new = new.ok_or_else(|| CommitError::RowsChanged { table: table.name.clone() })?;
        table.delta.forget_block(old);
        deleted.segments().for_each(|(segment, rows)| table.delta.delete(new, segment, rows));
    }
    Ok(())
}

/// Removes old blocks and pages from the delta and the statistics. The new blocks must have as many rows as the old
/// ones have live rows.
fn remove_old_rows(
    table: &mut Table,
    old: &OldRows,
    removed: &[Arc<BlockFile>],
    new: &[NewBlock],
) -> Result<(), CommitError> {
    let changed = || CommitError::RowsChanged { table: table.name.clone() };
    let blocks: Vec<ContainerId> = removed.iter().filter_map(|block| ContainerId::of(block.id())).collect();
    let mut expected: u64 = total_rows(removed.iter().map(|block| block.entry()));
    for (page, rows) in &old.pages {
        let found = table.delta.page(*page).ok_or_else(changed)?;
        if found.rows() != *rows as usize {
            return Err(changed());
        }
        expected += u64::from(*rows);
    }
    let deleted: u64 =
        old.containers().filter_map(|container| table.delta.deleted(container)).map(|rows| rows.count()).sum();
    let found = total_rows(new.iter().map(NewBlock::entry));
    // The log does not record how many of the deleted rows the new blocks omit. In a replay, this count is the
    // difference between the rows of the old and of the new blocks.
    let omitted = old.omitted_rows().unwrap_or(expected.saturating_sub(found).min(deleted));
    expected = expected.saturating_sub(omitted);
    let differ = |found| Err(CommitError::RowsDiffer { table: table.name.clone(), expected, found });
    if expected != found {
        return differ(found);
    }
    if let Some(moved) = old.relocated_rows()
        && moved != found
    {
        return differ(moved);
    }
    if omitted > 0 || !old.pages.is_empty() {
        if old.nulls.len() != table.schema.len() {
            return Err(columns_error(&table.name, &table.schema, "counts of nulls".to_owned()));
        }
        let before = total_rows(removed.iter().map(|block| block.entry()));
        for (column, statistics) in Arc::make_mut(&mut table.statistics).iter_mut().enumerate() {
            new.iter().for_each(|block| statistics.merge(&block.statistics[column]));
            statistics.rows -= before;
            statistics.nulls = statistics.nulls.saturating_sub(old.nulls[column]);
            // The minimum or maximum may be among the omitted rows.
            statistics.exact &= omitted == 0;
        }
    }
    blocks.into_iter().for_each(|block| table.delta.forget_block(block));
    table.delta.remove_pages(|page| old.pages.iter().any(|(old, _)| *old == page));
    Ok(())
}

fn total_rows<'a>(blocks: impl Iterator<Item = &'a crate::BlockEntry>) -> u64 {
    blocks.map(|block| block.rows).sum()
}

pub(super) fn columns_error(table: &str, schema: &Schema, what: String) -> CommitError {
    CommitError::ColumnsDiffer { table: table.to_owned(), what, expected: schema.len() }
}

fn check_columns(table: &Table, blocks: &[NewBlock]) -> Result<(), CommitError> {
    let has_columns_of_table = |block: &NewBlock| {
        block.statistics.len() == table.schema.len()
            && block.file.columns().is_none_or(|map| map.check(&table.schema).is_ok())
            && block.statistics.iter().all(|column| column.rows == block.entry().rows)
    };
    match blocks.iter().find(|block| !has_columns_of_table(block)) {
        Some(block) => Err(columns_error(&table.name, &table.schema, format!("block {}", block.entry().id))),
        None => Ok(()),
    }
}

/// Sets whether a column may hold nulls. Existing blocks keep the nullability with which they were written.
pub(super) fn set_nullable(table: &mut Table, column: ColumnIndex, nullable: bool) -> Result<(), CommitError> {
    let differ = |what: String| columns_error(&table.name, &table.schema, what);
    let mut columns = table.schema.columns().to_vec();
    let changed = columns.get_mut(column.index()).ok_or_else(|| differ(format!("column {}", column.0)))?;
    changed.nullable = nullable;
    let schema = Schema::new(columns).map_err(|error| differ(error.to_string()))?;
    if !nullable && !table.delta.is_empty() {
        return Err(CommitError::MayHoldNulls { table: table.name.clone() });
    }
    let expected = table.constraints.check_against_schema(&schema);
    expected.map_err(|expected| CommitError::Constraints { table: table.name.clone(), expected })?;
    table.schema = Arc::new(schema);
    Ok(())
}

/// The partitions of a design that needs no boundaries, with all blocks unpartitioned.
pub(super) fn partitions_of(design: &TableDesign, blocks: usize) -> Option<Arc<TablePartitions>> {
    let partitioning = Partitioning::without_boundaries(design.partition_by?)?;
    Some(Arc::new(TablePartitions { partitioning, of_blocks: vec![None; blocks] }))
}

pub(super) fn matches_design(partitioning: &Partitioning, table: &Table) -> bool {
    let design = partitioning.design();
    table.design.partition_by == Some(design)
        && partitioning.check(table.schema.column(design.column).logical_type).is_ok()
}

/// The partition of a block.
#[derive(Clone, Debug, Default)]
struct BlockPartition {
    /// The partition of all its rows.
    partition: Option<u32>,
    /// The partition for which the block was written, possibly of a partitioning that the table no longer has.
    written_for: Option<u32>,
}

/// The partition of each block. A table with range partitions that has no boundaries yet takes the boundaries of the
/// first block that has some.
fn assign_partitions(table: &mut Table, blocks: &[NewBlock]) -> Vec<BlockPartition> {
    if table.partitions.is_none() {
        let mut written_partitions = blocks.iter().filter_map(|block| block.partition.as_ref());
        if let Some((partitioning, _)) =
            written_partitions.find(|(partitioning, _)| matches_design(partitioning, table))
        {
            let of_blocks = vec![None; table.blocks.len()];
            let partitioning = partitioning.as_ref().clone();
            table.partitions = Some(Arc::new(TablePartitions { partitioning, of_blocks }));
        }
    }
    let table_partitioning = table.partitions.as_ref().map(|partitions| &partitions.partitioning);
    let of_block = |block: &NewBlock| {
        let written = block.partition.as_ref();
        let valid = written.filter(|(partitioning, number)| {
            Some(partitioning.as_ref()) == table_partitioning && *number <= partitioning.null_partition()
        });
        BlockPartition { partition: valid.map(|(_, number)| *number), written_for: written.map(|(_, number)| *number) }
    };
    blocks.iter().map(of_block).collect()
}

/// Whether a block continues the run of the one before it. It does if both were written for the same partition, or both
/// for none. Assumes that the rows of each partition were written in order.
fn continues_run(table: &Table, before: &BlockPartition, next: &BlockPartition) -> bool {
    match (&table.partitions, before.partition, next.partition) {
        _ if before.written_for == next.written_for => true,
        (Some(partitions), Some(before), Some(next)) => {
            let (partitioning, sort_by) = (&partitions.partitioning, &table.design.sort_by);
            partitioning.follows_sort_order(sort_by)
                && partitioning.load_position(before, sort_by) < partitioning.load_position(next, sort_by)
        }
        _ => false,
    }
}

/// Replaces `old` by `new`. Internally, the existing sort runs are numbered from 1, and new blocks that form a separate
/// run have number 0. A run begins where the number changes, or where a partition begins that does not follow the sort
/// order.
fn splice(table: &mut Table, old: &BTreeSet<BlockId>, new: &[(Arc<BlockFile>, BlockPartition)], order: RowOrder) {
    const OWN_RUN: usize = 0;
    let mut blocks: Vec<(usize, BlockPartition, Arc<BlockFile>)> = Vec::new();
    let mut is_inserted = false;
    for (index, block) in table.blocks.iter().enumerate() {
        let run = table.runs.partition_point(|start| *start <= index);
        if !old.contains(&block.id()) {
            let partition = table.partition_of(index);
            blocks.push((run, BlockPartition { partition, written_for: partition }, Arc::clone(block)));
        } else if !is_inserted {
            is_inserted = true;
            let run = if order == RowOrder::SameOrder { run } else { OWN_RUN };
            blocks.extend(new.iter().map(|(block, of_block)| (run, of_block.clone(), Arc::clone(block))));
        }
    }
    let begins_run = |index: &usize| {
        let Some(before) = index.checked_sub(1).map(|before| &blocks[before]) else { return true };
        before.0 != blocks[*index].0 || !continues_run(table, &before.1, &blocks[*index].1)
    };
    table.runs = Arc::new((0..blocks.len()).filter(begins_run).collect());
    if let Some(partitions) = &mut table.partitions {
        Arc::make_mut(partitions).of_blocks = blocks.iter().map(|(_, of_block, _)| of_block.partition).collect();
    }
    table.blocks = Arc::new(blocks.into_iter().map(|(.., block)| block).collect());
}
