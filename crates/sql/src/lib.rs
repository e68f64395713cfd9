//! SQL text to statements: PostgreSQL's grammar, on top of DataFusion's parser.
//!
//! [`parse`] turns a text into [`Statement`]s. A statement that changes or describes storage becomes a variant of its
//! own, with names, columns and options. A change of rows becomes a [`Mutation`]: for a table with given columns, it
//! returns a query that computes the changes. Other statements (queries, `EXPLAIN`, `SET`, `SHOW`) keep the syntax tree
//! of DataFusion's parser, without the syntax that DataFusion's planner does not support.
//!
//! ```text
//! text
//!  │  parameters   `?` becomes `$1`
//!  │  limits       chains of operators and nesting are bounded
//!  │  tokens       syntax that the parser does not support is rewritten, if a change of its tokens is enough
//!  │  parse        DataFusion's parser with our `dialect`, and parsers of statements that it does not support
//!  │  desugar      syntax that the planner does not support is rewritten
//!  │  names        the words of a query are collected: it can read only columns whose names are among them
//!  │  parse        syntax trees of DDL, COPY and transactions become statements
//!  │  mutation     syntax trees that change rows become mutations
//!  ▼
//! Statement
//! ```
//!
//! Whether a name is a column or an alias is known when the statement is planned: see [`order_by_columns`] and
//! [`replace_alias`].
//!
//! The module `syntax` builds nodes of syntax trees; `identifiers` and `types` convert names and types in them.
//!
//! This crate does not plan or run statements, and has no catalog. It uses the parser of DataFusion, not its optimizer
//! or operators, and builds without them. Comments call the part of DataFusion that turns syntax trees into plans the
//! planner.
//!
//! ```
//! use taut_sql::{Statement, parse};
//!
//! let statements = parse("CREATE TABLE t (a int) WITH (layout = 'column'); SELECT a FROM t WHERE a > ?").unwrap();
//! assert!(matches!(&statements[0], Statement::CreateTable { name, .. } if name.table() == "t"));
//! let Statement::Planned { statement, .. } = &statements[1] else { panic!("no query") };
//! assert_eq!(statement.to_string(), "SELECT a FROM t WHERE a > $1");
//!
//! let error = parse("SELECT (a\nFROM t").unwrap_err();
//! assert_eq!((error.sqlstate(), error.position()), ("42601", Some((2, 1))));
//! ```

mod aliases;
mod attachment;
mod column_names;
mod databases;
mod declared;
mod desugar;
mod dialect;
mod error;
mod function_calls;
mod functions;
mod identifiers;
mod index_part;
mod limits;
mod listed_values;
mod mutation;
mod names;
mod open_pivots;
mod order_all;
mod order_names;
mod parameters;
mod parse;
mod relations;
mod repeated_names;
mod replaced_columns;
mod same_names;
mod settings;
mod statement;
mod syntax;
mod tokens;
mod types;
mod with_queries;

pub use aliases::replace_alias;
pub use attachment::Attachment;
pub use column_names::{names_column, rename_column, stored_text, without_table};
pub use databases::{
    executed_statement, insert_target, sequence_function, sequence_function_in, sequence_function_of_query,
    without_database,
};
pub use declared::{
    ColumnChange, ConstraintChange, Declared, DeclaredCondition, DeclaredConstraint, DeclaredSequence, IdentityChange,
    SchemaChange, SequenceOptions,
};
pub use desugar::{FRAME_END, FRAME_START, FrameExclusion, NAMED_CAST, is_rewritten_function};
pub use dialect::parse_expression;
pub use error::{ObjectKind, Result, SqlError};
pub use function_calls::{FunctionKind, RenamedFunction, called_functions, check_clauses, with_renamed_functions};
pub use functions::{FunctionDefinition, FunctionParameter, FunctionResult, Volatility};
pub use identifiers::{
    CATALOG, FOUND_RELATION, INFORMATION_SCHEMA, OBJECT_COMMENTS, OBJECT_DEFINITIONS, OBJECT_NAMES, PG_CATALOG, PUBLIC,
    SYSTEM, SYSTEM_SCHEMAS, UNQUALIFIED, name_of_reference, normalize, relation_reference, single_name,
};
pub use index_part::{IndexPart, is_index_part};
pub use limits::is_long;
pub use listed_values::{inserts_values, lists_values};
pub use mutation::{
    ACTION, Action, CHECK_ROW, Conflict, ConflictTarget, GeneratedAlways, ListedRows, ModifyingWith, Mutation,
    MutationKind, MutationQuery, Outputs, PartStatement, ROW, TARGET, TargetColumn, WRITTEN, WithPart,
    assignment_function, column_count, values_error,
};
pub use names::Names;
pub use open_pivots::{PIVOT_VALUES_MAX, list_pivot_values, pivot_values_query};
pub use order_all::{ALL_COLUMNS, mark_order_by_all};
pub use order_names::order_by_columns;
pub use parameters::{Parameters, Value, literal, parameter, parameter_index};
pub use parse::{
    FileFormat, OPTIONS_ALLOWED, check_csv_characters, format_timeout, is_separated_by_tabs, parse, with_pivots,
};
pub use relations::relations_of;
pub use repeated_names::{mark_repeated_names, repeated_wildcard, unmarked_name};
pub use replaced_columns::{ReplacedColumns, replaced_columns};
pub use same_names::{QualifiedName, schema_in_database, with_distinct_relations};
pub use settings::{IsolationLevel, Setting, SettingInfo, SettingValue, on_or_off, synchronous_name};
pub use statement::{
    CommentedObject, LikePart, NewIndex, OnCommit, SequenceChange, Statement, StatementClass, TableChange, TableSource,
    ViewChange, is_insert, is_query,
};
pub use syntax::has_query as has_subquery;
pub use types::type_name;
pub use with_queries::with_queries;
