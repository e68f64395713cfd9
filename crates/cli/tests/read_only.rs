//! Option `--readonly`: beside a writer, on a read-only mount, and with statements that it refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{command, csv, scratch, taut, taut_reading};

/// A process that has a database open and prints results as CSV.
struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn open(arguments: &[&str]) -> Self {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--format", "csv"]);
        let mut child = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut session = Self { child, input, output };
        assert_eq!(session.run("select 1 as opened"), ["opened", "1"]);
        session
    }

    /// Runs a statement and returns the lines of its result.
    fn run(&mut self, sql: &str) -> Vec<String> {
        writeln!(self.input, "{sql}; select 'end' as answered;").unwrap();
        let lines = (&mut self.output).lines().map(Result::unwrap);
        let mut lines: Vec<String> = lines.take_while(|line| line != "end").collect();
        assert_eq!(lines.pop().as_deref(), Some("answered"), "{lines:?}");
        lines
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path().display().to_string(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[test]
fn another_process_reads_while_one_writes() {
    let (_directory, database) = scratch();
    let mut writer = Session::open(&["sql", &database]);
    writer.run("create table t (n bigint); insert into t values (1), (2)");
    let in_use = taut(&["sql", &database, "-c", "select 1"]).fails();
    assert!(in_use.contains("is in use by process") && in_use.contains("it can be opened read-only"), "{in_use}");
    let answer = |sql: &str| taut(&["sql", "--readonly", &database, "--format", "csv", "-c", sql]).succeeds();
    assert_eq!(answer("select sum(n) as s from t"), "s\n3\n");
    let mut reader = Session::open(&["sql", "--read-only", &database]);
    writer.run("insert into t values (4); create table u as select * from t; vacuum full");
    assert_eq!(reader.run("select sum(n) as s from t"), ["s", "3"]);
    assert_eq!(answer("select sum(n) as s from u"), "s\n7\n");
    assert!(taut(&["inspect", "--readonly", &database]).succeeds().contains("3 rows in 1 block"));
    assert!(taut(&["verify", "--readonly", &database]).succeeds().contains("no damage: 2 tables"));
    reader.kill();
    writer.run("insert into t values (8); vacuum full; delete from t; vacuum full");
    // The writer has removed the killed reader's registration and all blocks but the one of `u`.
    assert_eq!(std::fs::read_dir(Path::new(&database).join("readers")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(Path::new(&database).join("blocks")).unwrap().count(), 1);
    writer.kill();
    assert_eq!(csv(&database, "select count(*) as c from u"), "c\n3\n");
}

#[test]
fn statements_that_write_are_refused_by_name() {
    let (directory, database) = scratch();
    csv(&database, "create table t (n bigint); insert into t values (1); create view v as select 1 as one");
    let before = files(Path::new(&database));
    let parquet = directory.path().join("out.parquet").display().to_string();
    for (statement, name) in [
        ("insert into t values (2)", "INSERT"),
        ("insert into t select * from t", "INSERT"),
        ("explain analyze insert into t values (2)", "INSERT"),
        ("update t set n = 2", "UPDATE"),
        ("delete from t", "DELETE"),
        ("merge into t using (select 1 as m) s on n = m when matched then delete", "MERGE"),
        ("truncate t", "TRUNCATE TABLE"),
        ("create table u (n bigint)", "CREATE TABLE"),
        ("create table u as select 1 as n", "CREATE TABLE AS"),
        ("create view w as select 1 as n", "CREATE VIEW"),
        ("create index i on t (n)", "CREATE INDEX"),
        ("drop table t", "DROP TABLE"),
        ("drop view v", "DROP VIEW"),
        ("drop index i", "DROP INDEX"),
        ("alter table t set (layout = 'row')", "ALTER TABLE"),
        ("alter table t add constraint c check (n > 0)", "ALTER TABLE"),
        ("copy t from 'x.parquet'", "COPY FROM"),
        ("checkpoint", "CHECKPOINT"),
        ("vacuum", "VACUUM"),
        ("set mover = on", "SET mover = on"),
    ] {
        let errors = taut(&["sql", "--readonly", &database, "-c", statement]).fails();
        assert!(errors.contains(&format!("cannot execute {name} in a read-only transaction")), "{statement}: {errors}");
    }
    let errors = taut(&["sql", "--readonly", &database, "-c", "begin read write"]).fails();
    assert!(errors.contains("cannot set transaction read-write mode: the database is open read-only"), "{errors}");
    let answer = |sql: &str| taut(&["sql", "--readonly", &database, "--format", "csv", "-c", sql]).succeeds();
    assert_eq!(answer("show transaction_read_only"), "transaction_read_only\non\n");
    assert_eq!(answer("show default_transaction_read_only"), "default_transaction_read_only\non\n");
    assert_eq!(answer("begin; select n from t; savepoint s; select one from v; commit"), "n\n1\none\n1\n");
    // A reader can write files elsewhere.
    answer(&format!("copy t to '{parquet}'"));
    assert_eq!(answer(&format!("select n from '{parquet}'")), "n\n1\n");
    assert_eq!(files(Path::new(&database)), before);
}

#[test]
fn missing_databases_are_not_created() {
    let (_directory, database) = scratch();
    let errors = taut(&["sql", "--readonly", &database, "-c", "select 1"]).fails();
    assert!(errors.contains("there is no database at"), "{errors}");
    assert!(!Path::new(&database).exists());
    let errors = taut(&["sql", "--readonly", ":memory:", "-c", "select 1"]).fails();
    assert!(errors.contains("a database in memory cannot be opened read-only"), "{errors}");
    assert!(taut_reading(&["sql", "--help"], "").succeeds().contains("--readonly"));
}

/// Passes without checking anything if the process has no right to mount. Tests of the crate `store` cover the same
/// with a disk that refuses every change.
#[test]
fn a_read_only_mount_is_read_without_creating_a_file() {
    let (directory, database) = scratch();
    csv(&database, "create table t (n bigint); insert into t values (1), (2)");
    let mount = directory.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let mounted = mount.to_str().unwrap();
    if !run("mount", &["--bind", &database, mounted]) {
        return;
    }
    let is_read_only = run("mount", &["-o", "remount,ro,bind", mounted]);
    let before = files(Path::new(&database));
    let read = taut(&["sql", "--readonly", mounted, "--format", "csv", "-c", "select sum(n) as s from t"]);
    let verified = taut(&["verify", "--readonly", mounted]);
    let after = files(Path::new(&database));
    // Beside a writer on the writable path, a reader on the mount is refused: it cannot register, so the writer would
    // not know of it.
    let mut writer = Session::open(&["sql", &database]);
    let beside = taut(&["sql", "--readonly", mounted, "-c", "select 1"]);
    writer.run("select 1");
    assert!(run("umount", &[mounted]));
    writer.kill();
    if is_read_only {
        assert_eq!(read.succeeds(), "s\n3\n");
        assert!(verified.succeeds().contains("no damage"));
        assert_eq!(after, before);
        let errors = beside.fails();
        assert!(errors.contains("cannot be read meanwhile: no file can be created in"), "{errors}");
    }
}
