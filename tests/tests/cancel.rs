//! Cancellation of statements with every operator: by the cancel handle of the session, by the `on_wait` callback, by a
//! time limit, or by dropping the rows. Each statement would run for minutes or forever. It has to end, the threads
//! have to stop computing, and the session stays usable.
//!
//! One test runs all operators, one after another, because it measures the CPU time of the process. The test prints the
//! time that each statement took to end. It asserts a time only to detect statements that never end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taut::{Database, Error, Outcome, Session, Settings};

/// Delay between the start of a statement and its cancellation.
const CANCELLED_AFTER: Duration = Duration::from_millis(150);
/// Time after which the test treats a statement as endless.
const NEVER: Duration = Duration::from_secs(60);

/// Slow statements, each with the name of its slow operation. Table `s` has 200,000 rows: `k` has ten distinct values,
/// `i` is unique, and `t` is a string.
const STATEMENTS: &[(&str, &str)] = &[
    ("hash join, all pairs returned", "SELECT sum(a.i + b.k) FROM s a JOIN s b ON a.k = b.k"),
    ("hash join of expressions", "SELECT sum(a.i + b.k) FROM s a JOIN s b ON a.k % 10 = b.k % 10"),
    ("hash join, few pairs pass", "SELECT count(*) FROM s a JOIN s b ON a.k = b.k AND a.i + b.i < 0"),
    ("hash join of texts", "SELECT max(a.t || b.t) FROM s a JOIN s b ON a.k = b.k"),
    ("left join", "SELECT count(b.i) FROM s a LEFT JOIN s b ON a.k = b.k AND a.i + b.i < 0"),
    ("right join", "SELECT count(a.i) FROM s a RIGHT JOIN s b ON a.k = b.k AND a.i + b.i < 0"),
    ("full join", "SELECT count(a.i) FROM s a FULL JOIN s b ON a.k = b.k AND a.i + b.i < 0"),
    ("semi join", "SELECT count(*) FROM s a WHERE a.k IN (SELECT b.k FROM s b, s c)"),
    (
        "semi join with a condition",
        "SELECT count(*) FROM s a WHERE EXISTS (SELECT 1 FROM s b WHERE a.k = b.k AND a.i + b.i < 0)",
    ),
    ("anti join", "SELECT count(*) FROM s a WHERE NOT EXISTS (SELECT 1 FROM s b, s c WHERE a.k = b.k)"),
    ("anti join with nulls", "SELECT count(*) FROM s a WHERE a.k NOT IN (SELECT b.k FROM s b, s c WHERE b.i > 0)"),
    (
        "anti join with a condition",
        "SELECT count(*) FROM s a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE a.k = b.k AND a.i + b.i < 0)",
    ),
    (
        "mark join",
        "SELECT count(*) FROM s a WHERE a.i = 5 OR EXISTS (SELECT 1 FROM s b WHERE a.k = b.k AND a.i + b.i < 0)",
    ),
    ("nested loop", "SELECT count(*) FROM s a JOIN s b ON a.i * 7 < b.i - 10000000"),
    ("nested loop, left", "SELECT count(b.i) FROM s a LEFT JOIN s b ON a.i * 7 < b.i - 10000000"),
    ("nested loop, full", "SELECT count(b.i) FROM s a FULL JOIN s b ON a.i * 7 < b.i - 10000000"),
    (
        "nested loop, anti",
        "SELECT count(*) FROM s a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE a.i * 7 < b.i - 10000000)",
    ),
    ("sleep", "SELECT pg_sleep(i) FROM s WHERE i > 100"),
    ("cross join", "SELECT count(*) FROM s a, s b, s c WHERE a.i + b.i + c.i < 0"),
    ("sort", "SELECT a.i FROM s a, s b ORDER BY a.i * 31 % 1009, b.i * 17 % 2003"),
    ("first rows", "SELECT a.i FROM s a, s b ORDER BY a.i * 31 % 1009, b.i * 17 % 2003 LIMIT 10"),
    ("window", "SELECT max(w) FROM (SELECT sum(a.i) OVER (PARTITION BY a.k ORDER BY b.i) AS w FROM s a, s b) x"),
    ("window without partition or order", "SELECT max(w) FROM (SELECT row_number() OVER () AS w FROM s a, s b) x"),
    ("aggregate without groups", "SELECT sum(a.i * b.i % 7) FROM s a, s b"),
    ("few groups", "SELECT a.k, sum(b.i) FROM s a, s b GROUP BY a.k"),
    ("many groups", "SELECT a.i * 200000 + b.i AS g, count(*) FROM s a, s b GROUP BY g"),
    ("distinct", "SELECT count(DISTINCT a.i * 200000 + b.i) FROM s a, s b"),
    ("union all", "SELECT sum(u.i) FROM (SELECT a.i FROM s a, s b UNION ALL SELECT a.k FROM s a, s b) u"),
    ("intersect", "SELECT count(*) FROM (SELECT a.i + b.i FROM s a, s b INTERSECT SELECT a.k FROM s a, s b) u"),
    ("recursion", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"),
    ("series", "SELECT sum(i) FROM generate_series(1, 1000000000000) AS g(i)"),
    ("unnest", "SELECT count(u) FROM (SELECT unnest([a.i, b.i, 3]) AS u FROM s a, s b) x"),
    ("filter", "SELECT count(*) FROM s a, s b WHERE a.t LIKE '%x%' || b.k || '%'"),
    ("limit", "SELECT count(*) FROM (SELECT a.i FROM s a, s b OFFSET 39999999000 LIMIT 10) x"),
    (
        "subquery of each row",
        "SELECT count(*) FROM s a WHERE a.i > (SELECT avg(b.i) FROM s b JOIN s c ON b.k = c.k WHERE b.k = a.k)",
    ),
    ("explain analyze", "EXPLAIN ANALYZE SELECT sum(a.i + b.k) FROM s a JOIN s b ON a.k = b.k"),
    ("create table as", "CREATE TABLE made AS SELECT a.i FROM s a JOIN s b ON a.k = b.k"),
    ("insert", "INSERT INTO target SELECT a.i, b.i FROM s a JOIN s b ON a.k = b.k"),
    ("insert that returns", "INSERT INTO target SELECT a.i, b.i FROM s a JOIN s b ON a.k = b.k RETURNING x"),
    ("update", "UPDATE target SET y = 1 WHERE (SELECT count(*) FROM s a JOIN s b ON a.k = b.k) > 5"),
    ("delete", "DELETE FROM target WHERE x IN (SELECT a.i + b.i FROM s a JOIN s b ON a.k = b.k)"),
    (
        "merge",
        "MERGE INTO target USING (SELECT sum(a.i + b.i) AS i FROM s a JOIN s b ON a.k = b.k) u ON target.x = u.i WHEN MATCHED THEN DELETE",
    ),
    ("copy", "COPY (SELECT a.i FROM s a JOIN s b ON a.k = b.k) TO '{directory}/copied.parquet'"),
];

/// Statements that are slow to plan.
fn slow_to_plan() -> Vec<(&'static str, String)> {
    let selects = vec!["SELECT i AS n FROM s"; 1_900];
    let terms: Vec<String> = (1..900).map(|term| format!("a.i % {term}")).collect();
    vec![
        ("planning a union", format!("SELECT sum(a.n) FROM ({}) a, s b, s c", selects.join(" UNION ALL "))),
        ("planning an expression", format!("SELECT sum({}) FROM s a, s b, s c", terms.join(" + "))),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Handle,
    Callback,
    Timeout,
}

#[test]
fn every_operator_ends_when_its_statement_is_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let (mut worst, mut failures) = (Duration::ZERO, Vec::new());
    for threads in [1, 2] {
        let settings = Settings { threads, ..Settings::default() };
        let database = Database::open_with(directory.path().join(format!("database{threads}")), &settings).unwrap();
        let mut session = database.session();
        session.execute("CREATE TABLE s (i BIGINT NOT NULL, k BIGINT, t TEXT)").unwrap();
        let rows = "SELECT i, i % 10, 'the text of row ' || i FROM generate_series(1, 200000) AS g(i)";
        session.execute(&format!("INSERT INTO s {rows}")).unwrap();
        session.execute("CREATE TABLE target (x BIGINT, y BIGINT); INSERT INTO target VALUES (1, 2)").unwrap();
        let mut statements: Vec<(String, String)> = STATEMENTS
            .iter()
            .map(|(what, sql)| (what.to_string(), sql.replace("{directory}", &directory.path().display().to_string())))
            .collect();
        statements.extend(slow_to_plan().into_iter().map(|(what, sql)| (what.to_owned(), sql)));
        for hash_joins in [true, false] {
            session.execute(&format!("SET datafusion.optimizer.prefer_hash_join = {hash_joins}")).unwrap();
            for (what, sql) in &statements {
                if !hash_joins && !what.contains("join") {
                    continue;
                }
                for by in [By::Handle, By::Callback, By::Timeout] {
                    let (took, outcome) = cancelled(&mut session, sql, by, what);
                    let case = format!("{what}, {threads} threads, hash joins {hash_joins}, by {by:?}");
                    println!("{took:>8.1?} {case}");
                    worst = worst.max(took);
                    match outcome {
                        Err(error) if error.sqlstate() == "57014" && error.is_cancelled() == (by != By::Timeout) => {}
                        Err(error) => failures.push(format!("{case}: {error}")),
                        Ok(()) => failures.push(format!("{case}: was over before it was cancelled")),
                    }
                    assert_eq!(count(&session, "SELECT count(*) FROM target"), 1, "{what}");
                    wait_until_idle(what);
                }
            }
        }
        session.on_wait(None);
        check_dropped_rows_stop_threads(&session);
        assert!(session.query("SELECT * FROM made").is_err(), "a cancelled CREATE TABLE AS left its table");
    }
    println!("the slowest took {worst:.1?} to end");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(!directory.path().join("copied.parquet").exists());
}

/// Runs and cancels a statement. Returns the time from the cancellation to the end of the statement, and the result.
fn cancelled(session: &mut Session, sql: &str, by: By, what: &str) -> (Duration, Result<(), Error>) {
    let handle = session.cancel_handle();
    let (has_ended, due) = (AtomicBool::new(false), Instant::now() + CANCELLED_AFTER);
    session.on_wait((by == By::Callback).then(|| Arc::new(move || Instant::now() < due) as _));
    if by == By::Timeout {
        session.execute(&format!("SET statement_timeout = {}", CANCELLED_AFTER.as_millis())).unwrap();
    }
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(CANCELLED_AFTER);
            for round in 0_u32.. {
                if has_ended.load(Ordering::SeqCst) {
                    break;
                }
                // Repeated, because on a busy machine the statement may not have begun.
                if by == By::Handle && round % 100 == 0 {
                    handle.cancel();
                }
                if due.elapsed() > NEVER {
                    eprintln!("{what} does not end: {sql:.200}");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let outcome = run(session, sql);
        has_ended.store(true, Ordering::SeqCst);
        outcome
    });
    let took = due.elapsed();
    session.on_wait(None);
    session.execute("SET statement_timeout = 0").unwrap();
    (took, outcome)
}

fn run(session: &Session, sql: &str) -> Result<(), Error> {
    for outcome in session.execute(sql)? {
        if let Outcome::Rows(rows) = outcome {
            rows.into_iter().try_for_each(|batch| batch.map(drop))?;
        }
    }
    Ok(())
}

fn count(session: &Session, sql: &str) -> i64 {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    let batch = session.query(sql).unwrap().next().unwrap().unwrap();
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn check_dropped_rows_stop_threads(session: &Session) {
    for sql in [
        "SELECT a.i FROM s a JOIN s b ON a.k = b.k",
        "SELECT a.i FROM s a JOIN s b ON a.k = b.k AND (a.i = b.i OR a.i + b.i < 0)",
        "SELECT a.i FROM s a JOIN s b ON a.i <> b.i",
    ] {
        let mut rows = session.query(sql).unwrap();
        rows.next().unwrap().unwrap();
        drop(rows);
        wait_until_idle(sql);
    }
}

#[test]
fn cancelled_statements_change_nothing_and_others_are_complete() {
    let directory = tempfile::tempdir().unwrap();
    let session = Database::open(directory.path().join("database")).unwrap().session();
    session.execute("CREATE TABLE plain (i BIGINT); CREATE TABLE keyed (i BIGINT, j BIGINT UNIQUE)").unwrap();
    let (mut rows, mut cancelled, mut done) = (0, 0, 0);
    for round in 0_i64..240 {
        let (table, rows_of_one) = [("plain", 20_000), ("plain", 10), ("keyed", 500), ("keyed", 1)][round as usize % 4];
        let columns = if table == "plain" { "i" } else { "i, j" };
        let values = if table == "plain" { "i".to_owned() } else { format!("i, i + {}", round * 1_000) };
        let insert =
            format!("INSERT INTO {table} ({columns}) SELECT {values} FROM generate_series(1, {rows_of_one}) AS g(i)");
        let in_transaction = round % 3 == 0;
        if in_transaction {
            session.execute("BEGIN").unwrap();
        }
        session.execute(&format!("SET statement_timeout = {}", 1 + round % 12)).unwrap();
        let outcome = run(&session, &insert).and_then(|()| match in_transaction {
            true => run(&session, "COMMIT"),
            false => Ok(()),
        });
        if session.is_in_transaction() {
            session.execute("ROLLBACK").unwrap();
        }
        session.execute("SET statement_timeout = 0").unwrap();
        match outcome {
            Ok(()) => (rows, done) = (rows + rows_of_one, done + 1),
            Err(error) => {
                assert_eq!(error.sqlstate(), "57014", "{error}");
                cancelled += 1;
            }
        }
        let found = count(&session, "SELECT (SELECT count(*) FROM plain) + (SELECT count(*) FROM keyed)");
        assert_eq!(found, rows, "round {round}: {insert}");

        session.execute(&format!("SET statement_timeout = {}", 1 + round % 8)).unwrap();
        let create = format!("CREATE TABLE made AS SELECT i FROM generate_series(1, {}) AS g(i)", 1 + round * 100);
        let outcome = run(&session, &create);
        session.execute("SET statement_timeout = 0").unwrap();
        let found = count(&session, "SELECT count(*) FROM taut.tables WHERE table_name = 'made'");
        assert_eq!(found, i64::from(outcome.is_ok()), "round {round}: {outcome:?}");
        session.execute("DROP TABLE IF EXISTS made").unwrap();
        match outcome {
            Ok(()) => done += 1,
            Err(error) => {
                assert_eq!(error.sqlstate(), "57014", "{error}");
                cancelled += 1;
            }
        }
    }
    println!("{cancelled} statements were cancelled, {done} were not");
    assert!(cancelled > 0 && done > 0, "{cancelled} cancelled, {done} not");
}

#[test]
fn a_time_limit_does_not_count_the_time_between_reads_of_rows() {
    let session = Database::in_memory().unwrap().session();
    session.execute("SET statement_timeout = '1s'").unwrap();
    let rows = session.query("SELECT i FROM generate_series(1, 200000) AS g(i)").unwrap();
    let mut count = 0;
    for (number, batch) in rows.enumerate() {
        count += batch.unwrap().num_rows();
        if number == 1 {
            std::thread::sleep(Duration::from_millis(1_200));
        }
    }
    assert_eq!(count, 200_000);
}

/// Waits until the threads of this process use no CPU time.
fn wait_until_idle(what: &str) {
    let began = Instant::now();
    loop {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(40));
        if cpu_time().saturating_sub(before) <= 1 {
            return;
        }
        assert!(began.elapsed() < NEVER, "{what}: threads go on computing");
    }
}

/// CPU time of this process, in hundredths of a second.
#[cfg(target_os = "linux")]
fn cpu_time() -> u64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = status.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn cpu_time() -> u64 {
    0
}
