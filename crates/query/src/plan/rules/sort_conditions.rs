//! `ORDER BY` of a condition, such as `ORDER BY a > 1 AND b < 2`. The engine does not recognize that
//! the rows of such a sort are sorted, and fails. Here the condition becomes a column below the sort.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ident};
use datafusion::optimizer::AnalyzerRule;

/// Rule that sorts by conditions as columns.
#[derive(Debug, Default)]
pub struct SortConditions;

impl AnalyzerRule for SortConditions {
    fn name(&self) -> &str {
        "taut_sort_conditions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Sort(sort) = &node else { return Ok(Transformed::no(node)) };
            let schema = sort.input.schema();
            let is_condition = sort.expr.iter().map(|order| is_condition(&order.expr, schema));
            let is_condition = is_condition.collect::<Result<Vec<_>>>()?;
            if !is_condition.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let columns: Vec<Expr> = sort.input.schema().columns().into_iter().map(Expr::Column).collect();
            let mut computed = columns.clone();
            let order = sort.expr.iter().enumerate().map(|(index, order)| {
                if !is_condition[index] {
                    return order.clone();
                }
                let name = format!("taut condition {index}");
                computed.push(order.expr.clone().alias(&name));
                order.with_expr(ident(name))
            });
            let order: Vec<_> = order.collect();
            let input = LogicalPlanBuilder::from(sort.input.as_ref().clone()).project(computed)?;
            let sorted = input.sort_with_limit(order, sort.fetch)?.project(columns)?.build()?;
            Ok(Transformed::yes(sorted))
        })?;
        Ok(changed.data)
    }
}

fn is_condition(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(!matches!(expression, Expr::Column(_)) && expression.get_type(schema)? == DataType::Boolean)
}
