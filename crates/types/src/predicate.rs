//! What a scan asks of a row. All parts of a predicate must hold: it is a conjunction.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::ArrowError;

use crate::{ColumnIndex, Key, LogicalType, equal_numbers};

/// What one value must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// A number in `low..=high`. `i128::MIN` and `i128::MAX` are no bound.
    Range {
        /// Least number admitted.
        low: i128,
        /// Greatest number admitted.
        high: i128,
    },
    /// A number among these, ascending and distinct.
    OneOf(Arc<[i128]>),
    /// Bytes between two bounds.
    BytesRange {
        /// Lower bound.
        low: Bound<Box<[u8]>>,
        /// Upper bound.
        high: Bound<Box<[u8]>>,
    },
    /// Bytes among these, ascending and distinct.
    BytesOneOf(Arc<[Box<[u8]>]>),
    /// A null.
    Null,
}

/// A test on one column. A null fails every test but [`Test::Null`], negated or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTest {
    /// The column tested.
    pub column: ColumnIndex,
    /// The test.
    pub test: Test,
    /// Whether values that are not null must fail the test instead.
    pub negated: bool,
}

impl ColumnTest {
    /// A test that is not negated.
    pub fn new(column: ColumnIndex, test: Test) -> Self {
        Self { column, test, negated: false }
    }

    /// Whether a value of a type equals one of these, of the same type.
    pub fn one_of(column: ColumnIndex, logical_type: LogicalType, values: impl IntoIterator<Item = Key>) -> Self {
        let (mut numbers, mut strings) = (Vec::new(), Vec::new());
        for value in values {
            match value {
                Key::Number(number) => numbers.extend(equal_numbers(number, logical_type)),
                Key::Bytes(bytes) => strings.push(bytes),
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        strings.sort_unstable();
        strings.dedup();
        let is_bytes = logical_type.is_bytes();
        Self::new(column, if is_bytes { Test::BytesOneOf(strings.into()) } else { Test::OneOf(numbers.into()) })
    }

    /// Whether a value passes: the definition that every fast path must agree with.
    pub fn admits(&self, value: Option<&Key>) -> bool {
        let Some(value) = value else {
            return self.test == Test::Null && !self.negated;
        };
        self.negated != self.test.admits(value)
    }

    /// Whether some value between `min` and `max` (both present unless all are null) may pass.
    ///
    /// `min` may lie below the true minimum and `max` above the true maximum; the answer is then merely less sharp.
    pub fn may_admit(&self, bounds: Option<(&Key, &Key)>, has_nulls: bool) -> bool {
        match (&self.test, self.negated) {
            (Test::Null, false) => return has_nulls,
            (Test::Null, true) => return bounds.is_some(),
            _ => {}
        }
        let Some((min, max)) = bounds else { return false };
        if self.negated {
            return !(min == max && self.test.admits(min));
        }
        self.test.may_admit(min, max)
    }

    /// Whether every value between `min` and `max` passes, given that none is null.
    pub fn admits_all(&self, min: &Key, max: &Key) -> bool {
        match (&self.test, self.negated) {
            (Test::Null, negated) => negated,
            (Test::Range { .. } | Test::BytesRange { .. }, false) => self.test.admits(min) && self.test.admits(max),
            (Test::OneOf(_) | Test::BytesOneOf(_), false) => min == max && self.test.admits(min),
            (_, true) => !self.test.may_admit(min, max),
        }
    }
}

impl Test {
    /// Whether a value that is not null satisfies this test. A value of the other kind never does.
    pub fn admits(&self, value: &Key) -> bool {
        match (self, value) {
            (Self::Range { low, high }, Key::Number(number)) => (low..=high).contains(&number),
            (Self::OneOf(numbers), Key::Number(number)) => numbers.binary_search(number).is_ok(),
            (Self::BytesRange { low, high }, Key::Bytes(bytes)) => above(low, bytes) && below(high, bytes),
            (Self::BytesOneOf(list), Key::Bytes(bytes)) => list.binary_search(bytes).is_ok(),
            _ => false,
        }
    }

    /// Whether all values that pass are greater than `key`, of the same kind.
    pub fn is_beyond(&self, key: &Key) -> bool {
        match (self, key) {
            (Self::Range { low, .. }, Key::Number(number)) => low > number,
            (Self::OneOf(numbers), Key::Number(number)) => numbers.first().is_none_or(|first| first > number),
            (Self::BytesRange { low, .. }, Key::Bytes(bytes)) => !above(low, bytes),
            (Self::BytesOneOf(list), Key::Bytes(bytes)) => list.first().is_none_or(|first| first > bytes),
            _ => false,
        }
    }

    /// Whether all values that pass are less than `key`, of the same kind.
    pub fn is_before(&self, key: &Key) -> bool {
        match (self, key) {
            (Self::Range { high, .. }, Key::Number(number)) => high < number,
            (Self::OneOf(numbers), Key::Number(number)) => numbers.last().is_none_or(|last| last < number),
            (Self::BytesRange { high, .. }, Key::Bytes(bytes)) => !below(high, bytes),
            (Self::BytesOneOf(list), Key::Bytes(bytes)) => list.last().is_none_or(|last| last < bytes),
            _ => false,
        }
    }

    fn may_admit(&self, min: &Key, max: &Key) -> bool {
        match (self, min, max) {
            (Self::Range { low, high }, Key::Number(min), Key::Number(max)) => low <= max && high >= min,
            (Self::OneOf(numbers), Key::Number(min), Key::Number(max)) => {
                let first = numbers.partition_point(|number| number < min);
                numbers.get(first).is_some_and(|number| number <= max)
            }
            (Self::BytesRange { low, high }, Key::Bytes(min), Key::Bytes(max)) => above(low, max) && below(high, min),
            (Self::BytesOneOf(list), Key::Bytes(min), Key::Bytes(max)) => {
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

/// A test that storage cannot look into: it is evaluated on decoded columns.
///
/// It must be deterministic, and each row's answer must depend on that row alone: a test on one column is
/// evaluated once per entry of a dictionary.
pub trait RowTest: Debug + Send + Sync {
    /// The columns it reads, distinct, in the order in which [`RowTest::evaluate`] takes them.
    fn columns(&self) -> &[ColumnIndex];

    /// For each row, whether it passes; null counts as not passing.
    ///
    /// # Errors
    /// When the evaluation itself fails, such as on a division by zero.
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError>;

    /// What it amounts to where a column has no nulls, if storage can look into that.
    fn unless_null(&self) -> Option<&UnlessNull> {
        None
    }
}

/// What a row test amounts to on the rows in which a column is not null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlessNull {
    /// The test on that column: of these rows, those that pass the row test pass it.
    pub test: ColumnTest,
    /// Whether those that pass it pass the row test.
    pub is_exact: bool,
}

/// A conjunction of tests. Without any, every row passes.
#[derive(Clone, Debug, Default)]
pub struct Predicate {
    /// Tests that storage evaluates on encoded data.
    pub column_tests: Vec<ColumnTest>,
    /// Tests evaluated on decoded data, after the others, on the rows that are left.
    pub row_tests: Vec<Arc<dyn RowTest>>,
}

impl Predicate {
    /// Whether every row passes.
    pub fn is_always_true(&self) -> bool {
        self.column_tests.is_empty() && self.row_tests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against every small range of values: `may_admit` never misses one that passes, and `admits_all` never
    /// claims one that fails.
    #[test]
    fn bounds_agree_with_values() {
        let number = |value: i128| Key::Number(value);
        let tests = [
            Test::Range { low: 2, high: 4 },
            Test::Range { low: i128::MIN, high: 3 },
            Test::Range { low: 5, high: 1 },
            Test::OneOf(Arc::from([1, 4])),
            Test::OneOf(Arc::from([])),
        ];
        for test in tests {
            for negated in [false, true] {
                let test = ColumnTest { column: ColumnIndex(0), test: test.clone(), negated };
                for min in 0..7 {
                    for max in min..7 {
                        let passing = (min..=max).filter(|value| test.admits(Some(&number(*value)))).count();
                        let (low, high) = (number(min), number(max));
                        assert!(test.may_admit(Some((&low, &high)), false) || passing == 0, "{test:?} {min}..={max}");
                        assert!(
                            !test.admits_all(&low, &high) || passing as i128 == max - min + 1,
                            "{test:?} {min}..={max}"
                        );
                    }
                }
                assert!(!test.admits(None));
            }
        }
    }

    #[test]
    fn null_tests_know_nulls() {
        let mut test = ColumnTest::new(ColumnIndex(0), Test::Null);
        assert!(test.admits(None) && !test.admits(Some(&Key::Number(1))));
        assert!(!test.may_admit(None, false) && test.may_admit(None, true));
        test.negated = true;
        assert!(!test.admits(None) && test.admits(Some(&Key::Number(1))));
        assert!(!test.may_admit(None, true));
    }
}
