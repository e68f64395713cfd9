//! Functions on arrays: `array_sum`, `array_remove`, `array_fill`, and the function that `ARRAY(SELECT ...)` calls.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, ListArray, PrimitiveArray, Scalar,
    UInt32Array, UInt64Array, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::kernels::cmp::distinct;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{cast, filter, is_not_null, take};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, Float64Type, Int64Type,
};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;

use super::super::arithmetic::overflow;
use super::definition::ArgumentType::{Any, List};
use super::definition::Definition;

pub(super) const FUNCTIONS: [Definition; 4] = [
    // `ARRAY(SELECT ...)` returns an empty array if the query returns no rows.
    Definition { name: "taut_array_or_empty", arguments: &[&[List]], result: first_type, compute: or_empty },
    Definition { name: "array_sum", arguments: &[&[List]], result: sum_type, compute: sums },
    Definition { name: "array_remove", arguments: &[&[List, Any]], result: first_type, compute: removed },
    Definition {
        name: "array_fill",
        arguments: &[&[Any, List], &[Any, List, List]],
        result: |types| DataType::List(Arc::new(Field::new_list_field(types[0].clone(), true))),
        compute: filled,
    },
];

fn first_type(types: &[DataType]) -> DataType {
    types[0].clone()
}

/// Replaces null arrays by empty arrays.
fn or_empty(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = &arguments[0];
    let DataType::List(item) = lists.data_type() else { return Ok(Arc::clone(lists)) };
    let (offsets, no_values) = (OffsetBuffer::from_lengths([0]), new_empty_array(item.data_type()));
    let empty = ListArray::try_new(Arc::clone(item), offsets, no_values, None)?;
    Ok(zip(&is_not_null(lists)?, lists, &Scalar::new(empty))?)
}

/// Removes the elements that equal the second argument. Null equals null.
fn removed(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = arguments[0].as_list::<i32>();
    let item = lists.value_type();
    let common = comparison_coercion(&item, arguments[1].data_type());
    let Some(common) = common else {
        return exec_err!("array_remove cannot compare {item} with {}", arguments[1].data_type());
    };
    let counts = lists.offsets().windows(2).map(|ends| (ends[1] - ends[0]) as usize);
    let rows = counts.enumerate().flat_map(|(row, count)| std::iter::repeat_n(row as u64, count));
    let first = lists.offsets()[0] as usize;
    let values = lists.values().slice(first, lists.offsets()[lists.len()] as usize - first);
    let removed = take(&cast(&arguments[1], &common)?, &UInt64Array::from_iter_values(rows), None)?;
    let is_kept = distinct(&cast(&values, &common)?, &removed)?;
    let mut offsets = vec![0];
    let mut kept = 0;
    for ends in lists.offsets().windows(2) {
        kept += is_kept.slice(ends[0] as usize - first, (ends[1] - ends[0]) as usize).true_count() as i32;
        offsets.push(kept);
    }
    let field = Arc::new(Field::new_list_field(item, true));
    let values = filter(&values, &is_kept)?;
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::new(offsets.into()), values, lists.nulls().cloned())?))
}

/// Maximum number of elements of an array that `array_fill` returns, as in PostgreSQL.
const FILLED_ELEMENTS_MAX: i64 = 134_217_727;

/// Returns arrays in which all elements are the first argument. The second argument has the length of the array, and
/// the third its lower bound. An array of no or of 0 elements as second argument returns an empty array.
fn filled(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let values = &arguments[0];
    let mut rows = Vec::new();
    let mut lengths = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        let dimensions = row_of_integers(&arguments[1], row)?;
        if let Some(bounds) = arguments.get(2) {
            check_bounds(&row_of_integers(bounds, row)?, &dimensions)?;
        }
        let length = filled_length(&dimensions)?;
        if i32::try_from(rows.len() + length).is_err() {
            return exec_err!("array size exceeds the maximum allowed ({FILLED_ELEMENTS_MAX})");
        }
        rows.resize(rows.len() + length, row as u32);
        lengths.push(length);
    }
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let elements = take(values, &UInt32Array::from(rows), None)?;
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), elements, None)?))
}

/// Returns the integers of one row of an argument of `array_fill`, none of which may be null.
fn row_of_integers(argument: &ArrayRef, row: usize) -> Result<Vec<i64>> {
    if argument.is_null(row) {
        return exec_err!("dimension array or low bound array cannot be null");
    }
    let list = argument.as_list::<i32>().value(row);
    if !list.data_type().is_integer() && *list.data_type() != DataType::Null {
        return exec_err!("the dimensions of array_fill must be integers, not {}", list.data_type());
    }
    let integers = cast(&list, &DataType::Int64)?;
    match integers.as_primitive::<Int64Type>().iter().collect() {
        Some(integers) => Ok(integers),
        None => exec_err!("dimension values cannot be null"),
    }
}

fn check_bounds(bounds: &[i64], dimensions: &[i64]) -> Result<()> {
    if bounds.len() != dimensions.len() {
        return exec_err!("wrong number of array subscripts");
    }
    if !dimensions.contains(&0) && bounds.iter().any(|bound| *bound != 1) {
        return exec_err!("arrays with a lower bound other than 1 are not supported");
    }
    Ok(())
}

fn filled_length(dimensions: &[i64]) -> Result<usize> {
    match dimensions {
        [] => Ok(0),
        dimensions if dimensions.contains(&0) => Ok(0),
        [length] => match usize::try_from(*length) {
            Ok(length) if length as i64 <= FILLED_ELEMENTS_MAX => Ok(length),
            _ => exec_err!("array size exceeds the maximum allowed ({FILLED_ELEMENTS_MAX})"),
        },
        _ => exec_err!("array_fill with several dimensions is not supported"),
    }
}

fn sum_type(types: &[DataType]) -> DataType {
    match &types[0] {
        DataType::List(item) => match item.data_type() {
            DataType::Decimal128(_, scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale),
            item if item.is_floating() => DataType::Float64,
            _ => DataType::Int64,
        },
        _ => DataType::Int64,
    }
}

fn sums(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let target = sum_type(&[arguments[0].data_type().clone()]);
    let lists = arguments[0].as_list::<i32>();
    let item = lists.value_type();
    if !item.is_numeric() && item != DataType::Null {
        return exec_err!("array_sum of {item} is not supported");
    }
    let items = cast(lists.values(), &target)?;
    let ranges = lists
        .offsets()
        .windows(2)
        .enumerate()
        .map(|(row, ends)| lists.is_valid(row).then_some(ends[0] as usize..ends[1] as usize));
    Ok(match target {
        DataType::Float64 => {
            let items = items.as_primitive::<Float64Type>();
            Arc::new(
                ranges.map(|range| present(items, range?).reduce(|sum, item| sum + item)).collect::<Float64Array>(),
            )
        }
        DataType::Decimal128(precision, scale) => {
            let items = items.as_primitive::<Decimal128Type>();
            let in_range = |sum: i128| sum.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into());
            let add = |sum: i128, item: i128| {
                sum.checked_add(item).filter(|sum| in_range(*sum)).ok_or_else(|| overflow(&target))
            };
            let sums = ranges.map(|range| match range {
                Some(range) => sum(present(items, range), add),
                None => Ok(None),
            });
            let sums = sums.collect::<Result<Decimal128Array, _>>()?;
            Arc::new(sums.with_precision_and_scale(precision, scale)?)
        }
        _ => {
            let items = items.as_primitive::<Int64Type>();
            let add = |sum: i64, item: i64| sum.checked_add(item).ok_or_else(|| overflow(&target));
            let sums = ranges.map(|range| match range {
                Some(range) => sum(present(items, range), add),
                None => Ok(None),
            });
            Arc::new(sums.collect::<Result<Int64Array, _>>()?)
        }
    })
}

/// Returns the values of a range that are not null.
fn present<T: ArrowPrimitiveType>(
    items: &PrimitiveArray<T>,
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = T::Native> {
    range.filter(|index| items.is_valid(*index)).map(|index| items.value(index))
}

/// Returns the sum of values. Returns `None` if there are none.
fn sum<T, E>(mut items: impl Iterator<Item = T>, add: impl Fn(T, T) -> Result<T, E>) -> Result<Option<T>, E> {
    match items.next() {
        None => Ok(None),
        Some(first) => items.try_fold(first, add).map(Some),
    }
}
