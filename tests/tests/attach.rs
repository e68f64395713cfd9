//! Attached databases: queries over several databases, changes of an attached one, transactions, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::path::PathBuf;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use taut::{Database, LoadOptions, MoverOptions, Outcome, Parameters, ReadOptions, Session, Settings, Value};
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
        "CREATE VIEW a.v AS SELECT 1 AS b",
        "CREATE SEQUENCE a.q",
        "CREATE INDEX ON a.parent (x)",
        "ALTER TABLE a.parent ADD COLUMN b bigint",
        "ALTER TABLE a.parent SET SCHEMA s",
        "ALTER VIEW a.large RENAME TO v",
        "DROP TABLE a.parent",
        "DROP TABLE IF EXISTS a.parent",
        "DROP TABLE a.public.parent",
        "DROP VIEW a.large CASCADE",
        "INSERT INTO a.public.parent VALUES (9, 9)",
        "UPDATE a.public.parent SET x = 0",
        "COMMENT ON TABLE a.parent IS 'b'",
        "CREATE SCHEMA a.b",
        "DROP SCHEMA a.s CASCADE",
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
        "CREATE TABLE t (b bigint REFERENCES a.parent)",
        "CREATE TABLE t (LIKE a.parent)",
        "ALTER TABLE child ADD FOREIGN KEY (p) REFERENCES a.parent",
        "USE a",
    ] {
        assert_eq!(error(&session, sql).1, "0A000", "{sql}");
    }
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
        // Another handle has it open for writing.
        (format!("ATTACH '{path}' AS a"), "", "55006"),
        (format!("ATTACH '{path}' AS a (READ_ONLY false)"), "", "55006"),
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

/// A database, and another one that is attached for writing as `a`. Tables, schemas, views and sequences of both have
/// the same names and ids, and other rows.
struct Writable {
    directory: TempDir,
    main: Database,
}

impl Writable {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let main = Database::open(directory.path().join("main.taut")).unwrap();
        let other = Database::open(directory.path().join("shop.taut")).unwrap();
        for (database, factor, ids) in [(&main, 1, "1, 2"), (&other, 10, "1, 3")] {
            run(
                &database.session(),
                &format!(
                    "CREATE TABLE t (id bigint PRIMARY KEY, x bigint);
                     CREATE TABLE u (id bigint, x bigint);
                     CREATE SCHEMA s;
                     CREATE TABLE s.t (id bigint, x bigint);
                     CREATE VIEW v AS SELECT * FROM t;
                     CREATE SEQUENCE q START {factor}000;
                     INSERT INTO t SELECT id, id * 10 * {factor} FROM unnest([{ids}]) AS i(id);
                     INSERT INTO u SELECT id, id * 1000 * {factor} FROM unnest([{ids}]) AS i(id);
                     INSERT INTO s.t VALUES (5, 5 * {factor})"
                ),
            );
        }
        other.close();
        let pair = Self { directory, main };
        run(&pair.main.session(), &format!("ATTACH '{}' AS a", pair.path().display()));
        pair
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("shop.taut")
    }

    /// Detaches the database and opens it, which recovers its log.
    fn reopened(self) -> (TempDir, Database) {
        run(&self.main.session(), "DETACH a");
        self.main.close();
        let shop = Database::open(self.directory.path().join("shop.taut")).unwrap();
        (self.directory, shop)
    }
}

#[test]
fn names_of_changes_are_those_of_the_session() {
    let pair = Writable::new();
    let session = pair.main.session();
    let before = "SELECT sum(x) FROM (SELECT x FROM t UNION ALL SELECT x FROM u UNION ALL SELECT x FROM s.t) AS q";
    assert_eq!(number(&session, before), 3035);
    assert_eq!(number(&session, "SELECT sum(x) FROM a.t"), 400);
    run(&session, "CREATE TEMP TABLE w AS SELECT 8::bigint AS id, 800::bigint AS x");
    // The sum of `a.t` after each statement.
    for (sql, expected) in [
        ("INSERT INTO a.t VALUES (9, 1)", 401),
        ("INSERT INTO a.public.t VALUES (9, 1)", 401),
        ("INSERT INTO a.t VALUES (9, (SELECT max(x) FROM t))", 420),
        ("INSERT INTO a.t SELECT id + 10, x FROM t", 430),
        ("INSERT INTO a.t SELECT id + 10, x FROM public.t", 430),
        ("INSERT INTO a.t SELECT id + 10, x FROM taut.public.t", 430),
        ("INSERT INTO a.t SELECT id + 10, x FROM a.t", 800),
        ("INSERT INTO a.t SELECT id + 10, x FROM a.public.t", 800),
        ("INSERT INTO a.t SELECT id + 10, x FROM s.t", 405),
        ("INSERT INTO a.t SELECT id + 10, x FROM a.s.t", 450),
        ("INSERT INTO a.t SELECT id + 10, x FROM v", 430),
        ("INSERT INTO a.t SELECT id + 10, x FROM a.v", 800),
        ("INSERT INTO a.t SELECT * FROM w", 1200),
        ("INSERT INTO a.t (x, id) SELECT x, id + 10 FROM t WHERE id > 1", 420),
        ("INSERT INTO a.t BY NAME SELECT x, id + 10 AS id FROM t", 430),
        ("INSERT INTO a.t SELECT q.id + 10, t.x FROM a.t AS q JOIN t ON t.id = q.id", 410),
        ("WITH t AS (SELECT 5::bigint AS id, 7::bigint AS x) INSERT INTO a.t SELECT * FROM t", 407),
        ("INSERT INTO a.t WITH t AS (SELECT 5::bigint AS id, 7::bigint AS x) SELECT * FROM t", 407),
        ("INSERT INTO a.t WITH q AS (SELECT * FROM t) SELECT id + 10, x FROM q", 430),
        ("INSERT INTO a.t SELECT id + 10, (SELECT max(x) FROM t) FROM a.u", 440),
        ("INSERT INTO a.t SELECT q.id + 10, (SELECT t.x FROM t WHERE t.id = q.id) FROM a.t AS q WHERE q.id = 1", 410),
        ("INSERT INTO a.t SELECT 1, x FROM t WHERE id = 2 ON CONFLICT (id) DO NOTHING", 400),
        ("INSERT INTO a.t VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET x = t.x + excluded.x", 405),
        ("INSERT INTO a.t SELECT 1, x FROM t WHERE id = 2 ON CONFLICT (id) DO UPDATE SET x = excluded.x", 320),
        ("INSERT INTO a.t VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET x = excluded.x + (SELECT max(x) FROM t)", 325),
        ("UPDATE a.t SET x = x + 1", 402),
        ("UPDATE a.t SET x = t.x + 1", 402),
        ("UPDATE a.t SET x = a.t.x + 1", 402),
        ("UPDATE a.public.t SET x = a.public.t.x + 1 WHERE a.t.id = 1", 401),
        ("UPDATE a.t SET x = (SELECT max(x) FROM t)", 40),
        ("UPDATE a.t SET x = (SELECT u.x FROM u WHERE u.id = a.t.id) WHERE id = 1", 1300),
        ("UPDATE a.t SET x = (SELECT u.x FROM a.u WHERE a.u.id = a.t.id)", 40_000),
        ("UPDATE a.t SET x = q.x FROM t AS q WHERE q.id = a.t.id", 310),
        ("UPDATE a.t SET x = q.x FROM a.u AS q WHERE q.id = t.id", 40_000),
        ("UPDATE a.t AS z SET x = t.x FROM t WHERE t.id = z.id", 310),
        ("UPDATE a.t AS z SET x = q.x FROM s.t AS q", 10),
        ("DELETE FROM a.t WHERE a.t.id = 1", 300),
        ("DELETE FROM a.t USING t AS q WHERE q.id = a.t.id", 300),
        ("DELETE FROM a.t USING a.s.t AS q WHERE q.x = 50 AND a.t.id = 3", 100),
        ("DELETE FROM a.t WHERE id IN (SELECT id FROM t)", 300),
        ("DELETE FROM a.t WHERE EXISTS (SELECT 1 FROM t WHERE t.id = a.t.id)", 300),
        ("DELETE FROM a.t AS z WHERE EXISTS (SELECT 1 FROM a.t AS q WHERE q.id = z.id AND q.x = 300)", 100),
        (
            "MERGE INTO a.t USING t AS q ON a.t.id = q.id WHEN MATCHED THEN UPDATE SET x = q.x
             WHEN NOT MATCHED THEN INSERT VALUES (q.id, q.x)",
            330,
        ),
        (
            "MERGE INTO a.t AS z USING (SELECT * FROM a.t WHERE x = 100) AS q ON z.id = q.id
             WHEN MATCHED THEN DELETE",
            300,
        ),
        ("WITH d AS (DELETE FROM a.t RETURNING *) INSERT INTO a.t SELECT id + 10, x + 1 FROM d", 402),
        (
            "WITH d AS (INSERT INTO a.u SELECT * FROM t RETURNING x)
             UPDATE a.t SET x = (SELECT sum(x) FROM d) + (SELECT count(*) FROM t) WHERE id = 1",
            332,
        ),
        ("EXPLAIN ANALYZE INSERT INTO a.t SELECT id + 10, x FROM t", 430),
        ("EXPLAIN ANALYZE UPDATE a.t SET x = 0", 0),
        ("EXPLAIN INSERT INTO a.t SELECT id + 10, x FROM t", 400),
        ("EXPLAIN DELETE FROM a.t", 400),
    ] {
        // From the second time on, statements may run from cached plans.
        for _ in 0..3 {
            run(&session, "BEGIN");
            drop(session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")));
            assert_eq!(number(&session, "SELECT coalesce(sum(x), 0) FROM a.t"), expected, "{sql}");
            assert_eq!(number(&session, before), 3035, "{sql}");
            run(&session, "ROLLBACK");
        }
        assert_eq!(number(&session, "SELECT sum(x) FROM a.t"), 400, "{sql}");
    }
    for (sql, expected) in [
        ("INSERT INTO a.t VALUES (9, 9) RETURNING x + (SELECT max(x) FROM t)", 29),
        ("INSERT INTO a.t VALUES (10, 9) RETURNING x + (SELECT max(x) FROM a.u)", 30_009),
        ("UPDATE a.t SET x = 0 WHERE id = 9 RETURNING a.t.x + (SELECT count(*) FROM u)", 2),
        ("DELETE FROM a.t WHERE id IN (9, 10) AND x = 9 RETURNING t.id", 10),
        ("WITH d AS (DELETE FROM a.t WHERE id = 9 RETURNING id) SELECT d.id + (SELECT max(x) FROM t) FROM d", 29),
    ] {
        assert_eq!(number(&session, sql), expected, "{sql}");
    }
    run(&session, "SET search_path = s; INSERT INTO a.t SELECT id + 10, x FROM t");
    assert_eq!(number(&session, "SELECT sum(x) FROM a.t"), 405);
    assert_eq!(number(&session, "SELECT sum(x) FROM a.s.t"), 50);
    let (_directory, shop) = pair.reopened();
    assert_eq!(number(&shop.session(), "SELECT sum(x) FROM t"), 405);
}

#[test]
fn prepared_statements_and_parameters_change_attached_databases() {
    let pair = Writable::new();
    let session = pair.main.session();
    run(
        &session,
        "PREPARE i AS INSERT INTO a.t VALUES ($1, $2);
         PREPARE n AS INSERT INTO a.t SELECT id + $1, x FROM t;
         PREPARE c AS UPDATE a.t SET x = x + $2 WHERE id = $1;
         PREPARE d AS DELETE FROM a.t WHERE id = $1 RETURNING x",
    );
    for round in 0..3 {
        run(&session, &format!("EXECUTE i({}, 5); EXECUTE n({})", 100 + round, 200 + 10 * round));
        run(&session, "EXECUTE c(1, 1); EXECUTE c(1, 1)");
        assert_eq!(number(&session, &format!("EXECUTE d({})", 100 + round)), 5);
    }
    assert_eq!(number(&session, "SELECT sum(x) FROM a.t"), 400 + 6 + 90);
    assert_eq!(number(&session, "SELECT sum(x) FROM t"), 30);
    run(
        &session,
        "EXECUTE i(500 + 1, 5); DELETE FROM a.t WHERE id = 501; EXPLAIN EXECUTE c(1, 1); EXPLAIN EXECUTE i(1, 1)",
    );
    run(&session, "CREATE TABLE a.p AS SELECT * FROM (PIVOT t ON id USING sum(x))");
    assert_eq!(number(&session, "SELECT count(*) FROM a.p"), 1);
    assert_eq!(error(&session, "PREPARE q AS INSERT INTO a.t VALUES (nextval('q'), $1)").1, "0A000");
    let parameters = Parameters::Positional(vec![Value::Integer(7), Value::Integer(70)]);
    for sql in ["INSERT INTO a.t VALUES (?, ?)", "UPDATE a.t SET x = ? + x WHERE x = ?"] {
        let statement = session.parse(sql).unwrap();
        session.run_with(&statement[0], &parameters).unwrap();
    }
    assert_eq!(number(&session, "SELECT x FROM a.t WHERE id = 7"), 77);
}

#[test]
fn definitions_of_an_attached_database() {
    let pair = Writable::new();
    let session = pair.main.session();
    run(
        &session,
        "CREATE TABLE a.parent (id bigint PRIMARY KEY);
         CREATE TABLE a.s.child (
             id bigint GENERATED BY DEFAULT AS IDENTITY, n bigint DEFAULT nextval('q'), m bigint DEFAULT nextval('a.q'),
             g bigint GENERATED ALWAYS AS (n * 2) STORED, p bigint REFERENCES a.parent ON DELETE CASCADE,
             CHECK (p < 100)
         );
         CREATE INDEX child_p ON a.s.child (p);
         INSERT INTO a.parent VALUES (1), (2);
         INSERT INTO a.s.child (p) VALUES (1), (2);
         INSERT INTO a.s.child (p) SELECT id FROM t;
         INSERT INTO a.s.child (id, p) VALUES (7, 1) RETURNING n;
         CREATE TABLE a.copied AS SELECT t.id, t.x, q.x AS other FROM t JOIN a.t AS q ON t.id = q.id;
         CREATE OR REPLACE TABLE a.copied AS SELECT id, x + 1 AS x FROM t;
         CREATE VIEW a.joined AS SELECT a.s.child.id, a.s.child.g, q.x FROM a.s.child JOIN a.t AS q ON q.id = a.s.child.p;
         COMMENT ON TABLE a.copied IS 'a copy';
         COMMENT ON COLUMN a.copied.x IS 'a column';
         ALTER TABLE a.copied ADD COLUMN y bigint DEFAULT 5;
         ALTER TABLE a.copied SET (layout = 'row');
         ALTER TABLE a.copied SET SCHEMA s;
         ALTER TABLE a.s.copied RENAME TO kept;
         CREATE SEQUENCE a.numbers START 5;
         ALTER SEQUENCE a.numbers RESTART;
         ALTER INDEX a.s.child_p RENAME TO by_parent;
         VACUUM a.s.child;
         ALTER TABLE a.s.kept COMPACT",
    );
    // All numbers are those of the sequence of the attached database.
    assert_eq!(number(&session, "SELECT min(least(n, m)) FROM a.s.child"), 10_000);
    assert_eq!(number(&session, "SELECT max(greatest(n, m)) FROM a.s.child"), 10_009);
    assert_eq!(number(&session, "SELECT count(*) FROM a.s.child WHERE g = 2 * n AND id IN (1, 2, 3, 4, 7)"), 5);
    assert_eq!(number(&session, "SELECT nextval('q')"), 1000);
    assert_eq!(number(&session, "SELECT sum(x + y) FROM a.s.kept"), 42);
    assert_eq!(number(&session, "SELECT sum(x) FROM a.joined"), 300);
    assert_eq!(number(&session, "SELECT count(*) FROM taut.tables"), 3);
    for (sql, state) in [
        ("INSERT INTO a.s.child (p) VALUES (3)", "23503"),
        ("INSERT INTO a.s.child (p) VALUES (100)", "23514"),
        ("INSERT INTO a.s.child (g) VALUES (3)", "428C9"),
        ("INSERT INTO a.t SELECT * FROM a.t", "23505"),
        ("CREATE TABLE a.t (x bigint)", "42P07"),
        ("CREATE TABLE a.missing.t (x bigint)", "3F000"),
        ("CREATE TEMP TABLE a.x (x bigint)", "42P16"),
        ("CREATE TABLE a.pg_temp.x (x bigint)", "0A000"),
        ("DROP TABLE a.parent", "2BP01"),
        ("DROP TABLE a.missing", "42P01"),
        ("DROP VIEW a.t", "42809"),
        ("INSERT INTO b.public.t VALUES (1)", "3D000"),
        // Of two databases.
        ("CREATE TABLE a.x (x bigint REFERENCES public.t)", "0A000"),
        ("CREATE TABLE a.x (LIKE t)", "0A000"),
        ("CREATE TABLE x (LIKE a.t)", "0A000"),
        ("CREATE TABLE x (x bigint REFERENCES a.t)", "0A000"),
        ("CREATE VIEW a.x AS SELECT * FROM t", "0A000"),
        ("CREATE VIEW a.x AS SELECT * FROM a.t WHERE x IN (SELECT x FROM public.t)", "0A000"),
        ("CREATE VIEW x AS SELECT * FROM a.t", "0A000"),
        ("DROP TABLE a.t, t", "0A000"),
        ("DROP TABLE t, a.t", "0A000"),
        ("TRUNCATE t, a.t", "0A000"),
        ("VACUUM t, a.t", "0A000"),
        ("WITH d AS (DELETE FROM a.t RETURNING *) INSERT INTO t SELECT * FROM d", "0A000"),
        // The sequence would be that of the session's own database.
        ("INSERT INTO a.t VALUES (nextval('q'), 1)", "0A000"),
        ("UPDATE a.t SET x = nextval('q')", "0A000"),
        ("CREATE TABLE a.x AS SELECT nextval('q') AS x", "0A000"),
        ("USE a", "0A000"),
    ] {
        let (message, found) = error(&session, sql);
        assert_eq!(found, state, "{sql}: {message}");
    }
    run(
        &session,
        "CREATE TABLE a.x (LIKE a.t); DROP TABLE a.x; DELETE FROM a.parent WHERE id = 1; DROP INDEX a.s.by_parent",
    );
    assert_eq!(number(&session, "SELECT count(*) FROM a.s.child"), 2);
    run(&session, "DROP TABLE a.parent CASCADE; DROP VIEW a.joined; TRUNCATE a.s.child RESTART IDENTITY");
    assert_eq!(number(&session, "SELECT count(*) FROM a.s.child"), 0);
    assert_eq!(number(&session, "SELECT sum(x) FROM t"), 30);
    run(
        &session,
        "CREATE SCHEMA a.r; CREATE SCHEMA IF NOT EXISTS a.s; CREATE TABLE a.r.t (x bigint); ALTER SCHEMA a.r RENAME TO p;
         INSERT INTO a.p.t VALUES (1); CREATE SCHEMA a.r; DROP SCHEMA a.p, a.r CASCADE; CREATE SCHEMA a.e",
    );
    for (sql, state) in [
        ("CREATE SCHEMA a.s", "42P06"),
        ("DROP SCHEMA a.p", "3F000"),
        ("DROP SCHEMA a.s", "2BP01"),
        ("DROP SCHEMA a.s, s", "0A000"),
        ("CREATE SCHEMA b.s", "3D000"),
        ("SELECT * FROM e.t", "42P01"),
    ] {
        assert_eq!(error(&session, sql).1, state, "{sql}");
    }
    assert_eq!(error(&session, "CREATE TABLE e.t (x bigint)").1, "3F000");
    let (_directory, shop) = pair.reopened();
    let session = shop.session();
    run(&session, "CREATE TABLE e.t (x bigint)");
    assert_eq!(number(&session, "SELECT sum(x + y) FROM s.kept"), 42);
    assert_eq!(number(&session, "SELECT nextval('numbers')"), 5);
    assert_eq!(number(&session, "INSERT INTO s.child (p) VALUES (1) RETURNING id"), 1);
}

#[test]
fn views_of_an_attached_database_are_valid_in_it() {
    let pair = Writable::new();
    run(
        &pair.main.session(),
        "CREATE VIEW a.w AS WITH t AS (SELECT a.t.* FROM a.t) SELECT sum(t.x) AS x FROM t, a.s.t AS q",
    );
    assert_eq!(number(&pair.main.session(), "SELECT x FROM a.w"), 400);
    let (_directory, shop) = pair.reopened();
    assert_eq!(number(&shop.session(), "SELECT x FROM w"), 400);
}

#[test]
fn loads_fill_tables_of_attached_databases() {
    let pair = Writable::new();
    let session = pair.main.session();
    let file = pair.directory.path().join("rows.csv");
    std::fs::write(&file, "id,x\n7,70\n8,80\n").unwrap();
    run(&session, &format!("COPY a.t FROM '{}' (HEADER)", file.display()));
    assert_eq!(number(&session, "SELECT sum(x) FROM a.t"), 550);
    assert_eq!(error(&session, &format!("COPY a.t FROM '{}' (HEADER)", file.display())).1, "23505");
    let options =
        LoadOptions { read: ReadOptions { header: Some(true), ..ReadOptions::default() }, ..LoadOptions::default() };
    session.load("a.loaded", &[&file], &options).unwrap();
    session.load("a.s.t", &[&file], &options).unwrap();
    assert_eq!(number(&session, "SELECT sum(x) FROM a.s.t"), 200);
    let missing = session.load("b.s.t", &[&file], &options).unwrap_err();
    assert!(missing.message().contains("database \"b\" does not exist"), "{}", missing.message());
    run(&session, "BEGIN");
    session.load("a.loaded", &[&file], &options).unwrap();
    assert_eq!(number(&session, "SELECT sum(x) FROM a.loaded"), 300);
    assert_eq!(error(&session, "INSERT INTO t VALUES (9, 9)").1, "0A000");
    run(&session, "ROLLBACK");
    assert_eq!(number(&session, "SELECT sum(x) FROM a.loaded"), 150);
    assert_eq!(number(&session, "SELECT sum(x) FROM t"), 30);
}

#[test]
fn a_transaction_changes_one_database() {
    let pair = Writable::new();
    let (session, other) = (pair.main.session(), pair.main.session());
    run(&session, &format!("ATTACH '{}' AS b", pair.directory.path().join("new.taut").display()));
    run(
        &session,
        "ATTACH ':memory:' AS c; CREATE TABLE b.t (id bigint, x bigint); CREATE TABLE c.t AS SELECT * FROM t",
    );
    run(&session, "CREATE TEMP TABLE w (x bigint)");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for (changed, name) in [("t", "taut"), ("a.t", "a"), ("b.t", "b"), ("c.t", "c")] {
            for (second, second_name) in [("t", "taut"), ("a.t", "a"), ("b.t", "b")] {
                run(
                    &session,
                    &format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO {changed} VALUES (50, 1); SAVEPOINT p"),
                );
                // Other databases, and temporary tables.
                run(&session, "SELECT * FROM t, a.t AS q, b.t AS r, c.t AS s; INSERT INTO w VALUES (1)");
                if changed == second {
                    run(&session, &format!("UPDATE {second} SET x = 2 WHERE id = 50"));
                } else {
                    for sql in [
                        format!("INSERT INTO {second} VALUES (51, 1)"),
                        format!("INSERT INTO {second} SELECT 51, x FROM {changed}"),
                        format!("UPDATE {second} SET x = 0"),
                        format!("DELETE FROM {second}"),
                        format!("TRUNCATE {second}"),
                        format!("CREATE INDEX ON {second} (x)"),
                        format!("DROP TABLE {second}"),
                        format!("COMMENT ON TABLE {second} IS 'x'"),
                    ] {
                        let (message, state) = error(&session, &sql);
                        let expected = format!(
                            "cannot change database {second_name:?} in a transaction that has changed database {name:?}"
                        );
                        assert_eq!((message, state.as_str()), (expected, "0A000"), "{sql}");
                        assert_eq!(error(&session, "SELECT 1").1, "25P02");
                        run(&session, "ROLLBACK TO p");
                    }
                }
                run(&session, "COMMIT");
                assert_eq!(number(&other, &format!("SELECT count(*) FROM {changed} WHERE id = 50")), 1);
                run(&session, &format!("DELETE FROM {changed} WHERE id = 50"));
            }
        }
    }
    assert_eq!(number(&session, "SELECT count(*) FROM w"), 9);
    // Undone changes without locks do not count.
    run(
        &session,
        "BEGIN; SAVEPOINT p; INSERT INTO a.u VALUES (60, 1); SAVEPOINT q; ROLLBACK TO p;
         INSERT INTO t VALUES (60, 2); RELEASE p; COMMIT",
    );
    assert_eq!(number(&session, "SELECT sum(x) FROM t"), 32);
    assert_eq!(number(&session, "SELECT sum(x) FROM a.t"), 400);
    run(&session, "DETACH b; DETACH c");
}

#[test]
fn a_transaction_locks_rows_in_one_database() {
    let pair = Writable::new();
    let (session, other) = (pair.main.session(), pair.main.session());
    // The locks of undone changes remain. If the transaction locked rows in both databases, neither would find a
    // deadlock with one that locks them in the other order.
    for (first, second) in [("t", "a.t"), ("a.t", "t")] {
        run(&session, &format!("BEGIN; SAVEPOINT p; UPDATE {first} SET x = 0 WHERE id = 1; ROLLBACK TO p"));
        assert_eq!(error(&session, &format!("UPDATE {second} SET x = 0 WHERE id = 1")).1, "0A000");
        run(&session, &format!("ROLLBACK TO p; UPDATE {first} SET x = x + 1 WHERE id = 1; COMMIT"));
    }
    assert_eq!(number(&other, "SELECT t.x + q.x FROM t, a.t AS q WHERE t.id = 1 AND q.id = 1"), 10 + 100 + 2);
}

#[test]
fn a_commit_changes_the_attached_database_only_if_temporary_relations_can_be_changed_too() {
    let pair = Writable::new();
    let (session, other) = (pair.main.session(), pair.main.session());
    run(&session, "BEGIN; CREATE TEMP VIEW w AS SELECT * FROM t; INSERT INTO a.t VALUES (50, 1)");
    run(&other, "ALTER TABLE t ADD COLUMN z int");
    assert_eq!(error(&session, "COMMIT").1, "40001");
    assert_eq!(number(&other, "SELECT count(*) FROM a.t WHERE id = 50"), 0);
}

#[test]
fn transactions_of_an_attached_database() {
    let pair = Writable::new();
    let (one, two) = (pair.main.session(), pair.main.session());
    let sum = "SELECT sum(x) FROM a.t";
    run(&one, "BEGIN; SAVEPOINT p; UPDATE a.t SET x = x + 1; SAVEPOINT q; DELETE FROM a.t WHERE id = 1");
    assert_eq!((number(&one, sum), number(&two, sum)), (301, 400));
    run(&one, "ROLLBACK TO q");
    assert_eq!(number(&one, sum), 402);
    assert_eq!(error(&one, "INSERT INTO a.t VALUES (3, 1)").1, "23505");
    assert_eq!(error(&one, "SELECT 1").1, "25P02");
    run(&one, "ROLLBACK TO p");
    assert_eq!(number(&one, sum), 400);
    run(&one, "INSERT INTO a.t VALUES (5, 5); CREATE TABLE a.n AS SELECT * FROM a.t; RELEASE p; COMMIT");
    assert_eq!((number(&two, sum), number(&two, "SELECT count(*) FROM a.n")), (405, 3));
    run(&one, "BEGIN; DROP TABLE a.n; DELETE FROM a.t; ROLLBACK");
    assert_eq!((number(&two, sum), number(&two, "SELECT count(*) FROM a.n")), (405, 3));
    // Snapshots and conflicts.
    run(&one, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(number(&one, sum), 405);
    run(&two, "UPDATE a.t SET x = 6 WHERE id = 5");
    assert_eq!(number(&one, sum), 405);
    assert_eq!(error(&one, "UPDATE a.t SET x = 7 WHERE id = 5").1, "40001");
    run(&one, "ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED");
    assert_eq!(number(&one, sum), 406);
    run(&two, "UPDATE a.t SET x = 7 WHERE id = 5");
    assert_eq!(number(&one, sum), 407);
    run(&one, "UPDATE a.t SET x = x + 1 WHERE id = 5");
    assert_eq!(number(&one, sum), 408);
    run(&one, "COMMIT; BEGIN READ ONLY");
    assert_eq!(error(&one, "UPDATE a.t SET x = 0").1, "25006");
    run(&one, "ROLLBACK");
    // Others can detach it. The transaction keeps it.
    run(&one, "BEGIN; UPDATE a.t SET x = x + 1 WHERE id = 5");
    assert_eq!(error(&one, "DETACH a").1, "25001");
    run(&one, "ROLLBACK; BEGIN; UPDATE a.t SET x = x + 1 WHERE id = 5");
    run(&two, "DETACH a");
    assert_eq!(error(&two, &format!("ATTACH '{}' AS a", pair.path().display())).1, "55006");
    run(&one, "UPDATE a.t SET x = x + 1 WHERE id = 5; ALTER TABLE a.n ADD COLUMN y bigint; COMMIT");
    assert_eq!(error(&one, sum).1, "42P01");
    run(&two, &format!("ATTACH '{}' AS a", pair.path().display()));
    assert_eq!(number(&one, sum), 410);
}

#[test]
fn a_read_only_database_and_one_in_memory_attach_others_for_writing() {
    let pair = Writable::new();
    let directory = pair.directory.path().to_owned();
    run(&pair.main.session(), "DETACH a");
    let Writable { directory: _directory, main } = pair;
    main.close();
    let reader = Database::open_read_only(directory.join("main.taut")).unwrap();
    let memory = Database::in_memory().unwrap();
    run(&memory.session(), "CREATE TABLE t AS SELECT 1::bigint AS id UNION ALL SELECT 2");
    for main in [reader, memory] {
        let session = main.session();
        run(&session, &format!("ATTACH '{}' AS n", directory.join("n.taut").display()));
        run(&session, "CREATE TABLE IF NOT EXISTS n.t (x bigint); BEGIN; INSERT INTO n.t SELECT id FROM t; COMMIT");
        run(&session, "UPDATE n.t SET x = x; DETACH n");
    }
    let n = Database::open(directory.join("n.taut")).unwrap();
    assert_eq!(number(&n.session(), "SELECT count(*) FROM t"), 4);
}

#[test]
fn reads_of_an_attached_database_are_checked() {
    let pair = Writable::new();
    let (one, two) = (pair.main.session(), pair.main.session());
    // Each reads what the other one changes. The first read is before the first change: in a query, or in the change.
    for reads_in_change in [false, true] {
        for conflicts in [false, true] {
            run(&one, "BEGIN ISOLATION LEVEL SERIALIZABLE");
            if reads_in_change {
                run(&one, "INSERT INTO a.u SELECT 9, x FROM a.t WHERE id = 1");
            } else {
                assert_eq!(number(&one, "SELECT x FROM a.t WHERE id = 1"), 100);
                run(&one, "INSERT INTO a.u VALUES (9, 1)");
            }
            run(&two, &format!("UPDATE a.t SET x = x WHERE id = {}", if conflicts { 1 } else { 3 }));
            match conflicts {
                true => assert_eq!(error(&one, "COMMIT").1, "40001"),
                false => drop(run(&one, "COMMIT")),
            }
        }
    }
    // Tables of the session's own database have the same ids, and are not checked.
    run(&one, "BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO a.u SELECT 9, x FROM t WHERE id = 1");
    run(&two, "UPDATE t SET x = x");
    run(&one, "COMMIT");
    // Each statement is a transaction.
    run(&one, "SET default_transaction_isolation = 'serializable'");
    run(&one, "INSERT INTO a.u SELECT 9, x FROM t; UPDATE a.u SET x = 0 WHERE id = 9");
    assert_eq!(number(&one, "SELECT count(*) FROM a.u"), 7);
}

#[test]
fn sessions_change_an_attached_database_at_once() {
    const ROUNDS: i64 = 50;
    let pair = Writable::new();
    run(&pair.main.session(), "INSERT INTO a.t VALUES (100, 0)");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let session = pair.main.session();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let id = 1_000 * (thread + 1) + round;
                    run(&session, &format!("INSERT INTO a.t SELECT {id}, x FROM t WHERE id = 1"));
                    run(&session, "UPDATE a.t SET x = x + 1 WHERE id = 100");
                    run(&session, &format!("BEGIN; UPDATE a.t SET x = x + 1 WHERE id = {id}; COMMIT"));
                }
            });
        }
    });
    let session = pair.main.session();
    assert_eq!(number(&session, "SELECT x FROM a.t WHERE id = 100"), 2 * ROUNDS);
    assert_eq!(number(&session, "SELECT sum(x) FROM a.t WHERE id >= 1000"), 2 * ROUNDS * 11);
    let (_directory, shop) = pair.reopened();
    assert_eq!(number(&shop.session(), "SELECT count(*) FROM t"), 2 * ROUNDS + 3);
}

#[test]
fn rows_of_an_attached_database_move_to_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let mover = MoverOptions { delta_rows: 2000, ..MoverOptions::default() };
    let settings = Settings { mover, ..Settings::default() };
    let main = Database::open_with(directory.path().join("main.taut"), &settings).unwrap();
    let session = main.session();
    run(&session, &format!("ATTACH '{}' AS a; CREATE TABLE a.t (x bigint)", directory.path().join("a.taut").display()));
    // Without the thread, commits write rows to blocks once there are too many of them.
    run(&session, "SET mover = off");
    let in_blocks = "SELECT coalesce(sum(rows), 0) FROM a.taut.blocks";
    let in_delta = || number(&session, "SELECT count(*) FROM a.t") - number(&session, in_blocks);
    for transaction in [false, true] {
        for _ in 0..20 {
            let insert = "INSERT INTO a.t SELECT i FROM generate_series(1, 2000) AS q(i)";
            run(&session, &if transaction { format!("BEGIN; {insert}; COMMIT") } else { insert.to_owned() });
            assert!(in_delta() <= 10_000);
        }
    }
    run(&session, "VACUUM a.t");
    assert_eq!(in_delta(), 0);
    run(
        &session,
        "INSERT INTO a.t SELECT i FROM generate_series(1, 2000) AS q(i); INSERT INTO a.t SELECT * FROM a.t LIMIT 2000; SET mover = on",
    );
    for _ in 0..600 {
        if in_delta() <= 2000 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(in_delta() <= 2000);
    assert_eq!(number(&session, "SELECT count(*) FROM a.t"), 84_000);
}
