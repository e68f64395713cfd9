//! Transaction control statements.

use datafusion_sql::sqlparser::ast::{
    Set, Statement as Ast, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::settings::IsolationLevel;
use crate::statement::Statement;

/// Whether a statement controls transactions.
pub(super) fn is_transaction(ast: &Ast) -> bool {
    matches!(
        ast,
        Ast::StartTransaction { .. }
            | Ast::Commit { .. }
            | Ast::Rollback { .. }
            | Ast::Savepoint { .. }
            | Ast::ReleaseSavepoint { .. }
            | Ast::Set(Set::SetTransaction { .. })
    )
}

/// Parses `ABORT`, which the parser does not support, as `ROLLBACK`. Returns `None` for other statements.
pub(super) fn parse_abort(parser: &mut Parser<'_>) -> Result<Option<Ast>> {
    let is_abort = matches!(&parser.peek_token_ref().token, Token::Word(word) if word.keyword == Keyword::ABORT);
    if !is_abort {
        return Ok(None);
    }
    parser.next_token();
    Ok(Some(Ast::Rollback { chain: parser.parse_commit_rollback_chain()?, savepoint: None }))
}

/// Converts a statement for which [`is_transaction`] returns true.
///
/// # Errors
/// If the statement has parts that are not supported.
pub(super) fn transaction(ast: Ast) -> Result<Statement> {
    match ast {
        Ast::StartTransaction { modes, modifier, statements, exception, has_end_keyword, .. } => {
            if let Some(modifier) = modifier {
                return Err(SqlError::unsupported(format!("BEGIN {modifier}"), BEGIN_ALLOWED));
            }
            if !statements.is_empty() || exception.is_some() || has_end_keyword {
                return Err(SqlError::unsupported("a block of BEGIN and END", BEGIN_ALLOWED));
            }
            let Modes { isolation, read_only } = Modes::from_list(&modes)?;
            Ok(Statement::Begin { isolation, read_only })
        }
        Ast::Commit { chain, modifier, .. } => {
            check_chain("COMMIT", chain)?;
            match modifier {
                Some(modifier) => Err(SqlError::unsupported(format!("END {modifier}"), "COMMIT is")),
                None => Ok(Statement::Commit),
            }
        }
        Ast::Rollback { chain, savepoint } => {
            check_chain("ROLLBACK", chain)?;
            Ok(Statement::Rollback { savepoint: savepoint.as_ref().map(normalize) })
        }
        Ast::Savepoint { name } => Ok(Statement::Savepoint { name: normalize(&name) }),
        Ast::ReleaseSavepoint { name } => Ok(Statement::Release { name: normalize(&name) }),
        Ast::Set(Set::SetTransaction { modes, snapshot: None, session }) => {
            let Modes { isolation, read_only } = Modes::from_list(&modes)?;
            if isolation.is_none() && read_only.is_none() {
                let message = "syntax error: SET TRANSACTION takes ISOLATION LEVEL, READ ONLY or READ WRITE";
                return Err(SqlError::syntax(message));
            }
            Ok(Statement::SetTransaction { isolation, read_only, session })
        }
        other => Err(SqlError::unsupported(format!("{other}"), "SET TRANSACTION ISOLATION LEVEL is")),
    }
}

const BEGIN_ALLOWED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, REPEATABLE READ or SERIALIZABLE, READ ONLY or READ \
                             WRITE is";

fn check_chain(verb: &str, chain: bool) -> Result<()> {
    match chain {
        true => Err(SqlError::unsupported(format!("{verb} AND CHAIN"), format!("{verb}; BEGIN is"))),
        false => Ok(()),
    }
}

/// Modes of a `BEGIN` or `SET TRANSACTION`.
struct Modes {
    isolation: Option<IsolationLevel>,
    read_only: Option<bool>,
}

impl Modes {
    fn from_list(modes: &[TransactionMode]) -> Result<Self> {
        let mut found = Self { isolation: None, read_only: None };
        for mode in modes {
            let is_duplicate = match mode {
                TransactionMode::IsolationLevel(level) => found.isolation.replace(isolation_level(*level)).is_some(),
                TransactionMode::AccessMode(mode) => {
                    found.read_only.replace(*mode == TransactionAccessMode::ReadOnly).is_some()
                }
            };
            if is_duplicate {
                let message = format!("syntax error: conflicting or redundant options: {mode}");
                return Err(SqlError::syntax(message));
            }
        }
        Ok(found)
    }
}

fn isolation_level(level: TransactionIsolationLevel) -> IsolationLevel {
    match level {
        TransactionIsolationLevel::ReadUncommitted | TransactionIsolationLevel::ReadCommitted => {
            IsolationLevel::ReadCommitted
        }
        TransactionIsolationLevel::RepeatableRead | TransactionIsolationLevel::Snapshot => IsolationLevel::Snapshot,
        TransactionIsolationLevel::Serializable => IsolationLevel::Serializable,
    }
}

#[cfg(test)]
mod tests {
    use datafusion_common::TableReference;

    use crate::{IsolationLevel, Statement, parse};

    fn one(sql: &str) -> Statement {
        parse(sql).unwrap().pop().unwrap()
    }

    #[test]
    fn transactions_are_parsed_with_their_modes() {
        let begin = |sql| match one(sql) {
            Statement::Begin { isolation, read_only } => (isolation, read_only),
            other => panic!("{sql}: {other:?}"),
        };
        use IsolationLevel::{ReadCommitted, Serializable, Snapshot};
        for (sql, expected) in [
            ("BEGIN", (None, None)),
            ("begin work read write", (None, Some(false))),
            ("BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY", (Some(Serializable), Some(true))),
            ("START TRANSACTION READ ONLY ISOLATION LEVEL REPEATABLE READ", (Some(Snapshot), Some(true))),
            ("BEGIN ISOLATION LEVEL SNAPSHOT", (Some(Snapshot), None)),
            ("BEGIN ISOLATION LEVEL READ UNCOMMITTED", (Some(ReadCommitted), None)),
        ] {
            assert_eq!(begin(sql), expected, "{sql}");
        }
        for sql in ["COMMIT", "commit work and no chain", "END", "END TRANSACTION"] {
            assert!(matches!(one(sql), Statement::Commit), "{sql}");
        }
        for (sql, expected) in [
            ("ROLLBACK", None),
            ("ABORT WORK", None),
            ("ROLLBACK WORK TO SAVEPOINT A", Some("a")),
            ("ROLLBACK TO \"A\"", Some("A")),
        ] {
            assert!(matches!(one(sql), Statement::Rollback { savepoint } if savepoint.as_deref() == expected), "{sql}");
        }
        assert!(matches!(one("SAVEPOINT A"), Statement::Savepoint { name } if name == "a"));
        assert!(matches!(one("RELEASE A"), Statement::Release { name } if name == "a"));
        assert!(matches!(one("RELEASE SAVEPOINT \"A\""), Statement::Release { name } if name == "A"));
        assert!(matches!(
            one("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
            Statement::SetTransaction { isolation: Some(ReadCommitted), read_only: None, session: false }
        ));
        assert!(matches!(
            one("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"),
            Statement::SetTransaction { isolation: None, read_only: Some(false), session: true }
        ));
        assert!(matches!(
            one("TRUNCATE TABLE T, public.u CONTINUE IDENTITY RESTRICT"),
            Statement::Truncate { names, restarts_identity: false }
                if names == [TableReference::bare("t"), TableReference::partial("public", "u")]
        ));
    }
}
