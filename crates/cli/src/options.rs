//! Parser for the value of `--with`: `layout=groups, groups='(a,b),(c)', sort_by='a, b desc'`.
//!
//! A value in single quotes may contain any text, with `''` for a quote. A value without quotes ends at the next comma
//! outside of parentheses and double quotes. If the text after that comma begins with a parenthesis, it continues the
//! value: `groups=(a,b),(c)`.

use crate::failure::Failure;

/// Parses a text into pairs of name and value, in the order of the text.
pub fn parse_options(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut options: Vec<(String, String)> = Vec::new();
    for piece in split_at_commas(text)? {
        if piece.starts_with('(')
            && let Some((_, value)) = options.last_mut()
        {
            value.push(',');
            value.push_str(piece);
            continue;
        }
        let malformed = |expected| Failure::With { expected, found: piece.to_owned() };
        let Some((name, value)) = piece.split_once('=') else { return Err(malformed("expected name=value")) };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err(malformed("expected name=value"));
        }
        let value = match value.strip_prefix('\'') {
            None => value.to_owned(),
            Some(rest) => match rest.strip_suffix('\'') {
                Some(inside) if !inside.replace("''", "").contains('\'') => inside.replace("''", "'"),
                _ => return Err(malformed("expected one quoted value")),
            },
        };
        options.push((name.to_owned(), value));
    }
    Ok(options)
}

/// Splits a text at commas outside of quotes and parentheses. Trims the parts.
fn split_at_commas(text: &str) -> Result<Vec<&str>, Failure> {
    let (mut pieces, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    let mut quote = None;
    for (offset, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                pieces.push(text[start..offset].trim());
                start = offset + 1;
            }
            _ => {}
        }
    }
    if quote.is_some() || depth > 0 {
        return Err(Failure::With { expected: "expected a closing quote or parenthesis", found: text.to_owned() });
    }
    let last = text[start..].trim();
    if !(last.is_empty() && pieces.is_empty()) {
        pieces.push(last);
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_quoted_and_hold_commas() {
        let cases: [(&str, &[(&str, &str)]); 6] = [
            ("", &[]),
            ("layout=row", &[("layout", "row")]),
            (" layout = column ,sort_by='a, b desc' ", &[("layout", "column"), ("sort_by", "a, b desc")]),
            ("groups='(a,b),(c)', layout=groups", &[("groups", "(a,b),(c)"), ("layout", "groups")]),
            ("groups=(a, b),(c), layout=groups", &[("groups", "(a, b),(c)"), ("layout", "groups")]),
            ("sort_by=\"a,b\", encoding='it''s=plain'", &[("sort_by", "\"a,b\""), ("encoding", "it's=plain")]),
        ];
        for (text, expected) in cases {
            let options = parse_options(text).unwrap();
            let options: Vec<_> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(options, expected, "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in ["layout", "layout=", "=row", "a=b,", "a='b", "a='b'c'", "a=(b", "sort_by=a, b desc", "(a)"] {
            assert!(parse_options(text).is_err(), "{text}");
        }
    }
}
