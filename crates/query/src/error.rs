//! What can go wrong with a statement.

use datafusion::error::DataFusionError;
use datafusion::logical_expr::UNNAMED_TABLE;
use datafusion::sql::sqlparser::parser::ParserError;
use taut_store::TransactionError;
use taut_types::{DesignError, SchemaError};

/// Why a statement failed. Its message stands on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The text is no statement.
    #[error("syntax error: {message}")]
    Syntax {
        /// What the parser expected and found; carries line and column.
        message: String,
        /// Where in the text, counted from one: line, then column.
        position: Option<(u64, u64)>,
    },
    /// A statement or a part of one that is not supported.
    #[error("{what} is not supported; {allowed}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What is allowed instead, or when it comes.
        allowed: String,
    },
    /// A table, view or file that does not exist.
    #[error("{kind} {name:?} does not exist")]
    NotFound {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A table or view that exists already.
    #[error("{kind} {name:?} already exists")]
    Exists {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A name that a statement may have once, and has twice.
    #[error("{kind} {name:?} is specified more than once")]
    Duplicate {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A file that could not be loaded.
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: String,
        /// What is wrong, with the line and column where there are any.
        message: String,
    },
    /// Options that make no table design.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// Columns that make no table.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A commit to the database directory.
    #[error("{}", with_causes(.0))]
    Commit(#[from] taut_store::CommitError),
    /// A backup.
    #[error("{}", with_causes(.0))]
    Backup(#[from] taut_store::backup::BackupError),
    /// A write to the database directory.
    #[error("{}", with_causes(.0))]
    Write(#[from] taut_store::WriteError),
    /// A block file.
    #[error("{}", with_causes(.0))]
    Read(#[from] taut_store::ReadError),
    /// What is in a block.
    #[error("{}", with_causes(.0))]
    Block(#[from] taut_block::BlockError),
    /// Rows that make no block.
    #[error("{}", with_causes(.0))]
    Build(#[from] taut_block::BuildError),
    /// Planning or execution.
    #[error("{}", message_of(.0))]
    Engine(#[from] DataFusionError),
    /// A null for a column that takes none.
    #[error("column {column:?} of table {table} is NOT NULL; a row to insert has null there")]
    Null {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// Rows that break a constraint.
    #[error(transparent)]
    Constraint(Box<Violation>),
    /// A value that the type of its column cannot hold.
    #[error("column {column:?} of table {table}: {cause}")]
    Cast {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Whether the value was text.
        is_text: bool,
        /// What is wrong with the value.
        cause: datafusion::arrow::error::ArrowError,
    },
    /// Values that are not those of a statement's parameters.
    #[error("the statement has {wanted} parameters, {given} values are given{}", named(.missing))]
    Parameters {
        /// Parameters of the statement.
        wanted: usize,
        /// Values given.
        given: usize,
        /// Parameters without a value.
        missing: String,
    },
    /// A statement that does not fit the state of the session's transaction.
    #[error("{message}")]
    Transaction {
        /// What is wrong, and what is possible.
        message: String,
        /// The code of the error.
        sqlstate: &'static str,
    },
    /// A row that a statement would change twice.
    #[error("{verb} would change a row of the table a second time; its rows must match each row once at most")]
    Cardinality {
        /// The statement.
        verb: &'static str,
    },
    /// An `ON CONFLICT` for which there is no key.
    #[error("{what}; {allowed}")]
    Conflict {
        /// What is wrong.
        what: String,
        /// The keys that there are.
        allowed: String,
    },
    /// Two transactions wait for each other.
    #[error("two transactions wait for each other; this one was ended, and can be run again")]
    Deadlock,
    /// The statement was cancelled by its user.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// The statement ran longer than `statement_timeout`.
    #[error("canceling statement due to statement timeout")]
    Timeout,
}

/// How rows break a constraint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A column that is to be without nulls, and has some.
    #[error("column {column:?} of table {table} holds nulls")]
    Nulls {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A row that fails a condition.
    #[error("a row for table {table} violates check constraint {constraint:?}: {row}")]
    Check {
        /// The table.
        table: String,
        /// The constraint.
        constraint: String,
        /// The values of the row that the condition looks at.
        row: String,
    },
    /// A key that another row has.
    #[error("a row with {key} already exists in table {table}; constraint {constraint:?} allows one")]
    NotUnique {
        /// The table.
        table: String,
        /// The constraint.
        constraint: String,
        /// The columns and their values.
        key: String,
        /// Whether the other row was committed since the transaction began, and is not seen in it.
        is_concurrent: bool,
    },
    /// A foreign key without the row that it references.
    #[error("{table} has a row with {key}, which is not in table {referenced}: foreign key {constraint:?}")]
    NotReferenced {
        /// The table of the foreign key.
        table: String,
        /// The constraint.
        constraint: String,
        /// The columns and their values.
        key: String,
        /// The table that is referenced.
        referenced: String,
    },
    /// A row that is to go, or to get another key, and that other rows reference.
    #[error("the row of table {table} with {key} is referenced by table {by}: foreign key {constraint:?}")]
    StillReferenced {
        /// The table.
        table: String,
        /// The columns and their values.
        key: String,
        /// The table that references it.
        by: String,
        /// The foreign key.
        constraint: String,
    },
}

impl Violation {
    /// The tables whose rows it tells of.
    pub fn tables(&self) -> Vec<&str> {
        match self {
            Self::Nulls { table, .. } | Self::Check { table, .. } | Self::NotUnique { table, .. } => vec![table],
            Self::NotReferenced { table, referenced: other, .. } | Self::StillReferenced { table, by: other, .. } => {
                vec![table, other]
            }
        }
    }
}

impl From<Violation> for QueryError {
    fn from(violation: Violation) -> Self {
        Self::Constraint(Box::new(violation))
    }
}

impl From<TransactionError> for QueryError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Deadlock => Self::Deadlock,
            TransactionError::Commit(error) => Self::Commit(error),
            TransactionError::Read(error) => Self::Read(error),
            other => Self::Transaction { message: other.to_string(), sqlstate: "3B001" },
        }
    }
}

fn named(missing: &str) -> String {
    if missing.is_empty() { String::new() } else { format!("; {missing} has no value") }
}

/// Message of an error followed by the messages of its causes, the outermost first. A message that already ends with
/// that of its cause is not repeated.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |message, cause| match message.ends_with(&cause) {
        true => message,
        false => format!("{message}: {cause}"),
    })
}

/// The message of an engine error without the layers around it.
fn message_of(error: &DataFusionError) -> String {
    without_placeholders(root_message(error))
}

/// A message without the name that the engine gives to files, which have none in SQL.
fn without_placeholders(message: String) -> String {
    if message.contains(UNNAMED_TABLE) { message.replace(&format!("{UNNAMED_TABLE}."), "") } else { message }
}

fn root_message(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::External(inner) => with_causes(inner.as_ref()),
        DataFusionError::IoError(inner) => with_causes(inner),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            datafusion::arrow::error::ArrowError::ExternalError(inner) => with_causes(inner.as_ref()),
            datafusion::arrow::error::ArrowError::IoError(_, inner) => with_causes(inner),
            other => other.to_string(),
        },
        root => root.message().into_owned(),
    }
}

impl QueryError {
    /// Returns whether a table cannot be read since a block of it is missing or damaged.
    pub(crate) fn is_damage(&self) -> bool {
        let is_damaged = |error: &taut_store::ReadError| error.is_damage();
        match self {
            Self::Read(error) => is_damaged(error),
            Self::Engine(error) => match error.find_root() {
                DataFusionError::External(inner) => {
                    inner.downcast_ref().is_some_and(is_damaged)
                        || inner.downcast_ref::<Self>().is_some_and(Self::is_damage)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The place of the error in the statement's text, counted from one: line, then column.
    pub fn position(&self) -> Option<(u64, u64)> {
        match self {
            Self::Syntax { position, .. } => *position,
            Self::Engine(error) => {
                let start = error.diagnostic()?.span?.start;
                Some((start.line, start.column))
            }
            _ => None,
        }
    }

    pub(crate) fn unsupported(what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), allowed: allowed.into() }
    }
}

impl From<ParserError> for QueryError {
    fn from(error: ParserError) -> Self {
        let message = match error {
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
            ParserError::RecursionLimitExceeded => {
                "more than 1000 levels of parentheses, CASE, functions or subqueries".to_owned()
            }
        };
        let position = position_in(&message);
        Self::Syntax { message, position }
    }
}

/// The numbers of `... at Line: 3, Column: 14`, with which the parser ends its messages.
fn position_in(message: &str) -> Option<(u64, u64)> {
    let (_, place) = message.rsplit_once("Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    let digits = column.find(|c: char| !c.is_ascii_digit()).unwrap_or(column.len());
    Some((line.parse().ok()?, column[..digits].parse().ok()?))
}

/// The error of an operation of this room.
pub type Result<T, E = QueryError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Layer {
        message: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn a_cause_that_the_message_ends_with_is_not_repeated() {
        for message in ["cannot write a: disk is full (os error 28)", "cannot write a"] {
            let cause = Layer { message: "disk is full (os error 28)", source: None };
            let error = Layer { message, source: Some(Box::new(cause)) };
            assert_eq!(with_causes(&error), "cannot write a: disk is full (os error 28)");
        }
    }

    #[test]
    fn files_have_no_name_in_messages() {
        let error = DataFusionError::Plan("no column named b; there are ?table?.a, ?table?.c".to_owned());
        assert_eq!(QueryError::from(error).to_string(), "no column named b; there are a, c");
    }

    #[test]
    fn positions_are_read_from_messages() {
        assert_eq!(position_in("Expected: x, found: y at Line: 3, Column: 14"), Some((3, 14)));
        assert_eq!(position_in("Expected: x, found: EOF"), None);
    }
}
