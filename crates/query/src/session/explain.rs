//! `EXPLAIN` of statements that change rows.
//!
//! The rows that such a statement changes, and their new values, come from a query
//! (docs/adr/0018-changes-of-rows-are-queries.md), whose plan is shown. With `ANALYZE` they are changed, as in PostgreSQL.

use std::sync::Arc;

use datafusion::common::format::{ExplainAnalyzeCategories, ExplainStatementOptions};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::sql::parser::{ExplainStatement, Statement as EngineStatement};

use super::mutate::{Asked, Mutate, asked, bound_plan, engine_query, target};
use super::{Outcome, QuerySession, collected};
use crate::changes::Changes;
use crate::error::Result;
use crate::load::InsertExec;
use crate::statement::MutationKind;

impl QuerySession {
    /// Shows how a mutation would be run; with `ANALYZE`, runs it and shows how that was.
    pub(super) async fn explain_mutation(
        &self,
        mutate: &Mutate<'_>,
        options: &ExplainStatementOptions,
    ) -> Result<Outcome> {
        if !options.analyze {
            return self.show_plan(mutate, options).await;
        }
        self.check_may_write(mutate.mutation.kind.verb())?;
        self.in_transaction(async |changes: Changes| self.analyze(&changes, mutate, options).await).await
    }

    async fn show_plan(&self, mutate: &Mutate<'_>, options: &ExplainStatementOptions) -> Result<Outcome> {
        let Mutate { mutation, names, parameters, .. } = mutate;
        let changes = self.changes();
        let snapshot = changes.snapshot();
        let table = target(&snapshot, mutation)?;
        let Asked { query, .. } = asked(mutation, table)?;
        let state = self.target_state(&changes, table, *names);
        let (options, statement) = (options.clone(), Box::new(engine_query(query.query)));
        let explain = EngineStatement::Explain(ExplainStatement { options, statement });
        let plan = bound_plan(&state, explain, parameters).await?;
        Ok(Outcome::Rows(collected(state.create_physical_plan(&plan).await?, &state).await?))
    }

    async fn analyze(
        &self,
        changes: &Changes,
        mutate: &Mutate<'_>,
        options: &ExplainStatementOptions,
    ) -> Result<Outcome> {
        let snapshot = changes.snapshot();
        let table = target(&snapshot, mutate.mutation)?;
        let planned = self.plan_mutation(changes, mutate, table).await?;
        let rows = Arc::clone(&planned.rows);
        let plan: Arc<dyn ExecutionPlan> = match mutate.mutation.kind {
            MutationKind::Delete => rows,
            _ => Arc::new(InsertExec::of_planned(Arc::clone(self.store()), Arc::clone(table), rows)),
        };
        let defaults = &planned.state.config_options().explain;
        let shows_statistics = options.show_statistics.unwrap_or(defaults.show_statistics);
        let level = options.analyze_level.unwrap_or(defaults.analyze_level);
        let categories = match options.analyze_categories.as_ref().unwrap_or(&defaults.analyze_categories) {
            ExplainAnalyzeCategories::All => None,
            ExplainAnalyzeCategories::Only(categories) => Some(categories.clone()),
        };
        let analyze = AnalyzeExec::builder(options.verbose, shows_statistics, plan, LogicalPlan::explain_schema())
            .with_metric_types(level.included_types())
            .with_metric_categories(categories)
            .with_format(options.format.clone().unwrap_or_else(|| defaults.format.clone()));
        let shown = collected(Arc::new(analyze.build()), &planned.state).await?;
        planned.delete_rows(table).await?;
        Ok(Outcome::Rows(shown))
    }
}
