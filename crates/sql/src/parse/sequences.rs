//! Parses `CREATE SEQUENCE`, `ALTER SEQUENCE`, and changes of identities and generation expressions in `ALTER TABLE`.
//! DataFusion's parser accepts the options of a sequence in one order only. It does not support `ALTER SEQUENCE`, `DROP
//! IDENTITY` and `DROP EXPRESSION`.

use datafusion_common::TableReference;
use datafusion_sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, DataType, Expr, SequenceOptions as AstOption, UnaryOperator, Value,
};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;
use taut_store::Identity;
use taut_types::LogicalType;

use super::columns::identity_of;
use super::consume_word;
use crate::declared::{ConstraintChange, DeclaredSequence, IdentityChange, SchemaChange, SequenceOptions};
use crate::error::{Result, SqlError};
use crate::identifiers::{normalize, relation_reference, single_name};
use crate::statement::{SequenceChange, Statement, TableChange};
use crate::types::logical_type_of;

/// Parses `CREATE SEQUENCE`, `ALTER SEQUENCE`, and `ALTER TABLE t ALTER COLUMN c` with `DROP IDENTITY`, `DROP
/// EXPRESSION`, `SET GENERATED` or `RESTART`. Returns `None` for other statements and consumes none of their tokens.
///
/// # Errors
/// If the rest of the statement is not supported.
pub(super) fn sequences(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let word = |parser: &Parser<'_>, at| match parser.peek_nth_token(at).token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        _ => String::new(),
    };
    match (word(parser, 0).as_str(), word(parser, 1).as_str(), word(parser, 2).as_str()) {
        ("create", "temp" | "temporary", "sequence") => create(parser, true).map(Some),
        ("create", "sequence", _) => create(parser, false).map(Some),
        ("alter", "sequence", _) => alter(parser).map(Some),
        ("alter", "table", _) => alter_column(parser),
        _ => Ok(None),
    }
}

fn create(parser: &mut Parser<'_>, temporary: bool) -> Result<Statement> {
    parser.next_token();
    if temporary {
        parser.next_token();
    }
    parser.next_token();
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = relation_reference(&parser.parse_object_name(false)?)?;
    let mut notices = Vec::new();
    let options = options(parser, &mut notices)?;
    if options.restart.is_some() {
        return Err(SqlError::syntax("CREATE SEQUENCE has no RESTART; START WITH sets the first number"));
    }
    Ok(Statement::CreateSequence { name, temporary, if_not_exists, options, notices })
}

fn alter(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.next_token();
    parser.next_token();
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = relation_reference(&parser.parse_object_name(false)?)?;
    let mut notices = Vec::new();
    let change = match parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        true => SequenceChange::Rename(single_name(&parser.parse_object_name(false)?)?),
        false => SequenceChange::Options(options(parser, &mut notices)?),
    };
    Ok(Statement::AlterSequence { name, if_exists, change, notices })
}

/// How a statement changes the identity or the expression of a column.
enum ColumnVerb {
    DropIdentity,
    DropExpression,
    SetGenerated,
    Restart,
}

/// Parses a change of the identity or the expression of a column. Returns `None` for other changes of a table and
/// consumes none of their tokens.
fn alter_column(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let begin = parser.maybe_parse(|parser| {
        parser.expect_keywords(&[Keyword::ALTER, Keyword::TABLE])?;
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let _ = parser.parse_keyword(Keyword::ONLY);
        let name = parser.parse_object_name(false)?;
        parser.expect_keyword(Keyword::ALTER)?;
        let _ = parser.parse_keyword(Keyword::COLUMN);
        let column = normalize(&parser.parse_identifier()?);
        let drops = parser.parse_keyword(Keyword::DROP);
        let verb = if drops && consume_word(parser, "identity") {
            ColumnVerb::DropIdentity
        } else if drops && consume_word(parser, "expression") {
            ColumnVerb::DropExpression
        } else if parser.parse_keywords(&[Keyword::SET, Keyword::GENERATED]) {
            ColumnVerb::SetGenerated
        } else if consume_word(parser, "restart") {
            ColumnVerb::Restart
        } else {
            return parser.expected_ref("DROP IDENTITY, SET GENERATED or RESTART", parser.peek_token_ref());
        };
        Ok((if_exists, name, column, verb))
    })?;
    let Some((if_exists, name, column, verb)) = begin else { return Ok(None) };
    let change = match verb {
        ColumnVerb::DropIdentity => {
            let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            SchemaChange::Identity(IdentityChange::Drop { column, if_exists })
        }
        ColumnVerb::DropExpression => {
            let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            SchemaChange::Constraint(ConstraintChange::DropExpression { column, if_exists })
        }
        ColumnVerb::SetGenerated => {
            SchemaChange::Identity(IdentityChange::Set { column, identity: generated(parser)? })
        }
        ColumnVerb::Restart => {
            let restart = match parser.parse_keyword(Keyword::WITH) {
                true => Some(number(parser)?),
                false => optional_number(parser)?,
            };
            let options = SequenceOptions { restart: Some(restart), ..SequenceOptions::default() };
            SchemaChange::Identity(IdentityChange::Alter { column, options })
        }
    };
    let change = TableChange::Schema(vec![change]);
    Ok(Some(Statement::AlterTable { name: relation_reference(&name)?, if_exists, change, notices: Vec::new() }))
}

fn generated(parser: &mut Parser<'_>) -> Result<Identity> {
    if parser.parse_keyword(Keyword::ALWAYS) {
        return Ok(Identity::Always);
    }
    parser.expect_keywords(&[Keyword::BY, Keyword::DEFAULT])?;
    Ok(Identity::ByDefault)
}

/// Parses the options of a sequence, in any order.
fn options(parser: &mut Parser<'_>, notices: &mut Vec<String>) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    loop {
        let is_negated = consume_word(parser, "no");
        let is_repeated = if !is_negated && parser.parse_keyword(Keyword::AS) {
            options.logical_type.replace(number_type(&parser.parse_data_type()?)?).is_some()
        } else if !is_negated && consume_word(parser, "increment") {
            let _ = parser.parse_keyword(Keyword::BY);
            options.increment.replace(number(parser)?).is_some()
        } else if consume_word(parser, "minvalue") {
            options.min.replace(if is_negated { None } else { Some(number(parser)?) }).is_some()
        } else if consume_word(parser, "maxvalue") {
            options.max.replace(if is_negated { None } else { Some(number(parser)?) }).is_some()
        } else if !is_negated && consume_word(parser, "start") {
            let _ = parser.parse_keyword(Keyword::WITH);
            options.start.replace(number(parser)?).is_some()
        } else if !is_negated && consume_word(parser, "restart") {
            let is_given = parser.parse_keyword(Keyword::WITH);
            let value = if is_given { Some(number(parser)?) } else { optional_number(parser)? };
            options.restart.replace(value).is_some()
        } else if !is_negated && consume_word(parser, "cache") {
            note_cache(number(parser)?, notices)?;
            false
        } else if consume_word(parser, "cycle") {
            options.cycles.replace(!is_negated).is_some()
        } else if !is_negated && consume_word(parser, "owned") {
            parser.expect_keyword(Keyword::BY)?;
            options.owned_by.replace(owner(parser)?).is_some()
        } else if is_negated {
            return Err(SqlError::syntax(format!(
                "syntax error at or near \"{}\": NO MINVALUE, NO MAXVALUE and NO CYCLE are options of a sequence",
                parser.peek_token()
            )));
        } else {
            return Ok(options);
        };
        if is_repeated {
            return Err(SqlError::syntax("conflicting or redundant options"));
        }
    }
}

/// Parses the owner of a sequence: a table and its column. Returns `None` for `NONE`.
fn owner(parser: &mut Parser<'_>) -> Result<Option<(TableReference, String)>> {
    if consume_word(parser, "none") {
        return Ok(None);
    }
    let mut name = parser.parse_object_name(false)?;
    let column = name.0.pop().and_then(|part| part.as_ident().map(normalize));
    match column.filter(|_| !name.0.is_empty()) {
        Some(column) => Ok(Some((relation_reference(&name)?, column))),
        None => Err(SqlError::syntax("invalid OWNED BY option; specify OWNED BY table.column or OWNED BY NONE")),
    }
}

fn number(parser: &mut Parser<'_>) -> Result<i64> {
    value_of(&parser.parse_number()?)
}

fn optional_number(parser: &mut Parser<'_>) -> Result<Option<i64>> {
    match parser.peek_token_ref().token {
        Token::Number(..) | Token::Minus | Token::Plus => number(parser).map(Some),
        _ => Ok(None),
    }
}

fn value_of(expression: &Expr) -> Result<i64> {
    let digits = match expression {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}"),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => expr.to_string(),
        Expr::Value(value) if matches!(value.value, Value::Number(..)) => value.to_string(),
        other => return Err(invalid_value(&other.to_string())),
    };
    digits.parse().map_err(|_| invalid_value(&digits))
}

fn invalid_value(value: &str) -> SqlError {
    SqlError::syntax(format!("invalid value {value} for an option of a sequence; integers of 64 bits are allowed"))
}

fn number_type(data_type: &DataType) -> Result<LogicalType> {
    let logical = logical_type_of(data_type).filter(|logical| logical.integer_range().is_some());
    logical.ok_or_else(|| SqlError::syntax("sequence type must be smallint, integer, or bigint"))
}

fn note_cache(numbers: i64, notices: &mut Vec<String>) -> Result<()> {
    match numbers {
        1 => Ok(()),
        2.. => {
            notices.push("CACHE has no effect: numbers are taken when they are used".to_owned());
            Ok(())
        }
        _ => Err(SqlError::syntax(format!("CACHE ({numbers}) must be greater than zero"))),
    }
}

/// Converts `ADD GENERATED ... AS IDENTITY`. Returns `None` for other changes of a table.
///
/// # Errors
/// If an option is not valid.
pub(super) fn identity_change(
    operation: &AlterTableOperation,
    notices: &mut Vec<String>,
) -> Result<Option<IdentityChange>> {
    let AlterTableOperation::AlterColumn {
        column_name,
        op: AlterColumnOperation::AddGenerated { generated_as: Some(generated_as), sequence_options },
    } = operation
    else {
        return Ok(None);
    };
    let options = identity_options(sequence_options.as_deref().unwrap_or_default(), notices)?;
    let (column, identity) = (normalize(column_name), Some(identity_of(generated_as)));
    Ok(Some(IdentityChange::Add(DeclaredSequence { column, identity, options })))
}

/// Converts the options of the sequence of an identity column.
///
/// # Errors
/// If a number is not a 64-bit integer, or if `CACHE` is below 1.
pub(super) fn identity_options(ast: &[AstOption], notices: &mut Vec<String>) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    for option in ast {
        match option {
            AstOption::IncrementBy(value, _) => options.increment = Some(value_of(value)?),
            AstOption::MinValue(value) => options.min = Some(value.as_ref().map(value_of).transpose()?),
            AstOption::MaxValue(value) => options.max = Some(value.as_ref().map(value_of).transpose()?),
            AstOption::StartWith(value, _) => options.start = Some(value_of(value)?),
            AstOption::Cache(value) => note_cache(value_of(value)?, notices)?,
            // DataFusion's parser stores `true` for `NO CYCLE`.
            AstOption::Cycle(is_negated) => options.cycles = Some(!is_negated),
        }
    }
    Ok(options)
}
