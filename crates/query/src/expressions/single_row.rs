//! Check that a scalar subquery returns at most one row.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

static SINGLE_ROW: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::new_from_impl(SingleRow { signature: Signature::any(2, Volatility::Volatile) }));

/// Returns a call that evaluates to `value`, and fails if `rows`, the row count of the subquery, exceeds one.
pub fn single_row(value: Expr, rows: Expr) -> Expr {
    SINGLE_ROW.call(vec![value, rows])
}

/// Whether a function is the check that [`single_row`] calls.
pub fn is_single_row(function: &ScalarUDF) -> bool {
    function.inner().is::<SingleRow>()
}

/// The function that checks the row count. It is volatile, so the optimizer does not move or remove it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleRow {
    signature: Signature,
}

impl ScalarUDFImpl for SingleRow {
    fn name(&self) -> &'static str {
        "single_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), args.arg_fields[0].data_type().clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, rows] = args.args.as_slice() else { return internal_err!("single_row takes two values") };
        let rows = rows.to_array(args.number_rows)?;
        if rows.as_primitive::<Int64Type>().iter().flatten().any(|rows| rows > 1) {
            return exec_err!("more than one row returned by a subquery used as an expression");
        }
        Ok(value.clone())
    }
}
