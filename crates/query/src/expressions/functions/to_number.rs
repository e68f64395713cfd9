//! `to_number`, which reads numbers with PostgreSQL's patterns.
//!
//! PostgreSQL's result has as many digits after the point as the text. Here, a column of results has one scale. If the
//! pattern is a literal, `taut_sql` adds the number of its digits after the point as a third argument, which is the
//! scale. Otherwise it is that of `decimal` without digits.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Decimal128Array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::dates::is_text;
use super::definition::{complete_rows, texts};
use super::number_patterns::NumberPattern;
use super::patterns::ParsedPatterns;

/// Scale of the results if the pattern is not a literal.
const DEFAULT_SCALE: i8 = 10;

/// Returns the function.
pub(super) fn to_number() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ToNumber { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumber {
    signature: Signature,
}

fn result_type(scale: i8) -> DataType {
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
}

/// Reads texts with patterns. As in PostgreSQL, the result of an empty pattern is null.
fn numbers(arguments: &[ArrayRef], scale: i8) -> Result<ArrayRef> {
    let (values, pattern_texts) = (texts(&arguments[0]), texts(&arguments[1]));
    let mut patterns = ParsedPatterns::new(NumberPattern::parse);
    let rows = complete_rows(arguments).map(|row| {
        let Some(row) = row.filter(|row| !pattern_texts.value(*row).is_empty()) else { return Ok(None) };
        patterns.get(pattern_texts.value(row))?.read(values.value(row), scale.unsigned_abs().into()).map(Some)
    });
    let numbers = rows.collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(numbers.with_precision_and_scale(DECIMAL128_MAX_PRECISION, scale)?))
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &'static str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_pattern = |part: &DataType| is_text(part) || part.is_null();
        match types {
            [text, pattern] if is_pattern(text) && is_pattern(pattern) => Ok(vec![DataType::Utf8View; 2]),
            [text, pattern, scale] if is_pattern(text) && is_pattern(pattern) && scale.is_integer() => {
                Ok(vec![DataType::Utf8View, DataType::Utf8View, DataType::Int64])
            }
            _ => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                let types = types.join(", ");
                plan_err!("No function matches the given name and argument types 'to_number({types})'.")
            }
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(result_type(DEFAULT_SCALE))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let scale = match args.scalar_arguments {
            [_, _] => DEFAULT_SCALE,
            [_, _, Some(ScalarValue::Int64(Some(scale @ 0..=38)))] => *scale as i8,
            _ => return Err(plan_datafusion_err!("the scale of to_number must be a constant from 0 to 38")),
        };
        Ok(Arc::new(Field::new(self.name(), result_type(scale), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = args.args.get(..2).unwrap_or_default();
        let scale = match args.return_field.data_type() {
            DataType::Decimal128(_, scale) => *scale,
            _ => DEFAULT_SCALE,
        };
        let is_scalar = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let arrays = arguments.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let numbers = numbers(&arrays, scale)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            false => ColumnarValue::Array(numbers),
        })
    }
}
