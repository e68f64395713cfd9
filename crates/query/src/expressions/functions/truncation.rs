//! `date_trunc` of timestamps, dates, times and intervals. DataFusion's function lacks some fields, rejects plural
//! names, and fails for timestamps that 64 bits of nanoseconds cannot hold.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, Time64NanosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::kernels::arity::try_unary;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_types::LogicalType;

use super::super::dates::{as_intervals, is_text};
use super::calendar::{first_of_month, month_number};
use super::type_names::name_in_postgres;

/// Returns the function `date_trunc`.
pub(super) fn date_trunc() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DateTrunc { aliases: vec!["datetrunc".to_owned()], signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    aliases: Vec<String>,
    signature: Signature,
}

/// The field to which a value is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TruncatedTo {
    /// A number of microseconds, at most an hour.
    Micros(i64),
    Day,
    Week,
    /// `count` months, counted from January of `first_year`. Centuries and millennia begin with the year 1, decades
    /// with the year 0.
    Months {
        count: i64,
        first_year: i64,
    },
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

impl TruncatedTo {
    fn parse(name: &str) -> Option<Self> {
        let months = |count: i64| Self::Months { count, first_year: 0 };
        Some(match name.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Self::Micros(1),
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Self::Micros(1_000),
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Micros(SECOND),
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Micros(60 * SECOND),
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Micros(3_600 * SECOND),
            "day" | "days" | "d" => Self::Day,
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => months(1),
            "quarter" | "quarters" | "qtr" => months(3),
            "year" | "years" | "yr" | "yrs" | "y" => months(12),
            "decade" | "decades" | "dec" | "decs" => months(120),
            "century" | "centuries" | "cent" | "c" => Self::Months { count: 1_200, first_year: 1 },
            "millennium" | "millennia" | "mil" | "mils" => Self::Months { count: 12_000, first_year: 1 },
            _ => return None,
        })
    }

    /// Truncates a timestamp, given in microseconds since 1970.
    fn of_micros(self, micros: i64) -> Result<i64, ArrowError> {
        let out_of_range = || ArrowError::ComputeError("timestamp out of range".to_owned());
        let days = micros.div_euclid(DAY);
        let days = match self {
            Self::Micros(unit) => return Ok(micros - micros.rem_euclid(unit)),
            Self::Day => days,
            // 1970-01-01 was a Thursday.
            Self::Week => days - (days + 3).rem_euclid(7),
            Self::Months { count, first_year } => {
                let date = DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)?.date_naive();
                let months = month_number(date) - 12 * first_year;
                let first: Option<NaiveDate> = first_of_month(months - months.rem_euclid(count) + 12 * first_year);
                i64::from(first.ok_or_else(out_of_range)?.num_days_from_ce()) - DAYS_TO_1970
            }
        };
        days.checked_mul(DAY).ok_or_else(out_of_range)
    }

    /// Truncates an interval towards zero: the parts smaller than the field become zero.
    fn of_interval(self, interval: IntervalMonthDayNano) -> Result<IntervalMonthDayNano, ArrowError> {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        Ok(match self {
            Self::Micros(unit) => IntervalMonthDayNano::new(months, days, nanoseconds - nanoseconds % (unit * 1_000)),
            Self::Day => IntervalMonthDayNano::new(months, days, 0),
            Self::Week => {
                return Err(ArrowError::ComputeError("unit \"week\" not supported for type interval".to_owned()));
            }
            Self::Months { count, .. } => IntervalMonthDayNano::new(months - (i64::from(months) % count) as i32, 0, 0),
        })
    }

    fn of_values(self, values: &ArrayRef) -> Result<ArrayRef> {
        Ok(match values.data_type() {
            DataType::Interval(_) => {
                let intervals = as_intervals(values)?;
                let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
                let truncated: IntervalMonthDayNanoArray = try_unary(intervals, |value| self.of_interval(value))?;
                Arc::new(truncated)
            }
            DataType::Time64(_) => match self {
                Self::Micros(unit) => {
                    let times = values.as_primitive::<Time64NanosecondType>();
                    let truncated: Time64NanosecondArray = times.unary(|nanos| nanos - nanos % (unit * 1_000));
                    Arc::new(truncated)
                }
                _ => return exec_err!("unit not supported for type time without time zone"),
            },
            data_type => {
                let timestamps = values.as_primitive::<TimestampMicrosecondType>();
                let truncated: TimestampMicrosecondArray = try_unary(timestamps, |micros| self.of_micros(micros))?;
                Arc::new(truncated.with_data_type(data_type.clone()))
            }
        })
    }
}

/// Number of the day 1970-01-01 if 0001-01-01 is day 1.
const DAYS_TO_1970: i64 = 719_163;

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &'static str {
        "date_trunc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let value = match types {
            [field, value] if is_text(field) || *field == DataType::Null => match value {
                DataType::Timestamp(_, Some(_)) => Some(LogicalType::TimestampTz.arrow()),
                DataType::Timestamp(..) | DataType::Date32 | DataType::Null => Some(LogicalType::Timestamp.arrow()),
                text if is_text(text) => Some(LogicalType::Timestamp.arrow()),
                DataType::Interval(_) | DataType::Duration(_) => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
                DataType::Time64(_) => Some(DataType::Time64(TimeUnit::Nanosecond)),
                _ => None,
            },
            _ => None,
        };
        match value {
            Some(value) => Ok(vec![DataType::Utf8View, value]),
            None => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                plan_err!("No function matches the given name and argument types 'date_trunc({})'.", types.join(", "))
            }
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[1].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), args.arg_fields[1].data_type().clone(), is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ColumnarValue::Scalar(name) = &args.args[0] else {
            return exec_err!("the field of date_trunc must be a constant text");
        };
        let Some(name) = name.try_as_str().flatten() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(args.return_field.data_type())?));
        };
        let Some(field) = TruncatedTo::parse(name) else {
            let data_type = name_in_postgres(args.return_field.data_type());
            return exec_err!("unit \"{}\" not recognized for type {data_type}", name.to_lowercase());
        };
        match &args.args[1] {
            ColumnarValue::Array(values) => Ok(ColumnarValue::Array(field.of_values(values)?)),
            ColumnarValue::Scalar(value) => {
                let truncated = field.of_values(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&truncated, 0)?))
            }
        }
    }

    /// Truncation preserves the order of timestamps, dates and times, but not of intervals: 40 days are longer than a
    /// month, but become zero if both are truncated to months.
    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        let is_constant = operands[0].sort_properties == SortProperties::Singleton;
        let is_interval = matches!(operands[1].range.data_type(), DataType::Interval(_));
        Ok(if is_constant && !is_interval { operands[1].sort_properties } else { SortProperties::Unordered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truncated(field: &str, year: i32, month: u32, day: u32) -> (i32, u32, u32) {
        let micros = NaiveDate::from_ymd_opt(year, month, day).unwrap().and_hms_opt(23, 59, 59).unwrap();
        let micros = TruncatedTo::parse(field).unwrap().of_micros(micros.and_utc().timestamp_micros()).unwrap();
        let date = DateTime::from_timestamp_micros(micros).unwrap().date_naive();
        (date.year(), date.month(), date.day())
    }

    #[test]
    fn fields_of_the_calendar() {
        for (field, date, expected) in [
            ("week", (2001, 2, 16), (2001, 2, 12)),
            ("months", (1500, 2, 28), (1500, 2, 1)),
            ("quarter", (2001, 12, 16), (2001, 10, 1)),
            ("decade", (2009, 2, 16), (2000, 1, 1)),
            ("century", (2000, 2, 16), (1901, 1, 1)),
            ("century", (2001, 2, 16), (2001, 1, 1)),
            ("century", (0, 2, 16), (-99, 1, 1)),
            ("millennium", (2000, 2, 16), (1001, 1, 1)),
        ] {
            assert_eq!(truncated(field, date.0, date.1, date.2), expected, "{field} of {date:?}");
        }
        assert_eq!(TruncatedTo::parse("millisecond").unwrap().of_micros(-100).unwrap(), -1_000);
    }
}
