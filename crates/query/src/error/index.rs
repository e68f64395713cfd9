//! Errors about the expressions and predicates of indexes.

use std::fmt::{self, Display, Formatter};

/// Part of the definition of an index that is an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexClause {
    /// An indexed expression.
    Expression,
    /// The condition of a partial index.
    Predicate,
}

impl Display for IndexClause {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Expression => "expression",
            Self::Predicate => "predicate",
        })
    }
}

/// Reason why an index cannot have an expression or a predicate.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A function that may return other results for the same arguments.
    #[error("functions in index {clause} must be marked IMMUTABLE")]
    NotImmutable {
        /// Where the function is.
        clause: IndexClause,
    },
    /// A subquery.
    #[error("cannot use subquery in index {clause}")]
    Subquery {
        /// Where the subquery is.
        clause: IndexClause,
    },
    /// An aggregate function.
    #[error("aggregate functions are not allowed in index {clause}s")]
    Aggregate {
        /// Where the function is.
        clause: IndexClause,
    },
    /// A window function.
    #[error("window functions are not allowed in index {clause}s")]
    Window {
        /// Where the function is.
        clause: IndexClause,
    },
    /// A parameter, which would never get a value.
    #[error("parameters are not allowed in index {clause}s")]
    Parameter {
        /// Where the parameter is.
        clause: IndexClause,
    },
    /// A predicate that is not Boolean.
    #[error("argument of WHERE must be type boolean, not type {found}")]
    NotBoolean {
        /// Type of the predicate.
        found: String,
    },
}

impl IndexError {
    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::NotImmutable { .. } => "42P17",
            Self::Subquery { .. } => "0A000",
            Self::Aggregate { .. } => "42803",
            Self::Window { .. } => "42P20",
            Self::Parameter { .. } => "42P02",
            Self::NotBoolean { .. } => "42804",
        }
    }
}
