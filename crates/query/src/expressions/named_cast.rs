//! Function that gives a cast its own column name. DataFusion omits casts from column names, so `ts` and `ts::date` in
//! one `GROUP BY` would be two columns of the same name. `taut_sql` therefore makes such a cast the argument of a call
//! of this function. The column name of the call is the full text of the cast. When the optimizer simplifies
//! expressions, it replaces the call by its argument.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_sql::NAMED_CAST;

/// Creates the function `named_cast`, which returns its argument.
pub fn named_cast() -> ScalarUDF {
    ScalarUDF::new_from_impl(NamedCast { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedCast {
    signature: Signature,
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &'static str {
        NAMED_CAST
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        let [cast] = operands else { return internal_err!("{NAMED_CAST} takes one value") };
        Ok(cast.to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn simplify(&self, mut operands: Vec<Expr>, _context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(ExprSimplifyResult::Simplified(operands.swap_remove(0)))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
