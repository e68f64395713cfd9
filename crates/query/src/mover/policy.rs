//! Chooses the next compaction of a table.
//!
//! ```text
//! delta pages ──seal──> sort runs, blocks ──merge──> fewer, larger ones
//!                                └─clean──> the same without deleted rows
//! ```
//!
//! docs/adr/0020-the-mover.md gives the reasons for these rules.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use taut_store::{RowOrder, Table};
use taut_types::{BLOCK_BYTES_DEFAULT, BlockSize};

use super::MoverOptions;

/// Minimum number of delta rows for a separate block. A larger insert writes blocks directly.
const SEALED_ROWS_MIN: u64 = 4_096;

/// Kind of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompactionKind {
    /// Writes delta rows to blocks.
    Seal,
    /// Rewrites blocks without their deleted rows.
    Clean,
    /// Merges sort runs into one, or small blocks into large ones.
    Merge,
}

impl CompactionKind {
    /// All kinds, in order of urgency. Sealing is first, because it frees memory.
    pub const ALL: [Self; 3] = [Self::Seal, Self::Clean, Self::Merge];

    pub fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Clean => "clean",
            Self::Merge => "merge",
        }
    }
}

/// One compaction: rewrites these blocks and the first delta pages to new blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compaction {
    pub kind: CompactionKind,
    /// Indexes of blocks in the table, ascending.
    pub blocks: Vec<usize>,
    /// Number of delta pages, counted from the first page.
    pub pages: usize,
    pub order: RowOrder,
}

/// Which compactions to run on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionScope {
    /// Compactions that are necessary while the table is in use.
    Urgent,
    /// Compactions for a table that has not changed for a while.
    Idle,
    /// All compactions that would run eventually, and the sealing of all delta rows. Used by `VACUUM`.
    All,
}

/// Returns the next compaction of a kind, or `None` if none is due.
pub(crate) fn next_compaction(
    table: &Table,
    kind: CompactionKind,
    options: &MoverOptions,
    scope: CompactionScope,
) -> Option<Compaction> {
    match kind {
        CompactionKind::Seal => seal(table, options, scope),
        CompactionKind::Clean => clean(table, options, scope),
        CompactionKind::Merge => merge(table, options),
    }
}

/// Returns the compaction that merges all blocks of a sorted table into one sort run, or one per partition. Returns
/// `None` if the table is unsorted, or its blocks are already as after a load. After a load, blocks are in these sort
/// runs, are at least half full except for the last one, and have no deleted rows.
pub(crate) fn full_merge(table: &Table) -> Option<Compaction> {
    let parts: BTreeSet<Option<u32>> = (0..table.blocks.len()).map(|index| table.partition_of(index)).collect();
    // In each partition, the last block of a load may not be full.
    let small = (0..table.blocks.len()).filter(|index| is_small(table, *index)).count();
    let is_fresh = table.delta.deleted_block_rows() == 0 && table.runs.len() <= parts.len() && small <= parts.len();
    let indexes = || (0..table.blocks.len()).collect();
    let all = || Compaction { kind: CompactionKind::Merge, blocks: indexes(), pages: 0, order: RowOrder::Sorted };
    (!table.design.sort_by.is_empty() && !is_fresh).then(all)
}

fn seal(table: &Table, options: &MoverOptions, scope: CompactionScope) -> Option<Compaction> {
    let (pages, rows) = (table.delta.pages().len(), table.delta.page_rows());
    // The last page may still grow.
    let complete_pages = pages.saturating_sub(1);
    let is_large = rows > options.delta_rows || table.delta.page_bytes() > options.delta_bytes;
    // A sorted table with delta rows cannot be read in order, so even a few rows are written to blocks.
    let keeps_order = !table.design.sort_by.is_empty() && !table.blocks.is_empty();
    let pages = match scope {
        CompactionScope::All => pages,
        CompactionScope::Idle if rows >= SEALED_ROWS_MIN || keeps_order => pages,
        _ if is_large => complete_pages,
        _ => 0,
    };
    (pages > 0).then_some(Compaction { kind: CompactionKind::Seal, blocks: Vec::new(), pages, order: RowOrder::Sorted })
}

/// Rewrites neighbouring blocks with many deleted rows, in one sort run and partition. Their rows stay in order.
fn clean(table: &Table, options: &MoverOptions, scope: CompactionScope) -> Option<Compaction> {
    if scope == CompactionScope::Urgent && table.delta.deleted_block_rows() < options.deleted_rows {
        return None;
    }
    let is_due = |index: &usize| {
        let block = &table.blocks[*index];
        let deleted = table.delta.deleted_of_block(block.id()).map_or(0, |deleted| deleted.count());
        deleted * 100 > block.entry().rows * options.deleted_percent
    };
    let first = (0..table.blocks.len()).find(is_due)?;
    let end = table.runs.iter().copied().find(|start| *start > first).unwrap_or(table.blocks.len());
    let mut size = CompactionSize::default();
    let is_taken = |index: &usize| {
        is_due(index) && table.partition_of(*index) == table.partition_of(first) && size.try_add(table, *index, options)
    };
    let indexes = (first..end).take_while(is_taken).collect();
    Some(Compaction { kind: CompactionKind::Clean, blocks: indexes, pages: 0, order: RowOrder::SameOrder })
}

/// Size of a compaction so far.
#[derive(Clone, Copy, Default)]
struct CompactionSize {
    blocks: u64,
    rows: u64,
    bytes: u64,
}

impl CompactionSize {
    /// Adds a block. Returns whether the compaction is still within the limits. True for the first block.
    fn try_add(&mut self, table: &Table, index: usize, options: &MoverOptions) -> bool {
        let entry = table.blocks[index].entry();
        self.blocks += 1;
        self.rows += entry.rows;
        self.bytes += entry.plain_bytes;
        self.blocks == 1 || self.rows <= options.compaction_rows && self.bytes <= options.compaction_bytes
    }
}

fn merge(table: &Table, options: &MoverOptions) -> Option<Compaction> {
    let mut indexes = match table.design.sort_by.is_empty() {
        true => small_neighbours(table, options)?,
        false => similar_runs(table, options)?,
    };
    indexes.sort_unstable();
    Some(Compaction { kind: CompactionKind::Merge, blocks: indexes, pages: 0, order: RowOrder::Sorted })
}

/// A sort run or a small block, as an input of a merge.
struct MergeInput {
    blocks: Range<usize>,
    rows: u64,
    bytes: u64,
}

impl MergeInput {
    fn new(table: &Table, blocks: Range<usize>) -> Self {
        let entries = || table.blocks[blocks.clone()].iter().map(|block| block.entry());
        let (rows, bytes) = (entries().map(|entry| entry.rows).sum(), entries().map(|entry| entry.plain_bytes).sum());
        Self { blocks, rows, bytes }
    }
}

/// Returns the largest number of inputs, counted from the first, that are within the limits of a compaction and worth
/// merging. There must be at least `merge_inputs`, and the result must be at least `merge_inputs / 2` times as large as
/// each input. Each row is therefore merged only a few times.
fn mergeable_count(inputs: &[MergeInput], options: &MoverOptions) -> Option<usize> {
    let growth = (options.merge_inputs as u64 / 2).max(1);
    let (mut rows, mut bytes, mut largest, mut mergeable) = (0, 0, 0, None);
    for (index, input) in inputs.iter().enumerate() {
        rows += input.rows;
        bytes += input.bytes;
        largest = largest.max(input.bytes);
        if rows > options.compaction_rows || bytes > options.compaction_bytes {
            break;
        }
        if index + 1 >= options.merge_inputs && largest * growth <= bytes {
            mergeable = Some(index + 1);
        }
    }
    mergeable
}

/// Returns the blocks of sort runs of a sorted table to merge, the smallest runs first. If sort runs are per partition,
/// all of them belong to one partition.
fn similar_runs(table: &Table, options: &MoverOptions) -> Option<Vec<usize>> {
    let follows =
        table.partitions.as_ref().is_none_or(|known| known.partitioning.follows_sort_order(&table.design.sort_by));
    let mut groups: BTreeMap<Option<u32>, Vec<MergeInput>> = BTreeMap::new();
    let ends = table.runs.iter().skip(1).copied().chain([table.blocks.len()]);
    for (start, end) in table.runs.iter().copied().zip(ends) {
        // Unpartitioned blocks are skipped, because `complete_partitions` is about to rewrite them.
        let is_partitioned =
            table.partitions.is_none() || (start..end).all(|index| table.partition_of(index).is_some());
        if is_partitioned {
            let group = if follows { None } else { table.partition_of(start) };
            groups.entry(group).or_default().push(MergeInput::new(table, start..end));
        }
    }
    groups.into_values().find_map(|mut runs| {
        runs.sort_by_key(|run| run.bytes);
        let count = mergeable_count(&runs, options)?;
        Some(runs[..count].iter().flat_map(|run| run.blocks.clone()).collect())
    })
}

/// Returns small blocks of an unsorted table to merge, which are neighbours in one partition.
fn small_neighbours(table: &Table, options: &MoverOptions) -> Option<Vec<usize>> {
    let mut sequences: BTreeMap<Option<u32>, Vec<Vec<MergeInput>>> = BTreeMap::new();
    for index in 0..table.blocks.len() {
        let sequences = sequences.entry(table.partition_of(index)).or_insert_with(|| vec![Vec::new()]);
        match sequences.last_mut() {
            Some(sequence) if is_small(table, index) => sequence.push(MergeInput::new(table, index..index + 1)),
            _ => sequences.push(Vec::new()),
        }
    }
    if table.partitions.is_some() {
        sequences.remove(&None);
    }
    sequences.into_values().flatten().find_map(|sequence| {
        // The first block may be one that an earlier merge wrote, and too large for this merge.
        let (first, count) =
            (0..sequence.len()).find_map(|first| Some((first, mergeable_count(&sequence[first..], options)?)))?;
        Some(sequence[first..first + count].iter().flat_map(|block| block.blocks.clone()).collect())
    })
}

/// Whether a block is less than half full.
fn is_small(table: &Table, index: usize) -> bool {
    let full = match table.design.block_size {
        BlockSize::Auto => BLOCK_BYTES_DEFAULT,
        BlockSize::Bytes(bytes) => bytes,
        BlockSize::File => 0,
    };
    table.blocks[index].entry().plain_bytes < full / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: u64) -> MergeInput {
        MergeInput { blocks: 0..0, rows: bytes, bytes }
    }

    fn count(sizes: &[u64]) -> Option<usize> {
        let options = MoverOptions { compaction_rows: 1_000, compaction_bytes: 1_000, ..MoverOptions::default() };
        mergeable_count(&sizes.iter().copied().map(input).collect::<Vec<_>>(), &options)
    }

    #[test]
    fn at_least_eight_inputs_of_similar_sizes_are_merged() {
        assert_eq!(count(&[10; 7]), None);
        assert_eq!(count(&[10; 8]), Some(8));
        assert_eq!(count(&[10; 20]), Some(20));
        assert_eq!(count(&[1, 1, 1, 1, 1, 1, 1, 100]), None, "the large input makes up most of the result");
        assert_eq!(count(&[1, 1, 1, 1, 1, 1, 1, 1, 100]), Some(8), "the large input is left out");
        assert_eq!(count(&[120; 20]), Some(8), "a ninth would exceed the limit of 1,000");
        assert_eq!(count(&[200; 20]), None, "only five are within the limit");
    }

    #[test]
    fn rows_are_written_few_times_and_few_runs_are_left() {
        let options = MoverOptions { compaction_bytes: u64::MAX, compaction_rows: u64::MAX, ..MoverOptions::default() };
        let (mut runs, mut written, mut most): (Vec<MergeInput>, u64, usize) = (Vec::new(), 0, 0);
        const LOADS: u64 = 20_000;
        for load in 0..LOADS {
            runs.push(input(50 + load * 7 % 100));
            runs.sort_by_key(|run| run.bytes);
            while let Some(count) = mergeable_count(&runs, &options) {
                let merged: u64 = runs.drain(..count).map(|run| run.bytes).sum();
                written += merged;
                runs.push(input(merged));
                runs.sort_by_key(|run| run.bytes);
            }
            most = most.max(runs.len());
        }
        let all: u64 = runs.iter().map(|run| run.bytes).sum();
        assert!(most <= 40, "{most} runs");
        // After a merge, each of its inputs is part of a run that is at least 4 times as large. The base-4 logarithm of
        // the number of loads is 7.1, so each row is merged at most about 8 times.
        assert!(written <= 8 * all, "each row was written {} times", written as f64 / all as f64);
    }
}
