//! Excluded rows: cases that the suite in `layouts.rs` does not cover.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{DatumFunction, DatumFunctionPredicate, Excluded, build, designs, open};
use rand::SeedableRng;
use rand::rngs::StdRng;
use roaring::RoaringBitmap;
use taut_block::{AccessPaths, ScanReport, Selection};
use taut_testkit::{Model, TestTable, agree, tables};
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate, LogicalType, Predicate, RowPredicate};

const SEED: u64 = 23;

fn table(name: &str) -> TestTable {
    tables(SEED).into_iter().find(|table| table.name == name).unwrap()
}

fn row_predicate_on(column: ColumnIndex, logical: LogicalType, function: DatumFunction) -> Predicate {
    let predicate: Arc<dyn RowPredicate> =
        Arc::new(DatumFunctionPredicate { columns: vec![column], types: vec![logical], function });
    Predicate { column_predicates: vec![], row_predicates: vec![predicate] }
}

#[test]
fn scans_without_predicates_skip_excluded_rows() {
    let mut random = StdRng::seed_from_u64(SEED);
    for name in ["1 rows", "1025 rows", "8192 rows"] {
        let table = table(name);
        for (design_name, design) in designs(&table.schema).into_iter().step_by(3) {
            let image = build(&table.schema, &design, &table.batches).unwrap().remove(0);
            let (block, sections) = open(&image);
            for kind in Excluded::ALL {
                let rows = block.segment_rows(0);
                let excluded = kind.draw(rows, &mut random);
                let mut reader = block.open_segment(&sections, 0);
                reader.exclude(&excluded);
                let mut report = ScanReport::default();
                let selection = reader.filter(&Predicate::default(), &mut report).unwrap();
                let left: Vec<u32> = (0..rows as u32).filter(|row| !excluded.contains(*row)).collect();
                assert_eq!(selection.positions(), left, "{name}, {design_name}, {kind:?}");
                assert_eq!(matches!(selection, Selection::All(_)), left.len() == rows);
                assert_eq!((report.segments, report.rows_out), (1, left.len() as u64));
            }
        }
    }
}

#[test]
fn excluded_sets_are_united_and_may_exceed_the_segment() {
    let table = table("1025 rows");
    let image = build(&table.schema, &designs(&table.schema)[0].1, &table.batches).unwrap().remove(0);
    let (block, sections) = open(&image);
    let steps = [
        (RoaringBitmap::new(), Selection::All(1025)),
        (RoaringBitmap::from_iter([1025, 65_535, u32::MAX]), Selection::All(1025)),
        (RoaringBitmap::from_iter([0, 1, 1024, 1025]), Selection::Range(2..1024)),
        (RoaringBitmap::from_iter([2, 1023, 1]), Selection::Range(3..1023)),
    ];
    let mut reader = block.open_segment(&sections, 0);
    for (rows, expected) in &steps {
        reader.exclude(rows);
        assert_eq!(reader.filter(&Predicate::default(), &mut ScanReport::default()).unwrap(), *expected);
    }
}

#[test]
fn no_section_is_read_if_all_rows_are_excluded() {
    let table = table("1025 rows");
    for (name, design) in designs(&table.schema) {
        let image = build(&table.schema, &design, &table.batches).unwrap().remove(0);
        let (block, sections) = open(&image);
        let all = (0..1025).collect();
        let mut reader = block.open_segment(&sections, 0);
        reader.exclude(&all);
        let conjunct = ColumnPredicate::new(ColumnIndex(2), DatumPredicate::Range { low: 0, high: i128::MAX });
        let mut report = ScanReport::default();
        for column_predicates in [vec![], vec![conjunct]] {
            let predicate = Predicate { column_predicates, row_predicates: vec![] };
            assert!(reader.filter(&predicate, &mut report).unwrap().is_empty(), "{name}");
        }
        assert_eq!(sections.take_sections_read(), [] as [u32; 0], "{name}");
        assert_eq!(report, ScanReport { segments: 2, ..ScanReport::default() });
    }
}

/// Row predicates must not fail on values of excluded rows, even if these are in a dictionary.
#[test]
fn row_predicates_do_not_fail_on_excluded_rows() {
    let fails_below_zero: DatumFunction = |keys| match &keys[0] {
        Some(Datum::Number(number)) if *number < 0 => Err(()),
        key => Ok(Some(key.is_some())),
    };
    for name in ["Few", "Random", "Extreme"] {
        let table = table(name);
        let model = Model::of(&table);
        let column = ColumnIndex(2);
        let logical = table.schema.column(column).logical_type;
        let is_negative = |row: &usize| model.value(*row, column).is_some_and(|datum| datum.number().unwrap() < 0);
        let (negative, others): (Vec<usize>, Vec<usize>) = (0..model.rows.len()).partition(is_negative);
        let expected: Vec<usize> = others.into_iter().filter(|row| model.value(*row, column).is_some()).collect();
        assert!(negative.len() > 1, "{name} has negative numbers");
        for (design_name, design) in designs(&table.schema) {
            let image = build(&table.schema, &design, &table.batches).unwrap().remove(0);
            let (block, sections) = open(&image);
            let predicate = row_predicate_on(column, logical, fails_below_zero);
            let filter = |excluded: &[usize]| {
                let excluded = excluded.iter().map(|row| *row as u32).collect();
                let mut reader = block.open_segment(&sections, 0);
                reader.exclude(&excluded);
                reader.filter(&predicate, &mut ScanReport::default())
            };
            assert!(filter(&negative[1..]).is_err(), "{name}, {design_name}: one row is left to fail on");
            let found = filter(&negative).unwrap().positions();
            assert!(found.iter().map(|row| *row as usize).eq(expected.iter().copied()), "{name}, {design_name}");
        }
    }
}

#[test]
fn sums_of_runs_need_a_segment_without_excluded_rows() {
    let table = table("Constant");
    let model = Model::of(&table);
    let (_, design) = designs(&table.schema).into_iter().find(|(name, _)| name == "column").unwrap();
    let image = build(&table.schema, &design, &table.batches).unwrap().remove(0);
    let (block, sections) = open(&image);
    let is_summed =
        |column: &usize| block.open_segment(&sections, 0).sum_of_runs(ColumnIndex::from(*column)).unwrap().is_some();
    let summed: Vec<usize> = (0..table.schema.len()).filter(is_summed).collect();
    assert!(!summed.is_empty());
    for column in summed {
        let column = ColumnIndex::from(column);
        let excluded = RoaringBitmap::from_iter([7]);
        let mut reader = block.open_segment(&sections, 0);
        let summary = reader.number_summary(column).unwrap();
        reader.exclude(&excluded);
        assert_eq!(reader.sum_of_runs(column).unwrap(), None);
        assert_eq!(reader.number_summary(column).unwrap(), summary);
        assert_eq!(reader.rows(), model.rows.len());
        // Reading by position also returns excluded rows.
        let one = Selection::Positions(vec![7]);
        let arrays = reader.project(&one, 0..1, &[column], &mut ScanReport::default()).unwrap();
        agree(&model, &[7], &[column], &arrays);
    }
}

#[test]
fn rows_in_does_not_count_excluded_rows() {
    let table = table("Few");
    let model = Model::of(&table);
    let (_, design) = designs(&table.schema).into_iter().find(|(name, _)| name == "column").unwrap();
    let image = build(&table.schema, &design, &table.batches).unwrap().remove(0);
    let (block, sections) = open(&image);
    let column = ColumnIndex(2);
    let value = (0..model.rows.len()).find_map(|row| model.value(row, column)?.number()).unwrap();
    let conjunct = ColumnPredicate::new(column, DatumPredicate::Range { low: value, high: value });
    let passing: RoaringBitmap = model.filter(std::slice::from_ref(&conjunct)).iter().map(|row| *row as u32).collect();
    let predicate = Predicate { column_predicates: vec![conjunct], row_predicates: vec![] };
    let mut reader = block.open_segment(&sections, 0);
    reader.exclude(&passing);
    let mut report = ScanReport::default();
    assert!(reader.filter(&predicate, &mut report).unwrap().is_empty());
    assert!(report.paths.contains(AccessPaths::ENCODED_SCAN));
    assert_eq!(report.rows_in, model.rows.len() as u64 - passing.len());
}
