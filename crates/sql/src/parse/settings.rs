//! `SET`, `RESET` and `SHOW` of the settings of Taut.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;
use taut_store::Synchronous;

use super::consume_word;
use super::timeout::parse_timeout;
use crate::error::{Result, SqlError};
use crate::identifiers::PUBLIC;
use crate::settings::{IsolationLevel, Setting, SettingValue};
use crate::statement::Statement;

/// Parses `SET`, `RESET` and `SHOW` of the settings of Taut. Returns `None` for other statements and consumes none of
/// their tokens.
///
/// # Errors
/// If a value does not fit its setting, or a setting cannot be reset.
pub(super) fn settings(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let sets = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::SET)?;
        let is_local = parser.parse_keyword(Keyword::LOCAL);
        let _ = !is_local && parser.parse_keyword(Keyword::SESSION);
        // SET TIME ZONE has no = before the value.
        let setting = match parser.parse_keywords(&[Keyword::TIME, Keyword::ZONE]) {
            true => (Setting::TimeZone, true),
            false => (setting(parser)?, false),
        };
        match setting.1 || parser.consume_token(&Token::Eq) || parser.parse_keyword(Keyword::TO) {
            true => Ok((setting.0, parser.next_token().token, is_local)),
            false => parser.expected_ref("= or TO", parser.peek_token_ref()),
        }
    })?;
    if let Some((setting, value, is_local)) = sets {
        let set = match value {
            Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::DEFAULT => reset(setting),
            value if setting == Setting::SearchPath => search_path(value, parser),
            value if setting == Setting::TimeZone => time_zone(value, parser),
            value => set(setting, value),
        }?;
        return if is_local { local(set).map(Some) } else { Ok(Some(set)) };
    }
    let schema = parser.maybe_parse(|parser| {
        parser.expect_keywords(&[Keyword::SET, Keyword::SCHEMA])?;
        parser.parse_literal_string()
    })?;
    if let Some(schema) = schema {
        return Ok(Some(Statement::Set(SettingValue::SearchPath(vec![schema]))));
    }
    let resets = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::RESET)?;
        setting(parser)
    })?;
    if let Some(setting) = resets {
        return reset(setting).map(Some);
    }
    let shows = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::SHOW)?;
        match parser.parse_keyword(Keyword::ALL) {
            true => Ok(Statement::ShowAll),
            false => setting(parser).map(Statement::Show),
        }
    })?;
    Ok(shows)
}

/// Converts a `SET` to a `SET LOCAL`. Returns `SET TRANSACTION` unchanged.
///
/// # Errors
/// If the setting is a default for later transactions.
fn local(set: Statement) -> Result<Statement> {
    match set {
        Statement::Set(value) => Ok(Statement::SetLocal(value)),
        Statement::SetTransaction { session: true, .. } => {
            let what = "SET LOCAL of a setting for the following transactions";
            Err(SqlError::unsupported(what, "SET TRANSACTION sets the current one"))
        }
        other => Ok(other),
    }
}

/// Consumes the name of a setting of Taut and returns the setting.
fn setting(parser: &mut Parser<'_>) -> std::result::Result<Setting, datafusion_sql::sqlparser::parser::ParserError> {
    if parser.parse_keywords(&[Keyword::TIME, Keyword::ZONE]) {
        return Ok(Setting::TimeZone);
    }
    let found = Setting::ALL.into_iter().find(|setting| consume_word(parser, setting.name()));
    found.map_or_else(|| parser.expected_ref("a setting of Taut", parser.peek_token_ref()), Ok)
}

/// Parses the rest of a search path after its first token: names and strings, separated by commas. Skips empty strings:
/// `SET search_path = ''` sets a path without schemas.
fn search_path(first: Token, parser: &mut Parser<'_>) -> Result<Statement> {
    let mut schemas = Vec::new();
    let mut value = first;
    loop {
        match value {
            Token::SingleQuotedString(text) => schemas.push(text),
            Token::Word(word) if word.quote_style.is_some() => schemas.push(word.value),
            Token::Word(word) => schemas.push(word.value.to_lowercase()),
            other => return Err(SqlError::SettingValue { setting: Setting::SearchPath, value: other.to_string() }),
        }
        if !parser.consume_token(&Token::Comma) {
            schemas.retain(|schema| !schema.is_empty());
            return Ok(Statement::Set(SettingValue::SearchPath(schemas)));
        }
        value = parser.next_token().token;
    }
}

/// Parses a time zone: a text, a name, or a number of hours east of UTC. `LOCAL` is the default zone.
fn time_zone(first: Token, parser: &mut Parser<'_>) -> Result<Statement> {
    let zone = match first {
        Token::Minus => format!("-{}", parser.next_token().token),
        Token::SingleQuotedString(text) => text,
        Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::LOCAL => {
            return reset(Setting::TimeZone);
        }
        Token::Word(word) => word.value,
        other => other.to_string(),
    };
    Ok(Statement::Set(SettingValue::TimeZone(zone)))
}

fn set(setting: Setting, value: Token) -> Result<Statement> {
    if setting == Setting::StatementTimeout {
        return parse_timeout(&value).map(SettingValue::StatementTimeout).map(Statement::Set);
    }
    let (text, is_quoted) = match &value {
        Token::SingleQuotedString(text) => (text.clone(), true),
        Token::Word(word) => (word.value.clone(), false),
        other => (other.to_string(), false),
    };
    let invalid_value = || SqlError::SettingValue { setting, value: text.clone() };
    let name = text.to_ascii_lowercase();
    let parse_switch = || match name.as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(invalid_value()),
    };
    let parse_level = || IsolationLevel::from_name(&name).map(Some).ok_or_else(invalid_value);
    let transaction = |isolation, read_only, session| Ok(Statement::SetTransaction { isolation, read_only, session });
    let value = match setting {
        Setting::Synchronous => SettingValue::Synchronous(match name.as_str() {
            "full" => Synchronous::Full,
            "normal" => Synchronous::Normal,
            "off" => Synchronous::Off,
            _ => return Err(invalid_value()),
        }),
        Setting::Mover => SettingValue::Mover(parse_switch()?),
        Setting::PreserveInsertionOrder => SettingValue::PreserveInsertionOrder(parse_switch()?),
        Setting::TempDirectory if is_quoted => SettingValue::TempDirectory(Some(text)),
        Setting::TempDirectory | Setting::StatementTimeout | Setting::SearchPath | Setting::TimeZone => {
            return Err(invalid_value());
        }
        Setting::DefaultTransactionIsolation => return transaction(parse_level()?, None, true),
        Setting::TransactionIsolation => return transaction(parse_level()?, None, false),
        Setting::DefaultTransactionReadOnly => return transaction(None, Some(parse_switch()?), true),
        Setting::TransactionReadOnly => return transaction(None, Some(parse_switch()?), false),
    };
    Ok(Statement::Set(value))
}

/// Returns the statement that sets a setting to its default.
fn reset(setting: Setting) -> Result<Statement> {
    Ok(Statement::Set(match setting {
        Setting::Synchronous => SettingValue::Synchronous(Synchronous::Full),
        Setting::Mover => SettingValue::Mover(true),
        Setting::PreserveInsertionOrder => SettingValue::PreserveInsertionOrder(true),
        Setting::SearchPath => SettingValue::SearchPath(vec![PUBLIC.to_owned()]),
        Setting::TempDirectory => SettingValue::TempDirectory(None),
        Setting::TimeZone => SettingValue::TimeZone("UTC".to_owned()),
        Setting::StatementTimeout => SettingValue::StatementTimeout(None),
        Setting::DefaultTransactionIsolation => {
            let isolation = Some(IsolationLevel::default());
            return Ok(Statement::SetTransaction { isolation, read_only: None, session: true });
        }
        Setting::DefaultTransactionReadOnly => {
            return Ok(Statement::SetTransaction { isolation: None, read_only: Some(false), session: true });
        }
        Setting::TransactionIsolation | Setting::TransactionReadOnly => {
            return Err(SqlError::NoReset { setting });
        }
    }))
}
