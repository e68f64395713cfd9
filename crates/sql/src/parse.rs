//! Parses SQL text into statements: calls DataFusion's parser, parses the statements that this parser does not support,
//! and converts syntax trees.

mod attach;
mod backup;
mod column_lists;
mod columns;
mod comment;
mod constraints;
mod copy;
mod ddl;
mod frame_exclusion;
mod from_first;
mod functions;
mod identity_order;
mod indexes;
mod inserted_values;
mod like;
mod maintenance;
mod pivot_statements;
mod prepare;
mod schemas;
mod sequences;
mod settings;
mod summarize;
mod table_query;
mod timeout;
mod transaction;
mod unsupported;
mod views;

use std::sync::Arc;

use datafusion_common::format::ExplainStatementOptions;
use datafusion_sql::parser::{DFParserBuilder, ExplainStatement, Statement as PlannerStatement};
use datafusion_sql::planner::object_name_to_table_reference;
use datafusion_sql::sqlparser::ast::{
    CreateTableOptions, DescribeAlias, ObjectType, ShowStatementOptions, Statement as Ast,
};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::attachment::Attachment;
use crate::desugar::{desugar, mark_asof_joins};
use crate::dialect::Grammar;
use crate::error::{ObjectKind, Result, SqlError};
use crate::functions::FunctionDefinition;
use crate::identifiers::{normalize, relation_reference, single_name};
use crate::limits::{RECURSION_MAX, chain, is_long, subqueries};
use crate::mutation::{
    ModifyingWith, Mutation, check_nested_with, mark_insert_modifiers, replace_conflict_targets, replace_do_nothing,
};
use crate::names::Names;
use crate::open_pivots;
use crate::parameters::{Parameters, literal, number_question_marks};
use crate::statement::Statement;
use crate::tokens::contains;

use self::column_lists::add_types;
use self::frame_exclusion::move_frame_exclusion;
use self::from_first::add_select_lists;
use self::identity_order::order_identity_options;
use self::inserted_values::unwrap_values;
use self::pivot_statements::replace_pivots;
use self::table_query::replace_table_queries;

pub use self::copy::{FileFormat, OPTIONS_ALLOWED, check_csv_characters, is_separated_by_tabs};
pub use self::timeout::format_timeout;

/// Parses the statements of a text, separated by semicolons.
///
/// # Errors
/// If a statement is invalid or not supported. The first such statement determines the error.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let sql = &*number_question_marks(sql);
    chain::check(sql)?;
    let mut parser = DFParserBuilder::new(sql).with_dialect(&Grammar).with_recursion_limit(RECURSION_MAX).build()?;
    let tokens = replace_conflict_targets(sql, replace_do_nothing(sql));
    let tokens = mark_insert_modifiers(sql, order_identity_options(sql, tokens));
    let tokens = mark_asof_joins(sql, move_frame_exclusion(sql, tokens));
    let tokens = add_types(sql, add_select_lists(sql, replace_pivots(sql, tokens)?));
    let tokens = unwrap_values(sql, tokens);
    if let Some(tokens) = replace_table_queries(sql, tokens) {
        parser.parser = parser.parser.with_tokens_with_locations(tokens);
    }
    let mut statements = Vec::new();
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {}
        if parser.parser.peek_token().token == Token::EOF {
            return Ok(statements);
        }
        if let Some(statement) = parse_extension(&mut parser.parser)? {
            check_end(&parser.parser)?;
            statements.push(statement);
            continue;
        }
        let start = parser.parser.index();
        // DataFusion's own COPY parser supports neither FROM nor options in parentheses.
        let is_copy = matches!(parser.parser.peek_token().token, Token::Word(word) if word.keyword == Keyword::COPY);
        let mut parsed = if is_copy {
            PlannerStatement::Statement(Box::new(parser.parser.parse_statement()?))
        } else if let Some(abort) = transaction::parse_abort(&mut parser.parser)? {
            PlannerStatement::Statement(Box::new(abort))
        } else {
            parser.parse_statement()?
        };
        ddl::parse_with_data(&mut parser.parser, &mut parsed);
        subqueries::check(&parsed)?;
        desugar(&mut parsed)?;
        check_end(&parser.parser)?;
        let tokens = || (start..parser.parser.index()).map(|index| parser.parser.token_at(index));
        check_identifiers(tokens())?;
        if contains(sql, "pivot") && open_pivots::has_open_pivot(&parsed) {
            open_pivots::check(&parsed)?;
            statements.push(Statement::OpenPivot { statement: Arc::new(parsed) });
            continue;
        }
        let names = Names::of_statement(&parsed, tokens().map(|token| &token.token)).map(Arc::new);
        statements.push(to_statement(parsed, names, is_long(sql))?);
    }
}

/// Converts the syntax tree of a [`Statement::OpenPivot`] after the values of each `PIVOT` have been listed in it.
///
/// # Errors
/// If the statement is not supported.
pub fn with_pivots(mut statement: PlannerStatement) -> Result<Statement> {
    desugar(&mut statement)?;
    to_statement(statement, None, true)
}

/// Parses the part of `CREATE FUNCTION` after the name of the function.
///
/// # Errors
/// If the text is not such a part.
pub(crate) fn parse_function(sql: &str) -> Result<FunctionDefinition> {
    let mut parser = Parser::new(&Grammar).with_recursion_limit(RECURSION_MAX).try_with_sql(sql)?;
    functions::definition(&mut parser)
}

/// Parses a statement that DataFusion's parser does not support at all, or not in PostgreSQL's dialect. Returns `None`
/// for other statements and consumes none of their tokens.
fn parse_extension(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let parsers = [
        unsupported::unsupported,
        like::like,
        attach::attach,
        backup::backup,
        maintenance::maintenance,
        schemas::schemas,
        sequences::sequences,
        functions::functions,
        views::views,
        indexes::indexes,
        settings::settings,
        summarize::summarize,
    ];
    for parse in parsers {
        if let Some(statement) = parse(parser)? {
            return Ok(Some(statement));
        }
    }
    Ok(None)
}

/// Consumes the next token if it is this unquoted word, in any case. Returns whether it did. The word need not be a
/// keyword of the parser.
fn consume_word(parser: &mut Parser<'_>, expected: &str) -> bool {
    let is_expected = matches!(
        &parser.peek_token_ref().token,
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected)
    );
    if is_expected {
        parser.next_token();
    }
    is_expected
}

/// Returns an error unless the next token is a semicolon or the end of the text.
fn check_end(parser: &Parser<'_>) -> Result<()> {
    let next = parser.peek_token();
    if matches!(next.token, Token::EOF | Token::SemiColon) {
        return Ok(());
    }
    let (line, column) = (next.span.start.line, next.span.start.column);
    Err(SqlError::Syntax {
        message: format!("syntax error at or near \"{next}\""),
        expected: Some("end of statement".to_owned()),
        position: Some((line, column)),
    })
}

/// Returns an error if a quoted identifier is empty (`""`).
fn check_identifiers<'a>(mut tokens: impl Iterator<Item = &'a TokenWithSpan>) -> Result<()> {
    let is_empty = |token: &&TokenWithSpan| matches!(&token.token, Token::Word(word) if word.quote_style.is_some() && word.value.is_empty());
    match tokens.find(is_empty) {
        Some(TokenWithSpan { span, .. }) => Err(SqlError::Syntax {
            message: "zero-length delimited identifier at or near \"\"\"\"".to_owned(),
            expected: None,
            position: Some((span.start.line, span.start.column)),
        }),
        None => Ok(()),
    }
}

fn to_statement(statement: PlannerStatement, names: Option<Arc<Names>>, is_long: bool) -> Result<Statement> {
    check_nested_with(&statement)?;
    let statement = match statement {
        PlannerStatement::Statement(ast) if let Some(with) = ModifyingWith::from_ast(&ast)? => {
            return Ok(Statement::ModifyingWith { statement: Arc::new(with), explain: None, names });
        }
        PlannerStatement::Statement(ast) if Mutation::is_mutation(&ast) => return mutation(*ast, None, names, is_long),
        PlannerStatement::Statement(ast) if prepare::is_mutation(&ast) => {
            let (name, ast) = prepare::split(*ast)?;
            let prepared = match ModifyingWith::from_ast(&ast)? {
                Some(with) => Statement::ModifyingWith { statement: Arc::new(with), explain: None, names },
                None => mutation(ast, None, names, is_long)?,
            };
            return Ok(Statement::Prepare { name, mutation: Box::new(prepared) });
        }
        PlannerStatement::Explain(ExplainStatement { options, statement }) => match *statement {
            PlannerStatement::Statement(ast) if let Some(with) = ModifyingWith::from_ast(&ast)? => {
                if options.analyze {
                    return Err(SqlError::unsupported(
                        "EXPLAIN ANALYZE of a statement that changes rows in WITH",
                        "EXPLAIN is",
                    ));
                }
                return Ok(Statement::ModifyingWith { statement: Arc::new(with), explain: Some(options), names });
            }
            PlannerStatement::Statement(ast) if Mutation::is_mutation(&ast) => {
                return mutation(*ast, Some(options), names, is_long);
            }
            PlannerStatement::Statement(ref ast)
                if let Ast::Execute { name: Some(name), parameters, .. } = ast.as_ref() =>
            {
                let Some(values) = parameters.iter().map(literal).collect() else {
                    return Err(SqlError::unsupported(
                        "EXPLAIN EXECUTE with what has to be computed",
                        "numbers, texts, true, false and NULL are, as in EXPLAIN EXECUTE name(1.5, '2026-01-31')",
                    ));
                };
                let values = Parameters::Positional(values);
                return Ok(Statement::ExplainExecute { name: single_name(name)?, values, options });
            }
            other => PlannerStatement::Explain(ExplainStatement { options, statement: Box::new(other) }),
        },
        other => other,
    };
    let engine = |statement| {
        Ok(Statement::Planned { statement: Arc::new(statement), names, is_long, plan: Attachment::default() })
    };
    let ast = match statement {
        PlannerStatement::Statement(ast) => *ast,
        PlannerStatement::CreateExternalTable(_) => {
            return Err(SqlError::unsupported(
                "CREATE EXTERNAL TABLE",
                "files can be queried directly (SELECT ... FROM 'file.parquet') and loaded \
                 (COPY t FROM 'file.parquet')",
            ));
        }
        other => return engine(other),
    };
    match ast {
        Ast::Query(query) if !query.locks.is_empty() => {
            let feature = format!("SELECT ... {}", query.locks[0]);
            Err(SqlError::unsupported(feature, "UPDATE locks rows; SERIALIZABLE detects conflicts"))
        }
        Ast::Query(query) if ddl::is_select_into(&query) => ddl::select_into(query),
        Ast::CreateTable(create) => ddl::create_table(create),
        Ast::Deallocate { name, .. } if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") => {
            Ok(Statement::DeallocateAll)
        }
        Ast::Drop { object_type, if_exists, names, cascade, restrict: _, purge, temporary, table }
            if matches!(
                object_type,
                ObjectType::Table | ObjectType::View | ObjectType::Index | ObjectType::Sequence
            ) =>
        {
            if table.is_some() || purge || temporary {
                return Err(SqlError::unsupported(
                    format!("DROP {object_type} with ON, PURGE or TEMPORARY"),
                    format!("DROP {object_type} name is"),
                ));
            }
            let kind = match object_type {
                ObjectType::Table => ObjectKind::Table,
                ObjectType::View => ObjectKind::View,
                ObjectType::Sequence => ObjectKind::Sequence,
                _ => ObjectKind::Index,
            };
            ddl::drop_statement(kind, names, if_exists, cascade)
        }
        Ast::AlterTable(alter) => ddl::alter_table(alter),
        Ast::Copy { source, to, target, options, legacy_options, .. } => {
            if let Some(option) = legacy_options.first() {
                return Err(SqlError::unsupported(
                    format!("COPY option {option} without parentheses"),
                    "write options in parentheses, such as (FORMAT csv, HEADER, DELIMITER ';')",
                ));
            }
            copy::copy(source, to, target, &options)
        }
        Ast::CreateView(view) => {
            if view.materialized {
                return Err(SqlError::unsupported("a materialized view", "plain views are"));
            }
            if view.options != CreateTableOptions::None {
                return Err(SqlError::unsupported("WITH (...) of a view", "CREATE VIEW name AS query is"));
            }
            Ok(Statement::CreateView {
                name: relation_reference(&view.name)?,
                temporary: view.temporary,
                or_replace: view.or_replace,
                columns: view.columns.iter().map(|column| normalize(&column.name)).collect(),
                sql: view.query.to_string(),
            })
        }
        Ast::Explain { describe_alias: DescribeAlias::Describe | DescribeAlias::Desc, statement, .. }
            if matches!(*statement, Ast::Query(_)) =>
        {
            Ok(Statement::DescribeQuery { query: Arc::new(PlannerStatement::Statement(statement)) })
        }
        Ast::ShowCreate { obj_type, .. } => Err(SqlError::unsupported(
            format!("SHOW CREATE {obj_type}"),
            "DESCRIBE t shows the columns of a table, taut.tables its options, and information_schema.views the query of a view",
        )),
        Ast::ExplainTable { table_name, .. } => {
            Ok(Statement::Describe { name: object_name_to_table_reference(table_name, true)? })
        }
        Ast::ShowTables {
            terse: false,
            history: false,
            extended: false,
            full: false,
            external: false,
            show_options,
        } if is_plain(&show_options) => Ok(Statement::ShowTables),
        show @ Ast::ShowTables { .. } => Err(SqlError::unsupported(
            show.to_string(),
            "SHOW TABLES is; information_schema.tables can be queried with conditions",
        )),
        Ast::ShowDatabases { terse: false, history: false, show_options } if is_plain(&show_options) => {
            Ok(Statement::ShowDatabases)
        }
        Ast::Truncate(truncate) => ddl::truncate(truncate),
        Ast::Comment { if_exists: true, .. } => {
            Err(SqlError::unsupported("COMMENT IF EXISTS", "COMMENT ON TABLE t IS 'text' is"))
        }
        Ast::Comment { object_type, object_name, comment: text, .. } => {
            comment::comment(object_type, object_name, text)
        }
        ast if transaction::is_transaction(&ast) => transaction::transaction(ast),
        Ast::CreateIndex(create) => ddl::create_index(create),
        Ast::Execute { name: Some(ref name), ref parameters, immediate: false, ref into, ref using, .. }
            if into.is_empty() && using.is_empty() =>
        {
            match (single_name(name), parameters.iter().map(literal).collect()) {
                (Ok(name), Some(values)) => {
                    let values = Parameters::Positional(values);
                    let statement = Arc::new(PlannerStatement::Statement(Box::new(ast)));
                    Ok(Statement::Execute { name, values, statement })
                }
                _ => engine(PlannerStatement::Statement(Box::new(ast))),
            }
        }
        other => engine(PlannerStatement::Statement(Box::new(other))),
    }
}

fn mutation(
    ast: Ast,
    explain: Option<ExplainStatementOptions>,
    names: Option<Arc<Names>>,
    is_long: bool,
) -> Result<Statement> {
    Ok(Statement::Mutation {
        mutation: Arc::new(Mutation::from_ast(ast)?),
        explain,
        names,
        is_long,
        plan: Attachment::default(),
    })
}

/// Whether a `SHOW TABLES` has no clauses, such as `LIKE 'a%'`.
fn is_plain(options: &ShowStatementOptions) -> bool {
    let ShowStatementOptions { show_in, starts_with, limit, limit_from, filter_position } = options;
    show_in.is_none() && starts_with.is_none() && limit.is_none() && limit_from.is_none() && filter_position.is_none()
}

#[cfg(test)]
mod tests {
    use datafusion_common::TableReference;
    use taut_types::IndexKind;

    use super::*;
    use crate::index_part::IndexPart;
    use crate::statement::{NewIndex, TableSource};

    fn one(sql: &str) -> Statement {
        parse(sql).unwrap().pop().unwrap()
    }

    #[test]
    fn storage_statements_keep_their_options() {
        let Statement::CreateTable { name, options, source: TableSource::Columns { columns, .. }, .. } =
            one("create table \"T t\" (a int not null, b varchar) \
             with (layout = row, sort_by = 'a, b desc', block_size=131072);")
        else {
            panic!("no CREATE TABLE")
        };
        assert_eq!((name.table(), columns.len(), columns[0].nullable), ("T t", 2, false));
        let expected = [("layout", "row"), ("sort_by", "a, b desc"), ("block_size", "131072")];
        assert!(options.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert!(matches!(
            one("CREATE TABLE t WITH (layout='column') AS SELECT 1 AS a"),
            Statement::CreateTable { source: TableSource::Query { .. }, .. }
        ));
        let index = |name: Option<&str>, kind, columns: &[&str]| {
            let parts = columns.iter().map(|column| IndexPart::Column((*column).to_owned())).collect();
            let (name, table) = (name.map(str::to_owned), TableReference::bare("t"));
            NewIndex { name, table, kind, parts, predicate: None, is_unique: false, if_not_exists: false }
        };
        for (sql, expected) in [
            ("create index I on T using CSB (a, \"B\")", index(Some("i"), IndexKind::CsbTree, &["a", "B"])),
            ("create index on t (a)", index(None, IndexKind::CsbTree, &["a"])),
            ("create index on t (a desc, b, c nulls first)", index(None, IndexKind::CsbTree, &["a", "b", "c"])),
            ("create unique index on t (a)", NewIndex { is_unique: true, ..index(None, IndexKind::CsbTree, &["a"]) }),
            (
                "create index i on public.t using bloom (a)",
                NewIndex {
                    table: TableReference::partial("public", "t"),
                    ..index(Some("i"), IndexKind::Bloom, &["a"])
                },
            ),
        ] {
            assert!(matches!(one(sql), Statement::CreateIndex(found) if found == expected), "{sql}");
        }
        let Statement::CreateIndex(NewIndex { parts, predicate, .. }) =
            one("create index on t (Lower(a), (\"B\"), (a + b), (c::text)) where d > 1")
        else {
            panic!("no CREATE INDEX")
        };
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(parts, ["Lower(a)", "B", "a + b", "c::TEXT"]);
        assert_eq!(predicate.map(|predicate| predicate.to_string()).as_deref(), Some("d > 1"));
        assert!(matches!(
            one("drop index if exists i, j"),
            Statement::Drop { kind: ObjectKind::Index, if_exists: true, .. }
        ));
        assert!(matches!(one("ALTER TABLE public.t SET (layout = 'row')"), Statement::AlterTable { .. }));
        assert!(matches!(
            one("copy t(a, b) from 'x.csv' (format csv, header, delimiter ';')"),
            Statement::CopyFrom { columns, options, .. } if columns.len() == 2 && options.len() == 3
        ));
        assert!(matches!(one("copy (select 1) to 'x.parquet'"), Statement::Planned { .. }));
        assert!(matches!(one("SELECT * FROM 'x.parquet'"), Statement::Planned { .. }));
        assert_eq!(parse("select 1;; select 2; -- end\n").unwrap().len(), 2);
    }

    #[test]
    fn errors_have_a_position_and_what_is_allowed() {
        let cases = [
            ("select (1\nfrom x", "syntax error at or near \"from\"; expected: )."),
            ("select (1", "syntax error at end of input; expected: )."),
            ("select 'a", "unterminated quoted string"),
            ("selec 1", "syntax error at or near \"selec\"; expected: an SQL statement."),
            ("select 1 2 3", "end of statement"),
            ("prepare p (int, int) as update t set a = $1", "2 types for 1"),
            ("truncate t cascade", "TRUNCATE ... CASCADE"),
            ("truncate taut.t", "read-only"),
            ("begin deferred", "end of statement"),
            ("commit and chain", "COMMIT AND CHAIN"),
            ("rollback and chain", "ROLLBACK AND CHAIN"),
            ("begin read only, read write", "READ WRITE"),
            ("set transaction snapshot 'a'", "SNAPSHOT"),
            ("create table t (a int, unique nulls not distinct (a))", "NULLS NOT DISTINCT"),
            ("create table t (a int primary key deferrable)", "DEFERRABLE"),
            ("create table t (a int references u on update cascade)", "ON UPDATE CASCADE"),
            ("create table t (a int default 1 generated always as (1) stored)", "both default and generation"),
            ("create table t (a int, b int generated always as (a) virtual)", "expected: STORED"),
            ("show tables like 'a%'", "SHOW TABLES is"),
            ("comment on index i is 'x'", "COMMENT ON TABLE, VIEW"),
            ("comment on column c is 'x'", "must be qualified"),
            ("create sequence s increment 1 increment by 2", "redundant options"),
            ("create sequence s as text", "must be smallint"),
            ("create sequence s start 1.5", "invalid value 1.5"),
            ("create sequence s no start 1", "NO MINVALUE"),
            ("create sequence s owned by t", "OWNED BY table.column"),
            ("create sequence s restart", "no RESTART"),
            ("alter table t add constraint c check (a > 0) not valid", "NOT VALID"),
            ("create table t (a json)", "json"),
            ("create unique index i on t using bloom (a)", "unique index using bloom"),
            ("create index i on t using gin (a)", "USING csb"),
            ("drop index i on t", "DROP INDEX name"),
            ("create index i on t (a + b)", "a + b in an index needs parentheses"),
            ("create index i on t (a collate \"C\")", "COLLATE"),
            ("create index i on t (a) include (b)", "INCLUDE"),
            ("alter table t enable row level security", "SET (name = 'value'"),
            ("copy t from stdin", "name of a file"),
            ("create table taut.t (a int)", "read-only"),
            ("create schema pg_x", "unacceptable schema name"),
            ("create schema taut", "unacceptable schema name"),
            ("create schema s authorization a", "AUTHORIZATION"),
            ("alter schema s owner to a", "RENAME TO"),
            ("alter table t rename to s.u", "improper qualified name"),
            ("select 1 as \"\"", "zero-length delimited identifier"),
        ];
        for (sql, message) in cases {
            let error = parse(sql).unwrap_err();
            let error = format!("{error}; {}", error.detail().unwrap_or_default());
            assert!(error.to_lowercase().contains(&message.to_lowercase()), "{sql}: {error}");
        }
        assert_eq!(parse("select (1\nfrom x").unwrap_err().position(), Some((2, 1)));
        assert_eq!(parse("selec 1").unwrap_err().position(), Some((1, 1)));
    }
}
