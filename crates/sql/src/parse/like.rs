//! `CREATE TABLE t (LIKE u INCLUDING ALL)`.

use datafusion_sql::sqlparser::ast::ObjectName;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use super::consume_word;
use super::ddl::option_pair;
use crate::error::{Result, SqlError};
use crate::identifiers::relation_reference;
use crate::statement::{LikePart, OnCommit, Statement, TableSource};

/// The statement up to the name after `LIKE`.
struct Head {
    or_replace: bool,
    temporary: bool,
    if_not_exists: bool,
    name: ObjectName,
    like: ObjectName,
}

/// Parses the statement. Returns `None` for other statements.
///
/// # Errors
/// If an unknown part is included or excluded, if columns follow, or if an option of the new table is invalid.
pub(super) fn like(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let Some(Head { or_replace, temporary, if_not_exists, name, like }) = parser.maybe_parse(head)? else {
        return Ok(None);
    };
    if or_replace && if_not_exists {
        let what = "CREATE OR REPLACE TABLE IF NOT EXISTS";
        return Err(SqlError::unsupported(what, "CREATE OR REPLACE TABLE t and CREATE TABLE IF NOT EXISTS t are"));
    }
    let mut included: Vec<LikePart> = Vec::new();
    loop {
        let includes = consume_word(parser, "including");
        if !includes && !consume_word(parser, "excluding") {
            break;
        }
        let parts = parse_parts(parser)?;
        included.retain(|part| !parts.contains(part));
        if includes {
            included.extend(parts);
        }
    }
    if parser.peek_token_ref().token == Token::Comma {
        return Err(SqlError::unsupported("a column beside LIKE", "ALTER TABLE t ADD COLUMN is"));
    }
    parser.expect_token(&Token::RParen)?;
    let options = parser.parse_options(Keyword::WITH)?.into_iter().map(option_pair).collect::<Result<_>>()?;
    let on_commit = match parser.parse_keywords(&[Keyword::ON, Keyword::COMMIT]) {
        false => None,
        true if parser.parse_keywords(&[Keyword::DELETE, Keyword::ROWS]) => Some(OnCommit::DeleteRows),
        true if parser.parse_keywords(&[Keyword::PRESERVE, Keyword::ROWS]) => Some(OnCommit::PreserveRows),
        true => {
            parser.expect_keyword(Keyword::DROP)?;
            Some(OnCommit::Drop)
        }
    };
    Ok(Some(Statement::CreateTable {
        name: relation_reference(&name)?,
        temporary,
        on_commit,
        if_not_exists,
        or_replace,
        source: TableSource::Like { table: relation_reference(&like)?, included },
        options,
        notices: Vec::new(),
    }))
}

fn head(parser: &mut Parser<'_>) -> std::result::Result<Head, ParserError> {
    parser.expect_keyword(Keyword::CREATE)?;
    let or_replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
    let is_scoped = parser.parse_one_of_keywords(&[Keyword::LOCAL, Keyword::GLOBAL]).is_some();
    let temporary = parser.parse_one_of_keywords(&[Keyword::TEMP, Keyword::TEMPORARY]).is_some();
    if is_scoped && !temporary {
        return parser.expected("TEMPORARY", parser.peek_token());
    }
    parser.expect_keyword(Keyword::TABLE)?;
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    parser.expect_token(&Token::LParen)?;
    parser.expect_keyword(Keyword::LIKE)?;
    let like = parser.parse_object_name(false)?;
    Ok(Head { or_replace, temporary, if_not_exists, name, like })
}

/// Parses the word after `INCLUDING` or `EXCLUDING`. Returns the parts that it means.
fn parse_parts(parser: &mut Parser<'_>) -> Result<Vec<LikePart>> {
    if consume_word(parser, "all") {
        return Ok(LikePart::ALL.to_vec());
    }
    match LikePart::ALL.into_iter().find(|part| consume_word(parser, part.name())) {
        Some(part) => Ok(vec![part]),
        None => {
            let names: Vec<String> = LikePart::ALL.iter().map(|part| part.name().to_uppercase()).collect();
            Ok(parser.expected(&format!("one of {} or ALL", names.join(", ")), parser.peek_token())?)
        }
    }
}
