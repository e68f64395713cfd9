//! Errors about generated columns.

/// Reason why a statement cannot declare or change a generated column.
#[derive(Debug, thiserror::Error)]
pub enum GeneratedColumnError {
    /// An expression with a function that may return other results for the same arguments.
    #[error("generation expression is not immutable")]
    NotImmutable,
    /// An expression that uses a generated column, possibly its own column.
    #[error("cannot use generated column {column:?} in column generation expression")]
    UsesGenerated {
        /// Name of the column that the expression uses.
        column: String,
    },
    /// An expression whose type does not fit its column.
    #[error("column {column:?} is of type {logical_type} but expression is of type {expression}")]
    Type {
        /// Name of the column.
        column: String,
        /// Type of the column.
        logical_type: String,
        /// Type of the expression.
        expression: String,
    },
    /// `DROP EXPRESSION` of a column that is not generated.
    #[error("column {column:?} of relation {table:?} is not a stored generated column")]
    NotGenerated {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A default or an identity for a generated column.
    #[error("column {column:?} of relation {table:?} is a generated column")]
    NoDefault {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A new type of a column that an expression uses.
    #[error("cannot alter type of a column used by a generated column")]
    TypeInUse {
        /// Name of the column.
        column: String,
        /// Name of the generated column that uses it.
        generated: String,
    },
    /// `USING` for a generated column, whose values come from its expression.
    #[error("cannot specify USING when altering type of generated column")]
    Using {
        /// Name of the column.
        column: String,
    },
    /// A generated column among the columns of a `COPY`.
    #[error("column {column:?} is a generated column")]
    Copied {
        /// Name of the column.
        column: String,
    },
    /// A foreign key that would set a generated column to null.
    #[error("invalid ON DELETE action for foreign key constraint containing generated column")]
    ForeignKeyAction,
}

impl GeneratedColumnError {
    /// Detail of the error, as a sentence, if there is one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::UsesGenerated { .. } => {
                Some("A generated column cannot reference another generated column.".to_owned())
            }
            Self::TypeInUse { column, generated } => {
                Some(format!("Column {column:?} is used by generated column {generated:?}."))
            }
            Self::Using { column } => Some(format!("Column {column:?} is a generated column.")),
            Self::Copied { .. } => Some("Generated columns cannot be used in COPY.".to_owned()),
            _ => None,
        }
    }

    /// Hint for the user, as a sentence, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Type { .. } => Some("You will need to rewrite or cast the expression.".to_owned()),
            Self::NoDefault { .. } => Some("Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead.".to_owned()),
            _ => None,
        }
    }

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::NotImmutable | Self::UsesGenerated { .. } => "42P17",
            Self::Type { .. } => "42804",
            Self::NotGenerated { .. } => "55000",
            Self::NoDefault { .. } | Self::ForeignKeyAction => "42601",
            Self::TypeInUse { .. } => "0A000",
            Self::Using { .. } => "42611",
            Self::Copied { .. } => "42P10",
        }
    }
}
