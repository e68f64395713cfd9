//! `to_timestamp` of seconds since 1970, or of a text and a pattern.
//!
//! DataFusion computes in 64-bit nanoseconds. For a later instant than these can hold, it returns the greatest
//! timestamp that they hold. A third argument is the time zone of a text without an offset, by default UTC.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::kernels::arity::try_unary;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, TimestampMicrosecondType};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_types::LogicalType;

use super::super::dates::{is_text, read_zone};
use super::date_patterns::DatePattern;
use super::definition::{complete_rows, texts};
use super::patterns::ParsedPatterns;

/// Returns the function that replaces DataFusion's `to_timestamp`.
pub(super) fn to_timestamp() -> Arc<ScalarUDF> {
    Arc::new(ToTimestamp::udf(&ConfigOptions::default()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    /// DataFusion's function, which parses text.
    engine: Arc<ScalarUDF>,
    signature: Signature,
}

impl ToTimestamp {
    fn udf(config: &ConfigOptions) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { engine: datetime::to_timestamp(config), signature })
    }
}

fn micros(seconds: f64) -> Result<i64, ArrowError> {
    let micros = (seconds * 1e6).round_ties_even();
    match micros.abs() < i64::MAX as f64 {
        true => Ok(micros as i64),
        false => Err(ArrowError::ComputeError("timestamp out of range".to_owned())),
    }
}

fn instants(seconds: &ArrayRef) -> Result<ArrayRef> {
    let instants: TimestampMicrosecondArray =
        try_unary::<_, _, TimestampMicrosecondType>(seconds.as_primitive::<Float64Type>(), micros)?;
    Ok(Arc::new(instants.with_data_type(LogicalType::TimestampTz.arrow())))
}

/// Reads texts with patterns. The arguments are texts, patterns and, optionally, zones.
fn read_instants(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let utc = "UTC";
    let mut patterns = ParsedPatterns::new(DatePattern::parse);
    let mut zones: ParsedPatterns<Tz> = ParsedPatterns::new(|zone| Ok(read_zone(zone)?));
    let rows = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let zone = zones.get(arguments.get(2).map_or(utc, |zones| texts(zones).value(row)))?;
        let pattern = patterns.get(texts(&arguments[1]).value(row))?;
        pattern.read_timestamp(texts(&arguments[0]).value(row), zone).map(Some)
    });
    let instants = rows.collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(Arc::new(instants.with_data_type(LogicalType::TimestampTz.arrow())))
}

/// Whether a call with this number of arguments reads texts with patterns.
fn has_pattern(arguments: usize) -> bool {
    matches!(arguments, 2 | 3)
}

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(Self::udf(config))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [seconds] if seconds.is_numeric() => Ok(vec![DataType::Float64]),
            texts if has_pattern(texts.len()) && texts.iter().all(|part| is_text(part) || part.is_null()) => {
                Ok(vec![DataType::Utf8View; texts.len()])
            }
            _ => {
                let operand = |data_type: &DataType| Arc::new(Field::new("operand", data_type.clone(), true));
                let fields = fields_with_udf(&types.iter().map(operand).collect::<Vec<_>>(), self.engine.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Float64] => Ok(LogicalType::TimestampTz.arrow()),
            types if has_pattern(types.len()) => Ok(LogicalType::TimestampTz.arrow()),
            types => self.engine.return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [seconds] if *seconds.data_type() == DataType::Float64 => {
                Ok(Arc::new(Field::new(self.name(), LogicalType::TimestampTz.arrow(), seconds.is_nullable())))
            }
            arguments if has_pattern(arguments.len()) => {
                Ok(Arc::new(Field::new(self.name(), LogicalType::TimestampTz.arrow(), true)))
            }
            _ => self.engine.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(ScalarValue::Float64(seconds))] => {
                let seconds = ScalarValue::Float64(*seconds).to_array()?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&instants(&seconds)?, 0)?))
            }
            [ColumnarValue::Array(seconds)] if *seconds.data_type() == DataType::Float64 => {
                Ok(ColumnarValue::Array(instants(seconds)?))
            }
            arguments if has_pattern(arguments.len()) => {
                let is_scalar = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
                let rows = if is_scalar { 1 } else { args.number_rows };
                let arrays = arguments.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
                let instants = read_instants(&arrays)?;
                Ok(match is_scalar {
                    true => ColumnarValue::Scalar(ScalarValue::try_from_array(&instants, 0)?),
                    false => ColumnarValue::Array(instants),
                })
            }
            _ => self.engine.invoke_with_args(args),
        }
    }
}
