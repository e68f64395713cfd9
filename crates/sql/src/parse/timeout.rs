//! The values of `statement_timeout`, written as in PostgreSQL.

use std::time::Duration;

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError};
use crate::settings::Setting;

/// Units of time and their lengths in microseconds, largest first.
const UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
/// Maximum timeout in milliseconds, as in PostgreSQL: about 24.86 days.
const MILLISECONDS_MAX: u64 = i32::MAX as u64;

/// Parses a value of `statement_timeout`: a number of milliseconds, a number with a unit in quotes, or `DEFAULT`.
/// Returns `None` for 0 and `DEFAULT`, which mean no limit.
///
/// # Errors
/// If the value is not one of these, is negative, or is longer than [`MILLISECONDS_MAX`].
pub(super) fn parse_timeout(value: &Token) -> Result<Option<Duration>> {
    let text = match value {
        Token::Word(word) if word.keyword == Keyword::DEFAULT => return Ok(None),
        Token::Number(number, _) => number,
        Token::SingleQuotedString(text) => text.trim(),
        _ => return Err(invalid_value(value)),
    };
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let number: f64 = number.parse().map_err(|_| invalid_value(value))?;
    let unit_microseconds = match unit {
        "" => 1_000,
        unit => UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, microseconds)| *microseconds)
            .ok_or_else(|| invalid_value(value))?,
    };
    let milliseconds = (number * unit_microseconds as f64 / 1_000.0).round();
    if milliseconds > MILLISECONDS_MAX as f64 {
        return Err(invalid_value(value));
    }
    Ok(Some(Duration::from_millis(milliseconds as u64)).filter(|limit| !limit.is_zero()))
}

/// Formats a value of `statement_timeout` in the largest unit that gives a whole number, such as `5s` or `1500ms`.
/// Returns `0` for no limit.
pub fn format_timeout(limit: Option<Duration>) -> String {
    let Some(limit) = limit else { return "0".to_owned() };
    let microseconds = limit.as_micros() as u64;
    let largest = UNITS.iter().find(|(_, unit)| microseconds.is_multiple_of(*unit));
    largest.map_or_else(String::new, |(name, unit)| format!("{}{name}", microseconds / unit))
}

fn invalid_value(value: &Token) -> SqlError {
    let text = match value {
        Token::SingleQuotedString(text) => text.clone(),
        other => other.to_string(),
    };
    SqlError::SettingValue { setting: Setting::StatementTimeout, value: text }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn round_trip(value: Token) -> String {
        format_timeout(parse_timeout(&value).unwrap())
    }

    #[test]
    fn values_are_shown_in_their_largest_unit() {
        assert_eq!(round_trip(Token::Number("5000".to_owned(), false)), "5s");
        assert_eq!(round_trip(Token::Number("0".to_owned(), false)), "0");
        for (text, expected) in
            [("1500", "1500ms"), ("30 s", "30s"), ("90min", "90min"), ("1.5h", "90min"), ("24h", "1d"), (" 7d ", "7d")]
        {
            assert_eq!(round_trip(Token::SingleQuotedString(text.to_owned())), expected);
        }
    }

    #[test]
    fn malformed_and_too_long_values_are_invalid() {
        for text in ["", "s", "5 parsecs", "-1", "25d", "1e3", "5S", "1.2.3"] {
            let error = parse_timeout(&Token::SingleQuotedString(text.to_owned())).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid value for parameter \"statement_timeout\": \"{text}\""));
            assert!(error.hint().unwrap().contains("at most 24 days"), "{error}");
        }
        assert!(parse_timeout(&Token::Minus).is_err());
    }
}
