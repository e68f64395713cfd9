//! `taut-sqllogictest FILE.slt...`: runs SQL logic tests of Taut or of other systems.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use taut_tests::{Arrangement, RunOptions, Style, run_file};

/// Runs SQL logic tests against Taut. Each file gets a database of its own.
#[derive(Parser)]
#[command(name = "taut-sqllogictest", version)]
struct Arguments {
    /// Files of records (.slt, .test).
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Layouts for tables that name none; each file runs once in each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "default")]
    layout: Vec<Arrangement>,
    /// Results with one value per line, and numbers as the corpora of SQLite write them.
    #[arg(long)]
    sqlite: bool,
    /// Stop a file at its first failure.
    #[arg(long)]
    stop: bool,
    /// Labels for `skipif` and `onlyif`, beside `taut` and the layout.
    #[arg(long)]
    label: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "taut-sqllogictest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all files. Returns whether all records passed.
fn run(arguments: &Arguments) -> io::Result<bool> {
    let (mut passed, mut failed) = (0, 0);
    let mut output = io::stdout();
    for arrangement in &arguments.layout {
        let options = RunOptions {
            arrangement: *arrangement,
            style: if arguments.sqlite { Style::Sqlite } else { Style::Taut },
            stop_at_failure: arguments.stop,
            valuewise: arguments.sqlite,
            labels: arguments.label.clone(),
        };
        for file in &arguments.files {
            let name = format!("{} ({})", file.display(), arrangement.layout());
            match run_file(file, &options) {
                Ok(outcome) => {
                    passed += outcome.passed;
                    failed += outcome.failures.len();
                    writeln!(output, "{name}: {} passed, {} failed", outcome.passed, outcome.failures.len())?;
                    for failure in outcome.failures {
                        writeln!(output, "{failure}")?;
                    }
                }
                Err(error) => {
                    failed += 1;
                    writeln!(output, "{name}: {error}")?;
                }
            }
        }
    }
    writeln!(output, "{passed} passed, {failed} failed")?;
    Ok(failed == 0)
}
