//! From a statement to a physical plan: the engine's configuration, planning rules, tables and files as DataFusion sees
//! them, values of parameters, and cached plans.

pub mod assignment_cast;
pub mod cache;
pub mod engine;
pub mod files;
pub mod parameters;
pub mod rules;
pub mod table;

use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;

/// Plans a statement. A name in an expression of `ORDER BY` is an input column first, and an alias only where no such
/// column exists.
///
/// # Errors
/// Those of the engine's planner.
pub async fn statement_to_plan(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    if let Some(by_columns) = taut_sql::order_by_columns(&statement)
        && let Ok(plan) = Box::pin(state.statement_to_plan(by_columns)).await
    {
        return Ok(plan);
    }
    state.statement_to_plan(statement).await
}
