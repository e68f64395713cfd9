//! Violations of constraints.

/// Violation of a constraint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A null for a NOT NULL column.
    #[error("null value in column {column:?} of relation {table:?} violates not-null constraint")]
    Null {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A column that is to become NOT NULL, for example as part of a new primary key, but holds nulls.
    #[error("column {column:?} of relation {table:?} contains null values")]
    Nulls {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A row that fails a check constraint.
    #[error("new row for relation {table:?} violates check constraint {constraint:?}")]
    Check {
        /// Name of the table.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Values of the columns that the constraint reads, such as `(price)=(-1)`.
        row: String,
    },
    /// A row of a table that fails a new check constraint.
    #[error("check constraint {constraint:?} of relation {table:?} is violated by some row")]
    CheckOfTable {
        /// Name of the table.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Values of the row, such as `(id, price)=(7, -1)`.
        row: String,
    },
    /// A key that another row already has.
    #[error("duplicate key value violates unique constraint {constraint:?}")]
    NotUnique {
        /// Name of the table.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Columns of the key, with their values, such as `(id)=(7)`.
        key: String,
        /// Whether the other row was committed after the transaction began, and so is not visible in it.
        is_concurrent: bool,
    },
    /// A key that two rows of a table have, so that it cannot become unique.
    #[error("could not create unique index {constraint:?}")]
    NotUniqueInTable {
        /// Name of the table.
        table: String,
        /// Name of the constraint.
        constraint: String,
        /// Columns of the key, with their values.
        key: String,
    },
    /// A foreign key whose referenced row does not exist.
    #[error("insert or update on table {table:?} violates foreign key constraint {constraint:?}")]
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
    #[error("update or delete on table {table:?} violates foreign key constraint {constraint:?} on table {by:?}")]
    StillReferenced {
        /// Name of the referenced table.
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
            Self::Null { table, .. }
            | Self::Nulls { table, .. }
            | Self::Check { table, .. }
            | Self::CheckOfTable { table, .. }
            | Self::NotUnique { table, .. }
            | Self::NotUniqueInTable { table, .. } => vec![table],
            Self::NotReferenced { table, referenced: other, .. } | Self::StillReferenced { table, by: other, .. } => {
                vec![table, other]
            }
        }
    }

    /// Detail of the violation, as a sentence, if there is one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Null { .. } | Self::Nulls { .. } => None,
            Self::Check { row, .. } | Self::CheckOfTable { row, .. } => Some(format!("Failing row contains {row}.")),
            Self::NotUnique { key, .. } => Some(format!("Key {key} already exists.")),
            Self::NotUniqueInTable { key, .. } => Some(format!("Key {key} is duplicated.")),
            Self::NotReferenced { key, referenced, .. } => {
                Some(format!("Key {key} is not present in table {referenced:?}."))
            }
            Self::StillReferenced { key, by, .. } => Some(format!("Key {key} is still referenced from table {by:?}.")),
        }
    }

    /// SQLSTATE of this violation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Null { .. } | Self::Nulls { .. } => "23502",
            Self::Check { .. } | Self::CheckOfTable { .. } => "23514",
            Self::NotUnique { .. } | Self::NotUniqueInTable { .. } => "23505",
            Self::NotReferenced { .. } | Self::StillReferenced { .. } => "23503",
        }
    }
}
