//! `encode` and `decode`: bytes as text in the formats `base64`, `hex` and `escape`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewArray, StringViewArray};
use datafusion::common::{Result, exec_err};

use super::byte_strings::bytes_of;
use super::definition::ArgumentType::{Bytes, Text};
use super::definition::{Definition, result, texts};

pub(super) const FUNCTIONS: [Definition; 2] = [
    Definition { name: "encode", arguments: &[&[Bytes, Text], &[Text, Text]], result: result::text, compute: encode },
    Definition { name: "decode", arguments: &[&[Text, Text]], result: result::bytes, compute: decode },
];

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Maximum number of characters in a line of base64.
const LINE: usize = 76;

#[derive(Clone, Copy)]
enum Format {
    Base64,
    Hex,
    Escape,
}

impl Format {
    fn parse(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "base64" => Ok(Self::Base64),
            "hex" => Ok(Self::Hex),
            "escape" => Ok(Self::Escape),
            _ => exec_err!("unrecognized encoding: \"{name}\""),
        }
    }
}

fn encode(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let bytes = bytes_of(&arguments[0])?;
    let rows = bytes.as_binary_view().iter().zip(texts(&arguments[1]));
    let encoded = rows.map(|(bytes, format)| {
        let Some((bytes, format)) = bytes.zip(format) else { return Ok(None) };
        Ok(Some(match Format::parse(format)? {
            Format::Base64 => to_base64(bytes),
            Format::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Format::Escape => escaped(bytes),
        }))
    });
    Ok(Arc::new(encoded.collect::<Result<StringViewArray>>()?))
}

fn decode(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let rows = texts(&arguments[0]).iter().zip(texts(&arguments[1]));
    let decoded = rows.map(|(text, format)| {
        let Some((text, format)) = text.zip(format) else { return Ok(None) };
        Ok(Some(match Format::parse(format)? {
            Format::Base64 => from_base64(text)?,
            Format::Hex => from_hex(text)?,
            Format::Escape => from_escaped(text)?,
        }))
    });
    Ok(Arc::new(decoded.collect::<Result<BinaryViewArray>>()?))
}

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 3 * 4 + 4);
    let mut line = 0;
    for group in bytes.chunks(3) {
        if line == LINE {
            text.push('\n');
            line = 0;
        }
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() { DIGITS[value as usize].into() } else { '=' });
        }
        line += 4;
    }
    text
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut digits, mut padding) = (0_u32, 0, 0);
    for character in text.chars().filter(|character| !matches!(character, ' ' | '\t' | '\n' | '\r')) {
        if character == '=' {
            padding += 1;
            if padding + digits != 4 && !(padding == 1 && digits == 2) {
                return exec_err!("unexpected \"=\" while decoding base64 sequence");
            }
            continue;
        }
        let value = DIGITS.iter().position(|digit| char::from(*digit) == character);
        let Some(value) = value.filter(|_| padding == 0) else {
            return exec_err!("invalid symbol \"{character}\" found while decoding base64 sequence");
        };
        (bits, digits) = (bits << 6 | value as u32, digits + 1);
        if digits == 4 {
            bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, digits) = (0, 0);
        }
    }
    match (digits, padding) {
        (0, 0) => {}
        (2, 2) => bytes.push((bits >> 4) as u8),
        (3, 1) => bytes.extend([(bits >> 10) as u8, (bits >> 2) as u8]),
        _ => return exec_err!("invalid base64 end sequence"),
    }
    Ok(bytes)
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let mut digits = Vec::with_capacity(text.len());
    for character in text.chars().filter(|character| !matches!(character, ' ' | '\t' | '\n' | '\r')) {
        match character.to_digit(16) {
            Some(digit) => digits.push(digit as u8),
            None => return exec_err!("invalid hexadecimal digit: \"{character}\""),
        }
    }
    if digits.len() % 2 != 0 {
        return exec_err!("invalid hexadecimal data: odd number of digits");
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Escapes bytes: a zero byte or a byte that is not ASCII becomes a backslash and three octal digits, and a backslash
/// is doubled.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0 | 128.. => text.push_str(&format!("\\{byte:03o}")),
            b'\\' => text.push_str("\\\\"),
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

fn from_escaped(text: &str) -> Result<Vec<u8>> {
    match super::super::bytes::parse_escaped(text) {
        Some(bytes) => Ok(bytes),
        None => exec_err!("invalid input syntax for type bytea"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_padding_and_lines() {
        for (bytes, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")] {
            assert_eq!(to_base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(to_base64(&[b'a'; 58]).find('\n'), Some(LINE));
        assert_eq!(from_base64("YW\nJj ").unwrap(), b"abc");
        for text in ["YQ", "YQ=", "Y", "Y===", "YQ==YQ==", "Y!=="] {
            assert!(from_base64(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hexadecimal_and_escaped_bytes() {
        assert_eq!(from_hex(" 12 aF").unwrap(), [0x12, 0xaf]);
        assert!(from_hex("123").is_err() && from_hex("zz").is_err());
        assert_eq!(escaped(&[0, 255, b'\\', b'a']), "\\000\\377\\\\a");
        assert_eq!(from_escaped("\\000\\377\\\\a").unwrap(), [0, 255, b'\\', b'a']);
    }
}
