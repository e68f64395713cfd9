//! Statements that create, change, fill and drop tables and indexes.

use std::sync::Arc;

use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as EngineStatement};
use datafusion::sql::sqlparser::ast::{
    AlterTableOperation, CascadeOption, CopyOption, CopySource, CopyTarget, CreateIndex, CreateTable,
    CreateTableOptions, Expr, IndexColumn, IndexType, ObjectName, OrderByExpr, OrderByOptions, SqlOption, Truncate,
    TruncateIdentityOption, Value,
};
use taut_types::IndexKind;

use super::columns::columns_of;
use super::constraints::{change_of, constraint_of};
use super::{Attachment, NewIndex, Statement, TableSource, copy_options, local_name, normalize};
use crate::error::{QueryError, Result};

pub(super) fn create_table(create: CreateTable) -> Result<Statement> {
    let unsupported = [
        (create.temporary, "a temporary table"),
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.external, "an external table"),
        (create.partition_by.is_some(), "PARTITION BY"),
        (create.like.is_some() || create.clone.is_some(), "CREATE TABLE ... LIKE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.on_commit.is_some(), "ON COMMIT"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(given, _)| *given) {
        return Err(QueryError::unsupported(what, "CREATE TABLE t (columns) WITH (options) and AS query are"));
    }
    let options = match create.table_options {
        CreateTableOptions::None => Vec::new(),
        CreateTableOptions::With(options) => options.into_iter().map(option_pair).collect::<Result<_>>()?,
        other => {
            return Err(QueryError::unsupported(format!("{other}"), "table options are written WITH (name = 'value')"));
        }
    };
    let mut notices = Vec::new();
    let source = match (create.query, create.columns.is_empty()) {
        (Some(query), true) => TableSource::Query(query),
        (Some(_), false) => {
            return Err(QueryError::unsupported("a list of columns before AS", "name the columns in the query"));
        }
        (None, _) => {
            let (mut columns, mut declared) = columns_of(&create.columns, &mut notices)?;
            for constraint in create.constraints {
                declared.constraints.push(constraint_of(constraint)?);
            }
            for column in &mut columns {
                column.nullable &= !declared.is_primary(&column.name);
            }
            TableSource::Columns { columns, declared }
        }
    };
    let name = local_name(&create.name)?;
    Ok(Statement::CreateTable { name, if_not_exists: create.if_not_exists, source, options, notices })
}

pub(super) fn create_index(create: CreateIndex) -> Result<Statement> {
    let allowed = "CREATE INDEX name ON t USING csb (a, b) and CREATE INDEX name ON t USING bloom (a) are";
    if create.unique {
        return Err(QueryError::unsupported("a unique index", "ALTER TABLE t ADD UNIQUE (a) makes one"));
    }
    let unsupported = [
        (!create.include.is_empty(), "INCLUDE"),
        (create.nulls_distinct.is_some(), "NULLS DISTINCT"),
        (create.predicate.is_some(), "an index on a part of the rows"),
        (!create.with.is_empty() || !create.index_options.is_empty(), "an option of an index"),
        (!create.alter_options.is_empty(), "ALGORITHM or LOCK"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(given, _)| *given) {
        return Err(QueryError::unsupported(what, allowed));
    }
    let kind = match &create.using {
        // CSB+-trees take the role of B-trees.
        None | Some(IndexType::BTree) => IndexKind::CsbTree,
        Some(IndexType::Bloom) => IndexKind::Bloom,
        Some(IndexType::Custom(name)) if normalize(name) == IndexKind::CsbTree.name() => IndexKind::CsbTree,
        Some(other) => return Err(QueryError::unsupported(format!("an index USING {other}"), allowed)),
    };
    let column = |index: &IndexColumn| match &index.column {
        OrderByExpr { expr: Expr::Identifier(name), options, with_fill: None }
            if index.operator_class.is_none() && *options == OrderByOptions::default() =>
        {
            Ok(normalize(name))
        }
        _ => Err(QueryError::unsupported(format!("{index} in an index"), allowed)),
    };
    Ok(Statement::CreateIndex(NewIndex {
        name: create.name.as_ref().map(local_name).transpose()?,
        table: local_name(&create.table_name)?,
        kind,
        columns: create.columns.iter().map(column).collect::<Result<_>>()?,
        if_not_exists: create.if_not_exists,
    }))
}

pub(super) fn drop_statement(kind: &'static str, names: Vec<ObjectName>, if_exists: bool) -> Result<Statement> {
    let names = names.iter().map(local_name).collect::<Result<_>>()?;
    Ok(Statement::Drop { kind, names, if_exists })
}

pub(super) fn truncate(truncate: Truncate) -> Result<Statement> {
    let unsupported = [
        (truncate.identity == Some(TruncateIdentityOption::Restart), "TRUNCATE ... RESTART IDENTITY"),
        (truncate.cascade == Some(CascadeOption::Cascade), "TRUNCATE ... CASCADE"),
        (truncate.if_exists, "TRUNCATE IF EXISTS"),
        (truncate.partitions.is_some(), "TRUNCATE ... PARTITION"),
        (truncate.on_cluster.is_some(), "TRUNCATE ... ON CLUSTER"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(given, _)| *given) {
        return Err(QueryError::unsupported(what, "TRUNCATE TABLE t, u CONTINUE IDENTITY RESTRICT is"));
    }
    // ONLY and * matter only for inherited tables, which do not exist here.
    let names = truncate.table_names.iter().map(|table| local_name(&table.name)).collect::<Result<_>>()?;
    Ok(Statement::Truncate { names })
}

pub(super) fn alter_table(name: ObjectName, operations: Vec<AlterTableOperation>) -> Result<Statement> {
    let (mut options, mut changes) = (Vec::new(), Vec::new());
    for operation in operations {
        if let Some(change) = change_of(&operation)? {
            changes.push(change);
            continue;
        }
        match operation {
            AlterTableOperation::SetOptionsParens { options: given } => {
                for option in given {
                    options.push(option_pair(option)?);
                }
            }
            other => {
                return Err(QueryError::unsupported(
                    format!("ALTER TABLE ... {other}"),
                    "ALTER TABLE t SET (name = 'value', ...) changes the design of a table, ADD and DROP CONSTRAINT and \
                     ALTER COLUMN a SET and DROP DEFAULT what its rows must obey",
                ));
            }
        }
    }
    let name = local_name(&name)?;
    match (changes.is_empty(), options.is_empty()) {
        (true, _) => Ok(Statement::AlterTable { name, options }),
        (false, true) => Ok(Statement::AlterConstraints { name, changes }),
        (false, false) => Err(QueryError::unsupported(
            "a change of the design and of constraints in one statement",
            "one ALTER TABLE for each is",
        )),
    }
}

pub(super) fn copy(source: CopySource, to: bool, target: CopyTarget, options: &[CopyOption]) -> Result<Statement> {
    let CopyTarget::File { filename } = target else {
        return Err(QueryError::unsupported("COPY with STDIN, STDOUT or PROGRAM", "COPY takes the name of a file"));
    };
    let options = options.iter().map(copy_option).collect::<Result<Vec<_>>>()?;
    let (source, columns) = match source {
        CopySource::Table { table_name, columns } if to && columns.is_empty() => {
            (CopyToSource::Relation(table_name), Vec::new())
        }
        CopySource::Query(query) if to => (CopyToSource::Query(query), Vec::new()),
        CopySource::Table { table_name, columns } => (CopyToSource::Relation(table_name), columns),
        CopySource::Query(_) => {
            return Err(QueryError::unsupported(
                "COPY (query) FROM",
                "COPY (query) TO 'file' and COPY t FROM 'file' are",
            ));
        }
    };
    match source {
        CopyToSource::Relation(table) if !to => Ok(Statement::CopyFrom {
            name: local_name(&table)?,
            columns: columns.iter().map(normalize).collect(),
            file: filename,
            options,
        }),
        source if columns.is_empty() => {
            let (stored_as, options) = copy_options::engine_options(&filename, options)?;
            let text = |value: String| Value::SingleQuotedString(value);
            let copy = CopyToStatement {
                source,
                target: filename,
                partitioned_by: Vec::new(),
                stored_as: Some(stored_as),
                options: options.into_iter().map(|(name, value)| (name, text(value))).collect(),
            };
            // The query may be long.
            let statement = Arc::new(EngineStatement::CopyTo(copy));
            Ok(Statement::Engine { statement, names: None, is_long: true, plan: Attachment::default() })
        }
        _ => Err(QueryError::unsupported("a list of columns in COPY ... TO", "COPY (SELECT a, b FROM t) TO 'file' is")),
    }
}

fn copy_option(option: &CopyOption) -> Result<(String, String)> {
    let pair = |name: &str, value: String| Ok((name.to_owned(), value));
    match option {
        CopyOption::Format(format) => pair("format", format.value.to_ascii_lowercase()),
        CopyOption::Header(header) => pair("header", header.to_string()),
        CopyOption::Delimiter(delimiter) => pair("delimiter", delimiter.to_string()),
        CopyOption::Quote(quote) => pair("quote", quote.to_string()),
        CopyOption::Escape(escape) => pair("escape", escape.to_string()),
        CopyOption::Null(null) => pair("null", null.clone()),
        other => Err(QueryError::unsupported(format!("COPY option {other}"), copy_options::OPTIONS_ALLOWED)),
    }
}

/// Converts `name = value`. The value is a string, number, boolean or bare word and becomes text.
fn option_pair(option: SqlOption) -> Result<(String, String)> {
    let SqlOption::KeyValue { key, value } = option else {
        return Err(QueryError::unsupported(format!("option {option}"), "options are written name = 'value'"));
    };
    let text = match value {
        Expr::Value(value) => match value.value {
            Value::SingleQuotedString(text) => text,
            Value::Number(number, _) => number,
            Value::Boolean(flag) => flag.to_string(),
            other => return Err(QueryError::unsupported(format!("option {key} = {other}"), "write name = 'value'")),
        },
        Expr::Identifier(word) => word.value,
        other => return Err(QueryError::unsupported(format!("option {key} = {other}"), "write name = 'value'")),
    };
    Ok((normalize(&key), text))
}
