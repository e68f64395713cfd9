//! `now()`, the time at which the transaction began, and `clock_timestamp()`, the time of the call. DataFusion's `now`
//! has nanoseconds, with which it differs from the same time in a column, and which cannot be compared with timestamps
//! before 1678 and after 2262.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    create_udf, lit,
};
use taut_types::LogicalType;

/// Returns the function that replaces DataFusion's `now`.
pub fn now() -> Arc<ScalarUDF> {
    let aliases = vec!["current_timestamp".to_owned()];
    Arc::new(ScalarUDF::new_from_impl(Now { signature: Signature::nullary(Volatility::Stable), aliases }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &'static str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(LogicalType::TimestampTz.arrow())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), LogicalType::TimestampTz.arrow(), false)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match info.query_execution_start_time() {
            Some(start) => {
                let micros = ScalarValue::Int64(Some(start.timestamp_micros()));
                ExprSimplifyResult::Simplified(lit(micros.cast_to(&LogicalType::TimestampTz.arrow())?))
            }
            None => ExprSimplifyResult::Original(args),
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("now() was not replaced by the time of the transaction")
    }
}

/// Returns the function `clock_timestamp`. Rows that are computed together have the same time.
pub(super) fn clock_timestamp() -> Arc<ScalarUDF> {
    let compute = |_: &[ColumnarValue]| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = ScalarValue::Int64(Some(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)));
        Ok(ColumnarValue::Scalar(micros.cast_to(&LogicalType::TimestampTz.arrow())?))
    };
    let result = LogicalType::TimestampTz.arrow();
    Arc::new(create_udf("clock_timestamp", Vec::new(), result, Volatility::Volatile, Arc::new(compute)))
}
