//! Errors of DataFusion and Arrow in PostgreSQL's words.
//!
//! Most of their errors are text without fields, so names are parsed from the text. An unknown text is shown unchanged.

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::UNNAMED_TABLE;
use taut_sql::{CATALOG, UNQUALIFIED};

use super::{NO_MATCH_HINT, with_causes};

/// Maximum number of columns in a detail.
const COLUMNS_MAX: usize = 30;
/// End of DataFusion's messages about its own bugs.
const BUG_REPORT: &str = "\nThis issue was likely caused by a bug in DataFusion's code.";

/// Parts of an error, as PostgreSQL reports them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorParts {
    /// SQLSTATE, if the message implies one.
    pub sqlstate: Option<&'static str>,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl ErrorParts {
    fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate: Some(sqlstate), message: message.into(), ..Self::default() }
    }

    fn without_sqlstate(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Returns the parts of an error, without the errors that wrap its root.
pub(super) fn parts(error: &DataFusionError) -> ErrorParts {
    match error.find_root() {
        DataFusionError::External(inner) => ErrorParts::without_sqlstate(with_causes(inner.as_ref())),
        DataFusionError::IoError(inner) => ErrorParts::without_sqlstate(with_causes(inner)),
        DataFusionError::ArrowError(inner, _) => arrow_parts(inner),
        DataFusionError::SchemaError(inner, _) => schema_parts(inner),
        root => {
            let message = without_placeholders(&root.message());
            known_message(&message).unwrap_or_else(|| {
                let message = message.split(BUG_REPORT).next().unwrap_or_default();
                ErrorParts::without_sqlstate(message)
            })
        }
    }
}

/// Returns the error of Taut inside an error of DataFusion, or inside an error of Arrow in it.
pub(super) fn external_error(error: &DataFusionError) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
    match error.find_root() {
        DataFusionError::External(inner) => Some(inner.as_ref()),
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::ExternalError(inner) => Some(inner.as_ref()),
            _ => None,
        },
        _ => None,
    }
}

/// Parts of an error of Arrow.
pub(super) fn arrow_parts(error: &ArrowError) -> ErrorParts {
    match error {
        ArrowError::ExternalError(inner) => ErrorParts::without_sqlstate(with_causes(inner.as_ref())),
        ArrowError::IoError(_, inner) => ErrorParts::without_sqlstate(with_causes(inner)),
        ArrowError::DivideByZero => ErrorParts::new("22012", "division by zero"),
        ArrowError::ArithmeticOverflow(message) if message.starts_with("Overflow happened on") => {
            ErrorParts::new("22003", "value out of range").detail(format!("{message}."))
        }
        ArrowError::ArithmeticOverflow(message) => ErrorParts::new("22003", message),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            cast_parts(message).unwrap_or_else(|| ErrorParts::without_sqlstate(message))
        }
        ArrowError::ComputeError(message) => {
            let message = message.strip_prefix("Execution error: ").unwrap_or(message);
            known_message(message).unwrap_or_else(|| ErrorParts::without_sqlstate(message))
        }
        other => ErrorParts::without_sqlstate(other.to_string()),
    }
}

fn cast_parts(message: &str) -> Option<ErrorParts> {
    let text = text_between(message, "Cannot cast string '", "' to value of ")
        .or_else(|| text_between(message, "Cannot cast value '", "' to value of "));
    if let Some((text, rest)) = text {
        let target = sql_type(rest.strip_suffix(" type").unwrap_or(rest));
        let is_number = text.trim().parse::<f64>().is_ok();
        let is_day = target == "date" && text.split('-').count() == 3 && text.split('-').all(is_digits);
        return Some(match target.as_str() {
            "smallint" | "integer" | "bigint" if is_number && !text.contains(['.', 'e', 'E']) => {
                ErrorParts::new("22003", format!("value {text:?} is out of range for type {target}"))
            }
            _ if is_day => ErrorParts::new("22008", format!("date/time field value out of range: {text:?}")),
            _ => {
                let is_time = ["date", "interval", "time"].iter().any(|kind| target.starts_with(kind));
                let sqlstate = if is_time { "22007" } else { "22P02" };
                ErrorParts::new(sqlstate, format!("invalid input syntax for type {target}: {text:?}"))
            }
        });
    }
    if let Some((detail, literal)) = text_between(message, "malformed array literal (", "): ") {
        return Some(ErrorParts::new("22P02", format!("malformed array literal: {literal}")).detail(detail));
    }
    if let Some((value, target)) = text_between(message, "Can't cast value ", " to type ") {
        let message = format!("{} out of range", sql_type(target));
        return Some(ErrorParts::new("22003", message).detail(format!("The value is {value}.")));
    }
    if let Some((value, target)) = text_between(message, "value of ", " is out of range ") {
        let message = format!("{} out of range", sql_type(target));
        return Some(ErrorParts::new("22003", message).detail(format!("The value is {value}.")));
    }
    if let Some(rest) = message.strip_prefix("Invalid input syntax") {
        return Some(ErrorParts::new("22P02", format!("invalid input syntax{rest}")));
    }
    None
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn schema_parts(error: &SchemaError) -> ErrorParts {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            ErrorParts::new("42702", format!("column reference {:?} is ambiguous", field.name))
        }
        SchemaError::DuplicateQualifiedField { qualifier, .. } => {
            ErrorParts::new("42712", format!("table name {:?} specified more than once", qualifier.table()))
        }
        SchemaError::DuplicateUnqualifiedField { name } => {
            ErrorParts::new("42701", format!("column {name:?} specified more than once"))
        }
    }
}

fn no_column(field: &Column, valid: &[Column]) -> ErrorParts {
    let relation = field.relation.as_ref().map(|relation| relation.table()).filter(|table| *table != UNNAMED_TABLE);
    if let Some(relation) = relation {
        let is_known = |column: &Column| column.relation.as_ref().is_some_and(|known| known.table() == relation);
        if !valid.iter().any(is_known) {
            return ErrorParts::new("42P01", format!("missing FROM-clause entry for table {relation:?}"));
        }
    }
    let parts = ErrorParts::new(
        "42703",
        match relation {
            Some(relation) => format!("column {relation}.{} does not exist", field.name),
            None => format!("column {:?} does not exist", field.name),
        },
    );
    let qualified_name = |column: &Column| match &column.relation {
        Some(relation) if relation.table() != UNNAMED_TABLE => format!("{}.{}", relation.table(), column.name),
        _ => column.name.clone(),
    };
    // A quoted name often differs only in the case of its letters.
    if let Some(same) = valid.iter().find(|column| column.name.eq_ignore_ascii_case(&field.name)) {
        return parts.hint(format!("Perhaps you meant to reference the column \"{}\".", qualified_name(same)));
    }
    let names: Vec<String> = valid.iter().filter(|column| !is_internal(&column.name)).map(qualified_name).collect();
    let more = if names.len() > COLUMNS_MAX { ", ..." } else { "" };
    match names.get(..names.len().min(COLUMNS_MAX)) {
        None | Some([]) => parts,
        Some(names) => parts.detail(format!("The columns are {}{more}.", names.join(", "))),
    }
}

/// Whether a column is part of how Taut runs a statement, such as the row id of an UPDATE.
fn is_internal(column: &str) -> bool {
    column.starts_with("taut ")
}

/// Parts of a message of DataFusion's planner or of one of its functions, if its text is known.
fn known_message(message: &str) -> Option<ErrorParts> {
    missing_name(message)
        .or_else(|| type_mismatch(message))
        .or_else(|| clause_error(message))
        .or_else(|| value_error(message))
}

/// Parses a message about a relation, function or parameter that does not exist.
fn missing_name(message: &str) -> Option<ErrorParts> {
    if let Some((name, "")) = message.strip_prefix("table '").and_then(|rest| rest.split_once("' not found")) {
        let name = name.strip_prefix(&format!("{CATALOG}.")).unwrap_or(name);
        let name = name.strip_prefix(&format!("{UNQUALIFIED}.")).unwrap_or(name);
        return Some(ErrorParts::new("42P01", format!("relation {name:?} does not exist")));
    }
    if let Some((name, "")) = text_between(message, "table function '", "' not found") {
        return Some(ErrorParts::new("42883", format!("function {name} does not exist")));
    }
    if let Some((name, rest)) = text_between(message, "Invalid function '", "'.") {
        let parts = ErrorParts::new("42883", format!("function {name} does not exist"));
        return Some(match text_between(rest, "Did you mean '", "'?") {
            Some((similar, _)) => parts.hint(format!("Did you mean {similar}?")),
            None => parts,
        });
    }
    let parameter = text_between(message, "could not find config namespace for key \"", "\"")
        .or_else(|| text_between(message, "'", "' is not a variable which can be viewed with 'SHOW'"));
    parameter.map(|(name, _)| ErrorParts::new("42704", format!("unrecognized configuration parameter {name:?}")))
}

/// Parses a message about a function or operator that does not accept the types of its arguments.
fn type_mismatch(message: &str) -> Option<ErrorParts> {
    if let Some((call, _)) = text_between(message, "No function matches the given name and argument types '", "'.") {
        let (name, types) = call.split_once('(')?;
        let types = sql_types(types.strip_suffix(')')?);
        return Some(ErrorParts::new("42883", format!("function {name}({types}) does not exist")).hint(NO_MATCH_HINT));
    }
    if let Some((from, target)) = text_between(message, "cannot cast type ", " to ") {
        let message = format!("cannot cast type {} to {}", sql_type(from), sql_type(target));
        return Some(ErrorParts::new("42846", message));
    }
    let operation =
        text_between(message, "Cannot coerce arithmetic expression ", " to valid types").map(|(text, _)| text);
    let comparison = text_between(message, "Cannot infer common argument type for comparison operation ", "\n")
        .map(|(text, _)| text)
        .or_else(|| message.strip_prefix("Cannot infer common argument type for comparison operation "));
    let (left, operator, right) = split_operation(operation.or(comparison)?)?;
    let message = format!("operator does not exist: {} {operator} {}", sql_type(left), sql_type(right));
    Some(ErrorParts::new("42883", message).hint(NO_MATCH_HINT.replace("function", "operator")))
}

/// Splits a text such as `Int32 + Utf8View` at its operator, which is outside of parentheses.
fn split_operation(text: &str) -> Option<(&str, &str, &str)> {
    let mut depth = 0;
    let mut spaces = text.char_indices().filter_map(|(at, character)| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (character == ' ' && depth == 0).then_some(at)
    });
    let (first, last) = (spaces.next()?, spaces.last()?);
    Some((&text[..first], text[first..last].trim(), text[last..].trim()))
}

/// Parses a message about an expression that is not allowed in its clause.
fn clause_error(message: &str) -> Option<ErrorParts> {
    if message.starts_with("Too many columns! The subquery should only return one column") {
        return Some(ErrorParts::new("42601", "subquery has too many columns"));
    }
    if message.starts_with("Column in ")
        && let Some((column, _)) = text_between(message, "column \"", "\" must appear in the GROUP BY clause")
    {
        return Some(ErrorParts::new(
            "42803",
            format!("column {column:?} must appear in the GROUP BY clause or be used in an aggregate function"),
        ));
    }
    if message == "aggregate functions are not allowed in RETURNING" {
        return Some(ErrorParts::new("42803", message));
    }
    if message == "window functions are not allowed in RETURNING" {
        return Some(ErrorParts::new("42P20", message));
    }
    if message.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        let parts = ErrorParts::new("42803", "aggregate functions are not allowed in WHERE");
        return Some(parts.hint("HAVING takes conditions on groups."));
    }
    if let Some((_, rest)) = text_between(message, "Cannot create filter with non-boolean predicate '", "' returning ")
    {
        let found = sql_type(rest);
        return Some(ErrorParts::new("42804", format!("argument of WHERE must be type boolean, not type {found}")));
    }
    if let Some((position, _)) = text_between(message, "Order by column out of bounds, specified: ", ",") {
        return Some(ErrorParts::new("42P10", format!("ORDER BY position {position} is not in select list")));
    }
    if message.starts_with("table ") && message.ends_with(" columns specified") {
        return Some(ErrorParts::new("42P10", message));
    }
    if let Some(parts) = frame_error(message) {
        return Some(parts);
    }
    if message.starts_with("Projections require unique expression names")
        && let Some((name, _)) = text_between(message, "but the expression \"", "\" at position ")
    {
        let name = name.rsplit_once(" AS ").map_or(name, |(_, alias)| alias);
        let name = name.rsplit('.').next().unwrap_or(name);
        let parts = ErrorParts::new("0A000", format!("two columns with the name {name:?} are not supported here"));
        return Some(parts.hint("Give one of the columns another name with AS."));
    }
    if message.starts_with("LIMIT must be >= 0") {
        return Some(ErrorParts::new("2201W", "LIMIT must not be negative"));
    }
    if message.starts_with("OFFSET must be >=0") || message.starts_with("OFFSET must be >= 0") {
        return Some(ErrorParts::new("2201X", "OFFSET must not be negative"));
    }
    let operation = ["UNION", "INTERSECT", "EXCEPT"]
        .into_iter()
        .find(|name| message.starts_with(&format!("{name} queries have different number of columns")));
    if let Some(name) = operation {
        return Some(ErrorParts::new("42601", format!("each {name} query must have the same number of columns")));
    }
    let (found, rest) = text_between(message, "Inconsistent data length across values list: got ", " values in row ")?;
    let (row, expected) = rest.split_once(" but expected ")?;
    let row = row.parse::<u64>().ok()? + 1;
    let parts = ErrorParts::new("42601", "VALUES lists must all be the same length");
    Some(parts.detail(format!("Row {row} has {found} values, and {expected} are expected.")))
}

/// Parses a message about a window frame.
fn frame_error(message: &str) -> Option<ErrorParts> {
    const RANGE: &str = "RANGE with offset PRECEDING/FOLLOWING";
    if message.starts_with("RANGE requires exactly one ORDER BY column") {
        return Some(ErrorParts::new("42P20", format!("{RANGE} requires exactly one ORDER BY column")));
    }
    if message.starts_with("GROUPS requires an ORDER BY clause") {
        return Some(ErrorParts::new("42P20", "GROUPS mode requires an ORDER BY clause"));
    }
    if message.starts_with(RANGE) {
        let parts = ErrorParts::new("0A000", message);
        let has_types = message.contains(" and offset type ");
        return Some(if has_types { parts.hint("Cast the offset value to an appropriate type.") } else { parts });
    }
    // All aggregates without DISTINCT support such frames.
    if message.starts_with("Aggregate can not be used as a sliding accumulator") {
        return Some(ErrorParts::new("0A000", "DISTINCT is not implemented for window functions"));
    }
    if !message.starts_with("argument of ") {
        return None;
    }
    if message.ends_with(" must not contain variables") {
        return Some(ErrorParts::new("42P10", message));
    }
    message.contains(" must be type bigint, not type ").then(|| ErrorParts::new("42804", message))
}

/// Parses a message about a value that an operation does not accept.
fn value_error(message: &str) -> Option<ErrorParts> {
    if let Some((array, _)) = message.split_once(" overflow on abs(") {
        let target = sql_type(array.strip_suffix("Array").unwrap_or(array));
        return Some(ErrorParts::new("22003", format!("{target} out of range")));
    }
    if message == "Scalar subquery returned more than one row" {
        return Some(ErrorParts::new("21000", "more than one row returned by a subquery used as an expression"));
    }
    if message.starts_with("negative count not allowed") || message.starts_with("overlay start position must be") {
        return Some(ErrorParts::new("22011", "negative substring length not allowed"));
    }
    if message.starts_with("string size overflow on repeat") {
        return Some(ErrorParts::new("54000", "requested length too large"));
    }
    let sqlstate = VALUE_ERRORS.iter().find(|(_, text)| message.contains(text)).map(|(sqlstate, _)| *sqlstate);
    Some(ErrorParts::new(sqlstate?, message))
}

/// SQLSTATEs of errors about values, and texts that only their messages contain.
const VALUE_ERRORS: [(&str, &str); 83] = [
    ("0A000", "array_fill with several dimensions is not supported"),
    ("0A000", "arrays with a lower bound other than 1 are not supported"),
    ("0A000", "is only supported in to_char"),
    ("0A000", "not supported for input"),
    ("0A000", "not supported for type"),
    ("0A000", "timestamps cannot be binned into intervals containing months or years"),
    ("0A000", "to ASCII not supported"),
    ("22003", "number is out of range"),
    ("22003", "value overflows numeric format"),
    ("22004", "dimension array or low bound array cannot be null"),
    ("22004", "dimension values cannot be null"),
    ("22004", "frame ending offset must not be null"),
    ("22004", "frame starting offset must not be null"),
    ("22004", "null values cannot be formatted as an SQL identifier"),
    ("22004", "thresholds array must not contain NULLs"),
    ("22007", "according to format specifier"),
    ("22007", "cannot calculate day of year without year information"),
    ("22007", "field in formatting string"),
    ("22007", "formatting field"),
    ("22007", "invalid combination of date conventions"),
    ("22007", "invalid format specification for an interval value"),
    ("22007", "invalid input string for"),
    ("22007", "invalid value \""),
    ("22007", "is invalid for the 12-hour clock"),
    ("22008", "date field value out of range"),
    ("22008", "date out of range"),
    ("22008", "in source string is out of range"),
    ("22008", "interval out of range"),
    ("22008", "stride must be greater than zero"),
    ("22008", "time field value out of range"),
    ("22008", "timestamp out of range"),
    ("22009", "time zone displacement out of range"),
    ("2200C", "more than two escape-double-quote separators"),
    ("22011", "negative substring length not allowed"),
    ("22013", "frame ending offset must not be negative"),
    ("22013", "frame starting offset must not be negative"),
    ("22013", "invalid preceding or following size in window function"),
    ("22014", "argument of ntile must be greater than zero"),
    ("22016", "argument of nth_value must be greater than zero"),
    ("2201B", "invalid regular expression:"),
    ("2201F", "cannot take square root of a negative number"),
    ("2201G", "count must be greater than zero"),
    ("2201G", "lower and upper bounds must be finite"),
    ("2201G", "lower bound cannot equal upper bound"),
    ("2201G", "upper bound cannot be NaN"),
    ("22021", "invalid byte sequence for encoding"),
    ("22023", "character number must be positive"),
    ("22023", "does not support the \"global\" option"),
    ("22023", "field position must not be zero"),
    ("22023", "format specifies argument 0"),
    ("22023", "invalid base64 end sequence"),
    ("22023", "invalid encoding name"),
    ("22023", "invalid hexadecimal d"),
    ("22023", "invalid normalization form"),
    ("22023", "invalid regular expression option"),
    ("22023", "invalid value for parameter"),
    ("22023", "new bit must be 0 or 1"),
    ("22023", "not recognized for type"),
    ("22023", "string is not a valid identifier"),
    ("22023", "too few arguments for format()"),
    ("22023", "unrecognized encoding"),
    ("22023", "unrecognized format() type specifier"),
    ("22023", "unterminated format() type specifier"),
    ("22023", "while decoding base64 sequence"),
    ("22025", "LIKE pattern must not end with escape character"),
    ("22025", "invalid escape string"),
    ("2202E", "out of valid range, 0.."),
    ("2202E", "thresholds must be one-dimensional array"),
    ("2202E", "wrong number of array subscripts"),
    ("22P02", "\" is not a number"),
    ("22P02", "invalid input syntax for type bytea"),
    ("22P02", "invalid input syntax for type numeric"),
    ("42601", "cannot use \""),
    ("42601", "invalid Unicode escape"),
    ("42601", "is incompatible with other formats"),
    ("42601", "multiple decimal points"),
    ("42601", "must be ahead of \"PR\""),
    ("42601", "must be the last pattern used"),
    ("42704", "is not a valid encoding"),
    ("54000", "array size exceeds the maximum allowed"),
    ("54000", "null character not permitted"),
    ("54000", "requested character too large for encoding"),
    ("54000", "requested length too large"),
];

/// Returns the text between `before` and the first `after` that follows it, and the remaining text.
fn text_between<'t>(text: &'t str, before: &str, after: &str) -> Option<(&'t str, &'t str)> {
    text.split_once(before)?.1.split_once(after)
}

/// Removes the placeholder that DataFusion uses as the table name of files, which have no name in SQL.
fn without_placeholders(message: &str) -> String {
    message.replace(&format!("{UNNAMED_TABLE}."), "")
}

/// SQL names of Arrow types, separated by commas.
fn sql_types(types: &str) -> String {
    let mut depth = 0;
    let ends_type = |character: char| {
        match character {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    };
    let names: Vec<String> = types.split(ends_type).map(|name| sql_type(name.trim())).collect();
    names.join(", ")
}

/// SQL name of a type of an argument, without precision and scale.
pub fn type_in_message(data_type: &DataType) -> String {
    sql_type(&data_type.to_string())
}

/// SQL name of an Arrow type, from the name of the Arrow type.
fn sql_type(arrow: &str) -> String {
    let name = match arrow.split(['(', '<']).next().unwrap_or_default() {
        "Boolean" => "boolean",
        "Int8" | "Int16" | "UInt8" => "smallint",
        "Int32" | "UInt16" => "integer",
        "Int64" | "UInt32" | "UInt64" => "bigint",
        "Float16" | "Float32" => "real",
        "Float64" => "double precision",
        "Decimal128" | "Decimal256" | "Decimal32" | "Decimal64" => "decimal",
        "Date32" | "Date64" => "date",
        "Time32" | "Time64" => "time",
        "Timestamp" if arrow.contains("Some(") || arrow.contains('+') => "timestamp with time zone",
        "Timestamp" => "timestamp",
        "Interval" | "Duration" => "interval",
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Binary" | "LargeBinary" | "BinaryView" | "FixedSizeBinary" => "bytea",
        "Null" => "unknown",
        _ => arrow,
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: DataFusionError, expected: (&str, &str)) {
        let ErrorParts { sqlstate, message, .. } = parts(&error);
        assert_eq!((sqlstate.unwrap_or_default(), message.as_str()), expected);
    }

    #[test]
    fn messages_of_the_planner_become_those_of_postgresql() {
        for (message, sqlstate, expected) in [
            ("table 'taut.taut search path.t' not found", "42P01", "relation \"t\" does not exist"),
            ("table 'taut.public.t' not found", "42P01", "relation \"public.t\" does not exist"),
            ("table function 'f' not found", "42883", "function f does not exist"),
            ("table 'taut.other.t' not found", "42P01", "relation \"other.t\" does not exist"),
            ("Invalid function 'foo'.\nDid you mean 'pow'?", "42883", "function foo does not exist"),
            (
                "Failed. No function matches the given name and argument types 'f(Utf8, Decimal128(10, 2))'. You might",
                "42883",
                "function f(text, decimal) does not exist",
            ),
            (
                "Cannot coerce arithmetic expression Decimal128(10, 2) + Utf8View to valid types",
                "42883",
                "operator does not exist: decimal + text",
            ),
            (
                "Order by column out of bounds, specified: 5, max: 3",
                "42P10",
                "ORDER BY position 5 is not in select list",
            ),
            (
                "Inconsistent data length across values list: got 1 values in row 0 but expected 3",
                "42601",
                "VALUES lists must all be the same length",
            ),
            ("no column named b; there are ?table?.a, ?table?.c", "", "no column named b; there are a, c"),
            ("what is not known here", "", "what is not known here"),
        ] {
            check(DataFusionError::Plan(message.to_owned()), (sqlstate, expected));
        }
    }

    #[test]
    fn errors_of_casts_name_sql_types() {
        for (message, sqlstate, expected) in [
            ("Cannot cast string 'x' to value of Int32 type", "22P02", "invalid input syntax for type integer: \"x\""),
            (
                "Cannot cast string '1.5' to value of Int32 type",
                "22P02",
                "invalid input syntax for type integer: \"1.5\"",
            ),
            (
                "Cannot cast string '9999999999' to value of Int32 type",
                "22003",
                "value \"9999999999\" is out of range for type integer",
            ),
            (
                "Cannot cast string '2024-13-01' to value of Date32 type",
                "22008",
                "date/time field value out of range: \"2024-13-01\"",
            ),
            ("Can't cast value 70000 to type Int16", "22003", "smallint out of range"),
        ] {
            check(ArrowError::CastError(message.to_owned()).into(), (sqlstate, expected));
        }
        check(ArrowError::DivideByZero.into(), ("22012", "division by zero"));
    }

    #[test]
    fn the_error_about_a_missing_column_lists_or_suggests_existing_ones() {
        let valid = vec![Column::new(Some("t"), "a"), Column::new(Some("t"), "Price")];
        let missing =
            |field| Box::new(SchemaError::FieldNotFound { field: Box::new(field), valid_fields: valid.clone() });
        let unqualified = schema_parts(&missing(Column::new_unqualified("b")));
        assert_eq!(unqualified.message, "column \"b\" does not exist");
        assert_eq!(unqualified.detail.as_deref(), Some("The columns are t.a, t.Price."));
        let other_case = schema_parts(&missing(Column::new(Some("t"), "price")));
        assert_eq!(other_case.message, "column t.price does not exist");
        assert_eq!(other_case.hint.as_deref(), Some("Perhaps you meant to reference the column \"t.Price\"."));
        let no_table = schema_parts(&missing(Column::new(Some("u"), "a")));
        assert_eq!(
            (no_table.sqlstate, no_table.message.as_str()),
            (Some("42P01"), "missing FROM-clause entry for table \"u\"")
        );
    }
}
