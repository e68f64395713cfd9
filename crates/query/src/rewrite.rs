//! `ALTER TABLE ... SET`: puts the blocks of a table into another design.
//!
//! Each step takes some consecutive blocks, writes their rows as new ones, and publishes those in their place. The table
//! can be read throughout, as a mixture of old and new blocks, and memory holds a few blocks at a time. A rewrite that
//! is interrupted is taken up where it stopped by the same statement, since blocks already in the design are left alone.
//!
//! Where a block has the design but for its indexes, all else of it is copied as it is.
//!
//! Another sort order cannot be had block by block: the whole table is then sorted, spilling to disk, and replaced at
//! once. Nor can other partitions: see `repartition.rs`. All else keeps each block's rows in their partition.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common_runtime::SpawnedTask;
use taut_block::{BlockImage, ScanReport};
use taut_store::{BlockFile, BlockId, CommitError, NewBlock, ReadCounters, RowOrder, Table, TableId};
use taut_types::{BlockSize, ColumnIndex, IndexDesign, Partitioning, TableDesign};

use crate::changes::Changes;
use crate::constraints::index_keys;
use crate::error::{QueryError, Result};
use crate::live::{live_rows, old_rows};
use crate::load::{BlockWriter, check_design, partitioning_of};
use crate::progress::ProgressCounter;

/// Plain bytes of old blocks that a step takes at least: as many as a block of automatic size may have.
const STEP_BYTES: u64 = 256 << 20;

/// Rewrites the blocks of a table that are not in a design yet, keeping the order of rows, and sets it as the table's.
///
/// # Errors
/// When a block cannot be read or written; the steps published before stay.
pub async fn rewrite_blocks(
    changes: &Changes,
    table: &Arc<Table>,
    design: Arc<TableDesign>,
    threads: usize,
    progress: Option<ProgressCounter>,
) -> Result<u64> {
    let id = table.id;
    let design = changes.commit(|edit| {
        // Indexes are not this statement's: another one may have changed them since the table was looked up.
        let newest = edit.catalog().table_of(id).ok_or(CommitError::NoTable { table: id })?;
        check_design(table, newest)?;
        let mut design = TableDesign { indexes: newest.design.indexes.clone(), ..design.as_ref().clone() };
        index_keys(&mut design, &newest.constraints, edit.catalog())?;
        edit.set_design(id, design.clone())?;
        Ok::<_, CommitError>(Arc::new(design))
    })?;
    run_steps(changes, table, design, threads, progress, rewrite_step).await
}

/// Gives the blocks of a table these indexes, and keeps everything else of them. Where another statement replaces blocks
/// meanwhile, those that are left over are looked for again.
///
/// # Errors
/// When the table is gone, or a block cannot be read or written; the steps published before stay.
pub async fn rebuild_indexes(
    changes: &Changes,
    table: TableId,
    indexes: &[IndexDesign],
    threads: usize,
    progress: Option<ProgressCounter>,
) -> Result<()> {
    let mut attempts = 0;
    loop {
        let newest = changes.snapshot().table_of(table).cloned().ok_or(CommitError::NoTable { table })?;
        let design = Arc::new(TableDesign { indexes: indexes.to_vec(), ..newest.design.as_ref().clone() });
        attempts += 1;
        match run_steps(changes, &newest, design, threads, progress.clone(), index_step).await {
            Err(QueryError::Commit(CommitError::NoBlock { .. } | CommitError::NotOneRun { .. }))
                if attempts < ATTEMPTS_MAX => {}
            other => return other.map(drop),
        }
    }
}

/// How often blocks are looked for that another statement has replaced.
pub const ATTEMPTS_MAX: usize = 100;

/// What is done with some consecutive blocks of a table.
type Step = fn(&StepWriter, &[Arc<BlockFile>], Option<&ProgressCounter>) -> Result<u64>;

/// Writes the blocks of a step: rows of one partition of a table, if it has any.
#[derive(Clone)]
struct StepWriter {
    writer: BlockWriter,
    table: Arc<Table>,
    partition: Option<(Arc<Partitioning>, u32)>,
}

impl StepWriter {
    fn placed(&self, block: NewBlock) -> NewBlock {
        match &self.partition {
            Some((partitioning, partition)) => block.in_partition(partitioning, *partition),
            None => block,
        }
    }

    /// Puts blocks with the same rows at the same places, deleted ones too, in the place of others.
    fn replace_same(&self, old: &[Arc<BlockFile>], new: Vec<NewBlock>) -> Result<()> {
        let ids: Vec<BlockId> = old.iter().map(|block| block.id()).collect();
        let new = new.into_iter().map(|block| self.placed(block)).collect();
        self.writer.changes.commit(|edit| edit.replace_blocks(self.table.id, &ids, new, RowOrder::Same))?;
        Ok(())
    }
}

/// Takes the steps of a rewrite, as many at once as there are threads. Returns the rows of all of them.
async fn run_steps(
    changes: &Changes,
    table: &Arc<Table>,
    design: Arc<TableDesign>,
    threads: usize,
    progress: Option<ProgressCounter>,
    take_step: Step,
) -> Result<u64> {
    let writer = BlockWriter::new(changes, &table.schema, &design, threads);
    let partitioning = partitioning_of(table);
    let mut tasks = Vec::new();
    for step in steps(table, &writer.design) {
        let permit = Arc::clone(&writer.permits).acquire_owned().await.map_err(|_| QueryError::Cancelled)?;
        let partition = partitioning.clone().zip(table.partition_of(step.start));
        let writer = StepWriter { writer: writer.clone(), table: Arc::clone(table), partition };
        let (progress, old) = (progress.clone(), table.blocks[step].to_vec());
        tasks.push(SpawnedTask::spawn_blocking(move || {
            let _permit = permit;
            take_step(&writer, &old, progress.as_ref())
        }));
    }
    let mut rows = 0;
    for task in tasks {
        rows += task.join_unwind().await.map_err(|_| QueryError::Cancelled)??;
    }
    Ok(rows)
}

/// Consecutive blocks of one run and one partition that a step takes together.
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
        for place in start..end {
            bytes = bytes.saturating_add(table.blocks[place].entry().plain_bytes);
            let is_last = place + 1 == end || table.partition_of(place) != table.partition_of(place + 1);
            if bytes >= step_bytes || is_last {
                steps.push(first..place + 1);
                (first, bytes) = (place + 1, 0);
            }
        }
    }
    steps
}

fn rewrite_step(writer: &StepWriter, old: &[Arc<BlockFile>], progress: Option<&ProgressCounter>) -> Result<u64> {
    let wanted = &writer.writer.design;
    let same_but_indexes = |block: &Arc<BlockFile>| {
        let indexes = wanted.indexes.clone();
        Ok::<_, QueryError>(TableDesign { indexes, ..design_of(block)? } == **wanted)
    };
    for block in old {
        if !same_but_indexes(block)? {
            let replaced = old_rows(&writer.table, old, false)?;
            let new = rewritten(writer, old, progress)?;
            let new = new.into_iter().map(|block| writer.placed(block)).collect();
            let changes = &writer.writer.changes;
            changes.commit(|edit| edit.replace_rows(writer.table.id, replaced, new, RowOrder::Kept))?;
            return Ok(rows_of(old));
        }
    }
    index_step(writer, old, progress)
}

/// Gives some blocks the indexes of a design.
fn index_step(writer: &StepWriter, old: &[Arc<BlockFile>], progress: Option<&ProgressCounter>) -> Result<u64> {
    let BlockWriter { changes, design: wanted, .. } = &writer.writer;
    let (mut replaced, mut new) = (Vec::new(), Vec::new());
    for block in old {
        let design = design_of(block)?;
        if design.indexes != wanted.indexes {
            // The memory that it takes does not grow with the table.
            let open = block.open_once(&ReadCounters::new())?;
            let image = BlockImage::with_indexes(open.block(), &open, &wanted.indexes)?;
            new.push(changes.write_block(&image, &design)?);
            replaced.push(Arc::clone(block));
        } else if !new.is_empty() {
            // Blocks that are replaced together are neighbours.
            writer.replace_same(&replaced, std::mem::take(&mut new))?;
            replaced.clear();
        }
        if let Some(progress) = progress {
            progress.add(block.entry().rows);
        }
    }
    if !new.is_empty() {
        writer.replace_same(&replaced, new)?;
    }
    Ok(rows_of(old))
}

fn rows_of(blocks: &[Arc<BlockFile>]) -> u64 {
    blocks.iter().map(|block| block.entry().rows).sum()
}

fn design_of(block: &Arc<BlockFile>) -> Result<TableDesign> {
    let open = block.open(&ReadCounters::new())?;
    Ok(open.block().description(&open)?.1)
}

/// The rows of some blocks as new ones.
fn rewritten(writer: &StepWriter, old: &[Arc<BlockFile>], progress: Option<&ProgressCounter>) -> Result<Vec<NewBlock>> {
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
            // A block as large as a gathered one would be: cut where it is full.
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
