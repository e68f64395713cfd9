//! Statements that change rows: `UPDATE`, `DELETE`, `MERGE`, `TRUNCATE` and `INSERT ... RETURNING`. Except for
//! `TRUNCATE`, they are [`Mutation`]s, which compute their changes by a query.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::datasource::MemTable;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{ExplainStatement, Statement as PlannerStatement};
use datafusion::sql::sqlparser::ast::{Expr, Query, Statement as Ast};
use futures::TryStreamExt;
use taut_sql::{
    Conflict, ConflictTarget, GeneratedAlways, IsolationLevel, Mutation, MutationKind, MutationQuery, Names,
    Parameters, Statement, TARGET, TargetColumn, Value, WRITTEN, parse_expression,
};
use taut_store::{Catalog, CommitError, KeyMode, Table, TableId, UniqueKey};
use taut_types::{ColumnIndex, is_temporary_relation};

use super::computed_changes::ReturnedBatches;
use super::index_columns::{inferred_key, visible_schema, with_generated};
use super::insert_values::{InsertTarget, is_small_list};
use super::joined_rows::{read_joined_rows, with_joined_columns};
use super::queries::positional;
use super::returned_rows::check_returning;
use super::sequences::restart_owned;
use super::transactions::is_row_conflict;
use super::{Done, Outcome, QuerySession, collect_as_stream, stream_of_batches, sum_counts};
use crate::constraints::{qualified_default, shown_name};
use crate::error::{QueryError, Result, Violation};
use crate::exec::insert::{InsertExec, fits_in_delta, with_table_order};
use crate::exec::mutation::{ChangedRows, ChangedRowsExec, RemovedRows};
use crate::exec::operators::make_interruptible;
use crate::exec::reads::{create_physical_plan, create_uninterruptible_plan, withdraw_reads};
use crate::exec::scan::TautTable;
use crate::plan::cache::{CacheEntry, CacheKey, CacheLookup, CachedDml, FoundRows, PlannedDml, Returning, TypedPlan};
use crate::plan::engine::TautOptions;
use crate::plan::parameters::BindParameters;
use crate::plan::statement_to_plan;
use crate::write::changes::{Changes, WrittenRows};

/// Maximum number of attempts of a statement that fails with a write conflict.
pub(super) const ATTEMPTS_MAX: usize = 1_000;

/// A mutation with its parameters and plan cache entry.
pub(super) struct MutationRequest<'a> {
    pub mutation: &'a Mutation,
    pub names: Option<&'a Arc<Names>>,
    pub parameters: &'a Parameters,
    pub plan: CacheEntry<CachedDml>,
    /// Options of `EXPLAIN ANALYZE`, which returns the plan instead of the result.
    pub analyze: Option<&'a ExplainStatementOptions>,
    /// Whether the mutation is part of another statement that has already checked the parameters.
    pub is_part: bool,
}

/// A planned mutation.
pub(super) struct PlannedMutation {
    pub changes: Changes,
    pub state: SessionState,
    /// Plan that returns the new rows or, for a `DELETE`, the deleted rows.
    pub rows: Arc<dyn ExecutionPlan>,
    /// Whether `rows` are in the sort order of the table.
    pub is_in_order: bool,
    /// Rows that the mutation removes. Complete once `rows` has been read to its end.
    pub changed: ChangedRows,
}

impl PlannedMutation {
    /// Deletes the rows that the mutation removes. Returns the number of removed rows that have no new version.
    pub async fn delete_rows(&self, table: &Arc<Table>) -> Result<u64> {
        let RemovedRows { replaced, deleted } = std::mem::take(&mut *self.changed.lock());
        if let Some(transaction) = self.changes.transaction() {
            for rows in [&replaced, &deleted].into_iter().filter(|rows| !rows.is_empty()) {
                transaction.delete_rows(table.id, rows).await?;
            }
        }
        let count = deleted.len();
        self.changes.record_written(table, WrittenRows::Replaced(replaced));
        self.changes.record_written(table, WrittenRows::Deleted(deleted));
        Ok(count)
    }
}

/// Query of a mutation, with the keys and columns that are known before the query is planned.
pub(super) struct BoundMutation<'a> {
    pub query: MutationQuery,
    /// Keys that `ON CONFLICT` refers to.
    keys: Vec<&'a UniqueKey>,
    /// Columns whose values may change. `None` if all may change.
    assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
}

impl QuerySession {
    /// Runs a mutation, in the transaction in progress or in its own transaction. Retries it after a write conflict if
    /// it has its own transaction, or if the isolation level is READ COMMITTED.
    pub(super) async fn mutate(&self, request: &MutationRequest<'_>) -> Result<Outcome> {
        self.check_may_mutate(request.mutation)?;
        if let Some(mutation) = self.with_columns_by_name(request.mutation, request.names).await? {
            let request = MutationRequest { mutation: &mutation, plan: request.plan.clone(), ..*request };
            return Box::pin(self.mutate(&request)).await;
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.try_to_mutate(request).await {
                done if attempts == ATTEMPTS_MAX => return done,
                Err(error) if is_row_conflict(&error) && self.prepare_retry()? => {}
                // The failed transaction no longer holds any locks.
                Err(QueryError::Deadlock) if self.transaction().is_none() => {}
                Err(QueryError::Constraint(violation)) if request.mutation.conflict().is_some() => {
                    self.handle_key_violation(request.mutation, *violation)?;
                }
                done => return done,
            }
        }
    }

    /// Rejects a mutation in a read-only transaction, unless it changes a temporary table.
    pub(super) fn check_may_mutate(&self, mutation: &Mutation) -> Result<()> {
        match self.check_may_write(mutation.kind.verb()) {
            Err(_) if self.name(&mutation.table).is_ok_and(|name| is_temporary_relation(&name)) => Ok(()),
            checked => checked,
        }
    }

    /// Stores a prepared statement that changes rows, after checking that it can be planned.
    pub(super) async fn prepare(&self, name: &str, statement: &Statement) -> Result<Outcome> {
        if let Statement::Mutation { mutation, names, .. } = statement {
            let changes = self.changes();
            let table = self.table(&self.name(&mutation.table)?)?;
            let by_name = self.with_columns_by_name(mutation, names.as_ref()).await?;
            let BoundMutation { query, .. } = bind_mutation(by_name.as_ref().unwrap_or(mutation), &table)?;
            let state = self.target_state(&changes, &table, names.as_ref())?;
            statement_to_plan(&state, &engine_query(query.query)).await?;
            withdraw_reads(&state);
        }
        if let Statement::ModifyingWith { statement, .. } = statement {
            statement.mutations().try_for_each(|mutation| self.table(&self.name(&mutation.table)?).map(drop))?;
        }
        self.prepared.insert(name, statement.clone())?;
        Ok(Outcome::Done(Done::with_tag("PREPARE")))
    }

    /// Prepares a retry after a write conflict: refreshes the snapshot of a READ COMMITTED transaction. Returns whether
    /// a retry is allowed.
    pub(super) fn prepare_retry(&self) -> Result<bool> {
        match self.transaction() {
            None => Ok(true),
            Some((transaction, IsolationLevel::ReadCommitted)) => {
                transaction.refresh()?;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Handles a violated key of an `INSERT ... ON CONFLICT`. Returns `Ok` if the statement must be retried, because
    /// the existing row with the same key was not visible when the statement began.
    pub(super) fn handle_key_violation(&self, mutation: &Mutation, violation: Violation) -> Result<()> {
        let table = self.table(&self.name(&mutation.table)?)?;
        let keys = conflict_keys(mutation, &table)?;
        match violation {
            Violation::NotUnique { is_concurrent: true, .. } if self.prepare_retry()? => Ok(()),
            Violation::NotUnique { is_concurrent: true, table, .. } => Err(CommitError::RowsChanged { table }.into()),
            // Two rows of the statement have the same key.
            Violation::NotUnique { constraint, .. } if keys.iter().any(|key| key.name == constraint) => {
                Err(QueryError::Cardinality { verb: mutation.kind.verb() })
            }
            violation => Err(violation.into()),
        }
    }

    async fn try_to_mutate(&self, request: &MutationRequest<'_>) -> Result<Outcome> {
        self.in_transaction(async |changes: Changes| self.mutate_in(&changes, request).await).await
    }

    async fn mutate_in(&self, changes: &Changes, request: &MutationRequest<'_>) -> Result<Outcome> {
        let MutationRequest { mutation, .. } = request;
        let snapshot = changes.snapshot();
        let table = self.target_table(&snapshot, mutation)?;
        if let Some(options) = request.analyze {
            return Box::pin(self.analyze(changes, request, table, options)).await;
        }
        match self.run_cached_dml(changes, request, (&snapshot, table)).await? {
            Some((_, Some(returned))) => {
                return Ok(Outcome::Rows(stream_of_batches(returned.schema(), vec![returned])));
            }
            Some((rows, None)) => return Ok(Outcome::Done(Done::with_rows(mutation.kind.verb(), rows))),
            None => {}
        }
        Box::pin(self.mutate_planned(changes, request, table)).await
    }

    /// Plans a mutation.
    pub(super) async fn plan_mutation(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        table: &Arc<Table>,
    ) -> Result<PlannedMutation> {
        let MutationRequest { mutation, names, parameters, .. } = request;
        let BoundMutation { mut query, keys, assigned } = bind_mutation(mutation, table)?;
        let changes = changes.with_assigned_columns(assigned);
        let returns_joined_rows = mutation.returns_joined_rows() && request.analyze.is_none();
        let mut state = self.target_state(&changes, table, names.filter(|_| !returns_joined_rows))?;
        if mutation.kind != MutationKind::Insert
            && let Some(options) = state.config_mut().options_mut().extensions.get_mut::<TautOptions>()
        {
            // The query need not return rows in the order of the table, because changed rows are written in another
            // order.
            options.preserve_insertion_order = false;
        }
        let changed = ChangedRows::default();
        let statement = engine_query(query.query);
        if !request.is_part {
            check_parameters(&statement, mutation, parameters)?;
        }
        let mut plan = match request.analyze {
            None => plan_part(&state, statement, parameters).await?,
            // Planned with its `EXPLAIN`, so that the planner checks the options.
            Some(options) => match plan_part(&state, explain_statement(statement, options), parameters).await? {
                LogicalPlan::Analyze(analyze) => Arc::unwrap_or_clone(analyze.input),
                plan => plan,
            },
        };
        if returns_joined_rows {
            plan = with_joined_columns(plan, &mutation.alias)?;
            query.outputs.columns.end = plan.schema().fields().len();
        }
        let mut physical = create_uninterruptible_plan(&state, &plan).await?;
        let columns = &query.outputs.columns;
        let ordered = match mutation.kind {
            MutationKind::Update => with_table_order(&physical, table, columns.start)?,
            _ => None,
        };
        let is_in_order = ordered.is_some();
        if let Some(ordered) = ordered {
            physical = ordered;
        }
        let physical = make_interruptible(physical, &self.interrupt())?;
        let skips = mutation.conflict().is_some_and(|conflict| !conflict.is_do_update());
        let indexes = |key: &&UniqueKey| key.columns.iter().map(|column| column.index()).collect();
        let skipped = if skips { keys.iter().map(indexes).collect() } else { Vec::new() };
        let mut rows = ChangedRowsExec::try_new(physical, query.outputs, mutation.kind, skipped, Arc::clone(&changed))?;
        let returns_rows = request.is_part || mutation.returning.is_some();
        if mutation.kind == MutationKind::Merge && returns_rows && request.analyze.is_none() {
            rows = rows.returning_actions()?;
        }
        Ok(PlannedMutation { changes, state, rows: Arc::new(rows), is_in_order, changed })
    }

    /// Plans a mutation and runs it.
    async fn mutate_planned(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        table: &Arc<Table>,
    ) -> Result<Outcome> {
        let kind = request.mutation.kind;
        if request.mutation.returning.is_some() {
            let mut computed = self.compute_changes(changes, request, table).await?;
            let returned = computed.returned.take();
            let count = self.apply_changes(&computed, table).await?;
            let done = || Outcome::Done(Done::with_rows(kind.verb(), count));
            return Ok(returned.map_or_else(done, ReturnedBatches::into_outcome));
        }
        let planned = self.plan_mutation(changes, request, table).await?;
        let (state, rows) = (&planned.state, Arc::clone(&planned.rows));
        let mut inserted = 0;
        if kind == MutationKind::Delete {
            let mut deleted = execute_stream(rows, state.task_ctx())?;
            while deleted.try_next().await?.is_some() {}
        } else {
            let (store, table) = (Arc::clone(self.store()), Arc::clone(table));
            let insert = InsertExec::from_physical_plan(store, table, rows, planned.is_in_order);
            inserted = sum_counts(execute_stream(Arc::new(insert), state.task_ctx())?).await?;
        }
        let deleted_rows = planned.delete_rows(table).await?;
        Ok(Outcome::Done(Done::with_rows(kind.verb(), inserted + deleted_rows)))
    }

    /// Runs a mutation from its cached plan, which looks up the rows to change. Returns the number of changed rows and
    /// the result of `RETURNING`. Returns `None` if the mutation must be planned.
    async fn run_cached_dml(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        (snapshot, table): (&Catalog, &Arc<Table>),
    ) -> Result<Option<(u64, Option<RecordBatch>)>> {
        let Some(transaction) = changes.transaction() else { return Ok(None) };
        let Some(cached) = self.cached_dml(changes, request, (snapshot, table)).await? else { return Ok(None) };
        let Some(values) = positional(request.parameters) else { return Ok(None) };
        cached.record_reads(transaction, snapshot, values);
        let Some(FoundRows { rows, new }) = cached.find_rows(snapshot, values)? else { return Ok(None) };
        if new.as_ref().is_some_and(|new| !fits_in_delta(new)) {
            return Ok(None);
        }
        let (kind, count) = (request.mutation.kind, rows.len());
        if kind == MutationKind::Insert {
            // As in PostgreSQL, a row to insert must not violate NOT NULL or CHECK even if its key exists.
            let Some(new) = self.listed_rows(request.mutation, table, values)? else { return Ok(None) };
            if count == 0 {
                let returned = cached.evaluate_returning(Some(&new), values)?;
                let count = new.num_rows() as u64;
                transaction.insert_rows(table.id, &new)?;
                changes.record_written(table, WrittenRows::New(new));
                return Ok(Some((count, returned)));
            }
            if !request.mutation.conflict().is_some_and(Conflict::is_do_update) {
                return Ok(Some((0, cached.evaluate_returning(None, values)?)));
            }
        }
        let returned = cached.evaluate_returning(new.as_ref(), values)?;
        if count > 0 {
            transaction.delete_rows(table.id, &rows).await?;
        }
        let changes = changes.with_assigned_columns(cached.assigned().cloned());
        match new.filter(|_| kind != MutationKind::Delete) {
            Some(new) => {
                transaction.insert_rows(table.id, &new)?;
                changes.record_written(table, WrittenRows::New(new));
                changes.record_written(table, WrittenRows::Replaced(rows));
            }
            None => changes.record_written(table, WrittenRows::Deleted(rows)),
        }
        Ok(Some((count, returned)))
    }

    /// Builds the rows that an `INSERT` lists. Returns `None` if the statement must be planned.
    fn listed_rows(&self, mutation: &Mutation, table: &Table, values: &[Value]) -> Result<Option<RecordBatch>> {
        let target = self.insert_targets.get(table)?;
        let listed = mutation.listed_rows().and_then(|listed| target.listed_columns(table, listed, values));
        let settings = self.planning.state(&self.context);
        listed.map(|listed| listed.rows(&target, settings.config_options())).transpose()
    }

    /// Returns the cached plan of a mutation. It is created when the mutation runs for the second time.
    async fn cached_dml(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        (snapshot, table): (&Catalog, &Arc<Table>),
    ) -> Result<Option<Arc<CachedDml>>> {
        let MutationRequest { mutation, parameters, plan: entry, .. } = request;
        // Cached plans are looked up by tables of one database.
        if self.user_session.is_some() {
            return Ok(None);
        }
        let is_simple = match mutation.kind {
            MutationKind::Update | MutationKind::Delete => true,
            MutationKind::Insert => mutation.conflict().is_some() || mutation.listed_rows().is_some_and(is_small_list),
            MutationKind::Merge => false,
        };
        // If the design of a table prescribes encodings, new rows are written to blocks, where their values are checked
        // against the encodings.
        let Some(values) = positional(parameters).filter(|_| is_simple && table.design.encodings.is_empty()) else {
            return Ok(None);
        };
        let cache_key = self.planning.cache_key(snapshot, &self.attached());
        match entry.find(cache_key, snapshot) {
            CacheLookup::Plan(cached) if cached.relies_on_keys && !self.are_keys_valid() => return Ok(None),
            CacheLookup::Plan(cached) if cached.accepts(values) => return Ok(Some(cached)),
            CacheLookup::NoCache => return Ok(None),
            // The type of a null parameter is unknown, but the cached plan needs a type for later values.
            CacheLookup::Plan(_) | CacheLookup::ShouldCache if values.contains(&Value::Null) => return Ok(None),
            CacheLookup::Plan(_) | CacheLookup::ShouldCache => {}
        }
        let cached = Box::pin(self.cache_dml(changes, request, (table, cache_key), values)).await?;
        Ok(cached.filter(|cached| cached.accepts(values)))
    }

    /// Plans a mutation for the plan cache. Returns `None` if the plan cannot be cached.
    async fn cache_dml(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        (table, cache_key): (&Arc<Table>, CacheKey),
        values: &[Value],
    ) -> Result<Option<Arc<CachedDml>>> {
        let MutationRequest { mutation, names, plan: entry, parameters, .. } = request;
        let whole = bind_mutation(mutation, table)?;
        check_parameters(&engine_query(whole.query.query), mutation, parameters)?;
        let (conflict_update, insert_parameters) = match (mutation.kind, mutation.conflict()) {
            (MutationKind::Insert, Some(_)) => {
                match on_conflict_update(mutation, table, (&*self.insert_targets.get(table)?, values))? {
                    Some((update, parameters)) => (Some(update), parameters),
                    None => return Ok(None),
                }
            }
            _ => (None, 0),
        };
        let returning = match mutation.returning_query() {
            None => None,
            Some(query) => {
                let written = MemTable::try_new(visible_schema(table)?.arrow(), vec![vec![]])?;
                let state = self.written_state(changes, (table, Arc::new(written)));
                let plan = statement_to_plan(&state, &engine_query(query)).await?;
                let returning =
                    TypedPlan::infer(plan, values).and_then(|query| Returning::compile(query, table, &state));
                let Some(returning) = returning else {
                    entry.store(cache_key, None);
                    return Ok(None);
                };
                Some(returning)
            }
        };
        if mutation.kind == MutationKind::Insert && conflict_update.is_none() {
            let cached = returning.map(|returning| Arc::new(CachedDml::for_insert(returning, values.len(), cache_key)));
            entry.store(cache_key, cached.as_ref());
            return Ok(cached);
        }
        let BoundMutation { query, assigned, .. } = bind_mutation(conflict_update.as_ref().unwrap_or(mutation), table)?;
        let state = self.target_state(changes, table, *names)?;
        let plan = statement_to_plan(&state, &engine_query(query.query)).await?;
        // `plan` is only compiled for the cache, not run.
        withdraw_reads(&state);
        // Not recorded as a plan that cannot be cached: other values may determine the types of all parameters.
        let Some(typed) = TypedPlan::infer(plan, values) else { return Ok(None) };
        let (outputs, is_deletion) = (&query.outputs, mutation.kind == MutationKind::Delete);
        let planned = PlannedDml { query: typed, outputs, assigned, insert_parameters, is_deletion, returning };
        let cached = CachedDml::compile(planned, table, (&state, cache_key)).map(Arc::new);
        let cached = cached.filter(|cached| !cached.relies_on_keys || self.are_keys_valid());
        entry.store(cache_key, cached.as_ref());
        Ok(cached)
    }

    /// Runs the query of a `RETURNING` over the written rows.
    pub(super) async fn run_returning(
        &self,
        changes: &Changes,
        written: (&Table, MemTable),
        (mutation, query): (&Mutation, Box<Query>),
        parameters: &Parameters,
    ) -> Result<datafusion::execution::SendableRecordBatchStream> {
        let (state, plan) = self.plan_returning(changes, written, (mutation, query), parameters).await?;
        // Computes all rows now, so that an error occurs before the commit.
        collect_as_stream(create_physical_plan(&state, &plan).await?, &state).await
    }

    /// Plans the query of a `RETURNING` over the written rows.
    pub(super) async fn plan_returning(
        &self,
        changes: &Changes,
        (table, written): (&Table, MemTable),
        (mutation, query): (&Mutation, Box<Query>),
        parameters: &Parameters,
    ) -> Result<(SessionState, LogicalPlan)> {
        let rows: Arc<dyn TableProvider> = Arc::new(written);
        let columns = || MemTable::try_new(visible_schema(table)?.arrow(), vec![vec![]]).map_err(QueryError::from);
        let visible = if mutation.returns_joined_rows() { Arc::new(columns()?) } else { Arc::clone(&rows) };
        let state = self.written_state(changes, (table, visible));
        let mut plan = plan_part(&state, engine_query(query), parameters).await?;
        if mutation.returns_joined_rows() {
            plan = read_joined_rows(plan, &rows)?;
        }
        check_returning(&plan)?;
        Ok((state, plan))
    }

    /// State in which the query of a `RETURNING` is planned and run.
    pub(super) fn written_state(
        &self,
        changes: &Changes,
        (table, written): (&Table, Arc<dyn TableProvider>),
    ) -> SessionState {
        let mut catalog = self.query_catalog(changes.snapshot(), None);
        // Rows may still violate foreign keys, whose actions run at the end of the statement.
        catalog.are_keys_valid = false;
        catalog.relations.push((WRITTEN.into(), written));
        catalog.changed = Some(table.name.clone());
        catalog.state(self.context.state())
    }

    /// State in which the query of a mutation is planned and run.
    pub(super) fn target_state(
        &self,
        changes: &Changes,
        table: &Arc<Table>,
        names: Option<&Arc<Names>>,
    ) -> Result<SessionState> {
        let mut catalog = self.query_catalog(changes.snapshot(), names);
        let target = TautTable::with_row_ids(Arc::clone(self.store()), Arc::clone(table));
        let target = if catalog.are_keys_valid { target } else { target.without_keys() };
        catalog.relations.push((TARGET.into(), Arc::new(target) as Arc<dyn TableProvider>));
        catalog.changed = Some(table.name.clone());
        if let Some(reads) = &catalog.reads {
            reads.record_lookup(&self.store, table.id);
        }
        let mut state = catalog.state(self.context.state());
        state.config_mut().set_extension(Arc::new(changes.clone()));
        state.register_udf(Arc::new(self.insert_targets.get(table)?.row_check()))?;
        Ok(state)
    }

    /// Returns the table that a mutation changes.
    pub(super) fn target_table<'a>(&self, snapshot: &'a Catalog, mutation: &Mutation) -> Result<&'a Arc<Table>> {
        let name = self.search_path().name(snapshot, self.own_reference(&mutation.table)?.as_ref())?;
        snapshot.table(&name).ok_or_else(|| QueryError::no_relation(name))
    }

    /// Removes all rows of the given tables.
    pub(super) async fn truncate(&self, names: &[String], restarts_identity: bool) -> Result<Outcome> {
        let are_temporary = || names.iter().all(|name| is_temporary_relation(name));
        self.check_may_define("TRUNCATE TABLE", are_temporary)?;
        let truncated = self.in_transaction(async |changes: Changes| {
            let snapshot = changes.snapshot();
            let table = |name: &String| match snapshot.table(name) {
                Some(table) => Ok(Arc::clone(table)),
                None => Err(QueryError::no_relation(name)),
            };
            let tables = names.iter().map(table).collect::<Result<Vec<_>>>()?;
            for table in &tables {
                let remains = |child: &&TableId| !tables.iter().any(|truncated| truncated.id == **child);
                if let Some(child) = table.constraints.referenced_by.iter().find(remains) {
                    let by = snapshot.table_of(*child).map(|child| child.name.clone()).unwrap_or_default();
                    return Err(QueryError::unsupported(
                        format!("TRUNCATE of table {:?}, which a foreign key of table {by:?} references,", table.name),
                        "TRUNCATE of both together, and DELETE, are",
                    ));
                }
                if let Some(transaction) = changes.transaction()
                    && !table.constraints.keys.is_empty()
                {
                    transaction.lock_all_keys(table.id, KeyMode::Exclusive).await?;
                }
            }
            changes.commit(|edit| {
                tables.iter().try_for_each(|table| edit.truncate(table.id))?;
                let restarted = tables.iter().filter(|_| restarts_identity);
                restarted.into_iter().try_for_each(|table| restart_owned(edit, table.id))
            })?;
            Ok(())
        });
        truncated.await?;
        Ok(Outcome::Done(Done::with_tag("TRUNCATE TABLE")))
    }
}

/// The defaults and the expressions of generated columns of a table, parsed into syntax.
struct ColumnValues {
    defaults: BTreeMap<ColumnIndex, Expr>,
    generated: BTreeMap<ColumnIndex, Expr>,
}

/// Describes the columns of a table for the query of a mutation.
fn target_columns<'a>(table: &'a Table, values: &'a ColumnValues) -> Vec<TargetColumn<'a>> {
    let column = |index: usize| {
        let column = table.schema.column(ColumnIndex::from(index));
        let default = values.defaults.get(&ColumnIndex::from(index));
        let generated = match values.generated.get(&ColumnIndex::from(index)) {
            Some(expression) if table.constraints.is_hidden(ColumnIndex::from(index)) => {
                Some(GeneratedAlways::IndexExpression(expression))
            }
            Some(expression) => Some(GeneratedAlways::Expression(expression)),
            None if table.constraints.is_always_generated(ColumnIndex::from(index)) => Some(GeneratedAlways::Identity),
            None => None,
        };
        let owned = table.constraints.sequences.get(&ColumnIndex::from(index));
        let is_identity = owned.is_some_and(|owned| owned.identity.is_some());
        TargetColumn { name: &column.name, default, logical_type: Some(column.logical_type), generated, is_identity }
    };
    (0..table.schema.len()).map(column).collect()
}

/// Parses the defaults and the expressions of generated columns of a table.
fn column_values(table: &Table) -> Result<ColumnValues> {
    let default = |(column, sql): (&ColumnIndex, &String)| {
        // Casts to the type of the column, as in other inserts. `CAST` needs an SQL name, which the type may not have.
        let arrow = table.schema.column(*column).logical_type.arrow();
        Ok((*column, parse_expression(&format!("arrow_cast(({}), '{arrow:?}')", qualified_default(sql)))?))
    };
    let generated = table.constraints.generated.iter();
    Ok(ColumnValues {
        defaults: table.constraints.defaults.iter().map(default).collect::<Result<_>>()?,
        generated: generated.map(|(column, sql)| Ok((*column, parse_expression(sql)?))).collect::<Result<_>>()?,
    })
}

/// Returns the keys of a table that `ON CONFLICT` refers to, or all keys if it names none. Returns no keys for a
/// statement without `ON CONFLICT`.
fn conflict_keys<'a>(mutation: &Mutation, table: &'a Table) -> Result<Vec<&'a UniqueKey>> {
    let keys = &table.constraints.keys;
    let Some(conflict) = mutation.conflict() else { return Ok(Vec::new()) };
    let found = match &conflict.target {
        None => match (conflict.insert_or(), keys.len()) {
            (Some(_), 0) => None,
            (Some(statement), 2..) if conflict.is_do_update() => {
                return Err(QueryError::unsupported(
                    format!("{statement} of a table with several keys"),
                    "ON CONFLICT (columns) DO UPDATE is",
                ));
            }
            _ => return Ok(keys.iter().collect()),
        },
        Some(ConflictTarget::Columns(names)) => keys.iter().find(|key| {
            let column = |column: &ColumnIndex| names.contains(&table.schema.column(*column).name);
            let distinct: BTreeSet<&String> = names.iter().collect();
            key.columns.len() == distinct.len() && key.columns.iter().all(column)
        }),
        Some(ConflictTarget::Parts { parts, predicate }) => inferred_key(table, parts, predicate.as_deref())?,
        Some(ConflictTarget::Constraint(name)) => keys.iter().find(|key| key.name == *name),
    };
    let shown_columns = |key: &UniqueKey| {
        let names = key.columns.iter().map(|column| shown_name(table, *column));
        names.collect::<Vec<_>>().join(", ")
    };
    let key_descriptions = || keys.iter().map(|key| format!("{:?} on ({})", key.name, shown_columns(key)));
    let keys_of_table = match keys.as_slice() {
        [] => format!("Table {:?} has no PRIMARY KEY or UNIQUE constraint.", table.name),
        _ => {
            format!("The keys of table {:?} are {}.", table.name, key_descriptions().collect::<Vec<_>>().join(" and "))
        }
    };
    Ok(vec![found.ok_or(QueryError::NoConflictKey { keys: keys_of_table })?])
}

/// Names of the columns of each key.
fn key_column_names(table: &Table, keys: &[&UniqueKey]) -> Vec<Vec<String>> {
    let name = |column: &ColumnIndex| table.schema.column(*column).name.clone();
    keys.iter().map(|key| key.columns.iter().map(name).collect()).collect()
}

pub(super) fn engine_query(query: Box<Query>) -> PlannerStatement {
    PlannerStatement::Statement(Box::new(Ast::Query(query)))
}

/// Wraps a query in an `EXPLAIN`.
pub(super) fn explain_statement(query: PlannerStatement, options: &ExplainStatementOptions) -> PlannerStatement {
    PlannerStatement::Explain(ExplainStatement { options: options.clone(), statement: Box::new(query) })
}

/// Checks that the parameters fit a mutation with this query.
pub(super) fn check_parameters(query: &PlannerStatement, mutation: &Mutation, parameters: &Parameters) -> Result<()> {
    let returning = mutation.returning_query().map(engine_query);
    Ok(parameters.check_parts(&[query].into_iter().chain(&returning).collect::<Vec<_>>())?)
}

/// Plans a query of a mutation, or its `EXPLAIN`. Binds the parameters that the query uses.
pub(super) async fn plan_part(
    state: &SessionState,
    statement: PlannerStatement,
    parameters: &Parameters,
) -> Result<LogicalPlan> {
    let numbered = parameters.part_to_positional(&statement);
    let (statement, parameters) = match &numbered {
        Some((statement, parameters)) => (statement, parameters),
        None => (&statement, parameters),
    };
    let typed = parameters.with_casts(statement);
    parameters.bind_part(statement_to_plan(state, typed.as_ref().unwrap_or(statement)).await?)
}

/// Returns the mutation that an `INSERT ... ON CONFLICT` of one row runs if an existing row has its key, and the number
/// of parameters in the row to insert. Returns `None` for other statements.
fn on_conflict_update(
    mutation: &Mutation,
    table: &Table,
    (target, values): (&InsertTarget, &[Value]),
) -> Result<Option<(Mutation, usize)>> {
    let listed = mutation.listed_rows().and_then(|listed| target.listed_columns(table, listed, values));
    let keys = conflict_keys(mutation, table)?;
    let (Some(listed), [key]) = (listed, keys.as_slice()) else { return Ok(None) };
    let values = column_values(table)?;
    let update =
        mutation.conflict_update(&target_columns(table, &values), &key_column_names(table, &[*key]).concat())?;
    Ok(update.map(|update| (update, listed.parameters)))
}

/// Returns the query of a mutation, with the keys and columns that are known before the query is planned.
pub(super) fn bind_mutation<'a>(mutation: &Mutation, table: &'a Table) -> Result<BoundMutation<'a>> {
    let values = column_values(table)?;
    let columns = target_columns(table, &values);
    let keys = conflict_keys(mutation, table)?;
    let query = mutation.query(&columns, &key_column_names(table, &keys))?;
    let assigned = mutation.assigned_columns(&columns)?;
    let assigned = assigned.map(|assigned| with_generated(assigned, table)).transpose()?;
    Ok(BoundMutation { query, keys, assigned: assigned.map(Arc::new) })
}
