//! Statements of PostgreSQL and DuckDB that Taut does not have, each with what takes its place.

use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use super::Result;
use crate::error::SqlError;
use crate::statement::Statement;

const FUNCTIONS: &str = "CREATE FUNCTION f(a int) RETURNS int LANGUAGE SQL AS 'SELECT a + 1' is";
const LIBRARIES: &str = "all functions and file formats are built in";
const PERMISSIONS: &str = "access is controlled by the permissions of the database's directory";
const DATABASES: &str = "a database is a directory, which ATTACH 'path' AS name adds to the session";
const CURSORS: &str = "programs can read the result of a query batch by batch";
const TYPES: &str = "built-in types and CHECK constraints are";
const TRIGGERS: &str = "defaults, generated columns, CHECK constraints and foreign keys are";

/// First words of statements, without `OR REPLACE` and `TEMPORARY`, and what is supported instead.
const STATEMENTS: [(&str, &str); 52] = [
    ("ANALYZE", "statistics are collected when rows are written"),
    ("ALTER DATABASE", "SET changes settings of the session"),
    ("ALTER FUNCTION", "CREATE OR REPLACE FUNCTION is"),
    ("CALL", FUNCTIONS),
    ("CLOSE", CURSORS),
    ("CLUSTER", "ALTER TABLE t SET (sort_by = 'a') with VACUUM FULL t is"),
    ("CREATE AGGREGATE", FUNCTIONS),
    ("CREATE DATABASE", DATABASES),
    ("CREATE DOMAIN", TYPES),
    ("CREATE EXTENSION", LIBRARIES),
    ("CREATE MACRO", FUNCTIONS),
    ("CREATE POLICY", PERMISSIONS),
    ("CREATE PROCEDURE", FUNCTIONS),
    ("CREATE ROLE", PERMISSIONS),
    ("CREATE RULE", TRIGGERS),
    ("CREATE TRIGGER", TRIGGERS),
    ("CREATE TYPE", TYPES),
    ("CREATE USER", PERMISSIONS),
    ("DECLARE", CURSORS),
    ("DISCARD", "RESET name and DEALLOCATE ALL are"),
    ("DO", FUNCTIONS),
    ("DROP AGGREGATE", FUNCTIONS),
    ("DROP DATABASE", DATABASES),
    ("DROP DOMAIN", TYPES),
    ("DROP EXTENSION", LIBRARIES),
    ("DROP MACRO", FUNCTIONS),
    ("DROP POLICY", PERMISSIONS),
    ("DROP PROCEDURE", FUNCTIONS),
    ("DROP ROLE", PERMISSIONS),
    ("DROP RULE", TRIGGERS),
    ("DROP TRIGGER", TRIGGERS),
    ("DROP TYPE", TYPES),
    ("DROP USER", PERMISSIONS),
    ("EXPORT DATABASE", "BACKUP DATABASE and COPY t TO 'file.parquet' are"),
    ("FETCH", CURSORS),
    ("GRANT", PERMISSIONS),
    ("IMPORT DATABASE", "the command taut restore and COPY t FROM 'file.parquet' are"),
    ("INSTALL", LIBRARIES),
    ("LISTEN", "queries see new commits"),
    ("LOAD", LIBRARIES),
    ("LOCK", "UPDATE locks rows; SERIALIZABLE detects conflicts"),
    ("MOVE", CURSORS),
    ("NOTIFY", "queries see new commits"),
    ("PRAGMA", "SET, SHOW and the tables of schema taut are"),
    ("REASSIGN", PERMISSIONS),
    ("REFRESH", "views are computed when they are read"),
    ("REINDEX", "commits keep indexes up to date"),
    ("REVOKE", PERMISSIONS),
    ("SET ROLE", PERMISSIONS),
    ("SET SESSION AUTHORIZATION", PERMISSIONS),
    ("SET VARIABLE", "parameters such as $1 are"),
    ("UNLISTEN", "queries see new commits"),
];

/// Returns an error for a statement that Taut does not have. Returns `None` for all others.
pub(super) fn unsupported(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let words = first_words(parser);
    let begins = |statement: &&(&str, &str)| {
        let mut found = words.iter();
        statement.0.split(' ').all(|word| found.next().is_some_and(|found| found.eq_ignore_ascii_case(word)))
    };
    match STATEMENTS.iter().find(begins) {
        Some((statement, allowed)) => Err(SqlError::unsupported(*statement, *allowed)),
        None => Ok(None),
    }
}

/// The first three unquoted words of the next statement, without those that say how to create an object.
fn first_words(parser: &Parser<'_>) -> Vec<String> {
    let words = (0..6).map(|index| match parser.peek_nth_token(index).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value),
        _ => None,
    });
    let is_modifier = |word: &String| {
        ["or", "replace", "temp", "temporary"].iter().any(|modifier| word.eq_ignore_ascii_case(modifier))
    };
    words.map_while(|word| word).filter(|word| !is_modifier(word)).take(3).collect()
}
