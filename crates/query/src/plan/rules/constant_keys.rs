//! Removes keys of joins that are equal constants.
//!
//! The key `a IS NULL = b IS NULL` of a correlated subquery becomes `false = false` where neither column is null.
//! DataFusion computes keys that are expressions as columns of both inputs. Two constants become two columns of one
//! name, and DataFusion renames both inputs, which fails if an input has columns of the same name from two tables:
//!
//! ```text
//!   t.i = v2.key, false = false          inputs with t.k, v1.value, v2.value      ->  t.i = v2.key
//! ```

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Rule that removes constant keys. It runs after the simplifier, which computes constants.
#[derive(Debug, Default)]
pub struct ConstantKeys;

impl OptimizerRule for ConstantKeys {
    fn name(&self) -> &str {
        "taut_constant_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(mut join) if join.on.iter().any(is_always_equal) => {
                join.on.retain(|key| !is_always_equal(key));
                Ok(Transformed::yes(LogicalPlan::Join(join)))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn is_always_equal((left, right): &(Expr, Expr)) -> bool {
    left == right && matches!(left, Expr::Literal(value, _) if !value.is_null())
}
