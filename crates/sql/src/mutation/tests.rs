//! Tests of the queries that mutations are converted to.

use std::sync::Arc;

use taut_types::LogicalType;

use super::*;
use crate::{Statement, parse};

fn mutation(sql: &str) -> Result<Arc<Mutation>> {
    match parse(sql)?.pop() {
        Some(Statement::Mutation { mutation, .. }) => Ok(mutation),
        other => panic!("{sql}: {other:?}"),
    }
}

/// Query of a statement on a table with the columns `a` (the key), `b` (default 7) and `c`.
fn mutation_query(sql: &str, types: [Option<LogicalType>; 3]) -> Result<MutationQuery> {
    let seven = syntax::integer(7);
    let [a, b, c] = types;
    let columns = [
        TargetColumn { name: "a", default: None, logical_type: a, generated: None, is_identity: false },
        TargetColumn { name: "b", default: Some(&seven), logical_type: b, generated: None, is_identity: false },
        TargetColumn { name: "c", default: None, logical_type: c, generated: None, is_identity: false },
    ];
    mutation(sql)?.query(&columns, &[vec!["a".to_owned()]])
}

/// Text of a query, without the quotes around names that contain no space.
fn text(sql: &str) -> String {
    let text = mutation_query(sql, [None; 3]).unwrap().query.to_string();
    let mut parts = text.split('"').enumerate();
    parts
        .try_fold(String::new(), |text, (index, part)| match index % 2 == 1 && part.contains(' ') {
            true => Some(text + "\"" + part + "\""),
            false => Some(text + part),
        })
        .unwrap()
}

fn check(cases: &[(&str, &str)]) {
    for (sql, expected) in cases {
        assert_eq!(text(sql), *expected, "{sql}");
    }
}

fn check_errors(cases: &[(&str, &str)]) {
    for (sql, message) in cases {
        let error = mutation_query(sql, [None; 3]).unwrap_err().to_string();
        assert!(error.contains(message), "{sql}: {error}");
    }
}

#[test]
fn update_selects_all_columns_of_the_rows_to_change() {
    check(&[
        (
            "UPDATE t SET b = 1",
            r#"SELECT t."taut row" AS "taut row", t.a AS a, 1 AS b, t.c AS c FROM "taut target" AS t"#,
        ),
        (
            "UPDATE public.T AS x SET b = x.b + 1, c = DEFAULT WHERE a IN (SELECT a FROM t) LIMIT 3",
            r#"SELECT x."taut row" AS "taut row", x.a AS a, x.b + 1 AS b, NULL AS c FROM "taut target" AS x WHERE a IN (SELECT a FROM t) LIMIT 3"#,
        ),
        (
            "UPDATE t SET (a, b) = (c, DEFAULT), t.c = $1",
            r#"SELECT t."taut row" AS "taut row", c AS a, 7 AS b, $1 AS c FROM "taut target" AS t"#,
        ),
        (
            "UPDATE t SET (a, b) = ROW(1, 2), (c) = (3)",
            r#"SELECT t."taut row" AS "taut row", 1 AS a, 2 AS b, 3 AS c FROM "taut target" AS t"#,
        ),
        (
            "UPDATE t SET (a, b) = (SELECT x, max(y) FROM u WHERE u.x = t.a GROUP BY x)",
            r#"SELECT t."taut row" AS "taut row", (SELECT x FROM u WHERE u.x = t.a GROUP BY x) AS a, (SELECT max(y) FROM u WHERE u.x = t.a GROUP BY x) AS b, t.c AS c FROM "taut target" AS t"#,
        ),
        (
            "UPDATE t SET (a, b) = (SELECT * FROM u)",
            r#"SELECT t."taut row" AS "taut row", (SELECT "taut values"."taut value 1" AS "taut value 1" FROM (SELECT * FROM u) AS "taut values" ("taut value 1", "taut value 2")) AS a, (SELECT "taut values"."taut value 2" AS "taut value 2" FROM (SELECT * FROM u) AS "taut values" ("taut value 1", "taut value 2")) AS b, t.c AS c FROM "taut target" AS t"#,
        ),
        (
            "WITH q AS (SELECT 1 AS x) UPDATE t x SET b = q.x FROM q, t JOIN v ON t.a = v.a WHERE x.a = t.a",
            r#"WITH q AS (SELECT 1 AS x) SELECT x."taut row" AS "taut row", x.a AS a, q.x AS b, x.c AS c FROM "taut target" AS x, q, t JOIN v ON t.a = v.a WHERE x.a = t.a"#,
        ),
    ]);
    check_errors(&[
        ("UPDATE t SET z = 1", "column \"z\" of relation \"t\" does not exist"),
        ("UPDATE t SET \"B\" = 1", "column \"B\" of relation \"t\" does not exist"),
        ("UPDATE t SET b = 1, (a, b) = (1, 2)", "column \"b\" specified more than once"),
        ("UPDATE t AS x SET t.b = 1", "t.b as a column to set"),
        ("UPDATE t SET (a, b) = (1, 2, 3)", "number of columns (2) does not match number of values (3)"),
        ("UPDATE t SET (a, b) = (SELECT 1)", "number of columns (2) does not match number of values (1)"),
        ("UPDATE t SET (a, b) = 5", "ROW(1, 2)"),
        ("UPDATE t SET b = 1 FROM u, (v CROSS JOIN t)", "table name \"t\" specified more than once"),
        ("UPDATE t SET b = 1 FROM u LIMIT 1", "LIMIT in UPDATE with FROM"),
        ("UPDATE t JOIN u ON true SET b = 1", "UPDATE t SET ... FROM"),
    ]);
}

#[test]
fn delete_returns_ids_and_values_for_returning() {
    check(&[
        ("DELETE FROM t", r#"SELECT t."taut row" AS "taut row" FROM "taut target" AS t"#),
        (
            "DELETE FROM t x USING t, u AS w WHERE x.a = t.a AND w.b = x.b",
            r#"SELECT x."taut row" AS "taut row" FROM "taut target" AS x, t, u AS w WHERE x.a = t.a AND w.b = x.b"#,
        ),
        (
            "DELETE FROM t WHERE false RETURNING *",
            r#"SELECT t."taut row" AS "taut row", t.a AS a, t.b AS b, t.c AS c FROM "taut target" AS t WHERE false"#,
        ),
        (
            "DELETE FROM t ORDER BY b DESC, c + 1 LIMIT 2",
            r#"SELECT t."taut row" AS "taut row" FROM "taut target" AS t ORDER BY t.b DESC, t.c + 1 LIMIT 2"#,
        ),
    ]);
    check_errors(&[
        ("DELETE FROM t USING u JOIN t ON true", "table name \"t\" specified more than once"),
        ("DELETE FROM t, u", "several tables"),
        ("DELETE FROM t USING u LIMIT 1", "LIMIT in DELETE with USING"),
        ("DELETE FROM taut.tables", "schema public"),
    ]);
}

#[test]
fn insert_returns_rows_in_table_order_with_defaults() {
    check(&[
        (
            "INSERT INTO t DEFAULT VALUES",
            "SELECT excluded.a AS a, excluded.b AS b, excluded.c AS c FROM (SELECT NULL AS a, 7 AS b, NULL AS c) AS excluded",
        ),
        (
            "INSERT INTO t VALUES (1, DEFAULT), (default, 2)",
            "SELECT excluded.a AS a, excluded.b AS b, NULL AS c FROM (VALUES (1, 7), (NULL, 2)) AS excluded (a, b)",
        ),
        (
            "INSERT INTO t AS x (c, a) SELECT u.x, u.y FROM u ORDER BY 1 RETURNING x.a",
            "SELECT excluded.a AS a, 7 AS b, excluded.c AS c FROM (SELECT u.x, u.y FROM u ORDER BY 1) AS excluded (c, a)",
        ),
        (
            "WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q",
            "WITH q AS (SELECT 1 AS 1) SELECT excluded.a AS a, excluded.b AS b, excluded.c AS c FROM (SELECT * FROM q) AS excluded (a, b, c)",
        ),
    ]);
    check_errors(&[
        ("INSERT INTO t (a, b) VALUES (1) RETURNING a", "takes 2 values, 1 are given"),
        ("INSERT INTO t SELECT 1, 2, 3, 4 RETURNING a", "takes 3 values, 4 are given"),
        ("INSERT INTO t VALUES (1), (2, 3) RETURNING a", "VALUES lists must all be the same length"),
        ("INSERT INTO t (a, A) VALUES (1, 2) RETURNING a", "column \"a\" specified more than once"),
        ("INSERT INTO t (z) VALUES (1) RETURNING a", "column \"z\" of relation \"t\" does not exist"),
        ("INSERT OR ABORT INTO t VALUES (1) RETURNING a", "INSERT OR REPLACE"),
    ]);
    assert!(matches!(parse("INSERT INTO t VALUES (1)").unwrap()[0], Statement::Planned { .. }));
}

#[test]
fn conflicts_are_found_by_a_join_with_the_key() {
    let rows = "(SELECT excluded.a AS a, 7 AS b, excluded.c AS c FROM (VALUES (1, 2)) AS excluded (a, c)) AS excluded";
    let row_check = r#""taut check row"(excluded.b, excluded.a, excluded.b, excluded.c)"#;
    let rows = format!("(SELECT excluded.a AS a, {row_check} AS b, excluded.c AS c FROM {rows}) AS excluded");
    let join = format!(r#"{rows} LEFT JOIN "taut target" AS t ON t.a = excluded.a"#);
    let nothing = format!(
        r#"SELECT excluded.a AS a, excluded.b AS b, excluded.c AS c FROM {rows} WHERE NOT EXISTS (SELECT 1 AS "taut action" FROM "taut target" AS t WHERE t.a = excluded.a)"#
    );
    let update = format!(
        r#"SELECT t."taut row" AS "taut row", CASE WHEN t."taut row" IS NULL THEN 1 ELSE 2 END AS "taut action", CASE WHEN t."taut row" IS NULL THEN excluded.a ELSE t.a END AS a, CASE WHEN t."taut row" IS NULL THEN excluded.b ELSE t.b + excluded.b + (SELECT max(b) FROM u) END AS b, CASE WHEN t."taut row" IS NULL THEN excluded.c ELSE NULL END AS c FROM {join} WHERE t."taut row" IS NULL OR (t.b > excluded.b AND t.c IS NULL)"#
    );
    check(&[
        ("INSERT INTO t (a, c) VALUES (1, 2) ON CONFLICT DO NOTHING", &nothing),
        (
            "INSERT INTO t (a, c) VALUES (1, 2) ON CONFLICT (A) DO UPDATE \
             SET b = b + excluded.b + (SELECT max(b) FROM u), c = DEFAULT WHERE b > excluded.b AND t.c IS NULL",
            &update,
        ),
    ]);
    check_errors(&[
        (
            "INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET b = 1",
            "requires inference specification or constraint name",
        ),
        ("INSERT INTO excluded VALUES (1) ON CONFLICT DO NOTHING", "table name \"excluded\""),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE b = 1", "ON CONFLICT (a) DO UPDATE"),
    ]);
    let target = |sql| mutation(sql).unwrap().conflict().unwrap().target.clone();
    let both = ConflictTarget::Columns(vec!["a".to_owned(), "B".to_owned()]);
    assert_eq!(target("INSERT INTO t VALUES (1) ON CONFLICT (A, \"B\") DO NOTHING"), Some(both));
    let named = ConflictTarget::Constraint("t_pkey".to_owned());
    assert_eq!(target("INSERT INTO t VALUES (1) ON CONFLICT ON CONSTRAINT T_pkey DO UPDATE SET b = 1"), Some(named));
    assert_eq!(target("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING"), None);
    let column = |name| TargetColumn { name, default: None, logical_type: None, generated: None, is_identity: false };
    let columns = ["a", "b", "c"].map(column);
    let two = [vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]];
    let query = mutation("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING").unwrap().query(&columns, &two);
    let query = query.unwrap().query.to_string().replace('"', "");
    assert_eq!(query.matches("NOT EXISTS").count(), 2, "{query}");
    assert!(query.contains("t.b = excluded.b AND t.c = excluded.c"), "{query}");
    let keyless = |sql| mutation(sql).unwrap().query(&[], &[]);
    assert!(keyless("INSERT INTO t DEFAULT VALUES ON CONFLICT DO NOTHING").unwrap().outputs.action.is_none());
    assert!(keyless("INSERT INTO t DEFAULT VALUES ON CONFLICT (a) DO UPDATE SET b = 1").is_err());
}

#[test]
fn merge_applies_the_first_clause_that_holds() {
    check(&[
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET b = u.b WHEN NOT MATCHED THEN INSERT VALUES (a, u.b)",
            r#"SELECT t."taut row" AS "taut row", CASE WHEN t."taut row" IS NOT NULL THEN 2 ELSE 1 END AS "taut action", CASE WHEN t."taut row" IS NOT NULL THEN t.a ELSE u.a END AS a, u.b AS b, CASE WHEN t."taut row" IS NOT NULL THEN t.c ELSE NULL END AS c FROM u LEFT JOIN "taut target" AS t ON t.a = u.a"#,
        ),
        (
            "MERGE INTO t USING (SELECT * FROM t) AS s ON t.a = s.a WHEN MATCHED AND s.b > 1 THEN DELETE",
            r#"SELECT t."taut row" AS "taut row", 3 AS "taut action", t.a AS a, t.b AS b, t.c AS c FROM (SELECT * FROM t) AS s INNER JOIN "taut target" AS t ON t.a = s.a WHERE (s.b > 1)"#,
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED BY TARGET AND b > 1 THEN INSERT (a) VALUES (DEFAULT)",
            r#"SELECT t."taut row" AS "taut row", 1 AS "taut action", NULL AS a, 7 AS b, NULL AS c FROM u LEFT JOIN "taut target" AS t ON t.a = u.a WHERE (t."taut row" IS NULL AND (u.b > 1))"#,
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED BY SOURCE THEN DELETE",
            r#"SELECT t."taut row" AS "taut row", 3 AS "taut action", t.a AS a, t.b AS b, t.c AS c FROM (SELECT *, 1 AS "taut source" FROM u) AS u RIGHT JOIN "taut target" AS t ON t.a = u.a WHERE u."taut source" IS NULL"#,
        ),
        (
            "MERGE INTO t USING u AS s (k) ON a = k WHEN NOT MATCHED BY SOURCE AND b > 1 THEN UPDATE SET b = b + 1 \
             WHEN NOT MATCHED THEN INSERT (a, b) VALUES (k, 2) WHEN MATCHED THEN DELETE",
            r#"SELECT t."taut row" AS "taut row", CASE WHEN s."taut source" IS NULL AND (t.b > 1) THEN 2 WHEN t."taut row" IS NULL THEN 1 ELSE 3 END AS "taut action", CASE WHEN s."taut source" IS NULL AND (t.b > 1) THEN t.a WHEN t."taut row" IS NULL THEN k ELSE t.a END AS a, CASE WHEN s."taut source" IS NULL AND (t.b > 1) THEN t.b + 1 WHEN t."taut row" IS NULL THEN 2 ELSE t.b END AS b, CASE WHEN s."taut source" IS NULL AND (t.b > 1) THEN t.c WHEN t."taut row" IS NULL THEN NULL ELSE t.c END AS c FROM (SELECT *, 1 AS "taut source" FROM u AS s (k)) AS s FULL JOIN "taut target" AS t ON a = k WHERE (s."taut source" IS NULL AND (t.b > 1)) OR t."taut row" IS NULL OR (t."taut row" IS NOT NULL AND s."taut source" IS NOT NULL)"#,
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND u.b = 1 THEN DO NOTHING WHEN MATCHED THEN DELETE \
             WHEN NOT MATCHED THEN DO NOTHING",
            r#"SELECT t."taut row" AS "taut row", CASE WHEN t."taut row" IS NOT NULL AND (u.b = 1) THEN 0 WHEN t."taut row" IS NOT NULL THEN 3 ELSE 0 END AS "taut action", t.a AS a, t.b AS b, t.c AS c FROM u LEFT JOIN "taut target" AS t ON t.a = u.a WHERE t."taut row" IS NOT NULL"#,
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED AND CASE WHEN NOT u.matched THEN true END THEN DO NOTHING \
             WHEN MATCHED THEN DELETE",
            r#"SELECT t."taut row" AS "taut row", CASE WHEN t."taut row" IS NULL AND CASE WHEN NOT u.matched THEN true END THEN 0 ELSE 3 END AS "taut action", t.a AS a, t.b AS b, t.c AS c FROM u LEFT JOIN "taut target" AS t ON t.a = u.a WHERE t."taut row" IS NOT NULL"#,
        ),
        (
            "merge into t using u on t.a = u.a when not matched by source then do nothing -- nothing",
            r#"SELECT t."taut row" AS "taut row", 0 AS "taut action", t.a AS a, t.b AS b, t.c AS c FROM (SELECT *, 1 AS "taut source" FROM u) AS u RIGHT JOIN "taut target" AS t ON t.a = u.a WHERE false"#,
        ),
    ]);
    check_errors(&[
        ("MERGE INTO t USING t ON true WHEN MATCHED THEN DELETE", "table name \"t\" specified more than once"),
        ("MERGE INTO t USING u ON true", "no WHEN clause"),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN UPDATE SET b = 1 WHERE c", "UPDATE ... WHERE in MERGE"),
        ("MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "takes 1 values, 2 are given"),
        ("MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (a, a) VALUES (1, 2)", "column \"a\""),
        ("MERGE INTO t USING (u CROSS JOIN v) ON true WHEN NOT MATCHED BY SOURCE THEN DELETE", "a join as the source"),
    ]);
    let error = parse("MERGE INTO t USING u ON true WHEN MATCHED THEN DO NOTHING\nx").unwrap_err();
    assert_eq!(error.position(), Some((2, 1)), "{error}");
}

#[test]
fn returning_refers_to_the_written_rows() {
    let returning = |sql| mutation(sql).unwrap().returning_query().map(|query| query.to_string());
    let written = |items| Some(format!("SELECT {items} FROM \"taut written\" AS \"x\""));
    assert_eq!(returning("UPDATE t AS x SET b = 1 RETURNING x.a, b + 1 AS d"), written("x.a, b + 1 AS d"));
    assert_eq!(returning("MERGE INTO t x USING u ON true WHEN MATCHED THEN DELETE RETURNING *"), written("*"));
    assert_eq!(returning("DELETE FROM t"), None);
}

#[test]
fn assigned_values_are_cast_to_the_type_of_their_column() {
    let types = [Some(LogicalType::BigInt), Some(LogicalType::Decimal { precision: 20, scale: 2 }), None];
    let text = |sql| mutation_query(sql, types).unwrap().query.to_string().replace('"', "");
    assert!(
        text("UPDATE t SET a = $1, b = 1.5")
            .starts_with("SELECT t.taut row AS taut row, taut_assign_bigint($1) AS a, 1.5 AS b, t.c AS c FROM")
    );
    let insert = text("INSERT INTO t VALUES ($1, 1.5, $2) ON CONFLICT (a) DO UPDATE SET b = 2");
    for part in [
        "(SELECT taut_assign_bigint(excluded.a) AS a, CAST(excluded.b AS DECIMAL(20,2)) AS b, excluded.c AS c FROM \
         (VALUES (taut_assign_bigint($1), 1.5, $2)) AS excluded (a, b, c)) AS excluded",
        "THEN excluded.b ELSE CAST(2 AS DECIMAL(20,2)) END AS b",
        "THEN excluded.a ELSE t.a END AS a",
    ] {
        assert!(insert.contains(part), "{insert}");
    }
}

#[test]
fn explained_and_prepared_mutations_are_recognized() {
    let explain = |sql| match parse(sql).unwrap().pop() {
        Some(Statement::Mutation { explain, .. }) => explain.map(|options| options.analyze),
        other => panic!("{other:?}"),
    };
    assert_eq!(explain("EXPLAIN UPDATE t SET a = 1"), Some(false));
    assert_eq!(explain("EXPLAIN (ANALYZE) DELETE FROM t"), Some(true));
    assert_eq!(explain("DELETE FROM t"), None);
    let prepared = parse("PREPARE p AS INSERT INTO t VALUES (DEFAULT)").unwrap().pop();
    assert!(matches!(prepared, Some(Statement::Prepare { name, mutation }) if name == "p" && !mutation.is_long()));
}
