//! Runs a statement and writes its result, for the shell and for scripts.

use std::time::Instant;

use taut::{Outcome, Session};

use crate::failure::{Failure, print_stderr};
use crate::interrupt::Interrupts;
use crate::output::{Format, Output, write_rows};
use crate::progress::ProgressDisplay;
use crate::statement_splitter::StatementText;
use crate::units::{count_text, duration_text};

/// A session, and the output, format and settings for its results.
pub struct Executor {
    /// Session that runs the statements.
    pub session: Session,
    /// Output for results.
    pub output: Output,
    /// Format of result rows.
    pub format: Format,
    /// Maximum rows of a result that are shown as a table. `None` shows all.
    pub rows_max: Option<usize>,
    /// Whether the time of each statement is shown.
    pub timing: bool,
    interrupts: Interrupts,
    progress: ProgressDisplay,
}

impl Executor {
    /// Creates an executor that shows all rows and no times.
    pub fn new(session: Session, output: Output, format: Format) -> Self {
        let progress = ProgressDisplay::attach(&session, "");
        Self { session, output, format, rows_max: None, timing: false, interrupts: Interrupts::install(), progress }
    }

    /// From now on, Ctrl-C cancels statements but never ends the process, as in the shell.
    pub fn never_exit_on_interrupt(&self) {
        self.interrupts.never_exit();
    }

    /// Runs a statement and writes its result. Error messages name `source`, the origin of the statement.
    pub fn run(&mut self, statement: &StatementText, source: &str) -> Result<(), Failure> {
        let watch = self.interrupts.watch(&self.session);
        let result = self.run_statements(&statement.text);
        self.progress.clear();
        // Rows that precede an error must appear before its message.
        self.output.finish()?;
        match result {
            _ if watch.was_interrupted() => Err(Failure::Interrupted),
            Err(Failure::Database(error)) if error.is_cancelled() => Err(Failure::Interrupted),
            Err(Failure::Database(error)) => Err(Failure::from_statement_error(&error, statement, source)),
            result => result,
        }
    }

    fn run_statements(&mut self, text: &str) -> Result<(), Failure> {
        for statement in self.session.parse(text)? {
            let start = Instant::now();
            let done = match self.session.run(&statement)? {
                Outcome::Rows(rows) => {
                    let count = write_rows(&mut self.output, rows, self.format, self.rows_max)?;
                    let plural = if count == 1 { "" } else { "s" };
                    format!("{} row{plural}", count_text(count))
                }
                Outcome::Done(done) => {
                    for notice in &done.notices {
                        print_stderr(format!("note: {notice}"));
                    }
                    done.tag
                }
            };
            self.progress.clear();
            self.write_summary(&done, start)?;
        }
        Ok(())
    }

    /// Writes the summary line after a result. With the formats CSV, JSON and Markdown, the line is written to standard
    /// error, and only if `timing` is set.
    fn write_summary(&mut self, done: &str, start: Instant) -> Result<(), Failure> {
        let line =
            if self.timing { format!("({done}, {})", duration_text(start.elapsed())) } else { format!("({done})") };
        match self.format {
            Format::Table => self.output.write_line(line)?,
            _ if self.timing => print_stderr(line),
            _ => {}
        }
        self.output.finish()
    }
}
