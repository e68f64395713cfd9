//! Collects rows into blocks, and encodes and writes several blocks at once.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion_common_runtime::SpawnedTask;
use futures::StreamExt;
use futures::stream::BoxStream;
use taut_block::{Extent, rows_until_full};
use taut_store::NewBlock;
use taut_types::{BlockSize, PartitionDesign, Partitioning, Schema, TableDesign, is_temporary_relation};
use tokio::sync::{Semaphore, mpsc};

use super::changes::Changes;
use super::external;
use super::partitioner::Partitioner;
use super::row_ids::{BlockInProgress, OldIds};

/// Maximum block size in plain bytes for which all batches of a block are collected before it is encoded, so that
/// several blocks are encoded in parallel. A larger block is encoded segment by segment as its rows arrive.
const BUFFERED_BLOCK_BYTES_MAX: u64 = 64 << 20;

/// Writes each stream to separate blocks. For a partitioned table, all streams share the blocks.
pub(crate) async fn write_streams(
    writer: BlockWriter,
    partitions: &Option<(PartitionDesign, Option<Arc<Partitioning>>)>,
    streams: Vec<CoercedStream>,
) -> Result<Vec<Vec<NewBlock>>> {
    if let Some((design, known)) = partitions {
        let partitioner = Partitioner::new(writer, Some(*design), known.clone());
        return Ok(vec![write_partitioned(partitioner, streams).await?]);
    }
    let tasks = streams.into_iter().map(|stream| SpawnedTask::spawn(write_stream(writer.clone(), stream)));
    let tasks: Vec<_> = tasks.collect();
    let mut blocks_of_streams = Vec::with_capacity(tasks.len());
    for task in tasks {
        blocks_of_streams.push(task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??);
    }
    Ok(blocks_of_streams)
}

/// Writes rows to blocks of one table.
#[derive(Clone)]
pub(crate) struct BlockWriter {
    pub changes: Changes,
    /// Whether the table is temporary.
    pub is_temporary: bool,
    pub schema: Arc<Schema>,
    pub design: Arc<TableDesign>,
    /// Limits the number of blocks that are encoded at once.
    pub permits: Arc<Semaphore>,
    /// Old row ids of the rows in written blocks.
    pub old_ids: OldIds,
}

impl BlockWriter {
    /// Creates a writer of blocks of a design for a table. The caller must partition the rows.
    pub fn new(changes: &Changes, (table, schema): (&str, &Arc<Schema>), design: &TableDesign, threads: usize) -> Self {
        let is_temporary = is_temporary_relation(table);
        let design = TableDesign { partition_by: None, ..design.clone() };
        let (schema, permits) = (Arc::clone(schema), Arc::new(Semaphore::new(threads.max(1))));
        let (changes, design, old_ids) = (changes.clone(), Arc::new(design), OldIds::default());
        Self { changes, is_temporary, schema, design, permits, old_ids }
    }

    pub fn builder(&self) -> BlockInProgress {
        BlockInProgress::new(Arc::clone(&self.schema), Arc::clone(&self.design))
    }

    pub fn write(&self, building: BlockInProgress) -> Result<NewBlock> {
        let (image, old_ids) = building.finish().map_err(external)?;
        let block = self.changes.write_block(self.is_temporary, &image, &self.design).map_err(external)?;
        if !old_ids.is_empty() {
            self.old_ids.insert(block.entry().id, old_ids);
        }
        Ok(block)
    }

    /// Encodes and writes batches as one block, on a thread for blocking calls.
    pub(crate) async fn spawn_block(&self, batches: Vec<RecordBatch>) -> Result<SpawnedTask<Result<NewBlock>>> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(external)?;
        let writer = self.clone();
        Ok(SpawnedTask::spawn_blocking(move || {
            let _permit = permit;
            let mut builder = writer.builder();
            for batch in &batches {
                builder.push(batch).map_err(external)?;
            }
            drop(batches);
            writer.write(builder)
        }))
    }
}

/// Stream of rows in the types of the target.
pub(crate) type CoercedStream = BoxStream<'static, Result<RecordBatch>>;

/// Writes blocks that each belong to one partition of the table. Reads one batch from each stream in rotation, so that
/// the same streams always produce the same blocks.
async fn write_partitioned(mut partitioner: Partitioner, streams: Vec<CoercedStream>) -> Result<Vec<NewBlock>> {
    /// Maximum number of batches that are read ahead from each stream.
    const AHEAD: usize = 4;
    let mut inputs = Vec::with_capacity(streams.len());
    for mut stream in streams {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let task = SpawnedTask::spawn(async move {
            while let Some(batch) = stream.next().await {
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        });
        inputs.push((receiver, task));
    }
    let mut index = 0;
    while !inputs.is_empty() {
        index %= inputs.len();
        match inputs[index].0.recv().await {
            Some(batch) => {
                partitioner.push(batch?).await?;
                index += 1;
            }
            None => {
                let (_, task) = inputs.remove(index);
                task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            }
        }
    }
    partitioner.finish().await
}

async fn write_stream(writer: BlockWriter, rows: CoercedStream) -> Result<Vec<NewBlock>> {
    match writer.design.block_size {
        BlockSize::Bytes(bytes) if bytes > BUFFERED_BLOCK_BYTES_MAX => write_blocks_streaming(&writer, rows).await,
        BlockSize::File => write_blocks_streaming(&writer, rows).await,
        _ => write_blocks_parallel(&writer, rows).await,
    }
}

/// Collects the batches of a block before it is encoded, so that several blocks are encoded at once.
async fn write_blocks_parallel(
    writer: &BlockWriter,
    mut batches: impl StreamExt<Item = Result<RecordBatch>> + Unpin,
) -> Result<Vec<NewBlock>> {
    let mut tasks = Vec::new();
    let (mut buffered, mut buffered_extent) = (Vec::new(), Extent::default());
    while let Some(batch) = batches.next().await {
        let mut batch = batch?;
        while batch.num_rows() > 0 {
            let extent = Extent { rows: batch.num_rows() as u64, bytes: plain_bytes(&batch, &writer.schema) };
            let rows_missing = rows_until_full(writer.design.block_size, buffered_extent, extent);
            if rows_missing > extent.rows {
                buffered_extent =
                    Extent { rows: buffered_extent.rows + extent.rows, bytes: buffered_extent.bytes + extent.bytes };
                buffered.push(batch);
                break;
            }
            // The part of the batch that fills the block: at least one row.
            let rows = (rows_missing as usize).max(1);
            buffered.push(batch.slice(0, rows));
            batch = batch.slice(rows, batch.num_rows() - rows);
            tasks.push(writer.spawn_block(std::mem::take(&mut buffered)).await?);
            buffered_extent = Extent::default();
        }
    }
    if !buffered.is_empty() {
        tasks.push(writer.spawn_block(buffered).await?);
    }
    let mut blocks = Vec::with_capacity(tasks.len());
    for task in tasks {
        blocks.push(task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??);
    }
    Ok(blocks)
}

/// Encodes and writes one block at a time, as its rows arrive.
async fn write_blocks_streaming(
    writer: &BlockWriter,
    mut batches: impl StreamExt<Item = Result<RecordBatch>> + Unpin,
) -> Result<Vec<NewBlock>> {
    let mut blocks = Vec::new();
    let mut builder = writer.builder();
    while let Some(batch) = batches.next().await {
        builder.push(&batch?).map_err(external)?;
        if builder.is_full() {
            blocks.push(writer.write(std::mem::replace(&mut builder, writer.builder()))?);
        }
    }
    if builder.rows() > 0 {
        blocks.push(writer.write(builder)?);
    }
    Ok(blocks)
}

/// Estimated plain bytes of a batch, without encoding. For strings, the length of their values.
pub(crate) fn plain_bytes(batch: &RecordBatch, schema: &Schema) -> u64 {
    let rows = batch.num_rows() as u64;
    let column_bytes = |(array, column): (&ArrayRef, &taut_types::Column)| match column.logical_type.plain_bytes() {
        Some(bytes) => rows * bytes as u64,
        None => string_bytes(array),
    };
    batch.columns().iter().zip(schema.columns()).map(column_bytes).sum()
}

/// Bytes of the values of a string or binary array; 0 for other types.
pub(crate) fn string_bytes(array: &ArrayRef) -> u64 {
    let lengths = |views: &[u128]| views.iter().map(|view| u64::from(*view as u32)).sum();
    match array.data_type() {
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        _ => 0,
    }
}
