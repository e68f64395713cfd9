//! Changes of a mutation (a statement that changes rows) that are all computed before any is applied. Mutations with
//! `RETURNING` and mutations in a `WITH` need this.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use taut_sql::MutationKind;
use taut_store::{RowSet, Table};

use super::dml::{MutationRequest, PlannedMutation};
use super::returned_rows::ReturnedRows;
use super::{Outcome, QuerySession, stream_of_batches, sum_counts};
use crate::error::Result;
use crate::exec::insert::InsertExec;
use crate::write::changes::Changes;

/// Changes of a mutation that are not applied yet.
pub(super) struct ComputedChanges {
    planned: PlannedMutation,
    /// Rows to insert. `None` for `DELETE`.
    inserted: Option<MemTable>,
    /// Rows of `RETURNING`.
    pub returned: Option<ReturnedBatches>,
}

/// Rows that a mutation returns.
pub(super) struct ReturnedBatches {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl ReturnedBatches {
    /// Returns the rows as the result of a statement.
    pub fn into_outcome(self) -> Outcome {
        Outcome::Rows(stream_of_batches(self.schema, self.batches))
    }
}

impl ComputedChanges {
    /// Ids of the rows that the mutation removes or replaces.
    pub fn removed_rows(&self) -> RowSet {
        let removed = self.planned.changed.lock();
        let mut rows = removed.replaced.clone();
        rows.extend(&removed.deleted);
        rows
    }
}

impl QuerySession {
    /// Computes the changes of a mutation, and the rows of its `RETURNING`.
    pub(super) async fn compute_changes(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        table: &Arc<Table>,
    ) -> Result<ComputedChanges> {
        let MutationRequest { mutation, parameters, .. } = request;
        let planned = self.plan_mutation(changes, request, table).await?;
        let rows = Arc::clone(&planned.rows);
        let schema = rows.schema();
        let batches: Vec<RecordBatch> = execute_stream(rows, planned.state.task_ctx())?.try_collect().await?;
        let returning = mutation.returning_query();
        if mutation.kind == MutationKind::Delete && returning.is_none() {
            return Ok(ComputedChanges { planned, inserted: None, returned: None });
        }
        let rows = ReturnedRows::new(batches, &schema, (table, mutation.kind), planned.state.config_options())?;
        let returned = match returning {
            // Subqueries of RETURNING read the tables as they were before the statement.
            Some(query) => {
                let rows =
                    self.run_returning(&planned.changes, (table, rows.returned), (mutation, query), parameters).await?;
                Some(ReturnedBatches { schema: rows.schema(), batches: rows.try_collect().await? })
            }
            None => None,
        };
        let inserted = (mutation.kind != MutationKind::Delete).then_some(rows.inserted);
        Ok(ComputedChanges { planned, inserted, returned })
    }

    /// Applies computed changes. Returns the number of inserted, changed or deleted rows.
    pub(super) async fn apply_changes(&self, computed: &ComputedChanges, table: &Arc<Table>) -> Result<u64> {
        let ComputedChanges { planned, inserted, .. } = computed;
        let mut count = 0;
        if let Some(rows) = inserted {
            let rows = rows.scan(&planned.state, None, &[], None).await?;
            let insert = InsertExec::from_physical_plan(Arc::clone(self.store()), Arc::clone(table), rows, false);
            count = sum_counts(execute_stream(Arc::new(insert), planned.state.task_ctx())?).await?;
        }
        Ok(count + planned.delete_rows(table).await?)
    }
}
