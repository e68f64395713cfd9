//! `INSERT INTO t (VALUES (1), (2))`. The parser reads the parenthesis as the begin of a list of columns.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::from_first::inserts;
use crate::tokens::{contains, is_word, without_spaces};

/// Removes the parentheses around the `VALUES` of an `INSERT`, and returns the rewritten tokens. `tokens` is the result
/// of an earlier rewrite of `sql`, if any. Returns `tokens` if there are no such parentheses.
pub(super) fn unwrap_values(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let has_values = contains(sql, "insert") && contains(sql, "values");
    let Some(mut read) = has_values.then(|| without_spaces(sql, tokens.as_ref())).flatten() else { return tokens };
    let is_wrapped = |read: &[TokenWithSpan], at: usize| {
        read[at].token == Token::LParen && is_word(read, at + 1, "values") && inserts(read, at)
    };
    let wrapped: Vec<usize> = (0..read.len()).rev().filter(|at| is_wrapped(&read, *at)).collect();
    let mut is_changed = false;
    for open in wrapped {
        if let Some(close) = closing(&read, open) {
            read.remove(close);
            read.remove(open);
            is_changed = true;
        }
    }
    if is_changed { Some(read) } else { tokens }
}

/// Index of the closing parenthesis that matches the one at index `open`.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    (open..tokens.len()).find(|at| {
        match tokens[*at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}
