//! Replaces partial aggregations over a scan by scans that aggregate.
//!
//! The rule runs late, when the predicates of scans are complete, including the dynamic filters of joins.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::exec::scan::TautAggregateExec;
use crate::plan::engine::TautOptions;

/// Rule that lets scans compute partial aggregations. The option `taut.aggregate_in_scan` turns it off.
#[derive(Debug, Default)]
pub struct AggregateInScan;

impl PhysicalOptimizerRule for AggregateInScan {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if config.extensions.get::<TautOptions>().is_some_and(|options| !options.aggregate_in_scan) {
            return Ok(plan);
        }
        let changed = plan.transform_up(|node| {
            Ok(match TautAggregateExec::try_replace(&node)? {
                Some(replacement) => Transformed::yes(replacement),
                None => Transformed::no(node),
            })
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "taut_aggregate_in_scan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
