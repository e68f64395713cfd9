//! `SET`, `RESET` and `SHOW` of the settings of Taut, and of whether transactions are read-only.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;
use taut_store::Synchronous;

use super::takes_word;
use super::timeout::parse_timeout;
use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::statement::Statement;

const SYNCHRONOUS: &str = "synchronous";
const MOVER: &str = "mover";
const TEMP_DIRECTORY: &str = "temp_directory";
const STATEMENT_TIMEOUT: &str = "statement_timeout";
/// Settings that `SET` changes and `RESET` returns to their defaults.
const SETTINGS: [&str; 4] = [SYNCHRONOUS, MOVER, TEMP_DIRECTORY, STATEMENT_TIMEOUT];
/// Setting: whether the current transaction, or else the next one, is read-only.
const TRANSACTION_READ_ONLY: &str = "transaction_read_only";
/// Setting: whether transactions are read-only unless they specify a mode.
pub const DEFAULT_TRANSACTION_READ_ONLY: &str = "default_transaction_read_only";

/// Parses `SET`, `RESET` and `SHOW` of the settings of Taut, and `SHOW` of `transaction_read_only` and
/// `default_transaction_read_only`. Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the value of a setting is not supported.
pub(super) fn settings(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let sets = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::SET)?;
        let _ = parser.parse_keyword(Keyword::SESSION);
        let name = SETTINGS.into_iter().find(|name| takes_word(parser, name));
        match name.filter(|_| parser.consume_token(&Token::Eq) || parser.parse_keyword(Keyword::TO)) {
            Some(name) => Ok((name, parser.next_token().token)),
            None => parser.expected_ref("a setting of Taut", parser.peek_token_ref()),
        }
    })?;
    if let Some((name, value)) = sets {
        return setting(name, value).map(Some);
    }
    let resets = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::RESET)?;
        let name = SETTINGS.into_iter().find(|name| takes_word(parser, name));
        name.map_or_else(|| parser.expected_ref("a setting of Taut", parser.peek_token_ref()), Ok)
    })?;
    if let Some(name) = resets {
        return setting(name, Token::make_keyword("DEFAULT")).map(Some);
    }
    let shows = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::SHOW)?;
        match normalize(&parser.parse_identifier()?).as_str() {
            SYNCHRONOUS => Ok(Statement::ShowSynchronous),
            MOVER => Ok(Statement::ShowMover),
            TEMP_DIRECTORY => Ok(Statement::ShowTempDirectory),
            STATEMENT_TIMEOUT => Ok(Statement::ShowStatementTimeout),
            TRANSACTION_READ_ONLY => Ok(Statement::ShowReadOnly { setting: TRANSACTION_READ_ONLY }),
            DEFAULT_TRANSACTION_READ_ONLY => Ok(Statement::ShowReadOnly { setting: DEFAULT_TRANSACTION_READ_ONLY }),
            _ => parser.expected_ref("a setting of Taut", parser.peek_token_ref()),
        }
    })?;
    Ok(shows)
}

fn setting(name: &str, value: Token) -> Result<Statement> {
    if name == TEMP_DIRECTORY {
        return match value {
            Token::SingleQuotedString(directory) => Ok(Statement::SetTempDirectory(Some(directory))),
            Token::Word(word) if word.keyword == Keyword::DEFAULT => Ok(Statement::SetTempDirectory(None)),
            other => Err(SqlError::unsupported(
                format!("temp_directory = {other}"),
                "a directory in quotes and DEFAULT are, as in SET temp_directory = '/var/tmp'",
            )),
        };
    }
    if name == STATEMENT_TIMEOUT {
        return parse_timeout(&value).map(Statement::SetStatementTimeout);
    }
    let value = match value {
        Token::SingleQuotedString(text) => text,
        Token::Word(word) => word.value,
        other => other.to_string(),
    };
    Ok(match (name, value.to_ascii_lowercase().as_str()) {
        (SYNCHRONOUS, "full" | "default") => Statement::SetSynchronous(Synchronous::Full),
        (SYNCHRONOUS, "normal") => Statement::SetSynchronous(Synchronous::Normal),
        (SYNCHRONOUS, "off") => Statement::SetSynchronous(Synchronous::Off),
        (MOVER, "on" | "default") => Statement::SetMover(true),
        (MOVER, "off") => Statement::SetMover(false),
        (MOVER, _) => return Err(SqlError::unsupported(format!("mover = {value}"), "on and off are")),
        _ => return Err(SqlError::unsupported(format!("{name} = {value}"), "full, normal and off are")),
    })
}
