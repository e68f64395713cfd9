//! Planner of relations that hides the keys of derived tables from `GROUP BY`, and lets an alias name fewer columns
//! than the relation has: in `t AS x (a)`, the other columns keep their names.
//!
//! `SELECT k, x FROM t GROUP BY k` is valid if `k` is the primary key of `t`: it determines `x`. In PostgreSQL this
//! holds for tables only, not for subqueries, `WITH` queries and views. DataFusion applies it to these too, and adds
//! all columns that it believes to depend on `k` to the `GROUP BY` list. Some do not: see
//! [`CorrectDependencies`](crate::plan::rules::CorrectDependencies).

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::{Column, DFSchema, FunctionalDependencies, Result, plan_err};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::sqlparser::ast::{Ident, TableAlias, TableAliasColumnDef, TableFactor};

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
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if IS_OFFERED_AGAIN.take() || !matches!(relation, TableFactor::Derived { .. } | TableFactor::Table { .. }) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let alias = take_column_names(&mut relation);
        IS_OFFERED_AGAIN.set(true);
        let plan = without_keys(context.plan(relation)?)?;
        let alias = alias.map(|alias| with_all_columns(alias, plan.schema())).transpose()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// Removes the alias of a relation if it names columns.
fn take_column_names(relation: &mut TableFactor) -> Option<TableAlias> {
    let (TableFactor::Derived { alias, .. } | TableFactor::Table { alias, .. }) = relation else { return None };
    alias.take_if(|alias| !alias.columns.is_empty())
}

/// Adds the columns that an alias does not name.
fn with_all_columns(mut alias: TableAlias, schema: &DFSchema) -> Result<TableAlias> {
    let (named, columns) = (alias.columns.len(), schema.fields().len());
    if named > columns {
        let name = &alias.name.value;
        return plan_err!("table {name:?} has {columns} columns available but {named} columns specified");
    }
    alias.columns.extend(
        schema
            .fields()
            .iter()
            .skip(named)
            .map(|field| TableAliasColumnDef { name: Ident::with_quote('"', field.name()), data_type: None }),
    );
    Ok(alias)
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
