//! Loop of one scan partition over its morsels, which are segments and delta pages. It takes a morsel and opens its
//! block. It rules the morsel out if partitions of the table, statistics or indexes exclude all of its rows.
//!
//! ```text
//!   WorkQueue ──> Morsels ──> block opened ──> partition, statistics, indexes ──┬─> RuledOut
//!                                                                               └─> Candidate: filter, and read rows
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterTracking};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::SessionConfig;
use taut_block::{BlockError, PredicateHistory};
use taut_store::{BlockFile, DeltaPage, OpenBlock, ReadCounters, Table};
use taut_types::{ColumnPredicate, Predicate};

use super::metrics::ScanMetrics;
use super::morsels::{Morsel, Morsels, SegmentAddress, WorkQueue};
use super::predicate::translate;
use super::source::ScanSource;
use crate::exec::operators::{Interrupt, JoinKeys};
use crate::runtime::progress::ScanProgress;
use crate::runtime::workers::Workers;

/// Time slice: how long a partition of a scan reads before it yields to other tasks. Most segments take some
/// microseconds, so a slice covers several. It is an extension in the config of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSlice(Duration);

impl TimeSlice {
    /// Time slice if other operators wait to run, such as the other side of a join.
    pub const AMONG_OPERATORS: Self = Self(Duration::from_micros(200));
    /// Time slice of a plan that only returns the rows of a scan. The partitions of such a plan do not wait for each
    /// other. Yielding has a cost: the runtime wakes an idle worker, which could continue this partition. Mostly the
    /// worker finds nothing to do, and only takes a processor from others.
    pub const SCAN_ONLY: Self = Self(Duration::from_millis(2));
}

/// Time at which a partition yields next. A partition may read many morsels without a matching row, and return no batch
/// for a long time. Yielding in between lets cancellation and other tasks of the thread proceed.
pub(super) struct SlicePace {
    slice: TimeSlice,
    began: Instant,
}

impl SlicePace {
    /// Starts the first time slice of a query with this config.
    pub fn new(config: &SessionConfig) -> Self {
        let slice = config.get_extension::<TimeSlice>().map_or(TimeSlice::AMONG_OPERATORS, |slice| *slice);
        Self { slice, began: Instant::now() }
    }

    /// Yields to other tasks if the time slice is over.
    pub async fn yield_if_over(&mut self) {
        if self.began.elapsed() >= self.slice.0 {
            tokio::task::yield_now().await;
            self.restart();
        }
    }

    /// Starts a time slice. Call after the stream has returned a batch.
    pub fn restart(&mut self) {
        self.began = Instant::now();
    }
}

/// Current conditions of a scan. Dynamic filters tighten them while the scan runs.
pub(super) struct Conditions<'a> {
    source: &'a ScanSource,
    join_keys: Option<Arc<JoinKeys>>,
    tracking: Option<DynamicFilterTracking>,
    pub predicate: Predicate,
    /// For each partition of the table, whether rows in it may pass. `None` if the table is not partitioned.
    admitted_partitions: Option<Vec<bool>>,
    /// Selectivity of the predicates so far.
    pub history: PredicateHistory,
}

impl<'a> Conditions<'a> {
    fn new(source: &'a ScanSource, join_keys: Option<Arc<JoinKeys>>) -> Result<Self> {
        let and = |left: Arc<dyn PhysicalExpr>, right| Arc::new(BinaryExpr::new(left, Operator::And, right)) as _;
        let tracking = source.filters.iter().cloned().reduce(and).map(|all| DynamicFilterTracking::classify(&all));
        let mut conditions = Self {
            source,
            join_keys,
            tracking,
            predicate: Predicate::default(),
            admitted_partitions: None,
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
        self.admitted_partitions = table.admitted_partitions(&self.predicate);
        Ok(())
    }

    /// Whether rows of a table partition may pass.
    fn may_match_partition(&self, partition: u32) -> bool {
        self.admitted_partitions.as_ref().and_then(|admitted| admitted.get(partition as usize)).copied().unwrap_or(true)
    }

    /// Translates the predicate again if a dynamic filter has changed.
    fn refresh(&mut self) -> Result<()> {
        let watcher = self.tracking.as_mut().and_then(DynamicFilterTracking::watcher);
        if watcher.is_some_and(|watcher| watcher.changed()) {
            self.translate()?;
        }
        Ok(())
    }
}

/// Result of a step of [`ScanDriver`].
pub(super) enum ScanStep<'d, 'a> {
    /// No row of the morsel passes.
    RuledOut,
    /// Rows of the morsel may pass.
    Candidate(Candidate<'d, 'a>),
}

/// A morsel whose rows may pass, with the state that a reader of it needs.
pub(super) struct Candidate<'d, 'a> {
    pub rows: CandidateRows<'d>,
    pub conditions: &'d mut Conditions<'a>,
    pub metrics: &'d mut ScanMetrics,
    /// Number of morsels after this one.
    pub remaining_morsels: usize,
}

/// Rows of a morsel.
pub(super) enum CandidateRows<'d> {
    /// A segment of an open block, by ordinal.
    Segment(&'d OpenBlock, usize),
    /// A delta page.
    Page(&'d DeltaPage),
}

/// The loop of one partition of a scan.
pub(super) struct ScanDriver<'a> {
    table: &'a Arc<Table>,
    morsels: Morsels,
    conditions: Conditions<'a>,
    metrics: ScanMetrics,
    /// Ordinal of the block of the last segment, and the block unless all of it is ruled out.
    current: Option<(usize, Option<OpenBlock>)>,
}

impl<'a> ScanDriver<'a> {
    /// Starts a partition of a scan. Call at the first poll of its stream, because the dynamic filters are read here.
    ///
    /// # Errors
    /// If a filter cannot be translated.
    pub fn new(
        source: &'a ScanSource,
        queue: Arc<WorkQueue>,
        partition: usize,
        config: &SessionConfig,
    ) -> Result<Self> {
        if let Some(workers) = config.get_extension::<Workers>() {
            workers.migrate_queued_workers();
        }
        let table = source.table().stored();
        // Keys of the hash joins of the query.
        let join_keys = config.get_extension::<Interrupt>().map(|statement| Arc::clone(statement.join_keys()));
        Ok(Self {
            table,
            morsels: Morsels::new(queue, Arc::clone(table), config.get_extension::<ScanProgress>()),
            conditions: Conditions::new(source, join_keys)?,
            metrics: ScanMetrics::new(&source.metrics, table, partition),
            current: None,
        })
    }

    /// Metrics of this partition of the scan.
    pub fn metrics(&self) -> &ScanMetrics {
        &self.metrics
    }

    /// Takes the next morsel. Returns `None` if none remains. Publishes the metrics of the previous morsel.
    ///
    /// # Errors
    /// If a block or an index cannot be read.
    pub fn step(&mut self) -> Result<Option<ScanStep<'_, 'a>>> {
        self.publish();
        let Some(morsel) = self.morsels.next() else { return Ok(None) };
        self.conditions.refresh()?;
        let rows = match morsel {
            Morsel::Segment(address) => {
                if self.is_ruled_out(address)? {
                    return Ok(Some(ScanStep::RuledOut));
                }
                let Some((_, Some(block))) = &self.current else { return Ok(Some(ScanStep::RuledOut)) };
                CandidateRows::Segment(block, address.segment)
            }
            Morsel::Page(index) => {
                let page = &self.table.delta.pages()[index];
                self.metrics.count_page(page);
                CandidateRows::Page(page)
            }
        };
        let remaining_morsels = self.morsels.remaining();
        let Self { conditions, metrics, .. } = self;
        Ok(Some(ScanStep::Candidate(Candidate { rows, conditions, metrics, remaining_morsels })))
    }

    /// Publishes the metrics counted since the last call. Call after the last candidate.
    pub fn publish(&mut self) {
        if let Some((block, _)) = self.current {
            self.metrics.publish(block);
        }
    }

    /// Opens the block of a segment, unless it is open. Returns whether the block or its indexes rule out the segment.
    fn is_ruled_out(&mut self, address: SegmentAddress) -> Result<bool> {
        if self.current.as_ref().is_none_or(|(block, _)| *block != address.block) {
            self.current = Some((address.block, self.open_block(address)?));
        }
        let Some((_, Some(block))) = &self.current else { return Ok(true) };
        let predicates = &self.conditions.predicate.column_predicates;
        self.morsels.index_excludes(block, address, predicates, self.metrics.report())
    }

    /// Opens a block in which rows may pass. Returns `None` if no row can pass. Blocks in partitions of the table that
    /// are ruled out are not read.
    fn open_block(&self, address: SegmentAddress) -> Result<Option<OpenBlock>> {
        let Self { table, conditions, metrics, .. } = self;
        // Each partition of the scan that shares a block opens it. The block is counted with its first segment.
        let is_first = address.segment == 0;
        metrics.blocks.add(usize::from(is_first));
        if let Some(partition) = table.partition_of(address.block) {
            let admits = conditions.may_match_partition(partition);
            metrics.count_partition(partition, admits);
            if !admits {
                metrics.blocks_skipped_by_partition.add(usize::from(is_first));
                return Ok(None);
            }
        }
        let (file, predicates) = (&table.blocks[address.block], &conditions.predicate.column_predicates);
        let block = match file.entry().may_match(predicates) {
            true => open_block_that_may_match(file, predicates, &metrics.counters)?,
            false => None,
        };
        metrics.blocks_skipped_by_statistics.add(usize::from(is_first && block.is_none()));
        Ok(block)
    }
}

/// Opens a block. Returns `None` if its statistics show that no row passes all of `predicates`.
///
/// # Errors
/// If the block cannot be read.
pub fn open_block_that_may_match(
    file: &Arc<BlockFile>,
    predicates: &[ColumnPredicate],
    counters: &Arc<ReadCounters>,
) -> Result<Option<OpenBlock>> {
    let block = file.open(counters).map_err(|error| DataFusionError::External(Box::new(error)))?;
    let may_match = predicates.is_empty()
        || block.block().may_match(&block, predicates).map_err(|error| block_error(&block, error))?;
    Ok(may_match.then_some(block))
}

/// Converts an error of a block to an error of DataFusion, with the location in the block's file.
pub fn block_error(block: &OpenBlock, error: BlockError) -> DataFusionError {
    match error {
        BlockError::Predicate(error) => DataFusionError::from(error),
        other => DataFusionError::External(Box::new(block.locate(other))),
    }
}
