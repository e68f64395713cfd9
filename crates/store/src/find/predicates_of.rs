//! Predicates for the keys of a [`KeySearch`](super::KeySearch). All keys pass them, and few other values do. Each
//! predicate tests whether one column has a value from a list of the keys' values, or a value between their bounds.

use std::ops::{Bound, RangeInclusive};

use arrow_array::{Array, ArrayRef};
use taut_types::{
    ColumnIndex, ColumnPredicate, Datum, DatumPredicate, LogicalType, datum_at, equal_numbers, f32_to_ordered,
    f64_to_ordered,
};

use crate::Table;

/// Maximum number of listed values of a column. For more values, the predicate only tests the bounds.
/// [`KeySearch`](super::KeySearch) then looks up all rows within the bounds in a hash table of the keys. For each row,
/// this is faster than searching a long list.
const LISTED_MAX: usize = 16_384;
/// Maximum number of listed values of the first sort column. It is larger, because the rows are sorted by this column.
/// Each block or zone then needs only the few listed values within its bounds.
const SORTED_LISTED_MAX: usize = 262_144;

/// Conjunctions of column predicates. Each key without nulls passes one of them.
pub(super) fn predicates_of(table: &Table, columns: &[usize], keys: &[ArrayRef]) -> Vec<Vec<ColumnPredicate>> {
    let columns = columns.iter().map(|column| ColumnIndex::from(*column));
    let columns: Vec<KeyColumn> = columns
        .zip(keys)
        .map(|(column, array)| {
            let is_sorted = table.design.sort_by.first().is_some_and(|first| first.column == column);
            let listed_max = if is_sorted { SORTED_LISTED_MAX } else { LISTED_MAX };
            KeyColumn { column, logical_type: table.schema.column(column).logical_type, array, listed_max }
        })
        .collect();
    let rows = keys.first().map_or(0, |array| array.len());
    let without_nulls = (0..rows).filter(|row| keys.iter().all(|array| array.is_valid(*row)));
    let (with_nan, without_nan): (Vec<usize>, _) =
        without_nulls.partition(|row| columns.iter().any(|column| column.is_nan(*row)));
    let groups = [without_nan, with_nan].into_iter().filter(|rows| !rows.is_empty());
    groups.map(|rows| columns.iter().filter_map(|column| column.predicate(&rows)).collect()).collect()
}

/// One column of the keys.
struct KeyColumn<'a> {
    column: ColumnIndex,
    logical_type: LogicalType,
    array: &'a ArrayRef,
    listed_max: usize,
}

impl KeyColumn<'_> {
    fn is_nan(&self, row: usize) -> bool {
        let Some(numbers) = range_without_nan(self.logical_type) else { return false };
        self.datum(row).and_then(|datum| datum.number()).is_some_and(|number| !numbers.contains(&number))
    }

    fn datum(&self, row: usize) -> Option<Datum> {
        datum_at(self.array, self.logical_type, row)
    }

    /// A predicate on this column that is true for the keys with the indexes `rows`. Returns `None` if some, but not
    /// all, of their values are NaN.
    fn predicate(&self, rows: &[usize]) -> Option<ColumnPredicate> {
        if let Some(numbers) = range_without_nan(self.logical_type) {
            let not_numbers = rows.iter().filter(|row| self.is_nan(**row)).count();
            if not_numbers == rows.len() {
                // All keys are NaN, and all NaNs are equal.
                let (low, high) = numbers.into_inner();
                return Some(ColumnPredicate {
                    column: self.column,
                    condition: DatumPredicate::Range { low, high },
                    negated: true,
                });
            }
            if not_numbers > 0 {
                return None;
            }
        }
        let datums = rows.iter().filter_map(|row| self.datum(*row));
        let is_listed = rows.len() <= self.listed_max && (rows.len() > 1 || self.logical_type.is_bytes());
        match is_listed {
            true => Some(ColumnPredicate::one_of(self.column, self.logical_type, datums)),
            false => Some(ColumnPredicate::new(self.column, self.bounds(datums)?)),
        }
    }

    fn bounds(&self, mut datums: impl Iterator<Item = Datum>) -> Option<DatumPredicate> {
        let first = datums.next()?;
        let bounds = datums.fold((first.clone(), first), |(min, max), datum| match () {
            () if datum < min => (datum, max),
            () if datum > max => (min, datum),
            () => (min, max),
        });
        Some(match bounds {
            (Datum::Number(min), Datum::Number(max)) => {
                let low = *equal_numbers(min, self.logical_type).start();
                DatumPredicate::Range { low, high: *equal_numbers(max, self.logical_type).end() }
            }
            (Datum::Bytes(min), Datum::Bytes(max)) => {
                DatumPredicate::BytesRange { low: Bound::Included(min), high: Bound::Included(max) }
            }
            _ => return None,
        })
    }
}

/// The range of the numbers ([`Datum::Number`]) of all values except NaN. `None` for types without NaN.
fn range_without_nan(logical_type: LogicalType) -> Option<RangeInclusive<i128>> {
    match logical_type {
        LogicalType::Real => Some(f32_to_ordered(f32::NEG_INFINITY).into()..=f32_to_ordered(f32::INFINITY).into()),
        LogicalType::Double => Some(f64_to_ordered(f64::NEG_INFINITY).into()..=f64_to_ordered(f64::INFINITY).into()),
        _ => None,
    }
}
