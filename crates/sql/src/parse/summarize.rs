//! `SUMMARIZE t` and `SUMMARIZE query` of DuckDB.

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{SelectItem, Statement as Ast, WildcardAdditionalOptions};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use super::consume_word;
use crate::desugar::desugar;
use crate::error::Result;
use crate::limits::subqueries;
use crate::statement::Statement;
use crate::syntax::{select, without_joins};

/// Parses `SUMMARIZE`. Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If no table or query follows, or the query is not supported.
pub(super) fn summarize(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if !consume_word(parser, "summarize") {
        return Ok(None);
    }
    let begins_query = match &parser.peek_token_ref().token {
        Token::LParen => true,
        Token::Word(word) => matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::FROM | Keyword::VALUES),
        _ => false,
    };
    let query = match begins_query {
        true => parser.parse_query()?,
        false => {
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            select(vec![all], vec![without_joins(parser.parse_table_factor()?)], None)
        }
    };
    let mut statement = PlannerStatement::Statement(Box::new(Ast::Query(query)));
    subqueries::check(&statement)?;
    desugar(&mut statement)?;
    Ok(Some(Statement::Summarize { query: statement.to_string() }))
}
