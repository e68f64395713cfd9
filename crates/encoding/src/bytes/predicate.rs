//! Predicate on strings, prepared once for many values.

use std::ops::Bound;

use taut_types::DatumPredicate;

use crate::distinct::prefix;

/// Predicate on strings. For most values, the first eight bytes decide the result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BytesPredicate<'a> {
    /// No value passes. Predicates on numbers and nulls become this variant.
    MatchesNothing,
    /// Values equal to this one.
    Equal(&'a [u8]),
    /// Values between bounds. `prefixes` are the prefixes of the bounds.
    Range { low: &'a Bound<Box<[u8]>>, high: &'a Bound<Box<[u8]>>, prefixes: (u64, u64) },
    /// Values equal to one of these, which ascend.
    OneOf(&'a [Box<[u8]>]),
}

impl<'a> BytesPredicate<'a> {
    /// Prepares a predicate.
    pub(crate) fn new(predicate: &'a DatumPredicate) -> Self {
        let bound = |bound: &Bound<Box<[u8]>>, unbounded| match bound {
            Bound::Included(value) | Bound::Excluded(value) => prefix(value),
            Bound::Unbounded => unbounded,
        };
        match predicate {
            DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } if low == high => {
                Self::Equal(low)
            }
            DatumPredicate::BytesRange { low, high } => {
                Self::Range { low, high, prefixes: (bound(low, 0), bound(high, u64::MAX)) }
            }
            DatumPredicate::BytesOneOf(list) => match &**list {
                [value] => Self::Equal(value),
                list => Self::OneOf(list),
            },
            DatumPredicate::Range { .. } | DatumPredicate::OneOf(_) | DatumPredicate::Null => Self::MatchesNothing,
        }
    }

    /// Whether a value passes.
    #[inline]
    pub(crate) fn admits(&self, value: &[u8]) -> bool {
        match self {
            Self::MatchesNothing => false,
            Self::Equal(equal) => value == *equal,
            Self::Range { low, high, prefixes } => {
                let prefix = prefix(value);
                if prefix < prefixes.0 || prefix > prefixes.1 {
                    return false;
                }
                (prefix > prefixes.0 || is_above(value, low)) && (prefix < prefixes.1 || is_below(value, high))
            }
            Self::OneOf(list) => list.binary_search_by(|listed| (**listed).cmp(value)).is_ok(),
        }
    }
}

fn is_above(value: &[u8], low: &Bound<Box<[u8]>>) -> bool {
    match low {
        Bound::Included(low) => value >= &**low,
        Bound::Excluded(low) => value > &**low,
        Bound::Unbounded => true,
    }
}

fn is_below(value: &[u8], high: &Bound<Box<[u8]>>) -> bool {
    match high {
        Bound::Included(high) => value <= &**high,
        Bound::Excluded(high) => value < &**high,
        Bound::Unbounded => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_types::Datum;

    /// Compares predicates with their definition, on strings that are about as long as prefixes.
    #[test]
    fn prefixes_agree_with_whole_values() {
        let mut values: Vec<Vec<u8>> = vec![vec![]];
        for length in [1, 2, 7, 8, 9, 10] {
            for end in [0, 1, 255] {
                for fill in [0, b'a', 255] {
                    let mut value = vec![fill; length];
                    value[length - 1] = end;
                    values.push(value);
                }
            }
        }
        let bounds = |value: &Vec<u8>| {
            let value: Box<[u8]> = value.as_slice().into();
            [Bound::Included(value.clone()), Bound::Excluded(value), Bound::Unbounded]
        };
        for low in &values {
            for high in &values {
                for (low, high) in bounds(low).into_iter().flat_map(|low| bounds(high).map(|high| (low.clone(), high)))
                {
                    let predicate = DatumPredicate::BytesRange { low, high };
                    let prepared = BytesPredicate::new(&predicate);
                    for value in &values {
                        let expected = predicate.admits(&Datum::Bytes(value.as_slice().into()));
                        assert_eq!(prepared.admits(value), expected, "{predicate:?} {value:?}");
                    }
                }
            }
        }
    }
}
