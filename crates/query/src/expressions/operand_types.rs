//! Conversion of operands to the types that PostgreSQL uses, if DataFusion would use other types.
//!
//! A decimal that is compared or combined with a double precision number is cast to double precision. This applies to
//! operands of an operator, branches of `CASE`, arguments of `coalesce` and similar functions, columns of a `UNION`,
//! and keys of a join. DataFusion would convert both numbers to decimals of 30 digits. Very large numbers overflow
//! these decimals, and very small ones lose their digits.
//!
//! Values of different kinds are not compared: `date > 5` is an error. DataFusion would cast one value to the type of
//! the other, and compare integers or strings. A string literal is cast to the type of the other operand.
//!
//! `SIMILAR TO` becomes a comparison with a regular expression.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Join, LogicalPlan, Operator, Projection, Subquery, Union, cast, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::bytes::is_bytes;
use super::casts::CheckedCast;
use super::dates::{is_difference, is_temporal};
use super::functions::name_in_postgres;
use super::similar_to::similar_to;

/// Analyzer rule that casts decimals and checks comparisons. It runs before DataFusion's own type coercion.
#[derive(Debug, Default)]
pub struct OperandTypes;

impl AnalyzerRule for OperandTypes {
    fn name(&self) -> &str {
        "taut_operand_types"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::Union(union) => return Ok(Transformed::yes(widen_union(union)?)),
                LogicalPlan::Join(mut join) => {
                    widen_keys(&mut join)?;
                    LogicalPlan::Join(join)
                }
                node => node,
            };
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let mapped = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let coerced = expression.transform_up(|expression| coerce_operands(expression, &schema))?;
                Ok(coerced.update_data(|expression| name.restore(expression)))
            })?;
            if mapped.transformed { mapped.map_data(LogicalPlan::recompute_schema) } else { Ok(mapped) }
        })?;
        Ok(changed.data)
    }
}

/// Planner that casts a string literal to boolean if it is compared with a boolean, and to bytes if it is concatenated
/// with bytes. DataFusion determines the type of an operation in a select list before [`OperandTypes`] runs. It has no
/// implicit cast from text to boolean, and concatenates text and bytes as text.
#[derive(Debug)]
pub struct TypedLiterals;

impl ExprPlanner for TypedLiterals {
    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, mut left, mut right } = raw;
        let is_concatenation = matches!(op, BinaryOperator::StringConcat);
        let literal_type = |other: &Expr| {
            let other = other.get_type(schema).ok()?;
            let has_type = if is_concatenation { is_bytes(&other) } else { other == DataType::Boolean };
            has_type.then_some(other)
        };
        if is_string_literal(&right)
            && let Some(literal_type) = literal_type(&left)
        {
            right = cast(right, literal_type);
        } else if is_string_literal(&left)
            && let Some(literal_type) = literal_type(&right)
        {
            left = cast(left, literal_type);
        }
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// Returns the elements to add to the list of `IN`: 0.0 and -0.0, if the list has a zero and the operand is
/// floating-point. DataFusion looks up a number by its bits, so 0.0 would not find -0.0.
fn both_zeros(operand: &Expr, list: &[Expr], schema: &DFSchema) -> Vec<Expr> {
    let is_float = || operand.get_type(schema).is_ok_and(|data_type| data_type.is_floating());
    match list.iter().any(is_zero) && is_float() {
        true => vec![lit(0.0_f64), lit(-0.0_f64)],
        false => Vec::new(),
    }
}

fn is_zero(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(number, _) if number.data_type().is_numeric() => {
            number.cast_to(&DataType::Float64).is_ok_and(|number| matches!(number, ScalarValue::Float64(Some(0.0))))
        }
        Expr::Negative(operand) => is_zero(operand),
        Expr::Cast(cast) => is_zero(&cast.expr),
        _ => false,
    }
}

/// Casts the decimal operands of an expression to double precision if another operand is floating-point, and makes the
/// other changes that the module describes. Does not change expressions inside the operands.
///
/// # Errors
/// If the expression compares values of different kinds, or casts between numbers and dates, times or intervals.
pub fn coerce_operands(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expression {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let operator = op.to_string();
            let purpose = if is_comparison(op) { Use::Compared(&operator) } else { Use::Combined };
            let changed = widen(&mut [left.as_mut(), right.as_mut()], purpose, schema)?;
            changed_if(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
            let changed = widen(&mut [expr.as_mut(), low.as_mut(), high.as_mut()], Use::Compared(">="), schema)?;
            changed_if(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let mut parts: Vec<&mut Expr> = vec![expr.as_mut()];
            parts.extend(list.iter_mut());
            let changed = widen(&mut parts, Use::Compared("="), schema)?;
            let zeros = both_zeros(&expr, &list, schema);
            let changed = changed || !zeros.is_empty();
            list.extend(zeros);
            changed_if(Expr::InList(InList { expr, list, negated }), changed)
        }
        Expr::Case(mut case) => {
            if let Some(operand) = &mut case.expr {
                let mut parts = vec![operand.as_mut()];
                parts.extend(case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut()));
                widen(&mut parts, Use::Compared("="), schema)?;
            }
            let mut results: Vec<&mut Expr> = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut()).collect();
            results.extend(case.else_expr.as_deref_mut());
            widen(&mut results, Use::Chosen, schema)?;
            Transformed::yes(Expr::Case(case))
        }
        Expr::ScalarFunction(mut call) if RETURN_AN_ARGUMENT.contains(&call.func.name()) => {
            let purpose = if call.func.name() == "nullif" { Use::Compared("=") } else { Use::Chosen };
            check_choice(&call, schema)?;
            let changed = widen(&mut call.args.iter_mut().collect::<Vec<_>>(), purpose, schema)?;
            match call.args.as_slice() {
                // DataFusion's function treats 0.0 and -0.0 as different numbers, and widens an integer to the type of
                // the other.
                [left, right]
                    if call.func.name() == "nullif"
                        && compares_as_case(&left.get_type(schema)?, &right.get_type(schema)?) =>
                {
                    let null = lit(ScalarValue::try_from(&left.get_type(schema)?)?);
                    Transformed::yes(when(left.clone().eq(right.clone()), null).otherwise(left.clone())?)
                }
                _ => changed_if(Expr::ScalarFunction(call), changed),
            }
        }
        Expr::InSubquery(mut test) => {
            widen_subquery(&mut test.expr, &mut test.subquery, Operator::Eq, schema)?;
            Transformed::yes(Expr::InSubquery(test))
        }
        Expr::SetComparison(mut comparison) => {
            widen_subquery(&mut comparison.expr, &mut comparison.subquery, comparison.op, schema)?;
            Transformed::yes(Expr::SetComparison(comparison))
        }
        Expr::Cast(Cast { expr, field }) => {
            // The type of a parameter may not be known yet.
            let from = expr.get_type(schema).unwrap_or(DataType::Null);
            if !has_cast(&from, field.data_type()) {
                return plan_err!("cannot cast type {from} to {}", field.data_type());
            }
            match CheckedCast::of_bytes(&from, field.data_type()) {
                Some(function) => Transformed::yes(function.call(vec![*expr])),
                None => Transformed::no(Expr::Cast(Cast { expr, field })),
            }
        }
        // DataFusion would ignore the pattern. As for other intervals, the function does not exist.
        Expr::ScalarFunction(mut call)
            if call.func.name() == "strftime"
                && call
                    .args
                    .first()
                    .is_some_and(|value| value.get_type(schema).is_ok_and(|part| is_difference(&part))) =>
        {
            call.args[0] = cast(std::mem::take(&mut call.args[0]), DataType::Interval(IntervalUnit::MonthDayNano));
            Transformed::yes(Expr::ScalarFunction(call))
        }
        Expr::SimilarTo(comparison) => Transformed::yes(similar_to(comparison)),
        other => Transformed::no(other),
    })
}

/// Whether `nullif` of these types becomes a `CASE`.
fn compares_as_case(left: &DataType, right: &DataType) -> bool {
    left.is_floating() || right.is_floating() || left != right && left.is_integer() && right.is_integer()
}

/// Whether PostgreSQL has a cast between two types. It has none between numbers, times and bytes.
fn has_cast(from: &DataType, target: &DataType) -> bool {
    let kind = |data_type: &DataType| match data_type {
        number if number.is_numeric() => Some(0),
        time if is_temporal(time) || is_difference(time) => Some(1),
        bytes if is_bytes(bytes) => Some(2),
        _ => None,
    };
    kind(from).zip(kind(target)).is_none_or(|(from, target)| from == target)
}

/// Functions that return one of their arguments, or an array of them.
const RETURN_AN_ARGUMENT: [&str; 7] = ["coalesce", "greatest", "ifnull", "least", "make_array", "nullif", "nvl"];

/// Checks that no argument is text beside a date, time, interval or boolean. A string literal has the type of the
/// others.
fn check_choice(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    let name = call.func.name();
    let kinds = call.args.iter().map(|part| Kind::of(part, &part.get_type(schema).unwrap_or(DataType::Null)));
    let kinds: Vec<Kind> = kinds.flatten().collect();
    let has_type = kinds.iter().any(|kind| !matches!(kind, Kind::Text | Kind::Number));
    if name == "make_array" || !has_type || !kinds.contains(&Kind::Text) {
        return Ok(());
    }
    let types: Vec<_> = call.args.iter().filter_map(|part| part.get_type(schema).ok()).collect();
    let other = types.iter().find(|part| !part.is_string() && !part.is_null());
    plan_err!(
        "{} types {} and text cannot be matched",
        name.to_uppercase(),
        other.map_or_else(String::new, name_in_postgres)
    )
}

/// Casts a decimal column of a union's inputs to double precision if the same column of another input is
/// floating-point.
fn widen_union(union: Union) -> Result<LogicalPlan> {
    let column_type = |input: &Arc<LogicalPlan>, index: usize| input.schema().field(index).data_type().clone();
    let is_mixed = |index: &usize| {
        let types: Vec<_> = union.inputs.iter().map(|input| column_type(input, *index)).collect();
        types.iter().any(DataType::is_floating) && types.iter().any(DataType::is_decimal)
    };
    let columns = union.inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    let mixed: Vec<usize> = (0..columns).filter(is_mixed).collect();
    if mixed.is_empty() {
        return Ok(LogicalPlan::Union(union));
    }
    let inputs = union.inputs.into_iter().map(|input| as_double_precision(input, &mixed)).collect::<Result<_>>()?;
    Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
}

/// Casts the decimals among the given columns of a plan to double precision.
fn as_double_precision(input: Arc<LogicalPlan>, columns: &[usize]) -> Result<Arc<LogicalPlan>> {
    let columns = input.schema().iter().enumerate().map(|(index, (relation, field))| {
        let column = Expr::Column((relation, field).into());
        match columns.contains(&index) && field.data_type().is_decimal() {
            true => cast(column, DataType::Float64).alias_qualified(relation.cloned(), field.name()),
            false => column,
        }
    });
    let projection = Projection::try_new(columns.collect(), Arc::clone(&input))?;
    Ok(Arc::new(LogicalPlan::Projection(projection)))
}

/// Casts the columns by which a join compares its inputs, for example with `USING`, like operands of `=`.
fn widen_keys(join: &mut Join) -> Result<()> {
    let schema = merge_schema(&[&join.left, &join.right]);
    for (left, right) in &mut join.on {
        widen(&mut [left, right], Use::Compared("="), &schema)?;
    }
    Ok(())
}

/// Casts an expression and the column of the subquery that it is compared with, like operands of the comparison.
fn widen_subquery(expression: &mut Expr, subquery: &mut Subquery, operator: Operator, schema: &DFSchema) -> Result<()> {
    let plan = &subquery.subquery;
    let Some((relation, field)) = plan.schema().iter().next() else { return Ok(()) };
    let column = Expr::Column((relation, field).into());
    // The type of the column comes from the subquery. In `schema`, a column of the same name may have another type.
    let types = [expression.get_type(schema).ok(), Some(field.data_type().clone())];
    let mut compared = column.clone();
    widen_types(&mut [expression, &mut compared], &types, Use::Compared(&operator.to_string()))?;
    if compared != column {
        subquery.subquery = as_double_precision(Arc::clone(plan), &[0])?;
    }
    Ok(())
}

fn changed_if(expression: Expr, changed: bool) -> Transformed<Expr> {
    if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
}

/// Use of the values of several expressions.
#[derive(Clone, Copy)]
enum Use<'a> {
    /// An operator compares the first value with each of the others.
    Compared(&'a str),
    /// One of the values is the result, as in `coalesce`.
    Chosen,
    /// The values are operands of an operator that is not a comparison.
    Combined,
}

/// Casts decimals to double precision if another of the expressions is floating-point. Unless the expressions are
/// combined by an operator, also casts string literals beside booleans, dates, times, intervals or bytes, and dates
/// beside timestamps. Returns whether it changed any expression.
///
/// # Errors
/// If values of different kinds are compared.
fn widen(parts: &mut [&mut Expr], purpose: Use<'_>, schema: &DFSchema) -> Result<bool> {
    // Expressions of unknown type are left to DataFusion.
    let types: Vec<Option<DataType>> = parts.iter().map(|part| part.get_type(schema).ok()).collect();
    widen_types(parts, &types, purpose)
}

/// Does the same as [`widen`], with the types of the expressions. `None` is an unknown type.
fn widen_types(parts: &mut [&mut Expr], types: &[Option<DataType>], purpose: Use<'_>) -> Result<bool> {
    if let (Use::Compared(operator), [Some(left), others @ ..]) = (purpose, types) {
        let left_kind = Kind::of(parts[0], left);
        for (part, right) in parts[1..].iter().zip(others) {
            let Some(right) = right else { continue };
            if left_kind.zip(Kind::of(part, right)).is_some_and(|(left, right)| left != right) {
                return plan_err!(
                    "Cannot infer common argument type for comparison operation {left} {operator} {right}"
                );
            }
        }
    }
    let mut changed = false;
    if !matches!(purpose, Use::Combined) {
        // DataFusion has no implicit cast from text to boolean, and reads dates as timestamps in nanoseconds.
        let has_literals = |part: &&DataType| {
            **part == DataType::Boolean || is_temporal(part) || is_difference(part) || is_bytes(part)
        };
        if let Some(literal_type) = types.iter().flatten().find(has_literals) {
            let interval = DataType::Interval(IntervalUnit::MonthDayNano);
            let literal_type = if is_difference(literal_type) { &interval } else { literal_type };
            for part in parts.iter_mut().filter(|part| is_string_literal(part)) {
                let literal = std::mem::take(*part);
                **part = match CheckedCast::of_bytes(&DataType::Utf8, literal_type) {
                    Some(function) => function.call(vec![literal]),
                    None => cast(literal, literal_type.clone()),
                };
                changed = true;
            }
        }
        // DataFusion compares dates with timestamps in nanoseconds.
        if let Some(timestamp) = types.iter().flatten().find(|part| matches!(part, DataType::Timestamp(..))) {
            changed |= cast_parts(parts, types, |data_type| *data_type == DataType::Date32, timestamp);
        }
    }
    if types.iter().flatten().any(DataType::is_floating) {
        changed |= cast_parts(parts, types, DataType::is_decimal, &DataType::Float64);
    }
    Ok(changed)
}

/// Casts the parts whose type `is_cast` accepts. Returns whether it cast any.
fn cast_parts(
    parts: &mut [&mut Expr],
    types: &[Option<DataType>],
    is_cast: impl Fn(&DataType) -> bool,
    target: &DataType,
) -> bool {
    let mut changed = false;
    for (part, data_type) in parts.iter_mut().zip(types) {
        if data_type.as_ref().is_some_and(&is_cast) {
            let value = std::mem::take(*part);
            **part = cast(value, target.clone());
            changed = true;
        }
    }
    changed
}

/// Whether an operator compares two values.
pub(super) fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_string_literal(expression: &Expr) -> bool {
    use ScalarValue::{LargeUtf8, Utf8, Utf8View};
    matches!(expression, Expr::Literal(Utf8(Some(_)) | LargeUtf8(Some(_)) | Utf8View(Some(_)), _))
}

/// Kinds of values. Values of one kind can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Boolean,
    Number,
    Text,
    Bytes,
    /// Dates and timestamps.
    Instant,
    Time,
    Interval,
}

impl Kind {
    /// Kind of an expression. Returns `None` for string literals, which get the type of the other operand, and for
    /// nulls, parameters and all other types.
    fn of(expression: &Expr, data_type: &DataType) -> Option<Self> {
        if matches!(expression, Expr::Placeholder(_)) {
            return None;
        }
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            number if number.is_numeric() => Self::Number,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if !matches!(expression, Expr::Literal(..)) => {
                Self::Text
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::Bytes,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Self::Instant,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Interval(_) | DataType::Duration(_) => Self::Interval,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn decimals_are_cast_only_beside_floating_point() {
        use datafusion::arrow::datatypes::{Field, Schema};
        let fields = vec![Field::new("d", DataType::Float64, true), Field::new("i", DataType::Int32, true)];
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let tenth = || lit(ScalarValue::Decimal128(Some(1), 1, 1));
        assert!(coerce_operands(col("d").eq(tenth()), &schema).unwrap().transformed);
        assert!(coerce_operands(tenth().lt(col("d")), &schema).unwrap().transformed);
        assert!(coerce_operands(col("d").between(tenth(), lit(1)), &schema).unwrap().transformed);
        assert!(coerce_operands(col("d").in_list(vec![lit(1), tenth()], true), &schema).unwrap().transformed);
        assert!(!coerce_operands(col("i").eq(tenth()), &schema).unwrap().transformed);
        assert!(!coerce_operands(col("d").eq(lit(1.5)), &schema).unwrap().transformed);
    }

    #[test]
    fn values_of_different_kinds_are_not_compared() {
        use datafusion::arrow::datatypes::{Field, Schema};
        let fields = vec![
            Field::new("day", DataType::Date32, true),
            Field::new("s", DataType::Utf8View, true),
            Field::new("i", DataType::Int32, true),
        ];
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let refused = [col("day").gt(lit(5)), col("s").eq(col("i")), col("i").in_list(vec![lit(1), lit(true)], false)];
        for comparison in refused {
            let error = coerce_operands(comparison, &schema).unwrap_err().to_string();
            assert!(error.contains("Cannot infer common argument type"), "{error}");
        }
        let allowed = [col("day").gt(lit("2024-01-01")), col("i").eq(lit("5")), col("s").eq(lit("x"))];
        for comparison in allowed {
            assert!(coerce_operands(comparison, &schema).is_ok());
        }
    }
}
