//! How far a long statement has come.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A moment of a long statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done: `query`, `load lineitem`, `rewrite lineitem` and the like.
    pub operation: String,
    /// Rows done: written, or for a query looked at by its scans.
    pub rows_done: u64,
    /// Rows in all, where that is known.
    pub rows_total: Option<u64>,
}

impl Progress {
    /// The operation of a query.
    pub const QUERY: &str = "query";
}

/// Is told of progress, from any thread, about once per batch of rows.
pub type ProgressCallback = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Counts the rows of one statement and tells a callback.
#[derive(Clone)]
pub struct ProgressCounter {
    operation: Arc<str>,
    rows_done: Arc<AtomicU64>,
    rows_total: Option<u64>,
    callback: ProgressCallback,
}

impl ProgressCounter {
    /// A counter at zero.
    pub fn new(operation: &str, rows_total: Option<u64>, callback: ProgressCallback) -> Self {
        Self { operation: operation.into(), rows_done: Arc::default(), rows_total, callback }
    }

    /// Counts rows that are done.
    pub fn add(&self, rows: u64) {
        let rows_done = self.rows_done.fetch_add(rows, Ordering::Relaxed) + rows;
        (self.callback)(&Progress { operation: self.operation.to_string(), rows_done, rows_total: self.rows_total });
    }

    /// Counts from zero again.
    pub fn restart(&self) {
        self.rows_done.store(0, Ordering::Relaxed);
    }
}

impl Debug for ProgressCounter {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "ProgressCounter({}, {})", self.operation, self.rows_done.load(Ordering::Relaxed))
    }
}

/// The counter of a query, as its scans find it in their context. That of a load is in the context of its queries too.
#[derive(Clone, Debug)]
pub struct ScanProgress(pub ProgressCounter);
