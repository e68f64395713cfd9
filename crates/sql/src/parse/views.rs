//! `ALTER VIEW ... RENAME`. The parser supports only `ALTER VIEW ... AS`.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;

use crate::error::{Result, SqlError};
use crate::identifiers::{normalize, relation_reference, single_name};
use crate::statement::{Statement, ViewChange};

/// Parses `ALTER VIEW`. Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn views(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if !parser.parse_keywords(&[Keyword::ALTER, Keyword::VIEW]) {
        return Ok(None);
    }
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = relation_reference(&parser.parse_object_name(false)?)?;
    if !parser.parse_keyword(Keyword::RENAME) {
        return Err(SqlError::unsupported(
            format!("ALTER VIEW ... {}", parser.peek_token_ref()),
            "RENAME TO, RENAME COLUMN and SET SCHEMA are, and CREATE OR REPLACE VIEW changes the query",
        ));
    }
    let change = match parser.parse_keyword(Keyword::TO) {
        true => ViewChange::Rename(single_name(&parser.parse_object_name(false)?)?),
        false => {
            let _ = parser.parse_keyword(Keyword::COLUMN);
            let column = normalize(&parser.parse_identifier()?);
            parser.expect_keyword(Keyword::TO)?;
            ViewChange::RenameColumn { column, name: normalize(&parser.parse_identifier()?) }
        }
    };
    Ok(Some(Statement::AlterView { name, if_exists, change }))
}
