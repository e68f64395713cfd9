//! Translates PostgreSQL's regular expressions to the syntax of the crate `regex`.

/// Translates a pattern to the syntax of the crate `regex`.
pub(super) fn translated(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    let mut bracket = Bracket::Outside;
    while let Some(character) = rest.next() {
        let after = rest.as_str();
        match (character, bracket) {
            ('\\', _) => {
                match (rest.next(), bracket) {
                    (Some('y'), Bracket::Outside) => translated.push_str("\\b"),
                    (Some('Y'), Bracket::Outside) => translated.push_str("\\B"),
                    (Some('m'), Bracket::Outside) => translated.push_str("\\b{start}"),
                    (Some('M'), Bracket::Outside) => translated.push_str("\\b{end}"),
                    (Some('Z'), Bracket::Outside) => translated.push_str("\\z"),
                    (escaped, _) => {
                        translated.push('\\');
                        translated.extend(escaped);
                    }
                }
                bracket = bracket.next();
            }
            ('[', Bracket::Outside) if let Some((boundary, end)) = word_boundary(after) => {
                translated.push_str(boundary);
                rest = after[end..].chars();
            }
            ('[', Bracket::Outside) => {
                translated.push('[');
                bracket = Bracket::Start;
            }
            ('^', Bracket::Start) => translated.push('^'),
            (']', Bracket::Inside) => {
                translated.push(']');
                bracket = Bracket::Outside;
            }
            ('[', Bracket::Start | Bracket::Inside) if after.starts_with(':') && after.contains(":]") => {
                let end = after.find(":]").unwrap_or(0) + 2;
                translated.push('[');
                translated.push_str(&after[..end]);
                rest = after[end..].chars();
                bracket = Bracket::Inside;
            }
            ('[' | ']' | '&' | '~', Bracket::Start | Bracket::Inside) => {
                translated.extend(['\\', character]);
                bracket = Bracket::Inside;
            }
            _ => {
                translated.push(character);
                bracket = bracket.next();
            }
        }
    }
    translated
}

/// Translates the word boundaries `[[:<:]]` and `[[:>:]]`. `after` is the text after the first bracket. Returns the
/// translation, and the length of the rest of the boundary in bytes. Returns `None` for other text.
fn word_boundary(after: &str) -> Option<(&'static str, usize)> {
    let boundaries = [("[:<:]]", "\\b{start}"), ("[:>:]]", "\\b{end}")];
    boundaries.iter().find_map(|(written, boundary)| after.starts_with(written).then_some((*boundary, written.len())))
}

/// Position of a character: outside of a bracket expression, directly after `[` or `[^`, or further inside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Outside,
    Start,
    Inside,
}

impl Bracket {
    fn next(self) -> Self {
        if self == Self::Outside { Self::Outside } else { Self::Inside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_translated() {
        for (pattern, expected) in [
            ("a.b", "a.b"),
            (r"\mbar\M\y\Z", r"\b{start}bar\b{end}\b\z"),
            ("[[:<:]]a[[:>:]]", r"\b{start}a\b{end}"),
            (r"[a[b]", r"[a\[b]"),
            (r"[]a]", r"[\]a]"),
            (r"[^]a&&b]", r"[^\]a\&\&b]"),
            ("[[:alpha:]_]+", "[[:alpha:]_]+"),
            (r"[\d\]x]", r"[\d\]x]"),
            (r"(\[x)", r"(\[x)"),
        ] {
            assert_eq!(translated(pattern), expected);
        }
    }
}
