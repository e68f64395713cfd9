//! Partitions rows that are already in blocks: for `ALTER TABLE ... SET (partition_by = ...)`, and after a load whose
//! rows could not be partitioned when they arrived.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion_common_runtime::SpawnedTask;
use taut_block::{ScanReport, Selection};
use taut_store::{BlockFile, CommitError, NewBlock, ReadCounters, RowOrder, Table, TableId};
use taut_types::{ColumnIndex, Datum, PartitionDesign, Partitioning, TableDesign, datum_at};
use tokio::sync::mpsc;

use super::blocks::BlockWriter;
use super::commit::{partitioning_of, replace_all};
use super::partitioner::{Partitioner, SAMPLE_ROWS, boundaries_are_final, final_boundary_rows};
use crate::error::{QueryError, Result};
use crate::runtime::progress::ProgressCounter;
use crate::write::changes::Changes;
use crate::write::live::{live_rows, old_rows};
use crate::write::rewrite::{ATTEMPTS_MAX, rebuild_indexes};

/// Chooses partitions for the rows that a table has, from values of all its blocks. Returns `None` for a range
/// partitioning if boundaries chosen from these rows would not be final: see [`boundaries_are_final`].
///
/// # Errors
/// If a block cannot be read.
pub async fn choose_partitioning(table: &Arc<Table>, design: PartitionDesign) -> Result<Option<Arc<Partitioning>>> {
    if let Some(known) = Partitioning::without_boundaries(design) {
        return Ok(Some(Arc::new(known)));
    }
    let (logical, rows) = (table.schema.column(design.column).logical_type, table.rows());
    let table = Arc::clone(table);
    let sample = SpawnedTask::spawn_blocking(move || sample_column(&table, design.column));
    let sample = sample.join_unwind().await.map_err(|_| QueryError::Cancelled)??;
    let chosen = Partitioning::from_sample(design, logical, sample);
    Ok(chosen.filter(|chosen| boundaries_are_final(chosen, rows)).map(Arc::new))
}

/// Returns values of a column, sampled at equal distances over all rows.
fn sample_column(table: &Table, column: ColumnIndex) -> Result<Vec<Datum>> {
    let logical = table.schema.column(column).logical_type;
    let stride = table.rows().div_ceil(SAMPLE_ROWS).max(1);
    let (mut sample, mut first_row) = (Vec::new(), 0_u64);
    for file in table.blocks.iter() {
        let open = file.open(&ReadCounters::new())?;
        let block = open.block();
        for segment in 0..block.segments() {
            let rows = block.segment_rows(segment) as u64;
            let next = first_row.next_multiple_of(stride) - first_row;
            let positions: Vec<u32> = (next..rows).step_by(stride as usize).map(|row| row as u32).collect();
            first_row += rows;
            if positions.is_empty() {
                continue;
            }
            let (count, selection) = (positions.len(), Selection::Positions(positions));
            let mut reader = block.open_segment(&open, segment);
            let arrays = reader.project(&selection, 0..count, &[column], &mut ScanReport::default());
            let arrays = arrays.map_err(|error| open.locate(error))?;
            sample.extend(
                arrays.iter().flat_map(|array| (0..count).filter_map(|row| datum_at(array, logical, row)).map(shorten)),
            );
        }
    }
    Ok(sample)
}

/// Shortens a datum for a sample. A shortened datum is a valid boundary, and whole strings would take much memory.
fn shorten(datum: Datum) -> Datum {
    const BYTES_MAX: usize = 1024;
    match datum {
        Datum::Bytes(bytes) if bytes.len() > BYTES_MAX => Datum::Bytes(bytes[..BYTES_MAX].into()),
        datum => datum,
    }
}

/// Rewrites all rows of a table without a sort order into blocks of another design and other partitions.
///
/// # Errors
/// If a block cannot be read or written, or another statement has replaced one meanwhile. The table is then unchanged.
pub async fn repartition(
    changes: &Changes,
    table: &Arc<Table>,
    design: &TableDesign,
    partitioning: Option<Arc<Partitioning>>,
    threads: usize,
    progress: Option<ProgressCounter>,
) -> Result<u64> {
    let writer = BlockWriter::new(changes, (&table.name, &table.schema), design, threads);
    let partitioner = Partitioner::new(writer, design.partition_by, partitioning.clone());
    let blocks = copy_partitioned(partitioner, table, table.blocks.to_vec(), progress).await?;
    let old = old_rows(table, &table.blocks, false)?;
    changes.commit(|edit| replace_all(edit, table, old, (design, partitioning.as_deref()), blocks))?;
    complete_partitions(changes, table.id, threads).await?;
    let newest = changes.snapshot().table_of(table.id).map(|table| table.design.indexes.clone());
    if let Some(indexes) = newest.filter(|indexes| *indexes != design.indexes) {
        rebuild_indexes(changes, table.id, &indexes, threads, None).await?;
    }
    Ok(table.rows())
}

/// Partitions the unpartitioned blocks of a table. Such blocks come from loads that began before its partitions were
/// known or changed. Also chooses the boundaries of a range partitioning, as soon as there are enough distinct values.
///
/// # Errors
/// If a block cannot be read or written. The next load partitions the remaining blocks.
pub async fn complete_partitions(changes: &Changes, id: TableId, threads: usize) -> Result<()> {
    let mut attempts = 0;
    loop {
        let Some(table) = changes.snapshot().table_of(id).cloned() else { return Ok(()) };
        let Some(by) = table.design.partition_by else { return Ok(()) };
        let Some(partitioning) = partitioning_of(&table) else {
            if !choose_boundaries(changes, &table, by).await? {
                return Ok(());
            }
            continue;
        };
        let (old, order) = unpartitioned_blocks(&table);
        if old.is_empty() {
            return Ok(());
        }
        let replaced = old_rows(&table, &old, false)?;
        let writer = BlockWriter::new(changes, (&table.name, &table.schema), &table.design, threads);
        let partitioner = Partitioner::new(writer, Some(by), Some(partitioning));
        let new = copy_partitioned(partitioner, &table, old, None).await?;
        attempts += 1;
        match changes.commit(|edit| edit.replace_rows(id, replaced, new, order)) {
            Err(CommitError::NoTable { .. }) => return Ok(()),
            Err(
                CommitError::NoBlock { .. }
                | CommitError::NotOneRun { .. }
                | CommitError::RowsChanged { .. }
                | CommitError::RowsLocked,
            ) if attempts < ATTEMPTS_MAX => {}
            other => other?,
        }
    }
}

/// Returns the unpartitioned blocks to rewrite next. For a sorted table they belong to one sort run, so that the rows
/// of each partition stay in order.
fn unpartitioned_blocks(table: &Table) -> (Vec<Arc<BlockFile>>, RowOrder) {
    let is_unpartitioned = |ordinal: &usize| table.partition_of(*ordinal).is_none();
    let Some(first) = (0..table.blocks.len()).find(is_unpartitioned) else { return (Vec::new(), RowOrder::SameOrder) };
    let (ordinals, order): (Vec<usize>, _) = if table.design.sort_by.is_empty() {
        ((first..table.blocks.len()).filter(is_unpartitioned).collect(), RowOrder::Sorted)
    } else {
        let run_end = table.runs.iter().copied().find(|start| *start > first).unwrap_or(table.blocks.len());
        ((first..run_end).take_while(is_unpartitioned).collect(), RowOrder::SameOrder)
    };
    (ordinals.into_iter().map(|ordinal| Arc::clone(&table.blocks[ordinal])).collect(), order)
}

/// Maximum rows of a table for which any load may choose the boundaries. To choose them, a load reads the values of all
/// rows.
const SAMPLED_TABLE_ROWS_MAX: u64 = 1 << 20;
/// In a larger table, a load reads the values only if the newest sort run has at least one in this many rows.
const NEWEST_RUN_SHARE: u64 = 8;

/// Chooses the boundaries of a range partitioning from the rows of the table. Returns false if they would not be final,
/// or if reading the values costs too much.
async fn choose_boundaries(changes: &Changes, table: &Arc<Table>, by: PartitionDesign) -> Result<bool> {
    let Some(statistics) = table.statistics.get(by.column.index()) else { return Ok(false) };
    // With fewer distinct values and rows than these, boundaries are hardly ever final, so the values are not read.
    let may_be_final =
        statistics.distinct_estimate() >= u64::from(by.count) || statistics.rows >= final_boundary_rows(by);
    if !may_be_final || statistics.min == statistics.max && statistics.exact && by.count > 1 {
        return Ok(false);
    }
    // Without this check, each of many small loads would read all values of the column.
    let newest_run: u64 = table.runs().last().unwrap_or_default().iter().map(|block| block.entry().rows).sum();
    if table.rows() > SAMPLED_TABLE_ROWS_MAX && newest_run < table.rows() / NEWEST_RUN_SHARE {
        return Ok(false);
    }
    let Some(chosen) = choose_partitioning(table, by).await? else { return Ok(false) };
    changes.commit(|edit| {
        let newest = edit.catalog().table_of(table.id);
        match newest.is_some_and(|newest| newest.partitions.is_none() && newest.design.partition_by == Some(by)) {
            true => edit.set_partitioning(table.id, chosen.as_ref().clone()),
            // Another statement has chosen the boundaries first.
            false => Ok::<_, CommitError>(()),
        }
    })?;
    Ok(true)
}

/// Copies the rows of some blocks of a table, in order, to new blocks of one partition each.
async fn copy_partitioned(
    mut partitioner: Partitioner,
    table: &Arc<Table>,
    old: Vec<Arc<BlockFile>>,
    progress: Option<ProgressCounter>,
) -> Result<Vec<NewBlock>> {
    /// Number of segments that are read ahead.
    const AHEAD: usize = 2;
    let (sender, mut receiver) = mpsc::channel(AHEAD);
    let table = Arc::clone(table);
    let reading = SpawnedTask::spawn_blocking(move || {
        let arrow = table.schema.arrow();
        let columns: Vec<_> = (0..arrow.fields().len()).map(ColumnIndex::from).collect();
        for file in old {
            let open = file.open(&ReadCounters::new())?;
            for segment in 0..open.block().segments() {
                let (mut reader, live) = live_rows(&table, &open, segment)?;
                if live.is_empty() {
                    continue;
                }
                let arrays = reader.project(&live, 0..live.len(), &columns, &mut ScanReport::default());
                let arrays = arrays.map_err(|error| open.locate(error))?;
                let batch = RecordBatch::try_new(Arc::clone(&arrow), arrays).map_err(DataFusionError::from)?;
                if sender.blocking_send(batch).is_err() {
                    return Ok(());
                }
            }
        }
        Ok::<_, QueryError>(())
    });
    while let Some(batch) = receiver.recv().await {
        let rows = batch.num_rows() as u64;
        partitioner.push(batch).await?;
        if let Some(progress) = &progress {
            progress.add(rows);
        }
    }
    reading.join_unwind().await.map_err(|_| QueryError::Cancelled)??;
    Ok(partitioner.finish().await?)
}
