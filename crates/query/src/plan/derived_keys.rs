//! Planner of relations that hides the keys of derived tables from `GROUP BY`.
//!
//! `SELECT k, x FROM t GROUP BY k` is valid if `k` is the primary key of `t`: it determines `x`. In PostgreSQL this
//! holds for tables only, not for subqueries, `WITH` queries and views. DataFusion applies it to these too, and adds
//! all columns that it believes to depend on `k` to the `GROUP BY` list. Some do not: see
//! [`CorrectDependencies`](crate::plan::rules::CorrectDependencies).

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::{Column, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::sqlparser::ast::TableFactor;

thread_local! {
    /// Whether the next relation to plan is one that [`DerivedKeys`] has passed on to the default planner. The default
    /// planner offers it to all planners again.
    static IS_OFFERED_AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Plans derived tables by default, without the functional dependencies of their columns.
#[derive(Debug)]
pub struct DerivedKeys;

impl RelationPlanner for DerivedKeys {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if IS_OFFERED_AGAIN.take() || !matches!(relation, TableFactor::Derived { .. } | TableFactor::Table { .. }) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_OFFERED_AGAIN.set(true);
        let plan = without_keys(context.plan(relation)?)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// Removes the dependencies of a relation's schema, unless the relation is a table.
fn without_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    if is_table(&plan) || plan.schema().functional_dependencies().is_empty() {
        return Ok(plan);
    }
    let schema = plan.schema().as_ref().clone().with_functional_dependencies(FunctionalDependencies::empty())?;
    let schema = Arc::new(schema);
    if let LogicalPlan::SubqueryAlias(mut alias) = plan {
        alias.schema = schema;
        return Ok(LogicalPlan::SubqueryAlias(alias));
    }
    let columns = schema.iter().map(|field| Expr::Column(Column::from(field))).collect();
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(columns, Arc::new(plan), schema)?))
}

fn is_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_table(&alias.input),
        _ => false,
    }
}
