//! Tests of the choice, and of the estimates that it compares.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use super::*;
use crate::head::{Head, Writer};
use crate::{Choice, encode, numbers};
use arrow_array::{ArrayRef, Int64Array};
use std::sync::Arc;
use taut_types::LogicalType;

fn choose(values: &[i64]) -> Encoding {
    super::choose(&Statistics::collect(values, 8), Nesting::for_column(false), &mut ChoiceScratch::default())
}

#[test]
fn decimals_in_floating_point_are_found_and_fractions_are_not() {
    let choose = |value: &dyn Fn(i64) -> f64| {
        let numbers: Vec<i64> = (0..65_536).map(|row| taut_types::f64_to_ordered(value(row))).collect();
        super::choose(&Statistics::collect(&numbers, 8), Nesting::for_column(true), &mut ChoiceScratch::default())
    };
    assert_eq!(choose(&|row| (row * 7_919 % 99_991) as f64 / 100.0), Encoding::Alp);
    assert_eq!(choose(&|row| if row % 50 == 3 { f64::NAN } else { (row * 7_919 % 99_991) as f64 }), Encoding::Alp);
    assert_eq!(choose(&|row| (row as f64).sin()), Encoding::Plain);
}

#[test]
fn each_encoding_is_chosen_for_its_data() {
    // Numbers are hashed twice, because hashing once gives few distinct steps between rows.
    let hash = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    let mixed = |row: i64| (hash(hash(row) >> 29) >> 20).rem_euclid(4_001);
    let values = |value: &dyn Fn(i64) -> i64| (0..65_536).map(value).collect::<Vec<i64>>();
    assert_eq!(choose(&values(&|_| 5)), Encoding::Constant);
    assert_eq!(choose(&values(&mixed)), Encoding::BitPacked);
    assert_eq!(choose(&values(&|row| mixed(row) - 7)), Encoding::FrameOfReference);
    assert_eq!(choose(&values(&|row| mixed(row) % 7 * (i64::MAX / 7))), Encoding::Dictionary);
    assert_eq!(choose(&values(&|row| mixed(row / 100))), Encoding::RunLength);
    let outlier = |row: i64| if row % 300 == 7 { i64::MIN + row } else { mixed(row) };
    assert_eq!(choose(&values(&outlier)), Encoding::Patched);
    let skewed = |row: i64| (u64::MAX / (row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) as u64 | 1)) as i64;
    assert_eq!(choose(&values(&skewed)), Encoding::Patched);
    assert_eq!(choose(&values(&|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64))), Encoding::Plain);
}

/// Ascending numbers with gaps.
fn ascending_with_gaps(rows: usize) -> Vec<i64> {
    (0_i64..).filter(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40 & 1 != 0).take(rows).collect()
}

/// Keys like `l_orderkey` of TPC-H: each occurs in three or four rows, and only the first eight of every 32 numbers are
/// keys.
fn order_key(row: i64) -> i64 {
    let order = row * 2 / 7;
    order / 8 * 32 + order % 8
}

#[test]
fn encodings_that_use_order_are_chosen_for_ordered_data() {
    let values = |value: &dyn Fn(i64) -> i64| (0..65_536).map(value).collect::<Vec<i64>>();
    let hash = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40;
    assert_eq!(choose(&values(&|row| row + 5_000_000)), Encoding::Bitmap);
    assert_eq!(choose(&ascending_with_gaps(65_536)), Encoding::Bitmap);
    assert_eq!(choose(&values(&|row| 1_000_000 * row - hash(row).rem_euclid(999))), Encoding::Delta);
    assert_eq!(choose(&values(&|row| -7 * row)), Encoding::Delta);
    assert_eq!(choose(&values(&order_key)), Encoding::RunLengthDelta);
    assert_eq!(choose(&values(&|row| hash(row).rem_euclid(65_000) - 9)), Encoding::TwoByteDelta);
    // One row out of order makes two steps exceptions. If one row in ten is out of order, there are too many
    // exceptions.
    assert_eq!(choose(&values(&|row| if row == 40_001 { 0 } else { row })), Encoding::Delta);
    assert_eq!(choose(&values(&|row| if row % 10 == 1 { 0 } else { row })), Encoding::TwoByteDelta);
}

#[test]
fn the_chosen_encoding_is_never_larger_than_the_choice_by_values() {
    let hash = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    let shapes: [&dyn Fn(i64) -> i64; 9] = [
        &|row| row,
        &|row| -3 * row,
        &|row| row * row,
        &|row| row / 9 * 25 + i64::MIN,
        &|row| hash(row / 5),
        &|row| hash(row) >> 45,
        &|row| row * 3600 + (hash(row) >> 58),
        &|row| row % 100,
        &order_key,
    ];
    for rows in [1, 2, 9, 63, 500, 1024, 1025, 5000, 65_536] {
        for (index, shape) in shapes.iter().enumerate() {
            let values: Vec<i64> = (0..rows).map(shape).collect();
            let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
            let size = |choice| encode(&array, LogicalType::BigInt, choice).unwrap().len();
            let by_values = choose_by_values(
                &Statistics::collect(&values, 8),
                Nesting::for_column(false),
                &mut ChoiceScratch::default(),
            );
            let (by_values, automatic) = (size(Choice::Forced(by_values)), size(Choice::Auto));
            assert!(automatic <= by_values, "shape {index} of {rows} rows: {automatic} bytes, by values {by_values}");
        }
    }
}

/// Checks the estimate of each encoding that can hold the numbers against the bytes that it writes. Adds the encodings
/// to `checked`.
fn check_estimates<N: Native>(
    name: &str,
    values: &[N],
    plain_bytes: usize,
    is_float: bool,
    checked: &mut Vec<Encoding>,
) {
    let (statistics, nesting) = (Statistics::collect(values, plain_bytes), Nesting::for_column(is_float));
    for encoding in Encoding::ALL {
        let head = Head { plain_bytes, rows: values.len(), ..Head::new(encoding) };
        let head_bytes = Writer::with_capacity(0).finish(head).len();
        let chunk = numbers::encode(values, nesting, Choice::Forced(encoding), head, Writer::with_capacity(0));
        let Ok(chunk) = chunk else { continue };
        let written = chunk.len() - head_bytes;
        let mut scratch = ChoiceScratch::default();
        match encoding {
            Encoding::Dictionary => scratch.distinct = distinct::of_numbers(values, values.len()),
            Encoding::Alp => scratch.decimals = Decimals::find(values, plain_bytes, usize::MAX),
            Encoding::Patched => {
                find_windows(&statistics, nesting, usize::MAX, &mut scratch);
            }
            _ => {}
        }
        let bytes = estimate(encoding, &statistics, &mut scratch).unwrap();
        let agrees = match encoding {
            Encoding::RunLength => bytes <= written,
            // Estimated from a sample, so there is no bound. `marked.rs` tests the bytes.
            Encoding::Patched if scratch.marked.is_some() => true,
            // The estimate ignores the padding of the two parts of exceptions, less than 64 bytes each.
            Encoding::Patched | Encoding::Alp => (bytes..bytes + 128).contains(&written),
            _ => bytes == written,
        };
        assert!(agrees, "{name}, {} rows: {encoding:?} takes {written} bytes, estimated {bytes}", values.len());
        checked.push(encoding);
    }
}

#[test]
fn estimates_agree_with_the_bytes_that_are_written() {
    let mut checked = vec![];
    for table in taut_testkit::tables(5) {
        let model = taut_testkit::Model::of(&table);
        for (index, column) in table.schema.columns().iter().enumerate() {
            let Some(plain_bytes) = column.logical_type.plain_bytes() else { continue };
            let is_float = matches!(column.logical_type, LogicalType::Real | LogicalType::Double);
            let numbers = model.rows.iter().filter_map(|row| row[index].as_ref()?.number());
            let numbers: Vec<i128> = numbers.take(crate::CHUNK_ROWS_MAX).collect();
            let narrow: Option<Vec<i64>> = numbers.iter().map(|number| i64::try_from(*number).ok()).collect();
            match narrow {
                _ if numbers.is_empty() => {}
                Some(narrow) => check_estimates(&table.name, &narrow, plain_bytes, is_float, &mut checked),
                None => check_estimates(&table.name, &numbers, plain_bytes, is_float, &mut checked),
            }
        }
    }
    let unchecked = |encoding: &Encoding| !checked.contains(encoding);
    let unchecked: Vec<Encoding> = Encoding::ALL.into_iter().filter(unchecked).collect();
    assert_eq!(unchecked, [Encoding::Fsst, Encoding::FrontCoded]);
}
