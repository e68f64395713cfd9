//! Column predicates on Arrow arrays, as [`ColumnPredicate::admits`] defines them.

use std::ops::RangeBounds;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::buffer::{BooleanBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use taut_types::{ColumnPredicate, DatumPredicate, LogicalType, f32_to_ordered, f64_to_ordered};

/// Rows in `candidates` whose value passes a predicate.
pub fn passing_rows(
    array: &ArrayRef,
    logical_type: LogicalType,
    predicate: &ColumnPredicate,
    candidates: BooleanBuffer,
) -> BooleanBuffer {
    let valid = array.logical_nulls();
    if predicate.condition == DatumPredicate::Null {
        return match (valid, predicate.negated) {
            (Some(valid), false) => &candidates & &!valid.inner(),
            (Some(valid), true) => &candidates & valid.inner(),
            (None, true) => candidates,
            (None, false) => BooleanBuffer::new_unset(candidates.len()),
        };
    }
    let candidates = match valid {
        Some(valid) => &candidates & valid.inner(),
        None => candidates,
    };
    let admitted = match logical_type {
        LogicalType::Varchar => {
            let values = array.as_string_view();
            filter_bytes(|row| values.value(row).as_bytes(), &predicate.condition, &candidates)
        }
        LogicalType::Bytea => {
            let values = array.as_binary_view();
            filter_bytes(|row| values.value(row), &predicate.condition, &candidates)
        }
        LogicalType::Decimal { .. } => {
            let values = array.as_primitive::<Decimal128Type>().values();
            filter_numbers(|row| values[row], &predicate.condition, &candidates)
        }
        _ => {
            let datums = datums_of(array, logical_type);
            match &predicate.condition {
                DatumPredicate::Range { low, high } => filter_range(&datums, (*low, *high)),
                predicate => filter_numbers(|row| i128::from(datums[row]), predicate, &candidates),
            }
        }
    };
    if predicate.negated { &candidates & &!&admitted } else { &candidates & &admitted }
}

/// Comparable datums of the values, for types whose datums have at most 64 bits.
fn datums_of(array: &ArrayRef, logical_type: LogicalType) -> ScalarBuffer<i64> {
    match logical_type {
        LogicalType::Boolean => array.as_boolean().values().iter().map(i64::from).collect(),
        LogicalType::SmallInt => array.as_primitive::<Int16Type>().values().iter().copied().map(i64::from).collect(),
        LogicalType::Integer => array.as_primitive::<Int32Type>().values().iter().copied().map(i64::from).collect(),
        LogicalType::Date => array.as_primitive::<Date32Type>().values().iter().copied().map(i64::from).collect(),
        LogicalType::Real => {
            let values = array.as_primitive::<Float32Type>().values().iter();
            values.map(|value| i64::from(f32_to_ordered(*value))).collect()
        }
        LogicalType::Double => {
            array.as_primitive::<Float64Type>().values().iter().copied().map(f64_to_ordered).collect()
        }
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            array.as_primitive::<TimestampMicrosecondType>().values().clone()
        }
        _ => array.as_primitive::<Int64Type>().values().clone(),
    }
}

/// Rows whose datum is between two bounds. Both comparisons run for every row, without a branch, so that several rows
/// are compared at once.
fn filter_range(datums: &[i64], (low, high): (i128, i128)) -> BooleanBuffer {
    let (least, greatest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    if low > greatest || high < least {
        return BooleanBuffer::new_unset(datums.len());
    }
    let (low, high) = (low.max(least) as i64, high.min(greatest) as i64);
    BooleanBuffer::collect_bool(datums.len(), |row| (datums[row] >= low) & (datums[row] <= high))
}

fn filter_numbers(
    datum: impl Fn(usize) -> i128,
    predicate: &DatumPredicate,
    candidates: &BooleanBuffer,
) -> BooleanBuffer {
    match predicate {
        DatumPredicate::Range { low, high } => filter_candidates(candidates, |row| (low..=high).contains(&&datum(row))),
        DatumPredicate::OneOf(listed) => filter_candidates(candidates, |row| listed.binary_search(&datum(row)).is_ok()),
        _ => BooleanBuffer::new_unset(candidates.len()),
    }
}

fn filter_bytes<'a>(
    value: impl Fn(usize) -> &'a [u8],
    predicate: &DatumPredicate,
    candidates: &BooleanBuffer,
) -> BooleanBuffer {
    match predicate {
        DatumPredicate::BytesRange { low, high } => {
            let bounds = (low.as_ref().map(|low| &**low), high.as_ref().map(|high| &**high));
            filter_candidates(candidates, |row| RangeBounds::<[u8]>::contains(&bounds, value(row)))
        }
        DatumPredicate::BytesOneOf(listed) => {
            filter_candidates(candidates, |row| listed.binary_search_by(|entry| entry.as_ref().cmp(value(row))).is_ok())
        }
        _ => BooleanBuffer::new_unset(candidates.len()),
    }
}

/// Rows in `candidates` for which `passes` returns true.
fn filter_candidates(candidates: &BooleanBuffer, passes: impl Fn(usize) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(candidates.len(), |row| candidates.value(row) && passes(row))
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;
    use std::sync::Arc;

    use datafusion::arrow::array::{BooleanArray, Decimal128Array, Float64Array, Int16Array, StringViewArray};
    use taut_types::{ColumnIndex, datum_at};

    use super::*;

    #[test]
    fn arrays_and_datums_pass_the_same_predicates() {
        let nan = f64::NAN;
        let doubles = [Some(-0.0), Some(0.0), Some(nan), Some(-nan), None, Some(f64::INFINITY), Some(-1.5)];
        let decimal = LogicalType::Decimal { precision: 38, scale: 2 };
        let decimals = [Some(i128::MAX / 2), Some(-7), None, Some(0), Some(1)];
        let decimals = Decimal128Array::from(decimals.to_vec()).with_precision_and_scale(38, 2).unwrap();
        let arrays: [(ArrayRef, LogicalType); 5] = [
            (Arc::new(Float64Array::from(doubles.to_vec())), LogicalType::Double),
            (Arc::new(Int16Array::from(vec![Some(-1), None, Some(0), Some(7)])), LogicalType::SmallInt),
            (Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])), LogicalType::Boolean),
            (Arc::new(decimals), decimal),
            (
                Arc::new(StringViewArray::from(vec![Some("a"), None, Some(""), Some("abc"), Some("b")])),
                LogicalType::Varchar,
            ),
        ];
        let text = |text: &str| -> Box<[u8]> { text.as_bytes().into() };
        let predicates = [
            DatumPredicate::Null,
            DatumPredicate::Range { low: -1, high: 0 },
            DatumPredicate::Range { low: i128::MIN, high: 6 },
            DatumPredicate::Range { low: 1 << 70, high: i128::MAX },
            DatumPredicate::Range { low: 5, high: 4 },
            DatumPredicate::OneOf(Arc::from([-1, 0, 7])),
            DatumPredicate::OneOf(Arc::from([])),
            DatumPredicate::BytesRange { low: Bound::Included(text("a")), high: Bound::Excluded(text("abc")) },
            DatumPredicate::BytesRange { low: Bound::Excluded(text("a")), high: Bound::Unbounded },
            DatumPredicate::BytesOneOf(Arc::from([text(""), text("abc")])),
        ];
        for (array, logical_type) in &arrays {
            for (predicate, negated) in predicates.iter().flat_map(|predicate| [(predicate, false), (predicate, true)])
            {
                let predicate = ColumnPredicate { column: ColumnIndex(0), condition: predicate.clone(), negated };
                // The row at position 3 is no candidate, so it never passes.
                let candidates = BooleanBuffer::collect_bool(array.len(), |row| row != 3);
                let found: Vec<usize> =
                    passing_rows(array, *logical_type, &predicate, candidates).set_indices().collect();
                let admits = |row: &usize| *row != 3 && predicate.admits(datum_at(array, *logical_type, *row).as_ref());
                assert_eq!(found, (0..array.len()).filter(admits).collect::<Vec<_>>(), "{array:?}: {predicate:?}");
            }
        }
    }
}
