//! Arithmetic as PostgreSQL defines it. Overflow is an error, for floating-point numbers too. Quotients and averages of
//! decimals have enough digits, sums are exact, and casts to integers round.
//!
//! The engine's own operators wrap integers, return infinity and decimals of more than 38 digits, and truncate
//! fractions in casts. Therefore, after type coercion, a rule replaces them by functions that have the same types and
//! column names:
//!
//! ```text
//!   a + b * 2        add(a, multiply(b, 2))
//!   - a              negate(a)
//!   2.5::int         cast_to_integer(2.5)
//! ```
//!
//! The rule runs before constants are folded, so arithmetic on constants is checked as well. A constant expression that
//! overflows is not folded: it is an error only if it is evaluated for a row. Dates and intervals keep DataFusion's
//! operators, but intervals are compared by their lengths.
//!
//! Quotients of decimals have other types than in DataFusion, and type coercion must see these types. Therefore
//! `DecimalOperators` plans them as function calls before type coercion.

mod average;
mod division;
mod extrema;
mod finite;
mod interval_average;
mod kernels;
mod program;
mod rounding;
mod sliding;
mod sum;

pub use extrema::{maximum, minimum};
pub(super) use kernels::float_error;
pub use kernels::overflow;
pub(super) use sliding::{SlidingAccumulator, sliding};

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::{
    AggregateFunctionParams, Between, Case, InList, ScalarFunction, WindowFunctionParams,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::interval_arithmetic::{Interval, apply_operator};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility, cast, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::ScalarFunctionExpr;

use self::division::PRECISION;
use self::kernels::has_rounded_product;
use self::program::Program;
use self::rounding::Rounding;
use super::bytes::is_bytes;
use super::casts::CheckedCast;
use super::intervals::{
    check_aggregate, extreme_interval, interval_length, is_interval, is_nested_interval, is_ordered_by_length,
    with_lengths,
};
use super::operand_types::is_comparison;
use super::zeros::unsigned_zero;

/// Adds to a session state: division and rounding of decimals, exact sums and averages, `min`, `max`, and aggregates
/// over sliding frames.
pub fn with_exact_functions(mut state: SessionStateBuilder) -> SessionStateBuilder {
    state.expr_planners().get_or_insert_default().push(Arc::new(division::DecimalOperators));
    let sums = [average::average(), sum::sum()].map(sliding::sliding);
    let functions = sums.into_iter().chain(extrema::extrema()).chain(sliding::sliding_functions()).map(Arc::new);
    state.aggregate_functions().get_or_insert_default().extend(functions);
    state.scalar_functions().get_or_insert_default().extend(rounding::functions().map(Arc::new));
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
            let schema = input_schema(&node)?;
            let names = NamePreserver::new(&node);
            let is_sort = matches!(node, LogicalPlan::Sort(_));
            // The expressions of filters, joins and scans do not name output columns. Those of other nodes do.
            let keeps_names =
                !matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_));
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let checked = checked_expression(expression, &schema, keeps_names)?;
                if is_sort && is_ordered_by_length(&checked.get_type(&schema)?) {
                    return Ok(Transformed::yes(interval_length(checked, keeps_names)));
                }
                Ok(Transformed::yes(name.restore(checked)))
            })
        })?;
        Ok(changed.data)
    }
}

/// Schema of the columns that the expressions of a node may use.
pub(super) fn input_schema(node: &LogicalPlan) -> Result<DFSchema> {
    match node {
        // Filters of a scan may use columns that it does not return.
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
        }
        node => Ok(merge_schema(&node.inputs())),
    }
}

/// Replaces the operators and casts of numbers in an expression by functions. The operands of each
/// operator must already have been coerced to its types.
///
/// # Errors
/// If a column does not exist.
pub fn with_checked_arithmetic(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    checked_expression(expression, schema, true)
}

fn checked_expression(expression: Expr, schema: &DFSchema, keeps_names: bool) -> Result<Expr> {
    // Most expressions are columns and literals.
    match expression {
        Expr::Column(_) | Expr::Literal(..) => Ok(expression),
        expression => Rewriter { schema, keeps_names }.rewrite(expression),
    }
}

/// Compares the lengths of the intervals in a call of `greatest`, `least` or `nullif`.
fn compared_intervals(call: ScalarFunction) -> Result<Expr> {
    Ok(match (call.func.name(), call.args.as_slice()) {
        ("nullif", [value, other]) => {
            let are_equal = interval_length(value.clone(), true).eq(interval_length(other.clone(), true));
            when(are_equal.is_not_true(), value.clone()).end()?
        }
        (name, _) => extreme_interval(name == "greatest").call(call.args),
    })
}

/// Whether an `IN` list has an item that is computed from columns, and a left operand that is not volatile.
fn has_computed_items(list: &InList) -> bool {
    let is_computed = |item: &Expr| !matches!(item, Expr::Column(_)) && !item.column_refs().is_empty();
    list.list.iter().any(is_computed) && !list.expr.is_volatile()
}

/// Splits an `IN` list: constants stay in a list, and each item with columns becomes an equality. The engine would
/// treat a `CASE` over columns as a constant, because the `CASE` returns a scalar when it is evaluated without rows.
fn split_in_list(list: InList) -> Expr {
    let InList { expr, list, negated } = list;
    let (computed, constants): (Vec<Expr>, Vec<Expr>) =
        list.into_iter().partition(|item| !item.column_refs().is_empty());
    let constants =
        (!constants.is_empty()).then(|| Expr::InList(InList { expr: expr.clone(), list: constants, negated: false }));
    let compared = computed.into_iter().map(|item| expr.as_ref().clone().eq(item));
    match compared.chain(constants).reduce(Expr::or) {
        Some(found) if negated => Expr::Not(Box::new(found)),
        Some(found) => found,
        None => Expr::InList(InList { expr, list: Vec::new(), negated }),
    }
}

/// Nesting depth at which checked functions are merged into one [`Program`].
const LEVELS_MAX: usize = 32;

struct Rewriter<'a> {
    schema: &'a DFSchema,
    /// Whether a function has the column name of the expression that it replaces.
    keeps_names: bool,
}

/// An expression with its type, so that types are inferred once.
struct Typed {
    expression: Expr,
    data_type: DataType,
    /// Number of nested checked functions.
    levels: usize,
}

impl Rewriter<'_> {
    fn rewrite(&self, expression: Expr) -> Result<Expr> {
        if is_arithmetic(&expression) {
            return Ok(self.arithmetic(expression)?.expression);
        }
        let part = expression.map_children(|child| Ok(Transformed::yes(self.rewrite(child)?)))?.data;
        let is_interval = |part: &Expr| Ok::<_, DataFusionError>(is_ordered_by_length(&part.get_type(self.schema)?));
        let length = |part: Box<Expr>| Box::new(interval_length(*part, self.keeps_names));
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if is_comparison(op) && is_interval(&left)? && is_interval(&right)? =>
            {
                Expr::BinaryExpr(BinaryExpr::new(length(left), op, length(right)))
            }
            // The type of a parameter may not have been known when the division was planned. The quotient is then cast
            // to the type that was planned.
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }) => {
                let types = (left.get_type(self.schema)?, right.get_type(self.schema)?);
                match division::division(&left, &right, self.schema)? {
                    Some(quotient) => {
                        let planned = BinaryTypeCoercer::new(&types.0, &Operator::Divide, &types.1).get_result_type();
                        cast(quotient, planned?)
                    }
                    None => Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }),
                }
            }
            Expr::Between(Between { expr, negated, low, high }) if is_interval(&expr)? => {
                Expr::Between(Between { expr: length(expr), negated, low: length(low), high: length(high) })
            }
            Expr::InList(InList { expr, list, negated }) if is_interval(&expr)? => {
                let list = list.into_iter().map(|value| interval_length(value, self.keeps_names)).collect();
                let list = InList { expr: length(expr), list, negated };
                if has_computed_items(&list) { split_in_list(list) } else { Expr::InList(list) }
            }
            Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr }) if is_interval(&operand)? => {
                let when_then = when_then_expr.into_iter().map(|(when, then)| (length(when), then)).collect();
                Expr::Case(Case { expr: Some(length(operand)), when_then_expr: when_then, else_expr })
            }
            Expr::ScalarFunction(call) if self.compares_intervals(&call)? => compared_intervals(call)?,
            Expr::ScalarFunction(call) if self.has_nested_intervals(&call.args)? => {
                with_lengths(call, self.schema, self.keeps_names)?
            }
            Expr::InList(list) if has_computed_items(&list) => split_in_list(list),
            Expr::Cast(Cast { expr, field }) => {
                let from = expr.get_type(self.schema)?;
                match CheckedCast::udf(&from, field.data_type(), false, self.keeps_names) {
                    Some(function) => function.call(vec![*expr]),
                    None => Expr::Cast(Cast { expr, field }),
                }
            }
            Expr::TryCast(TryCast { expr, field }) => {
                let from = expr.get_type(self.schema)?;
                match CheckedCast::udf(&from, field.data_type(), true, self.keeps_names) {
                    Some(function) => function.call(vec![*expr]),
                    None => Expr::TryCast(TryCast { expr, field }),
                }
            }
            // Defaults and `convert_from` are cast by `arrow_cast`.
            Expr::ScalarFunction(mut call) if call.func.name() == "arrow_cast" => {
                let target = Expr::ScalarFunction(call.clone()).get_type(self.schema)?;
                let from = call.args[0].get_type(self.schema)?;
                let of_bytes = || CheckedCast::of_bytes(&from, &target).filter(|_| is_bytes(&target));
                match CheckedCast::udf(&from, &target, false, self.keeps_names).or_else(of_bytes) {
                    Some(function) => function.call(vec![call.args.swap_remove(0)]),
                    None => Expr::ScalarFunction(call),
                }
            }
            Expr::ScalarFunction(call) => Rounding::with_fixed_type(call, self.schema)?,
            Expr::WindowFunction(mut window) => {
                let WindowFunctionParams { args, distinct, partition_by, order_by, .. } = &mut window.params;
                let keys = order_by.iter_mut().map(|sort| &mut sort.expr).chain(partition_by);
                let distinct = args.iter_mut().filter(|_| *distinct);
                keys.chain(distinct).try_for_each(|value| self.compare_by_value(value))?;
                Expr::WindowFunction(window)
            }
            Expr::AggregateFunction(mut call) => {
                let AggregateFunctionParams { args, distinct, order_by, .. } = &mut call.params;
                if *distinct && call.func.name() == "count" {
                    args.iter_mut().try_for_each(|argument| self.compare_by_value(argument))?;
                } else {
                    check_aggregate(call.func.name(), args, *distinct, self.schema)?;
                }
                for key in order_by.iter_mut().map(|sort| &mut sort.expr) {
                    if is_interval(key)? {
                        *key = interval_length(std::mem::take(key), true);
                    }
                }
                Expr::AggregateFunction(call)
            }
            other => other,
        })
    }

    /// Whether a call is one of the functions that compare their arguments, with intervals as arguments.
    fn compares_intervals(&self, call: &ScalarFunction) -> Result<bool> {
        let compares = ["greatest", "least", "nullif"].contains(&call.func.name());
        Ok(compares && is_interval(&call.args[0].get_type(self.schema)?))
    }

    /// Whether one of these expressions is an array or row with intervals.
    fn has_nested_intervals(&self, expressions: &[Expr]) -> Result<bool> {
        expressions.iter().try_fold(false, |has, part| Ok(has || is_nested_interval(&part.get_type(self.schema)?)))
    }

    /// Replaces an expression by one whose equal values have the same bits.
    fn compare_by_value(&self, expression: &mut Expr) -> Result<()> {
        let value = match expression.get_type(self.schema)? {
            data_type if data_type.is_floating() => unsigned_zero,
            data_type if is_ordered_by_length(&data_type) => |interval| interval_length(interval, true),
            _ => return Ok(()),
        };
        *expression = value(std::mem::take(expression));
        Ok(())
    }

    /// Rewrites nested operators. Types are found on the way up, and deep nesting becomes one function, because the
    /// engine infers the type and builds the name of each function from all functions inside it.
    fn arithmetic(&self, expression: Expr) -> Result<Typed> {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op: operator, right })
                if let Some(operation) = Operation::of(operator) =>
            {
                let (left, right) = (self.arithmetic(*left)?, self.arithmetic(*right)?);
                let data_type = operation.result_type(&left.data_type, &right.data_type)?;
                let are_exact = is_checked(&left.data_type) && is_checked(&right.data_type);
                if are_exact || division::are_floats(&left.data_type, &right.data_type) {
                    let call = operation.function().call(vec![left.expression, right.expression]);
                    return Ok(Typed::limited(call, data_type, 1 + left.levels.max(right.levels)));
                }
                let (left, right) = (Box::new(left.expression), Box::new(right.expression));
                let expression = Expr::BinaryExpr(BinaryExpr::new(left, operator, right));
                Ok(Typed { expression, data_type, levels: 0 })
            }
            Expr::Negative(operand) => {
                let Typed { expression, data_type, levels } = self.arithmetic(*operand)?;
                Ok(match is_checked(&data_type) {
                    true => Typed::limited(NEGATE.call(vec![expression]), data_type, levels + 1),
                    false => Typed { expression: Expr::Negative(Box::new(expression)), data_type, levels: 0 },
                })
            }
            // A cast to the type of its operand is dropped.
            Expr::Cast(Cast { expr, field }) if is_arithmetic(&expr) => {
                let operand = self.arithmetic(*expr)?;
                if operand.data_type == *field.data_type() {
                    return Ok(operand);
                }
                let data_type = field.data_type().clone();
                let expression = match CheckedCast::udf(&operand.data_type, field.data_type(), false, self.keeps_names)
                {
                    Some(function) => function.call(vec![operand.expression]),
                    None => Expr::Cast(Cast { expr: Box::new(operand.expression), field }),
                };
                Ok(Typed { expression, data_type, levels: 0 })
            }
            other => {
                let expression = self.rewrite(other)?;
                let data_type = expression.get_type(self.schema)?;
                Ok(Typed { expression, data_type, levels: 0 })
            }
        }
    }
}

impl Typed {
    /// A checked function with `levels` nested functions. They become one function if there are too many.
    fn limited(expression: Expr, data_type: DataType, levels: usize) -> Self {
        match levels < LEVELS_MAX {
            true => Self { expression, data_type, levels },
            false => Self { expression: Program::of(expression), data_type, levels: 0 },
        }
    }
}

/// Whether an expression is an operator that may be checked, or a cast of one.
fn is_arithmetic(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryExpr(operation) => Operation::of(operation.op).is_some(),
        Expr::Negative(_) => true,
        Expr::Cast(Cast { expr, .. }) => is_arithmetic(expr),
        _ => false,
    }
}

/// Whether a function fails if its result is out of range.
pub(super) fn is_checked_function(function: &ScalarUDF) -> bool {
    let function = function.inner().as_ref();
    function.is::<BinaryFunction>()
        || function.is::<Negate>()
        || function.is::<Program>()
        || function.is::<CheckedCast>()
        || division::is_division(function)
}

fn is_checked(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

static ADD: LazyLock<ScalarUDF> = LazyLock::new(|| BinaryFunction::udf(Operation::Add));
static SUBTRACT: LazyLock<ScalarUDF> = LazyLock::new(|| BinaryFunction::udf(Operation::Subtract));
static MULTIPLY: LazyLock<ScalarUDF> = LazyLock::new(|| BinaryFunction::udf(Operation::Multiply));
static NEGATE: LazyLock<ScalarUDF> = LazyLock::new(Negate::udf);

/// Checked operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
}

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            _ => None,
        }
    }

    fn function(self) -> &'static ScalarUDF {
        match self {
            Self::Add => &ADD,
            Self::Subtract => &SUBTRACT,
            Self::Multiply => &MULTIPLY,
        }
    }

    /// Type of the result. If the scales of two decimals add up to more than 38, their product has the greater scale.
    fn result_type(self, left: &DataType, right: &DataType) -> Result<DataType> {
        match (self, left, right) {
            (Self::Multiply, DataType::Decimal128(_, left), DataType::Decimal128(_, right))
                if has_rounded_product(*left, *right) =>
            {
                Ok(DataType::Decimal128(PRECISION, *left.max(right)))
            }
            _ => BinaryTypeCoercer::new(left, &self.operator(), right).get_result_type(),
        }
    }

    /// Operation of a function call. Returns `None` if the function is not a checked function of two numbers.
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
        self.operation.result_type(left, right)
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
