//! Inserts, updates and deletions with a cached plan must do the same as with a new plan.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use datafusion::arrow::util::display::array_value_to_string;
use taut::{Database, Outcome, Parameters, Rows, Session, Value};
use taut_testkit::Random;

/// Statements, and the kinds of values for each parameter. The first kind is drawn most often.
const STATEMENTS: &[(&str, &[&[Kind]])] = &[
    ("UPDATE t SET v = v + ? WHERE k = ?", &[&[Kind::Small, Kind::Fraction, Kind::Null], &[Kind::Key]]),
    ("UPDATE t SET v = ?, s = ? WHERE k = ?", &[&[Kind::Small, Kind::Null], &[Kind::Text, Kind::Null], &[Kind::Key]]),
    ("UPDATE t SET i = ? WHERE k = ?", &[&[Kind::Small, Kind::Huge, Kind::Text], &[Kind::Key]]),
    ("UPDATE t SET i = i * ? / 3 WHERE k = ?", &[&[Kind::Small, Kind::Huge], &[Kind::Key]]),
    ("UPDATE t SET d = d + ? WHERE k = ?", &[&[Kind::Fraction, Kind::Small, Kind::Decimal], &[Kind::Key]]),
    ("UPDATE t SET r = r * ? + 0.1 WHERE k = ?", &[&[Kind::Fraction, Kind::Small], &[Kind::Key]]),
    (
        "UPDATE t SET v = coalesce(?, v), s = s || ? WHERE k = ?",
        &[&[Kind::Small, Kind::Null], &[Kind::Text], &[Kind::Key]],
    ),
    (
        "UPDATE t SET v = ? + ? WHERE k = ? AND v < ?",
        &[&[Kind::Small], &[Kind::Small, Kind::Fraction], &[Kind::Key], &[Kind::Small, Kind::Fraction]],
    ),
    ("UPDATE t SET s = ? WHERE k = ?", &[&[Kind::Decimal, Kind::Small, Kind::Text], &[Kind::Key]]),
    (
        "UPDATE t SET d = i / ? + ? / 7 WHERE k = ?",
        &[&[Kind::Decimal, Kind::Small], &[Kind::Decimal, Kind::Small], &[Kind::Key]],
    ),
    ("UPDATE t SET d = round(d, ?) WHERE k = ?", &[&[Kind::Small], &[Kind::Key]]),
    ("UPDATE t SET k = ? WHERE k = ?", &[&[Kind::Key], &[Kind::Key]]),
    (
        "UPDATE t SET s = CASE WHEN v > ? THEN ? ELSE s END WHERE k IN (?, ?)",
        &[&[Kind::Small], &[Kind::Text], &[Kind::Key], &[Kind::Key]],
    ),
    ("UPDATE t AS x SET v = x.v - i WHERE x.k BETWEEN ? AND ?", &[&[Kind::Key], &[Kind::Key]]),
    ("UPDATE t SET v = DEFAULT WHERE i = ?", &[&[Kind::Small]]),
    ("UPDATE t SET v = -v WHERE k = ? LIMIT 1", &[&[Kind::Key]]),
    ("UPDATE t SET v = 1 WHERE s = ? AND k > ?", &[&[Kind::Text], &[Kind::Key]]),
    (
        "INSERT INTO t (k, v, s) VALUES (?, ?, ?) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v, s = excluded.s || s",
        &[&[Kind::Key, Kind::Null], &[Kind::Small, Kind::Fraction, Kind::Null], &[Kind::Text, Kind::Null]],
    ),
    (
        "INSERT INTO t VALUES (?, ?, 3, ?, 1, 'x') ON CONFLICT (k) DO UPDATE SET i = i + ?, d = excluded.d / 3, r = excluded.v",
        &[&[Kind::Key], &[Kind::Small, Kind::Null], &[Kind::Decimal, Kind::Small], &[Kind::Small, Kind::Fraction]],
    ),
    (
        "INSERT INTO t (i, k) VALUES (?, ?) ON CONFLICT DO NOTHING",
        &[&[Kind::Small, Kind::Huge, Kind::Null], &[Kind::Key]],
    ),
    ("INSERT INTO t (k) VALUES (?) ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = DEFAULT", &[&[Kind::Key]]),
    ("DELETE FROM t WHERE k = ?", &[&[Kind::Key]]),
    ("DELETE FROM t WHERE k = ? AND v >= ?", &[&[Kind::Key, Kind::Fraction], &[Kind::Small, Kind::Null]]),
    ("DELETE FROM t WHERE i IN (?, ?) AND d < ?", &[&[Kind::Small], &[Kind::Small], &[Kind::Decimal]]),
    (
        "INSERT INTO t (k, v, s) VALUES (?, ?, ?) RETURNING k, v, d",
        &[&[Kind::Key], &[Kind::Small], &[Kind::Text, Kind::Null]],
    ),
    (
        "INSERT INTO t (k, s) VALUES (?, ?), (?, 'x') RETURNING *",
        &[&[Kind::Key], &[Kind::Text, Kind::Null], &[Kind::Key]],
    ),
    (
        "UPDATE t SET v = v + 1 WHERE k = ? RETURNING coalesce(s, ?), r > 0.5, r + 0.1, d > ?, v > ?",
        &[&[Kind::Key], &[Kind::Text], &[Kind::Decimal, Kind::Small], &[Kind::Small, Kind::Fraction]],
    ),
    ("DELETE FROM t WHERE k = ? RETURNING v > ?, nullif(s, 'two')", &[&[Kind::Key], &[Kind::Small, Kind::Fraction]]),
    (
        "UPDATE t SET v = v + ? WHERE k = ? RETURNING v, v * ? AS product, s || ?",
        &[
            &[Kind::Small, Kind::Fraction],
            &[Kind::Key],
            &[Kind::Small, Kind::Fraction, Kind::Null],
            &[Kind::Text, Kind::Null],
        ],
    ),
    (
        "UPDATE t AS x SET s = ? WHERE x.k IN (?, ?) RETURNING x.*, x.v + 1",
        &[&[Kind::Text], &[Kind::Key], &[Kind::Key]],
    ),
    ("UPDATE t SET v = 1 WHERE k = ? RETURNING count(*), sum(v)", &[&[Kind::Key]]),
    ("DELETE FROM t WHERE k = ? RETURNING d, r, k + ?", &[&[Kind::Key], &[Kind::Small, Kind::Fraction]]),
    (
        "INSERT INTO t (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v RETURNING t.k, v + ?",
        &[&[Kind::Key], &[Kind::Small], &[Kind::Small, Kind::Fraction]],
    ),
    ("INSERT INTO t (k) VALUES (?) ON CONFLICT DO NOTHING RETURNING k", &[&[Kind::Key]]),
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Key,
    Small,
    Huge,
    Fraction,
    Decimal,
    Text,
    Null,
}

impl Kind {
    fn value(self, random: &mut Random) -> Value {
        match self {
            Self::Key => Value::Integer(random.range(0..300)),
            Self::Small => Value::Integer(random.range(0..40) - 20),
            Self::Huge => Value::Integer((1 << 30) + random.range(0..1 << 40)),
            Self::Fraction => Value::Double((random.range(0..160) - 80) as f64 / 8.0),
            Self::Decimal => {
                Value::Decimal { unscaled: i128::from(100 + random.range(0..899)), precision: 3, scale: 2 }
            }
            Self::Text => Value::Text((random.pick(&["one", "two", "'", ""])).to_owned()),
            Self::Null => Value::Null,
        }
    }
}

fn rows(session: &Session) -> Vec<String> {
    texts(session.query("SELECT * FROM t ORDER BY k, v, s, i").unwrap())
}

fn texts(batches: Rows) -> Vec<String> {
    let text = |batch: &datafusion::arrow::record_batch::RecordBatch, row| {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join(" ")
    };
    batches
        .map(|batch| batch.unwrap())
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| text(&batch, row)).collect::<Vec<_>>())
        .collect()
}

/// Number of changed rows and sorted result of a statement, or its error.
fn outcome(outcome: Result<Outcome, taut::Error>) -> Result<(Option<u64>, Vec<String>), String> {
    match outcome {
        Ok(Outcome::Done(done)) => Ok((done.rows, Vec::new())),
        Ok(Outcome::Rows(rows)) => {
            let schema = rows.schema();
            let columns = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
            let mut all: Vec<String> = columns.collect();
            all.extend(texts(rows));
            all.sort_unstable();
            Ok((None, all))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Runs 600 random statements in two databases, one of them with cached plans. Asserts after each statement that both
/// have the same results and rows. Returns the number of statements that succeeded with a cached plan.
fn agree(layout: &str, seed: u64) -> usize {
    let mut random = Random(seed);
    let databases = [Database::in_memory().unwrap(), Database::in_memory().unwrap()];
    let sessions = databases.each_ref().map(Database::session);
    for session in &sessions {
        let create = format!(
            "CREATE TABLE t (k INTEGER PRIMARY KEY, v BIGINT DEFAULT 7, i INTEGER CHECK (i < 1000000000), \
             d DECIMAL(12, 3), r REAL, s VARCHAR) WITH (layout = '{layout}', sort_by = 'k')"
        );
        session.execute(&create).unwrap();
        session
            .execute(
                "INSERT INTO t SELECT i AS k, i % 7 AS v, i % 11 AS i, i * 0.5 AS d, i / 3.0 AS r, 'two' AS s \
                 FROM generate_series(0, 250) AS g(i)",
            )
            .unwrap();
        session.execute("VACUUM").unwrap();
    }
    let [cached, planned] = &sessions;
    let mut found = 0;
    for step in 0..600 {
        let (sql, kinds) = random.pick(STATEMENTS);
        let values = kinds.iter().map(|kinds| {
            let is_usual = kinds.len() == 1 || random.range(0..5) > 0;
            let kind = if is_usual { kinds[0] } else { random.pick(&kinds[1..]) };
            kind.value(&mut random)
        });
        let parameters = Parameters::Positional(values.collect());
        let statement = &cached.parse(sql).unwrap()[0];
        let of_cached = outcome(cached.run_with(statement, &parameters));
        // Different SQL text, so that no cached plan is used.
        let other = format!("{sql} -- {step}");
        let of_planned = outcome(planned.run_with(&planned.parse(&other).unwrap()[0], &parameters));
        match (&of_cached, &of_planned) {
            (Err(_), Err(_)) => {}
            // A value is out of range, so planning fails. With a cached plan, the statement fails only if a row
            // receives the value.
            (Ok((Some(0), _)), Err(_)) => {}
            _ => assert_eq!(of_cached, of_planned, "{layout}, seed {seed}, step {step}: {sql}, {parameters:?}"),
        }
        found += usize::from(cached.has_cached_plan(statement) && of_cached.is_ok());
        assert_eq!(rows(cached), rows(planned), "{layout}, seed {seed}, step {step}: {sql}, {parameters:?}");
    }
    found
}

#[test]
fn cached_changes_do_what_planned_ones_do() {
    for (seed, layout) in ["row", "packed_row", "column"].into_iter().enumerate() {
        let found = agree(layout, seed as u64);
        assert!(found > 300, "only {found} of 600 statements succeeded with a cached plan");
    }
}

#[test]
fn plans_of_changes_by_key_are_cached() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session
        .execute("CREATE TABLE t (k BIGINT PRIMARY KEY, i INTEGER, n SMALLINT, d DECIMAL(12, 3), s VARCHAR)")
        .unwrap();
    let (number, text) = (Value::Integer(5), Value::Text("five".to_owned()));
    for (sql, values) in [
        (
            "INSERT INTO t VALUES (?, ?, 1, ?, ?) ON CONFLICT (k) DO UPDATE SET i = excluded.i, s = excluded.s",
            vec![&number, &number, &number, &text],
        ),
        ("UPDATE t SET i = ? WHERE k = ?", vec![&number, &number]),
        ("UPDATE t SET n = ?, d = ?, s = ? WHERE k = ?", vec![&number, &number, &text, &number]),
        ("UPDATE t SET i = i + ? WHERE k = ? RETURNING i", vec![&number, &number]),
        ("INSERT INTO t (k) VALUES (?) ON CONFLICT DO NOTHING", vec![&number]),
        ("DELETE FROM t WHERE k = ?", vec![&number]),
    ] {
        let statement = &session.parse(sql).unwrap()[0];
        let parameters = Parameters::Positional(values.into_iter().cloned().collect());
        for _ in 0..2 {
            session.run_with(statement, &parameters).unwrap();
        }
        assert!(session.has_cached_plan(statement), "{sql}");
    }
}
