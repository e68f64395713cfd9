//! Abstraction levels: which sort columns become levels, how levels are encoded, and how many bytes they save.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringViewArray};
use common::{build, open};
use taut_block::{BlockImage, BuildError};
use taut_types::{Column, ColumnIndex, LogicalType, Schema, TableDesign};

const ROWS: i32 = 60_000;

/// A table sorted by its columns from left to right: a constant, runs of 500 rows, numbers that restart in each run and
/// ascend in it, random numbers of 20 bits, and text that is null in the first row.
fn table() -> (Schema, RecordBatch) {
    let hash = |row: i32| i64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("same", Arc::new(Int32Array::from_iter_values((0..ROWS).map(|_| 7)))),
        ("runs", Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row / 500)))),
        (
            "restarting",
            Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row % 500 * 9 + (hash(row) & 7) as i32))),
        ),
        ("number", Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| (hash(row) & 0xfffff) as i32)))),
        (
            "text",
            Arc::new(StringViewArray::from_iter((0..ROWS).map(|row| (row > 0).then(|| format!("part {}", row / 70))))),
        ),
    ];
    let logical = |name| if name == "text" { LogicalType::Varchar } else { LogicalType::Integer };
    let schema = columns.iter().map(|(name, _)| Column::new(*name, logical(*name), *name == "text"));
    let schema = Schema::new(schema.collect()).unwrap();
    let batch = RecordBatch::try_new(schema.arrow(), columns.into_iter().map(|(_, array)| array).collect()).unwrap();
    (schema, batch)
}

fn try_build(options: &[(&str, &str)]) -> Result<BlockImage, BuildError> {
    let (schema, batch) = table();
    let design = TableDesign::from_options(options.iter().copied(), &schema).unwrap();
    build(&schema, &design, &[batch]).map(|mut images| images.remove(0))
}

/// Storage description of each column.
fn stored(options: &[(&str, &str)]) -> Vec<String> {
    let (block, sections) = open(&try_build(options).unwrap());
    block.check(&sections).unwrap();
    let storage = |column| block.column_storage(&sections, ColumnIndex::from(column)).unwrap().remove(0).description;
    (0..block.columns()).map(storage).collect()
}

fn bytes(options: &[(&str, &str)]) -> u64 {
    try_build(options).unwrap().bytes()
}

const SORTED: (&str, &str) = ("sort_by", "same, runs, restarting, number, text");
const AUTO: (&str, &str) = ("abstraction", "auto");
const NO_LEVELS: (&str, &str) = ("abstraction", "0");

#[test]
fn sorted_columns_become_levels_until_one_saves_too_little() {
    let packed = stored(&[("layout", "packed_row"), SORTED]);
    assert_eq!(packed[0], "constant", "a constant takes no bits in packed tuples");
    assert!(packed[1].starts_with("level 1: run_length(120)"), "{packed:?}");
    assert!(packed[2].starts_with("level 2: delta(4) with 119 exceptions"), "{packed:?}");
    assert!(packed[3].starts_with("bit_packed(20)"), "{packed:?}");
    assert!(!packed[4].starts_with("level"), "levels end before a column that saves too little: {packed:?}");
    assert_eq!(packed, stored(&[("layout", "packed_row"), SORTED, AUTO]));
    // Slotted rows store plain values, so even a constant saves bytes as a level.
    let row = stored(&[("layout", "row"), ("sort_by", "same, runs, text, number"), AUTO]);
    assert_eq!(row[0], "level 1: constant");
    assert!(row[1].starts_with("level 2: run_length(120)"), "{row:?}");
    assert!(row[4].starts_with("level 3: "), "{row:?}");
    assert_eq!((&*row[2], &*row[3]), ("plain", "plain"));
    assert!(stored(&[("layout", "row"), SORTED]).iter().all(|column| column == "plain"));
}

#[test]
fn levels_save_bytes() {
    for (layout, bytes_min) in [("packed_row", 1.8), ("row", 11.0)] {
        let saved = bytes(&[("layout", layout), SORTED, NO_LEVELS]) - bytes(&[("layout", layout), SORTED, AUTO]);
        // Bytes saved per row. A packed row saves the 7 bits of `runs` and the 13 bits of `restarting`. The level of
        // `restarting` takes 4 bits and the exceptions, so nearly 2 bytes are saved. A slotted row saves three plain
        // numbers of 4 bytes, and its levels are as large.
        assert!(saved as f64 / f64::from(ROWS) >= bytes_min, "{layout}: {saved}");
    }
}

#[test]
fn a_fixed_number_of_levels_is_respected() {
    for layout in ["packed_row", "row"] {
        for levels in 0..=5 {
            let count = levels.to_string();
            let stored = stored(&[("layout", layout), SORTED, ("abstraction", &count), ("compression", "none")]);
            let is_level =
                |(ordinal, column): (usize, &String)| column.starts_with(&format!("level {}: ", ordinal + 1));
            let found: Vec<bool> = stored.iter().enumerate().map(is_level).collect();
            assert_eq!(found, (0..5).map(|ordinal| ordinal < levels).collect::<Vec<_>>(), "{layout}: {stored:?}");
        }
    }
    // In layout `column`, a forced level is run-length encoded even if its runs are short, unless another encoding
    // for sorted values is smaller.
    let columns = stored(&[("layout", "column"), ("sort_by", "text, runs, number"), ("abstraction", "3")]);
    assert!(columns[4].starts_with("run_length(8") || columns[4].starts_with("front_coded"), "{columns:?}");
    assert!(columns[1].starts_with("run_length(120)") && columns[3].starts_with("delta"), "{columns:?}");
    assert!(columns[2].starts_with("bit_packed") || columns[2].starts_with("two_byte"), "{columns:?}");
}

#[test]
fn in_layout_column_a_sort_column_becomes_a_level_if_that_is_smaller() {
    let [without_levels, levels] =
        [NO_LEVELS, AUTO].map(|abstraction| stored(&[("layout", "column"), SORTED, abstraction]));
    assert!(
        without_levels[2].starts_with("bit_packed(13)") && levels[2].starts_with("delta(4) with 119 exceptions"),
        "{levels:?}"
    );
    let others = |columns: &[String]| [0, 1, 3].map(|column| columns[column].clone());
    assert_eq!(others(&without_levels), others(&levels));
    assert!(bytes(&[("layout", "column"), SORTED, AUTO]) < bytes(&[("layout", "column"), SORTED, NO_LEVELS]));
    for forced in [("encoding", "restarting=bit_packed"), ("compression", "none")] {
        let column = |abstraction| stored(&[("layout", "column"), SORTED, abstraction, forced]).swap_remove(2);
        assert_eq!(column(AUTO), column(NO_LEVELS));
    }
}

#[test]
fn forced_encodings_apply_to_forced_levels_and_prevent_automatic_levels() {
    let forced = ("encoding", "runs=delta, text=dictionary");
    let row = stored(&[("layout", "row"), ("sort_by", "runs, text"), ("abstraction", "2"), forced]);
    assert!(row[1].starts_with("level 1: delta") && row[4].starts_with("level 2: dictionary"), "{row:?}");
    let packed = stored(&[("layout", "packed_row"), SORTED, AUTO, ("encoding", "runs=frame_of_reference")]);
    assert!(packed[1].starts_with("bit_packed") && packed[2].starts_with("level 1: delta"), "{packed:?}");
    let impossible =
        [("layout", "row"), ("sort_by", "restarting"), ("abstraction", "1"), ("encoding", "restarting=bitmap")];
    let error = try_build(&impossible).unwrap_err().to_string();
    assert!(error.contains("restarting") && error.contains("bitmap"), "{error}");
}

#[test]
fn few_rows_and_plain_values_get_no_automatic_levels() {
    let plain = stored(&[("layout", "packed_row"), SORTED, AUTO, ("compression", "none")]);
    assert!(plain.iter().all(|column| column == "plain"), "{plain:?}");
    let (schema, batch) = table();
    let design = TableDesign::from_options([("layout", "row"), SORTED, AUTO], &schema).unwrap();
    let images = build(&schema, &design, &[batch.slice(0, 5)]).unwrap();
    let (block, sections) = open(&images[0]);
    for column in 0..5 {
        let storage = block.column_storage(&sections, ColumnIndex::from(column)).unwrap().remove(0);
        assert_eq!(storage.description, "plain");
    }
}
