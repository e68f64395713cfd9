//! Casts of text to decimals. DataFusion does not parse a number with an exponent, such as `1.5e3`, as a decimal.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;

use super::dates::is_text;

/// Maximum number of zeros written before or after the digits of a number. Any number that needs more is too large for
/// a decimal, or rounds to zero.
const ZEROS_MAX: i64 = 100;

/// Whether a cast between two types reads a decimal from text.
pub(super) fn reads_decimals(from: &DataType, target: &DataType) -> bool {
    is_text(from) && matches!(target, DataType::Decimal128(..))
}

/// Parses strings as decimals of the type `target`. With `is_try`, a string that is not a decimal of the type becomes
/// null.
///
/// # Errors
/// If a string is not a number, or the number is too large for the type, unless `is_try`.
pub(super) fn read(texts: &ArrayRef, target: &DataType, is_try: bool) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: is_try, ..CastOptions::default() };
    cast_with_options(&without_exponents(texts)?, target, &options).map_err(|error| match &error {
        // The number has too many digits for any decimal, or for this type.
        ArrowError::CastError(message) if message.split('\'').nth(1).is_some_and(is_number) => overflow(),
        ArrowError::InvalidArgumentError(message) if message.contains("too large to store") => overflow(),
        _ => error,
    })
}

fn overflow() -> ArrowError {
    ArrowError::ArithmeticOverflow("numeric field overflow".to_owned())
}

/// Whether a text consists of digits, with an optional sign and an optional decimal point.
fn is_number(text: &str) -> bool {
    let text = text.trim();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    unsigned.contains(|digit: char| digit.is_ascii_digit())
        && unsigned.split_once('.').map_or_else(|| is_part(unsigned), |(left, right)| is_part(left) && is_part(right))
}

/// Rewrites numbers with an exponent as digits: `1.5e3` becomes `1500`. Returns other strings unchanged.
fn without_exponents(texts: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let views = cast(texts, &DataType::Utf8View)?;
    let views = views.as_string_view();
    if !views.iter().flatten().any(|text| text.contains(['e', 'E'])) {
        return Ok(Arc::clone(texts));
    }
    let written = views.iter().map(|text| text.map(|text| digits(text).map_or(Cow::Borrowed(text), Cow::Owned)));
    Ok(Arc::new(written.collect::<StringViewArray>()))
}

/// Rewrites a number with an exponent as digits. Returns `None` for other strings, including numbers without an
/// exponent.
fn digits(text: &str) -> Option<String> {
    let (number, exponent) = text.trim().split_once(['e', 'E'])?;
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, unsigned) = match number.strip_prefix(['-', '+']) {
        Some(unsigned) => (&number[..1], unsigned),
        None => ("", number),
    };
    let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all = format!("{integer}{fraction}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length = i64::try_from(all.len()).ok()?;
    let integer_length = i64::try_from(integer.len()).ok()?;
    // Number of digits before the decimal point. If it is negative, zeros follow the point.
    let point = integer_length.saturating_add(exponent).clamp(-ZEROS_MAX, length + ZEROS_MAX);
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    Some(match usize::try_from(point) {
        Ok(point) if point < all.len() => format!("{sign}0{}.{}", &all[..point], &all[point..]),
        Ok(_) => format!("{sign}{all}{}", zeros(point - length)),
        Err(_) => format!("{sign}0.{}{all}", zeros(-point)),
    })
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn exponents_move_the_point() {
        for (text, expected) in [
            ("1e2", Some("100")),
            ("-1.5E-1", Some("-0.15")),
            (" 12.34e1 ", Some("0123.4")),
            ("12.34e+2", Some("1234")),
            ("12.34e-3", Some("0.01234")),
            (".5e1", Some("5")),
            ("5.e0", Some("5")),
            ("1e", None),
            ("e2", None),
            (".e2", None),
            ("1e2.5", None),
            ("1 2e3", None),
            ("one", None),
        ] {
            assert_eq!(digits(text).as_deref(), expected, "{text}");
        }
        assert_eq!(digits("1e999999999999").map(|digits| digits.len()), Some(101));
        assert_eq!(digits("1e-9223372036854775808").map(|digits| digits.len()), Some(103));
    }
}
