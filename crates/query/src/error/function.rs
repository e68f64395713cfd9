//! Errors about functions in SQL.

/// Reason why a statement cannot define, drop or call a function.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// A function that does not exist.
    #[error("function {name} does not exist")]
    NotFound {
        /// Name of the function, with the types of its parameters if the statement lists them.
        name: String,
    },
    /// A call with arguments that the function does not take.
    #[error("function {name}({types}) does not exist")]
    NoMatch {
        /// Name of the function.
        name: String,
        /// Types of the arguments.
        types: String,
    },
    /// A function that already exists.
    #[error("function {name:?} already exists with same argument types")]
    Exists {
        /// Name of the function.
        name: String,
    },
    /// A function that has the name of another one, with other types of parameters.
    #[error("a second function {name:?} with other argument types is not supported; DROP FUNCTION or another name is")]
    Overloaded {
        /// Name of the function.
        name: String,
    },
    /// A function that has the name of a built-in function.
    #[error("a function with the name of built-in function {name:?} is not supported; another name is")]
    BuiltIn {
        /// Name of the function.
        name: String,
    },
    /// A function whose body has another type than its result.
    #[error("return type mismatch in function declared to return {declared}")]
    Mismatch {
        /// Declared type of the result.
        declared: String,
        /// Type of the body.
        actual: String,
    },
    /// A function whose body has another number of columns than its result.
    #[error("return type mismatch in function declared to return {declared}")]
    Columns {
        /// Declared types of the result.
        declared: String,
        /// Number of the columns of the result.
        count: usize,
    },
    /// A replacement of a function with another type of its result.
    #[error("cannot change return type of existing function")]
    Returns,
    /// A function that returns rows, in an expression.
    #[error("function {name:?} in an expression is not supported; a function that returns rows is called in FROM")]
    Rows {
        /// Name of the function.
        name: String,
    },
    /// An argument that has another value each time it is computed, for a parameter that the body does not use exactly
    /// once.
    #[error(
        "a volatile argument {parameter:?} of function {name:?}, which does not use it exactly once, is not supported"
    )]
    VolatileArgument {
        /// Name of the function.
        name: String,
        /// Name of the parameter.
        parameter: String,
    },
    /// A query with `FROM` that calls a volatile function, such as `nextval`.
    #[error("a volatile function in the query of function {name:?} is not supported; one in a body without FROM is")]
    VolatileQuery {
        /// Name of the function.
        name: String,
    },
    /// An argument that names a relation which the body also reads.
    #[error(
        "argument {parameter:?} of function {name:?} cannot refer to {relation:?}, because the function reads a relation of this name"
    )]
    Captured {
        /// Name of the function.
        name: String,
        /// Name of the parameter.
        parameter: String,
        /// Name or alias of the relation.
        relation: String,
    },
    /// Calls of functions by functions that are nested too deeply, or do not end.
    #[error("stack depth limit exceeded: functions and views stand on more than {depth} others, or on themselves")]
    Depth {
        /// Maximum depth.
        depth: usize,
    },
    /// A call whose body with its arguments is too large.
    #[error(
        "statement too complex: the body of function {name:?} with its arguments has more than {parts} operators, columns and constants"
    )]
    Size {
        /// Name of the function.
        name: String,
        /// Maximum number of operators, columns and constants.
        parts: usize,
    },
}

impl FunctionError {
    /// Detail of the error, as a sentence, if there is one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Mismatch { actual, .. } => Some(format!("Actual return type is {actual}.")),
            Self::Columns { count: 1, .. } => Some("Final statement must return exactly one column.".to_owned()),
            Self::Columns { count, .. } => Some(format!("Final statement must return exactly {count} columns.")),
            _ => None,
        }
    }

    /// Hint for the user, as a sentence, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoMatch { .. } => Some(super::NO_MATCH_HINT.to_owned()),
            Self::Captured { .. } => Some("Give the relation in the statement another alias.".to_owned()),
            Self::Returns => Some("Use DROP FUNCTION first.".to_owned()),
            Self::VolatileArgument { name, .. } => {
                Some(format!("Compute the argument of {name} in a subquery in FROM first."))
            }
            _ => None,
        }
    }

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::NoMatch { .. } => "42883",
            Self::Exists { .. } => "42723",
            Self::Overloaded { .. }
            | Self::BuiltIn { .. }
            | Self::VolatileArgument { .. }
            | Self::Rows { .. }
            | Self::VolatileQuery { .. }
            | Self::Captured { .. } => "0A000",
            Self::Mismatch { .. } | Self::Columns { .. } | Self::Returns => "42P13",
            Self::Depth { .. } | Self::Size { .. } => "54001",
        }
    }
}
