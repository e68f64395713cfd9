//! `LIKE` patterns and regular expressions that DataFusion interprets differently from PostgreSQL.

use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use crate::syntax;

/// One of `~`, `~*`, `!~` and `!~*`.
pub(super) struct RegexOperator {
    ignores_case: bool,
    is_negated: bool,
}

impl RegexOperator {
    /// Converts a regular expression operator. Returns `None` for other operators.
    pub fn of(operator: &BinaryOperator) -> Option<Self> {
        let (ignores_case, is_negated) = match operator {
            BinaryOperator::PGRegexMatch => (false, false),
            BinaryOperator::PGRegexIMatch => (true, false),
            BinaryOperator::PGRegexNotMatch => (false, true),
            BinaryOperator::PGRegexNotIMatch => (true, true),
            _ => return None,
        };
        Some(Self { ignores_case, is_negated })
    }

    /// Returns a call of the function that implements PostgreSQL's syntax, if the pattern is computed or has escapes or
    /// brackets. Returns `None` for other patterns, for which DataFusion's operator is used.
    pub fn call(&self, text: &Expr, pattern: &mut Expr) -> Option<Expr> {
        if let Expr::Value(literal) = pattern
            && let Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) = &mut literal.value
            && !text.contains(['\\', '['])
        {
            if text.contains('.') && !text.starts_with(DOT_MATCHES_ALL) {
                text.insert_str(0, DOT_MATCHES_ALL);
            }
            return None;
        }
        let mut arguments = vec![text.clone(), pattern.clone()];
        if self.ignores_case {
            arguments.push(Expr::value(Value::SingleQuotedString("i".to_owned())));
        }
        let call = syntax::call("regexp_like", arguments);
        let negated = |call| Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) }));
        Some(if self.is_negated { negated(call) } else { call })
    }
}

/// Flag in DataFusion's regular expressions: a dot matches a line feed too, as in PostgreSQL.
const DOT_MATCHES_ALL: &str = "(?s)";

/// Changes the escape character in a `LIKE` pattern from `escape` to the backslash. A computed or invalid pattern is
/// changed when the statement runs.
pub(super) fn escape_pattern(pattern: &mut Expr, escape: &str) {
    if let Expr::Value(literal) = pattern
        && let Value::SingleQuotedString(text) = &mut literal.value
        && let Some(escaped) = with_backslashes(text, escape)
    {
        *text = escaped;
        return;
    }
    let escape = Expr::value(Value::SingleQuotedString(escape.to_owned()));
    *pattern = syntax::call("like_escape", vec![pattern.clone(), escape]);
}

/// Returns a pattern with the backslash as its escape character. Returns `None` for two errors: the pattern ends with
/// `escape`, or `escape` has several characters.
fn with_backslashes(pattern: &str, escape: &str) -> Option<String> {
    let mut escape = escape.chars();
    let (escape, None) = (escape.next(), escape.next()) else { return None };
    let mut result = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            result.extend(['\\', characters.next()?]);
        } else if character == '\\' {
            result.push_str("\\\\");
        } else {
            result.push(character);
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_escaped_by_backslashes() {
        assert_eq!(with_backslashes("50#%", "#").as_deref(), Some(r"50\%"));
        assert_eq!(with_backslashes("##a\\_", "#").as_deref(), Some(r"\#a\\_"));
        assert_eq!(with_backslashes("a\\_", "").as_deref(), Some(r"a\\_"));
        assert_eq!(with_backslashes("a#", "#"), None);
        assert_eq!(with_backslashes("a", "##"), None);
    }
}
