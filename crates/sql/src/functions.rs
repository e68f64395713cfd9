//! Definitions of functions in SQL.

use std::fmt::{self, Display, Formatter};

use crate::syntax::quoted;

/// The part of a `CREATE FUNCTION` statement after the name of the function. [`Display`] writes it as SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDefinition {
    /// The parameters, in order. Those with a default value are last.
    pub parameters: Vec<FunctionParameter>,
    /// The result.
    pub returns: FunctionResult,
    /// Declared volatility.
    pub volatility: Volatility,
    /// Whether the result is null if an argument is null.
    pub is_strict: bool,
    /// The query that computes the result.
    pub body: String,
}

/// What a function returns. Types are SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionResult {
    /// A value of this type.
    Value(String),
    /// `RETURNS SETOF type`: rows of one column.
    Set(String),
    /// `RETURNS TABLE (column type, ...)`: rows of columns with names.
    Table(Vec<(String, String)>),
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionParameter {
    /// Name of the parameter. The body can also refer to it by its number, as in `$1`.
    pub name: Option<String>,
    /// Type of the parameter, as SQL.
    pub data_type: String,
    /// Value of the parameter in calls that omit it, as SQL.
    pub default: Option<String>,
}

/// Declared volatility of a function. The planner uses the volatility of the function's body instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Volatility {
    /// `IMMUTABLE`: the result depends on the arguments only.
    Immutable,
    /// `STABLE`: the result is the same within a statement.
    Stable,
    /// `VOLATILE`: each call may have another result.
    #[default]
    Volatile,
}

impl Display for Volatility {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Immutable => "IMMUTABLE",
            Self::Stable => "STABLE",
            Self::Volatile => "VOLATILE",
        })
    }
}

impl Display for FunctionResult {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(data_type) => formatter.write_str(data_type),
            Self::Set(data_type) => write!(formatter, "SETOF {data_type}"),
            Self::Table(columns) => {
                let columns = columns.iter().map(|(name, data_type)| format!("{} {data_type}", quoted(name)));
                write!(formatter, "TABLE ({})", columns.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl FunctionResult {
    /// The types of the value or of the columns.
    pub fn types(&self) -> Vec<String> {
        match self {
            Self::Value(data_type) | Self::Set(data_type) => vec![data_type.clone()],
            Self::Table(columns) => columns.iter().map(|(_, data_type)| data_type.clone()).collect(),
        }
    }
}

impl Display for FunctionParameter {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(formatter, "{} ", quoted(name))?;
        }
        formatter.write_str(&self.data_type)?;
        match &self.default {
            Some(default) => write!(formatter, " DEFAULT {default}"),
            None => Ok(()),
        }
    }
}

impl Display for FunctionDefinition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { parameters, returns, volatility, is_strict, body } = self;
        let parameters: Vec<String> = parameters.iter().map(ToString::to_string).collect();
        write!(formatter, "({}) RETURNS {returns} LANGUAGE SQL {volatility}", parameters.join(", "))?;
        if *is_strict {
            formatter.write_str(" STRICT")?;
        }
        write!(formatter, " AS '{}'", body.replace('\'', "''"))
    }
}

impl FunctionDefinition {
    /// Names of the columns that stand for the parameters in [`FunctionDefinition::query`].
    pub fn columns(&self) -> impl Iterator<Item = String> {
        let unnamed = |index: usize| format!("${}", index + 1);
        self.parameters.iter().enumerate().map(move |(index, parameter)| match &parameter.name {
            Some(name) => name.clone(),
            None => unnamed(index),
        })
    }

    /// The types of the parameters, as SQL.
    pub fn types(&self) -> Vec<String> {
        self.parameters.iter().map(|parameter| parameter.data_type.clone()).collect()
    }
}
