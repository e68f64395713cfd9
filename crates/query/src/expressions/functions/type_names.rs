//! `pg_typeof` and `typeof`: the name of a value's type in PostgreSQL and in DuckDB. The result depends only on the
//! type of the argument, so it is the same for all rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Returns the functions `pg_typeof` and `typeof`.
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    let signature = Signature::any(1, Volatility::Immutable);
    [true, false]
        .map(|is_postgres| Arc::new(ScalarUDF::new_from_impl(TypeName { is_postgres, signature: signature.clone() })))
}

/// The function `pg_typeof` or `typeof`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeName {
    is_postgres: bool,
    signature: Signature,
}

impl ScalarUDFImpl for TypeName {
    fn name(&self) -> &'static str {
        if self.is_postgres { "pg_typeof" } else { "typeof" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let data_type = args.arg_fields[0].data_type();
        let name = if self.is_postgres { name_in_postgres(data_type) } else { name_in_duckdb(data_type) };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(name))))
    }
}

/// Name of a type in PostgreSQL.
pub fn name_in_postgres(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint",
        DataType::Int32 | DataType::UInt16 => "integer",
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "bigint",
        DataType::Float16 | DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Decimal128(..) | DataType::Decimal256(..) => "numeric",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone",
        DataType::Timestamp(_, None) => "timestamp without time zone",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea",
        DataType::Null => "unknown",
        DataType::Struct(_) => "record",
        DataType::List(item) => match item.data_type() {
            // PostgreSQL has one type for arrays of any number of dimensions.
            DataType::List(_) => return name_in_postgres(item.data_type()),
            item => return name_in_postgres(item) + "[]",
        },
        other => return other.to_string(),
    };
    name.to_owned()
}

/// Name of a type in DuckDB.
fn name_in_duckdb(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt64 => "UBIGINT",
        DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Decimal128(precision, scale) => return format!("DECIMAL({precision},{scale})"),
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP_S",
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP_MS",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP_NS",
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BLOB",
        DataType::Null => "\"NULL\"",
        DataType::List(item) => return name_in_duckdb(item.data_type()) + "[]",
        other => return other.to_string(),
    };
    name.to_owned()
}
