//! Why a command ends without success, and how that is shown.
//!
//! ```text
//! error: column "prize" does not exist
//!   --> report.sql:3:8
//!    |
//!  3 | select prize from orders
//!    |        ^
//! ```

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use taut::with_causes;

use crate::statement_splitter::{Position, StatementText};

/// Exit status after Ctrl-C, as shells count it: 128 and the number of the signal.
pub const INTERRUPTED: u8 = 130;

/// Why a command ends without success.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The database refused or could not do something.
    #[error("{0}")]
    Database(#[from] taut::Error),
    /// The directory cannot be opened for a check.
    #[error("{}", with_causes(.0))]
    Open(#[from] taut_store::OpenError),
    /// Nothing can be salvaged.
    #[error("{}", with_causes(.0))]
    Repair(#[from] taut_store::RepairError),
    /// Something of a repaired database is lost. Each loss has been printed.
    #[error("not everything could be salvaged: losses in {tables} table(s){}", if *.database { ", and of the database as a whole" } else { "" })]
    Lost {
        /// Whether something is lost that concerns no single table.
        database: bool,
        /// How many tables have lost something.
        tables: usize,
    },
    /// A backup or restore failed.
    #[error("{}", with_causes(.0))]
    Backup(#[from] taut_store::backup::BackupError),
    /// A statement failed.
    #[error("{message}")]
    Statement {
        /// What the database says.
        message: String,
        /// The place in the source, where it is known.
        excerpt: Option<Excerpt>,
    },
    /// A file of statements cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Results or progress cannot be written, or the terminal not be used.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A result cannot be brought into the output format.
    #[error("cannot format the result: {0}")]
    Format(#[from] arrow_schema::ArrowError),
    /// What was asked for is not there, or not allowed; the text says what is.
    #[error("{0}")]
    Refused(String),
    /// `--with` is malformed.
    #[error("--with: {expected}, found {found:?}; write for example --with \"layout=column, sort_by='a, b desc'\"")]
    With {
        /// What should stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// The database is damaged. Each damage has been printed.
    #[error("{places} damaged place(s) in {files} file(s)")]
    Damaged {
        /// How many damages were found.
        places: usize,
        /// How many files have some.
        files: usize,
    },
    /// Layouts disagree about an answer: a bug in Taut.
    #[error("{item}: {layout} answers {found}, but {expected} is right; this is a bug in Taut")]
    Disagreement {
        /// The item of the workload.
        item: String,
        /// The layout that differs.
        layout: &'static str,
        /// Its answer.
        found: String,
        /// The answer of the first layout.
        expected: String,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Nobody reads the output any more.
    #[error("the output was closed")]
    Closed,
}

/// A line of a source with a place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    source: String,
    position: Position,
    line: String,
    /// Characters of `line` before the place.
    indent: String,
}

impl Failure {
    /// The failure of a statement; `source` names where it was read.
    pub fn of_statement(error: &taut::Error, statement: &StatementText, source: &str) -> Self {
        let place = error.position();
        let excerpt = place.and_then(|(line, column)| Excerpt::new(source, statement, line, column));
        let mut message = error.to_string();
        if let (Some((line, column)), Some(_)) = (place, &excerpt) {
            // The parser counts within the statement; the excerpt says the place in the source.
            let within = format!(" at Line: {line}, Column: {column}");
            message.truncate(message.strip_suffix(&within).unwrap_or(&message).len());
        }
        Self::Statement { message, excerpt }
    }

    /// Prints the failure on standard error and gives the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Closed => ExitCode::SUCCESS,
            Self::Interrupted => {
                say("interrupted");
                ExitCode::from(INTERRUPTED)
            }
            _ => {
                say(self.text());
                ExitCode::FAILURE
            }
        }
    }

    /// The message with its excerpt.
    pub fn text(&self) -> String {
        let head = console::style("error:").for_stderr().red().bold();
        match self {
            Self::Statement { message, excerpt: Some(excerpt) } => format!("{head} {message}\n{}", excerpt.text()),
            _ => format!("{head} {self}"),
        }
    }
}

/// Writes a line on standard error. When nobody reads that, there is nobody to tell.
pub fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

impl Excerpt {
    /// The place at a line and column of a statement, both counted from one, or `None` outside of it.
    fn new(source: &str, statement: &StatementText, line: u64, column: u64) -> Option<Self> {
        let text = statement.text.lines().nth(usize::try_from(line.checked_sub(1)?).ok()?)?;
        let before = usize::try_from(column.checked_sub(1)?).ok()?;
        let indent = text.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let start = statement.start;
        let position = if line == 1 {
            Position { line: start.line, column: start.column + column - 1 }
        } else {
            Position { line: start.line + line - 1, column }
        };
        Some(Self { source: source.to_owned(), position, line: text.to_owned(), indent })
    }

    fn text(&self) -> String {
        const LINE_CHARACTERS_MAX: usize = 400;
        let Position { line, column } = self.position;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let mut text = format!(" {margin}--> {}:{line}:{column}", self.source);
        if self.line.chars().count() <= LINE_CHARACTERS_MAX {
            let _ = write!(text, "\n {margin} |\n {number} | {}\n {margin} | {}^", self.line, self.indent);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_points_at_the_place() {
        let start = Position { line: 9, column: 5 };
        let statement = StatementText { text: "select a,\n\tb c".to_owned(), start };
        let excerpt = Excerpt::new("x.sql", &statement, 2, 4).unwrap();
        assert_eq!(excerpt.text(), "   --> x.sql:10:4\n    |\n 10 | \tb c\n    | \t  ^");
        let excerpt = Excerpt::new("x.sql", &statement, 1, 8).unwrap();
        assert_eq!(excerpt.position, Position { line: 9, column: 12 });
        assert_eq!(Excerpt::new("x.sql", &statement, 3, 1), None);
        assert_eq!(Excerpt::new("x.sql", &statement, 0, 0), None);
    }
}
