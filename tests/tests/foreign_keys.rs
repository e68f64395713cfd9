//! Foreign keys change no query result, even if the planner removes joins because of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use datafusion::arrow::util::display::array_value_to_string;
use taut::{Database, Session};
use taut_testkit::Random;

/// Tables: name, columns, and foreign keys. One of the two databases has no foreign keys.
const TABLES: &[(&str, &str, &[&str])] = &[
    ("region", "id int PRIMARY KEY, label text", &[]),
    ("customer", "id int PRIMARY KEY, region int, name text", &["(region) REFERENCES region (id)"]),
    ("orders", "id int PRIMARY KEY, customer int NOT NULL, day int", &["(customer) REFERENCES customer (id)"]),
    (
        "line",
        "orders int, number int, price double, PRIMARY KEY (orders, number)",
        &["(orders) REFERENCES orders (id)"],
    ),
    (
        "shipment",
        "id int PRIMARY KEY, orders int, number int, line_order int, line_number int, city text",
        &["(number, orders) REFERENCES line (number, orders)", "(orders) REFERENCES orders (id)"],
    ),
    (
        "employee",
        "id int PRIMARY KEY, manager int, region int",
        &["(manager) REFERENCES employee (id)", "(region) REFERENCES region (id)"],
    ),
];

/// Joins that a query may contain: an alias that the query must already have, the joined table with its alias, and the
/// condition.
const JOINS: &[(&str, &str, &str)] = &[
    ("c", "region r", "c.region = r.id"),
    ("o", "customer c", "o.customer = c.id"),
    ("l", "orders o", "o.id = l.orders"),
    ("s", "line l", "s.orders = l.orders AND l.number = s.number"),
    ("s", "orders o", "s.orders = o.id"),
    // Conditions on columns outside of the foreign key, or on only some of its columns.
    ("s", "line l", "s.line_order = l.orders AND s.line_number = l.number"),
    ("s", "line l", "s.orders = l.orders"),
    ("l", "orders o", "o.id = l.number"),
    ("e", "employee m", "e.manager = m.id"),
    ("m", "region r", "m.region = r.id"),
    ("e", "region r", "r.id = e.region"),
    ("m", "employee n", "m.manager = n.manager"),
];

const STARTS: &[&str] = &["customer c", "orders o", "line l", "shipment s", "employee e"];

/// Columns that a query may read, by alias.
const COLUMNS: &[(&str, &[&str])] = &[
    ("r", &["id", "label"]),
    ("c", &["id", "region", "name"]),
    ("o", &["id", "customer", "day"]),
    ("l", &["orders", "number", "price"]),
    ("s", &["id", "orders", "number", "city"]),
    ("e", &["id", "manager", "region"]),
    ("m", &["id", "manager", "region"]),
    ("n", &["id", "manager"]),
];

fn fill(session: &Session, layout: &str, with_keys: bool) {
    for (name, columns, keys) in TABLES {
        let keys: Vec<_> = keys.iter().filter(|_| with_keys).map(|key| format!(", FOREIGN KEY {key}")).collect();
        session
            .execute(&format!("CREATE TABLE {name} ({columns}{}) WITH (layout = '{layout}')", keys.concat()))
            .unwrap();
    }
    for rows in [
        "region SELECT i, 'region ' || i FROM generate_series(1, 5) AS s(i)",
        "customer SELECT i, CASE WHEN i % 4 > 0 THEN i % 5 + 1 END, 'name ' || i % 9 FROM generate_series(1, 40) AS s(i)",
        "orders SELECT i, i % 30 + 1, i % 7 FROM generate_series(1, 120) AS s(i)",
        "line SELECT i % 100 + 1, i / 100, i / 8.0 FROM generate_series(0, 299) AS s(i)",
        "shipment SELECT i, CASE WHEN i % 5 > 0 THEN i % 90 + 1 END, CASE WHEN i % 3 > 0 THEN i % 3 END, \
         CASE WHEN i % 7 > 0 THEN i % 99 END, i % 4, 'city ' || i % 6 FROM generate_series(1, 200) AS s(i)",
        "employee SELECT i, CASE WHEN i > 3 THEN i / 3 END, CASE WHEN i % 6 > 0 THEN i % 5 + 1 END \
         FROM generate_series(1, 60) AS s(i)",
    ] {
        session.execute(&format!("INSERT INTO {rows}")).unwrap();
    }
}

/// Rows of a query as sorted text.
fn rows(session: &Session, sql: &str) -> Vec<String> {
    let batches = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut rows = Vec::new();
    for batch in batches {
        let batch = batch.unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.extend((0..batch.num_rows()).map(|row| {
            let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            values.collect::<Vec<_>>().join(" | ")
        }));
    }
    rows.sort();
    rows
}

fn scans(session: &Session, sql: &str) -> usize {
    let plan = rows(session, &format!("EXPLAIN {sql}")).concat();
    plan.matches("DataSourceExec: table").count()
}

fn query(random: &mut Random) -> String {
    let start = random.pick(STARTS);
    let mut aliases = vec![start.rsplit(' ').next().unwrap()];
    let mut from = start.to_owned();
    let mut conditions = Vec::new();
    for _ in 0..random.below(4) {
        let (known, table, condition) = random.pick(JOINS);
        let alias = table.rsplit(' ').next().unwrap();
        if !aliases.contains(&known) || aliases.contains(&alias) {
            continue;
        }
        match random.below(6) {
            0 => from += &format!(" LEFT JOIN {table} ON {condition}"),
            1 if aliases.len() == 1 => from = format!("{table} RIGHT JOIN {from} ON {condition}"),
            2 => {
                // Inside EXISTS, the alias is not visible to other joins.
                conditions.push(format!("EXISTS (SELECT 1 FROM {table} WHERE {condition})"));
                continue;
            }
            _ => from += &format!(" JOIN {table} ON {condition}"),
        }
        aliases.push(alias);
    }
    let column = |random: &mut Random| {
        // Prefers the first alias, so that some joined tables are not read.
        let alias = if random.below(2) == 0 { aliases[0] } else { random.pick(&aliases) };
        let (_, columns) = COLUMNS.iter().find(|(known, _)| *known == alias).unwrap();
        let column = if random.below(3) == 0 { columns.last().unwrap() } else { columns.first().unwrap() };
        format!("{alias}.{column}")
    };
    let columns: Vec<_> = (0..=random.below(2)).map(|place| format!("{} AS a{place}", column(random))).collect();
    for _ in 0..random.below(2) {
        let column = column(random);
        if !["name", "label", "city"].iter().any(|text| column.ends_with(text)) {
            let test = random.pick(&["= 3", "< 4", "> 2", "IS NOT NULL", "IS NULL", "IN (1, 2, 5)"]);
            conditions.push(format!("{column} {test}"));
        }
    }
    let condition = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let rows = format!("SELECT {} FROM {from}{condition}", columns.join(", "));
    match random.below(3) {
        0 => format!("SELECT a0, count(*) FROM ({rows}) GROUP BY a0"),
        1 => format!("SELECT count(*), count(a0) FROM ({rows})"),
        _ => rows,
    }
}

/// Compares random queries with and without foreign keys. Returns the number of queries that read fewer tables with
/// foreign keys.
fn agree(layout: &str, seed: u64, queries: usize) -> usize {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let databases = directories.each_ref().map(|directory| Database::open(directory.path()).unwrap());
    let [with, without] = databases.each_ref().map(Database::session);
    fill(&with, layout, true);
    fill(&without, layout, false);
    let mut random = Random(seed);
    let mut fewer = 0;
    for place in 0..queries {
        let sql = query(&mut random);
        assert_eq!(rows(&with, &sql), rows(&without, &sql), "{layout}, seed {seed}, query {place}: {sql}");
        fewer += usize::from(scans(&with, &sql) < scans(&without, &sql));
    }
    fewer
}

#[test]
fn foreign_keys_change_no_answer_in_column_layout() {
    assert!(agree("column", 1, 300) > 30);
}

#[test]
fn foreign_keys_change_no_answer_in_row_layout() {
    assert!(agree("row", 2, 150) > 15);
}

/// Constraints are checked against the newest rows, but queries read a snapshot. So a transaction that wrote rows may
/// see rows that violate a foreign key in its snapshot, and its joins must not be eliminated.
#[test]
fn joins_stay_in_a_snapshot_with_own_changes() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let [own, other] = [database.session(), database.session()];
    fill(&own, "column", true);
    let count = |condition: &str| {
        let sql = format!("SELECT count(*) FROM orders o JOIN customer c ON o.customer = c.id WHERE {condition}");
        rows(&own, &sql).concat()
    };
    let counts = || (0..3).map(|_| count("true")).collect::<Vec<_>>();
    assert_eq!(counts(), ["120", "120", "120"]);
    own.execute("BEGIN").unwrap();
    assert_eq!(counts(), ["120", "120", "120"]);
    other.execute("INSERT INTO customer VALUES (1000, 1, 'new')").unwrap();
    other.execute("INSERT INTO customer VALUES (1001, 1, 'newer')").unwrap();
    own.execute("INSERT INTO orders VALUES (2000, 1000, 1), (2001, 1001, 1), (2002, 5, 1)").unwrap();
    // The snapshot does not contain the new customers.
    assert_eq!(counts(), ["121", "121", "121"]);
    assert_eq!(count("o.id >= 2000"), "1");
    let updated = "UPDATE orders SET day = 9 FROM customer c WHERE customer = c.id AND orders.id >= 2000";
    own.execute(updated).unwrap();
    assert_eq!(rows(&own, "SELECT count(*) FROM orders WHERE day = 9"), ["1"]);
    own.execute("COMMIT").unwrap();
    assert_eq!(counts(), ["123", "123", "123"]);
}

#[test]
fn dropping_a_foreign_key_invalidates_plans_without_its_join() {
    let directory = tempfile::tempdir().unwrap();
    let session = Database::open(directory.path()).unwrap().session();
    fill(&session, "column", true);
    let sql = "SELECT count(*) FROM orders o JOIN customer c ON o.customer = c.id";
    let count = || rows(&session, sql);
    for _ in 0..3 {
        assert_eq!((count(), scans(&session, sql)), (vec!["120".to_owned()], 0));
    }
    session.execute("ALTER TABLE orders DROP CONSTRAINT orders_customer_fkey").unwrap();
    session.execute("INSERT INTO orders VALUES (1000, 1000, 0)").unwrap();
    for _ in 0..3 {
        assert_eq!((count(), scans(&session, sql)), (vec!["120".to_owned()], 2));
    }
}
