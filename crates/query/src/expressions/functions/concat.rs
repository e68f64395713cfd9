//! `concat`, which returns the empty string if all its arguments are null. DataFusion leaves out null and empty
//! constants when it simplifies a call, and refuses a call of which nothing is left:
//!
//! ```text
//!   concat(name || NULL, '')    concat()
//! ```

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::string::concat::ConcatFunc;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, lit,
};

/// Returns the function that replaces DataFusion's `concat`.
pub(super) fn concat() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Concat { engine: ConcatFunc::new() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Concat {
    engine: ConcatFunc,
}

impl ScalarUDFImpl for Concat {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.engine.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if !args.iter().all(is_empty) {
            // DataFusion's result is a call of its own function.
            return Ok(match self.engine.simplify(args, info)? {
                ExprSimplifyResult::Simplified(Expr::ScalarFunction(call)) => {
                    ExprSimplifyResult::Simplified(concat().call(call.args))
                }
                other => other,
            });
        }
        let types = args.iter().map(|part| info.get_data_type(part)).collect::<Result<Vec<_>>>()?;
        let empty = ScalarValue::Utf8(Some(String::new())).cast_to(&self.return_type(&types)?)?;
        Ok(ExprSimplifyResult::Simplified(lit(empty)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.engine.invoke_with_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.engine.documentation()
    }
}

/// Whether an argument is a constant that adds nothing to the result.
fn is_empty(argument: &Expr) -> bool {
    let Expr::Literal(value, _) = argument else { return false };
    value.is_null() || value.try_as_str().flatten().is_some_and(str::is_empty)
}
