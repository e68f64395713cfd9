//! Tests that zones rule out no row that passes, and that zone maps survive writing and parsing.

use std::ops::Bound;

use proptest::prelude::*;
use taut_types::ColumnIndex;

use super::*;

fn number_zone(values: &[Option<i128>], rows_end: u32) -> Zone {
    let present = || values.iter().flatten();
    let bounds = present().min().zip(present().max());
    Zone {
        rows_end,
        nulls: values.iter().filter(|value| value.is_none()).count() as u32,
        bounds: bounds.map(|(min, max)| (Datum::Number(*min), Some(Datum::Number(*max)))),
        is_ascending: present().count() == values.len() && values.is_sorted() && values.len() > 1,
    }
}

fn bytes_zone(values: &[Option<Vec<u8>>], rows_end: u32) -> Zone {
    let present = || values.iter().flatten();
    let bounds = present().min().zip(present().max());
    Zone {
        rows_end,
        nulls: values.iter().filter(|value| value.is_none()).count() as u32,
        bounds: bounds.map(|(min, max)| (Datum::Bytes(lower_prefix(min).into()), upper_prefix(max).map(Datum::Bytes))),
        is_ascending: present().count() == values.len() && values.is_sorted() && values.len() > 1,
    }
}

/// Sorts the values that are not null, and divides them into zones of up to two.
fn sorted_zones<T: Ord + Copy>(zones: Vec<Vec<Option<T>>>) -> Vec<Vec<Option<T>>> {
    let mut values: Vec<T> = zones.into_iter().flatten().flatten().collect();
    values.sort_unstable();
    values.chunks(2).map(|zone| zone.iter().copied().map(Some).collect()).collect()
}

/// Checks that no row that passes is ruled out, no row that fails is certain, and the bytes parse to the same zones.
fn check(zones: Vec<(Zone, Vec<Option<Datum>>)>, form: ZoneFormat, predicate: DatumPredicate) {
    let values: Vec<Option<Datum>> = zones.iter().flat_map(|(_, values)| values.clone()).collect();
    let zones: Vec<Zone> = zones.into_iter().map(|(zone, _)| zone).collect();
    check_map(&ZoneMap::new(merge_similar_zones(zones.clone())), &values, form, &predicate);
    check_map(&ZoneMap::new(zones), &values, form, &predicate);
}

fn check_map(map: &ZoneMap, values: &[Option<Datum>], form: ZoneFormat, predicate: &DatumPredicate) {
    let mut bytes = Vec::new();
    map.write(form, &mut bytes);
    assert_eq!(ZoneMap::parse(&bytes, form, values.len() as u32), Ok(map.clone()));
    assert!(ZoneMap::parse(&bytes, form, values.len() as u32 + 1).is_err());
    let rows = values.len() as u32;
    for window in (0..rows).flat_map(|start| [start..start, start..start + 1, start..rows]) {
        let (start, zones) = map.overlapping_zones(&window);
        let mut starts = [0].into_iter().chain(map.zones().iter().map(|zone| zone.rows_end));
        let overlapping = map
            .zones()
            .iter()
            .zip(starts.by_ref())
            .filter(|(zone, start)| *start < window.end && window.start < zone.rows_end);
        let overlapping: Vec<_> = overlapping.collect();
        assert!(zones.iter().eq(overlapping.iter().map(|(zone, _)| *zone)), "{window:?} of {map:?}");
        assert!(overlapping.first().is_none_or(|(_, first)| *first == start), "{window:?} begins at {start}");
    }
    for negated in [false, true] {
        let predicate = ColumnPredicate { column: ColumnIndex(0), condition: predicate.clone(), negated };
        let mut candidates = RowRanges::full(values.len() as u32);
        map.prune(&predicate, &mut candidates);
        let certain = map.rows_certain_to_pass(&predicate);
        let mut by_zone = RowRanges::none();
        let mut start = 0;
        for zone in map.zones() {
            if zone.may_admit(&predicate) {
                by_zone.push(start..zone.rows_end);
            }
            start = zone.rows_end;
        }
        // All candidates are in zones that may pass. There may be fewer candidates, if the predicate lies between two
        // zones.
        let mut both = candidates.clone();
        both.intersect(&by_zone);
        assert_eq!(candidates, both, "{predicate:?}");
        for (row, value) in values.iter().enumerate() {
            let row = row as u32..row as u32 + 1;
            let passes = predicate.admits(value.as_ref());
            assert!(!passes || candidates.overlaps(&row), "{predicate:?}: {value:?} passes but is ruled out");
            assert!(passes || !certain.overlaps(&row), "{predicate:?}: {value:?} fails but counts as certain to pass");
        }
    }
}

proptest! {
    #[test]
    fn zones_of_numbers_rule_out_no_passing_row(
        zones in proptest::collection::vec(
            proptest::collection::vec(proptest::option::of(-6i128..6), 1..5), 1..6),
        low in -8i128..8, span in 0i128..6, wide in any::<bool>(), sorted in any::<bool>(),
    ) {
        let zones = if sorted { sorted_zones(zones) } else { zones };
        let scale = if wide { i128::MAX / 20 } else { 1 };
        let form = if wide { ZoneFormat::Wide } else { ZoneFormat::Narrow };
        let mut rows_end = 0;
        let zones: Vec<_> = zones.into_iter().map(|values| {
            let values: Vec<_> = values.into_iter().map(|value| value.map(|number| number * scale)).collect();
            rows_end += values.len() as u32;
            (number_zone(&values, rows_end), values.into_iter().map(|value| value.map(Datum::Number)).collect())
        }).collect();
        for predicate in [
            DatumPredicate::Range { low: low * scale, high: (low + span) * scale },
            DatumPredicate::Range { low: i128::MIN, high: low * scale },
            DatumPredicate::OneOf([low * scale, (low + span + 1) * scale].into()),
            DatumPredicate::Null,
        ] {
            check(zones.clone(), form, predicate);
        }
    }

    #[test]
    fn zones_of_bytes_rule_out_no_passing_row(
        zones in proptest::collection::vec(
            proptest::collection::vec(proptest::option::of((0..4u8, 0..20usize, 0..3u8)), 1..5), 1..6),
        low in (0..4u8, 0..20usize, 0..3u8), high in (0..4u8, 0..20usize, 0..3u8), sorted in any::<bool>(),
    ) {
        let zones = if sorted { sorted_zones(zones) } else { zones };
        // Long runs of one byte, so that values are equal up to where a prefix is cut.
        let value = |(byte, length, last): (u8, usize, u8)| {
            let mut bytes = vec![[0, 1, 0x61, 0xff][byte as usize]; length];
            bytes.push([0, 0x7f, 0xff][last as usize]);
            bytes
        };
        let mut rows_end = 0;
        let zones: Vec<_> = zones.into_iter().map(|values| {
            let values: Vec<_> = values.into_iter().map(|parts| parts.map(value)).collect();
            rows_end += values.len() as u32;
            let data = values.iter().map(|v| v.as_ref().map(|v| Datum::Bytes(v.as_slice().into()))).collect();
            (bytes_zone(&values, rows_end), data)
        }).collect();
        let (low, high) = (value(low), value(high));
        let mut pair = vec![low.clone().into_boxed_slice(), high.clone().into_boxed_slice()];
        pair.sort();
        pair.dedup();
        for predicate in [
            DatumPredicate::BytesRange { low: Bound::Included(low.clone().into()), high: Bound::Excluded(high.into()) },
            DatumPredicate::BytesRange { low: Bound::Excluded(low.clone().into()), high: Bound::Unbounded },
            DatumPredicate::BytesRange { low: Bound::Unbounded, high: Bound::Included(low.into()) },
            DatumPredicate::BytesOneOf(pair.into()),
            DatumPredicate::Null,
        ] {
            check(zones.clone(), ZoneFormat::Bytes, predicate);
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), rows in any::<u32>()) {
        for form in [ZoneFormat::Narrow, ZoneFormat::Wide, ZoneFormat::Bytes] {
            let _ = ZoneMap::parse(&bytes, form, rows);
        }
    }
}

#[test]
fn similar_neighbouring_zones_are_merged() {
    let zone = |rows_end, nulls, min, max, is_ascending| {
        let bounds = Some((Datum::Number(min), Some(Datum::Number(max))));
        Zone { rows_end, nulls, bounds, is_ascending }
    };
    let count = |zones: &[Zone]| merge_similar_zones(zones.to_vec()).len();
    let wide = [zone(10, 0, 0, 990, false), zone(20, 0, 10, 1000, false), zone(30, 0, 5, 1000, false)];
    assert_eq!(merge_similar_zones(wide.to_vec()), [zone(30, 0, 0, 1000, false)]);
    assert_eq!(count(&[zone(10, 3, 7, 7, false), zone(20, 1, 7, 7, false)]), 1);
    // Zones are not merged if one of them excludes much, ascends, has nulls while the other has none, or has only
    // nulls.
    assert_eq!(count(&[wide[0].clone(), zone(20, 0, 0, 700, false), wide[2].clone()]), 3);
    assert_eq!(count(&[wide[0].clone(), zone(20, 0, 0, 1000, true)]), 2);
    assert_eq!(count(&[wide[0].clone(), zone(20, 1, 0, 1000, false)]), 2);
    assert_eq!(count(&[wide[0].clone(), Zone { bounds: None, ..zone(20, 10, 0, 0, false) }]), 2);
    // The bounds of these zones are as far apart as possible.
    let least = zone(10, 0, i128::MIN, i128::MAX, false);
    assert_eq!(count(&[least.clone(), zone(20, 0, i128::MIN, i128::MAX, false)]), 1);
    assert_eq!(count(&[least, zone(20, 0, 0, 9, false)]), 2);
    assert_eq!(count(&wide[..1]), 1);
    assert_eq!(count(&[]), 0);
    // Long zones stay unchanged, and short ones are merged to the same length.
    let long =
        |rows: u32| (1..=30_000 / rows).map(|ordinal| zone(ordinal * rows, 0, 0, 1000, false)).collect::<Vec<_>>();
    assert_eq!(merge_similar_zones(long(10_000)), long(10_000));
    let ends: Vec<u32> = merge_similar_zones(long(1000)).iter().map(|zone| zone.rows_end).collect();
    assert_eq!(ends, [9000, 18_000, 27_000, 30_000]);
}

#[test]
fn prefixes_bound_the_values_they_truncate() {
    assert_eq!(upper_prefix(b"short").as_deref(), Some(&b"short"[..]));
    assert_eq!(upper_prefix(b"0123456789abcdefg").as_deref(), Some(&b"0123456789abcdeg"[..]));
    assert_eq!(upper_prefix(&[0xff; 17]), None);
    let mut tail_full = [0xff; 17];
    tail_full[0] = 7;
    assert_eq!(upper_prefix(&tail_full).as_deref(), Some(&[8][..]));
}
