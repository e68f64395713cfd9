//! Tests of selections with few gaps, which are read as runs of rows, for every layout and encoding. The batches have
//! random bounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{build, check_aggregation, designs, designs_with_forced_encodings, open};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roaring::RoaringBitmap;
use taut_block::{BlockImage, BuildError, ScanReport, Selection};
use taut_testkit::{Model, TestTable, agree, predicates_for, tables};
use taut_types::{ColumnIndex, ColumnPredicate, Predicate, TableDesign};

const SEED: u64 = 41;

/// Excluded rows of a segment, in several distributions. A word is 64 rows: 64 bits of a bitmap.
fn gaps(rows: u32, random: &mut StdRng) -> Vec<(&'static str, RoaringBitmap)> {
    let mut share = |share| (0..rows).filter(|_| random.random_bool(share)).collect();
    let shares = [("1 %", share(0.01)), ("10 %", share(0.1)), ("50 %", share(0.5))];
    let every = |step: usize| (0..rows).skip(step / 2).step_by(step).collect();
    let mut sets = vec![
        ("none", RoaringBitmap::new()),
        ("the first", RoaringBitmap::from_iter([0])),
        ("the last", RoaringBitmap::from_iter([rows - 1])),
        ("both ends and the middle", RoaringBitmap::from_iter([0, rows / 2, rows - 1])),
        ("every 100th", every(100)),
        ("every 16th", every(16)),
        ("every 10th", every(10)),
        ("all but runs of one", every(2)),
        ("around the ends of words", (0..rows).filter(|row| (row + row / 64 % 2) % 64 == 0).collect()),
        ("whole words", (0..rows).filter(|row| row / 64 % 5 == 1).collect()),
        ("most of the middle", (rows / 8..rows - rows / 8).collect()),
    ];
    sets.extend(shares);
    sets
}

/// Image of the only block of a table. Forced encodings that are impossible are dropped.
fn image_of(table: &TestTable, design: &TableDesign) -> BlockImage {
    let mut design = design.clone();
    loop {
        match build(&table.schema, &design, &table.batches) {
            Ok(mut images) => return images.remove(0),
            Err(BuildError::Encode { column, .. } | BuildError::Field { column, .. }) => {
                let column = table.schema.index_of(&column).unwrap();
                design.encodings.remove(&column).expect("an encoding that was forced");
            }
            Err(error) => panic!("{}: {error}", table.name),
        }
    }
}

/// Reads a selection in batches: all columns together, then the numbers and codes of each column.
fn check_batches(
    name: &str,
    model: &Model,
    (expected, selection): (&[usize], &Selection),
    reader: &mut taut_block::SegmentReader<'_>,
    random: &mut StdRng,
) {
    let found: Vec<usize> = selection.positions().iter().map(|row| *row as usize).collect();
    assert_eq!(found, expected, "{name}");
    let by_index: Vec<usize> = (0..selection.len()).map(|index| selection.position(index) as usize).collect();
    assert_eq!(by_index, expected, "{name}");
    let all: Vec<ColumnIndex> = (0..model.schema.len()).map(ColumnIndex::from).collect();
    let mut row = 0;
    while row < expected.len() {
        let rows_max = [3, 70, 1000, 5000][random.random_range(0..4)];
        let rows = row..expected.len().min(row + random.random_range(1..=rows_max.max(expected.len() / 16)));
        row = rows.end;
        let arrays = reader.project(selection, rows.clone(), &all, &mut ScanReport::default()).unwrap();
        agree(model, &expected[rows.clone()], &all, &arrays);
        check_aggregation(model, 0, (selection, rows), reader);
    }
}

fn check_design(table: &TestTable, model: &Model, conjuncts: &[ColumnPredicate], name: &str, design: &TableDesign) {
    let mut random = StdRng::seed_from_u64(SEED);
    let image = image_of(table, design);
    let (block, sections) = open(&image);
    let rows = block.segment_rows(0);
    for (kind, excluded) in gaps(rows as u32, &mut random) {
        let name = format!("{}, {name}, {kind} excluded", table.name);
        let conjunct = conjuncts[random.random_range(0..conjuncts.len())].clone();
        for column_predicates in [vec![], vec![conjunct]] {
            let is_selected = |row: &usize| *row < rows && !excluded.contains(*row as u32);
            let expected: Vec<usize> = model.filter(&column_predicates).into_iter().filter(is_selected).collect();
            let mut reader = block.open_segment(&sections, 0);
            reader.exclude(&excluded);
            let predicate = Predicate { column_predicates, row_predicates: vec![] };
            let selection = reader.filter(&predicate, &mut ScanReport::default()).unwrap();
            check_batches(&name, model, (&expected, &selection), &mut reader, &mut random);
        }
    }
}

#[test]
fn rows_with_gaps_are_read_from_every_layout_and_encoding() {
    let mut random = StdRng::seed_from_u64(SEED);
    for (table_number, name) in ["Few", "Runs", "1025 rows", "8192 rows"].into_iter().enumerate() {
        let table = tables(SEED).into_iter().find(|table| table.name == name).unwrap();
        let model = Model::of(&table);
        let predicates = predicates_for(&model, &mut random);
        let mut designs = designs(&table.schema);
        designs.extend(designs_with_forced_encodings(&table.schema));
        // The three plain layouts are tested with every table. Each other design is tested with one of the four tables.
        for (ordinal, (design_name, design)) in designs.iter().enumerate() {
            let is_plain = ["row", "packed_row", "column"].contains(&design_name.as_str());
            if is_plain || ordinal % 4 == table_number {
                check_design(&table, &model, &predicates, design_name, design);
            }
        }
    }
}
