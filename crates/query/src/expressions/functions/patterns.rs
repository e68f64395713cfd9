//! What the patterns of numbers and of dates have in common: literal text, and the suffixes of ordinal numbers.

use datafusion::common::Result;

/// Parser of a column of patterns. It parses equal patterns in consecutive rows once.
#[derive(Debug)]
pub(super) struct ParsedPatterns<P> {
    parse: fn(&str) -> Result<P>,
    last: Option<(String, P)>,
}

impl<P> ParsedPatterns<P> {
    pub fn new(parse: fn(&str) -> Result<P>) -> Self {
        Self { parse, last: None }
    }

    /// Returns the parsed pattern.
    ///
    /// # Errors
    /// If `text` is not a valid pattern.
    pub fn get(&mut self, text: &str) -> Result<&P> {
        let last = match self.last.take() {
            Some(last) if last.0 == text => last,
            _ => (text.to_owned(), (self.parse)(text)?),
        };
        Ok(&self.last.insert(last).1)
    }
}

/// Splits the literal text at the start of a pattern from the rest of the pattern. The text is one character, or is
/// enclosed in double quotes. A backslash before a double quote makes the quote an ordinary character. Within quotes,
/// this holds for any character.
pub(super) fn literal(pattern: &str) -> (String, &str) {
    let Some(quoted) = pattern.strip_prefix('"') else {
        let text = if pattern.starts_with("\\\"") { &pattern[1..] } else { pattern };
        let length = text.chars().next().map_or(0, char::len_utf8);
        return (text[..length].to_owned(), &text[length..]);
    };
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => text.push(characters.next().unwrap_or('\\')),
            _ => text.push(character),
        }
    }
    (text, characters.as_str())
}

/// Whether the start of a pattern is a keyword, which is written in capitals or in small letters.
pub(super) fn starts_with_keyword(pattern: &str, keyword: &str) -> bool {
    pattern.get(..keyword.len()).is_some_and(|start| {
        start == keyword
            || (start.eq_ignore_ascii_case(keyword) && !start.bytes().any(|letter| letter.is_ascii_uppercase()))
    })
}

/// Returns the suffix of an ordinal number: `st`, `nd`, `rd` or `th`. `digits` ends with the last digit of the number.
pub(super) fn ordinal_suffix(digits: &str, is_upper: bool) -> &'static str {
    let mut last = digits.bytes().rev();
    let suffixes = match (last.next(), last.next()) {
        (_, Some(b'1')) => ["th", "TH"],
        (Some(b'1'), _) => ["st", "ST"],
        (Some(b'2'), _) => ["nd", "ND"],
        (Some(b'3'), _) => ["rd", "RD"],
        _ => ["th", "TH"],
    };
    suffixes[usize::from(is_upper)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_text_ends_at_the_quote() {
        for (pattern, text, rest) in [
            ("x9", "x", "9"),
            ("é9", "é", "9"),
            ("\"a b\"9", "a b", "9"),
            ("\"a\\\"b\"9", "a\"b", "9"),
            ("\"open", "open", ""),
            ("\"\\", "\\", ""),
            ("\\\"9\"", "\"", "9\""),
            ("\\x", "\\", "x"),
        ] {
            assert_eq!(literal(pattern), (text.to_owned(), rest), "{pattern}");
        }
    }

    #[test]
    fn teens_have_the_suffix_th() {
        let suffixes = ["1", "2", "3", "4", "11", "12", "113", "21", "0"].map(|digits| ordinal_suffix(digits, false));
        assert_eq!(suffixes, ["st", "nd", "rd", "th", "th", "th", "th", "st", "th"]);
    }
}
