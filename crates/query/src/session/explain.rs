//! `EXPLAIN` of statements that change rows.
//!
//! The rows that such a statement changes, and their new values, come from a query. `EXPLAIN` shows the plan of this
//! query: see docs/adr/0018-changes-of-rows-are-queries.md. `EXPLAIN ANALYZE` also changes the rows, as in PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::common::format::{ExplainAnalyzeCategories, ExplainFormat, ExplainStatementOptions};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{self, Statement as Ast};
use futures::TryStreamExt;
use taut_sql::{Attachment, ModifyingWith, MutationKind, Names, Parameters, PartStatement, Statement, parameter};
use taut_store::Table;

use super::dml::{
    BoundMutation, MutationRequest, bind_mutation, check_parameters, engine_query, explain_statement, plan_part,
};
use super::modifying_with::RelationsGuard;
use super::returned_rows::ReturnedRows;
use super::{Outcome, QuerySession, collect_as_stream, stream_of_batches};
use crate::error::{QueryError, Result};
use crate::exec::insert::InsertExec;
use crate::exec::reads::withdraw_reads;
use crate::plan::cache::CacheEntry;
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
        let state = self.target_state(&changes, table, *names)?;
        let query = engine_query(query.query);
        if !request.is_part {
            check_parameters(&query, mutation, parameters)?;
        }
        let plan = plan_part(&state, explain_statement(query, options), parameters).await?;
        let physical = state.create_physical_plan(&plan).await?;
        withdraw_reads(&state);
        Ok(Outcome::Rows(collect_as_stream(physical, &state).await?))
    }

    /// Returns the plan of a prepared statement. The values of its parameters have their declared types.
    pub(super) async fn explain_execute(
        &self,
        name: &str,
        values: &Parameters,
        options: &ExplainStatementOptions,
    ) -> Result<Outcome> {
        let mut prepared = self.prepared.get(name)?;
        match &mut prepared {
            Statement::Planned { statement, plan, .. } => {
                let explained = match statement.as_ref() {
                    PlannerStatement::Statement(ast)
                        if let Ast::Prepare { data_types, statement: query, .. } = ast.as_ref() =>
                    {
                        PlannerStatement::Statement(Box::new(with_declared_types(query, data_types)))
                    }
                    other => other.clone(),
                };
                *statement = Arc::new(explain_statement(explained, options));
                *plan = Attachment::default();
            }
            Statement::Mutation { explain, .. } => *explain = Some(options.clone()),
            Statement::ModifyingWith { explain, .. } if !options.analyze => *explain = Some(options.clone()),
            _ => return Err(QueryError::unsupported(format!("EXPLAIN ANALYZE EXECUTE {name}"), "EXPLAIN EXECUTE is")),
        }
        Box::pin(self.run_statement(&prepared, values)).await
    }

    /// Returns the plans of a statement with mutations in its `WITH`, in execution order, without running them.
    pub(super) async fn explain_modifying_with(
        &self,
        statement: &ModifyingWith,
        options: &ExplainStatementOptions,
        (names, parameters): (Option<&Arc<Names>>, &Parameters),
    ) -> Result<Outcome> {
        parameters.check_parts(&[&statement.statement])?;
        let _relations = RelationsGuard(self);
        let mut plans = Vec::new();
        for part in &statement.parts {
            let explained = self.explain_part(&part.statement, options, (names, parameters)).await?;
            for batch in explained.plans {
                plans.push(with_prefix(&batch, &format!("CTE {}: ", part.name))?);
            }
            if let Some(schema) = explained.returned {
                let no_rows: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(schema, vec![vec![]])?);
                self.running.lock().relations.push((part.relation.clone().into(), no_rows));
            }
        }
        let main = self.explain_part(&statement.main, options, (names, parameters)).await?;
        plans.extend(main.plans);
        Ok(Outcome::Rows(stream_of_batches(LogicalPlan::explain_schema(), plans)))
    }

    async fn explain_part(
        &self,
        part: &PartStatement,
        options: &ExplainStatementOptions,
        (names, parameters): (Option<&Arc<Names>>, &Parameters),
    ) -> Result<ExplainedPart> {
        let (outcome, returned) = match part {
            PartStatement::Query(query) => {
                let state = self.state(names);
                let plan = plan_part(&state, explain_statement(query.as_ref().clone(), options), parameters).await?;
                let physical = state.create_physical_plan(&plan).await?;
                let query = plan_part(&state, query.as_ref().clone(), parameters).await?;
                let returned = state.create_physical_plan(&query).await?.schema();
                withdraw_reads(&state);
                (Outcome::Rows(collect_as_stream(physical, &state).await?), Some(returned))
            }
            PartStatement::Mutation(mutation) => {
                let plan = CacheEntry::default();
                let request = MutationRequest { mutation, names, parameters, plan, analyze: None, is_part: true };
                (self.explain_mutation(&request, options).await?, self.returned_schema(&request).await?)
            }
        };
        let plans = match outcome {
            Outcome::Rows(rows) => rows.try_collect().await?,
            Outcome::Done(_) => Vec::new(),
        };
        Ok(ExplainedPart { plans, returned })
    }

    /// Columns that a mutation returns. Returns `None` if it has no `RETURNING`.
    async fn returned_schema(&self, request: &MutationRequest<'_>) -> Result<Option<SchemaRef>> {
        let Some(query) = request.mutation.returning_query() else { return Ok(None) };
        let changes = self.changes();
        let snapshot = changes.snapshot();
        let table = self.target_table(&snapshot, request.mutation)?;
        let by_name = self.with_columns_by_name(request.mutation, request.names).await?;
        let mutation = by_name.as_ref().unwrap_or(request.mutation);
        let (names, parameters, plan) = (request.names, request.parameters, CacheEntry::default());
        let bound = MutationRequest { mutation, names, parameters, plan, analyze: None, is_part: true };
        let planned = self.plan_mutation(&changes, &bound, table).await?;
        withdraw_reads(&planned.state);
        let no_rows = ReturnedRows::new(
            Vec::new(),
            &planned.rows.schema(),
            (table, mutation.kind),
            planned.state.config_options(),
        )?;
        let written = (table.as_ref(), no_rows.returned);
        let (state, plan) = self.plan_returning(&planned.changes, written, (mutation, query), parameters).await?;
        let schema = state.create_physical_plan(&plan).await?.schema();
        withdraw_reads(&state);
        Ok(Some(schema))
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

/// Casts the parameters of a prepared statement to their declared types.
fn with_declared_types(statement: &Ast, data_types: &[ast::DataType]) -> Ast {
    let mut statement = statement.clone();
    let _: ControlFlow<()> = ast::visit_expressions_mut(&mut statement, |expression| {
        if let Some(data_type) = parameter(expression).and_then(|index| data_types.get(index)) {
            *expression = ast::Expr::Cast {
                kind: ast::CastKind::Cast,
                expr: Box::new(expression.clone()),
                data_type: data_type.clone(),
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    });
    statement
}

/// The plans of a part, and the columns that it returns. A part is a statement in `WITH`, or the statement after it.
struct ExplainedPart {
    plans: Vec<RecordBatch>,
    returned: Option<SchemaRef>,
}

/// Returns the rows of an `EXPLAIN`, with a prefix before the type of each plan, as in `CTE a: logical_plan`.
fn with_prefix(batch: &RecordBatch, prefix: &str) -> Result<RecordBatch> {
    let types = batch.column(0).as_string_opt::<i32>().into_iter().flatten();
    let types: StringArray = types.map(|plan_type| Some(format!("{prefix}{}", plan_type?))).collect();
    let mut columns = batch.columns().to_vec();
    columns[0] = Arc::new(types);
    Ok(RecordBatch::try_new(batch.schema(), columns).map_err(DataFusionError::from)?)
}
