//! Sessions side by side, cancelled statements, loads that fail in the middle.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of this file is a test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::arrow::error::ArrowError;
use taut::{Database, Session, Settings};

fn number(session: &Session, sql: &str) -> i64 {
    let batches: Vec<_> =
        session.query(sql).unwrap().map(|batch| batch.unwrap()).filter(|b| b.num_rows() > 0).collect();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[test]
fn readers_keep_their_snapshot_while_a_writer_loads_and_rewrites() {
    let database = Database::in_memory().unwrap();
    let writer = database.session();
    writer.execute("CREATE TABLE t (a bigint) WITH (block_size = '128KiB')").unwrap();
    writer.execute("INSERT INTO t SELECT i FROM generate_series(1, 100000) AS g(i)").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let session = database.session();
            scope.spawn(move || {
                for _ in 0..30 {
                    let count = number(&session, "SELECT count(a) FROM t");
                    assert_eq!(count % 100_000, 0, "a load is seen whole or not at all");
                    let sum = number(&session, "SELECT sum(a) FROM t WHERE a > 0");
                    assert_eq!(sum % 5_000_050_000, 0);
                }
            });
        }
        for layout in ["row", "packed_row", "column"] {
            writer.execute("INSERT INTO t SELECT i FROM generate_series(1, 100000) AS g(i)").unwrap();
            writer.execute(&format!("ALTER TABLE t SET (layout = '{layout}')")).unwrap();
        }
    });
    assert_eq!(number(&writer, "SELECT count(*) FROM t"), 400_000);
}

#[test]
fn a_cancelled_statement_ends_soon_and_leaves_nothing() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let handle = session.cancel_handle();
    let start = Instant::now();
    let error = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            handle.cancel();
        });
        session.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000000000) AS g(i)").unwrap_err()
    });
    assert!(error.is_cancelled(), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(session.query("SELECT * FROM t").is_err());
    assert_eq!(number(&session, "SELECT count(*) FROM taut.tables"), 0);
}

#[test]
fn a_load_that_fails_in_the_middle_leaves_nothing() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
    let batch = || {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50_000));
        RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap()
    };
    let failing = vec![Ok(batch()), Ok(batch()), Err(ArrowError::ComputeError("the source broke".to_owned()))];
    let design = [("block_size".to_owned(), "128KiB".to_owned())];
    let error =
        session.load_batches("t", Arc::clone(&schema), vec![Box::new(failing.into_iter())], &design).unwrap_err();
    assert!(error.to_string().contains("the source broke"), "{error}");
    assert!(session.query("SELECT * FROM t").is_err());
    let good = vec![Ok(batch()), Ok(batch())];
    assert_eq!(session.load_batches("t", schema.clone(), vec![Box::new(good.into_iter())], &design).unwrap(), 100_000);
    assert_eq!(number(&session, "SELECT count(a) FROM t"), 100_000);
}

#[test]
fn a_missing_database_is_not_made_where_that_is_not_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    let error = Database::open_with(&path, &Settings { create: false, ..Settings::default() }).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
    assert!(!path.exists());
    std::fs::write(directory.path().join("file"), "text").unwrap();
    assert!(Database::open(directory.path().join("file")).is_err());
}

#[test]
fn a_directory_of_other_things_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("letter.txt"), "dear reader").unwrap();
    let opened = Database::open(directory.path());
    assert!(opened.is_err(), "a directory with foreign files was taken for a new database");
}

/// The longest chains that are let through, on a thread with little stack, and one operator more.
#[test]
fn long_chains_of_operators_run_or_are_refused() {
    const OPERATORS_MAX: usize = 2_000;
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t AS SELECT i AS a, 'x' AS s FROM generate_series(1, 100) AS g(i)").unwrap();
    let chain = |term: &str, operators: usize, separator: &str| vec![term; operators + 1].join(separator);
    let cases = [
        ("SELECT {} FROM t LIMIT 1", "1", " + ", 1, "SELECT CAST(a + {} AS bigint) FROM t WHERE a = 1"),
        ("SELECT count(*) FROM t WHERE {}", "a = 1", " OR ", 2, "SELECT count(*) FROM t WHERE a % 2 = 0 AND ({})"),
        ("SELECT length({}) FROM t", "s", " || ", 1, "SELECT count(*) FROM t WHERE {} = 'x'"),
        ("{}", "SELECT 1", " UNION ALL ", 10, "SELECT count(*) FROM ({})"),
    ];
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(2 << 20);
        let run = small.spawn_scoped(scope, || {
            for (statement, term, separator, operators_a_term, other) in cases {
                // A few operators are left for the rest of the statement.
                let longest = chain(term, (OPERATORS_MAX - 10) / operators_a_term, separator);
                for statement in [statement, other] {
                    let rows = session.query(&statement.replace("{}", &longest)).unwrap();
                    assert!(rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>() > 0, "{separator}");
                }
                // Short statements over what is deep.
                let query = statement.replace("{}", &longest);
                session.execute(&format!("CREATE OR REPLACE VIEW deep AS {query}")).unwrap();
                assert!(session.query("SELECT count(*) FROM deep").unwrap().all(|batch| batch.is_ok()));
                session.execute(&format!("DROP VIEW deep; PREPARE deep AS {query}")).unwrap();
                assert!(session.query("EXECUTE deep").unwrap().all(|batch| batch.is_ok()));
                session.execute("DEALLOCATE deep").unwrap();
                let longer = chain(term, OPERATORS_MAX + 1, separator);
                let error = session.query(&statement.replace("{}", &longer)).unwrap_err().to_string();
                assert!(error.contains("more than 2000 operators follow each other"), "{separator}: {error}");
                let enormous = chain(term, 200 * OPERATORS_MAX, separator);
                assert!(session.query(&statement.replace("{}", &enormous)).is_err());
            }
        });
        run.unwrap().join().unwrap();
    });
}
