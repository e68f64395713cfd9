//! `taut completions` and `taut man`: files that packages install beside the command.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::args::{Arguments, CompletionsArguments, ManArguments};
use crate::failure::Failure;

/// Runs `taut completions`.
pub fn run_completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "taut", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Runs `taut man`: writes `taut.1`, and a page for each command.
pub fn run_man(arguments: &ManArguments) -> Result<(), Failure> {
    let directory = &arguments.directory;
    clap_mangen::generate_to(Arguments::command(), directory).map_err(|error| {
        Failure::InvalidArgument(format!("cannot write the manual to {}: {error}", directory.display()))
    })
}
