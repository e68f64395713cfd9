//! `SIMILAR TO` with PostgreSQL's patterns: `%` and `_` are wildcards, and a pattern matches the whole text. DataFusion
//! treats the pattern as a regular expression that may match anywhere.
//!
//! ```text
//!   written                   planned                            computed
//!   a SIMILAR TO 'x%(1|2)'    a ~ similar_to_regex('x%(1|2)')    a ~ '(?s)^(?:x.*(?:1|2))$'
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Rewrites `SIMILAR TO` as a comparison with a regular expression.
pub(super) fn similar_to(Like { negated, expr, pattern, escape_char, .. }: Like) -> Expr {
    let signature = Signature::string(1, Volatility::Immutable);
    let escape = escape_char.unwrap_or('\\');
    let regex = ScalarUDF::new_from_impl(SimilarToRegex { escape, signature }).call(vec![*pattern]);
    let operator = if negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
    Expr::BinaryExpr(BinaryExpr::new(expr, operator, Box::new(regex)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SimilarToRegex {
    escape: char,
    signature: Signature,
}

impl ScalarUDFImpl for SimilarToRegex {
    fn name(&self) -> &'static str {
        "similar_to_regex"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let regexes = |patterns: &ArrayRef| -> Result<ArrayRef> {
            let patterns = cast(patterns, &DataType::Utf8)?;
            let regex = |pattern: &str| regex(pattern, Some(self.escape));
            let regexes = patterns.as_string::<i32>().iter().map(|pattern| pattern.map(regex).transpose());
            Ok(Arc::new(regexes.collect::<Result<StringArray>>()?))
        };
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(regexes(array)?),
            ColumnarValue::Scalar(scalar) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&regexes(&scalar.to_array()?)?, 0)?)
            }
        })
    }
}

/// Translates a pattern of `SIMILAR TO` to a regular expression. A double quote after the escape character separates
/// the part that `substring` returns, which becomes a group, from the parts before and after it. These match as little
/// text as possible.
///
/// ```text
///   a%              (?s)^(?:a.*)$
///   %#"o_a#"_       (?s)^(?U:.*)(o.a)(?U:.)$
/// ```
///
/// # Errors
/// If the pattern has more than two separators.
pub(super) fn regex(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut regex = String::new();
    let mut separators = 0;
    let mut is_in_brackets = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == escape => {
                let Some(escaped) = characters.next() else { break };
                if escaped == '"' && !is_in_brackets {
                    separators += 1;
                    regex.push_str(if separators == 1 { ")(" } else { ")(?U:" });
                    continue;
                }
                // As in PostgreSQL, classes such as \d keep their meaning. Other escaped letters are literal.
                if "dwsDWS".contains(escaped) || (!escaped.is_alphanumeric() && escaped.is_ascii()) {
                    regex.push('\\');
                }
                regex.push(escaped);
            }
            '[' if !is_in_brackets => {
                is_in_brackets = true;
                regex.push('[');
            }
            '[' if characters.as_str().starts_with(':') && characters.as_str().contains(":]") => {
                regex.push('[');
                // The name of a class, such as [:alpha:].
                while let Some(part) = characters.next() {
                    regex.push(part);
                    if part == ':' && characters.as_str().starts_with(']') {
                        regex.extend(characters.next());
                        break;
                    }
                }
            }
            ']' if is_in_brackets => {
                is_in_brackets = false;
                regex.push(']');
            }
            '\\' | '[' | '&' | '~' if is_in_brackets => regex.extend(['\\', character]),
            _ if is_in_brackets => regex.push(character),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' | '\\' => regex.extend(['\\', character]),
            _ => regex.push(character),
        }
    }
    Ok(match separators {
        0 => format!("(?s)^(?:{regex})$"),
        1 | 2 => format!("(?s)^(?U:{regex})$"),
        _ => return exec_err!("SQL regular expression may not contain more than two escape-double-quote separators"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_regular_expressions() {
        for (pattern, expected) in [
            ("a%", "(?s)^(?:a.*)$"),
            ("(a|b)_c", "(?s)^(?:(?:a|b).c)$"),
            ("a.b$", "(?s)^(?:a\\.b\\$)$"),
            ("100\\%", "(?s)^(?:100\\%)$"),
            ("[^a-z%]{2,3}", "(?s)^(?:[^a-z%]{2,3})$"),
            ("\\d\\z", "(?s)^(?:\\dz)$"),
            ("[[:alpha:]_]", "(?s)^(?:[[:alpha:]_])$"),
            ("%\\\"o_a\\\"_", "(?s)^(?U:.*)(o.a)(?U:.)$"),
        ] {
            assert_eq!(regex(pattern, Some('\\')).unwrap(), expected);
        }
        assert_eq!(regex("a!%", Some('!')).unwrap(), "(?s)^(?:a\\%)$");
        assert_eq!(regex("a\\_", None).unwrap(), "(?s)^(?:a\\\\.)$");
        assert!(regex("a!\"b!\"!\"", Some('!')).is_err());
    }
}
