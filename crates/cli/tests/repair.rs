//! The commands `taut repair` and `taut verify`, on databases with each kind of damage.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{block_files, command, csv, scratch, taut};

/// Content of every file below a directory.
fn files(directory: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![PathBuf::from(directory)];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
            }
        }
    }
    files
}

fn log_files(database: &str) -> Vec<PathBuf> {
    files(database).into_keys().filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect()
}

/// Creates two tables with keys, sort order, partitions, indexes and text, partly in blocks.
fn create_database(database: &str) {
    let sql = "
        create table customers (id bigint primary key, name varchar not null);
        insert into customers select n, 'customer ' || n from generate_series(1, 20000) as t(n);
        create table orders (id bigint primary key, customer bigint references customers (id), day date,
            note varchar, price decimal(10, 2) default 0 check (price >= 0))
            with (sort_by = 'day', partition_by = 'hash(customer, 4)', layout = 'packed_row');
        insert into orders select n, 1 + n % 20000, date '2024-01-01' + cast(n % 365 as int), 'note ' || (n % 7), n % 1000
            from generate_series(1, 60000) as t(n);
        create index by_note on orders using csb (note);
        create view dear as select * from orders where price > 990;
        vacuum;
        update orders set note = 'changed' where id = 17;
        delete from orders where id = 18;";
    taut(&["sql", database, "-c", sql]).succeeds();
}

const EVERYTHING: &str = "
    select count(*), sum(id), sum(customer), sum(price), count(distinct day), max(note) from orders;
    select count(*), sum(id), max(name) from customers; select count(*) from dear;
    select * from taut.constraints order by constraint_name";

#[test]
fn a_whole_database_is_copied_with_all_that_belongs_to_it() {
    let (_directory, database) = scratch();
    create_database(&database);
    let (expected, before) = (csv(&database, EVERYTHING), files(&database));
    let new = format!("{database}.new");
    let output = taut(&["repair", &database, &new]).succeeds();
    assert!(output.contains("everything was salvaged: 2 tables, 79,999 rows"), "{output}");
    assert_eq!(files(&database), before);
    assert_eq!(csv(&new, EVERYTHING), expected);
    assert!(taut(&["verify", &new]).succeeds().starts_with("no damage"));
    // The primary key still refuses a duplicate, and only that.
    let errors = taut(&["sql", &new, "-c", "insert into orders values (1, 1, null, null, 1)"]).fails();
    assert!(errors.contains("duplicate") || errors.contains("orders_pkey"), "{errors}");
    csv(&new, "insert into orders values (100000, 1, null, null, 1)");
}

#[test]
fn a_missing_log_file_is_refused_reported_and_repaired() {
    let (_directory, database) = scratch();
    create_database(&database);
    let [log] = &log_files(&database)[..] else { unreachable!("a closed database has one log file") };
    std::fs::remove_file(log).unwrap();
    let errors = taut(&["sql", &database, "-c", "select 1"]).fails();
    for part in ["log file", log.to_str().unwrap(), "is missing", "taut repair DATABASE NEW_DATABASE"] {
        assert!(errors.contains(part), "{errors}");
    }
    let verified = taut(&["verify", &database]);
    assert_eq!(verified.status, 1);
    assert!(verified.output.contains("damaged: log file"), "{verified:?}");
    let (before, new) = (files(&database), format!("{database}.new"));
    let run = taut(&["repair", &database, &new]);
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.output.contains("lost: log file") && run.output.contains("all later ones are lost"), "{run:?}");
    assert_eq!(files(&database), before);
    // Closing the database had taken a checkpoint, so the missing log file held no rows.
    assert_eq!(csv(&new, "select count(*) from orders; select count(*) from customers").lines().nth(1), Some("59999"));
}

#[test]
fn a_missing_block_harms_its_table_alone() {
    let (_directory, database) = scratch();
    create_database(&database);
    let customers = csv(&database, "select count(*), sum(id), max(name) from customers");
    let of_orders = csv(&database, "select file from taut.blocks where table_name = 'orders' order by file limit 1");
    let name = Path::new(of_orders.lines().nth(1).unwrap()).file_name().unwrap().to_owned();
    let block = block_files(&database).into_iter().find(|path| path.file_name() == Some(&name)).unwrap();
    std::fs::remove_file(&block).unwrap();

    let errors = taut(&["sql", &database, "-c", "select sum(price), max(note) from orders"]).fails();
    for part in ["table \"orders\" is damaged", block.to_str().unwrap(), "taut repair", "DROP TABLE"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(errors.matches("is missing").count(), 2, "once as a note, once as the error: {errors}");
    assert_eq!(csv(&database, "select count(*), sum(id), max(name) from customers"), customers);
    csv(&database, "insert into customers values (50000, 'new'); update customers set name = 'x' where id = 3");
    csv(&database, "create table other as select 1 as a; checkpoint");
    // Maintenance of all tables processes the other tables, and names the table that it cannot read.
    let before = csv(&database, "select count(*) from taut.blocks where table_name = 'customers'");
    csv(&database, "insert into customers select n, 'more' from generate_series(60001, 70000) as t(n)");
    let errors = taut(&["sql", &database, "-c", "vacuum full"]).fails();
    assert!(errors.contains("table \"orders\" is damaged"), "{errors}");
    let found = csv(&database, "select count(*), max(id) from customers");
    assert_eq!(found.lines().nth(1), Some("30001,70000"));
    assert_eq!(csv(&database, "select count(*) from taut.blocks where table_name = 'customers'"), before);
    let verified = taut(&["verify", &database]);
    assert_eq!(verified.status, 1);
    assert!(verified.output.contains("is missing (table \"orders\")"), "{verified:?}");

    let (before, new) = (files(&database), format!("{database}.new"));
    let run = taut(&["repair", &database, &new]);
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.output.contains("lost: orders: ") && run.output.contains("salvaged: 3 tables"), "{run:?}");
    assert!(run.errors.contains("not everything could be salvaged: losses in 1 table(s)"), "{run:?}");
    assert_eq!(files(&database), before);
    let lost: u64 = {
        let line = run.output.lines().find(|line| line.starts_with("lost: orders")).unwrap();
        line["lost: orders: ".len()..].split(' ').next().unwrap().parse().unwrap()
    };
    let left = 59_999 - lost;
    let found = csv(&new, "select count(*), count(note) from orders");
    assert_eq!(found.lines().nth(1), Some(&*format!("{left},{left}")));
    assert_eq!(csv(&new, "select count(*) from customers"), "count(*)\n30001\n");
    assert!(taut(&["verify", &new]).succeeds().starts_with("no damage"));

    csv(&database, "drop table orders cascade");
    assert!(taut(&["verify", &database]).succeeds().starts_with("no damage"));
    let notes = taut(&["sql", &database, "-c", "select count(*) from customers"]);
    assert!(notes.errors.is_empty(), "{notes:?}");
}

/// If only the index of a block is damaged, a repair rewrites the block with all its rows and loses nothing.
#[test]
fn a_block_without_its_index_is_salvaged_completely() {
    let (_directory, database) = scratch();
    csv(
        &database,
        "create table t (n bigint) with (layout = 'column'); create index by_n on t using csb (n);
        insert into t select (v * 7919) % 100003 from generate_series(1, 60000) as s(v); vacuum",
    );
    let expected = csv(&database, "select count(*), sum(n) from t");
    let block = &block_files(&database)[0];
    let mut bytes = std::fs::read(block).unwrap();
    // Indexes are the last sections of a block.
    let at = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[at] ^= 1;
    std::fs::write(block, bytes).unwrap();
    assert_eq!(taut(&["verify", &database]).status, 1);
    let new = format!("{database}.new");
    let output = taut(&["repair", &database, &new]).succeeds();
    assert!(output.contains("note: t: no row of "), "{output}");
    assert!(output.contains("everything was salvaged: 1 table, 60,000 rows in "), "{output}");
    assert!(!output.contains("lost: "), "{output}");
    assert_eq!(csv(&new, "select count(*), sum(n) from t"), expected);
    assert!(taut(&["verify", &new]).succeeds().starts_with("no damage"));
}

/// Kills repairs and restores at different moments. The directory that they leave never opens as an empty database, and
/// they can be run again.
#[test]
fn a_killed_repair_or_restore_leaves_no_empty_database() {
    let (directory, database) = scratch();
    csv(
        &database,
        "create table t (x bigint, y double) with (block_size = '128KiB');
        insert into t select i, random() from generate_series(1, 200000) as s(i); vacuum",
    );
    let backups = directory.path().join("backups").to_str().unwrap().to_owned();
    taut(&["backup", &database, &backups]).succeeds();
    let expected = csv(&database, "select count(*), sum(x) from t");
    for (command_name, source) in [("repair", database.as_str()), ("restore", backups.as_str())] {
        for round in 0..10_u64 {
            let new = directory.path().join(format!("{command_name}{round}")).to_str().unwrap().to_owned();
            let arguments = [command_name, source, new.as_str()];
            let mut child = command(&arguments).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(round * 4));
            let _ = child.kill();
            child.wait().unwrap();
            if !Path::new(&new).exists() {
                continue;
            }
            let run = taut(&["sql", &new, "--format", "csv", "-c", "select count(*), sum(x) from t"]);
            if run.status == 0 {
                assert_eq!(run.output, expected, "{arguments:?}");
                continue;
            }
            assert!(run.errors.contains("is not a complete database"), "{arguments:?}: {run:?}");
            taut(&arguments).succeeds();
            assert_eq!(csv(&new, "select count(*), sum(x) from t"), expected, "{arguments:?}");
            assert!(taut(&["verify", &new]).succeeds().starts_with("no damage"));
        }
    }
}

#[test]
fn unrepairable_databases_are_refused_with_a_reason() {
    let (directory, database) = scratch();
    let new = format!("{database}.new");
    assert!(taut(&["repair", &database, &new]).fails().contains("there is no database at"));
    csv(&database, "create table t as select 1 as a");
    assert!(taut(&["repair", &database, &database]).fails().contains("is inside the damaged database"));
    assert!(taut(&["repair", &database, directory.path().to_str().unwrap()]).fails().contains("is not empty"));
    std::fs::write(Path::new(&database).join("catalog"), "nothing").unwrap();
    let errors = taut(&["repair", &database, &new]).fails();
    assert!(errors.contains("nothing can be salvaged without a catalog, and none can be read"), "{errors}");
    assert!(!Path::new(&new).exists());
    assert!(taut(&["repair", "--help"]).succeeds().contains("taut repair shop.taut salvaged.taut"));
}
