//! Output batches of a scan. Rows of several segments share a batch if each segment has few.
//!
//! Passing a batch on, often to another thread and then to another library, costs more than decoding some thousand
//! numbers. Therefore, if all columns are numbers that are stored alone, rows of several segments are decoded into one
//! batch until it is full. Otherwise small batches are copied into one batch, as long as that is cheaper than separate
//! batches.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use taut_block::{ArrayBuilder, SEGMENT_ROWS};
use taut_types::LogicalType;

/// Maximum rows of an output batch that is copied from smaller batches.
const COPIED_ROWS: usize = 8192;

/// Output batches, in order.
pub(super) struct OutputBatches {
    schema: SchemaRef,
    /// Types of the columns. `None` if rows cannot be appended.
    types: Option<Vec<LogicalType>>,
    arrays: Vec<ArrayBuilder>,
    /// Rows in `arrays`.
    rows: usize,
    /// Capacity of `arrays` in rows.
    capacity: usize,
    /// Current maximum capacity in rows. The first batches are small, so that the consumer gets them early.
    rows_max: usize,
    batch_rows: usize,
    /// Copies small batches into larger ones. `None` if there are no columns: rows are then only counted.
    coalescer: Option<BatchCoalescer>,
    /// Maximum rows of a pushed batch that is copied. A larger one is an output batch itself.
    copied_max: usize,
    ready: VecDeque<RecordBatch>,
}

impl OutputBatches {
    /// Builds batches from columns of these types, or only from whole batches if `types` is `None`. No batch has more
    /// than `batch_rows` rows, unless a pushed batch is larger.
    pub fn new(schema: &SchemaRef, types: Option<Vec<LogicalType>>, batch_rows: usize) -> Self {
        let can_append = |types: &Vec<LogicalType>| {
            !types.is_empty() && types.iter().all(|logical| ArrayBuilder::new(*logical, 0).is_some())
        };
        let copied_rows = batch_rows.clamp(1, COPIED_ROWS);
        let copied_max = copied_rows / 2;
        let coalescer = BatchCoalescer::new(Arc::clone(schema), copied_rows);
        let coalescer = coalescer.with_biggest_coalesce_batch_size(Some(copied_max));
        Self {
            schema: Arc::clone(schema),
            types: types.filter(can_append),
            arrays: Vec::new(),
            rows: 0,
            capacity: 0,
            rows_max: batch_rows.min(SEGMENT_ROWS),
            batch_rows,
            coalescer: (!schema.fields().is_empty()).then_some(coalescer),
            copied_max,
            ready: VecDeque::new(),
        }
    }

    /// Calls `read` to append `rows` rows. Returns false if it appended none. `remaining_estimate` estimates
    /// the rows still to come.
    ///
    /// # Errors
    /// If `read` fails.
    pub fn append(
        &mut self,
        rows: usize,
        remaining_estimate: usize,
        read: impl FnOnce(&mut [ArrayBuilder]) -> Result<bool>,
    ) -> Result<bool> {
        if self.rows + rows > self.capacity {
            // Growing the arrays would copy their rows.
            self.finish_arrays()?;
        }
        let Some(types) = &self.types else { return Ok(false) };
        if rows > self.capacity {
            // Capacities are powers of two, so that memory freed with one result fits the next result.
            let capacity = rows.saturating_add(remaining_estimate).checked_next_power_of_two().unwrap_or(usize::MAX);
            self.capacity = rows.max(capacity.min(self.rows_max));
            self.arrays = types.iter().filter_map(|logical| ArrayBuilder::new(*logical, self.capacity)).collect();
        }
        if !read(&mut self.arrays)? {
            return Ok(false);
        }
        self.finish_copied()?;
        self.rows += rows;
        Ok(true)
    }

    /// Adds a batch.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.finish_arrays()?;
        let Some(coalescer) = &mut self.coalescer else {
            self.ready.push_back(batch);
            return Ok(());
        };
        if batch.num_rows() > self.copied_max {
            // Otherwise this batch and all later batches would be split to fill buffered ones.
            coalescer.finish_buffered_batch()?;
        }
        coalescer.push_batch(batch)?;
        self.ready.extend(std::iter::from_fn(|| coalescer.next_completed_batch()));
        Ok(())
    }

    /// Completes the batches that are not full.
    pub fn finish(&mut self) -> Result<()> {
        self.finish_arrays()?;
        self.finish_copied()
    }

    /// Returns the next completed batch.
    pub fn next(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    fn finish_arrays(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let arrays = std::mem::take(&mut self.arrays).into_iter().map(ArrayBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        self.capacity = 0;
        self.rows_max = self.rows_max.saturating_mul(2).min(self.batch_rows);
        self.ready.push_back(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?);
        Ok(())
    }

    fn finish_copied(&mut self) -> Result<()> {
        let Some(coalescer) = &mut self.coalescer else { return Ok(()) };
        coalescer.finish_buffered_batch()?;
        self.ready.extend(std::iter::from_fn(|| coalescer.next_completed_batch()));
        Ok(())
    }
}
