//! In which order column tests run: the one that rules out most rows for its cost first. A scan costs what is read and what is
//! computed: of columns that are stored alone, the narrow ones cost less.
//!
//! What a test is expected to rule out comes from the bounds of zones, and once it has run on some rows of the scan,
//! from what it did rule out there: the order adapts from segment to segment.

use taut_index::{Zone, ZoneMap};
use taut_types::{ColumnTest, Key, Test};

/// A test of text or bytes costs about as much as this many of numbers.
const BYTES_COST: f64 = 4.0;
/// To test a number costs about as much as to read so many bytes.
const NUMBER_BYTES: f64 = 1.0;

/// Rows on which a test must have run before that is held against the bounds of zones.
const ROWS_MIN: f64 = 4096.0;
/// Rows after which what was seen first begins to be forgotten.
const ROWS_MAX: f64 = 1_048_576.0;

/// What the column tests of a predicate did so far in a scan. A new one fits any predicate; it must not be kept from one
/// predicate to another.
#[derive(Clone, Debug, Default)]
pub struct TestHistory {
    columns: Vec<Seen>,
}

/// How many rows a test ran on, and how many of them passed.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rows: f64,
    passed: f64,
}

impl Seen {
    fn add(&mut self, rows: usize, passed: usize) {
        if self.rows > ROWS_MAX {
            (self.rows, self.passed) = (self.rows / 2.0, self.passed / 2.0);
        }
        (self.rows, self.passed) = (self.rows + rows as f64, self.passed + passed as f64);
    }

    fn share(self) -> Option<f64> {
        (self.rows >= ROWS_MIN).then(|| self.passed / self.rows)
    }
}

impl TestHistory {
    /// Notes that a column test ran on some rows, of which some passed.
    pub(crate) fn saw_column_test(&mut self, test: usize, rows: usize, passed: usize) {
        if self.columns.len() <= test {
            self.columns.resize(test + 1, Seen::default());
        }
        self.columns[test].add(rows, passed);
    }

    /// The share of rows that passed a column test.
    pub(crate) fn share(&self, test: usize) -> Option<f64> {
        self.columns.get(test).and_then(|seen| seen.share())
    }
}

/// Where a test stands in the order, given the share of rows that pass it, and the bytes that are read for a row; lower runs
/// first.
pub(crate) fn rank(test: &ColumnTest, share: f64, row_bytes: f64) -> f64 {
    let cost = match test.test {
        Test::BytesRange { .. } | Test::BytesOneOf(_) => BYTES_COST,
        Test::Range { .. } | Test::OneOf(_) | Test::Null => 1.0,
    };
    (share - 1.0) / (cost * (NUMBER_BYTES + row_bytes))
}

/// The share of rows that pass a test, guessed from the bounds of zones as if values were spread evenly: a wrong guess
/// costs time, never an answer.
pub(crate) fn expected_share(test: &ColumnTest, zones: &ZoneMap) -> f64 {
    let (mut passing, mut rows, mut start) = (0.0, 0.0, 0);
    for zone in zones.zones() {
        let zone_rows = f64::from(zone.rows_end - start);
        passing += zone_rows * share(test, zone, zone_rows);
        rows += zone_rows;
        start = zone.rows_end;
    }
    passing / f64::max(rows, 1.0)
}

/// The share of a zone's rows that pass, about.
fn share(test: &ColumnTest, zone: &Zone, rows: f64) -> f64 {
    let nulls = f64::from(zone.nulls) / rows;
    let Some((min, max)) = &zone.bounds else {
        return if test.test == Test::Null && !test.negated { 1.0 } else { 0.0 };
    };
    let numbers = max.as_ref().and_then(Key::number).zip(min.number());
    let of_values = match (&test.test, numbers) {
        (Test::Null, _) => return if test.negated { 1.0 - nulls } else { nulls },
        (Test::Range { low, high }, Some((max, min))) => {
            let (low, high) = ((*low).max(min), (*high).min(max));
            if low > high { 0.0 } else { numbers_between(low, high) / numbers_between(min, max) }
        }
        (Test::OneOf(list), Some((max, min))) => list.len() as f64 / numbers_between(min, max),
        (Test::BytesRange { low, high }, _) if low == high => 0.05,
        (Test::BytesRange { .. }, _) => 0.3,
        (Test::BytesOneOf(list), _) => (0.05 * list.len() as f64).min(0.5),
        (Test::Range { .. } | Test::OneOf(_), None) => 0.0,
    };
    let of_values = of_values.clamp(0.0, 1.0);
    (1.0 - nulls) * if test.negated { 1.0 - of_values } else { of_values }
}

/// How many numbers there are from one to another, both included.
fn numbers_between(low: i128, high: i128) -> f64 {
    let distance = high.abs_diff(low);
    // The machine has an instruction for numbers of 64 bits.
    u64::try_from(distance).map_or(distance as f64, |distance| distance as f64) + 1.0
}
