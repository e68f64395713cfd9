//! Errors of statements: message, detail, hint and position, in PostgreSQL's words if PostgreSQL has the same error.

mod attach;
mod engine;
mod function;
mod generated;
mod index;
mod sequence;
mod temporary;
mod violation;

use std::io;
use std::path::PathBuf;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use taut_sql::{ObjectKind, SqlError};
use taut_store::{CommitError, TransactionError};
use taut_types::{DesignError, SchemaError};

pub use attach::{AttachError, open_state};
pub use engine::type_in_message;
pub use function::FunctionError;
pub use generated::GeneratedColumnError;
pub use index::{IndexClause, IndexError};
pub use sequence::SequenceError;
pub use temporary::TemporaryError;
pub use violation::Violation;

/// Hint for errors that may not recur if the transaction is retried.
const RETRY_HINT: &str = "The transaction might succeed if retried.";

/// Hint for a call of a function or operator that does not accept the types of its arguments.
const NO_MATCH_HINT: &str =
    "No function matches the given name and argument types. You might need to add explicit type casts.";

/// Reason why a statement failed. The message makes sense without its source errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A text that is not a valid statement, or a part of a statement that is not supported.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A relation, index, constraint, column, prepared statement or file that does not exist.
    #[error("{kind} {name:?}{} does not exist", of_relation(.relation))]
    NotFound {
        /// Kind of object.
        kind: ObjectKind,
        /// Name of the object.
        name: String,
        /// Name of the table of a column or constraint.
        relation: Option<String>,
    },
    /// A NOT NULL column without a default that is missing from the columns of the rows to be loaded.
    #[error("column {column:?} does not exist in {source_name}")]
    NotInSource {
        /// Name of the column.
        column: String,
        /// Where the rows come from, such as a file.
        source_name: String,
    },
    /// A foreign key that names no columns of the referenced table, which has no primary key.
    #[error("there is no primary key for referenced table {table:?}")]
    NoPrimaryKey {
        /// Name of the referenced table.
        table: String,
    },
    /// A relation, column, index, constraint or prepared statement that already exists.
    #[error("{kind} {name:?}{} already exists", with_relation(*.kind, .relation))]
    Exists {
        /// Kind of object.
        kind: ObjectKind,
        /// Name of the object.
        name: String,
        /// Name of the table of a constraint or column.
        relation: Option<String>,
    },
    /// A statement that would drop or rename something on which views or foreign keys depend.
    #[error("cannot {verb} {}", dependents_text(.object))]
    Dependents {
        /// What the statement would do: drop or rename.
        verb: &'static str,
        /// The object that would be dropped or renamed, such as `table "t"`. `None` for several objects.
        object: Option<String>,
        /// The dependent views and foreign keys.
        dependencies: Vec<Dependency>,
        /// Hint for the user, as a sentence.
        hint: &'static str,
    },
    /// A change of a column's type that requires `USING`.
    #[error("column {column:?} cannot be cast automatically to type {logical_type}")]
    NoAutomaticCast {
        /// Name of the column.
        column: String,
        /// The new type.
        logical_type: String,
    },
    /// A default that cannot be converted to the new type of its column.
    #[error("default for column {column:?} cannot be cast automatically to type {logical_type}")]
    NoCastOfDefault {
        /// Name of the column.
        column: String,
        /// The new type.
        logical_type: String,
    },
    /// A row whose value cannot be converted to a new type of its column.
    #[error("{cause}")]
    Retype {
        /// Values of the row, such as `(id, price)=(7, none)`.
        row: String,
        /// Why the value cannot be converted.
        cause: Box<QueryError>,
    },
    /// A sequence that a statement cannot define, drop or use.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// A function in SQL that a statement cannot define, drop or call.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// A generated column that a statement cannot declare or change.
    #[error(transparent)]
    Generated(#[from] GeneratedColumnError),
    /// An attached database.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A temporary relation, or a permanent one that would depend on it.
    #[error(transparent)]
    Temporary(#[from] TemporaryError),
    /// An expression or a predicate that no index can have.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A parameter that is an array of values without a common type.
    #[error("ARRAY types {first} and {second} cannot be matched")]
    ArrayTypes {
        /// Common type of the preceding values.
        first: String,
        /// The first type that differs.
        second: String,
    },
    /// A new relation whose name has no schema, although no schema of the search path exists.
    #[error("no schema has been selected to create in")]
    NoCurrentSchema,
    /// A view that a statement names instead of a table.
    #[error("{name:?} is not a table")]
    NotATable {
        /// Name of the view.
        name: String,
    },
    /// A table or sequence that a statement names instead of a view.
    #[error("{name:?} is not a view")]
    NotAView {
        /// Name of the table or sequence.
        name: String,
    },
    /// A second primary key of a table.
    #[error("multiple primary keys for table {table:?} are not allowed")]
    SecondPrimaryKey {
        /// Name of the table.
        table: String,
    },
    /// A column that a statement names more than once.
    #[error("column {name:?} specified more than once")]
    Duplicate {
        /// Name of the column.
        name: String,
    },
    /// A file that could not be loaded.
    #[error("{path}: {message}")]
    File {
        /// Path of the file.
        path: String,
        /// Cause, with line and column if known.
        message: String,
        /// Hint for the user, as a sentence.
        hint: Option<&'static str>,
        /// SQLSTATE of the error.
        sqlstate: &'static str,
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
    /// Options that do not form a valid design of a table ([`TableDesign`](taut_types::TableDesign)).
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
    #[error("{}", engine::parts(.0).message)]
    Engine(#[from] DataFusionError),
    /// Rows that violate a constraint.
    #[error(transparent)]
    Constraint(Box<Violation>),
    /// A value that the type of its column cannot hold.
    #[error("{}", engine::arrow_parts(.cause).message)]
    Cast {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Whether the value was text.
        is_text: bool,
        /// Reason why the value does not fit.
        cause: ArrowError,
    },
    /// A statement that is not allowed in the current state of the session's transaction.
    #[error("{message}")]
    Transaction {
        /// What is wrong.
        message: String,
        /// Hint for the user, as a sentence.
        hint: Option<&'static str>,
        /// SQLSTATE of the error.
        sqlstate: &'static str,
    },
    /// A row that a statement would change more than once.
    #[error("{} command cannot affect row a second time", if *.verb == "INSERT" { "ON CONFLICT DO UPDATE" } else { .verb })]
    Cardinality {
        /// Verb of the statement.
        verb: &'static str,
    },
    /// An `ON CONFLICT` whose columns or constraint match no key of the table.
    #[error("there is no unique or exclusion constraint matching the ON CONFLICT specification")]
    NoConflictKey {
        /// Keys of the table, as a sentence.
        keys: String,
    },
    /// Two transactions that wait for each other.
    #[error("deadlock detected")]
    Deadlock,
    /// The statement was cancelled by its user.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// The statement ran longer than `statement_timeout`.
    #[error("canceling statement due to statement timeout")]
    Timeout,
}

/// A view or foreign key that depends on a table, view or index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The dependent object, such as `view "v"` or `constraint "c" on table "u"`.
    pub dependent: String,
    /// The object that it depends on, such as `table "t"`.
    pub on: String,
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
            other => Self::Transaction { message: other.to_string(), hint: None, sqlstate: "3B001" },
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

fn of_relation(relation: &Option<String>) -> String {
    relation.as_ref().map(|relation| format!(" of relation {relation:?}")).unwrap_or_default()
}

fn dependents_text(object: &Option<String>) -> String {
    match object {
        Some(object) => format!("{object} because other objects depend on it"),
        None => "desired object(s) because other objects depend on them".to_owned(),
    }
}

fn with_relation(kind: ObjectKind, relation: &Option<String>) -> String {
    let preposition = if kind == ObjectKind::Column { "of" } else { "for" };
    relation.as_ref().map(|relation| format!(" {preposition} relation {relation:?}")).unwrap_or_default()
}

fn detail_of_commit(error: &CommitError) -> Option<String> {
    match error {
        CommitError::RowsChanged { table } => {
            Some(format!("Rows of table {table:?} were changed by another transaction."))
        }
        CommitError::Serialization { table } => {
            Some(format!("Rows of table {table:?} that this transaction has read were changed by another one."))
        }
        CommitError::Referenced { table, by } => {
            Some(format!("A foreign key constraint on table {by:?} depends on table {table:?}."))
        }
        _ => None,
    }
}

fn hint_of_commit(error: &CommitError) -> Option<&'static str> {
    match error {
        CommitError::RowsChanged { .. }
        | CommitError::RowsLocked
        | CommitError::Serialization { .. }
        | CommitError::ConstraintsChanged { .. }
        | CommitError::Design { .. }
        | CommitError::SortOrder { .. } => Some(RETRY_HINT),
        CommitError::Referenced { .. } => Some("Use DROP ... CASCADE to drop the dependent objects too."),
        CommitError::MayHoldNulls { .. } => Some("Run VACUUM FULL on the table first."),
        _ => None,
    }
}

impl QueryError {
    /// Whether a concurrent change of the columns or constraints of a table, or of a view's dependencies, made a commit
    /// fail.
    pub(crate) fn is_schema_conflict(&self) -> bool {
        let is_conflict = |error: &CommitError| {
            matches!(error, CommitError::ConstraintsChanged { .. } | CommitError::ViewChanged { .. })
        };
        match self {
            Self::Commit(error) => is_conflict(error),
            Self::Engine(error) => match error.find_root() {
                DataFusionError::External(inner) => {
                    inner.downcast_ref().is_some_and(is_conflict)
                        || inner.downcast_ref::<Self>().is_some_and(Self::is_schema_conflict)
                }
                _ => false,
            },
            _ => false,
        }
    }

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

    /// Detail of the error, if there is one, for example the key that already exists.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Sql(error) => error.detail(),
            Self::Constraint(violation) => violation.detail(),
            Self::Sequence(error) => error.detail(),
            Self::Generated(error) => error.detail(),
            Self::Temporary(error) => error.detail(),
            Self::Function(error) => error.detail(),
            Self::Retype { row, .. } => Some(format!("Failing row contains {row}.")),
            Self::Cast { table, column, .. } => Some(format!("The value is for column {column:?} of table {table:?}.")),
            Self::NoConflictKey { keys } => Some(keys.clone()),
            Self::Dependents { dependencies, .. } => {
                let lines =
                    dependencies.iter().map(|Dependency { dependent, on }| format!("{dependent} depends on {on}"));
                Some(lines.collect::<Vec<_>>().join("\n"))
            }
            Self::Deadlock => {
                Some("This transaction and another one wait for each other; this one was ended.".to_owned())
            }
            Self::Commit(error) => detail_of_commit(error),
            Self::Engine(error) => match engine::external_error(error) {
                Some(inner) => match (inner.downcast_ref::<Self>(), inner.downcast_ref()) {
                    (Some(inner), _) => inner.detail(),
                    (None, Some(error)) => detail_of_commit(error),
                    _ => None,
                },
                None => engine::parts(error).detail,
            },
            _ => None,
        }
    }

    /// Hint for the user, as a sentence, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Sql(error) => error.hint(),
            Self::Generated(error) => error.hint(),
            Self::Attach(error) => error.hint(),
            Self::Function(error) => error.hint(),
            Self::Transaction { hint, .. } | Self::File { hint, .. } => hint.map(str::to_owned),
            Self::Cardinality { verb: "INSERT" } => Some(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values."
                    .to_owned(),
            ),
            Self::Dependents { hint, .. } => Some((*hint).to_owned()),
            Self::NoAutomaticCast { column, logical_type } => {
                Some(format!("You might need to specify \"USING {column}::{logical_type}\"."))
            }
            Self::Cardinality { .. } => {
                Some("Ensure that not more than one source row matches any one target row.".to_owned())
            }
            Self::Deadlock => Some(RETRY_HINT.to_owned()),
            Self::Commit(error) => hint_of_commit(error).map(str::to_owned),
            Self::Engine(error) => match engine::external_error(error) {
                Some(inner) => match (inner.downcast_ref::<Self>(), inner.downcast_ref()) {
                    (Some(inner), _) => inner.hint(),
                    (None, Some(error)) => hint_of_commit(error).map(str::to_owned),
                    _ => None,
                },
                None => engine::parts(error).hint,
            },
            _ => None,
        }
    }

    /// SQLSTATE that the text of an error of DataFusion implies.
    pub(crate) fn implied_sqlstate(&self) -> Option<&'static str> {
        match self {
            Self::Engine(error) => engine::parts(error).sqlstate,
            Self::Cast { cause, .. } => engine::arrow_parts(cause).sqlstate,
            _ => None,
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

    /// Error about a relation that does not exist.
    pub(crate) fn no_relation(name: impl Into<String>) -> Self {
        Self::NotFound { kind: ObjectKind::Relation, name: name.into(), relation: None }
    }

    /// Error about a missing schema.
    pub(crate) fn no_schema(name: impl Into<String>) -> Self {
        Self::NotFound { kind: ObjectKind::Schema, name: name.into(), relation: None }
    }

    /// Error about a column that a relation does not have.
    pub(crate) fn no_column(relation: &str, name: &str) -> Self {
        Self::NotFound { kind: ObjectKind::Column, name: name.to_owned(), relation: Some(relation.to_owned()) }
    }

    /// Error about a name that a table, view or index already has.
    pub(crate) fn relation_exists(name: impl Into<String>) -> Self {
        Self::Exists { kind: ObjectKind::Relation, name: name.into(), relation: None }
    }

    /// Error about something that is not supported, with what is supported instead: see [`SqlError::unsupported`].
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
}
