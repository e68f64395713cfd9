//! `ON CONFLICT (lower(a)) WHERE b` in `INSERT`. The parser accepts only names of columns in this clause.
//!
//! Such a target becomes one quoted name that holds its text as a query, `SELECT lower(a) WHERE b`.

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{Expr, Ident, SelectItem, SetExpr, Statement as Ast};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::insert::ConflictTarget;
use crate::desugar::desugar;
use crate::dialect::Grammar;
use crate::error::{Result, SqlError};
use crate::index_part::{IndexPart, is_index_part};
use crate::tokens::closing_parenthesis;

/// Prefix of a name that represents a target.
const PREFIX: &str = "taut conflict target ";

/// Replaces each target of `ON CONFLICT` that is not a plain list of columns, and returns the new tokens. `tokens` are
/// the tokens of `sql` if an earlier step changed them. Returns `tokens` if there is no such target.
pub fn replace_conflict_targets(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let word = b"conflict";
    if !sql.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)) {
        return tokens;
    }
    // The parser reports a better error for invalid tokens.
    let Some(read) = tokens.clone().or_else(|| Tokenizer::new(&Grammar, sql).tokenize_with_location().ok()) else {
        return tokens;
    };
    let mut words: Vec<TokenWithSpan> =
        read.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut is_replaced = false;
    let mut start = 0;
    while let Some(found) = words[start..].windows(3).position(begins_target) {
        let first = start + found + 3;
        start = first;
        let Some((name, end)) = target_name(&words[first..]) else { continue };
        let span = words[first].span;
        let replacement = [Token::make_word(&name, Some('"')), Token::RParen];
        words.splice(first..first + end, replacement.map(|token| TokenWithSpan { token, span }));
        is_replaced = true;
    }
    if is_replaced { Some(words) } else { tokens }
}

/// Returns the target that a name represents. Returns `None` for the name of a column.
pub(super) fn inferred_target(name: &Ident) -> Result<Option<ConflictTarget>> {
    let Some(text) = name.value.strip_prefix(PREFIX) else { return Ok(None) };
    let mut statement =
        PlannerStatement::Statement(Box::new(Parser::new(&Grammar).try_with_sql(text)?.parse_statement()?));
    desugar(&mut statement)?;
    let PlannerStatement::Statement(ast) = statement else { return Ok(None) };
    let Ast::Query(query) = *ast else { return Ok(None) };
    let SetExpr::Select(select) = *query.body else { return Ok(None) };
    let part = |item: SelectItem| match item {
        SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
            Ok(IndexPart::from_expression(expression))
        }
        other => Err(SqlError::syntax(format!("syntax error: {other} in the target of ON CONFLICT"))),
    };
    let parts = select.projection.into_iter().map(part).collect::<Result<_>>()?;
    Ok(Some(ConflictTarget::Parts { parts, predicate: select.selection.map(Box::new) }))
}

/// Whether tokens are `ON CONFLICT (`.
fn begins_target(tokens: &[TokenWithSpan]) -> bool {
    is_word(&tokens[0], Keyword::ON) && is_word(&tokens[1], Keyword::CONFLICT) && tokens[2].token == Token::LParen
}

/// Returns the name that represents the target at the start of `tokens`, and the number of tokens that it replaces.
/// Returns `None` if the target is a list of columns, or is not valid.
fn target_name(tokens: &[TokenWithSpan]) -> Option<(String, usize)> {
    let close = closing_parenthesis(tokens)?;
    let has_predicate = tokens.get(close + 1).is_some_and(|token| is_word(token, Keyword::WHERE));
    let is_name = |token: &TokenWithSpan| matches!(token.token, Token::Word(_) | Token::Comma);
    if !has_predicate && tokens[..close].iter().all(is_name) {
        return None;
    }
    let mut parser = Parser::new(&Grammar).with_tokens_with_locations(tokens.to_vec());
    let parts = parser.parse_comma_separated(Parser::parse_expr).ok()?;
    parser.expect_token(&Token::RParen).ok()?;
    if !parts.iter().all(is_index_part) {
        return None;
    }
    let predicate = match has_predicate {
        true => {
            parser.next_token();
            format!(" WHERE {}", parser.parse_expr().ok()?)
        }
        false => String::new(),
    };
    let parts: Vec<String> = parts.iter().map(Expr::to_string).collect();
    Some((format!("{PREFIX}SELECT {}{predicate}", parts.join(", ")), parser.index()))
}

fn is_word(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn target(sql: &str) -> Option<ConflictTarget> {
        let statement = parse(&format!("insert into t values (1) on conflict {sql}")).unwrap().pop().unwrap();
        let Statement::Mutation { mutation, .. } = statement else { panic!("no mutation") };
        mutation.conflict().unwrap().target.clone()
    }

    #[test]
    fn targets_are_columns_expressions_and_predicates() {
        let columns = |names: &[&str]| Some(ConflictTarget::Columns(names.iter().map(|name| (*name).into()).collect()));
        assert_eq!(target("do nothing"), None);
        assert_eq!(target("(a, \"B b\") do nothing"), columns(&["a", "B b"]));
        let parts = |sql: &str| match target(sql) {
            Some(ConflictTarget::Parts { parts, predicate }) => {
                let text = |part: &IndexPart| match part {
                    IndexPart::Column(name) => format!("column {name}"),
                    IndexPart::Expression(expression) => expression.to_string(),
                };
                (parts.iter().map(text).collect::<Vec<_>>(), predicate.map(|predicate| predicate.to_string()))
            }
            other => panic!("{sql}: {other:?}"),
        };
        let (found, predicate) = parts("(lower(a), (b), (c + 1)) where d = 'it''s (' and e do update set a = 1");
        assert_eq!(found, ["lower(a)", "column b", "c + 1"]);
        assert_eq!(predicate.as_deref(), Some("d = 'it''s (' AND e"));
        assert_eq!(
            parts("(a) where b is null do nothing"),
            (vec!["column a".to_owned()], Some("b IS NULL".to_owned()))
        );
        for invalid in ["(a + 1) do nothing", "(lower(a) do nothing", "(a) where do nothing", "() do nothing"] {
            assert!(parse(&format!("insert into t values (1) on conflict {invalid}")).is_err(), "{invalid}");
        }
    }
}
