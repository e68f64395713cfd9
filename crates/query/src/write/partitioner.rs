//! Writes rows into blocks that each hold rows of one partition.
//!
//! ```text
//! batches ──> waiting ──> per partition: rows until a block is full ──> encode and write, several at once
//!             32 MiB      256 MiB in all; beyond that, the block of the fullest partition is written early
//! ```
//!
//! If a range partitioning has no boundaries yet, quantiles of the waiting rows become its boundaries. In that case
//! rows may wait up to the second limit. If the rows are too few or too similar for final boundaries, they are written
//! to unpartitioned blocks: see [`boundaries_are_final`]. docs/adr/0012-partitions.md gives the reasons.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion_common_runtime::SpawnedTask;
use taut_block::{Extent, rows_until_full};
use taut_store::NewBlock;
use taut_types::{BlockSize, LogicalType, PartitionDesign, Partitioning, datum_at};

use super::blocks::{BlockWriter, plain_bytes, string_bytes};
use super::external;
use super::row_ids::BlockInProgress;

/// Limits for rows in memory, in bytes.
#[derive(Clone, Copy, Debug)]
struct MemoryBounds {
    /// Maximum bytes that are held until blocks are full.
    buffered: usize,
    /// Bytes that are partitioned at a time. Large enough that each of many partitions gets more than a few rows.
    partitioned_at_once: usize,
}

const MEMORY_BOUNDS: MemoryBounds = MemoryBounds { buffered: 256 << 20, partitioned_at_once: 32 << 20 };
/// Maximum number of values in the sample from which boundaries are chosen.
pub(crate) const SAMPLE_ROWS: u64 = 65_536;

/// Rows per partition at which range boundaries become final, even if there are fewer boundaries than the
/// [`PartitionDesign`] requests.
const FINAL_ROWS_PER_PARTITION: u64 = 64;

/// Whether boundaries chosen from `rows` rows are final: there are as many as the design requests, or more rows would
/// hardly change them.
pub(crate) fn boundaries_are_final(partitioning: &Partitioning, rows: u64) -> bool {
    partitioning.is_complete() || (partitioning.is_divided() && rows >= final_boundary_rows(partitioning.design()))
}

/// Number of rows at which boundaries become final.
pub(crate) fn final_boundary_rows(design: PartitionDesign) -> u64 {
    FINAL_ROWS_PER_PARTITION * u64::from(design.count)
}

/// Divides rows into blocks of one partition each.
pub(crate) struct Partitioner {
    writer: BlockWriter,
    design: Option<PartitionDesign>,
    partitioning: Option<Arc<Partitioning>>,
    bounds: MemoryBounds,
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
    /// One buffer per partition, with the partition of nulls after those of values. The last buffer is for
    /// unpartitioned rows.
    buffers: Vec<PartitionBuffer>,
    buffered_bytes: usize,
}

/// Rows of one partition that are held in memory.
#[derive(Default)]
struct PartitionBuffer {
    batches: Vec<RecordBatch>,
    extent: Extent,
    bytes: usize,
    /// Block of unlimited size, started early because its rows took too much memory.
    builder: Option<BlockInProgress>,
    written: Vec<SpawnedTask<Result<NewBlock>>>,
}

impl Partitioner {
    /// Divides rows by `partitioning`. If it is `None`, chooses boundaries from the rows. Without a design, rows stay
    /// unpartitioned.
    pub fn new(writer: BlockWriter, design: Option<PartitionDesign>, partitioning: Option<Arc<Partitioning>>) -> Self {
        let partitioning = partitioning.or_else(|| design.and_then(Partitioning::without_boundaries).map(Arc::new));
        let count = design.map_or(0, |design| design.count as usize + 1);
        let buffers = std::iter::repeat_with(PartitionBuffer::default).take(count + 1).collect();
        Self {
            writer,
            design,
            partitioning,
            bounds: MEMORY_BOUNDS,
            waiting: Vec::new(),
            waiting_bytes: 0,
            buffers,
            buffered_bytes: 0,
        }
    }

    /// Adds rows, in the Arrow types of the schema.
    ///
    /// # Errors
    /// If a block cannot be written.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.waiting_bytes += memory_bytes(&batch);
        self.waiting.push(batch);
        let needs_boundaries = self.design.is_some() && self.partitioning.is_none();
        let waiting_max = if needs_boundaries { self.bounds.buffered } else { self.bounds.partitioned_at_once };
        if self.waiting_bytes < waiting_max {
            return Ok(());
        }
        if needs_boundaries {
            self.choose_boundaries();
        }
        self.partition_waiting().await
    }

    /// Writes the remaining rows. Returns all blocks, partition by partition, in the order of rows within each.
    ///
    /// # Errors
    /// If a block cannot be written.
    pub async fn finish(mut self) -> Result<Vec<NewBlock>> {
        if self.partitioning.is_none() {
            self.choose_boundaries();
        }
        self.partition_waiting().await?;
        for index in 0..self.buffers.len() {
            self.finish_block(index).await?;
        }
        let unpartitioned = self.buffers.len() - 1;
        let mut order: Vec<usize> = (0..unpartitioned).collect();
        if let Some(partitioning) = &self.partitioning {
            order.sort_by_key(|index| partitioning.load_position(*index as u32, &self.writer.design.sort_by));
        }
        order.push(unpartitioned);
        let mut blocks = Vec::new();
        for index in order {
            for task in std::mem::take(&mut self.buffers[index].written) {
                let block = task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
                blocks.push(match &self.partitioning {
                    Some(partitioning) if index != unpartitioned => block.in_partition(partitioning, index as u32),
                    _ => block,
                });
            }
        }
        Ok(blocks)
    }

    /// Chooses boundaries from the waiting rows. Drops the boundaries unless they are final: see
    /// [`boundaries_are_final`].
    fn choose_boundaries(&mut self) {
        let Some(design) = self.design else { return };
        let logical = self.logical_type(design);
        let rows: u64 = self.waiting.iter().map(|batch| batch.num_rows() as u64).sum();
        let stride = rows.div_ceil(SAMPLE_ROWS).max(1) as usize;
        let (mut sample, mut next) = (Vec::new(), 0);
        for batch in &self.waiting {
            let column = batch.column(design.column.index());
            let indexes = (next..batch.num_rows()).step_by(stride);
            next = (next + indexes.len() * stride).saturating_sub(batch.num_rows());
            sample.extend(indexes.filter_map(|row| datum_at(column, logical, row)));
        }
        let chosen = Partitioning::from_sample(design, logical, sample);
        self.partitioning = chosen.filter(|partitioning| boundaries_are_final(partitioning, rows)).map(Arc::new);
    }

    fn logical_type(&self, design: PartitionDesign) -> LogicalType {
        self.writer.schema.column(design.column).logical_type
    }

    /// Distributes the waiting rows to their partitions, a limited number of bytes at a time.
    async fn partition_waiting(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        let mut waiting = std::mem::take(&mut self.waiting).into_iter().peekable();
        while waiting.peek().is_some() {
            let (mut batches, mut bytes) = (Vec::new(), 0);
            while let Some(batch) = waiting.next_if(|_| bytes < self.bounds.partitioned_at_once) {
                bytes += memory_bytes(&batch);
                batches.push(batch);
            }
            let parts = match (self.design, &self.partitioning) {
                (Some(design), Some(partitioning)) => {
                    let (partitioning, logical) = (Arc::clone(partitioning), self.logical_type(design));
                    let task =
                        SpawnedTask::spawn_blocking(move || split_by_partition(&batches, &partitioning, logical));
                    task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??
                }
                _ => batches.into_iter().map(|batch| (self.buffers.len() - 1, batch)).collect(),
            };
            for (index, part) in parts {
                self.buffer_rows(index, part).await?;
            }
            while self.buffered_bytes > self.bounds.buffered {
                let fullest =
                    (0..self.buffers.len()).max_by_key(|index| self.buffers[*index].bytes).unwrap_or_default();
                self.encode_early(fullest).await?;
            }
        }
        Ok(())
    }

    /// Adds rows to a partition, and writes the blocks that they complete.
    async fn buffer_rows(&mut self, index: usize, mut batch: RecordBatch) -> Result<()> {
        while batch.num_rows() > 0 {
            let extent = Extent { rows: batch.num_rows() as u64, bytes: plain_bytes(&batch, &self.writer.schema) };
            let rows_missing = rows_until_full(self.writer.design.block_size, self.buffers[index].extent, extent);
            let rows = usize::try_from(rows_missing).unwrap_or(usize::MAX).clamp(1, batch.num_rows());
            let rest = batch.slice(rows, batch.num_rows() - rows);
            let part = if rest.num_rows() == 0 { batch } else { batch.slice(0, rows) };
            let bytes = memory_bytes(&part);
            let buffer = &mut self.buffers[index];
            buffer.extent.rows += rows as u64;
            buffer.extent.bytes += plain_bytes(&part, &self.writer.schema);
            buffer.bytes += bytes;
            buffer.batches.push(part);
            self.buffered_bytes += bytes;
            if rows_missing <= extent.rows {
                self.finish_block(index).await?;
            }
            batch = rest;
        }
        Ok(())
    }

    /// Encodes the buffered rows of a partition to free their memory.
    async fn encode_early(&mut self, index: usize) -> Result<()> {
        let is_unpartitioned = index == self.buffers.len() - 1;
        if self.writer.design.block_size != BlockSize::File && !is_unpartitioned {
            return self.finish_block(index).await;
        }
        // The block stays open; the rows that it has so far are encoded.
        let batches = self.take_buffered(index);
        let builder = self.buffers[index].builder.take().unwrap_or_else(|| self.writer.builder());
        self.buffers[index].builder = Some(push_all(builder, batches).await?);
        Ok(())
    }

    /// Completes the block of a partition, if it has rows.
    async fn finish_block(&mut self, index: usize) -> Result<()> {
        let batches = self.take_buffered(index);
        self.buffers[index].extent = Extent::default();
        let task = match self.buffers[index].builder.take() {
            Some(builder) => {
                let (builder, writer) = (push_all(builder, batches).await?, self.writer.clone());
                SpawnedTask::spawn_blocking(move || writer.write(builder))
            }
            None if batches.is_empty() => return Ok(()),
            None => self.writer.spawn_block(batches).await?,
        };
        self.buffers[index].written.push(task);
        Ok(())
    }

    fn take_buffered(&mut self, index: usize) -> Vec<RecordBatch> {
        let buffer = &mut self.buffers[index];
        self.buffered_bytes -= std::mem::take(&mut buffer.bytes);
        std::mem::take(&mut buffer.batches)
    }
}

/// Appends batches to a builder, on a thread for blocking calls.
async fn push_all(mut builder: BlockInProgress, batches: Vec<RecordBatch>) -> Result<BlockInProgress> {
    let task = SpawnedTask::spawn_blocking(move || {
        batches.iter().try_for_each(|batch| builder.push(batch).map_err(external))?;
        Ok(builder)
    });
    task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
}

/// Splits batches by partition. The rows of each partition stay in order.
fn split_by_partition(
    batches: &[RecordBatch],
    partitioning: &Partitioning,
    logical: LogicalType,
) -> Result<Vec<(usize, RecordBatch)>> {
    let mut rows: Vec<Vec<(usize, usize)>> = vec![Vec::new(); partitioning.null_partition() as usize + 1];
    for (index, batch) in batches.iter().enumerate() {
        let column = batch.column(partitioning.design().column.index());
        for (row, partition) in partitioning.partitions_of_rows(column, logical).into_iter().enumerate() {
            rows[partition as usize].push((index, row));
        }
    }
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    let parts = rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
    parts.map(|(partition, rows)| Ok((partition, copy_text(interleave_record_batch(&batches, &rows)?)?))).collect()
}

/// Copies the strings of a batch. String views would otherwise keep the strings of all their source batches in memory.
fn copy_text(batch: RecordBatch) -> Result<RecordBatch> {
    let copied = |array: &ArrayRef| -> ArrayRef {
        match array.data_type() {
            DataType::Utf8View => Arc::new(array.as_string_view().gc()),
            DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
            _ => Arc::clone(array),
        }
    };
    Ok(RecordBatch::try_new(batch.schema(), batch.columns().iter().map(copied).collect())?)
}

/// Estimated bytes of a batch in memory. For a slice, counts only its own rows.
fn memory_bytes(batch: &RecordBatch) -> usize {
    let of_array = |array: &ArrayRef| match array.data_type().primitive_width() {
        Some(width) => width * array.len(),
        None => size_of::<u128>() * array.len() + string_bytes(array) as usize,
    };
    batch.columns().iter().map(of_array).sum()
}

#[cfg(test)]
mod tests;
