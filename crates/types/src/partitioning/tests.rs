//! Tests of hashes and boundaries, and that no partition with a passing row is ruled out.

use std::sync::Arc;

use arrow_array::{Array, BinaryViewArray, Float64Array, Int16Array, Int64Array, StringViewArray};

use super::*;
use crate::{ColumnIndex, datum_at};

const COLUMN: ColumnIndex = ColumnIndex(2);

fn design(method: PartitionMethod, count: u32) -> PartitionDesign {
    PartitionDesign { method, column: COLUMN, count }
}

fn hash(count: u32) -> Partitioning {
    Partitioning::without_boundaries(design(PartitionMethod::Hash, count)).unwrap()
}

fn range(count: u32, logical: LogicalType, sample: Vec<Datum>) -> Partitioning {
    Partitioning::from_sample(design(PartitionMethod::Range, count), logical, sample).unwrap()
}

fn numbers_of(values: impl IntoIterator<Item = i128>) -> Vec<Datum> {
    values.into_iter().map(Datum::Number).collect()
}

fn bytes_of(values: &[&str]) -> Vec<Datum> {
    values.iter().map(|value| Datum::Bytes(value.as_bytes().into())).collect()
}

/// The partitions of these values must never change, because files on disk depend on them. The expected hashes are XXH3
/// of the 16 bytes of a number, or of the bytes. The reference implementation computed them (python-xxhash).
#[test]
fn hashes_are_stable() {
    let hash = hash(1000);
    let of = |number| hash.partition_of_number(number, LogicalType::BigInt);
    assert_eq!([0, 1, -1, 42, i128::from(i64::MAX)].map(of), [848, 945, 259, 341, 178]);
    assert_eq!(
        ["", "a", "é", "a longer text of more than sixteen bytes"].map(|text| hash.partition_of_bytes(text.as_bytes())),
        [138, 719, 795, 490]
    );
}

#[test]
fn hashes_do_not_depend_on_type_or_array() {
    let hash = hash(1024);
    let small: ArrayRef = Arc::new(Int16Array::from(vec![Some(-7), None, Some(300)]));
    let big: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None, Some(300)]));
    assert_eq!(
        hash.partitions_of_rows(&small, LogicalType::SmallInt),
        hash.partitions_of_rows(&big, LogicalType::BigInt)
    );
    let text: ArrayRef = Arc::new(StringViewArray::from(vec![Some("x"), None, Some("a text that is not inline")]));
    let bytes: ArrayRef =
        Arc::new(BinaryViewArray::from(vec![Some(&b"x"[..]), None, Some(&b"a text that is not inline"[..])]));
    let rows = hash.partitions_of_rows(&text, LogicalType::Varchar);
    assert_eq!(rows, hash.partitions_of_rows(&bytes, LogicalType::Bytea));
    assert_eq!(rows[1], 1024);
    for (row, partition) in rows.into_iter().enumerate() {
        assert_eq!(
            hash.partition_of(datum_at(&text, LogicalType::Varchar, row).as_ref(), LogicalType::Varchar),
            partition
        );
    }
}

#[test]
fn equal_floating_point_numbers_have_one_partition() {
    let nan = f64::from_bits(0xfff8_0000_0000_0001);
    let values: ArrayRef =
        Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, nan, -f64::NAN, f64::INFINITY, -f64::INFINITY]));
    let rows = hash(1024).partitions_of_rows(&values, LogicalType::Double);
    assert_eq!(rows[0], rows[1]);
    assert!(rows[3..5].iter().all(|partition| *partition == rows[2]));
    assert_ne!(rows[5], rows[6]);
    let sample = (0..values.len()).filter_map(|row| datum_at(&values, LogicalType::Double, row)).collect();
    let rows = range(7, LogicalType::Double, sample).partitions_of_rows(&values, LogicalType::Double);
    assert_eq!(rows[0], rows[1], "{rows:?}");
    assert!(rows[6] < rows[0] && rows[0] < rows[5] && rows[5] < rows[2], "{rows:?}");
}

#[test]
fn boundaries_are_quantiles_and_never_within_equal_values() {
    let partitions = range(4, LogicalType::BigInt, numbers_of((0..100).rev()));
    assert_eq!(partitions.boundaries, numbers_of([25, 50, 75]));
    assert!(partitions.is_complete());
    assert_eq!(
        [-5, 24, 25, 99, 1000].map(|number| partitions.partition_of_number(number, LogicalType::BigInt)),
        [0, 0, 1, 3, 3]
    );
    assert_eq!(partitions.bounds(0), (None, Some(&Datum::Number(25))));
    assert_eq!(partitions.bounds(3), (Some(&Datum::Number(75)), None));
    assert_eq!(partitions.bounds(4), (None, None));
    // Half of the values are equal, so there are fewer partitions.
    let repeated = range(4, LogicalType::BigInt, numbers_of((0..100).map(|value| i128::min(value, 50))));
    assert_eq!(repeated.boundaries, numbers_of([25, 50]));
    assert_eq!(repeated.null_partition(), 4);
    let skewed = range(4, LogicalType::BigInt, numbers_of([7, 7, 7, 7, 7, 7, 7, 9]));
    assert_eq!((skewed.boundaries.as_slice(), skewed.is_divided()), (numbers_of([9]).as_slice(), true));
    assert!(!range(4, LogicalType::BigInt, numbers_of([7; 9])).is_divided());
    assert!(!range(1, LogicalType::BigInt, numbers_of(0..9)).is_divided());
    assert_eq!(Partitioning::from_sample(design(PartitionMethod::Range, 4), LogicalType::BigInt, vec![]), None);
    let text = range(2, LogicalType::Varchar, bytes_of(&["abacus", "abbey", "abbot", "about"]));
    assert_eq!(text.boundaries, bytes_of(&["abbo"]));
    let long = |end: &str| "x".repeat(5000) + end;
    let long = range(2, LogicalType::Varchar, bytes_of(&[&long("a"), &long("b")]));
    assert!(long.boundaries.is_empty(), "what does not differ in the first {BOUNDARY_BYTES_MAX} bytes is not divided");
}

/// For every small value, partitioning and predicate: a partition is ruled out only if no row in it passes.
#[test]
fn excluded_partitions_have_no_matching_row() {
    let datum = |number: i128| Datum::Number(number);
    let text = |number: i128| Datum::Bytes(format!("{number:02}").into_bytes().into());
    let bytes = |number: i128| text(number).bytes().map(Box::<[u8]>::from).unwrap();
    let mut predicates = vec![
        DatumPredicate::Null,
        DatumPredicate::OneOf(Arc::from([])),
        DatumPredicate::OneOf(Arc::from([3, 9, 40])),
        DatumPredicate::BytesOneOf(Arc::from([])),
    ];
    predicates.push(DatumPredicate::BytesOneOf([3, 9, 40].map(bytes).into()));
    for low in -1..12 {
        predicates.extend((low - 1..12).map(|high| DatumPredicate::Range { low, high }));
        predicates.push(DatumPredicate::Range { low, high: i128::MAX });
        predicates.push(DatumPredicate::Range { low: i128::MIN, high: low });
        for high in 0..12 {
            let high = bytes(high);
            predicates.push(DatumPredicate::BytesRange {
                low: Bound::Included(bytes(low)),
                high: Bound::Included(high.clone()),
            });
            predicates
                .push(DatumPredicate::BytesRange { low: Bound::Excluded(bytes(low)), high: Bound::Excluded(high) });
        }
        predicates.push(DatumPredicate::BytesRange { low: Bound::Unbounded, high: Bound::Excluded(bytes(low)) });
        predicates.push(DatumPredicate::BytesRange { low: Bound::Excluded(bytes(low)), high: Bound::Unbounded });
    }
    let mut ruled_out = 0;
    for count in [1, 2, 5] {
        let numbers = || (0..10).map(datum).collect();
        let texts = || (0..10).map(text).collect();
        for (partitions, logical) in [
            (hash(count), LogicalType::BigInt),
            (hash(count), LogicalType::Varchar),
            (range(count, LogicalType::BigInt, numbers()), LogicalType::BigInt),
            (range(count, LogicalType::Varchar, texts()), LogicalType::Varchar),
        ] {
            for (predicate, negated) in predicates.iter().flat_map(|predicate| [(predicate, false), (predicate, true)])
            {
                let is_bytes = matches!(predicate, DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_));
                if *predicate != DatumPredicate::Null && is_bytes != logical.is_bytes() {
                    continue;
                }
                let predicate = ColumnPredicate { column: COLUMN, condition: predicate.clone(), negated };
                let other = ColumnPredicate {
                    column: ColumnIndex(1),
                    condition: DatumPredicate::OneOf(Arc::from([])),
                    negated: false,
                };
                let admitted = partitions.admitted(&[predicate.clone(), other], logical);
                assert_eq!(admitted.len() as u32, partitions.null_partition() + 1);
                ruled_out += admitted.iter().filter(|admits| !**admits).count();
                let make: fn(i128) -> Datum = if logical.is_bytes() {
                    |n| Datum::Bytes(format!("{n:02}").into_bytes().into())
                } else {
                    Datum::Number
                };
                for datum in (-2..14).map(|number| Some(make(number))).chain([None]) {
                    let partition = partitions.partition_of(datum.as_ref(), logical) as usize;
                    assert!(
                        admitted[partition] || !predicate.admits(datum.as_ref()),
                        "{partitions:?} {predicate:?} {datum:?}"
                    );
                }
            }
        }
    }
    assert!(ruled_out > 500, "{ruled_out}");
}

#[test]
fn points_lists_and_short_ranges_select_few_hash_partitions() {
    let hash = hash(64);
    let admitted = |predicate| {
        let admitted = hash.admitted(&[ColumnPredicate::new(COLUMN, predicate)], LogicalType::BigInt);
        admitted.into_iter().filter(|admits| *admits).count()
    };
    assert_eq!(admitted(DatumPredicate::Range { low: 5, high: 5 }), 1);
    assert!(admitted(DatumPredicate::Range { low: 5, high: 7 }) <= 3);
    assert!(admitted(DatumPredicate::OneOf(Arc::from([1, 2, 3, 4]))) <= 4);
    assert_eq!(admitted(DatumPredicate::Range { low: 0, high: 1 << 40 }), 64);
    assert_eq!(admitted(DatumPredicate::Range { low: i128::MIN, high: 5 }), 64);
    assert_eq!(admitted(DatumPredicate::Null), 1);
}

#[test]
fn load_positions_of_range_partitions_follow_the_sort_order() {
    let sort = |descending, nulls_first| [SortColumn { column: COLUMN, descending, nulls_first }];
    let partitions = range(3, LogicalType::BigInt, numbers_of(0..9));
    let ranked = |sort_by: &[SortColumn]| {
        let mut order = vec![0, 1, 2, 3];
        order.sort_by_key(|partition| partitions.load_position(*partition, sort_by));
        order
    };
    assert_eq!(ranked(&sort(false, false)), [0, 1, 2, 3]);
    assert_eq!(ranked(&sort(false, true)), [3, 0, 1, 2]);
    assert_eq!(ranked(&sort(true, true)), [3, 2, 1, 0]);
    assert_eq!(ranked(&sort(true, false)), [2, 1, 0, 3]);
    assert!(partitions.follows_sort_order(&sort(true, true)) && !hash(3).follows_sort_order(&sort(true, true)));
    assert!(!partitions.follows_sort_order(&[SortColumn { column: ColumnIndex(0), ..sort(true, true)[0] }]));
}

#[test]
fn invalid_partitions_are_rejected() {
    let check = |change: fn(&mut Partitioning), logical| {
        let mut partitions = range(4, LogicalType::BigInt, numbers_of(0..100));
        change(&mut partitions);
        partitions.check(logical)
    };
    assert_eq!(check(|_| (), LogicalType::Date), Ok(()));
    assert!(check(|_| (), LogicalType::Varchar).is_err());
    assert!(check(|partitions| partitions.design.count = 0, LogicalType::Date).is_err());
    assert!(check(|partitions| partitions.design.count = 1025, LogicalType::Date).is_err());
    assert!(check(|partitions| partitions.design.count = 3, LogicalType::Date).is_err());
    assert!(check(|partitions| partitions.boundaries[1] = Datum::Number(25), LogicalType::Date).is_err());
    assert!(check(|partitions| partitions.design.method = PartitionMethod::Hash, LogicalType::Date).is_err());
    let partitions = range(4, LogicalType::Varchar, bytes_of(&["a", "b", "c", "d"]));
    let json = serde_json::to_string(&partitions).unwrap();
    assert_eq!(serde_json::from_str::<Partitioning>(&json).unwrap(), partitions);
}
