//! From text to statements: PostgreSQL grammar in front, DataFusion's parser behind.
//!
//! What changes or describes storage is taken here, as data; the rest (queries, `EXPLAIN`, `SET`, `SHOW`) is
//! handed on as it was parsed.

mod chain;
mod names;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, DFParserBuilder, Statement as EngineStatement};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    AlterTableOperation, CastKind, CopyOption, CopySource, CopyTarget, CreateIndex, CreateTable, CreateTableOptions,
    DataType, Expr, Ident, IndexColumn, IndexType, ObjectName, ObjectType, OrderByExpr, OrderByOptions, Query,
    SqlOption, Statement as Ast, UnaryOperator, Value, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use taut_types::{Column, IndexKind};

use crate::columns::columns_of;
use crate::error::{QueryError, Result};
use crate::kept::Slot;
use crate::parameters::{self, Parameters};

pub use chain::is_long;
pub use names::Names;

/// One statement, ready to run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Statement {
    /// `CREATE TABLE`.
    CreateTable {
        /// The table.
        name: String,
        /// Whether an existing table is left alone.
        if_not_exists: bool,
        /// Where the columns come from.
        source: TableSource,
        /// Options of the design, in order.
        options: Vec<(String, String)>,
        /// What the user should know.
        notices: Vec<String>,
    },
    /// `CREATE INDEX`.
    CreateIndex(NewIndex),
    /// `DROP TABLE`, `DROP VIEW` or `DROP INDEX`.
    Drop {
        /// `table`, `view` or `index`.
        kind: &'static str,
        /// What to drop, all or nothing.
        names: Vec<String>,
        /// Whether missing names are no error.
        if_exists: bool,
    },
    /// `ALTER TABLE ... SET (...)`.
    AlterTable {
        /// The table.
        name: String,
        /// Options of the design to change.
        options: Vec<(String, String)>,
    },
    /// `COPY ... FROM 'file'`.
    CopyFrom {
        /// The table.
        name: String,
        /// Columns that the file holds, in its order; empty for all.
        columns: Vec<String>,
        /// The file.
        file: String,
        /// Options such as `format`, `header`, `delimiter`.
        options: Vec<(String, String)>,
    },
    /// `CREATE VIEW`.
    CreateView {
        /// The view.
        name: String,
        /// Whether an existing view is replaced.
        or_replace: bool,
        /// Names of its columns; empty for those of the query.
        columns: Vec<String>,
        /// The query, as text.
        sql: String,
    },
    /// `DESCRIBE t`.
    Describe {
        /// The table.
        name: TableReference,
    },
    /// `SHOW TABLES`.
    ShowTables,
    /// Anything that DataFusion plans by itself.
    Engine {
        /// As it was parsed.
        statement: Arc<EngineStatement>,
        /// The columns that a query can mean; `None` for all.
        names: Option<Arc<Names>>,
        /// Whether it comes from a long text, see [`is_long`].
        is_long: bool,
        /// Where its plan is kept.
        plan: Slot,
    },
    /// `EXECUTE` with literals.
    Execute {
        /// The prepared statement.
        name: String,
        /// The literals.
        values: Parameters,
        /// As it was parsed.
        statement: Arc<EngineStatement>,
    },
}

/// Whether a statement does nothing but give rows.
pub(crate) fn is_query(statement: &EngineStatement) -> bool {
    matches!(statement, EngineStatement::Statement(ast) if matches!(ast.as_ref(), Ast::Query(_)))
}

/// An index to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    /// Its name; one is made up where it is left out.
    pub name: Option<String>,
    /// The table.
    pub table: String,
    /// The structure.
    pub kind: IndexKind,
    /// The columns.
    pub columns: Vec<String>,
    /// Whether an existing index is left alone.
    pub if_not_exists: bool,
}

/// Where the columns of a new table come from.
#[derive(Clone, Debug)]
pub enum TableSource {
    /// They are declared.
    Columns(Vec<Column>),
    /// They are those of a query, whose rows fill the table.
    Query(Box<Query>),
}

/// The statements of a text, separated by semicolons.
///
/// # Errors
/// At the first that is no statement or is not supported; nothing is returned then.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let engine_error = |error: datafusion::error::DataFusionError| match error {
        datafusion::error::DataFusionError::SQL(error, _) => QueryError::from(*error),
        other => QueryError::Engine(other),
    };
    let sql = &*crate::parameters::numbered(sql);
    chain::check(sql)?;
    let dialect = PostgreSqlDialect {};
    let mut parser = DFParserBuilder::new(sql).with_dialect(&dialect).build().map_err(engine_error)?;
    let mut statements = Vec::new();
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {}
        if parser.parser.peek_token().token == Token::EOF {
            return Ok(statements);
        }
        let start = parser.parser.index();
        // DataFusion's COPY knows neither FROM nor options in parentheses.
        let is_copy = matches!(parser.parser.peek_token().token, Token::Word(word) if word.keyword == Keyword::COPY);
        let parsed = if is_copy {
            EngineStatement::Statement(Box::new(parser.parser.parse_statement()?))
        } else {
            parser.parse_statement().map_err(engine_error)?
        };
        let mut parsed = parsed;
        floating_literals(&mut parsed);
        let next = parser.parser.peek_token();
        if !matches!(next.token, Token::EOF | Token::SemiColon) {
            let start = next.span.start;
            return Err(QueryError::Syntax {
                message: format!(
                    "Expected: end of statement, found: {next} at Line: {}, Column: {}",
                    start.line, start.column
                ),
                position: Some((start.line, start.column)),
            });
        }
        let tokens = (start..parser.parser.index()).map(|at| &parser.parser.token_at(at).token);
        let names = Names::of(&parsed, tokens).map(Arc::new);
        statements.push(classify(parsed, names, is_long(sql))?);
    }
}

/// Reads a number with an exponent, such as `1e300`, as double precision: as a decimal it may not fit 38 digits. Numbers
/// without one stay exact.
fn floating_literals(statement: &mut EngineStatement) {
    match statement {
        EngineStatement::Statement(ast) => {
            let _: ControlFlow<()> = visit_expressions_mut(ast.as_mut(), |expression| {
                if let Expr::Value(value) = expression
                    && let Value::Number(number, _) = &value.value
                    && number.contains(['e', 'E'])
                {
                    value.value = Value::SingleQuotedString(number.clone());
                    *expression = Expr::Cast {
                        kind: CastKind::Cast,
                        expr: Box::new(expression.clone()),
                        data_type: DataType::DoublePrecision,
                        array: false,
                        format: None,
                    };
                }
                ControlFlow::Continue(())
            });
        }
        EngineStatement::Explain(explain) => floating_literals(&mut explain.statement),
        _ => {}
    }
}

fn classify(statement: EngineStatement, names: Option<Arc<Names>>, is_long: bool) -> Result<Statement> {
    let engine =
        |statement| Ok(Statement::Engine { statement: Arc::new(statement), names, is_long, plan: Slot::default() });
    let ast = match statement {
        EngineStatement::Statement(ast) => *ast,
        EngineStatement::CreateExternalTable(_) => {
            return Err(QueryError::unsupported(
                "CREATE EXTERNAL TABLE",
                "files can be queried directly (SELECT ... FROM 'file.parquet') and loaded (COPY t FROM 'file.parquet')",
            ));
        }
        other => return engine(other),
    };
    match ast {
        Ast::CreateTable(create) => create_table(create),
        Ast::Drop { object_type: ObjectType::Table, if_exists, names, .. } => drop_statement("table", names, if_exists),
        Ast::Drop { object_type: ObjectType::View, if_exists, names, .. } => drop_statement("view", names, if_exists),
        Ast::Drop { object_type: ObjectType::Index, if_exists, names, table, purge, temporary, .. } => {
            if table.is_some() || purge || temporary {
                return Err(QueryError::unsupported("DROP INDEX with ON, PURGE or TEMPORARY", "DROP INDEX name is"));
            }
            drop_statement("index", names, if_exists)
        }
        Ast::AlterTable(alter) => alter_table(alter.name, alter.operations),
        Ast::Copy { source, to, target, options, legacy_options, .. } => {
            if let Some(option) = legacy_options.first() {
                return Err(QueryError::unsupported(
                    format!("COPY option {option} without parentheses"),
                    "write options in parentheses, such as (FORMAT csv, HEADER, DELIMITER ';')",
                ));
            }
            copy(source, to, target, &options)
        }
        Ast::CreateView(view) => {
            if view.materialized || view.temporary {
                return Err(QueryError::unsupported("a materialized or temporary view", "plain views are"));
            }
            Ok(Statement::CreateView {
                name: local_name(&view.name)?,
                or_replace: view.or_replace,
                columns: view.columns.iter().map(|column| normalize(&column.name)).collect(),
                sql: view.query.to_string(),
            })
        }
        Ast::ExplainTable { table_name, .. } => {
            Ok(Statement::Describe { name: object_name_to_table_reference(table_name, true)? })
        }
        Ast::ShowTables { .. } => Ok(Statement::ShowTables),
        Ast::Update { .. } => Err(comes_with_transactions("UPDATE")),
        Ast::Delete(_) => Err(comes_with_transactions("DELETE")),
        Ast::Merge { .. } => Err(comes_with_transactions("MERGE")),
        Ast::Truncate(_) => Err(comes_with_transactions("TRUNCATE")),
        Ast::StartTransaction { .. } => Err(comes_with_transactions("BEGIN")),
        Ast::Commit { .. } => Err(comes_with_transactions("COMMIT")),
        Ast::Rollback { .. } => Err(comes_with_transactions("ROLLBACK")),
        Ast::Savepoint { .. } => Err(comes_with_transactions("SAVEPOINT")),
        Ast::CreateIndex(create) => create_index(create),
        Ast::Execute { name: Some(ref name), ref parameters, immediate: false, ref into, ref using, .. }
            if into.is_empty() && using.is_empty() =>
        {
            match (local_name(name), parameters.iter().map(literal).collect()) {
                (Ok(name), Some(values)) => {
                    let values = Parameters::Positional(values);
                    let statement = Arc::new(EngineStatement::Statement(Box::new(ast)));
                    Ok(Statement::Execute { name, values, statement })
                }
                _ => engine(EngineStatement::Statement(Box::new(ast))),
            }
        }
        other => engine(EngineStatement::Statement(Box::new(other))),
    }
}

/// The value of a literal, where it is a plain one.
fn literal(expression: &Expr) -> Option<parameters::Value> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => Some(parameters::Value::Integer(number.parse().ok()?)),
            Value::SingleQuotedString(text) => Some(parameters::Value::Text(text.clone())),
            Value::Boolean(value) => Some(parameters::Value::Boolean(*value)),
            Value::Null => Some(parameters::Value::Null),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr)? {
            parameters::Value::Integer(number) => Some(parameters::Value::Integer(-number)),
            _ => None,
        },
        _ => None,
    }
}

fn comes_with_transactions(what: &str) -> QueryError {
    QueryError::unsupported(
        what,
        "it comes with transactions; until then every statement commits by itself, and tables change by INSERT, \
         COPY, CREATE TABLE AS and DROP TABLE",
    )
}

fn create_table(create: CreateTable) -> Result<Statement> {
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
    if let Some(constraint) = create.constraints.first() {
        return Err(QueryError::unsupported(
            format!("table constraint {constraint}"),
            "constraints other than NOT NULL come with transactions",
        ));
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
        (None, _) => TableSource::Columns(columns_of(&create.columns, &mut notices)?),
    };
    let name = local_name(&create.name)?;
    Ok(Statement::CreateTable { name, if_not_exists: create.if_not_exists, source, options, notices })
}

fn create_index(create: CreateIndex) -> Result<Statement> {
    let allowed = "CREATE INDEX name ON t USING csb (a, b) and CREATE INDEX name ON t USING bloom (a) are";
    let unsupported = [
        (create.unique, "a unique index, which comes with transactions,"),
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
        // Trees in blocks serve where others have B-trees.
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

fn drop_statement(kind: &'static str, names: Vec<ObjectName>, if_exists: bool) -> Result<Statement> {
    let names = names.iter().map(local_name).collect::<Result<_>>()?;
    Ok(Statement::Drop { kind, names, if_exists })
}

fn alter_table(name: ObjectName, operations: Vec<AlterTableOperation>) -> Result<Statement> {
    let mut options = Vec::new();
    for operation in operations {
        match operation {
            AlterTableOperation::SetOptionsParens { options: given } => {
                for option in given {
                    options.push(option_pair(option)?);
                }
            }
            other => {
                return Err(QueryError::unsupported(
                    format!("ALTER TABLE ... {other}"),
                    "ALTER TABLE t SET (name = 'value', ...) changes the design of a table",
                ));
            }
        }
    }
    Ok(Statement::AlterTable { name: local_name(&name)?, options })
}

fn copy(source: CopySource, to: bool, target: CopyTarget, options: &[CopyOption]) -> Result<Statement> {
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
            let (stored_as, options) = crate::files::engine_options(&filename, options)?;
            let text = |value: String| Value::SingleQuotedString(value);
            let copy = CopyToStatement {
                source,
                target: filename,
                partitioned_by: Vec::new(),
                stored_as: Some(stored_as),
                options: options.into_iter().map(|(name, value)| (name, text(value))).collect(),
            };
            // The query may be anything.
            let statement = Arc::new(EngineStatement::CopyTo(copy));
            Ok(Statement::Engine { statement, names: None, is_long: true, plan: Slot::default() })
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
        other => Err(QueryError::unsupported(format!("COPY option {other}"), crate::files::OPTIONS_ALLOWED)),
    }
}

/// `name = value` with the value as text: a string, number or bare word.
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

/// An identifier as PostgreSQL reads it: in lower case unless quoted.
pub(crate) fn normalize(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
    }
}

/// The name of a table or view of this database, which may be qualified by its schema, `public`.
fn local_name(name: &ObjectName) -> Result<String> {
    match object_name_to_table_reference(name.clone(), true)? {
        TableReference::Bare { table } => Ok(table.to_string()),
        TableReference::Partial { schema, table } if &*schema == crate::catalog::PUBLIC => Ok(table.to_string()),
        TableReference::Full { catalog, schema, table }
            if &*schema == crate::catalog::PUBLIC && &*catalog == crate::catalog::CATALOG =>
        {
            Ok(table.to_string())
        }
        other => Err(QueryError::unsupported(
            format!("{other} as a table that can be changed"),
            "tables live in schema public; taut and information_schema are read-only",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(sql: &str) -> Statement {
        parse(sql).unwrap().pop().unwrap()
    }

    #[test]
    fn storage_statements_are_taken_with_their_options() {
        let Statement::CreateTable { name, options, source: TableSource::Columns(columns), .. } = one(
            "create table \"T t\" (a int not null, b varchar) with (layout = row, sort_by = 'a, b desc', block_size=131072);",
        ) else {
            panic!("no CREATE TABLE")
        };
        assert_eq!((name.as_str(), columns.len(), columns[0].nullable), ("T t", 2, false));
        let expected = [("layout", "row"), ("sort_by", "a, b desc"), ("block_size", "131072")];
        assert!(options.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert!(matches!(
            one("CREATE TABLE t WITH (layout='column') AS SELECT 1 AS a"),
            Statement::CreateTable { source: TableSource::Query(_), .. }
        ));
        let index = |name: Option<&str>, kind, columns: &[&str]| {
            let columns = columns.iter().map(|column| (*column).to_owned()).collect();
            NewIndex { name: name.map(str::to_owned), table: "t".to_owned(), kind, columns, if_not_exists: false }
        };
        for (sql, expected) in [
            ("create index I on T using CSB (a, \"B\")", index(Some("i"), IndexKind::CsbTree, &["a", "B"])),
            ("create index on t (a)", index(None, IndexKind::CsbTree, &["a"])),
            ("create index i on public.t using bloom (a)", index(Some("i"), IndexKind::Bloom, &["a"])),
        ] {
            assert!(matches!(one(sql), Statement::CreateIndex(found) if found == expected), "{sql}");
        }
        assert!(matches!(one("drop index if exists i, j"), Statement::Drop { kind: "index", if_exists: true, .. }));
        assert!(matches!(one("ALTER TABLE public.t SET (layout = 'row')"), Statement::AlterTable { .. }));
        assert!(matches!(
            one("copy t(a, b) from 'x.csv' (format csv, header, delimiter ';')"),
            Statement::CopyFrom { columns, options, .. } if columns.len() == 2 && options.len() == 3
        ));
        assert!(matches!(one("copy (select 1) to 'x.parquet'"), Statement::Engine { .. }));
        assert!(matches!(one("SELECT * FROM 'x.parquet'"), Statement::Engine { .. }));
        assert_eq!(parse("select 1;; select 2; -- end\n").unwrap().len(), 2);
    }

    #[test]
    fn errors_say_where_and_what_is_allowed() {
        let cases = [
            ("select (1\nfrom x", "Line: 2"),
            ("selec 1", "Line: 1, Column: 1"),
            ("select 1 2 3", "end of statement"),
            ("update t set a = 1", "comes with transactions"),
            ("begin", "comes with transactions"),
            ("delete from t", "comes with transactions"),
            ("create table t (a int primary key)", "come with transactions"),
            ("create table t (a json)", "json"),
            ("create unique index i on t (a)", "comes with transactions"),
            ("create index i on t using gin (a)", "USING csb"),
            ("drop index i on t", "DROP INDEX name"),
            ("create index i on t (lower(a))", "lower(a)"),
            ("create index i on t (a desc)", "a DESC"),
            ("create index i on t (a) where a > 1", "part of the rows"),
            ("alter table t add column b int", "SET (name = 'value'"),
            ("copy t from stdin", "name of a file"),
            ("create table taut.t (a int)", "schema public"),
        ];
        for (sql, message) in cases {
            let error = parse(sql).unwrap_err().to_string();
            assert!(error.to_lowercase().contains(&message.to_lowercase()), "{sql}: {error}");
        }
    }
}
