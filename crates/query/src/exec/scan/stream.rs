//! Stream of the rows of one partition of a scan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_stream::try_stream;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterTracking};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::metrics::RecordOutput;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use taut_block::{BlockError, PredicateHistory};
use taut_store::OpenBlock;
use taut_types::Predicate;

use super::gathered::OutputBatches;
use super::metrics::ScanMetrics;
use super::page::PageReader;
use super::predicate::translate;
use super::reader::{Output, Reader};
use super::source::ScanSource;
use super::work::{Morsel, Morsels, SegmentAddress, WorkQueue};
use crate::exec::operators::{Interrupt, JoinKeys};
use crate::runtime::progress::ScanProgress;
use crate::runtime::workers::Workers;

/// Time slice: how long a partition reads before it yields to other tasks. Most segments take some microseconds, so a
/// slice covers several. It is an extension in the config of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSlice(Duration);

impl TimeSlice {
    /// Time slice if other operators wait to run, such as the other side of a join.
    pub const AMONG_OPERATORS: Self = Self(Duration::from_micros(200));
    /// Time slice of a plan that only returns the rows of a scan, so that its partitions do not wait for each other.
    /// Yielding has a cost: the runtime wakes an idle worker for the rest of this partition. The worker takes a
    /// processor from others and finds nothing to do.
    pub const ALONE: Self = Self(Duration::from_millis(2));

    /// Time slice of a query.
    pub(super) fn of(config: &SessionConfig) -> Self {
        config.get_extension::<Self>().map_or(Self::AMONG_OPERATORS, |slice| *slice)
    }

    /// Whether a slice that began at `began` is over.
    pub(super) fn is_over(self, began: Instant) -> bool {
        began.elapsed() >= self.0
    }
}

/// Current conditions of a scan. Dynamic filters tighten while it runs.
pub(super) struct Conditions<'a> {
    source: &'a ScanSource,
    join_keys: Option<Arc<JoinKeys>>,
    tracking: Option<DynamicFilterTracking>,
    pub predicate: Predicate,
    /// For each partition of the table, whether rows in it may pass. `None` if the table is not partitioned.
    admitted: Option<Vec<bool>>,
    /// Selectivity of the predicates so far.
    pub history: PredicateHistory,
}

impl<'a> Conditions<'a> {
    pub fn new(source: &'a ScanSource, join_keys: Option<Arc<JoinKeys>>) -> Result<Self> {
        let and = |left: Arc<dyn PhysicalExpr>, right| Arc::new(BinaryExpr::new(left, Operator::And, right)) as _;
        let tracking = source.filters.iter().cloned().reduce(and).map(|all| DynamicFilterTracking::classify(&all));
        let mut conditions = Self {
            source,
            join_keys,
            tracking,
            predicate: Predicate::default(),
            admitted: None,
            history: PredicateHistory::default(),
        };
        conditions.translate()?;
        Ok(conditions)
    }

    fn translate(&mut self) -> Result<()> {
        let table = self.source.table();
        self.history = PredicateHistory::default();
        self.predicate =
            translate(&self.source.filters, &table.stored().schema, &table.arrow(), self.join_keys.as_deref())?;
        self.admitted = table.admitted_partitions(&self.predicate);
        Ok(())
    }

    /// Whether rows of a table partition may pass.
    fn admits(&self, partition: u32) -> bool {
        self.admitted.as_ref().and_then(|admitted| admitted.get(partition as usize)).copied().unwrap_or(true)
    }

    /// Translates the predicate again if a dynamic filter has changed.
    pub fn refresh(&mut self) -> Result<()> {
        let watcher = self.tracking.as_mut().and_then(DynamicFilterTracking::watcher);
        if watcher.is_some_and(|watcher| watcher.changed()) {
            self.translate()?;
        }
        Ok(())
    }
}

/// Keys of the hash joins of a query.
pub(super) fn join_keys(config: &SessionConfig) -> Option<Arc<JoinKeys>> {
    config.get_extension::<Interrupt>().map(|statement| Arc::clone(statement.join_keys()))
}

/// Opens the stream of one partition. The stream reads nothing before it is polled, not even dynamic filters.
pub fn open(
    source: &ScanSource,
    queue: Arc<WorkQueue>,
    partition: usize,
    context: &TaskContext,
) -> SendableRecordBatchStream {
    let batch_rows = context.session_config().batch_size();
    let config = context.session_config();
    let (progress, workers) = (config.get_extension::<ScanProgress>(), config.get_extension::<Workers>());
    let slice = TimeSlice::of(config);
    let join_keys = join_keys(config);
    let schema = Arc::clone(&source.output);
    let source = source.clone();
    let stream = try_stream! {
        if let Some(workers) = workers {
            workers.make_way();
        }
        let table = Arc::clone(source.table().stored());
        let mut morsels = Morsels::new(queue, Arc::clone(&table), progress);
        let mut metrics = ScanMetrics::new(&source.metrics, &table, partition);
        let output = Output::of(&source);
        let mut conditions = Conditions::new(&source, join_keys)?;
        let mut wanted = source.limit.unwrap_or(usize::MAX);
        let mut current: Option<(usize, Option<OpenBlock>)> = None;
        let mut gathered = OutputBatches::new(&source.output, output.types(&table.schema), batch_rows);
        let mut yielded = Instant::now();
        loop {
            // Many morsels in a row may have no matching row. Yielding in between lets cancellation and the batches of
            // other partitions proceed.
            if slice.is_over(yielded) {
                tokio::task::yield_now().await;
                yielded = Instant::now();
            }
            let Some(morsel) = (wanted > 0).then(|| morsels.take()).flatten() else { break };
            conditions.refresh()?;
            let timer = metrics.baseline.elapsed_compute().clone();
            let mut running = timer.timer();
            let mut reader = match morsel {
                Morsel::Segment(address) => {
                    if current.as_ref().is_none_or(|(block, _)| *block != address.block) {
                        current = Some((address.block, open_block(&conditions, address, &mut metrics)?));
                    }
                    let Some((_, Some(block))) = &current else {
                        metrics.publish(address.block);
                        continue;
                    };
                    let conjuncts = &conditions.predicate.column_predicates;
                    if morsels.index_excludes(block, address, conjuncts, metrics.report())? {
                        metrics.publish(address.block);
                        continue;
                    }
                    Reader::Segment(block, address.segment, table.open_segment(block, address.segment))
                }
                Morsel::Page(index) => {
                    let page = &table.delta.pages()[index];
                    metrics.count_page(page);
                    Reader::Page(PageReader::new(&table, page))
                }
            };
            let Conditions { predicate, history, .. } = &mut conditions;
            let selection = reader.filter(predicate, history, metrics.report())?;
            let selected = selection.len().min(wanted);
            wanted -= selected;
            let mut row = 0;
            while row < selected {
                let rows = row..selected.min(row + batch_rows);
                row = rows.end;
                let more = selected.saturating_mul(morsels.remaining()).min(wanted);
                let append = |arrays: &mut _| {
                    reader.append(&selection, rows.clone(), &output, arrays, metrics.report())
                };
                if !gathered.append(rows.len(), more, append)? {
                    gathered.push(reader.batch(&selection, rows, &output, metrics.report())?)?;
                }
                while let Some(batch) = gathered.next() {
                    running.stop();
                    yield batch.record_output(&metrics.baseline);
                    yielded = Instant::now();
                    running.restart();
                }
            }
            if let Morsel::Segment(address) = morsel {
                metrics.publish(address.block);
            }
        }
        gathered.finish()?;
        while let Some(batch) = gathered.next() {
            yield batch.record_output(&metrics.baseline);
        }
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

/// Opens a block in which rows may pass. Returns `None` if no row can pass. Blocks of a partition that is ruled out are
/// not read.
pub(super) fn open_block(
    conditions: &Conditions<'_>,
    address: SegmentAddress,
    metrics: &mut ScanMetrics,
) -> Result<Option<OpenBlock>> {
    let (table, predicate) = (conditions.source.table().stored(), &conditions.predicate);
    // Each partition of the scan that shares a block opens it. The block is counted with its first segment.
    let is_first = address.segment == 0;
    if let Some(partition) = table.partition_of(address.block) {
        let admits = conditions.admits(partition);
        metrics.count_partition(partition, admits);
        if !admits {
            metrics.blocks.add(usize::from(is_first));
            metrics.blocks_skipped_by_partition.add(usize::from(is_first));
            return Ok(None);
        }
    }
    let file = &table.blocks[address.block];
    if !file.entry().may_match(&predicate.column_predicates) {
        metrics.blocks.add(usize::from(is_first));
        metrics.blocks_skipped_by_statistics.add(usize::from(is_first));
        return Ok(None);
    }
    let block = file.open(&metrics.counters).map_err(|error| DataFusionError::External(Box::new(error)))?;
    let may_match = predicate.column_predicates.is_empty()
        || block.block().may_match(&block, &predicate.column_predicates).map_err(|error| block_error(&block, error))?;
    if is_first {
        metrics.blocks.add(1);
        metrics.blocks_skipped_by_statistics.add(usize::from(!may_match));
    }
    Ok(may_match.then_some(block))
}

/// Converts an error of a block, with the location in its file.
pub fn block_error(block: &OpenBlock, error: BlockError) -> DataFusionError {
    match error {
        BlockError::Predicate(error) => DataFusionError::from(error),
        other => DataFusionError::External(Box::new(block.locate(other))),
    }
}
