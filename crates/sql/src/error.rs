//! Errors of SQL texts.

use datafusion_common::DataFusionError;
use datafusion_sql::sqlparser::parser::ParserError;

/// Reason why a text is not a statement that can run. The message makes sense without its source errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// Text that is not a valid statement.
    #[error("syntax error: {message}")]
    Syntax {
        /// What the parser expected and found, with line and column.
        message: String,
        /// Position in the text: line, then column, both counted from one.
        position: Option<(u64, u64)>,
    },
    /// A statement, or a part of one, that is not supported.
    #[error("{what} is not supported; {allowed}")]
    Unsupported {
        /// What was requested.
        what: String,
        /// What is supported instead.
        allowed: String,
    },
    /// A column that the table of a statement does not have.
    #[error("column {name:?} does not exist")]
    NoColumn {
        /// Name of the column, after the name of its table.
        name: String,
    },
    /// A name that a statement specifies more than once.
    #[error("{kind} {name:?} is specified more than once")]
    Duplicate {
        /// Kind of object: `column` or `table name`.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// Values that do not match the parameters of a statement.
    #[error("the statement has {wanted} parameters, {given} values are given{}", without_value(.missing))]
    Parameters {
        /// Number of parameters of the statement.
        wanted: usize,
        /// Number of values given.
        given: usize,
        /// Names of parameters without a value.
        missing: String,
    },
    /// An error of DataFusion's own parser, or a name with more parts than a table's.
    #[error("{}", .0.find_root().message())]
    Engine(#[from] DataFusionError),
}

impl SqlError {
    /// Error about a part of a statement that is not supported, with what is supported instead.
    pub fn unsupported(what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), allowed: allowed.into() }
    }

    /// Position of the error in the text: line, then column, both counted from one.
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

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "42601",
            Self::Unsupported { .. } => "0A000",
            Self::NoColumn { .. } => "42703",
            Self::Duplicate { kind: "column", .. } => "42701",
            Self::Duplicate { .. } => "42712",
            Self::Parameters { .. } => "08P01",
            Self::Engine(error) => match error.find_root() {
                DataFusionError::SQL(..) => "42601",
                _ => "42000",
            },
        }
    }
}

fn without_value(missing: &str) -> String {
    if missing.is_empty() { String::new() } else { format!("; {missing} has no value") }
}

impl From<ParserError> for SqlError {
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

/// Line and column at the end of a parser message, such as `... at Line: 3, Column: 14`.
fn position_in(message: &str) -> Option<(u64, u64)> {
    let (_, place) = message.rsplit_once("Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    let digits = column.find(|c: char| !c.is_ascii_digit()).unwrap_or(column.len());
    Some((line.parse().ok()?, column[..digits].parse().ok()?))
}

/// Result of an operation on SQL text.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn positions_are_read_from_messages() {
        assert_eq!(position_in("Expected: x, found: y at Line: 3, Column: 14"), Some((3, 14)));
        assert_eq!(position_in("Expected: x, found: EOF"), None);
    }

    #[test]
    fn errors_of_datafusion_have_states_and_positions() {
        let error = parse("RESET 5").unwrap_err();
        assert!(matches!(error, SqlError::Engine(_)));
        assert_eq!((error.sqlstate(), error.position()), ("42601", Some((1, 7))));
        let error = parse("DROP TABLE a.b.c.d").unwrap_err();
        assert_eq!((error.sqlstate(), error.position()), ("42000", None));
        assert!(error.to_string().contains("'a.b.c.d'"), "{error}");
    }
}
