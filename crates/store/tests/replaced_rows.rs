//! Row relocation from blocks and delta pages to new blocks. Column statistics stay correct, and replacements that do
//! not match the current rows are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::{assert_tidy, open, ready};
use taut_block::BlockBuilder;
use taut_store::disk::SimulatedDisk;
use taut_store::{
    CommitError, ContainerId, NewBlock, OldRows, RowId, RowOrder, RowSet, Store, Synchronous, Table, TableId, verify,
};
use taut_testkit::Random;
use taut_types::{Column, LogicalType, Schema, TableDesign};

type Values = Vec<Option<i64>>;

fn schema() -> Schema {
    Schema::new(vec![Column::new("a", LogicalType::BigInt, true)]).unwrap()
}

fn batch(values: &[Option<i64>]) -> RecordBatch {
    let column: ArrayRef = Arc::new(values.iter().copied().collect::<Int64Array>());
    RecordBatch::try_new(schema().arrow(), vec![column]).unwrap()
}

fn block(store: &Store, values: &[Option<i64>]) -> NewBlock {
    let design = TableDesign::default();
    let mut builder = BlockBuilder::new(Arc::new(schema()), Arc::new(design.clone()));
    builder.push(&batch(values)).unwrap();
    store.write_block(&builder.finish().unwrap(), &design).unwrap()
}

fn table(store: &Store) -> Arc<Table> {
    Arc::clone(store.snapshot().table("t").unwrap())
}

fn nulls_of(values: &[Option<i64>]) -> u64 {
    values.iter().filter(|value| value.is_none()).count() as u64
}

/// Values of rows in delta pages that are not deleted.
fn live_pages(table: &Table) -> Values {
    let mut values = Values::new();
    for page in table.delta.pages() {
        let column = page.columns(&[0]).remove(0);
        let deleted = table.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0));
        let live = column.as_primitive::<Int64Type>().iter().zip(0..);
        values.extend(
            live.filter(|(_, row)| deleted.is_none_or(|deleted| !deleted.contains(*row))).map(|(value, _)| value),
        );
    }
    values
}

/// All blocks and delta pages of a table. `nulls` is the number of nulls in its blocks.
fn all_old_rows(table: &Table, nulls: u64) -> OldRows {
    OldRows {
        blocks: table.blocks.iter().map(|block| block.id()).collect(),
        pages: table.delta.pages().iter().map(|page| (page.id(), page.rows() as u32)).collect(),
        nulls: vec![nulls],
        omitted: Some(table.delta.all_deleted().map(|(container, rows)| (container, Arc::clone(rows))).collect()),
        relocations: None,
    }
}

fn delete(store: &Store, rows: impl Iterator<Item = RowId>) {
    let transaction = store.begin();
    ready(transaction.delete_rows(TableId(1), &rows.collect::<RowSet>())).unwrap();
    transaction.commit(Synchronous::Full).unwrap();
}

fn insert(store: &Store, values: &[Option<i64>]) {
    let transaction = store.begin();
    transaction.insert_rows(TableId(1), &batch(values)).unwrap();
    transaction.commit(Synchronous::Full).unwrap();
}

fn replace(store: &Store, old: OldRows, new: Vec<NewBlock>, order: RowOrder) -> Result<(), CommitError> {
    store.commit(|edit| edit.replace_rows(TableId(1), old, new, order))
}

fn new_store(disk: &SimulatedDisk) -> Store {
    let store = open(disk).unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_table("t", schema(), TableDesign::default())).unwrap();
    store
}

#[test]
fn nulls_and_rows_are_counted_over_many_replacements() {
    for seed in 0..20 {
        let (disk, mut random) = (SimulatedDisk::new(), Random(seed));
        let mut store = new_store(&disk);
        // Rows of the only block, including deleted ones, and for each whether it is deleted.
        let (mut sealed, mut deleted) = (Values::new(), Vec::<bool>::new());
        for round in 0..12 {
            let context = format!("seed {seed}, round {round}");
            let mut values = |count| (0..count).map(|value| (random.below(3) > 0).then_some(value)).collect::<Values>();
            insert(&store, &values(1 + 700 * (round % 3)));
            insert(&store, &values(5));
            let live: Vec<usize> = (0..sealed.len()).filter(|row| !deleted[*row]).collect();
            let gone: Vec<usize> = live.into_iter().filter(|_| random.below(4) == 0).collect();
            gone.iter().for_each(|row| deleted[*row] = true);
            let container = table(&store).blocks.first().and_then(|block| ContainerId::of(block.id()));
            let of_block = container
                .into_iter()
                .flat_map(|container| gone.iter().map(move |row| RowId::new(container, 0, *row as u16)));
            let pages = table(&store).delta.pages().to_vec();
            // The newest row.
            let of_page = pages.last().map(|page| RowId::new(page.id(), 0, page.rows() as u16 - 1)).unwrap();
            delete(&store, of_block.chain([of_page]));
            if round % 4 == 1 && !sealed.is_empty() {
                // The new block has the same rows in the same positions. Deleted rows stay deleted.
                let (old, new) = ([table(&store).blocks[0].id()], vec![block(&store, &sealed)]);
                store
                    .commit::<_, CommitError>(|edit| {
                        edit.replace_blocks(TableId(1), &old, new, RowOrder::SamePositions)
                    })
                    .unwrap();
            }
            if round % 3 > 0 {
                let kept = sealed.iter().zip(&deleted).filter(|(_, is_deleted)| !**is_deleted).map(|(value, _)| *value);
                let all: Values = kept.chain(live_pages(&table(&store))).collect();
                let old = all_old_rows(&table(&store), nulls_of(&sealed));
                replace(&store, old, vec![block(&store, &all)], RowOrder::Sorted).unwrap();
                (deleted, sealed) = (vec![false; all.len()], all);
                assert!(table(&store).delta.is_empty(), "{context}");
            }
            if round % 5 == 4 {
                drop(store);
                store = open(&disk).unwrap();
            }
            let table = table(&store);
            let statistics = &table.statistics[0];
            assert_eq!((statistics.rows, statistics.nulls), (sealed.len() as u64, nulls_of(&sealed)), "{context}");
            let live = deleted.iter().filter(|is_deleted| !**is_deleted).count() + live_pages(&table).len();
            assert_eq!(table.rows(), live as u64, "{context}");
            assert_tidy(&store, &disk, &context);
        }
        let lost = disk.after_power_loss(seed);
        let again = open(&lost).unwrap();
        assert_eq!(table(&again).rows(), table(&store).rows());
        assert!(verify(&again).is_empty(), "seed {seed}");
    }
}

#[test]
fn rows_that_changed_concurrently_are_not_replaced() {
    let disk = SimulatedDisk::new();
    let store = new_store(&disk);
    store
        .commit::<_, CommitError>(|edit| edit.append_blocks(TableId(1), vec![block(&store, &[Some(1), None])]))
        .unwrap();
    insert(&store, &[None, Some(4)]);
    let seen = table(&store);
    let page = seen.delta.pages()[0].id();
    let (old, all) = (all_old_rows(&seen, 1), [Some(1), None, None, Some(4)]);
    drop(seen);
    let refused = |old: OldRows, values: &[Option<i64>], order| {
        replace(&store, old, vec![block(&store, values)], order).unwrap_err()
    };
    let error = refused(old.clone(), &all[..3], RowOrder::Sorted);
    assert!(matches!(error, CommitError::RowsDiffer { expected: 4, found: 3, .. }), "{error}");
    let error = refused(OldRows { nulls: vec![], ..old.clone() }, &all, RowOrder::Sorted);
    assert!(matches!(error, CommitError::ColumnsDiffer { .. }), "{error}");
    let error = refused(old.clone(), &all, RowOrder::SameOrder);
    assert!(matches!(error, CommitError::NotOneRun { .. }), "rows of pages are in no run: {error}");
    // The page now has one more row.
    insert(&store, &[Some(5)]);
    let error = refused(old, &all, RowOrder::Sorted);
    assert!(matches!(error, CommitError::RowsChanged { .. }), "{error}");
    // The page now has one live row less.
    let old = all_old_rows(&table(&store), 1);
    delete(&store, [RowId::new(page, 0, 0)].into_iter());
    let error = refused(old, &[Some(1), None, None, Some(4), Some(5)], RowOrder::Sorted);
    assert!(matches!(error, CommitError::RowsChanged { .. }), "{error}");
    assert_tidy(&store, &disk, "refused");
    replace(
        &store,
        all_old_rows(&table(&store), 1),
        vec![block(&store, &[Some(1), None, Some(4), Some(5)])],
        RowOrder::Sorted,
    )
    .unwrap();
    assert_eq!((table(&store).rows(), table(&store).statistics[0].nulls), (4, 1));
    assert_tidy(&store, &disk, "replaced");
}
