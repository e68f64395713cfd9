//! A test on numbers, translated once into the lanes in which a chunk holds them.
//!
//! Lanes are unsigned and count from some origin: the base of packed numbers, zero for codes and for plain
//! numbers, whose negative values then stand in the upper half. Within the numbers that lanes can hold, a
//! subtraction modulo the lane takes care of all of that: `low <= x <= high` is `x - low <= high - low`.

use std::ops::Range;

use taut_types::Test;

use crate::kernels::{Lane, MASK_WORDS, mask_of_bytes, unpack, wide};
use crate::{Bitmap, VECTOR_ROWS};

/// Up to so many values are compared one after the other.
const FEW: usize = 6;
/// Up to so many neighbouring numbers are looked up in a table.
const TABLE_MAX: u128 = 1 << 16;

/// A test on lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneTest<L> {
    kind: Kind<L>,
    /// Whether lanes must fail the test instead.
    negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind<L> {
    /// No lane passes.
    Nothing,
    /// `lane - low <= span`.
    Range { low: L, span: L },
    /// Any of these.
    Few(Vec<L>),
    /// `lane - low` is the index of a 1.
    Table { low: L, flags: Vec<u8> },
    /// `lane - low` is among these, ascending.
    Sorted { low: L, distances: Vec<L> },
}

impl<L: Lane> LaneTest<L> {
    /// The test on lanes that hold the numbers `domain`, counted from `origin`. A test on bytes admits nothing.
    pub(crate) fn new(test: &Test, negated: bool, domain: (i128, i128), origin: i128) -> Self {
        let lane = |number: i128| L::from_i128(number.wrapping_sub(origin));
        let kind = match test {
            Test::Range { low, high } => {
                let (low, high) = ((*low).max(domain.0), (*high).min(domain.1));
                if low > high {
                    Kind::Nothing
                } else {
                    Kind::Range { low: lane(low), span: L::from_i128(high.wrapping_sub(low)) }
                }
            }
            Test::OneOf(numbers) => {
                let first = numbers.partition_point(|number| *number < domain.0);
                let end = numbers.partition_point(|number| *number <= domain.1);
                Self::list(numbers.get(first..end).unwrap_or_default(), origin)
            }
            Test::BytesRange { .. } | Test::BytesOneOf(_) | Test::Null => Kind::Nothing,
        };
        Self { kind, negated }
    }

    fn list(numbers: &[i128], origin: i128) -> Kind<L> {
        let lane = |number: &i128| L::from_i128(number.wrapping_sub(origin));
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Kind::Nothing };
        let span = last.wrapping_sub(*first) as u128;
        let distances = numbers.iter().map(|number| number.wrapping_sub(*first));
        if span == numbers.len() as u128 - 1 {
            Kind::Range { low: lane(first), span: L::from_i128(last.wrapping_sub(*first)) }
        } else if numbers.len() <= FEW {
            Kind::Few(numbers.iter().map(lane).collect())
        } else if span < TABLE_MAX {
            let mut flags = vec![0; span as usize + 1];
            distances.for_each(|distance| flags[distance as usize] = 1);
            Kind::Table { low: lane(first), flags }
        } else {
            Kind::Sorted { low: lane(first), distances: distances.map(L::from_i128).collect() }
        }
    }

    /// The test on codes whose entries pass where the flag of the code is set. Codes past the flags fail.
    pub(crate) fn of_flags(flags: impl ExactSizeIterator<Item = bool>) -> Self {
        let flags: Vec<u8> = flags.map(u8::from).collect();
        let negated = false;
        let (Some(first), Some(last)) =
            (flags.iter().position(|flag| *flag != 0), flags.iter().rposition(|flag| *flag != 0))
        else {
            return Self { kind: Kind::Nothing, negated };
        };
        let low = L::from_i128(first as i128);
        let kind = if flags[first..=last].iter().all(|flag| *flag != 0) {
            Kind::Range { low, span: L::from_i128((last - first) as i128) }
        } else {
            Kind::Table { low, flags: flags[first..=last].to_vec() }
        };
        Self { kind, negated }
    }

    /// Whether one lane passes.
    #[inline]
    pub(crate) fn admits(&self, lane: L) -> bool {
        let admits = match &self.kind {
            Kind::Nothing => false,
            Kind::Range { low, span } => lane.minus(*low) <= *span,
            Kind::Few(lanes) => lanes.contains(&lane),
            Kind::Table { low, flags } => usize::try_from(lane.minus(*low).to_u128())
                .ok()
                .and_then(|index| flags.get(index))
                .is_some_and(|flag| *flag != 0),
            Kind::Sorted { low, distances } => distances.binary_search(&lane.minus(*low)).is_ok(),
        };
        admits != self.negated
    }

    /// Whether all lanes pass, or none; `None` where that depends on the lane.
    pub(crate) fn constant(&self) -> Option<bool> {
        match &self.kind {
            Kind::Nothing => Some(self.negated),
            Kind::Range { span, .. } if *span == L::MAX => Some(!self.negated),
            _ => None,
        }
    }

    /// One bit per lane of a packed vector.
    pub(crate) fn mask_packed(&self, width: usize, packed: &[L]) -> [u64; MASK_WORDS] {
        let mut bytes = [0; VECTOR_ROWS];
        if let Kind::Range { low, span } = &self.kind {
            let (low, span) = (*low, *span);
            unpack(width, packed, &mut bytes, move |lane| u8::from(lane.minus(low) <= span));
        } else {
            let mut lanes = [L::default(); VECTOR_ROWS];
            unpack(width, packed, &mut lanes, |lane| lane);
            self.test(&lanes, &mut bytes);
        }
        self.finish(&bytes)
    }

    /// One bit per lane of up to a vector; bits past them are undefined.
    pub(crate) fn mask(&self, lanes: &[L]) -> [u64; MASK_WORDS] {
        let mut bytes = [0; VECTOR_ROWS];
        self.test(lanes, &mut bytes);
        self.finish(&bytes)
    }

    fn finish(&self, bytes: &[u8; VECTOR_ROWS]) -> [u64; MASK_WORDS] {
        let mask = mask_of_bytes(bytes);
        if self.negated { mask.map(|word| !word) } else { mask }
    }

    /// Sets the byte of each lane that passes to 1; all are 0 at first.
    fn test(&self, lanes: &[L], bytes: &mut [u8; VECTOR_ROWS]) {
        match &self.kind {
            Kind::Nothing => {}
            Kind::Range { low, span } => {
                let (low, span) = (*low, *span);
                wide(move || {
                    for (byte, lane) in bytes.iter_mut().zip(lanes) {
                        *byte = u8::from(lane.minus(low) <= span);
                    }
                });
            }
            Kind::Few(values) => wide(move || {
                for value in values {
                    let value = *value;
                    for (byte, lane) in bytes.iter_mut().zip(lanes) {
                        *byte |= u8::from(*lane == value);
                    }
                }
            }),
            Kind::Table { low, flags } => {
                for (byte, lane) in bytes.iter_mut().zip(lanes) {
                    // An index past `usize` is past the table too.
                    let index = usize::try_from(lane.minus(*low).to_u128()).unwrap_or(usize::MAX);
                    *byte = flags.get(index).copied().unwrap_or(0);
                }
            }
            Kind::Sorted { low, distances } => {
                for (byte, lane) in bytes.iter_mut().zip(lanes) {
                    *byte = u8::from(distances.binary_search(&lane.minus(*low)).is_ok());
                }
            }
        }
    }
}

/// Clears in `selection` the rows of `rows` whose bit in the mask of their vector is zero; vectors without a
/// selected row are left out.
pub(crate) fn filter_vectors(
    rows: Range<usize>,
    selection: &mut Bitmap,
    mut mask_of: impl FnMut(usize) -> [u64; MASK_WORDS],
) {
    if rows.is_empty() {
        return;
    }
    for vector in rows.start / VECTOR_ROWS..rows.end.div_ceil(VECTOR_ROWS) {
        let first = vector * VECTOR_ROWS;
        let part = rows.start.max(first)..rows.end.min(first + VECTOR_ROWS);
        if !selection.is_range_empty(part.clone()) {
            selection.intersect_words(part, &mask_of(vector));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use taut_types::Key;

    /// Every kind of test on small numbers around an origin, against its definition.
    fn check<L: Lane>(origin: i128, domain: (i128, i128)) {
        let numbers: Vec<i128> = (domain.0..=domain.1).collect();
        let lanes: Vec<L> = numbers.iter().map(|number| L::from_i128(number.wrapping_sub(origin))).collect();
        let list =
            |numbers: &[i128]| Test::OneOf(Arc::from(numbers.iter().map(|number| number + origin).collect::<Vec<_>>()));
        let tests = [
            Test::Range { low: origin + 3, high: origin + 9 },
            Test::Range { low: i128::MIN, high: origin + 9 },
            Test::Range { low: i128::MIN, high: i128::MAX },
            Test::Range { low: origin + 1000, high: i128::MAX },
            Test::Range { low: 5, high: 4 },
            list(&[]),
            list(&[4]),
            list(&[4, 5, 6]),
            list(&[-4000, 4, 7, 90_000]),
            list(&[1, 3, 5, 7, 9, 11, 13]),
            list(&[1, 3, 5, 7, 9, 11, 13, 900_000]),
            Test::Null,
        ];
        for test in tests {
            for negated in [false, true] {
                let lane_test = LaneTest::<L>::new(&test, negated, domain, origin);
                let mask = lane_test.mask(&lanes);
                for (index, (number, lane)) in numbers.iter().zip(&lanes).enumerate() {
                    let expected = test.admits(&Key::Number(*number)) != negated;
                    assert_eq!(lane_test.admits(*lane), expected, "{test:?} negated {negated}: {number}");
                    assert_eq!(mask[index / 64] >> (index % 64) & 1 != 0, expected, "{test:?} {negated}: {number}");
                    assert!(lane_test.constant().is_none_or(|all| all == expected));
                }
            }
        }
    }

    #[test]
    fn lane_tests_agree_with_their_definition() {
        check::<u8>(0, (0, 255));
        check::<u8>(-7, (-7, 40));
        check::<u16>(0, (-30, 300));
        check::<u32>(i128::from(i64::MIN), (i128::from(i64::MIN), i128::from(i64::MIN) + 77));
        check::<u64>(0, (-30, 300));
        check::<u128>(-(1 << 100), (-(1 << 100), -(1 << 100) + 77));
    }

    #[test]
    fn flags_name_the_codes_that_pass() {
        for flags in [vec![], vec![false; 3], vec![true; 5], vec![false, true, true, false], vec![true, false, true]] {
            let test = LaneTest::<u8>::of_flags(flags.iter().copied());
            for code in 0..=255_u8 {
                assert_eq!(
                    test.admits(code),
                    flags.get(usize::from(code)).copied().unwrap_or(false),
                    "{flags:?} {code}"
                );
            }
        }
    }
}
