//! `EXCLUDE` at the end of a window frame, which the parser does not accept. The clause is removed. Unless it is
//! `EXCLUDE NO OTHERS`, the default, a name at the start of the window stands for it:
//!
//! ```text
//! sum(a) OVER (w ORDER BY b ROWS 2 PRECEDING EXCLUDE TIES)    OVER ("taut EXCLUDE TIES w" ORDER BY b ROWS 2 PRECEDING)
//! ```

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::desugar::FrameExclusion;
use crate::tokens::{contains, is_word, without_spaces};

/// Moves `EXCLUDE` clauses of window frames to the start of their windows and returns the rewritten tokens. `tokens` is
/// the result of an earlier rewrite of `sql`, if any. Returns `tokens` if no frame has this clause.
pub(super) fn move_frame_exclusion(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    if !contains(sql, "exclude") {
        return tokens;
    }
    let Some(mut read) = without_spaces(sql, tokens.as_ref()) else { return tokens };
    let mut is_changed = false;
    // From the end, so that a change does not move what is still to be read.
    for at in (1..read.len()).rev() {
        let ends_frame = ["row", "preceding", "following"].iter().any(|end| is_word(&read, at - 1, end));
        if !ends_frame || !is_word(&read, at, "exclude") {
            continue;
        }
        let is_given =
            |words: &[&str]| words.iter().enumerate().all(|(index, word)| is_word(&read, at + 1 + index, word));
        if is_given(&["no", "others"]) {
            read.drain(at..at + 3);
            is_changed = true;
            continue;
        }
        let exclusions = [
            (FrameExclusion::CurrentRow, &["current", "row"][..]),
            (FrameExclusion::Group, &["group"]),
            (FrameExclusion::Ties, &["ties"]),
        ];
        let Some((exclusion, words)) = exclusions.into_iter().find(|(_, words)| is_given(words)) else { continue };
        let Some(start) = start_of_window(&read, at) else { continue };
        read.drain(at..at + 1 + words.len());
        mark(&mut read, start, exclusion);
        is_changed = true;
    }
    if is_changed { Some(read) } else { tokens }
}

/// Returns the index of the first token in the parentheses around the token at `end`.
fn start_of_window(tokens: &[TokenWithSpan], end: usize) -> Option<usize> {
    let mut depth = 0;
    for at in (0..end).rev() {
        match tokens[at].token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return Some(at + 1),
            Token::LParen => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Writes an exclusion into the name at the start of a window.
fn mark(tokens: &mut Vec<TokenWithSpan>, start: usize, exclusion: FrameExclusion) {
    let named = |base: Option<&str>| {
        let value = exclusion.window_name(base);
        Token::Word(Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword })
    };
    let token = &mut tokens[start];
    match &token.token {
        Token::Word(word) if word.keyword == Keyword::NoKeyword => {
            let base = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
            token.token = named(Some(&base));
        }
        _ => {
            let marker = TokenWithSpan { token: named(None), span: token.span };
            tokens.insert(start, marker);
        }
    }
}
