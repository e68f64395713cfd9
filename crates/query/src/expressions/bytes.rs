//! Casts between text and bytes, in PostgreSQL's formats of `bytea`.
//!
//! ```text
//!   \x610a      hexadecimal digits; casts to text write this format
//!   a\\b\141    characters; `\\` is a backslash, `\141` is the byte with this octal number
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewBuilder, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;

use super::dates::is_text;

/// Whether a cast between two types reads or writes bytes as text.
pub(super) fn is_bytes_cast(from: &DataType, target: &DataType) -> bool {
    (is_text(from) && is_bytes(target)) || (is_bytes(from) && is_text(target))
}

/// Whether a type holds bytes.
pub fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Parses strings as bytes and returns an array of the type `target`. With `is_try`, an invalid string becomes null.
///
/// # Errors
/// If a string has an invalid escape or invalid hexadecimal digits, unless `is_try`.
pub fn read(texts: &ArrayRef, target: &DataType, is_try: bool) -> Result<ArrayRef, ArrowError> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let mut bytes = BinaryViewBuilder::with_capacity(texts.len());
    for text in texts.as_string_view() {
        let value = match text {
            None => None,
            Some(text) => match parse(text) {
                None if is_try => None,
                // This is Arrow's wording, which maps to SQLSTATE 22P02, invalid text representation.
                None => {
                    return Err(ArrowError::CastError(format!("Cannot cast string '{text}' to value of Binary type")));
                }
                value => value,
            },
        };
        bytes.append_option(value);
    }
    let bytes: ArrayRef = Arc::new(bytes.finish());
    cast(&bytes, target)
}

fn parse(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u32> = digits
            .chars()
            .filter(|digit| !digit.is_whitespace())
            .map(|digit| digit.to_digit(16))
            .collect::<Option<_>>()?;
        let pairs = digits.chunks(2).map(|pair| match pair {
            [high, low] => Some((high * 16 + low) as u8),
            _ => None,
        });
        return pairs.collect();
    }
    parse_escaped(text)
}

/// Parses the characters of a `bytea` string, in which `\\` is a backslash and `\141` is the byte with this octal
/// number. Returns `None` for other escapes.
pub(super) fn parse_escaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let (byte, others) = match (first, others) {
            (b'\\', [b'\\', others @ ..]) => (b'\\', others),
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', others @ ..]) => {
                ((high - b'0') * 64 + (middle - b'0') * 8 + (low - b'0'), others)
            }
            (b'\\', _) => return None,
            _ => (*first, others),
        };
        bytes.push(byte);
        rest = others;
    }
    Some(bytes)
}

/// Writes bytes as hexadecimal digits after `\x`. `target` is the string type of the result.
///
/// # Errors
/// If the strings exceed the size limit of an array of the type `target`.
pub fn write(values: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let values = cast(values, &DataType::BinaryView)?;
    let mut texts = StringViewBuilder::with_capacity(values.len());
    for value in values.as_binary_view() {
        texts.append_option(value.map(|bytes| {
            let mut text = String::with_capacity(2 + 2 * bytes.len());
            text.push_str("\\x");
            for byte in bytes {
                text.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
            }
            text
        }));
    }
    let texts: ArrayRef = Arc::new(texts.finish());
    cast(&texts, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_hexadecimal_or_octal_digits() {
        let cases: [(&str, Option<&[u8]>); 9] = [
            ("", Some(b"")),
            ("abc", Some(b"abc")),
            ("\\x00fF", Some(&[0, 255])),
            ("\\x", Some(b"")),
            ("\\x 00 ff", Some(&[0, 255])),
            ("a\\\\b\\141", Some(b"a\\ba")),
            ("\\xabc", None),
            ("\\xgg", None),
            ("a\\400", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
    }
}
