//! `x AT TIME ZONE zone`, which calls the function `timezone(zone, x)`:
//!
//! ```text
//!   type of x     result
//!   timestamp     timestamptz, the instant at which x is the local time in the zone
//!   timestamptz   timestamp, the local time in the zone at the instant x
//! ```
//!
//! As in PostgreSQL, an offset has the sign of POSIX: `+02` is west of Greenwich.

use std::sync::Arc;

use chrono::{DateTime, Months, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::temporal_conversions::MICROSECONDS;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_types::LogicalType;

use super::parse;

/// The function `timezone`.
pub fn timezone() -> ScalarUDF {
    ScalarUDF::new_from_impl(AtTimeZone { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    signature: Signature,
}

impl ScalarUDFImpl for AtTimeZone {
    fn name(&self) -> &'static str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [zone, value] = types else { return plan_err!("timezone takes a zone and a timestamp") };
        let value = match value {
            DataType::Timestamp(_, None) => LogicalType::Timestamp,
            DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Null => LogicalType::TimestampTz,
            text if super::is_text(text) => LogicalType::TimestampTz,
            other => return plan_err!("timezone of {other} is not supported; timestamps and dates are"),
        };
        match zone {
            DataType::Null => {}
            text if super::is_text(text) => {}
            other => return plan_err!("a time zone of type {other} is not supported; text is"),
        }
        Ok(vec![DataType::Utf8View, value.arrow()])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match types {
            [_, DataType::Timestamp(_, None)] => LogicalType::TimestampTz.arrow(),
            _ => LogicalType::Timestamp.arrow(),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|operand| matches!(operand, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let values = args.args[1].to_array(rows)?;
        let shifted = match &args.args[0] {
            ColumnarValue::Scalar(zone) => {
                let zone = zone.try_as_str().flatten().map(read_zone).transpose()?;
                shift(&values, |_| Ok(zone))?
            }
            ColumnarValue::Array(zones) => {
                let zones = cast(zones, &DataType::Utf8View)?;
                let zones = zones.as_string_view();
                shift(&values, |row| zones.is_valid(row).then(|| read_zone(zones.value(row))).transpose())?
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&shifted, 0)?),
            false => ColumnarValue::Array(shifted),
        })
    }
}

/// The function that adds an interval to an instant, or subtracts it. It adds months and days in a zone, where a day
/// may have 23 or 25 hours. Then it adds the time of the interval.
pub fn shift_instant(is_subtraction: bool) -> ScalarUDF {
    ScalarUDF::new_from_impl(ShiftInstant {
        is_subtraction,
        signature: Signature::exact(
            vec![DataType::Utf8View, LogicalType::TimestampTz.arrow(), DataType::Interval(IntervalUnit::MonthDayNano)],
            Volatility::Immutable,
        ),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ShiftInstant {
    is_subtraction: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ShiftInstant {
    fn name(&self) -> &'static str {
        if self.is_subtraction { "subtract_from_instant" } else { "add_to_instant" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(LogicalType::TimestampTz.arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), LogicalType::TimestampTz.arrow(), is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|operand| matches!(operand, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let ColumnarValue::Scalar(zone) = &args.args[0] else {
            return internal_err!("{} takes a literal zone", self.name());
        };
        let Some(zone) = zone.try_as_str().flatten().map(read_zone).transpose()? else {
            return internal_err!("{} takes a zone", self.name());
        };
        let (instants, intervals) = (args.args[1].to_array(rows)?, args.args[2].to_array(rows)?);
        let instants = instants.as_primitive::<TimestampMicrosecondType>();
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let out_of_range = || ArrowError::ArithmeticOverflow("timestamp out of range".to_owned());
        let shifted: TimestampMicrosecondArray = try_binary(instants, intervals, |instant, interval| {
            self.shifted(&zone, instant, interval).ok_or_else(out_of_range)
        })?;
        let shifted: ArrayRef = Arc::new(shifted.with_data_type(LogicalType::TimestampTz.arrow()));
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&shifted, 0)?),
            false => ColumnarValue::Array(shifted),
        })
    }
}

impl ShiftInstant {
    /// The shifted instant in microseconds. `None` if it is out of range.
    fn shifted(&self, zone: &Tz, micros: i64, interval: IntervalMonthDayNano) -> Option<i64> {
        let sign = if self.is_subtraction { -1 } else { 1 };
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        let time = (nanoseconds / 1_000).checked_mul(sign.into())?;
        if months == 0 && days == 0 {
            return micros.checked_add(time);
        }
        let (months, days) = (months.checked_mul(sign)?, days.checked_mul(sign)?);
        let utc = DateTime::from_timestamp_micros(micros)?.naive_utc();
        let local = utc.checked_add_offset(zone.offset_from_utc_datetime(&utc).fix())?;
        let count = Months::new(months.unsigned_abs());
        let local = if months < 0 { local.checked_sub_months(count) } else { local.checked_add_months(count) }?;
        let local = local.checked_add_signed(TimeDelta::days(days.into()))?;
        let shifted = local.and_utc().timestamp_micros();
        shifted.checked_sub(parse::offset_seconds(zone, local)?.checked_mul(MICROSECONDS)?)?.checked_add(time)
    }
}

/// Returns a zone by name, or by an offset with the sign of POSIX.
///
/// # Errors
/// If there is no such zone.
pub fn read_zone(text: &str) -> Result<Tz, ArrowError> {
    let text = text.trim();
    let inverted = match text.as_bytes().first() {
        Some(b'+') => format!("-{}", &text[1..]),
        Some(b'-') => format!("+{}", &text[1..]),
        _ => text.to_owned(),
    };
    let unknown = || ArrowError::InvalidArgumentError(format!("time zone \"{text}\" not recognized"));
    parse::zone(&inverted).ok_or_else(unknown)
}

/// Converts timestamps without time zone, in microseconds, to instants.
///
/// # Errors
/// If a timestamp is out of range.
pub fn instants_of_local_times(values: &ArrayRef, zone: &Tz) -> Result<ArrayRef, ArrowError> {
    shift(values, |_| Ok(Some(*zone)))
}

/// Converts timestamps. `zone_of` returns the zone of a row, `None` for null.
fn shift(values: &ArrayRef, zone_of: impl Fn(usize) -> Result<Option<Tz>, ArrowError>) -> Result<ArrayRef, ArrowError> {
    let is_local = matches!(values.data_type(), DataType::Timestamp(TimeUnit::Microsecond, None));
    let values = values.as_primitive::<TimestampMicrosecondType>();
    let out_of_range = || ArrowError::ArithmeticOverflow("timestamp out of range".to_owned());
    let shifted = (0..values.len()).map(|row| {
        let (true, Some(zone)) = (values.is_valid(row), zone_of(row)?) else { return Ok(None) };
        let micros = values.value(row);
        let date_time = DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)?.naive_utc();
        let offset = match is_local {
            true => -parse::offset_seconds(&zone, date_time).ok_or_else(out_of_range)?,
            false => zone.offset_from_utc_datetime(&date_time).fix().local_minus_utc().into(),
        };
        micros.checked_add(offset * MICROSECONDS).map(Some).ok_or_else(out_of_range)
    });
    let shifted = shifted.collect::<Result<TimestampMicrosecondArray, ArrowError>>()?;
    let target = if is_local { LogicalType::TimestampTz } else { LogicalType::Timestamp };
    Ok(Arc::new(shifted.with_data_type(target.arrow())))
}
