//! Statements that exceed the memory limit: hash joins that fall back to merge joins, spill files, and error messages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use taut::{Database, Session, Settings};

/// Memory limit for queries, in bytes. The tables below are several times as large.
const MEMORY: usize = 64 << 20;

fn open(directory: &Path, memory_bytes: usize) -> Database {
    let settings = Settings { threads: 2, memory_bytes: Some(memory_bytes), ..Settings::default() };
    Database::open_with(directory, &settings).unwrap()
}

fn with_rows(session: &Session, rows: usize) {
    session.execute("CREATE TABLE a (i BIGINT, t TEXT); CREATE TABLE b (i BIGINT, t TEXT)").unwrap();
    for table in ["a", "b"] {
        let rows = format!(
            "SELECT i, 'the {table} of row number ' || i || ' is a long text' FROM generate_series(1, {rows}) g(i)"
        );
        session.execute(&format!("INSERT INTO {table} {rows}")).unwrap();
    }
}

fn number(session: &Session, sql: &str) -> i64 {
    let mut batches = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batch =
        batches.next().unwrap_or_else(|| panic!("{sql}: no rows")).unwrap_or_else(|error| panic!("{sql}: {error}"));
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names = vec![];
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        names.push(entry.unwrap().file_name().into_string().unwrap());
    }
    names.sort();
    names
}

#[test]
fn joins_that_do_not_fit_in_memory_run_as_merge_joins() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path(), 2 * MEMORY);
    let session = database.session();
    with_rows(&session, 2_000_000);
    let joined = "FROM a JOIN b ON a.i = b.i WHERE length(a.t) + length(b.t) > 0";
    session.execute("SET datafusion.optimizer.hash_join_single_partition_threshold = 1000000000000").unwrap();
    session.execute("SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 1000000000000").unwrap();
    let plan = session.query(&format!("EXPLAIN SELECT max(a.t), max(b.t) {joined}")).unwrap();
    let plan: Vec<_> = plan.map(|batch| format!("{batch:?}")).collect();
    assert!(plan.concat().contains("HashJoinExec"), "otherwise there is nothing to test: {plan:?}");
    let longest = format!("SELECT max(length(a.t || b.t)) AS n, count(DISTINCT a.t || b.t) AS d {joined}");
    let check = |session: &Session| {
        assert_eq!(number(session, &format!("SELECT CAST(d AS BIGINT) FROM ({longest}) x")), 2_000_000);
    };
    // Runs with a new plan, and then with a cached plan.
    (0..3).for_each(|_| check(&session));
    session.execute(&format!("CREATE TABLE c AS SELECT a.i, a.t, b.t AS u {joined}")).unwrap();
    session.execute(&format!("INSERT INTO c SELECT a.i, a.t, b.t {joined}")).unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM c WHERE u LIKE 'the b%'"), 4_000_000);
    session.execute(&format!("BEGIN; INSERT INTO c SELECT a.i, a.t, b.t {joined}")).unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM c"), 6_000_000);
    session.execute("ROLLBACK").unwrap();
    session.execute("UPDATE a SET t = b.t FROM b WHERE a.i = b.i").unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM a WHERE t LIKE 'the b%'"), 2_000_000);
    session
        .execute("DELETE FROM c WHERE EXISTS (SELECT 1 FROM a JOIN b ON a.i = b.i AND a.t = b.t WHERE a.i = c.i)")
        .unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM c"), 0);
}

#[test]
fn spill_files_are_unnamed_and_written_to_temp_directory() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = open(directory.path(), MEMORY);
    let session = database.session();
    with_rows(&session, 1_000_000);
    let (before, path) = (names(directory.path()), other.path().to_owned());
    let sorted = "SELECT t || i AS s FROM a ORDER BY s DESC";
    let sort = || {
        let mut rows = session.query(sorted).unwrap();
        rows.next().unwrap().unwrap();
        let during = (names(directory.path()), names(&path));
        rows.try_for_each(|batch| batch.map(drop)).unwrap();
        during
    };
    assert_eq!(sort(), (before.clone(), vec![]));
    let analyzed = session.query(&format!("EXPLAIN ANALYZE {sorted}")).unwrap();
    let analyzed: String = analyzed.map(|batch| format!("{batch:?}")).collect();
    assert!(!analyzed.contains("spill_count=0,"), "otherwise nothing was spilled: {analyzed}");
    let shown_path = path.display().to_string();
    let path = &shown_path;
    session.execute(&format!("SET temp_directory = '{path}'")).unwrap();
    let shown = session.query("SHOW temp_directory").unwrap().next().unwrap().unwrap();
    assert_eq!(shown.column(0).as_string::<i32>().value(0), path.as_str());
    assert_eq!(sort(), (before, vec![]));
    let error = session.execute("SET temp_directory = '/nowhere/at/all'").unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all"), "{error}");
    drop(other);
    let error = match session.query(sorted) {
        Ok(rows) => rows.into_iter().find_map(Result::err).unwrap(),
        Err(error) => error,
    };
    assert!(error.to_string().contains(path) && error.to_string().contains("SET temp_directory"), "{error}");
    session.execute("SET temp_directory = DEFAULT").unwrap();
    assert_eq!(sort().1.len(), 0);
    for setting in ["temp_directory", "max_temp_directory_size"] {
        let error = session.execute(&format!("SET datafusion.runtime.{setting} = '/tmp'")).unwrap_err().to_string();
        assert!(error.contains("SET temp_directory"), "{error}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_ends_the_statement_with_an_error_that_names_it() {
    let Some(disk) = taut_tests::SmallDisk::new() else {
        eprintln!("not run: this user may not mount a file system");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path(), MEMORY);
    let session = database.session();
    with_rows(&session, 1_000_000);
    let path = disk.path().display().to_string();
    session.execute(&format!("SET temp_directory = '{path}'")).unwrap();
    let error = match session.query("SELECT t || i AS s FROM a ORDER BY s DESC") {
        Ok(rows) => rows.into_iter().find_map(Result::err).unwrap(),
        Err(error) => error,
    };
    let message = error.to_string();
    assert!(message.contains(&path) && message.contains("SET temp_directory"), "{message}");
    assert_eq!(error.sqlstate(), "53100", "{message}");
    assert_eq!(number(&session, "SELECT count(*) FROM a"), 1_000_000);
}

#[test]
fn errors_about_memory_name_the_operation() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path(), 1 << 20);
    let session = database.session();
    session.execute("CREATE TABLE a (i BIGINT, t TEXT)").unwrap();
    session.execute("INSERT INTO a SELECT i, 'text ' || i FROM generate_series(1, 200000) g(i)").unwrap();
    let run = |sql: &str| session.query(sql).and_then(|mut rows| rows.try_for_each(|batch| batch.map(drop)));
    let error =
        run("SELECT max(x.t), max(y.t) FROM a x, a y WHERE x.t < y.t OR x.i + y.i = 7 OR x.t || y.t = ''").err();
    let error = error.or_else(|| run("SELECT max(x.t || y.t) FROM a x CROSS JOIN a y").err());
    let message = error.unwrap().to_string();
    assert!(message.contains("out of memory") && message.contains("--memory"), "{message}");
    assert!(!message.contains("Exec") && !message.contains("Input["), "{message}");
}

#[test]
fn rows_of_a_with_query_that_do_not_fit_in_memory_spill() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path(), MEMORY);
    let session = database.session();
    with_rows(&session, 1_000_000);
    // The second reader of `x` begins after the first one has ended, so all rows of `x` have to be stored.
    let read_twice = "WITH x AS MATERIALIZED (SELECT i, t FROM a) SELECT sum(i) AS i, count(t) AS n FROM (SELECT i, t \
                      FROM x UNION ALL SELECT -i, t || 'x' FROM x) AS z";
    assert_eq!(number(&session, &format!("SELECT CAST(i AS BIGINT) FROM ({read_twice}) AS y")), 0);
    assert_eq!(number(&session, &format!("SELECT n FROM ({read_twice}) AS y")), 2_000_000);
    let analyzed = session.query(&format!("EXPLAIN ANALYZE {read_twice}")).unwrap();
    let analyzed: String = analyzed.map(|batch| format!("{batch:?}")).collect();
    assert!(analyzed.contains("MaterializeExec: x"), "{analyzed}");
    let spilled =
        analyzed.split("spilled_bytes=").skip(1).any(|rest| !rest.starts_with("0,") && !rest.starts_with("0]"));
    assert!(spilled, "otherwise nothing was spilled: {analyzed}");
}
