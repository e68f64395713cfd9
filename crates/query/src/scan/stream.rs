//! The rows of one partition of a scan.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_stream::try_stream;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterTracking};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use taut_block::{BlockError, TestHistory};
use taut_store::{OpenBlock, Table};
use taut_types::{ColumnIndex, Predicate};

use super::metrics::ScanMetrics;
use super::predicate::translate;
use super::source::ScanSource;
use crate::progress::ScanProgress;

/// A segment of a block: what a partition reads at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Morsel {
    /// Place among the table's blocks.
    pub block: usize,
    pub segment: usize,
}

/// The segments that are left, in order. Partitions that share a queue take from it until it is empty, so that none
/// waits while another has work.
#[derive(Debug)]
pub struct WorkQueue {
    morsels: Vec<Morsel>,
    next: AtomicUsize,
}

impl WorkQueue {
    /// The segments of some of a table's blocks.
    pub fn new(table: &Table, blocks: Range<usize>) -> Self {
        let segments = |block: usize| table.blocks[block].entry().segments as usize;
        let morsels =
            blocks.flat_map(|block| (0..segments(block)).map(move |segment| Morsel { block, segment })).collect();
        Self { morsels, next: AtomicUsize::new(0) }
    }

    /// The segments of all of a table's blocks.
    pub fn all(table: &Table) -> Self {
        Self::new(table, 0..table.blocks.len())
    }

    pub(super) fn take(&self) -> Option<Morsel> {
        self.morsels.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }
}

/// The conditions of a scan as they are now: dynamic filters tighten while it runs.
pub(super) struct Conditions<'a> {
    source: &'a ScanSource,
    tracking: Option<DynamicFilterTracking>,
    pub predicate: Predicate,
    /// For each partition of the table, whether rows in it may pass; `None` where it has no partitions.
    admitted: Option<Vec<bool>>,
    /// What the tests of this predicate did so far.
    pub history: TestHistory,
}

impl<'a> Conditions<'a> {
    pub fn new(source: &'a ScanSource) -> Result<Self> {
        let and = |left: Arc<dyn PhysicalExpr>, right| Arc::new(BinaryExpr::new(left, Operator::And, right)) as _;
        let tracking = source.filters.iter().cloned().reduce(and).map(|all| DynamicFilterTracking::classify(&all));
        let mut conditions =
            Self { source, tracking, predicate: Predicate::default(), admitted: None, history: TestHistory::default() };
        conditions.translate()?;
        Ok(conditions)
    }

    fn translate(&mut self) -> Result<()> {
        let table = self.source.table();
        self.history = TestHistory::default();
        self.predicate = translate(&self.source.filters, &table.stored().schema, &table.arrow())?;
        self.admitted = table.admitted_partitions(&self.predicate);
        Ok(())
    }

    /// Whether rows of a partition may pass.
    fn admits(&self, partition: u32) -> bool {
        self.admitted.as_ref().and_then(|admitted| admitted.get(partition as usize)).copied().unwrap_or(true)
    }

    /// Brings the predicate up to date.
    pub fn refresh(&mut self) -> Result<()> {
        let watcher = self.tracking.as_mut().and_then(DynamicFilterTracking::watcher);
        if watcher.is_some_and(|watcher| watcher.changed()) {
            self.translate()?;
        }
        Ok(())
    }
}

/// Rows up to which batches are joined.
const JOINED_ROWS: usize = 8192;

/// Batches on their way out. Those of segments in which few rows pass are joined: handing a batch on, to another thread
/// as often as not, costs more than copying some rows.
struct Gathered {
    /// `None` without columns, where rows are only counted.
    coalescer: Option<BatchCoalescer>,
    ready: Option<RecordBatch>,
    /// Batches of more rows go out as they are.
    rows_max: usize,
}

impl Gathered {
    /// Joins small batches, up to `batch_rows` or [`JOINED_ROWS`].
    fn new(schema: &SchemaRef, batch_rows: usize) -> Self {
        let joined_rows = batch_rows.clamp(1, JOINED_ROWS);
        let rows_max = joined_rows / 2;
        let coalescer = BatchCoalescer::new(Arc::clone(schema), joined_rows);
        let coalescer = coalescer.with_biggest_coalesce_batch_size(Some(rows_max));
        Self { coalescer: (!schema.fields().is_empty()).then_some(coalescer), ready: None, rows_max }
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        match &mut self.coalescer {
            Some(coalescer) => {
                if batch.num_rows() > self.rows_max {
                    // Else it would be cut up to fill what waits, and so would all batches behind it.
                    coalescer.finish_buffered_batch()?;
                }
                coalescer.push_batch(batch)?;
            }
            None => self.ready = Some(batch),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.coalescer.as_mut().map_or(Ok(()), BatchCoalescer::finish_buffered_batch)?)
    }

    fn next(&mut self) -> Option<RecordBatch> {
        match &mut self.coalescer {
            Some(coalescer) => coalescer.next_completed_batch(),
            None => self.ready.take(),
        }
    }
}

/// The stream of one partition. Nothing is read, and no dynamic filter looked at, before it is polled.
pub fn open(
    source: &ScanSource,
    queue: Arc<WorkQueue>,
    partition: usize,
    context: &TaskContext,
) -> SendableRecordBatchStream {
    let batch_rows = context.session_config().batch_size();
    let progress = context.session_config().get_extension::<ScanProgress>();
    let schema = Arc::clone(&source.output);
    let source = source.clone();
    let stream = try_stream! {
        let mut metrics = ScanMetrics::new(&source.metrics, source.table().stored(), partition);
        let columns: Vec<_> = source.columns.iter().copied().map(ColumnIndex::from).collect();
        let mut conditions = Conditions::new(&source)?;
        let mut wanted = source.limit.unwrap_or(usize::MAX);
        let mut current: Option<(usize, Option<OpenBlock>)> = None;
        let mut gathered = Gathered::new(&source.output, batch_rows);
        while wanted > 0 && let Some(morsel) = queue.take() {
            conditions.refresh()?;
            let timer = metrics.baseline.elapsed_compute().clone();
            let mut running = timer.timer();
            if current.as_ref().is_none_or(|(block, _)| *block != morsel.block) {
                current = Some((morsel.block, open_block(&conditions, morsel, &mut metrics)?));
            }
            if let Some(progress) = &progress {
                progress.0.add(rows_of(source.table().stored(), morsel));
            }
            let Some((_, Some(block))) = &current else {
                metrics.publish(morsel.block);
                continue;
            };
            let mut reader = block.block().open_segment(block, morsel.segment);
            let Conditions { predicate, history, .. } = &mut conditions;
            let selection = reader
                .filter_in_order(predicate, history, metrics.report())
                .map_err(|error| block_error(block, error))?;
            let selected = selection.len().min(wanted);
            wanted -= selected;
            let mut row = 0;
            while row < selected {
                let rows = row..selected.min(row + batch_rows);
                row = rows.end;
                let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
                let arrays = reader
                    .project(&selection, rows, &columns, metrics.report())
                    .map_err(|error| block_error(block, error))?;
                let batch = RecordBatch::try_new_with_options(Arc::clone(&source.output), arrays, &options)?;
                metrics.baseline.record_output(batch.num_rows());
                gathered.push(batch)?;
                while let Some(batch) = gathered.next() {
                    running.stop();
                    yield batch;
                    running.restart();
                }
            }
            metrics.publish(morsel.block);
            running.stop();
            // Segments may come one after the other with nothing to hand on: whoever cancels has a chance in between.
            tokio::task::yield_now().await;
        }
        gathered.finish()?;
        while let Some(batch) = gathered.next() {
            yield batch;
        }
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

/// Rows of a segment, as if those of its block had as many each. They are added up before their block is opened.
pub(super) fn rows_of(table: &Table, morsel: Morsel) -> u64 {
    let entry = table.blocks[morsel.block].entry();
    let (segment, segments) = (morsel.segment as u64, entry.segments.max(1));
    let before = |segment: u64| (u128::from(entry.rows) * u128::from(segment) / u128::from(segments)) as u64;
    before(segment + 1) - before(segment)
}

/// Opens a block in which rows may pass; `None` for one in which none can. That of a partition in which none can is not
/// looked at.
pub(super) fn open_block(
    conditions: &Conditions<'_>,
    morsel: Morsel,
    metrics: &mut ScanMetrics,
) -> Result<Option<OpenBlock>> {
    let (table, predicate) = (conditions.source.table().stored(), &conditions.predicate);
    // Partitions of the scan that share a block each open it; it is counted with its first segment.
    let is_first = morsel.segment == 0;
    if let Some(partition) = table.partition_of(morsel.block) {
        let admits = conditions.admits(partition);
        metrics.count_partition(partition, admits);
        if !admits {
            metrics.blocks.add(usize::from(is_first));
            metrics.blocks_skipped_by_partition.add(usize::from(is_first));
            return Ok(None);
        }
    }
    let file = &table.blocks[morsel.block];
    if !file.entry().may_match(&predicate.column_tests) {
        metrics.blocks.add(usize::from(is_first));
        metrics.blocks_skipped_by_statistics.add(usize::from(is_first));
        return Ok(None);
    }
    let block = file.open(&metrics.counters).map_err(|error| DataFusionError::External(Box::new(error)))?;
    let may_match = predicate.column_tests.is_empty()
        || block.block().may_match(&block, &predicate.column_tests).map_err(|error| block_error(&block, error))?;
    if is_first {
        metrics.blocks.add(1);
        metrics.blocks_skipped_by_statistics.add(usize::from(!may_match));
    }
    Ok(may_match.then_some(block))
}

/// An error of a block, with the place in its file.
pub fn block_error(block: &OpenBlock, error: BlockError) -> DataFusionError {
    match error {
        BlockError::Test(error) => DataFusionError::from(error),
        other => DataFusionError::External(Box::new(block.locate(other))),
    }
}
