//! `EXCLUDE` at the end of a window frame, which the parser does not accept. `EXCLUDE NO OTHERS` is the default.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;
use crate::error::{Result, SqlError};

/// Removes `EXCLUDE NO OTHERS` from window frames, and returns the tokens of the new text. `tokens` are those of the
/// text, if it has been changed before. Returns `tokens` for texts without such clauses.
///
/// # Errors
/// If a frame excludes rows.
pub(super) fn remove_frame_exclusion(
    sql: &str,
    tokens: Option<Vec<TokenWithSpan>>,
) -> Result<Option<Vec<TokenWithSpan>>> {
    let word = b"exclude";
    if !sql.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)) {
        return Ok(tokens);
    }
    // Invalid tokens are left to the parser, whose error is better.
    let Some(mut read) = tokens.clone().or_else(|| Tokenizer::new(&Grammar, sql).tokenize_with_location().ok()) else {
        return Ok(tokens);
    };
    read.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut is_changed = false;
    for at in (1..read.len()).rev() {
        let ends_frame = ["row", "preceding", "following"].iter().any(|end| is_word(&read, at - 1, end));
        if !ends_frame || !is_word(&read, at, "exclude") {
            continue;
        }
        if is_word(&read, at + 1, "no") && is_word(&read, at + 2, "others") {
            read.drain(at..at + 3);
            is_changed = true;
            continue;
        }
        let excluded = [&["current", "row"][..], &["group"], &["ties"]];
        let is_given =
            |words: &&&[&str]| words.iter().enumerate().all(|(index, word)| is_word(&read, at + 1 + index, word));
        if let Some(words) = excluded.iter().find(is_given) {
            let clause = format!("EXCLUDE {} in a window frame", words.join(" ").to_uppercase());
            return Err(SqlError::unsupported(clause, "EXCLUDE NO OTHERS is"));
        }
    }
    Ok(if is_changed { Some(read) } else { tokens })
}

fn is_word(tokens: &[TokenWithSpan], at: usize, expected: &str) -> bool {
    matches!(
        tokens.get(at).map(|token| &token.token),
        Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected)
    )
}
