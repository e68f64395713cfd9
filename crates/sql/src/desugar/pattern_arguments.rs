//! Patterns in calls of `to_char`, `to_date`, `to_timestamp` and `to_number` that are literals.
//!
//! ```text
//!   to_char(x, '%d.%m.%Y')              strftime(x, '%d.%m.%Y')
//!   to_date('5.1.2024', '%d.%m.%Y')     CAST(strptime('5.1.2024', '%d.%m.%Y') AS date)
//!   to_number('1.5', '9.99')            to_number('1.5', '9.99', 2)
//! ```
//!
//! A pattern with `%` before a letter is one of `strftime`, unless it formats numbers. Other patterns of dates are not
//! changed. The third argument of `to_number` is the scale of its result, which is part of the type, so the plan must
//! know it.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    TimezoneInfo, Value,
};

use crate::error::SqlError;

/// Maximum scale of a decimal.
const SCALE_MAX: usize = 38;

/// Rewrites a call with a literal pattern.
pub(super) fn rewrite(expression: &mut Expr) -> ControlFlow<SqlError> {
    let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
    let Some(name) = name(function) else { return ControlFlow::Continue(()) };
    let takes_pattern = matches!(name.as_str(), "to_char" | "to_date" | "to_timestamp" | "to_number");
    let Some(pattern) = literal_pattern(function).filter(|_| takes_pattern) else {
        return ControlFlow::Continue(());
    };
    if name == "to_number" {
        if let FunctionArguments::List(list) = &mut function.args {
            let scale = Expr::value(Value::Number(fraction_digits(&pattern).to_string(), false));
            list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(scale)));
        }
        return ControlFlow::Continue(());
    }
    if !has_conversion(&pattern) || (name == "to_char" && is_of_numbers(&pattern)) {
        return ControlFlow::Continue(());
    }
    let (function_name, result) = match name.as_str() {
        "to_date" => ("strptime", Some(DataType::Date)),
        "to_timestamp" => ("to_timestamp_micros", Some(DataType::Timestamp(None, TimezoneInfo::WithTimeZone))),
        _ => ("strftime", None),
    };
    function.name.0 = vec![ObjectNamePart::Identifier(Ident::new(function_name))];
    if let Some(data_type) = result {
        let expr = Box::new(expression.clone());
        *expression = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
    }
    ControlFlow::Continue(())
}

/// Whether a pattern has a part of `strftime`, such as `%d` or `%-d`. In other places, `%` stands for itself.
fn has_conversion(pattern: &str) -> bool {
    pattern
        .split('%')
        .skip(1)
        .any(|rest| rest.trim_start_matches('-').starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// Whether a pattern with `%` formats numbers: outside of quotes, it contains a `9` or a `0` and only letters of number
/// patterns of more than one letter.
fn is_of_numbers(pattern: &str) -> bool {
    let mut unquoted = pattern.split('"').step_by(2).collect::<String>().to_ascii_uppercase();
    let has_digits = unquoted.contains(['9', '0']);
    for part in ["FM", "MI", "PL", "PR", "SG", "TH"] {
        unquoted = unquoted.replace(part, "");
    }
    has_digits && !unquoted.contains(|character: char| character.is_ascii_alphabetic())
}

/// Number of digits after the point of a number pattern, and after its `V`.
fn fraction_digits(pattern: &str) -> usize {
    let mut is_quoted = false;
    let mut has_point = false;
    let mut digits = 0;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if is_quoted || characters.peek() == Some(&'"') => {
                characters.next();
            }
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '.' | 'D' | 'd' | 'V' | 'v' => has_point = true,
            '0' | '9' if has_point => digits += 1,
            _ => {}
        }
    }
    digits.min(SCALE_MAX)
}

/// Translates `%f`, `%g` and `%n` in a pattern of DuckDB's `strftime`: microseconds, milliseconds and nanoseconds.
/// DataFusion gives them other meanings.
pub(super) fn translate_fractions(function: &mut Function) {
    if name(function).as_deref() != Some("strftime") {
        return;
    }
    if let Some(Expr::Value(pattern)) = second_argument(function)
        && let Value::SingleQuotedString(text) = &mut pattern.value
    {
        *text = text.replace("%f", "%6f").replace("%g", "%3f").replace("%n", "%9f");
    }
}

fn name(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.value.to_lowercase()),
        _ => None,
    }
}

fn second_argument(function: &mut Function) -> Option<&mut Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    match list.args.as_mut_slice() {
        [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(pattern))] => Some(pattern),
        _ => None,
    }
}

/// Returns the second of two arguments if it is a string literal.
fn literal_pattern(function: &mut Function) -> Option<String> {
    let Expr::Value(literal) = second_argument(function)? else { return None };
    match &literal.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text.clone()),
        Value::DollarQuotedString(quoted) => Some(quoted.value.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_with_percent_are_of_numbers_or_of_strftime() {
        for (pattern, expected) in
            [("99%", true), ("FM990.0 %", true), ("9 \"per %d\"", true), ("%d.09", false), ("%Y", false)]
        {
            assert_eq!(is_of_numbers(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn the_scale_is_the_number_of_digits_after_the_point() {
        for (pattern, expected) in [
            ("999", 0),
            ("9.99", 2),
            ("FM9G999D000S", 3),
            ("99V99", 2),
            ("\"1.99\"9.9", 1),
            ("\\\"9.9", 1),
            (".9999999999999999999999999999999999999999", 38),
        ] {
            assert_eq!(fraction_digits(pattern), expected, "{pattern}");
        }
    }
}
