//! Sort keys that other sort keys seem to determine.
//!
//! The engine drops a key that the keys before it determine. From `GROUP BY w.k, item` over a join, it derives that
//! `w.k` determines `item`, because `w.k` is a key of `w`. It then returns rows that are not sorted:
//!
//! ```text
//!   SELECT w.k, item, sum(n) FROM w JOIN i ON i.w = w.k GROUP BY w.k, item ORDER BY w.k, item
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The engine's rule that removes repeated expressions, for all but sorts of rows that have functional dependencies.
/// The operator that sorts removes repeated keys itself.
#[derive(Debug)]
pub struct SortKeys(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for SortKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Sort(sort) if !sort.input.schema().functional_dependencies().is_empty() => {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}
