//! Conditions on index columns, for queries whose conditions are on the expressions of indexes.
//!
//! ```text
//! CREATE INDEX i ON t (lower(a))             lower(a) = 'x'           becomes   "taut index i.1" = 'x'
//! CREATE INDEX j ON t (a) WHERE b IS NULL    a = 'x' AND b IS NULL    gets      AND "taut index j.1" = 'x'
//! ```
//!
//! The column of an index without a predicate equals the expression in every row, so it replaces the expression. The
//! column of a partial index equals the expression only in rows for which the index predicate is true. If the
//! conditions of the query imply this predicate, each condition is also true with the column instead of the expression.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_plan::PhysicalExpr;
use taut_store::Table;

use super::predicate::implies;
use crate::constraints::{PlannedIndexColumn, plan_index_columns};

/// Conditions of a query that may read index columns.
#[derive(Debug)]
pub struct IndexedConditions {
    /// The conditions of the query, with index columns instead of their expressions.
    pub conditions: Vec<Expr>,
    /// Additional conditions, which the conditions of the query imply.
    pub implied: Vec<Expr>,
}

impl IndexedConditions {
    /// Rewrites the conditions of a query on a table. Columns in `filters` have no qualifiers.
    ///
    /// # Errors
    /// If an expression of an index can no longer be planned.
    pub fn new(filters: &[Expr], table: &Table) -> Result<Self> {
        if table.constraints.index_columns.is_empty() || filters.is_empty() {
            return Ok(Self { conditions: filters.to_vec(), implied: Vec::new() });
        }
        let planned = plan_index_columns(table);
        let planned = planned.map_err(|error| datafusion::common::DataFusionError::External(Box::new(error)))?;
        let schema = DFSchema::try_from(table.schema.arrow())?;
        // An index on a constant does not narrow a search.
        let usable = |column: &&PlannedIndexColumn| {
            let stored = table.schema.column(column.column).logical_type.arrow();
            !column.value.column_refs().is_empty() && column.value.get_type(&schema).is_ok_and(|found| found == stored)
        };
        // A condition on a table column is not replaced, because it may also use another index, a sort order or
        // partitions by that column.
        let is_added =
            |column: &&PlannedIndexColumn| !column.predicate.is_empty() || matches!(column.value, Expr::Column(_));
        let (partial, full): (Vec<_>, Vec<_>) = planned.iter().filter(usable).partition(is_added);
        let conjuncts: Vec<Expr> = filters.iter().flat_map(split_conjunction).cloned().collect();
        let mut implied = Vec::new();
        for column in partial {
            let with_column = || conjuncts.iter().filter_map(|conjunct| replaced(conjunct, column, table).transpose());
            let with_column = with_column().collect::<Result<Vec<_>>>()?;
            if !with_column.is_empty() && implies_all(&conjuncts, &column.predicate, table) {
                implied.extend(with_column);
            }
        }
        let replace_all = |conjunct: Expr| {
            full.iter()
                .try_fold(conjunct, |conjunct, column| Ok(replaced(&conjunct, column, table)?.unwrap_or(conjunct)))
        };
        Ok(Self { conditions: conjuncts.into_iter().map(replace_all).collect::<Result<_>>()?, implied })
    }
}

/// Returns a condition with an index column instead of its expression. `None` if the condition does not contain the
/// expression, or is volatile.
fn replaced(condition: &Expr, column: &PlannedIndexColumn, table: &Table) -> Result<Option<Expr>> {
    if condition.is_volatile() {
        return Ok(None);
    }
    let name = &table.schema.column(column.column).name;
    let replaced = condition.clone().transform_down(|part| match part == column.value {
        true => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name)))),
        false => Ok(Transformed::no(part)),
    })?;
    Ok(replaced.transformed.then_some(replaced.data))
}

/// Whether `conditions` imply `conclusions`: all conclusions are true for each row for which all conditions are true.
/// Returns false for an implication that it cannot prove.
pub fn implies_all(conditions: &[Expr], conclusions: &[Expr], table: &Table) -> bool {
    let Ok(schema) = DFSchema::try_from(table.schema.arrow()) else { return false };
    let physical = |expression: &Expr| -> Option<Arc<dyn PhysicalExpr>> {
        let (properties, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        create_physical_expr(expression, &schema, &properties, &planning).ok()
    };
    let mut physical_conditions = None;
    conclusions.iter().all(|conclusion| {
        conditions.contains(conclusion)
            || physical(conclusion).is_some_and(|conclusion| {
                let conditions = physical_conditions
                    .get_or_insert_with(|| conditions.iter().filter_map(physical).collect::<Vec<_>>());
                implies(conditions, &conclusion, &table.schema)
            })
    })
}
