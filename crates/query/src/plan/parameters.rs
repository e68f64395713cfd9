//! Binds parameter values in plans.

use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, IntervalMonthDayNano};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, lit};
use taut_sql::{Parameters, Value, type_name};

use crate::error::{QueryError, Result};

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
        let scalar = |value: &Value| Ok(ScalarAndMetadata::new(scalar_of(value)?, None));
        let values = match self {
            Self::Positional(values) => ParamValues::List(values.iter().map(scalar).collect::<Result<_>>()?),
            Self::Named(values) => {
                let named = values.iter().map(|(name, value)| Ok((name.clone(), scalar(value)?)));
                ParamValues::Map(named.collect::<Result<_>>()?)
            }
        };
        let plan = plan.replace_params_with_values(&values)?;
        let arrays = |value: &Value| matches!(value, Value::Array(_));
        let has_arrays = match self {
            Self::Positional(values) => values.iter().any(arrays),
            Self::Named(values) => values.values().any(arrays),
        };
        if has_arrays { with_lists(plan) } else { Ok(plan) }
    }
}

/// Replaces `x = ANY(array)` by `x IN (values)` for arrays that are constants. The planner finds a common type for the
/// values of a list, but not for an array of another type than `x`.
fn with_lists(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let replaced = expression.transform_up(|part| match list_of(&part) {
                Some((x, values)) => Ok(Transformed::yes(x.in_list(values, false))),
                None => Ok(Transformed::no(part)),
            })?;
            Ok(replaced.update_data(|expression| name.restore(expression)))
        })
    })?;
    Ok(plan.data)
}

/// Returns the searched value and the values of the array if an expression searches a constant array. `None` for other
/// expressions and for empty arrays.
fn list_of(expression: &Expr) -> Option<(Expr, Vec<Expr>)> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let [array, x] = call.args.as_slice() else { return None };
    let array = match array {
        Expr::Literal(array, _) => array.clone(),
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Literal(array, _) => array.cast_to(cast.field.data_type()).ok()?,
            _ => return None,
        },
        _ => return None,
    };
    let ScalarValue::List(array) = array else { return None };
    if call.name() != "array_has" || array.is_null(0) || array.value(0).is_empty() {
        return None;
    }
    let values = array.value(0);
    let literals = (0..values.len()).map(|index| Some(lit(ScalarValue::try_from_array(&values, index).ok()?)));
    Some((x.clone(), literals.collect::<Option<_>>()?))
}

/// Converts a value to DataFusion's type.
///
/// # Errors
/// If the values of an array have no common type.
pub(crate) fn scalar_of(value: &Value) -> Result<ScalarValue> {
    Ok(match value {
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
        Value::Time(value) => ScalarValue::Time64Nanosecond(Some(*value * 1_000)),
        Value::Interval { months, days, nanoseconds } => {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(*months, *days, *nanoseconds)))
        }
        Value::Array(values) => array_of(values)?,
    })
}

/// Converts an array. Its values are converted to their common type.
fn array_of(values: &[Value]) -> Result<ScalarValue> {
    let scalars = values.iter().map(scalar_of).collect::<Result<Vec<_>>>()?;
    let mut common = DataType::Null;
    for scalar in &scalars {
        let found = scalar.data_type();
        common = match common_type(&common, &found) {
            Some(common) => common,
            None => {
                let (first, second) = (type_name(&common), type_name(&found));
                return Err(QueryError::ArrayTypes { first, second });
            }
        };
    }
    let scalars = scalars.iter().map(|scalar| scalar.cast_to(&common)).collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&scalars, &common)))
}

/// Returns the type that values of two types have in one array, or `None` if there is none.
fn common_type(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Float64, Int64, List, Null};
    /// Digits of a bigint.
    const DIGITS: u8 = 19;
    Some(match (left, right) {
        (same, other) if same == other => same.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Int64 | Decimal128(..), Float64) | (Float64, Int64 | Decimal128(..)) => Float64,
        (Int64, Decimal128(precision, scale)) | (Decimal128(precision, scale), Int64) => {
            common_type(&Decimal128(DIGITS, 0), &Decimal128(*precision, *scale))?
        }
        (Decimal128(left, left_scale), Decimal128(right, right_scale)) => {
            let scale = *left_scale.max(right_scale);
            let whole = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
            let digits = whole(*left, *left_scale).max(whole(*right, *right_scale)) + i16::from(scale);
            Decimal128(u8::try_from(digits).ok()?.min(DECIMAL128_MAX_PRECISION), scale)
        }
        (List(left), List(right)) => {
            let item = common_type(left.data_type(), right.data_type())?;
            List(Field::new_list_field(item, true).into())
        }
        _ => return None,
    })
}
