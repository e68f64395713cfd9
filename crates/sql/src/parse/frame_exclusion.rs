//! `EXCLUDE` at the end of a window frame, which the parser does not accept. `EXCLUDE NO OTHERS` is the default.

use datafusion_sql::sqlparser::tokenizer::TokenWithSpan;

use crate::error::{Result, SqlError};
use crate::tokens::{contains, is_word, without_spaces};

/// Removes `EXCLUDE NO OTHERS` from window frames and returns the rewritten tokens. `tokens` is the result of an
/// earlier rewrite of `sql`, if any. Returns `tokens` if no frame has this clause.
///
/// # Errors
/// If a frame has another `EXCLUDE` clause.
pub(super) fn remove_frame_exclusion(
    sql: &str,
    tokens: Option<Vec<TokenWithSpan>>,
) -> Result<Option<Vec<TokenWithSpan>>> {
    if !contains(sql, "exclude") {
        return Ok(tokens);
    }
    let Some(mut read) = without_spaces(sql, tokens.as_ref()) else {
        return Ok(tokens);
    };
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
