//! Pushdown of physical filters, unless names of columns are ambiguous.
//!
//! DataFusion maps the columns of a filter by name where it passes a projection, a repartitioning or an aggregation. If
//! two columns have one name, the filter of one is applied to the other, and rows are lost:
//!
//! ```text
//!   FilterExec: x@1 = -1 OR x@3 = 0          pushed as x@1 = -1 OR x@1 = 0
//!     ProjectionExec: [id@2, x@3, id@0, x@1]
//! ```
//!
//! Plans with such a filter skip this pushdown. Little is lost, because the filters of a statement have already been
//! pushed down in the logical plan.

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// DataFusion's rule, applied only to plans in which the columns of filters have unambiguous names.
pub struct UnambiguousFilterPushdown(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl Debug for UnambiguousFilterPushdown {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("UnambiguousFilterPushdown").field(&self.0.name()).finish()
    }
}

impl PhysicalOptimizerRule for UnambiguousFilterPushdown {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if is_ambiguous(&plan)? { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Whether a node pushes down a filter on a column that has the name of another column in a node below.
fn is_ambiguous(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        for Filtered { expressions, input } in filtered(node) {
            let columns = expressions.iter().flat_map(collect_columns);
            found |= has_duplicate(columns.map(|column| column.name().to_owned()).collect(), &input)?;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Expressions whose columns occur in the filters, static or dynamic, that a node pushes down into one of its inputs.
struct Filtered {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    input: Arc<dyn ExecutionPlan>,
}

fn filtered(node: &Arc<dyn ExecutionPlan>) -> Vec<Filtered> {
    let filtered = |expressions, input: &Arc<dyn ExecutionPlan>| Filtered { expressions, input: Arc::clone(input) };
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return vec![filtered(vec![Arc::clone(filter.predicate())], filter.input())];
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let (left, right) = join.on().iter().cloned().unzip();
        return vec![filtered(left, join.left()), filtered(right, join.right())];
    }
    if let Some(sort) = node.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some()) {
        return vec![filtered(sort.expr().iter().map(|key| Arc::clone(&key.expr)).collect(), sort.input())];
    }
    // Only an aggregation without groups pushes down filters.
    let has_no_groups = |aggregate: &&AggregateExec| aggregate.group_expr().is_empty();
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>().filter(has_no_groups) {
        let arguments = aggregate.aggr_expr().iter().flat_map(|call| call.expressions());
        return vec![filtered(arguments.collect(), aggregate.input())];
    }
    Vec::new()
}

/// Whether an input, or a node below it, has two columns of one of these names, or of a name from which a projection
/// computes one of them.
fn has_duplicate(mut names: HashSet<String>, input: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut duplicates: HashSet<String> = HashSet::new();
    input.apply(|node| {
        let mut seen = HashSet::new();
        let schema = node.schema();
        duplicates.extend(
            schema.fields().iter().filter(|field| !seen.insert(field.name())).map(|field| field.name().clone()),
        );
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            for projected in projection.expr() {
                let is_renamed = match projected.expr.downcast_ref::<Column>() {
                    Some(column) => column.name() != projected.alias,
                    None => names.contains(&projected.alias),
                };
                if is_renamed {
                    let columns = collect_columns(&projected.expr);
                    names.extend(columns.into_iter().map(|column| column.name().to_owned()));
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(!duplicates.is_disjoint(&names))
}
