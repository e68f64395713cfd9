//! Functions: creation, replacement, removal, conflicts between transactions, and views that call them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{open, view};
use taut_store::disk::SimulatedDisk;
use taut_store::{CommentTarget, CommitError, Function, Store, Synchronous, View};

fn function(name: &str, body: &str) -> Function {
    Function { name: name.to_owned(), definition: format!("() RETURNS int LANGUAGE SQL AS '{body}'") }
}

fn create(store: &Store, function: Function, replaces: bool) -> Result<(), CommitError> {
    store.commit(|edit| edit.create_function(function, replaces))
}

fn names(store: &Store) -> Vec<String> {
    store.snapshot().functions().map(|function| function.name.clone()).collect()
}

#[test]
fn functions_are_durable_and_have_names_of_their_own() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_schema("s")).unwrap();
    common::create_table(&store, "f").unwrap();
    let before = store.snapshot().definitions_id();
    create(&store, function("f", "SELECT 1"), false).unwrap();
    assert_ne!(store.snapshot().definitions_id(), before, "plans that call f must be made again");
    create(&store, function("s.f", "SELECT 2"), false).unwrap();
    create(&store, function("gone", "SELECT 3"), false).unwrap();
    assert!(matches!(create(&store, function("f", ""), false), Err(CommitError::FunctionExists { .. })));
    assert!(matches!(create(&store, function("none.f", ""), true), Err(CommitError::NoSchema { .. })));
    assert!(matches!(create(&store, function("pg_temp.f", ""), false), Err(CommitError::NoSchema { .. })));
    create(&store, function("s.f", "SELECT 4"), true).unwrap();
    let on = CommentTarget::Function("s.f".to_owned());
    store.commit::<_, CommitError>(|edit| edit.set_comment(on.clone(), Some("four".to_owned()))).unwrap();
    store.commit::<_, CommitError>(|edit| edit.drop_function("gone")).unwrap();
    let absent = store.commit::<_, CommitError>(|edit| edit.drop_function("gone"));
    assert!(matches!(absent, Err(CommitError::NoFunction { .. })));
    drop(store);
    // From the log, and then from the catalog file.
    for _ in 0..2 {
        let store = open(&disk).unwrap();
        assert_eq!(names(&store), ["f", "s.f"]);
        assert_eq!(store.snapshot().function("s.f"), Some(&function("s.f", "SELECT 4")));
        assert_eq!(store.snapshot().comment(&on), Some("four"));
        store.checkpoint().unwrap();
    }
    let store = open(&disk).unwrap();
    store.commit::<_, CommitError>(|edit| edit.drop_function("s.f")).unwrap();
    assert_eq!(store.snapshot().comment(&on), None);
}

#[test]
fn a_schema_with_a_function_is_not_dropped() {
    let store = open(&SimulatedDisk::new()).unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_schema("s")).unwrap();
    create(&store, function("s.f", "SELECT 1"), false).unwrap();
    let error = store.commit::<(), CommitError>(|edit| edit.drop_schema("s")).unwrap_err();
    assert_eq!(error.to_string(), "cannot drop schema \"s\" because function \"s.f\" is in it");
}

#[test]
fn a_function_that_a_view_calls_is_not_dropped() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create(&store, function("f", "SELECT 1"), false).unwrap();
    let calling = View { functions: ["f".to_owned()].into(), ..view("v", "SELECT f()") };
    // A transaction drops the function before another one creates a view that calls it, and the other way round.
    let dropping = store.begin();
    dropping.change::<_, CommitError>(|edit| edit.drop_function("f")).unwrap();
    let creating = store.begin();
    creating.change::<_, CommitError>(|edit| edit.create_view(calling.clone(), false)).unwrap();
    creating.commit(Synchronous::Full).unwrap();
    assert!(matches!(dropping.commit(Synchronous::Full), Err(CommitError::ViewCalls { .. })));
    store.commit::<_, CommitError>(|edit| edit.drop_view("v")).unwrap();
    let creating = store.begin();
    creating.change::<_, CommitError>(|edit| edit.create_view(calling, false)).unwrap();
    store.commit::<_, CommitError>(|edit| edit.drop_function("f")).unwrap();
    assert!(matches!(creating.commit(Synchronous::Full), Err(CommitError::ViewChanged { .. })));
}

#[test]
fn concurrent_replacements_conflict() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create(&store, function("f", "SELECT 1"), false).unwrap();
    let (one, other) = (store.begin(), store.begin());
    for (transaction, body) in [(&one, "SELECT 2"), (&other, "SELECT 3")] {
        transaction.change::<_, CommitError>(|edit| edit.create_function(function("f", body), true)).unwrap();
    }
    one.commit(Synchronous::Full).unwrap();
    assert!(matches!(other.commit(Synchronous::Full), Err(CommitError::FunctionChanged { .. })));
    assert_eq!(store.snapshot().function("f"), Some(&function("f", "SELECT 2")));
}
