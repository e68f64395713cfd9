//! Replaces -0.0 by 0.0 where DataFusion compares floating-point numbers by their bits: in comparisons of adjacent rows
//! of a window, and in distinct counts. The two zeros are equal in SQL.
//!
//! ```text
//!   rank() OVER (ORDER BY x)    rank() OVER (ORDER BY unsigned_zero(x))
//!   count(DISTINCT x)           count(DISTINCT unsigned_zero(x))
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Returns a call that replaces -0.0 by 0.0 and returns other numbers unchanged. The call has the column name of its
/// argument.
pub(super) fn unsigned_zero(number: Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(UnsignedZero { signature }).call(vec![number])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct UnsignedZero {
    signature: Signature,
}

impl ScalarUDFImpl for UnsignedZero {
    fn name(&self) -> &'static str {
        "unsigned_zero"
    }

    fn schema_name(&self, numbers: &[Expr]) -> Result<String> {
        Ok(numbers[0].schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let number = &args.arg_fields[0];
        Ok(Arc::new(Field::new(self.name(), number.data_type().clone(), number.is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(numbers) => ColumnarValue::Array(unsigned_zeros(numbers)?),
            ColumnarValue::Scalar(number) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&unsigned_zeros(&number.to_array()?)?, 0)?)
            }
        })
    }
}

fn unsigned_zeros(numbers: &ArrayRef) -> Result<ArrayRef> {
    // -0.0 + 0.0 is 0.0.
    Ok(match numbers.data_type() {
        DataType::Float32 => Arc::new(numbers.as_primitive::<Float32Type>().unary::<_, Float32Type>(|x| x + 0.0)),
        DataType::Float64 => Arc::new(numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(|x| x + 0.0)),
        other => return internal_err!("unsigned_zero of {other}"),
    })
}
