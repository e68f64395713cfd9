//! Statements that create, change, empty and drop tables and indexes.
//!
//! Strings that end with "is" or "are" complete the message "X is not supported; ": see [`SqlError::unsupported`].

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use datafusion_sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, CascadeOption, CreateIndex, CreateTable, CreateTableLikeKind, CreateTableOptions,
    Expr, HiveDistributionStyle, IndexColumn, IndexType, LimitClause, ObjectName, OnCommit as AstOnCommit, OrderByExpr,
    Query, RenameTableNameKind, SelectItem, SetExpr, SqlOption, Statement as Ast, Truncate, TruncateIdentityOption,
    Value,
};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use taut_types::IndexKind;

use super::column_lists::untyped_names;
use super::columns::{column_changes, convert_columns};
use super::constraints::{constraint_change, table_constraint};
use super::sequences::identity_change;
use crate::declared::SchemaChange;
use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{normalize, relation_reference, single_name};
use crate::index_part::{IndexPart, is_index_part};
use crate::statement::{NewIndex, OnCommit, Statement, TableChange, TableSource};
use crate::syntax::{derived_table, integer, select, without_joins};

/// Supported forms of `ALTER TABLE`, for error messages.
const ALTERATIONS: &str = "ALTER TABLE t SET (name = 'value', ...) changes the design of a table, ADD, DROP, RENAME and \
                           ALTER COLUMN its columns, ADD and DROP CONSTRAINT what its rows must obey, RENAME TO its \
                           name, SET SCHEMA its schema";

/// Whether a query is `SELECT ... INTO t`.
pub(super) fn is_select_into(query: &Query) -> bool {
    matches!(query.body.as_ref(), SetExpr::Select(select) if select.into.is_some())
}

/// Converts `SELECT ... INTO t` to `CREATE TABLE t AS SELECT ...`.
///
/// # Errors
/// Those of `CREATE TABLE`.
pub(super) fn select_into(mut query: Box<Query>) -> Result<Statement> {
    let into = match query.body.as_mut() {
        SetExpr::Select(select) => select.into.take(),
        _ => None,
    };
    let Some(into) = into else { return Err(SqlError::unsupported("INTO", "SELECT ... INTO t is")) };
    if into.unlogged {
        return Err(SqlError::unsupported("SELECT ... INTO UNLOGGED", "SELECT ... INTO t is"));
    }
    create_table(CreateTableBuilder::new(into.name).temporary(into.temporary).query(Some(query)).build())
}

/// Parses `WITH DATA` or `WITH NO DATA` after the query of `CREATE TABLE ... AS`. Without data, the query has no rows.
pub(super) fn parse_with_data(parser: &mut Parser<'_>, statement: &mut PlannerStatement) {
    let PlannerStatement::Statement(ast) = statement else { return };
    let Ast::CreateTable(CreateTable { query: Some(query), .. }) = ast.as_mut() else { return };
    if parser.parse_keywords(&[Keyword::WITH, Keyword::NO, Keyword::DATA]) {
        let rows = derived_table(query.clone(), "taut rows", &[]);
        *query = select(vec![SelectItem::Wildcard(Default::default())], vec![without_joins(rows)], None);
        query.limit_clause =
            Some(LimitClause::LimitOffset { limit: Some(integer(0)), offset: None, limit_by: Vec::new() });
    } else {
        let _ = parser.parse_keywords(&[Keyword::WITH, Keyword::DATA]);
    }
}

pub(super) fn create_table(create: CreateTable) -> Result<Statement> {
    let unsupported = [
        (create.or_replace && create.if_not_exists, "CREATE OR REPLACE TABLE IF NOT EXISTS"),
        (create.global.is_some() && !create.temporary, "GLOBAL or LOCAL without TEMPORARY"),
        (create.external, "an external table"),
        (create.partition_by.is_some(), "PARTITION BY"),
        (create.hive_distribution != HiveDistributionStyle::NONE, "PARTITIONED BY"),
        (create.cluster_by.is_some() || create.clustered_by.is_some(), "CLUSTER BY"),
        (create.order_by.is_some(), "ORDER BY after the columns"),
        (create.clone.is_some(), "CREATE TABLE ... CLONE"),
        (create.inherits.is_some(), "INHERITS"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_given, _)| *is_given) {
        return Err(SqlError::unsupported(what, "CREATE TABLE t (columns) WITH (options) and AS query are"));
    }
    let options = match create.table_options {
        CreateTableOptions::None => Vec::new(),
        CreateTableOptions::With(options) => options.into_iter().map(option_pair).collect::<Result<_>>()?,
        other => {
            return Err(SqlError::unsupported(format!("{other}"), "table options are written WITH (name = 'value')"));
        }
    };
    let mut notices = Vec::new();
    let like = create.like.map(|like| match like {
        CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like) => like,
    });
    let source = match (create.query, create.columns.is_empty()) {
        (None, true) if let Some(like) = like => {
            TableSource::Like { table: relation_reference(&like.name)?, included: Vec::new() }
        }
        (Some(query), true) => TableSource::Query { query, names: Vec::new() },
        (Some(query), false) => match untyped_names(&create.columns) {
            Some(names) => TableSource::Query { query, names: distinct(names)? },
            None => {
                return Err(SqlError::unsupported("a list of columns with types before AS", "a list of names is"));
            }
        },
        (None, _) => {
            let (mut columns, mut declared) = convert_columns(&create.columns, &mut notices)?;
            for constraint in create.constraints {
                declared.constraints.push(table_constraint(constraint)?);
            }
            for column in &mut columns {
                column.nullable &= !declared.is_primary(&column.name);
            }
            TableSource::Columns { columns, declared }
        }
    };
    let name = relation_reference(&create.name)?;
    let on_commit = create.on_commit.map(|action| match action {
        AstOnCommit::PreserveRows => OnCommit::PreserveRows,
        AstOnCommit::DeleteRows => OnCommit::DeleteRows,
        AstOnCommit::Drop => OnCommit::Drop,
    });
    let (temporary, if_not_exists, or_replace) = (create.temporary, create.if_not_exists, create.or_replace);
    Ok(Statement::CreateTable { name, temporary, on_commit, if_not_exists, or_replace, source, options, notices })
}

/// Returns the names of columns.
///
/// # Errors
/// If a name occurs twice.
fn distinct(names: Vec<String>) -> Result<Vec<String>> {
    match (1..names.len()).find(|index| names[..*index].contains(&names[*index])) {
        Some(index) => Err(SqlError::Duplicate { kind: ObjectKind::Column, name: names[index].clone() }),
        None => Ok(names),
    }
}

pub(super) fn create_index(create: CreateIndex) -> Result<Statement> {
    let allowed = "CREATE INDEX name ON t USING csb (a, lower(b)) WHERE c > 0 and CREATE INDEX name ON t USING bloom (a) \
                   are";
    let unsupported = [
        (create.unique && create.using == Some(IndexType::Bloom), "a unique index USING bloom"),
        (!create.include.is_empty(), "INCLUDE"),
        (create.nulls_distinct.is_some(), "NULLS DISTINCT"),
        (!create.with.is_empty() || !create.index_options.is_empty(), "an option of an index"),
        (!create.alter_options.is_empty(), "ALGORITHM or LOCK"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_given, _)| *is_given) {
        return Err(SqlError::unsupported(what, allowed));
    }
    let kind = match &create.using {
        // CSB+-trees replace B-trees.
        None | Some(IndexType::BTree) => IndexKind::CsbTree,
        Some(IndexType::Bloom) => IndexKind::Bloom,
        Some(IndexType::Custom(name)) if normalize(name) == IndexKind::CsbTree.name() => IndexKind::CsbTree,
        Some(other) => return Err(SqlError::unsupported(format!("an index USING {other}"), allowed)),
    };
    // ASC, DESC and NULLS FIRST have no effect: an index finds rows but does not return them in order.
    let part = |index: &IndexColumn| match &index.column {
        OrderByExpr { expr: Expr::Collate { .. }, .. } => {
            Err(SqlError::unsupported(format!("{index} in an index"), allowed))
        }
        OrderByExpr { expr, with_fill: None, .. } if index.operator_class.is_none() => match is_index_part(expr) {
            true => Ok(IndexPart::from_expression(expr.clone())),
            false => Err(SqlError::syntax(format!("syntax error: {expr} in an index needs parentheses around it"))),
        },
        _ => Err(SqlError::unsupported(format!("{index} in an index"), allowed)),
    };
    Ok(Statement::CreateIndex(NewIndex {
        name: create.name.as_ref().map(single_name).transpose()?,
        table: relation_reference(&create.table_name)?,
        kind,
        parts: create.columns.iter().map(part).collect::<Result<_>>()?,
        predicate: create.predicate.map(Box::new),
        is_unique: create.unique,
        if_not_exists: create.if_not_exists,
    }))
}

pub(super) fn drop_statement(
    kind: ObjectKind,
    names: Vec<ObjectName>,
    if_exists: bool,
    cascade: bool,
) -> Result<Statement> {
    let names = names.iter().map(relation_reference).collect::<Result<_>>()?;
    Ok(Statement::Drop { kind, names, if_exists, cascade })
}

pub(super) fn truncate(truncate: Truncate) -> Result<Statement> {
    let unsupported = [
        (truncate.cascade == Some(CascadeOption::Cascade), "TRUNCATE ... CASCADE"),
        (truncate.if_exists, "TRUNCATE IF EXISTS"),
        (truncate.partitions.is_some(), "TRUNCATE ... PARTITION"),
        (truncate.on_cluster.is_some(), "TRUNCATE ... ON CLUSTER"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_given, _)| *is_given) {
        return Err(SqlError::unsupported(what, "TRUNCATE TABLE t, u RESTART IDENTITY RESTRICT is"));
    }
    // ONLY and * matter only for inherited tables, which do not exist here.
    let names = truncate.table_names.iter().map(|table| relation_reference(&table.name)).collect::<Result<_>>()?;
    let restarts_identity = truncate.identity == Some(TruncateIdentityOption::Restart);
    Ok(Statement::Truncate { names, restarts_identity })
}

pub(super) fn alter_table(alter: AlterTable) -> Result<Statement> {
    let unsupported = [
        (alter.location.is_some(), "SET LOCATION"),
        (alter.on_cluster.is_some(), "ON CLUSTER"),
        (alter.table_type.is_some(), "an external or dynamic table"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_given, _)| *is_given) {
        return Err(SqlError::unsupported(format!("ALTER TABLE with {what}"), ALTERATIONS));
    }
    // ONLY matters only for inherited tables, which do not exist here.
    let (name, if_exists) = (relation_reference(&alter.name)?, alter.if_exists);
    let mut notices = Vec::new();
    let change = match alter.operations.as_slice() {
        [AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(new) }] => {
            TableChange::Rename(single_name(new)?)
        }
        _ => table_change(alter.operations, &mut notices)?,
    };
    Ok(Statement::AlterTable { name, if_exists, change, notices })
}

fn table_change(operations: Vec<AlterTableOperation>, notices: &mut Vec<String>) -> Result<TableChange> {
    let (mut options, mut changes) = (Vec::new(), Vec::new());
    for operation in operations {
        if let Some(change) = identity_change(&operation, notices)? {
            changes.push(SchemaChange::Identity(change));
            continue;
        }
        if let Some(change) = constraint_change(&operation)? {
            changes.push(SchemaChange::Constraint(change));
            continue;
        }
        if let Some(columns) = column_changes(&operation, notices)? {
            changes.extend(columns.into_iter().map(SchemaChange::Column));
            continue;
        }
        match operation {
            AlterTableOperation::SetOptionsParens { options: new_options } => {
                for option in new_options {
                    options.push(option_pair(option)?);
                }
            }
            other => return Err(SqlError::unsupported(format!("ALTER TABLE ... {other}"), ALTERATIONS)),
        }
    }
    match (changes.is_empty(), options.is_empty()) {
        (true, _) => Ok(TableChange::Design(options)),
        (false, true) => Ok(TableChange::Schema(changes)),
        (false, false) => Err(SqlError::unsupported(
            "a change of the design and of columns or constraints in one statement",
            "one ALTER TABLE for each is",
        )),
    }
}

/// Converts `name = value`. The value is a string, number, boolean or bare word and becomes text.
pub(super) fn option_pair(option: SqlOption) -> Result<(String, String)> {
    let SqlOption::KeyValue { key, value } = option else {
        return Err(SqlError::unsupported(format!("option {option}"), "options are written name = 'value'"));
    };
    let text = match value {
        Expr::Value(value) => match value.value {
            Value::SingleQuotedString(text) => text,
            Value::Number(number, _) => number,
            Value::Boolean(flag) => flag.to_string(),
            other => return Err(SqlError::unsupported(format!("option {key} = {other}"), "write name = 'value'")),
        },
        Expr::Identifier(word) => word.value,
        other => return Err(SqlError::unsupported(format!("option {key} = {other}"), "write name = 'value'")),
    };
    Ok((normalize(&key), text))
}
