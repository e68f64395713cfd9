//! The engine omits casts from column names: `sum(a)` and `sum(a::bigint)` in one query would be two columns of the
//! same name. Here, an argument that contains a cast is named by its full text.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};

/// Planner that gives aliases to the arguments of aggregates that contain casts.
#[derive(Debug)]
pub struct AggregateNames;

impl ExprPlanner for AggregateNames {
    fn plan_aggregate(&self, mut raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        for argument in &mut raw.args {
            let has_cast = argument.exists(|part| Ok(matches!(part, Expr::Cast(_) | Expr::TryCast(_))))?;
            if has_cast && !matches!(argument, Expr::Alias(_)) {
                let name = argument.to_string();
                *argument = std::mem::take(argument).alias(name);
            }
        }
        Ok(PlannerResult::Original(raw))
    }
}
