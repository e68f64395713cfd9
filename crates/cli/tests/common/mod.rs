//! Runs the `taut` command in tests.

// Every test binary compiles its own copy of this module and uses a part of it. A failure here fails the test.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Result of a run of the command.
#[derive(Debug)]
pub struct Run {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Run {
    /// Returns the output. Panics if the run failed.
    #[track_caller]
    pub fn succeeds(self) -> String {
        assert_eq!(self.status, 0, "{self:?}");
        self.output
    }

    /// Returns the errors. Panics unless the run failed with status 1.
    #[track_caller]
    pub fn fails(self) -> String {
        assert_eq!(self.status, 1, "{self:?}");
        assert!(!self.errors.contains("panicked"), "{self:?}");
        self.errors
    }
}

/// The command with these arguments and piped output, not yet started.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command with empty standard input.
pub fn taut(arguments: &[&str]) -> Run {
    taut_reading(arguments, "")
}

/// Runs the command with `input` as standard input.
pub fn taut_reading(arguments: &[&str], input: &str) -> Run {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    // The write fails if the command exits early without reading. That does not fail the test.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        status: output.status.code().unwrap(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs statements on a database and returns their output as CSV.
#[track_caller]
pub fn csv(database: &str, sql: &str) -> String {
    taut(&["sql", database, "--format", "csv", "-c", sql]).succeeds()
}

/// A temporary directory, and the path of a database in it.
pub fn scratch() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let database = text(&directory.path().join("test.taut"));
    (directory, database)
}

/// Writes a file and returns its path.
pub fn file(directory: &tempfile::TempDir, name: &str, content: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, content).unwrap();
    text(&path)
}

/// Paths of the block files of a database, sorted.
pub fn block_files(database: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(database).join("blocks")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
