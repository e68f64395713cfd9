//! `version()`: the name and version of this program.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// Creates the function. Its result is, for example, `Taut 1.0.0 on x86_64-linux`.
pub(super) fn version() -> Arc<ScalarUDF> {
    let text = format!("Taut {} on {}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    let result = ColumnarValue::Scalar(ScalarValue::Utf8View(Some(text)));
    let compute = Arc::new(move |_: &[ColumnarValue]| Ok(result.clone()));
    Arc::new(create_udf("version", Vec::new(), DataType::Utf8View, Volatility::Stable, compute))
}
