//! `(start, end) OVERLAPS (start, end)`: whether two periods share a moment. Each end is a date, a timestamp, or an
//! interval after the start. A period includes its earlier end and excludes its later end, unless both are equal.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use datafusion::common::{DataFusionError, Result};

use super::super::dates::as_intervals;
use super::buckets::{micros_of, shifted};
use super::definition::ArgumentType::{DateOrTimestamp, Interval};
use super::definition::{Definition, booleans, result};
use crate::error::QueryError;

pub(super) const FUNCTIONS: [Definition; 1] = [Definition {
    name: "overlaps",
    arguments: &[
        &[DateOrTimestamp, DateOrTimestamp, DateOrTimestamp, DateOrTimestamp],
        &[DateOrTimestamp, Interval, DateOrTimestamp, DateOrTimestamp],
        &[DateOrTimestamp, DateOrTimestamp, DateOrTimestamp, Interval],
        &[DateOrTimestamp, Interval, DateOrTimestamp, Interval],
    ],
    result: result::boolean,
    compute: overlaps,
}];

fn overlaps(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let zones = |is_zoned: bool| {
        let kind =
            |array: &&ArrayRef| matches!(array.data_type(), DataType::Timestamp(_, zone) if zone.is_some() == is_zoned);
        arguments.iter().any(|array| kind(&array))
    };
    if zones(true) && zones(false) {
        let what = "OVERLAPS of timestamps with and without time zone";
        let allowed = "casts of both periods to one type are";
        return Err(DataFusionError::External(Box::new(QueryError::unsupported(what, allowed))));
    }
    let is_interval = |array: &ArrayRef| matches!(array.data_type(), DataType::Interval(_) | DataType::Duration(_));
    if zones(true) && arguments.iter().any(is_interval) {
        // A day across a change of the clock has 23 or 25 hours.
        let what = "OVERLAPS of a timestamptz and an interval";
        let allowed = "the end of the period, such as start + interval, is";
        return Err(DataFusionError::External(Box::new(QueryError::unsupported(what, allowed))));
    }
    let starts = [micros_of(&arguments[0])?, micros_of(&arguments[2])?];
    let ends = [ends(&starts[0], &arguments[1])?, ends(&starts[1], &arguments[3])?];
    let period = |side: usize, row: usize| {
        let value = |of: &TimestampMicrosecondArray| of.is_valid(row).then(|| of.value(row));
        Period::new(value(&starts[side]), value(&ends[side]))
    };
    Ok(booleans((0..starts[0].len()).map(|row| period(0, row)?.overlaps(period(1, row)?))))
}

/// Ends of periods in microseconds since 1970.
fn ends(starts: &TimestampMicrosecondArray, ends: &ArrayRef) -> Result<TimestampMicrosecondArray> {
    if !matches!(ends.data_type(), DataType::Interval(_) | DataType::Duration(_)) {
        return micros_of(ends);
    }
    let intervals = as_intervals(ends)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let end = |(start, interval): (Option<i64>, _)| start.zip(interval).map(|(at, by)| shifted(at, by, 1)).transpose();
    starts.iter().zip(intervals).map(end).collect()
}

/// A period whose later end can be unknown.
#[derive(Clone, Copy)]
struct Period {
    start: i64,
    end: Option<i64>,
}

impl Period {
    /// Creates the period between two moments in any order. Returns `None` if both are unknown.
    fn new(first: Option<i64>, second: Option<i64>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => Some(Self { start: first.min(second), end: Some(first.max(second)) }),
            (Some(start), None) | (None, Some(start)) => Some(Self { start, end: None }),
            (None, None) => None,
        }
    }

    /// Returns `None` if the answer depends on an unknown end.
    fn overlaps(self, other: Self) -> Option<bool> {
        let (earlier, later) = if self.start <= other.start { (self, other) } else { (other, self) };
        if earlier.start == later.start {
            return (earlier.end.is_some() && later.end.is_some()).then_some(true);
        }
        match earlier.end {
            Some(end) if later.start < end => Some(true),
            Some(_) => later.end.is_some().then_some(false),
            None => None,
        }
    }
}
