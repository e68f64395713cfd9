//! A session runs statements one after another. A statement sees the snapshot of the transaction in progress, or else
//! the newest snapshot.
//!
//! Each file of this folder runs some kinds of statements, or contains a part that all statements use. Such parts are
//! the transaction of the session, the catalog that a statement sees, checks of keys, maintenance, and system tables.

mod attached;
mod backup;
mod catalog;
mod column_types;
mod columns;
mod comments;
mod computed_changes;
mod constraints;
mod ddl;
mod dml;
mod explain;
mod functions;
mod index_columns;
mod indexes;
mod information_schema;
mod insert_by_name;
mod insert_values;
mod joined_rows;
mod keys;
mod like;
mod load;
mod local_settings;
mod maintenance;
mod merge_join;
mod merged_stream;
mod modifying_with;
mod names;
mod open_pivots;
mod pg_catalog;
mod prepared;
mod queries;
mod replace_table;
mod retries;
mod returned_rows;
mod schemas;
mod search_path;
mod sequences;
mod settings;
mod staged_file;
mod summarize;
mod system_tables;
mod temporary;
mod transactions;
mod views;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::MemTable;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{LogicalPlan, Values};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{Query, Statement as Ast};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use taut_sql::{
    CATALOG, ColumnChange, Names, ObjectKind, PUBLIC, Parameters, SchemaChange, SettingValue, Statement,
    StatementClass, TableChange, TableSource, inserts_values, lists_values,
};
use taut_store::{Catalog, Constraints, Store, Table};
use taut_types::is_temporary_relation;
use tokio_util::sync::CancellationToken;

use crate::error::{AttachError, QueryError, Result, TemporaryError};
use crate::exec::operators::Interrupt;
use crate::exec::reads::create_physical_plan;
use crate::exec::scan::TautTable;
use crate::expressions::{SchemaAccess, SequenceAccess, Sequences};
use crate::mover::Mover;
use crate::plan::cache::StatementCache;
use crate::plan::files::ReadOptions;
use crate::runtime::progress::{ProgressCallback, ProgressCounter};
use crate::runtime::temporary_disk::TemporaryDisk;
use crate::session::catalog::StatementCatalog;
use crate::session::prepared::PreparedStatements;
use crate::session::search_path::SearchPath;

pub use self::load::STATEMENT_OPTIONS;
pub use self::pg_catalog::SystemCatalog;
pub use self::system_tables::{SystemColumn, SystemTable};

use self::attached::UserSession;
use self::dml::MutationRequest;
use self::insert_values::InsertTargets;
use self::local_settings::LocalSettings;
use self::queries::{Planning, QueryRequest};
use self::sequences::SessionObjects;
use self::transactions::Transactions;

/// Result of a statement.
pub enum Outcome {
    /// Rows, computed as they are read.
    Rows(SendableRecordBatchStream),
    /// Summary of a statement that has finished without rows.
    Done(Done),
}

/// Summary of a finished statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Command tag, such as `CREATE TABLE` or `INSERT 3`.
    pub tag: String,
    /// Number of rows written; `None` for statements that write no rows.
    pub rows: Option<u64>,
    /// Notices for the user.
    pub notices: Vec<String>,
}

impl Outcome {
    /// Adds notices to the summary of a finished statement.
    fn with_notices(mut self, notices: &[String]) -> Self {
        if let Self::Done(done) = &mut self {
            done.notices.extend(notices.iter().cloned());
        }
        self
    }
}

impl Done {
    fn with_tag(tag: &str) -> Self {
        Self { tag: tag.to_owned(), rows: None, notices: Vec::new() }
    }

    fn with_rows(verb: &str, rows: u64) -> Self {
        Self { tag: format!("{verb} {rows}"), rows: Some(rows), notices: Vec::new() }
    }
}

/// State of the running statement.
#[derive(Default)]
struct RunningStatement {
    interrupt: Interrupt,
    /// Whether the statement runs a second time because its hash joins did not fit in memory.
    prefers_merge_joins: bool,
    /// Rows that statements in `WITH` have returned, under the names by which the rest of the statement reads them.
    relations: Vec<(Cow<'static, str>, Arc<dyn TableProvider>)>,
}

/// A session of a user, which runs statements on a store.
pub struct QuerySession {
    store: Arc<Store>,
    /// Settings and functions. The catalog of this context holds only files and registered batches.
    context: SessionContext,
    files: Arc<dyn SchemaProvider>,
    threads: usize,
    mover: Arc<Mover>,
    progress: Mutex<Option<ProgressCallback>>,
    prepared: Arc<PreparedStatements>,
    statement_cache: StatementCache,
    planning: Planning,
    insert_targets: InsertTargets,
    /// Cached result of [`QuerySession::has_long_definitions`], with the [`Catalog::definitions_id`] for which it was
    /// computed.
    has_long_definitions: Mutex<Option<(u64, bool)>>,
    transactions: Arc<Mutex<Transactions>>,
    search_path: Arc<Mutex<SearchPath>>,
    local_settings: Mutex<LocalSettings>,
    running: Arc<Mutex<RunningStatement>>,
    /// Time limit of each statement.
    statement_timeout: Mutex<Option<Duration>>,
    /// The session that uses this one to change an attached database. `None` for a session of a user.
    user_session: Option<UserSession>,
}

impl QuerySession {
    /// Creates a session on `store`, with the settings of the mover's engine.
    pub fn new(store: Arc<Store>, mover: Arc<Mover>) -> Self {
        let disk = TemporaryDisk::new(mover.engine().spill_directory());
        let store = Arc::new(store.for_session(Arc::new(disk)));
        let context = mover.engine().context().enable_url_table();
        let empty_schema: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
        let catalog = MemoryCatalogProvider::new();
        // A new catalog accepts any schema.
        let _ = catalog.register_schema(PUBLIC, Arc::clone(&empty_schema));
        context.register_catalog(CATALOG, Arc::new(catalog));
        let files = context.catalog(CATALOG).and_then(|catalog| catalog.schema(PUBLIC));
        Self { files: files.unwrap_or(empty_schema), ..Self::with_context(store, mover, context) }
    }

    fn with_context(store: Arc<Store>, mover: Arc<Mover>, context: SessionContext) -> Self {
        let transactions = Arc::<Mutex<Transactions>>::default();
        let search_path = Arc::<Mutex<SearchPath>>::default();
        let objects = SessionObjects::new(Arc::clone(&store), Arc::clone(&transactions), Arc::clone(&search_path));
        let objects = Arc::new(objects);
        {
            let state = context.state_ref();
            let mut state = state.write();
            let extensions = &mut state.config_mut().options_mut().extensions;
            extensions.insert(SequenceAccess(Arc::clone(&objects) as Arc<dyn Sequences>));
            extensions.insert(SchemaAccess(objects));
        }
        Self {
            store,
            context,
            files: Arc::new(MemorySchemaProvider::new()),
            threads: mover.engine().threads(),
            mover,
            progress: Mutex::new(None),
            prepared: Arc::default(),
            statement_cache: StatementCache::default(),
            planning: Planning::new(),
            insert_targets: InsertTargets::default(),
            has_long_definitions: Mutex::default(),
            transactions,
            search_path,
            local_settings: Mutex::default(),
            running: Arc::default(),
            statement_timeout: Mutex::default(),
            user_session: None,
        }
    }

    /// Sets the token that cancels the statements started from now on.
    ///
    /// `is_committing` becomes true when a statement begins to commit. The caller must then wait for it, because its
    /// changes may already be committed.
    pub fn interrupt_by(&self, token: CancellationToken, is_committing: Arc<AtomicBool>) {
        *self.running.lock() =
            RunningStatement { interrupt: Interrupt::new(token, is_committing), ..RunningStatement::default() };
    }

    fn interrupt(&self) -> Interrupt {
        self.running.lock().interrupt.clone()
    }

    /// Whether a statement takes little time to finish or to reach its first row.
    ///
    /// True for statements with a cached plan, for transaction control, and for short statements that insert listed
    /// values.
    pub fn is_quick(&self, statement: &Statement) -> bool {
        match statement {
            _ if statement.class() == StatementClass::TransactionControl => true,
            Statement::Planned { statement, is_long: false, .. } if inserts_values(statement) => true,
            other => self.has_cached_plan(other),
        }
    }

    /// The store of the session.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Context with the settings of the session. Its catalog has files and registered batches, but no stored tables.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Returns a stored table as of the snapshot of the transaction in progress, or else of the newest snapshot.
    ///
    /// # Errors
    /// If no table has this name.
    pub fn table_provider(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        let table = self.table(&self.name(&Self::reference(name))?)?;
        Ok(Arc::new(TautTable::new(Arc::clone(&self.store), table, None, None)))
    }

    /// Whether a statement may need a larger stack than threads usually have.
    ///
    /// True if the statement, a view, a constraint or a prepared statement has a long text. Always true for kinds of
    /// statements that do not record the length of their text.
    pub fn needs_large_stack(&self, statement: &Statement) -> bool {
        let is_long = match statement {
            Statement::Planned { .. } | Statement::Mutation { .. } | Statement::Execute { .. } => statement.is_long(),
            _ => true,
        };
        is_long || self.prepared.any_is_long() || self.has_long_definitions()
    }

    /// Whether a view or a constraint has a long text.
    fn has_long_definitions(&self) -> bool {
        // The views of attached databases are not examined.
        if !self.attached().is_empty() {
            return true;
        }
        let snapshot = self.snapshot();
        let mut cached = self.has_long_definitions.lock();
        if let Some((definitions, has_long_definitions)) = *cached
            && definitions == snapshot.definitions_id()
        {
            return has_long_definitions;
        }
        let has_long_definitions = snapshot.views().any(|view| taut_sql::is_long(&view.sql))
            || snapshot.tables().any(|table| has_long_text(&table.constraints));
        *cached = Some((snapshot.definitions_id(), has_long_definitions));
        has_long_definitions
    }

    /// Sets the callback for the progress of loads, rewrites and queries; `None` removes it.
    pub fn on_progress(&self, callback: Option<ProgressCallback>) {
        *self.progress.lock() = callback;
    }

    /// Runs a statement with values for its parameters. Rows are computed as they are read.
    ///
    /// # Errors
    /// If the statement fails. It has then changed nothing, except for finished steps of a rewrite.
    pub async fn run(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        Ok(match self.run_in_utc(statement, parameters).await? {
            Outcome::Rows(rows) => Outcome::Rows(self.in_session_zone(rows)),
            done => done,
        })
    }

    /// Runs a statement. Values of type `timestamptz` in its rows have time zone UTC, as stored values do.
    async fn run_in_utc(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        let changed = matches!(statement, Statement::Commit).then(|| self.changed_in_transaction()).flatten();
        let controlled = self.run_transaction_control(statement);
        if !matches!(controlled, Ok(None)) {
            self.restore_local_settings(statement, controlled.is_ok())?;
        }
        if let Some(done) = controlled? {
            if matches!(statement, Statement::Commit) {
                let changed = changed.map(|database| self.session_on(&database)).transpose()?;
                let session = changed.as_deref().unwrap_or(self);
                self.interrupt().cancellation().run_after_commit(session.apply_backpressure()).await;
            }
            return Ok(done);
        }
        if let Some(outcome) = self.run_in_attached(statement, parameters).await? {
            return Ok(outcome);
        }
        if self.needs_own_transaction(statement) {
            return self.run_in_own_transaction(statement, parameters).await;
        }
        self.begin_statement()?;
        let mut fail_guard = FailOnDrop(Some(self));
        let outcome = self.run_with_retries(statement, parameters).await;
        if let Err(QueryError::Constraint(violation)) = &outcome {
            self.record_violation_reads(violation);
        }
        let outcome = outcome?;
        fail_guard.0 = None;
        self.apply_on_commit()?;
        let has_changed = matches!(outcome, Outcome::Done(Done { rows: Some(_), .. }));
        let may_have_changed = matches!(
            statement,
            Statement::Mutation { .. } | Statement::ModifyingWith { .. } | Statement::Execute { .. }
        );
        if has_changed || may_have_changed {
            self.interrupt().cancellation().run_after_commit(self.apply_backpressure()).await;
        }
        Ok(outcome)
    }

    /// Runs a statement in its own transaction, which begins before the statement is planned.
    async fn run_in_own_transaction(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        self.run_transaction_control(&Statement::Begin { isolation: None, read_only: None })?;
        let rollback_guard = AutocommitGuard(self);
        self.begin_statement()?;
        let outcome = self.run_with_memory_fallback(statement, parameters).await?;
        self.run_transaction_control(&Statement::Commit)?;
        drop(rollback_guard);
        self.interrupt().cancellation().run_after_commit(self.apply_backpressure()).await;
        Ok(outcome)
    }

    async fn run_statement(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        if !statement.takes_parameters() && !parameters.is_empty() {
            let allowed = "queries, INSERT, UPDATE, DELETE, MERGE, COPY (query) TO and CREATE TABLE AS have parameters";
            return Err(QueryError::unsupported("a parameter in this statement", allowed));
        }
        match statement.class() {
            // Rows of temporary tables may change in read-only transactions.
            _ if matches!(statement, Statement::CopyFrom { .. }) && self.is_of_temporary(statement) => {}
            StatementClass::Definition(name) => self.check_may_define(name, || self.is_of_temporary(statement))?,
            StatementClass::Maintenance(name) if self.store.is_read_only() => self.check_may_write(name)?,
            _ => {}
        }
        match statement {
            Statement::Planned { statement, names, is_long, plan } => {
                let request =
                    QueryRequest { statement, names: names.as_ref(), is_long: *is_long, plan: plan.get_or_default() };
                self.run_planned(&request, parameters).await
            }
            Statement::Mutation { mutation, names, plan, explain, .. } => {
                let analyze = explain.as_ref().filter(|options| options.analyze);
                let plan = plan.get_or_default();
                let request =
                    MutationRequest { mutation, names: names.as_ref(), parameters, plan, analyze, is_part: false };
                match explain {
                    Some(options) if !options.analyze => Box::pin(self.explain_mutation(&request, options)).await,
                    _ => self.mutate(&request).await,
                }
            }
            Statement::ModifyingWith { statement, explain: None, names } => {
                Box::pin(self.run_modifying_with(statement, names.as_ref(), parameters)).await
            }
            Statement::ModifyingWith { statement, explain: Some(options), names } => {
                Box::pin(self.explain_modifying_with(statement, options, (names.as_ref(), parameters))).await
            }
            // Boxed to keep this future small for the many short statements: it holds every unboxed future that is
            // awaited here.
            other => Box::pin(self.run_other(other, parameters)).await,
        }
    }

    /// Runs a statement other than a query or a change of rows.
    async fn run_other(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        let snapshot = self.snapshot();
        match statement {
            Statement::Prepare { name, mutation } => self.prepare(name, mutation).await,
            Statement::OpenPivot { statement } => self.run_with_pivots(statement, parameters).await,
            Statement::Execute { name, values, statement } => self.execute(name, values, statement).await,
            Statement::CreateTable {
                name,
                temporary,
                on_commit,
                if_not_exists,
                or_replace,
                source,
                options,
                notices,
            } => {
                let name = &self.new_name(name, *temporary)?;
                if on_commit.is_some() && !is_temporary_relation(name) {
                    return Err(TemporaryError::OnCommit.into());
                }
                let source = self.named_source(source, name)?;
                if *or_replace && snapshot.table(name).is_some() {
                    let mut done = self.replace_table(name, &source, options, parameters).await?;
                    self.set_on_commit(name, *on_commit);
                    done.notices.extend(notices.iter().cloned());
                    return Ok(Outcome::Done(done));
                }
                let is_taken = snapshot.table(name).is_some() || snapshot.view(name).is_some();
                if is_taken && *if_not_exists {
                    let notice = format!("relation {name:?} already exists, skipping");
                    return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("CREATE TABLE") }));
                }
                if is_taken {
                    return Err(QueryError::relation_exists(name));
                }
                let mut done = self.create_table(name, &source, options, parameters).await?;
                self.set_on_commit(name, *on_commit);
                done.notices.extend(notices.iter().cloned());
                Ok(Outcome::Done(done))
            }
            Statement::CreateIndex(index) => self.create_index(index).await,
            Statement::CreateSequence { name, temporary, if_not_exists, options, notices } => Ok(self
                .create_sequence(&self.new_name(name, *temporary)?, *if_not_exists, options)?
                .with_notices(notices)),
            Statement::AlterSequence { name, if_exists, change, notices } => {
                Ok(self.alter_sequence(&self.name(name)?, *if_exists, change)?.with_notices(notices))
            }
            Statement::Drop { kind: ObjectKind::Sequence, names, if_exists, cascade } => {
                self.drop_sequences(&self.names(names)?, *if_exists, *cascade)
            }
            Statement::Drop { kind: ObjectKind::Index, names, if_exists, cascade } => {
                self.drop_indexes(&self.names(names)?, *if_exists, *cascade).await
            }
            Statement::Drop { kind, names, if_exists, cascade } => {
                self.drop_names(*kind, &self.names(names)?, *if_exists, *cascade)
            }
            Statement::CreateSchema { name, if_not_exists, .. } => self.create_schema(name, *if_not_exists),
            Statement::DropSchemas { names, if_exists, cascade, .. } => self.drop_schemas(names, *if_exists, *cascade),
            Statement::RenameSchema { name, new_name, .. } => self.rename_schema(name, new_name),
            Statement::SetSchema { kind, name, if_exists, schema } => {
                self.set_schema(*kind, name, *if_exists, schema).await
            }
            Statement::AlterTable { name, if_exists, change, notices } => {
                self.alter_relation(&self.name(name)?, *if_exists, change, notices).await
            }
            Statement::RenameIndex { name, if_exists, new_name } => {
                self.rename_index(&self.name(name)?, *if_exists, new_name).await
            }
            Statement::AlterView { name, if_exists, change } => {
                self.alter_view(&self.name(name)?, *if_exists, change).await
            }
            Statement::CopyFrom { name, columns, file, options } => {
                let table = self.table(&self.name(name)?)?;
                let options = ReadOptions::from_pairs(options)?;
                let rows = self.load(&table, columns, &[file.into()], &options).await?;
                Ok(Outcome::Done(Done::with_rows("COPY", rows)))
            }
            Statement::CreateView { name, temporary, or_replace, columns, sql } => {
                let sql = &*self.own_view_text(sql)?;
                let (name, notice) = self.new_view_name(name, *temporary, sql)?;
                Ok(self.create_view(&name, *or_replace, columns, sql).await?.with_notices(notice.as_slice()))
            }
            Statement::CreateFunction { name, or_replace, definition } => {
                self.create_function(name, *or_replace, definition).await
            }
            Statement::DropFunctions { functions, if_exists, cascade } => {
                self.drop_functions(functions, *if_exists, *cascade).await
            }
            Statement::Truncate { names, restarts_identity } => {
                self.truncate(&self.names(names)?, *restarts_identity).await
            }
            Statement::Backup { directory, options } => self.run_backup(directory, *options).await,
            Statement::StopLogRetention => self.stop_log_retention(),
            Statement::Checkpoint => self.checkpoint(),
            Statement::Vacuum { full, names } => self.vacuum(*full, &self.names(names)?).await,
            Statement::Set(value) => self.set(value),
            Statement::SetLocal(value) => self.set_local(value),
            Statement::Use { schema } if snapshot.has_schema(schema) => {
                self.set(&SettingValue::SearchPath(vec![schema.clone()]))
            }
            Statement::Use { schema } if self.is_attached(schema) => {
                Err(AttachError::Use { name: schema.clone() }.into())
            }
            Statement::Use { schema } => Err(QueryError::no_schema(schema)),
            Statement::Show(setting) => self.show(*setting),
            Statement::DeallocateAll => {
                self.prepared.clear();
                Ok(Outcome::Done(Done::with_tag("DEALLOCATE ALL")))
            }
            Statement::ShowAll => self.show_all(),
            Statement::Planned { .. }
            | Statement::Mutation { .. }
            | Statement::ModifyingWith { .. }
            | Statement::Begin { .. }
            | Statement::Commit
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::Release { .. }
            | Statement::SetTransaction { .. } => Ok(Outcome::Done(Done::with_tag("SET"))),
            Statement::Describe { name } => self.describe(name).await,
            Statement::DescribeQuery { query } => self.describe_query(query).await,
            Statement::ExplainExecute { name, values, options } => self.explain_execute(name, values, options).await,
            Statement::ShowTables => self.show_tables(),
            Statement::ShowDatabases => self.show_databases(),
            Statement::Attach { path, name, if_not_exists, read_only } => {
                self.attach(path, name, (*if_not_exists, *read_only))
            }
            Statement::Detach { name, if_exists } => self.detach(name, *if_exists),
            Statement::Summarize { query } => self.summarize(query).await,
            Statement::Comment { on, comment } => self.comment_on(on, comment.as_deref()).await,
        }
    }

    /// `ALTER TABLE`, whose changes of names apply to views too.
    async fn alter_relation(
        &self,
        name: &str,
        if_exists: bool,
        change: &TableChange,
        notices: &[String],
    ) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let is_view = snapshot.view(name).is_some();
        match change {
            _ if if_exists && !is_view && snapshot.table(name).is_none() => {
                let notice = format!("relation {name:?} does not exist, skipping");
                Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("ALTER TABLE") }))
            }
            TableChange::Rename(new_name) if is_view => self.rename_view(name, new_name).await,
            TableChange::Schema(changes)
                if is_view
                    && let [SchemaChange::Column(ColumnChange::Rename { column, name: new_name })] =
                        changes.as_slice() =>
            {
                self.rename_view_column(name, column, new_name).await?;
                Ok(Outcome::Done(Done::with_tag("ALTER TABLE")))
            }
            _ if is_view => Err(QueryError::NotATable { name: name.to_owned() }),
            TableChange::Design(options) => self.alter_table(name, options).await,
            TableChange::Schema(changes) => {
                let changes = self.named_changes(changes, name)?;
                Ok(self.alter_schema(name, &changes).await?.with_notices(notices))
            }
            TableChange::Rename(new_name) => self.rename_table(name, new_name).await,
        }
    }

    /// Registers batches as a table for statements of this session. Replaces batches registered under the same name.
    ///
    /// # Errors
    /// If a table or view has the name, or a batch does not match the schema.
    pub fn register(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<()> {
        let snapshot = self.snapshot();
        if snapshot.table(name).is_some() || snapshot.view(name).is_some() {
            return Err(QueryError::relation_exists(name));
        }
        self.unregister(name)?;
        let table = MemTable::try_new(schema, vec![batches])?;
        self.context.register_table(TableReference::partial(PUBLIC, name), Arc::new(table))?;
        Ok(())
    }

    /// Removes a table that [`QuerySession::register`] added. Returns whether there was one.
    ///
    /// # Errors
    /// If the name is malformed.
    pub fn unregister(&self, name: &str) -> Result<bool> {
        Ok(self.context.deregister_table(TableReference::partial(PUBLIC, name))?.is_some())
    }

    /// Returns the table names in a statement that match no table, view, file or registered batches. The caller may
    /// register batches under these names before it runs the statement.
    ///
    /// # Errors
    /// If the statement has malformed names.
    pub async fn unknown_tables(&self, statement: &Statement) -> Result<Vec<String>> {
        let tables = match statement {
            Statement::Planned { statement, .. }
            | Statement::OpenPivot { statement }
            | Statement::DescribeQuery { query: statement } => read_tables(statement)?,
            Statement::Mutation { mutation, .. } => {
                let is_other = |table: &&TableReference| **table != mutation.table;
                mutation.named_tables.iter().filter(is_other).cloned().collect()
            }
            Statement::ModifyingWith { statement, .. } => statement.read_tables(),
            Statement::CreateTable { source: TableSource::Query { query, .. }, .. } => query_tables(query)?,
            Statement::Summarize { query } => taut_sql::relations_of(query)?,
            _ => Vec::new(),
        };
        let (search_path, snapshot) = (self.search_path(), self.snapshot());
        let mut unknown = Vec::new();
        for table in tables {
            let TableReference::Bare { table } = table else { continue };
            let is_known = |name: String| snapshot.table(&name).is_some() || snapshot.view(&name).is_some();
            let is_known = search_path.candidates(&snapshot, &table).any(is_known);
            // The statement itself reports a path that cannot be read.
            let is_path = table.contains(['/', '.']);
            if !is_known && !is_path && self.files.table(&table).await.is_ok_and(|found| found.is_none()) {
                unknown.push(table.to_string());
            }
        }
        Ok(unknown)
    }

    /// State for planning and running a statement on the snapshot that it sees now.
    fn state(&self, names: Option<&Arc<Names>>) -> SessionState {
        self.state_on(self.snapshot(), names)
    }

    /// State for planning and running a statement on a given snapshot. With `names`, the tables omit columns that the
    /// statement cannot refer to by these names.
    fn state_on(&self, snapshot: Arc<Catalog>, names: Option<&Arc<Names>>) -> SessionState {
        self.state_with(self.query_catalog(snapshot, names))
    }

    /// State for planning definitions, whose names refer to relations of the session's own database.
    fn own_state_on(&self, snapshot: Arc<Catalog>) -> SessionState {
        self.state_with(self.catalog(snapshot, None))
    }

    fn state_with(&self, catalog: StatementCatalog) -> SessionState {
        let mut state = catalog.state(self.context.state());
        state.config_mut().set_extension(Arc::new(self.changes()));
        state
    }

    /// Catalog for the names that the user writes in queries.
    fn query_catalog(&self, snapshot: Arc<Catalog>, names: Option<&Arc<Names>>) -> StatementCatalog {
        let own = self.catalog(snapshot, names);
        match &self.user_session {
            Some(UserSession { database, catalog }) => catalog.for_target(database, own),
            None => own,
        }
    }

    /// Catalog of the session's own database.
    fn catalog(&self, snapshot: Arc<Catalog>, names: Option<&Arc<Names>>) -> StatementCatalog {
        // Copied first: the other fields lock the same state.
        let (relations, attached) = (self.running.lock().relations.clone(), self.attached());
        StatementCatalog {
            store: Arc::clone(&self.store),
            snapshot,
            search_path: self.search_path(),
            names: names.cloned(),
            visible: None,
            session: self.context.state_weak_ref(),
            files: Arc::clone(&self.files),
            relations,
            changed: None,
            mover: Arc::clone(self.mover.shared()),
            settings: Arc::new(self.setting_values()),
            reads: self.statement_reads(),
            are_keys_valid: self.are_keys_valid(),
            transaction_start: self.transactions.lock().start(),
            interrupt: self.interrupt(),
            prefers_merge_joins: self.running.lock().prefers_merge_joins,
            view_depth: 0,
            attached,
            database: None,
            target: None,
        }
    }

    fn table(&self, name: &str) -> Result<Arc<Table>> {
        let snapshot = self.snapshot();
        snapshot.table(name).cloned().ok_or_else(|| QueryError::no_relation(name))
    }

    fn progress_counter(&self, operation: &str, rows_total: Option<u64>) -> Option<ProgressCounter> {
        let callback = self.progress.lock().clone()?;
        Some(ProgressCounter::new(operation, rows_total, callback))
    }
}

/// Marks the columns of literal rows as nullable. DataFusion would otherwise copy the nullability of the target, and
/// its error for a null would name a generated column. The insert itself checks for nulls and names the column of the
/// table.
fn make_values_nullable(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up(|node| match node {
        LogicalPlan::Values(values) => {
            let fields = values.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
            let schema = DFSchema::from_unqualified_fields(fields.collect(), HashMap::new())?;
            let values = Values { schema: Arc::new(schema), ..values };
            Ok(Transformed::yes(LogicalPlan::Values(values)))
        }
        LogicalPlan::Projection(_) => Ok(Transformed::yes(node.recompute_schema()?)),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Tables that a statement reads. The target of an `INSERT` is not among them.
fn read_tables(statement: &PlannerStatement) -> Result<Vec<TableReference>> {
    if let PlannerStatement::Statement(ast) = statement
        && let Ast::Insert(insert) = ast.as_ref()
    {
        let Some(source) = insert.source.as_ref().filter(|source| !lists_values(source)) else {
            return Ok(Vec::new());
        };
        return query_tables(source);
    }
    Ok(resolve_table_references(statement, true)?.0)
}

/// Tables and views that a query names.
fn query_tables(query: &Query) -> Result<Vec<TableReference>> {
    let query = PlannerStatement::Statement(Box::new(Ast::Query(Box::new(query.clone()))));
    Ok(resolve_table_references(&query, true)?.0)
}

/// Drop guard: marks the transaction failed if the future of its statement is dropped early.
struct FailOnDrop<'a>(Option<&'a QuerySession>);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.mark_transaction_failed();
        }
    }
}

/// Drop guard: ends the transaction of a single statement if it is still open.
struct AutocommitGuard<'a>(&'a QuerySession);

impl Drop for AutocommitGuard<'_> {
    fn drop(&mut self) {
        self.0.discard_transaction();
    }
}

/// Whether a check or default of the constraints has a long text.
fn has_long_text(constraints: &Constraints) -> bool {
    let conditions = constraints.checks.iter().map(|check| &check.condition);
    let values = constraints.defaults.values().chain(constraints.generated.values());
    conditions.chain(values).any(|sql| taut_sql::is_long(sql))
}

/// Plans and starts an insert or a `COPY ... TO`.
async fn start_write(
    mut state: SessionState,
    plan: LogicalPlan,
    progress: Option<ProgressCounter>,
) -> Result<SendableRecordBatchStream> {
    if let Some(progress) = progress {
        state.config_mut().set_extension(Arc::new(progress));
    }
    let physical = create_physical_plan(&state, &plan).await?;
    Ok(execute_stream(physical, state.task_ctx())?)
}

fn option_pairs(options: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Runs a plan to its end and returns its rows as a stream.
async fn collect_as_stream(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<SendableRecordBatchStream> {
    let schema = plan.schema();
    Ok(stream_of_batches(schema, execute_stream(plan, state.task_ctx())?.try_collect().await?))
}

/// Stream of rows that are already computed.
fn stream_of_batches(schema: SchemaRef, rows: Vec<RecordBatch>) -> SendableRecordBatchStream {
    let rows = futures::stream::iter(rows.into_iter().map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// Adds the row counts that an insert or copy returns.
async fn sum_counts(mut stream: SendableRecordBatchStream) -> Result<u64> {
    let mut count = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        count += batch.column(0).as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
    }
    Ok(count)
}
