//! A session: runs one statement after the other, each on the newest snapshot.

mod backup;
mod constraints;
mod ddl;
mod explain;
mod fill;
mod indexes;
mod insert_values;
mod keys;
mod merge_join;
mod merged;
mod mutate;
mod queries;
mod staged_file;
mod transactions;
mod upkeep;
mod written;

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
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{LogicalPlan, Values, WriteOp};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use taut_store::{Catalog, Constraints, Store, Table};
use tokio_util::sync::CancellationToken;

use crate::catalog::StatementCatalog;
use crate::error::{QueryError, Result};
use crate::files::ReadOptions;
use crate::kept::Texts;
use crate::mover::Mover;
use crate::operators::Interrupt;
use crate::prepared::PreparedStatements;
use crate::progress::{ProgressCallback, ProgressCounter};
use crate::reads::create_physical_plan;
use crate::statement::{CATALOG, Names, PUBLIC, Parameters, Statement, TableSource, inserts_values, lists_values};
use crate::table::TautTable;

use self::insert_values::InsertTargets;
use self::merge_join::{is_out_of_memory, memory_is_back};
use self::mutate::Mutate;
use self::queries::{Planning, Run};
use self::transactions::Transactions;

/// What a statement gives.
pub enum Outcome {
    /// Rows, as they are computed.
    Rows(SendableRecordBatchStream),
    /// That it is done.
    Done(Done),
}

/// A statement that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What was done, such as `CREATE TABLE` or `INSERT 3`.
    pub tag: String,
    /// Rows written, where rows were.
    pub rows: Option<u64>,
    /// What the user should know.
    pub notices: Vec<String>,
}

impl Done {
    fn of(tag: &str) -> Self {
        Self { tag: tag.to_owned(), rows: None, notices: Vec::new() }
    }

    fn with_rows(verb: &str, rows: u64) -> Self {
        Self { tag: format!("{verb} {rows}"), rows: Some(rows), notices: Vec::new() }
    }
}

/// What concerns the statement that runs.
#[derive(Default)]
struct Running {
    interrupt: Interrupt,
    /// Whether it is run a second time, because its hash joins did not fit in memory.
    prefers_merge_joins: bool,
}

/// A session on a store.
pub struct QuerySession {
    store: Arc<Store>,
    /// Settings and prepared statements. Its own catalog holds files only.
    context: SessionContext,
    files: Arc<dyn SchemaProvider>,
    threads: usize,
    mover: Arc<Mover>,
    progress: Mutex<Option<ProgressCallback>>,
    prepared: PreparedStatements,
    texts: Texts,
    planning: Planning,
    insert_targets: InsertTargets,
    /// For the definitions of a catalog, whether one is a long text.
    defines_long: Mutex<Option<(u64, bool)>>,
    transactions: Mutex<Transactions>,
    running: Mutex<Running>,
    /// Time limit of each statement.
    statement_timeout: Mutex<Option<Duration>>,
}

impl QuerySession {
    /// A session on the store of a mover, with the settings of its engine.
    pub fn new(store: Arc<Store>, mover: Arc<Mover>) -> Self {
        let context = mover.engine().context().enable_url_table();
        let nothing: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
        let catalog = MemoryCatalogProvider::new();
        // A fresh catalog takes any schema.
        let _ = catalog.register_schema(PUBLIC, Arc::clone(&nothing));
        context.register_catalog(CATALOG, Arc::new(catalog));
        let files = context.catalog(CATALOG).and_then(|catalog| catalog.schema(PUBLIC)).unwrap_or(nothing);
        Self {
            store,
            context,
            files,
            threads: mover.engine().threads(),
            mover,
            progress: Mutex::new(None),
            prepared: PreparedStatements::default(),
            texts: Texts::default(),
            planning: Planning::new(),
            insert_targets: InsertTargets::default(),
            defines_long: Mutex::default(),
            transactions: Mutex::default(),
            running: Mutex::default(),
            statement_timeout: Mutex::default(),
        }
    }

    /// Ends the statements that are run from now on when `token` is cancelled. `is_settled` becomes true when a statement
    /// begins to commit: from then on it must be waited for, since its changes may be there.
    pub fn interrupt_by(&self, token: CancellationToken, is_settled: Arc<AtomicBool>) {
        *self.running.lock() = Running { interrupt: Interrupt::new(token, is_settled), prefers_merge_joins: false };
    }

    fn interrupt(&self) -> Interrupt {
        self.running.lock().interrupt.clone()
    }

    /// Whether a statement takes little time until it is done or its first row is asked for: it is planned already, ends or
    /// begins a transaction, or is short and inserts the values that it lists.
    pub fn computes_little(&self, statement: &Statement) -> bool {
        match statement {
            Statement::Begin { .. }
            | Statement::Commit
            | Statement::Savepoint { .. }
            | Statement::Release { .. }
            | Statement::SetTransaction { .. }
            | Statement::Rollback { .. } => true,
            Statement::Engine { statement, is_long: false, .. } if inserts_values(statement) => true,
            other => self.has_plan(other),
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Settings of the session, without its tables.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// A stored table as the newest snapshot has it.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn table_provider(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(TautTable::new(Arc::clone(&self.store), self.table(name)?, None)))
    }

    /// Whether a statement may need a larger stack than threads usually have: it, a view, or a statement that was
    /// prepared comes from a long text.
    pub fn may_be_deep(&self, statement: &Statement) -> bool {
        let is_long = match statement {
            Statement::Engine { .. } | Statement::Mutation { .. } | Statement::Execute { .. } => statement.is_long(),
            _ => true,
        };
        is_long || self.prepared.any_is_long() || self.defines_long()
    }

    /// Whether a view or a constraint is a long text.
    fn defines_long(&self) -> bool {
        let snapshot = self.snapshot();
        let mut known = self.defines_long.lock();
        if let Some((definitions, defines_long)) = *known
            && definitions == snapshot.definitions()
        {
            return defines_long;
        }
        let defines_long = snapshot.views().any(|view| crate::statement::is_long(&view.sql))
            || snapshot.tables().any(|table| has_long(&table.constraints));
        *known = Some((snapshot.definitions(), defines_long));
        defines_long
    }

    /// Says who is told of the progress of loads, rewrites and queries.
    pub fn on_progress(&self, callback: Option<ProgressCallback>) {
        *self.progress.lock() = callback;
    }

    /// Runs a statement with values for its parameters. Rows are computed as they are read.
    ///
    /// # Errors
    /// When the statement fails; it then has changed nothing, except for the finished steps of a rewrite.
    pub async fn run(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        if let Some(done) = self.control(statement)? {
            if matches!(statement, Statement::Commit) {
                self.interrupt().run_leftover(self.tend()).await;
            }
            return Ok(done);
        }
        if self.wants_transaction(statement) {
            return self.run_alone(statement, parameters).await;
        }
        self.begin_statement()?;
        let mut unfinished = Unfinished(Some(self));
        let outcome = self.run_in_memory(statement, parameters).await;
        if let Err(QueryError::Constraint(violation)) = &outcome {
            self.was_refused(violation);
        }
        let outcome = outcome?;
        unfinished.0 = None;
        let has_changed = matches!(outcome, Outcome::Done(Done { rows: Some(_), .. }));
        if has_changed || matches!(statement, Statement::Mutation { .. } | Statement::Execute { .. }) {
            self.interrupt().run_leftover(self.tend()).await;
        }
        Ok(outcome)
    }

    /// Runs a statement as a transaction that is begun before it is planned.
    async fn run_alone(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        self.control(&Statement::Begin { isolation: None, read_only: None })?;
        let alone = Alone(self);
        self.begin_statement()?;
        let outcome = self.run_in_memory(statement, parameters).await?;
        self.control(&Statement::Commit)?;
        drop(alone);
        self.interrupt().run_leftover(self.tend()).await;
        Ok(outcome)
    }

    /// Runs a statement, with joins that spill where others do not fit in memory.
    async fn run_in_memory(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        match self.run_statement(statement, parameters).await {
            Err(error) if is_out_of_memory(&error) && self.interrupt().has_hash_join() => {}
            outcome => return outcome,
        }
        memory_is_back(&self.context.runtime_env()).await;
        // It has changed nothing: changes are made when all of them are known.
        self.running.lock().prefers_merge_joins = true;
        let outcome = Box::pin(self.run_statement(statement, parameters)).await;
        self.running.lock().prefers_merge_joins = false;
        outcome
    }

    async fn run_statement(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        let takes_parameters = matches!(
            statement,
            Statement::Engine { .. }
                | Statement::Mutation { .. }
                | Statement::CreateTable { source: TableSource::Query(_), .. }
        );
        if !takes_parameters && !parameters.is_empty() {
            let allowed = "queries, INSERT, UPDATE, DELETE, MERGE, COPY (query) TO and CREATE TABLE AS have parameters";
            return Err(QueryError::unsupported("a parameter in this statement", allowed));
        }
        if let Some(what) = defines(statement) {
            self.check_may_write(what)?;
        }
        if let Some(what) = maintains(statement).filter(|_| self.store.is_read_only()) {
            self.check_may_write(what)?;
        }
        match statement {
            Statement::Engine { statement, names, is_long, plan } => {
                let run = Run { statement, names: names.as_ref(), is_long: *is_long, plan: plan.get_or_default() };
                self.run_engine(&run, parameters).await
            }
            Statement::Mutation { mutation, names, plan, explain, .. } => {
                let analyze = explain.as_ref().filter(|options| options.analyze);
                let plan = plan.get_or_default();
                let mutate = Mutate { mutation, names: names.as_ref(), parameters, plan, analyze };
                match explain {
                    Some(options) if !options.analyze => Box::pin(self.explain_mutation(&mutate, options)).await,
                    _ => self.mutate(&mutate).await,
                }
            }
            // Futures that are awaited here are in this one, whatever statement it is for, and many statements are short.
            other => Box::pin(self.run_other(other, parameters)).await,
        }
    }

    /// Runs a statement that is neither a query nor a change of rows.
    async fn run_other(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        let snapshot = self.snapshot();
        match statement {
            Statement::Prepare { name, mutation } => self.prepare(name, mutation).await,
            Statement::Execute { name, values, statement } => self.execute(name, values, statement).await,
            Statement::CreateTable { name, if_not_exists, source, options, notices } => {
                let taken = snapshot.table(name).is_some() || snapshot.view(name).is_some();
                if taken && *if_not_exists {
                    let notice = format!("table {name:?} already exists; nothing was done");
                    return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::of("CREATE TABLE") }));
                }
                if taken {
                    return Err(QueryError::Exists { kind: "table or view", name: name.clone() });
                }
                let mut done = self.create_table(name, source, options, parameters).await?;
                done.notices.extend(notices.iter().cloned());
                Ok(Outcome::Done(done))
            }
            Statement::CreateIndex(index) => self.create_index(index).await,
            Statement::Drop { kind: "index", names, if_exists } => self.drop_indexes(names, *if_exists).await,
            Statement::Drop { kind, names, if_exists } => self.drop_names(kind, names, *if_exists),
            Statement::AlterTable { name, options } => self.alter_table(name, options).await,
            Statement::AlterConstraints { name, changes } => self.alter_constraints(name, changes).await,
            Statement::CopyFrom { name, columns, file, options } => {
                let table = self.table(name)?;
                let options = ReadOptions::from_pairs(options)?;
                let rows = self.load(&table, columns, &[file.into()], &options).await?;
                Ok(Outcome::Done(Done::with_rows("COPY", rows)))
            }
            Statement::CreateView { name, or_replace, columns, sql } => {
                self.create_view(name, *or_replace, columns, sql).await
            }
            Statement::Truncate { names } => self.truncate(names).await,
            Statement::Backup { directory, options } => self.run_backup(directory, *options).await,
            Statement::StopLogRetention => self.stop_log_retention(),
            Statement::Checkpoint => self.checkpoint(),
            Statement::Vacuum { full, names } => self.vacuum(*full, names).await,
            Statement::SetTempDirectory(directory) => self.set_temp_directory(directory.as_deref()),
            Statement::ShowTempDirectory => self.show_temp_directory(),
            Statement::SetStatementTimeout(limit) => Ok(self.set_statement_timeout(*limit)),
            Statement::ShowStatementTimeout => self.show_statement_timeout(),
            Statement::SetSynchronous(synchronous) => Ok(self.set_synchronous(*synchronous)),
            Statement::ShowSynchronous => self.show_synchronous(),
            Statement::SetMover(is_on) => Ok(self.set_mover(*is_on)),
            Statement::ShowMover => self.show_mover(),
            Statement::ShowReadOnly { setting } => self.show_read_only(setting),
            Statement::Engine { .. }
            | Statement::Mutation { .. }
            | Statement::Begin { .. }
            | Statement::Commit
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::Release { .. }
            | Statement::SetTransaction { .. } => Ok(Outcome::Done(Done::of("SET"))),
            Statement::Describe { name } => self.describe(name).await,
            Statement::ShowTables => self.show_tables(),
        }
    }

    /// Gives batches a name that statements of this session can use as a table, in place of those it stood for.
    ///
    /// # Errors
    /// When a table or view has the name, or the batches differ in their columns.
    pub fn register(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<()> {
        let snapshot = self.snapshot();
        if snapshot.table(name).is_some() || snapshot.view(name).is_some() {
            return Err(QueryError::Exists { kind: "table or view", name: name.to_owned() });
        }
        self.unregister(name)?;
        let table = MemTable::try_new(schema, vec![batches])?;
        self.context.register_table(TableReference::partial(PUBLIC, name), Arc::new(table))?;
        Ok(())
    }

    /// Takes a name back that was given by [`QuerySession::register`], and tells whether it was.
    ///
    /// # Errors
    /// When the name is malformed.
    pub fn unregister(&self, name: &str) -> Result<bool> {
        Ok(self.context.deregister_table(TableReference::partial(PUBLIC, name))?.is_some())
    }

    /// The names of tables in a statement that are neither tables, views, files nor registered: what a caller may
    /// register before it is run.
    ///
    /// # Errors
    /// When the statement has malformed names.
    pub async fn unknown_tables(&self, statement: &Statement) -> Result<Vec<String>> {
        let tables = match statement {
            Statement::Engine { statement, .. } => read_tables(statement)?,
            Statement::Mutation { mutation, .. } => {
                let is_other = |table: &&TableReference| table.table() != mutation.table;
                mutation.named.iter().filter(is_other).cloned().collect()
            }
            Statement::CreateTable { source: TableSource::Query(query), .. } => {
                let query = EngineStatement::Statement(Box::new(Ast::Query(query.clone())));
                resolve_table_references(&query, true)?.0
            }
            _ => Vec::new(),
        };
        let snapshot = self.snapshot();
        let mut unknown = Vec::new();
        for table in tables {
            let TableReference::Bare { table } = table else { continue };
            let is_known = snapshot.table(&table).is_some() || snapshot.view(&table).is_some();
            // A path that cannot be read is reported by the statement.
            let is_path = table.contains(['/', '.']);
            if !is_known && !is_path && self.files.table(&table).await.is_ok_and(|found| found.is_none()) {
                unknown.push(table.to_string());
            }
        }
        Ok(unknown)
    }

    /// The state in which a statement is planned and run, on the newest snapshot.
    fn state(&self, names: Option<&Arc<Names>>) -> SessionState {
        self.state_on(self.snapshot(), names)
    }

    /// As [`QuerySession::state`], on a snapshot. Columns that the statement cannot mean by these names are left out of
    /// the tables.
    fn state_on(&self, snapshot: Arc<Catalog>, names: Option<&Arc<Names>>) -> SessionState {
        let mut state = self.catalog(snapshot, names).state(self.context.state());
        state.config_mut().set_extension(Arc::new(self.changes().settling(self.interrupt())));
        state
    }

    fn catalog(&self, snapshot: Arc<Catalog>, names: Option<&Arc<Names>>) -> StatementCatalog {
        StatementCatalog {
            store: Arc::clone(&self.store),
            snapshot,
            names: names.cloned(),
            session: self.context.state_weak_ref(),
            files: Arc::clone(&self.files),
            relations: Vec::new(),
            mover: Arc::clone(self.mover.shared()),
            reads: self.statement_reads(),
            keys_hold: self.keys_hold(),
            interrupt: self.interrupt(),
            prefers_merge_joins: self.running.lock().prefers_merge_joins,
            view_depth: 0,
        }
    }

    fn table(&self, name: &str) -> Result<Arc<Table>> {
        let snapshot = self.snapshot();
        snapshot.table(name).cloned().ok_or_else(|| QueryError::NotFound { kind: "table", name: name.to_owned() })
    }

    fn counter(&self, operation: &str, rows_total: Option<u64>) -> Option<ProgressCounter> {
        let callback = self.progress.lock().clone()?;
        Some(ProgressCounter::new(operation, rows_total, callback))
    }
}

/// A plan whose literal rows may hold nulls: the engine takes them to be as the target's columns, and would name a column
/// of its own where one is null that must not be. The insert checks, and names the table's.
fn nullable_values(plan: LogicalPlan) -> Result<LogicalPlan> {
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

/// The tables that a statement reads: not the one that it inserts into.
fn read_tables(statement: &EngineStatement) -> Result<Vec<TableReference>> {
    if let EngineStatement::Statement(ast) = statement
        && let Ast::Insert(insert) = ast.as_ref()
    {
        let Some(source) = insert.source.as_ref().filter(|source| !lists_values(source)) else {
            return Ok(Vec::new());
        };
        let query = EngineStatement::Statement(Box::new(Ast::Query(source.clone())));
        return Ok(resolve_table_references(&query, true)?.0);
    }
    Ok(resolve_table_references(statement, true)?.0)
}

/// Says that a statement failed that has not ended: also one that nobody waits for any more.
struct Unfinished<'a>(Option<&'a QuerySession>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.statement_failed();
        }
    }
}

/// Ends the transaction of a statement of its own, however that ends.
struct Alone<'a>(&'a QuerySession);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Whether constraints have a long expression.
fn has_long(constraints: &Constraints) -> bool {
    let conditions = constraints.checks.iter().map(|check| &check.condition);
    conditions.chain(constraints.defaults.values()).any(|sql| crate::statement::is_long(sql))
}

/// What a statement is called that changes what there is, and is planned here.
fn defines(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::CreateTable { source: TableSource::Query(_), .. } => "CREATE TABLE AS",
        Statement::CreateTable { .. } => "CREATE TABLE",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::Drop { kind: "view", .. } => "DROP VIEW",
        Statement::Drop { kind: "index", .. } => "DROP INDEX",
        Statement::Drop { .. } => "DROP TABLE",
        Statement::AlterTable { .. } | Statement::AlterConstraints { .. } => "ALTER TABLE",
        Statement::CopyFrom { .. } => "COPY FROM",
        Statement::CreateView { .. } => "CREATE VIEW",
        _ => return None,
    })
}

/// The name of a statement that changes how a database is stored, and not what it holds.
fn maintains(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::Checkpoint => "CHECKPOINT",
        Statement::Vacuum { .. } => "VACUUM",
        Statement::StopLogRetention => "BACKUP DATABASE STOP LOG",
        Statement::SetMover(true) => "SET mover = on",
        _ => return None,
    })
}

/// What a plan does beside giving rows.
///
/// # Errors
/// When it is not supported.
fn verb_of(plan: &LogicalPlan) -> Result<Option<&'static str>> {
    match plan {
        LogicalPlan::Ddl(ddl) => {
            Err(QueryError::unsupported(ddl.name(), "tables and views can be created, altered and dropped"))
        }
        LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Insert(InsertOp::Append)) => Ok(Some("INSERT")),
        LogicalPlan::Dml(dml) => Err(QueryError::unsupported(
            dml.op.name(),
            "INSERT, UPDATE, DELETE and MERGE as statements of their own are",
        )),
        LogicalPlan::Copy(_) => Ok(Some("COPY")),
        _ => Ok(None),
    }
}

/// Plans and starts an insert.
async fn start(
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

fn pairs(options: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Runs a plan to its end, and gives its rows.
async fn collected(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<SendableRecordBatchStream> {
    let schema = plan.schema();
    Ok(ready(schema, execute_stream(plan, state.task_ctx())?.try_collect().await?))
}

/// Rows that are there.
fn ready(schema: SchemaRef, rows: Vec<RecordBatch>) -> SendableRecordBatchStream {
    let rows = futures::stream::iter(rows.into_iter().map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The sum of the one count that an insert or copy yields.
async fn count_of(mut stream: SendableRecordBatchStream) -> Result<u64> {
    let mut count = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        count += batch.column(0).as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
    }
    Ok(count)
}
