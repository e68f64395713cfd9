//! `taut sql`: runs statements from the command line, a file or standard input, or starts the shell.

use std::io::{self, IsTerminal};
use std::path::Path;

use crate::args::SqlArguments;
use crate::execute::Executor;
use crate::failure::Failure;
use crate::output::Output;
use crate::script::{run_file, run_from};
use crate::shell;

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

fn run_standard_input(executor: &mut Executor) -> Result<(), Failure> {
    run_from(executor, io::stdin().lock(), STANDARD_INPUT, Path::new(STANDARD_INPUT))
}
