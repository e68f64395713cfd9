//! Temporary relations of sessions, beside the permanent ones of the database.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::sync::Arc;

use taut_store::disk::MemoryDisk;
use taut_store::{Catalog, CatalogEdit, CommitError, OpenOptions, Store, Synchronous, TableId, View};
use taut_types::{Column, LogicalType, Schema, TEMPORARY_SCHEMA, TableDesign};

/// A change of the catalog.
type Edit<'a> = &'a dyn Fn(&mut CatalogEdit) -> Result<(), CommitError>;

fn create(edit: &mut CatalogEdit, name: &str) -> Result<TableId, CommitError> {
    let schema = Schema::new(vec![Column::new("a", LogicalType::Integer, true)]).unwrap();
    edit.create_table(name, schema, TableDesign::default())
}

fn view(name: &str, reads: &str) -> View {
    let relations = [(reads.to_owned(), vec!["a".to_owned()])].into();
    View {
        name: name.to_owned(),
        sql: String::new(),
        search_path: Vec::new(),
        relations,
        functions: Default::default(),
    }
}

fn names(catalog: &Catalog) -> Vec<&str> {
    catalog.tables().map(|table| table.name.as_str()).collect()
}

#[test]
fn only_the_session_sees_its_temporary_relations_and_the_database_stores_none() {
    let disk = Arc::new(MemoryDisk::new());
    let open = || Store::open_on(Arc::clone(&disk) as _, OpenOptions { create: true, ..OpenOptions::default() });
    let database = Arc::new(open().unwrap());
    let (one, two) = (database.for_session(Arc::new(MemoryDisk::new())), database.for_session(disk.clone()));
    let before = database.snapshot().version();
    let own = one.commit(|edit| create(edit, "pg_temp.t")).unwrap();
    let other = two.commit(|edit| create(edit, "pg_temp.t")).unwrap();
    assert!(own.is_temporary() && other.is_temporary() && own != other);
    assert_eq!(database.snapshot().version(), before);
    // One transaction creates a permanent and a temporary table.
    let transaction = one.begin();
    let (p, u) =
        transaction.change(|edit| Ok::<_, CommitError>((create(edit, "p")?, create(edit, "pg_temp.u")?))).unwrap();
    assert!(!p.is_temporary() && u.is_temporary());
    assert_eq!(names(&one.snapshot()), ["pg_temp.t"]);
    transaction.commit(Synchronous::Full).unwrap();
    assert_eq!(names(&one.snapshot()), ["p", "pg_temp.t", "pg_temp.u"]);
    assert_eq!(names(&two.snapshot()), ["p", "pg_temp.t"]);
    assert_eq!(names(&database.snapshot()), ["p"]);
    one.commit(|edit| edit.create_view(view("pg_temp.v", "p"), false)).unwrap();
    one.checkpoint().unwrap();
    drop((one, two, transaction, database));
    let database = Arc::new(open().unwrap());
    let snapshot = database.snapshot();
    assert_eq!((names(&snapshot), snapshot.views().count(), snapshot.schemas().count()), (vec!["p"], 0, 1));
}

#[test]
fn permanent_and_temporary_relations_stay_apart() {
    let database = Arc::new(Store::in_memory().unwrap());
    let session = database.for_session(Arc::new(MemoryDisk::new()));
    let (p, t) = session.commit(|edit| Ok::<_, CommitError>((create(edit, "p")?, create(edit, "pg_temp.t")?))).unwrap();
    let refused: [Edit<'_>; 6] = [
        &|edit| edit.rename_table(p, "pg_temp.p"),
        &|edit| edit.rename_table(t, "t"),
        &|edit| edit.create_view(view("v", "pg_temp.t"), false),
        &|edit| edit.create_schema(TEMPORARY_SCHEMA),
        &|edit| edit.drop_schema(TEMPORARY_SCHEMA),
        &|edit| create(edit, "pg_temp.t").map(drop),
    ];
    for change in refused {
        assert!(session.commit(change).is_err());
    }
    // A handle without a session has no temporary relations.
    let error = database.commit(|edit| create(edit, "pg_temp.x")).unwrap_err();
    assert!(matches!(error, CommitError::NoSchema { .. }), "{error}");
    assert_eq!(names(&session.snapshot()), ["p", "pg_temp.t"]);
}

#[test]
fn each_pair_of_permanent_and_temporary_definitions_has_its_own_id() {
    let database = Arc::new(Store::in_memory().unwrap());
    let session = database.for_session(Arc::new(MemoryDisk::new()));
    let mut ids = vec![session.snapshot().definitions_id()];
    let mut add = |id: u64| {
        assert!(!ids.contains(&id));
        ids.push(id);
    };
    let t = session.commit(|edit| create(edit, "pg_temp.t")).unwrap();
    let merged = session.snapshot();
    add(merged.definitions_id());
    assert!(Arc::ptr_eq(&merged, &session.snapshot()));
    database.commit(|edit| create(edit, "p")).unwrap();
    add(session.snapshot().definitions_id());
    session.commit(|edit| edit.drop_table(t)).unwrap();
    let permanent = session.snapshot().definitions_id();
    assert_eq!(permanent, database.snapshot().definitions_id());
    session.commit(|edit| create(edit, "pg_temp.t")).unwrap();
    add(session.snapshot().definitions_id());
}
