//! Functions that return intervals: `age`, the `justify` functions and `make_interval`.
//!
//! ```text
//!   age('2024-03-31', '2024-02-29')     1 mon 2 days       calendar months and days, not only days
//!   justify_hours('27 hours')           1 day 03:00:00     24 hours are a day
//!   justify_days('35 days')             1 mon 5 days       30 days are a month
//! ```

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::compute::kernels::arity::try_unary;
use datafusion::arrow::datatypes::{
    Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, exec_err};

use super::super::dates::as_intervals;
use super::definition::ArgumentType::{Double, Integer, Interval, Timestamp};
use super::definition::{Definition, result};

pub(super) const FUNCTIONS: [Definition; 5] = [
    Definition { name: "age", arguments: &[&[Timestamp, Timestamp]], result: result::interval, compute: ages },
    adjusted("justify_hours", |intervals| adjust(intervals, hours_to_days)),
    adjusted("justify_days", |intervals| adjust(intervals, days_to_months)),
    adjusted("justify_interval", |intervals| adjust(intervals, both)),
    Definition {
        name: "make_interval",
        arguments: &[&[Integer, Integer, Integer, Integer, Integer, Integer, Double]],
        result: result::interval,
        compute: make_intervals,
    },
];

const fn adjusted(name: &'static str, compute: fn(&[ArrayRef]) -> Result<ArrayRef>) -> Definition {
    Definition { name, arguments: &[&[Interval]], result: result::interval, compute }
}

const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;
const DAYS_PER_MONTH: i64 = 30;

/// Months, days and microseconds. Each may have its own sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SignedParts {
    months: i64,
    days: i64,
    micros: i64,
}

impl SignedParts {
    /// Returns the interval of these parts. Returns `None` if a part is out of range.
    fn interval(self) -> Option<IntervalMonthDayNano> {
        let (months, days) = (i32::try_from(self.months).ok()?, i32::try_from(self.days).ok()?);
        Some(IntervalMonthDayNano::new(months, days, self.micros.checked_mul(1_000)?))
    }
}

fn out_of_range() -> ArrowError {
    ArrowError::ComputeError("interval out of range".to_owned())
}

fn ages(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (ends, starts) = (
        arguments[0].as_primitive::<TimestampMicrosecondType>(),
        arguments[1].as_primitive::<TimestampMicrosecondType>(),
    );
    let ages = ends.iter().zip(starts).map(|(end, start)| {
        let Some((end, start)) = end.zip(start) else { return Ok(None) };
        let moment = |micros| DateTime::from_timestamp_micros(micros).map(|moment| moment.naive_utc());
        let (Some(end), Some(start)) = (moment(end), moment(start)) else {
            return exec_err!("timestamp out of range");
        };
        Ok(Some(age(end, start).interval().ok_or_else(out_of_range)?))
    });
    Ok(Arc::new(ages.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

/// Returns the months, days and time from `start` to `end`. If the number of days is negative, subtracts a month and
/// adds the days of the month in which the earlier timestamp lies.
fn age(end: NaiveDateTime, start: NaiveDateTime) -> SignedParts {
    let (early, late, sign) = if end < start { (end, start, -1) } else { (start, end, 1) };
    let month = |moment: NaiveDateTime| i64::from(moment.year()) * 12 + i64::from(moment.month0());
    let micros = |moment: NaiveDateTime| (moment - moment.date().and_time(chrono::NaiveTime::MIN)).num_microseconds();
    let mut age = SignedParts {
        months: month(late) - month(early),
        days: i64::from(late.day()) - i64::from(early.day()),
        micros: micros(late).unwrap_or(0) - micros(early).unwrap_or(0),
    };
    if age.micros < 0 {
        age = SignedParts { micros: age.micros + MICROSECONDS_PER_DAY, days: age.days - 1, ..age };
    }
    while age.days < 0 {
        age = SignedParts { days: age.days + days_in_month(early.date()), months: age.months - 1, ..age };
    }
    SignedParts { months: sign * age.months, days: sign * age.days, micros: sign * age.micros }
}

fn days_in_month(date: NaiveDate) -> i64 {
    let next = match date.month() {
        12 => NaiveDate::from_ymd_opt(date.year() + 1, 1, 1),
        month => NaiveDate::from_ymd_opt(date.year(), month + 1, 1),
    };
    next.and_then(|next| next.pred_opt()).map_or(31, |last| last.day().into())
}

fn adjust(intervals: &[ArrayRef], adjust: fn(SignedParts) -> SignedParts) -> Result<ArrayRef> {
    let intervals = as_intervals(&intervals[0])?;
    let adjusted: IntervalMonthDayNanoArray =
        try_unary(intervals.as_primitive::<IntervalMonthDayNanoType>(), |interval: IntervalMonthDayNano| {
            let IntervalMonthDayNano { months, days, nanoseconds } = interval;
            let parts = SignedParts { months: months.into(), days: days.into(), micros: nanoseconds / 1_000 };
            adjust(parts).interval().ok_or_else(out_of_range)
        })?;
    Ok(Arc::new(adjusted))
}

/// Converts each 24 hours of the time to a day. Days and time get the same sign.
fn hours_to_days(SignedParts { months, mut days, mut micros }: SignedParts) -> SignedParts {
    days += micros / MICROSECONDS_PER_DAY;
    micros %= MICROSECONDS_PER_DAY;
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + MICROSECONDS_PER_DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - MICROSECONDS_PER_DAY);
    }
    SignedParts { months, days, micros }
}

/// Converts each 30 days to a month. Months and days get the same sign.
fn days_to_months(SignedParts { mut months, mut days, micros }: SignedParts) -> SignedParts {
    months += days / DAYS_PER_MONTH;
    days %= DAYS_PER_MONTH;
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + DAYS_PER_MONTH);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - DAYS_PER_MONTH);
    }
    SignedParts { months, days, micros }
}

/// Converts each 24 hours to a day and each 30 days to a month. All parts get the same sign.
fn both(SignedParts { mut months, mut days, mut micros }: SignedParts) -> SignedParts {
    days += micros / MICROSECONDS_PER_DAY;
    micros %= MICROSECONDS_PER_DAY;
    months += days / DAYS_PER_MONTH;
    days %= DAYS_PER_MONTH;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        (months, days) = (months - 1, days + DAYS_PER_MONTH);
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        (months, days) = (months + 1, days - DAYS_PER_MONTH);
    }
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + MICROSECONDS_PER_DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - MICROSECONDS_PER_DAY);
    }
    SignedParts { months, days, micros }
}

/// Builds intervals from columns of years, months, weeks, days, hours, minutes and seconds.
fn make_intervals(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let seconds = arguments[6].as_primitive::<Float64Type>();
    let intervals = (0..seconds.len()).map(|row| {
        if arguments.iter().any(|argument| argument.is_null(row)) {
            return Ok(None);
        }
        let number = |index: usize| i128::from(arguments[index].as_primitive::<Int64Type>().value(row));
        let micros = (seconds.value(row) * 1e6).round_ties_even();
        let parts = || {
            let micros = if micros.abs() < i64::MAX as f64 { micros as i128 } else { return None };
            let minutes = number(4).checked_mul(60)?.checked_add(number(5))?;
            SignedParts {
                months: i64::try_from(number(0) * 12 + number(1)).ok()?,
                days: i64::try_from(number(2) * 7 + number(3)).ok()?,
                micros: i64::try_from(minutes.checked_mul(60_000_000)?.checked_add(micros)?).ok()?,
            }
            .interval()
        };
        Ok(Some(parts().ok_or_else(out_of_range)?))
    });
    Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn parts(months: i64, days: i64, micros: i64) -> SignedParts {
        SignedParts { months, days, micros }
    }

    #[test]
    fn ages_count_months_of_the_calendar() {
        let moment = |year, month, day, hour| {
            NaiveDate::from_ymd_opt(year, month, day).and_then(|date| date.and_hms_opt(hour, 0, 0)).unwrap()
        };
        for (end, start, expected) in [
            (moment(2001, 4, 10, 0), moment(1957, 6, 13, 0), parts(525, 27, 0)),
            (moment(2024, 3, 31, 0), moment(2024, 2, 29, 0), parts(1, 2, 0)),
            (moment(2024, 2, 29, 0), moment(2024, 3, 31, 0), parts(-1, -2, 0)),
            (moment(2024, 3, 1, 0), moment(2023, 1, 31, 12), parts(13, 0, 12 * HOUR)),
            (moment(2024, 3, 1, 0), moment(2024, 3, 1, 0), parts(0, 0, 0)),
        ] {
            assert_eq!(age(end, start), expected, "{start} to {end}");
        }
    }

    #[test]
    fn adjusted_parts_have_one_sign() {
        assert_eq!(hours_to_days(parts(0, 3, -27 * HOUR)), parts(0, 1, 21 * HOUR));
        assert_eq!(days_to_months(parts(2, -35, 0)), parts(0, 25, 0));
        assert_eq!(both(parts(1, 0, -HOUR)), parts(0, 29, 23 * HOUR));
        assert_eq!(both(parts(-1, 31, -25 * HOUR)), parts(0, 0, -HOUR));
    }
}
