//! Order in which the column predicates of a scan run. The predicate that rules out the most rows per unit of cost runs
//! first.
//!
//! The cost counts reading and computing. Among columns that are stored alone, narrow columns cost less. The expected
//! selectivity comes from the bounds of zones. Once a predicate has run on enough rows of the scan, its observed
//! selectivity replaces the estimate, so the order adapts from segment to segment.

use taut_index::{Zone, ZoneMap};
use taut_types::{ColumnPredicate, Datum, DatumPredicate};

/// Cost of a predicate on text or bytes, relative to a predicate on numbers.
const BYTES_COST: f64 = 4.0;
/// Cost of comparing one number, in bytes: reading this many bytes takes as long.
const COMPARISON_BYTES: f64 = 1.0;

/// Rows on which a predicate must have run before its observed selectivity replaces the estimate from zone bounds.
const OBSERVED_ROWS_MIN: f64 = 4096.0;
/// Number of rows above which the counts are halved, so that older observations lose weight.
const UNDECAYED_ROWS_MAX: f64 = 1_048_576.0;

/// Observed selectivity of each column predicate of one predicate, over the segments that were filtered so far.
///
/// The column predicates are identified by their ordinals. Another [`Predicate`](taut_types::Predicate) therefore needs
/// a new history.
#[derive(Clone, Debug, Default)]
pub struct PredicateHistory {
    counts: Vec<PredicateCounts>,
}

/// Number of rows on which a column predicate ran, and the number that passed.
#[derive(Clone, Copy, Debug, Default)]
struct PredicateCounts {
    rows: f64,
    passed: f64,
}

impl PredicateCounts {
    fn add(&mut self, rows: usize, passed: usize) {
        if self.rows > UNDECAYED_ROWS_MAX {
            (self.rows, self.passed) = (self.rows / 2.0, self.passed / 2.0);
        }
        (self.rows, self.passed) = (self.rows + rows as f64, self.passed + passed as f64);
    }

    /// Share of rows that passed. Returns `None` if the predicate ran on too few rows.
    fn passing_share(self) -> Option<f64> {
        (self.rows >= OBSERVED_ROWS_MIN).then(|| self.passed / self.rows)
    }
}

impl PredicateHistory {
    /// Records that the column predicate with the ordinal `predicate` ran on `rows` rows, and that `passed` rows
    /// passed.
    pub(crate) fn record(&mut self, predicate: usize, rows: usize, passed: usize) {
        if self.counts.len() <= predicate {
            self.counts.resize(predicate + 1, PredicateCounts::default());
        }
        self.counts[predicate].add(rows, passed);
    }

    /// Observed share of rows that passed a column predicate. Returns `None` if it ran on too few rows.
    pub(crate) fn observed_share(&self, predicate: usize) -> Option<f64> {
        self.counts.get(predicate).and_then(|counts| counts.passing_share())
    }
}

/// Rank of a column predicate in the order of execution. Lower ranks run first. `share` is the share of rows that pass,
/// `row_bytes` the bytes read per row.
pub(crate) fn rank(predicate: &ColumnPredicate, share: f64, row_bytes: f64) -> f64 {
    let cost = match predicate.condition {
        DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_) => BYTES_COST,
        DatumPredicate::Range { .. } | DatumPredicate::OneOf(_) | DatumPredicate::Null => 1.0,
    };
    (share - 1.0) / (cost * (COMPARISON_BYTES + row_bytes))
}

/// Estimated share of rows that pass a column predicate, from the bounds of zones. Assumes that numbers are spread
/// evenly, and guesses for text. A wrong estimate costs time, but never changes a result.
pub(crate) fn expected_share(predicate: &ColumnPredicate, zones: &ZoneMap) -> f64 {
    let (mut passing, mut rows, mut start) = (0.0, 0.0, 0);
    for zone in zones.zones() {
        let zone_rows = f64::from(zone.rows_end - start);
        passing += zone_rows * zone_share(predicate, zone, zone_rows);
        rows += zone_rows;
        start = zone.rows_end;
    }
    passing / f64::max(rows, 1.0)
}

/// Estimated share of the rows of a zone that pass.
fn zone_share(predicate: &ColumnPredicate, zone: &Zone, rows: f64) -> f64 {
    let nulls = f64::from(zone.nulls) / rows;
    let Some((min, max)) = &zone.bounds else {
        return if predicate.condition == DatumPredicate::Null && !predicate.negated { 1.0 } else { 0.0 };
    };
    let numbers = max.as_ref().and_then(Datum::number).zip(min.number());
    let value_share = match (&predicate.condition, numbers) {
        (DatumPredicate::Null, _) => return if predicate.negated { 1.0 - nulls } else { nulls },
        (DatumPredicate::Range { low, high }, Some((max, min))) => {
            let (low, high) = ((*low).max(min), (*high).min(max));
            if low > high { 0.0 } else { numbers_between(low, high) / numbers_between(min, max) }
        }
        (DatumPredicate::OneOf(list), Some((max, min))) => list.len() as f64 / numbers_between(min, max),
        (DatumPredicate::BytesRange { low, high }, _) if low == high => 0.05,
        (DatumPredicate::BytesRange { .. }, _) => 0.3,
        (DatumPredicate::BytesOneOf(list), _) => (0.05 * list.len() as f64).min(0.5),
        (DatumPredicate::Range { .. } | DatumPredicate::OneOf(_), None) => 0.0,
    };
    let value_share = value_share.clamp(0.0, 1.0);
    (1.0 - nulls) * if predicate.negated { 1.0 - value_share } else { value_share }
}

/// Count of the integers from `low` to `high`, both included.
fn numbers_between(low: i128, high: i128) -> f64 {
    let distance = high.abs_diff(low);
    // The processor converts 64-bit numbers to `f64` in one instruction, but not 128-bit numbers.
    u64::try_from(distance).map_or(distance as f64, |distance| distance as f64) + 1.0
}
