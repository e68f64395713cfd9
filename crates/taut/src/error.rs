//! Errors of this crate.

use std::path::{Path, PathBuf};

use taut_query::{QueryError, SqlError, with_causes};

use crate::Settings;

/// Error of any operation on a database.
///
/// [`Display`](std::fmt::Display) writes the message and its position in the statement. The detail and the hint, if
/// there are any, follow on a line each:
///
/// ```text
/// duplicate key value violates unique constraint "t_pkey"
/// detail: Key (id)=(7) already exists.
/// ```
#[derive(Debug)]
pub struct Error(Kind);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        if let Some((line, column)) = self.position() {
            write!(f, " (line {line}, column {column})")?;
        }
        for (part, text) in [("detail", self.detail()), ("hint", self.hint())] {
            if let Some(text) = text {
                write!(f, "\n{part}: {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{}", with_causes(.0))]
    Open(taut_store::OpenError),
    #[error(transparent)]
    Query(QueryError),
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    #[error(
        "{path:?} is open in this process with other settings: threads {}, cache {}, memory {}; use these, or close all \
         connections to it first",
        settings.threads, bytes(settings.cache_bytes), bytes(settings.memory_bytes)
    )]
    OtherSettings { path: PathBuf, settings: Box<Settings> },
    #[error(
        "this thread waits for a statement already, and cannot run one in what it does meanwhile; use another thread"
    )]
    Nested,
    #[error("a database in memory cannot be opened read-only: it is new, and empty")]
    InMemoryReadOnly,
    #[error("the database is closed")]
    Closed,
    #[error("the statement returns no rows; it is done: {tag}")]
    NoRows { tag: String },
    #[error("one statement is expected, found {found}")]
    StatementCount { found: usize },
}

impl Error {
    /// The message, without position, detail and hint.
    pub fn message(&self) -> String {
        self.0.to_string()
    }

    /// More about the error, as a sentence: for example the key that already exists.
    pub fn detail(&self) -> Option<String> {
        match &self.0 {
            Kind::Query(error) => error.detail(),
            _ => None,
        }
    }

    /// What can be done about the error, as a sentence.
    pub fn hint(&self) -> Option<String> {
        match &self.0 {
            Kind::Query(error) => error.hint(),
            _ => None,
        }
    }

    /// Line and column of the error in the SQL text, both counted from one.
    pub fn position(&self) -> Option<(u64, u64)> {
        match &self.0 {
            Kind::Query(error) => error.position(),
            _ => None,
        }
    }

    /// SQLSTATE of the error: five characters, as listed in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match &self.0 {
            Kind::Query(error) => error.sqlstate(),
            Kind::Open(error) => taut_query::open_state(error),
            Kind::Threads(_) => "53000",
            Kind::OtherSettings { .. } => "55006",
            Kind::Nested => "55000",
            Kind::InMemoryReadOnly => "22023",
            Kind::Closed => "08003",
            Kind::NoRows { .. } => "24000",
            Kind::StatementCount { .. } => "42601",
        }
    }

    /// Whether the statement was cancelled by its user.
    pub fn is_cancelled(&self) -> bool {
        matches!(&self.0, Kind::Query(QueryError::Cancelled))
    }

    pub(crate) fn threads(error: std::io::Error) -> Self {
        Self(Kind::Threads(error))
    }

    pub(crate) fn other_settings(path: &Path, settings: &Settings) -> Self {
        Self(Kind::OtherSettings { path: path.to_owned(), settings: Box::new(settings.clone()) })
    }

    pub(crate) fn nested() -> Self {
        Self(Kind::Nested)
    }

    pub(crate) fn in_memory_read_only() -> Self {
        Self(Kind::InMemoryReadOnly)
    }

    pub(crate) fn closed() -> Self {
        Self(Kind::Closed)
    }

    pub(crate) fn no_rows(tag: String) -> Self {
        Self(Kind::NoRows { tag })
    }

    pub(crate) fn statement_count(found: usize) -> Self {
        Self(Kind::StatementCount { found })
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        Self(Kind::Query(error))
    }
}

impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        Self(Kind::Query(error.into()))
    }
}

impl From<taut_store::OpenError> for Error {
    fn from(error: taut_store::OpenError) -> Self {
        Self(Kind::Open(error))
    }
}

fn bytes(setting: Option<usize>) -> String {
    setting.map_or_else(|| "by default".to_owned(), |bytes| format!("{bytes} bytes"))
}
