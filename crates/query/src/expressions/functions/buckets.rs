//! Functions that return the start of the bucket that contains a timestamp: `date_bin` of PostgreSQL and `time_bucket`
//! of DuckDB.
//!
//! ```text
//!   date_bin('15 minutes', timestamp '2024-02-11 15:44', timestamp '2024-01-01')   2024-02-11 15:30:00
//!   time_bucket('3 months', date '2024-02-11')                                     2024-01-01
//! ```
//!
//! The first argument is the width of each bucket, an interval. The optional third argument is the origin, at which one
//! bucket begins. For `time_bucket` it can also be an interval by which all buckets are shifted. The default origin of
//! `date_bin` is 1970-01-01. The default origin of `time_bucket` is Monday, 2000-01-03, or 2000-01-01 for a width in
//! months.

use std::sync::Arc;

use chrono::{DateTime, Days, Months, NaiveDate};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use taut_types::LogicalType;

use super::super::dates::as_intervals;
use super::calendar::{first_of_month, month_number};
use super::definition::ArgumentType::{Date, DateOrTimestamp, Interval};
use super::definition::{Definition, complete_rows};

pub(super) const FUNCTIONS: [Definition; 2] = [
    Definition {
        name: "date_bin",
        arguments: &[&[Interval, DateOrTimestamp], &[Interval, DateOrTimestamp, DateOrTimestamp]],
        result: type_of_second_argument,
        compute: bins,
    },
    Definition {
        name: "time_bucket",
        arguments: &[
            &[Interval, Date],
            &[Interval, Date, Interval],
            &[Interval, Date, Date],
            &[Interval, DateOrTimestamp],
            &[Interval, DateOrTimestamp, Interval],
            &[Interval, DateOrTimestamp, DateOrTimestamp],
        ],
        result: type_of_second_argument,
        compute: buckets,
    },
];

/// Type of the result: the same as that of the date or timestamp.
fn type_of_second_argument(types: &[DataType]) -> DataType {
    types[1].clone()
}

const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;
/// 2000-01-03, a Monday, in microseconds since 1970.
const FIRST_MONDAY: i64 = 10_959 * MICROSECONDS_PER_DAY;
/// January 2000 in months since January of year 0.
const FIRST_MONTH: i64 = 24_000;

/// Converts dates and timestamps to microseconds since 1970.
pub(super) fn micros_of(timestamps: &ArrayRef) -> Result<TimestampMicrosecondArray> {
    let micros = cast(timestamps, &LogicalType::Timestamp.arrow())?;
    Ok(micros.as_primitive::<TimestampMicrosecondType>().clone())
}

/// Length in microseconds of an interval without months. Returns `None` if out of range.
fn width_in_micros(width: IntervalMonthDayNano) -> Option<i64> {
    i64::from(width.days).checked_mul(MICROSECONDS_PER_DAY)?.checked_add(width.nanoseconds / 1_000)
}

/// Returns the start of the bucket that contains `number`. All arguments are in the same unit, microseconds or months,
/// and `width` is positive.
fn start(width: i64, number: i64, origin: i64) -> Result<i64> {
    let distance = number.checked_sub(origin).and_then(|distance| distance.checked_sub(distance.rem_euclid(width)));
    distance
        .and_then(|distance| origin.checked_add(distance))
        .ok_or_else(|| exec_datafusion_err!("timestamp out of range"))
}

fn bins(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let widths = as_intervals(&arguments[0])?;
    let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
    let timestamps = micros_of(&arguments[1])?;
    let origins = arguments.get(2).map(micros_of).transpose()?;
    let bins = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let width = widths.value(row);
        if width.months != 0 {
            return exec_err!("timestamps cannot be binned into intervals containing months or years");
        }
        let width = width_in_micros(width).ok_or_else(|| exec_datafusion_err!("interval out of range"))?;
        if width <= 0 {
            return exec_err!("stride must be greater than zero");
        }
        start(width, timestamps.value(row), origins.as_ref().map_or(0, |origins| origins.value(row))).map(Some)
    });
    Ok(Arc::new(bins.collect::<Result<TimestampMicrosecondArray>>()?))
}

/// Alignment of the buckets, from the optional third argument of `time_bucket`.
enum BucketAlignment {
    /// No third argument. Buckets begin on Monday, 2000-01-03, or on 2000-01-01 for a width in months.
    Default,
    /// Interval by which the buckets are shifted, for each row.
    Offset(ArrayRef),
    /// Start of one bucket, for each row.
    Origin(TimestampMicrosecondArray),
}

fn buckets(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let widths = as_intervals(&arguments[0])?;
    let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
    let timestamps = micros_of(&arguments[1])?;
    let alignment = match arguments.get(2) {
        None => BucketAlignment::Default,
        Some(third) => match third.data_type() {
            DataType::Interval(_) | DataType::Duration(_) => BucketAlignment::Offset(as_intervals(third)?),
            _ => BucketAlignment::Origin(micros_of(third)?),
        },
    };
    let buckets = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let (width, timestamp) = (widths.value(row), timestamps.value(row));
        Ok(Some(match &alignment {
            BucketAlignment::Default => bucket(width, timestamp, None)?,
            BucketAlignment::Origin(origins) => bucket(width, timestamp, Some(origins.value(row)))?,
            BucketAlignment::Offset(offsets) => {
                let offset = offsets.as_primitive::<IntervalMonthDayNanoType>().value(row);
                shifted(bucket(width, shifted(timestamp, offset, -1)?, None)?, offset, 1)?
            }
        }))
    });
    Ok(Arc::new(buckets.collect::<Result<TimestampMicrosecondArray>>()?))
}

fn bucket(width: IntervalMonthDayNano, timestamp: i64, origin: Option<i64>) -> Result<i64> {
    if width.months == 0 {
        return match width_in_micros(width) {
            Some(width) if width > 0 => start(width, timestamp, origin.unwrap_or(FIRST_MONDAY)),
            _ => exec_err!("Period must be greater than 0"),
        };
    }
    if width.days != 0 || width.nanoseconds != 0 {
        return exec_err!("Month intervals cannot have day or time component");
    }
    if width.months < 0 {
        return exec_err!("Period must be greater than 0");
    }
    let origin = origin.map(date_of).transpose()?.map_or(FIRST_MONTH, month_number);
    let month = start(width.months.into(), month_number(date_of(timestamp)?), origin)?;
    let first = first_of_month(month).ok_or_else(|| exec_datafusion_err!("timestamp out of range"))?;
    Ok(i64::from(first.to_epoch_days()) * MICROSECONDS_PER_DAY)
}

fn date_of(micros: i64) -> Result<NaiveDate> {
    let timestamp = DateTime::from_timestamp_micros(micros);
    Ok(timestamp.ok_or_else(|| exec_datafusion_err!("timestamp out of range"))?.date_naive())
}

/// Adds an interval to a timestamp, or subtracts it if `sign` is -1.
pub(super) fn shifted(micros: i64, interval: IntervalMonthDayNano, sign: i32) -> Result<i64> {
    let shift = || {
        let mut timestamp = DateTime::from_timestamp_micros(micros)?;
        let (months, days) = (interval.months.checked_mul(sign)?, interval.days.checked_mul(sign)?);
        timestamp = match months {
            0.. => timestamp.checked_add_months(Months::new(months.unsigned_abs()))?,
            _ => timestamp.checked_sub_months(Months::new(months.unsigned_abs()))?,
        };
        timestamp = match days {
            0.. => timestamp.checked_add_days(Days::new(days.unsigned_abs().into()))?,
            _ => timestamp.checked_sub_days(Days::new(days.unsigned_abs().into()))?,
        };
        timestamp.timestamp_micros().checked_add(interval.nanoseconds / 1_000 * i64::from(sign))
    };
    shift().ok_or_else(|| exec_datafusion_err!("timestamp out of range"))
}
