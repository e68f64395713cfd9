//! Comparison of intervals by their length. As in PostgreSQL, a month has 30 days and a day 24 hours. DataFusion
//! compares months, then days, then nanoseconds, and would treat a day as longer than 25 hours.
//!
//! Comparisons and sorts therefore compare the lengths in nanoseconds:
//!
//! ```text
//!   a > interval '1 day'    interval_length(a) > 86400000000000
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, FixedSizeListArray, GenericListArray, OffsetSizeTrait,
    PrimitiveArray, StructArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, TimeUnit,
};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion::functions_nested::expr_fn::{array_element, array_position};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast as cast_to, lit,
};

use crate::error::QueryError;

const NANOSECONDS_PER_DAY: i128 = 86_400_000_000_000;
const NANOSECONDS_PER_MONTH: i128 = 30 * NANOSECONDS_PER_DAY;
const LENGTH: DataType = DataType::Decimal128(38, 0);

/// Whether a type is an interval, or a difference of timestamps.
pub(super) fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// Whether a type is an interval, or an array or row with intervals.
pub fn has_interval(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_interval(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_interval(field.data_type())),
        _ => false,
    }
}

/// Whether a type is an array or row with intervals.
pub(super) fn is_nested_interval(data_type: &DataType) -> bool {
    !is_interval(data_type) && has_interval(data_type)
}

/// Whether the values of a type are ordered by the lengths of intervals.
pub(super) fn is_ordered_by_length(data_type: &DataType) -> bool {
    is_interval(data_type) || has_interval(data_type)
}

/// Functions that search an array, and return a position or whether they found something.
const SEARCHES: [&str; 5] = ["array_has", "array_has_all", "array_has_any", "array_position", "array_positions"];
/// Functions that compare the items of arrays, and return items.
const COMPARES_ITEMS: [&str; 14] = [
    "array_distinct",
    "array_except",
    "array_intersect",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_sort",
    "array_union",
    "greatest",
    "least",
    "nullif",
];

/// Replaces intervals in the arguments of a call that searches an array by their lengths. The least or greatest
/// interval of an array is found by the position of the least or greatest length.
///
/// # Errors
/// If the function compares items of arrays and returns some of them, which DataFusion compares by their parts.
pub(super) fn with_lengths(mut call: ScalarFunction, schema: &DFSchema, keeps_names: bool) -> Result<Expr> {
    let name = call.func.name();
    if COMPARES_ITEMS.contains(&name) {
        return Err(unsupported(name, "arrays and rows with intervals"));
    }
    if matches!(name, "array_max" | "array_min") {
        let intervals = call.args.swap_remove(0);
        let lengths = interval_length(intervals.clone(), keeps_names);
        let position = array_position(lengths.clone(), call.func.call(vec![lengths]), lit(1_i64));
        return Ok(array_element(intervals, cast_to(position, DataType::Int64)));
    }
    if SEARCHES.contains(&name) {
        for argument in &mut call.args {
            if is_ordered_by_length(&argument.get_type(schema)?) {
                *argument = interval_length(std::mem::take(argument), keeps_names);
            }
        }
    }
    Ok(Expr::ScalarFunction(call))
}

/// Checks that an aggregate does not compare intervals by their parts.
///
/// # Errors
/// If it does. `count(DISTINCT x)`, and `min` and `max` of intervals, compare lengths.
pub(super) fn check_aggregate(name: &str, arguments: &[Expr], is_distinct: bool, schema: &DFSchema) -> Result<()> {
    let compares_arrays = ["max", "min", "mode", "percentile_disc", "quantile_disc"].contains(&name);
    for argument in arguments {
        let data_type = argument.get_type(schema)?;
        if is_distinct && has_interval(&data_type) && !["max", "min"].contains(&name) {
            return Err(unsupported(&format!("{name}(DISTINCT ...)"), "intervals"));
        }
        if compares_arrays && is_nested_interval(&data_type) {
            return Err(unsupported(name, "arrays and rows with intervals"));
        }
    }
    Ok(())
}

fn unsupported(function: &str, values: &str) -> DataFusionError {
    let allowed = "numbers such as extract(epoch FROM interval) are";
    DataFusionError::External(Box::new(QueryError::unsupported(format!("{function} of {values}"), allowed)))
}

/// The type of the lengths of intervals: a decimal instead of each interval. Types without intervals stay.
fn length_type(data_type: &DataType) -> DataType {
    let of_field = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(length_type(field.data_type())));
    match data_type {
        interval if is_interval(interval) => LENGTH,
        DataType::List(item) => DataType::List(of_field(item)),
        DataType::LargeList(item) => DataType::LargeList(of_field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(of_field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(of_field).collect()),
        other => other.clone(),
    }
}

/// Returns a call of the function `interval_length`, which computes the length of an interval in nanoseconds, and of
/// each interval in an array or row. With `keeps_name`, the call has the column name of its argument.
pub fn interval_length(interval: Expr, keeps_name: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(IntervalLength { keeps_name, signature }).call(vec![interval])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalLength {
    keeps_name: bool,
    signature: Signature,
}

impl ScalarUDFImpl for IntervalLength {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn schema_name(&self, intervals: &[Expr]) -> Result<String> {
        let interval = intervals[0].schema_name();
        Ok(if self.keeps_name { interval.to_string() } else { format!("{}({interval})", self.name()) })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(length_type(&types[0]))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let interval = &args.arg_fields[0];
        Ok(Arc::new(Field::new(self.name(), length_type(interval.data_type()), interval.is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(lengths(array)?),
            ColumnarValue::Scalar(scalar) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths(&scalar.to_array()?)?, 0)?)
            }
        })
    }

    fn output_ordering(&self, intervals: &[ExprProperties]) -> Result<SortProperties> {
        Ok(match intervals[0].sort_properties {
            SortProperties::Singleton => SortProperties::Singleton,
            _ => SortProperties::Unordered,
        })
    }
}

/// Computes the lengths of intervals in nanoseconds, as decimals, also in arrays and rows. A month has 30 days. Values
/// that are no intervals stay.
pub(super) fn lengths(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match (values.data_type(), length_type(values.data_type())) {
        (interval, _) if is_interval(interval) => interval_lengths(values)?,
        (_, DataType::List(item)) => list_lengths(values.as_list::<i32>(), item)?,
        (_, DataType::LargeList(item)) => list_lengths(values.as_list::<i64>(), item)?,
        (_, DataType::FixedSizeList(item, size)) => {
            let lists = values.as_fixed_size_list();
            let (items, nulls) = (lengths(lists.values())?, lists.nulls().cloned());
            Arc::new(FixedSizeListArray::try_new(item, size, items, nulls)?)
        }
        (_, DataType::Struct(fields)) => {
            let rows = values.as_struct();
            let columns = rows.columns().iter().map(lengths).collect::<Result<_>>()?;
            Arc::new(StructArray::try_new_with_length(fields, columns, rows.nulls().cloned(), rows.len())?)
        }
        _ => Arc::clone(values),
    })
}

fn list_lengths<O: OffsetSizeTrait>(lists: &GenericListArray<O>, item: FieldRef) -> Result<ArrayRef> {
    let items = lengths(lists.values())?;
    Ok(Arc::new(GenericListArray::try_new(item, lists.offsets().clone(), items, lists.nulls().cloned())?))
}

fn interval_lengths(intervals: &ArrayRef) -> Result<ArrayRef> {
    let lengths: Decimal128Array = match intervals.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals: &PrimitiveArray<IntervalMonthDayNanoType> = intervals.as_primitive();
            intervals.unary(|interval| {
                i128::from(interval.months) * NANOSECONDS_PER_MONTH
                    + i128::from(interval.days) * NANOSECONDS_PER_DAY
                    + i128::from(interval.nanoseconds)
            })
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let intervals: &PrimitiveArray<IntervalDayTimeType> = intervals.as_primitive();
            intervals.unary(|interval| {
                i128::from(interval.days) * NANOSECONDS_PER_DAY + i128::from(interval.milliseconds) * 1_000_000
            })
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            let intervals: &PrimitiveArray<IntervalYearMonthType> = intervals.as_primitive();
            intervals.unary(|months| i128::from(months) * NANOSECONDS_PER_MONTH)
        }
        DataType::Duration(unit) => {
            let (ticks, nanoseconds) = (cast(intervals, &DataType::Int64)?, nanoseconds(*unit));
            ticks.as_primitive::<Int64Type>().unary(|ticks| i128::from(ticks) * nanoseconds)
        }
        other => return internal_err!("interval_length of {other}"),
    };
    Ok(Arc::new(lengths.with_data_type(LENGTH)))
}

/// Number of nanoseconds in one tick of a unit.
fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns the function `greatest` or `least` of intervals, which compares their lengths. It ignores nulls.
pub(super) fn extreme_interval(is_greatest: bool) -> ScalarUDF {
    ScalarUDF::new_from_impl(ExtremeInterval { is_greatest, signature: Signature::variadic_any(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExtremeInterval {
    is_greatest: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ExtremeInterval {
    fn name(&self) -> &str {
        if self.is_greatest { "greatest" } else { "least" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut arrays = ColumnarValue::values_to_arrays(&args.args)?.into_iter();
        let Some(mut extreme) = arrays.next() else { return internal_err!("{} of no intervals", self.name()) };
        for next in arrays {
            let (known, new) = (lengths(&extreme)?, lengths(&next)?);
            let (known, new) = (known.as_primitive::<Decimal128Type>(), new.as_primitive::<Decimal128Type>());
            let is_new = known.iter().zip(new).map(|(known, new)| match (known, new) {
                (_, None) => false,
                (None, _) => true,
                (Some(known), Some(new)) => {
                    if self.is_greatest {
                        new > known
                    } else {
                        new < known
                    }
                }
            });
            extreme = zip(&is_new.map(Some).collect::<BooleanArray>(), &next, &extreme)?;
        }
        Ok(ColumnarValue::Array(extreme))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DurationSecondArray, IntervalMonthDayNanoArray};
    use datafusion::arrow::datatypes::{Decimal128Type, IntervalMonthDayNano};

    use super::*;

    #[test]
    fn a_month_has_30_days_and_a_day_24_hours() {
        let interval = IntervalMonthDayNano::new;
        let hours = |hours: i64| hours * 3_600_000_000_000;
        let intervals = [interval(1, 0, 0), interval(0, 29, hours(24)), interval(0, 1, 0), interval(0, 0, hours(25))];
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(intervals.to_vec()));
        let found = lengths(&intervals).unwrap();
        let found = found.as_primitive::<Decimal128Type>().values();
        assert_eq!(found[0], found[1]);
        assert!(found[2] < found[3]);
        let day: ArrayRef = Arc::new(DurationSecondArray::from(vec![86_400]));
        assert_eq!(lengths(&day).unwrap().as_primitive::<Decimal128Type>().value(0), found[2]);
    }
}
