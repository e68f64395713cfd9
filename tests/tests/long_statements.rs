//! Long and deeply nested statements, as programs generate them. Each must return the right answer, or an error that
//! names the limit. If the time doubled with each level, these tests would never end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use taut::{Database, Session};

fn session() -> Session {
    let session = Database::in_memory().unwrap().session();
    session
        .execute(
            "CREATE TABLE t (i BIGINT, d DECIMAL(10,2), f DOUBLE PRECISION, s TEXT);
             INSERT INTO t VALUES (1, 0.25, 0.5, 'x'), (-2, 0.75, 1.5, 'y')",
        )
        .unwrap();
    session
}

/// Rows of a query as text.
fn rows(session: &Session, sql: &str) -> Vec<String> {
    let read = || -> Result<Vec<RecordBatch>, taut::Error> {
        session.query(&format!("SELECT CAST(x AS TEXT) AS x FROM ({sql}) AS wrapped (x)"))?.collect()
    };
    let batches = read().unwrap_or_else(|error| panic!("{error}: {}", &sql[..sql.len().min(200)]));
    let texts = batches.iter().map(|batch| cast(batch.column(0), &DataType::Utf8).unwrap());
    texts
        .flat_map(|texts| {
            texts.as_string::<i32>().iter().map(|value| value.unwrap_or("null").to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns `inner` with `levels` copies of `before` in front of it and of `after` behind it.
fn around(before: &str, inner: &str, after: &str, levels: usize) -> String {
    format!("{}{inner}{}", before.repeat(levels), after.repeat(levels))
}

#[test]
fn statements_nest_to_a_thousand_levels() {
    // `rows` wraps the query, which uses some of the levels.
    let session = session();
    let one = |value: &str| vec![value.to_owned()];
    for (before, inner, after, levels, expected) in [
        ("(", "i", ")", 990, "1"),
        ("(1 + ", "i", ")", 990, "991"),
        ("CASE WHEN i = 1 THEN ", "i", " END", 990, "1"),
        ("CASE i WHEN 2 THEN 3 ELSE ", "i", " END", 500, "1"),
        ("NOT ", "(i = 1)", "", 990, "true"),
        ("- ", "i", "", 400, "1"),
        ("abs(", "i", ")", 100, "1"),
        ("coalesce(NULL, ", "i", ")", 60, "1"),
        ("CAST(", "i", " AS BIGINT)", 200, "1"),
    ] {
        let expression = around(before, inner, after, levels);
        assert_eq!(rows(&session, &format!("SELECT {expression} FROM t WHERE i = 1")), one(expected), "{before}");
    }
    let from = around("(SELECT i FROM ", "t", ") AS u", 300);
    assert_eq!(rows(&session, &format!("SELECT sum(i) FROM {from}")), one("-1"));
    let queries = around("(SELECT ", "7", ")", 16);
    assert_eq!(rows(&session, &format!("SELECT {queries}")), one("7"));
}

#[test]
fn deeper_nesting_fails_with_its_limit() {
    let session = session();
    for (before, inner, after) in
        [("(", "1", ")"), ("CASE WHEN true THEN ", "1", " END"), ("NOT ", "true", ""), ("abs(", "1", ")")]
    {
        let error =
            session.execute(&format!("SELECT {}", around(before, inner, after, 20_000))).unwrap_err().to_string();
        assert!(error.contains("more than 1000 levels"), "{before}: {error}");
    }
    let error = session.execute(&format!("SELECT {}", around("(SELECT ", "1", ")", 17))).unwrap_err().to_string();
    assert!(error.contains("more than 16 levels deep"), "{error}");
    assert_eq!(rows(&session, "SELECT 1"), ["1"]);
}

#[test]
fn chains_of_operators_have_the_type_and_value_of_short_ones() {
    const TERMS: usize = 1600;
    let session = session();
    let chain = |term: &str, operator: &str| vec![term; TERMS].join(operator);
    assert_eq!(rows(&session, &format!("SELECT {} FROM t", chain("i", " + "))), ["1600", "-3200"]);
    assert_eq!(rows(&session, &format!("SELECT {} FROM t", chain("d", " + "))), ["400.00", "1200.00"]);
    assert_eq!(rows(&session, &format!("SELECT CAST({} AS BIGINT) FROM t", chain("f", " + "))), ["800", "2400"]);
    assert_eq!(rows(&session, &format!("SELECT length({}) FROM t", chain("s", " || "))), ["1600", "1600"]);
    assert_eq!(rows(&session, &format!("SELECT {}", chain("1", " + "))), ["1600"]);
    assert_eq!(rows(&session, &format!("SELECT count(*) FROM t WHERE {} > 0", chain("i", " - "))), ["1"]);
    // A result column is named after the expression as written.
    let sum = chain("i", " + ");
    let named = session.query(&format!("SELECT {sum} FROM t")).unwrap();
    assert!(!named.schema().field(0).name().contains("CAST"), "{}", named.schema().field(0).name());
    let sum = vec!["i"; TERMS / 2].join(" + ");
    let grouped = format!("SELECT count(*) FROM t GROUP BY {sum} ORDER BY {sum}");
    assert_eq!(rows(&session, &grouped), ["1", "1"]);
    // The whole expression determines the types of the parameters.
    let parameters = (1..=100).map(|place| format!("${place}")).collect::<Vec<_>>().join(" + ");
    session.execute(&format!("PREPARE many AS SELECT i + {parameters} AS x FROM t WHERE i = 1")).unwrap();
    let values = vec!["2"; 100].join(", ");
    let batches: Vec<_> = session.query(&format!("EXECUTE many({values})")).unwrap().map(Result::unwrap).collect();
    assert!(format!("{batches:?}").contains("201"), "{batches:?}");
}

#[test]
fn nested_functions_are_planned_in_time_that_does_not_explode() {
    let session = session();
    session.execute("CREATE TABLE n (i BIGINT); INSERT INTO n VALUES (-7), (3)").unwrap();
    // If each level took as long as all levels below it together, 400 levels would never end.
    let call = around("abs(", "i", ")", 400);
    assert_eq!(rows(&session, &format!("SELECT {call} AS x FROM n WHERE {call} > 3 ORDER BY {call}")), ["7"]);
    assert_eq!(rows(&session, &format!("SELECT count(*) AS x FROM n GROUP BY {call}")).len(), 2);
    let mixed = around("greatest(-abs(", "i", "), -9)", 100);
    assert_eq!(rows(&session, &format!("SELECT max({mixed}) AS x FROM n")), ["-3"]);
    let name = session.query(&format!("SELECT {call} FROM n")).unwrap().schema().field(0).name().clone();
    assert_eq!(name.matches("abs(").count(), 400, "{name}");
}

#[test]
fn nested_coalesce_does_not_grow_by_copies() {
    let session = session();
    session.execute("CREATE TABLE c (i BIGINT); INSERT INTO c VALUES (NULL), (3)").unwrap();
    for function in ["coalesce", "nvl", "ifnull"] {
        let first = around(&format!("{function}("), "i", ", 7)", 300);
        assert_eq!(rows(&session, &format!("SELECT sum({first}) AS x FROM c")), ["10"], "{function}");
    }
    // With other functions in between, a few levels are planned. More levels return an error instead of using all
    // memory.
    let mixed = |levels| format!("SELECT sum({}) AS x FROM c", around("coalesce(abs(", "i", "), 7)", levels));
    assert_eq!(rows(&session, &mixed(5)), ["10"]);
    let error = session.execute(&mixed(40)).unwrap_err();
    assert_eq!(error.sqlstate(), "0A000", "{error}");
    assert!(error.to_string().contains("coalesce"), "{error}");
}
