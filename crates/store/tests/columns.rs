//! Columns are added, dropped and renamed: what snapshots, other transactions and readers see, and which files stay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{
    all_old_rows, append, assert_tidy, change_in, change_rows, create_table, drop_table, files_of, open, read, rows_of,
    view, write, write_for,
};
use taut_store::disk::SimulatedDisk;
use taut_store::{
    Check, CommitError, Constraints, ForeignKey, ReferentialAction, RowOrder, Store, Synchronous, TableId, UniqueKey,
    View, verify,
};
use taut_types::{
    Column, ColumnIndex, Datum, IndexDesign, IndexKind, LogicalType, SchemaError, SortColumn, TableDesign,
};

/// Adds column `c<value>` with that value.
fn add(store: &Store, table: TableId, value: i64) {
    let column = Column::new(format!("c{value}"), LogicalType::BigInt, true);
    let value = Some(Datum::Number(value.into()));
    store.commit::<_, CommitError>(|edit| edit.add_column(table, column, value)).unwrap();
}

/// A database with a table `t`, which has rows 1 to 6 in two blocks, and row 7 in none.
fn sample() -> (SimulatedDisk, Store, TableId) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let blocks = vec![write(&store, &[1, 2, 3], "column").unwrap(), write(&store, &[4, 5, 6], "packed_row").unwrap()];
    append(&store, "t", blocks).unwrap();
    change_rows(&store, "t", &[7], &[2]).unwrap();
    let table = store.snapshot().table("t").unwrap().id;
    (disk, store, table)
}

#[test]
fn a_snapshot_keeps_the_columns_and_the_files_that_it_had() {
    let (disk, store, table) = sample();
    let before = store.snapshot();
    add(&store, table, 5);
    let with_column = store.snapshot();
    store.commit::<_, CommitError>(|edit| edit.drop_column(table, ColumnIndex(1))).unwrap();
    add(&store, table, 6);
    for (snapshot, columns) in [(&before, 1), (&with_column, 2), (&store.snapshot(), 2)] {
        let table = snapshot.table("t").unwrap();
        assert_eq!(table.schema.len(), columns);
        // Checks the values of all columns.
        assert_eq!(rows_of(table).unwrap(), [1, 3, 4, 5, 6, 7]);
    }
    drop_table(&store, "t").unwrap();
    assert_eq!(files_of(&disk, "blocks/").len(), 2, "snapshots reference the blocks");
    drop(with_column);
    assert_eq!(rows_of(before.table("t").unwrap()).unwrap(), [1, 3, 4, 5, 6, 7]);
    drop(before);
    assert_eq!(files_of(&disk, "blocks/").len(), 0);
    assert_tidy(&store, &disk, "at the end");
}

#[test]
fn columns_survive_checkpoints_and_rewrites() {
    let (disk, store, table) = sample();
    add(&store, table, 5);
    store.checkpoint().unwrap();
    add(&store, table, 6);
    change_rows(&store, "t", &[8, 9], &[4]).unwrap();
    let version = store.snapshot().version();
    drop(store);
    let store = open(&disk.after_kill()).unwrap();
    assert_eq!(store.snapshot().version(), version);
    let snapshot = store.snapshot();
    let stored = snapshot.table("t").unwrap();
    assert_eq!(rows_of(stored).unwrap(), [1, 3, 5, 6, 7, 8, 9]);
    assert!(stored.blocks.iter().all(|block| block.columns().is_some()));
    let new = vec![write_for(&store, stored, &[1, 3, 5, 6, 7, 8, 9], "column").unwrap()];
    let old = all_old_rows(stored);
    store.commit::<_, CommitError>(|edit| edit.replace_rows(table, old, new, RowOrder::Sorted)).unwrap();
    let snapshot = store.snapshot();
    let stored = snapshot.table("t").unwrap();
    assert_eq!(rows_of(stored).unwrap(), [1, 3, 5, 6, 7, 8, 9]);
    assert!(stored.blocks.iter().all(|block| block.columns().is_none()));
    assert!(verify(&store).is_empty());
}

#[test]
fn a_reader_follows_changes_of_columns() {
    let (disk, writer, table) = sample();
    let reader = read(&disk).unwrap();
    let first = reader.snapshot();
    for value in 10..20 {
        add(&writer, table, value);
        if value % 2 == 0 {
            writer.commit::<_, CommitError>(|edit| edit.drop_column(table, ColumnIndex(1))).unwrap();
        }
        if value % 3 == 0 {
            writer.checkpoint().unwrap();
        }
        let before = reader.snapshot();
        assert!(reader.refresh().unwrap());
        // Cached plans depend on the id.
        let has_same_columns = reader.snapshot().table("t").unwrap().schema == before.table("t").unwrap().schema;
        assert_eq!(reader.snapshot().definitions_id() == before.definitions_id(), has_same_columns);
        let (own, of_writer) = (reader.snapshot(), writer.snapshot());
        assert_eq!(own.table("t").unwrap().schema, of_writer.table("t").unwrap().schema);
        assert_eq!(rows_of(own.table("t").unwrap()).unwrap(), [1, 3, 4, 5, 6, 7]);
    }
    // The files of the first snapshot stay, although the last version that the reader has read does not reference them.
    drop_table(&writer, "t").unwrap();
    writer.checkpoint().unwrap();
    assert!(reader.refresh().unwrap());
    create_table(&writer, "u").unwrap();
    writer.checkpoint().unwrap();
    assert_eq!(rows_of(first.table("t").unwrap()).unwrap(), [1, 3, 4, 5, 6, 7]);
    drop((first, reader, writer));
    assert_tidy(&open(&disk).unwrap(), &disk, "at the end");
}

#[test]
fn a_transaction_on_a_table_whose_columns_changed_fails() {
    type Edit = fn(&mut taut_store::CatalogEdit, TableId) -> Result<(), CommitError>;
    let edits: [Edit; 3] = [
        |edit, table| edit.add_column(table, Column::new("c9", LogicalType::BigInt, true), Some(Datum::Number(9))),
        |edit, table| edit.drop_column(table, ColumnIndex(1)),
        |edit, table| edit.rename_column(table, ColumnIndex(1), "c5r"),
    ];
    for edit in edits {
        let (_, store, table) = sample();
        add(&store, table, 5);
        let inserting = store.begin();
        change_in(&inserting, "t", &[100], &[3]).unwrap();
        let reading = store.begin();
        reading.set_serializable(true);
        reading.record_table_read(table);
        reading.change::<_, CommitError>(|edit| edit.create_view(view("v", "select 1"), false)).unwrap();
        store.commit(|newest| edit(newest, table)).unwrap();
        let error = inserting.commit(Synchronous::Full).unwrap_err();
        assert!(matches!(error, CommitError::ConstraintsChanged { .. }), "{error}");
        let error = reading.commit(Synchronous::Full).unwrap_err();
        assert!(matches!(error, CommitError::Serialization { .. }), "{error}");
        assert_eq!(rows_of(store.snapshot().table("t").unwrap()).unwrap(), [1, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn a_transaction_sees_its_own_columns_and_can_undo_them() {
    let (disk, store, table) = sample();
    let transaction = store.begin();
    change_in(&transaction, "t", &[100], &[3]).unwrap();
    let state = transaction.savepoint_state();
    let column = Column::new("c5", LogicalType::BigInt, true);
    transaction.change::<_, CommitError>(|edit| edit.add_column(table, column, Some(Datum::Number(5)))).unwrap();
    change_in(&transaction, "t", &[101], &[100, 1]).unwrap();
    let rows = |snapshot: Arc<taut_store::Catalog>| rows_of(snapshot.table("t").unwrap()).unwrap();
    assert_eq!(rows(transaction.snapshot()), [4, 5, 6, 7, 101]);
    assert_eq!(rows(store.snapshot()), [1, 3, 4, 5, 6, 7]);
    transaction.restore(state);
    assert_eq!(rows(transaction.snapshot()), [1, 4, 5, 6, 7, 100]);
    assert_eq!(transaction.snapshot().table("t").unwrap().schema.len(), 1);
    let column = Column::new("c6", LogicalType::BigInt, true);
    transaction.change::<_, CommitError>(|edit| edit.add_column(table, column, Some(Datum::Number(6)))).unwrap();
    transaction.commit(Synchronous::Full).unwrap();
    assert_eq!(rows(store.snapshot()), [1, 4, 5, 6, 7, 100]);
    drop(store);
    assert_eq!(rows(open(&disk.after_kill()).unwrap().snapshot()), [1, 4, 5, 6, 7, 100]);
}

#[test]
fn a_view_and_a_change_of_what_it_reads_do_not_both_commit() {
    let of_t = || View { relations: [("t".to_owned(), vec![])].into(), ..view("v", "select * from t") };
    type Edit = fn(&mut taut_store::CatalogEdit, TableId) -> Result<(), CommitError>;
    let edits: [Edit; 4] = [
        |edit, table| edit.drop_table(table),
        |edit, table| edit.rename_table(table, "other"),
        |edit, table| edit.drop_column(table, ColumnIndex(1)),
        |edit, table| edit.rename_column(table, ColumnIndex(1), "c5r"),
    ];
    for edit in edits {
        for is_view_first in [true, false] {
            let (_, store, table) = sample();
            add(&store, table, 5);
            let (creating, changing) = (store.begin(), store.begin());
            creating.change::<_, CommitError>(|edit| edit.create_view(of_t(), false)).unwrap();
            changing.change(|newest| edit(newest, table)).unwrap();
            let (first, second) = if is_view_first { (creating, changing) } else { (changing, creating) };
            first.commit(Synchronous::Full).unwrap();
            second.commit(Synchronous::Full).unwrap_err();
            assert_eq!(store.snapshot().view("v").is_some(), is_view_first);
        }
    }
    let (_, store, table) = sample();
    store.commit::<_, CommitError>(|edit| edit.create_view(of_t(), false)).unwrap();
    let error = store.commit::<(), _>(|edit| edit.drop_table(table)).unwrap_err();
    assert!(matches!(error, CommitError::ViewDepends { .. }), "{error}");
    let on_view = View { relations: [("v".to_owned(), vec![])].into(), ..view("w", "select * from v") };
    store.commit::<_, CommitError>(|edit| edit.create_view(on_view, false)).unwrap();
    let error = store.commit::<(), _>(|edit| edit.drop_view("v")).unwrap_err();
    assert!(matches!(error, CommitError::ViewDepends { .. }), "{error}");
    store
        .commit::<_, CommitError>(|edit| {
            edit.drop_view("w")?;
            edit.drop_view("v")?;
            edit.drop_table(table)
        })
        .unwrap();
}

#[test]
fn columns_in_use_are_not_dropped_and_references_follow_their_columns() {
    let (disk, store, table) = sample();
    (5..9).for_each(|value| add(&store, table, value));
    create_table(&store, "child").unwrap();
    let child = store.snapshot().table("child").unwrap().id;
    let key = |columns: &[u32]| UniqueKey {
        name: "k".to_owned(),
        columns: columns.iter().copied().map(ColumnIndex).collect(),
        is_primary: false,
        is_index: false,
    };
    let foreign_key = |referenced: u32| ForeignKey {
        name: "f".to_owned(),
        columns: vec![ColumnIndex(0)],
        table,
        referenced: vec![ColumnIndex(referenced)],
        on_delete: ReferentialAction::NoAction,
    };
    let constraints = Constraints {
        keys: vec![key(&[3])],
        checks: vec![Check { name: "c".to_owned(), condition: "c8 > 0".to_owned() }],
        defaults: [(ColumnIndex(2), "1".to_owned()), (ColumnIndex(4), "2".to_owned())].into(),
        ..Constraints::default()
    };
    let design = TableDesign {
        sort_by: vec![SortColumn { column: ColumnIndex(0), descending: false, nulls_first: false }],
        indexes: vec![IndexDesign { name: "i".to_owned(), kind: IndexKind::Bloom, columns: vec![ColumnIndex(4)] }],
        ..TableDesign::default()
    };
    store
        .commit::<_, CommitError>(|edit| {
            edit.set_design(table, design)?;
            edit.set_constraints(table, constraints.clone())?;
            edit.set_constraints(child, Constraints { foreign_keys: vec![foreign_key(3)], ..Constraints::default() })?;
            edit.set_constraints(table, Constraints { referenced_by: [child].into(), ..constraints.clone() })
        })
        .unwrap();
    for column in [0, 3, 4] {
        let error = store.commit::<(), _>(|edit| edit.drop_column(table, ColumnIndex(column))).unwrap_err();
        assert!(matches!(error, CommitError::ColumnInUse { .. }), "{error}");
    }
    store.commit::<_, CommitError>(|edit| edit.drop_column(table, ColumnIndex(2))).unwrap();
    store.commit::<_, CommitError>(|edit| edit.drop_column(table, ColumnIndex(1))).unwrap();
    drop(store);
    let store = open(&disk.after_kill()).unwrap();
    let snapshot = store.snapshot();
    let changed = snapshot.table("t").unwrap();
    let names: Vec<&str> = changed.schema.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "c7", "c8"]);
    assert_eq!(changed.constraints.keys, [key(&[1])]);
    assert_eq!(changed.constraints.defaults, [(ColumnIndex(2), "2".to_owned())].into());
    assert_eq!(changed.design.indexes[0].columns, [ColumnIndex(2)]);
    assert_eq!(snapshot.table("child").unwrap().constraints.foreign_keys, [foreign_key(1)]);
    assert_eq!(rows_of(changed).unwrap(), [1, 3, 4, 5, 6, 7]);
    assert!(verify(&store).is_empty());
}

#[test]
fn impossible_changes_are_refused() {
    let (_, store, table) = sample();
    let column = |name: &str, nullable| Column::new(name, LogicalType::Integer, nullable);
    let add = |column: Column, value: Option<Datum>| {
        store.commit::<(), _>(|edit| edit.add_column(table, column, value)).unwrap_err()
    };
    assert!(matches!(
        add(column("id", true), None),
        CommitError::Schema { source: SchemaError::DuplicateName { .. }, .. }
    ));
    assert!(matches!(add(column("a", false), None), CommitError::MayHoldNulls { .. }));
    assert!(matches!(add(column("a", true), Some(Datum::Number(1 << 40))), CommitError::ColumnsDiffer { .. }));
    assert!(matches!(add(column("a", true), Some(Datum::Bytes([1].into()))), CommitError::ColumnsDiffer { .. }));
    let fails =
        |edit: &dyn Fn(&mut taut_store::CatalogEdit) -> Result<(), CommitError>| store.commit(edit).unwrap_err();
    assert!(matches!(
        fails(&|edit| edit.drop_column(table, ColumnIndex(0))),
        CommitError::Schema { source: SchemaError::NoColumns, .. }
    ));
    for edit in [
        &(|edit: &mut taut_store::CatalogEdit| edit.drop_column(table, ColumnIndex(1)))
            as &dyn Fn(&mut taut_store::CatalogEdit) -> Result<(), CommitError>,
        &|edit| edit.rename_column(table, ColumnIndex(1), "a"),
        &|edit| edit.set_type(table, ColumnIndex(1), LogicalType::Date),
    ] {
        assert!(matches!(fails(edit), CommitError::ColumnsDiffer { .. }));
    }
    assert!(matches!(
        fails(&|edit| edit.set_type(table, ColumnIndex(0), LogicalType::Date)),
        CommitError::HasRows { .. }
    ));
}
