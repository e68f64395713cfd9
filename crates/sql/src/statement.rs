//! Parsed statements.

use std::sync::Arc;

use datafusion_common::TableReference;
use datafusion_common::format::ExplainStatementOptions;
use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{Expr, Query, Statement as Ast};
use taut_store::backup::BackupOptions;
use taut_types::{Column, IndexKind};

use crate::attachment::Attachment;
use crate::declared::{Declared, SchemaChange, SequenceOptions};
use crate::error::ObjectKind;
use crate::functions::FunctionDefinition;
use crate::index_part::IndexPart;
use crate::mutation::{ModifyingWith, Mutation};
use crate::names::Names;
use crate::parameters::Parameters;
use crate::settings::{IsolationLevel, Setting, SettingValue};

/// One parsed statement.
// Not `non_exhaustive`: the compiler then reports each statement that the crate `query` does not handle.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `CREATE TABLE`.
    CreateTable {
        /// Name of the table.
        name: TableReference,
        /// Whether the statement contains `TEMPORARY`. A table in schema `pg_temp` is temporary too.
        temporary: bool,
        /// Effect of a commit on the rows of a temporary table, if specified.
        on_commit: Option<OnCommit>,
        /// Whether an existing table is kept without an error.
        if_not_exists: bool,
        /// Whether an existing table is replaced.
        or_replace: bool,
        /// Source of the columns.
        source: TableSource,
        /// Options of the table's design (layout, sort order and others), in order.
        options: Vec<(String, String)>,
        /// Notices for the user.
        notices: Vec<String>,
    },
    /// `CREATE INDEX`.
    CreateIndex(NewIndex),
    /// `CREATE SEQUENCE`.
    CreateSequence {
        /// Name of the sequence.
        name: TableReference,
        /// Whether the statement contains `TEMPORARY`.
        temporary: bool,
        /// Whether an existing sequence is kept without an error.
        if_not_exists: bool,
        /// Options of the sequence.
        options: SequenceOptions,
        /// Notices for the user.
        notices: Vec<String>,
    },
    /// `ALTER SEQUENCE`.
    AlterSequence {
        /// Name of the sequence.
        name: TableReference,
        /// Whether a missing sequence is ignored.
        if_exists: bool,
        /// What is changed.
        change: SequenceChange,
        /// Notices for the user.
        notices: Vec<String>,
    },
    /// `DROP TABLE`, `DROP VIEW`, `DROP INDEX` or `DROP SEQUENCE`.
    Drop {
        /// A table, view, index or sequence.
        kind: ObjectKind,
        /// Objects to drop, all or none.
        names: Vec<TableReference>,
        /// Whether missing names are ignored.
        if_exists: bool,
        /// Whether dependent objects are dropped too.
        cascade: bool,
    },
    /// `ALTER TABLE`.
    AlterTable {
        /// Name of the table.
        name: TableReference,
        /// Whether a missing table is ignored.
        if_exists: bool,
        /// What is changed.
        change: TableChange,
        /// Messages for the client.
        notices: Vec<String>,
    },
    /// `COPY ... FROM 'file'`.
    CopyFrom {
        /// Name of the table.
        name: TableReference,
        /// Columns in the file, in its order; empty for all columns of the table.
        columns: Vec<String>,
        /// Path of the file.
        file: String,
        /// Options such as `format`, `header`, `delimiter`.
        options: Vec<(String, String)>,
    },
    /// `CREATE SCHEMA`.
    CreateSchema {
        /// Name of the attached database. `None` for the session's own.
        database: Option<String>,
        /// Name of the schema.
        name: String,
        /// Whether an existing schema is kept without an error.
        if_not_exists: bool,
    },
    /// `DROP SCHEMA`.
    DropSchemas {
        /// Name of the attached database. `None` for the session's own.
        database: Option<String>,
        /// Names of the schemas, all dropped or none.
        names: Vec<String>,
        /// Whether missing names are ignored.
        if_exists: bool,
        /// Whether the relations in the schemas and their dependent objects are dropped too.
        cascade: bool,
    },
    /// `ALTER SCHEMA ... RENAME TO`.
    RenameSchema {
        /// Name of the attached database. `None` for the session's own.
        database: Option<String>,
        /// Name of the schema.
        name: String,
        /// The new name.
        new_name: String,
    },
    /// `ALTER TABLE`, `ALTER VIEW` or `ALTER SEQUENCE` with `SET SCHEMA`.
    SetSchema {
        /// A table, view or sequence.
        kind: ObjectKind,
        /// Name of the object.
        name: TableReference,
        /// Whether a missing object is ignored.
        if_exists: bool,
        /// Name of its new schema.
        schema: String,
    },
    /// `CREATE VIEW`.
    CreateView {
        /// Name of the view.
        name: TableReference,
        /// Whether the statement contains `TEMPORARY`. A view that reads a temporary relation is temporary too.
        temporary: bool,
        /// Whether an existing view is replaced.
        or_replace: bool,
        /// Names of the columns; empty for the names of the query's columns.
        columns: Vec<String>,
        /// The query, as text.
        sql: String,
    },
    /// `CREATE FUNCTION`.
    CreateFunction {
        /// Name of the function.
        name: TableReference,
        /// Whether an existing function is replaced.
        or_replace: bool,
        /// The rest of the statement.
        definition: FunctionDefinition,
    },
    /// `DROP FUNCTION`.
    DropFunctions {
        /// Names of the functions, each with the types of its parameters if the statement lists them.
        functions: Vec<(TableReference, Option<Vec<String>>)>,
        /// Whether missing functions are ignored.
        if_exists: bool,
        /// Whether the views that call the functions are dropped too.
        cascade: bool,
    },
    /// `ALTER INDEX ... RENAME TO`.
    RenameIndex {
        /// Name of the index.
        name: TableReference,
        /// Whether a missing index is ignored.
        if_exists: bool,
        /// The new name, in the same schema.
        new_name: String,
    },
    /// `ALTER VIEW`.
    AlterView {
        /// Name of the view.
        name: TableReference,
        /// Whether a missing view is ignored.
        if_exists: bool,
        /// What is changed.
        change: ViewChange,
    },
    /// `COMMENT ON`.
    Comment {
        /// What the comment is about.
        on: CommentedObject,
        /// The comment. `None` removes the existing comment.
        comment: Option<String>,
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
    /// `ATTACH`.
    Attach {
        /// Path of the database.
        path: String,
        /// Name under which it is attached.
        name: String,
        /// Whether a database that is attached under the name is kept without an error.
        if_not_exists: bool,
        /// Whether it can only be read.
        read_only: bool,
    },
    /// `DETACH`.
    Detach {
        /// Name of the attached database.
        name: String,
        /// Whether a missing database is ignored.
        if_exists: bool,
    },
    /// `CHECKPOINT`.
    Checkpoint,
    /// `VACUUM`, and `ALTER TABLE ... COMPACT`.
    Vacuum {
        /// Whether to compact until each table is as if it had just been loaded. Otherwise only due compactions run.
        full: bool,
        /// Names of the tables; empty for all.
        names: Vec<TableReference>,
    },
    /// `SET` or `RESET` of a setting. Settings of transactions are [`Statement::SetTransaction`] instead.
    Set(SettingValue),
    /// `SET LOCAL` of a setting, until the transaction ends.
    SetLocal(SettingValue),
    /// `USE` of a schema.
    Use {
        /// Name of the schema.
        schema: String,
    },
    /// `SHOW` of a setting.
    Show(Setting),
    /// `DEALLOCATE ALL`: removes all prepared statements.
    DeallocateAll,
    /// `SHOW ALL`.
    ShowAll,
    /// `DESCRIBE t`.
    Describe {
        /// Name of the table.
        name: TableReference,
    },
    /// `DESCRIBE` of a query.
    DescribeQuery {
        /// The query.
        query: Arc<PlannerStatement>,
    },
    /// `EXPLAIN EXECUTE`.
    ExplainExecute {
        /// Name of the prepared statement.
        name: String,
        /// Values of its parameters.
        values: Parameters,
        /// Options of the `EXPLAIN`.
        options: ExplainStatementOptions,
    },
    /// `SHOW TABLES`.
    ShowTables,
    /// `SHOW DATABASES`.
    ShowDatabases,
    /// `SUMMARIZE`.
    Summarize {
        /// The query whose columns are summarized, as text.
        query: String,
    },
    /// `UPDATE`, `DELETE`, `MERGE`, and `INSERT` with `ON CONFLICT`, `RETURNING` or `DEFAULT`.
    Mutation {
        /// The change of rows.
        mutation: Arc<Mutation>,
        /// Options of the `EXPLAIN` around the statement, if there is one.
        explain: Option<ExplainStatementOptions>,
        /// Names of the columns that the statement may refer to in tables other than [`TARGET`](crate::TARGET); `None`
        /// for all.
        names: Option<Arc<Names>>,
        /// Whether the statement has a long text; see [`is_long`](crate::is_long).
        is_long: bool,
        /// The cached plan of the statement.
        plan: Attachment,
    },
    /// A statement with statements in `WITH` that change rows.
    ModifyingWith {
        /// The statement.
        statement: Arc<ModifyingWith>,
        /// Options of the `EXPLAIN` around the statement, if there is one.
        explain: Option<ExplainStatementOptions>,
        /// Names of the columns that the statement may refer to; `None` for all.
        names: Option<Arc<Names>>,
    },
    /// `PREPARE` of a [`Statement::Mutation`] or [`Statement::ModifyingWith`].
    Prepare {
        /// The name of the prepared statement.
        name: String,
        /// The statement. Its parameters have the declared types.
        mutation: Box<Statement>,
    },
    /// `TRUNCATE`.
    Truncate {
        /// Names of the tables.
        names: Vec<TableReference>,
        /// Whether the sequences of their columns are restarted.
        restarts_identity: bool,
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
    /// `SET TRANSACTION`, `SET SESSION CHARACTERISTICS AS TRANSACTION`, and `SET` of the settings of transactions.
    /// Specifies at least one of the first two fields.
    SetTransaction {
        /// Isolation level, if specified.
        isolation: Option<IsolationLevel>,
        /// Whether transactions are read-only, if specified.
        read_only: Option<bool>,
        /// Whether the settings apply to all following transactions of the session, rather than to the current one.
        session: bool,
    },
    /// A statement with a `PIVOT` that does not list its values: see [`pivot_values_query`](crate::pivot_values_query).
    OpenPivot {
        /// The statement as parsed.
        statement: Arc<PlannerStatement>,
    },
    /// Any other statement, planned by DataFusion.
    Planned {
        /// The statement as parsed.
        statement: Arc<PlannerStatement>,
        /// Column names that the statement may refer to; `None` for all.
        names: Option<Arc<Names>>,
        /// Whether the statement has a long text; see [`is_long`](crate::is_long).
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
        statement: Arc<PlannerStatement>,
    },
}

/// Class of a statement. It determines when the statement is rejected, and whether a time limit ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementClass {
    /// Changes definitions, or rows of a whole table. Contains the name of the command for errors. Rejected in
    /// read-only transactions.
    Definition(&'static str),
    /// Changes how the database is stored but not its contents. Contains the name of the command for errors. Rejected
    /// by a database that is open read-only.
    Maintenance(&'static str),
    /// Begins or ends a transaction, or sets its modes. Only `COMMIT` is subject to a time limit.
    TransactionControl,
    /// Sets or shows a setting. No time limit ends it.
    Setting,
    /// Reads or writes rows, or shows definitions.
    Rows,
}

impl Statement {
    /// The class of the statement.
    pub fn class(&self) -> StatementClass {
        use StatementClass::{Definition, Maintenance, Rows, Setting, TransactionControl};
        match self {
            Self::CreateTable { source: TableSource::Query { .. }, .. } => Definition("CREATE TABLE AS"),
            Self::CreateTable { .. } => Definition("CREATE TABLE"),
            Self::CreateIndex(_) => Definition("CREATE INDEX"),
            Self::Drop { kind: ObjectKind::View, .. } => Definition("DROP VIEW"),
            Self::Drop { kind: ObjectKind::Index, .. } => Definition("DROP INDEX"),
            Self::Drop { kind: ObjectKind::Sequence, .. } => Definition("DROP SEQUENCE"),
            Self::CreateSequence { .. } => Definition("CREATE SEQUENCE"),
            Self::AlterSequence { .. } => Definition("ALTER SEQUENCE"),
            Self::Drop { .. } => Definition("DROP TABLE"),
            Self::AlterTable { .. } => Definition("ALTER TABLE"),
            Self::CopyFrom { .. } => Definition("COPY FROM"),
            Self::CreateSchema { .. } => Definition("CREATE SCHEMA"),
            Self::DropSchemas { .. } => Definition("DROP SCHEMA"),
            Self::RenameSchema { .. } => Definition("ALTER SCHEMA"),
            Self::SetSchema { kind: ObjectKind::View, .. } => Definition("ALTER VIEW"),
            Self::SetSchema { kind: ObjectKind::Sequence, .. } => Definition("ALTER SEQUENCE"),
            Self::SetSchema { .. } => Definition("ALTER TABLE"),
            Self::CreateView { .. } => Definition("CREATE VIEW"),
            Self::AlterView { .. } => Definition("ALTER VIEW"),
            Self::CreateFunction { .. } => Definition("CREATE FUNCTION"),
            Self::DropFunctions { .. } => Definition("DROP FUNCTION"),
            Self::RenameIndex { .. } => Definition("ALTER INDEX"),
            Self::Comment { .. } => Definition("COMMENT"),
            Self::Checkpoint => Maintenance("CHECKPOINT"),
            Self::Vacuum { .. } => Maintenance("VACUUM"),
            Self::StopLogRetention => Maintenance("BACKUP DATABASE STOP LOG"),
            Self::Set(SettingValue::Mover(true)) => Maintenance("SET mover = on"),
            Self::Set(_) | Self::SetLocal(_) | Self::Use { .. } | Self::Show(_) | Self::ShowAll => Setting,
            Self::Begin { .. }
            | Self::Commit
            | Self::Rollback { .. }
            | Self::Savepoint { .. }
            | Self::Release { .. }
            | Self::SetTransaction { .. } => TransactionControl,
            Self::Planned { .. }
            | Self::OpenPivot { .. }
            | Self::Execute { .. }
            | Self::Mutation { .. }
            | Self::ModifyingWith { .. }
            | Self::DeallocateAll
            | Self::Prepare { .. }
            | Self::Truncate { .. }
            | Self::Backup { .. }
            | Self::Describe { .. }
            | Self::DescribeQuery { .. }
            | Self::ExplainExecute { .. }
            | Self::ShowTables
            | Self::ShowDatabases
            | Self::Attach { .. }
            | Self::Detach { .. }
            | Self::Summarize { .. } => Rows,
        }
    }

    /// Whether the statement can have parameters.
    pub fn takes_parameters(&self) -> bool {
        matches!(
            self,
            Self::Planned { .. }
                | Self::OpenPivot { .. }
                | Self::Mutation { .. }
                | Self::ModifyingWith { .. }
                | Self::CreateTable { source: TableSource::Query { .. }, .. }
        )
    }

    /// Whether the statement has a long text, see [`is_long`](crate::is_long). Variants that do not record it return
    /// false.
    pub fn is_long(&self) -> bool {
        matches!(self, Self::Planned { is_long: true, .. } | Self::Mutation { is_long: true, .. })
    }
}

/// What a commit does with the rows of a temporary table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCommit {
    /// They stay until the session ends.
    #[default]
    PreserveRows,
    /// They are deleted.
    DeleteRows,
    /// The table is dropped.
    Drop,
}

/// Whether a statement is a query.
pub fn is_query(statement: &PlannerStatement) -> bool {
    matches!(statement, PlannerStatement::Statement(ast) if matches!(ast.as_ref(), Ast::Query(_)))
}

/// Whether a statement is an `INSERT`, an `EXPLAIN ANALYZE` of one, or a `PREPARE` of one.
pub fn is_insert(statement: &PlannerStatement) -> bool {
    let ast = match statement {
        PlannerStatement::Statement(ast) => ast,
        PlannerStatement::Explain(explain) => return explain.options.analyze && is_insert(&explain.statement),
        _ => return false,
    };
    match ast.as_ref() {
        Ast::Insert(_) => true,
        Ast::Prepare { statement, .. } => matches!(statement.as_ref(), Ast::Insert(_)),
        _ => false,
    }
}

/// A change of a table.
#[derive(Clone, Debug)]
pub enum TableChange {
    /// `SET (...)`: options of the design.
    Design(Vec<(String, String)>),
    /// `ADD`, `DROP`, `ALTER` and `RENAME COLUMN`, `ADD` and `DROP CONSTRAINT`, in order, applied all or none.
    Schema(Vec<SchemaChange>),
    /// `RENAME TO`: the new name, in the same schema.
    Rename(String),
}

/// A change of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewChange {
    /// `RENAME TO`: the new name.
    Rename(String),
    /// `RENAME COLUMN`.
    RenameColumn {
        /// Name of the column.
        column: String,
        /// The new name.
        name: String,
    },
}

/// An object that can have a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommentedObject {
    /// A table, view or sequence.
    Relation {
        /// The kind of object that the statement names.
        kind: ObjectKind,
        /// Name of the object.
        name: TableReference,
    },
    /// A column.
    Column {
        /// Name of the table or view.
        relation: TableReference,
        /// Name of the column.
        column: String,
    },
    /// A schema.
    Schema {
        /// Name of the attached database. `None` for the session's own.
        database: Option<String>,
        /// Name of the schema.
        name: String,
    },
    /// A function.
    Function {
        /// Name of the function.
        name: TableReference,
        /// Types of its parameters, if the statement lists them.
        types: Option<Vec<String>>,
    },
}

/// A change of a sequence.
#[derive(Clone, Debug)]
pub enum SequenceChange {
    /// Options to change, with their new values.
    Options(SequenceOptions),
    /// `RENAME TO`: the new name, in the same schema.
    Rename(String),
}

/// An index to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    /// Name of the index, which is in the schema of the table. `None` to generate one.
    pub name: Option<String>,
    /// Name of the table.
    pub table: TableReference,
    /// Kind of index.
    pub kind: IndexKind,
    /// What is indexed, in order.
    pub parts: Vec<IndexPart>,
    /// Condition of a partial index. The index contains only the rows for which the condition is true.
    pub predicate: Option<Box<Expr>>,
    /// Whether no two rows may have the same values in these parts.
    pub is_unique: bool,
    /// Whether an existing index is kept without an error.
    pub if_not_exists: bool,
}

impl NewIndex {
    /// Names of the columns of an index that has neither expressions nor a predicate. Returns `None` for other indexes.
    pub fn column_names(&self) -> Option<Vec<String>> {
        let column = |part: &IndexPart| match part {
            IndexPart::Column(name) => Some(name.clone()),
            IndexPart::Expression(_) => None,
        };
        self.parts.iter().map(column).collect::<Option<_>>().filter(|_| self.predicate.is_none())
    }

    /// Distinct names of the parts. As in PostgreSQL, the generated name of an index is composed of them.
    pub fn part_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for part in &self.parts {
            let name = part.name();
            let numbered = (1..).map(|number| format!("{name}{number}"));
            let mut candidates = std::iter::once(name.clone()).chain(numbered);
            names.extend(candidates.find(|candidate| !names.contains(candidate)));
        }
        names
    }
}

/// Part of a table that `CREATE TABLE t (LIKE u INCLUDING ...)` copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikePart {
    /// Comments on columns.
    Comments,
    /// Table options `compression` and `encoding`.
    Compression,
    /// Check constraints.
    Constraints,
    /// Defaults of columns. A `SERIAL` column of the new table takes numbers of the same sequence.
    Defaults,
    /// Expressions of generated columns.
    Generated,
    /// Identity columns, with sequences of their own.
    Identity,
    /// Indexes, primary keys and unique constraints, under new names.
    Indexes,
    /// Extended statistics, which Taut does not have.
    Statistics,
    /// All options of the table.
    Storage,
}

impl LikePart {
    /// All parts.
    pub const ALL: [Self; 9] = [
        Self::Comments,
        Self::Compression,
        Self::Constraints,
        Self::Defaults,
        Self::Generated,
        Self::Identity,
        Self::Indexes,
        Self::Statistics,
        Self::Storage,
    ];

    /// Word after `INCLUDING` and `EXCLUDING`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Comments => "comments",
            Self::Compression => "compression",
            Self::Constraints => "constraints",
            Self::Defaults => "defaults",
            Self::Generated => "generated",
            Self::Identity => "identity",
            Self::Indexes => "indexes",
            Self::Statistics => "statistics",
            Self::Storage => "storage",
        }
    }
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
    /// The columns of another table with their `NOT NULL` constraints, but without its rows.
    Like {
        /// Name of the other table.
        table: TableReference,
        /// What else is copied.
        included: Vec<LikePart>,
    },
    /// The columns of a query, whose rows fill the table.
    Query {
        /// The query.
        query: Box<Query>,
        /// Other names for the first columns.
        names: Vec<String>,
    },
}
