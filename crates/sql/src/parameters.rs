//! Parameters of a statement and their values. Positional parameters are `$1`, `$2` and so on, or `?`, which takes the
//! next number. Named parameters are `$name`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion_sql::parser::{ExplainStatement, Statement as PlannerStatement};
use datafusion_sql::sqlparser::ast::{self, Expr, UnaryOperator, visit_expressions_mut};
use datafusion_sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

use crate::dialect::{Grammar, parse_expression};
use crate::error::{Result, SqlError};

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Null, of any type.
    Null,
    /// `boolean`
    Boolean(bool),
    /// `bigint`
    Integer(i64),
    /// `decimal(precision, scale)`, as an unscaled integer.
    Decimal {
        /// The number times ten to the power of `scale`.
        unscaled: i128,
        /// Number of digits in total, 1 to 38.
        precision: u8,
        /// Digits after the decimal point.
        scale: i8,
    },
    /// `double precision`
    Double(f64),
    /// `varchar`
    Text(String),
    /// `bytea`
    Bytes(Vec<u8>),
    /// `date`, in days since 1970-01-01.
    Date(i32),
    /// `timestamp`, in microseconds since 1970-01-01.
    Timestamp(i64),
    /// `timestamptz`, in microseconds since 1970-01-01 UTC.
    TimestampTz(i64),
    /// `time`, in microseconds since midnight.
    Time(i64),
    /// `interval`. Days and months have no fixed length, so the three parts are separate.
    Interval {
        /// Whole months.
        months: i32,
        /// Whole days.
        days: i32,
        /// Rest of the interval, in nanoseconds.
        nanoseconds: i64,
    },
    /// Array of values of one type, nulls or arrays. Numbers of several types are converted to the widest type.
    Array(Vec<Value>),
}

/// The values of a statement's parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameters {
    /// Values for `$1`, `$2` and so on.
    Positional(Vec<Value>),
    /// Values by name. The value for `$name` has the key `name`.
    Named(HashMap<String, Value>),
}

impl Default for Parameters {
    fn default() -> Self {
        Self::Positional(Vec::new())
    }
}

impl Parameters {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Positional(values) => values.len(),
            Self::Named(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the named parameters of a statement with numbered ones, because the planner does not support names in
    /// the rows of an INSERT. Returns the new statement and the values by position. Returns `None` if the values are
    /// positional, or if the planner supports names in this statement.
    ///
    /// # Errors
    /// If a parameter has no value, or a value has no parameter of the statement.
    pub fn to_positional(&self, statement: &PlannerStatement) -> Result<Option<(PlannerStatement, Self)>> {
        // The planner supports names in EXPLAIN and COPY.
        let (Self::Named(_), PlannerStatement::Statement(_)) = (self, statement) else { return Ok(None) };
        self.check(&parameter_names(statement))?;
        Ok(self.part_to_positional(statement))
    }

    /// Replaces named parameters like [`Parameters::to_positional`], in a part of a statement. A part need not use all
    /// parameters of the statement, so values without a parameter are no error here.
    pub fn part_to_positional(&self, statement: &PlannerStatement) -> Option<(PlannerStatement, Self)> {
        let Self::Named(named) = self else { return None };
        let PlannerStatement::Statement(ast) = statement else { return None };
        let mut ast = ast.clone();
        let mut names: Vec<String> = Vec::new();
        visit_parameter_names(&mut ast, |name| {
            let index = names.iter().position(|other| other == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            *name = format!("${}", index + 1);
        });
        let value = |name: &String| named.get(name.strip_prefix('$').unwrap_or(name)).cloned().unwrap_or(Value::Null);
        let values = names.iter().map(value).collect();
        Some((PlannerStatement::Statement(ast), Self::Positional(values)))
    }

    /// Casts the parameters whose values are intervals, times or arrays to these types. The planner chooses operators
    /// such as `date + interval`, and the rows of `unnest`, by the types of the operands. It does not know the types of
    /// parameters. Returns `None` if no value has such a type.
    pub fn with_casts(&self, statement: &PlannerStatement) -> Option<PlannerStatement> {
        let type_of = |value: &Value| match value {
            Value::Interval { .. } | Value::Time(_) | Value::Array(_) => sql_type(value),
            _ => None,
        };
        let has_type = |value: &Value| type_of(value).is_some();
        let needs_casts = match self {
            Self::Positional(values) => values.iter().any(has_type),
            Self::Named(values) => values.values().any(has_type),
        };
        match statement {
            PlannerStatement::Statement(ast) if needs_casts => {
                let mut ast = ast.clone();
                let _: ControlFlow<()> = visit_expressions_mut(&mut ast, |expression| {
                    let name = placeholder(expression);
                    let value = name.as_ref().and_then(|name| match self {
                        Self::Positional(values) => values.get(parameter_index(name)?),
                        Self::Named(values) => values.get(name.strip_prefix('$')?),
                    });
                    if let (Some(name), Some(sql_type)) = (&name, value.and_then(type_of))
                        && let Ok(cast) = parse_expression(&format!("CAST({name} AS {sql_type})"))
                    {
                        *expression = cast;
                    }
                    ControlFlow::Continue(())
                });
                Some(PlannerStatement::Statement(ast))
            }
            PlannerStatement::Explain(explain) if needs_casts => {
                let statement = Box::new(self.with_casts(&explain.statement)?);
                Some(PlannerStatement::Explain(ExplainStatement { statement, ..explain.clone() }))
            }
            _ => None,
        }
    }

    /// Checks that these are values for exactly the parameters of all parts of a statement.
    ///
    /// # Errors
    /// If a parameter of a part has no value, or a value has no parameter in any part.
    pub fn check_parts(&self, parts: &[&PlannerStatement]) -> Result<()> {
        self.check(&parts.iter().flat_map(|part| parameter_names(part)).collect())
    }

    /// Checks that these are values for exactly the parameters in `expected`, whose names include the `$`.
    ///
    /// # Errors
    /// If a parameter has no value, or a value has no parameter.
    pub fn check(&self, expected: &BTreeSet<String>) -> Result<()> {
        let has_value = |parameter: &&String| {
            let name = parameter.strip_prefix('$').unwrap_or(parameter);
            match self {
                Self::Positional(values) => name.parse().is_ok_and(|index| (1..=values.len()).contains(&index)),
                Self::Named(values) => values.contains_key(name),
            }
        };
        let missing: Vec<_> = expected.iter().filter(|parameter| !has_value(parameter)).map(String::as_str).collect();
        if !missing.is_empty() || expected.len() != self.len() {
            let missing = missing.join(", ");
            return Err(SqlError::Parameters { expected: expected.len(), found: self.len(), missing });
        }
        Ok(())
    }
}

/// Names of the parameters of a statement, each with its `$`.
fn parameter_names(statement: &PlannerStatement) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let PlannerStatement::Statement(ast) = statement {
        visit_parameter_names(&mut ast.clone(), |name| {
            names.insert(name.clone());
        });
    }
    names
}

fn visit_parameter_names(ast: &mut ast::Statement, mut visit: impl FnMut(&mut String)) {
    let _: ControlFlow<()> = visit_expressions_mut(ast, |expression| {
        if let Expr::Value(value) = expression
            && let ast::Value::Placeholder(name) = &mut value.value
        {
            visit(name);
        }
        ControlFlow::Continue(())
    });
}

/// SQL type of a value. `None` for null, decimals, and arrays whose values have several types.
fn sql_type(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null | Value::Decimal { .. } => return None,
        Value::Boolean(_) => "boolean".to_owned(),
        Value::Integer(_) => "bigint".to_owned(),
        Value::Double(_) => "double precision".to_owned(),
        Value::Text(_) => "text".to_owned(),
        Value::Bytes(_) => "bytea".to_owned(),
        Value::Date(_) => "date".to_owned(),
        Value::Timestamp(_) => "timestamp".to_owned(),
        Value::TimestampTz(_) => "timestamptz".to_owned(),
        Value::Time(_) => "time".to_owned(),
        Value::Interval { .. } => "interval".to_owned(),
        Value::Array(values) => {
            let mut types = values.iter().filter(|value| **value != Value::Null).map(sql_type);
            let first = types.next()??;
            if !types.all(|other| other.as_ref() == Some(&first)) {
                return None;
            }
            format!("{first}[]")
        }
    })
}

/// Name of a parameter, with its `$`. Returns `None` if the expression is not a parameter.
fn placeholder(expression: &Expr) -> Option<String> {
    let Expr::Value(value) = expression else { return None };
    let ast::Value::Placeholder(name) = &value.value else { return None };
    Some(name.clone())
}

/// Index of a numbered parameter, given its name in a statement or plan: 0 for `$1`. Returns `None` for other names.
pub fn parameter_index(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// Value of a literal or a negated number. Returns `None` for other expressions.
pub fn literal(expression: &Expr) -> Option<Value> {
    match expression {
        Expr::Value(value) => match &value.value {
            ast::Value::Number(number, _) => parse_number(number),
            ast::Value::SingleQuotedString(text) => Some(Value::Text(text.clone())),
            ast::Value::Boolean(value) => Some(Value::Boolean(*value)),
            ast::Value::Null => Some(Value::Null),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr)? {
            Value::Integer(number) => Some(Value::Integer(-number)),
            Value::Decimal { unscaled, precision, scale } => {
                Some(Value::Decimal { unscaled: -unscaled, precision, scale })
            }
            _ => None,
        },
        _ => None,
    }
}

/// Parses a number. Returns `None` if it has an exponent or too many digits.
fn parse_number(text: &str) -> Option<Value> {
    let Some((whole, fraction)) = text.split_once('.') else {
        return Some(Value::Integer(text.parse().ok()?));
    };
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let precision = u8::try_from(digits.len().max(fraction.len()).max(1)).ok().filter(|precision| *precision <= 38)?;
    let unscaled = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    Some(Value::Decimal { unscaled, precision, scale: i8::try_from(fraction.len()).ok()? })
}

/// Index of the parameter that a placeholder such as `$1` refers to: 0 for `$1`. Returns `None` for other expressions.
pub fn parameter(expression: &Expr) -> Option<usize> {
    let Expr::Value(value) = expression else { return None };
    let ast::Value::Placeholder(name) = &value.value else { return None };
    parameter_index(name)
}

/// Replaces each `?` that is a parameter with `$1`, `$2` and so on. Numbering restarts with each statement.
pub(crate) fn number_question_marks(sql: &str) -> Cow<'_, str> {
    if !sql.contains('?') {
        return Cow::Borrowed(sql);
    }
    // The parser reports a better error for invalid tokens.
    let Ok(tokens) = Tokenizer::new(&Grammar, sql).tokenize_with_location() else {
        return Cow::Borrowed(sql);
    };
    let mut tokens_to_replace = tokens.iter().filter(|token| matches!(token.token, Token::Question | Token::SemiColon));
    let mut next = tokens_to_replace.next();
    let (mut location, mut number) = (Location { line: 1, column: 1 }, 0);
    let mut text = String::with_capacity(sql.len() + 8);
    for character in sql.chars() {
        match next.filter(|mark| mark.span.start == location).map(|mark| &mark.token) {
            Some(Token::Question) => {
                number += 1;
                text.push_str(&format!("${number}"));
                next = tokens_to_replace.next();
            }
            Some(_) => {
                number = 0;
                text.push(character);
                next = tokens_to_replace.next();
            }
            None => text.push(character),
        }
        match character {
            '\n' => location = Location { line: location.line + 1, column: 1 },
            _ => location.column += 1,
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::number_question_marks;

    #[test]
    fn question_marks_are_numbered_where_they_are_parameters() {
        let cases = [
            ("SELECT 1", "SELECT 1"),
            ("SELECT ?", "SELECT $1"),
            ("SELECT ?, '?',\n  \"é?\", ? -- ?\n + ?", "SELECT $1, '?',\n  \"é?\", $2 -- ?\n + $3"),
            ("VALUES (?,?)", "VALUES ($1,$2)"),
            ("SELECT ?, ?; SELECT ';', ?", "SELECT $1, $2; SELECT ';', $1"),
            ("SELECT '?", "SELECT '?"),
        ];
        for (text, expected) in cases {
            assert_eq!(number_question_marks(text), expected);
        }
    }
}
