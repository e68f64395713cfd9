//! Tests of every layout: blocks return the rows that they were built from, whether all, filtered or by position.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use arrow_array::RecordBatch;
use common::{
    CountedSections, DatumFunction, DatumFunctionPredicate, Excluded, NullOr, build, bytes_table, check_aggregation,
    designs, designs_with_forced_encodings, digest, open,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_block::{
    AddedColumn, Block, BlockError, BlockImage, BuildError, ColumnMap, ColumnSource, PieceStorage, ScanReport,
    SegmentReader, Selection,
};
use taut_testkit::{Model, TestTable, agree, predicates_for, tables};
use taut_types::{
    BlockSize, Column, ColumnIndex, ColumnPredicate, Datum, Encoding, GroupKind, Layout, LogicalType, Predicate,
    RowPredicate, Schema, TableDesign,
};

const SEED: u64 = 7;
/// Number of random predicates on a large table. Small tables are tested with all predicates.
const LARGE_TABLE_PREDICATES: usize = 24;
/// A table with more rows is large.
const LARGE_ROWS: usize = 5_000;
/// The cases of a table are divided into this number of parts. Each design is tested with one part.
const CASE_PARTS: usize = 3;

/// A predicate and the rows that pass it.
struct Case {
    predicate: Predicate,
    passing: Vec<usize>,
}

fn row_predicate_case(model: &Model, columns: &[usize], function: DatumFunction) -> Case {
    let types = columns.iter().map(|column| model.schema.columns()[*column].logical_type).collect();
    let indices: Vec<ColumnIndex> = columns.iter().map(|column| ColumnIndex::from(*column)).collect();
    let passes = |row: &usize| {
        let data: Vec<_> = indices.iter().map(|column| model.value(*row, *column).cloned()).collect();
        function(&data) == Ok(Some(true))
    };
    let passing = (0..model.rows.len()).filter(passes).collect();
    let conjunct: Arc<dyn RowPredicate> = Arc::new(DatumFunctionPredicate { columns: indices, types, function });
    Case { predicate: Predicate { column_predicates: vec![], row_predicates: vec![conjunct] }, passing }
}

fn cases(model: &Model, random: &mut StdRng) -> Vec<Case> {
    let mut conjuncts = predicates_for(model, random);
    if model.rows.len() > LARGE_ROWS {
        conjuncts =
            (0..LARGE_TABLE_PREDICATES).map(|_| conjuncts[random.random_range(0..conjuncts.len())].clone()).collect();
    }
    let case = |conjuncts: Vec<ColumnPredicate>| {
        let passing = model.filter(&conjuncts);
        Case { predicate: Predicate { column_predicates: conjuncts, row_predicates: vec![] }, passing }
    };
    let mut cases: Vec<Case> = conjuncts.iter().map(|conjunct| case(vec![conjunct.clone()])).collect();
    for _ in 0..conjuncts.len() / 4 {
        let count = random.random_range(2..4);
        cases.push(case((0..count).map(|_| conjuncts[random.random_range(0..conjuncts.len())].clone()).collect()));
    }
    let odd = |keys: &[Option<Datum>]| Ok(digest(&keys[0]).map(|digest| digest % 2 == 1));
    let null_or_odd = |keys: &[Option<Datum>]| Ok(Some(digest(&keys[0]).is_none_or(|digest| digest % 2 == 1)));
    let both = |keys: &[Option<Datum>]| {
        Ok(digest(&keys[0]).zip(digest(&keys[1])).map(|(left, right)| (left ^ right) % 3 == 0))
    };
    let columns = model.schema.len();
    for column in 0..columns {
        cases.push(row_predicate_case(model, &[column], odd));
        cases.push(row_predicate_case(model, &[column], null_or_odd));
        let mut case = row_predicate_case(model, &[column, (column + 1) % columns], both);
        let conjunct = conjuncts[random.random_range(0..conjuncts.len())].clone();
        case.passing.retain(|row| conjunct.admits(model.value(*row, conjunct.column)));
        case.predicate.column_predicates.push(conjunct);
        cases.push(case);
    }
    for is_exact in [true, false] {
        let conjunct = NullOr::new(&model.schema, conjuncts[random.random_range(0..conjuncts.len())].clone(), is_exact);
        let passes = |row: &usize| conjunct.admits(model.value(*row, conjunct.columns[0]));
        let passing = (0..model.rows.len()).filter(passes).collect();
        cases.push(Case {
            predicate: Predicate { column_predicates: vec![], row_predicates: vec![Arc::new(conjunct)] },
            passing,
        });
    }
    cases
}

/// Checks everything that a block returns against the model rows that begin with `first`.
fn check_block(name: &str, design: &TableDesign, image: &BlockImage, model: &Model, cases: &[Case], first: usize) {
    let (block, sections) = open(image);
    let rows = first..first + image.rows as usize;
    let all: Vec<ColumnIndex> = (0..model.schema.len()).map(ColumnIndex::from).collect();
    block.check(&sections).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(block.description(&sections).unwrap(), (model.schema.clone(), design.clone()), "{name}");
    assert_eq!(block.groups(), design.groups(&model.schema), "{name}");
    check_statistics(name, &block, &sections, image, &model.slice(rows.clone()));
    for column in &all {
        assert_eq!(block.column_type(*column), model.schema.column(*column).logical_type);
        let storage = block.column_storage(&sections, *column).unwrap();
        assert_eq!(storage.iter().map(|piece| piece.rows).sum::<usize>(), rows.len(), "{name}");
        assert!(storage.iter().all(|piece| !piece.description.is_empty()));
        check_levels(name, design, model, *column, &storage);
    }
    check_rows(name, &block, &sections, model, cases, first);
}

/// Checks the rows that a block returns, complete, filtered and by position, against the model rows that begin with
/// `first`.
fn check_rows(name: &str, block: &Block, sections: &CountedSections, model: &Model, cases: &[Case], first: usize) {
    let rows = first..first + block.rows() as usize;
    let all: Vec<ColumnIndex> = (0..model.schema.len()).map(ColumnIndex::from).collect();
    let mut random = StdRng::seed_from_u64(SEED);
    let mut start = first;
    let ruled_out = |case: &Case| {
        let conjuncts = &case.predicate.column_predicates;
        let left: Vec<usize> = block.prune(sections, conjuncts, 0..block.segments()).unwrap().remaining().collect();
        (0..block.segments()).filter(|segment| !left.contains(segment)).collect::<Vec<_>>()
    };
    let ruled_out: Vec<Vec<usize>> = cases.iter().map(ruled_out).collect();
    for segment in 0..block.segments() {
        let segment_rows = block.segment_rows(segment);
        let positions: Vec<usize> = (start..start + segment_rows).collect();
        let mut report = ScanReport::default();
        let mut reader = block.open_segment(sections, segment);
        let everything = reader.filter(&Predicate::default(), &mut report).unwrap();
        assert_eq!(everything, Selection::All(segment_rows));
        agree(model, &positions, &all, &reader.project(&everything, 0..segment_rows, &all, &mut report).unwrap());
        for column in &all {
            // Reads some rows of one column with a reader that has read nothing before.
            let mut reader = block.open_segment(sections, segment);
            let low = random.random_range(0..segment_rows);
            let high = random.random_range(low..=segment_rows);
            let arrays = reader.project(&everything, low..high, &[*column], &mut report).unwrap();
            agree(model, &positions[low..high], &[*column], &arrays);
        }
        check_positions(model, start, segment_rows, &mut random, &all, block, sections, segment);
        for (case, ruled_out) in cases.iter().zip(&ruled_out) {
            check_case(name, case, model, start, block, sections, segment, &mut random);
            let passes = |row: &usize| (start..start + segment_rows).contains(row);
            let is_wrong = ruled_out.contains(&segment) && case.passing.iter().any(passes);
            assert!(!is_wrong, "{name}: indexes rule out segment {segment} for {:?}", case.predicate);
        }
        start += segment_rows;
    }
    assert_eq!(start, rows.end, "{name}");
}

/// Checks that the description of a column names its level if the design forces it to be one, and names no level if the
/// design does not allow it to be one.
fn check_levels(name: &str, design: &TableDesign, model: &Model, column: ColumnIndex, storage: &[PieceStorage]) {
    let group = design.groups(&model.schema).into_iter().find(|group| group.columns.contains(&column)).unwrap();
    if group.kind == GroupKind::Column {
        return;
    }
    let levels = design.levels(&group);
    let level = levels.ordinals.iter().position(|ordinal| group.columns[*ordinal] == column);
    for piece in storage {
        let found = piece.description.split_once(": ").filter(|(level, _)| level.starts_with("level "));
        match level {
            Some(level) if levels.forced => {
                assert_eq!(found.map(|(level, _)| level), Some(&*format!("level {}", level + 1)), "{name}");
            }
            Some(_) => {}
            None => assert_eq!(found, None, "{name}"),
        }
    }
}

fn check_statistics(name: &str, block: &Block, sections: &CountedSections, image: &BlockImage, model: &Model) {
    for (index, column) in model.schema.columns().iter().enumerate() {
        let column_index = ColumnIndex::from(index);
        let statistics = block.statistics(sections, column_index).unwrap();
        assert_eq!(statistics, image.statistics[index], "{name}, {}", column.name);
        let values: Vec<_> = (0..model.rows.len()).filter_map(|row| model.value(row, column_index)).collect();
        assert_eq!(statistics.rows, model.rows.len() as u64);
        assert_eq!(statistics.nulls, (model.rows.len() - values.len()) as u64, "{name}, {}", column.name);
        let (min, max) = (values.iter().min().copied(), values.iter().max().copied());
        if statistics.exact {
            assert_eq!((statistics.min.as_ref(), statistics.max.as_ref()), (min, max), "{name}, {}", column.name);
        } else {
            assert!(column.logical_type.is_bytes() && statistics.min.as_ref() <= min, "{name}, {}", column.name);
            assert!(statistics.max.is_none() || statistics.max.as_ref() >= max, "{name}, {}", column.name);
        }
        let mut distinct = values.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let error = (statistics.distinct_estimate() as f64 - distinct.len() as f64).abs();
        assert!(error <= 3.0 + 0.3 * distinct.len() as f64, "{name}, {}: {error} of {}", column.name, distinct.len());
    }
}

fn check_positions(
    model: &Model,
    start: usize,
    rows: usize,
    random: &mut StdRng,
    columns: &[ColumnIndex],
    block: &Block,
    sections: &CountedSections,
    segment: usize,
) {
    for share in [0.001, 0.05, 0.6] {
        let positions: Vec<u32> = (0..rows as u32).filter(|_| random.random_bool(share)).collect();
        let expected: Vec<usize> = positions.iter().map(|row| start + *row as usize).collect();
        let selection = Selection::Positions(positions);
        let mut reader = block.open_segment(sections, segment);
        let mut report = ScanReport::default();
        let arrays = reader.project(&selection, 0..expected.len(), columns, &mut report).unwrap();
        agree(model, &expected, columns, &arrays);
    }
    let row = random.random_range(0..rows);
    let mut reader = block.open_segment(sections, segment);
    let selection = Selection::Positions(vec![row as u32]);
    let arrays = reader.project(&selection, 0..1, columns, &mut ScanReport::default()).unwrap();
    agree(model, &[start + row], columns, &arrays);
}

fn check_case(
    name: &str,
    case: &Case,
    model: &Model,
    start: usize,
    block: &Block,
    sections: &CountedSections,
    segment: usize,
    random: &mut StdRng,
) {
    let end = start + block.segment_rows(segment);
    let expected: Vec<usize> = case.passing.iter().copied().filter(|row| (start..end).contains(row)).collect();
    let mut report = ScanReport::default();
    let mut reader = block.open_segment(sections, segment);
    let selection = reader.filter(&case.predicate, &mut report).unwrap();
    let found: Vec<usize> = selection.positions().iter().map(|row| start + *row as usize).collect();
    assert!(found == expected, "{name}: {:?}\n  expected {expected:?}\n  found    {found:?}", case.predicate);
    assert_eq!(report.rows_out, expected.len() as u64);
    let mut unpruned = block.open_segment(sections, segment);
    unpruned.scan_all_rows();
    let without_zones = unpruned.filter(&case.predicate, &mut ScanReport::default()).unwrap();
    assert_eq!(without_zones, selection, "{name}: zone maps change the answer to {:?}", case.predicate);
    let index_modes = [SegmentReader::ignore_indexes, SegmentReader::always_use_indexes];
    for set_index_mode in index_modes.into_iter().filter(|_| !block.indexes().is_empty()) {
        let mut other = block.open_segment(sections, segment);
        set_index_mode(&mut other);
        let found = other.filter(&case.predicate, &mut report).unwrap();
        assert_eq!(found, selection, "{name}: indexes change the answer to {:?}", case.predicate);
    }
    if !block.may_match(sections, &case.predicate.column_predicates).unwrap() {
        assert!(expected.is_empty(), "{name}: may_match is false for {:?}", case.predicate);
    }
    let low = random.random_range(0..=expected.len());
    let high = random.random_range(low..=expected.len());
    let columns: Vec<ColumnIndex> =
        (0..random.random_range(1..4)).map(|_| random.random_range(0..model.schema.len()).into()).collect();
    let arrays = reader.project(&selection, low..high, &columns, &mut report).unwrap();
    agree(model, &expected[low..high], &columns, &arrays);
    if random.random_bool(0.05) {
        check_aggregation(model, start, (&selection, 0..selection.len()), &mut reader);
    }
    check_excluded(name, case, model, start, block, sections, segment, random);
}

/// Runs a case with some excluded rows of the segment.
fn check_excluded(
    name: &str,
    case: &Case,
    model: &Model,
    start: usize,
    block: &Block,
    sections: &CountedSections,
    segment: usize,
    random: &mut StdRng,
) {
    let rows = block.segment_rows(segment);
    let kind = Excluded::ALL[random.random_range(0..Excluded::ALL.len())];
    let excluded = kind.draw(rows, random);
    let is_expected = |row: &usize| (start..start + rows).contains(row) && !excluded.contains((row - start) as u32);
    let expected: Vec<usize> = case.passing.iter().copied().filter(is_expected).collect();
    let mut reader = block.open_segment(sections, segment);
    match random.random_range(0..4) {
        0 => reader.scan_all_rows(),
        1 => reader.ignore_indexes(),
        2 => reader.always_use_indexes(),
        _ => {}
    }
    reader.exclude(&excluded);
    let mut report = ScanReport::default();
    let selection = reader.filter(&case.predicate, &mut report).unwrap();
    let found: Vec<usize> = selection.positions().iter().map(|row| start + *row as usize).collect();
    assert!(
        found == expected,
        "{name}, {kind:?} excluded: {:?}\n  expected {expected:?}\n  found    {found:?}",
        case.predicate
    );
    let left = rows as u64 - excluded.range_cardinality(..rows as u32);
    assert!(report.rows_out == found.len() as u64 && report.rows_in <= left, "{name}, {kind:?}: {report:?}");
    assert_eq!(matches!(selection, Selection::All(_)), found.len() == rows, "{name}, {kind:?}");
    let column = ColumnIndex::from(random.random_range(0..model.schema.len()));
    let arrays = reader.project(&selection, 0..found.len(), &[column], &mut report).unwrap();
    agree(model, &found, &[column], &arrays);
    if random.random_bool(0.05) {
        check_aggregation(model, start, (&selection, 0..selection.len()), &mut reader);
    }
}

/// Checks that removing the indexes of a block and adding them again gives the same bytes.
fn check_reindexing(name: &str, design: &TableDesign, image: &BlockImage) {
    let (block, sections) = open(image);
    let without_indexes = BlockImage::with_indexes(&block, &sections, &[]).unwrap();
    let (block, sections) = open(&without_indexes);
    assert!(block.indexes().is_empty(), "{name}");
    block.check(&sections).unwrap();
    let reindexed = BlockImage::with_indexes(&block, &sections, &design.indexes).unwrap();
    assert_eq!((&reindexed.header, &reindexed.sections), (&image.header, &image.sections), "{name}");
}

fn check_design(table: &TestTable, model: &Model, cases: &[Case], name: &str, design: &TableDesign) {
    let mut design = design.clone();
    let images = loop {
        // Some forced encodings are impossible for the values of a column. The test drops these and forces the others.
        let impossible = match build(&table.schema, &design, &table.batches) {
            Ok(images) => break images,
            Err(BuildError::Encode { column, .. } | BuildError::Field { column, .. }) => column,
            Err(error) => panic!("{}, {name}: {error}", table.name),
        };
        let column = table.schema.index_of(&impossible).unwrap();
        let encoding = design.encodings.remove(&column).unwrap_or_else(|| panic!("{name}: {impossible} fails"));
        let holds_all_values =
            matches!(encoding, Encoding::Plain | Encoding::Dictionary | Encoding::RunLength | Encoding::Fsst);
        assert!(!holds_all_values, "{name}: {impossible}");
    };
    let mut first = 0;
    for image in &images {
        check_block(&format!("{}, {name}", table.name), &design, image, model, cases, first);
        if !design.indexes.is_empty() {
            check_reindexing(&format!("{}, {name}", table.name), &design, image);
        }
        first += image.rows as usize;
    }
    assert_eq!(first, model.rows.len());
}

#[test]
fn every_layout_agrees_with_the_model() {
    let mut random = StdRng::seed_from_u64(SEED);
    for table in tables(SEED) {
        let model = Model::of(&table);
        let mut cases = cases(&model, &mut random);
        for (name, design) in designs(&table.schema) {
            // Rotates the cases, so that each design is tested with other cases than the design before it.
            cases.rotate_left(1);
            let share = cases.len().div_ceil(CASE_PARTS);
            check_design(&table, &model, &cases[..share], &name, &design);
            cases.rotate_left(share);
        }
    }
}

/// Drops and adds columns at random. Returns the model of the changed table, and the column map of its blocks.
fn change_columns(model: &Model, random: &mut StdRng) -> (Model, ColumnMap) {
    let mut map = ColumnMap::identity(model.schema.len());
    let mut columns = model.schema.columns().to_vec();
    let mut rows = model.rows.clone();
    for change in 0..random.random_range(1..6) {
        if random.random_bool(0.5) && columns.len() > 1 {
            let dropped = random.random_range(0..columns.len());
            map = map.without(ColumnIndex::from(dropped));
            columns.remove(dropped);
            rows.iter_mut().for_each(|row| drop(row.remove(dropped)));
        } else {
            let like = random.random_range(0..model.schema.len());
            let logical_type = model.schema.columns()[like].logical_type;
            let is_null = model.rows.is_empty() || random.random_bool(0.3);
            let value = if is_null { None } else { model.rows[random.random_range(0..rows.len())][like].clone() };
            map = map.with_added(AddedColumn { logical_type, value: value.clone() });
            columns.push(Column::new(format!("added {change}"), logical_type, true));
            rows.iter_mut().for_each(|row| row.push(value.clone()));
        }
    }
    (Model { schema: Schema::new(columns).unwrap(), rows }, map)
}

#[test]
fn blocks_agree_with_a_table_whose_columns_changed() {
    let mut random = StdRng::seed_from_u64(SEED + 3);
    for table in tables(SEED + 3) {
        let original = Model::of(&table);
        for (name, design) in designs(&table.schema) {
            let name = format!("{}, {name}", table.name);
            let (model, map) = change_columns(&original, &mut random);
            map.check(&model.schema).unwrap();
            let mut cases = cases(&model, &mut random);
            cases.retain(|_| random.random_bool(0.15));
            let mut first = 0;
            for image in build(&table.schema, &design, &table.batches).unwrap() {
                let (block, sections) = open(&image);
                let block = block.with_columns(Some(Arc::new(map.clone()))).unwrap();
                block.check(&sections).unwrap();
                assert!(block.has_types(&model.schema) && block.columns() == model.schema.len(), "{name}");
                check_column_statistics(&name, &block, &sections, &model.slice(first..first + image.rows as usize));
                check_rows(&name, &block, &sections, &model, &cases, first);
                let changed_design = block.design(&sections).unwrap();
                let is_known = changed_design.is_none_or(|design| {
                    let groups = design.groups(&model.schema);
                    groups.iter().map(|group| group.columns.len()).sum::<usize>() == model.schema.len()
                });
                assert!(is_known, "{name}");
                first += image.rows as usize;
            }
        }
    }
}

/// Checks the statistics and the storage of all columns of a block, except the estimate of distinct values.
fn check_column_statistics(name: &str, block: &Block, sections: &CountedSections, model: &Model) {
    for (index, source) in block.column_map().unwrap().sources().iter().enumerate() {
        let column = ColumnIndex::from(index);
        let statistics = block.statistics(sections, column).unwrap();
        let values: Vec<_> = (0..model.rows.len()).filter_map(|row| model.value(row, column)).collect();
        let expected = (model.rows.len() as u64, (model.rows.len() - values.len()) as u64);
        assert_eq!((statistics.rows, statistics.nulls), expected, "{name}, column {index}");
        let (min, max) = (values.iter().min().copied(), values.iter().max().copied());
        assert!(statistics.min.as_ref() <= min, "{name}, column {index}");
        assert!(statistics.max.is_none() || statistics.max.as_ref() >= max, "{name}, column {index}");
        let storage = block.column_storage(sections, column).unwrap();
        assert_eq!(storage.iter().map(|piece| piece.rows).sum::<usize>(), model.rows.len(), "{name}");
        if let ColumnSource::Added(added) = source {
            assert_eq!(added.statistics(block.rows()).unwrap(), statistics, "{name}, column {index}");
            assert!(storage.iter().all(|piece| (piece.encoding, piece.stored_bytes) == (Encoding::Constant, 0)));
        }
    }
}

#[test]
fn maps_that_do_not_fit_their_block_or_table_are_refused() {
    let schema = |types: &[LogicalType]| {
        let columns = types.iter().enumerate();
        Schema::new(columns.map(|(index, logical)| Column::new(index.to_string(), *logical, true)).collect()).unwrap()
    };
    let (integer, text) = (LogicalType::Integer, LogicalType::Varchar);
    let map = |value| ColumnMap::identity(1).with_added(AddedColumn { logical_type: integer, value });
    assert_eq!(map(Some(Datum::Number(1))).check(&schema(&[text, integer])), Ok(()));
    assert!(map(None).check(&schema(&[text])).is_err());
    assert!(map(None).check(&schema(&[text, text])).is_err());
    assert!(map(Some(Datum::Number(1 << 40))).check(&schema(&[text, integer])).is_err());
    let twice: ColumnMap = serde_json::from_str(r#"[{"stored": 0}, {"stored": 0}]"#).unwrap();
    assert!(twice.check(&schema(&[text, text])).is_err());
    let table = &tables(SEED)[0];
    let (block, _) = open(&build(&table.schema, &TableDesign::default(), &table.batches).unwrap()[0]);
    let beyond = ColumnMap::identity(table.schema.len() + 1);
    assert!(matches!(block.with_columns(Some(Arc::new(beyond))), Err(BlockError::Corrupt { .. })));
}

/// Checks that table `local` has dictionaries of pages, which `every_layout_agrees_with_the_model` relies on.
#[test]
fn table_local_has_dictionaries_of_pages() {
    let table = tables(SEED).into_iter().find(|table| table.name == "local").unwrap();
    let design = TableDesign { layout: Layout::PackedRow, ..TableDesign::default() };
    let images = build(&table.schema, &design, &table.batches).unwrap();
    let (block, sections) = open(&images[0]);
    for (index, column) in table.schema.columns().iter().enumerate() {
        let storage = block.column_storage(&sections, ColumnIndex::from(index)).unwrap();
        let description = &storage[0].description;
        assert!(description.starts_with("dictionary of each page"), "{}: {description}", column.name);
        assert!(block.open_segment(&sections, 0).code_count(ColumnIndex::from(index)).unwrap().is_none());
    }
}

/// Tests short values on several pages, values of equal length, and long values. If there are several columns, long
/// values need pages of more than 32 KiB. With up to four columns, tuples store the lengths of values, with
/// five their ends.
#[test]
fn text_in_packed_rows_agrees_with_the_model() {
    let mut random = StdRng::seed_from_u64(SEED);
    let design = TableDesign { layout: Layout::PackedRow, ..TableDesign::default() };
    for columns in 1..=5 {
        for (bytes, rows) in [(0..=20, 5_000), (9..=9, 2_000), (0..=6_000, 300)] {
            let table = bytes_table(columns, bytes.clone(), rows, &mut random);
            let model = Model::of(&table);
            check_design(&table, &model, &cases(&model, &mut random), "packed rows", &design);
        }
        let table = bytes_table(columns, 0..=20, 5_000, &mut random);
        let model = Model::of(&table);
        let (block, sections) = open(&build(&table.schema, &design, &table.batches).unwrap()[0]);
        let mut overhead = 0;
        for column in (0..columns).map(ColumnIndex::from) {
            let values = model.rows.iter().filter_map(|row| row[column.index()].clone());
            let bytes: u64 =
                values.map(|value| if let Datum::Bytes(bytes) = value { bytes.len() as u64 } else { 0 }).sum();
            overhead += block.column_storage(&sections, column).unwrap()[0].stored_bytes - bytes;
        }
        // Bits per row. A value takes a length of five bits, or an end of fifteen bits if there are more than four
        // columns. With lengths, each group of tuples has a 16-bit anchor (`groups/packed/lengths.rs`): 1, 2, 4 and 4
        // bits per row for 1 to 4 columns. Every second column adds a null bit.
        let (nulls, fields) = (columns as u64 / 2, columns as u64);
        let lengths = 5 * fields + nulls + [1, 2, 4, 4, 0][columns - 1];
        let bits = if columns > 4 { 15 * fields + nulls } else { lengths };
        let expected = bits * 5_000 / 8;
        assert!(overhead.abs_diff(expected) < 100, "{}: {overhead}, {expected}", table.name);
    }
}

#[test]
fn small_blocks_agree_with_the_model() {
    let mut random = StdRng::seed_from_u64(SEED + 1);
    for table in tables(SEED + 1).into_iter().filter(|table| table.name == "70000 rows" || table.name == "8192 rows") {
        let model = Model::of(&table);
        let mut cases = cases(&model, &mut random);
        cases.truncate(20);
        for (name, design) in designs(&table.schema) {
            let design = TableDesign { block_size: BlockSize::Bytes(128 << 10), ..design };
            let blocks = build(&table.schema, &design, &table.batches).unwrap().len();
            assert!(blocks > 1, "{}, {name}: {blocks} blocks", table.name);
            check_design(&table, &model, &cases, &name, &design);
        }
    }
}

#[test]
fn forced_encodings_agree_with_the_model() {
    let mut random = StdRng::seed_from_u64(SEED + 2);
    for table in tables(SEED + 2).into_iter().filter(|table| table.name != "70000 rows") {
        let model = Model::of(&table);
        let mut cases = cases(&model, &mut random);
        cases.retain(|_| random.random_bool(0.2));
        for (name, design) in designs_with_forced_encodings(&table.schema) {
            check_design(&table, &model, &cases, &name, &design);
        }
    }
}

#[test]
fn a_block_without_rows_is_readable() {
    let table = &tables(SEED)[0];
    for (name, design) in designs(&table.schema) {
        let empty = RecordBatch::new_empty(table.schema.arrow());
        let images = build(&table.schema, &design, &[empty]).unwrap();
        let (block, sections) = open(&images[0]);
        assert_eq!((block.rows(), block.segments()), (0, 0), "{name}");
        block.check(&sections).unwrap();
        assert!(!block.may_match(&sections, &[]).unwrap());
        assert_eq!(block.statistics(&sections, ColumnIndex(0)).unwrap().min, None);
    }
}

/// A row predicate may fail on a dictionary entry that no selected row has. The scan must fail only for selected rows.
#[test]
fn row_predicates_fail_only_on_selected_rows() {
    let table = &tables(SEED).into_iter().find(|table| table.name == "Few").unwrap();
    let model = Model::of(table);
    let column = ColumnIndex(2);
    let mut keys: Vec<Datum> = (0..model.rows.len()).filter_map(|row| model.value(row, column).cloned()).collect();
    keys.sort();
    let least = keys[0].number().unwrap();
    let fails_on_least: DatumFunction = |keys| match &keys[0] {
        Some(Datum::Number(number)) if *number < 0 => Err(()),
        key => Ok(Some(key.is_some())),
    };
    assert!(least < 0, "the table has a negative number to fail on");
    for (name, design) in designs(&table.schema) {
        let images = build(&table.schema, &design, &table.batches).unwrap();
        let (block, sections) = open(&images[0]);
        let mut predicate = row_predicate_case(&model, &[column.index()], fails_on_least).predicate;
        let failed = block.open_segment(&sections, 0).filter(&predicate, &mut ScanReport::default());
        assert!(failed.unwrap_err().to_string().contains("a value that fails"), "{name}");
        let from_zero = taut_types::DatumPredicate::Range { low: 0, high: i128::MAX };
        predicate.column_predicates.push(ColumnPredicate::new(column, from_zero));
        let passing = block.open_segment(&sections, 0).filter(&predicate, &mut ScanReport::default()).unwrap();
        assert_eq!(passing.len(), model.filter(&predicate.column_predicates).len(), "{name}");
    }
}

/// If `a` has no nulls in a segment, the row predicate `a IS NULL OR a > 3` equals the column predicate `a > 3`. The
/// filter then uses only the column predicate.
#[test]
fn row_predicates_that_nulls_pass_are_evaluated_only_if_there_are_nulls() {
    let mut seen = [false; 2];
    for table in tables(SEED).into_iter().filter(|table| table.name == "Few" || table.name == "8192 rows") {
        let model = Model::of(&table);
        let conjuncts = predicates_for(&model, &mut StdRng::seed_from_u64(SEED));
        for (name, design) in designs(&table.schema) {
            let images = build(&table.schema, &design, &table.batches).unwrap();
            let (block, sections) = open(&images[0]);
            for conjunct in conjuncts.iter().step_by(5) {
                let has_nulls = (0..model.rows.len()).any(|row| model.value(row, conjunct.column).is_none());
                let row_predicate = NullOr::new(&table.schema, conjunct.clone(), true);
                let predicate = Predicate { column_predicates: vec![], row_predicates: vec![Arc::new(row_predicate)] };
                let mut report = ScanReport::default();
                block.open_segment(&sections, 0).filter(&predicate, &mut report).unwrap();
                let evaluated = report.row_predicates + report.dictionary_predicates;
                assert_eq!(evaluated, u64::from(has_nulls), "{}, {name}: {conjunct:?}", table.name);
                seen[usize::from(has_nulls)] = true;
            }
        }
    }
    assert_eq!(seen, [true; 2]);
}
