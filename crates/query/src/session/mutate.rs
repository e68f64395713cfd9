//! Statements that change rows: `UPDATE`, `DELETE`, `MERGE`, `TRUNCATE` and `INSERT ... RETURNING`.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement as Ast};
use futures::TryStreamExt;
use taut_store::Table;

use super::transactions::is_conflict;
use super::{Done, Outcome, QuerySession, count_of};
use crate::changes::Changes;
use crate::conform::Conform;
use crate::error::{QueryError, Result};
use crate::load::InsertExec;
use crate::mutation::{Changed, ChangedRows, ChangedRowsExec};
use crate::parameters::Parameters;
use crate::statement::{IsolationLevel, Mutation, MutationKind, Names, TARGET, TargetColumn, WRITTEN};
use crate::table::TautTable;

/// How often a statement is run again by itself that another transaction was faster than.
const ATTEMPTS_MAX: usize = 1_000;

/// A mutation, and what comes with it.
pub(super) struct Mutate<'a> {
    pub mutation: &'a Mutation,
    pub names: Option<&'a Arc<Names>>,
    pub parameters: &'a Parameters,
}

impl QuerySession {
    /// Runs a mutation, in the transaction in progress or one of its own. One of its own, and one that sees what was
    /// committed before each of its statements, is run again where another changed the same rows meanwhile.
    pub(super) async fn mutate(&self, mutate: &Mutate<'_>) -> Result<Outcome> {
        self.check_may_write(mutate.mutation.kind.verb())?;
        for _ in 1..ATTEMPTS_MAX {
            match self.try_to_mutate(mutate).await {
                Err(error) if is_conflict(&error) && self.runs_again()? => {}
                done => return done,
            }
        }
        self.try_to_mutate(mutate).await
    }

    /// Whether a statement that lost against another transaction may be run again, on what there is now.
    fn runs_again(&self) -> Result<bool> {
        match self.transaction() {
            None => Ok(true),
            Some((transaction, IsolationLevel::ReadCommitted)) => {
                transaction.refresh()?;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    async fn try_to_mutate(&self, mutate: &Mutate<'_>) -> Result<Outcome> {
        self.in_transaction(async |changes: Changes| self.mutate_in(&changes, mutate).await).await
    }

    async fn mutate_in(&self, changes: &Changes, mutate: &Mutate<'_>) -> Result<Outcome> {
        let Mutate { mutation, names, parameters } = mutate;
        let snapshot = changes.snapshot();
        let table = snapshot.table(&mutation.table);
        let table = table.ok_or_else(|| QueryError::NotFound { kind: "table", name: mutation.table.clone() })?;
        if mutation.conflict().is_some() {
            return Err(QueryError::unsupported(
                "ON CONFLICT",
                "it comes with PRIMARY KEY and UNIQUE constraints; MERGE INTO changes or inserts rows by a condition",
            ));
        }
        let columns = table.schema.columns().iter();
        let columns: Vec<TargetColumn<'_>> = columns
            .map(|column| TargetColumn { name: &column.name, default: None, logical_type: Some(column.logical_type) })
            .collect();
        let query = mutation.query(&columns, &[])?;
        let changed = ChangedRows::default();
        let state = self.target_state(changes, table, *names);
        let plan = plan_of(&state, query.query, parameters).await?;
        let physical = state.create_physical_plan(&plan).await?;
        let rows = ChangedRowsExec::try_new(physical, query.outputs, mutation.kind, Arc::clone(&changed))?;
        let rows: Arc<dyn ExecutionPlan> = Arc::new(rows);
        let written = match (mutation.kind, &mutation.returning) {
            (_, Some(_)) => {
                let batches: Vec<RecordBatch> =
                    execute_stream(Arc::clone(&rows), state.task_ctx())?.try_collect().await?;
                let conform = Conform::new(&rows.schema(), &table.schema, &table.name)?;
                let batches =
                    batches.iter().map(|batch| conform.batch(batch)).collect::<datafusion::common::Result<_>>()?;
                Some(MemTable::try_new(table.schema.arrow(), vec![batches])?)
            }
            _ => None,
        };
        let mut inserted = 0;
        match (&written, mutation.kind) {
            (Some(_), MutationKind::Delete) => {}
            (None, MutationKind::Delete) => {
                let mut deleted = execute_stream(rows, state.task_ctx())?;
                while deleted.try_next().await?.is_some() {}
            }
            (written, _) => {
                let rows = match written {
                    Some(written) => written.scan(&state, None, &[], None).await?,
                    None => rows,
                };
                let insert = InsertExec::of_planned(Arc::clone(self.store()), Arc::clone(table), rows);
                inserted = count_of(execute_stream(Arc::new(insert), state.task_ctx())?).await?;
            }
        }
        let Changed { rows: changed, deleted } = std::mem::take(&mut *changed.lock());
        if !changed.is_empty()
            && let Some(transaction) = changes.transaction()
        {
            transaction.delete_rows(table.id, &changed).await?;
        }
        match (written, mutation.returning_query()) {
            (Some(written), Some(returning)) => {
                let batches = self.returned(changes, written, returning, parameters).await?;
                Ok(Outcome::Rows(batches))
            }
            _ => Ok(Outcome::Done(Done::with_rows(mutation.kind.verb(), inserted + deleted))),
        }
    }

    /// What `RETURNING` asks for, of the rows that were written.
    async fn returned(
        &self,
        changes: &Changes,
        written: MemTable,
        query: Box<Query>,
        parameters: &Parameters,
    ) -> Result<datafusion::execution::SendableRecordBatchStream> {
        let mut catalog = self.catalog(changes.snapshot(), None);
        catalog.relations.push((WRITTEN, Arc::new(written)));
        let state = catalog.state(self.context.state());
        let plan = plan_of(&state, query, parameters).await?;
        let physical = state.create_physical_plan(&plan).await?;
        let schema = physical.schema();
        // All of them now: an error must come before the rows are committed.
        let rows: Vec<RecordBatch> = execute_stream(physical, state.task_ctx())?.try_collect().await?;
        let rows = futures::stream::iter(rows.into_iter().map(Ok));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// The state in which the query of a mutation of a table is planned and run.
    fn target_state(&self, changes: &Changes, table: &Arc<Table>, names: Option<&Arc<Names>>) -> SessionState {
        let target = TautTable::with_row_ids(Arc::clone(self.store()), Arc::clone(table));
        if let Some(transaction) = changes.transaction() {
            transaction.reads(table.id);
        }
        let mut catalog = self.catalog(changes.snapshot(), names);
        catalog.relations.push((TARGET, Arc::new(target) as Arc<dyn TableProvider>));
        let mut state = catalog.state(self.context.state());
        state.config_mut().set_extension(Arc::new(changes.clone()));
        state
    }

    /// Removes all rows of tables.
    pub(super) fn truncate(&self, names: &[String]) -> Result<Outcome> {
        self.check_may_write("TRUNCATE")?;
        let snapshot = self.snapshot();
        let table = |name: &String| match snapshot.table(name) {
            Some(table) => Ok(table.id),
            None => Err(QueryError::NotFound { kind: "table", name: name.clone() }),
        };
        let tables = names.iter().map(table).collect::<Result<Vec<_>>>()?;
        self.changes().commit(|edit| tables.iter().try_for_each(|table| edit.truncate(*table)))?;
        Ok(Outcome::Done(Done::of("TRUNCATE TABLE")))
    }
}

async fn plan_of(state: &SessionState, query: Box<Query>, parameters: &Parameters) -> Result<LogicalPlan> {
    let statement = EngineStatement::Statement(Box::new(Ast::Query(query)));
    match parameters.numbered(&statement)? {
        Some((statement, parameters)) => {
            let plan = state.statement_to_plan(statement).await?;
            Ok(parameters.bind(plan)?)
        }
        None => {
            let plan = state.statement_to_plan(statement).await?;
            Ok(parameters.bind(plan)?)
        }
    }
}
