//! In which order column tests run: the one that rules out most rows for its cost first.

use taut_index::{Zone, ZoneMap};
use taut_types::{ColumnTest, Key, Test};

/// A test of text or bytes costs about as much as this many of numbers.
const BYTES_COST: f64 = 4.0;

/// Where a test stands in the order; lower runs first. The share of rows that pass is guessed from the bounds of
/// zones as if values were spread evenly, so that a wrong guess costs time, never an answer.
pub(crate) fn rank(test: &ColumnTest, zones: &ZoneMap) -> f64 {
    let (mut passing, mut rows, mut start) = (0.0, 0.0, 0);
    for zone in zones.zones() {
        let zone_rows = f64::from(zone.rows_end - start);
        passing += zone_rows * share(test, zone, zone_rows);
        rows += zone_rows;
        start = zone.rows_end;
    }
    let cost = match test.test {
        Test::BytesRange { .. } | Test::BytesOneOf(_) => BYTES_COST,
        Test::Range { .. } | Test::OneOf(_) | Test::Null => 1.0,
    };
    (passing / f64::max(rows, 1.0) - 1.0) / cost
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
            if low > high { 0.0 } else { (high as f64 - low as f64 + 1.0) / (max as f64 - min as f64 + 1.0) }
        }
        (Test::OneOf(list), Some((max, min))) => list.len() as f64 / (max as f64 - min as f64 + 1.0),
        (Test::BytesRange { low, high }, _) if low == high => 0.05,
        (Test::BytesRange { .. }, _) => 0.3,
        (Test::BytesOneOf(list), _) => 0.05 * list.len() as f64,
        (Test::Range { .. } | Test::OneOf(_), None) => 0.0,
    };
    let of_values = of_values.clamp(0.0, 1.0);
    (1.0 - nulls) * if test.negated { 1.0 - of_values } else { of_values }
}
