//! `substring(text FROM pattern)`, with a regular expression, and `substring(text FROM pattern FOR escape)`, with a
//! pattern of `SIMILAR TO`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::common::{Result, exec_err};
use regex::Regex;

use super::super::similar_to;
use super::definition::ArgumentType::Text;
use super::definition::{Definition, complete_rows, result, texts};
use super::regex::first_parts;

/// The function for patterns. `substr` is DataFusion's name of `substring`.
pub(super) static SUBSTRING: Definition = Definition {
    name: "substr",
    arguments: &[&[Text, Text], &[Text, Text, Text]],
    result: result::text,
    compute: |arguments| match arguments.len() {
        2 => first_parts(arguments),
        _ => similar_parts(arguments),
    },
};

/// Returns the part of each text between the separators of its pattern, or the whole text if the pattern has none. The
/// result is null if the pattern does not match the whole text.
fn similar_parts(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    // Usually all rows have the same pattern.
    let mut last: Option<(&str, &str, Regex)> = None;
    let parts = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let [text, pattern, escape] = [0, 1, 2].map(|index| texts(&arguments[index]).value(row));
        let regex = match last.take() {
            Some((last_pattern, last_escape, regex)) if (last_pattern, last_escape) == (pattern, escape) => regex,
            _ => compiled(pattern, escape)?,
        };
        let found = regex.captures(text).and_then(|groups| groups.get(groups.len() - 1));
        last = Some((pattern, escape, regex));
        Ok(found.map(|part| part.as_str()))
    });
    Ok(Arc::new(parts.collect::<Result<StringViewArray>>()?))
}

fn compiled(pattern: &str, escape: &str) -> Result<Regex> {
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return exec_err!("invalid escape string");
    }
    match Regex::new(&similar_to::regex(pattern, escape)?) {
        Ok(regex) => Ok(regex),
        Err(error) => {
            let reason = error.to_string();
            exec_err!("invalid regular expression: {}", reason.lines().last().unwrap_or_default().trim())
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;

    use super::*;

    #[test]
    fn parts_are_between_separators() {
        for (text, pattern, expected) in [
            ("Thomas", "%#\"o_a#\"_", Some("oma")),
            ("abcabc", "%#\"b%#\"%", Some("bcabc")),
            ("foobar", "%#\"o+#\"%", Some("oo")),
            ("aaa", "a*#\"a*#\"a*", Some("aaa")),
            ("aaabbb", "(a|aa)#\"%#\"b*", Some("aabbb")),
            ("abcdefg", "a|b#\"%#\"g", Some("bcdef")),
            ("abcde", "a#\"b%", Some("bcde")),
            ("abc", "a%", Some("abc")),
            ("abc", "x", None),
        ] {
            let arguments = [text, pattern, "#"].map(|text| Arc::new(StringViewArray::from(vec![text])) as ArrayRef);
            let parts = similar_parts(&arguments).unwrap();
            assert_eq!(parts.as_string_view().iter().next().unwrap(), expected, "{pattern}");
        }
        assert!(compiled("a#\"b#\"c#\"d", "#").is_err() && compiled("a", "##").is_err());
    }
}
