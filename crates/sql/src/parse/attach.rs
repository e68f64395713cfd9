//! `ATTACH` and `DETACH` of DuckDB.

use std::path::Path;

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError};
use crate::identifiers::{database_name, normalize};
use crate::statement::Statement;

/// Parses `ATTACH [DATABASE] [IF NOT EXISTS] 'path' [AS name] [(READ_ONLY)]` and `DETACH [DATABASE] [IF EXISTS] name`.
/// Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn attach(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if parser.parse_keyword(Keyword::DETACH) {
        let _ = parser.parse_keyword(Keyword::DATABASE);
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Ok(Some(Statement::Detach { name: normalize(&parser.parse_identifier()?), if_exists }));
    }
    if !parser.parse_keyword(Keyword::ATTACH) {
        return Ok(None);
    }
    let _ = parser.parse_keyword(Keyword::DATABASE);
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let path = parser.parse_literal_string()?;
    let name = match parser.parse_keyword(Keyword::AS) {
        true => normalize(&parser.parse_identifier()?),
        false => Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let read_only = parse_options(parser)?;
    Ok(Some(Statement::Attach { path, name: database_name(name)?, if_not_exists, read_only }))
}

/// Parses the options in parentheses, if there are any. Returns whether the database is attached read-only.
fn parse_options(parser: &mut Parser<'_>) -> Result<bool> {
    let mut read_only = None;
    if !parser.consume_token(&Token::LParen) {
        return Ok(false);
    }
    loop {
        let option = parser.parse_identifier()?.value.to_ascii_lowercase();
        let is_end = matches!(parser.peek_token_ref().token, Token::Comma | Token::RParen);
        let value = match is_end {
            true => None,
            false => {
                let _ = parser.consume_token(&Token::Eq);
                Some(match parser.next_token().token {
                    Token::SingleQuotedString(text) => text.to_ascii_lowercase(),
                    other => other.to_string().to_ascii_lowercase(),
                })
            }
        };
        if read_only.is_some() {
            return Err(SqlError::syntax("conflicting or redundant options of ATTACH".to_owned()));
        }
        read_only = Some(match (option.as_str(), value.as_deref()) {
            ("read_only", None | Some("true" | "on" | "1")) => true,
            ("read_only", Some("false" | "off" | "0")) | ("read_write", None) => false,
            (option, value) => {
                let value = value.map_or_else(String::new, |value| format!(" {value}"));
                let allowed = "READ_ONLY and READ_WRITE are: ATTACH 'path' AS name (READ_ONLY)";
                return Err(SqlError::unsupported(format!("option {option}{value} of ATTACH"), allowed));
            }
        });
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            return Ok(read_only.unwrap_or_default());
        }
    }
}
