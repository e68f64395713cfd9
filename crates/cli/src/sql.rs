//! `taut sql`: runs statements from the command line, a file or standard input, or starts the shell.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use crate::args::SqlArguments;
use crate::execute::Executor;
use crate::failure::Failure;
use crate::output::Output;
use crate::shell;
use crate::statement_splitter::StatementSplitter;

const STANDARD_INPUT: &str = "<stdin>";
const COMMAND: &str = "-c";

/// Runs `taut sql`.
pub fn run(arguments: &SqlArguments, output: Output) -> Result<(), Failure> {
    let database = arguments.settings.open(&arguments.database, true, arguments.access)?;
    let mut executor = Executor::new(database.session(), output, arguments.format);
    executor.rows_max = arguments.max_rows.filter(|rows| *rows > 0);
    executor.timing = arguments.timing;
    for command in &arguments.commands {
        run_from(&mut executor, command.as_bytes(), COMMAND, Path::new(COMMAND))?;
    }
    match &arguments.file {
        Some(path) if path.as_os_str() == "-" => run_standard_input(&mut executor),
        Some(path) => run_file(&mut executor, path),
        None if !arguments.commands.is_empty() => Ok(()),
        None if io::stdin().is_terminal() => {
            if arguments.max_rows.is_none() {
                executor.rows_max = Some(shell::ROWS_MAX_DEFAULT);
            }
            shell::run(executor, &arguments.database)
        }
        None => run_standard_input(&mut executor),
    }
}

/// Runs the statements of a file.
pub fn run_file(executor: &mut Executor, path: &Path) -> Result<(), Failure> {
    let file = File::open(path).map_err(|source| Failure::Read { path: path.to_owned(), source })?;
    run_from(executor, file, &path.display().to_string(), path)
}

fn run_standard_input(executor: &mut Executor) -> Result<(), Failure> {
    run_from(executor, io::stdin().lock(), STANDARD_INPUT, Path::new(STANDARD_INPUT))
}

/// Runs each statement as soon as its semicolon is read. The last statement needs no semicolon.
fn run_from(executor: &mut Executor, mut source: impl Read, name: &str, path: &Path) -> Result<(), Failure> {
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
