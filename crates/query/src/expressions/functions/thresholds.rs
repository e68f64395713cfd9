//! `width_bucket(operand, thresholds)`: the number of thresholds that are not greater than the operand. The thresholds
//! must be sorted.

use std::cmp::Ordering;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, DynComparator, make_comparator};
use datafusion::arrow::compute::{CastOptions, SortOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;

use super::super::dates::is_text;
use super::definition::integers;

/// Returns the bucket of each operand: 0 before the first threshold, 1 from the first threshold on.
pub(super) fn bucket_of_thresholds(operands: &ArrayRef, thresholds: &ArrayRef) -> Result<ArrayRef> {
    let lists = thresholds.as_list::<i32>();
    let item = lists.value_type();
    if item.is_nested() {
        return exec_err!("thresholds must be one-dimensional array");
    }
    let common = match (operands.data_type(), &item) {
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        // Arrow would compare the digits of a number with text.
        (operand, item) if is_text(operand) != is_text(item) => None,
        (operand, item) if operand.is_floating() || item.is_floating() => {
            (operand.is_numeric() && item.is_numeric()).then_some(DataType::Float64)
        }
        (operand, item) => comparison_coercion(operand, item),
    };
    // Intervals have no order in Arrow.
    let Some(common) = common.filter(|common| !matches!(common, DataType::Interval(_) | DataType::Duration(_))) else {
        return exec_err!("width_bucket cannot compare {} with {item}", operands.data_type());
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let operands = cast_with_options(operands, &common, &options)?;
    let values = cast_with_options(lists.values(), &common, &options)?;
    let (operand_nulls, value_nulls) = (operands.logical_nulls(), values.logical_nulls());
    let compare = comparison(&operands, &values)?;
    integers((0..lists.len()).map(|row| {
        if lists.is_null(row) || operand_nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        let (start, end) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
        if value_nulls.as_ref().is_some_and(|nulls| (start..end).any(|index| nulls.is_null(index))) {
            return exec_err!("thresholds array must not contain NULLs");
        }
        let (mut low, mut high) = (start, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match compare(row, middle) {
                Ordering::Less => high = middle,
                _ => low = middle + 1,
            }
        }
        Ok(Some((low - start) as i32))
    }))
}

/// Returns the function that compares an operand with a threshold, by the indexes of both.
fn comparison(operands: &ArrayRef, values: &ArrayRef) -> Result<DynComparator> {
    if *operands.data_type() != DataType::Float64 {
        return Ok(make_comparator(operands, values, SortOptions::default())?);
    }
    let (operands, values) =
        (operands.as_primitive::<Float64Type>().clone(), values.as_primitive::<Float64Type>().clone());
    Ok(Box::new(move |operand, value| compared(operands.value(operand), values.value(value))))
}

/// Compares two numbers as PostgreSQL does: 0.0 equals -0.0, and NaN is greater than all other numbers.
fn compared(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Float64Array, Int32Array, ListArray};
    use datafusion::arrow::datatypes::{Float64Type, Int32Type};

    use super::*;

    #[test]
    fn buckets_begin_at_thresholds() {
        let operands: ArrayRef = Arc::new(Int32Array::from(vec![Some(0), Some(1), Some(2), Some(3), None]));
        let list = Some(vec![Some(1), Some(3)]);
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(std::iter::repeat_n(list, 5)));
        let buckets = bucket_of_thresholds(&operands, &lists).unwrap();
        assert_eq!(
            buckets.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(),
            [Some(0), Some(1), Some(1), Some(2), None]
        );
    }

    #[test]
    fn not_a_number_is_the_greatest() {
        let operands: ArrayRef = Arc::new(Float64Array::from(vec![5.0, f64::NAN, -0.0]));
        let list = Some(vec![Some(0.0), Some(f64::NAN)]);
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(std::iter::repeat_n(list, 3)));
        let buckets = bucket_of_thresholds(&operands, &lists).unwrap();
        assert_eq!(buckets.as_primitive::<Int32Type>().values(), &[1, 2, 1]);
    }
}
