//! `to_timestamp` of seconds since 1970. DataFusion computes in 64-bit nanoseconds. For a later instant than these can
//! hold, it returns the greatest timestamp that they hold.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::kernels::arity::try_unary;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, TimestampMicrosecondType};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_types::LogicalType;

/// Returns the function that replaces DataFusion's `to_timestamp`.
pub(super) fn to_timestamp() -> Arc<ScalarUDF> {
    Arc::new(ToTimestamp::udf(&ConfigOptions::default()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    /// DataFusion's function, which parses text.
    engine: Arc<ScalarUDF>,
    signature: Signature,
}

impl ToTimestamp {
    fn udf(config: &ConfigOptions) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { engine: datetime::to_timestamp(config), signature })
    }
}

fn micros(seconds: f64) -> Result<i64, ArrowError> {
    let micros = (seconds * 1e6).round_ties_even();
    match micros.abs() < i64::MAX as f64 {
        true => Ok(micros as i64),
        false => Err(ArrowError::ComputeError("timestamp out of range".to_owned())),
    }
}

fn instants(seconds: &ArrayRef) -> Result<ArrayRef> {
    let instants: TimestampMicrosecondArray =
        try_unary::<_, _, TimestampMicrosecondType>(seconds.as_primitive::<Float64Type>(), micros)?;
    Ok(Arc::new(instants.with_data_type(LogicalType::TimestampTz.arrow())))
}

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(Self::udf(config))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [seconds] if seconds.is_numeric() => Ok(vec![DataType::Float64]),
            _ => {
                let operand = |data_type: &DataType| Arc::new(Field::new("operand", data_type.clone(), true));
                let fields = fields_with_udf(&types.iter().map(operand).collect::<Vec<_>>(), self.engine.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Float64] => Ok(LogicalType::TimestampTz.arrow()),
            types => self.engine.return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [seconds] if *seconds.data_type() == DataType::Float64 => {
                Ok(Arc::new(Field::new(self.name(), LogicalType::TimestampTz.arrow(), seconds.is_nullable())))
            }
            _ => self.engine.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(ScalarValue::Float64(seconds))] => {
                let seconds = ScalarValue::Float64(*seconds).to_array()?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&instants(&seconds)?, 0)?))
            }
            [ColumnarValue::Array(seconds)] if *seconds.data_type() == DataType::Float64 => {
                Ok(ColumnarValue::Array(instants(seconds)?))
            }
            _ => self.engine.invoke_with_args(args),
        }
    }
}
