//! Sorts the rows of a union again if DataFusion has lost their order. It sorts the inputs of `SELECT k, k AS z FROM t
//! UNION ALL SELECT 1, 2 ORDER BY z` by `k`, and does not recognize that they are sorted by `z`. It would then refuse
//! its own plan.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

/// Rule that sorts the input of a merge that does not have the order of the merge. It runs before the final check.
#[derive(Debug, Default)]
pub struct UnionOrder;

impl PhysicalOptimizerRule for UnionOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let sorted = plan.transform_up(|node| {
            let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else { return Ok(Transformed::no(node)) };
            let (order, input) = (merge.expr().clone(), Arc::clone(merge.input()));
            if input.equivalence_properties().ordering_satisfy(order.clone())? {
                return Ok(Transformed::no(node));
            }
            let sort = SortExec::new(order, input).with_preserve_partitioning(true).with_fetch(merge.fetch());
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(Arc::clone(&node).replace_children(vec![Arc::new(sort)], options)?))
        });
        Ok(sorted?.data)
    }

    fn name(&self) -> &str {
        "taut_union_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
