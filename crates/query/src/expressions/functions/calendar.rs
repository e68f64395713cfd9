//! Functions that build dates, times and timestamps from numbers, and functions that convert between timestamps and
//! units of time since 1970.

use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int64Array, Time64NanosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::super::dates::as_intervals;
use super::definition::ArgumentType::{Double, Integer, Interval, Timestamp};
use super::definition::{Definition, complete_rows, result};

pub(super) const FUNCTIONS: [Definition; 7] = [
    Definition {
        name: "make_date",
        arguments: &[&[Integer, Integer, Integer]],
        result: result::date,
        compute: make_dates,
    },
    Definition {
        name: "make_time",
        arguments: &[&[Integer, Integer, Double]],
        result: result::time,
        compute: make_times,
    },
    Definition {
        name: "make_timestamp",
        arguments: &[&[Integer, Integer, Integer, Integer, Integer, Double], &[Integer]],
        result: result::timestamp,
        compute: make_timestamps,
    },
    Definition {
        name: "make_timestamptz",
        arguments: &[&[Integer, Integer, Integer, Integer, Integer, Double]],
        result: result::timestamptz,
        compute: make_timestamps,
    },
    since_1970("epoch_ms", |values| epochs(&values[0], 1_000)),
    since_1970("epoch_us", |values| epochs(&values[0], 1_000_000)),
    since_1970("epoch_ns", |values| epochs(&values[0], 1_000_000_000)),
];

const fn since_1970(name: &'static str, compute: fn(&[ArrayRef]) -> Result<ArrayRef>) -> Definition {
    Definition { name, arguments: &[&[Integer], &[Timestamp], &[Interval]], result: epoch_type, compute }
}

/// Result type of `epoch_ms` and similar functions: an integer becomes a timestamp, other types become an integer.
fn epoch_type(types: &[DataType]) -> DataType {
    if types[0].is_integer() { result::timestamp(types) } else { DataType::Int64 }
}

const MICROSECONDS_PER_SECOND: i64 = 1_000_000;
const MICROSECONDS_PER_DAY: i64 = 86_400 * MICROSECONDS_PER_SECOND;

/// One row of arguments: the numeric parts of a date, a time or both.
struct DateParts<'a> {
    arguments: &'a [ArrayRef],
    row: usize,
}

impl<'a> DateParts<'a> {
    /// Iterates over the rows of the arguments. Returns `None` for a row with a null.
    fn all(arguments: &'a [ArrayRef]) -> impl Iterator<Item = Option<Self>> {
        complete_rows(arguments).map(move |row| row.map(|row| Self { arguments, row }))
    }

    fn integer(&self, index: usize) -> i64 {
        self.arguments[index].as_primitive::<Int64Type>().value(self.row)
    }

    /// Returns the date of the first three arguments: year, month and day. A negative year is BC, and year 0 is an
    /// error.
    fn date(&self) -> Result<NaiveDate> {
        let (year, month, day) = (self.integer(0), self.integer(1), self.integer(2));
        let calendar_year = if year < 0 { year + 1 } else { year };
        let date = || {
            let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
            NaiveDate::from_ymd_opt(i32::try_from(calendar_year).ok()?, month, day).filter(|_| year != 0)
        };
        date().ok_or_else(|| exec_datafusion_err!("date field value out of range: {year}-{month:02}-{day:02}"))
    }

    /// Returns the microseconds since midnight. The arguments from index `first` on are hours, minutes and seconds.
    fn time(&self, first: usize) -> Result<i64> {
        let (hour, minute) = (self.integer(first), self.integer(first + 1));
        let second = self.arguments[first + 2].as_primitive::<Float64Type>().value(self.row);
        let micros = (second * 1e6).round_ties_even();
        let is_time = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60e6).contains(&micros);
        let total = || (hour * 60 + minute) * 60 * MICROSECONDS_PER_SECOND + micros as i64;
        if !is_time || total() > MICROSECONDS_PER_DAY {
            return exec_err!("time field value out of range: {hour}:{minute:02}:{second:02}");
        }
        Ok(total())
    }
}

fn make_dates(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let day = |row: DateParts<'_>| Ok(row.date()?.to_epoch_days());
    let dates = DateParts::all(arguments).map(|row| row.map(day).transpose());
    Ok(Arc::new(dates.collect::<Result<Date32Array>>()?))
}

fn make_times(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let nanos = |row: DateParts<'_>| match row.time(0)? {
        // The time type of DataFusion cannot hold 24:00:00.
        MICROSECONDS_PER_DAY => exec_err!("time field value out of range: 24:00:00"),
        micros => Ok(micros * 1_000),
    };
    let times = DateParts::all(arguments).map(|row| row.map(nanos).transpose());
    Ok(Arc::new(times.collect::<Result<Time64NanosecondArray>>()?))
}

fn make_timestamps(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    if let [micros] = arguments {
        let micros = micros.as_primitive::<Int64Type>();
        return Ok(Arc::new(micros.iter().collect::<TimestampMicrosecondArray>()));
    }
    let micros = |row: DateParts<'_>| {
        let (days, time) = (i64::from(row.date()?.to_epoch_days()), row.time(3)?);
        let micros = days.checked_mul(MICROSECONDS_PER_DAY).and_then(|micros| micros.checked_add(time));
        micros.ok_or_else(|| exec_datafusion_err!("timestamp out of range"))
    };
    let timestamps = DateParts::all(arguments).map(|row| row.map(micros).transpose());
    Ok(Arc::new(timestamps.collect::<Result<TimestampMicrosecondArray>>()?))
}

/// Converts timestamps to units since 1970. Converts intervals to their length in units, with 30 days in a month.
/// Converts integers, which are units since 1970, to timestamps.
fn epochs(values: &ArrayRef, units_per_second: i64) -> Result<ArrayRef> {
    let scaled = |number: i64, by: i64, divisor: i64| match number.checked_mul(by) {
        Some(product) => Ok(product / divisor),
        None => exec_err!("timestamp out of range"),
    };
    if let Some(integers) = values.as_primitive_opt::<Int64Type>() {
        let per_unit = (MICROSECONDS_PER_SECOND / units_per_second).max(1);
        let units_per_micro = (units_per_second / MICROSECONDS_PER_SECOND).max(1);
        let micros =
            integers.iter().map(|units| units.map(|units| scaled(units, per_unit, units_per_micro)).transpose());
        return Ok(Arc::new(micros.collect::<Result<TimestampMicrosecondArray>>()?));
    }
    let micros: Int64Array = match values.data_type() {
        DataType::Timestamp(..) => values.as_primitive::<TimestampMicrosecondType>().unary(|micros| micros),
        _ => as_intervals(values)?.as_primitive::<IntervalMonthDayNanoType>().unary(length_in_micros),
    };
    let divisor = (MICROSECONDS_PER_SECOND / units_per_second).max(1);
    let factor = (units_per_second / MICROSECONDS_PER_SECOND).max(1);
    let units = micros.iter().map(|micros| micros.map(|micros| scaled(micros, factor, divisor)).transpose());
    Ok(cast(&(Arc::new(units.collect::<Result<Int64Array>>()?) as ArrayRef), &DataType::Int64)?)
}

fn length_in_micros(interval: IntervalMonthDayNano) -> i64 {
    let days = i64::from(interval.months) * 30 + i64::from(interval.days);
    days.saturating_mul(MICROSECONDS_PER_DAY).saturating_add(interval.nanoseconds / 1_000)
}

/// Returns the first day of a month, given in months since January of year 0. Returns `None` if out of range.
pub(super) fn first_of_month(months: i64) -> Option<NaiveDate> {
    let year = i32::try_from(months.div_euclid(12)).ok()?;
    NaiveDate::from_ymd_opt(year, u32::try_from(months.rem_euclid(12)).ok()? + 1, 1)
}

/// Returns the month of a date, in months since January of year 0.
pub(super) fn month_number(date: NaiveDate) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month0())
}
