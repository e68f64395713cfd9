//! Function that `'t'::regclass` calls. It fails if there is no relation `t`.

use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use taut_sql::FOUND_RELATION;

use crate::error::QueryError;

/// Creates the function. It returns its first argument, an oid, or fails if the oid is null. The second argument is the
/// name of the relation, for the error. The function is volatile, so constant folding does not evaluate it.
pub(super) fn found_relation() -> Arc<ScalarUDF> {
    let types = vec![DataType::Int64, DataType::Utf8View];
    let compute = Arc::new(|arguments: &[ColumnarValue]| check(arguments));
    Arc::new(create_udf(FOUND_RELATION, types, DataType::Int64, Volatility::Volatile, compute))
}

fn check(arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    let has_null = match &arguments[0] {
        ColumnarValue::Scalar(oid) => oid.is_null(),
        ColumnarValue::Array(oids) => oids.null_count() > 0,
    };
    if !has_null {
        return Ok(arguments[0].clone());
    }
    let name = match &arguments[1] {
        ColumnarValue::Scalar(name) => name.clone(),
        ColumnarValue::Array(names) => ScalarValue::try_from_array(names, 0)?,
    };
    Err(DataFusionError::External(Box::new(QueryError::no_relation(name.to_string()))))
}
