//! Column predicates compiled for evaluation on stored rows: on distances, on dictionary codes, or on byte strings. A
//! *distance* is a number minus the base of its field, and never negative.

use std::ops::{Bound, Range};

use arrow_buffer::BooleanBuffer;
use taut_encoding::{Bitmap, NumberFilter};
use taut_index::RowRanges;
use taut_types::{ColumnPredicate, DatumPredicate};

/// A list whose distances are all below this limit becomes a table of one bit per distance.
const TABLE_MAX: u64 = 1 << 16;
/// If more than this many of 64 rows are selected, testing all 64 rows is faster than finding the selected rows.
const SPARSE_ROWS_MAX: u32 = 16;

/// A predicate on codes, or on distances of numbers from a base. Callers handle nulls.
#[derive(Debug, PartialEq)]
pub(crate) enum FieldPredicate {
    /// All distances pass if true, none if false.
    Fixed(bool),
    /// If `inside`, the distances in `low..=low + span` pass. Otherwise, all other distances pass.
    Range { low: u64, span: u64, inside: bool },
    /// Bit `d` is set if distance `d` passes. Distances beyond the table pass if `beyond`.
    Table { bits: Vec<u64>, beyond: bool },
    /// If `inside`, the listed distances pass. Otherwise, all other distances pass. The list ascends. For most
    /// distances that are not in the list, `filter` saves a binary search.
    List { list: Vec<u64>, filter: NumberFilter, inside: bool },
}

impl FieldPredicate {
    /// Compiles a predicate on numbers `base + distance`, with distances up to `max`. Callers evaluate
    /// [`DatumPredicate::Null`] themselves.
    pub fn on_numbers(predicate: &ColumnPredicate, base: i128, max: u64) -> Self {
        let inside = !predicate.negated;
        let distance = |number: i128| number.checked_sub(base).and_then(|distance| u64::try_from(distance).ok());
        match &predicate.condition {
            DatumPredicate::Range { low, high } => {
                let top = base.saturating_add(i128::from(max));
                if low > high || *high < base || *low > top {
                    return Self::Fixed(!inside);
                }
                let first = if *low <= base { 0 } else { distance(*low).unwrap_or(0) };
                let last = if *high >= top { max } else { distance(*high).unwrap_or(max) };
                Self::Range { low: first, span: last - first, inside }
            }
            DatumPredicate::OneOf(numbers) => {
                let list: Vec<u64> =
                    numbers.iter().filter_map(|number| distance(*number)).filter(|distance| *distance <= max).collect();
                match list.as_slice() {
                    [] => Self::Fixed(!inside),
                    [only] => Self::Range { low: *only, span: 0, inside },
                    [.., last] if *last < TABLE_MAX => {
                        let mut bits = vec![if inside { 0 } else { u64::MAX }; *last as usize / 64 + 1];
                        for distance in &list {
                            bits[*distance as usize / 64] ^= 1 << (distance % 64);
                        }
                        Self::Table { bits, beyond: !inside }
                    }
                    _ => Self::List { filter: NumberFilter::new(list.iter().copied()), list, inside },
                }
            }
            DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_) | DatumPredicate::Null => {
                Self::Fixed(!inside)
            }
        }
    }

    /// Compiles a predicate on codes from one flag per code: whether the code passes.
    pub fn on_codes(flags: &BooleanBuffer) -> Self {
        let mut runs = flags.set_slices();
        match (runs.next(), runs.next()) {
            (None, _) => Self::Fixed(false),
            (Some((start, end)), None) if start == 0 && end == flags.len() => Self::Fixed(true),
            (Some((start, end)), None) => {
                Self::Range { low: start as u64, span: (end - start - 1) as u64, inside: true }
            }
            _ => {
                let mut bits = vec![0; flags.len().div_ceil(64)];
                for code in flags.set_indices() {
                    bits[code / 64] |= 1 << (code % 64);
                }
                Self::Table { bits, beyond: false }
            }
        }
    }

    /// Deselects the rows in `rows` whose distance fails. `distance` returns the distance of a row of the segment.
    #[inline(always)]
    pub fn apply(&self, rows: Range<usize>, selection: &mut Bitmap, distance: impl Fn(usize) -> u64) {
        match self {
            Self::Fixed(true) => {}
            Self::Fixed(false) => selection.clear_range(rows),
            Self::Range { low, span, inside: true } => {
                retain(rows, selection, |row| distance(row).wrapping_sub(*low) <= *span);
            }
            Self::Range { low, span, inside: false } => {
                retain(rows, selection, |row| distance(row).wrapping_sub(*low) > *span);
            }
            Self::Table { bits, beyond } => retain(rows, selection, |row| {
                let distance = distance(row);
                let word = usize::try_from(distance / 64).ok().and_then(|word| bits.get(word));
                word.map_or(*beyond, |word| word >> (distance % 64) & 1 != 0)
            }),
            Self::List { list, filter, inside } => retain(rows, selection, |row| {
                let distance = distance(row);
                (filter.may_contain(distance) && list.binary_search(&distance).is_ok()) == *inside
            }),
        }
    }
}

/// Deselects all rows in `ranges`.
pub(crate) fn deselect_ranges(ranges: &RowRanges, selection: &mut Bitmap) {
    ranges.iter().for_each(|rows| selection.clear_range(rows.start as usize..rows.end as usize));
}

/// Deselects the rows in `rows` that do not pass. Skips most rows that are already deselected.
#[inline(always)]
pub(crate) fn retain(rows: Range<usize>, selection: &mut Bitmap, passes: impl Fn(usize) -> bool) {
    if rows.is_empty() {
        return;
    }
    assert!(rows.end <= selection.len(), "rows outside of the selection");
    let words = selection.words_mut();
    for (index, word) in words.iter_mut().enumerate().take(rows.end.div_ceil(64)).skip(rows.start / 64) {
        let (first, last) = (rows.start.max(index * 64), rows.end.min(index * 64 + 64));
        let mask = (u64::MAX >> (64 - (last - first))) << (first - index * 64);
        let candidates = *word & mask;
        if candidates == 0 {
            continue;
        }
        let mut passing = 0;
        if candidates.count_ones() > SPARSE_ROWS_MAX {
            for row in first..last {
                passing |= u64::from(passes(row)) << (row % 64);
            }
        } else {
            let mut remaining = candidates;
            while remaining != 0 {
                let bit = remaining.trailing_zeros();
                passing |= u64::from(passes(index * 64 + bit as usize)) << bit;
                remaining &= remaining - 1;
            }
        }
        *word &= passing | !mask;
    }
}

/// A predicate on byte strings that are not null.
#[derive(Debug)]
pub(crate) struct BytesPredicate<'a> {
    form: BytesCondition<'a>,
    negated: bool,
}

#[derive(Debug)]
enum BytesCondition<'a> {
    /// No value matches. All values pass if the predicate is negated, else none.
    MatchesNothing,
    Equal(&'a [u8]),
    Range(&'a Bound<Box<[u8]>>, &'a Bound<Box<[u8]>>),
    OneOf(&'a [Box<[u8]>]),
}

impl<'a> BytesPredicate<'a> {
    /// Compiles a predicate on bytes. Callers evaluate [`DatumPredicate::Null`] themselves.
    pub fn new(predicate: &'a ColumnPredicate) -> Self {
        let form = match &predicate.condition {
            DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } if low == high => {
                BytesCondition::Equal(low)
            }
            DatumPredicate::BytesRange { low, high } => BytesCondition::Range(low, high),
            DatumPredicate::BytesOneOf(list) => match &**list {
                [] => BytesCondition::MatchesNothing,
                [only] => BytesCondition::Equal(only),
                list => BytesCondition::OneOf(list),
            },
            DatumPredicate::Range { .. } | DatumPredicate::OneOf(_) | DatumPredicate::Null => {
                BytesCondition::MatchesNothing
            }
        };
        Self { form, negated: predicate.negated }
    }

    /// Result of the predicate, if it is the same for all values. Otherwise returns `None`.
    pub fn fixed_result(&self) -> Option<bool> {
        matches!(self.form, BytesCondition::MatchesNothing).then_some(self.negated)
    }

    /// Whether a value passes.
    #[inline]
    pub fn admits(&self, bytes: &[u8]) -> bool {
        let is_match = match self.form {
            BytesCondition::MatchesNothing => false,
            BytesCondition::Equal(value) => bytes == value,
            BytesCondition::Range(low, high) => {
                let above = match low {
                    Bound::Included(low) => bytes >= &**low,
                    Bound::Excluded(low) => bytes > &**low,
                    Bound::Unbounded => true,
                };
                above
                    && match high {
                        Bound::Included(high) => bytes <= &**high,
                        Bound::Excluded(high) => bytes < &**high,
                        Bound::Unbounded => true,
                    }
            }
            BytesCondition::OneOf(list) => list.binary_search_by(|value| (**value).cmp(bytes)).is_ok(),
        };
        is_match != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_types::{ColumnIndex, Datum};

    #[test]
    fn distances_pass_if_their_numbers_pass() {
        let predicates = [
            DatumPredicate::Range { low: i128::MIN, high: 7 },
            DatumPredicate::Range { low: 5, high: i128::MAX },
            DatumPredicate::Range { low: 6, high: 5 },
            DatumPredicate::Range { low: 100, high: 200 },
            DatumPredicate::OneOf([].into()),
            DatumPredicate::OneOf([6].into()),
            DatumPredicate::OneOf([-100, 4, 9, 70, 1 << 40].into()),
            DatumPredicate::OneOf([i128::MIN, 5, 1 << 30, i128::MAX].into()),
            DatumPredicate::OneOf((0..3000).map(|number| number * 7 + 5).chain([1 << 40]).collect()),
            DatumPredicate::BytesOneOf([].into()),
        ];
        for predicate in predicates {
            for negated in [false, true] {
                let predicate = ColumnPredicate { column: ColumnIndex(0), condition: predicate.clone(), negated };
                for (base, max) in [(0, 127), (5, 1), (-3, 1023), (4, u64::MAX), (i128::from(i64::MIN), u64::MAX)] {
                    let field = FieldPredicate::on_numbers(&predicate, base, max);
                    // Distances of numbers around those in the predicates, up to the maximum of the field.
                    let numbers = (-5..150).chain([1 << 30, 1 << 40]).map(|number: i128| number - base);
                    let distances: Vec<u64> =
                        numbers.filter_map(|distance| u64::try_from(distance).ok()).filter(|d| *d <= max).collect();
                    let mut selection = Bitmap::all_set(distances.len());
                    field.apply(0..distances.len(), &mut selection, |row| distances[row]);
                    for (row, distance) in distances.iter().enumerate() {
                        let expected = predicate.admits(Some(&Datum::Number(base + i128::from(*distance))));
                        assert_eq!(
                            selection.get(row),
                            expected,
                            "{predicate:?} {base} + {distance} of {max}: {field:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_rows_in_the_range_are_deselected_by_the_flags() {
        for flags in [vec![false; 5], vec![true; 5], vec![false, true, true, false, false], vec![true, false, true]] {
            let predicate = FieldPredicate::on_codes(&BooleanBuffer::from(flags.clone()));
            for rows in [0..200, 3..130, 64..128, 70..70] {
                let mut selection = Bitmap::all_set(200);
                selection.clear_range(20..60);
                let before = selection.clone();
                predicate.apply(rows.clone(), &mut selection, |row| (row % flags.len()) as u64);
                for row in 0..200 {
                    let expected = before.get(row) && (!rows.contains(&row) || flags[row % flags.len()]);
                    assert_eq!(selection.get(row), expected, "{flags:?} {rows:?} {row}");
                }
            }
        }
    }
}
