//! A session: runs one statement after the other, each on the newest snapshot.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Statement as PlannedStatement, Values, WriteOp, lit,
};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use futures::StreamExt;
use parking_lot::Mutex;
use taut_store::{Store, Table};
use taut_types::{LogicalType, Schema, TableDesign};

use crate::batches::Batches;
use crate::catalog::{CATALOG, PUBLIC, StatementCatalog};
use crate::error::{QueryError, Result};
use crate::files::{self, FileFormat, ReadOptions};
use crate::load::{Target, TargetTable};
use crate::parameters::Parameters;
use crate::prepared::{Prepared, PreparedStatements};
use crate::progress::{ProgressCallback, ProgressCounter};
use crate::rewrite::rewrite_blocks;
use crate::settings::Engine;
use crate::statement::{Names, Statement, TableSource};

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

/// A session on a store.
pub struct QuerySession {
    store: Arc<Store>,
    /// Settings and prepared statements. Its own catalog holds files only.
    context: SessionContext,
    files: Arc<dyn SchemaProvider>,
    threads: usize,
    progress: Mutex<Option<ProgressCallback>>,
    prepared: PreparedStatements,
}

impl QuerySession {
    /// A session with an engine's settings.
    pub fn new(store: Arc<Store>, engine: &Engine) -> Self {
        let context = engine.context().enable_url_table();
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
            threads: engine.threads(),
            progress: Mutex::new(None),
            prepared: PreparedStatements::default(),
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Whether a statement may need a larger stack than threads usually have: it, a view, or a statement that was
    /// prepared comes from a long text.
    pub fn may_be_deep(&self, statement: &Statement) -> bool {
        let is_long = match statement {
            Statement::Engine { is_long, .. } => *is_long,
            _ => true,
        };
        is_long
            || self.prepared.any_is_long()
            || self.store.snapshot().views().any(|view| crate::statement::is_long(&view.sql))
    }

    /// Says who is told of the progress of loads and rewrites.
    pub fn on_progress(&self, callback: Option<ProgressCallback>) {
        *self.progress.lock() = callback;
    }

    /// Runs a statement with values for its parameters. Rows are computed as they are read.
    ///
    /// # Errors
    /// When the statement fails; it then has changed nothing, except for the finished steps of a rewrite.
    pub async fn run(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        let takes_parameters = matches!(
            statement,
            Statement::Engine { .. } | Statement::CreateTable { source: TableSource::Query(_), .. }
        );
        if !takes_parameters && !parameters.is_empty() {
            let allowed = "queries, INSERT, COPY (query) TO and CREATE TABLE AS have parameters";
            return Err(QueryError::unsupported("a parameter in this statement", allowed));
        }
        let snapshot = self.store.snapshot();
        match statement {
            Statement::Engine { statement, names, is_long } => {
                self.run_engine(statement, names.as_ref(), *is_long, parameters).await
            }
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
            Statement::Drop { kind, names, if_exists } => self.drop_names(kind, names, *if_exists),
            Statement::AlterTable { name, options } => self.alter_table(name, options).await,
            Statement::CopyFrom { name, columns, file, options } => {
                let table = self.table(name)?;
                let options = ReadOptions::from_pairs(options)?;
                let rows = self.load(&table, columns, &[PathBuf::from(file)], &options).await?;
                Ok(Outcome::Done(Done::with_rows("COPY", rows)))
            }
            Statement::CreateView { name, or_replace, columns, sql } => {
                self.create_view(name, *or_replace, columns, sql).await
            }
            Statement::Describe { name } => self.describe(name).await,
            Statement::ShowTables => self.show_tables(),
        }
    }

    /// Loads files into a table, which is created from the first file's columns where it does not exist.
    ///
    /// # Errors
    /// As [`QuerySession::run`].
    pub async fn load_files(
        &self,
        name: &str,
        files: &[PathBuf],
        options: &ReadOptions,
        design_options: &[(String, String)],
    ) -> Result<u64> {
        let snapshot = self.store.snapshot();
        if let Some(table) = snapshot.table(name) {
            if !design_options.is_empty() {
                return Err(options_of_existing(name));
            }
            return self.load(&Arc::clone(table), &[], files, options).await;
        }
        let (_, frame) = files::read(&self.context, files, options, None).await?;
        self.fill_new_table(name, frame.into_unoptimized_plan(), design_options).await
    }

    /// Loads batches into a table, which is created from their schema where it does not exist. Each iterator runs on a
    /// thread of its own; their rows follow each other.
    ///
    /// # Errors
    /// As [`QuerySession::run`].
    pub async fn load_batches(
        &self,
        name: &str,
        schema: SchemaRef,
        partitions: Vec<Batches>,
        design_options: &[(String, String)],
    ) -> Result<u64> {
        let rows = crate::batches::plan_of(schema, partitions)?;
        match self.store.snapshot().table(name) {
            Some(table) if design_options.is_empty() => {
                self.fill(name, Target::Table(Arc::clone(table)), rows, None).await
            }
            Some(_) => Err(options_of_existing(name)),
            None => self.fill_new_table(name, rows, design_options).await,
        }
    }

    /// Gives batches a name that statements of this session can use as a table, in place of those it stood for.
    ///
    /// # Errors
    /// When a table or view has the name, or the batches differ in their columns.
    pub fn register(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<()> {
        let snapshot = self.store.snapshot();
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
            Statement::Engine { statement, .. } => resolve_table_references(statement, true)?.0,
            Statement::CreateTable { source: TableSource::Query(query), .. } => {
                let query = EngineStatement::Statement(Box::new(Ast::Query(query.clone())));
                resolve_table_references(&query, true)?.0
            }
            _ => Vec::new(),
        };
        let snapshot = self.store.snapshot();
        let mut unknown = Vec::new();
        for table in tables {
            let TableReference::Bare { table } = table else { continue };
            let is_known = snapshot.table(&table).is_some() || snapshot.view(&table).is_some();
            let is_path = table.contains(['/', '.']);
            if !is_known && !is_path && self.files.table(&table).await.is_ok_and(|found| found.is_none()) {
                unknown.push(table.to_string());
            }
        }
        Ok(unknown)
    }

    /// The state in which a statement is planned and run, on the newest snapshot. Columns that it cannot mean by these
    /// names are left out of the tables.
    fn state(&self, names: Option<&Arc<Names>>) -> SessionState {
        let catalog = StatementCatalog {
            store: Arc::clone(&self.store),
            snapshot: self.store.snapshot(),
            names: names.cloned(),
            session: self.context.state_weak_ref(),
            files: Arc::clone(&self.files),
            view_depth: 0,
        };
        catalog.state(self.context.state())
    }

    fn table(&self, name: &str) -> Result<Arc<Table>> {
        let snapshot = self.store.snapshot();
        snapshot.table(name).cloned().ok_or_else(|| QueryError::NotFound { kind: "table", name: name.to_owned() })
    }

    async fn run_engine(
        &self,
        statement: &EngineStatement,
        names: Option<&Arc<Names>>,
        is_long: bool,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        let (state, plan) = self.plan(statement, names).await?;
        let LogicalPlan::Statement(planned) = plan else {
            return self.run_plan(state, parameters.bind(plan)?).await;
        };
        if !parameters.is_empty() {
            return Err(QueryError::unsupported("a parameter in this statement", "EXECUTE name(...) takes values"));
        }
        match planned {
            PlannedStatement::Prepare(prepare) => {
                verb_of(&prepare.input)?;
                let prepared = Prepared { statement: statement.clone(), names: names.cloned(), is_long };
                self.prepared.insert(&prepare.name, prepared)?;
                Ok(Outcome::Done(Done::of("PREPARE")))
            }
            PlannedStatement::Execute(execute) => {
                let prepared = self.prepared.get(&execute.name)?;
                let (state, plan) = self.plan(&prepared.statement, prepared.names.as_ref()).await?;
                let context = SessionContext::new_with_state(state);
                context.execute_logical_plan(plan).await?;
                let execute = LogicalPlan::Statement(PlannedStatement::Execute(execute));
                let (state, plan) = context.execute_logical_plan(execute).await?.into_parts();
                self.run_plan(state, plan).await
            }
            PlannedStatement::Deallocate(deallocate) => {
                self.prepared.remove(&deallocate.name)?;
                Ok(Outcome::Done(Done::of("DEALLOCATE")))
            }
            other => {
                let frame = self.context.execute_logical_plan(LogicalPlan::Statement(other)).await?;
                match frame.schema().fields().is_empty() {
                    true => Ok(Outcome::Done(Done::of("SET"))),
                    false => Ok(Outcome::Rows(frame.execute_stream().await?)),
                }
            }
        }
    }

    /// Plans a statement on the newest snapshot.
    async fn plan(
        &self,
        statement: &EngineStatement,
        names: Option<&Arc<Names>>,
    ) -> Result<(SessionState, LogicalPlan)> {
        let mut state = self.state(names);
        let mut plan = state.statement_to_plan(statement.clone()).await;
        if plan.is_err() && names.is_some() {
            // With all columns the message can say which there are.
            state = self.state(None);
            plan = state.statement_to_plan(statement.clone()).await;
        }
        Ok((state, plan?))
    }

    /// Runs a query or what writes its rows.
    async fn run_plan(&self, state: SessionState, plan: LogicalPlan) -> Result<Outcome> {
        let Some(verb) = verb_of(&plan)? else { return Ok(Outcome::Rows(start(state, plan, None).await?)) };
        let operation = match &plan {
            LogicalPlan::Dml(dml) => format!("insert into {}", dml.table_name.table()),
            _ => "copy".to_owned(),
        };
        let plan = nullable_values(plan)?;
        let rows = count_of(start(state, plan, self.counter(&operation, None)).await?).await?;
        Ok(Outcome::Done(Done::with_rows(verb, rows)))
    }

    fn counter(&self, operation: &str, rows_total: Option<u64>) -> Option<ProgressCounter> {
        let callback = self.progress.lock().clone()?;
        Some(ProgressCounter::new(operation, rows_total, callback))
    }

    async fn create_table(
        &self,
        name: &str,
        source: &TableSource,
        options: &[(String, String)],
        parameters: &Parameters,
    ) -> Result<Done> {
        match source {
            TableSource::Columns(columns) => {
                let schema = Schema::new(columns.clone())?;
                let design = TableDesign::from_options(pairs(options), &schema)?;
                self.store().commit(|edit| edit.create_table(name, schema, design).map(drop))?;
                Ok(Done::of("CREATE TABLE"))
            }
            TableSource::Query(query) => {
                let statement = Ast::Query(query.clone());
                let plan = self.state(None).statement_to_plan(EngineStatement::Statement(Box::new(statement))).await?;
                let rows = self.fill_new_table(name, parameters.bind(plan)?, options).await?;
                Ok(Done { rows: Some(rows), ..Done::of("CREATE TABLE") })
            }
        }
    }

    /// Creates a table of a plan's columns and fills it with its rows. All columns are nullable.
    async fn fill_new_table(&self, name: &str, rows: LogicalPlan, options: &[(String, String)]) -> Result<u64> {
        let columns = Schema::from_arrow(rows.schema().as_arrow())?.columns().to_vec();
        let nullable = columns.into_iter().map(|column| taut_types::Column { nullable: true, ..column });
        let schema = Schema::new(nullable.collect())?;
        let design = TableDesign::from_options(pairs(options), &schema)?;
        let target = Target::NewTable { name: name.to_owned(), schema: Arc::new(schema), design: Arc::new(design) };
        self.fill(name, target, rows, None).await
    }

    async fn fill(&self, name: &str, target: Target, rows: LogicalPlan, rows_total: Option<u64>) -> Result<u64> {
        let progress = self.counter(&format!("load {name}"), rows_total);
        let provider = TargetTable { store: Arc::clone(self.store()), target };
        let source = provider_as_source(Arc::new(provider));
        let plan =
            LogicalPlanBuilder::insert_into(rows, TableReference::bare(name), source, InsertOp::Append)?.build()?;
        count_of(start(self.state(None), plan, progress).await?).await
    }

    async fn load(
        &self,
        table: &Arc<Table>,
        columns: &[String],
        files: &[PathBuf],
        options: &ReadOptions,
    ) -> Result<u64> {
        let in_file = file_columns(table, columns)?;
        let (format, frame) = files::read(&self.context, files, options, Some(&in_file)).await?;
        let plan = arranged(table, &in_file, format, frame)?;
        self.fill(&table.name, Target::Table(Arc::clone(table)), plan, None).await
    }

    fn drop_names(&self, kind: &'static str, names: &[String], if_exists: bool) -> Result<Outcome> {
        let snapshot = self.store.snapshot();
        let mut notices = Vec::new();
        let (mut tables, mut views) = (Vec::new(), Vec::new());
        for name in names {
            match (kind, snapshot.table(name), snapshot.view(name)) {
                ("table", Some(table), _) => tables.push(table.id),
                ("view", _, Some(_)) => views.push(name.as_str()),
                _ if if_exists => notices.push(format!("{kind} {name:?} does not exist; it was skipped")),
                _ => return Err(QueryError::NotFound { kind, name: name.clone() }),
            }
        }
        self.store().commit(|edit| {
            tables.iter().try_for_each(|table| edit.drop_table(*table))?;
            views.iter().try_for_each(|view| edit.drop_view(view))
        })?;
        Ok(Outcome::Done(Done { notices, ..Done::of(&format!("DROP {}", kind.to_uppercase())) }))
    }

    async fn alter_table(&self, name: &str, options: &[(String, String)]) -> Result<Outcome> {
        let table = self.table(name)?;
        let design = Arc::new(table.design.with_options(pairs(options), &table.schema)?);
        let rows = if design.sort_by == table.design.sort_by || design.sort_by.is_empty() {
            let progress = self.counter(&format!("rewrite {name}"), Some(table.rows()));
            rewrite_blocks(self.store(), &table, design, self.threads, progress).await?
        } else {
            let scan = SessionContext::new_with_state(self.state(None));
            let scan = scan.table(TableReference::partial(PUBLIC, name)).await?.into_unoptimized_plan();
            let rows_total = Some(table.rows());
            self.fill(name, Target::Sorted { table, design }, scan, rows_total).await?
        };
        Ok(Outcome::Done(Done { rows: Some(rows), ..Done::of("ALTER TABLE") }))
    }

    async fn create_view(&self, name: &str, or_replace: bool, columns: &[String], sql: &str) -> Result<Outcome> {
        let snapshot = self.store.snapshot();
        if snapshot.table(name).is_some() || (snapshot.view(name).is_some() && !or_replace) {
            return Err(QueryError::Exists { kind: "table or view", name: name.to_owned() });
        }
        let quote = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let sql = match columns {
            [] => sql.to_owned(),
            columns => {
                let names: Vec<_> = columns.iter().map(quote).collect();
                format!("SELECT * FROM ({sql}) AS {}({})", quote(&name.to_owned()), names.join(", "))
            }
        };
        // A view that cannot be planned today is refused.
        for statement in crate::statement::parse(&sql)? {
            match statement {
                Statement::Engine { statement, .. } => drop(self.state(None).statement_to_plan(*statement).await?),
                _ => return Err(QueryError::unsupported("a view of this statement", "a view is a query")),
            }
        }
        let exists = snapshot.view(name).is_some();
        self.store().commit(|edit| {
            if exists {
                edit.drop_view(name)?;
            }
            edit.create_view(name, &sql)
        })?;
        Ok(Outcome::Done(Done::of("CREATE VIEW")))
    }

    async fn describe(&self, name: &TableReference) -> Result<Outcome> {
        let context = SessionContext::new_with_state(self.state(None));
        let provider = context.table_provider(name.clone()).await?;
        let arrow = provider.schema();
        let fields = || arrow.fields().iter();
        let type_name = |field: &Arc<Field>| {
            LogicalType::from_arrow(field.data_type()).map_or_else(|| field.data_type().to_string(), |t| t.sql_name())
        };
        let yes_no = |field: &Arc<Field>| if field.is_nullable() { "YES" } else { "NO" };
        rows(&[
            ("column_name", fields().map(|field| field.name().clone()).collect()),
            ("data_type", fields().map(type_name).collect()),
            ("is_nullable", fields().map(|field| yes_no(field).to_owned()).collect()),
        ])
    }

    fn show_tables(&self) -> Result<Outcome> {
        let snapshot = self.store.snapshot();
        let tables = snapshot.tables().map(|table| (table.name.clone(), "table", table.design.layout.name()));
        let views = snapshot.views().map(|view| (view.name.clone(), "view", ""));
        let mut all: Vec<_> = tables.chain(views).collect();
        all.sort();
        rows(&[
            ("table_name", all.iter().map(|(name, ..)| name.clone()).collect()),
            ("table_type", all.iter().map(|(_, kind, _)| (*kind).to_owned()).collect()),
            ("layout", all.iter().map(|(.., layout)| (*layout).to_owned()).collect()),
        ])
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
        LogicalPlan::Dml(dml) => {
            Err(QueryError::unsupported(dml.op.name(), "INSERT INTO adds rows; the rest comes with transactions"))
        }
        LogicalPlan::Copy(_) => Ok(Some("COPY")),
        _ => Ok(None),
    }
}

/// Plans and starts a query or an insert.
async fn start(
    mut state: SessionState,
    plan: LogicalPlan,
    progress: Option<ProgressCounter>,
) -> Result<SendableRecordBatchStream> {
    if let Some(progress) = progress {
        state.config_mut().set_extension(Arc::new(progress));
    }
    let physical = state.create_physical_plan(&plan).await?;
    Ok(execute_stream(physical, state.task_ctx())?)
}

fn options_of_existing(name: &str) -> QueryError {
    let what = format!("options for table {name:?}, which exists");
    QueryError::unsupported(what, "ALTER TABLE ... SET changes the design of a table")
}

fn pairs(options: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// The table's columns that a file holds, in the file's order.
fn file_columns(table: &Table, names: &[String]) -> Result<Schema> {
    if names.is_empty() {
        return Ok(table.schema.as_ref().clone());
    }
    let column = |name: &String| match table.schema.index_of(name) {
        Some(index) => Ok(table.schema.column(index).clone()),
        None => Err(QueryError::NotFound { kind: "column", name: format!("{}.{name}", table.name) }),
    };
    Ok(Schema::new(names.iter().map(column).collect::<Result<_>>()?)?)
}

/// The rows of files as rows of a table. CSV holds columns by place; Parquet and JSON by name, where a name that
/// differs in case alone will do. A column that is in no file is null.
fn arranged(table: &Table, in_file: &Schema, format: FileFormat, frame: DataFrame) -> Result<LogicalPlan> {
    let found: Vec<String> = frame.schema().fields().iter().map(|field| field.name().clone()).collect();
    let by_name = format == FileFormat::Parquet;
    let place_of = |name: &str| {
        let exact = found.iter().position(|other| other == name);
        exact.or_else(|| found.iter().position(|other| other.eq_ignore_ascii_case(name)))
    };
    if by_name
        && let Some(extra) =
            found.iter().find(|name| !in_file.columns().iter().any(|c| c.name.eq_ignore_ascii_case(name)))
    {
        return Err(QueryError::unsupported(
            format!("column {extra:?} of the file, which table {:?} does not have", table.name),
            "select the columns: INSERT INTO t SELECT a, b FROM 'file.parquet'",
        ));
    }
    let mut expressions = Vec::with_capacity(table.schema.len());
    for column in table.schema.columns() {
        let place = if in_file.index_of(&column.name).is_some() { place_of(&column.name) } else { None };
        expressions.push(match place {
            Some(place) => Expr::Column(Column::from(frame.schema().qualified_field(place))).alias(&column.name),
            None if by_name && !column.nullable => {
                return Err(QueryError::NotFound { kind: "column", name: format!("{} in the file", column.name) });
            }
            None => lit(ScalarValue::try_from(&column.logical_type.arrow())?).alias(&column.name),
        });
    }
    Ok(frame.select(expressions)?.into_unoptimized_plan())
}

/// Rows of text that are known at once.
fn rows(columns: &[(&str, Vec<String>)]) -> Result<Outcome> {
    let fields: Vec<_> = columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, false)).collect();
    let schema: SchemaRef = Arc::new(ArrowSchema::new(fields));
    let arrays = columns.iter().map(|(_, values)| Arc::new(StringArray::from(values.clone())) as ArrayRef).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(datafusion::common::DataFusionError::from)?;
    let stream = futures::stream::once(async move { Ok(batch) });
    Ok(Outcome::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
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
