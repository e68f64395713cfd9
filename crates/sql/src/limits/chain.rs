//! Limits on the length of operator chains and on the depth of nesting.
//!
//! `1 + 1 + 1 + ...` becomes a tree as deep as it is long. Planning, running and dropping it takes a stack frame for
//! each level. The limits are therefore checked on the tokens, before there is a tree. The parser limits nesting too,
//! but its error may then name an unrelated expected token.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;
use crate::error::{Result, SqlError};

/// Maximum operators in one chain. The threads of a database have enough stack for that.
const OPERATORS_MAX: usize = 2_000;

/// Maximum levels of parentheses, brackets and CASE, and maximum NOTs in a row.
const LEVELS_MAX: usize = 1_000;

/// Checks that no chain in a text has more than [`OPERATORS_MAX`] operators and that no nesting is deeper than
/// [`LEVELS_MAX`].
///
/// Commas separate chains, and so do the keywords within a CASE. Operators in parentheses or in a CASE count together
/// with the chain around them.
///
/// # Errors
/// If a limit is exceeded. The error has the position of the first excess token.
pub(crate) fn check(sql: &str) -> Result<()> {
    // An operator and its operand take at least two bytes, and so do the two ends of a level. A shorter text is
    // therefore within the limits.
    if sql.len() < 2 * LEVELS_MAX.min(OPERATORS_MAX) {
        return Ok(());
    }
    // The parser reports a better error for invalid tokens.
    let Ok(tokens) = Tokenizer::new(&Grammar, sql).tokenize_with_location() else { return Ok(()) };
    let (mut chains, mut length, mut negations) = (vec![0_usize], 0, 0);
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) => continue,
            token if is_word(token, &[Keyword::NOT]) => negations += 1,
            _ => negations = 0,
        }
        if chains.len() > LEVELS_MAX + 1 || negations > LEVELS_MAX {
            return Err(limit_error(&token, &format!("more than {LEVELS_MAX} levels of parentheses, CASE or NOT"), ""));
        }
        match &token.token {
            Token::SemiColon => (chains, length) = (vec![0], 0),
            token if opens_level(token) => chains.push(0),
            token if closes_level(token) && chains.len() > 1 => length -= chains.pop().unwrap_or(0),
            token if separates_chains(token) => {
                if let Some(chain) = chains.last_mut() {
                    length -= std::mem::take(chain);
                }
            }
            other if is_operator(other) => {
                length += 1;
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                }
            }
            _ => {}
        }
        if length > OPERATORS_MAX {
            let advice = "; IN (...) or a join with VALUES (...), (...) takes any number of values";
            return Err(limit_error(&token, &format!("more than {OPERATORS_MAX} operators follow each other"), advice));
        }
    }
    Ok(())
}

/// A syntax error at a token, with advice.
fn limit_error(token: &TokenWithSpan, what: &str, advice: &str) -> SqlError {
    let start = token.span.start;
    SqlError::Syntax {
        message: format!("syntax error: {what}{advice}"),
        expected: None,
        position: Some((start.line, start.column)),
    }
}

fn is_word(token: &Token, keywords: &[Keyword]) -> bool {
    matches!(token, Token::Word(word) if keywords.contains(&word.keyword))
}

fn opens_level(token: &Token) -> bool {
    matches!(token, Token::LParen | Token::LBracket) || is_word(token, &[Keyword::CASE])
}

fn closes_level(token: &Token) -> bool {
    matches!(token, Token::RParen | Token::RBracket) || is_word(token, &[Keyword::END])
}

fn separates_chains(token: &Token) -> bool {
    *token == Token::Comma || is_word(token, &[Keyword::WHEN, Keyword::THEN, Keyword::ELSE])
}

/// Whether a token may be an operator between two operands. [`check`] has already handled opening brackets, commas and
/// semicolons.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            use Keyword::{
                AND, AT, BETWEEN, COLLATE, EXCEPT, ILIKE, IN, INTERSECT, IS, JOIN, LIKE, OR, OVERLAPS, SIMILAR, UNION,
            };
            matches!(
                word.keyword,
                AND | AT
                    | BETWEEN
                    | COLLATE
                    | EXCEPT
                    | ILIKE
                    | IN
                    | INTERSECT
                    | IS
                    | JOIN
                    | LIKE
                    | OR
                    | OVERLAPS
                    | SIMILAR
                    | UNION
            )
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::HexStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::Placeholder(_)
        | Token::Whitespace(_)
        | Token::Period
        | Token::Colon
        | Token::RParen
        | Token::RBracket
        | Token::LBrace
        | Token::RBrace
        | Token::EOF => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(operators: usize, separator: &str) -> String {
        format!("SELECT {}", vec!["a"; operators + 1].join(separator))
    }

    #[test]
    fn chains_are_bounded_and_lists_are_not() {
        for separator in ["+", " OR ", "::int::", " UNION ALL ", "||", " IS NULL AND "] {
            assert!(check(&chain(OPERATORS_MAX / 3, separator)).is_ok(), "{separator}");
            let error = check(&chain(OPERATORS_MAX + 1, separator)).unwrap_err().to_string();
            assert!(error.contains("more than 2000 operators"), "{separator}: {error}");
        }
        assert!(check(&chain(5 * OPERATORS_MAX, " + 1, ")).is_ok());
        let branches = "WHEN a = 1 AND b = 2 THEN 3 ".repeat(OPERATORS_MAX);
        assert!(check(&format!("SELECT CASE {branches} END")).is_ok());
        assert!(check(&chain(OPERATORS_MAX + 1, " + CASE WHEN a = 1 THEN 2 END + ")).is_err());
        assert!(check(&chain(5 * OPERATORS_MAX, "; SELECT 1 + ")).is_ok());
        assert!(check(&format!("SELECT {}", vec!["(1 + 1)"; 3 * OPERATORS_MAX].join(","))).is_ok());
    }

    #[test]
    fn parentheses_count_towards_the_depth_of_their_chain() {
        let inner = vec!["1"; OPERATORS_MAX / 2 + 1].join("+");
        assert!(check(&format!("SELECT {inner} + ({inner})")).is_err());
        assert!(check(&format!("SELECT {inner}, ({inner})")).is_ok());
        assert!(check(&format!("SELECT ({inner}), ({inner})")).is_ok());
    }

    #[test]
    fn the_error_has_a_position() {
        let text = format!("SELECT 1\n{}", vec![" + 1"; OPERATORS_MAX + 1].join("\n"));
        let SqlError::Syntax { position, .. } = check(&text).unwrap_err() else { panic!("another error") };
        assert_eq!(position, Some((OPERATORS_MAX as u64 + 2, 2)));
    }
}
