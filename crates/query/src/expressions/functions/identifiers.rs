//! `parse_ident(text [, strict])`: the parts of a qualified name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, ListBuilder, StringViewBuilder};
use datafusion::common::{Result, exec_err};

use super::definition::ArgumentType::{Boolean, Text};
use super::definition::{Definition, complete_rows, result, texts};

pub(super) const FUNCTIONS: [Definition; 1] = [Definition {
    name: "parse_ident",
    arguments: &[&[Text], &[Text, Boolean]],
    result: result::texts,
    compute: parsed,
}];

fn parsed(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in complete_rows(arguments) {
        let Some(row) = row else {
            lists.append_null();
            continue;
        };
        let text = texts(&arguments[0]).value(row);
        let is_strict = arguments.get(1).is_none_or(|strict| strict.as_boolean().value(row));
        let Some(parts) = parts(text, is_strict) else {
            return exec_err!("string is not a valid identifier: \"{text}\"");
        };
        lists.append_value(parts.into_iter().map(Some));
    }
    Ok(Arc::new(lists.finish()))
}

/// Splits a qualified name at its dots. Unquoted parts are in lower case, of which only ASCII letters change. Returns
/// `None` if the text does not begin with a name or, if `is_strict`, has other text after the name.
fn parts(text: &str, is_strict: bool) -> Option<Vec<String>> {
    let is_space = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0c');
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    loop {
        let (part, after) = if rest.starts_with('"') { quoted_part(rest)? } else { plain_part(rest)? };
        parts.push(part);
        rest = after.trim_start_matches(is_space);
        match rest.strip_prefix('.') {
            Some(next) => rest = next.trim_start_matches(is_space),
            None => return (rest.is_empty() || !is_strict).then_some(parts),
        }
    }
}

/// Reads a name in double quotes. Returns the name and the text after it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text.strip_prefix('"')?;
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return (!part.is_empty()).then_some((part, after)),
        }
    }
}

/// Reads a name without quotes. Returns the name and the text after it.
fn plain_part(text: &str) -> Option<(String, &str)> {
    let is_start = |character: char| character.is_ascii_alphabetic() || character == '_' || !character.is_ascii();
    let is_part = |character: char| is_start(character) || character.is_ascii_digit() || character == '$';
    if !text.starts_with(is_start) {
        return None;
    }
    let (part, after) = text.split_at(text.find(|character| !is_part(character)).unwrap_or(text.len()));
    Some((part.to_ascii_lowercase(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_dots() {
        for (text, expected) in [
            ("\"SomeSchema\".someTable", &["SomeSchema", "sometable"][..]),
            (" a . \"b\"\"c\" ", &["a", "b\"c"]),
            ("ÄB.a$1", &["Äb", "a$1"]),
        ] {
            assert_eq!(parts(text, true).unwrap(), expected);
        }
        for text in ["", "a b", "a.", ".a", "a..b", "\"a", "\"\"", "1a", "a[1]"] {
            assert_eq!(parts(text, true), None, "{text}");
        }
        assert_eq!(parts("a.b[1]", false).unwrap(), ["a", "b"]);
        assert_eq!(parts("a.", false), None);
    }
}
