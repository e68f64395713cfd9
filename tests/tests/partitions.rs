//! Partitioned and unpartitioned tables give the same answers, also after changes and concurrent loads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::fmt::Write;

use datafusion::arrow::util::pretty::pretty_format_batches;
use taut::{Database, Session};
use taut_testkit::Random;

fn text_of(session: &Session, sql: &str) -> String {
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches: Vec<_> = rows.map(|batch| batch.unwrap()).collect();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Random condition on the columns of [`COLUMNS`].
fn condition(random: &mut Random, depth: usize) -> String {
    if depth > 0 && random.below(5) < 2 {
        let (left, right) = (condition(random, depth - 1), condition(random, depth - 1));
        return match random.below(3) {
            0 => format!("({left}) AND ({right})"),
            1 => format!("({left}) OR ({right})"),
            _ => format!("NOT ({left})"),
        };
    }
    let (column, value): (&str, fn(&mut Random) -> String) = match random.below(5) {
        0 => ("i", |random| random.range(-50..1050).to_string()),
        1 => ("t", |random| {
            let (from, length) = (random.range(1..9), random.range(0..9));
            format!("substr('abcdefghabcdefgh', {from}, {length})")
        }),
        2 => ("d", |random| format!("CAST({}.{} AS decimal(9,2))", random.range(-30..30), random.range(0..10))),
        3 => ("f", |random| {
            random.pick(&["0.0", "-0.0", "1.5", "-7.25", "CAST('nan' AS double precision)", "12.0"]).to_owned()
        }),
        _ => ("day", |random| format!("DATE '2021-0{}-{}'", random.range(1..9), random.range(10..28))),
    };
    match random.below(6) {
        0 => format!("{column} IS NULL"),
        1 => {
            let list: Vec<_> = (0..random.range(1..5)).map(|_| value(random)).collect();
            format!("{column} IN ({})", list.join(", "))
        }
        2 => format!("{column} BETWEEN {} AND {}", value(random), value(random)),
        _ => format!("{column} {} {}", random.pick(&["=", "=", "<>", "<", "<=", ">", ">="]), value(random)),
    }
}

const COLUMNS: &str = "(i int, t text, d decimal(9,2), f double precision, day date)";

/// Statement that inserts rows of many kinds of values, including nulls, both zeros and NaN.
fn fill(table: &str, first: i64, last: i64) -> String {
    format!(
        "INSERT INTO {table} SELECT CASE WHEN n % 17 = 0 THEN NULL ELSE (n * 7919) % 1000 END, \
         CASE WHEN n % 19 = 0 THEN NULL ELSE substr('abcdefghabcdefgh', CAST(1 + n % 8 AS int), CAST(n % 9 AS int)) END, \
         (n % 601 - 300) * 0.1, \
         CASE n % 12 WHEN 0 THEN 'nan' WHEN 1 THEN '0' WHEN 2 THEN '-0' WHEN 3 THEN NULL ELSE CAST((n % 200 - 100) * 0.25 AS text) END, \
         CASE WHEN n % 23 = 0 THEN NULL ELSE DATE '2021-01-01' + CAST(n % 365 AS int) END \
         FROM generate_series({first}, {last}) AS g(n)"
    )
}

#[test]
fn random_conditions_find_the_same_rows() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let run = |sql: &str| drop(session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")));
    run(&format!("CREATE TABLE plain {COLUMNS}"));
    let mut random = Random(20_261_122);
    let mut designs = vec!["plain".to_owned()];
    for column in ["i", "t", "d", "f", "day"] {
        for method in ["range", "hash"] {
            let (name, count) = (format!("{method}_{column}"), random.range(2..40));
            let sort_by = random.pick(&["", ", sort_by = 'i'", ", sort_by = 'day desc, t'"]);
            let layout = random.pick(&["row", "packed_row", "column"]);
            let options = format!("partition_by = '{method}({column}, {count})', layout = '{layout}'{sort_by}");
            run(&format!("CREATE TABLE {name} {COLUMNS} WITH ({options})"));
            designs.push(name);
        }
    }
    // The first loads are too small to choose boundaries. Some loads have a single row.
    for (first, last) in [(1, 1), (2, 4), (5, 3000), (3001, 3001), (3002, 5000)] {
        designs.iter().for_each(|name| run(&fill(name, first, last)));
    }
    assert!(text_of(&session, "SELECT count(*) FROM taut.partitions WHERE holds = 'any'").contains("| 0 "));
    for round in 0..60 {
        let condition = condition(&mut random, 3);
        let mut sql = String::new();
        for name in &designs {
            let separator = if sql.is_empty() { "" } else { " UNION ALL " };
            let _ = write!(
                sql,
                "{separator}SELECT '{name}' AS name, count(*) AS n, sum(i) AS i, sum(d) AS d, count(t) AS t, min(day) AS day \
                 FROM {name} WHERE {condition}"
            );
        }
        // `sql` returns a row per design. All rows must be equal.
        let distinct = format!("SELECT count(*) FROM (SELECT DISTINCT n, i, d, t, day FROM ({sql}) AS x) AS y");
        let answer = text_of(&session, &distinct);
        assert!(answer.contains("| 1 "), "round {round}: {condition}\n{}", text_of(&session, &sql));
    }
    // Joins on equal values return the same rows, however each side is partitioned.
    for pair in designs.windows(2) {
        let join = |left: &str, right: &str| {
            format!(
                "SELECT count(*), sum(a.i) FROM {left} AS a JOIN {right} AS b ON a.i = b.i AND a.day = b.day WHERE b.d > 25"
            )
        };
        assert_eq!(text_of(&session, &join(&pair[0], &pair[1])), text_of(&session, &join("plain", "plain")));
    }
    for name in &designs {
        let ordered = |name: &str| format!("SELECT i, day, t FROM {name} ORDER BY i, day, t, d LIMIT 500");
        assert_eq!(text_of(&session, &ordered(name)), text_of(&session, &ordered("plain")));
        let descending = |name: &str| format!("SELECT day, t FROM {name} ORDER BY day DESC, t LIMIT 4000");
        assert_eq!(text_of(&session, &descending(name)), text_of(&session, &descending("plain")));
    }
}

/// Runs loads while their table is repartitioned. The partitioning may change before a load commits, and a load may add
/// blocks while the partitioning changes.
#[test]
fn loads_beside_changes_of_the_partitions_lose_nothing() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.execute("CREATE TABLE t (a bigint, b text) WITH (block_size = '128KiB', sort_by = 'a')").unwrap();
    const LOADS: i64 = 12;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let session = database.session();
            scope.spawn(move || {
                for load in 0..LOADS {
                    let first = (thread * LOADS + load) * 3000;
                    let rows = format!("FROM generate_series({first}, {}) AS g(n)", first + 2999);
                    session.execute(&format!("INSERT INTO t SELECT (n * 7919) % 100000, 'x' || n {rows}")).unwrap();
                }
            });
        }
        for by in ["range(a, 5)", "hash(b, 7)", "none", "hash(a, 3)", "range(b, 6)", "range(a, 2)"] {
            // Fails if a load commits blocks meanwhile.
            while session.execute(&format!("ALTER TABLE t SET (partition_by = '{by}')")).is_err() {}
        }
    });
    let rows = 2 * LOADS * 3000;
    assert!(text_of(&session, "SELECT count(*) FROM t").contains(&format!("| {rows} ")));
    assert!(text_of(&session, "SELECT count(*) FROM taut.blocks WHERE partition IS NULL").contains("| 0 "));
    let unordered = "SELECT count(*) FROM (SELECT a, lag(a) OVER (ORDER BY a) AS before FROM t) AS x WHERE a < before";
    assert!(text_of(&session, unordered).contains("| 0 "));
}
