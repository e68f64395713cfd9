//! Operators on dates and intervals for which DataFusion would use other types than PostgreSQL.
//!
//! ```text
//!   date '2024-01-05' + interval '1 hour'    2024-01-05 01:00:00, a timestamp
//!   interval '1 day' * 1.5                   1 day 12:00:00
//!   interval '1 day' < '25 hours'            the string is cast to an interval
//! ```

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use taut_types::LogicalType;

use super::parts::extract;
use super::{interval, is_difference, is_temporal};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

static MULTIPLY: LazyLock<ScalarUDF> = LazyLock::new(|| Scale::udf(false));
static DIVIDE: LazyLock<ScalarUDF> = LazyLock::new(|| Scale::udf(true));

/// Planner of operators on dates and intervals, and of `EXTRACT`.
#[derive(Debug)]
pub struct DateOperators;

impl ExprPlanner for DateOperators {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(extract().call(args)))
    }

    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Ok(left_type), Ok(right_type)) = (raw.left.get_type(schema), raw.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(raw));
        };
        let is_known = |part: &DataType| is_temporal(part) || is_difference(part);
        if !is_known(&left_type) && !is_known(&right_type) {
            return Ok(PlannerResult::Original(raw));
        }
        let RawBinaryExpr { left, op, right } = raw;
        Ok(match (&op, &left_type, &right_type) {
            // A date plus an interval is a timestamp.
            (
                BinaryOperator::Plus | BinaryOperator::Minus,
                DataType::Date32,
                DataType::Interval(_) | DataType::Duration(_),
            ) => {
                let (left, right) = (cast(left, LogicalType::Timestamp.arrow()), right.cast_to(&INTERVAL, schema)?);
                PlannerResult::Original(RawBinaryExpr { left, op, right })
            }
            (BinaryOperator::Plus, DataType::Interval(_) | DataType::Duration(_), DataType::Date32) => {
                let (left, right) = (left.cast_to(&INTERVAL, schema)?, cast(right, LogicalType::Timestamp.arrow()));
                PlannerResult::Original(RawBinaryExpr { left, op, right })
            }
            // A difference of timestamps is days and hours, of which days have other lengths when clocks change.
            (BinaryOperator::Plus | BinaryOperator::Minus, DataType::Timestamp(_, Some(_)), DataType::Duration(_)) => {
                PlannerResult::Original(RawBinaryExpr { left, op, right: cast(right, INTERVAL) })
            }
            (BinaryOperator::Plus, DataType::Duration(_), DataType::Timestamp(_, Some(_))) => {
                PlannerResult::Original(RawBinaryExpr { left: cast(left, INTERVAL), op, right })
            }
            // Local times are instants in the time zone of the session.
            (
                BinaryOperator::Minus,
                DataType::Timestamp(_, Some(_)),
                DataType::Timestamp(_, None) | DataType::Date32,
            ) => PlannerResult::Original(RawBinaryExpr {
                left,
                op,
                right: cast(right, LogicalType::TimestampTz.arrow()),
            }),
            (
                BinaryOperator::Minus,
                DataType::Timestamp(_, None) | DataType::Date32,
                DataType::Timestamp(_, Some(_)),
            ) => {
                PlannerResult::Original(RawBinaryExpr { left: cast(left, LogicalType::TimestampTz.arrow()), op, right })
            }
            (BinaryOperator::Multiply, DataType::Interval(_), number) if number.is_numeric() => {
                PlannerResult::Planned(MULTIPLY.call(vec![left, cast(right, DataType::Float64)]))
            }
            (BinaryOperator::Multiply, number, DataType::Interval(_)) if number.is_numeric() => {
                PlannerResult::Planned(MULTIPLY.call(vec![right, cast(left, DataType::Float64)]))
            }
            (BinaryOperator::Divide, DataType::Interval(_), number) if number.is_numeric() => {
                PlannerResult::Planned(DIVIDE.call(vec![left, cast(right, DataType::Float64)]))
            }
            (BinaryOperator::Multiply, DataType::Duration(_), number) if number.is_numeric() => {
                PlannerResult::Planned(MULTIPLY.call(vec![cast(left, INTERVAL), cast(right, DataType::Float64)]))
            }
            (BinaryOperator::Multiply, number, DataType::Duration(_)) if number.is_numeric() => {
                PlannerResult::Planned(MULTIPLY.call(vec![cast(right, INTERVAL), cast(left, DataType::Float64)]))
            }
            (BinaryOperator::Divide, DataType::Duration(_), number) if number.is_numeric() => {
                PlannerResult::Planned(DIVIDE.call(vec![cast(left, INTERVAL), cast(right, DataType::Float64)]))
            }
            (operator, DataType::Interval(_) | DataType::Duration(_), _)
                if is_comparison(operator) && is_text_literal(&right) =>
            {
                PlannerResult::Original(RawBinaryExpr { left, op, right: cast(right, INTERVAL) })
            }
            (operator, _, DataType::Interval(_) | DataType::Duration(_))
                if is_comparison(operator) && is_text_literal(&left) =>
            {
                PlannerResult::Original(RawBinaryExpr { left: cast(left, INTERVAL), op, right })
            }
            _ => PlannerResult::Original(RawBinaryExpr { left, op, right }),
        })
    }
}

fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn is_text_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}

/// Function that multiplies an interval by a number, or divides it by a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scale {
    is_division: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Scale {
    fn name(&self) -> &'static str {
        if self.is_division { "divide_interval" } else { "multiply_interval" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), INTERVAL, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|operand| matches!(operand, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let (intervals, factors) = (args.args[0].to_array(rows)?, args.args[1].to_array(rows)?);
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let factors = factors.as_primitive::<Float64Type>();
        let products: IntervalMonthDayNanoArray =
            try_binary(intervals, factors, |interval, factor| self.scaled(interval, factor))?;
        let products: ArrayRef = Arc::new(products);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&products, 0)?),
            false => ColumnarValue::Array(products),
        })
    }
}

impl Scale {
    fn udf(is_division: bool) -> ScalarUDF {
        let signature = Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { is_division, signature })
    }

    fn scaled(&self, interval: IntervalMonthDayNano, number: f64) -> Result<IntervalMonthDayNano, ArrowError> {
        if self.is_division && number == 0.0 {
            return Err(ArrowError::DivideByZero);
        }
        let scaled = |part: f64| if self.is_division { part / number } else { part * number };
        interval::scale(interval, scaled)
            .ok_or_else(|| ArrowError::ArithmeticOverflow("interval out of range".to_owned()))
    }
}
