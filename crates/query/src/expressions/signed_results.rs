//! Counting functions with PostgreSQL's result types. DataFusion returns unsigned integers: a negative difference of
//! two row numbers would be an error, and a table created from a count would have a decimal column.
//!
//! ```text
//!   row_number, rank, dense_rank                                    bigint
//!   approx_distinct, regr_count                                     bigint
//!   ntile, array_length, array_ndims, array_position, cardinality   integer
//! ```
//!
//! `array_length` and `array_ndims` of an empty array are null instead of 0, but its `cardinality` is 0.
//!
//! The module casts calls of window functions and aggregates to these types, and replaces the other functions.
//! `ntile(NULL)` is null.

use std::sync::Arc;

use datafusion::arrow::array::Int32Array;
use datafusion::arrow::compute::kernels::cmp::eq;
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_nested::{cardinality, dimension, length, position};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr, RawWindowExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, cast, lit,
};

use super::aggregate_names::AggregateNames;
use super::frame_exclusion::{FrameExclusions, name_of_function};
use super::named_cast::named_cast;

/// Adds these functions and casts, `AggregateNames`, `FrameExclusions` and `named_cast` to a session state.
pub fn with_signed_results(mut state: SessionStateBuilder) -> SessionStateBuilder {
    let planners = state.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(AggregateNames));
    planners.insert(1, Arc::new(FrameExclusions));
    planners.push(Arc::new(SignedResults));
    let functions = [
        length::array_length_udf(),
        dimension::array_ndims_udf(),
        position::array_position_udf(),
        cardinality::cardinality_udf(),
    ];
    let functions = functions.map(|engine| Arc::new(ScalarUDF::new_from_impl(IntegerResult { engine })));
    let scalar = state.scalar_functions().get_or_insert_default();
    scalar.extend(functions);
    scalar.push(Arc::new(named_cast()));
    state
}

/// Planner that casts calls of window functions and aggregates.
#[derive(Debug)]
struct SignedResults;

impl ExprPlanner for SignedResults {
    fn plan_window(&self, raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let data_type = match name_of_function(&raw.func_def) {
            "row_number" | "rank" | "dense_rank" | "approx_distinct" | "regr_count" => DataType::Int64,
            "ntile" if raw.args.first().is_some_and(is_null) => {
                return Ok(PlannerResult::Planned(lit(ScalarValue::Int32(None))));
            }
            "ntile" => DataType::Int32,
            _ => return Ok(PlannerResult::Original(raw)),
        };
        let RawWindowExpr { func_def, args, partition_by, order_by, window_frame, filter, null_treatment, distinct } =
            raw;
        let params =
            WindowFunctionParams { args, partition_by, order_by, window_frame, filter, null_treatment, distinct };
        let call = Expr::WindowFunction(Box::new(WindowFunction { fun: func_def, params }));
        Ok(PlannerResult::Planned(cast(call, data_type)))
    }

    fn plan_aggregate(&self, raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        if !matches!(raw.func.name(), "approx_distinct" | "regr_count") {
            return Ok(PlannerResult::Original(raw));
        }
        let RawAggregateExpr { func, args, distinct, filter, order_by, null_treatment } = raw;
        let call = AggregateFunction::new_udf(func, args, distinct, filter, order_by, null_treatment);
        Ok(PlannerResult::Planned(cast(Expr::AggregateFunction(call), DataType::Int64)))
    }
}

/// Whether an expression is `NULL` or a cast of it.
fn is_null(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

/// A function of DataFusion whose result is cast to an integer. Except for `cardinality`, 0 becomes null.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerResult {
    engine: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for IntegerResult {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.engine.coerce_types(types)
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.engine.return_field_from_args(args)?;
        Ok(Arc::new(Field::new(field.name(), DataType::Int32, true)))
    }

    fn is_strict(&self) -> bool {
        self.engine.is_strict()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.return_field = self.engine.return_field_from_args(ReturnFieldArgs {
            arg_fields: &args.arg_fields,
            scalar_arguments: &vec![None; args.arg_fields.len()],
        })?;
        let number = self.engine.invoke_with_args(args)?.cast_to(&DataType::Int32, None)?;
        if self.name() == "cardinality" {
            return Ok(number);
        }
        Ok(match number {
            ColumnarValue::Array(numbers) => {
                ColumnarValue::Array(nullif(&numbers, &eq(&numbers, &Int32Array::new_scalar(0))?)?)
            }
            ColumnarValue::Scalar(ScalarValue::Int32(number)) => {
                ColumnarValue::Scalar(ScalarValue::Int32(number.filter(|number| *number != 0)))
            }
            scalar => scalar,
        })
    }
}
