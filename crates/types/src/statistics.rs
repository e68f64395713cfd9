//! What is known of a column without reading it.

use serde::{Deserialize, Serialize};

use crate::{DistinctSketch, Key};

/// Exact counts and bounds of a column over some rows, and a sketch of its distinct values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnStatistics {
    /// Rows covered.
    pub rows: u64,
    /// How many of them are null.
    pub nulls: u64,
    /// Least value; for bytes, a prefix of it. `None` when all rows are null.
    pub min: Option<Key>,
    /// Greatest value; for bytes, a bound that may lie above it. `None` when all rows are null, or when bytes
    /// have no bound that is short enough.
    pub max: Option<Key>,
    /// Whether `min` and `max` are values of the column, not merely bounds.
    pub exact: bool,
    /// Bytes of the values in their plain form.
    pub plain_bytes: u64,
    /// Estimates how many values are distinct.
    pub distinct: DistinctSketch,
}

impl ColumnStatistics {
    /// The statistics of no rows: the neutral element of [`ColumnStatistics::merge`].
    pub fn empty() -> Self {
        Self { exact: true, ..Self::default() }
    }

    /// Extends these statistics by those of further rows.
    pub fn merge(&mut self, other: &Self) {
        let unbounded_max = |statistics: &Self| statistics.max.is_none() && statistics.nulls < statistics.rows;
        let no_max = unbounded_max(self) || unbounded_max(other);
        self.min = match (self.min.take(), other.min.clone()) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
        self.max = match (self.max.take(), other.max.clone()) {
            _ if no_max => None,
            (Some(left), Some(right)) => Some(left.max(right)),
            (left, right) => left.or(right),
        };
        self.rows += other.rows;
        self.nulls += other.nulls;
        self.plain_bytes += other.plain_bytes;
        self.exact &= other.exact;
        self.distinct.merge(&other.distinct);
    }

    /// How many distinct values there are, about; never more than values that are not null.
    pub fn distinct_estimate(&self) -> u64 {
        self.distinct.estimate().min(self.rows - self.nulls)
    }
}
