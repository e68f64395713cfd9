//! Temporary relations: in several sessions, in databases that are open read-only, and with blocks on disk.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::path::Path;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use taut::{Database, MoverOptions, Outcome, Session, Settings};

fn number(session: &Session, sql: &str) -> i64 {
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches: Vec<_> = rows.map(|batch| batch.unwrap()).filter(|batch| batch.num_rows() > 0).collect();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

fn run(session: &Session, sql: &str) -> Vec<String> {
    let outcomes = session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let notices = outcomes.into_iter().flat_map(|outcome| match outcome {
        Outcome::Done(done) => done.notices,
        Outcome::Rows(_) => Vec::new(),
    });
    notices.collect()
}

fn error(session: &Session, sql: &str) -> (String, String) {
    let error = match session.execute(sql) {
        Ok(_) => panic!("{sql} succeeds"),
        Err(error) => error,
    };
    (error.to_string(), error.sqlstate().to_owned())
}

/// Names of all files of a database, with their sizes, except for its log and its readers.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true if ["log", "readers"].iter().any(|name| entry.file_name() == *name) => {}
                true => directories.push(entry.path()),
                false => found.push((entry.path().display().to_string(), entry.metadata().unwrap().len())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn each_session_has_its_own_temporary_relations() {
    let database = Database::in_memory().unwrap();
    let (one, two) = (database.session(), database.session());
    run(&one, "CREATE TABLE t (a bigint); INSERT INTO t VALUES (1)");
    run(&one, "CREATE TEMP TABLE t (a bigint); INSERT INTO t VALUES (10), (11)");
    run(&two, "CREATE TEMP TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (100)");
    assert_eq!((number(&one, "SELECT sum(a) FROM t"), number(&two, "SELECT sum(a) FROM t")), (21, 100));
    assert_eq!(number(&one, "SELECT sum(a) FROM public.t"), 1);
    // Both transactions change rows at the same time: their temporary tables have separate locks.
    run(&one, "BEGIN; UPDATE t SET a = a + 1; UPDATE public.t SET a = 2");
    run(&two, "BEGIN; UPDATE t SET a = a + 1; INSERT INTO public.t VALUES (3)");
    run(&one, "COMMIT");
    run(&two, "COMMIT");
    assert_eq!((number(&one, "SELECT sum(a) FROM t"), number(&two, "SELECT sum(a) FROM t")), (23, 101));
    assert_eq!(number(&one, "SELECT sum(a) FROM public.t"), 5);
    drop(one);
    let three = database.session();
    assert_eq!(number(&three, "SELECT sum(a) FROM t"), 5);
    assert_eq!(number(&three, "SELECT count(*) FROM taut.tables"), 1);
}

#[test]
fn a_view_over_a_temporary_table_is_temporary() {
    let database = Database::in_memory().unwrap();
    let (session, other) = (database.session(), database.session());
    run(&session, "CREATE TEMP TABLE t AS SELECT 1::bigint AS a");
    assert_eq!(run(&session, "CREATE VIEW v AS SELECT * FROM t"), ["view \"v\" will be a temporary view"]);
    assert_eq!(run(&session, "CREATE VIEW w AS SELECT * FROM v"), ["view \"w\" will be a temporary view"]);
    assert_eq!(run(&session, "CREATE TEMP VIEW x AS SELECT * FROM w"), [""; 0]);
    assert_eq!(number(&session, "SELECT a FROM x"), 1);
    assert_eq!(error(&other, "SELECT a FROM v").1, "42P01");
    let (_, state) = error(&session, "CREATE VIEW public.y AS SELECT * FROM x");
    assert_eq!(state, "42P16");
}

/// The cached plan for a permanent table is not used for a temporary table with the same name, and vice versa.
#[test]
fn cached_plans_follow_the_names() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, a bigint); INSERT INTO t VALUES (1, 1), (2, 2)");
    let query = session.parse("SELECT a FROM t WHERE id = 1").unwrap().remove(0);
    let change = session.parse("UPDATE t SET a = a + 10 WHERE id = 1").unwrap().remove(0);
    let insert =
        session.parse("INSERT INTO t VALUES (3, 3) ON CONFLICT (id) DO UPDATE SET a = t.a + 100").unwrap().remove(0);
    let read = || match session.run(&query).unwrap() {
        Outcome::Rows(rows) => {
            let batches: Vec<_> = rows.map(|batch| batch.unwrap()).filter(|batch| batch.num_rows() > 0).collect();
            batches.first().map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0))
        }
        Outcome::Done(_) => panic!("a query without rows"),
    };
    let repeat = || {
        for _ in 0..3 {
            session.run(&change).unwrap();
            session.run(&insert).unwrap();
        }
        read()
    };
    assert_eq!((read(), read(), read()), (Some(1), Some(1), Some(1)));
    assert_eq!(repeat(), Some(31));
    run(&session, "CREATE TEMP TABLE t (id bigint PRIMARY KEY, a bigint)");
    assert_eq!((read(), read(), read()), (None, None, None));
    run(&session, "INSERT INTO t VALUES (1, 1000)");
    assert_eq!((read(), read(), read()), (Some(1000), Some(1000), Some(1000)));
    assert_eq!(repeat(), Some(1030));
    assert_eq!(number(&session, "SELECT a FROM t WHERE id = 3"), 203);
    run(&session, "BEGIN; DROP TABLE t");
    assert_eq!(read(), Some(31));
    run(&session, "ROLLBACK");
    assert_eq!(read(), Some(1030));
    run(&session, "DROP TABLE t");
    assert_eq!((read(), read(), read()), (Some(31), Some(31), Some(31)));
    assert_eq!(repeat(), Some(61));
    assert_eq!(number(&session, "SELECT a FROM t WHERE id = 3"), 503);
}

/// Commits of other sessions conflict with changes of permanent tables, but not with changes of temporary tables.
#[test]
fn permanent_changes_conflict_and_temporary_ones_do_not() {
    let database = Database::in_memory().unwrap();
    let (one, two) = (database.session(), database.session());
    run(&one, "CREATE TABLE t (a bigint); INSERT INTO t VALUES (1)");
    run(&one, "CREATE TEMP TABLE u (a bigint)");
    for commits in [true, false] {
        run(&one, "BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO u SELECT a FROM t");
        if !commits {
            run(&two, "UPDATE t SET a = 7");
        }
        run(&one, "INSERT INTO t SELECT a FROM u");
        match commits {
            true => drop(run(&one, "COMMIT")),
            false => assert_eq!(error(&one, "COMMIT").1, "40001"),
        }
        // A transaction that fails undoes its temporary changes too.
        assert_eq!(number(&one, "SELECT count(*) FROM u"), 1);
    }
    // Another session commits a table with this name first, so the whole transaction fails.
    run(&one, "BEGIN; CREATE TABLE x (a bigint); INSERT INTO u VALUES (2); CREATE TEMP TABLE y (a bigint)");
    run(&two, "CREATE TABLE x (b text)");
    assert_eq!(error(&one, "COMMIT").1, "42P07");
    assert_eq!(number(&one, "SELECT count(*) FROM u"), 1);
    assert_eq!(error(&one, "SELECT * FROM y").1, "42P01");
}

#[test]
fn a_database_that_is_open_read_only_has_temporary_relations() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.taut");
    let writer = Database::open(&path).unwrap();
    let writing = writer.session();
    run(&writing, "CREATE TABLE t (a bigint); INSERT INTO t VALUES (1), (2)");
    writer.session().execute("CHECKPOINT").unwrap();
    let before = files(&path);
    let reader = Database::open_read_only(&path).unwrap();
    let session = reader.session();
    run(&session, "CREATE TEMP TABLE t2 AS SELECT a * 10 AS a FROM t");
    run(&session, "CREATE TEMP TABLE s (id serial, a bigint CHECK (a > 0)); CREATE INDEX ON s (a)");
    run(&session, "INSERT INTO s (a) SELECT a FROM t; UPDATE s SET a = a + 1; DELETE FROM s WHERE a = 2");
    run(&session, "CREATE VIEW v AS SELECT s.a, t2.a AS b FROM s JOIN t2 ON t2.a = 20");
    assert_eq!(number(&session, "SELECT a * 100 + b FROM v"), 320);
    run(
        &session,
        "ALTER TABLE s ADD COLUMN c bigint DEFAULT 4; BEGIN; TRUNCATE t2; INSERT INTO s (a) VALUES (9); COMMIT",
    );
    assert_eq!(number(&session, "SELECT sum(a + c) + nextval('s_id_seq') FROM s GROUP BY ()"), 24);
    for refused in [
        "CREATE TABLE u (a bigint)",
        "INSERT INTO t VALUES (3)",
        "UPDATE t SET a = 1",
        "CREATE VIEW w AS SELECT * FROM t",
        "ALTER TABLE t ADD COLUMN b int",
        "DROP TABLE t2, t",
        "CREATE SCHEMA x",
        "CREATE TABLE u AS SELECT * FROM s",
        "WITH i AS (INSERT INTO t VALUES (3) RETURNING a) SELECT * FROM i",
    ] {
        assert_eq!(error(&session, refused).1, "25006", "{refused}");
    }
    assert_eq!(error(&session, "BEGIN READ ONLY; CREATE TEMP TABLE r (a int)").1, "25006");
    run(&session, "ROLLBACK; BEGIN READ ONLY; INSERT INTO s (a) VALUES (5); COMMIT");
    // A table that the writer creates does not get the id of a temporary table.
    run(&writing, "CREATE TABLE later (a bigint); INSERT INTO later VALUES (77)");
    session.refresh().unwrap();
    assert_eq!(number(&session, "SELECT a FROM later"), 77);
    assert_eq!(number(&session, "SELECT count(*) FROM s"), 3);
    assert_eq!(files(&path), before);
}

/// The blocks of temporary tables are in a file without a name, so a killed process leaves no file.
#[test]
fn nothing_remains_of_a_table_that_is_larger_than_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.taut");
    let settings =
        Settings { memory_bytes: Some(32 << 20), cache_bytes: Some(1 << 20), threads: 2, ..Settings::default() };
    let database = Database::open_with(&path, &settings).unwrap();
    database.session().execute("CREATE TABLE p (a bigint); CHECKPOINT").unwrap();
    let before = files(&path);
    for layout in ["column", "row"] {
        let session = database.session();
        // Without compression, the table is larger than the memory limit.
        let create = format!(
            "CREATE TEMP TABLE big WITH (layout = '{layout}', compression = none, block_size = '1MiB')
             AS SELECT i, md5(i::text) AS s FROM generate_series(1, 1000000) AS g(i)"
        );
        run(&session, &create);
        assert_eq!(files(&path), before, "{layout}");
        assert_eq!(number(&session, "SELECT sum(i) FROM big"), 500_000_500_000);
        assert_eq!(number(&session, "SELECT count(DISTINCT s) FROM big"), 1_000_000);
        run(&session, "DELETE FROM big WHERE i % 2 = 0; VACUUM FULL big; UPDATE big SET s = 'x' WHERE i < 1000");
        assert_eq!(number(&session, "SELECT count(*) FROM big WHERE s = 'x'"), 500);
        assert_eq!(number(&session, "SELECT count(*) FROM big"), 500_000);
        assert_eq!(files(&path), before, "{layout}");
    }
}

/// Rows of small inserts collect in memory. Commits write them to blocks, because the mover ignores temporary tables.
#[test]
fn many_small_inserts_become_blocks() {
    let mover = MoverOptions { delta_rows: 1_000, ..MoverOptions::default() };
    let settings = Settings { threads: 2, mover, ..Settings::default() };
    let database = Database::in_memory_with(&settings).unwrap();
    let session = database.session();
    run(&session, "CREATE TEMP TABLE t (a bigint PRIMARY KEY)");
    for start in 0..200 {
        let values: Vec<String> = (0..200).map(|row| format!("({})", start * 200 + row)).collect();
        run(&session, &format!("INSERT INTO t VALUES {}", values.join(", ")));
    }
    assert_eq!(number(&session, "SELECT sum(a) FROM t"), 39_999 * 40_000 / 2);
    assert!(number(&session, "SELECT blocks::bigint FROM taut.tables WHERE table_name = 'pg_temp.t'") > 0);
    assert_eq!(error(&session, "INSERT INTO t VALUES (5)").1, "23505");
}
