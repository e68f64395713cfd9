//! Compares predicates on lanes with their definition, for every instruction set.

use super::*;
use crate::kernels::{InstructionSet, Native, pack};
use std::sync::Arc;
use taut_testkit::Random;
use taut_types::Datum;

/// Compares every kind of predicate with its definition, on small numbers around an origin.
fn check<L: Lane>(origin: i128, domain: (i128, i128)) {
    let numbers: Vec<i128> = (domain.0..=domain.1).collect();
    let lanes: Vec<L> = numbers.iter().map(|number| L::from_i128(number.wrapping_sub(origin))).collect();
    let list = |numbers: &[i128]| {
        DatumPredicate::OneOf(Arc::from(numbers.iter().map(|number| number + origin).collect::<Vec<_>>()))
    };
    let predicates = [
        DatumPredicate::Range { low: origin + 3, high: origin + 9 },
        DatumPredicate::Range { low: i128::MIN, high: origin + 9 },
        DatumPredicate::Range { low: i128::MIN, high: i128::MAX },
        DatumPredicate::Range { low: origin + 1000, high: i128::MAX },
        DatumPredicate::Range { low: 5, high: 4 },
        list(&[]),
        list(&[4]),
        list(&[4, 5, 6]),
        list(&[-4000, 4, 7, 90_000]),
        list(&[1, 3, 5, 7, 9, 11, 13]),
        list(&[1, 3, 5, 7, 9, 11, 13, 900_000]),
        DatumPredicate::Null,
    ];
    for predicate in predicates {
        for negated in [false, true] {
            let lane_predicate = LanePredicate::<L>::new(&predicate, negated, domain, origin);
            let mask = lane_predicate.mask(&lanes);
            for (index, (number, lane)) in numbers.iter().zip(&lanes).enumerate() {
                let expected = predicate.admits(&Datum::Number(*number)) != negated;
                assert_eq!(lane_predicate.admits(*lane), expected, "{predicate:?} negated {negated}: {number}");
                assert_eq!(mask[index / 64] >> (index % 64) & 1 != 0, expected, "{predicate:?} {negated}: {number}");
                assert!(lane_predicate.fixed_result().is_none_or(|all| all == expected));
            }
        }
    }
}

#[test]
fn lane_predicates_agree_with_their_definition() {
    check::<u8>(0, (0, 255));
    check::<u8>(-7, (-7, 40));
    check::<u16>(0, (-30, 300));
    check::<u32>(i128::from(i64::MIN), (i128::from(i64::MIN), i128::from(i64::MIN) + 77));
    check::<u64>(0, (-30, 300));
    check::<u128>(-(1 << 100), (-(1 << 100), -(1 << 100) + 77));
}

#[test]
fn codes_with_a_true_flag_pass() {
    for flags in [vec![], vec![false; 3], vec![true; 5], vec![false, true, true, false], vec![true, false, true]] {
        let predicate = LanePredicate::<u8>::from_flags(flags.iter().copied());
        for code in 0..=255_u8 {
            assert_eq!(
                predicate.admits(code),
                flags.get(usize::from(code)).copied().unwrap_or(false),
                "{flags:?} {code}"
            );
        }
    }
}

/// A predicate on lanes, and whether it is negated.
type Case<L> = (Kind<L>, bool);

/// Predicates of every kind, with bounds from the values of a column.
fn cases<L: Lane>(values: &[L]) -> Vec<Case<L>> {
    let value = |index: usize| values[index * 37 % values.len()];
    let (low, high) = (value(0).min(value(1)), value(0).max(value(1)));
    let mut listed: Vec<L> = (2..8).map(value).collect();
    listed.sort_unstable();
    let flags = |length: usize| (0..length).map(|index| u8::from(index % 7 < 3)).collect::<Vec<u8>>();
    let mut sorted: Vec<L> = listed.iter().map(|value| value.minus(listed[0])).collect();
    sorted.dedup();
    let mut kinds = vec![
        Kind::Range { low, span: high.minus(low) },
        Kind::Range { low: high, span: low.minus(high) },
        Kind::Range { low: high, span: L::default() },
        Kind::Range { low: L::MAX, span: L::from_u64(1) },
        // Ranges of half of all lane values, of one value more than half, and two of all values but one.
        Kind::Range { low, span: L::MAX.shr(1) },
        Kind::Range { low, span: L::MAX.minus(L::MAX.shr(1)) },
        Kind::Range { low: high, span: L::MAX.minus(L::from_u64(1)) },
        Kind::Range { low: L::default(), span: L::MAX.minus(L::from_u64(1)) },
        Kind::Table { low, flags: flags(9) },
        Kind::Table { low: listed[1], flags: flags(256) },
        Kind::Table { low: listed[1], flags: flags(1024) },
        Kind::Table { low: L::MAX, flags: flags(1025) },
        Kind::Sorted {
            low: listed[0],
            filter: NumberFilter::new(sorted.iter().map(|lane| lane.to_u64())),
            distances: sorted,
        },
    ];
    kinds.extend((1..=listed.len()).map(|count| Kind::OneOf(listed[..count].to_vec())));
    kinds.into_iter().flat_map(|kind| [(kind.clone(), false), (kind, true)]).collect()
}

/// Selection before a predicate runs. The second vector has no selected row, the others are partly selected.
fn initial_selection(rows: usize) -> Bitmap {
    let mut selection = Bitmap::all_set(rows);
    (0..rows).step_by(3).for_each(|row| selection.clear(row));
    selection.clear_range(rows.min(1024)..rows.min(2048));
    selection
}

/// Compares the filter of each predicate on several ranges of rows with [`LanePredicate::admits`] on single lanes, for
/// each instruction set. The source must hold `lanes`.
fn check_source<L: Lane>(source: LaneSource<L>, lanes: &[L], name: &str) {
    let rows = lanes.len();
    for (kind, negated) in cases(lanes) {
        let predicate = LanePredicate { kind, negated };
        let passing: Vec<bool> = lanes.iter().map(|lane| predicate.admits(*lane)).collect();
        for range in [0..rows, 5..rows, rows.min(1000)..rows.min(1030), rows / 2..rows - 1] {
            let mut expected = initial_selection(rows);
            range.clone().filter(|row| !passing[*row]).for_each(|row| expected.clear(row));
            InstructionSet::for_each_available(|set| {
                let mut selection = initial_selection(rows);
                predicate.filter(source, range.clone(), &mut selection);
                assert!(selection == expected, "{set:?}, {name}, {predicate:?} on {range:?}");
            });
        }
    }
}

/// Random numbers of `width` bits.
fn random<L: Lane>(width: usize, rows: usize) -> Vec<L> {
    let mut random = Random(7);
    let mut next = || {
        let number = L::from_u64(random.number());
        // About half of the numbers are small, so that tables match some.
        let number = if random.below(2) == 0 { number } else { number.and(L::from_u64(0x3ff)) };
        number.and(L::MAX.shr(L::BITS - width))
    };
    (0..rows).map(|_| next()).collect()
}

fn check_packed<L: Lane>(widths: Range<usize>) {
    let rows = 3 * VECTOR_ROWS + 100;
    for width in widths {
        let lanes: Vec<L> = random(width, rows.next_multiple_of(VECTOR_ROWS));
        let mut packed = vec![L::default(); lanes.len() / VECTOR_ROWS * width * L::GROUP_LANES];
        for (packed, lanes) in packed.chunks_exact_mut(width * L::GROUP_LANES).zip(lanes.as_chunks().0) {
            pack(width, lanes, packed);
        }
        check_source(LaneSource::Packed { width, packed: &packed }, &lanes[..rows], &format!("{width} of {}", L::BITS));
    }
}

#[test]
fn filters_of_packed_lanes_agree_with_single_lanes() {
    check_packed::<u8>(1..9);
    check_packed::<u16>(1..17);
    check_packed::<u32>(1..33);
    check_packed::<u64>(1..65);
}

#[test]
fn filters_of_plain_lanes_agree_with_single_lanes() {
    fn check<L: Lane>() {
        for rows in [1, 63, 64, 1000, 1024, 1025, 3 * 1024, 4 * 1024 + 77] {
            let lanes: Vec<L> = random(L::BITS, rows);
            check_source(LaneSource::Plain(&lanes), &lanes, "plain");
        }
    }
    check::<u8>();
    check::<u16>();
    check::<u32>();
    check::<u64>();
    check::<u128>();
}

#[test]
fn tables_are_looked_up_at_their_edges() {
    fn check<L: Lane>() {
        for low in [0, 7, u64::MAX - 100] {
            let low = L::from_u64(low);
            let distances =
                [0, 1, 254, 255, 256, 257, 1022, 1023, 1024, 1025, 1 << 16, 1 << 32, (1 << 32) + 1023, 1 << 63];
            let lanes: Vec<L> =
                distances.into_iter().map(|distance| L::from_u64(distance).minus(L::default().minus(low))).collect();
            for length in [255, 256, 1023, 1024] {
                for flags in [vec![1; length], (0..length).map(|index| u8::from(index % 2 == 1)).collect()] {
                    for negated in [false, true] {
                        let predicate = LanePredicate { kind: Kind::Table { low, flags: flags.clone() }, negated };
                        InstructionSet::for_each_available(|set| {
                            let mut selection = Bitmap::all_set(lanes.len());
                            predicate.filter(LaneSource::Plain(&lanes), 0..lanes.len(), &mut selection);
                            for (row, lane) in lanes.iter().enumerate() {
                                assert_eq!(
                                    selection.get(row),
                                    predicate.admits(*lane),
                                    "{set:?}, {predicate:?}: {lane:?}"
                                );
                            }
                        });
                    }
                }
            }
        }
    }
    check::<u8>();
    check::<u16>();
    check::<u32>();
    check::<u64>();
}

#[test]
fn filters_of_floating_point_agree_with_single_lanes() {
    for rows in [1, 1024, 2500] {
        let bits: Vec<u32> = random(32, rows);
        let ordered: Vec<u32> = bits.iter().map(|bits| (*bits as i32).flip_float_order() as u32).collect();
        check_source(LaneSource::Floats(&bits), &ordered, "32 bits");
        let bits: Vec<u64> = random(64, rows);
        let ordered: Vec<u64> = bits.iter().map(|bits| (*bits as i64).flip_float_order() as u64).collect();
        check_source(LaneSource::Floats(&bits), &ordered, "64 bits");
    }
}

#[test]
fn a_negated_range_becomes_a_range() {
    for (low, high) in [(0, 0), (0, 254), (1, 255), (3, 9), (255, 255), (0, 255)] {
        let predicate = LanePredicate::<u8>::new(&DatumPredicate::Range { low, high }, true, (0, 255), 0);
        assert!(
            (0..=255_u8).all(|lane| predicate.admits(lane) != (low..=high).contains(&i128::from(lane))),
            "{low} {high}"
        );
        assert!(!predicate.negated || predicate.fixed_result() == Some(false));
    }
}
