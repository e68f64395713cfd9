//! Patterns of `to_char`, `to_date` and `to_timestamp`, translated to the `strftime` patterns that DataFusion expects.
//!
//! ```text
//!   to_char(x, 'YYYY-MM-DD HH24:MI')        to_char(x, '%Y-%m-%d %H:%M')
//!   to_date('5 Jan 2024', 'DD Mon YYYY')    to_date('5 Jan 2024', '%d %b %Y')
//! ```
//!
//! A call of `to_char` with a number pattern, such as `9,990.00`, becomes a call of `number_to_char` with the same
//! pattern. A date pattern with `%` is not changed. A part of a pattern without a counterpart is an error.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    TimezoneInfo, Value,
};

use crate::error::SqlError;

/// Part of a PostgreSQL pattern, whether its case matters, and its counterpart in `strftime` or `None`. A part is
/// listed before its prefixes, because the first part that matches is used.
const PARTS: [(&str, bool, Option<&str>); 58] = [
    ("FMMonth", true, Some("%B")),
    ("FMDay", true, Some("%A")),
    ("FMDD", false, Some("%-d")),
    ("FMMM", false, Some("%-m")),
    ("FMHH24", false, Some("%-H")),
    ("FMHH12", false, Some("%-I")),
    ("FMHH", false, Some("%-I")),
    ("FMMI", false, Some("%-M")),
    ("FMSS", false, Some("%-S")),
    ("FMYYYY", false, Some("%Y")),
    ("FM", false, None),
    ("FX", false, None),
    ("TM", true, None),
    ("YYYY", false, Some("%Y")),
    ("Y,YYY", false, None),
    ("YYY", false, None),
    ("YY", false, Some("%y")),
    ("IYYY", false, Some("%G")),
    ("IYY", false, None),
    ("IDDD", false, None),
    ("ID", false, Some("%u")),
    ("IW", false, Some("%V")),
    ("Month", true, None),
    ("MONTH", false, None),
    ("Mon", true, Some("%b")),
    ("MON", false, None),
    ("MM", false, Some("%m")),
    ("MI", false, Some("%M")),
    ("MS", false, Some("%3f")),
    ("US", false, Some("%6f")),
    ("FF3", false, Some("%3f")),
    ("FF6", false, Some("%6f")),
    ("FF", false, None),
    ("DAY", false, None),
    ("Dy", true, Some("%a")),
    ("DY", false, None),
    ("DDD", false, Some("%j")),
    ("DD", false, Some("%d")),
    ("HH24", false, Some("%H")),
    ("HH12", false, Some("%I")),
    ("HH", false, Some("%I")),
    ("SSSSS", false, None),
    ("SSSS", false, None),
    ("SS", false, Some("%S")),
    ("AM", true, Some("%p")),
    ("PM", true, Some("%p")),
    ("am", true, Some("%P")),
    ("pm", true, Some("%P")),
    ("A.M.", false, None),
    ("P.M.", false, None),
    ("BC", false, None),
    ("AD", false, None),
    ("CC", false, None),
    ("WW", false, None),
    ("TZ", false, None),
    ("OF", false, None),
    ("RM", false, None),
    ("Q", false, Some("%q")),
];

/// Translates the pattern in a call of `to_char`, `to_date` or `to_timestamp`.
pub(super) fn rewrite(expression: &mut Expr) -> ControlFlow<SqlError> {
    let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
    let Some(name) = name(function) else { return ControlFlow::Continue(()) };
    let takes_pattern = matches!(name.as_str(), "to_char" | "to_date" | "to_timestamp");
    let Some(pattern) = second_argument(function).filter(|_| takes_pattern) else { return ControlFlow::Continue(()) };
    let Expr::Value(literal) = pattern else {
        return ControlFlow::Break(not_a_literal(&name));
    };
    let text = match &mut literal.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text,
        Value::DollarQuotedString(quoted) => &mut quoted.value,
        Value::Null => return ControlFlow::Continue(()),
        _ => return ControlFlow::Break(not_a_literal(&name)),
    };
    if name == "to_char" && is_of_numbers(text) {
        function.name.0 = vec![ObjectNamePart::Identifier(Ident::new("number_to_char"))];
        return ControlFlow::Continue(());
    }
    if text.contains('%') {
        return ControlFlow::Continue(());
    }
    // `MONTH`, `Month` and `FMMonth` differ only in output. `to_date` and `to_timestamp` accept names in any case.
    match to_strftime(text, name != "to_char") {
        Ok(translated) => *text = translated,
        Err(part) => {
            return ControlFlow::Break(SqlError::unsupported(
                format!("{part:?} in a pattern of {name}"),
                "YYYY, MM, DD, Mon, FMMonth, Dy, FMDay, HH24, HH12, MI, SS, MS, US, AM, am, DDD, IYYY, IW, ID and Q are",
            ));
        }
    }
    if name == "to_timestamp" {
        // Without minutes, DataFusion would read only the date.
        if ["%H", "%I", "%-H", "%-I"].iter().any(|hour| text.contains(hour))
            && !text.contains("%M")
            && !text.contains("%-M")
        {
            return ControlFlow::Break(SqlError::unsupported(
                "hours without minutes in a pattern of to_timestamp",
                "HH24:MI is",
            ));
        }
        function.name.0 = vec![ObjectNamePart::Identifier(Ident::new("to_timestamp_micros"))];
        *expression = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expression.clone()),
            data_type: DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
            array: false,
            format: None,
        };
    }
    ControlFlow::Continue(())
}

/// Whether a pattern formats numbers: outside of quotes, it contains a `9` or a `0` and no part of a date pattern.
fn is_of_numbers(pattern: &str) -> bool {
    let mut unquoted = pattern.split('"').step_by(2).collect::<String>().to_ascii_uppercase();
    let has_digits = unquoted.contains(['9', '0']);
    for part in ["FM", "MI", "PL", "PR", "SG", "TH"] {
        unquoted = unquoted.replace(part, "");
    }
    let letters = if pattern.contains('%') { "" } else { "DEGLSV" };
    let is_of_date = |character: char| character.is_ascii_alphabetic() && !letters.contains(character);
    has_digits && !unquoted.contains(is_of_date) && !unquoted.contains("DD") && !unquoted.contains("SS")
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

fn not_a_literal(function: &str) -> SqlError {
    SqlError::unsupported(format!("a pattern of {function} that is not a literal"), "a string such as 'YYYY-MM-DD' is")
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

/// Translates a PostgreSQL date pattern to `strftime`. `parses_text` is true if the function parses a string, false if
/// it formats one.
///
/// # Errors
/// If a part has no counterpart, or a double quote is not closed. The error is the part, or the text from the quote on.
fn to_strftime(pattern: &str, parses_text: bool) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let end = rest[1..].find('"').ok_or_else(|| rest.to_owned())?;
            result.push_str(&rest[1..=end]);
            rest = &rest[end + 2..];
            continue;
        }
        let is_part = |part: &&(&str, bool, Option<&str>)| match rest.get(..part.0.len()) {
            Some(start) if part.1 => start == part.0,
            Some(start) => start.eq_ignore_ascii_case(part.0),
            None => false,
        };
        match PARTS.iter().find(is_part) {
            Some((part, _, counterpart)) => {
                let name = match part.to_ascii_uppercase().as_str() {
                    "MONTH" | "MON" if parses_text => Some("%B"),
                    "DAY" | "DY" if parses_text => Some("%A"),
                    _ => *counterpart,
                };
                result.push_str(name.ok_or_else(|| rest[..part.len()].to_owned())?);
                rest = &rest[part.len()..];
                // `th`, the suffix of ordinal numbers, has no counterpart.
                if rest.get(..2).is_some_and(|suffix| suffix.eq_ignore_ascii_case("th")) {
                    return Err(rest[..2].to_owned());
                }
            }
            None if matches!(first, 'D' | 'd' | 'J' | 'j' | 'W' | 'w' | 'Y' | 'y' | 'I') => {
                return Err(first.to_string());
            }
            None => {
                result.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_translated_to_strftime() {
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "%Y-%m-%d %H:%M:%S.%6f"),
            ("yyyymmdd", "%Y%m%d"),
            ("Dy, DD Mon YYYY HH12:MI AM", "%a, %d %b %Y %I:%M %p"),
            ("FMMonth FMDD, YYYY", "%B %-d, %Y"),
            ("YYYY\"T\"HH24", "%YT%H"),
            ("IYYY-\"W\"IW Q", "%G-W%V %q"),
        ] {
            assert_eq!(to_strftime(pattern, false).as_deref(), Ok(expected), "{pattern}");
        }
        for (pattern, expected) in [
            ("9,990.00", true),
            ("FM999MI", true),
            ("S9G999D99", true),
            ("999 \"YYYY\"", true),
            ("99%", true),
            ("%d.09", false),
            ("YYYY-MM-01", false),
            ("DD.09", false),
            ("HH24:MI:00", false),
            ("YYYY", false),
        ] {
            assert_eq!(is_of_numbers(pattern), expected, "{pattern}");
        }
        assert_eq!(to_strftime("DD MON YYYY", true).as_deref(), Ok("%d %B %Y"));
        for (pattern, part) in
            [("DD MON YYYY", "MON"), ("DDth", "th"), ("J", "J"), ("HH24 TZ", "TZ"), ("DD RM", "RM"), ("Month", "Month")]
        {
            assert_eq!(to_strftime(pattern, false), Err(part.to_owned()), "{pattern}");
        }
    }
}
