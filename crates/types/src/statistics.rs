//! Statistics of columns, for planning without reading the data.

use serde::{Deserialize, Serialize};

use crate::{Datum, DistinctSketch};

/// Counts and bounds of one column over a set of rows, and a sketch of its distinct values. The counts are exact. The
/// bounds are exact if `exact` is true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnStatistics {
    /// Number of rows.
    pub rows: u64,
    /// Number of rows that are null.
    pub nulls: u64,
    /// Least value, or a prefix of it for bytes. `None` if all rows are null.
    pub min: Option<Datum>,
    /// Greatest value, or an upper bound for bytes. `None` if all rows are null, or if no upper bound of the bytes is
    /// short enough.
    pub max: Option<Datum>,
    /// Whether `min` and `max` are the least and the greatest value, not only bounds.
    pub exact: bool,
    /// Bytes of all values, unencoded.
    pub plain_bytes: u64,
    /// Estimates the number of distinct values.
    pub distinct: DistinctSketch,
}

impl ColumnStatistics {
    /// Statistics of no rows: the neutral element of [`ColumnStatistics::merge`].
    pub fn empty() -> Self {
        Self { exact: true, ..Self::default() }
    }

    /// Adds the statistics of further rows to these.
    pub fn merge(&mut self, other: &Self) {
        let is_max_unbounded = |statistics: &Self| statistics.max.is_none() && statistics.nulls < statistics.rows;
        let has_no_max = is_max_unbounded(self) || is_max_unbounded(other);
        self.min = match (self.min.take(), other.min.clone()) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
        self.max = match (self.max.take(), other.max.clone()) {
            _ if has_no_max => None,
            (Some(left), Some(right)) => Some(left.max(right)),
            (left, right) => left.or(right),
        };
        self.rows += other.rows;
        self.nulls += other.nulls;
        self.plain_bytes += other.plain_bytes;
        self.exact &= other.exact;
        self.distinct.merge(&other.distinct);
    }

    /// Estimated number of distinct values, at most the number of values that are not null.
    pub fn distinct_estimate(&self) -> u64 {
        self.distinct.estimate().min(self.rows - self.nulls)
    }
}
