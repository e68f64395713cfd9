//! Keeps DataFusion from applying properties of the input of an aggregation with grouping sets to its groups.
//!
//! An example is `SELECT a, b FROM t JOIN u ON a = b GROUP BY CUBE (a, b) ORDER BY a, b`. Both columns are equal in
//! every row of the input, but not in every group. DataFusion would sort by `a` only. [`GroupingInputExec`] hides the
//! equality.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use crate::exec::operators::GroupingInputExec;

/// Rule that hides equal, constant and sorted columns from aggregations with grouping sets. It runs first.
#[derive(Debug, Default)]
pub struct GroupingSets;

impl PhysicalOptimizerRule for GroupingSets {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
            let properties = aggregate.input().equivalence_properties();
            let has_properties = !properties.eq_group().is_empty() || !properties.oeq_class().is_empty();
            if aggregate.group_expr().is_single() || !has_properties {
                return Ok(Transformed::no(node));
            }
            let input: Arc<dyn ExecutionPlan> = Arc::new(GroupingInputExec::new(Arc::clone(aggregate.input())));
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(node.replace_children(vec![input], options)?))
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "taut_grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
