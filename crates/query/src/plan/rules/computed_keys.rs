//! Prepares the keys of joins that are expressions. DataFusion computes them as columns of both inputs, beside the
//! other columns of the inputs, and fails if two of these columns have the same name:
//!
//! - The key `a IS NULL = b IS NULL` of a correlated subquery becomes `false = false` where neither column is null. For
//!   equal constants, DataFusion renames both inputs, which fails if an input has columns of the same name from two
//!   tables. Such a key is always true and is removed.
//! - A cast in a select list has the name of its operand. Pushed down into a join, it gets another name.
//!
//! ```text
//!   t.i = v2.key, false = false          inputs with t.k, v1.value, v2.value      ->  t.i = v2.key
//!   cast_to_integer(t.n) = u.k           inputs with t.n, called t.n too         ->  cast_to_integer(t.n) AS key = u.k
//! ```

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Rule that prepares keys. It runs after the simplifier, which computes constants, and after filters are pushed down.
#[derive(Debug, Default)]
pub struct ComputedKeys;

impl OptimizerRule for ComputedKeys {
    fn name(&self) -> &str {
        "taut_computed_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let count = join.on.len();
        join.on.retain(|key| !is_always_equal(key));
        let mut is_changed = join.on.len() < count;
        for (left, right) in &mut join.on {
            for (key, input) in [(left, &join.left), (right, &join.right)] {
                if is_named_like_column(key, input) {
                    let name = key.to_string();
                    *key = std::mem::take(key).alias(name);
                    is_changed = true;
                }
            }
        }
        let plan = LogicalPlan::Join(join);
        Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
    }
}

fn is_always_equal((left, right): &(Expr, Expr)) -> bool {
    left == right && matches!(left, Expr::Literal(value, _) if !value.is_null())
}

/// Whether a key that is a function has the name of a column of its input. DataFusion itself renames casts.
fn is_named_like_column(key: &Expr, input: &LogicalPlan) -> bool {
    if !matches!(key, Expr::ScalarFunction(_)) {
        return false;
    }
    let name = key.schema_name().to_string();
    input.schema().columns().iter().any(|column| column.flat_name() == name)
}
