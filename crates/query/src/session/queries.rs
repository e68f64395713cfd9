//! Statements that DataFusion plans. Queries run from a cached plan if there is one. Inserts, `COPY ... TO` and other
//! such statements are planned each time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::DataFusionError;
use datafusion::common::config::ExecutionOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, Statement as PlannedStatement, WriteOp};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use futures::StreamExt;
use parking_lot::Mutex;
use taut_sql::{Attachment, Names, ObjectKind, Parameters, Statement, Value};
use taut_store::{AttachedSnapshot, Catalog, Table};

use super::dml::MutationRequest;
use super::merge_join::{wait_for_memory, with_merge_join_fallback, with_merge_joins_preferred};
use super::merged_stream::execute_merged;
use super::staged_file::StagedFile;
use super::{Done, Outcome, QuerySession, collect_as_stream, make_values_nullable, start_write, sum_counts};
use crate::error::{QueryError, Result};
use crate::exec::operators::make_interruptible;
use crate::exec::reads::{create_physical_plan, withdraw_reads};
use crate::exec::scan::{self, TautTable};
use crate::expressions::{is_float, read_floats};
use crate::plan::assignment_cast::with_assignment_casts;
use crate::plan::cache::{CacheEntry, CacheKey, CacheLookup, CachedDml, CachedPlan};
use crate::plan::copied_columns::without_generated_columns;
use crate::plan::insert_columns::{
    check_given_values, insert_of_listed_values, inserts_query_of_values, with_first_columns,
};
use crate::plan::parameters::BindParameters;
use crate::plan::statement_to_plan;
use crate::runtime::progress::{Progress, ProgressCallback, ProgressCounter, ScanProgress};
use crate::write::changes::Changes;

/// Settings of DataFusion's own spill files. They are rejected, because `runtime/spill.rs` creates the spill files.
pub(super) const SPILL_SETTINGS: [&str; 3] = [
    "datafusion.runtime.temp_directory",
    "datafusion.runtime.max_temp_directory_size",
    "datafusion.runtime.max_spill_merge_fan_in",
];

/// Maximum number of batches that are computed ahead of the reader.
const BATCHES_AHEAD: usize = 2;

/// State of a session that its plans depend on. It is part of each [`CacheKey`].
pub(super) struct Planning {
    /// Number of the session, unique in this process.
    session: u64,
    /// Number of changes of settings so far.
    settings: AtomicU64,
    /// Settings and functions for running cached plans. `None` until the first use, and after a change of settings.
    state: Mutex<Option<Arc<SessionState>>>,
}

impl Planning {
    pub fn new() -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(0);
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        Self { session, settings: AtomicU64::new(0), state: Mutex::new(None) }
    }

    /// Key of the plans that are made for a snapshot and the attached databases.
    pub fn cache_key(&self, snapshot: &Catalog, attached: &[AttachedSnapshot]) -> CacheKey {
        let settings = self.settings.load(Ordering::Relaxed);
        let definitions = attached.iter().fold(snapshot.definitions_id(), |definitions, database| {
            let mut hasher = DefaultHasher::new();
            (definitions, database.catalog.definitions_id()).hash(&mut hasher);
            hasher.finish()
        });
        CacheKey { session: self.session, settings, definitions }
    }

    /// Invalidates all cached plans of the session, because a setting has changed.
    pub(super) fn invalidate_settings(&self) {
        self.settings.fetch_add(1, Ordering::Relaxed);
        *self.state.lock() = None;
    }

    pub fn state(&self, context: &SessionContext) -> Arc<SessionState> {
        Arc::clone(self.state.lock().get_or_insert_with(|| Arc::new(context.state())))
    }
}

/// A statement that DataFusion plans.
pub(super) struct QueryRequest<'a> {
    pub statement: &'a Arc<PlannerStatement>,
    pub names: Option<&'a Arc<Names>>,
    pub is_long: bool,
    pub plan: CacheEntry,
}

impl QuerySession {
    /// Parses the statements of a text, separated by semicolons, or returns them from a cache.
    ///
    /// # Errors
    /// If any of the statements is invalid or not supported.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        if let Some(known) = self.statement_cache.get(sql) {
            return Ok(vec![known]);
        }
        let statements = taut_sql::parse(sql)?;
        self.statement_cache.insert(sql, &statements);
        Ok(statements)
    }

    /// Whether a statement has a valid cached plan.
    pub fn has_cached_plan(&self, statement: &Statement) -> bool {
        let snapshot = self.snapshot();
        let cache_key = self.planning.cache_key(&snapshot, &self.attached());
        match statement {
            Statement::Planned { plan, .. } => plan.get_or_default::<CacheEntry>().get(cache_key, &snapshot).is_some(),
            Statement::Mutation { plan, .. } => {
                plan.get_or_default::<CacheEntry<CachedDml>>().get(cache_key, &snapshot).is_some()
            }
            _ => false,
        }
    }

    /// Runs a query whose cached plan is a lookup, and returns its schema and rows. Returns `None` if the statement
    /// must run through [`QuerySession::run`] instead.
    ///
    /// # Errors
    /// If a block cannot be read, or if the transaction in progress has failed.
    pub fn look_up(
        &self,
        statement: &Statement,
        parameters: &Parameters,
    ) -> Result<Option<(SchemaRef, Vec<RecordBatch>)>> {
        let (entry, parameters) = match statement {
            Statement::Planned { plan, .. } => (plan.get_or_default::<CacheEntry>(), parameters),
            Statement::Execute { name, values, .. } if parameters.is_empty() => match self.prepared.get(name) {
                Ok(Statement::Planned { plan, .. }) => (plan.get_or_default(), values),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.begin_statement()?;
        let snapshot = self.snapshot();
        let Some(plan) = entry.get(self.planning.cache_key(&snapshot, &self.attached()), &snapshot) else {
            return Ok(None);
        };
        let (Some(lookup), Some(values)) = (&plan.lookup, positional(parameters)) else { return Ok(None) };
        if plan.relies_on_keys && !self.are_keys_valid() {
            return Ok(None);
        }
        let Some(values) = plan.convert_values(values) else { return Ok(None) };
        if let Some((transaction, _)) = self.transaction() {
            lookup.record_reads(&transaction, &snapshot, &values);
        }
        let rows = lookup.run(&snapshot, &values)?;
        Ok(rows.map(|rows| (Arc::clone(lookup.output()), rows)))
    }

    /// Runs a statement that DataFusion plans, from its cached plan if there is one.
    pub(super) async fn run_planned(&self, request: &QueryRequest<'_>, parameters: &Parameters) -> Result<Outcome> {
        if taut_sql::is_query(request.statement)
            && let Some(outcome) =
                self.run_cached(&request.plan, parameters, |snapshot| self.plan_on(snapshot, request)).await?
        {
            return Ok(outcome);
        }
        if let Some(rows) = self.insert_values(request.statement, parameters).await? {
            return Ok(Outcome::Done(Done::with_rows("INSERT", rows)));
        }
        Box::pin(self.plan_and_run(request, parameters)).await
    }

    /// Plans a statement and runs it.
    async fn plan_and_run(&self, request: &QueryRequest<'_>, parameters: &Parameters) -> Result<Outcome> {
        let numbered = parameters.to_positional(request.statement)?;
        let (numbered, parameters) = match &numbered {
            Some((statement, parameters)) => (Some(statement), parameters),
            None => (None, parameters),
        };
        let typed = parameters.with_casts(numbered.unwrap_or(request.statement));
        let (state, plan) = match typed.as_ref().or(numbered) {
            Some(statement) => {
                let statement = &Arc::new(statement.clone());
                self.plan(&QueryRequest { statement, plan: request.plan.clone(), ..*request }).await?
            }
            None => self.plan(request).await?,
        };
        let LogicalPlan::Statement(planned) = plan else {
            return self.run_plan(state, with_assignment_casts(parameters.bind(plan)?, request.statement)?).await;
        };
        if !parameters.is_empty() {
            return Err(QueryError::unsupported("a parameter in this statement", "EXECUTE name(...) takes values"));
        }
        match planned {
            PlannedStatement::Prepare(prepare) => {
                withdraw_reads(&state);
                write_verb(&prepare.input)?;
                let prepared = Statement::Planned {
                    statement: Arc::clone(request.statement),
                    names: request.names.cloned(),
                    is_long: request.is_long,
                    plan: Attachment::default(),
                };
                self.prepared.insert(&prepare.name, prepared)?;
                Ok(Outcome::Done(Done::with_tag("PREPARE")))
            }
            PlannedStatement::Execute(execute) => {
                let prepared = self.prepared.get(&execute.name)?;
                let Some(request) = QueryRequest::from_statement(&prepared) else {
                    let what = format!(
                        "EXECUTE {} with what has to be computed, of a statement that changes rows",
                        execute.name
                    );
                    return Err(QueryError::unsupported(
                        what,
                        "numbers, texts, true, false and NULL are, as in EXECUTE name(1.5, '2026-01-31')",
                    ));
                };
                let (state, plan) = self.plan(&request).await?;
                if let LogicalPlan::Statement(PlannedStatement::Prepare(prepare)) = &plan {
                    check_float_range(&execute.parameters, &prepare.fields)?;
                }
                // DataFusion would optimize the plan before its parameters have values.
                let unoptimized =
                    SessionStateBuilder::new_from_existing(state.clone()).with_optimizer_rules(Vec::new());
                let context = SessionContext::new_with_state(unoptimized.build());
                context.execute_logical_plan(plan).await?;
                let execute = LogicalPlan::Statement(PlannedStatement::Execute(execute));
                let (_, plan) = context.execute_logical_plan(execute).await?.into_parts();
                self.run_plan(state, plan).await
            }
            PlannedStatement::Deallocate(deallocate) => {
                self.prepared.remove(&deallocate.name)?;
                Ok(Outcome::Done(Done::with_tag("DEALLOCATE")))
            }
            PlannedStatement::SetVariable(set) if SPILL_SETTINGS.contains(&set.variable.as_str()) => {
                let allowed = "SET temp_directory = '...' chooses where spill files go";
                Err(QueryError::unsupported(format!("SET {}", set.variable), allowed))
            }
            PlannedStatement::SetVariable(set) if set.variable == "datafusion.execution.time_zone" => {
                Err(QueryError::unsupported(format!("SET {}", set.variable), "SET timezone = '...' is"))
            }
            other => {
                let frame = self.context.execute_logical_plan(LogicalPlan::Statement(other)).await?;
                self.planning.invalidate_settings();
                match frame.schema().fields().is_empty() {
                    true => Ok(Outcome::Done(Done::with_tag("SET"))),
                    false => Ok(Outcome::Rows(frame.execute_stream().await?)),
                }
            }
        }
    }

    /// Runs a prepared statement with literals as arguments.
    pub(super) async fn execute(
        &self,
        name: &str,
        values: &Parameters,
        statement: &Arc<PlannerStatement>,
    ) -> Result<Outcome> {
        let prepared = self.prepared.get(name)?;
        if let Statement::Mutation { mutation, names, plan, .. } = &prepared {
            let plan = plan.get_or_default();
            let request = MutationRequest {
                mutation,
                names: names.as_ref(),
                parameters: values,
                plan,
                analyze: None,
                is_part: false,
            };
            return self.mutate(&request).await;
        }
        if let Statement::ModifyingWith { statement, names, .. } = &prepared {
            return Box::pin(self.run_modifying_with(statement, names.as_ref(), values)).await;
        }
        let Some(prepared) = QueryRequest::from_statement(&prepared) else {
            return Err(QueryError::NotFound {
                kind: ObjectKind::PreparedStatement,
                name: name.to_owned(),
                relation: None,
            });
        };
        if let Some(insert @ Ast::Insert(_)) = untyped(prepared.statement) {
            // The values keep their own types, as in an INSERT with parameters. They are not first cast to the types of
            // columns.
            let request = QueryRequest {
                statement: &Arc::new(PlannerStatement::Statement(Box::new(insert.clone()))),
                names: None,
                is_long: prepared.is_long,
                plan: CacheEntry::default(),
            };
            return self.run_planned(&request, values).await;
        }
        let plan_query = |snapshot| async {
            let (state, plan) = self.plan_on(snapshot, &prepared).await?;
            match plan {
                // A statement that does not use all of its parameters is not cached, because the unused ones need
                // values too.
                LogicalPlan::Statement(PlannedStatement::Prepare(prepare))
                    if prepare.input.get_parameter_names()?.len() == prepare.fields.len() =>
                {
                    Ok((state, prepare.input.as_ref().clone()))
                }
                other => Ok((state, other)),
            }
        };
        if let Some(outcome) = self.run_cached(&prepared.plan, values, plan_query).await? {
            return Ok(outcome);
        }
        // DataFusion would ignore the value of a parameter that has no declared type and that the statement does not
        // use. Taut returns an error.
        if let Some(query) = untyped(prepared.statement) {
            values.check_parts(&[&PlannerStatement::Statement(Box::new(query.clone()))])?;
        }
        let request = QueryRequest { statement, names: None, is_long: prepared.is_long, plan: CacheEntry::default() };
        self.run_planned(&request, &Parameters::default()).await
    }

    /// Runs a query from its cached plan. If the plan is worth caching, calls `plan_query` to create it. Returns `None`
    /// if the query has no cached plan, or if the plan does not accept these values.
    async fn run_cached<F: Future<Output = Result<(SessionState, LogicalPlan)>>>(
        &self,
        entry: &CacheEntry,
        parameters: &Parameters,
        plan_query: impl FnOnce(Arc<Catalog>) -> F,
    ) -> Result<Option<Outcome>> {
        let Some(values) = positional(parameters) else { return Ok(None) };
        let snapshot = self.snapshot();
        let cache_key = self.planning.cache_key(&snapshot, &self.attached());
        let cached = match entry.find(cache_key, &snapshot) {
            CacheLookup::Plan(cached) if cached.relies_on_keys && !self.are_keys_valid() => return Ok(None),
            CacheLookup::Plan(cached) => cached,
            CacheLookup::NoCache => return Ok(None),
            CacheLookup::ShouldCache => {
                let (state, plan) = Box::pin(plan_query(Arc::clone(&snapshot))).await?;
                let cached = CachedPlan::compile(&plan, &state, cache_key).map(Arc::new);
                if cached.as_ref().is_some_and(|cached| cached.relies_on_keys) && !self.are_keys_valid() {
                    return Box::pin(self.run_plan(state, parameters.bind(plan)?)).await.map(Some);
                }
                entry.store(cache_key, cached.as_ref());
                // `plan` itself is not run: the query runs from the cached plan, or is planned again.
                withdraw_reads(&state);
                match cached {
                    Some(cached) => cached,
                    None => return Ok(None),
                }
            }
        };
        let Some(values) = cached.convert_values(values) else { return Ok(None) };
        let plan = cached.bind(&self.store, &snapshot, &values)?;
        let mut state = self.planning.state(&self.context);
        let reads = self.statement_reads();
        if let Some(reads) = &reads {
            cached.tables().for_each(|table| reads.record_lookup(&self.store, table));
            Arc::make_mut(&mut state).config_mut().set_extension(Arc::clone(reads));
        }
        let physical = match cached.scan_plan(&plan, &state)? {
            Some(physical) => physical,
            None => state.query_planner().create_physical_plan(&plan, state.as_ref()).await?,
        };
        let interrupt = self.interrupt();
        if let Some(reads) = reads {
            reads.narrow(&physical)?;
        }
        let physical = make_interruptible(physical, &interrupt)?;
        if interrupt.has_hash_join() {
            // The interrupt also holds the keys of hash joins, by which scans filter their rows.
            Arc::make_mut(&mut state).config_mut().set_extension(Arc::new(interrupt.clone()));
        }
        let callback = self.progress.lock().clone();
        let rows = start_query(&state, physical, callback.clone())?;
        if !interrupt.has_hash_join() {
            return Ok(Some(Outcome::Rows(rows)));
        }
        let replan = async move || {
            let state = with_merge_joins_preferred(Arc::unwrap_or_clone(state));
            wait_for_memory(state.runtime_env()).await;
            let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
            start_query(&state, make_interruptible(physical, &interrupt)?, callback)
        };
        Ok(Some(Outcome::Rows(with_merge_join_fallback(rows, replan))))
    }

    /// Plans a statement on the snapshot that it sees now.
    async fn plan(&self, request: &QueryRequest<'_>) -> Result<(SessionState, LogicalPlan)> {
        self.plan_on(self.snapshot(), request).await
    }

    async fn plan_on(&self, snapshot: Arc<Catalog>, request: &QueryRequest<'_>) -> Result<(SessionState, LogicalPlan)> {
        let mut state = self.state_on(Arc::clone(&snapshot), request.names);
        check_given_values(&state, request.statement).await?;
        if inserts_query_of_values(request.statement) {
            let all_columns = self.state_on(Arc::clone(&snapshot), None);
            if let Some(plan) = insert_of_listed_values(&all_columns, request.statement).await? {
                return Ok((all_columns, plan));
            }
        }
        let mut plan = statement_to_plan(&state, request.statement).await;
        if plan.is_err() && request.names.is_some() {
            // Plans again with all columns, so that the error message can list them.
            state = self.state_on(snapshot, None);
            plan = statement_to_plan(&state, request.statement).await;
        }
        if plan.is_err()
            && let Some(completed) = with_first_columns(&state, request.statement).await?
        {
            plan = statement_to_plan(&state, &completed).await;
        }
        Ok((state, without_generated_columns(plan?)?))
    }

    /// Runs a query, or a statement that writes its rows. The file of a `COPY ... TO` is replaced after the statement
    /// has succeeded.
    pub(super) async fn run_plan(&self, state: SessionState, mut plan: LogicalPlan) -> Result<Outcome> {
        let Some(file) = StagedFile::redirect(&mut plan)? else { return self.run_redirected(state, plan).await };
        let run = async {
            match plan {
                LogicalPlan::Analyze(_) => {
                    Ok(Outcome::Rows(collect_as_stream(create_physical_plan(&state, &plan).await?, &state).await?))
                }
                plan => self.run_redirected(state, plan).await,
            }
        };
        let outcome = run.await.map_err(|error| file.explain_error(error))?;
        self.interrupt().cancellation().commit_unless_cancelled(|| file.publish())?;
        Ok(outcome)
    }

    async fn run_redirected(&self, state: SessionState, plan: LogicalPlan) -> Result<Outcome> {
        if let LogicalPlan::Analyze(analyze) = &plan
            && write_verb(&analyze.input)? == Some("INSERT")
        {
            match insert_target(&analyze.input)? {
                Some(table) => self.check_may_change(&table.name, "INSERT")?,
                None => self.check_may_write("INSERT")?,
            }
            let analyzed = self.in_transaction(async |changes: Changes| {
                let mut state = state;
                state.config_mut().set_extension(Arc::new(changes));
                collect_as_stream(create_physical_plan(&state, &plan).await?, &state).await
            });
            return Ok(Outcome::Rows(analyzed.await?));
        }
        let Some(verb) = write_verb(&plan)? else {
            let callback = self.progress.lock().clone();
            let physical = create_physical_plan(&state, &plan).await?;
            let rows = start_query(&state, physical, callback.clone())?;
            if !self.interrupt().has_hash_join() {
                return Ok(Outcome::Rows(rows));
            }
            let replan = async move || {
                let state = with_merge_joins_preferred(state);
                wait_for_memory(state.runtime_env()).await;
                start_query(&state, create_physical_plan(&state, &plan).await?, callback)
            };
            return Ok(Outcome::Rows(with_merge_join_fallback(rows, replan)));
        };
        let table = insert_target(&plan)?;
        let operation = table.as_ref().map_or_else(|| "copy".to_owned(), |table| format!("insert into {}", table.name));
        let plan = make_values_nullable(plan)?;
        let progress = self.progress_counter(&operation, None);
        if verb != "INSERT" {
            let rows = sum_counts(start_write(state, plan, progress).await?).await?;
            return Ok(Outcome::Done(Done::with_rows(verb, rows)));
        }
        match &table {
            Some(table) => self.check_may_change(&table.name, verb)?,
            None => self.check_may_write(verb)?,
        }
        let inserted = self.in_transaction(async |changes: Changes| {
            let mut state = state;
            state.config_mut().set_extension(Arc::new(changes));
            sum_counts(start_write(state, plan, progress).await?).await
        });
        let rows = inserted.await?;
        if let Some(table) = table {
            self.complete_after_load(&table).await;
        }
        Ok(Outcome::Done(Done::with_rows(verb, rows)))
    }
}

impl<'a> QueryRequest<'a> {
    /// Returns the statement if DataFusion plans it.
    fn from_statement(statement: &'a Statement) -> Option<Self> {
        match statement {
            Statement::Planned { statement, names, is_long, plan } => {
                Some(Self { statement, names: names.as_ref(), is_long: *is_long, plan: plan.get_or_default() })
            }
            _ => None,
        }
    }
}

/// Returns positional parameters. Returns `None` for named parameters, which cached plans do not accept.
pub(super) fn positional(parameters: &Parameters) -> Option<&[Value]> {
    match parameters {
        Parameters::Positional(values) => Some(values),
        Parameters::Named(_) => None,
    }
}

/// Starts a query. Its scans report their progress to `callback`.
fn start_query(
    state: &SessionState,
    physical: Arc<dyn ExecutionPlan>,
    callback: Option<ProgressCallback>,
) -> Result<SendableRecordBatchStream> {
    let mut config = state.config().clone();
    if let Some(callback) = callback
        && let rows @ 1.. = scan::scanned_rows(&physical)
    {
        let progress = ScanProgress(ProgressCounter::new(Progress::QUERY, Some(rows), callback));
        config.set_extension(Arc::new(progress));
    }
    let batch_rows = scan::suitable_batch_rows(&physical);
    if config.options().execution.batch_size == ExecutionOptions::default().batch_size
        && let Some(rows) = batch_rows
    {
        // Raises only the default batch size. A size that the user set is used as it is.
        let rows = rows.max(config.batch_size());
        config = config.with_batch_size(rows);
    }
    if batch_rows.is_some() {
        config.set_extension(Arc::new(scan::TimeSlice::SCAN_ONLY));
    }
    // The maps of functions are empty, because only deserialized plans look up functions by name.
    let (session, runtime) = (state.session_id().to_owned(), Arc::clone(state.runtime_env()));
    let no_functions = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    let context = TaskContext::new(
        None,
        session,
        config,
        no_functions.0,
        no_functions.1,
        no_functions.2,
        no_functions.3,
        runtime,
    );
    let context = Arc::new(context);
    match batch_rows {
        Some(_) => Ok(execute_merged(&physical, &context)?),
        None => Ok(spawn_stream(execute_stream(physical, context)?)),
    }
}

/// Computes a stream in a task, so that a slow batch does not block the reader. Dropping the returned stream ends the
/// task at its next await.
fn spawn_stream(mut rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let mut computed = RecordBatchReceiverStream::builder(rows.schema(), BATCHES_AHEAD);
    let sender = computed.tx();
    computed.spawn(async move {
        while let Some(batch) = rows.next().await {
            let is_last = batch.is_err();
            // The receiver is gone if the stream was dropped.
            if sender.send(batch).await.is_err() || is_last {
                break;
            }
        }
        Ok(())
    });
    computed.build()
}

/// Checks that texts and numbers with an exponent are in the range of floating-point parameters. The engine's cast
/// would return infinity.
fn check_float_range(values: &[Expr], parameters: &[FieldRef]) -> Result<()> {
    for (value, parameter) in values.iter().zip(parameters) {
        let literal = match value {
            Expr::Cast(cast) => cast.expr.as_ref(),
            other => other,
        };
        if let Expr::Literal(literal, _) = literal
            && let Some(Some(text)) = literal.try_as_str()
            && is_float(parameter.data_type())
        {
            let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
            read_floats(&text, parameter.data_type(), false).map_err(DataFusionError::from)?;
        }
    }
    Ok(())
}

/// Returns the statement that a `PREPARE` without parameter types prepares. Returns `None` if it declares types.
fn untyped(prepared: &PlannerStatement) -> Option<&Ast> {
    let PlannerStatement::Statement(prepare) = prepared else { return None };
    match prepare.as_ref() {
        Ast::Prepare { data_types, statement, .. } if data_types.is_empty() => Some(statement),
        _ => None,
    }
}

/// Returns the table into which a plan inserts rows. Returns `None` for other plans.
///
/// # Errors
/// If the target is not a stored table: registered batches and files can only be read.
fn insert_target(plan: &LogicalPlan) -> Result<Option<Arc<Table>>> {
    let LogicalPlan::Dml(dml) = plan else { return Ok(None) };
    match source_as_provider(&dml.target)?.downcast_ref::<TautTable>() {
        Some(table) => Ok(Some(Arc::clone(table.stored()))),
        None => Err(QueryError::no_relation(dml.table_name.to_string())),
    }
}

/// Returns the verb of a plan that writes rows, `INSERT` or `COPY`. Returns `None` for a query.
///
/// # Errors
/// If the statement is not supported.
fn write_verb(plan: &LogicalPlan) -> Result<Option<&'static str>> {
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
