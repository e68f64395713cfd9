//! `INSERT INTO t (VALUES (1), (2))`. The parser takes the parenthesis for a list of columns.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::from_first::inserts;
use crate::tokens::{closing_parenthesis, contains, is_word, without_spaces};

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
        if let Some(close) = closing_parenthesis(&read[open + 1..]) {
            read.remove(open + 1 + close);
            read.remove(open);
            is_changed = true;
        }
    }
    if is_changed { Some(read) } else { tokens }
}
