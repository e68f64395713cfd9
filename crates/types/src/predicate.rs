//! Predicates that a scan evaluates on rows. A [`Predicate`] is a conjunction: all of its parts must hold.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::ArrowError;

use crate::{ColumnIndex, Datum, LogicalType, equal_numbers};

/// Predicate on one datum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatumPredicate {
    /// Numbers in `low..=high`. `i128::MIN` and `i128::MAX` mean that there is no bound.
    Range {
        /// Least number that passes.
        low: i128,
        /// Greatest number that passes.
        high: i128,
    },
    /// Numbers in a list, which is ascending and has no duplicates.
    OneOf(Arc<[i128]>),
    /// Bytes between two bounds.
    BytesRange {
        /// Lower bound.
        low: Bound<Box<[u8]>>,
        /// Upper bound.
        high: Bound<Box<[u8]>>,
    },
    /// Bytes in a list, which is ascending and has no duplicates.
    BytesOneOf(Arc<[Box<[u8]>]>),
    /// Nulls.
    Null,
}

/// Predicate on one column. A null passes only [`DatumPredicate::Null`] that is not negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPredicate {
    /// Column whose values are tested.
    pub column: ColumnIndex,
    /// The condition on its values.
    pub condition: DatumPredicate,
    /// Whether the predicate is negated: values that are not null pass if they fail `condition`.
    pub negated: bool,
}

impl ColumnPredicate {
    /// Predicate that is not negated.
    pub fn new(column: ColumnIndex, condition: DatumPredicate) -> Self {
        Self { column, condition, negated: false }
    }

    /// Predicate that passes values equal to one of `values`. The column and `values` have type `logical_type`.
    pub fn one_of(column: ColumnIndex, logical_type: LogicalType, values: impl IntoIterator<Item = Datum>) -> Self {
        let (mut numbers, mut strings) = (Vec::new(), Vec::new());
        for value in values {
            match value {
                Datum::Number(number) => numbers.extend(equal_numbers(number, logical_type)),
                Datum::Bytes(bytes) => strings.push(bytes),
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        strings.sort_unstable();
        strings.dedup();
        let is_bytes = logical_type.is_bytes();
        Self::new(
            column,
            if is_bytes { DatumPredicate::BytesOneOf(strings.into()) } else { DatumPredicate::OneOf(numbers.into()) },
        )
    }

    /// Whether a datum passes. `None` is null. Every optimized evaluation must agree with this definition.
    pub fn admits(&self, value: Option<&Datum>) -> bool {
        let Some(value) = value else {
            return self.condition == DatumPredicate::Null && !self.negated;
        };
        self.negated != self.condition.admits(value)
    }

    /// Whether some value between the bounds `min` and `max` may pass. `bounds` are `None` only if all values are null.
    ///
    /// `min` may be below the true minimum and `max` above the true maximum. The result is then less precise but still
    /// correct.
    pub fn may_admit(&self, bounds: Option<(&Datum, &Datum)>, has_nulls: bool) -> bool {
        match (&self.condition, self.negated) {
            (DatumPredicate::Null, false) => return has_nulls,
            (DatumPredicate::Null, true) => return bounds.is_some(),
            _ => {}
        }
        let Some((min, max)) = bounds else { return false };
        if self.negated {
            return !(min == max && self.condition.admits(min));
        }
        self.condition.may_admit(min, max)
    }

    /// Whether every value between `min` and `max` passes, provided that none is null.
    pub fn admits_all(&self, min: &Datum, max: &Datum) -> bool {
        match (&self.condition, self.negated) {
            (DatumPredicate::Null, negated) => negated,
            (DatumPredicate::Range { .. } | DatumPredicate::BytesRange { .. }, false) => {
                self.condition.admits(min) && self.condition.admits(max)
            }
            (DatumPredicate::OneOf(_) | DatumPredicate::BytesOneOf(_), false) => {
                min == max && self.condition.admits(min)
            }
            (_, true) => !self.condition.may_admit(min, max),
        }
    }
}

impl DatumPredicate {
    /// Whether a datum that is not null passes. Bytes never pass a predicate on numbers, and numbers never pass a
    /// predicate on bytes.
    pub fn admits(&self, value: &Datum) -> bool {
        match (self, value) {
            (Self::Range { low, high }, Datum::Number(number)) => (low..=high).contains(&number),
            (Self::OneOf(numbers), Datum::Number(number)) => numbers.binary_search(number).is_ok(),
            (Self::BytesRange { low, high }, Datum::Bytes(bytes)) => above(low, bytes) && below(high, bytes),
            (Self::BytesOneOf(list), Datum::Bytes(bytes)) => list.binary_search(bytes).is_ok(),
            _ => false,
        }
    }

    /// Whether all values that pass are greater than `datum`. Both must be numbers, or both bytes.
    pub fn is_above(&self, datum: &Datum) -> bool {
        match (self, datum) {
            (Self::Range { low, .. }, Datum::Number(number)) => low > number,
            (Self::OneOf(numbers), Datum::Number(number)) => numbers.first().is_none_or(|first| first > number),
            (Self::BytesRange { low, .. }, Datum::Bytes(bytes)) => !above(low, bytes),
            (Self::BytesOneOf(list), Datum::Bytes(bytes)) => list.first().is_none_or(|first| first > bytes),
            _ => false,
        }
    }

    /// Whether all values that pass are less than `datum`. Both must be numbers, or both bytes.
    pub fn is_below(&self, datum: &Datum) -> bool {
        match (self, datum) {
            (Self::Range { high, .. }, Datum::Number(number)) => high < number,
            (Self::OneOf(numbers), Datum::Number(number)) => numbers.last().is_none_or(|last| last < number),
            (Self::BytesRange { high, .. }, Datum::Bytes(bytes)) => !below(high, bytes),
            (Self::BytesOneOf(list), Datum::Bytes(bytes)) => list.last().is_none_or(|last| last < bytes),
            _ => false,
        }
    }

    fn may_admit(&self, min: &Datum, max: &Datum) -> bool {
        match (self, min, max) {
            (Self::Range { low, high }, Datum::Number(min), Datum::Number(max)) => low <= max && high >= min,
            (Self::OneOf(numbers), Datum::Number(min), Datum::Number(max)) => {
                let first = numbers.partition_point(|number| number < min);
                numbers.get(first).is_some_and(|number| number <= max)
            }
            (Self::BytesRange { low, high }, Datum::Bytes(min), Datum::Bytes(max)) => {
                above(low, max) && below(high, min)
            }
            (Self::BytesOneOf(list), Datum::Bytes(min), Datum::Bytes(max)) => {
                let first = list.partition_point(|bytes| bytes < min);
                list.get(first).is_some_and(|bytes| bytes <= max)
            }
            _ => false,
        }
    }
}

fn above(low: &Bound<Box<[u8]>>, bytes: &[u8]) -> bool {
    match low {
        Bound::Included(low) => bytes >= &**low,
        Bound::Excluded(low) => bytes > &**low,
        Bound::Unbounded => true,
    }
}

fn below(high: &Bound<Box<[u8]>>, bytes: &[u8]) -> bool {
    match high {
        Bound::Included(high) => bytes <= &**high,
        Bound::Excluded(high) => bytes < &**high,
        Bound::Unbounded => true,
    }
}

/// Predicate that storage cannot analyze, so it is evaluated on decoded columns.
///
/// It must be deterministic, and its result for a row must depend on that row alone: a predicate on one column is
/// evaluated once per dictionary entry.
pub trait RowPredicate: Debug + Send + Sync {
    /// Columns that the predicate reads, without duplicates, in the order in which [`RowPredicate::evaluate`] takes
    /// them.
    fn columns(&self) -> &[ColumnIndex];

    /// Evaluates the predicate on each row. A null in the result means that the row does not pass.
    ///
    /// # Errors
    /// If the evaluation fails, for example by a division by zero.
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError>;

    /// Column predicate for the rows in which its column is not null. `None` if storage can analyze no such predicate.
    fn non_null_predicate(&self) -> Option<&NonNullPredicate> {
        None
    }
}

/// Column predicate that a row predicate implies, or equals, for the rows in which its column is not null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonNullPredicate {
    /// The column predicate. If its column is not null, every row that passes the row predicate passes `predicate`.
    pub predicate: ColumnPredicate,
    /// Whether the two are equal: if the column is not null, every row that passes `predicate` also passes the row
    /// predicate.
    pub is_exact: bool,
}

/// Conjunction of predicates. If there are none, every row passes.
#[derive(Clone, Debug, Default)]
pub struct Predicate {
    /// Predicates that storage evaluates on encoded data.
    pub column_predicates: Vec<ColumnPredicate>,
    /// Predicates that are evaluated on decoded data after the others, on the remaining rows.
    pub row_predicates: Vec<Arc<dyn RowPredicate>>,
}

impl Predicate {
    /// Whether every row passes.
    pub fn is_always_true(&self) -> bool {
        self.column_predicates.is_empty() && self.row_predicates.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks for small ranges that `may_admit` is true if some value passes, and `admits_all` false if some value
    /// fails.
    #[test]
    fn bounds_agree_with_values() {
        let number = |value: i128| Datum::Number(value);
        let predicates = [
            DatumPredicate::Range { low: 2, high: 4 },
            DatumPredicate::Range { low: i128::MIN, high: 3 },
            DatumPredicate::Range { low: 5, high: 1 },
            DatumPredicate::OneOf(Arc::from([1, 4])),
            DatumPredicate::OneOf(Arc::from([])),
        ];
        for predicate in predicates {
            for negated in [false, true] {
                let predicate = ColumnPredicate { column: ColumnIndex(0), condition: predicate.clone(), negated };
                for min in 0..7 {
                    for max in min..7 {
                        let passing = (min..=max).filter(|value| predicate.admits(Some(&number(*value)))).count();
                        let (low, high) = (number(min), number(max));
                        assert!(
                            predicate.may_admit(Some((&low, &high)), false) || passing == 0,
                            "{predicate:?} {min}..={max}"
                        );
                        assert!(
                            !predicate.admits_all(&low, &high) || passing as i128 == max - min + 1,
                            "{predicate:?} {min}..={max}"
                        );
                    }
                }
                assert!(!predicate.admits(None));
            }
        }
    }

    #[test]
    fn null_predicates_depend_on_nulls_alone() {
        let mut predicate = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Null);
        assert!(predicate.admits(None) && !predicate.admits(Some(&Datum::Number(1))));
        assert!(!predicate.may_admit(None, false) && predicate.may_admit(None, true));
        predicate.negated = true;
        assert!(!predicate.admits(None) && predicate.admits(Some(&Datum::Number(1))));
        assert!(!predicate.may_admit(None, true));
    }
}
