//! Assigns the numbers of sequences in the order of the rows.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::exec::operators::SequenceProjectionExec;

/// Rule that replaces projections with calls of functions on sequences. It runs before DataFusion distributes rows over
/// partitions and drops sorts that no operator needs.
#[derive(Debug, Default)]
pub struct SequenceCalls;

impl PhysicalOptimizerRule for SequenceCalls {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(Transformed::no(node)) };
            let replaced = SequenceProjectionExec::from_projection(projection)?;
            Ok(replaced.map_or_else(|| Transformed::no(Arc::clone(&node)), |new| Transformed::yes(Arc::new(new) as _)))
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "taut_sequence_calls"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
