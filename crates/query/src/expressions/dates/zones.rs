//! `x AT TIME ZONE zone`, which is the function `timezone(zone, x)`:
//!
//! ```text
//!   timestamp     the instant at which clocks in the zone show it      timestamptz
//!   timestamptz   what clocks in the zone show at that instant         timestamp
//! ```
//!
//! The sign of a zone without a name is that of POSIX, as in PostgreSQL: `+02` is west of Greenwich.

use std::sync::Arc;

use chrono::{Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit, TimestampMicrosecondType};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::temporal_conversions::MICROSECONDS;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_types::LogicalType;

use super::parse;

/// The function `timezone`.
pub(super) fn timezone() -> ScalarUDF {
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

/// A zone by name, or by an offset with the sign of POSIX.
fn read_zone(text: &str) -> Result<Tz, ArrowError> {
    let text = text.trim();
    let inverted = match text.as_bytes().first() {
        Some(b'+') => format!("-{}", &text[1..]),
        Some(b'-') => format!("+{}", &text[1..]),
        _ => text.to_owned(),
    };
    let unknown = || ArrowError::InvalidArgumentError(format!("time zone \"{text}\" not recognized"));
    parse::zone(&inverted).ok_or_else(unknown)
}

/// Converts timestamps. `zone_of` returns the zone of a row, `None` for null.
fn shift(values: &ArrayRef, zone_of: impl Fn(usize) -> Result<Option<Tz>, ArrowError>) -> Result<ArrayRef> {
    let is_local = matches!(values.data_type(), DataType::Timestamp(TimeUnit::Microsecond, None));
    let values = values.as_primitive::<TimestampMicrosecondType>();
    let out_of_range = || ArrowError::ArithmeticOverflow("timestamp out of range".to_owned());
    let shifted = (0..values.len()).map(|row| {
        let (true, Some(zone)) = (values.is_valid(row), zone_of(row)?) else { return Ok(None) };
        let micros = values.value(row);
        let date_time = chrono::DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)?.naive_utc();
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
