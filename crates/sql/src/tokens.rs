//! Helpers to rewrite the tokens of an SQL text before it is parsed.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;

/// Whether an SQL text contains `letters`, in any case. This check is cheaper than reading the tokens.
pub fn contains(sql: &str, letters: &str) -> bool {
    sql.as_bytes().windows(letters.len()).any(|window| window.eq_ignore_ascii_case(letters.as_bytes()))
}

/// Returns the tokens of a text without white space. `tokens` is the result of an earlier rewrite of `sql`, if any.
/// Returns `None` if a token is invalid: the parser reports a better error.
pub fn without_spaces(sql: &str, tokens: Option<&Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let mut read = match tokens {
        Some(tokens) => tokens.clone(),
        None => Tokenizer::new(&Grammar, sql).tokenize_with_location().ok()?,
    };
    read.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    Some(read)
}

/// Whether the token at index `at` is the unquoted word `expected`, in any case.
pub fn is_word(tokens: &[TokenWithSpan], at: usize, expected: &str) -> bool {
    matches!(
        tokens.get(at).map(|token| &token.token),
        Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected)
    )
}

/// Index of the parenthesis that closes a list. `tokens` begin after the opening parenthesis of the list.
pub fn closing_parenthesis(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| match token.token {
        Token::LParen => {
            depth += 1;
            false
        }
        Token::RParen if depth == 0 => true,
        Token::RParen => {
            depth -= 1;
            false
        }
        _ => false,
    })
}
