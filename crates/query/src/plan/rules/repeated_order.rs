//! Removes repeated expressions from the `ORDER BY` of aggregates.
//!
//! A repetition does not change the order. DataFusion removes it from the requirement on the input, but not from the
//! columns that the aggregate compares, and panics:
//!
//! ```text
//!   first_value(x ORDER BY a, b, a DESC)    first_value(x ORDER BY a, b)
//! ```

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Rule that removes repeated expressions. It runs after the simplifier, which may make different expressions equal.
#[derive(Debug, Default)]
pub struct RepeatedOrder;

impl OptimizerRule for RepeatedOrder {
    fn name(&self) -> &str {
        "taut_repeated_order"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|part| match part {
                Expr::AggregateFunction(mut call) if has_repetition(&call.params.order_by) => {
                    call.params.order_by = distinct(std::mem::take(&mut call.params.order_by));
                    Ok(Transformed::yes(Expr::AggregateFunction(call)))
                }
                part => Ok(Transformed::no(part)),
            })?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    }
}

fn has_repetition(order: &[SortExpr]) -> bool {
    order.iter().enumerate().any(|(index, sort)| order[..index].iter().any(|earlier| are_equal(earlier, sort)))
}

fn are_equal(left: &SortExpr, right: &SortExpr) -> bool {
    left.expr.clone().unalias() == right.expr.clone().unalias()
}

fn distinct(order: Vec<SortExpr>) -> Vec<SortExpr> {
    order.into_iter().fold(Vec::new(), |mut unique: Vec<SortExpr>, sort| {
        if !unique.iter().any(|earlier| are_equal(earlier, &sort)) {
            unique.push(sort);
        }
        unique
    })
}
