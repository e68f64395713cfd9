//! Types, operators, functions and text formats of dates, times and intervals, as in PostgreSQL.
//!
//! DataFusion rejects timestamps without seconds, applies offsets to timestamps without a time zone, reads the interval
//! `'42'` as 42 months instead of seconds, and writes `2024-01-05T10:00:00`. Its timestamps are in nanoseconds, so
//! 1500-01-01 is out of range. Here, the type `timestamp` is in microseconds, like stored columns.

mod interval;
mod operators;
mod parse;
mod parts;
mod write;
mod zones;

use std::sync::Arc;

pub(super) use interval::{divided_interval, interpolated_interval};
pub(super) use parse::{offset_seconds, zone};
pub(super) use parts::{as_intervals, date_part};
pub(super) use zones::{instants_of_local_times, read_zone, shift_instant, timezone};

use datafusion::arrow::array::{
    ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, StringViewBuilder, Time64MicrosecondArray,
    Time64NanosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, plan_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use taut_types::LogicalType;

/// Adds the types, operators and functions of dates, times and intervals to a session state.
pub fn with_dates(mut state: SessionStateBuilder) -> SessionStateBuilder {
    // DataFusion's own planner accepts every EXTRACT, so this planner comes before it.
    state.expr_planners().get_or_insert_default().insert(0, Arc::new(operators::DateOperators));
    state.scalar_functions().get_or_insert_default().extend([Arc::new(zones::timezone()), parts::date_part()]);
    state.with_type_planner(Arc::new(PostgresTypes))
}

/// Planner of the SQL types `timestamp` and `timestamptz`, which have microseconds, and of `float`, which is double
/// precision. DataFusion's have nanoseconds and single precision.
#[derive(Debug)]
struct PostgresTypes;

impl TypePlanner for PostgresTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let logical = match sql_type {
            SqlType::Timestamp(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
            | SqlType::Datetime(None | Some(6)) => LogicalType::Timestamp,
            SqlType::Timestamp(None | Some(6), TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
                LogicalType::TimestampTz
            }
            SqlType::Float(ExactNumberInfo::Precision(0)) => {
                return plan_err!("precision for type float must be at least 1 bit");
            }
            SqlType::Float(ExactNumberInfo::Precision(54..)) => {
                return plan_err!("precision for type float must be less than 54 bits");
            }
            SqlType::Float(ExactNumberInfo::Precision(1..=24)) => LogicalType::Real,
            SqlType::Float(_) => LogicalType::Double,
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", logical.arrow(), true))))
    }
}

/// Whether a cast between two types reads or writes the text of a date, a time or an interval.
pub(super) fn is_text_cast(from: &DataType, target: &DataType) -> bool {
    (is_text(from) && is_temporal(target)) || (is_text(target) && (is_temporal(from) || is_difference(from)))
}

/// Whether a cast turns a difference of timestamps into an interval of days and hours. DataFusion's has hours only.
pub(super) fn is_difference_cast(from: &DataType, target: &DataType) -> bool {
    is_difference(from) && matches!(target, DataType::Interval(IntervalUnit::MonthDayNano))
}

/// Whether a type is that of differences of timestamps.
pub fn is_difference(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Duration(_))
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether a type is a date, a time, a timestamp or an interval, which this module parses and writes.
pub fn is_temporal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Time64(_)
            | DataType::Interval(IntervalUnit::MonthDayNano)
    )
}

/// Parses strings as dates, timestamps, times or intervals, and returns an array of the type `target`. With `is_try`, a
/// string that is not a value of the type becomes null.
///
/// # Errors
/// If a string is not a value of the type, unless `is_try`.
pub fn read(texts: &ArrayRef, target: &DataType, is_try: bool) -> Result<ArrayRef, ArrowError> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    let values: ArrayRef = match target {
        DataType::Date32 => Arc::new(Date32Array::from(all(texts, target, is_try, |text| {
            parse::instant(text).map(|instant| instant.days())
        })?)),
        DataType::Timestamp(unit, zone) => {
            let zone_of_type = zone.as_ref().map(|zone| zone.parse()).transpose()?;
            let step = match unit {
                TimeUnit::Second => 1_000_000,
                TimeUnit::Millisecond => 1_000,
                TimeUnit::Microsecond | TimeUnit::Nanosecond => 1,
            };
            let rounded = |micros: i64| Some(micros.checked_add(step / 2)?.div_euclid(step) * step);
            let micros =
                all(texts, target, is_try, |text| rounded(parse::instant(text)?.micros(zone_of_type.as_ref())?))?;
            Arc::new(TimestampMicrosecondArray::from(micros).with_timezone_opt(zone.clone()))
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            let nanos = |text: &str| parse::time_of_day(text).map(|micros| micros * 1_000);
            Arc::new(Time64NanosecondArray::from(all(texts, target, is_try, nanos)?))
        }
        DataType::Time64(_) => Arc::new(Time64MicrosecondArray::from(all(texts, target, is_try, parse::time_of_day)?)),
        _ => Arc::new(IntervalMonthDayNanoArray::from(all(texts, target, is_try, interval::parse)?)),
    };
    cast_with_options(&values, target, &CastOptions { safe: is_try, ..CastOptions::default() })
}

/// Parses each string. With `is_try`, a string that `parse` rejects becomes null.
fn all<T>(
    texts: &datafusion::arrow::array::StringViewArray,
    target: &DataType,
    is_try: bool,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Option<T>>, ArrowError> {
    let value = |text: Option<&str>| match text.map(|text| (text, parse(text))) {
        None => Ok(None),
        Some((_, Some(value))) => Ok(Some(value)),
        Some((_, None)) if is_try => Ok(None),
        // This is Arrow's wording, which maps to SQLSTATE 22P02, invalid text representation.
        Some((text, None)) => {
            Err(ArrowError::CastError(format!("Cannot cast string '{text}' to value of {target} type")))
        }
    };
    texts.iter().map(value).collect()
}

/// Writes dates, timestamps, times and intervals as text. `target` is the string type of the result.
///
/// # Errors
/// If a time zone is unknown, or the strings exceed the size limit of an array of the type `target`.
pub fn write(values: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut append = |text: Option<String>| texts.append_option(text);
    match values.data_type() {
        DataType::Date32 => values.as_primitive::<Date32Type>().iter().for_each(|day| append(day.map(write::date))),
        DataType::Timestamp(_, zone) => {
            let micros = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            let zone = zone.as_ref().map(|zone| zone.parse()).transpose()?;
            let write = |micros: i64| write::timestamp(micros, zone);
            micros.as_primitive::<TimestampMicrosecondType>().iter().for_each(|micros| append(micros.map(write)));
        }
        DataType::Time64(_) => {
            let micros = cast(values, &DataType::Time64(TimeUnit::Microsecond))?;
            micros
                .as_primitive::<Time64MicrosecondType>()
                .iter()
                .for_each(|micros| append(micros.map(write::time_of_day)));
        }
        _ => as_intervals(values)
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))?
            .as_primitive::<IntervalMonthDayNanoType>()
            .iter()
            .for_each(|value| append(value.map(interval::write))),
    }
    let texts: ArrayRef = Arc::new(texts.finish());
    cast(&texts, target)
}
