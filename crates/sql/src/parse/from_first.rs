//! `FROM t WHERE a = 1`, which is short for `SELECT * FROM t WHERE a = 1`. The parser supports `FROM t` and `FROM t
//! SELECT a`, but not `FROM t` with a condition or groups.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::tokens::{contains, is_word, without_spaces};

/// First words of the clauses that the parser accepts only after a select list.
const CLAUSES: [&str; 5] = ["where", "group", "having", "window", "qualify"];

/// First words of a select list, or of a clause that the parser accepts after `FROM t`.
const ENDS: [&str; 8] = ["select", "order", "limit", "offset", "fetch", "union", "except", "intersect"];

/// Adds the missing `SELECT *` to queries that begin with `FROM`, and returns the rewritten tokens. `tokens` is the
/// result of an earlier rewrite of `sql`, if any. Returns `tokens` if there are no such queries.
pub(super) fn add_select_lists(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let has_clause = contains(sql, "from") && CLAUSES.iter().any(|clause| contains(sql, clause));
    let Some(mut read) = has_clause.then(|| without_spaces(sql, tokens.as_ref())).flatten() else {
        return tokens;
    };
    let is_short = |read: &[TokenWithSpan], at: usize| {
        is_word(read, at, "from") && begins_query(read, at) && has_clause_without_list(read, at)
    };
    let begins: Vec<usize> = (0..read.len()).rev().filter(|at| is_short(&read, *at)).collect();
    for at in &begins {
        let span = read[*at].span;
        let list = [Token::make_keyword("SELECT"), Token::Mul].map(|token| TokenWithSpan { token, span });
        read.splice(at..at, list);
    }
    if begins.is_empty() { tokens } else { Some(read) }
}

/// Whether the `FROM` at index `at` is the first word of a query.
fn begins_query(tokens: &[TokenWithSpan], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return true };
    let follows = |words: &[&str], at: usize| words.iter().any(|word| is_word(tokens, at, word));
    let is_set_operation = |at: usize| follows(&["union", "except", "intersect"], at);
    match tokens[before].token {
        Token::SemiColon => true,
        // `trim(FROM a)` is not a query.
        Token::LParen => !before.checked_sub(1).is_some_and(|name| follows(&["trim"], name)),
        Token::RParen => follows_with(tokens, before) || inserts(tokens, at),
        _ if follows(&["all", "distinct"], before) => before.checked_sub(1).is_some_and(is_set_operation),
        _ => {
            is_set_operation(before)
                || follows(&["as", "explain", "analyze", "verbose", "summarize"], before)
                || inserts(tokens, at)
        }
    }
}

/// Whether the parenthesis at index `close` ends a query in `WITH`.
fn follows_with(tokens: &[TokenWithSpan], close: usize) -> bool {
    let before = opening(tokens, close).and_then(|open| open.checked_sub(1));
    before.is_some_and(|before| is_word(tokens, before, "as") || is_word(tokens, before, "materialized"))
}

/// Index of the opening parenthesis that matches the one at index `close`.
fn opening(tokens: &[TokenWithSpan], close: usize) -> Option<usize> {
    let mut depth = 0_usize;
    (0..=close).rev().find(|at| {
        match tokens[*at].token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// Whether the tokens of a statement before index `at` are exactly `INSERT INTO t` or `INSERT INTO t (a, b)`.
pub(super) fn inserts(tokens: &[TokenWithSpan], at: usize) -> bool {
    let is_end = |token: &TokenWithSpan| token.token == Token::SemiColon;
    let start = tokens[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let mut name = start + 2;
    if !is_word(tokens, start, "insert") || !is_word(tokens, start + 1, "into") {
        return false;
    }
    while tokens.get(name + 1).is_some_and(|next| next.token == Token::Period) {
        name += 2;
    }
    let end = name + 1;
    end == at || end < at && tokens[at - 1].token == Token::RParen && opening(tokens, at - 1) == Some(end)
}

/// Whether one of [`CLAUSES`] follows the `FROM` at index `from`, with none of [`ENDS`] before it.
fn has_clause_without_list(tokens: &[TokenWithSpan], from: usize) -> bool {
    let mut depth = 0_usize;
    for at in from + 1..tokens.len() {
        let is_name = tokens[at - 1].token == Token::Period;
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen | Token::SemiColon | Token::EOF if depth == 0 => return false,
            Token::RParen => depth -= 1,
            _ if depth > 0 || is_name => {}
            _ if CLAUSES.iter().any(|word| is_word(tokens, at, word)) => return true,
            _ if ENDS.iter().any(|word| is_word(tokens, at, word)) => return false,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(sql: &str) -> Option<String> {
        let tokens = add_select_lists(sql, None)?;
        Some(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn only_queries_without_a_list_are_completed() {
        for (sql, expected) in [
            ("from t where a", "SELECT * from t where a"),
            (
                "with q as (from t where a) from q where b",
                "with q as ( SELECT * from t where a ) SELECT * from q where b",
            ),
            ("select 1 union all from t where a", "select 1 union all SELECT * from t where a"),
            ("insert into s.t (a, b) from u where a", "insert into s . t ( a , b ) SELECT * from u where a"),
            ("insert into t from u group by all", "insert into t SELECT * from u group by all"),
            ("select (from t where a)", "select ( SELECT * from t where a )"),
            ("from t; from t where a", "from t ; SELECT * from t where a"),
        ] {
            assert_eq!(completed(sql).as_deref(), Some(expected), "{sql}");
        }
        for other in [
            "from t select a where b",
            "from t order by a",
            "select a from t where b",
            "select count(*) from t where b",
            "select a::numeric(3) from t where b",
            "delete from t where a",
            "select a is distinct from b where c",
            "select distinct from t where a",
            "select trim(from a) from t where b",
            "select * from t where extract(year from a) = 1",
            "insert into t select a from u where b",
            "update t set a = (b) from u where c",
            "insert into where.from.",
        ] {
            assert_eq!(completed(other), None, "{other}");
        }
    }
}
