//! The mover works concurrently with sessions: it neither loses nor changes rows, and `taut.mover` shows its work.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::util::pretty::pretty_format_batches;
use taut::{Database, MoverOptions, Session, Settings};

fn number(session: &Session, sql: &str) -> i64 {
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches: Vec<_> = rows.map(|batch| batch.unwrap()).filter(|batch| batch.num_rows() > 0).collect();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

fn numbers(session: &Session, sql: &str) -> Vec<i64> {
    let batches = session.query(sql).unwrap().map(|batch| batch.unwrap());
    batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

fn text(session: &Session, sql: &str) -> String {
    let batches: Vec<_> = session.query(sql).unwrap().map(|batch| batch.unwrap()).collect();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Thresholds that a few thousand rows reach. The mover does not seal the last page of a delta, which has up to 4,096
/// rows.
fn options() -> MoverOptions {
    MoverOptions { delta_rows: 500, deleted_rows: 100, idle: Duration::from_secs(3600), ..MoverOptions::default() }
}

fn open(path: &Path, mover: MoverOptions) -> Database {
    Database::open_with(path, &Settings { threads: 2, mover, ..Settings::default() }).unwrap()
}

/// Waits until the mover has made `condition` true.
fn wait_until(session: &Session, condition: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while number(session, &format!("SELECT CAST({condition} AS bigint)")) == 0 {
        assert!(Instant::now() < deadline, "not {condition}:\n{}", text(session, "SELECT * FROM taut.mover"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Beginning of a subquery that returns how often the mover has done one kind of work on table `t`. Callers append the
/// kind in quotes and `)`.
const TIMES_OF_WORK: &str = "(SELECT sum(times) FROM taut.mover WHERE table_name = 't' AND work = ";

fn insert(session: &Session, first: i64, end: i64) {
    let rows: Vec<String> = (first..end).map(|k| format!("({k}, {})", k * 7 % 1000)).collect();
    for rows in rows.chunks(200) {
        session.execute(&format!("INSERT INTO t VALUES {}", rows.join(", "))).unwrap();
    }
}

fn blocks_in(path: &Path) -> usize {
    std::fs::read_dir(path.join("blocks")).unwrap().count()
}

#[test]
fn rows_are_sealed_in_the_background() {
    let database = open(Path::new(":memory:"), options());
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    insert(&session, 0, 400);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(number(&session, "SELECT count(*) FROM taut.blocks"), 0, "below the bound");
    insert(&session, 400, 10_000);
    wait_until(&session, "(SELECT waiting_rows < 4096 FROM taut.mover WHERE work = 'seal')");
    assert!(number(&session, "SELECT count(*) FROM taut.blocks") > 0);
    let moved = "SELECT CAST(rows_in = rows_out AND rows_in > 0 AND bytes_out > 0 AND blocks_out > 0 AND seconds > 0 \
                 AND last_done <= now() AND last_error IS NULL AS bigint) FROM taut.mover WHERE work = 'seal'";
    assert_eq!(number(&session, moved), 1);
    assert_eq!(number(&session, "SELECT sum(k) FROM t"), 49_995_000);
}

#[test]
fn low_memory_seals_rows_early() {
    let settings = Settings { threads: 2, memory_bytes: Some(16 << 20), ..Settings::default() };
    let database = Database::open_with(":memory:", &settings).unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v varchar)").unwrap();
    // About 4 MiB. With this memory limit the delta may hold 1 MiB, otherwise 64 MiB.
    for _ in 0..20 {
        session.execute("INSERT INTO t SELECT i, repeat('x', 50) || i FROM generate_series(1, 2000) AS s(i)").unwrap();
    }
    wait_until(&session, "(SELECT waiting_rows < 20000 FROM taut.mover WHERE work = 'seal')");
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 40_000);
}

#[test]
fn small_sort_runs_are_merged_and_stay_in_order() {
    let database = open(Path::new(":memory:"), options());
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint) WITH (sort_by = 'v, k')").unwrap();
    session.execute("SET mover = off").unwrap();
    for run in 0..9 {
        insert(&session, run * 100, run * 100 + 100);
        session.execute("INSERT INTO t SELECT i, i * 7 % 1000 FROM generate_series(100000, 105000) AS s(i)").unwrap();
    }
    let (rows, sum) = ("SELECT count(*) FROM t", "SELECT sum(k * v) FROM t");
    let before = (number(&session, rows), number(&session, sum));
    let blocks = number(&session, "SELECT count(*) FROM taut.blocks");
    assert!(blocks >= 9);
    session.execute("SET mover = on").unwrap();
    wait_until(&session, &format!("{TIMES_OF_WORK} 'merge') > 0"));
    session.execute("VACUUM FULL t").unwrap();
    assert!(number(&session, "SELECT count(*) FROM taut.blocks") < blocks);
    assert_eq!(before, (number(&session, rows), number(&session, sum)));
    let plan = text(&session, "EXPLAIN SELECT v, k FROM t ORDER BY v, k");
    assert!(plan.contains("ordering=[") && !plan.contains("SortExec"), "{plan}");
    assert!(numbers(&session, "SELECT v FROM t ORDER BY v, k").is_sorted());
}

#[test]
fn small_blocks_are_joined_in_their_order() {
    let database = open(Path::new(":memory:"), options());
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    session.execute("SET mover = off").unwrap();
    for load in 0..12 {
        let rows = format!("generate_series({}, {})", load * 5_000, load * 5_000 + 4_999);
        session.execute(&format!("INSERT INTO t SELECT i, i + 0 FROM {rows} AS s(i)")).unwrap();
    }
    assert_eq!(number(&session, "SELECT count(*) FROM taut.blocks"), 12);
    assert_eq!(number(&session, "SELECT waiting_rows FROM taut.mover WHERE work = 'merge'"), 60_000);
    session.execute("SET mover = on").unwrap();
    wait_until(&session, "(SELECT count(*) = 1 FROM taut.blocks)");
    assert_eq!(numbers(&session, "SELECT k FROM t LIMIT 60000"), (0..60_000).collect::<Vec<_>>());
}

#[test]
fn deleted_rows_and_their_files_go_when_no_reader_needs_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = open(&path, options());
    let (session, reader) = (database.session(), database.session());
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    session.execute("INSERT INTO t SELECT i, i + 0 FROM generate_series(1, 20000) AS s(i)").unwrap();
    reader.execute("BEGIN").unwrap();
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 20_000);
    session.execute("DELETE FROM t WHERE k % 2 = 0").unwrap();
    wait_until(&session, &format!("{TIMES_OF_WORK} 'clean') > 0"));
    assert_eq!(number(&session, "SELECT sum(rows) FROM taut.blocks"), 10_000);
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 10_000);
    assert_eq!(number(&reader, "SELECT sum(k) FROM t"), 200_010_000, "a snapshot keeps its rows");
    assert_eq!(blocks_in(&path), 2);
    reader.execute("COMMIT").unwrap();
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 10_000);
    assert_eq!(blocks_in(&path), 1);
}

#[test]
fn updates_are_neither_lost_nor_refused_because_of_the_mover() {
    let bounds = MoverOptions { delta_rows: 200, deleted_rows: 50, merge_inputs: 3, ..options() };
    for design in ["", "WITH (sort_by = 'k')"] {
        let database = open(Path::new(":memory:"), bounds.clone());
        let session = database.session();
        session.execute(&format!("CREATE TABLE t (k bigint, v bigint) {design}")).unwrap();
        session.execute("INSERT INTO t SELECT i, 0 FROM generate_series(0, 4999) AS s(i)").unwrap();
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let updates = (0..2).map(|thread| {
                let (session, has_ended) = (database.session(), &has_ended);
                scope.spawn(move || {
                    let mut updates = 0;
                    while !has_ended.load(Ordering::Relaxed) {
                        let first = thread * 2_500 + updates * 37 % 2_300;
                        // The mover may commit during this transaction.
                        session.execute("BEGIN").unwrap();
                        let rows = format!("k >= {first} AND k < {}", first + 200);
                        assert_eq!(number(&session, &format!("SELECT count(*) FROM t WHERE {rows}")), 200);
                        session.execute(&format!("UPDATE t SET v = v + 1 WHERE {rows}")).unwrap();
                        session.execute("COMMIT").unwrap();
                        updates += 1;
                    }
                    updates
                })
            });
            let updates: Vec<_> = updates.collect();
            wait_until(&session, &format!("{TIMES_OF_WORK} 'seal') >= 5"));
            has_ended.store(true, Ordering::Relaxed);
            let updates: i64 = updates.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(number(&session, "SELECT count(*) FROM t"), 5_000);
            assert_eq!(number(&session, "SELECT count(DISTINCT k) FROM t"), 5_000);
            assert_eq!(number(&session, "SELECT sum(v) FROM t"), updates * 200);
        });
    }
}

#[test]
fn errors_are_shown_and_retried() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = open(&path, options());
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    std::fs::rename(path.join("blocks"), path.join("elsewhere")).unwrap();
    insert(&session, 0, 5_000);
    wait_until(
        &session,
        "(SELECT last_error LIKE '%blocks%' AND state = 'failed' FROM taut.mover WHERE work = 'seal')",
    );
    assert_eq!(number(&session, "SELECT count(last_error_at) FROM taut.mover"), 1);
    std::fs::rename(path.join("elsewhere"), path.join("blocks")).unwrap();
    wait_until(&session, &format!("{TIMES_OF_WORK} 'seal') > 0"));
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 5_000);
}

/// The mover leaves a table with a lost block unchanged, compacts the others, and takes checkpoints.
#[test]
fn a_damaged_table_does_not_keep_the_mover_from_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = open(&path, MoverOptions { is_on: false, ..options() });
    let session = database.session();
    session.execute("CREATE TABLE a (k bigint, v bigint); CREATE TABLE t (k bigint, v bigint)").unwrap();
    for load in 0..12 {
        let rows = format!("generate_series({}, {})", load * 5_000, load * 5_000 + 4_999);
        session.execute(&format!("INSERT INTO a SELECT i, i + 0 FROM {rows} AS s(i)")).unwrap();
    }
    drop((session, database));
    let mut blocks: Vec<_> =
        std::fs::read_dir(path.join("blocks")).unwrap().map(|entry| entry.unwrap().path()).collect();
    blocks.sort();
    std::fs::remove_file(&blocks[5]).unwrap();
    let database = open(&path, MoverOptions { log_bytes: 100_000, ..options() });
    let session = database.session();
    insert(&session, 0, 10_000);
    wait_until(&session, &format!("{TIMES_OF_WORK} 'seal') > 0"));
    let error =
        "(SELECT last_error LIKE '%table \"a\" is damaged%' FROM taut.mover WHERE table_name = 'a' AND work = 'merge')";
    wait_until(&session, error);
    wait_until(&session, "(SELECT sum(times) > 0 FROM taut.mover WHERE work = 'checkpoint')");
    assert_eq!(number(&session, "SELECT sum(k) FROM t"), 49_995_000);
    assert!(session.query("SELECT sum(v) FROM a").and_then(|rows| rows.collect::<Result<Vec<_>, _>>()).is_err());
    session.execute("DROP TABLE a").unwrap();
    session.execute("VACUUM").unwrap();
}

#[test]
fn a_database_closes_while_the_mover_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for round in 0..5 {
        let database = open(&path, MoverOptions { merge_inputs: 2, ..options() });
        let session = database.session();
        session.execute("CREATE TABLE IF NOT EXISTS t (k bigint, v bigint) WITH (sort_by = 'v')").unwrap();
        assert_eq!(number(&session, "SELECT count(*) FROM t"), round * 25_000);
        insert(&session, 0, 5_000);
        session.execute("INSERT INTO t SELECT i, i % 97 FROM generate_series(1, 20000) AS s(i)").unwrap();
    }
    // The database opens again, so nothing holds it open.
    let database = open(&path, options());
    assert_eq!(number(&database.session(), "SELECT count(*) FROM t"), 5 * 25_000);
}

#[test]
fn commits_seal_rows_when_the_mover_is_off() {
    let database = open(Path::new(":memory:"), MoverOptions { is_on: false, ..options() });
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    assert!(text(&session, "SHOW mover").contains("off"));
    insert(&session, 0, 2_000);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(number(&session, "SELECT waiting_rows FROM taut.mover WHERE work = 'seal'"), 2_000);
    assert_eq!(number(&session, "SELECT count(*) FROM taut.mover WHERE state = 'off'"), 4);
    for first in 10..60 {
        insert(&session, first * 200, first * 200 + 200);
        let waiting = number(&session, "SELECT waiting_rows FROM taut.mover WHERE work = 'seal'");
        // Above four times `delta_rows`, a commit seals rows itself, except those of the last page.
        assert!(waiting <= 2_000 + 4_096, "{waiting} rows in no block");
    }
    assert!(number(&session, "SELECT times FROM taut.mover WHERE work = 'seal'") > 0);
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 12_000);
}

#[test]
fn an_idle_table_is_sealed() {
    let database = open(Path::new(":memory:"), MoverOptions { idle: Duration::from_millis(200), ..options() });
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint) WITH (sort_by = 'k')").unwrap();
    session.execute("INSERT INTO t SELECT i, i + 0 FROM generate_series(1, 5000) AS s(i)").unwrap();
    // One row that prevents a scan of the sorted table in order.
    session.execute("INSERT INTO t VALUES (0, 0)").unwrap();
    wait_until(&session, "(SELECT waiting_rows = 0 FROM taut.mover WHERE work = 'seal')");
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 5_001);
}

#[test]
fn a_checkpoint_shortens_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(&directory.path().join("db"), MoverOptions { log_bytes: 20_000, ..options() });
    let session = database.session();
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    insert(&session, 0, 5_000);
    let checkpoint = "(SELECT times > 0 AND bytes_in > 20000 AND waiting_bytes <= 20000 FROM taut.mover \
                      WHERE work = 'checkpoint')";
    wait_until(&session, checkpoint);
}

#[test]
fn a_transaction_that_replaces_blocks_keeps_the_mover_away() {
    let database = open(Path::new(":memory:"), options());
    let (session, other) = (database.session(), database.session());
    session.execute("CREATE TABLE t (k bigint, v bigint)").unwrap();
    session.execute("SET mover = off").unwrap();
    session.execute("INSERT INTO t SELECT i, i + 0 FROM generate_series(1, 20000) AS s(i)").unwrap();
    session.execute("DELETE FROM t WHERE k % 2 = 0").unwrap();
    session.execute("BEGIN; ALTER TABLE t SET (sort_by = 'v')").unwrap();
    other.execute("SET mover = on").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(number(&other, &format!("SELECT CAST({TIMES_OF_WORK} 'clean') AS bigint)")), 0);
    session.execute("COMMIT").unwrap();
    assert_eq!(number(&other, "SELECT sum(k) FROM t"), 100_000_000);
}

#[test]
fn a_serializable_transaction_does_not_fail_because_of_the_mover() {
    let database = open(Path::new(":memory:"), options());
    let (session, other) = (database.session(), database.session());
    session.execute("CREATE TABLE t (k bigint, v bigint); CREATE TABLE sums (s bigint)").unwrap();
    session.execute("SET mover = off").unwrap();
    insert(&session, 0, 5_000);
    session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE").unwrap();
    session.execute("INSERT INTO sums SELECT sum(k) FROM t; DELETE FROM t WHERE k < 10").unwrap();
    other.execute("SET mover = on").unwrap();
    wait_until(&other, &format!("{TIMES_OF_WORK} 'seal') > 0"));
    session.execute("COMMIT").unwrap();
    assert_eq!(number(&other, "SELECT s FROM sums"), 12_497_500);
    assert_eq!(number(&other, "SELECT count(*) FROM t"), 4_990);
}

#[test]
fn runs_are_merged_within_their_partitions() {
    for partition_by in ["range(v, 3)", "hash(k, 3)"] {
        let database = open(Path::new(":memory:"), options());
        let session = database.session();
        let design = format!("sort_by = 'v', partition_by = '{partition_by}'");
        session.execute(&format!("CREATE TABLE t (k bigint, v bigint) WITH ({design})")).unwrap();
        session.execute("SET mover = off").unwrap();
        for load in 0..9 {
            let rows = format!("generate_series({}, {}) AS s(i)", load * 6_000, load * 6_000 + 5_999);
            session.execute(&format!("INSERT INTO t SELECT i, i * 7919 % 54000 FROM {rows}")).unwrap();
        }
        session.execute("DELETE FROM t WHERE k % 9 = 4").unwrap();
        let blocks = number(&session, "SELECT count(*) FROM taut.blocks");
        session.execute("SET mover = on").unwrap();
        wait_until(&session, "(SELECT waiting_rows = 0 AND state = 'idle' FROM taut.mover WHERE work = 'merge')");
        assert!(number(&session, "SELECT count(*) FROM taut.blocks") < blocks);
        session.execute("VACUUM FULL").unwrap();
        assert_eq!(number(&session, "SELECT count(*) FROM taut.blocks"), 3, "{partition_by}");
        assert_eq!(number(&session, "SELECT count(DISTINCT partition) FROM taut.blocks"), 3);
        assert_eq!(number(&session, "SELECT sum(rows) FROM taut.blocks"), 48_000);
        assert_eq!(
            number(&session, "SELECT count(*) FROM t WHERE v BETWEEN 100 AND 5099"),
            number(
                &session,
                "SELECT count(*) FROM generate_series(0, 53999) AS s(i) WHERE i % 9 <> 4 AND i * 7919 % 54000 BETWEEN 100 AND 5099",
            )
        );
        let plan = text(&session, "EXPLAIN SELECT v, k FROM t ORDER BY v");
        assert!(plan.contains("ordering=["), "{plan}");
        let values = numbers(&session, "SELECT v FROM t ORDER BY v");
        assert!(values.len() == 48_000 && values.is_sorted());
    }
}

#[test]
fn vacuum_ends_despite_concurrent_writers() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(&directory.path().join("db"), options());
    let session = database.session();
    session.execute("SET mover = off").unwrap();
    session.execute("CREATE TABLE t (k bigint PRIMARY KEY, v bigint) WITH (sort_by = 'k')").unwrap();
    session.execute("INSERT INTO t SELECT i, 0 FROM generate_series(0, 9999) AS s(i)").unwrap();
    let is_done = AtomicBool::new(false);
    let updates = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (session, is_done) = (database.session(), &is_done);
                scope.spawn(move || {
                    session.execute("SET synchronous = normal").unwrap();
                    let mut updates = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        let key = (updates * 2 + writer) * 7919 % 10_000;
                        session.execute(&format!("UPDATE t SET v = v + 1 WHERE k = {key}")).unwrap();
                        updates += 1;
                    }
                    updates
                })
            })
            .collect();
        for round in 0..12 {
            let statement = ["VACUUM t", "VACUUM FULL t", "ALTER TABLE t COMPACT"][round % 3];
            let done = session.execute(statement);
            if done.is_err() {
                is_done.store(true, Ordering::Relaxed);
            }
            done.unwrap_or_else(|error| panic!("{statement}, round {round}: {error}"));
        }
        is_done.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<i64>()
    });
    assert!(updates > 0);
    assert_eq!(number(&session, "SELECT sum(v) FROM t"), updates);
    assert_eq!(number(&session, "SELECT count(DISTINCT k) FROM t"), 10_000);
    session.execute("VACUUM t").unwrap();
    assert_eq!(
        number(
            &session,
            "SELECT count(*) FROM taut.mover WHERE table_name = 't' AND work = 'seal' AND waiting_rows > 0"
        ),
        0
    );
}

/// `ALTER TABLE ... SET (layout = ...)` publishes its work block by block. A cancelled statement therefore leaves
/// blocks of both layouts.
#[test]
fn vacuum_full_finishes_a_cancelled_change_of_the_layout() {
    let database = Database::in_memory_with(&Settings { threads: 1, ..Settings::default() }).unwrap();
    let (session, watcher) = (database.session(), database.session());
    session.execute("CREATE TABLE t (k bigint, v bigint) WITH (partition_by = 'hash(k, 16)')").unwrap();
    session.execute("INSERT INTO t SELECT i, i * 7 FROM generate_series(1, 400000) AS g(i)").unwrap();
    let layouts = || numbers(&watcher, "SELECT count(*) FROM taut.blocks GROUP BY layout").len();
    for round in 0.. {
        assert!(round < 20, "no change of the layout was cancelled halfway");
        let layout = ["row", "packed_row", "column"][round % 3];
        let handle = session.cancel_handle();
        let is_done = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while layouts() == 1 && !is_done.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                handle.cancel();
            });
            let outcome = session.execute(&format!("ALTER TABLE t SET (layout = '{layout}')"));
            is_done.store(true, Ordering::SeqCst);
            outcome
        });
        if outcome.is_err_and(|error| error.sqlstate() == "57014") && layouts() == 2 {
            break;
        }
    }
    watcher.execute("VACUUM FULL t").unwrap();
    assert_eq!(layouts(), 1);
    let wanted = number(&watcher, "SELECT count(*) FROM taut.tables x JOIN taut.blocks y USING (table_name, layout)");
    assert_eq!(wanted, number(&watcher, "SELECT count(*) FROM taut.blocks"));
    assert_eq!(number(&watcher, "SELECT sum(v) - 7 * sum(k) + count(*) FROM t"), 400_000);
}
