//! Names of columns before `AS`, as in `CREATE TABLE t (a, b) AS SELECT 1, 2`. The parser expects a type after each
//! name, so each gets a type that no table has.

use datafusion_sql::sqlparser::ast::{ColumnDef, DataType};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::identifiers::normalize;
use crate::tokens::{contains, is_word, without_spaces};

/// Type of a column that only has a name.
const UNTYPED: &str = "taut untyped";

/// Adds a type to the names of columns before `AS`, and returns the rewritten tokens. `tokens` is the result of an
/// earlier rewrite of `sql`, if any. Returns `tokens` if there are no such names.
pub(super) fn add_types(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    if !contains(sql, "create") {
        return tokens;
    }
    let Some(mut read) = without_spaces(sql, tokens.as_ref()) else { return tokens };
    let begins = |at: usize| at == 0 || read[at - 1].token == Token::SemiColon;
    let statements = (0..read.len()).filter(|at| begins(*at) && is_word(&read, *at, "create"));
    let names: Vec<usize> = statements.flat_map(|at| names(&read, at).unwrap_or_default()).collect();
    for name in names.iter().rev() {
        let untyped = Word { value: UNTYPED.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let token = TokenWithSpan { token: Token::Word(untyped), span: read[*name].span };
        read.insert(name + 1, token);
    }
    if names.is_empty() { tokens } else { Some(read) }
}

/// Returns the indexes of the names in a list that consists of names and is followed by `AS`. `None` if the statement
/// at index `create` has no such list.
fn names(tokens: &[TokenWithSpan], create: usize) -> Option<Vec<usize>> {
    let skip = |mut at: usize, words: &[&str]| {
        while words.iter().any(|word| is_word(tokens, at, word)) {
            at += 1;
        }
        at
    };
    let word = |at: usize| matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(_)));
    let is = |at: usize, expected: &Token| tokens.get(at).is_some_and(|token| token.token == *expected);
    let table = skip(create + 1, &["or", "replace", "global", "local", "temp", "temporary", "unlogged"]);
    if !is_word(tokens, table, "table") {
        return None;
    }
    let mut at = skip(table + 1, &["if", "not", "exists"]) + 1;
    while is(at, &Token::Period) {
        at += 2;
    }
    let mut names = Vec::new();
    while word(at + 1) && is(at, if names.is_empty() { &Token::LParen } else { &Token::Comma }) {
        names.push(at + 1);
        at += 2;
    }
    let is_followed = || {
        let mut depth = 0_usize;
        let rest = tokens[at + 1..].iter().enumerate().take_while(|(_, token)| token.token != Token::SemiColon);
        rest.into_iter().any(|(offset, token)| {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && is_word(tokens, at + 1 + offset, "as")
        })
    };
    (is(at, &Token::RParen) && is_followed()).then_some(names)
}

/// Returns the names of columns that [`add_types`] has given a type. `None` if a column has another type.
pub(super) fn untyped_names(columns: &[ColumnDef]) -> Option<Vec<String>> {
    let name = |column: &ColumnDef| match &column.data_type {
        DataType::Custom(name, _) if name.0.first().and_then(|part| part.as_ident())?.value == UNTYPED => {
            column.options.is_empty().then(|| normalize(&column.name))
        }
        _ => None,
    };
    columns.iter().map(name).collect()
}
