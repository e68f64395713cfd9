//! `to_char` of numbers, dates, times and intervals, and `to_date`, with PostgreSQL's patterns.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Date32Array, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date32Type, Decimal128Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;

use super::super::dates::as_intervals;
use super::date_patterns::{DatePattern, Moment};
use super::definition::ArgumentType::{Exact, Floating, Temporal, Text};
use super::definition::{Definition, complete_rows, result, texts};
use super::number_patterns::{NumberPattern, Precision};
use super::patterns::ParsedPatterns;

pub(super) const FUNCTIONS: [Definition; 2] = [
    Definition {
        name: "to_char",
        arguments: &[&[Exact, Text], &[Floating, Text], &[Temporal, Text]],
        result: result::text,
        compute: formatted,
    },
    Definition { name: "to_date", arguments: &[&[Text, Text]], result: result::date, compute: dates },
];

/// Formats values with patterns.
fn formatted(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    match arguments[0].data_type() {
        part if part.is_floating() => formatted_doubles(arguments),
        DataType::Decimal128(..) => formatted_decimals(arguments),
        part if part.is_integer() => formatted_integers(arguments),
        _ => formatted_moments(arguments),
    }
}

/// Formats each row that has no null.
fn rows_as_text(
    arguments: &[ArrayRef],
    mut text: impl FnMut(usize, &str) -> Result<Option<String>>,
) -> Result<ArrayRef> {
    let patterns = texts(&arguments[1]);
    let rows = complete_rows(arguments).map(|row| row.map_or(Ok(None), |row| text(row, patterns.value(row))));
    Ok(Arc::new(rows.collect::<Result<StringViewArray>>()?))
}

fn formatted_doubles(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let precision = match arguments[0].data_type() {
        DataType::Float64 => Precision::Double,
        _ => Precision::Single,
    };
    let numbers = cast(&arguments[0], &DataType::Float64)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    let mut patterns = ParsedPatterns::new(NumberPattern::parse);
    rows_as_text(arguments, |row, pattern| patterns.get(pattern)?.write_double(numbers.value(row), precision).map(Some))
}

fn formatted_decimals(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let numbers = arguments[0].as_primitive::<Decimal128Type>();
    let scale = usize::from(numbers.scale().unsigned_abs());
    let mut patterns = ParsedPatterns::new(NumberPattern::parse);
    rows_as_text(arguments, |row, pattern| patterns.get(pattern)?.write_decimal(numbers.value(row), scale).map(Some))
}

fn formatted_integers(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let is_small = matches!(
        arguments[0].data_type(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16
    );
    let numbers = cast(&arguments[0], &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?;
    let numbers = numbers.as_primitive::<Decimal128Type>();
    let mut patterns = ParsedPatterns::new(NumberPattern::parse);
    rows_as_text(arguments, |row, pattern| {
        let pattern = patterns.get(pattern)?;
        let number = numbers.value(row);
        match i32::try_from(number) {
            Ok(number) if is_small => pattern.write_small_integer(number).map(Some),
            _ if !pattern.fits_bigint(number) => {
                Err(ArrowError::ArithmeticOverflow("bigint out of range".to_owned()).into())
            }
            _ => pattern.write_decimal(number, 0).map(Some),
        }
    })
}

/// Formats dates, times, timestamps and intervals. As in PostgreSQL, the result of an empty pattern is null, and a time
/// is formatted as an interval.
fn formatted_moments(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let moment = moments(&arguments[0])?;
    let mut patterns = ParsedPatterns::new(DatePattern::parse);
    rows_as_text(arguments, |row, pattern| match pattern {
        "" => Ok(None),
        pattern => patterns.get(pattern)?.write(&moment(row)).map(Some),
    })
}

/// Returns a function from the index of a row to the parts of its value.
fn moments(values: &ArrayRef) -> Result<Box<dyn Fn(usize) -> Moment>> {
    Ok(match values.data_type() {
        DataType::Date32 => {
            let dates = values.as_primitive::<Date32Type>().clone();
            Box::new(move |row| Moment::of_date(dates.value(row)))
        }
        DataType::Timestamp(_, zone) => {
            let micros = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>().clone();
            let zone: Option<Tz> = zone.as_ref().map(|zone| zone.parse()).transpose()?;
            Box::new(move |row| match &zone {
                Some(zone) => Moment::of_instant(micros.value(row), zone),
                None => Moment::of_timestamp(micros.value(row)),
            })
        }
        DataType::Time64(_) => {
            let micros = cast(values, &DataType::Time64(TimeUnit::Microsecond))?;
            let micros = micros.as_primitive::<Time64MicrosecondType>().clone();
            Box::new(move |row| Moment::of_interval(IntervalMonthDayNano::new(0, 0, micros.value(row) * 1_000)))
        }
        _ => {
            let intervals = as_intervals(values)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row| Moment::of_interval(intervals.value(row)))
        }
    })
}

/// Reads dates with patterns.
fn dates(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (values, pattern_texts) = (texts(&arguments[0]), texts(&arguments[1]));
    let mut patterns = ParsedPatterns::new(DatePattern::parse);
    let dates = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        patterns.get(pattern_texts.value(row))?.read_date(values.value(row)).map(Some)
    });
    Ok(Arc::new(dates.collect::<Result<Date32Array>>()?))
}
