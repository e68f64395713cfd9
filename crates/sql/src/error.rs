//! Errors of parsing and converting SQL.

use datafusion_common::DataFusionError;
use datafusion_sql::sqlparser::parser::ParserError;

use crate::settings::Setting;

/// Kind of object that an error is about, named as in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A table or a view.
    Relation,
    /// A table.
    Table,
    /// A view.
    View,
    /// An index.
    Index,
    /// A sequence.
    Sequence,
    /// A function.
    Function,
    /// A schema.
    Schema,
    /// A column.
    Column,
    /// A constraint.
    Constraint,
    /// A prepared statement.
    PreparedStatement,
    /// A file outside the database.
    File,
    /// The name or alias of a table in a statement.
    TableName,
}

impl ObjectKind {
    /// Name of the kind, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relation => "relation",
            Self::Table => "table",
            Self::View => "view",
            Self::Index => "index",
            Self::Sequence => "sequence",
            Self::Function => "function",
            Self::Schema => "schema",
            Self::Column => "column",
            Self::Constraint => "constraint",
            Self::PreparedStatement => "prepared statement",
            Self::File => "file",
            Self::TableName => "table name",
        }
    }
}

impl std::fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason why a statement cannot be parsed or converted. The message is complete without the source errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// Text that is not a valid statement.
    #[error("{message}")]
    Syntax {
        /// What is wrong, such as `syntax error at or near "FORM"`.
        message: String,
        /// What the parser expected instead, if known.
        expected: Option<String>,
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
    #[error("column {name:?} of relation {relation:?} does not exist")]
    NoColumn {
        /// Name of the column.
        name: String,
        /// Name of the table.
        relation: String,
    },
    /// A value for a column that is `GENERATED ALWAYS`.
    #[error("{}", generated_always(.column, *.is_update))]
    GeneratedAlways {
        /// Name of the column.
        column: String,
        /// Whether the statement is an `UPDATE`, not an `INSERT`.
        is_update: bool,
        /// Whether the column is an identity column. Otherwise an expression computes its values.
        is_identity: bool,
    },
    /// A reference to a relation that is not visible in this part of the statement.
    #[error("invalid reference to FROM-clause entry for table {table:?}")]
    HiddenTable {
        /// Name or alias of the relation.
        table: String,
    },
    /// A reference to a statement in `WITH` that changes rows and has no `RETURNING`.
    #[error("WITH query {name:?} does not have a RETURNING clause")]
    NoReturning {
        /// Name of the statement in `WITH`.
        name: String,
    },
    /// A statement that changes rows in a `WITH` that is not at the top level, for example in a subquery.
    #[error("WITH clause containing a data-modifying statement must be at the top level")]
    NestedModifyingWith {
        /// Name of the statement in `WITH`.
        name: String,
    },
    /// An invalid definition of a function.
    #[error("{message}")]
    Function {
        /// What is wrong, such as `no function body specified`.
        message: String,
    },
    /// A parameter that a function does not have.
    #[error("there is no parameter {parameter}")]
    NoParameter {
        /// The parameter, such as `$3`.
        parameter: String,
    },
    /// A clause of a call that only aggregates and window functions have.
    #[error("{clause} specified, but {function} is not {}", if *clause == "OVER" { "a window function nor an aggregate function" } else { "an aggregate function" })]
    NotAnAggregate {
        /// The clause, such as `FILTER`.
        clause: &'static str,
        /// Name of the function.
        function: String,
    },
    /// A window that no WINDOW clause defines.
    #[error("window {name:?} does not exist")]
    NoWindow {
        /// Name of the window.
        name: String,
    },
    /// A window definition that overrides a part of another one that cannot be overridden.
    #[error("{message}")]
    Window {
        /// What is wrong, such as `cannot override ORDER BY clause of window "w"`.
        message: String,
    },
    /// A name that no schema can have.
    #[error("unacceptable schema name {name:?}")]
    ReservedSchema {
        /// The name.
        name: String,
    },
    /// A name that no attached database can have.
    #[error("unacceptable database name {name:?}")]
    ReservedDatabase {
        /// The name.
        name: String,
    },
    /// A name that several relations of a query have.
    #[error("table reference {name:?} is ambiguous")]
    AmbiguousTable {
        /// The name, without a schema.
        name: String,
    },
    /// A name that a statement specifies more than once.
    #[error("{kind} {name:?} specified more than once")]
    Duplicate {
        /// Kind of object: a column or a table name.
        kind: ObjectKind,
        /// Name of the object.
        name: String,
    },
    /// Values that do not match the parameters of a statement.
    #[error("wrong number of parameters: expected {expected}, got {found}{}", without_value(.missing))]
    Parameters {
        /// Number of parameters of the statement.
        expected: usize,
        /// Number of values given.
        found: usize,
        /// Names of parameters without a value.
        missing: String,
    },
    /// An invalid value of an option of `COPY`, with PostgreSQL's message.
    #[error("{message}")]
    CopyOption {
        /// What is wrong, such as `COPY delimiter and quote must be different`.
        message: String,
        /// SQLSTATE of the error.
        sqlstate: &'static str,
    },
    /// An invalid value of a setting.
    #[error("invalid value for parameter \"{}\": \"{value}\"", .setting.name())]
    SettingValue {
        /// The setting.
        setting: Setting,
        /// The value.
        value: String,
    },
    /// `RESET` of a setting that has no default.
    #[error("parameter \"{}\" cannot be reset", .setting.name())]
    NoReset {
        /// The setting.
        setting: Setting,
    },
    /// An error of DataFusion, such as a table name with more than three parts.
    #[error("{}", .0.find_root().message())]
    DataFusion(DataFusionError),
}

impl SqlError {
    /// Error for unsupported syntax. `allowed` completes the message after "is not supported; ", and therefore often
    /// ends with "is" or "are": "OUTPUT in MERGE is not supported; RETURNING is".
    pub fn unsupported(what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), allowed: allowed.into() }
    }

    /// Error for an invalid value of an option of `COPY`.
    pub(crate) fn copy_option(message: impl Into<String>) -> Self {
        Self::CopyOption { message: message.into(), sqlstate: "22023" }
    }

    /// Error for an option of `COPY` whose value is not a single one-byte character.
    pub fn not_a_character(option: &str) -> Self {
        let message = format!("COPY {option} must be a single one-byte character");
        Self::CopyOption { message, sqlstate: "0A000" }
    }

    /// Syntax error without a position.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::Syntax { message: message.into(), expected: None, position: None }
    }

    /// Error for an invalid definition of a function.
    pub(crate) fn function(message: impl Into<String>) -> Self {
        Self::Function { message: message.into() }
    }

    /// Position of the error in the text: line, then column, both counted from one.
    pub fn position(&self) -> Option<(u64, u64)> {
        match self {
            Self::Syntax { position, .. } => *position,
            Self::DataFusion(error) => {
                let start = error.diagnostic()?.span?.start;
                Some((start.line, start.column))
            }
            _ => None,
        }
    }

    /// Detail of the error as a sentence, such as `Expected: FROM.`. Returns `None` if the message is sufficient.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Syntax { expected, .. } => Some(format!("Expected: {}.", expected.as_ref()?)),
            Self::ReservedSchema { name } if name.starts_with("pg_") => {
                Some("The prefix \"pg_\" is reserved for system schemas.".to_owned())
            }
            Self::ReservedSchema { .. } => Some("The system tables are in this schema.".to_owned()),
            Self::NestedModifyingWith { name } => Some(format!("WITH query {name:?} changes rows.")),
            Self::GeneratedAlways { column, is_identity: true, .. } => {
                Some(format!("Column {column:?} is an identity column defined as GENERATED ALWAYS."))
            }
            Self::GeneratedAlways { column, is_identity: false, .. } => {
                Some(format!("Column {column:?} is a generated column."))
            }
            _ => None,
        }
    }

    /// Advice to the user, in sentences. Returns `None` for errors without advice.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::AmbiguousTable { name } => Some(format!(
                "Several relations have this name. Write schema.{name} before the column, or give the relations aliases."
            )),
            // The reference lists the same values, with backquotes around code.
            Self::SettingValue { setting, .. } => {
                Some(format!("Available values: {}.", setting.info().values.replace('`', "")))
            }
            Self::GeneratedAlways { is_identity: true, is_update: false, .. } => {
                Some("Use OVERRIDING SYSTEM VALUE to override.".to_owned())
            }
            Self::HiddenTable { table } => Some(format!(
                "There is an entry for table {table:?}, but it cannot be referenced from this part of the query."
            )),
            _ => None,
        }
    }

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "42601",
            Self::Unsupported { .. } | Self::NoReturning { .. } | Self::NestedModifyingWith { .. } => "0A000",
            Self::NoColumn { .. } => "42703",
            Self::GeneratedAlways { .. } => "428C9",
            Self::HiddenTable { .. } => "42P01",
            Self::Function { .. } => "42P13",
            Self::NotAnAggregate { .. } => "42809",
            Self::NoParameter { .. } => "42P02",
            Self::NoWindow { .. } => "42704",
            Self::Window { .. } => "42P20",
            Self::ReservedSchema { .. } | Self::ReservedDatabase { .. } => "42939",
            Self::AmbiguousTable { .. } => "42P09",
            Self::Duplicate { kind: ObjectKind::Column, .. } => "42701",
            Self::Duplicate { .. } => "42712",
            Self::Parameters { .. } => "08P01",
            Self::CopyOption { sqlstate, .. } => sqlstate,
            Self::SettingValue { .. } => "22023",
            Self::NoReset { .. } => "55P02",
            Self::DataFusion(_) => "42000",
        }
    }
}

fn generated_always(column: &str, is_update: bool) -> String {
    match is_update {
        true => format!("column {column:?} can only be updated to DEFAULT"),
        false => format!("cannot insert a non-DEFAULT value into column {column:?}"),
    }
}

fn without_value(missing: &str) -> String {
    if missing.is_empty() { String::new() } else { format!("; {missing} has no value") }
}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> Self {
        match error {
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => syntax_error(&message),
            ParserError::RecursionLimitExceeded => {
                Self::syntax("syntax error: more than 1000 levels of parentheses, CASE, functions or subqueries")
            }
        }
    }
}

impl From<DataFusionError> for SqlError {
    /// Converts an error of DataFusion's parser to a syntax error.
    fn from(error: DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::SQL(parser, _) => parser.as_ref().clone().into(),
            _ => Self::DataFusion(error),
        }
    }
}

/// Converts a message of the parser, such as `Expected: FROM, found: form at Line: 1, Column: 10`.
fn syntax_error(message: &str) -> SqlError {
    let position = position_in(message);
    let text = message.rsplit_once(" at Line: ").filter(|_| position.is_some()).map_or(message, |(text, _)| text);
    let parts = text.strip_prefix("Expected: ").and_then(|text| text.rsplit_once(", found: "));
    let (message, expected) = match parts {
        Some((expected, "EOF")) => ("syntax error at end of input".to_owned(), Some(expected.to_owned())),
        Some((expected, found)) => (format!("syntax error at or near \"{found}\""), Some(expected.to_owned())),
        // The parser requires one character for each of these options, and its message does not name the option.
        None if text.starts_with("Expect a char, found ") => {
            return SqlError::not_a_character("delimiter, quote or escape");
        }
        None if text == "Unterminated string literal" => ("unterminated quoted string".to_owned(), None),
        None => (format!("syntax error: {text}"), None),
    };
    SqlError::Syntax { message, expected, position }
}

/// Line and column at the end of a parser message, such as `... at Line: 3, Column: 14`.
fn position_in(message: &str) -> Option<(u64, u64)> {
    let (_, index) = message.rsplit_once("Line: ")?;
    let (line, column) = index.split_once(", Column: ")?;
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
    fn errors_of_datafusion_have_a_sqlstate_and_a_position_if_known() {
        let error = parse("RESET 5").unwrap_err();
        assert_eq!(error.to_string(), "syntax error at or near \"5\"");
        assert_eq!((error.sqlstate(), error.position()), ("42601", Some((1, 7))));
        let error = parse("DROP TABLE a.b.c.d").unwrap_err();
        assert_eq!((error.sqlstate(), error.position()), ("42000", None));
        assert!(error.to_string().contains("'a.b.c.d'"), "{error}");
    }
}
