//! Functions that name an encoding: `to_ascii(text [, encoding])` and `length(bytea, encoding)`. Text in a database is
//! in UTF-8.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::byte_strings::bytes_of;
use super::definition::ArgumentType::{Integer, Text};
use super::definition::{Definition, complete_rows, integers, result, texts};

pub(super) const FUNCTIONS: [Definition; 1] = [Definition {
    name: "to_ascii",
    arguments: &[&[Text], &[Text, Text], &[Text, Integer]],
    result: result::text,
    compute: to_ascii,
}];

/// How an encoding stores characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Utf8,
    /// Each byte is a character.
    OneByte,
    /// Each byte is a character, and PostgreSQL can convert them to ASCII.
    OneByteToAscii,
    Other,
}

/// PostgreSQL's encodings in the order of their codes.
const ENCODINGS: [(&str, Width); 42] = [
    ("SQL_ASCII", Width::OneByte),
    ("EUC_JP", Width::Other),
    ("EUC_CN", Width::Other),
    ("EUC_KR", Width::Other),
    ("EUC_TW", Width::Other),
    ("EUC_JIS_2004", Width::Other),
    ("UTF8", Width::Utf8),
    ("MULE_INTERNAL", Width::Other),
    ("LATIN1", Width::OneByteToAscii),
    ("LATIN2", Width::OneByteToAscii),
    ("LATIN3", Width::OneByte),
    ("LATIN4", Width::OneByte),
    ("LATIN5", Width::OneByte),
    ("LATIN6", Width::OneByte),
    ("LATIN7", Width::OneByte),
    ("LATIN8", Width::OneByte),
    ("LATIN9", Width::OneByteToAscii),
    ("LATIN10", Width::OneByte),
    ("WIN1256", Width::OneByte),
    ("WIN1258", Width::OneByte),
    ("WIN866", Width::OneByte),
    ("WIN874", Width::OneByte),
    ("KOI8R", Width::OneByte),
    ("WIN1251", Width::OneByte),
    ("WIN1252", Width::OneByte),
    ("ISO_8859_5", Width::OneByte),
    ("ISO_8859_6", Width::OneByte),
    ("ISO_8859_7", Width::OneByte),
    ("ISO_8859_8", Width::OneByte),
    ("WIN1250", Width::OneByteToAscii),
    ("WIN1253", Width::OneByte),
    ("WIN1254", Width::OneByte),
    ("WIN1255", Width::OneByte),
    ("WIN1257", Width::OneByte),
    ("KOI8U", Width::OneByte),
    ("SJIS", Width::Other),
    ("BIG5", Width::Other),
    ("GBK", Width::Other),
    ("UHC", Width::Other),
    ("GB18030", Width::Other),
    ("JOHAB", Width::Other),
    ("SHIFT_JIS_2004", Width::Other),
];

/// Other names of encodings.
const ALIASES: [(&str, &str); 4] =
    [("unicode", "UTF8"), ("iso88591", "LATIN1"), ("iso88592", "LATIN2"), ("iso885915", "LATIN9")];

/// Finds an encoding by its name, in which only letters and digits count.
fn find(name: &str) -> Option<(&'static str, Width)> {
    let letters = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let name = letters(name);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, encoding)| letters(encoding));
    ENCODINGS.iter().find(|(encoding, _)| letters(encoding) == name).copied()
}

/// Returns the text unchanged if it is ASCII, and the encoding has a conversion to ASCII. The encoding of text, UTF-8,
/// has none.
fn to_ascii(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let encoding = |row: usize| match arguments.get(1) {
        None => Ok(("UTF8", Width::Utf8)),
        Some(codes) if let Some(codes) = codes.as_primitive_opt::<Int64Type>() => {
            let code = codes.value(row);
            let known = usize::try_from(code).ok().and_then(|code| ENCODINGS.get(code)).copied();
            known.ok_or_else(|| exec_datafusion_err!("{code} is not a valid encoding code"))
        }
        Some(names) => {
            let name = texts(names).value(row);
            find(name).ok_or_else(|| exec_datafusion_err!("{name} is not a valid encoding name"))
        }
    };
    let converted = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let text = texts(&arguments[0]).value(row);
        match encoding(row)? {
            (_, Width::OneByteToAscii) if text.is_ascii() => Ok(Some(text)),
            (_, Width::OneByteToAscii) => exec_err!("encoding conversion from UTF8 to ASCII not supported"),
            (name, _) => exec_err!("encoding conversion from {name} to ASCII not supported"),
        }
    });
    Ok(Arc::new(converted.collect::<Result<StringViewArray>>()?))
}

/// Returns the number of characters in bytes of an encoding.
pub(super) fn lengths(values: &ArrayRef, encodings: &ArrayRef) -> Result<ArrayRef> {
    let values = bytes_of(values)?;
    let rows = values.as_binary_view().iter().zip(texts(encodings));
    integers(rows.map(|(bytes, encoding)| match bytes.zip(encoding) {
        Some((bytes, encoding)) => length(bytes, encoding).map(Some),
        None => Ok(None),
    }))
}

fn length(bytes: &[u8], encoding: &str) -> Result<i32> {
    let Some((name, width)) = find(encoding) else { return exec_err!("invalid encoding name \"{encoding}\"") };
    let zero = bytes.iter().position(|byte| *byte == 0);
    let (valid, length) = match width {
        Width::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => (bytes.len(), text.chars().count()),
            Err(error) => (error.valid_up_to(), 0),
        },
        Width::OneByte | Width::OneByteToAscii => (bytes.len(), bytes.len()),
        Width::Other => return exec_err!("encoding {name} is not supported"),
    };
    let invalid = zero.map_or(valid, |zero| zero.min(valid));
    if invalid == bytes.len() {
        return Ok(length as i32);
    }
    let first = bytes[invalid];
    let count = if width == Width::Utf8 { character_length(first) } else { 1 };
    let sequence: Vec<String> = bytes[invalid..].iter().take(count).map(|byte| format!("0x{byte:02x}")).collect();
    exec_err!("invalid byte sequence for encoding \"{name}\": {}", sequence.join(" "))
}

/// Number of bytes of a character in UTF-8 with this first byte.
fn character_length(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_encodings_ignore_case_and_punctuation() {
        for (name, expected) in [("utf-8", "UTF8"), ("Latin 1", "LATIN1"), ("iso 8859 1", "LATIN1"), ("koi8r", "KOI8R")]
        {
            assert_eq!(find(name).map(|(name, _)| name), Some(expected));
        }
        assert_eq!(find("foo"), None);
    }

    #[test]
    fn invalid_sequences_are_shown() {
        assert_eq!(length("jösé".as_bytes(), "UTF8").unwrap(), 4);
        assert_eq!(length(&[0xff, 0xfe], "latin1").unwrap(), 2);
        for (bytes, expected) in [(&[b'a', 0xc3, 0x28][..], "0xc3 0x28"), (&[0xe2, 0x82], "0xe2 0x82"), (&[0], "0x00")]
        {
            let error = length(bytes, "UTF8").unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
