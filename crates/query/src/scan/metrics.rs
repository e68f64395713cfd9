//! What a scan did, as `EXPLAIN ANALYZE` shows it.

use std::sync::Arc;

use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use taut_block::ScanReport;
use taut_store::ReadCounters;

/// What a counter shows of a report.
type Shown = fn(&ScanReport) -> u64;

/// The counters of one partition.
pub struct ScanMetrics {
    pub baseline: BaselineMetrics,
    pub counters: Arc<ReadCounters>,
    pub blocks: Count,
    /// Blocks in which no row can pass, by their statistics.
    pub blocks_skipped_by_statistics: Count,
    report: ScanReport,
    published: ScanReport,
    shown: [(Count, Shown); 11],
    disk_bytes: Count,
    cache_bytes: Count,
    read_before: (u64, u64),
}

impl ScanMetrics {
    /// Counters at zero.
    pub fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        let shown: [(&'static str, Shown); 11] = [
            ("segments", |report| report.segments),
            ("segments_skipped_by_zone_map", |report| report.segments_skipped),
            ("zones", |report| report.zones),
            ("zones_skipped_by_zone_map", |report| report.zones_skipped),
            ("rows_in", |report| report.rows_in),
            ("bytes_decoded", |report| report.bytes_decoded),
            ("pages_read", |report| report.pages_read),
            ("path_zone_map_answers", |report| report.zone_answers),
            ("path_encoded_tests", |report| report.column_scans),
            ("path_dictionary_tests", |report| report.dictionary_tests),
            ("path_decoded_tests", |report| report.row_tests),
        ];
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            counters: ReadCounters::new(),
            blocks: count("blocks"),
            blocks_skipped_by_statistics: count("blocks_skipped_by_statistics"),
            report: ScanReport::default(),
            published: ScanReport::default(),
            shown: shown.map(|(name, value)| (count(name), value)),
            disk_bytes: count("bytes_read_from_disk"),
            cache_bytes: count("bytes_read_from_cache"),
            read_before: (0, 0),
        }
    }

    /// The report that blocks add to.
    pub fn report(&mut self) -> &mut ScanReport {
        &mut self.report
    }

    /// Shows what was counted since the last time.
    pub fn publish(&mut self) {
        for (count, value) in &self.shown {
            count.add((value(&self.report) - value(&self.published)) as usize);
        }
        self.published = self.report.clone();
        let read = (self.counters.disk_bytes(), self.counters.cache_bytes());
        self.disk_bytes.add((read.0 - self.read_before.0) as usize);
        self.cache_bytes.add((read.1 - self.read_before.1) as usize);
        self.read_before = read;
    }
}
