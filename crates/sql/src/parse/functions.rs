//! `CREATE FUNCTION`, `DROP FUNCTION` and `COMMENT ON FUNCTION`.
//!
//! ```text
//!   CREATE FUNCTION net(price numeric, tax numeric DEFAULT 0.19) RETURNS numeric
//!       LANGUAGE SQL IMMUTABLE STRICT AS 'SELECT price / (1 + tax)'
//! ```

use datafusion_common::TableReference;
use datafusion_sql::sqlparser::ast::DataType;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use super::consume_word;
use crate::error::{Result, SqlError};
use crate::functions::{FunctionDefinition, FunctionParameter, FunctionResult, Volatility};
use crate::identifiers::{normalize, relation_reference};
use crate::statement::{CommentedObject, Statement};

/// Parses `CREATE FUNCTION`, `DROP FUNCTION` and `COMMENT ON FUNCTION`. Returns `None` for other statements and
/// consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn functions(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if parser.parse_keywords(&[Keyword::DROP, Keyword::FUNCTION]) {
        return drop_functions(parser).map(Some);
    }
    if parser.parse_keywords(&[Keyword::COMMENT, Keyword::ON, Keyword::FUNCTION]) {
        let (name, types) = function_name(parser)?;
        parser.expect_keyword(Keyword::IS)?;
        let comment = match parser.parse_keyword(Keyword::NULL) {
            true => None,
            false => Some(parser.parse_comment_value()?),
        };
        return Ok(Some(Statement::Comment { on: CommentedObject::Function { name, types }, comment }));
    }
    let or_replace = parser.parse_keywords(&[Keyword::CREATE, Keyword::OR, Keyword::REPLACE, Keyword::FUNCTION]);
    if !or_replace && !parser.parse_keywords(&[Keyword::CREATE, Keyword::FUNCTION]) {
        return Ok(None);
    }
    let name = relation_reference(&parser.parse_object_name(false)?)?;
    Ok(Some(Statement::CreateFunction { name, or_replace, definition: definition(parser)? }))
}

fn drop_functions(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let mut functions = Vec::new();
    loop {
        functions.push(function_name(parser)?);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    let cascade = parser.parse_keyword(Keyword::CASCADE);
    if !cascade {
        let _ = parser.parse_keyword(Keyword::RESTRICT);
    }
    Ok(Statement::DropFunctions { functions, if_exists, cascade })
}

/// Parses the name of a function, with or without the types of its parameters.
fn function_name(parser: &mut Parser<'_>) -> Result<(TableReference, Option<Vec<String>>)> {
    let name = relation_reference(&parser.parse_object_name(false)?)?;
    let types = match parser.peek_token_ref().token == Token::LParen {
        true => Some(parameters(parser)?.into_iter().map(|parameter| parameter.data_type).collect()),
        false => None,
    };
    Ok((name, types))
}

/// Parses the part of `CREATE FUNCTION` after the name of the function.
pub(super) fn definition(parser: &mut Parser<'_>) -> Result<FunctionDefinition> {
    let parameters = parameters(parser)?;
    if !parser.parse_keyword(Keyword::RETURNS) {
        return Err(SqlError::unsupported("a function without RETURNS", "RETURNS type is"));
    }
    let returns = result(parser)?;
    let (mut language, mut body, mut volatility, mut is_strict) = (None, None, None, None);
    loop {
        if parser.parse_keyword(Keyword::LANGUAGE) {
            let name = match parser.next_token().token {
                Token::Word(word) => word.value,
                Token::SingleQuotedString(name) => name,
                other => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
            };
            if !name.eq_ignore_ascii_case("sql") {
                return Err(SqlError::unsupported(format!("LANGUAGE {name}"), "LANGUAGE SQL is"));
            }
            set(&mut language, ())?;
        } else if parser.parse_keyword(Keyword::IMMUTABLE) {
            set(&mut volatility, Volatility::Immutable)?;
        } else if parser.parse_keyword(Keyword::STABLE) {
            set(&mut volatility, Volatility::Stable)?;
        } else if parser.parse_keyword(Keyword::VOLATILE) {
            set(&mut volatility, Volatility::Volatile)?;
        } else if parser.parse_keyword(Keyword::STRICT)
            || parser.parse_keywords(&[Keyword::RETURNS, Keyword::NULL, Keyword::ON, Keyword::NULL, Keyword::INPUT])
        {
            set(&mut is_strict, true)?;
        } else if parser.parse_keywords(&[Keyword::CALLED, Keyword::ON, Keyword::NULL, Keyword::INPUT]) {
            set(&mut is_strict, false)?;
        } else if parser.parse_keyword(Keyword::PARALLEL) {
            // Every function can run in parallel.
            parser.expect_one_of_keywords(&[Keyword::SAFE, Keyword::RESTRICTED, Keyword::UNSAFE])?;
        } else if parser.parse_keyword(Keyword::AS) {
            let text = match parser.next_token().token {
                Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text,
                Token::DollarQuotedString(text) => text.value,
                other => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
            };
            set(&mut body, text)?;
        } else if parser.parse_keyword(Keyword::RETURN) {
            set(&mut body, format!("SELECT {}", parser.parse_expr()?))?;
            language.get_or_insert(());
        } else {
            break;
        }
    }
    let next = &parser.peek_token_ref().token;
    if !matches!(next, Token::EOF | Token::SemiColon) {
        let allowed =
            "LANGUAGE SQL, AS 'query', RETURN expression, IMMUTABLE, STABLE, VOLATILE, STRICT and PARALLEL are";
        return Err(SqlError::unsupported(format!("option {next} of CREATE FUNCTION"), allowed));
    }
    let Some(body) = body else { return Err(SqlError::function("no function body specified")) };
    if language.is_none() {
        return Err(SqlError::function("no language specified"));
    }
    let is_strict = is_strict.unwrap_or(false);
    Ok(FunctionDefinition { parameters, returns, volatility: volatility.unwrap_or_default(), is_strict, body })
}

/// Parses what follows `RETURNS`.
fn result(parser: &mut Parser<'_>) -> Result<FunctionResult> {
    if consume_word(parser, "table") {
        parser.expect_token(&Token::LParen)?;
        let column = |parser: &mut Parser<'_>| {
            Ok((normalize(&parser.parse_identifier()?), parser.parse_data_type()?.to_string()))
        };
        let columns = parser.parse_comma_separated(column)?;
        parser.expect_token(&Token::RParen)?;
        return Ok(FunctionResult::Table(columns));
    }
    let is_set = consume_word(parser, "setof");
    let data_type = parser.parse_data_type()?.to_string();
    if ["void", "trigger", "record"].iter().any(|known| data_type.eq_ignore_ascii_case(known)) {
        let allowed = "RETURNS type, RETURNS SETOF type and RETURNS TABLE (column type, ...) are";
        return Err(SqlError::unsupported(format!("RETURNS {}", data_type.to_lowercase()), allowed));
    }
    Ok(if is_set { FunctionResult::Set(data_type) } else { FunctionResult::Value(data_type) })
}

/// Sets an option of the function, unless the statement has set it before.
fn set<T>(option: &mut Option<T>, value: T) -> Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::syntax("conflicting or redundant options")),
    }
}

/// Parses the parameters in parentheses.
fn parameters(parser: &mut Parser<'_>) -> Result<Vec<FunctionParameter>> {
    parser.expect_token(&Token::LParen)?;
    let mut parameters: Vec<FunctionParameter> = Vec::new();
    if parser.consume_token(&Token::RParen) {
        return Ok(parameters);
    }
    loop {
        parameters.push(parameter(parser)?);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    parser.expect_token(&Token::RParen)?;
    for (index, parameter) in parameters.iter().enumerate() {
        if let Some(name) = &parameter.name
            && parameters[..index].iter().any(|other| other.name.as_ref() == Some(name))
        {
            return Err(SqlError::function(format!("parameter name {name:?} used more than once")));
        }
        if parameter.default.is_none() && index > 0 && parameters[index - 1].default.is_some() {
            let message = "input parameters after one with a default value must also have defaults";
            return Err(SqlError::function(message));
        }
    }
    Ok(parameters)
}

/// Parses `[IN] [name] type [DEFAULT value]`.
fn parameter(parser: &mut Parser<'_>) -> Result<FunctionParameter> {
    let mode = parser.parse_one_of_keywords(&[Keyword::IN, Keyword::OUT, Keyword::INOUT, Keyword::VARIADIC]);
    if let Some(mode) = mode.filter(|mode| *mode != Keyword::IN) {
        return Err(SqlError::unsupported(format!("{mode:?} parameters of a function"), "IN parameters are"));
    }
    // A type of several words, such as `double precision`, is not a name and a type.
    let (name, data_type) = match parser.maybe_parse(|parser| last_type(parser).map(|data_type| (None, data_type)))? {
        Some(unnamed) => unnamed,
        None => (Some(normalize(&parser.parse_identifier()?)), parser.parse_data_type()?),
    };
    let has_default = parser.parse_keyword(Keyword::DEFAULT) || parser.consume_token(&Token::Eq);
    let default = if has_default { Some(parser.parse_expr()?.to_string()) } else { None };
    Ok(FunctionParameter { name, data_type: data_type.to_string(), default })
}

/// Parses a type that is the last part of a parameter, except for its default value.
fn last_type(parser: &mut Parser<'_>) -> std::result::Result<DataType, ParserError> {
    let data_type = parser.parse_data_type()?;
    let is_last = match &parser.peek_token_ref().token {
        Token::Comma | Token::RParen | Token::Eq => true,
        Token::Word(word) => word.keyword == Keyword::DEFAULT,
        _ => false,
    };
    if is_last { Ok(data_type) } else { parser.expected_ref("the end of a parameter", parser.peek_token_ref()) }
}
