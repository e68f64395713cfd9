//! Functions on text: lengths, padding, quoting for SQL, code points, hexadecimal digits, splitting, escapes and
//! similarity.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, ListBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err};

use super::definition::ArgumentType::{Any, AsText, Bytes, Integer, List, Text};
use super::definition::{Definition, complete_rows, integers, map_text, result, texts};
use super::encodings;

pub(super) const FUNCTIONS: [Definition; 15] = [
    Definition {
        name: "character_length",
        arguments: &[&[Text], &[Bytes], &[List], &[Bytes, Text], &[Text, Text]],
        result: result::integer,
        compute: |arguments| match arguments {
            [bytes, encoding] => encodings::lengths(bytes, encoding),
            _ => lengths(arguments),
        },
    },
    Definition {
        name: "lpad",
        arguments: &[&[Text, Integer], &[Text, Integer, Text]],
        result: result::text,
        compute: |arguments| padded(arguments, |text, padding| padding + text),
    },
    Definition {
        name: "rpad",
        arguments: &[&[Text, Integer], &[Text, Integer, Text]],
        result: result::text,
        compute: |arguments| padded(arguments, |text, padding| text.to_owned() + &padding),
    },
    Definition { name: "octet_length", arguments: &[&[Text], &[Bytes]], result: result::integer, compute: octets },
    Definition { name: "quote_ident", arguments: &[&[Text]], result: result::text, compute: quoted_names },
    Definition { name: "quote_literal", arguments: &[&[AsText]], result: result::text, compute: quoted_literals },
    Definition { name: "quote_nullable", arguments: &[&[AsText]], result: result::text, compute: quoted_nullables },
    Definition { name: "chr", arguments: &[&[Integer]], result: result::text, compute: characters },
    Definition { name: "to_hex", arguments: &[&[Any]], result: result::text, compute: hexadecimal },
    Definition { name: "string_split", arguments: &[&[Text, Text]], result: result::texts, compute: split },
    Definition { name: "unistr", arguments: &[&[Text]], result: result::text, compute: unescaped },
    Definition { name: "hamming", arguments: &[&[Text, Text]], result: result::bigint, compute: hamming },
    Definition { name: "jaccard", arguments: &[&[Text, Text]], result: result::double, compute: jaccard },
    Definition { name: "like_escape", arguments: &[&[Text, Text]], result: result::text, compute: escaped_patterns },
    Definition { name: "unicode", arguments: &[&[Text]], result: result::integer, compute: first_characters },
];

/// Key words that must be quoted in names, as in PostgreSQL. Sorted.
const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case \
    cast char character check coalesce collate collation column concurrently constraint create cross current_catalog \
    current_date current_role current_schema current_time current_timestamp current_user dec decimal default \
    deferrable desc distinct do else end except exists extract false fetch float for foreign freeze from full grant \
    greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull join \
    lateral leading least left like limit localtime localtimestamp national natural nchar none normalize not notnull \
    null nullif numeric offset on only or order out outer overlaps overlay placing position precision primary real \
    references returning right row select session_user setof similar smallint some substring symmetric table \
    tablesample then time timestamp to trailing treat trim true union unique user using values varchar variadic \
    verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse \
    xmlpi xmlroot xmlserialize xmltable";

/// Quotes a name for SQL, unless it consists of lower-case letters, digits and underscores and is not a reserved word.
pub(super) fn quoted_name(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !RESERVED.split(' ').any(|word| word == name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Quotes a string as an SQL literal.
pub(super) fn quoted_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}

/// Maximum length of a padded string in bytes, as in PostgreSQL.
pub(super) const PADDED_BYTES_MAX: usize = 1 << 30;

/// Truncates or pads strings to a length in characters. `joined` combines a string and its padding.
fn padded(arguments: &[ArrayRef], joined: fn(&str, String) -> String) -> Result<ArrayRef> {
    let lengths = arguments[1].as_primitive::<Int64Type>();
    let padded = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let text = texts(&arguments[0]).value(row);
        let fill = arguments.get(2).map_or(" ", |fill| texts(fill).value(row));
        let length = usize::try_from(lengths.value(row).max(0)).unwrap_or(usize::MAX);
        let missing = length.saturating_sub(text.chars().count());
        if missing == 0 {
            return Ok(Some(text.chars().take(length).collect()));
        }
        let widest = fill.chars().map(char::len_utf8).max().unwrap_or(0);
        if missing.saturating_mul(widest).saturating_add(text.len()) > PADDED_BYTES_MAX {
            return exec_err!("requested length too large");
        }
        let padding = if fill.is_empty() { String::new() } else { fill.chars().cycle().take(missing).collect() };
        Ok(Some(joined(text, padding)))
    });
    Ok(Arc::new(padded.collect::<Result<StringViewArray>>()?))
}

/// Returns the length of text in characters, of bytes in bytes, or of arrays in elements.
fn lengths(values: &[ArrayRef]) -> Result<ArrayRef> {
    let value = &values[0];
    let characters = |text: &str| if text.is_ascii() { text.len() } else { text.chars().count() };
    let length = |row: usize| match value.data_type() {
        DataType::Utf8View => characters(texts(value).value(row)),
        DataType::BinaryView => value.as_binary_view().value(row).len(),
        _ => value.as_list::<i32>().value_length(row) as usize,
    };
    integers((0..value.len()).map(|row| Ok(value.is_valid(row).then(|| length(row) as i32))))
}

fn octets(values: &[ArrayRef]) -> Result<ArrayRef> {
    let value = &values[0];
    let length = |row: usize| match value.data_type() {
        DataType::Utf8View => texts(value).value(row).len(),
        _ => value.as_binary_view().value(row).len(),
    };
    integers((0..value.len()).map(|row| Ok(value.is_valid(row).then(|| length(row) as i32))))
}

fn quoted_names(names: &[ArrayRef]) -> Result<ArrayRef> {
    map_text(&names[0], |name| Ok(Some(quoted_name(name))))
}

fn quoted_literals(values: &[ArrayRef]) -> Result<ArrayRef> {
    map_text(&values[0], |text| Ok(Some(quoted_literal(text))))
}

fn quoted_nullables(values: &[ArrayRef]) -> Result<ArrayRef> {
    let quoted = texts(&values[0]).iter().map(|text| Some(text.map_or_else(|| "NULL".to_owned(), quoted_literal)));
    Ok(Arc::new(quoted.collect::<StringViewArray>()))
}

fn characters(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    let character = |number: i64| match number {
        0 => exec_err!("null character not permitted"),
        i64::MIN..0 => exec_err!("character number must be positive"),
        _ => match u32::try_from(number).ok().and_then(char::from_u32) {
            Some(character) => Ok(character.to_string()),
            None => exec_err!("requested character too large for encoding: {number}"),
        },
    };
    let numbers = numbers[0].as_primitive::<Int64Type>().iter();
    Ok(Arc::new(numbers.map(|number| number.map(character).transpose()).collect::<Result<StringViewArray>>()?))
}

/// Returns the hexadecimal digits of integers. Negative numbers have all digits of their type, 32 or 64 bits.
fn hexadecimal(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    let digits: fn(i64) -> String = match numbers[0].data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => |number| format!("{:x}", number as i32),
        DataType::Int64 | DataType::Null => |number| format!("{number:x}"),
        other => return exec_err!("to_hex of {other} is not supported"),
    };
    let numbers = cast(&numbers[0], &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>().iter();
    Ok(Arc::new(numbers.map(|number| number.map(digits)).collect::<StringViewArray>()))
}

/// Splits strings at separators. An empty separator splits into characters. With a null separator, the result is the
/// whole string.
fn split(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for (text, separator) in texts(&arguments[0]).iter().zip(texts(&arguments[1])) {
        match (text, separator) {
            (None, _) => lists.append_null(),
            (Some(text), None) => lists.append_value([Some(text)]),
            (Some(text), Some("")) => lists.append_value(text.chars().map(|character| Some(character.to_string()))),
            (Some(text), Some(separator)) => lists.append_value(text.split(separator).map(Some)),
        }
    }
    Ok(Arc::new(lists.finish()))
}

/// Decodes escaped characters, `\0061`, `\+000061`, `\u0061` and `\U00000061`, and escaped backslashes, `\\`.
fn unescaped(escaped: &[ArrayRef]) -> Result<ArrayRef> {
    map_text(&escaped[0], |text| match unescape(text) {
        Some(unescaped) => Ok(Some(unescaped)),
        None => exec_err!("invalid Unicode escape"),
    })
}

fn unescape(text: &str) -> Option<String> {
    let mut unescaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        unescaped.push_str(before);
        if let Some(after) = escape.strip_prefix('\\') {
            unescaped.push('\\');
            rest = after;
            continue;
        }
        let (digits, from) = match escape.as_bytes().first()? {
            b'+' => (6, 1),
            b'u' => (4, 1),
            b'U' => (8, 1),
            _ => (4, 0),
        };
        let number = escape.get(from..from + digits)?;
        unescaped.push(char::from_u32(u32::from_str_radix(number, 16).ok()?)?);
        rest = &escape[from + digits..];
    }
    Some(unescaped + rest)
}

/// Rewrites `LIKE` patterns to use the backslash as escape character. The second argument is the escape character of
/// the pattern. If it is empty, the pattern has no escape character.
fn escaped_patterns(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (patterns, escapes) = (texts(&arguments[0]), texts(&arguments[1]));
    let escaped = patterns.iter().zip(escapes).map(|(pattern, escape)| match (pattern, escape) {
        (Some(pattern), Some(escape)) => escaped_pattern(pattern, escape).map(Some),
        _ => Ok(None),
    });
    Ok(Arc::new(escaped.collect::<Result<StringViewArray>>()?))
}

fn escaped_pattern(pattern: &str, escape: &str) -> Result<String> {
    let mut escape = escape.chars();
    let (escape, None) = (escape.next(), escape.next()) else { return exec_err!("invalid escape string") };
    let mut escaped = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            let Some(next) = characters.next() else {
                return exec_err!("LIKE pattern must not end with escape character");
            };
            escaped.extend(['\\', next]);
        } else if character == '\\' {
            escaped.push_str("\\\\");
        } else {
            escaped.push(character);
        }
    }
    Ok(escaped)
}

/// Returns the number of bytes in which two strings of equal length differ.
fn hamming(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let pairs = texts(&arguments[0]).iter().zip(texts(&arguments[1]));
    let differences = pairs.map(|(left, right)| {
        let Some((left, right)) = left.zip(right) else { return Ok(None) };
        if left.len() != right.len() {
            return exec_err!("Mismatch Function Error: Strings must be of equal length!");
        }
        let differing = left.bytes().zip(right.bytes()).filter(|(left, right)| left != right).count();
        Ok(Some(differing as i64))
    });
    Ok(Arc::new(differences.collect::<Result<Int64Array>>()?))
}

/// Returns the Jaccard similarity: the share of the distinct bytes of two strings that occur in both.
fn jaccard(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let pairs = texts(&arguments[0]).iter().zip(texts(&arguments[1]));
    let similarities = pairs.map(|(left, right)| {
        let Some((left, right)) = left.zip(right) else { return Ok(None) };
        if left.is_empty() || right.is_empty() {
            return exec_err!("Jaccard Function: An argument too short!");
        }
        let (left, right): (BTreeSet<u8>, BTreeSet<u8>) = (left.bytes().collect(), right.bytes().collect());
        Ok(Some(left.intersection(&right).count() as f64 / left.union(&right).count() as f64))
    });
    Ok(Arc::new(similarities.collect::<Result<Float64Array>>()?))
}

/// Returns the code point of the first character of each string, or -1 for an empty string.
fn first_characters(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let first = |text: &str| text.chars().next().map_or(-1, |character| character as i32);
    integers(texts(&arguments[0]).iter().map(|text| Ok(text.map(first))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_literals_are_quoted_where_needed() {
        for (name, expected) in [
            ("foo_1", "foo_1"),
            ("_x", "_x"),
            ("Foo", "\"Foo\""),
            ("select", "\"select\""),
            ("a\"b", "\"a\"\"b\""),
            ("1a", "\"1a\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted_name(name), expected);
        }
        for (text, expected) in [("it's", "'it''s'"), ("", "''"), ("a\\b", "E'a\\\\b'")] {
            assert_eq!(quoted_literal(text), expected);
        }
    }

    #[test]
    fn escapes_stand_for_characters() {
        assert_eq!(unescape(r"d\0061t\+000061\\\u0061\U00000061").as_deref(), Some(r"data\aa"));
        assert_eq!((unescape(r"\00"), unescape(r"\"), unescape(r"\zzzz")), (None, None, None));
    }
}
