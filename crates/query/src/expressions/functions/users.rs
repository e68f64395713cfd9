//! `current_user`, `session_user` and `user`. A database has no users, so all of them return the same name.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// The name that the functions return.
const USER: &str = "taut";

/// Creates the functions, which SQL calls without parentheses.
pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    ["current_user", "session_user", "user"].into_iter().map(|name| {
        let result = ColumnarValue::Scalar(ScalarValue::Utf8View(Some(USER.to_owned())));
        let compute = Arc::new(move |_: &[ColumnarValue]| Ok(result.clone()));
        Arc::new(create_udf(name, Vec::new(), DataType::Utf8View, Volatility::Stable, compute))
    })
}
