//! `EXPLAIN` of statements that change rows.
//!
//! The rows that such a statement changes, and their new values, come from a query. `EXPLAIN` shows the plan of this
//! query: see docs/adr/0018-changes-of-rows-are-queries.md. With `ANALYZE` the rows are changed, as in PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::common::format::{ExplainAnalyzeCategories, ExplainFormat, ExplainStatementOptions};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt;
use taut_sql::MutationKind;
use taut_store::Table;

use super::dml::{
    BoundMutation, MutationRequest, bind_mutation, check_parameters, engine_query, explain_statement, plan_part,
};
use super::{Outcome, QuerySession, collect_as_stream, stream_of_batches};
use crate::error::{QueryError, Result};
use crate::exec::insert::InsertExec;
use crate::exec::reads::withdraw_reads;
use crate::write::changes::Changes;

impl QuerySession {
    /// Returns the plan of a mutation without running it.
    pub(super) async fn explain_mutation(
        &self,
        request: &MutationRequest<'_>,
        options: &ExplainStatementOptions,
    ) -> Result<Outcome> {
        let MutationRequest { mutation, names, parameters, .. } = request;
        let changes = self.changes();
        let snapshot = changes.snapshot();
        let table = self.target_table(&snapshot, mutation)?;
        let by_name = self.with_columns_by_name(mutation, *names).await?;
        let mutation = by_name.as_ref().unwrap_or(mutation);
        let BoundMutation { query, .. } = bind_mutation(mutation, table)?;
        let state = self.target_state(&changes, table, *names);
        let query = engine_query(query.query);
        check_parameters(&query, mutation, parameters)?;
        let plan = plan_part(&state, explain_statement(query, options), parameters).await?;
        let physical = state.create_physical_plan(&plan).await?;
        withdraw_reads(&state);
        Ok(Outcome::Rows(collect_as_stream(physical, &state).await?))
    }

    /// Runs a mutation and returns its plan with metrics.
    pub(super) async fn analyze(
        &self,
        changes: &Changes,
        request: &MutationRequest<'_>,
        table: &Arc<Table>,
        options: &ExplainStatementOptions,
    ) -> Result<Outcome> {
        if let Some(format) = options.format.as_ref().filter(|format| **format != ExplainFormat::Indent) {
            let what = format!("EXPLAIN ANALYZE of {} with FORMAT {format}", request.mutation.kind.verb());
            return Err(QueryError::unsupported(what, "FORMAT indent is"));
        }
        let planned = self.plan_mutation(changes, request, table).await?;
        let rows = Arc::clone(&planned.rows);
        let plan: Arc<dyn ExecutionPlan> = match request.mutation.kind {
            MutationKind::Delete => rows,
            _ => {
                let (store, table) = (Arc::clone(self.store()), Arc::clone(table));
                Arc::new(InsertExec::from_physical_plan(store, table, rows, planned.is_in_order))
            }
        };
        // Runs in this future: a separate task might continue after a cancellation.
        let mut written = execute_stream(Arc::clone(&plan), planned.state.task_ctx())?;
        while written.try_next().await?.is_some() {}
        planned.delete_rows(table).await?;
        let defaults = &planned.state.config_options().explain;
        let categories = match options.analyze_categories.as_ref().unwrap_or(&defaults.analyze_categories) {
            ExplainAnalyzeCategories::All => None,
            ExplainAnalyzeCategories::Only(categories) => Some(categories.clone()),
        };
        let plan_text = DisplayableExecutionPlan::with_metrics(plan.as_ref())
            .set_metric_types(options.analyze_level.unwrap_or(defaults.analyze_level).included_types())
            .set_metric_categories(categories)
            .set_show_statistics(options.show_statistics.unwrap_or(defaults.show_statistics))
            .indent(options.verbose)
            .to_string();
        let columns =
            ["Plan with Metrics".to_owned(), plan_text].map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
        let schema = LogicalPlan::explain_schema();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).map_err(DataFusionError::from)?;
        Ok(Outcome::Rows(stream_of_batches(schema, vec![batch])))
    }
}
