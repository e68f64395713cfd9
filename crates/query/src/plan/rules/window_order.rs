//! Preserves the order of a subquery below windows without an order. For example,
//! `SELECT row_number() OVER () FROM (SELECT ... ORDER BY a)` numbers the rows in the order of `a`. DataFusion would
//! drop a sort that no operator requires.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::exec::insert::has_sort;

/// Rule that makes such windows require the order of their input. It runs before the rules that remove sorts.
#[derive(Debug, Default)]
pub struct WindowOrder;

impl PhysicalOptimizerRule for WindowOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let required = plan.transform_up(|node| match node.children().as_slice() {
            [input] if is_window_over_all(&node) && has_sort(input)? => {
                let input = OutputRequirements::new_add_mode().optimize(Arc::clone(input), config)?;
                let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Ok(Transformed::yes(node.replace_children(vec![input], options)?))
            }
            _ => Ok(Transformed::no(node)),
        });
        Ok(required?.data)
    }

    fn name(&self) -> &str {
        "taut_window_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a plan computes windows that have neither partitions nor an order.
pub(super) fn is_window_over_all(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let expressions = match (plan.downcast_ref::<WindowAggExec>(), plan.downcast_ref::<BoundedWindowAggExec>()) {
        (Some(window), _) => window.window_expr(),
        (_, Some(window)) => window.window_expr(),
        _ => return false,
    };
    expressions.iter().all(|window| window.partition_by().is_empty() && window.order_by().is_empty())
}
