//! Errors of statements.

use std::io;
use std::path::PathBuf;

use datafusion::error::DataFusionError;
use datafusion::logical_expr::UNNAMED_TABLE;
use taut_sql::SqlError;
use taut_store::TransactionError;
use taut_types::{DesignError, SchemaError};

/// Reason why a statement failed. The message makes sense without its source errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A text that is not a valid statement, or a part of a statement that is not supported.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A table, view or file that does not exist.
    #[error("{kind} {name:?} does not exist")]
    NotFound {
        /// Kind of object, such as `table`.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// A table or view that already exists.
    #[error("{kind} {name:?} already exists")]
    Exists {
        /// Kind of object, such as `table or view`.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// A name that a statement specifies more than once.
    #[error("{kind} {name:?} is specified more than once")]
    Duplicate {
        /// Kind of object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// A file that could not be loaded.
    #[error("{path}: {message}")]
    File {
        /// Path of the file.
        path: String,
        /// Cause, with line and column if known.
        message: String,
    },
    /// A file that `COPY ... TO` could not write.
    #[error("could not {what} file {path:?}: {source}")]
    WriteFile {
        /// What failed, such as `write to`.
        what: &'static str,
        /// The target of the statement.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Options that do not form a valid table design.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// Columns that do not form a valid table.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A commit that failed.
    #[error("{}", with_causes(.0))]
    Commit(#[from] taut_store::CommitError),
    /// A backup that failed.
    #[error("{}", with_causes(.0))]
    Backup(#[from] taut_store::backup::BackupError),
    /// A write to the database directory that failed.
    #[error("{}", with_causes(.0))]
    Write(#[from] taut_store::WriteError),
    /// A block file that cannot be read.
    #[error("{}", with_causes(.0))]
    Read(#[from] taut_store::ReadError),
    /// Contents of a block that are invalid.
    #[error("{}", with_causes(.0))]
    Block(#[from] taut_block::BlockError),
    /// Rows that cannot be built into a block.
    #[error("{}", with_causes(.0))]
    Build(#[from] taut_block::BuildError),
    /// An error of DataFusion in planning or execution.
    #[error("{}", message_of(.0))]
    Engine(#[from] DataFusionError),
    /// A null for a NOT NULL column.
    #[error("column {column:?} of table {table} is NOT NULL; a row to insert has null there")]
    Null {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// Rows that violate a constraint.
    #[error(transparent)]
    Constraint(Box<Violation>),
    /// A value that the type of its column cannot hold.
    #[error("column {column:?} of table {table}: {cause}")]
    Cast {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Whether the value was text.
        is_text: bool,
        /// Reason why the value does not fit.
        cause: datafusion::arrow::error::ArrowError,
    },
    /// A statement that is not allowed in the current state of the session's transaction.
    #[error("{message}")]
    Transaction {
        /// What is wrong, and what is allowed.
        message: String,
        /// SQLSTATE of the error.
        sqlstate: &'static str,
    },
    /// A row that a statement would change more than once.
    #[error("{verb} would change a row of the table a second time; its rows must match each row once at most")]
    Cardinality {
        /// Verb of the statement.
        verb: &'static str,
    },
    /// An `ON CONFLICT` without a matching key.
    #[error("{what}; {allowed}")]
    Conflict {
        /// What is wrong.
        what: String,
        /// Keys of the table.
        allowed: String,
    },
    /// Two transactions that wait for each other.
    #[error("two transactions wait for each other; this one was ended, and can be run again")]
    Deadlock,
    /// The statement was cancelled by its user.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// The statement ran longer than `statement_timeout`.
    #[error("canceling statement due to statement timeout")]
    Timeout,
}

/// Violation of a constraint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A column that must be NOT NULL but holds nulls.
    #[error("column {column:?} of table {table} holds nulls")]
    Nulls {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A row that fails a check constraint.
    #[error("a row for table {table} violates check constraint {constraint:?}: {row}")]
    Check {
        /// Name of the table.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Values of the columns that the constraint reads.
        row: String,
    },
    /// A key that another row already has.
    #[error("a row with {key} already exists in table {table}; constraint {constraint:?} allows one")]
    NotUnique {
        /// Name of the table.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Columns of the key, with their values.
        key: String,
        /// Whether the other row was committed after the transaction began, and so is not visible in it.
        is_concurrent: bool,
    },
    /// A foreign key whose referenced row does not exist.
    #[error("{table} has a row with {key}, which is not in table {referenced}: foreign key {constraint:?}")]
    NotReferenced {
        /// Name of the table with the foreign key.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Columns of the key, with their values.
        key: String,
        /// Name of the referenced table.
        referenced: String,
    },
    /// A deletion or key update of a row that other rows still reference.
    #[error("the row of table {table} with {key} is referenced by table {by}: foreign key {constraint:?}")]
    StillReferenced {
        /// Name of the table.
        table: String,
        /// Columns of the key, with their values.
        key: String,
        /// Name of the referencing table.
        by: String,
        /// Name of the foreign key.
        constraint: String,
    },
}

impl Violation {
    /// Names of the tables whose rows are involved.
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

/// Message of an error, followed by the messages of its causes, outermost first. Skips a cause whose message the text
/// already ends with.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |message, cause| match message.ends_with(&cause) {
        true => message,
        false => format!("{message}: {cause}"),
    })
}

/// Message of a DataFusion error, without the errors that wrap its root.
fn message_of(error: &DataFusionError) -> String {
    without_placeholders(root_message(error))
}

/// Removes the placeholder that DataFusion uses as the table name of files, which have no name in SQL.
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
    /// Whether a table cannot be read because one of its blocks is missing or damaged.
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

    /// Position of the error in the statement's text: line, then column, both counted from one.
    pub fn position(&self) -> Option<(u64, u64)> {
        match self {
            Self::Sql(error) => error.position(),
            Self::Engine(error) => {
                let start = error.diagnostic()?.span?.start;
                Some((start.line, start.column))
            }
            _ => None,
        }
    }

    pub(crate) fn unsupported(what: impl Into<String>, allowed: impl Into<String>) -> Self {
        SqlError::unsupported(what, allowed).into()
    }
}

/// Result of an operation of this crate.
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
}
