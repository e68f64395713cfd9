//! Tokens of a text, for syntax that is rewritten before it is parsed.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;

/// Whether a text contains some letters, in any case. Texts without them need no second look.
pub fn contains(sql: &str, letters: &str) -> bool {
    sql.as_bytes().windows(letters.len()).any(|window| window.eq_ignore_ascii_case(letters.as_bytes()))
}

/// The tokens of a text without white space. `tokens` are those of the text, if it has been changed before. Returns
/// `None` for texts with invalid tokens: the error of the parser is better.
pub fn without_spaces(sql: &str, tokens: Option<&Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let mut read = match tokens {
        Some(tokens) => tokens.clone(),
        None => Tokenizer::new(&Grammar, sql).tokenize_with_location().ok()?,
    };
    read.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    Some(read)
}

/// Whether the token at a position is this unquoted word, in any case.
pub fn is_word(tokens: &[TokenWithSpan], at: usize, expected: &str) -> bool {
    matches!(
        tokens.get(at).map(|token| &token.token),
        Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected)
    )
}
