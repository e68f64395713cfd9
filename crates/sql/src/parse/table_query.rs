//! `TABLE t`, which is short for `SELECT * FROM t`. The parser accepts it only in some positions, and the planner does
//! not support it.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;

/// Replaces queries that begin with `TABLE` and returns the rewritten tokens. `tokens` is the result of an earlier
/// rewrite of `sql`, if any. Returns `tokens` if there are no such queries.
pub(super) fn replace_table_queries(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let word = b"table";
    if !sql.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)) {
        return tokens;
    }
    // The parser reports a better error for invalid tokens.
    let Some(read) = tokens.clone().or_else(|| Tokenizer::new(&Grammar, sql).tokenize_with_location().ok()) else {
        return tokens;
    };
    let words: Vec<TokenWithSpan> =
        read.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(words.len() + 2);
    let mut is_replaced = false;
    for (index, token) in words.iter().enumerate() {
        let follows_name = matches!(words.get(index + 1).map(|next| &next.token), Some(Token::Word(_)));
        if keyword(token) == Some(Keyword::TABLE) && follows_name && begins_query(output.last()) {
            is_replaced = true;
            let replacement = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            output.extend(replacement.map(|replaced| TokenWithSpan { token: replaced, span: token.span }));
        } else {
            output.push(token.clone());
        }
    }
    if is_replaced { Some(output) } else { tokens }
}

/// Whether a query can begin after a token. `None` is the beginning of the text.
pub(super) fn begins_query(before: Option<&TokenWithSpan>) -> bool {
    let Some(before) = before else { return true };
    match before.token {
        Token::SemiColon | Token::LParen | Token::RParen => true,
        _ => matches!(
            keyword(before),
            Some(
                Keyword::UNION
                    | Keyword::ALL
                    | Keyword::DISTINCT
                    | Keyword::EXCEPT
                    | Keyword::INTERSECT
                    | Keyword::AS
                    | Keyword::EXPLAIN
                    | Keyword::ANALYZE
                    | Keyword::VERBOSE
            )
        ),
    }
}

/// Returns the keyword of a word without quotes. Returns `None` for other tokens.
fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(sql: &str) -> Option<String> {
        let tokens = replace_table_queries(sql, None)?;
        Some(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn only_queries_are_replaced() {
        let sql = "table T union all table \"u\"; with d as (table v) table d";
        let expected = "SELECT * FROM T union all SELECT * FROM \"u\" ; with d as ( SELECT * FROM v ) SELECT * FROM d";
        assert_eq!(replaced(sql).unwrap(), expected);
        for other in [
            "create table t (a int)",
            "drop table t",
            "alter table t add column a int",
            "truncate table t",
            "comment on table t is 'x'",
            "select \"table\" from t",
            "select 1 as \"table\"",
            "create or replace table t as select 1",
        ] {
            assert_eq!(replaced(other), None, "{other}");
        }
    }
}
