//! Tables of every type and layout, restored from backups at every point in time, equal the model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use arrow_array::RecordBatch;
use common::backups::{WITH_LOG, at, back_up, now, restore};
use common::{open, ready};
use taut_block::{BlockBuilder, ScanReport};
use taut_store::backup::BackupLog;
use taut_store::disk::SimulatedDisk;
use taut_store::{CommitError, ContainerId, ReadCounters, RowId, RowOrder, RowSet, Store, Synchronous, Table, verify};
use taut_testkit::{Model, Random, TestTable};
use taut_types::{ColumnIndex, Datum, Predicate, TableDesign};

type Row = Vec<Option<Datum>>;

/// Rows of a table that are not deleted, with their row ids.
fn rows_of(table: &Table) -> Vec<(RowId, Row)> {
    let arrow = table.schema.arrow();
    let columns: Vec<ColumnIndex> = (0..table.schema.len()).map(ColumnIndex::from).collect();
    let keys =
        |arrays| Model::from_batches(&table.schema, &[RecordBatch::try_new(Arc::clone(&arrow), arrays).unwrap()]).rows;
    let mut rows = Vec::new();
    for file in table.blocks.iter() {
        let open = file.open(&ReadCounters::new()).unwrap();
        let container = ContainerId::of(file.id()).unwrap();
        for segment in 0..open.block().segments() {
            let mut report = ScanReport::default();
            let mut reader = table.open_segment(&open, segment);
            let selection = reader.filter(&Predicate::default(), &mut report).unwrap();
            let arrays = reader.project(&selection, 0..selection.len(), &columns, &mut report).unwrap();
            let row_ids =
                selection.positions().into_iter().map(|row| RowId::new(container, segment as u16, row as u16));
            rows.extend(row_ids.zip(keys(arrays)));
        }
    }
    let columns_by_index: Vec<usize> = (0..table.schema.len()).collect();
    for page in table.delta.pages() {
        let deleted = table.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0));
        for (row, values) in keys(page.columns(&columns_by_index)).into_iter().enumerate() {
            if deleted.is_none_or(|deleted| !deleted.contains(row as u32)) {
                rows.push((RowId::new(page.id(), 0, row as u16), values));
            }
        }
    }
    rows
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

fn write(store: &Store, table: &TestTable, design: &TableDesign, batch: &RecordBatch) -> taut_store::NewBlock {
    let mut builder = BlockBuilder::new(Arc::new(table.schema.clone()), Arc::new(design.clone()));
    builder.push(batch).unwrap();
    store.write_block(&builder.finish().unwrap(), design).unwrap()
}

/// Slices of the batches of a table, with `rows` rows each.
fn batches(table: &TestTable, rows: usize) -> Vec<RecordBatch> {
    let slices = |batch: &RecordBatch| -> Vec<RecordBatch> {
        (0..batch.num_rows()).step_by(rows).map(|at| batch.slice(at, rows.min(batch.num_rows() - at))).collect()
    };
    table.batches.iter().flat_map(slices).take(20).collect()
}

/// Inserts, deletes and relocates rows, takes backups in between, and restores every commit. Returns the number of
/// commits.
fn check(table: &TestTable, options: &[(&str, &str)], seed: u64) -> u64 {
    let context = format!("{}, {options:?}", table.name);
    let design = TableDesign::from_options(options.iter().copied(), &table.schema).unwrap();
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    let (schema, design_of_table) = (table.schema.clone(), design.clone());
    let id = store.commit::<_, CommitError>(|edit| edit.create_table("t", schema, design_of_table)).unwrap();
    let mut random = Random(seed);
    let mut model = Model::from_batches(&table.schema, &[]);
    back_up(&store, &backups, WITH_LOG).unwrap();
    let mut states = Vec::new();
    let mut record_state = |model: &Model| states.push((now(), sorted(model.rows.clone())));
    for (number, batch) in batches(table, 60).iter().enumerate() {
        model.rows.extend(Model::from_batches(&table.schema, std::slice::from_ref(batch)).rows);
        if random.below(2) == 0 {
            let block = write(&store, table, &design, batch);
            store.commit::<_, CommitError>(|edit| edit.append_blocks(id, vec![block])).unwrap();
        } else {
            let transaction = store.begin();
            transaction.insert_rows(id, batch).unwrap();
            transaction.commit(Synchronous::Full).unwrap();
        }
        record_state(&model);
        let snapshot = store.snapshot();
        let stored = snapshot.table("t").unwrap();
        let chosen: Vec<(RowId, Row)> = rows_of(stored).into_iter().filter(|_| random.below(6) == 0).collect();
        if number % 3 == 1 && !chosen.is_empty() {
            let rows: RowSet = chosen.iter().map(|(row, _)| *row).collect();
            let transaction = store.begin();
            ready(transaction.delete_rows(id, &rows)).unwrap();
            transaction.commit(Synchronous::Full).unwrap();
            for (_, row) in chosen {
                let index = model.rows.iter().position(|known| *known == row).expect("a row of the model");
                model.rows.swap_remove(index);
            }
            record_state(&model);
        }
        drop(snapshot);
        if number % 5 == 4 {
            // All rows go to one block, so later backups do not need the earlier blocks.
            let snapshot = store.snapshot();
            let stored = snapshot.table("t").unwrap();
            let rows = rows_of(stored);
            let arrays = (0..table.schema.len()).map(|column| {
                let values: Vec<Option<Datum>> = rows.iter().map(|(_, row)| row[column].clone()).collect();
                taut_testkit::array_of(&values, table.schema.column(ColumnIndex::from(column)).logical_type)
            });
            let batch = RecordBatch::try_new(table.schema.arrow(), arrays.collect()).unwrap();
            let block = write(&store, table, &design, &batch);
            let nulls = (0..table.schema.len()).map(|column| block_nulls(stored, column)).collect();
            let old = taut_store::OldRows { nulls, ..common::all_old_rows(stored) };
            store.commit::<_, CommitError>(|edit| edit.replace_rows(id, old, vec![block], RowOrder::Sorted)).unwrap();
            store.checkpoint().unwrap();
            record_state(&model);
        }
        if number % 4 == 3 {
            let report = back_up(&store, &backups, WITH_LOG).unwrap();
            assert!(matches!(report.log, BackupLog::Continued { .. }), "{context}: {report:?}");
        }
    }
    back_up(&store, &backups, WITH_LOG).unwrap();
    for (index, (time, expected)) in states.iter().enumerate() {
        let (disk, _) = restore(&backups, at(*time)).unwrap();
        let store = open(&disk).unwrap();
        let damages = verify(&store);
        assert!(damages.is_empty(), "{context}, state {index}: {damages:?}");
        let found = rows_of(store.snapshot().table("t").unwrap()).into_iter().map(|(_, row)| row).collect();
        assert!(sorted(found) == *expected, "{context}, state {index}: other rows");
    }
    states.len() as u64
}

/// Number of nulls of a column in the blocks of a table, including deleted rows.
fn block_nulls(table: &Table, column: usize) -> u64 {
    let statistics = table.blocks.iter().map(|block| {
        let open = block.open(&ReadCounters::new()).unwrap();
        open.block().statistics(&open, ColumnIndex::from(column)).unwrap().nulls
    });
    statistics.sum()
}

#[test]
fn every_type_and_layout_is_restored_at_every_point_in_time() {
    let tables = taut_testkit::tables(11);
    let named = |name: &str| tables.iter().find(|table| table.name == name).unwrap();
    let mut points = 0;
    for (seed, layout) in ["column", "row", "packed_row"].into_iter().enumerate() {
        for table in [&tables[seed], named("long values")] {
            points += check(table, &[("layout", layout)], seed as u64);
        }
    }
    points += check(named("long values"), &[("layout", "groups"), ("groups", "(text,id),(bytes)")], 5);
    points += check(named("local"), &[("layout", "groups"), ("groups", "(n0,n1),(n2),(n3,n4)")], 6);
    assert!(points > 100, "{points}");
}
