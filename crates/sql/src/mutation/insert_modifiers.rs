//! `INSERT INTO t BY NAME` and `OVERRIDING SYSTEM VALUE`, which the parser does not accept. They become names in the
//! list of columns:
//!
//! ```text
//!   INSERT INTO t BY NAME SELECT 1 AS b           INSERT INTO t ("taut by name") SELECT 1 AS b
//!   INSERT INTO t (a) OVERRIDING USER VALUE ...   INSERT INTO t ("taut overriding user value", a) ...
//! ```

use std::ops::Range;

use datafusion_sql::sqlparser::ast::ObjectName;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::tokens::{contains, is_word, without_spaces};

/// Marker column for `BY NAME`.
const BY_NAME: &str = "taut by name";
/// Marker column for `OVERRIDING SYSTEM VALUE`.
const SYSTEM_VALUE: &str = "taut overriding system value";
/// Marker column for `OVERRIDING USER VALUE`.
const USER_VALUE: &str = "taut overriding user value";

/// Effect of an `INSERT` on identity columns for which it has values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overriding {
    /// `OVERRIDING SYSTEM VALUE`: the values are stored, even in a column that is `GENERATED ALWAYS`.
    SystemValue,
    /// `OVERRIDING USER VALUE`: the values are ignored.
    UserValue,
}

/// Clauses of an `INSERT` that are represented by names in its list of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Modifiers {
    /// Whether the columns of the query determine the columns of the table by name.
    pub by_name: bool,
    pub overriding: Option<Overriding>,
}

impl Modifiers {
    /// Removes the clauses from a list of columns and returns them.
    pub fn take(columns: &mut Vec<ObjectName>) -> Self {
        let mut modifiers = Self::default();
        columns.retain(|column| {
            match column.0.as_slice() {
                [part] => match part.as_ident().map(|name| name.value.as_str()) {
                    Some(BY_NAME) => modifiers.by_name = true,
                    Some(SYSTEM_VALUE) => modifiers.overriding = Some(Overriding::SystemValue),
                    Some(USER_VALUE) => modifiers.overriding = Some(Overriding::UserValue),
                    _ => return true,
                },
                _ => return true,
            }
            false
        });
        modifiers
    }

    /// Whether a list of columns has one of the clauses.
    pub fn are_in(columns: &[ObjectName]) -> bool {
        Self::take(&mut columns.to_vec()) != Self::default()
    }
}

/// Moves the clauses into the lists of columns and returns the rewritten tokens. `tokens` is the result of an earlier
/// rewrite of `sql`, if any. Returns `tokens` if there are no such clauses.
pub(crate) fn mark_insert_modifiers(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    if !contains(sql, "insert") || !["overriding", "name", "position"].iter().any(|word| contains(sql, word)) {
        return tokens;
    }
    let Some(mut read) = without_spaces(sql, tokens.as_ref()) else {
        return tokens;
    };
    let mut is_changed = false;
    let mut at = 0;
    while at < read.len() {
        let is_insert = is_word(&read, at, "into")
            && (1..=3).any(|before| at.checked_sub(before).is_some_and(|index| is_word(&read, index, "insert")));
        at += 1;
        if is_insert {
            let clauses = Clauses::after_into(&read, at);
            is_changed |= clauses.by_name.is_some() || clauses.overriding.is_some();
            clauses.mark(&mut read);
        }
    }
    if is_changed { Some(read) } else { tokens }
}

/// Tokens of the clauses of one `INSERT`.
struct Clauses {
    /// `BY NAME` or `BY POSITION`.
    by_name: Option<Range<usize>>,
    /// Parenthesis that begins the list of columns.
    columns: Option<usize>,
    /// `OVERRIDING SYSTEM VALUE` or `OVERRIDING USER VALUE`.
    overriding: Option<Range<usize>>,
}

impl Clauses {
    /// Finds the clauses after `INTO`. `start` is the index of the first token of the table name.
    fn after_into(tokens: &[TokenWithSpan], start: usize) -> Self {
        let mut at = start + 1;
        while tokens.get(at).is_some_and(|token| token.token == Token::Period) {
            at += 2;
        }
        if is_word(tokens, at, "as") {
            at += 2;
        }
        let is_by =
            is_word(tokens, at, "by") && (is_word(tokens, at + 1, "name") || is_word(tokens, at + 1, "position"));
        let by_name = is_by.then_some(at..at + 2);
        at += if is_by { 2 } else { 0 };
        let is_name = |index: usize| matches!(tokens.get(index).map(|token| &token.token), Some(Token::Word(_)));
        let ends_name = |index: usize| {
            matches!(
                tokens.get(index).map(|token| &token.token),
                Some(Token::Comma | Token::RParen | Token::Period | Token::LBracket)
            )
        };
        let is_list = tokens.get(at).is_some_and(|token| token.token == Token::LParen);
        let columns = (is_list && is_name(at + 1) && ends_name(at + 2)).then_some(at);
        if let Some(first) = columns {
            let length = tokens[first..].iter().position(|token| token.token == Token::RParen);
            at = length.map_or(tokens.len(), |length| first + length + 1);
        }
        let is_overriding = is_word(tokens, at, "overriding")
            && (is_word(tokens, at + 1, "system") || is_word(tokens, at + 1, "user"))
            && is_word(tokens, at + 2, "value");
        Self { by_name, columns, overriding: is_overriding.then_some(at..at + 3) }
    }

    /// Replaces the clauses by names of columns.
    fn mark(&self, tokens: &mut Vec<TokenWithSpan>) {
        let by_name = self.by_name.clone().filter(|clause| is_word(tokens, clause.start + 1, "name"));
        let is_user = |clause: &Range<usize>| is_word(tokens, clause.start + 1, "user");
        let overriding = self.overriding.clone();
        let names = [
            by_name.as_ref().map(|_| BY_NAME),
            overriding.as_ref().map(|clause| if is_user(clause) { USER_VALUE } else { SYSTEM_VALUE }),
        ];
        let mut marks: Vec<Token> =
            names.into_iter().flatten().flat_map(|name| [Token::make_word(name, Some('"')), Token::Comma]).collect();
        if self.columns.is_none() && !marks.is_empty() {
            marks.pop();
            marks.insert(0, Token::LParen);
            marks.push(Token::RParen);
        }
        // The marks are inserted at the beginning of the list of columns. Without a list, they replace the last clause.
        let place = self.columns.or_else(|| overriding.or(by_name).map(|clause| clause.start));
        let is_removed = |index: usize| {
            [&self.by_name, &self.overriding].into_iter().flatten().any(|clause| clause.contains(&index))
        };
        let mut output = Vec::with_capacity(tokens.len() + marks.len());
        for (index, token) in tokens.drain(..).enumerate() {
            let span = token.span;
            if !is_removed(index) {
                output.push(token);
            }
            if place == Some(index) {
                output.extend(marks.drain(..).map(|token| TokenWithSpan { token, span }));
            }
        }
        *tokens = output;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(sql: &str) -> Option<String> {
        let tokens = mark_insert_modifiers(sql, None)?;
        Some(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn clauses_become_columns() {
        for (sql, expected) in [
            ("insert into t by name select 1", Some("insert into t ( \"taut by name\" ) select 1")),
            ("insert into s.t as x by position select 1", Some("insert into s . t as x select 1")),
            (
                "insert or ignore into t by name (a) select 1; insert into u by name select 2",
                Some(
                    "insert or ignore into t ( \"taut by name\" , a ) select 1 ; \
                     insert into u ( \"taut by name\" ) select 2",
                ),
            ),
            (
                "insert into t overriding system value values (1)",
                Some("insert into t ( \"taut overriding system value\" ) values ( 1 )"),
            ),
            (
                "with q as (select 1) insert into t (a, b) overriding user value (select 1, 2)",
                Some(
                    "with q as ( select 1 ) insert into t ( \"taut overriding user value\" , a , b ) ( select 1 , 2 )",
                ),
            ),
            ("insert into t (a) select name from t order by name", None),
            ("insert into t (select overriding from t)", None),
            ("select 'insert by name'", None),
        ] {
            assert_eq!(marked(sql).as_deref(), expected, "{sql}");
        }
    }
}
