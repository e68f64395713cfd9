//! Functions that replace the casts for which PostgreSQL and DataFusion return different results. They cast numbers to
//! types that cannot hold every value. They also cast between text and floating-point numbers (see [`super::floats`]),
//! decimals (see [`super::exponents`]), dates, times, intervals (see [`super::dates`]), arrays and bytes.
//!
//! As in PostgreSQL, casts of fractions to integers round: decimals half away from zero, floating-point numbers half to
//! even. DataFusion's cast truncates the fraction.
//!
//! ```text
//!   2.5::int     3        2.5::double precision::int     2
//!   -2.5::int   -3        3.5::double precision::int     4
//! ```
//!
//! Casts to smaller integers, and to decimals of fewer digits, return the same values as DataFusion's casts, but must
//! be functions too. If a statement compares a cast column with a literal, DataFusion removes the cast of the column
//! and casts the literal instead: `x::decimal(12, 1) = 10.3` would not find 10.26.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int64Type, TimeUnit,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use taut_types::LogicalType;

use super::arithmetic::overflow;
use super::floats::narrowing_error;
use super::{arrays, bytes, dates, exponents, floats};

/// Function that casts its argument to the type `target`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CheckedCast {
    /// Name of the function: `cast_to_` and the name of the target type.
    name: String,
    target: DataType,
    /// Whether a value that the target cannot hold becomes null. Otherwise it is an error.
    is_try: bool,
    /// Whether a call has the column name of its operand, like a cast.
    keeps_name: bool,
    signature: Signature,
}

impl CheckedCast {
    /// Returns the function for a cast between two types. Returns `None` if DataFusion's cast is correct, and for casts
    /// between text and bytes.
    pub fn udf(from: &DataType, target: &DataType, is_try: bool, keeps_name: bool) -> Option<ScalarUDF> {
        let is_special = dates::is_text_cast(from, target)
            || dates::is_difference_cast(from, target)
            || arrays::is_array_cast(from, target)
            || exponents::reads_decimals(from, target)
            || floats::is_float_cast(from, target);
        (is_special || is_narrowing(from, target)).then(|| Self::function(target, is_try, keeps_name))
    }

    /// Returns the function for a cast between text and bytes that a statement contains. Returns `None` for other
    /// types. Casts that DataFusion adds, such as for `length(bytes)`, are not replaced, because they must not change
    /// the bytes.
    pub fn of_bytes(from: &DataType, target: &DataType) -> Option<ScalarUDF> {
        bytes::is_bytes_cast(from, target).then(|| Self::function(target, false, true))
    }

    fn function(target: &DataType, is_try: bool, keeps_name: bool) -> ScalarUDF {
        let type_name = LogicalType::from_arrow(target).map_or_else(|| target.to_string(), |name| name.to_string());
        let name = format!("cast_to_{}", type_name.replace(' ', "_"));
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { name, target: target.clone(), is_try, keeps_name, signature })
    }
}

/// Returns an expression that casts `value` from the type `from` to the type `target`, like a cast in a statement. A
/// cast between text and bytes uses PostgreSQL's formats of `bytea`.
pub fn statement_cast(value: Expr, from: &DataType, target: DataType) -> Expr {
    match CheckedCast::of_bytes(from, &target) {
        Some(function) => function.call(vec![value]),
        None => datafusion::logical_expr::cast(value, target),
    }
}

/// Target of a call that casts, and whether values that the target cannot hold become null. `None` for other calls.
pub(super) fn cast_of(call: &ScalarFunction) -> Option<(DataType, bool)> {
    let cast = call.func.inner().downcast_ref::<CheckedCast>()?;
    Some((cast.target.clone(), cast.is_try))
}

/// Gives the casts of an expression that a user wrote the meaning of [`statement_cast`].
///
/// # Errors
/// If the type of an operand cannot be determined.
pub fn with_statement_casts(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let cast = |part: Expr| match part {
        Expr::Cast(Cast { expr, field }) => {
            let from = expr.get_type(schema)?;
            Ok(Transformed::yes(statement_cast(*expr, &from, field.data_type().clone())))
        }
        other => Ok(Transformed::no(other)),
    };
    Ok(expression.transform_up(cast)?.data)
}

/// Whether a cast between two types of numbers, or of timestamps, may change a value or fail.
fn is_narrowing(from: &DataType, target: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64};
    match (from, target) {
        (Float32 | Float64 | Decimal128(..), target) if target.is_integer() => true,
        (Float64 | Decimal128(..), Float32) => true,
        (Decimal128(precision, scale), Decimal128(target_precision, target_scale)) => {
            let has_fewer_integer_digits =
                i16::from(*target_precision) - i16::from(*target_scale) < i16::from(*precision) - i16::from(*scale);
            target_scale < scale || has_fewer_integer_digits
        }
        (from, Decimal128(precision, scale)) if from.is_integer() => {
            integer_digits(from) > i16::from(*precision) - i16::from(*scale)
        }
        (DataType::Timestamp(from, _), DataType::Timestamp(target, _)) => ticks(*target) < ticks(*from),
        // Unsigned integers are results of counting functions, which always fit.
        (DataType::UInt64, DataType::Int64) => false,
        (from, target) if from.is_integer() && target.is_integer() => from.primitive_width() > target.primitive_width(),
        _ => false,
    }
}

/// Number of ticks of a timestamp unit in one second.
fn ticks(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Rounds timestamps to the unit of `target`, which has fewer fractional digits.
fn rounded_timestamps(timestamps: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let (DataType::Timestamp(from, zone), DataType::Timestamp(unit, _)) = (timestamps.data_type(), target) else {
        return internal_err!("{} is rounded to {target}", timestamps.data_type());
    };
    let (from, zone, step) = (*from, zone.clone(), ticks(*from) / ticks(*unit));
    let numbers = cast(timestamps, &DataType::Int64)?;
    let round = |number: i64| number.saturating_add(step / 2).div_euclid(step) * step;
    let numbers: ArrayRef = Arc::new(numbers.as_primitive::<Int64Type>().unary::<_, Int64Type>(round));
    Ok(cast(&cast(&numbers, &DataType::Timestamp(from, zone))?, target)?)
}

/// Number of decimal digits of the greatest integer of a type.
fn integer_digits(data_type: &DataType) -> i16 {
    match data_type.primitive_width() {
        Some(1) => 3,
        Some(2) => 5,
        Some(4) => 10,
        _ if data_type.is_unsigned_integer() => 20,
        _ => 19,
    }
}

impl ScalarUDFImpl for CheckedCast {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        let operand = operands[0].schema_name();
        Ok(if self.keeps_name { operand.to_string() } else { format!("{}({operand})", self.name()) })
    }

    fn is_strict(&self) -> bool {
        !self.is_try
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.target.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = self.is_try || args.arg_fields[0].is_nullable();
        Ok(Arc::new(Field::new(self.name(), self.target.clone(), is_nullable)))
    }

    /// A cast of numbers preserves their order if no value becomes null. A cast of text to numbers does not: `'10'` is
    /// before `'9'`.
    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        let is_monotonic = operands[0].range.data_type().is_numeric() && self.target.is_numeric() && !self.is_try;
        Ok(if is_monotonic { operands[0].sort_properties } else { SortProperties::Unordered })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let cast = |array: &ArrayRef| {
            if bytes::is_bytes(&self.target) {
                return Ok(bytes::read(array, &self.target, self.is_try)?);
            }
            if bytes::is_bytes(array.data_type()) {
                return Ok(bytes::write(array, &self.target)?);
            }
            if arrays::is_array(&self.target) {
                return Ok(arrays::read(array, &self.target, self.is_try)?);
            }
            if arrays::is_array(array.data_type()) {
                return Ok(arrays::write(array, &self.target)?);
            }
            if dates::is_text(array.data_type()) && floats::is_float(&self.target) {
                return Ok(floats::read(array, &self.target, self.is_try)?);
            }
            if floats::is_float(array.data_type()) && dates::is_text(&self.target) {
                return Ok(floats::write(array, &self.target)?);
            }
            if exponents::reads_decimals(array.data_type(), &self.target) {
                return Ok(exponents::read(array, &self.target, self.is_try)?);
            }
            if dates::is_text(array.data_type()) {
                return Ok(dates::read(array, &self.target, self.is_try)?);
            }
            if matches!(self.target, DataType::Timestamp(..)) {
                return rounded_timestamps(array, &self.target);
            }
            if dates::is_difference_cast(array.data_type(), &self.target) {
                return dates::as_intervals(array);
            }
            if dates::is_text(&self.target) {
                return Ok(dates::write(array, &self.target)?);
            }
            let array = if self.target.is_integer() { rounded(array)? } else { Arc::clone(array) };
            let options = CastOptions { safe: self.is_try, ..CastOptions::default() };
            // The cast fails only if a value is out of range.
            let out_of_range = || match &self.target {
                DataType::Decimal128(..) => ArrowError::ArithmeticOverflow("numeric field overflow".to_owned()).into(),
                target => DataFusionError::from(overflow(target)),
            };
            let values = cast_with_options(&array, &self.target, &options).map_err(|_| out_of_range())?;
            match (array.as_primitive_opt::<Float64Type>(), values.as_primitive_opt::<Float32Type>()) {
                (Some(doubles), Some(reals)) if !self.is_try => {
                    narrowing_error(doubles, reals).map_or(Ok(values), |error| Err(error.into()))
                }
                _ => Ok(values),
            }
        };
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(cast(array)?),
            ColumnarValue::Scalar(scalar) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&cast(&scalar.to_array()?)?, 0)?)
            }
        })
    }
}

/// Rounds the numbers of an array to integers. Decimals become decimals of scale 0, and floating-point numbers keep
/// their type. Other values are returned unchanged.
fn rounded(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
        }
        DataType::Decimal128(precision, scale) if *scale > 0 => {
            let divisor = 10_i128.pow(scale.unsigned_abs().into());
            let round = |number: i128| {
                let (quotient, remainder) = (number / divisor, number % divisor);
                // The scale is not 0, so half of the divisor is exact.
                if remainder.abs() >= divisor / 2 { quotient + number.signum() } else { quotient }
            };
            let integers: Decimal128Array = array.as_primitive::<Decimal128Type>().unary(round);
            Arc::new(integers.with_precision_and_scale(*precision, 0)?)
        }
        _ => Arc::clone(array),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;

    use super::*;

    #[test]
    fn decimals_round_half_away_from_zero() {
        let decimals =
            Decimal128Array::from(vec![Some(249), Some(250), Some(-250), Some(-249), Some(0), None, Some(99_999)]);
        let decimals: ArrayRef = Arc::new(decimals.with_precision_and_scale(5, 2).unwrap());
        let expected = Decimal128Array::from(vec![Some(2), Some(3), Some(-3), Some(-2), Some(0), None, Some(1_000)]);
        assert_eq!(rounded(&decimals).unwrap().as_primitive(), &expected.with_precision_and_scale(5, 0).unwrap());
    }

    #[test]
    fn casts_that_keep_every_value_are_not_narrowing() {
        use DataType::{Decimal128, Float64, Int16, Int32, Int64, UInt64};
        let cases = [
            (Decimal128(12, 3), Int64, true),
            (Float64, Int32, true),
            (Int32, Int16, true),
            (Int16, Int32, false),
            (UInt64, Int64, false),
            (Int32, Decimal128(12, 2), false),
            (Int32, Decimal128(9, 0), true),
            (Int64, Decimal128(20, 1), false),
            (Decimal128(12, 3), Decimal128(12, 1), true),
            (Decimal128(12, 3), Decimal128(12, 4), true),
            (Decimal128(12, 3), Decimal128(13, 4), false),
            (Int32, Float64, false),
            (Int64, Int64, false),
        ];
        for (from, target, expected) in cases {
            assert_eq!(is_narrowing(&from, &target), expected, "{from} to {target}");
        }
    }

    #[test]
    fn floating_point_rounds_half_to_even() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![2.5, 3.5, -2.5, 0.4]));
        assert_eq!(rounded(&numbers).unwrap().as_primitive(), &Float64Array::from(vec![2.0, 4.0, -2.0, 0.0]));
    }
}
