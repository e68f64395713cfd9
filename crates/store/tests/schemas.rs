//! Schemas: equal names in several schemas, conflicts between transactions, and names in databases without schemas.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{create_table, open, view};
use serde_json::Value;
use taut_block::checksum;
use taut_store::disk::SimulatedDisk;
use taut_store::{CommitError, Store, Synchronous, View};

fn create_schema(store: &Store, name: &str) -> Result<(), CommitError> {
    store.commit::<_, CommitError>(|edit| edit.create_schema(name))
}

fn drop_schema(store: &Store, name: &str) -> Result<(), CommitError> {
    store.commit::<_, CommitError>(|edit| edit.drop_schema(name))
}

fn names(store: &Store) -> Vec<String> {
    store.snapshot().tables().map(|table| table.name.clone()).collect()
}

#[test]
fn relations_of_one_name_live_in_several_schemas() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_schema(&store, "sales").unwrap();
    create_schema(&store, "a.b").unwrap();
    for name in ["t", "sales.t", "\"a.b\".t", "public.\"sales.t\""] {
        create_table(&store, name).unwrap();
    }
    assert!(matches!(create_table(&store, "sales.t").unwrap_err().downcast_ref(), Some(CommitError::NameTaken { .. })));
    assert!(matches!(create_table(&store, "none.t").unwrap_err().downcast_ref(), Some(CommitError::NoSchema { .. })));
    let on_sales = View { search_path: vec!["sales".to_owned()], ..view("sales.v", "select * from t") };
    store.commit::<_, CommitError>(|edit| edit.create_view(on_sales.clone(), false)).unwrap();
    let expected = ["\"a.b\".t", "public.\"sales.t\"", "sales.t", "t"];
    assert_eq!(names(&store), expected);
    drop(store);
    // From the log, and then from the catalog file.
    for _ in 0..2 {
        let store = open(&disk).unwrap();
        assert_eq!(names(&store), expected);
        assert_eq!(store.snapshot().schemas().collect::<Vec<_>>(), ["public", "a.b", "sales"]);
        assert_eq!(store.snapshot().view("sales.v"), Some(&on_sales));
        let of_sales = store.snapshot().relations_of_schema("sales").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of_sales, ["sales.t", "sales.v"]);
        store.checkpoint().unwrap();
    }
}

#[test]
fn only_an_existing_empty_schema_is_dropped() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create_schema(&store, "s").unwrap();
    assert!(matches!(create_schema(&store, "s"), Err(CommitError::SchemaExists { .. })));
    assert!(matches!(create_schema(&store, "public"), Err(CommitError::SchemaExists { .. })));
    create_table(&store, "s.t").unwrap();
    assert!(
        matches!(drop_schema(&store, "s"), Err(CommitError::SchemaNotEmpty { object, .. }) if object == "relation \"s.t\"")
    );
    let table = store.snapshot().table("s.t").unwrap().id;
    store.commit::<_, CommitError>(|edit| edit.rename_table(table, "t")).unwrap();
    drop_schema(&store, "s").unwrap();
    assert!(matches!(drop_schema(&store, "s"), Err(CommitError::NoSchema { .. })));
    assert!(matches!(drop_schema(&store, "public"), Err(CommitError::SchemaNotEmpty { .. })));
    store.commit::<_, CommitError>(|edit| edit.drop_table(table)).unwrap();
    assert!(matches!(drop_schema(&store, "public"), Err(CommitError::NoSchema { .. })));
}

/// A table cannot be created in a schema that another transaction has dropped meanwhile. A schema cannot be dropped if
/// another transaction has created a table in it meanwhile.
#[test]
fn a_schema_and_its_tables_conflict() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create_schema(&store, "s").unwrap();
    let transaction = store.begin();
    let definition = || (common::schema(), common::design("row"));
    let (schema, design) = definition();
    transaction.change::<_, CommitError>(|edit| edit.create_table("s.t", schema, design)).unwrap();
    drop_schema(&store, "s").unwrap();
    assert!(matches!(transaction.commit(Synchronous::Full), Err(CommitError::NoSchema { .. })));

    create_schema(&store, "s").unwrap();
    let transaction = store.begin();
    transaction.change::<_, CommitError>(|edit| edit.drop_schema("s")).unwrap();
    create_table(&store, "s.t").unwrap();
    assert!(matches!(transaction.commit(Synchronous::Full), Err(CommitError::SchemaNotEmpty { .. })));
    assert_eq!(names(&store), ["s.t"]);
}

/// Before format version 17, a dot was part of a name.
#[test]
fn dots_in_names_of_older_databases_stay_in_the_names() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "public.\"a.b\"").unwrap();
    let relations = [("public.\"a.b\"".to_owned(), Vec::new())].into();
    let on_table = View { relations, ..view("public.\"v.w\"", "select * from \"a.b\"") };
    store.commit::<_, CommitError>(|edit| edit.create_view(on_table.clone(), false)).unwrap();
    drop(store);
    let bytes = disk.files().remove("catalog").unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let mut json: Value = serde_json::from_slice(&bytes[line + 1..]).unwrap();
    json["tables"][0]["name"] = "a.b".into();
    json["views"][0]["name"] = "v.w".into();
    json["views"][0]["relations"] = serde_json::json!({"a.b": []});
    let json = serde_json::to_vec(&json).unwrap();
    let line = format!("taut-catalog 14 bytes={} xxh3={:016x}\n", json.len(), checksum(&json));
    disk.put("catalog", &[line.as_bytes(), &json].concat());
    let store = open(&disk).unwrap();
    assert_eq!(names(&store), ["public.\"a.b\""]);
    assert_eq!(store.snapshot().views().collect::<Vec<_>>(), [&on_table]);
}
