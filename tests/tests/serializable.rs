//! Two concurrent serializable transactions. Both may commit only if some serial order gives the same result. Changes
//! of different rows of a table do not conflict.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use datafusion::arrow::util::pretty::pretty_format_batches;
use taut::{Database, Error, Parameters, Session, Value};
use taut_testkit::Random;

fn rows(session: &Session, sql: &str) -> Result<String, Error> {
    let batches = session.query(sql)?.collect::<Result<Vec<_>, _>>()?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

/// Creates a table of sixty rows. A third of them are in no block, and some were updated.
fn table(layout: &str) -> Database {
    let database = Database::in_memory().unwrap();
    let setup = format!(
        "CREATE TABLE t (k bigint PRIMARY KEY, g bigint, v bigint, s varchar) WITH (layout = '{layout}');
         INSERT INTO t SELECT i, i % 6, i * 7 % 100, 'text ' || i % 4 FROM generate_series(0, 39) AS s(i);
         SET mover = off; VACUUM FULL t;
         INSERT INTO t SELECT i, i % 6, i * 7 % 100, 'text ' || i % 4 FROM generate_series(40, 59) AS s(i);
         UPDATE t SET v = v + 1 WHERE k % 10 = 3;
         CREATE TABLE other (n bigint); INSERT INTO other VALUES (0);
         CREATE TABLE floats (k bigint, x double precision); INSERT INTO floats VALUES (1, 1), (2, 5.5)"
    );
    database.session().execute(&setup).unwrap();
    database
}

fn serializable(database: &Database) -> Session {
    let session = database.session();
    session.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE").unwrap();
    session
}

/// Runs `mine` in a serializable transaction, commits `theirs` in another session, and then updates row 59 and commits
/// the transaction. Returns whether it committed.
fn may_commit(layout: &str, mine: &str, theirs: &str) -> bool {
    let database = table(layout);
    let (session, other) = (serializable(&database), database.session());
    session.execute("BEGIN").unwrap();
    for statement in session.parse(mine).unwrap() {
        match session.run(&statement) {
            Ok(taut::Outcome::Rows(rows)) => rows.for_each(|batch| drop(batch.unwrap())),
            Ok(taut::Outcome::Done(_)) => {}
            Err(error) => assert_eq!(error.sqlstate(), "23505", "{mine}: {error}"),
        }
    }
    other.execute(theirs).unwrap_or_else(|error| panic!("{theirs}: {error}"));
    match session.execute("UPDATE t SET s = 'mine' WHERE k = 59; COMMIT") {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.sqlstate(), "40001", "{mine}; {theirs}: {error}");
            false
        }
    }
}

#[test]
fn rows_conflict_and_tables_do_not() {
    // The statement of this transaction, the one of the other, and whether both may commit.
    let cases = [
        ("SELECT v FROM t WHERE k = 5", "UPDATE t SET v = 0 WHERE k = 6", true),
        ("SELECT v FROM t WHERE k = 5", "UPDATE t SET v = 0 WHERE k = 5", false),
        ("SELECT v FROM t WHERE k = 5", "DELETE FROM t WHERE k = 5", false),
        ("SELECT v FROM t WHERE k = 45", "UPDATE t SET v = 0 WHERE k = 46", true),
        ("SELECT v FROM t WHERE k = 45", "UPDATE t SET v = 0 WHERE k = 45", false),
        ("SELECT v FROM t WHERE k = 45", "DELETE FROM t WHERE k = 45", false),
        ("SELECT v FROM t WHERE k = 100", "INSERT INTO t VALUES (101, 0, 0, '')", true),
        ("SELECT v FROM t WHERE k = 100", "INSERT INTO t VALUES (100, 0, 0, '')", false),
        ("SELECT sum(v) FROM t WHERE g = 1", "UPDATE t SET v = 0 WHERE g = 2", true),
        ("SELECT sum(v) FROM t WHERE g = 1", "UPDATE t SET g = 1 WHERE k = 2", false),
        ("SELECT sum(v) FROM t WHERE g = 1", "UPDATE t SET g = 2 WHERE k = 1", false),
        ("SELECT sum(v) FROM t WHERE g = 1", "UPDATE t SET g = 1 WHERE k = 44", false),
        ("SELECT sum(v) FROM t WHERE g = 1", "INSERT INTO t VALUES (100, 1, 0, '')", false),
        ("SELECT sum(v) FROM t WHERE g = 1", "INSERT INTO t VALUES (100, NULL, 0, '')", true),
        ("SELECT sum(v) FROM t WHERE g = 1", "INSERT INTO t VALUES (100, 1, 0, ''); DELETE FROM t WHERE k = 100", true),
        ("SELECT k FROM t WHERE g IS NULL", "INSERT INTO t VALUES (100, NULL, 0, '')", false),
        ("SELECT k FROM t WHERE g IS NULL", "INSERT INTO t VALUES (100, 1, 0, '')", true),
        ("SELECT k FROM t WHERE s = 'text 1' AND v < 50", "INSERT INTO t VALUES (100, 1, 60, 'text 1')", true),
        ("SELECT k FROM t WHERE s = 'text 1' AND v < 50", "INSERT INTO t VALUES (100, 1, 40, 'text 1')", false),
        // Queries that the planner answers from statistics, and queries that read the whole table.
        ("SELECT count(*) FROM t", "INSERT INTO t VALUES (100, 0, 0, '')", false),
        ("SELECT max(v) FROM t", "INSERT INTO t VALUES (100, 0, 0, '')", false),
        ("SELECT count(*) FROM t WHERE v > 1000", "INSERT INTO t VALUES (100, 0, 2000, '')", false),
        ("SELECT count(*) FROM t WHERE v + k > 1000", "INSERT INTO t VALUES (100, 0, 2000, '')", false),
        ("SELECT a.k FROM t AS a JOIN t AS b ON a.v = b.k WHERE a.k = 5", "UPDATE t SET s = '' WHERE k = 9", false),
        ("SELECT v FROM t WHERE k = (SELECT min(g) + 5 FROM t WHERE k > 50)", "DELETE FROM t WHERE k = 55", false),
        (
            "SELECT v FROM t WHERE g IN (SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE k = 5))",
            "DELETE FROM t WHERE k = 5",
            false,
        ),
        ("CREATE VIEW few AS SELECT * FROM t WHERE g = 1; SELECT * FROM few", "UPDATE t SET v = 0 WHERE g = 2", true),
        ("CREATE VIEW few AS SELECT * FROM t WHERE g = 1; SELECT * FROM few", "UPDATE t SET v = 0 WHERE g = 1", false),
        // An update or deletion reads the rows that its condition selects.
        ("UPDATE t SET v = 0 WHERE g = 1", "UPDATE t SET v = 0 WHERE g = 2", true),
        ("UPDATE t SET v = 0 WHERE g = 1", "INSERT INTO t VALUES (100, 1, 0, '')", false),
        ("DELETE FROM t WHERE g = 7", "INSERT INTO t VALUES (100, 7, 0, '')", false),
        ("DELETE FROM t WHERE g = 7", "INSERT INTO t VALUES (100, 8, 0, '')", true),
        ("INSERT INTO t VALUES (200, 0, 0, '')", "INSERT INTO t VALUES (100, 8, 0, '')", true),
        ("INSERT INTO t SELECT 200, max(g), 0, '' FROM t WHERE g < 3", "INSERT INTO t VALUES (100, 8, 0, '')", true),
        ("INSERT INTO t SELECT 200, max(g), 0, '' FROM t WHERE g < 3", "INSERT INTO t VALUES (100, 2, 0, '')", false),
        ("INSERT INTO t SELECT 200, max(g), 0, '' FROM t", "INSERT INTO t VALUES (100, 2, 0, '')", false),
        ("INSERT INTO t VALUES (5, 0, 0, '') ON CONFLICT DO NOTHING", "DELETE FROM t WHERE k = 5", false),
        // A statement that fails on a duplicate key has read that the key exists.
        ("SAVEPOINT a; INSERT INTO t VALUES (5, 0, 0, ''); ROLLBACK TO a", "DELETE FROM t WHERE k = 5", false),
        ("PREPARE p AS SELECT v FROM t WHERE k = 5; EXECUTE p", "UPDATE t SET v = 0 WHERE k = 6", true),
        ("PREPARE p AS SELECT v FROM t WHERE k = 5; EXECUTE p", "UPDATE t SET v = 0 WHERE k = 5", false),
        ("CREATE TABLE u AS SELECT v FROM t WHERE k = 5", "UPDATE t SET v = 0 WHERE k = 5", false),
        ("CREATE TABLE u AS SELECT v FROM t WHERE k = 5; SELECT * FROM u", "INSERT INTO other VALUES (1)", true),
        ("INSERT INTO other SELECT max(v) FROM t WHERE g = 1 RETURNING n", "UPDATE t SET v = 0 WHERE g = 2", true),
        ("INSERT INTO other SELECT max(v) FROM t WHERE g = 1 RETURNING n", "UPDATE t SET v = 0 WHERE g = 1", false),
        ("UPDATE other SET n = 1 RETURNING (SELECT v FROM t WHERE k = 5)", "UPDATE t SET v = 0 WHERE k = 5", false),
        (
            "MERGE INTO t USING (VALUES (300)) AS s(k) ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)",
            "INSERT INTO t (k) VALUES (301)",
            false,
        ),
        ("EXPLAIN ANALYZE INSERT INTO other SELECT v FROM t WHERE k = 5", "UPDATE t SET v = 0 WHERE k = 5", false),
        // Values with special comparison rules.
        ("SELECT k FROM floats WHERE x = 0", "UPDATE floats SET x = -0.0 WHERE k = 1", false),
        ("SELECT k FROM floats WHERE x > 5", "UPDATE floats SET x = 'nan' WHERE k = 1", false),
        ("SELECT k FROM floats WHERE x < 5", "INSERT INTO floats VALUES (3, 'nan')", true),
        ("SELECT k FROM floats WHERE x <> 5", "INSERT INTO floats VALUES (3, 5)", true),
        ("SELECT k FROM floats WHERE x <> 5", "INSERT INTO floats VALUES (3, 6)", false),
        ("SELECT k FROM t WHERE s LIKE 'text 1%'", "INSERT INTO t VALUES (100, 0, 0, 'text 2')", true),
        ("SELECT k FROM t WHERE s LIKE 'text 1%'", "INSERT INTO t VALUES (100, 0, 0, 'text 12')", false),
        // Row relocation to other blocks does not conflict with a read, unless the rows are also changed.
        ("SELECT v FROM t WHERE k = 5", "VACUUM FULL t", true),
        ("SELECT v FROM t WHERE k = 5", "UPDATE t SET v = 0 WHERE k = 5; VACUUM FULL t", false),
        (
            "SELECT v FROM t WHERE k = 5",
            "TRUNCATE t; INSERT INTO t SELECT i, 0, 0, '' FROM generate_series(0, 59) AS s(i)",
            false,
        ),
        (
            "SELECT v FROM t WHERE k = 5",
            "INSERT INTO t SELECT i, 0, 0, '' FROM generate_series(1000, 9000) AS s(i)",
            true,
        ),
    ];
    for layout in ["column", "row"] {
        for (mine, theirs, both) in cases {
            assert_eq!(may_commit(layout, mine, theirs), both, "{layout}: {mine}; {theirs}");
        }
    }
}

#[test]
fn prepared_statements_read_the_rows_of_their_values() {
    let database = table("column");
    let (session, other) = (serializable(&database), database.session());
    let parsed = |session: &Session, sql: &str| session.parse(sql).unwrap().remove(0);
    let statements = [
        "SELECT v FROM t WHERE k = $1",
        "UPDATE t SET v = v + 1 WHERE k = $1",
        "SELECT sum(v) FROM t WHERE g = $1",
        "INSERT INTO t (k, v) VALUES ($1, 0) ON CONFLICT (k) DO UPDATE SET v = t.v + 1",
    ]
    .map(|sql| parsed(&session, sql));
    let run = |place: usize, value: i64| {
        let parameters = Parameters::Positional(vec![Value::Integer(value)]);
        if let taut::Outcome::Rows(rows) = session.run_with(&statements[place], &parameters).unwrap() {
            rows.for_each(|batch| drop(batch.unwrap()));
        }
    };
    for _ in 0..3 {
        (0..statements.len()).for_each(|place| run(place, 1));
    }
    assert!(statements.iter().all(|statement| session.has_cached_plan(statement)));
    for (place, value, theirs, both) in [
        (0, 5, "UPDATE t SET v = 0 WHERE k = 6", true),
        (0, 5, "UPDATE t SET v = 0 WHERE k = 5", false),
        (1, 7, "UPDATE t SET v = 0 WHERE k = 8", true),
        (1, 100, "INSERT INTO t (k) VALUES (99)", true),
        (1, 100, "INSERT INTO t (k) VALUES (100)", false),
        (2, 1, "UPDATE t SET v = 0 WHERE g = 2", true),
        (2, 1, "UPDATE t SET v = 0 WHERE g = 1", false),
        (3, 9, "UPDATE t SET v = 0 WHERE k = 10", true),
        (3, 200, "INSERT INTO t (k) VALUES (201)", true),
    ] {
        session.execute("BEGIN").unwrap();
        run(place, value);
        other.execute(theirs).unwrap();
        session.execute("UPDATE t SET s = 'mine' WHERE k = 59").unwrap();
        let committed = session.execute("COMMIT").map(|_| ()).map_err(|error| error.sqlstate());
        assert_eq!(committed, if both { Ok(()) } else { Err("40001") }, "statement {place} with {value}; {theirs}");
    }
}

#[test]
fn repeatable_read_transactions_are_not_validated() {
    let database = table("column");
    let (session, other) = (serializable(&database), database.session());
    session.execute("BEGIN; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").unwrap();
    assert!(rows(&session, "SELECT v FROM t WHERE k = 5").is_ok());
    other.execute("UPDATE t SET v = 0 WHERE k = 5").unwrap();
    session.execute("UPDATE t SET s = 'mine' WHERE k = 59; COMMIT").unwrap();
}

#[test]
fn read_sets_are_compared_up_to_a_thousand_predicates() {
    // With more predicates, the transaction is treated as a reader of the whole table.
    for (keys, theirs, both) in [(900, 5_000, true), (900, 300, false), (1_500, 5_000, false)] {
        let database = Database::in_memory().unwrap();
        let (session, other) = (serializable(&database), database.session());
        session
            .execute("CREATE TABLE t (k bigint PRIMARY KEY, v bigint); INSERT INTO t SELECT i, 0 FROM generate_series(0, 9999) AS s(i)")
            .unwrap();
        let look_up = session.parse("SELECT v FROM t WHERE k = $1").unwrap().remove(0);
        session.execute("BEGIN").unwrap();
        for key in 0..keys {
            let parameters = Parameters::Positional(vec![Value::Integer(key)]);
            let taut::Outcome::Rows(rows) = session.run_with(&look_up, &parameters).unwrap() else { panic!() };
            rows.for_each(|batch| drop(batch.unwrap()));
        }
        other.execute(&format!("UPDATE t SET v = 1 WHERE k = {theirs}")).unwrap();
        let done = session.execute("UPDATE t SET v = 2 WHERE k = 9999; COMMIT").map(|_| ());
        let done = done.map_err(|error| error.sqlstate());
        assert_eq!(done, if both { Ok(()) } else { Err("40001") }, "{keys} keys, row {theirs} was changed");
    }
}

/// Random statement of transaction `who`. Transaction 0 changes only even keys and transaction 1 only odd keys, so they
/// never wait for each other.
fn statement(random: &mut Random, who: usize, new_key: &mut i64) -> String {
    let (k, g, v) = (random.below(30) * 2 + who, random.below(7), random.below(100));
    let (read_key, own) = (random.below(60), format!("k % 2 = {who}"));
    let read = random.pick(&[
        format!("SELECT sum(v) FROM t WHERE g = {g}"),
        format!("SELECT max(v) FROM t WHERE k = {read_key}"),
        format!("SELECT min(v) FROM t WHERE v BETWEEN {v} AND {v} + 20"),
        format!("SELECT count(*) FROM t WHERE s = 'text {g}' OR g = {g}"),
        format!("SELECT count(*) FROM t WHERE k IN ({read_key}, {v}) AND v < 50"),
    ]);
    *new_key += 2;
    match random.below(12) {
        0..5 => read,
        5 => format!("UPDATE t SET v = (v + {v}) % 100 WHERE k = {k}"),
        6 => format!("UPDATE t SET g = {g} WHERE k BETWEEN {k} AND {k} + 3 AND {own}"),
        7 => format!("DELETE FROM t WHERE g = {g} AND v > 80 AND {own}"),
        8 => format!("INSERT INTO t VALUES ({new_key} + {who}, {g}, {v}, 'text {g}')"),
        // Writes that depend on reads.
        9 | 10 => format!("INSERT INTO t SELECT {new_key} + {who}, {g}, COALESCE(({read}), 0) % 100, 'new'"),
        _ => format!("UPDATE t SET v = COALESCE(({read}), 0) % 100 WHERE k = {k}"),
    }
}

/// Rows of a query, or an empty string for another statement. Returns the SQLSTATE of a failed statement.
fn outcome(session: &Session, sql: &str) -> Result<String, &'static str> {
    match sql.starts_with("SELECT") {
        true => rows(session, sql).map_err(|error| error.sqlstate()),
        false => session.execute(sql).map(|_| String::new()).map_err(|error| error.sqlstate()),
    }
}

const ALL: &str = "SELECT * FROM t ORDER BY k";

#[test]
fn committed_pairs_have_a_serial_order() {
    let (mut both, mut one) = (0, 0);
    for seed in 0..150 {
        let mut random = Random(seed);
        let mut new_key = 1_000;
        let layout = random.pick(&["column", "row", "packed_row"]);
        let scripts = [0, 1].map(|who| (0..4).map(|_| statement(&mut random, who, &mut new_key)).collect::<Vec<_>>());
        let database = table(layout);
        let sessions = [serializable(&database), serializable(&database)];
        let mut seen: [Vec<Result<String, &str>>; 2] = Default::default();
        sessions.iter().for_each(|session| drop(session.execute("BEGIN").unwrap()));
        let mut is_alive = [true; 2];
        let mut turns: Vec<usize> = (0..8).map(|turn| turn % 2).collect();
        (0..turns.len()).for_each(|turn| turns.swap(turn, random.below(8)));
        for who in turns {
            if !is_alive[who] {
                continue;
            }
            let sql = &scripts[who][seen[who].len()];
            let found = outcome(&sessions[who], sql);
            is_alive[who] &= found.is_ok();
            seen[who].push(found);
        }
        let committed = [0, 1].map(|who| {
            is_alive[who]
                && match sessions[who].execute("COMMIT") {
                    Ok(_) => true,
                    Err(error) if error.sqlstate() == "40001" => false,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
        });
        match committed {
            [true, true] => both += 1,
            [false, false] => {}
            _ => one += 1,
        }
        let last = rows(&database.session(), ALL).unwrap();
        let is_as_if = [[0, 1], [1, 0]].iter().any(|order| {
            let alone = table(layout);
            let session = alone.session();
            order
                .iter()
                .filter(|who| committed[**who])
                .all(|who| scripts[*who].iter().zip(&seen[*who]).all(|(sql, seen)| outcome(&session, sql) == *seen))
                && rows(&session, ALL).unwrap() == last
        });
        assert!(is_as_if, "seed {seed}, {layout}: {scripts:#?} gave {seen:#?} and {last}");
    }
    assert!(both > 15 && one > 15, "of 150 pairs {both} committed both, {one} one of them");
}
