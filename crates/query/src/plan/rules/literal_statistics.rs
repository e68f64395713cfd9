//! Aggregates that DataFusion computes from statistics, without the statistics of constants.
//!
//! The statistics of a projection say that a constant column has exactly this constant as its minimum and maximum, also
//! if the input has no rows. A union with other rows then has a wrong minimum or maximum:
//!
//! ```text
//!   SELECT max(x) FROM (SELECT 7 AS x FROM t WHERE false UNION ALL SELECT 5) AS u      7 instead of 5
//! ```

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;

/// DataFusion's rule that answers aggregates from statistics, applied only to plans without constants in unions.
pub struct StatisticsWithoutLiterals(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl Debug for StatisticsWithoutLiterals {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("StatisticsWithoutLiterals").field(&self.0.name()).finish()
    }
}

impl PhysicalOptimizerRule for StatisticsWithoutLiterals {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if unites_literals(&plan)? { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Whether a union of the plan has a constant column in one of its inputs.
fn unites_literals(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<UnionExec>() && node.exists(|below| Ok(has_literal(below)))?))
}

fn has_literal(node: &Arc<dyn ExecutionPlan>) -> bool {
    let projection = node.downcast_ref::<ProjectionExec>();
    projection.is_some_and(|projection| projection.expr().iter().any(|column| column.expr.is::<Literal>()))
}
