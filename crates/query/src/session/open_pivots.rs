//! Statements with a `PIVOT` that does not list its values. The values are queried first.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as PlannerStatement;
use futures::TryStreamExt;
use taut_sql::{PIVOT_VALUES_MAX, Parameters, list_pivot_values, pivot_values_query, type_name, with_pivots};

use super::dml::plan_part;
use super::{Outcome, QuerySession};
use crate::error::{QueryError, Result};
use crate::exec::reads::create_physical_plan;

impl QuerySession {
    /// Queries the values of each `PIVOT`, sorted as text, adds them to the statement and runs it.
    pub(super) async fn run_with_pivots(&self, open: &PlannerStatement, parameters: &Parameters) -> Result<Outcome> {
        let mut statement = open.clone();
        while let Some(query) = pivot_values_query(&statement)? {
            let (texts, type_name) = self.pivot_values(query, parameters).await?;
            list_pivot_values(&mut statement, &texts, &type_name)?;
        }
        let statement = with_pivots(statement)?;
        match self.run_in_attached(&statement, parameters).await? {
            Some(outcome) => Ok(outcome),
            None => Box::pin(self.run_statement(&statement, parameters)).await,
        }
    }

    /// Runs the query for the values of a `PIVOT`. Returns the values as sorted text, and the name of their SQL type.
    async fn pivot_values(&self, query: PlannerStatement, parameters: &Parameters) -> Result<(Vec<String>, String)> {
        let state = self.state(None);
        let physical = create_physical_plan(&state, &plan_part(&state, query, parameters).await?).await?;
        let type_name = type_name(physical.schema().field(0).data_type());
        let mut rows = execute_stream(physical, state.task_ctx())?;
        let mut texts = Vec::new();
        while let Some(batch) = rows.try_next().await? {
            let column = cast(batch.column(1), &DataType::Utf8).map_err(datafusion::error::DataFusionError::from)?;
            texts.extend(column.as_string::<i32>().iter().flatten().map(str::to_owned));
            if texts.len() > PIVOT_VALUES_MAX {
                let what = format!("PIVOT of a column with more than {PIVOT_VALUES_MAX} values");
                return Err(QueryError::unsupported(what, "PIVOT t ON a IN (1, 2) USING sum(b) lists some of them"));
            }
        }
        texts.sort();
        Ok((texts, type_name))
    }
}
