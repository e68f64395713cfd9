//! Errors about attached databases.

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
    /// A view that reads a relation of an attached database.
    #[error("a view cannot read {relation:?}, which is in another database")]
    View {
        /// The relation, as the statement names it.
        relation: String,
    },
    /// A view of an attached database that calls a function whose result depends on the session's own database.
    #[error("view {view:?} of an attached database calls {function}, which would read the session's own database")]
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
            Self::View { .. } => Some("CREATE TABLE ... AS copies its rows.".to_owned()),
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
            Self::View { .. } | Self::ViewCalls { .. } | Self::Use { .. } => "0A000",
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
