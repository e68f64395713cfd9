//! Errors of commands, and how they are printed.
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
use crate::units::counted;

/// Exit status after Ctrl-C. As in shells: 128 plus the number of the signal.
pub const INTERRUPTED: u8 = 130;

/// Reason why a command ends early or with an error status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The database returned an error.
    #[error("{0}")]
    Database(#[from] taut::Error),
    /// The database cannot be opened to verify it or to back it up.
    #[error("{}", with_causes(.0))]
    Open(#[from] taut_store::OpenError),
    /// A repair failed.
    #[error("{}", with_causes(.0))]
    Repair(#[from] taut_store::RepairError),
    /// Parts of a repaired database are lost. Each loss has been printed.
    #[error("not everything could be salvaged: losses in {tables} table(s){}", if *.database { ", and of the database as a whole" } else { "" })]
    Lost {
        /// Whether something is lost that does not belong to a single table.
        database: bool,
        /// Count of tables with losses.
        tables: usize,
    },
    /// A backup or restore failed.
    #[error("{}", with_causes(.0))]
    Backup(#[from] taut_store::backup::BackupError),
    /// A statement failed.
    #[error("{message}")]
    Statement {
        /// Error message of the database. Contains the detail and the hint if there is no excerpt.
        message: String,
        /// Line of the source with the position of the error, if it is known.
        excerpt: Option<Box<Excerpt>>,
        /// Lines with the detail and the hint, printed below the excerpt. Empty if there is no excerpt.
        notes: String,
    },
    /// A file of statements, or standard input, cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file, or `<stdin>`.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Results or progress cannot be written, or the terminal cannot be used.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A result cannot be converted to the output format.
    #[error("cannot format the result: {0}")]
    Format(#[from] arrow_schema::ArrowError),
    /// An argument is wrong or names something that does not exist. Contains the explanation.
    #[error("{0}")]
    InvalidArgument(String),
    /// `--with` is malformed.
    #[error("--with: {expected}, found {found:?}; write for example --with \"layout=column, sort_by='a, b desc'\"")]
    With {
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// The database, or a backup in the directory, is damaged. Each damage has been printed.
    #[error("damage in {} of {}", counted(*places, "place"), counted(*files, "file"))]
    Damaged {
        /// Count of damaged places.
        places: usize,
        /// Count of files with damage.
        files: usize,
    },
    /// Two layouts returned different results, which is a bug in Taut.
    #[error("{item}: {layout} answers {found}, but {expected} is right; this is a bug in Taut")]
    Disagreement {
        /// Name of the workload item.
        item: String,
        /// Layout with the different result.
        layout: &'static str,
        /// Result of that layout.
        found: String,
        /// Result of the first layout.
        expected: String,
    },
    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The reader of the output has closed it.
    #[error("the output was closed")]
    Closed,
}

/// A line of a source, with the position of an error in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    source: String,
    position: Position,
    line: String,
    /// White space as wide as the text of `line` before the position.
    indent: String,
}

impl Failure {
    /// Creates the failure of a statement. `source` names where the statement comes from, such as a file.
    pub fn from_statement_error(error: &taut::Error, statement: &StatementText, source: &str) -> Self {
        let position = error.position();
        let excerpt = position.and_then(|(line, column)| Excerpt::new(source, statement, line, column));
        match excerpt {
            None => Self::Statement { message: error.to_string(), excerpt: None, notes: String::new() },
            excerpt => {
                let notes = [("detail", error.detail()), ("hint", error.hint())];
                let notes = notes.iter().filter_map(|(name, text)| Some(format!("\n{name}: {}", text.as_ref()?)));
                Self::Statement { message: error.message(), excerpt: excerpt.map(Box::new), notes: notes.collect() }
            }
        }
    }

    /// Prints the failure on standard error and returns the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Closed => ExitCode::SUCCESS,
            Self::Interrupted => {
                print_stderr("interrupted");
                ExitCode::from(INTERRUPTED)
            }
            _ => {
                print_stderr(self.text());
                ExitCode::FAILURE
            }
        }
    }

    /// Message with its excerpt, as it is printed.
    pub fn text(&self) -> String {
        let head = console::style("error:").for_stderr().red().bold();
        match self {
            Self::Statement { message, excerpt: Some(excerpt), notes } => {
                format!("{head} {message}\n{}{notes}", excerpt.text())
            }
            _ => format!("{head} {self}"),
        }
    }
}

/// Writes a line to standard error. Ignores errors, because there is no other output on which to report them.
pub fn print_stderr(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

impl Excerpt {
    /// Excerpt for a line and a column of a statement, both counted from one. Returns `None` if the statement has no
    /// such line.
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
    fn an_excerpt_points_at_the_position() {
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
