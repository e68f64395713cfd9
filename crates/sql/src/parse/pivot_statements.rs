//! Rewrites DuckDB's statements `PIVOT` and `UNPIVOT` into the clauses of `FROM` that the parser supports:
//!
//! ```text
//!   UNPIVOT t ON a, b INTO NAME n VALUE v         SELECT * FROM t UNPIVOT (v FOR n IN (a, b))
//!   PIVOT t ON k IN (1, 2) USING sum(p)           SELECT * FROM t PIVOT (sum(p) FOR k IN (1, 2))
//!   PIVOT t ON k                                  SELECT * FROM t PIVOT (count(*) FOR k IN (ANY))
//!   PIVOT t ON k IN (1, 2) USING sum(p) GROUP BY s
//!       SELECT * FROM t PIVOT (sum(p) FOR ("taut groups", s, k) IN (1, 2))
//! ```

use std::ops::Range;

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::table_query::begins_query;
use crate::desugar::GROUPS;
use crate::error::{Result, SqlError};
use crate::tokens::{contains, is_word, without_spaces};

/// Replaces queries that begin with `PIVOT` or `UNPIVOT` and returns the rewritten tokens. `tokens` is the result of an
/// earlier rewrite of `sql`, if any. Returns `tokens` if there are no such queries.
///
/// # Errors
/// If a `PIVOT` has several columns after `ON`.
pub(super) fn replace_pivots(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Result<Option<Vec<TokenWithSpan>>> {
    if !contains(sql, "pivot") {
        return Ok(tokens);
    }
    let Some(mut read) = without_spaces(sql, tokens.as_ref()) else { return Ok(tokens) };
    let mut is_changed = false;
    // Inner queries follow the first word of the outer query, so this order rewrites them first.
    for at in (0..read.len()).rev() {
        let before = at.checked_sub(1).and_then(|before| read.get(before));
        let is_name =
            |at: usize| matches!(read.get(at).map(|token| &token.token), Some(Token::Word(_) | Token::LParen));
        if !begins_query(before) || is_first_column(&read, at) || !is_name(at + 1) {
            continue;
        }
        let replacement = if is_word(&read, at, "unpivot") {
            unpivot(&read, at)
        } else if is_word(&read, at, "pivot") {
            pivot(&read, at)?
        } else {
            None
        };
        if let Some((range, tokens)) = replacement {
            let span = read[at].span;
            read.splice(range, tokens.into_iter().map(|token| TokenWithSpan { token, span }));
            is_changed = true;
        }
    }
    Ok(if is_changed { Some(read) } else { tokens })
}

/// Whether a word is the first in the parentheses after a name, as in `CREATE TABLE t (pivot int)`.
fn is_first_column(tokens: &[TokenWithSpan], at: usize) -> bool {
    let before = |count| at.checked_sub(count).and_then(|before| tokens.get(before)).map(|token| &token.token);
    let follows_name = matches!(before(2), Some(Token::Word(word)) if word.keyword == Keyword::NoKeyword);
    follows_name && matches!(before(1), Some(Token::LParen))
}

/// First words of the clauses that can follow a `PIVOT` or `UNPIVOT`.
const ENDS: [&str; 6] = ["order", "limit", "offset", "union", "except", "intersect"];

type Replacement = (Range<usize>, Vec<Token>);

fn unpivot(tokens: &[TokenWithSpan], at: usize) -> Option<Replacement> {
    let on = find(tokens, at + 1, &["on"])?;
    let end = end_of(tokens, on + 1, &["into", "order", "limit", "offset", "union", "except", "intersect"]);
    let (mut name, mut value, mut rest) = (Token::make_word("name", None), Token::make_word("value", None), end);
    if is_word(tokens, end, "into") && is_word(tokens, end + 1, "name") && is_word(tokens, end + 3, "value") {
        name = tokens.get(end + 2)?.token.clone();
        value = tokens.get(end + 4)?.token.clone();
        rest = end + 5;
    }
    let mut output = source(tokens, at + 1..on, "unpivot");
    output.extend([value, Token::make_keyword("FOR"), name, Token::make_keyword("IN"), Token::LParen]);
    output.extend(copied(tokens, on + 1..end));
    output.extend([Token::RParen, Token::RParen]);
    Some((at..rest, output))
}

fn pivot(tokens: &[TokenWithSpan], at: usize) -> Result<Option<Replacement>> {
    let Some(on) = find(tokens, at + 1, &["on"]) else { return Ok(None) };
    let columns_end = end_of(tokens, on + 1, &[&["using", "group"], &ENDS[..]].concat());
    let list = end_of(tokens, on + 1, &["in"]).min(columns_end);
    if has_comma(&tokens[on + 1..list]) {
        let allowed = "PIVOT t ON a IN (1, 2) USING sum(b) GROUP BY c is";
        return Err(SqlError::unsupported("PIVOT for several columns", allowed));
    }
    let (mut aggregates, mut rest) =
        (vec![Token::make_word("count", None), Token::LParen, Token::Mul, Token::RParen], columns_end);
    if is_word(tokens, columns_end, "using") {
        rest = end_of(tokens, columns_end + 1, &[&["group"], &ENDS[..]].concat());
        aggregates = copied(tokens, columns_end + 1..rest).collect();
    }
    let mut output = source(tokens, at + 1..on, "pivot");
    output.extend(aggregates);
    output.push(Token::make_keyword("FOR"));
    if is_word(tokens, rest, "group") && is_word(tokens, rest + 1, "by") {
        let groups = rest + 2;
        rest = end_of(tokens, groups, &ENDS);
        output.extend([Token::LParen, Token::make_word(GROUPS, Some('"')), Token::Comma]);
        output.extend(copied(tokens, groups..rest));
        output.push(Token::Comma);
        output.extend(copied(tokens, on + 1..list));
        output.push(Token::RParen);
    } else {
        output.extend(copied(tokens, on + 1..list));
    }
    match list < columns_end {
        true => output.extend(copied(tokens, list..columns_end)),
        false => {
            output.extend([Token::make_keyword("IN"), Token::LParen, Token::make_keyword("ANY"), Token::RParen]);
        }
    }
    output.push(Token::RParen);
    Ok(Some((at..rest, output)))
}

/// Whether tokens have a comma outside of parentheses.
fn has_comma(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    tokens.iter().any(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.token == Token::Comma
    })
}

/// Builds the tokens `SELECT * FROM source PIVOT (`. `range` is the source, `clause` is `pivot` or `unpivot`.
fn source(tokens: &[TokenWithSpan], range: Range<usize>, clause: &str) -> Vec<Token> {
    let mut output = vec![Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
    output.extend(copied(tokens, range));
    output.extend([Token::make_keyword(clause), Token::LParen]);
    output
}

fn copied(tokens: &[TokenWithSpan], range: Range<usize>) -> impl Iterator<Item = Token> {
    tokens[range].iter().map(|token| token.token.clone())
}

/// Index of the first of `words` from `start` on and outside of parentheses. Returns `None` if the query has none of
/// them there.
fn find(tokens: &[TokenWithSpan], start: usize, words: &[&str]) -> Option<usize> {
    let end = end_of(tokens, start, words);
    words.iter().any(|word| is_word(tokens, end, word)).then_some(end)
}

/// Index of the first of `words` from `start` on and outside of parentheses, or of the token that ends the query.
fn end_of(tokens: &[TokenWithSpan], start: usize, words: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen | Token::SemiColon | Token::EOF if depth == 0 => return at,
            Token::RParen => depth -= 1,
            _ if depth == 0 && words.iter().any(|word| is_word(tokens, at, word)) => return at,
            _ => {}
        }
    }
    tokens.len()
}
