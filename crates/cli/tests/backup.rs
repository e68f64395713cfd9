//! The commands `taut backup` and `taut restore`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use common::{command, csv, scratch, taut};

/// Returns a function from names to paths in the directory.
fn paths(directory: &tempfile::TempDir) -> impl Fn(&str) -> String {
    let root = directory.path().to_path_buf();
    move |name| root.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_database_is_backed_up_listed_and_restored() {
    let (directory, database) = scratch();
    let path = paths(&directory);
    csv(&database, "CREATE TABLE t (x int); INSERT INTO t SELECT i FROM generate_series(1, 50000) AS s(i)");
    let first = taut(&["backup", &database, &path("backups"), "--log"]).succeeds();
    assert!(first.starts_with("backup 1 in ") && first.contains(": commit "), "{first}");
    assert!(first.contains("the log is kept from here on"), "{first}");
    csv(&database, "INSERT INTO t VALUES (-1)");
    std::thread::sleep(Duration::from_millis(20));
    let between = csv(":memory:", "SELECT now()").lines().last().unwrap().to_owned();
    std::thread::sleep(Duration::from_millis(20));
    csv(&database, "DELETE FROM t WHERE x = 10");
    let second = taut(&["backup", &database, &path("backups"), "--log"]).succeeds();
    assert!(second.contains("1 shared with earlier backups") && second.contains("since backup 1"), "{second}");
    let list = taut(&["backup", "--list", &path("backups")]).succeeds();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("every commit since backup 1"), "{list}");

    taut(&["restore", &path("backups"), &path("last")]).succeeds();
    assert_eq!(csv(&path("last"), "SELECT count(*) AS n, min(x) AS m FROM t"), "n,m\n50000,-1\n");
    taut(&["restore", &path("backups"), &path("one"), "--backup", "1"]).succeeds();
    assert_eq!(csv(&path("one"), "SELECT count(*) AS n FROM t"), "n\n50000\n");
    let restored = taut(&["restore", &path("backups"), &path("between"), "--time", &between]).succeeds();
    assert!(restored.contains("from backup 1, and 1 commit after it"), "{restored}");
    assert_eq!(csv(&path("between"), "SELECT count(*) AS n, min(x) AS m FROM t"), "n,m\n50001,-1\n");
    taut(&["verify", &path("between")]).succeeds();
    // The printed time of a backup restores that backup.
    let time = &list.lines().next().unwrap().trim_start()["1  ".len()..][.."2026-11-27 13:36:16.123456+00".len()];
    taut(&["restore", &path("backups"), &path("listed"), "--time", time]).succeeds();
    assert_eq!(csv(&path("listed"), "SELECT count(*) AS n FROM t"), "n\n50000\n");

    let kept = taut(&["backup", &database, &path("backups"), "--keep", "1"]).succeeds();
    assert!(kept.contains("removed: 1, 2"), "{kept}");
    taut(&["backup", &database, "--stop-log"]).succeeds();
}

#[test]
fn invalid_backups_and_restores_are_refused_with_a_reason() {
    let (directory, database) = scratch();
    let path = paths(&directory);
    csv(&database, "CREATE TABLE t (x int)");
    let within = format!("{database}/backups");
    assert!(taut(&["backup", &database, &within]).fails().contains("must not lie within each other"));
    assert!(taut(&["backup", &path("nothing"), &path("backups")]).fails().contains("there is no database at"));
    assert!(taut(&["backup", "--list", &path("backups")]).fails().contains("there is no backup directory at"));
    taut(&["backup", &database, &path("backups")]).succeeds();
    let error = taut(&["restore", &path("backups"), &database]).fails();
    assert!(error.contains("already exists and is not empty"), "{error}");
    let error = taut(&["restore", &path("backups"), &path("new"), "--time", "noon"]).fails();
    assert!(error.contains("\"noon\" is not a time; write for example"), "{error}");
    let error = taut(&["restore", &path("backups"), &path("new"), "--time", "2000-01-01 00:00:00"]).fails();
    assert!(error.contains("the first backup was taken later; complete backups are 1 (2"), "{error}");
    let manifest = path("backups/backups/00000001.manifest");
    std::fs::write(&manifest, "no manifest").unwrap();
    let run = taut(&["backup", "--list", &path("backups")]);
    assert!(run.output.contains("00000001.manifest") && run.status == 1, "{run:?}");
    assert!(taut(&["restore", &path("backups"), &path("new")]).fails().contains("00000001.manifest"));
}

#[test]
fn a_backup_directory_is_verified_like_a_database() {
    let (directory, database) = scratch();
    let path = paths(&directory);
    csv(&database, "CREATE TABLE t (x int); INSERT INTO t SELECT i FROM generate_series(1, 50000) AS s(i); VACUUM");
    taut(&["backup", &database, &path("backups"), "--log"]).succeeds();
    csv(&database, "INSERT INTO t VALUES (-1)");
    taut(&["backup", &database, &path("backups"), "--log"]).succeeds();
    let output = taut(&["verify", &path("backups")]).succeeds();
    let blocks = common::block_files(&path("backups"));
    assert!(output.starts_with(&format!("no damage: 2 backups, {} blocks, ", blocks.len())), "{output}");
    std::fs::write(path("backups/blocks/notes.txt"), "mine").unwrap();
    let output = taut(&["verify", &path("backups")]).succeeds();
    assert!(output.contains("note: ") && output.contains("notes.txt"), "{output}");
    let block = &blocks[0];
    let mut bytes = std::fs::read(block).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(block, bytes).unwrap();
    std::fs::remove_file(path("backups/backups/00000002.log")).unwrap();
    let run = taut(&["verify", &path("backups")]);
    assert_eq!(run.status, 1, "{run:?}");
    let damaged: Vec<&str> = run.output.lines().filter(|line| line.starts_with("damaged: ")).collect();
    assert_eq!(damaged.len(), 2, "{run:?}");
    assert!(damaged[0].contains("00000002.log: expected a file, which is missing"), "{run:?}");
    assert!(damaged[1].contains(block.to_str().unwrap()) && damaged[1].ends_with("(table \"t\")"), "{run:?}");
    assert!(run.errors.contains("damage in 2 places of 2 files"), "{run:?}");
}

/// A backup contains a view on a file, but not the file.
#[test]
fn files_that_queries_read_stay_where_they_are() {
    let (directory, database) = scratch();
    let path = paths(&directory);
    let file = common::file(&directory, "shops.csv", "shop,city\n1,Ulm\n");
    csv(&database, &format!("CREATE VIEW v AS SELECT * FROM '{file}'"));
    taut(&["backup", &database, &path("backups")]).succeeds();
    taut(&["restore", &path("backups"), &path("new")]).succeeds();
    assert_eq!(csv(&path("new"), "SELECT city FROM v"), "city\nUlm\n");
    std::fs::remove_file(&file).unwrap();
    assert!(taut(&["sql", &path("new"), "-c", "SELECT city FROM v"]).fails().contains("shops.csv"));
}

#[test]
fn a_database_in_use_is_backed_up_but_its_log_only_by_the_process_that_uses_it() {
    let (directory, database) = scratch();
    let path = paths(&directory);
    let mut shell = command(&["sql", &database]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    writeln!(input, "CREATE TABLE t (x int); INSERT INTO t VALUES (1); SELECT 42;").unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("42") {}
    let process = format!("in use by process {}", shell.id());
    let error = taut(&["backup", &database, &path("backups"), "--log"]).fails();
    assert!(error.contains(&process) && error.contains("BACKUP DATABASE TO '"), "{error}");
    let error = taut(&["backup", &database, "--stop-log"]).fails();
    assert!(error.contains(&process) && error.contains("BACKUP DATABASE STOP LOG"), "{error}");
    let run = taut(&["backup", &database, &path("backups"), "--log", "--readonly"]);
    assert!(run.status == 2 && run.errors.contains("cannot be used with"), "{run:?}");
    taut(&["backup", &database, &path("reads")]).succeeds();
    taut(&["backup", &database, &path("reads"), "--readonly"]).succeeds();
    taut(&["restore", &path("reads"), &path("read")]).succeeds();
    assert_eq!(csv(&path("read"), "SELECT x FROM t"), "x\n1\n");
    writeln!(input, "BACKUP DATABASE TO '{}' WITH (log, keep = 2); SELECT 43;", path("backups")).unwrap();
    while !lines.next().unwrap().unwrap().contains("43") {}
    taut(&["restore", &path("backups"), &path("new")]).succeeds();
    assert_eq!(csv(&path("new"), "SELECT x FROM t"), "x\n1\n");
    drop(input);
    shell.wait().unwrap();
}

/// Kills backups at different moments. Earlier backups can be restored, and the next backup removes the incomplete one.
#[test]
fn a_killed_backup_leaves_the_earlier_ones() {
    let (directory, database) = scratch();
    let path = paths(&directory);
    csv(&database, "CREATE TABLE t (x bigint, y double) WITH (block_size = '128KiB')");
    let mut rows = 0;
    for round in 0..12_u64 {
        csv(&database, "INSERT INTO t SELECT i, random() FROM generate_series(1, 30000) AS s(i)");
        rows += 30_000;
        let mut backup = command(&["backup", &database, &path("backups"), "--log"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(4 + round * 7));
        let _ = backup.kill();
        backup.wait().unwrap();
        let list = taut(&["backup", "--list", &path("backups")]);
        for line in list.output.lines() {
            let number = line.split_whitespace().next().unwrap();
            let restored = path(&format!("{round}-{number}"));
            taut(&["restore", &path("backups"), &restored, "--backup", number]).succeeds();
            assert!(!csv(&restored, "SELECT count(*) FROM t").is_empty());
            std::fs::remove_dir_all(&restored).unwrap();
        }
    }
    taut(&["backup", &database, &path("backups"), "--log"]).succeeds();
    taut(&["restore", &path("backups"), &path("last")]).succeeds();
    assert_eq!(csv(&path("last"), "SELECT count(*) AS n FROM t"), format!("n\n{rows}\n"));
    taut(&["verify", &path("last")]).succeeds();
    taut(&["verify", &database]).succeeds();
    let names = std::fs::read_dir(path("backups/blocks")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().ends_with(".new")));
}
