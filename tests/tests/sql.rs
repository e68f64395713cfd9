//! Runs every file under `tests/sql` in every layout.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of this file is a test")]

use std::path::{Path, PathBuf};

use taut_tests::{Arrangement, RunOptions, run_file};

/// Paths of the .slt files under a directory, recursively.
fn files_under(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_under(&path));
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn run_all(arrangement: Arrangement) {
    let files = files_under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"));
    assert!(!files.is_empty());
    let options = RunOptions { arrangement, ..RunOptions::default() };
    let (mut passed, mut failures) = (0, Vec::new());
    for file in &files {
        let outcome = run_file(file, &options).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(outcome.passed + outcome.failures.len() > 0, "{} tests nothing", file.display());
        passed += outcome.passed;
        failures.extend(outcome.failures);
    }
    let layout = arrangement.layout();
    println!("{layout}: {passed} records of {} files passed", files.len());
    assert!(failures.is_empty(), "{} records failed in layout {layout}:\n{}", failures.len(), failures.join("\n"));
}

/// The default layout. Rows of small inserts are in no block.
#[test]
fn default() {
    run_all(Arrangement::Default);
}

#[test]
fn row() {
    run_all(Arrangement::Row);
}

#[test]
fn packed_row() {
    run_all(Arrangement::PackedRow);
}

#[test]
fn column() {
    run_all(Arrangement::Column);
}

#[test]
fn groups() {
    run_all(Arrangement::Groups);
}

#[test]
fn every_layout_is_tested() {
    assert_eq!(Arrangement::ALL.map(Arrangement::layout), ["row", "packed_row", "column", "groups"]);
}
