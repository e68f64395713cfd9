//! `CHECKPOINT`, `VACUUM` and `ALTER TABLE ... COMPACT`.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use super::consume_word;
use crate::error::Result;
use crate::identifiers::relation_reference;
use crate::statement::Statement;

/// Parses `CHECKPOINT`, `VACUUM [FULL] [t, ...]` and `ALTER TABLE t COMPACT`. Returns `None` for other statements and
/// consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn maintenance(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if consume_word(parser, "checkpoint") {
        return Ok(Some(Statement::Checkpoint));
    }
    if consume_word(parser, "vacuum") {
        let in_parentheses = parser.consume_token(&Token::LParen);
        let full = parser.parse_keyword(Keyword::FULL);
        if in_parentheses {
            parser.expect_token(&Token::RParen)?;
        }
        let mut names = Vec::new();
        if matches!(parser.peek_token_ref().token, Token::Word(_)) {
            for name in parser.parse_comma_separated(|parser| parser.parse_object_name(false))? {
                names.push(relation_reference(&name)?);
            }
        }
        return Ok(Some(Statement::Vacuum { full, names }));
    }
    let compacts = parser.maybe_parse(|parser| {
        parser.expect_keywords(&[Keyword::ALTER, Keyword::TABLE])?;
        let name = parser.parse_object_name(false)?;
        match consume_word(parser, "compact") {
            true => Ok(name),
            false => parser.expected_ref("COMPACT", parser.peek_token_ref()),
        }
    })?;
    match compacts {
        Some(name) => Ok(Some(Statement::Vacuum { full: false, names: vec![relation_reference(&name)?] })),
        None => Ok(None),
    }
}
