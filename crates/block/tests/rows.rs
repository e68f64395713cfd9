//! Tests that serialized rows decode to the same rows, and that other bytes are rejected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, Int32Array, RecordBatch, StringViewArray};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_block::{BuildError, CorruptRows, rows};
use taut_testkit::{Model, Nulls, Shape, TYPES, agree, array_of, column_values, tables};
use taut_types::{Column, ColumnIndex, LogicalType, Schema};

const SEED: u64 = 31;

fn schema_of(columns: Vec<(LogicalType, bool)>) -> Arc<Schema> {
    let column = |(index, (logical, nullable))| Column::new(format!("c{index}"), logical, nullable);
    Arc::new(Schema::new(columns.into_iter().enumerate().map(column).collect()).unwrap())
}

/// Rows of every type, some of them null.
fn all_types(rows: usize, shape: Shape, nulls: Nulls, random: &mut StdRng) -> (Arc<Schema>, RecordBatch) {
    let schema = schema_of(TYPES.iter().map(|logical| (*logical, nulls != Nulls::None)).collect());
    let arrays =
        TYPES.iter().map(|logical| array_of(&column_values(*logical, shape, nulls, rows, random), *logical)).collect();
    let batch = RecordBatch::try_new(schema.arrow(), arrays).unwrap();
    (schema, batch)
}

fn encoded(schema: &Schema, batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = vec![];
    rows::encode(schema, batch, &mut bytes).unwrap();
    bytes
}

#[track_caller]
fn assert_round_trip(schema: &Arc<Schema>, batch: &RecordBatch) {
    let model = Model::from_batches(schema, std::slice::from_ref(batch));
    let mut bytes = b"before".to_vec();
    rows::encode(schema, batch, &mut bytes).unwrap();
    assert_eq!(&bytes[..6], b"before");
    let found = rows::decode(schema, &bytes[6..]).unwrap();
    assert_eq!(found.schema(), schema.arrow());
    assert_eq!(found.num_rows(), batch.num_rows());
    let all: Vec<ColumnIndex> = (0..schema.len()).map(ColumnIndex::from).collect();
    let positions: Vec<usize> = (0..batch.num_rows()).collect();
    agree(&model, &positions, &all, found.columns());
    assert_eq!(encoded(schema, &found), bytes[6..], "the encoding is canonical");
}

/// Whether decoding rejects the bytes. If not, asserts that encoding the decoded rows yields the same bytes.
fn is_rejected(schema: &Arc<Schema>, bytes: &[u8]) -> bool {
    let found = rows::decode(schema, bytes);
    if let Ok(batch) = &found {
        assert_eq!(encoded(schema, batch), bytes, "bytes that decode are canonical");
    }
    found.is_err_and(|error| error.at <= bytes.len())
}

#[test]
fn rows_of_every_type_and_shape_round_trip() {
    let mut random = StdRng::seed_from_u64(SEED);
    for shape in Shape::ALL {
        for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
            for rows in [0, 1, 2, 7, 8, 9, 63, 64, 65, 300] {
                let (schema, batch) = all_types(rows, shape, nulls, &mut random);
                assert_round_trip(&schema, &batch);
            }
        }
    }
}

#[test]
fn tables_round_trip_by_batch_and_by_row() {
    let mut random = StdRng::seed_from_u64(SEED);
    for table in tables(SEED).into_iter().filter(|table| table.name != "70000 rows") {
        let schema = Arc::new(table.schema);
        for batch in &table.batches {
            assert_round_trip(&schema, batch);
            // Slices share the buffers of the whole batch.
            for _ in 0..5 {
                assert_round_trip(&schema, &batch.slice(random.random_range(0..batch.num_rows()), 1));
                let low = random.random_range(0..batch.num_rows());
                assert_round_trip(&schema, &batch.slice(low, random.random_range(0..=batch.num_rows() - low)));
            }
        }
    }
}

#[test]
fn a_row_of_integers_is_short() {
    let schema = schema_of(vec![(LogicalType::Integer, true); 16]);
    let row = |value: Option<i32>| {
        let arrays = (0..16).map(|_| Arc::new(Int32Array::from(vec![value])) as ArrayRef).collect();
        RecordBatch::try_new(schema.arrow(), arrays).unwrap()
    };
    assert_eq!(encoded(&schema, &row(Some(7))).len(), 4 + 2 + 16 * 4);
    assert_eq!(encoded(&schema, &row(None)).len(), 4 + 2 + 16 * (1 + 4));
}

/// Compares the bytes with the picture at the head of `src/rows.rs`.
#[test]
fn bytes_match_the_documented_format() {
    let types = vec![(LogicalType::Boolean, false), (LogicalType::Varchar, true), (LogicalType::SmallInt, true)];
    let schema = schema_of(types);
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![true, false])),
        Arc::new(StringViewArray::from(vec![None, Some("é")])),
        Arc::new(arrow_array::Int16Array::from(vec![-2, 259])),
    ];
    let batch = RecordBatch::try_new(schema.arrow(), arrays).unwrap();
    // Count of rows; only column 1 has nulls; column 0; column 1: null in row 0, two lengths, "é"; column 2.
    let expected = [2, 0, 0, 0, 0b010, 1, 0, 0b01, 0, 0, 0, 0, 2, 0, 0, 0, 0xc3, 0xa9, 0xfe, 0xff, 3, 1];
    assert_eq!(encoded(&schema, &batch), expected);
    // Error of decoding with `byte` at offset `at`.
    let decode_error = |at: usize, byte: u8| {
        let mut bytes = expected.to_vec();
        bytes[at] = byte;
        let CorruptRows { at, expected } = rows::decode(&schema, &bytes).unwrap_err();
        (at, expected)
    };
    assert_eq!(decode_error(3, 255), (5, "a number for each row"));
    assert_eq!(decode_error(4, 0b1010), (4, "unused bits that are zero"));
    assert_eq!(decode_error(4, 0b011), (5, "no nulls, because the column is not nullable"));
    assert_eq!(decode_error(6, 2), (6, "0 or 1"));
    assert_eq!(decode_error(7, 0b101), (7, "unused bits that are zero"));
    assert_eq!(decode_error(7, 0), (7, "at least one null, because the column has nulls"));
    assert_eq!(decode_error(9, 1), (8, "zero under a null"));
    assert_eq!(decode_error(12, 7), (16, "as many bytes as the lengths say"));
    assert_eq!(decode_error(12, 3), (16, "UTF-8 text"));
    assert_eq!(decode_error(17, b'a'), (16, "UTF-8 text"));
    assert_eq!(decode_error(12, 0), (20, "the end"));
}

/// A value must not end within a character, even if the whole buffer is valid UTF-8.
#[test]
fn values_do_not_end_within_a_character() {
    let schema = schema_of(vec![(LogicalType::Varchar, false)]);
    let bytes = [3, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, b'a', 0xc3, 0xa9];
    assert_eq!(rows::decode(&schema, &bytes), Err(CorruptRows { at: 18, expected: "UTF-8 text" }));
}

#[test]
fn decimals_have_the_digits_of_their_type() {
    for (precision, width) in [(1, 4), (9, 4), (18, 8), (38, 16)] {
        let logical = LogicalType::Decimal { precision, scale: 0 };
        let schema = schema_of(vec![(logical, false)]);
        let limit = 10_i128.pow(precision.into());
        for (value, fits) in [(limit - 1, true), (1 - limit, true), (limit, false), (-limit, false)] {
            let array = Decimal128Array::from(vec![0, value]).with_data_type(logical.arrow());
            let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::new(array)]).unwrap();
            let mut bytes = vec![1, 2, 3];
            let encoded = rows::encode(&schema, &batch, &mut bytes);
            if fits {
                assert_round_trip(&schema, &batch);
            } else {
                assert!(matches!(encoded, Err(BuildError::Range { .. })));
                assert_eq!(bytes, [1, 2, 3], "an encoding that fails appends nothing");
                let mut bytes = vec![1, 0, 0, 0, 0];
                bytes.extend_from_slice(&value.to_le_bytes()[..width]);
                let expected = "as many digits as the type";
                assert_eq!(rows::decode(&schema, &bytes), Err(CorruptRows { at: 5, expected }));
            }
        }
    }
}

#[test]
fn rows_of_another_schema_are_rejected() {
    let mut bytes = vec![];
    let integers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let schema = schema_of(vec![(LogicalType::Integer, true)]);
    let batch = RecordBatch::try_new(schema.arrow(), vec![integers]).unwrap();
    let strict = schema_of(vec![(LogicalType::Integer, false)]);
    assert!(matches!(rows::encode(&strict, &batch, &mut bytes), Err(BuildError::Null { .. })));
    let other = schema_of(vec![(LogicalType::BigInt, true)]);
    assert!(matches!(rows::encode(&other, &batch, &mut bytes), Err(BuildError::Mismatch { column: 0, .. })));
    let wider = schema_of(vec![(LogicalType::Integer, true); 2]);
    assert!(matches!(rows::encode(&wider, &batch, &mut bytes), Err(BuildError::Mismatch { column: 1, .. })));
    assert!(bytes.is_empty());
    rows::encode(&schema, &batch, &mut bytes).unwrap();
    for schema in [strict, other, wider] {
        assert!(rows::decode(&schema, &bytes).is_err());
    }
}

#[test]
fn every_truncation_is_rejected_and_no_flip_panics() {
    let mut random = StdRng::seed_from_u64(SEED);
    for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
        for rows in [0, 1, 9] {
            let (schema, batch) = all_types(rows, Shape::Random, nulls, &mut random);
            let mut bytes = encoded(&schema, &batch);
            for length in 0..bytes.len() {
                assert!(rows::decode(&schema, &bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
            bytes.push(0);
            assert!(is_rejected(&schema, &bytes), "a byte too many");
            bytes.pop();
            for at in 0..bytes.len() {
                let byte = bytes[at];
                for changed in (0..8).map(|bit| byte ^ 1 << bit).chain([0, 0xff]).filter(|changed| *changed != byte) {
                    bytes[at] = changed;
                    let rejected = is_rejected(&schema, &bytes);
                    assert!(rejected || at >= 4, "a changed count of rows, at byte {at}, is accepted");
                }
                bytes[at] = byte;
            }
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_rejected_or_round_trip(
        rows in prop_oneof![0_u32..5, Just(u32::MAX), any::<u32>()],
        bytes in proptest::collection::vec(prop_oneof![Just(0), 0_u8..3, any::<u8>()], 0..200),
        columns in proptest::collection::vec((0..TYPES.len(), any::<bool>()), 1..4),
    ) {
        let schema = schema_of(columns.into_iter().map(|(logical, nullable)| (TYPES[logical], nullable)).collect());
        is_rejected(&schema, &bytes);
        let mut with_count = rows.to_le_bytes().to_vec();
        // No column has nulls.
        with_count.push(0);
        with_count.extend_from_slice(&bytes);
        is_rejected(&schema, &with_count);
    }
}
