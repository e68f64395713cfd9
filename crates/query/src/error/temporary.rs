//! Errors about temporary tables, views and sequences.

/// Reason why a statement cannot create or change a temporary relation, or a permanent one that would depend on it.
#[derive(Debug, thiserror::Error)]
pub enum TemporaryError {
    /// A foreign key between a permanent and a temporary table.
    #[error("constraints on {kind} tables may reference only {kind} tables", kind = kind_of_table(*.is_temporary))]
    ForeignKey {
        /// Whether the table with the foreign key is the temporary one.
        is_temporary: bool,
    },
    /// A temporary relation in another schema than `pg_temp`.
    #[error("cannot create temporary relation in non-temporary schema")]
    OtherSchema,
    /// `SET SCHEMA` from or to `pg_temp`.
    #[error("cannot move objects into or out of temporary schemas")]
    Moved,
    /// `ON COMMIT` of a permanent table.
    #[error("ON COMMIT can only be used on temporary tables")]
    OnCommit,
    /// `ON COMMIT DELETE ROWS` of a table that another table references without `ON COMMIT DELETE ROWS`.
    #[error("unsupported ON COMMIT and foreign key combination")]
    OnCommitReferenced {
        /// The referencing table.
        child: String,
        /// The table with `ON COMMIT DELETE ROWS`.
        parent: String,
    },
    /// Either a sequence or the table that owns it is temporary, but not both.
    #[error("sequence must be in same schema as table it is linked to")]
    Owner,
}

impl TemporaryError {
    /// Detail of the error, as a sentence, if there is one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::OnCommitReferenced { child, parent } => {
                Some(format!("Table {child:?} references {parent:?}, but they do not have the same ON COMMIT setting."))
            }
            _ => None,
        }
    }

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::ForeignKey { .. } | Self::OtherSchema | Self::OnCommit => "42P16",
            Self::Moved | Self::OnCommitReferenced { .. } => "0A000",
            Self::Owner => "55000",
        }
    }
}

fn kind_of_table(is_temporary: bool) -> &'static str {
    if is_temporary { "temporary" } else { "permanent" }
}
