//! Aggregates of PostgreSQL and DuckDB that DataFusion lacks, or computes differently.

mod moments;
mod quantiles;
mod regr_r2;

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;

/// Adds the aggregates to a session state.
pub fn with_aggregates(mut state: SessionStateBuilder) -> SessionStateBuilder {
    let functions = moments::aggregates().chain(quantiles::aggregates()).chain([regr_r2::regr_r2()]);
    state.aggregate_functions().get_or_insert_default().extend(functions.map(Arc::new));
    state
}
