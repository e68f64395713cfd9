//! The `taut` command line program.

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use output::Output;

mod args;
mod backup;
mod demo;
mod execute;
mod failure;
mod generate;
mod inspect;
mod interrupt;
mod load;
mod options;
mod output;
mod progress;
mod repair;
mod script;
mod shell;
mod sql;
mod statement_splitter;
mod system_tables;
mod units;
mod verify;

fn main() -> ExitCode {
    taut_allocator::set_up();
    let arguments = Arguments::parse();
    let output = Output::stdout();
    let result = match &arguments.command {
        Command::Sql(arguments) => sql::run(arguments, output),
        Command::Load(arguments) => load::run(arguments, output),
        Command::Inspect(arguments) => inspect::run(arguments, output),
        Command::Verify(arguments) => verify::run(arguments, output),
        Command::Repair(arguments) => repair::run(arguments, output),
        Command::Backup(arguments) => backup::run(arguments, output),
        Command::Restore(arguments) => backup::run_restore(arguments, output),
        Command::Demo(arguments) => demo::run(arguments, output),
        Command::Completions(arguments) => generate::run_completions(arguments),
        Command::Man(arguments) => generate::run_man(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
