//! What a scan did: plain counters that add up over segments and threads.

/// Counters of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Segments asked.
    pub segments: u64,
    /// Segments in which zone maps left no row.
    pub segments_skipped: u64,
    /// Zones looked at, counted once per test on a column.
    pub zones: u64,
    /// Zones ruled out.
    pub zones_skipped: u64,
    /// Rows whose values some test had to look at.
    pub rows_in: u64,
    /// Rows selected.
    pub rows_out: u64,
    /// Bytes of the sections that were asked for.
    pub bytes_read: u64,
    /// Bytes of the arrays that were made, about.
    pub bytes_decoded: u64,
    /// Pages of rows that were asked for.
    pub pages_read: u64,
    /// Column tests evaluated on encoded values.
    pub column_scans: u64,
    /// Column tests that zone maps answered for all rows left.
    pub zone_answers: u64,
    /// Row tests evaluated once per dictionary entry.
    pub dictionary_tests: u64,
    /// Row tests evaluated on decoded rows.
    pub row_tests: u64,
}

impl ScanReport {
    /// Adds the counters of another report.
    pub fn merge(&mut self, other: &Self) {
        self.segments += other.segments;
        self.segments_skipped += other.segments_skipped;
        self.zones += other.zones;
        self.zones_skipped += other.zones_skipped;
        self.rows_in += other.rows_in;
        self.rows_out += other.rows_out;
        self.bytes_read += other.bytes_read;
        self.bytes_decoded += other.bytes_decoded;
        self.pages_read += other.pages_read;
        self.column_scans += other.column_scans;
        self.zone_answers += other.zone_answers;
        self.dictionary_tests += other.dictionary_tests;
        self.row_tests += other.row_tests;
    }
}
