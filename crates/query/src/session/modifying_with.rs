//! Statements with an `INSERT`, `UPDATE`, `DELETE` or `MERGE` in `WITH`. Their parts are the statements in `WITH` and
//! the statement after it. As in PostgreSQL, all parts see the rows as they were before the whole statement. Each part
//! runs to its end, even if nothing reads the rows that it returns.
//!
//! ```text
//!   1. compute the rows that each part in WITH writes and removes, in order; later parts can read the rows it returns
//!   2. compute the statement after WITH
//!   3. apply the changes of all parts, in order
//! ```
//!
//! All parts are computed before any is applied, so no part sees the changes of another part.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as PlannerStatement;
use futures::TryStreamExt;
use taut_sql::{ModifyingWith, Mutation, Names, Parameters, PartStatement};
use taut_store::{RowSet, Table, TableId};

use super::computed_changes::{ComputedChanges, ReturnedBatches};
use super::dml::{ATTEMPTS_MAX, MutationRequest, plan_part};
use super::transactions::is_row_conflict;
use super::{Done, Outcome, QuerySession};
use crate::error::{QueryError, Result, Violation};
use crate::exec::reads::create_physical_plan;
use crate::plan::cache::CacheEntry;
use crate::write::changes::Changes;

/// A part whose changes are computed but not applied.
struct ComputedPart<'a> {
    mutation: &'a Mutation,
    table: Arc<Table>,
    changes: ComputedChanges,
}

impl QuerySession {
    /// Runs a statement whose `WITH` changes rows, in the transaction in progress or in its own transaction. Retries it
    /// after write conflicts, like other statements that change rows.
    pub(super) async fn run_modifying_with(
        &self,
        statement: &ModifyingWith,
        names: Option<&Arc<Names>>,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        for mutation in statement.mutations() {
            self.check_may_mutate(mutation)?;
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let run = async |changes: Changes| self.run_parts(&changes, statement, names, parameters).await;
            match self.in_transaction(run).await {
                done if attempts == ATTEMPTS_MAX => return done,
                Err(error) if is_row_conflict(&error) && self.prepare_retry()? => {}
                Err(QueryError::Deadlock) if self.transaction().is_none() => {}
                Err(QueryError::Constraint(violation)) => match self.violating_part(statement, &violation)? {
                    Some(mutation) => self.handle_key_violation(mutation, *violation)?,
                    None => return Err(QueryError::Constraint(violation)),
                },
                done => return done,
            }
        }
    }

    /// Returns the first part with `ON CONFLICT` that changes a table of the violated constraint.
    fn violating_part<'a>(&self, statement: &'a ModifyingWith, violation: &Violation) -> Result<Option<&'a Mutation>> {
        for mutation in statement.mutations().filter(|mutation| mutation.conflict().is_some()) {
            if violation.tables().contains(&self.name(&mutation.table)?.as_str()) {
                return Ok(Some(mutation));
            }
        }
        Ok(None)
    }

    async fn run_parts(
        &self,
        changes: &Changes,
        statement: &ModifyingWith,
        names: Option<&Arc<Names>>,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        parameters.check_parts(&[&statement.statement])?;
        let _relations = RelationsGuard(self);
        let mut computed = Vec::new();
        for part in &statement.parts {
            let returned = match &part.statement {
                PartStatement::Query(query) => Some(self.compute_query(changes, query, names, parameters).await?),
                PartStatement::Mutation(mutation) => {
                    let mut done = self.compute_part(changes, mutation, names, parameters).await?;
                    let returned = done.changes.returned.take();
                    computed.push(done);
                    returned
                }
            };
            if let Some(rows) = returned {
                let rows: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(rows.schema, vec![rows.batches])?);
                self.running.lock().relations.push((part.relation.clone().into(), rows));
            }
        }
        let returned = match &statement.main {
            PartStatement::Query(query) => Some(self.compute_query(changes, query, names, parameters).await?),
            PartStatement::Mutation(mutation) => {
                let mut main = self.compute_part(changes, mutation, names, parameters).await?;
                let returned = main.changes.returned.take();
                computed.push(main);
                returned
            }
        };
        check_changed_once(&computed)?;
        let mut count = 0;
        for part in &computed {
            count = self.apply_changes(&part.changes, &part.table).await?;
        }
        Ok(match (returned, &statement.main) {
            (Some(rows), _) => rows.into_outcome(),
            (None, PartStatement::Mutation(main)) => Outcome::Done(Done::with_rows(main.kind.verb(), count)),
            (None, PartStatement::Query(_)) => Outcome::Done(Done::with_tag("SELECT")),
        })
    }

    /// Computes the changes of a part without applying them.
    async fn compute_part<'a>(
        &self,
        changes: &Changes,
        mutation: &'a Mutation,
        names: Option<&Arc<Names>>,
        parameters: &Parameters,
    ) -> Result<ComputedPart<'a>> {
        let table = Arc::clone(self.target_table(&changes.snapshot(), mutation)?);
        let by_name = self.with_columns_by_name(mutation, names).await?;
        let (plan, bound) = (CacheEntry::default(), by_name.as_ref().unwrap_or(mutation));
        let request = MutationRequest { mutation: bound, names, parameters, plan, analyze: None, is_part: true };
        let changes = self.compute_changes(changes, &request, &table).await?;
        Ok(ComputedPart { mutation, table, changes })
    }

    /// Computes all rows of a query.
    async fn compute_query(
        &self,
        changes: &Changes,
        query: &PlannerStatement,
        names: Option<&Arc<Names>>,
        parameters: &Parameters,
    ) -> Result<ReturnedBatches> {
        let mut state = self.state_on(changes.snapshot(), names);
        state.config_mut().set_extension(Arc::new(changes.clone()));
        let plan = plan_part(&state, query.clone(), parameters).await?;
        let physical = create_physical_plan(&state, &plan).await?;
        let schema = physical.schema();
        let batches = execute_stream(physical, state.task_ctx())?.try_collect().await?;
        Ok(ReturnedBatches { schema, batches })
    }
}

/// Returns an error if two parts remove or replace the same row, because the order of their effects is undefined.
fn check_changed_once(parts: &[ComputedPart<'_>]) -> Result<()> {
    let mut changed: BTreeMap<TableId, RowSet> = BTreeMap::new();
    for part in parts {
        let rows = part.changes.removed_rows();
        let all = changed.entry(part.table.id).or_default();
        let count = all.len() + rows.len();
        all.extend(&rows);
        if all.len() < count {
            return Err(QueryError::Cardinality { verb: part.mutation.kind.verb() });
        }
    }
    Ok(())
}

/// Drop guard: removes the rows of the parts when the statement ends.
pub(super) struct RelationsGuard<'a>(pub &'a QuerySession);

impl Drop for RelationsGuard<'_> {
    fn drop(&mut self) {
        self.0.running.lock().relations.clear();
    }
}
