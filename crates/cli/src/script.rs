//! Statements from a file or another reader. Each runs as soon as its semicolon is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::execute::Executor;
use crate::failure::Failure;
use crate::statement_splitter::StatementSplitter;

/// Runs the statements of a file.
pub fn run_file(executor: &mut Executor, path: &Path) -> Result<(), Failure> {
    let file = File::open(path).map_err(|source| Failure::Read { path: path.to_owned(), source })?;
    run_from(executor, file, &path.display().to_string(), path)
}

/// Runs the statements of `source`. The last statement needs no semicolon. Errors of statements show `name` as their
/// source, read errors show `path`.
pub fn run_from(executor: &mut Executor, mut source: impl Read, name: &str, path: &Path) -> Result<(), Failure> {
    let mut splitter = StatementSplitter::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(Failure::Read { path: PathBuf::from(path), source }),
        };
        splitter.push(&buffer[..count]);
        while let Some(statement) = splitter.next_statement() {
            executor.run(&statement, name)?;
        }
        if count == 0 {
            return match splitter.finish() {
                Some(statement) => executor.run(&statement, name),
                None => Ok(()),
            };
        }
    }
}
