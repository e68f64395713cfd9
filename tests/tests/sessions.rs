//! Concurrent sessions, cancelled statements, and loads that fail midway.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of this file is a test")]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::prelude::SessionContext;
use taut::{Database, Outcome, Parameters, Session, Settings, Value};
use taut_tests::run_and_cancel;

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
    let sql = "CREATE TABLE t AS SELECT i FROM generate_series(1, 1000000000) AS g(i)";
    let start = Instant::now();
    let error = run_and_cancel(&session, Duration::from_millis(300), || session.execute(sql)).unwrap_err();
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
fn a_missing_database_is_not_created_without_create() {
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

/// The longest allowed chains of operators, on a thread with a small stack, and chains that are one operator too long.
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
                // A few operators are reserved for the rest of the statement.
                let longest = chain(term, (OPERATORS_MAX - 10) / operators_a_term, separator);
                for statement in [statement, other] {
                    let rows = session.query(&statement.replace("{}", &longest)).unwrap();
                    assert!(rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>() > 0, "{separator}");
                }
                // Short statements over a deep view or prepared statement.
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

#[test]
fn parameters_take_values_by_position_and_by_name() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t (a int, b text, c decimal(10, 2), d date, e timestamptz, f bytea)").unwrap();
    let positional = |values: &[Value]| Parameters::Positional(values.to_vec());
    let all = [
        Value::Integer(7),
        Value::Text("seven".to_owned()),
        Value::Decimal { unscaled: 725, precision: 3, scale: 2 },
        Value::Date(19_000),
        Value::TimestampTz(1_700_000_000_000_000),
        Value::Bytes(vec![0, 255]),
    ];
    let insert = session.parse("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6)").unwrap();
    session.run_with(&insert[0], &positional(&all)).unwrap();
    session.run_with(&insert[0], &positional(&[const { Value::Null }; 6])).unwrap();
    let count = |sql: &str, parameters: &Parameters| {
        let rows = session.query_with(sql, parameters).unwrap();
        rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
    };
    let every = "SELECT * FROM t WHERE a = $1 AND b = $2 AND c = $3 AND d = $4 AND e = $5 AND f = $6";
    assert_eq!(count(every, &positional(&all)), 1);
    assert_eq!(
        count("SELECT a FROM t WHERE b = ? AND a > ? -- ?", &positional(&[all[1].clone(), Value::Double(6.5)])),
        1
    );
    let named = [("low".to_owned(), Value::Integer(1)), ("name".to_owned(), all[1].clone())].into_iter().collect();
    assert_eq!(count("SELECT a FROM t WHERE a > $low AND b = $name", &Parameters::Named(named)), 1);
    assert_eq!(count("SELECT a FROM t LIMIT $1", &positional(&[Value::Integer(1)])), 1);
    for (sql, values, message) in [
        ("SELECT a FROM t WHERE a = $1", &all[..0], "wrong number of parameters: expected 1, got 0; $1 has no value"),
        ("SELECT a FROM t WHERE a = $1", &all[..2], "wrong number of parameters: expected 1, got 2"),
        ("SELECT a FROM t", &all[..1], "wrong number of parameters: expected 0, got 1"),
        ("DROP TABLE t", &all[..1], "a parameter in this statement is not supported"),
        ("SELECT a FROM t WHERE d = $1", &all[1..2], "seven"),
    ] {
        let result = session.query_with(sql, &positional(values)).and_then(|rows| rows.collect::<Result<Vec<_>, _>>());
        let error = result.unwrap_err();
        assert!(error.to_string().contains(message), "{sql}: {error}");
        assert_eq!(error.sqlstate().len(), 5);
    }
}

#[test]
fn batches_are_tables_of_their_session_alone() {
    let database = Database::in_memory().unwrap();
    let (session, other) = (database.session(), database.session());
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let query = session.parse("SELECT sum(n) FROM frame JOIN missing ON true, 'x.parquet'").unwrap();
    assert_eq!(session.unknown_tables(&query[0]).unwrap(), ["frame", "missing"]);
    session.register("frame", batch.schema(), vec![batch.clone(), batch.clone()]).unwrap();
    assert_eq!(session.unknown_tables(&query[0]).unwrap(), ["missing"]);
    assert_eq!(number(&session, "SELECT sum(n) FROM frame"), 12);
    session.register("frame", batch.schema(), vec![batch.clone()]).unwrap();
    assert_eq!(number(&session, "SELECT sum(n) FROM frame"), 6);
    let error = other.query("SELECT n FROM frame").unwrap_err();
    assert_eq!(error.sqlstate(), "42P01", "{error}");
    session.execute("CREATE TABLE kept AS SELECT * FROM frame").unwrap();
    let error = session.register("kept", batch.schema(), vec![batch]).unwrap_err();
    assert_eq!(error.sqlstate(), "42P07", "{error}");
    assert!(session.unregister("frame").unwrap() && !session.unregister("frame").unwrap());
    assert!(session.query("SELECT n FROM frame").is_err());
}

#[test]
fn a_statement_ends_when_the_callback_returns_false() {
    let database = Database::in_memory().unwrap();
    let mut session = database.session();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    session.on_wait(Some(Arc::new(move || counter.fetch_add(1, Ordering::Relaxed) < 3)));
    let error = session
        .query("SELECT count(*) FROM generate_series(1, 1000000000000) AS g(i)")
        .and_then(|rows| rows.collect::<Result<Vec<_>, _>>())
        .unwrap_err();
    assert!(error.is_cancelled() && error.sqlstate() == "57014", "{error}");
    assert!(asked.load(Ordering::Relaxed) >= 4);
    session.on_wait(None);
    assert_eq!(number(&session, "SELECT count(*) FROM generate_series(1, 10) AS g(i)"), 10);
}

#[test]
fn errors_have_their_sqlstate() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t (a int NOT NULL, b smallint)").unwrap();
    for (sql, state) in [
        ("SELECT", "42601"),
        ("SELECT a FROM", "42601"),
        ("SELECT c FROM t", "42703"),
        ("SELECT a FROM u", "42P01"),
        ("SELECT nothing(a) FROM t", "42883"),
        ("CREATE TABLE t (a int)", "42P07"),
        ("CREATE TABLE u (a int) WITH (layout = 'rows')", "22023"),
        ("INSERT INTO t VALUES (NULL, 1)", "23502"),
        ("INSERT INTO t VALUES (1, 100000)", "22003"),
        ("SELECT CAST('x' AS int)", "22P02"),
        ("SELECT 1 / 0", "22012"),
        ("COMMIT; SAVEPOINT s", "25P01"),
        ("DELETE FROM u", "42P01"),
        ("SELECT a FROM t FOR UPDATE", "0A000"),
        ("EXECUTE nothing", "26000"),
    ] {
        let run = || {
            session.execute(sql)?.into_iter().try_for_each(|outcome| match outcome {
                Outcome::Rows(mut rows) => rows.try_for_each(|batch| batch.map(drop)),
                Outcome::Done(_) => Ok(()),
            })
        };
        let error: taut::Error = run().expect_err(sql);
        assert_eq!(error.sqlstate(), state, "{sql}: {error}");
    }
}

#[test]
fn open_shared_shares_the_database_of_this_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.taut");
    let settings = Settings { threads: 1, ..Settings::default() };
    let first = Database::open_shared(&path, &settings).unwrap();
    first.session().execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 200000) AS g(i)").unwrap();
    let again = Database::open_shared(&path, &Settings { create: false, ..settings.clone() }).unwrap();
    assert_eq!(number(&again.session(), "SELECT count(*) FROM t"), 200_000);
    Database::open_shared(&path, &Settings::default()).unwrap();
    let other = Settings { threads: 1, cache_bytes: Some(1 << 20), ..Settings::default() };
    let error = Database::open_shared(&path, &other).unwrap_err();
    assert_eq!(error.sqlstate(), "55006");
    assert!(error.to_string().contains("other settings: threads 1, cache by default"), "{error}");
    assert!(Database::open(&path).is_err(), "`Database::open` shared the database");

    // A result that is still being read keeps the files and their cache open, but not the other settings.
    let mut rows = first.session().query("SELECT i FROM t").unwrap();
    rows.next().unwrap().unwrap();
    drop((first, again));
    assert_eq!(Database::open_shared(&path, &other).unwrap_err().sqlstate(), "55006");
    let other = Database::open_shared(&path, &Settings { threads: 3, ..Settings::default() }).unwrap();
    assert_eq!(number(&other.session(), "SELECT count(*) FROM t"), 200_000);
    assert!(rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>() > 0);
    drop(other);
    drop(Database::open(&path).unwrap());

    let memory = Path::new(":memory:");
    let one = Database::open_shared(memory, &Settings::default()).unwrap();
    one.session().execute("CREATE TABLE t (a int)").unwrap();
    let another = Database::open_shared(memory, &Settings::default()).unwrap();
    assert!(another.session().query("SELECT a FROM t").is_err());
}

#[test]
fn batches_are_loaded_by_the_names_of_their_columns() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t (a bigint NOT NULL, b bigint)").unwrap();
    let batch = |names: &[&str]| {
        let columns = names.iter().map(|name| (*name, Arc::new(Int64Array::from(vec![7])) as ArrayRef));
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let load =
        |batch: RecordBatch| session.load_batches("t", batch.schema(), vec![Box::new([Ok(batch)].into_iter())], &[]);
    assert_eq!(load(batch(&["b", "A"])).unwrap(), 1);
    assert_eq!(load(batch(&["a"])).unwrap(), 1);
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE a = 7"), 2);
    assert_eq!(number(&session, "SELECT count(b) FROM t"), 1);
    let error = load(batch(&["a", "c"])).unwrap_err();
    assert!(error.to_string().contains("column \"c\" of relation \"t\" does not exist"), "{error}");
    let error = load(batch(&["b"])).unwrap_err();
    assert!(error.to_string().contains("column \"a\" does not exist in the data"), "{error}");
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 2);
}

#[test]
fn a_datafusion_of_the_caller_reads_the_newest_rows() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t AS SELECT i AS a, i * 2 AS b FROM generate_series(1, 100000) AS g(i)").unwrap();
    let table = database.external_table("t").unwrap();
    assert_eq!(database.external_table("u").unwrap_err().sqlstate(), "42P01");
    let context = SessionContext::new();
    context.register_table("t", Arc::clone(&table.provider)).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let query = |sql: &str| {
        let run = async { context.sql(sql).await?.collect().await };
        runtime.block_on(run).map(|batches| batches.iter().map(RecordBatch::num_rows).sum::<usize>())
    };
    assert_eq!(query("SELECT b FROM t WHERE a > 99990 AND b <> 199998").unwrap(), 9);
    session.execute("INSERT INTO t VALUES (100001, 0)").unwrap();
    assert_eq!(query("SELECT b FROM t WHERE a > 99990").unwrap(), 11);
    session.execute("DROP TABLE t; CREATE TABLE t (z int)").unwrap();
    assert!(query("SELECT b FROM t").unwrap_err().to_string().contains("register it again"));
    session.execute("DROP TABLE t").unwrap();
    assert!(query("SELECT b FROM t").is_err());
}

#[test]
fn a_wait_callback_cannot_run_statements() {
    let database = Database::in_memory().unwrap();
    let (mut session, inner) = (database.session(), database.session());
    let state = Arc::new(Mutex::new(None));
    let told = Arc::clone(&state);
    session.on_wait(Some(Arc::new(move || {
        *told.lock().unwrap() = inner.execute("SELECT 1").err().map(|error| error.sqlstate());
        false
    })));
    let error = session.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000000000) AS g(i)").unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(*state.lock().unwrap(), Some("55000"));
}

#[test]
fn named_parameters_may_be_in_the_rows_of_an_insert() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t (a bigint, b text)").unwrap();
    let insert = session.parse("INSERT INTO t VALUES ($a, $b), ($a, $b)").unwrap();
    let values =
        |names: &[&str]| Parameters::Named(names.iter().map(|n| ((*n).to_owned(), Value::Integer(7))).collect());
    session.run_with(&insert[0], &values(&["a", "b"])).unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE a = 7 AND b = '7'"), 2);
    for names in [&["a"][..], &["a", "b", "c"]] {
        let error = session.run_with(&insert[0], &values(names)).unwrap_err();
        assert_eq!(error.sqlstate(), "08P01", "{error}");
    }
}

#[test]
fn types_of_results_have_names() {
    let name = |data_type: DataType| taut::type_name(&data_type);
    assert_eq!(name(DataType::Utf8), "varchar");
    assert_eq!(name(DataType::Null), "unknown");
    assert_eq!(name(DataType::Duration(TimeUnit::Second)), "interval");
    assert_eq!(name(DataType::Time32(TimeUnit::Second)), "time");
    assert_eq!(name(DataType::new_list(DataType::Int32, true)), "integer[]");
}

#[test]
fn a_cached_plan_finds_new_rows_and_holds_no_old_files() {
    let directory = tempfile::tempdir().unwrap();
    let blocks = || std::fs::read_dir(directory.path().join("blocks")).unwrap().count();
    let database = Database::open(directory.path()).unwrap();
    let (reader, writer) = (database.session(), database.session());
    writer.execute("CREATE TABLE t (k bigint, v bigint) WITH (sort_by = 'k')").unwrap();
    writer.execute("INSERT INTO t SELECT i, i * 2 FROM generate_series(0, 99999) AS g(i)").unwrap();
    let read = |key: i64| {
        let parameters = Parameters::Positional(vec![Value::Integer(key)]);
        let rows = reader.query_with("SELECT v FROM t WHERE k = ?", &parameters).unwrap();
        let rows = rows.flat_map(|batch| batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
        rows.collect::<Vec<_>>()
    };
    let statement = &reader.parse("SELECT v FROM t WHERE k = ?").unwrap()[0];
    for key in 0..10 {
        assert_eq!(read(key * 9999), [key * 19998]);
        assert_eq!(reader.has_cached_plan(statement), key > 0, "from the second execution on");
    }
    writer.execute("INSERT INTO t VALUES (5, -1)").unwrap();
    let mut found = read(5);
    found.sort_unstable();
    assert_eq!(found, [-1, 10]);
    writer.execute("ALTER TABLE t SET (layout = 'row')").unwrap();
    assert_eq!(read(7), [14]);
    let product = || {
        let parameters = Parameters::Positional(vec![Value::Integer(1 << 40)]);
        let rows = reader.query_with("SELECT k * ? FROM t WHERE k = 9", &parameters).unwrap();
        let rows = rows.flat_map(|batch| batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
        rows.collect::<Vec<_>>()
    };
    for _ in 0..3 {
        assert_eq!(product(), [9 << 40]);
    }
    writer.execute("DROP TABLE t").unwrap();
    assert_eq!(blocks(), 0, "the reader's plan keeps the files of a table that is gone");
    let error = reader.query_with("SELECT v FROM t WHERE k = ?", &Parameters::Positional(vec![Value::Integer(1)]));
    assert!(error.unwrap_err().to_string().contains('t'));
}

#[test]
fn a_concurrent_load_and_sort_order_change_leave_rows_in_order() {
    let database = Database::in_memory().unwrap();
    let (writer, altering) = (database.session(), database.session());
    writer.execute("CREATE TABLE t (a bigint, b bigint) WITH (sort_by = 'a')").unwrap();
    let mut refused = 0;
    for round in 0..6 {
        let order = if round % 2 == 0 { "b" } else { "a" };
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let rows = "SELECT i, 100000 - i FROM generate_series(1, 100000) AS g(i)";
                writer.execute(&format!("INSERT INTO t {rows}")).map(drop)
            });
            let alter = altering.execute(&format!("ALTER TABLE t SET (sort_by = '{order}')")).map(drop);
            for outcome in [load.join().unwrap(), alter] {
                if let Err(error) = outcome {
                    assert_eq!(error.sqlstate(), "40001", "{error}");
                    refused += 1;
                }
            }
        });
        for column in ["a", "b"] {
            let rows = writer.query(&format!("SELECT {column} FROM t ORDER BY {column}")).unwrap();
            let rows = rows.flat_map(|batch| batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
            assert!(rows.collect::<Vec<_>>().is_sorted(), "by {column} in round {round}");
        }
    }
    println!("{refused} statements were refused");
}

#[test]
fn plans_of_registered_batches_are_not_cached_even_without_their_scan() {
    let session = Database::in_memory().unwrap().session();
    for name in ["a", "b"] {
        let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, false)]));
        for _ in 0..3 {
            session.register("batches", Arc::clone(&schema), vec![]).unwrap();
            // Because of LIMIT 0, the optimized plan has no scan of the batches.
            let rows = session.query("SELECT * FROM batches LIMIT 0").unwrap();
            assert_eq!(rows.schema().field(0).name(), name);
        }
    }
}

#[test]
fn closing_waits_for_threads_of_unread_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    for round in 0..20 {
        let database = Database::open(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let session = database.session();
        if round == 0 {
            session
                .execute("CREATE TABLE t AS SELECT i, i % 1000 AS k FROM generate_series(1, 100000) AS g(i)")
                .unwrap();
        }
        session.execute("INSERT INTO t VALUES (1, 1)").unwrap();
        let mut rows = session.query("SELECT x.i, y.i FROM t AS x JOIN t AS y ON x.k = y.k").unwrap();
        assert!(rows.next().unwrap().unwrap().num_rows() > 0);
        drop((rows, session));
        database.close();
    }
    // No thread writes to the directory after the database was closed.
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_table_replaced_by_a_query_on_itself_loses_no_row_of_another_session() {
    for (query, is_refused) in
        [("SELECT k, v FROM t", true), ("SELECT k, 1 AS v FROM above", true), ("SELECT k, 2 AS v FROM u", false)]
    {
        for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let database = Database::in_memory().unwrap();
            let (session, other) = (database.session(), database.session());
            let setup = "CREATE TABLE t (k bigint, v bigint); INSERT INTO t VALUES (1, 1);
                         CREATE TABLE u AS SELECT * FROM t;
                         CREATE VIEW seen AS SELECT k FROM t; CREATE VIEW above AS SELECT k FROM seen";
            session.execute(setup).unwrap();
            session.execute(&format!("BEGIN TRANSACTION ISOLATION LEVEL {isolation}")).unwrap();
            session.execute(&format!("CREATE OR REPLACE TABLE t AS {query}")).unwrap();
            other.execute("INSERT INTO t VALUES (2, 2)").unwrap();
            let committed = session.execute("COMMIT");
            assert_eq!(committed.is_err(), is_refused, "{query}, {isolation}");
            if let Err(error) = committed {
                assert_eq!(error.sqlstate(), "40001", "{error}");
                assert_eq!(number(&session, "SELECT sum(v) FROM t"), 3);
            }
        }
    }
}

/// With several threads, a scan returns rows in insertion order, whether few or many rows pass the filter.
#[test]
fn rows_without_order_by_come_in_the_order_of_the_table() {
    let settings = Settings { threads: 4, ..Settings::default() };
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open_with(directory.path(), &settings).unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t AS SELECT i, i % 1000 AS m FROM generate_series(1, 1500000) AS g(i)").unwrap();
    for (condition, expected) in
        [("i > 0", 1_500_000), ("m = 7", 1_500), ("i % 2 = 0", 750_000), ("i > 1400000", 100_000), ("m + i < 0", 0)]
    {
        for sql in [format!("SELECT i FROM t WHERE {condition}"), format!("SELECT i + 0 AS i FROM t WHERE {condition}")]
        {
            // The third execution has a cached plan.
            for _ in 0..3 {
                let (mut before, mut count) = (0, 0);
                for batch in session.query(&sql).unwrap() {
                    let batch = batch.unwrap();
                    for i in batch.column(0).as_primitive::<Int64Type>().values() {
                        assert!(*i > before, "{sql}: {i} after {before}");
                        (before, count) = (*i, count + 1);
                    }
                }
                assert_eq!(count, expected, "{sql}");
            }
        }
    }
    // The rows are dropped before they are read to the end.
    let mut rows = session.query("SELECT i FROM t").unwrap();
    rows.next().unwrap().unwrap();
    drop(rows);
    let error = session.query("SELECT 1 / (i - 1499999) FROM t").unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("division by zero"), "{error}");
}

/// A single thread waits for inputs that are not ready, such as files, and does not poll them in a loop.
#[test]
fn one_thread_reads_several_inputs_in_order() {
    for threads in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { threads, ..Settings::default() };
        let database = Database::open_with(directory.path().join("database"), &settings).unwrap();
        let session = database.session();
        for format in ["parquet", "csv", "json"] {
            let file = directory.path().join(format!("n.{format}")).display().to_string();
            session.execute(&format!("COPY (SELECT i FROM generate_series(1, 3) AS g(i)) TO '{file}'")).unwrap();
            let rows = session.query(&format!("SELECT i FROM '{file}' UNION ALL SELECT i + 3 FROM '{file}'")).unwrap();
            let mut found = Vec::new();
            for batch in rows {
                found.extend(batch.unwrap().column(0).as_primitive::<Int64Type>().values().iter().copied());
            }
            assert_eq!(found, [1, 2, 3, 4, 5, 6], "{format}, {threads} threads");
        }
    }
}
