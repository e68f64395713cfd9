//! Casts of fractions to integers, which round as in PostgreSQL: decimals half away from zero, floating-point numbers
//! half to even. The engine's own cast cuts the fraction.
//!
//! ```text
//!   2.5::int     3        2.5::double precision::int     2
//!   -2.5::int   -3        3.5::double precision::int     4
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function that casts.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct IntegerCast {
    target: DataType,
    /// Whether a value that the target cannot hold becomes null. Otherwise it is an error.
    is_try: bool,
    /// Whether a call has the name of its operand, as a cast has.
    keeps_name: bool,
    signature: Signature,
}

impl IntegerCast {
    /// The function for a cast between two types. `None` if the engine's cast is the same.
    pub fn udf(from: &DataType, target: &DataType, is_try: bool, keeps_name: bool) -> Option<ScalarUDF> {
        let has_fraction = match from {
            DataType::Float32 | DataType::Float64 => true,
            DataType::Decimal128(_, scale) => *scale > 0,
            _ => false,
        };
        (has_fraction && target.is_integer()).then(|| {
            let signature = Signature::any(1, Volatility::Immutable);
            ScalarUDF::new_from_impl(Self { target: target.clone(), is_try, keeps_name, signature })
        })
    }
}

impl ScalarUDFImpl for IntegerCast {
    fn name(&self) -> &'static str {
        "round_to_integer"
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

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let cast = |array: &ArrayRef| {
            let options = CastOptions { safe: self.is_try, ..CastOptions::default() };
            Ok::<_, datafusion::error::DataFusionError>(cast_with_options(&rounded(array)?, &self.target, &options)?)
        };
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(cast(array)?),
            ColumnarValue::Scalar(scalar) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&cast(&scalar.to_array()?)?, 0)?)
            }
        })
    }
}

/// The numbers of an array without fractions, in the same type or as decimals of scale 0.
fn rounded(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
        }
        DataType::Decimal128(precision, scale) => {
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
    fn floating_point_rounds_half_to_even() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![2.5, 3.5, -2.5, 0.4]));
        assert_eq!(rounded(&numbers).unwrap().as_primitive(), &Float64Array::from(vec![2.0, 4.0, -2.0, 0.0]));
    }
}
