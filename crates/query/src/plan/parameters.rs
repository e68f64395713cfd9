//! Binds parameter values in plans.

use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use taut_sql::{Parameters, Value};

use crate::error::Result;

/// Parameter values that can be bound in a plan.
pub(crate) trait BindParameters {
    /// Replaces the parameters of a plan by values.
    ///
    /// # Errors
    /// If the values do not match the parameters of the plan.
    fn bind(&self, plan: LogicalPlan) -> Result<LogicalPlan>;

    /// Replaces the parameters in the plan of a part of a statement. Unlike [`BindParameters::bind`], allows values
    /// that the part does not use.
    ///
    /// # Errors
    /// If the plan has a parameter without a value.
    fn bind_part(&self, plan: LogicalPlan) -> Result<LogicalPlan>;
}

impl BindParameters for Parameters {
    fn bind(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        self.check(&plan.get_parameter_names()?.into_iter().collect())?;
        self.bind_part(plan)
    }

    fn bind_part(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if self.is_empty() {
            return Ok(plan);
        }
        let scalar = |value: &Value| ScalarAndMetadata::new(scalar_of(value), None);
        let values = match self {
            Self::Positional(values) => ParamValues::List(values.iter().map(scalar).collect()),
            Self::Named(values) => {
                ParamValues::Map(values.iter().map(|(name, value)| (name.clone(), scalar(value))).collect())
            }
        };
        Ok(plan.replace_params_with_values(&values)?)
    }
}

/// Converts a value to DataFusion's type.
pub(crate) fn scalar_of(value: &Value) -> ScalarValue {
    match value {
        Value::Null => ScalarValue::Null,
        Value::Boolean(value) => ScalarValue::Boolean(Some(*value)),
        Value::Integer(value) => ScalarValue::Int64(Some(*value)),
        Value::Decimal { unscaled, precision, scale } => ScalarValue::Decimal128(Some(*unscaled), *precision, *scale),
        Value::Double(value) => ScalarValue::Float64(Some(*value)),
        Value::Text(value) => ScalarValue::Utf8View(Some(value.clone())),
        Value::Bytes(value) => ScalarValue::BinaryView(Some(value.clone())),
        Value::Date(value) => ScalarValue::Date32(Some(*value)),
        Value::Timestamp(value) => ScalarValue::TimestampMicrosecond(Some(*value), None),
        Value::TimestampTz(value) => ScalarValue::TimestampMicrosecond(Some(*value), Some("+00:00".into())),
    }
}
