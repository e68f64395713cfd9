//! Sums and counts over blocks with deleted rows: aggregation in the scan must equal aggregation by DataFusion.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use taut::{Database, Session};

/// Query that fails with a division by zero until the rows with `a = 7` are deleted.
const DIVIDES: &str = "SELECT sum(1000 / (a - 7)) FROM t";
const QUERIES: &[&str] = &[
    "SELECT count(*), sum(v), avg(d), count(n), sum(n), sum(r) FROM t",
    "SELECT sum(v), count(*) FROM t WHERE a < 300",
    "SELECT sum(n), avg(n), count(n) FROM t WHERE k BETWEEN 20000 AND 90000",
    "SELECT sum(v) FROM t WHERE k < 0",
    "SELECT sum(v * 2 + a), sum(d * 3) FROM t WHERE s = 'text 7'",
    "SELECT g, count(*), sum(v), avg(n), count(d) FROM t GROUP BY g",
    "SELECT s, count(n), sum(d) FROM t GROUP BY s",
    "SELECT g, s, sum(v) FROM t WHERE a > 100 GROUP BY g, s",
    "SELECT k, count(*), sum(n) FROM t WHERE k % 1000 < 3 GROUP BY k",
    "SELECT n, count(*) FROM t GROUP BY n",
    "SELECT g, min(v), max(v), sum(v) FROM t GROUP BY g",
    "SELECT g, sum(100 / (v - 50)) FROM t WHERE v <> 50 GROUP BY g",
    DIVIDES,
    "SELECT count(DISTINCT g), sum(v) FILTER (WHERE a > 500) FROM t",
];
/// Conditions of deletions, which run in this order: scattered rows, whole groups, ranges of keys, and in the end all
/// rows.
const DELETED: &[&str] =
    &["k % 97 = 5", "g = 13", "a = 7", "k BETWEEN 30000 AND 31000", "s = 'text 3'", "k % 3 = 0", "v > 20", "true"];

/// Rows of a query, sorted. `None` if the query fails.
fn rows(session: &Session, sql: &str) -> Option<Vec<String>> {
    let text = |batch: &RecordBatch, row| {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join(" ")
    };
    let batches = session.query(sql).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| text(batch, row)));
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    Some(rows)
}

#[test]
fn deleted_rows_are_not_aggregated() {
    for layout in ["column", "row", "packed_row", "groups"] {
        let database = Database::in_memory().unwrap();
        let [session, other] = [database.session(), database.session()];
        other.execute("SET taut.aggregate_in_scan = false").unwrap();
        session.execute("SET mover = off").unwrap();
        let groups = if layout == "groups" { ", groups = '(k, g), (v, a, n), (d, r, s)'" } else { "" };
        session
            .execute(&format!(
                "CREATE TABLE t (k BIGINT, g INTEGER, v INTEGER, a BIGINT, n BIGINT, d DECIMAL(12, 2), r DOUBLE, s VARCHAR) \
                 WITH (layout = '{layout}', sort_by = 'k'{groups})"
            ))
            .unwrap();
        session
            .execute(
                "INSERT INTO t SELECT i AS k, i / 50 % 40 AS g, i % 101 AS v, i * 7919 % 1009 AS a, \
                 CASE WHEN i % 11 = 0 THEN NULL ELSE i % 17 END AS n, i % 1000 * 0.25 AS d, i / 8.0 AS r, \
                 concat('text ', CAST(i % 23 AS VARCHAR)) AS s FROM generate_series(0, 139999) AS g(i)",
            )
            .unwrap();
        assert_eq!(rows(&session, DIVIDES), None, "{layout}");
        for deleted in DELETED {
            let done = session.execute(&format!("DELETE FROM t WHERE {deleted}")).unwrap();
            assert!(done.len() == 1);
            for sql in QUERIES {
                let found = rows(&session, sql);
                assert_eq!(found, rows(&other, sql), "{layout}, without {deleted}: {sql}");
                assert!(found.is_some() || sql == &DIVIDES, "{layout}, without {deleted}: {sql}");
            }
        }
        assert!(rows(&session, DIVIDES).is_some(), "{layout}");
    }
}
