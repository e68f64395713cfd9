//! Progress of long statements.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// State of a long statement at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Name of the operation: `query`, `load lineitem`, `rewrite lineitem` and similar.
    pub operation: String,
    /// Rows processed so far: rows written, or for a query, rows read by its scans.
    pub rows_done: u64,
    /// Total number of rows, if known.
    pub rows_total: Option<u64>,
}

impl Progress {
    /// Operation name of queries.
    pub const QUERY: &str = "query";
}

/// Callback for progress. Called from any thread, about once per batch of rows.
pub type ProgressCallback = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Counts the rows of one statement and reports them to a callback.
#[derive(Clone)]
pub struct ProgressCounter {
    operation: Arc<str>,
    rows_done: Arc<AtomicU64>,
    rows_total: Option<u64>,
    callback: ProgressCallback,
}

impl ProgressCounter {
    /// Creates a counter at zero.
    pub fn new(operation: &str, rows_total: Option<u64>, callback: ProgressCallback) -> Self {
        Self { operation: operation.into(), rows_done: Arc::default(), rows_total, callback }
    }

    /// Adds rows to the count and calls the callback.
    pub fn add(&self, rows: u64) {
        let rows_done = self.rows_done.fetch_add(rows, Ordering::Relaxed) + rows;
        (self.callback)(&Progress { operation: self.operation.to_string(), rows_done, rows_total: self.rows_total });
    }

    /// Resets the count to zero.
    pub fn restart(&self) {
        self.rows_done.store(0, Ordering::Relaxed);
    }
}

impl Debug for ProgressCounter {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "ProgressCounter({}, {})", self.operation, self.rows_done.load(Ordering::Relaxed))
    }
}

/// Counter of a query, which its scans read from their context. A separate type, because the queries of a load also
/// have the counter of the load in their context.
#[derive(Clone, Debug)]
pub struct ScanProgress(pub ProgressCounter);
