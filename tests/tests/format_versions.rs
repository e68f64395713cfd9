//! Databases written in each format version (`tests/databases`) give the same answers as before, also after changes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use datafusion::arrow::util::display::array_value_to_string;
use taut::{Database, Session, Settings};
use taut_store::{OpenOptions, Store, verify};
use tempfile::TempDir;

/// First version with a log: its databases also have rows outside of blocks, and deleted rows.
const LOG: u64 = 7;
/// First version with constraints.
const CONSTRAINTS: u64 = 8;
/// First version with columns that were added, dropped and renamed.
const ALTERED: u64 = 12;
/// First version with generated columns and comments.
const GENERATED: u64 = 14;
/// First version with schemas.
const SCHEMAS: u64 = 17;
/// First version with indexes on expressions and partial indexes.
const INDEX_COLUMNS: u64 = 17;
/// First version with functions, and with comments on schemas.
const FUNCTIONS: u64 = 18;

/// Tables with all columns and the same rows, and the first version that has the table.
const TABLES: [(u64, &str); 5] = [(2, "slotted"), (2, "packed"), (2, "columns"), (2, "grouped"), (4, "ranged")];

/// Answers for each of [`TABLES`]: the query, and its result without and with a log.
const OF_EACH_TABLE: [(&str, &str, &str); 5] = [
    (
        "SELECT concat_ws(' ', count(*), sum(id), count(n), min(n), max(n), sum(n), count(small), sum(small)) FROM {table}",
        "200 20100 172 3 987 86102 160 640",
        "207 23134 177 3 987 87708 163 688",
    ),
    (
        "SELECT concat_ws(' ', count(price), min(price), max(price), sum(price), sum(wide), sum(x), sum(r)) FROM {table}",
        "185 -99.63 -26.00 -11640.20 1333300000000000000000008.3125 -14236.25 9636",
        "191 -99.63 -18.60 -11194.58 1567500000000000000000008.6875 -14130 11049.5",
    ),
    (
        "SELECT concat_ws(' ', count(name), min(name), max(name), min(day), max(day), count(raw), min(raw), max(raw)) \
         FROM {table}",
        "182 name 0 name 9 2020-01-02 2020-07-19 195 raw 1 raw 99",
        "187 name 0 name 9 2020-01-02 2020-08-08 202 raw 1 raw 99",
    ),
    (
        "SELECT concat_ws(' ', count(flag), sum(CASE WHEN flag THEN 1 ELSE 0 END), count(moment), min(moment), \
         max(moment), count(instant), min(instant), max(instant)) FROM {table}",
        "194 64 194 2020-01-01 00:01:00 2020-01-01 03:20:00 196 2020-01-01 01:00:00+00 2020-01-09 08:00:00+00",
        "200 68 200 2020-01-01 00:01:00 2020-01-01 03:40:00 203 2020-01-01 01:00:00+00 2020-01-10 04:00:00+00",
    ),
    // All values of all rows. The view `made` computes the same rows.
    ("SELECT concat_ws(' ', count(*)) FROM (SELECT * FROM {table} EXCEPT SELECT * FROM made) AS x", "0", "0"),
];

/// Other answers: the first version that has the table, the query, and its result without and with a log.
const OTHERS: [(u64, &str, &str, &str); 34] = [
    // Through the csb index of table `columns`: in a block without the index, in a block with it, and in the log.
    (2, "SELECT concat_ws(' ', count(*), sum(id)) FROM columns WHERE price = -99.26", "1 2", "1 2"),
    (2, "SELECT concat_ws(' ', count(*), sum(id)) FROM columns WHERE price = -44.50", "1 150", "1 150"),
    (2, "SELECT concat_ws(' ', count(*), sum(id)) FROM columns WHERE price > -20", "0", "4 874"),
    // Through the Bloom filter of table `columns`.
    (2, "SELECT concat_ws(' ', count(*), sum(id)) FROM columns WHERE name = 'name 7'", "4 328", "5 535"),
    (2, "SELECT concat_ws(' ', count(*)) FROM columns WHERE name = 'name 51'", "0", "0"),
    // By the sort column.
    (2, "SELECT concat_ws(' ', count(*), sum(id)) FROM columns WHERE n = 919", "1 1", "1 1"),
    // Through the csb index of two columns.
    (
        2,
        "SELECT concat_ws(' ', count(*), sum(id)) FROM packed WHERE small = 3 AND day = DATE '2020-01-14'",
        "1 13",
        "1 13",
    ),
    (
        2,
        "SELECT concat_ws(' ', count(*), sum(id)) FROM packed WHERE small = 3 AND day = DATE '2020-05-23'",
        "1 143",
        "1 143",
    ),
    (2, "SELECT concat_ws(' ', sum(rows), sum(price)) FROM totals", "200 -11640.20", "207 -11194.58"),
    (2, "SELECT concat_ws(' ', rows, price) FROM totals WHERE small = 3", "20 -1132.52", "22 -1178.60"),
    (2, "SELECT concat_ws(' ', count(*), count(day)) FROM empty", "0 0", "0 0"),
    (4, "SELECT concat_ws(' ', count(*), sum(id)) FROM ranged WHERE id BETWEEN 95 AND 125", "31 3410", "30 3310"),
    (4, "SELECT concat_ws(' ', count(*), sum(id)) FROM hashed WHERE name = 'name 7'", "4 328", "5 535"),
    (4, "SELECT concat_ws(' ', count(*), sum(id)) FROM hashed WHERE name IS NULL", "18 1881", "20 2310"),
    (4, "SELECT concat_ws(' ', count(*)) FROM (SELECT * FROM hashed EXCEPT SELECT id, name FROM made) AS x", "0", "0"),
    (LOG, "SELECT concat_ws(' ', count(*), sum(id), max(name)) FROM late", "", "10 55 name 9"),
    (CONSTRAINTS, "SELECT concat_ws(' ', count(*), sum(balance), max(email)) FROM accounts", "", "51 12750.00 mail 9"),
    (CONSTRAINTS, "SELECT concat_ws(' ', account, note) FROM orders WHERE id = 81", "", "51 none"),
    (
        CONSTRAINTS,
        "SELECT concat_ws(' ', count(*), sum(a.balance)) FROM orders AS o JOIN accounts AS a ON o.account = a.id",
        "",
        "81 17700.00",
    ),
    (
        ALTERED,
        "SELECT concat_ws(' ', count(*), sum(id), sum(number), count(price), sum(price), count(name), max(name), count(late)) \
         FROM altered",
        "",
        "207 23134 87708 200 -3195.83 15 name 8 207",
    ),
    // Each row has another source: two blocks with different column maps, the delta file and the log.
    (
        ALTERED,
        "SELECT concat_ws(' ', id, number, day, price, name, late) FROM altered WHERE id IN (5, 125, 207, 217) ORDER BY id",
        "",
        "5 595 2020-01-06 1.50 true\n125 875 2020-05-05 -53.75 true\n207 233 2020-07-26 -23.41 name 7 true\n\
         217 2020-08-05 -19.71 name 17 false",
    ),
    (
        ALTERED,
        "SELECT concat_ws(' ', n.count, s.sequence_name, s.next_value, s.column_name)
         FROM taut.sequences AS s, (SELECT count(DISTINCT id) AS count FROM numbered) AS n
         WHERE s.sequence_name <> 'shop.articles_id_seq' ORDER BY s.sequence_name",
        "",
        "5 numbered_id_seq 6 id\n5 tens 30",
    ),
    (ALTERED, "SELECT concat_ws(' ', count(*)) FROM altered WHERE price = 1.5 AND late AND name IS NULL", "", "110"),
    (
        ALTERED,
        "SELECT concat_ws(' ', count(*)) FROM \
         (SELECT * FROM five EXCEPT SELECT id, number, day, price, name FROM altered) AS x",
        "",
        "0",
    ),
    (
        GENERATED,
        "SELECT concat_ws(' ', id, name, twice, lower_name) FROM computed ORDER BY id",
        "",
        "1 One 2 one\n2 Two 4 two\n3 Three 6 three\n4 Four 8 four",
    ),
    (
        GENERATED,
        "SELECT concat_ws(' ', object_type, object_name, column_name, comment) AS c FROM taut.comments \
         WHERE object_type NOT IN ('schema', 'function') ORDER BY c",
        "",
        "column computed lower_name in lower case\nsequence tens every tenth\ntable computed it's computed",
    ),
    (SCHEMAS, "SELECT concat_ws(' ', count(*), sum(id), max(name)) FROM shop.articles", "", "3 6 pen"),
    (SCHEMAS, "SELECT string_agg(name, ' ' ORDER BY name) FROM shop.names", "", "ink paper pen"),
    (
        SCHEMAS,
        "SELECT string_agg(schema_name, ' ' ORDER BY schema_name) FROM information_schema.schemata",
        "",
        "empty_schema information_schema pg_catalog public shop taut",
    ),
    (
        INDEX_COLUMNS,
        "SELECT concat_ws(' ', i.name, i.id) FROM indexed AS i \
         WHERE lower(name) = 'four' AND state IS NULL OR id * 2 = 6 ORDER BY id",
        "",
        "TWO 3\nFour 4",
    ),
    (
        INDEX_COLUMNS,
        "SELECT concat_ws(' ', index_name, columns, predicate, is_unique) FROM taut.indexes WHERE table_name = 'indexed' \
         ORDER BY index_name",
        "",
        "indexed_name lower(name) state IS NULL true\nindexed_sum (id * 2), state false",
    ),
    (
        FUNCTIONS,
        "SELECT concat_ws(' ', shop.label(7), shop.label(7, '#'), changed(), articles_before('j'), max(label)) FROM labels",
        "",
        "no. 7 #7 2 1 no. 5",
    ),
    (
        FUNCTIONS,
        "SELECT string_agg(concat_ws('.', schema_name, function_name), ' ' ORDER BY function_name) FROM taut.functions",
        "",
        "public.articles_before public.changed shop.label",
    ),
    (
        FUNCTIONS,
        "SELECT concat_ws(' ', object_type, object_name, comment) AS c FROM taut.comments \
         WHERE object_type IN ('schema', 'function') ORDER BY c",
        "",
        "function changed returns two\nschema shop what is sold",
    ),
];

/// Statements that violate a constraint, and their SQLSTATE.
const VIOLATIONS: [(&str, &str); 6] = [
    ("INSERT INTO accounts VALUES (1, 'new', 0)", "23505"),
    ("INSERT INTO accounts VALUES (101, 'mail 2', 0)", "23505"),
    ("INSERT INTO accounts VALUES (NULL, 'new', 0)", "23502"),
    ("UPDATE accounts SET balance = -1 WHERE id = 3", "23514"),
    ("INSERT INTO orders VALUES (101, 99, 'new')", "23503"),
    ("INSERT INTO slotted (id) VALUES (NULL)", "23502"),
];

fn databases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("databases")
}

/// Versions that have a database, ascending.
fn versions() -> Vec<u64> {
    let names = fs::read_dir(databases()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut versions: Vec<u64> = names.filter_map(|name| name.strip_prefix('v')?.parse().ok()).collect();
    versions.sort_unstable();
    versions
}

/// Content of each file by path.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

/// Copies the database of a version to a new directory.
fn copy_of(version: u64) -> (TempDir, PathBuf) {
    let root = TempDir::with_prefix("taut-format-").unwrap();
    let (from, to) = (databases().join(format!("v{version}")), root.path().join("copy"));
    for (path, content) in files(&from) {
        let path = to.join(path.strip_prefix(&from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    (root, to)
}

/// Opens a database, calls `work` with a session, and closes the database.
fn with_session(path: &Path, read_only: bool, work: impl FnOnce(&Session)) {
    let settings = Settings { threads: 2, create: false, read_only, ..Settings::default() };
    let database = Database::open_with(path, &settings).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let session = database.session();
    work(&session);
    drop(session);
    database.close();
}

fn run(session: &Session, sql: &str) {
    session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Values of the first column, one per line.
fn answer(session: &Session, sql: &str) -> String {
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches: Vec<_> = rows.map(|batch| batch.unwrap_or_else(|error| panic!("{sql}: {error}"))).collect();
    let values = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| array_value_to_string(batch.column(0), row).unwrap()));
    values.collect::<Vec<_>>().join("\n")
}

/// The tables of [`TABLES`] that a version has.
fn tables(version: u64) -> impl Iterator<Item = &'static str> {
    TABLES.iter().filter(move |(since, _)| version >= *since).map(|(_, table)| *table)
}

/// Asserts that a database has the rows that it was written with.
fn check(session: &Session, version: u64, context: &str) {
    let expected = |without: &'static str, with: &'static str| if version < LOG { without } else { with };
    for table in tables(version) {
        for (sql, without, with) in OF_EACH_TABLE {
            let sql = sql.replace("{table}", table);
            assert_eq!(answer(session, &sql), expected(without, with), "{context}: {sql}");
        }
    }
    for (_, sql, without, with) in OTHERS.iter().filter(|(since, ..)| version >= *since) {
        assert_eq!(answer(session, sql), expected(without, with), "{context}: {sql}");
    }
}

fn check_constraints(session: &Session, context: &str) {
    for (sql, sqlstate) in VIOLATIONS {
        let error = session.execute(sql).err().unwrap_or_else(|| panic!("{context}: {sql} succeeds"));
        assert_eq!(error.sqlstate(), sqlstate, "{context}: {sql}: {error}");
    }
    run(
        session,
        "BEGIN; INSERT INTO accounts (id, email) VALUES (101, 'mail 101'); DELETE FROM accounts WHERE id = 51",
    );
    let sql = "SELECT concat_ws(' ', count(*), (SELECT balance FROM accounts WHERE id = 101)) FROM orders";
    assert_eq!(answer(session, sql), "80 0.00", "{context}: the default, and the rows of a foreign key");
    run(session, "ROLLBACK");
}

/// Asserts that `taut verify` would find no damage.
fn check_files(path: &Path, context: &str) {
    let store = Store::open(path, OpenOptions { inspect: true, ..OpenOptions::default() }).unwrap();
    let damages: Vec<String> = verify(&store).iter().map(ToString::to_string).collect();
    assert!(damages.is_empty(), "{context}: {damages:?}");
}

#[test]
fn a_reader_gives_the_answers_and_changes_nothing() {
    for version in versions() {
        let (_root, path) = copy_of(version);
        let before = files(&path);
        with_session(&path, true, |session| check(session, version, &format!("version {version}, read-only")));
        assert!(files(&path) == before, "version {version}: a reader changed a file");
    }
}

#[test]
fn a_writer_gives_the_answers_also_after_changes() {
    for version in versions() {
        let (_root, path) = copy_of(version);
        check_files(&path, &format!("version {version}, as it was written"));
        with_session(&path, false, |session| {
            run(session, "SET mover = off");
            check(session, version, &format!("version {version}, opened"));
            for table in tables(version) {
                run(session, &format!("INSERT INTO {table} SELECT * FROM made WHERE id BETWEEN 301 AND 310"));
                run(session, &format!("DELETE FROM {table} WHERE id IN (1, 150)"));
                run(session, &format!("UPDATE {table} SET n = n + 1000 WHERE id IN (2, 151)"));
            }
        });
        with_session(&path, false, |session| {
            run(session, "SET mover = off");
            let expected = if version < LOG { "208 23004 88102" } else { "215 26038 89708" };
            let sql = "SELECT concat_ws(' ', count(*), sum(id), sum(CASE WHEN id <= 300 THEN n END) \
                       + (SELECT sum(n) FROM made WHERE id IN (1, 150))) FROM";
            for table in tables(version) {
                assert_eq!(answer(session, &format!("{sql} {table}")), expected, "version {version}: {table}, changed");
                run(session, &format!("DELETE FROM {table} WHERE id > 300"));
                run(session, &format!("INSERT INTO {table} SELECT * FROM made WHERE id IN (1, 150)"));
                run(session, &format!("UPDATE {table} SET n = n - 1000 WHERE id IN (2, 151)"));
            }
            check(session, version, &format!("version {version}, changed back"));
            run(session, "CHECKPOINT");
            check(session, version, &format!("version {version}, after a checkpoint"));
        });
        check_files(&path, &format!("version {version}, after a checkpoint"));
        with_session(&path, false, |session| {
            check(session, version, &format!("version {version}, opened again"));
            run(session, "VACUUM FULL");
            check(session, version, &format!("version {version}, after VACUUM FULL"));
            if version >= CONSTRAINTS {
                check_constraints(session, &format!("version {version}"));
            }
        });
        check_files(&path, &format!("version {version}, after VACUUM FULL"));
        with_session(&path, true, |session| {
            check(session, version, &format!("version {version}, after VACUUM FULL and closing"));
            let rest = "SELECT concat_ws(' ', count(*)) FROM taut.blocks WHERE table_name = 'slotted'";
            assert_eq!(answer(session, rest), "1", "version {version}");
        });
        if version >= ALTERED {
            with_session(&path, false, |session| {
                run(session, "INSERT INTO numbered (name) VALUES ('six')");
                let next = "SELECT concat_ws(' ', max(id), nextval('tens')) FROM numbered";
                assert_eq!(answer(session, next), "6 30", "version {version}");
            });
        }
    }
}
