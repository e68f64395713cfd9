//! `CREATE`, `DROP` and `ALTER SCHEMA`, `ALTER ... SET SCHEMA`, and `USE`.

use datafusion_sql::sqlparser::ast::ObjectName;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use super::consume_word;
use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{normalize, qualified_schema, relation_reference, schema_name, single_name};
use crate::statement::Statement;

/// Parses the statements about schemas. Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn schemas(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let begins = |parser: &mut Parser<'_>, words: [&str; 2]| {
        let is_begin = parser.maybe_parse(|parser| match words.iter().all(|word| consume_word(parser, word)) {
            true => Ok(()),
            false => parser.expected_ref("a statement about schemas", parser.peek_token_ref()),
        });
        Ok::<_, SqlError>(is_begin?.is_some())
    };
    if begins(parser, ["create", "schema"])? {
        return create(parser).map(Some);
    }
    if begins(parser, ["drop", "schema"])? {
        return drop_schemas(parser).map(Some);
    }
    if begins(parser, ["alter", "schema"])? {
        return rename(parser).map(Some);
    }
    if let Some((kind, if_exists, name)) = parser.maybe_parse(moved_relation)? {
        let (name, schema) = (relation_reference(&name)?, normalize(&parser.parse_identifier()?));
        return Ok(Some(Statement::SetSchema { kind, name, if_exists, schema }));
    }
    match consume_word(parser, "use") {
        true => Ok(Some(Statement::Use { schema: single_name(&parser.parse_object_name(false)?)? })),
        false => Ok(None),
    }
}

fn create(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    if matches!(&parser.peek_token_ref().token, Token::Word(word) if word.keyword == Keyword::AUTHORIZATION) {
        return Err(no_owner());
    }
    let (database, name) = qualified_schema(&parser.parse_object_name(false)?)?;
    match parser.parse_keyword(Keyword::AUTHORIZATION) {
        true => Err(no_owner()),
        false => Ok(Statement::CreateSchema { database, name, if_not_exists }),
    }
}

fn no_owner() -> SqlError {
    SqlError::unsupported("CREATE SCHEMA ... AUTHORIZATION", "a database has no users; CREATE SCHEMA name is")
}

fn drop_schemas(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let written = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
    let (databases, names): (Vec<Option<String>>, Vec<String>) =
        written.iter().map(qualified_schema).collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let database = databases.first().cloned().flatten();
    if databases.iter().any(|other| *other != database) {
        return Err(SqlError::unsupported("DROP SCHEMA of several databases", "DROP SCHEMA of one is"));
    }
    let cascade = parser.parse_keyword(Keyword::CASCADE);
    if !cascade {
        let _ = parser.parse_keyword(Keyword::RESTRICT);
    }
    Ok(Statement::DropSchemas { database, names, if_exists, cascade })
}

fn rename(parser: &mut Parser<'_>) -> Result<Statement> {
    let (database, name) = qualified_schema(&parser.parse_object_name(false)?)?;
    match parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        true => {
            let new_name = schema_name(&parser.parse_object_name(false)?)?;
            Ok(Statement::RenameSchema { database, name, new_name })
        }
        false => {
            let what = format!("ALTER SCHEMA ... {}", parser.peek_token_ref());
            Err(SqlError::unsupported(what, "ALTER SCHEMA name RENAME TO other is"))
        }
    }
}

/// Consumes `ALTER TABLE`, `ALTER VIEW` or `ALTER SEQUENCE`, a name, and `SET SCHEMA`. Returns the kind of the
/// relation, whether there is an `IF EXISTS`, and the name.
fn moved_relation(
    parser: &mut Parser<'_>,
) -> std::result::Result<(ObjectKind, bool, ObjectName), datafusion_sql::sqlparser::parser::ParserError> {
    parser.expect_keyword(Keyword::ALTER)?;
    let kind = match parser.expect_one_of_keywords(&[Keyword::TABLE, Keyword::VIEW, Keyword::SEQUENCE])? {
        Keyword::VIEW => ObjectKind::View,
        Keyword::SEQUENCE => ObjectKind::Sequence,
        _ => ObjectKind::Table,
    };
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let _ = parser.parse_keyword(Keyword::ONLY);
    let name = parser.parse_object_name(false)?;
    parser.expect_keywords(&[Keyword::SET, Keyword::SCHEMA])?;
    Ok((kind, if_exists, name))
}
