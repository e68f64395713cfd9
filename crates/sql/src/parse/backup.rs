//! `BACKUP DATABASE`, which PostgreSQL does not have.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;
use taut_store::backup::BackupOptions;

use super::consume_word;
use crate::error::{Result, SqlError};
use crate::statement::Statement;

/// Parses `BACKUP DATABASE TO 'directory' [WITH (log [= true | false], keep = n)]` and `BACKUP DATABASE STOP LOG`.
/// Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is invalid.
pub(super) fn backup(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if !consume_word(parser, "backup") {
        return Ok(None);
    }
    parser.expect_keyword(Keyword::DATABASE)?;
    if consume_word(parser, "stop") {
        return match consume_word(parser, "log") {
            true => Ok(Some(Statement::StopLogRetention)),
            false => Ok(parser.expected_ref("LOG", parser.peek_token_ref())?),
        };
    }
    parser.expect_keyword(Keyword::TO)?;
    let directory = parser.parse_literal_string()?;
    let mut options = BackupOptions::default();
    if parser.parse_keyword(Keyword::WITH) {
        parser.expect_token(&Token::LParen)?;
        loop {
            parse_option(parser, &mut options)?;
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        parser.expect_token(&Token::RParen)?;
    }
    Ok(Some(Statement::Backup { directory, options }))
}

fn parse_option(parser: &mut Parser<'_>, options: &mut BackupOptions) -> Result<()> {
    let name = parser.parse_identifier()?.value.to_ascii_lowercase();
    let value = parser.consume_token(&Token::Eq).then(|| match parser.next_token().token {
        Token::SingleQuotedString(text) => text,
        other => other.to_string(),
    });
    let invalid_option = |allowed: &str| {
        let value = value.as_deref().map_or_else(String::new, |value| format!(" = {value}"));
        SqlError::unsupported(format!("option {name}{value} of BACKUP DATABASE"), allowed)
    };
    match (name.as_str(), value.as_deref().map(str::to_ascii_lowercase).as_deref()) {
        ("log", None | Some("true" | "on")) => options.log = true,
        ("log", Some("false" | "off")) => options.log = false,
        ("log", _) => return Err(invalid_option("log takes true or false")),
        ("keep", value) => match value.and_then(|value| value.parse().ok()).filter(|count| *count > 0) {
            Some(count) => options.keep = Some(count),
            None => return Err(invalid_option("keep is the number of backups to keep, at least 1")),
        },
        _ => return Err(invalid_option("log and keep are")),
    }
    Ok(())
}
