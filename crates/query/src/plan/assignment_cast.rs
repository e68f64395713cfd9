//! Assignment casts: functions that cast numbers to integer columns and refuse numbers with a fraction.
//!
//! A cast in SQL rounds `2.9` to `3`. A value that a statement assigns to a column is cast implicitly, and must not
//! change. Therefore these implicit casts become calls of functions that refuse fractions.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{Alias, ScalarFunction};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Cast, ColumnarValue, DmlStatement, Expr, ExprSchemable, LogicalPlan, Projection, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Values, Volatility, cast,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{self, SetExpr, Statement as Ast};
use taut_sql::assignment_function;
use taut_types::LogicalType;

use crate::write::coerce::exact_cast;

/// Whether a function call is an assignment cast.
pub fn is_assignment(call: &ScalarFunction) -> bool {
    call.func.inner().downcast_ref::<AssignmentCast>().is_some()
}

/// Registers the assignment functions.
pub fn register(context: &SessionContext) {
    for logical in [LogicalType::SmallInt, LogicalType::Integer, LogicalType::BigInt] {
        if let Some(assign) = AssignmentCast::try_new(&logical.arrow()) {
            context.register_udf(ScalarUDF::new_from_impl(assign));
        }
    }
}

/// A function that casts numbers to integers and refuses numbers with a fraction.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AssignmentCast {
    target: DataType,
    name: &'static str,
    signature: Signature,
}

impl AssignmentCast {
    fn try_new(target: &DataType) -> Option<Self> {
        let name = assignment_function(LogicalType::from_arrow(target)?)?;
        Some(Self { target: target.clone(), name, signature: Signature::any(1, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for AssignmentCast {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.target.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name, self.target.clone(), nullable)))
    }

    /// Replaces the call by a cast if the argument's type has no fraction, and by the argument itself if the type is
    /// the same.
    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let types = args.iter().map(|value| info.get_data_type(value)).collect::<Result<Vec<_>>>()?;
        match types.as_slice() {
            [from] if from.is_floating() || from.is_decimal() => Ok(ExprSimplifyResult::Original(args)),
            [from] if *from == self.target => Ok(ExprSimplifyResult::Simplified(args.swap_remove(0))),
            [_] => Ok(ExprSimplifyResult::Simplified(cast(args.swap_remove(0), self.target.clone()))),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return datafusion::common::internal_err!("{} takes one value", self.name);
        };
        if value.data_type() == self.target {
            return Ok(value.clone());
        }
        Ok(match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(exact_cast(array, &self.target)?),
            ColumnarValue::Scalar(scalar) => {
                let array: ArrayRef = exact_cast(&scalar.to_array()?, &self.target)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
            }
        })
    }
}

/// Replaces implicit casts to integers in the plan of an `INSERT` by assignment functions. Keeps the explicit casts in
/// its `VALUES`.
///
/// # Errors
/// If the new plan is invalid.
pub fn with_assignment_casts(plan: LogicalPlan, statement: &PlannerStatement) -> Result<LogicalPlan> {
    let LogicalPlan::Dml(DmlStatement { input, .. }) = &plan else { return Ok(plan) };
    let input = match input.as_ref() {
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            LogicalPlan::Values(values) => {
                let rows = Arc::new(LogicalPlan::Values(rows_with_assignments(values.clone(), statement)?));
                LogicalPlan::Projection(Projection::try_new(projection.expr.clone(), rows)?)
            }
            _ => LogicalPlan::Projection(with_assignments(projection)?),
        },
        LogicalPlan::Values(values) => LogicalPlan::Values(rows_with_assignments(values.clone(), statement)?),
        _ => return Ok(plan),
    };
    plan.with_new_exprs(Vec::new(), vec![input])
}

fn with_assignments(projection: &Projection) -> Result<Projection> {
    let schema = projection.input.schema();
    let of_column = |expression: &Expr| match expression {
        Expr::Alias(Alias { expr, name, .. }) => Ok(to_assignment(expr.as_ref().clone(), schema)?.alias(name)),
        other => to_assignment(other.clone(), schema),
    };
    Projection::try_new(projection.expr.iter().map(of_column).collect::<Result<_>>()?, Arc::clone(&projection.input))
}

fn rows_with_assignments(values: Values, statement: &PlannerStatement) -> Result<Values> {
    let written = listed_rows(statement);
    let is_cast = |row: usize, index: usize| {
        let value = written.and_then(|rows| rows.get(row)?.content.get(index));
        matches!(value, Some(ast::Expr::Cast { data_type, .. }) if is_integer(data_type))
    };
    let Values { schema, values } = values;
    let row = |(row, values): (usize, Vec<Expr>)| {
        let value = |(index, value): (usize, Expr)| match is_cast(row, index) {
            true => Ok(value),
            false => to_assignment(value, &schema),
        };
        values.into_iter().enumerate().map(value).collect::<Result<Vec<_>>>()
    };
    let values = values.into_iter().enumerate().map(row).collect::<Result<_>>()?;
    Ok(Values { schema, values })
}

fn is_integer(data_type: &ast::DataType) -> bool {
    use ast::DataType::{BigInt, Int, Int2, Int4, Int8, Integer, SmallInt};
    matches!(data_type, SmallInt(_) | Int2(_) | Int(_) | Integer(_) | Int4(_) | BigInt(_) | Int8(_))
}

fn listed_rows(statement: &PlannerStatement) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
    let PlannerStatement::Statement(statement) = statement else { return None };
    let Ast::Insert(insert) = statement.as_ref() else { return None };
    match insert.source.as_ref()?.body.as_ref() {
        SetExpr::Values(values) => Some(&values.rows),
        _ => None,
    }
}

/// Replaces a cast of a fractional number to an integer by a call of the assignment function.
fn to_assignment(value: Expr, schema: &datafusion::common::DFSchema) -> Result<Expr> {
    let Expr::Cast(Cast { expr, field }) = &value else { return Ok(value) };
    let from = expr.get_type(schema)?;
    let Some(assign) = AssignmentCast::try_new(field.data_type()).filter(|_| from.is_floating() || from.is_decimal())
    else {
        return Ok(value);
    };
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(assign)), vec![expr.as_ref().clone()]);
    Ok(Expr::ScalarFunction(call))
}
