//! Binary search in ascending values.

use std::borrow::Cow;
use std::ops::{Bound, Range};

use taut_types::DatumPredicate;

/// Maximum items of a list that is evaluated by binary search.
const LIST_MAX: usize = 16;

/// Finds the rows that pass a predicate, as ranges. `number` returns the value of a row. The values of the rows must
/// ascend. Returns `None` if the predicate is not on numbers, or is a long list.
pub fn numbers(
    predicate: &DatumPredicate,
    rows: Range<usize>,
    number: impl Fn(usize) -> i128,
) -> Option<Vec<Range<usize>>> {
    let between = |low: i128, high: i128, rows: Range<usize>| {
        let start = first_row(rows.clone(), |row| number(row) < low);
        start..first_row(start..rows.end, |row| number(row) <= high)
    };
    match predicate {
        DatumPredicate::Range { low, high } if low > high => Some(vec![]),
        DatumPredicate::Range { low, high } => Some(vec![between(*low, *high, rows)]),
        DatumPredicate::OneOf(list) => find_each(list, rows, |number, rows| between(*number, *number, rows)),
        DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_) | DatumPredicate::Null => None,
    }
}

/// Finds the rows that pass a predicate on text or bytes, as ranges. The values of the rows must ascend. Returns `None`
/// if the predicate is not on text or bytes, or is a long list.
pub(crate) fn bytes<'a>(
    predicate: &DatumPredicate,
    rows: Range<usize>,
    value: impl Fn(usize) -> Cow<'a, [u8]>,
) -> Option<Vec<Range<usize>>> {
    let end_of = |bound: &[u8], rows| first_row(rows, |row| *value(row) <= *bound);
    let start_of = |bound: &[u8], rows| first_row(rows, |row| *value(row) < *bound);
    match predicate {
        DatumPredicate::BytesRange { low, high } => {
            let start = match low {
                Bound::Included(low) => start_of(low, rows.clone()),
                Bound::Excluded(low) => end_of(low, rows.clone()),
                Bound::Unbounded => rows.start,
            };
            let end = match high {
                Bound::Included(high) => end_of(high, start..rows.end),
                Bound::Excluded(high) => start_of(high, start..rows.end),
                Bound::Unbounded => rows.end,
            };
            let found = start..end;
            Some(vec![found])
        }
        DatumPredicate::BytesOneOf(list) => find_each(list, rows, |item, rows| {
            let start = start_of(item, rows.clone());
            start..end_of(item, start..rows.end)
        }),
        DatumPredicate::Range { .. } | DatumPredicate::OneOf(_) | DatumPredicate::Null => None,
    }
}

/// Finds the rows of each item of an ascending list. The search for an item begins after the rows of the previous one.
fn find_each<T>(
    list: &[T],
    rows: Range<usize>,
    find: impl Fn(&T, Range<usize>) -> Range<usize>,
) -> Option<Vec<Range<usize>>> {
    let mut start = rows.start;
    let found = |item: &T| {
        let found = find(item, start..rows.end);
        start = found.end;
        found
    };
    (list.len() <= LIST_MAX).then(|| list.iter().map(found).collect())
}

/// First row for which `is_before` is false, or the end of the range. `is_before` must be true for all rows before it,
/// and false for all rows after it.
fn first_row(rows: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (rows.start, rows.end);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
