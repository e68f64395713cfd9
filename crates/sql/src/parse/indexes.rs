//! `ALTER INDEX ... RENAME TO`.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;

use crate::error::{Result, SqlError};
use crate::identifiers::{relation_reference, single_name};
use crate::statement::Statement;

/// Parses `ALTER INDEX`. Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn indexes(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if !parser.parse_keywords(&[Keyword::ALTER, Keyword::INDEX]) {
        return Ok(None);
    }
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = relation_reference(&parser.parse_object_name(false)?)?;
    if !parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        let what = format!("ALTER INDEX ... {}", parser.peek_token_ref());
        return Err(SqlError::unsupported(what, "ALTER INDEX name RENAME TO other is"));
    }
    let new_name = single_name(&parser.parse_object_name(false)?)?;
    Ok(Some(Statement::RenameIndex { name, if_exists, new_name }))
}
