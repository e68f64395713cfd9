//! Searches by key, compared with all rows of the table: in blocks of several designs and in delta pages, with deleted
//! rows and all kinds of values.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch, StringViewArray,
};
use common::ready;
use taut_block::{BlockBuilder, ScanReport};
use taut_store::{
    CommitError, ContainerId, KeySearch, ReadCounters, RowId, RowSet, Store, Synchronous, Table, TableId,
};
use taut_testkit::Random;
use taut_types::{Column, ColumnIndex, IndexDesign, IndexKind, LogicalType, Predicate, Schema, TableDesign};

const COLUMNS: usize = 5;
/// Columns of the keys to search.
const KEYS: [&[usize]; 9] = [&[0], &[1], &[2], &[3], &[4], &[0, 1], &[1, 0], &[2, 4], &[3, 2, 0]];

fn schema() -> Schema {
    let decimal = LogicalType::Decimal { precision: 30, scale: 2 };
    let types = [LogicalType::BigInt, LogicalType::Varchar, LogicalType::Double, decimal, LogicalType::Real];
    let column = |(index, logical_type)| Column::new(format!("c{index}"), logical_type, true);
    Schema::new(types.into_iter().enumerate().map(column).collect()).unwrap()
}

fn float(random: &mut Random) -> f64 {
    match random.below(8) {
        0 => random.pick(&[0.0, -0.0]),
        1 => random.pick(&[f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
        _ => random.below(50) as f64 / 4.0 - 6.0,
    }
}

/// Rows whose numbers are below `end`. One value in nine is null.
fn rows(random: &mut Random, count: usize, end: usize) -> RecordBatch {
    fn values<T>(random: &mut Random, count: usize, value: impl Fn(&mut Random) -> T) -> Vec<Option<T>> {
        (0..count).map(|_| (random.below(9) > 0).then(|| value(random))).collect()
    }
    let text = |random: &mut Random| match random.below(end) {
        number if number % 3 == 0 => format!("{number}"),
        number => format!("a text too long for views to inline, {number}"),
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(values(random, count, |random| random.below(end) as i64))),
        Arc::new(StringViewArray::from_iter(values(random, count, text))),
        Arc::new(Float64Array::from(values(random, count, float))),
        Arc::new(
            Decimal128Array::from(values(random, count, |random| random.below(end) as i128 * 10_i128.pow(20)))
                .with_data_type(schema().arrow().field(3).data_type().clone()),
        ),
        Arc::new(Float32Array::from(values(random, count, |random| float(random) as f32))),
    ];
    RecordBatch::try_new(schema().arrow(), columns).unwrap()
}

/// Text of a value, equal for values that are equal in SQL. `None` for null.
fn value(column: &ArrayRef, row: usize) -> Option<String> {
    let number = |value: f64| {
        if value == 0.0 { "0".to_owned() } else { value.abs().to_string() + if value < 0.0 { "-" } else { "" } }
    };
    column.is_valid(row).then(|| match column.data_type() {
        arrow_schema::DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        arrow_schema::DataType::Utf8View => column.as_string_view().value(row).to_owned(),
        arrow_schema::DataType::Float64 => number(column.as_primitive::<Float64Type>().value(row)),
        arrow_schema::DataType::Float32 => number(column.as_primitive::<Float32Type>().value(row).into()),
        _ => column.as_primitive::<Decimal128Type>().value(row).to_string(),
    })
}

type Row = Vec<Option<String>>;

fn values_of(columns: &[ArrayRef]) -> Vec<Row> {
    (0..columns[0].len()).map(|row| columns.iter().map(|column| value(column, row)).collect()).collect()
}

/// Rows that are not deleted, with their row ids.
fn live_rows(table: &Table) -> Vec<(RowId, Row)> {
    let mut rows = Vec::new();
    let columns: Vec<ColumnIndex> = (0..COLUMNS).map(ColumnIndex::from).collect();
    for file in table.blocks.iter() {
        let open = file.open(&ReadCounters::new()).unwrap();
        let container = ContainerId::of(file.id()).unwrap();
        for segment in 0..open.block().segments() {
            let (mut reader, mut report) = (table.open_segment(&open, segment), ScanReport::default());
            let selection = reader.filter(&Predicate::default(), &mut report).unwrap();
            let arrays = reader.project(&selection, 0..selection.len(), &columns, &mut report).unwrap();
            let row_id = |row: u32| RowId::new(container, segment as u16, row as u16);
            rows.extend(selection.positions().into_iter().map(row_id).zip(values_of(&arrays)));
        }
    }
    for page in table.delta.pages() {
        let deleted = table.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0));
        let all = values_of(&page.columns(&[0, 1, 2, 3, 4])).into_iter().zip(0..);
        let live = all.filter(|(_, row)| deleted.is_none_or(|deleted| !deleted.contains((*row).into())));
        rows.extend(live.map(|(values, row)| (RowId::new(page.id(), 0, row), values)));
    }
    assert_eq!(rows.len() as u64, table.rows());
    rows
}

/// Expected result: compares each key with each row.
fn expected(live: &[(RowId, Row)], columns: &[usize], keys: &[Row]) -> Vec<(u32, RowId)> {
    let has =
        |row: &Row, key: &Row| columns.iter().zip(key).all(|(column, part)| part.is_some() && row[*column] == *part);
    let of_key = |(index, key)| live.iter().filter(move |(_, row)| has(row, key)).map(move |(id, _)| (index, *id));
    let mut found: Vec<_> = (0..).zip(keys).flat_map(of_key).collect();
    found.sort_unstable();
    found
}

fn design(layout: &str, indexes: &[(IndexKind, &[usize])], is_sorted: bool) -> TableDesign {
    let index = |(number, (kind, columns)): (usize, &(IndexKind, &[usize]))| IndexDesign {
        name: format!("i{number}"),
        kind: *kind,
        columns: columns.iter().map(|column| ColumnIndex::from(*column)).collect(),
    };
    let mut design = TableDesign::from_options([("layout", layout)], &schema()).unwrap();
    design.indexes = indexes.iter().enumerate().map(index).collect();
    if is_sorted {
        design.sort_by = TableDesign::from_options([("sort_by", "c0")], &schema()).unwrap().sort_by;
    }
    design
}

fn append(store: &Store, design: &TableDesign, rows: &RecordBatch) {
    let mut builder = BlockBuilder::new(Arc::new(schema()), Arc::new(design.clone()));
    builder.push(rows).unwrap();
    let block = store.write_block(&builder.finish().unwrap(), design).unwrap();
    store.commit::<_, CommitError>(|edit| edit.append_blocks(TableId(1), vec![block])).unwrap();
}

fn insert(store: &Store, rows: &RecordBatch) {
    let transaction = store.begin();
    transaction.insert_rows(TableId(1), rows).unwrap();
    transaction.commit(Synchronous::Off).unwrap();
}

fn delete_some(store: &Store, random: &mut Random) {
    let live = live_rows(&table(store));
    let deleted: RowSet = live.iter().filter(|_| random.below(5) == 0).map(|(row, _)| *row).collect();
    let transaction = store.begin();
    ready(transaction.delete_rows(TableId(1), &deleted)).unwrap();
    transaction.commit(Synchronous::Off).unwrap();
}

fn table(store: &Store) -> Arc<Table> {
    Arc::clone(store.snapshot().table("t").unwrap())
}

/// Searches for random keys. Their numbers are below `2 * end`, so about half of them are in the table. Searches all
/// rows, the rows that are not in `known`, an earlier version of the table, and the rows outside of blocks. Does so
/// with and without key entries in the delta.
fn check(table: &Table, known: &Table, random: &mut Random, end: usize, context: &str) {
    let (live, mut keyed) = (live_rows(table), table.clone());
    keyed.delta.set_keys([[0].as_slice(), &[0, 1], &[2, 4]]);
    let is_known = |row: &RowId| {
        known.blocks.iter().any(|block| ContainerId::of(block.id()) == Some(row.container()))
            || known.delta.page(row.container()).is_some_and(|page| usize::from(row.row()) < page.rows())
    };
    for columns in KEYS {
        for count in [0, 1, 1, 2, 7, 80] {
            let context = format!("{context}, {count} keys of {columns:?}");
            let batch = rows(random, count, 2 * end);
            let keys: Vec<ArrayRef> = columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
            let expected = expected(&live, columns, &values_of(&keys));
            let new: Vec<_> = expected.iter().copied().filter(|(_, row)| !is_known(row)).collect();
            for table in [table, &keyed] {
                let search = KeySearch::new(table, columns);
                assert_eq!(search.find(&keys).unwrap(), expected, "{context}");
                assert_eq!(search.excluding_rows_of(known).find(&keys).unwrap(), new, "{context}, new ones");
                let outside = search.find_outside_of_blocks(&keys);
                assert_eq!(outside.is_some(), table.delta.keys().any(|key| is_permuted(key, columns)), "{context}");
                let mut in_pages = expected.clone();
                in_pages.retain(|(_, row)| table.delta.page(row.container()).is_some());
                assert!(outside.is_none_or(|outside| outside == in_pages), "{context}, in pages");
            }
        }
    }
}

fn is_permuted(key: &[usize], columns: &[usize]) -> bool {
    key.len() == columns.len() && columns.iter().all(|column| key.contains(column))
}

fn sorted(batch: &RecordBatch) -> RecordBatch {
    let numbers = batch.column(0).as_primitive::<Int64Type>();
    let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
    order.sort_by_key(|row| (numbers.is_null(*row as usize), numbers.value(*row as usize)));
    arrow_select::take::take_record_batch(batch, &arrow_array::UInt32Array::from(order)).unwrap()
}

#[test]
fn keys_are_found_in_the_rows_that_have_them() {
    use IndexKind::{Bloom, CsbTree};
    let bloom: [(IndexKind, &[usize]); 5] = [(Bloom, &[0]), (Bloom, &[1]), (Bloom, &[2]), (Bloom, &[3]), (Bloom, &[4])];
    let trees: [(IndexKind, &[usize]); 5] =
        [(CsbTree, &[0]), (CsbTree, &[1]), (CsbTree, &[2]), (CsbTree, &[3, 2]), (CsbTree, &[1, 0])];
    let designs = [
        design("column", &[], false),
        design("column", &[], true),
        design("column", &bloom, false),
        design("column", &trees, false),
        design("packed_row", &trees, true),
        design("row", &bloom, false),
    ];
    for (seed, design) in designs.iter().enumerate() {
        let (mut random, store, end) = (Random(seed as u64), Store::in_memory().unwrap(), 300);
        store.commit::<_, CommitError>(|edit| edit.create_table("t", schema(), design.clone())).unwrap();
        let empty = table(&store);
        check(&empty, &empty, &mut random, end, "without rows");
        let block = |random: &mut Random, count| match rows(random, count, end) {
            rows if design.sort_by.is_empty() => rows,
            rows => sorted(&rows),
        };
        append(&store, design, &block(&mut random, 900));
        insert(&store, &rows(&mut random, 40, end));
        delete_some(&store, &mut random);
        let before = table(&store);
        append(&store, design, &block(&mut random, 300));
        insert(&store, &rows(&mut random, 30, end));
        insert(&store, &rows(&mut random, 1_100, end));
        insert(&store, &rows(&mut random, 3, end));
        delete_some(&store, &mut random);
        let context = format!("design {seed}");
        check(&table(&store), &empty, &mut random, end, &context);
        check(&table(&store), &before, &mut random, end, &context);
        check(&table(&store), &table(&store), &mut random, end, &context);
    }
}

#[test]
fn many_keys_are_searched_at_once_in_many_segments() {
    let (mut random, store) = (Random(9), Store::in_memory().unwrap());
    let design = design("column", &[(IndexKind::CsbTree, &[0])], false);
    store.commit::<_, CommitError>(|edit| edit.create_table("t", schema(), design.clone())).unwrap();
    append(&store, &design, &rows(&mut random, 70_000, 1 << 20));
    insert(&store, &rows(&mut random, 5_000, 1 << 20));
    let (table, columns) = (table(&store), [0]);
    let mut by_value = std::collections::BTreeMap::<String, Vec<RowId>>::new();
    for (row_id, row) in live_rows(&table) {
        row[0].iter().for_each(|value| by_value.entry(value.clone()).or_default().push(row_id));
    }
    for count in [2_000, 20_000] {
        let keys = [Arc::clone(rows(&mut random, count, 1 << 20).column(0))];
        let of_key = |(index, key): (u32, Row)| {
            let rows = key[0].as_ref().and_then(|key| by_value.get(key)).cloned().unwrap_or_default();
            rows.into_iter().map(move |row| (index, row))
        };
        let mut expected: Vec<(u32, RowId)> = (0..).zip(values_of(&keys)).flat_map(of_key).collect();
        expected.sort_unstable();
        assert!(expected.len() > count / 20);
        assert_eq!(KeySearch::new(&table, &columns).find(&keys).unwrap(), expected, "{count} keys");
    }
}
