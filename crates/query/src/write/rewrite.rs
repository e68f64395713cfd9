//! `ALTER TABLE ... SET`: rewrites the blocks of a table to another design.
//!
//! Each step rewrites some consecutive blocks, and replaces them by the new blocks in one commit. The table stays
//! readable throughout, as a mixture of old and new blocks, and memory holds a few blocks at a time. The same statement
//! continues an interrupted rewrite where it stopped, because it skips blocks that already have the design.
//!
//! If a block differs from the design only in its indexes, everything else in it is copied unchanged.
//!
//! A new sort order cannot be applied block by block: the whole table is sorted, spilling to disk, and replaced in one
//! commit. New partitions also replace the whole table: see `repartition.rs`. All other rewrites keep the rows of a
//! block in its partition.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common_runtime::SpawnedTask;
use taut_block::{BlockImage, ScanReport};
use taut_store::{BlockFile, BlockId, CommitError, NewBlock, ReadCounters, RowOrder, Table, TableId};
use taut_types::{BlockSize, ColumnIndex, IndexDesign, Partitioning, TableDesign};

use super::blocks::BlockWriter;
use super::commit::{check_design, partitioning_of};
use crate::constraints::add_key_indexes;
use crate::error::{QueryError, Result};
use crate::runtime::progress::ProgressCounter;
use crate::write::changes::Changes;
use crate::write::live::{live_rows, old_rows};

/// Minimum plain bytes of the old blocks of a step, unless its sort run or partition has fewer. It equals the maximum
/// of a block of automatic size, which only a block with wide rows reaches.
const STEP_BYTES: u64 = 256 << 20;

/// Sets the design of a table and rewrites the blocks that do not have it yet. The rows stay in order. Returns the
/// number of rows in the table's blocks.
///
/// # Errors
/// If a block cannot be read or written. Steps that are already committed remain.
pub async fn rewrite_blocks(
    changes: &Changes,
    table: &Arc<Table>,
    design: Arc<TableDesign>,
    threads: usize,
    progress: Option<ProgressCounter>,
) -> Result<u64> {
    let id = table.id;
    let design = changes.commit(|edit| {
        // Keeps the indexes of the newest version, because another statement may have changed them since the table was
        // looked up.
        let newest = edit.catalog().table_of(id).ok_or(CommitError::NoTable { table: id })?;
        check_design(table, newest)?;
        let mut design = TableDesign { indexes: newest.design.indexes.clone(), ..design.as_ref().clone() };
        add_key_indexes((&newest.name, &mut design), &newest.constraints, edit.catalog())?;
        edit.set_design(id, design.clone())?;
        Ok::<_, CommitError>(Arc::new(design))
    })?;
    run_steps(changes, table, design, threads, progress, rewrite_step).await
}

/// Rebuilds the indexes of a table's blocks according to `indexes`, and leaves everything else unchanged. If another
/// statement replaces blocks meanwhile, starts again with the remaining blocks.
///
/// # Errors
/// If the table no longer exists, or a block cannot be read or written. Steps that are already committed remain.
pub async fn rebuild_indexes(
    changes: &Changes,
    table: TableId,
    indexes: &[IndexDesign],
    threads: usize,
    progress: Option<ProgressCounter>,
) -> Result<()> {
    let design = |newest: &Table| TableDesign { indexes: indexes.to_vec(), ..newest.design.as_ref().clone() };
    retry_steps(changes, table, design, threads, progress, index_step).await
}

/// Rewrites the blocks of a table that do not have the design or the columns of the table. Such blocks remain after an
/// interrupted `ALTER TABLE ... SET`, `CREATE INDEX` or `DROP INDEX`, and after `ADD` and `DROP COLUMN`. If another
/// statement replaces blocks meanwhile, starts again with the remaining blocks.
///
/// # Errors
/// If the table no longer exists, or a block cannot be read or written. Steps that are already committed remain.
pub async fn finish_rewrite(
    changes: &Changes,
    table: TableId,
    threads: usize,
    progress: Option<ProgressCounter>,
) -> Result<()> {
    retry_steps(changes, table, |newest| newest.design.as_ref().clone(), threads, progress, rewrite_step).await
}

async fn retry_steps(
    changes: &Changes,
    table: TableId,
    design: impl Fn(&Table) -> TableDesign,
    threads: usize,
    progress: Option<ProgressCounter>,
    run_step: Step,
) -> Result<()> {
    let mut attempts = 0;
    loop {
        let newest = changes.snapshot().table_of(table).cloned().ok_or(CommitError::NoTable { table })?;
        attempts += 1;
        match run_steps(changes, &newest, Arc::new(design(&newest)), threads, progress.clone(), run_step).await {
            Err(QueryError::Commit(error)) if is_concurrent_change(&error) && attempts < ATTEMPTS_MAX => {}
            other => return other.map(drop),
        }
    }
}

/// Whether a step failed because other statements changed rows or replaced blocks.
fn is_concurrent_change(error: &CommitError) -> bool {
    matches!(
        error,
        CommitError::NoBlock { .. }
            | CommitError::NotOneRun { .. }
            | CommitError::RowsChanged { .. }
            | CommitError::RowsLocked
    )
}

/// Maximum attempts after other statements have replaced blocks.
pub const ATTEMPTS_MAX: usize = 100;

/// Function that runs one step on some consecutive blocks of a table. Returns the number of their rows.
type Step = fn(&StepWriter, &[Arc<BlockFile>], Option<&ProgressCounter>) -> Result<u64>;

/// Writes the blocks of a step, which are all in one partition if the table is partitioned.
#[derive(Clone)]
struct StepWriter {
    writer: BlockWriter,
    table: Arc<Table>,
    partition: Option<(Arc<Partitioning>, u32)>,
}

impl StepWriter {
    fn with_partition(&self, block: NewBlock) -> NewBlock {
        match &self.partition {
            Some((partitioning, partition)) => block.in_partition(partitioning, *partition),
            None => block,
        }
    }

    /// Replaces blocks by new ones with the same rows at the same positions, including deleted rows.
    fn replace_in_place(&self, old: &[Arc<BlockFile>], new: Vec<NewBlock>) -> Result<()> {
        let ids: Vec<BlockId> = old.iter().map(|block| block.id()).collect();
        let new = new.into_iter().map(|block| self.with_partition(block)).collect();
        self.writer.changes.commit(|edit| edit.replace_blocks(self.table.id, &ids, new, RowOrder::SamePositions))?;
        Ok(())
    }
}

/// Runs the steps of a rewrite, one per thread at a time. Returns the total number of their rows.
async fn run_steps(
    changes: &Changes,
    table: &Arc<Table>,
    design: Arc<TableDesign>,
    threads: usize,
    progress: Option<ProgressCounter>,
    run_step: Step,
) -> Result<u64> {
    let writer = BlockWriter::new(changes, (&table.name, &table.schema), &design, threads);
    let partitioning = partitioning_of(table);
    let mut tasks = Vec::new();
    for step in steps(table, &writer.design) {
        let permit = Arc::clone(&writer.permits).acquire_owned().await.map_err(|_| QueryError::Cancelled)?;
        let partition = partitioning.clone().zip(table.partition_of(step.start));
        let writer = StepWriter { writer: writer.clone(), table: Arc::clone(table), partition };
        let (progress, old) = (progress.clone(), table.blocks[step].to_vec());
        tasks.push(SpawnedTask::spawn_blocking(move || {
            let _permit = permit;
            run_step(&writer, &old, progress.as_ref())
        }));
    }
    let mut rows = 0;
    for task in tasks {
        rows += task.join_unwind().await.map_err(|_| QueryError::Cancelled)??;
    }
    Ok(rows)
}

/// Divides the blocks of a table into steps of consecutive blocks of one sort run and one partition.
fn steps(table: &Table, design: &TableDesign) -> Vec<Range<usize>> {
    let step_bytes = match design.block_size {
        BlockSize::Auto => STEP_BYTES,
        BlockSize::Bytes(bytes) => bytes.max(STEP_BYTES),
        BlockSize::File => u64::MAX,
    };
    let ends = table.runs.iter().skip(1).copied().chain([table.blocks.len()]);
    let mut steps = Vec::new();
    for (start, end) in table.runs.iter().copied().zip(ends) {
        let (mut first, mut bytes) = (start, 0u64);
        for position in start..end {
            bytes = bytes.saturating_add(table.blocks[position].entry().plain_bytes);
            let is_last = position + 1 == end || table.partition_of(position) != table.partition_of(position + 1);
            if bytes >= step_bytes || is_last {
                steps.push(first..position + 1);
                (first, bytes) = (position + 1, 0);
            }
        }
    }
    steps
}

fn rewrite_step(writer: &StepWriter, old: &[Arc<BlockFile>], progress: Option<&ProgressCounter>) -> Result<u64> {
    let design = &writer.writer.design;
    let differs_only_in_indexes = |block: &Arc<BlockFile>| {
        let indexes = design.indexes.clone();
        let open = block.open(&ReadCounters::new())?;
        let (_, of_block) = open.block().description(&open)?;
        // A block that lacks columns of the table, or stores dropped ones, is rewritten.
        let has_columns = block.columns().is_none();
        Ok::<_, QueryError>(has_columns && TableDesign { indexes, ..of_block } == **design)
    };
    for block in old {
        if !differs_only_in_indexes(block)? {
            let replaced = old_rows(&writer.table, old, false)?;
            let new = copy_live_rows(writer, old, progress)?;
            let new = new.into_iter().map(|block| writer.with_partition(block)).collect();
            let changes = &writer.writer.changes;
            changes.commit(|edit| edit.replace_rows(writer.table.id, replaced, new, RowOrder::SameOrder))?;
            return Ok(total_rows(old));
        }
    }
    index_step(writer, old, progress)
}

/// Rebuilds the indexes of some blocks according to the writer's design.
fn index_step(writer: &StepWriter, old: &[Arc<BlockFile>], progress: Option<&ProgressCounter>) -> Result<u64> {
    let BlockWriter { changes, is_temporary, design: new_design, .. } = &writer.writer;
    let (mut replaced, mut new) = (Vec::new(), Vec::new());
    for block in old {
        // Opened without filling the cache, so that memory does not grow with the table.
        let open = block.open_once(&ReadCounters::new())?;
        let mut wanted = new_design.indexes.clone();
        // All rows of a block have the same value in a column that it does not store. Such a column needs no index.
        wanted.retain(|index| open.block().stored_index(index).is_some());
        // Indexes on dropped columns remain until the block is rewritten for another reason.
        let indexes = open.block().index_designs(&open)?;
        if !indexes.iter().flatten().eq(&wanted) {
            let image = BlockImage::with_indexes(open.block(), &open, &wanted)?;
            let design = open.block().description(&open)?.1;
            new.push(changes.write_block(*is_temporary, &image, &design)?.with_columns_of(block)?);
            replaced.push(Arc::clone(block));
        } else if !new.is_empty() {
            // Blocks that are replaced together must be neighbours.
            writer.replace_in_place(&replaced, std::mem::take(&mut new))?;
            replaced.clear();
        }
        if let Some(progress) = progress {
            progress.add(block.entry().rows);
        }
    }
    if !new.is_empty() {
        writer.replace_in_place(&replaced, new)?;
    }
    Ok(total_rows(old))
}

fn total_rows(blocks: &[Arc<BlockFile>]) -> u64 {
    blocks.iter().map(|block| block.entry().rows).sum()
}

/// Copies the live rows of some blocks to new blocks.
fn copy_live_rows(
    writer: &StepWriter,
    old: &[Arc<BlockFile>],
    progress: Option<&ProgressCounter>,
) -> Result<Vec<NewBlock>> {
    let StepWriter { writer, table, .. } = writer;
    let counters = ReadCounters::new();
    let columns: Vec<_> = (0..writer.schema.len()).map(ColumnIndex::from).collect();
    let arrow = writer.schema.arrow();
    let mut new = Vec::new();
    let mut builder = writer.builder();
    for block in old {
        let open = block.open_once(&counters)?;
        for segment in 0..open.block().segments() {
            let (mut reader, live) = live_rows(table, &open, segment)?;
            if live.is_empty() {
                continue;
            }
            let mut report = ScanReport::default();
            let arrays = reader.project(&live, 0..live.len(), &columns, &mut report).map_err(QueryError::Block)?;
            let batch = datafusion::arrow::record_batch::RecordBatch::try_new(Arc::clone(&arrow), arrays)
                .map_err(datafusion::common::DataFusionError::from)?;
            // Starts a new block when one is full, like a load.
            builder.push(&batch)?;
            if let Some(progress) = progress {
                progress.add(batch.num_rows() as u64);
            }
            if builder.is_full() {
                new.push(writer.write(std::mem::replace(&mut builder, writer.builder()))?);
            }
        }
    }
    if builder.rows() > 0 {
        new.push(writer.write(builder)?);
    }
    Ok(new)
}
