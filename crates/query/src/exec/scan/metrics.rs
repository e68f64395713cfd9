//! Metrics of a scan, as `EXPLAIN ANALYZE` shows them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, CustomMetricValue, ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricValue,
};
use parking_lot::Mutex;
use taut_block::{AccessPaths, ScanReport};
use taut_store::{DeltaPage, ReadCounters, Table};

/// Function that reads one counter of a report.
type ReportValue = fn(&ScanReport) -> u64;

/// Metrics of one partition of a scan.
pub struct ScanMetrics {
    pub baseline: BaselineMetrics,
    pub counters: Arc<ReadCounters>,
    pub blocks: Count,
    /// Blocks that statistics rule out.
    pub blocks_skipped_by_statistics: Count,
    /// Blocks in partitions of the table that are ruled out.
    pub blocks_skipped_by_partition: Count,
    /// Rows of delta pages. `None` if the table has no delta pages.
    delta_rows: Option<Count>,
    report: ScanReport,
    published: ScanReport,
    report_counters: [(Count, ReportValue); 15],
    /// Access paths of each block.
    paths: Arc<BlockPaths>,
    /// Partitions of the table that were read or ruled out, if the table is partitioned.
    partitions: Option<Arc<PartitionCounts>>,
    disk_bytes: Count,
    cache_bytes: Count,
    /// Bytes read from disk and from the cache until the last call of [`Self::publish`].
    read_before: (u64, u64),
}

impl ScanMetrics {
    /// Registers the metrics of one partition of a scan, starting at zero.
    pub fn new(metrics: &ExecutionPlanMetricsSet, table: &Table, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        let report_counters: [(&'static str, ReportValue); 15] = [
            ("segments", |report| report.segments),
            ("segments_skipped_by_zone_map", |report| report.segments_skipped),
            ("segments_skipped_by_bloom", |report| report.segments_skipped_by_bloom),
            ("segments_skipped_by_csb", |report| report.segments_skipped_by_csb),
            ("zones", |report| report.zones),
            ("zones_skipped_by_zone_map", |report| report.zones_skipped),
            ("rows_in", |report| report.rows_in),
            ("bytes_decoded", |report| report.bytes_decoded),
            ("pages_read", |report| report.pages_read),
            ("path_zone_map_answers", |report| report.predicates_decided_by_zone_maps),
            ("path_sorted_searches", |report| report.sorted_searches),
            ("path_csb_searches", |report| report.index_searches),
            ("path_encoded_predicates", |report| report.column_scans),
            ("path_dictionary_predicates", |report| report.dictionary_predicates),
            ("path_decoded_predicates", |report| report.row_predicates),
        ];
        let paths = Arc::new(BlockPaths::default());
        let value = MetricValue::Custom { name: "paths".into(), value: Arc::clone(&paths) as _ };
        metrics.register(Arc::new(Metric::new(value, Some(partition))));
        let partitions = table.partitions.as_ref().map(|_| Arc::new(PartitionCounts::default()));
        if let Some(counts) = &partitions {
            let value = MetricValue::Custom { name: "partitions".into(), value: Arc::clone(counts) as _ };
            metrics.register(Arc::new(Metric::new(value, Some(partition))));
        }
        Self {
            paths,
            partitions,
            baseline: BaselineMetrics::new(metrics, partition),
            counters: ReadCounters::new(),
            blocks: count("blocks"),
            blocks_skipped_by_statistics: count("blocks_skipped_by_statistics"),
            blocks_skipped_by_partition: count("blocks_skipped_by_partition"),
            delta_rows: (!table.delta.has_no_pages()).then(|| count("delta_rows")),
            report: ScanReport::default(),
            published: ScanReport::default(),
            report_counters: report_counters.map(|(name, value)| (count(name), value)),
            disk_bytes: count("bytes_read_from_disk"),
            cache_bytes: count("bytes_read_from_cache"),
            read_before: (0, 0),
        }
    }

    /// Returns the report to which readers of blocks add their counts.
    pub fn report(&mut self) -> &mut ScanReport {
        &mut self.report
    }

    /// Counts the rows of a delta page.
    pub fn count_page(&self, page: &DeltaPage) {
        if let Some(rows) = &self.delta_rows {
            rows.add(page.rows());
        }
    }

    /// Counts a partition of the table as read or as ruled out.
    pub fn count_partition(&self, partition: u32, is_read: bool) {
        if let Some(partitions) = &self.partitions {
            *partitions.was_read.lock().entry(partition).or_default() |= is_read;
        }
    }

    /// Adds the counts since the last call to the metrics. `block` is the ordinal of the block that was read.
    pub fn publish(&mut self, block: usize) {
        let paths = std::mem::take(&mut self.report.paths);
        if !paths.is_empty() {
            *self.paths.blocks.lock().entry(block).or_default() |= paths;
        }
        for (count, value) in &self.report_counters {
            count.add((value(&self.report) - value(&self.published)) as usize);
        }
        self.published = self.report.clone();
        let read = (self.counters.disk_bytes(), self.counters.cache_bytes());
        self.disk_bytes.add((read.0 - self.read_before.0) as usize);
        self.cache_bytes.add((read.1 - self.read_before.1) as usize);
        self.read_before = read;
    }
}

/// Access paths of the blocks that were read, such as `0-11 csb; 12-14 zone_map+scan`. Blocks are numbered in the order
/// of the table.
#[derive(Debug, Default)]
struct BlockPaths {
    blocks: Mutex<BTreeMap<usize, AccessPaths>>,
}

/// Maximum ranges of blocks that are listed. Further ranges are counted.
const LISTED_MAX: usize = 12;

impl Display for BlockPaths {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize, AccessPaths)> = Vec::new();
        for (block, paths) in self.blocks.lock().iter() {
            match ranges.last_mut() {
                Some((_, last, same)) if *last + 1 == *block && same == paths => *last = *block,
                _ => ranges.push((*block, *block, *paths)),
            }
        }
        let text = |(first, last, paths): &(usize, usize, AccessPaths)| {
            let blocks = if first == last { first.to_string() } else { format!("{first}-{last}") };
            format!("{blocks} {}", paths.names().collect::<Vec<_>>().join("+"))
        };
        let listed: Vec<_> = ranges.iter().take(LISTED_MAX).map(text).collect();
        write!(formatter, "{}", listed.join("; "))?;
        match ranges.len().checked_sub(LISTED_MAX) {
            Some(more @ 1..) => write!(formatter, "; {more} more"),
            _ => Ok(()),
        }
    }
}

impl CustomMetricValue for BlockPaths {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self::default())
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        if let Some(other) = other.as_any().downcast_ref::<Self>() {
            let others = other.blocks.lock().clone();
            let mut blocks = self.blocks.lock();
            others.into_iter().for_each(|(block, paths)| *blocks.entry(block).or_default() |= paths);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| *self.blocks.lock() == *other.blocks.lock())
    }
}

/// Number of partitions of the table that were read and that were ruled out: `2 read, 6 pruned`.
#[derive(Debug, Default)]
struct PartitionCounts {
    /// Whether each partition of the table was read, by partition number.
    was_read: Mutex<BTreeMap<u32, bool>>,
}

impl Display for PartitionCounts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let was_read = self.was_read.lock();
        let read = was_read.values().filter(|is_read| **is_read).count();
        write!(formatter, "{read} read, {} pruned", was_read.len() - read)
    }
}

impl CustomMetricValue for PartitionCounts {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self::default())
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        if let Some(other) = other.as_any().downcast_ref::<Self>() {
            let others = other.was_read.lock().clone();
            let mut was_read = self.was_read.lock();
            others.into_iter().for_each(|(partition, is_read)| *was_read.entry(partition).or_default() |= is_read);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| *self.was_read.lock() == *other.was_read.lock())
    }
}
