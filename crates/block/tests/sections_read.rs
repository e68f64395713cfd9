//! Tests how much a query reads: the sections, whose number the layout bounds, and the values that predicates compare.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringViewArray};
use common::{build, open};
use taut_block::{AccessPaths, PredicateHistory, ScanReport, Selection};
use taut_types::{
    Abstraction, Column, ColumnIndex, ColumnPredicate, DatumPredicate, Encoding, Layout, LogicalType, Predicate,
    Schema, SortColumn, TableDesign,
};

const ROWS: i64 = 100_000;

fn table() -> (Schema, RecordBatch) {
    let schema = Schema::new(vec![
        Column::new("key", LogicalType::BigInt, false),
        Column::new("group", LogicalType::Integer, false),
        Column::new("price", LogicalType::Decimal { precision: 15, scale: 2 }, false),
        Column::new("mode", LogicalType::Varchar, false),
        Column::new("comment", LogicalType::Varchar, false),
    ])
    .unwrap();
    let price = Decimal128Array::from_iter_values((0..ROWS).map(|row| i128::from(row * 7919 % 1_000_003)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row * 3))),
        Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| (row % 17) as i32))),
        Arc::new(price.with_precision_and_scale(15, 2).unwrap()),
        Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|row| ["AIR", "RAIL", "TRUCK"][row as usize % 3]))),
        Arc::new(StringViewArray::from_iter_values(
            (0..ROWS).map(|row| format!("comment number {} on {row}", row * row)),
        )),
    ];
    let batch = RecordBatch::try_new(schema.arrow(), columns).unwrap();
    (schema, batch)
}

fn design(layout: Layout) -> TableDesign {
    TableDesign { layout, ..TableDesign::default() }
}

/// A design sorted by the first two columns, with `levels` levels.
fn leveled(layout: Layout, levels: u16) -> TableDesign {
    let sort = |column| SortColumn { column: ColumnIndex(column), descending: false, nulls_first: false };
    TableDesign { sort_by: (0..2).map(sort).collect(), abstraction: Abstraction::Levels(levels), ..design(layout) }
}

fn key_is(key: i128) -> Predicate {
    let predicate = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: key, high: key });
    Predicate { column_predicates: vec![predicate], row_predicates: vec![] }
}

#[test]
fn a_point_query_on_a_sorted_key_touches_few_sections() {
    let (schema, batch) = table();
    let all: Vec<ColumnIndex> = (0..schema.len()).map(ColumnIndex::from).collect();
    for layout in [Layout::PackedRow, Layout::Row] {
        let images = build(&schema, &design(layout.clone()), std::slice::from_ref(&batch)).unwrap();
        let (block, sections) = open(&images[0]);
        assert_eq!(block.segments(), 2);
        for row in [0, 777, 65_535] {
            sections.take_sections_read();
            let (mut reader, mut report) = (block.open_segment(&sections, 0), ScanReport::default());
            let selection = reader.filter(&key_is(row * 3), &mut report).unwrap();
            assert_eq!(selection.positions(), [row as u32]);
            let arrays = reader.project(&selection, 0..1, &all, &mut report).unwrap();
            assert_eq!(arrays.len(), all.len());
            let sections_read = sections.take_sections_read();
            // The first query also reads the statistics of the key. Each query reads the head and the page.
            let statistics = usize::from(row == 0);
            assert_eq!(sections_read.len(), statistics + 2, "{}: {sections_read:?}", layout.name());
            assert_eq!((report.pages_read, report.segments_skipped), (1, 0));
        }
        // A key outside of all zones, or in the other segment, reads no page.
        for missing in [-1, 70_000 * 3] {
            let (mut reader, mut report) = (block.open_segment(&sections, 0), ScanReport::default());
            assert!(reader.filter(&key_is(missing), &mut report).unwrap().is_empty());
            assert_eq!((sections.take_sections_read().len(), report.segments_skipped), (0, 1));
        }
    }
}

#[test]
fn a_row_by_position_reads_head_and_page() {
    let (schema, batch) = table();
    let all: Vec<ColumnIndex> = (0..schema.len()).map(ColumnIndex::from).collect();
    let layouts = [(Layout::PackedRow, 0), (Layout::PackedRow, 2), (Layout::Row, 1)];
    for (layout, levels) in layouts {
        let images = build(&schema, &leveled(layout, levels), std::slice::from_ref(&batch)).unwrap();
        let (block, sections) = open(&images[0]);
        for row in [0, 1, 30_000, 65_535] {
            sections.take_sections_read();
            let mut reader = block.open_segment(&sections, 0);
            reader.project(&Selection::Positions(vec![row]), 0..1, &all, &mut ScanReport::default()).unwrap();
            assert!(sections.take_sections_read().len() <= 2);
        }
    }
}

#[test]
fn predicates_and_scans_of_levels_touch_no_page() {
    let (schema, batch) = table();
    for layout in [Layout::PackedRow, Layout::Row] {
        let images = build(&schema, &leveled(layout, 2), std::slice::from_ref(&batch)).unwrap();
        let (block, sections) = open(&images[0]);
        let (mut reader, mut report) = (block.open_segment(&sections, 0), ScanReport::default());
        let group = ColumnPredicate::new(ColumnIndex(1), DatumPredicate::Range { low: 3, high: 3 });
        let mut predicate = key_is(0);
        predicate.column_predicates[0].condition = DatumPredicate::Range { low: 300, high: 90_000 };
        predicate.column_predicates.push(group);
        let selection = reader.filter(&predicate, &mut report).unwrap();
        let expected: Vec<u32> = (100..=30_000).filter(|row| row % 17 == 3).collect();
        assert_eq!(selection.positions(), expected);
        reader.project(&selection, 0..expected.len(), &[ColumnIndex(1), ColumnIndex(0)], &mut report).unwrap();
        // The scan reads the statistics of both columns, and the head.
        assert_eq!((sections.take_sections_read().len(), report.pages_read), (3, 0));
    }
}

/// The numbers of a page have few distinct values, far apart and the same in all columns. The columns therefore share a
/// dictionary.
#[test]
fn dictionaries_of_pages_are_read_with_their_page() {
    let columns = (0..3).map(|n| Column::new(format!("c{n}"), LogicalType::BigInt, n == 1));
    let schema = Schema::new(columns.collect()).unwrap();
    let number = |row: i64, column: i64| {
        let hash = (row * 3 + column + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) as u64 >> 40;
        let rank = row / 2_000 * 7 + (hash % 30) as i64;
        (column != 1 || row % 9 != 0).then_some(rank.wrapping_mul(0x2c1b_3c6d_0000_0001) >> 3)
    };
    let array = |column| Arc::new((0..65_536).map(|row| number(row, column)).collect::<Int64Array>()) as ArrayRef;
    let batch = RecordBatch::try_new(schema.arrow(), (0..3).map(array).collect()).unwrap();
    let images = build(&schema, &design(Layout::PackedRow), &[batch]).unwrap();
    let (block, sections) = open(&images[0]);
    let all: Vec<ColumnIndex> = (0..3_usize).map(ColumnIndex::from).collect();
    for column in &all {
        let description = block.column_storage(&sections, *column).unwrap().remove(0).description;
        assert!(
            description.starts_with("dictionary of each page, shared by 3 columns, of bit_packed("),
            "{description}"
        );
    }
    for row in [0, 1, 30_000, 65_535] {
        sections.take_sections_read();
        let mut reader = block.open_segment(&sections, 0);
        let selection = Selection::Positions(vec![row]);
        let arrays = reader.project(&selection, 0..1, &all, &mut ScanReport::default()).unwrap();
        assert_eq!(sections.take_sections_read().len(), 2);
        for (column, array) in arrays.iter().enumerate() {
            let array = array.as_any().downcast_ref::<Int64Array>().unwrap();
            assert_eq!(array.iter().next().unwrap(), number(row.into(), column as i64), "row {row}, column {column}");
        }
    }
}

#[test]
fn a_column_scan_touches_its_columns_only() {
    let columns = 500;
    let schema = Schema::new((0..columns).map(|n| Column::new(format!("c{n}"), LogicalType::Integer, false)).collect());
    let schema = schema.unwrap();
    let array: ArrayRef = Arc::new(Int32Array::from_iter_values(0..5000));
    let batch = RecordBatch::try_new(schema.arrow(), vec![array; columns]).unwrap();
    let images = build(&schema, &design(Layout::Column), &[batch]).unwrap();
    let (block, sections) = open(&images[0]);
    let mut reader = block.open_segment(&sections, 0);
    let conjunct = ColumnPredicate::new(ColumnIndex(300), DatumPredicate::Range { low: 100, high: 200 });
    let predicate = Predicate { column_predicates: vec![conjunct], row_predicates: vec![] };
    let mut report = ScanReport::default();
    let selection = reader.filter(&predicate, &mut report).unwrap();
    assert_eq!(selection, Selection::Range(100..201));
    reader.project(&selection, 0..101, &[ColumnIndex(7), ColumnIndex(499)], &mut report).unwrap();
    let sections_read = sections.take_sections_read();
    let chunk = |column| block.sections_of(0, ColumnIndex(column)).start;
    // Section 0 is the description. The statistics of column 300 follow those of 300 other columns.
    assert_eq!(sections_read, [301, chunk(7), chunk(300), chunk(499)]);
}

#[test]
fn zone_maps_decide_predicates_without_a_scan() {
    let (schema, batch) = table();
    let images = build(&schema, &design(Layout::Column), &[batch]).unwrap();
    let (block, sections) = open(&images[0]);
    let conjunct = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: 0, high: 3 * 8191 });
    let predicate = Predicate { column_predicates: vec![conjunct], row_predicates: vec![] };
    let mut report = ScanReport::default();
    let selection = block.open_segment(&sections, 0).filter(&predicate, &mut report).unwrap();
    assert_eq!(selection, Selection::Range(0..8192));
    assert_eq!((report.predicates_decided_by_zone_maps, report.column_scans), (1, 0));
    assert_eq!((report.zones, report.zones_skipped), (8, 7));
}

/// If two predicates are equally selective, the one on the narrower column runs first, whatever their order in the
/// query.
#[test]
fn narrow_columns_are_tested_first() {
    let names = ["wide", "narrow"];
    let columns = names.map(|name| Column::new(name, LogicalType::Integer, false));
    let schema = Schema::new(columns.to_vec()).unwrap();
    let hash = |row: u64, seed: u64| (row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed << 33) >> 30;
    let numbers = [2_000_000, 1_000].map(|bound| (0..60_000).map(move |row| (hash(row, bound) % bound) as i32));
    let arrays = numbers.clone().map(|numbers| Arc::new(Int32Array::from_iter_values(numbers)) as ArrayRef);
    let batch = RecordBatch::try_new(schema.arrow(), arrays.to_vec()).unwrap();
    let images = build(&schema, &design(Layout::Column), &[batch]).unwrap();
    let (block, sections) = open(&images[0]);
    let at_least =
        |column, low| ColumnPredicate::new(ColumnIndex(column), DatumPredicate::Range { low, high: i128::MAX });
    let conjuncts = [at_least(0, 1_980_000), at_least(1, 990)];
    let [wide, narrow] = [(0, 1_980_000), (1, 990)].map(|(column, low)| {
        let passing = numbers[column].clone().filter(|number| *number >= low);
        passing.count() as u64
    });
    // The predicates are about equally selective. The numbers differ, so that `values_tested` shows which ran first.
    assert!(wide != narrow && wide.abs_diff(narrow) < 100, "{wide} {narrow}");
    for column_predicates in [conjuncts.to_vec(), conjuncts.iter().rev().cloned().collect()] {
        let predicate = Predicate { column_predicates, row_predicates: vec![] };
        let mut report = ScanReport::default();
        block.open_segment(&sections, 0).filter(&predicate, &mut report).unwrap();
        // Tests all values of the narrow column, and the values of the wide column in the rows that passed.
        assert_eq!(report.values_tested, 60_000 + narrow);
    }
}

/// The bounds suggest that the first predicate is selective, but nearly all rows pass it. It runs first until the
/// history shows this.
#[test]
fn observed_selectivity_reorders_predicates() {
    let columns = ["clustered", "spread"].map(|name| Column::new(name, LogicalType::Integer, false));
    let schema = Schema::new(columns.to_vec()).unwrap();
    let noise = |row: i32| row.wrapping_mul(0x61C8_8647) as u32 >> 12;
    let clustered = |row: i32| if row % 1000 == 0 { 1_000_000 } else { noise(row) as i32 % 1000 };
    let spread = |row: i32| noise(row.wrapping_mul(7919)) as i32 % 1_000_000;
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values((0..ROWS as i32).map(clustered))),
        Arc::new(Int32Array::from_iter_values((0..ROWS as i32).map(spread))),
    ];
    let batch = RecordBatch::try_new(schema.arrow(), arrays).unwrap();
    let encodings = (0..2).map(|column| (ColumnIndex(column), Encoding::FrameOfReference)).collect();
    let images = build(&schema, &TableDesign { encodings, ..design(Layout::Column) }, &[batch]).unwrap();
    let (block, sections) = open(&images[0]);
    let conjunct = |column, low, high| ColumnPredicate::new(ColumnIndex(column), DatumPredicate::Range { low, high });
    let predicate = Predicate {
        column_predicates: vec![conjunct(0, 0, 1999), conjunct(1, 500_000, 504_999)],
        row_predicates: vec![],
    };
    let second = block.segment_rows(0) as i32..ROWS as i32;
    let rows = second.len() as u64;
    let passing = |passes: &dyn Fn(i32) -> bool| second.clone().filter(|row| passes(*row)).count() as u64;
    let spread_pass = passing(&|row| (500_000..505_000).contains(&spread(row)));
    assert!(passing(&|row| clustered(row) < 2000) > rows * 9 / 10 && spread_pass < rows / 100);

    let tested_in_second = |history: &mut PredicateHistory| {
        let mut report = ScanReport::default();
        block.open_segment(&sections, 1).filter_in_order(&predicate, history, &mut report).unwrap();
        report.values_tested
    };
    // Without a history, the first predicate runs first. Nearly all rows pass it, so the second compares all values.
    assert_eq!(tested_in_second(&mut PredicateHistory::default()), 2 * rows);
    let mut history = PredicateHistory::default();
    block.open_segment(&sections, 0).filter_in_order(&predicate, &mut history, &mut ScanReport::default()).unwrap();
    assert_eq!(tested_in_second(&mut history), rows + spread_pass);
}

/// A selective predicate at one end of the value range reads all numbers once. Later executions read some of them.
#[test]
fn extremes_replace_reads_of_most_numbers() {
    let schema = Schema::new(vec![Column::new("amount", LogicalType::Integer, true)]).unwrap();
    let amount = |row: u64| ((row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 1_000_000) as i32;
    let amounts: ArrayRef = Arc::new(Int32Array::from_iter((0..70_000).map(|row| (row % 9 > 0).then(|| amount(row)))));
    let batch = RecordBatch::try_new(schema.arrow(), vec![amounts]).unwrap();
    let images = build(&schema, &design(Layout::Column), &[batch]).unwrap();
    let (block, sections) = open(&images[0]);
    let filter = |low, high| {
        let conjunct = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low, high });
        let predicate = Predicate { column_predicates: vec![conjunct], row_predicates: vec![] };
        let mut report = ScanReport::default();
        let selection = block.open_segment(&sections, 0).filter(&predicate, &mut report).unwrap();
        let mut unpruned = block.open_segment(&sections, 0);
        unpruned.scan_all_rows();
        assert_eq!(unpruned.filter(&predicate, &mut ScanReport::default()).unwrap(), selection);
        (report.values_tested, report.paths.contains(AccessPaths::EXTREMES), selection.len())
    };
    let rows = block.segment_rows(0) as u64;
    for (low, high) in [(999_000, i128::MAX), (i128::MIN, 1000)] {
        let (tested, by_extremes, found) = filter(low, high);
        assert!(tested == rows && !by_extremes && (1..200).contains(&found), "{tested} {found}");
        assert_eq!(filter(low, high), (filter(low, high).0, true, found));
        assert!(filter(low, high).0 < rows / 10);
    }
    // Predicates that select many rows, or rows in the middle, do not use extremes.
    assert!(!filter(500_000, i128::MAX).1 && !filter(500_000, 501_000).1);
}
