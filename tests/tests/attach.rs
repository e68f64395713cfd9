//! Attached databases: queries over several databases, snapshots, sessions, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::path::PathBuf;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use taut::{Database, Outcome, Session};
use tempfile::TempDir;

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
    let failed = match session.execute(sql) {
        Ok(outcomes) => outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Rows(rows) => rows.into_iter().find_map(Result::err),
            Outcome::Done(_) => None,
        }),
        Err(error) => Some(error),
    };
    let error = failed.unwrap_or_else(|| panic!("{sql} succeeds"));
    (error.message(), error.sqlstate().to_owned())
}

/// A database with some relations, and another one, open for writing, whose tables have the same ids.
struct Pair {
    directory: TempDir,
    main: Database,
    other: Database,
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let main = Database::open(directory.path().join("main.taut")).unwrap();
        let other = Database::open(directory.path().join("shop.taut")).unwrap();
        run(
            &main.session(),
            "CREATE TABLE parent (id bigint PRIMARY KEY, x bigint);
             CREATE TABLE child (id bigint PRIMARY KEY, p bigint NOT NULL REFERENCES parent);
             INSERT INTO parent VALUES (1, 10), (2, 20);
             INSERT INTO child VALUES (1, 1), (2, 2)",
        );
        run(
            &other.session(),
            "CREATE TABLE parent (id bigint PRIMARY KEY, x bigint);
             CREATE TABLE child (id bigint PRIMARY KEY, p bigint);
             CREATE SCHEMA s;
             CREATE TABLE s.parent (id bigint, x bigint);
             INSERT INTO parent VALUES (1, 100), (3, 300);
             INSERT INTO s.parent VALUES (2, 2000);
             CREATE VIEW large AS SELECT id, x FROM parent WHERE x > 150;
             CREATE VIEW larger AS SELECT id, q.x FROM large JOIN s.parent AS q USING (id)",
        );
        Self { directory, main, other }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("shop.taut")
    }

    fn attach(&self, session: &Session, name: &str) {
        run(session, &format!("ATTACH '{}' AS {name} (READ_ONLY)", self.path().display()));
    }
}

#[test]
fn queries_read_several_databases() {
    let pair = Pair::new();
    let session = pair.main.session();
    pair.attach(&session, "a");
    for (sql, expected) in [
        ("SELECT sum(x) FROM a.parent", 400),
        ("SELECT sum(x) FROM a.public.parent", 400),
        ("SELECT sum(x) FROM a.s.parent", 2000),
        ("SELECT sum(x) FROM parent", 30),
        ("SELECT sum(x) FROM taut.public.parent", 30),
        ("SELECT sum(x) FROM a.large", 300),
        ("SELECT count(*) FROM a.larger", 0),
        ("SELECT a.parent.x FROM a.parent WHERE a.parent.id = 1", 100),
        ("SELECT a.public.parent.x FROM a.public.parent WHERE parent.id = 1", 100),
        ("SELECT a.s.parent.x FROM a.s.parent", 2000),
        // Relations of one name.
        ("SELECT a.parent.x FROM parent JOIN a.parent ON public.parent.id = a.parent.id", 100),
        ("SELECT public.parent.x FROM parent JOIN a.public.parent ON public.parent.id = a.parent.id", 10),
        ("SELECT a.s.parent.x FROM parent JOIN a.s.parent ON public.parent.id = a.s.parent.id", 2000),
        ("SELECT sum(a.s.parent.x + a.parent.x) FROM a.parent, a.s.parent", 4400),
        // The foreign key is to a table of the same id in the other database.
        ("SELECT count(*) FROM child JOIN a.parent AS q ON child.p = q.id", 1),
        ("SELECT count(*) FROM child WHERE EXISTS (SELECT 1 FROM a.parent AS q WHERE q.id = child.p)", 1),
        ("SELECT count(*) FROM child JOIN parent AS q ON child.p = q.id", 2),
        ("WITH a AS (SELECT 7::bigint AS x) SELECT x FROM a", 7),
        ("SELECT count(*) FROM a.taut.tables", 3),
    ] {
        // From the second time on, a query may run from a cached plan.
        for _ in 0..3 {
            assert_eq!(number(&session, sql), expected, "{sql}");
        }
    }
    let (message, sqlstate) = error(&session, "SELECT parent.x FROM parent, a.parent");
    assert_eq!((message.as_str(), sqlstate.as_str()), ("table reference \"parent\" is ambiguous", "42P09"));
    assert_eq!(number(&pair.main.session(), "SELECT sum(x) FROM a.parent"), 400, "another session");
    run(&session, "DESCRIBE a.parent; SUMMARIZE a.parent; EXPLAIN SELECT * FROM a.parent");
    run(&session, "PREPARE q AS SELECT x FROM a.parent WHERE id = $1");
    for (id, x) in [(1, 100), (3, 300), (1, 100)] {
        assert_eq!(number(&session, &format!("EXECUTE q({id})")), x);
    }
}

#[test]
fn changes_read_attached_databases() {
    let pair = Pair::new();
    let session = pair.main.session();
    pair.attach(&session, "a");
    run(&session, "CREATE TABLE copied AS SELECT * FROM a.parent");
    assert_eq!(number(&session, "SELECT sum(x) FROM copied"), 400);
    run(&session, "INSERT INTO copied SELECT id + 10, x FROM a.parent");
    assert_eq!(number(&session, "SELECT sum(x) FROM copied"), 800);
    run(&session, "UPDATE parent SET x = q.x FROM a.parent AS q WHERE parent.id = q.id");
    assert_eq!(number(&session, "SELECT sum(x) FROM parent"), 120);
    run(
        &session,
        "MERGE INTO parent USING a.parent AS q ON parent.id = q.id
         WHEN MATCHED THEN UPDATE SET x = 0 WHEN NOT MATCHED THEN INSERT VALUES (q.id, q.x)",
    );
    assert_eq!(number(&session, "SELECT sum(x) FROM parent"), 320);
    run(&session, "DELETE FROM copied WHERE id IN (SELECT id FROM a.parent)");
    assert_eq!(number(&session, "SELECT count(*) FROM copied"), 2);
    run(&session, "CREATE OR REPLACE TABLE copied AS SELECT * FROM a.large");
    assert_eq!(number(&session, "SELECT sum(x) FROM copied"), 300);
    assert_eq!(number(&pair.other.session(), "SELECT sum(x) FROM parent"), 400);
}

#[test]
fn attached_databases_are_not_changed() {
    let pair = Pair::new();
    let session = pair.main.session();
    pair.attach(&session, "a");
    for sql in [
        "INSERT INTO a.parent VALUES (9, 9)",
        "INSERT INTO a.parent SELECT * FROM parent",
        "INSERT INTO a.parent VALUES (9, 9) ON CONFLICT DO NOTHING",
        "INSERT INTO a.parent VALUES (9, 9) RETURNING id",
        "UPDATE a.parent SET x = 0",
        "DELETE FROM a.parent",
        "MERGE INTO a.parent USING parent AS q ON parent.id = q.id WHEN MATCHED THEN DELETE",
        "WITH q AS (DELETE FROM a.parent RETURNING id) SELECT * FROM q",
        "TRUNCATE a.parent",
        "COPY a.parent FROM 'x.csv'",
        "CREATE TABLE a.t (b bigint)",
        "CREATE TABLE IF NOT EXISTS a.t (b bigint)",
        "CREATE TABLE a.t AS SELECT 1 AS b",
        "CREATE TABLE t (b bigint REFERENCES a.parent)",
        "CREATE TABLE t (LIKE a.parent)",
        "CREATE VIEW a.v AS SELECT 1 AS b",
        "CREATE SEQUENCE a.q",
        "CREATE INDEX ON a.parent (x)",
        "ALTER TABLE a.parent ADD COLUMN b bigint",
        "ALTER TABLE a.parent SET SCHEMA s",
        "ALTER TABLE child ADD FOREIGN KEY (p) REFERENCES a.parent",
        "ALTER VIEW a.large RENAME TO v",
        "DROP TABLE a.parent",
        "DROP TABLE IF EXISTS a.parent",
        "DROP VIEW a.large CASCADE",
        "COMMENT ON TABLE a.parent IS 'b'",
        "VACUUM a.parent",
    ] {
        let (message, sqlstate) = error(&session, sql);
        assert_eq!(sqlstate, "25006", "{sql}: {message}");
        assert!(message.ends_with("database \"a\" is attached read-only"), "{sql}: {message}");
    }
    for sql in [
        "CREATE VIEW v AS SELECT * FROM a.parent",
        "CREATE VIEW v AS SELECT * FROM a.public.parent",
        "CREATE TEMP VIEW v AS SELECT (SELECT max(x) FROM a.parent) AS x",
        "DROP TABLE a.public.parent",
        "UPDATE a.public.parent SET x = 0",
        "USE a",
    ] {
        assert_eq!(error(&session, sql).1, "0A000", "{sql}");
    }
    assert_eq!(error(&session, "INSERT INTO a.public.parent VALUES (9, 9)").1, "25006");
    assert_eq!(number(&session, "SELECT sum(x) FROM parent"), 30);
    assert_eq!(number(&session, "SELECT count(*) FROM taut.tables"), 2);
    assert_eq!(number(&pair.other.session(), "SELECT sum(x) FROM parent"), 400);
}

#[test]
fn a_transaction_has_one_snapshot_of_each_database() {
    let pair = Pair::new();
    let (one, two, writer) = (pair.main.session(), pair.main.session(), pair.other.session());
    pair.attach(&one, "a");
    run(&one, "BEGIN");
    assert_eq!(number(&one, "SELECT sum(x) FROM a.parent"), 400);
    run(&writer, "INSERT INTO parent VALUES (4, 1000)");
    assert_eq!(number(&two, "SELECT sum(x) FROM a.parent"), 400, "before the refresh");
    assert!(pair.main.refresh().unwrap());
    assert!(!two.refresh().unwrap());
    assert_eq!(number(&two, "SELECT sum(x) FROM a.parent"), 1400);
    assert_eq!(number(&one, "SELECT sum(x) FROM a.parent"), 400);
    // What the transaction reads stays, and its other statements too.
    run(&two, "DETACH a");
    run(&writer, "DELETE FROM parent; VACUUM FULL; CHECKPOINT");
    assert_eq!(number(&one, "SELECT sum(x) FROM a.parent"), 400);
    run(&one, "COMMIT");
    assert_eq!(error(&one, "SELECT sum(x) FROM a.parent").1, "42P01");
    pair.attach(&two, "a");
    assert_eq!(number(&one, "SELECT count(*) FROM a.parent"), 0);
    run(&one, "BEGIN ISOLATION LEVEL READ COMMITTED");
    assert_eq!(number(&one, "SELECT count(*) FROM a.parent"), 0);
    run(&writer, "INSERT INTO parent VALUES (4, 1000)");
    two.refresh().unwrap();
    assert_eq!(number(&one, "SELECT count(*) FROM a.parent"), 1);
    run(&one, "COMMIT");
}

#[test]
fn reads_of_the_sessions_own_database_are_checked_beside_attached_ones() {
    let pair = Pair::new();
    let (one, two) = (pair.main.session(), pair.main.session());
    pair.attach(&one, "a");
    // The tables have the same id, and the query reads other rows of them.
    let reads = "SELECT count(*) FROM a.parent AS q WHERE q.id = 1 AND q.x < (SELECT max(x) FROM parent WHERE id = 2)";
    for inserted in [false, true] {
        run(&one, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        assert_eq!(number(&one, reads), 0);
        if inserted {
            run(&two, "UPDATE parent SET x = 21 WHERE id = 2");
        }
        run(&one, "UPDATE child SET p = p");
        match inserted {
            true => assert_eq!(error(&one, "COMMIT").1, "40001"),
            false => drop(run(&one, "COMMIT")),
        }
    }
}

#[test]
fn names_and_paths_are_checked() {
    let pair = Pair::new();
    let session = pair.main.session();
    let (path, folder) = (pair.path().display().to_string(), pair.directory.path().display().to_string());
    run(&session, "CREATE SCHEMA sales");
    for (sql, message, sqlstate) in [
        (format!("ATTACH '{path}' AS a"), "ATTACH of a database for writing is not supported", "0A000"),
        (
            format!("ATTACH '{path}' AS a (READ_ONLY false)"),
            "ATTACH of a database for writing is not supported",
            "0A000",
        ),
        (format!("ATTACH '{path}' AS a (TYPE sqlite)"), "option type sqlite of ATTACH is not supported", "0A000"),
        (format!("ATTACH '{path}' AS taut (READ_ONLY)"), "unacceptable database name \"taut\"", "42939"),
        (format!("ATTACH '{path}' AS public (READ_ONLY)"), "unacceptable database name \"public\"", "42939"),
        (format!("ATTACH '{path}' AS pg_a (READ_ONLY)"), "unacceptable database name \"pg_a\"", "42939"),
        (
            format!("ATTACH '{path}' AS sales (READ_ONLY)"),
            "\"sales\" would be the name of a schema and of an attached database",
            "42P06",
        ),
        (format!("ATTACH '{folder}/none' AS a (READ_ONLY)"), "", "3D000"),
        (
            format!(
                "ATTACH '{folder}/../{}/main.taut' AS a (READ_ONLY)",
                pair.directory.path().file_name().unwrap().to_str().unwrap()
            ),
            "",
            "55006",
        ),
        ("DETACH a".to_owned(), "database \"a\" does not exist", "3D000"),
        ("SELECT * FROM a.parent".to_owned(), "", "42P01"),
    ] {
        let (found, state) = error(&session, &sql);
        assert_eq!(state, sqlstate, "{sql}: {found}");
        assert!(found.starts_with(message), "{sql}: {found}");
    }
    assert_eq!(run(&session, "DETACH DATABASE IF EXISTS a"), ["database \"a\" does not exist, skipping"]);
    run(&session, &format!("ATTACH DATABASE '{path}' (READ_ONLY true)"));
    assert_eq!(number(&session, "SELECT sum(x) FROM shop.parent"), 400);
    assert_eq!(error(&session, &format!("ATTACH '{path}' AS shop (READ_ONLY)")).1, "42P04");
    assert_eq!(error(&session, &format!("ATTACH '{path}' AS again (READ_ONLY)")).1, "55006");
    let notices = run(&session, &format!("ATTACH IF NOT EXISTS '{path}' AS shop (READ_ONLY)"));
    assert_eq!(notices, ["database \"shop\" already exists, skipping"]);
    assert_eq!(error(&session, "CREATE SCHEMA shop").1, "42P06");
    assert_eq!(error(&session, "ALTER SCHEMA sales RENAME TO shop").1, "42P06");
    assert_eq!(number(&session, "SELECT count(*) FROM taut.databases WHERE path LIKE '%.taut' AND read_only"), 1);
    run(&session, "BEGIN");
    assert_eq!(error(&session, "DETACH shop").1, "25001");
    run(&session, "ROLLBACK; BEGIN");
    assert_eq!(error(&session, &format!("ATTACH '{path}' AS again (READ_ONLY)")).1, "25001");
    run(&session, "ROLLBACK; DETACH shop");
    assert_eq!(error(&session, "SELECT * FROM shop.parent").1, "42P01");
}

#[test]
fn rows_that_are_being_read_outlive_the_attachment() {
    let pair = Pair::new();
    run(&pair.other.session(), "INSERT INTO parent SELECT 10 + i, 1 FROM generate_series(1, 300000) AS q(i)");
    let session = pair.main.session();
    pair.attach(&session, "a");
    let mut rows = session.query("SELECT id, x FROM a.parent").unwrap();
    let first = rows.next().unwrap().unwrap().num_rows();
    run(&pair.main.session(), "DETACH a");
    let rest: usize = rows.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(first + rest, 300_002);
}

#[test]
fn functions_of_the_session_in_views_are_refused() {
    let pair = Pair::new();
    run(&pair.other.session(), "CREATE SEQUENCE q; CREATE VIEW numbered AS SELECT nextval('q') AS n");
    let session = pair.main.session();
    run(&session, "CREATE SEQUENCE q");
    pair.attach(&session, "a");
    assert_eq!(error(&session, "SELECT * FROM a.numbered").1, "0A000");
    assert_eq!(number(&session, "SELECT nextval('q')"), 1);
}
