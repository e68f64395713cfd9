//! The command `taut sql`: sources of statements, output formats, and errors.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use common::{command, csv, file, scratch, taut, taut_reading};

const VALUES: &str = "select * from (values (1, 'a'), (2, null)) as t(n, x) order by n";

#[test]
fn results_come_in_every_format() {
    let cases = [
        ("table", " n | x\n---+------\n 1 | a\n 2 | NULL\n(2 rows)\n"),
        ("csv", "n,x\n1,a\n2,\n"),
        ("json", "{\"n\":1,\"x\":\"a\"}\n{\"n\":2,\"x\":null}\n"),
        ("markdown", "| n | x |\n| ---: | :--- |\n| 1 | a |\n| 2 | NULL |\n"),
    ];
    for (format, expected) in cases {
        assert_eq!(taut(&["sql", ":memory:", "--format", format, "-c", VALUES]).succeeds(), expected);
    }
}

#[test]
fn an_empty_result_has_its_header() {
    let none = "select 1 as n where false";
    assert_eq!(csv(":memory:", none), "n\n");
    assert_eq!(taut(&["sql", ":memory:", "--format", "json", "-c", none]).succeeds(), "");
    assert_eq!(taut(&["sql", ":memory:", "-c", none]).succeeds(), " n\n---\n(0 rows)\n");
}

#[test]
fn the_text_after_c_may_begin_with_a_dash() {
    assert_eq!(csv(":memory:", "-- one\nselect 1 as n"), "n\n1\n");
    // The text is parsed as SQL, not as an option of the command.
    assert!(taut(&["sql", ":memory:", "-c", "-1"]).fails().contains("syntax error"));
}

#[test]
fn long_tables_are_cut_and_counted() {
    let sql = "select * from generate_series(1, 1000) as t(n)";
    let output = taut(&["sql", ":memory:", "--max-rows", "2", "-c", sql]).succeeds();
    assert!(output.ends_with("... 2 of 1000 rows shown (--max-rows)\n(1,000 rows)\n"), "{output}");
}

#[test]
fn a_database_is_reopened() {
    let (_directory, database) = scratch();
    csv(&database, "create table t (n bigint) with (layout = 'row'); insert into t values (1), (2)");
    assert_eq!(csv(&database, "select sum(n) as s from t"), "s\n3\n");
    assert_eq!(csv(&database, "select layout from taut.tables"), "layout\nrow\n");
}

#[test]
fn commands_run_before_the_file() {
    let (directory, _) = scratch();
    let file = file(&directory, "two.sql", "-- a comment; with a semicolon\nselect 2 as b;\nselect 3 as c\n");
    let output = taut(&["sql", ":memory:", "--format", "csv", "-c", "select 1 as a", "-c", ";", "-f", &file]);
    assert_eq!(output.succeeds(), "a\n1\nb\n2\nc\n3\n");
}

#[test]
fn an_error_has_its_position_and_ends_the_run() {
    let (directory, database) = scratch();
    let script = "create table t (n bigint);\n\n  select n\n  frum t where;\ncreate table u (n bigint);\n";
    let path = file(&directory, "wrong.sql", script);
    let errors = taut(&["sql", &database, "-f", &path]).fails();
    assert!(errors.contains("wrong.sql:4:"), "{errors}");
    assert!(errors.contains(" 4 |   frum t where\n"), "{errors}");
    assert!(errors.lines().any(|line| line.trim_end().ends_with('^')), "{errors}");
    assert!(errors.ends_with("detail: Expected: end of statement.\n"), "{errors}");
    assert_eq!(csv(&database, "select table_name from taut.tables"), "table_name\nt\n");
}

#[test]
fn errors_are_on_standard_error_with_status_one() {
    for sql in ["select nosuch from (values (1)) as t(a)", "select 1 from nosuch", "select 1/0", "delete from t"] {
        let run = taut_reading(&["sql", ":memory:"], sql);
        assert_eq!(run.output, "", "{sql}");
        let errors = run.fails();
        assert!(errors.starts_with("error: "), "{sql}: {errors}");
    }
    let errors = taut(&["sql", ":memory:", "-f", "/nowhere/x.sql"]).fails();
    assert!(errors.contains("/nowhere/x.sql"), "{errors}");
}

#[test]
fn statements_are_answered_as_they_arrive() {
    let mut child = command(&["sql", ":memory:", "--format", "csv"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for round in 1..=3 {
        // The input ends with a semicolon and stays open. A splitter that waits for more input would hang here.
        write!(input, "select {round} as n;").unwrap();
        input.flush().unwrap();
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            output.read_line(line).unwrap();
        }
        assert_eq!(lines, ["n\n".to_owned(), format!("{round}\n")]);
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sql = "select * from generate_series(1, 200000) as t(n)";
    for format in ["csv", "json", "table"] {
        let mut child = command(&["sql", ":memory:", "--format", format, "-c", sql]).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 10]).unwrap();
        drop(output);
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(child.wait().unwrap().success(), "{format}: {errors}");
        assert_eq!(errors, "", "{format}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_query_ends_with_status_130() {
    let sql = "select count(*) from generate_series(1, 1000000000) as a(n), generate_series(1, 1000000) as b(m) \
               where n % 7 = m % 11";
    let mut child = command(&["sql", ":memory:", "-c", "select 1 as started", "-c", sql]).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("(1 row)") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0);
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn usage_errors_have_status_two() {
    let calls: [&[&str]; 4] =
        [&["sql"], &["sql", "x", "--format", "xml"], &["sql", "x", "--memory", "4 apples"], &["fly"]];
    for arguments in calls {
        assert_eq!(taut(arguments).status, 2, "{arguments:?}");
    }
    assert!(taut(&["--version"]).succeeds().starts_with("taut "));
    assert!(taut(&["sql", "--help"]).succeeds().contains("Examples:"));
}
