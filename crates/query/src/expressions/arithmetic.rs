//! Arithmetic of integers and decimals as PostgreSQL defines it: overflow is an error, quotients and averages have
//! enough digits, sums are exact, and casts to integers round.
//!
//! The engine's own operators wrap integers, return decimals of more than 38 digits, and cut the fraction in a cast.
//! Therefore, after type coercion, a rule replaces them by functions that have the same types and column names:
//!
//! ```text
//!   a + b * 2        add(a, multiply(b, 2))
//!   - a              negate(a)
//!   2.5::int         round_to_integer(2.5)
//! ```
//!
//! The rule runs before constants are folded, so they are checked as well. A constant that overflows is not folded: it
//! is an error only if a row evaluates it. Floating-point numbers, dates and intervals keep the engine's operators, but
//! intervals are compared by their lengths.
//!
//! Quotients and averages of decimals have another type than in the engine, so they are planned at once.

mod average;
mod division;
mod integer_cast;
mod kernels;
mod sum;

pub use kernels::overflow;

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::interval_arithmetic::{Interval, apply_operator};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::ScalarFunctionExpr;

use super::intervals::{interval_length, is_interval};
use super::operand_types::is_comparison;

/// Adds the division of decimals, and exact sums and averages, to a state.
pub fn with_exact_functions(mut state: SessionStateBuilder) -> SessionStateBuilder {
    state.expr_planners().get_or_insert_default().push(Arc::new(division::DecimalDivision));
    let functions = [average::average(), sum::sum()].map(Arc::new);
    state.aggregate_functions().get_or_insert_default().extend(functions);
    state
}

/// Rule that replaces operators by checked functions. It runs after type coercion.
#[derive(Debug, Default)]
pub struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &str {
        "taut_checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let schema = match &node {
                // Filters of a scan may use columns that it does not return.
                LogicalPlan::TableScan(scan) => {
                    DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?
                }
                node => merge_schema(&node.inputs()),
            };
            let names = NamePreserver::new(&node);
            let is_sort = matches!(node, LogicalPlan::Sort(_));
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let checked = with_checked_arithmetic(expression, &schema)?;
                if is_sort && is_interval(&checked.data.get_type(&schema)?) {
                    return Ok(Transformed::yes(interval_length(checked.data)));
                }
                Ok(checked.update_data(|checked| name.restore(checked)))
            })
        })?;
        Ok(changed.data)
    }
}

/// Replaces the operators and casts of integers and decimals in an expression by functions. The operands of each
/// operator must already have been coerced to its types.
///
/// # Errors
/// If a column does not exist.
pub fn with_checked_arithmetic(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expression.transform_up(|part| {
        let replaced = match &part {
            Expr::BinaryExpr(operation) if is_comparison(operation.op) => interval_comparison(operation, schema)?,
            Expr::BinaryExpr(operation) => checked_operation(operation, schema)?,
            Expr::Between(Between { expr, negated, low, high }) if is_interval(&expr.get_type(schema)?) => {
                let [expr, low, high] = [expr, low, high].map(|part| Box::new(interval_length(part.as_ref().clone())));
                Some(Expr::Between(Between { expr, negated: *negated, low, high }))
            }
            Expr::InList(InList { expr, list, negated }) if is_interval(&expr.get_type(schema)?) => {
                let list = list.iter().cloned().map(interval_length).collect();
                let expr = Box::new(interval_length(expr.as_ref().clone()));
                Some(Expr::InList(InList { expr, list, negated: *negated }))
            }
            Expr::Negative(operand) if is_checked(&operand.get_type(schema)?) => {
                Some(NEGATE.call(vec![operand.as_ref().clone()]))
            }
            Expr::Cast(Cast { expr, field }) => {
                integer_cast::integer_cast(expr, &expr.get_type(schema)?, field.data_type(), false)
            }
            Expr::TryCast(TryCast { expr, field }) => {
                integer_cast::integer_cast(expr, &expr.get_type(schema)?, field.data_type(), true)
            }
            // The cast of a default.
            Expr::ScalarFunction(call) if call.func.name() == "arrow_cast" => {
                let operand = &call.args[0];
                integer_cast::integer_cast(operand, &operand.get_type(schema)?, &part.get_type(schema)?, false)
            }
            _ => None,
        };
        Ok(replaced.map_or_else(|| Transformed::no(part), Transformed::yes))
    })
}

/// A comparison of intervals as one of their lengths.
fn interval_comparison(comparison: &BinaryExpr, schema: &DFSchema) -> Result<Option<Expr>> {
    let BinaryExpr { left, op, right } = comparison;
    let are_intervals = is_interval(&left.get_type(schema)?) && is_interval(&right.get_type(schema)?);
    let length = |interval: &Expr| Box::new(interval_length(interval.clone()));
    Ok(are_intervals.then(|| Expr::BinaryExpr(BinaryExpr::new(length(left), *op, length(right)))))
}

fn checked_operation(operation: &BinaryExpr, schema: &DFSchema) -> Result<Option<Expr>> {
    let BinaryExpr { left, op, right } = operation;
    let function = match op {
        Operator::Plus => &*ADD,
        Operator::Minus => &*SUBTRACT,
        Operator::Multiply => &*MULTIPLY,
        // The type of a parameter may not have been known when the division was planned. The quotient then keeps the
        // type that was planned.
        Operator::Divide => {
            let Some(quotient) = division::division(left, right, schema)? else { return Ok(None) };
            let (left, right) = (left.get_type(schema)?, right.get_type(schema)?);
            return Ok(Some(cast(quotient, BinaryTypeCoercer::new(&left, op, &right).get_result_type()?)));
        }
        _ => return Ok(None),
    };
    let is_checked = is_checked(&left.get_type(schema)?) && is_checked(&right.get_type(schema)?);
    Ok(is_checked.then(|| function.call(vec![left.as_ref().clone(), right.as_ref().clone()])))
}

fn is_checked(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

static ADD: LazyLock<ScalarUDF> = LazyLock::new(|| BinaryFunction::udf(Operation::Add));
static SUBTRACT: LazyLock<ScalarUDF> = LazyLock::new(|| BinaryFunction::udf(Operation::Subtract));
static MULTIPLY: LazyLock<ScalarUDF> = LazyLock::new(|| BinaryFunction::udf(Operation::Multiply));
static NEGATE: LazyLock<ScalarUDF> = LazyLock::new(Negate::udf);

/// Operation of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
}

impl Operation {
    /// Operation of a function call. `None` if the function is not one of the checked functions of two numbers.
    pub fn of_call(call: &ScalarFunctionExpr) -> Option<Self> {
        call.fun().inner().downcast_ref::<BinaryFunction>().map(|function| function.operation)
    }

    fn operator(self) -> Operator {
        match self {
            Self::Add => Operator::Plus,
            Self::Subtract => Operator::Minus,
            Self::Multiply => Operator::Multiply,
        }
    }
}

/// A checked function of two numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BinaryFunction {
    operation: Operation,
    signature: Signature,
}

impl BinaryFunction {
    fn udf(operation: Operation) -> ScalarUDF {
        ScalarUDF::new_from_impl(Self { operation, signature: Signature::any(2, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for BinaryFunction {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "add",
            Operation::Subtract => "subtract",
            Operation::Multiply => "multiply",
        }
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        let [left, right] = pair(self, operands)?;
        Ok(format!("{} {} {}", left.schema_name(), self.operation.operator(), right.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = pair(self, types)?;
        BinaryTypeCoercer::new(left, &self.operation.operator(), right).get_result_type()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [left, right] = pair(self, args.arg_fields)?;
        let data_type = self.return_type(&[left.data_type().clone(), right.data_type().clone()])?;
        Ok(Arc::new(Field::new(self.name(), data_type, left.is_nullable() || right.is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = pair(self, &args.args)?;
        kernels::combine(self.operation, left, right, args.number_rows)
    }

    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let [left, right] = pair(self, operands)?;
        apply_operator(&self.operation.operator(), left, right)
    }

    /// Sums and differences are ordered like their operands, because they do not wrap.
    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        let [left, right] = pair(self, operands)?;
        Ok(match self.operation {
            Operation::Add => left.sort_properties.add(&right.sort_properties),
            Operation::Subtract => left.sort_properties.sub(&right.sort_properties),
            Operation::Multiply => SortProperties::Unordered,
        })
    }
}

fn pair<'a, T>(function: &BinaryFunction, operands: &'a [T]) -> Result<&'a [T; 2]> {
    match operands.try_into() {
        Ok(pair) => Ok(pair),
        Err(_) => internal_err!("{} of {} operands", function.name(), operands.len()),
    }
}

/// The checked negation.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Negate {
    signature: Signature,
}

impl Negate {
    fn udf() -> ScalarUDF {
        ScalarUDF::new_from_impl(Self { signature: Signature::any(1, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for Negate {
    fn name(&self) -> &'static str {
        "negate"
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        Ok(format!("(- {})", operands[0].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let operand = &args.arg_fields[0];
        Ok(Arc::new(Field::new(self.name(), operand.data_type().clone(), operand.is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        kernels::negate(&args.args[0])
    }

    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        operands[0].arithmetic_negate()
    }

    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        Ok(-operands[0].sort_properties)
    }
}
