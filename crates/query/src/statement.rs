//! Parses text into statements: PostgreSQL's grammar, on top of DataFusion's parser.
//!
//! Statements that change or describe storage are parsed here into variants of [`Statement`]. All others (queries,
//! `EXPLAIN`, `SET`, `SHOW`) keep the form that DataFusion's parser returns.

mod attachment;
mod backup;
mod chain;
mod columns;
mod constraints;
mod copy_options;
mod ddl;
mod dialect;
mod forms;
mod listed_values;
mod long_unions;
mod mutation;
mod names;
mod nesting;
mod parameters;
mod prepare;
mod row_values;
mod table_name;
mod timeout;
mod transaction;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::TableReference;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::sql::parser::{DFParserBuilder, ExplainStatement, Statement as EngineStatement};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{Ident, ObjectType, Query, Statement as Ast};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use taut_store::Synchronous;
use taut_store::backup::BackupOptions;
use taut_types::{Column, IndexKind};

use crate::error::{QueryError, Result};

pub use attachment::Attachment;
pub use chain::is_long;
pub use columns::type_name;
pub use constraints::{ConstraintChange, Declared, DeclaredConstraint, DeclaredRule};
pub use copy_options::FileFormat;
pub(crate) use copy_options::{OPTIONS_ALLOWED, is_separated_by_tabs};
pub(crate) use dialect::Grammar;
pub(crate) use listed_values::{inserts_values, lists_values};
pub use mutation::{
    ACTION, Action, Conflict, ConflictTarget, Listed, Mutation, MutationKind, MutationQuery, Outputs, ROW, TARGET,
    TargetColumn, WRITTEN, assignment_function,
};
pub use names::Names;
pub use parameters::{Parameters, Value};
pub(crate) use parameters::{literal, parameter, place_of};
pub(crate) use table_name::local_name;
pub use table_name::{CATALOG, PUBLIC};
pub(crate) use timeout::format_timeout;
pub use transaction::IsolationLevel;
pub(crate) use upkeep::DEFAULT_TRANSACTION_READ_ONLY;

/// One parsed statement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Statement {
    /// `CREATE TABLE`.
    CreateTable {
        /// Name of the table.
        name: String,
        /// Whether an existing table is left alone.
        if_not_exists: bool,
        /// Source of the columns.
        source: TableSource,
        /// Options of the design, in order.
        options: Vec<(String, String)>,
        /// Notices for the user.
        notices: Vec<String>,
    },
    /// `CREATE INDEX`.
    CreateIndex(NewIndex),
    /// `DROP TABLE`, `DROP VIEW` or `DROP INDEX`.
    Drop {
        /// `table`, `view` or `index`.
        kind: &'static str,
        /// Objects to drop, all or none.
        names: Vec<String>,
        /// Whether missing names are ignored.
        if_exists: bool,
    },
    /// `ALTER TABLE ... SET (...)`.
    AlterTable {
        /// Name of the table.
        name: String,
        /// Options of the design to change.
        options: Vec<(String, String)>,
    },
    /// `ALTER TABLE ... ADD CONSTRAINT`, `DROP CONSTRAINT`, `ALTER COLUMN ... SET DEFAULT` and `DROP DEFAULT`.
    AlterConstraints {
        /// Name of the table.
        name: String,
        /// Changes in order, applied all or none.
        changes: Vec<ConstraintChange>,
    },
    /// `COPY ... FROM 'file'`.
    CopyFrom {
        /// Name of the table.
        name: String,
        /// Columns in the file, in its order; empty for all columns of the table.
        columns: Vec<String>,
        /// Path of the file.
        file: String,
        /// Options such as `format`, `header`, `delimiter`.
        options: Vec<(String, String)>,
    },
    /// `CREATE VIEW`.
    CreateView {
        /// Name of the view.
        name: String,
        /// Whether an existing view is replaced.
        or_replace: bool,
        /// Names of the columns; empty for the names of the query's columns.
        columns: Vec<String>,
        /// The query, as text.
        sql: String,
    },
    /// `BACKUP DATABASE TO`.
    Backup {
        /// Path of the backup directory.
        directory: String,
        /// Options of the backup.
        options: BackupOptions,
    },
    /// `BACKUP DATABASE STOP LOG`.
    StopLogRetention,
    /// `CHECKPOINT`.
    Checkpoint,
    /// `VACUUM`, and `ALTER TABLE ... COMPACT`.
    Vacuum {
        /// Whether to compact until each table is as if it had just been loaded. Otherwise only due compactions run.
        full: bool,
        /// Names of the tables; empty for all.
        names: Vec<String>,
    },
    /// `SET temp_directory`; `None` is `DEFAULT`.
    SetTempDirectory(Option<String>),
    /// `SHOW temp_directory`.
    ShowTempDirectory,
    /// `SET statement_timeout`; `None` for no limit.
    SetStatementTimeout(Option<Duration>),
    /// `SHOW statement_timeout`.
    ShowStatementTimeout,
    /// `SET synchronous`.
    SetSynchronous(Synchronous),
    /// `SHOW synchronous`.
    ShowSynchronous,
    /// `SET mover`: whether the mover compacts in the background.
    SetMover(bool),
    /// `SHOW mover`.
    ShowMover,
    /// `SHOW transaction_read_only` or `SHOW default_transaction_read_only`.
    ShowReadOnly {
        /// Name of the setting.
        setting: &'static str,
    },
    /// `DESCRIBE t`.
    Describe {
        /// Name of the table.
        name: TableReference,
    },
    /// `SHOW TABLES`.
    ShowTables,
    /// `UPDATE`, `DELETE`, `MERGE`, and `INSERT` with `ON CONFLICT`, `RETURNING` or `DEFAULT`.
    Mutation {
        /// The change of rows.
        mutation: Arc<Mutation>,
        /// Options of the `EXPLAIN` around the statement, if there is one.
        explain: Option<ExplainStatementOptions>,
        /// Names of the columns that the statement may refer to in tables other than [`TARGET`]; `None` for all.
        names: Option<Arc<Names>>,
        /// Whether the statement has a long text; see [`is_long`].
        is_long: bool,
        /// The cached plan of the statement.
        plan: Attachment,
    },
    /// `PREPARE` of a [`Statement::Mutation`].
    Prepare {
        /// The name of the prepared statement.
        name: String,
        /// The statement. Its parameters have the declared types.
        mutation: Box<Statement>,
    },
    /// `TRUNCATE`.
    Truncate {
        /// Names of the tables.
        names: Vec<String>,
    },
    /// `BEGIN` or `START TRANSACTION`.
    Begin {
        /// Isolation level, if specified.
        isolation: Option<IsolationLevel>,
        /// Whether the transaction is read-only, if specified.
        read_only: Option<bool>,
    },
    /// `COMMIT` or `END`.
    Commit,
    /// `ROLLBACK` or `ABORT`.
    Rollback {
        /// Savepoint to roll back to; `None` for the whole transaction.
        savepoint: Option<String>,
    },
    /// `SAVEPOINT`.
    Savepoint {
        /// Name of the savepoint.
        name: String,
    },
    /// `RELEASE SAVEPOINT`.
    Release {
        /// Name of the savepoint.
        name: String,
    },
    /// `SET TRANSACTION`, or `SET SESSION CHARACTERISTICS AS TRANSACTION`. Specifies at least one of the first two
    /// fields.
    SetTransaction {
        /// Isolation level, if specified.
        isolation: Option<IsolationLevel>,
        /// Whether transactions are read-only, if specified.
        read_only: Option<bool>,
        /// Whether the settings apply to all following transactions of the session, rather than to the current one.
        session: bool,
    },
    /// Any other statement, planned by DataFusion.
    Engine {
        /// The statement as parsed.
        statement: Arc<EngineStatement>,
        /// Column names that the statement may refer to; `None` for all.
        names: Option<Arc<Names>>,
        /// Whether the statement has a long text; see [`is_long`].
        is_long: bool,
        /// The cached plan of the statement.
        plan: Attachment,
    },
    /// `EXECUTE` whose arguments are all literals.
    Execute {
        /// Name of the prepared statement.
        name: String,
        /// The arguments.
        values: Parameters,
        /// The statement as parsed.
        statement: Arc<EngineStatement>,
    },
}

impl Statement {
    /// Whether the statement has a long text, see [`is_long`]. Variants that do not record it return false.
    pub fn is_long(&self) -> bool {
        matches!(self, Self::Engine { is_long: true, .. } | Self::Mutation { is_long: true, .. })
    }
}

/// Whether a statement only returns rows.
pub(crate) fn is_query(statement: &EngineStatement) -> bool {
    matches!(statement, EngineStatement::Statement(ast) if matches!(ast.as_ref(), Ast::Query(_)))
}

/// Whether a statement is an `INSERT`, an `EXPLAIN ANALYZE` of one, or a `PREPARE` of one.
pub(crate) fn is_insert(statement: &EngineStatement) -> bool {
    let ast = match statement {
        EngineStatement::Statement(ast) => ast,
        EngineStatement::Explain(explain) => return explain.options.analyze && is_insert(&explain.statement),
        _ => return false,
    };
    match ast.as_ref() {
        Ast::Insert(_) => true,
        Ast::Prepare { statement, .. } => matches!(statement.as_ref(), Ast::Insert(_)),
        _ => false,
    }
}

/// An index to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    /// Name of the index; `None` to generate one.
    pub name: Option<String>,
    /// Name of the table.
    pub table: String,
    /// Kind of index.
    pub kind: IndexKind,
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// Whether an existing index is left alone.
    pub if_not_exists: bool,
}

/// Source of the columns of a new table.
#[derive(Clone, Debug)]
pub enum TableSource {
    /// Declared columns.
    Columns {
        /// The columns.
        columns: Vec<Column>,
        /// Constraints and defaults of the table.
        declared: Declared,
    },
    /// The columns of a query, whose rows fill the table.
    Query(Box<Query>),
}

/// Parses the statements of a text, separated by semicolons.
///
/// # Errors
/// If a statement is invalid or not supported. Stops at the first one and returns no statements.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let engine_error = |error: datafusion::error::DataFusionError| match error {
        datafusion::error::DataFusionError::SQL(error, _) => QueryError::from(*error),
        other => QueryError::Engine(other),
    };
    let sql = &*parameters::numbered(sql);
    chain::check(sql)?;
    let mut parser = DFParserBuilder::new(sql)
        .with_dialect(&Grammar)
        .with_recursion_limit(nesting::LEVELS_MAX)
        .build()
        .map_err(engine_error)?;
    if let Some(tokens) = mutation::with_nothing(sql) {
        parser.parser = parser.parser.with_tokens_with_locations(tokens);
    }
    let mut statements = Vec::new();
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {}
        if parser.parser.peek_token().token == Token::EOF {
            return Ok(statements);
        }
        let special = match backup::backup(&mut parser.parser)? {
            None => upkeep::upkeep(&mut parser.parser)?,
            backup => backup,
        };
        if let Some(statement) = special {
            check_end(&parser.parser)?;
            statements.push(statement);
            continue;
        }
        let start = parser.parser.index();
        // DataFusion's own COPY parser supports neither FROM nor options in parentheses.
        let is_copy = matches!(parser.parser.peek_token().token, Token::Word(word) if word.keyword == Keyword::COPY);
        let mut parsed = if is_copy {
            EngineStatement::Statement(Box::new(parser.parser.parse_statement()?))
        } else if let Some(abort) = transaction::abort(&mut parser.parser)? {
            EngineStatement::Statement(Box::new(abort))
        } else {
            parser.parse_statement().map_err(engine_error)?
        };
        nesting::check(&parsed)?;
        forms::replace(&mut parsed);
        check_end(&parser.parser)?;
        let tokens = (start..parser.parser.index()).map(|at| &parser.parser.token_at(at).token);
        let names = Names::of(&parsed, tokens).map(Arc::new);
        statements.push(classify(parsed, names, is_long(sql))?);
    }
}

/// Checks that a statement ends here.
fn check_end(parser: &Parser<'_>) -> Result<()> {
    let next = parser.peek_token();
    if matches!(next.token, Token::EOF | Token::SemiColon) {
        return Ok(());
    }
    let (line, column) = (next.span.start.line, next.span.start.column);
    let message = format!("Expected: end of statement, found: {next} at Line: {line}, Column: {column}");
    Err(QueryError::Syntax { message, position: Some((line, column)) })
}

fn classify(statement: EngineStatement, names: Option<Arc<Names>>, is_long: bool) -> Result<Statement> {
    let statement = match statement {
        EngineStatement::Statement(ast) if Mutation::is(&ast) => return mutation(*ast, None, names, is_long),
        EngineStatement::Statement(ast) if prepare::is_mutation(&ast) => {
            let (name, ast) = prepare::mutation(*ast)?;
            let mutation = Box::new(mutation(ast, None, names, is_long)?);
            return Ok(Statement::Prepare { name, mutation });
        }
        EngineStatement::Explain(ExplainStatement { options, statement }) => match *statement {
            EngineStatement::Statement(ast) if Mutation::is(&ast) => {
                return mutation(*ast, Some(options), names, is_long);
            }
            other => EngineStatement::Explain(ExplainStatement { options, statement: Box::new(other) }),
        },
        other => other,
    };
    let engine = |statement| {
        Ok(Statement::Engine { statement: Arc::new(statement), names, is_long, plan: Attachment::default() })
    };
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
        Ast::Query(query) if !query.locks.is_empty() => {
            let what = format!("SELECT ... {}", query.locks[0]);
            Err(QueryError::unsupported(
                what,
                "rows are locked by UPDATE; SERIALIZABLE refuses what has read other rows",
            ))
        }
        Ast::CreateTable(create) => ddl::create_table(create),
        Ast::Drop { object_type: ObjectType::Table, if_exists, names, .. } => {
            ddl::drop_statement("table", names, if_exists)
        }
        Ast::Drop { object_type: ObjectType::View, if_exists, names, .. } => {
            ddl::drop_statement("view", names, if_exists)
        }
        Ast::Drop { object_type: ObjectType::Index, if_exists, names, table, purge, temporary, .. } => {
            if table.is_some() || purge || temporary {
                return Err(QueryError::unsupported("DROP INDEX with ON, PURGE or TEMPORARY", "DROP INDEX name is"));
            }
            ddl::drop_statement("index", names, if_exists)
        }
        Ast::AlterTable(alter) => ddl::alter_table(alter.name, alter.operations),
        Ast::Copy { source, to, target, options, legacy_options, .. } => {
            if let Some(option) = legacy_options.first() {
                return Err(QueryError::unsupported(
                    format!("COPY option {option} without parentheses"),
                    "write options in parentheses, such as (FORMAT csv, HEADER, DELIMITER ';')",
                ));
            }
            ddl::copy(source, to, target, &options)
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
        Ast::Truncate(truncate) => ddl::truncate(truncate),
        ast if transaction::is_transaction(&ast) => transaction::transaction(ast),
        Ast::CreateIndex(create) => ddl::create_index(create),
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

fn mutation(
    ast: Ast,
    explain: Option<ExplainStatementOptions>,
    names: Option<Arc<Names>>,
    is_long: bool,
) -> Result<Statement> {
    Ok(Statement::Mutation {
        mutation: Arc::new(Mutation::of(ast)?),
        explain,
        names,
        is_long,
        plan: Attachment::default(),
    })
}

/// Normalizes an identifier as PostgreSQL does: lower case unless quoted.
pub(crate) fn normalize(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
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
        let Statement::CreateTable { name, options, source: TableSource::Columns { columns, .. }, .. } = one(
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
            ("prepare p (int, int) as update t set a = $1", "2 types for 1"),
            ("truncate t cascade", "TRUNCATE ... CASCADE"),
            ("truncate t restart identity", "RESTART IDENTITY"),
            ("truncate taut.t", "schema public"),
            ("begin deferred", "end of statement"),
            ("commit and chain", "COMMIT AND CHAIN"),
            ("rollback and chain", "ROLLBACK AND CHAIN"),
            ("begin read only, read write", "READ WRITE"),
            ("set transaction snapshot 'a'", "SNAPSHOT"),
            ("create table t (a int, unique nulls not distinct (a))", "NULLS NOT DISTINCT"),
            ("create table t (a int primary key deferrable)", "DEFERRABLE"),
            ("create table t (a int references u on update cascade)", "ON UPDATE CASCADE"),
            ("create table t (a int generated always as identity)", "on column \"a\""),
            ("alter table t add constraint c check (a > 0) not valid", "NOT VALID"),
            ("create table t (a json)", "json"),
            ("create unique index i on t (a)", "unique index"),
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
