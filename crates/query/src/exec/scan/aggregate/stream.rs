//! Stream of the partial states of one partition.

use std::sync::Arc;

use async_stream::try_stream;
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use roaring::RoaringBitmap;
use taut_block::SegmentReader;
use taut_store::OpenBlock;
use taut_types::{ColumnIndex, Datum, LogicalType};

use super::super::driver::{Candidate, CandidateRows, Conditions, ScanDriver, ScanStep, SlicePace, block_error};
use super::super::metrics::ScanMetrics;
use super::super::morsels::WorkQueue;
use super::super::source::ScanSource;
use super::keys::{AggregateError, KeyMapping, PartitionGroups, SHARED_INDEXES_MAX};
use super::plan::AggregatePlan;
use super::segment::{Destination, SegmentCounts, aggregate, should_subtract};
use super::states::States;

/// Metrics of one partition.
struct Metrics {
    baseline: BaselineMetrics,
    counts: SegmentCounts,
    counters: [Count; 6],
}

impl Metrics {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let names = [
            "segments_by_codes",
            "segments_in_runs",
            "segments_by_hash",
            "segments_in_64_bits",
            "segments_decoded",
            "segments_by_statistics",
        ];
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            counts: SegmentCounts::default(),
            counters: names.map(|name| MetricBuilder::new(metrics).counter(name, partition)),
        }
    }

    fn publish(&mut self) {
        let SegmentCounts { indexed, in_runs, hashed, narrow, decoded, summarized } = std::mem::take(&mut self.counts);
        for (counters, count) in self.counters.iter().zip([indexed, in_runs, hashed, narrow, decoded, summarized]) {
            counters.add(count);
        }
    }
}

/// Groups and states of one partition, and their memory reservation.
struct GroupTable {
    plan: Arc<AggregatePlan>,
    keys: PartitionGroups,
    states: States,
    /// Contribution of deleted rows to `states`.
    deleted: States,
    reservation: MemoryReservation,
    batch_rows: usize,
}

impl GroupTable {
    fn new(plan: Arc<AggregatePlan>, source: &ScanSource, context: &TaskContext) -> Result<Self> {
        let mappings = shared_mappings(&plan.keys, source);
        let keys = PartitionGroups::new(plan.keys.clone(), Arc::clone(&plan.key_schema), mappings)?;
        let reservation = MemoryConsumer::new("TautAggregate").with_can_spill(true).register(context.memory_pool());
        let (states, deleted) = (States::new(Arc::clone(&plan))?, States::new(Arc::clone(&plan))?);
        Ok(Self { plan, keys, states, deleted, reservation, batch_rows: context.session_config().batch_size() })
    }

    /// Reserves memory for the current size. Returns false if the memory limit is reached.
    fn try_reserve(&mut self) -> bool {
        self.reservation.try_resize(self.keys.bytes() + self.states.bytes() + self.deleted.bytes()).is_ok()
    }

    /// Returns all groups and states, and removes them.
    fn emit_all(&mut self) -> Result<Vec<RecordBatch>> {
        let groups = self.keys.count();
        if groups == 0 {
            return Ok(Vec::new());
        }
        let has_rows = match self.plan.can_subtract() {
            true => self.states.subtract(&mut self.deleted, groups),
            false => None,
        };
        let mut arrays = self.keys.emit_all()?;
        arrays.extend(self.states.emit_all(groups)?);
        self.reservation.free();
        let options = datafusion::arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(groups));
        let mut all = RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), arrays, &options)?;
        // All rows of a group may be deleted. Without keys there is always one group.
        if let Some(has_rows) = has_rows.filter(|_| !self.plan.keys.is_empty()) {
            all = filter_record_batch(&all, &has_rows)?;
        }
        let groups = all.num_rows();
        let start = (0..groups).step_by(self.batch_rows.max(1));
        Ok(start.map(|start| all.slice(start, self.batch_rows.min(groups - start))).collect())
    }
}

/// Returns the conversions of keys to indexes that all segments share. Returns `None` unless all keys are numbers in
/// small ranges, and the table has enough rows for these ranges.
fn shared_mappings(keys: &[ColumnIndex], source: &ScanSource) -> Option<Vec<KeyMapping>> {
    let (mut mappings, mut indexes) = (Vec::with_capacity(keys.len()), 1_usize);
    for column in keys {
        let known = source.table().stored().statistics.get(column.index())?;
        let number = |datum: &Option<Datum>| datum.as_ref().and_then(Datum::number);
        let logical_type = source.table().stored().schema.column(*column).logical_type;
        if logical_type.is_bytes() || matches!(logical_type, LogicalType::Real | LogicalType::Double) {
            return None;
        }
        let mapping = KeyMapping::from_bounds((number(&known.min)?, number(&known.max)?))?;
        indexes = indexes.saturating_mul(mapping.count());
        mappings.push(mapping);
    }
    // An array with an entry for each index does not pay off for few rows.
    let rows = usize::try_from(source.table().rows()).unwrap_or(usize::MAX);
    (indexes <= SHARED_INDEXES_MAX.min(rows.saturating_mul(4)) && !mappings.is_empty()).then_some(mappings)
}

/// An open segment whose rows are not filtered yet.
struct Segment<'a> {
    plan: &'a AggregatePlan,
    block: &'a OpenBlock,
    reader: SegmentReader<'a>,
}

impl<'a> Segment<'a> {
    /// Aggregates the rows that are not deleted and pass the conditions. Returns their number.
    fn aggregate_segment(
        mut self,
        deleted: Option<&'a RoaringBitmap>,
        conditions: &mut Conditions<'_>,
        table: &mut GroupTable,
        (scan, counts): (&mut ScanMetrics, &mut SegmentCounts),
    ) -> Result<usize> {
        let error_of = |failure| match failure {
            AggregateError::Block(error) => block_error(self.block, error),
            AggregateError::Engine(error) => error,
        };
        let Conditions { predicate, history, .. } = conditions;
        let mut subtracted = None;
        if let Some(deleted) = deleted {
            // Row predicates may fail on deleted rows.
            if predicate.row_predicates.is_empty()
                && should_subtract(self.plan, &self.reader, deleted).map_err(error_of)?
            {
                subtracted = Some(deleted);
            } else {
                self.reader.exclude(deleted);
            }
        }
        let reader = &mut self.reader;
        let selection = reader.filter_in_order(predicate, history, scan.report());
        let selection = selection.map_err(|error| block_error(self.block, error))?;
        let deleted = subtracted.map(|deleted| selection.ordinals(deleted)).unwrap_or_default();
        let GroupTable { keys, states, deleted: deleted_states, .. } = table;
        let destination = Destination { keys, states, deleted: deleted_states };
        aggregate(self.plan, reader, (&selection, &deleted), destination, (scan.report(), counts)).map_err(error_of)?;
        scan.report().rows_out -= deleted.len() as u64;
        Ok(selection.len() - deleted.len())
    }
}

/// Work of a partition.
pub struct PartitionWork {
    /// Remaining segments.
    pub segments: Arc<WorkQueue>,
    /// DataFusion's aggregation of the rows in delta pages.
    pub page_aggregate: Option<Arc<dyn ExecutionPlan>>,
}

/// Opens the stream of one partition. It reads nothing, dynamic filters included, before it is polled.
pub fn open(
    plan: Arc<AggregatePlan>,
    source: &ScanSource,
    work: PartitionWork,
    (metrics, partition): (&ExecutionPlanMetricsSet, usize),
    context: Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let schema = Arc::clone(&plan.schema);
    let source = source.clone();
    let mut metrics = Metrics::new(metrics, partition);
    let stream = try_stream! {
        let stored = source.table().stored();
        let mut driver = ScanDriver::new(&source, work.segments, partition, context.session_config())?;
        let scan_baseline = driver.metrics().baseline.clone();
        let mut table = GroupTable::new(Arc::clone(&plan), &source, &context)?;
        let mut pace = SlicePace::new(context.session_config());
        loop {
            {
                let compute = metrics.baseline.elapsed_compute().clone();
                let _timer = compute.timer();
                let Some(step) = driver.step()? else { break };
                if let ScanStep::Candidate(Candidate { rows, conditions, metrics: scan, .. }) = step
                    && let CandidateRows::Segment(block, segment) = rows
                {
                    let deleted = stored.deleted_of_segment(block, segment);
                    let segment = Segment { plan: &plan, block, reader: block.block().open_segment(block, segment) };
                    let counts = (scan, &mut metrics.counts);
                    let rows = segment.aggregate_segment(deleted, conditions, &mut table, counts)?;
                    scan_baseline.record_output(rows);
                }
                metrics.publish();
            }
            if !table.try_reserve() {
                // The final aggregation merges repeated states of a group.
                for batch in table.emit_all()? {
                    yield batch.record_output(&metrics.baseline);
                }
                pace.restart();
            }
            pace.yield_if_over().await;
        }
        driver.publish();
        for batch in table.emit_all()? {
            yield batch.record_output(&metrics.baseline);
        }
        // Groups that are also in blocks are repeated; the final aggregation merges them.
        if let Some(page_aggregate) = &work.page_aggregate {
            let mut states = page_aggregate.execute(partition, context)?;
            while let Some(batch) = states.next().await {
                let batch = batch?;
                yield batch.record_output(&metrics.baseline);
            }
        }
        metrics.baseline.done();
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream)) as SendableRecordBatchStream
}
