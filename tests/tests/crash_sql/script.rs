//! Random steps of a run, determined by a seed.

use taut_testkit::Random;

/// Number of steps of a run.
const STEPS: usize = 22;
const LAYOUTS: &[&str] = &["row", "packed_row", "column", "groups"];

/// Statements that are acknowledged together: a single statement or a transaction.
#[derive(Debug)]
pub struct Step {
    pub statements: Vec<String>,
    /// SQLSTATE of the constraint violation that the step may fail with.
    pub refused: Option<&'static str>,
}

fn step(statements: &[&str]) -> Step {
    Step { statements: statements.iter().map(|text| (*text).to_owned()).collect(), refused: None }
}

fn design(random: &mut Random) -> String {
    let sort_by = random.pick(&["", ", sort_by = 'k'", ", sort_by = 'v, k'"]);
    match random.pick(LAYOUTS) {
        "groups" => format!("layout = 'groups', groups = '(k, v), (s)'{sort_by}"),
        layout => format!("layout = '{layout}'{sort_by}"),
    }
}

/// Values of random rows of `t`.
fn values(random: &mut Random) -> String {
    let count = random.pick(&[1, 1, 3, 40]);
    let first = random.below(500);
    let row = |i: usize| format!("({}, {}, 'text {}')", first + i, (first * 7 + i * 13) % 90, (first + i) % 5);
    (0..count).map(row).collect::<Vec<_>>().join(", ")
}

/// All steps of a run, in order. Tables have a key `k` and a value `v`. Table `u` references table `t`, and other
/// tables are created and dropped.
pub fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let (of_t, of_u) = (design(&mut random), design(&mut random));
    let mut others: Vec<String> = Vec::new();
    let mut steps = vec![
        step(&[&format!(
            "CREATE TABLE t (k bigint PRIMARY KEY, v bigint DEFAULT 7 CHECK (v >= 0), s varchar) WITH ({of_t})"
        )]),
        step(&[&format!(
            "CREATE TABLE u (k bigint PRIMARY KEY, v bigint REFERENCES t ON DELETE CASCADE, s varchar UNIQUE) WITH ({of_u})"
        )]),
    ];
    let mut next = 0;
    while steps.len() < STEPS {
        next += 1;
        let (divisor, rest) = (random.below(5) + 2, random.below(5));
        let values = values(&mut random);
        let upsert = format!(
            "INSERT INTO t VALUES {values} ON CONFLICT (k) DO UPDATE SET v = (t.v + excluded.v) % 90, s = excluded.s"
        );
        let update = format!("UPDATE t SET v = (v + {next}) % 90 WHERE k % {divisor} = {rest}");
        let delete = format!("DELETE FROM t WHERE k BETWEEN {0} AND {0} + 60", random.below(500));
        let references = format!(
            "INSERT INTO u SELECT k * 100 + {rest}, k, 'u ' || k * 100 + {rest} FROM t WHERE k % {divisor} = {rest} \
             AND k < 600 ON CONFLICT DO NOTHING"
        );
        let other = (!others.is_empty()).then(|| random.pick(&others));
        steps.push(match random.below(24) {
            0..3 => step(&[&upsert]),
            3..5 => step(&[&update]),
            5 => step(&[&delete]),
            6 | 7 => step(&[&references]),
            8 => {
                let end = random.pick(&["ROLLBACK TO a", "RELEASE a"]);
                step(&["BEGIN", &upsert, "SAVEPOINT a", &delete, &references, end, &update, "COMMIT"])
            }
            9 => {
                let name = format!("n{next}");
                let create = format!(
                    "CREATE TABLE {name} (k bigint PRIMARY KEY, v bigint, s varchar DEFAULT 'n') WITH ({})",
                    design(&mut random)
                );
                let fill = format!("INSERT INTO {name} (k, v) SELECT k, v FROM t WHERE k % {divisor} <> {rest}");
                let index = format!("CREATE INDEX by_{name} ON {name} USING csb (v)");
                let mut all = vec!["BEGIN".to_owned(), create, fill, index, update];
                if let Some(other) = other.filter(|_| random.below(2) == 0) {
                    others.retain(|name| *name != other);
                    all.push(format!("DROP TABLE {other}"));
                }
                others.push(name);
                all.push("COMMIT".to_owned());
                Step { statements: all, refused: None }
            }
            10 => step(&[&format!(
                "MERGE INTO t USING (VALUES {values}) AS s(k, v, s) ON t.k = s.k WHEN MATCHED AND s.v < 30 THEN DELETE \
                 WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v, s.s)"
            )]),
            11 => step(&[random.pick(&["TRUNCATE u", "DELETE FROM u WHERE v % 3 = 0"])]),
            12 => {
                step(&["BEGIN", "DROP INDEX IF EXISTS by_value", "CREATE INDEX by_value ON t USING csb (v)", "COMMIT"])
            }
            13 => step(&["DROP INDEX IF EXISTS by_value"]),
            14 | 15 => step(&[&format!("ALTER TABLE {} SET ({})", random.pick(&["t", "u"]), design(&mut random))]),
            16 => step(&[random.pick(&["VACUUM", "VACUUM FULL", "VACUUM FULL t"])]),
            17 => step(&[random.pick(&["VACUUM t", "ALTER TABLE t COMPACT", "ALTER TABLE u COMPACT"])]),
            18 => step(&["CHECKPOINT"]),
            // Too many rows to stay in the delta.
            19 => step(&[&format!(
                "INSERT INTO t SELECT i, i % 90, 'many ' || i % 9 FROM generate_series({0}, {0} + 4999) AS s(i)",
                1_000 + next * 10_000
            )]),
            20 => step(&["DELETE FROM t WHERE k >= 1000 AND k % 7 <> 0"]),
            21 => {
                let wrong = [
                    ("INSERT INTO t VALUES (700, -1, 'negative')", "23514"),
                    ("INSERT INTO u VALUES (-1, 999999999, 'nobody')", "23503"),
                    ("INSERT INTO t (k) VALUES (701), (701)", "23505"),
                ];
                let (statement, state) = random.pick(&wrong);
                let statements = ["BEGIN", &update, &references, statement, "COMMIT"].map(str::to_owned).to_vec();
                Step { statements, refused: Some(state) }
            }
            22 => {
                let default = format!("ALTER TABLE t ALTER COLUMN v SET DEFAULT {next}");
                step(&["BEGIN", &default, "INSERT INTO t (k) VALUES (800) ON CONFLICT DO NOTHING", "COMMIT"])
            }
            _ => match other {
                Some(other) => step(&[&format!("UPDATE {other} SET v = v + 1 WHERE k % {divisor} = {rest}")]),
                None => step(&[&format!("UPDATE u SET s = s || '.' WHERE k % {divisor} = {rest}")]),
            },
        });
    }
    steps
}
