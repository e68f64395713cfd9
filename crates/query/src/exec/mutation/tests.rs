//! DataFusion plans the queries of mutations, and they return the expected rows.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use taut_sql::{MutationQuery, Parameters, ROW, Statement, TargetColumn, Value, parse, parse_expression};
use taut_types::{Column, LogicalType, Schema};

use crate::error::QueryError;
use crate::plan::parameters::BindParameters;
use crate::plan::row_check::RowCheck;
use crate::write::coerce::Coercion;

/// A context with three tables: the target of the mutations with row ids; `t` with the same rows, for other references
/// in a statement; and `u`.
fn context() -> SessionContext {
    let context = SessionContext::new();
    crate::plan::assignment_cast::register(&context);
    let table = |rows: Option<Vec<u64>>, a: Vec<i32>, b: Vec<i32>, c: Vec<&str>| {
        let a: ArrayRef = Arc::new(Int32Array::from(a));
        let b: ArrayRef = Arc::new(Int32Array::from(b));
        let c: ArrayRef = Arc::new(StringArray::from(c));
        let row = rows.map(|rows| (ROW, Arc::new(UInt64Array::from(rows)) as ArrayRef));
        let batch = RecordBatch::try_from_iter([("a", a), ("b", b), ("c", c)].into_iter().chain(row)).unwrap();
        Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
    };
    let columns = ["a", "b", "c"].into_iter().zip([LogicalType::Integer, LogicalType::Integer, LogicalType::Varchar]);
    let columns = columns.map(|(name, logical_type)| Column::new(name, logical_type, true));
    let schema = Schema::new(columns.collect()).unwrap();
    let coercion = Arc::new(Coercion::new(&schema.arrow(), &schema, "t").unwrap());
    context.register_udf(RowCheck::udf(schema.arrow(), coercion));
    let rows = |ids| table(ids, vec![1, 2], vec![10, 20], vec!["x", "y"]);
    context.register_table("\"taut target\"", rows(Some(vec![100, 200]))).unwrap();
    context.register_table("t", rows(None)).unwrap();
    context.register_table("u", table(None, vec![2, 3], vec![5, 6], vec!["v", "w"])).unwrap();
    context
}

/// Returns the query of a statement on a table with the columns `a` (the key), `b` (default 7) and `c`.
fn plan_mutation(sql: &str) -> MutationQuery {
    let Some(Statement::Mutation { mutation, .. }) = parse(sql).unwrap().pop() else { panic!("no mutation: {sql}") };
    let seven = parse_expression("7").unwrap();
    let column = |name, default, logical_type| TargetColumn {
        name,
        default,
        logical_type: Some(logical_type),
        generated: None,
        is_identity: false,
    };
    let columns = [
        column("a", None, LogicalType::Integer),
        column("b", Some(&seven), LogicalType::Integer),
        column("c", None, LogicalType::Varchar),
    ];
    mutation.query(&columns, &[vec!["a".to_owned()]]).unwrap()
}

/// Runs the query of a statement and returns its rows, sorted.
fn rows(context: &SessionContext, sql: &str, parameters: &Parameters) -> Vec<String> {
    let MutationQuery { query, outputs } = plan_mutation(sql);
    let text = query.to_string();
    let statement = PlannerStatement::Statement(Box::new(Ast::Query(query)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let batches = runtime.block_on(async {
        let plan = context.state().statement_to_plan(statement).await.map_err(QueryError::from)?;
        let plan = parameters.bind(plan)?;
        context.execute_logical_plan(plan).await?.collect().await.map_err(QueryError::from)
    });
    let mut lines = Vec::new();
    for batch in batches.unwrap_or_else(|error| panic!("{sql}\n{text}\n{error}")) {
        assert_eq!(batch.num_columns(), outputs.columns.end, "{sql}");
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| match column.logical_nulls().is_some_and(|nulls| nulls.is_null(row)) {
                true => "NULL".to_owned(),
                false => array_value_to_string(column, row).unwrap(),
            };
            lines.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(" "));
        }
    }
    lines.sort();
    lines
}

/// The columns of an expected row:
///
/// - the id of the changed row, unless the statement only inserts;
/// - the action, if the statement may have several: 1 inserts, 2 updates, 3 deletes;
/// - the values of `a`, `b` and `c`, unless the statement only deletes.
#[test]
fn queries_of_mutations_return_the_changed_rows() {
    let context = context();
    for (sql, expected) in [
        ("UPDATE t SET b = t.b + u.b FROM u WHERE t.a = u.a", vec!["200 2 25 y"]),
        ("UPDATE t SET b = (SELECT max(b) FROM t AS o WHERE o.a = t.a + 1)", vec!["100 1 20 x", "200 2 NULL y"]),
        ("UPDATE t SET (b, c) = (SELECT max(b), max(c) FROM u WHERE u.a = t.a)", vec!["100 1 NULL NULL", "200 2 5 v"]),
        ("UPDATE t SET (b, c) = (SELECT b, c FROM u ORDER BY a LIMIT 1) WHERE a = 1", vec!["100 1 5 v"]),
        ("UPDATE t AS o SET b = 0 WHERE a IN (SELECT max(a) FROM t)", vec!["200 2 0 y"]),
        ("WITH q AS (SELECT 2 AS k) DELETE FROM t USING q WHERE a = k", vec!["200"]),
        ("DELETE FROM t WHERE false RETURNING *", vec![]),
        ("DELETE FROM t ORDER BY b DESC LIMIT 1", vec!["200"]),
        ("INSERT INTO t (c, a) VALUES ('q', 5), (NULL, DEFAULT) RETURNING a", vec!["5 7 q", "NULL 7 NULL"]),
        ("INSERT INTO t DEFAULT VALUES", vec!["NULL 7 NULL"]),
        ("INSERT INTO t SELECT * FROM u ON CONFLICT DO NOTHING", vec!["3 6 w"]),
        (
            "INSERT INTO t (a, c) VALUES (1, 'new'), (9, 'nine'), (NULL, NULL) \
             ON CONFLICT (a) DO UPDATE SET b = b + excluded.b + 0.0, c = excluded.c || t.c",
            vec!["100 2 1 17 newx", "NULL 1 9 7 nine", "NULL 1 NULL 7 NULL"],
        ),
        (
            "INSERT INTO t VALUES ('1', NULL, 'new'), ('2', 3, 'two') ON CONFLICT (a) DO UPDATE SET b = 1 \
             WHERE b > 10 AND EXISTS (SELECT 1 FROM u WHERE u.a = excluded.a)",
            vec!["200 2 2 1 y"],
        ),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET b = t.b + u.b, c = u.c \
             WHEN NOT MATCHED THEN INSERT (c, a) VALUES (upper(c), a) WHEN NOT MATCHED BY SOURCE THEN DELETE",
            vec!["100 3 1 10 x", "200 2 2 25 v", "NULL 1 3 7 W"],
        ),
        ("MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED BY SOURCE AND b < 15 THEN DELETE", vec!["100 3 1 10 x"]),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (u.a)",
            vec!["NULL 1 3 7 NULL"],
        ),
        (
            "MERGE INTO t USING (u CROSS JOIN (SELECT 1 AS one) AS v) ON t.a = u.a + one WHEN MATCHED THEN DELETE",
            vec![],
        ),
    ] {
        assert_eq!(rows(&context, sql, &Parameters::default()), expected, "{sql}");
    }
}

#[test]
fn parameters_have_the_types_of_their_columns() {
    let context = context();
    let parameters = Parameters::Positional(vec![Value::Integer(2), Value::Text("5".to_owned())]);
    for (sql, expected) in [
        ("UPDATE t SET b = b + $1, c = $2 WHERE a = $1", vec!["200 2 22 5"]),
        ("UPDATE t SET b = $2 WHERE a = $1", vec!["200 2 5 y"]),
        ("INSERT INTO t VALUES ($1, $2) RETURNING a", vec!["2 5 NULL"]),
        ("INSERT INTO t VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = excluded.b + $1", vec!["200 2 2 7 y"]),
        ("MERGE INTO t USING u ON t.a = u.a AND t.a = $1 WHEN MATCHED THEN UPDATE SET b = $2", vec!["200 2 2 5 y"]),
    ] {
        assert_eq!(rows(&context, sql, &parameters), expected, "{sql}");
    }
}
