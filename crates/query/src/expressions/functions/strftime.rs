//! `strftime` of DuckDB, which formats dates and times with the patterns of C. It is DataFusion's `to_char`, whose name
//! PostgreSQL uses for other patterns.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// Returns the function.
pub(super) fn strftime() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Strftime { engine: datetime::to_char() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Strftime {
    engine: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Strftime {
    fn name(&self) -> &'static str {
        "strftime"
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.engine.invoke_with_args(args)
    }
}
