//! `INSERT ... BY NAME`, which inserts into the columns that its query has. They are known only when the query is
//! planned.

use std::sync::Arc;

use taut_sql::{Mutation, Names};

use super::QuerySession;
use super::dml::engine_query;
use crate::error::Result;
use crate::exec::reads::withdraw_reads;
use crate::plan::statement_to_plan;

impl QuerySession {
    /// Returns an `INSERT ... BY NAME` with the columns of its query. Returns `None` for other statements.
    pub(super) async fn with_columns_by_name(
        &self,
        mutation: &Mutation,
        names: Option<&Arc<Names>>,
    ) -> Result<Option<Mutation>> {
        let Some(query) = mutation.query_by_name() else { return Ok(None) };
        let state = self.state(names);
        let planned = Box::pin(statement_to_plan(&state, &engine_query(query))).await;
        withdraw_reads(&state);
        let plan = planned?;
        let columns = plan.schema().fields().iter().map(|field| field.name().as_str());
        Ok(Some(mutation.with_columns(columns)))
    }
}
