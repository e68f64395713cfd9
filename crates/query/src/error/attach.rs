//! Errors about attached databases.

use taut_sql::CATALOG;
use taut_store::{AttachError as StoreError, OpenError};

/// Reason why a statement cannot attach or detach a database, or cannot be about a relation of an attached one.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The database cannot be attached.
    #[error("{}", super::with_causes(.0))]
    Store(#[from] StoreError),
    /// No database is attached under the name.
    #[error("database {name:?} does not exist")]
    Missing {
        /// The name.
        name: String,
    },
    /// A schema has the name of an attached database, or would have it.
    #[error("{name:?} would be the name of a schema and of an attached database")]
    NameOfSchema {
        /// The name.
        name: String,
    },
    /// A statement that changes or defines a relation of an attached database.
    #[error("cannot change {relation:?}: database {database:?} is attached read-only")]
    ReadOnly {
        /// The relation, as the statement names it.
        relation: String,
        /// Name of the attached database.
        database: String,
    },
    /// A statement that changes or defines relations of one database, and a relation of another one.
    #[error("relation {relation:?} is not in database {database:?}, which the statement changes")]
    OtherDatabase {
        /// The relation, as the statement names it.
        relation: String,
        /// Name of the database that the statement changes.
        database: String,
    },
    /// A change of a second database in a transaction.
    #[error("cannot change database {database:?} in a transaction that has changed database {changed:?}")]
    SecondDatabase {
        /// Name of the database that the statement would change.
        database: String,
        /// Name of the database that the transaction has changed.
        changed: String,
    },
    /// A function of sequences in a statement that changes an attached database.
    #[error("{function} cannot be called in a statement that changes attached database {database:?}")]
    SequenceFunction {
        /// The function.
        function: &'static str,
        /// Name of the attached database.
        database: String,
    },
    /// A view that reads a relation of another database.
    #[error("a view of database {database:?} cannot read {relation:?}, which is in another database")]
    View {
        /// The relation, as the statement names it.
        relation: String,
        /// Name of the database of the view.
        database: String,
    },
    /// A view that calls a function whose result depends on the database in which the statement runs.
    #[error("view {view:?} calls {function}, which would read another database than that of the view")]
    ViewCalls {
        /// The view.
        view: String,
        /// The function.
        function: &'static str,
    },
    /// `USE` of an attached database.
    #[error("USE of attached database {name:?} is not supported")]
    Use {
        /// Name of the attached database.
        name: String,
    },
}

impl AttachError {
    /// What can be done about the error, as a sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NameOfSchema { .. } => Some("ATTACH ... AS name attaches a database under another name.".to_owned()),
            Self::Use { name } => Some(format!("Write names of its tables as {name}.table.")),
            Self::View { database, .. } if database == CATALOG => {
                Some("CREATE TABLE ... AS copies its rows.".to_owned())
            }
            Self::View { database, .. } => Some(format!("Write names of its relations as {database}.name.")),
            Self::OtherDatabase { .. } => {
                Some("A statement defines and changes relations of one database. Its queries read any.".to_owned())
            }
            Self::SecondDatabase { .. } => Some("A transaction can change one database. COMMIT ends it.".to_owned()),
            Self::SequenceFunction { .. } => Some("Call it in a statement of its own.".to_owned()),
            _ => None,
        }
    }

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Store(StoreError::NameTaken { .. }) => "42P04",
            Self::Store(StoreError::AlreadyAttached { .. } | StoreError::Itself { .. }) => "55006",
            Self::Store(StoreError::Open(error)) => open_state(error),
            Self::Missing { .. } => "3D000",
            Self::NameOfSchema { .. } => "42P06",
            Self::ReadOnly { .. } => "25006",
            Self::OtherDatabase { .. }
            | Self::SecondDatabase { .. }
            | Self::SequenceFunction { .. }
            | Self::View { .. }
            | Self::ViewCalls { .. }
            | Self::Use { .. } => "0A000",
        }
    }
}

/// SQLSTATE of an error from opening a database.
pub fn open_state(error: &OpenError) -> &'static str {
    match error {
        OpenError::Locked { .. } | OpenError::NotRegistered { .. } => "55006",
        OpenError::Creating { .. } | OpenError::Incomplete { .. } => "57P03",
        OpenError::Corrupt { .. } | OpenError::MissingLog { .. } | OpenError::MissingDelta { .. } => "XX001",
        OpenError::Missing { .. } | OpenError::Foreign { .. } | OpenError::Empty { .. } => "3D000",
        _ => "58030",
    }
}
