//! Multiplicity of rows in `EXCEPT ALL` and `INTERSECT ALL`.
//!
//! Let a row occur `m` times on the left and `n` times on the right. It occurs `max(m - n, 0)` times in `EXCEPT ALL`,
//! and `min(m, n)` times in `INTERSECT ALL`. DataFusion joins both sides on all columns, which returns such a row 0 or
//! `m` times. This rule numbers equal rows on each side, and joins on the numbers too:
//!
//! ```text
//!   left     right         left      right        EXCEPT ALL   INTERSECT ALL
//!   a a a    a        ->   a1 a2 a3  a1           a a          a
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

/// Name of the column that numbers equal rows.
const ORDINAL: &str = "taut ordinal of equal rows";

/// Rule that numbers the rows. It runs before rules that may change the joins by which it recognizes set operations.
#[derive(Debug, Default)]
pub struct SetOperations;

impl AnalyzerRule for SetOperations {
    fn name(&self) -> &str {
        "taut_set_operations"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if is_set_operation(&join) => Ok(Transformed::yes(with_ordinals(&join)?)),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(changed.data)
    }
}

/// Whether a join is `EXCEPT ALL` or `INTERSECT ALL`: on all columns of both sides, where nulls are equal. `EXCEPT` and
/// `INTERSECT` without `ALL` differ only in that the rows on the left are distinct.
fn is_set_operation(join: &Join) -> bool {
    let columns = |plan: &LogicalPlan| plan.schema().columns();
    let is_key = |key: &Expr, column: &Column| {
        matches!(key, Expr::Column(key) if key.name == column.name
            && (key.relation.is_none() || key.relation == column.relation))
    };
    let (left, right) = (columns(&join.left), columns(&join.right));
    matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == left.len()
        && join.on.len() == right.len()
        && join
            .on
            .iter()
            .zip(left.iter().zip(&right))
            .all(|(key, columns)| is_key(&key.0, columns.0) && is_key(&key.1, columns.1))
        && left.iter().all(|column| column.name != ORDINAL)
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn with_ordinals(join: &Join) -> Result<LogicalPlan> {
    let columns = join.left.schema().columns();
    let (left, right) = (numbered(&join.left)?, numbered(&join.right)?);
    let keys = (left.schema().columns(), right.schema().columns());
    LogicalPlanBuilder::from(left)
        .join_detailed(right, join.join_type, keys, None, join.null_equality)?
        .project(columns.into_iter().map(Expr::Column))?
        .build()
}

/// Adds a column that numbers equal rows.
fn numbered(plan: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let ordinal = row_number().partition_by(partition_key(plan, &columns)).build()?;
    let numbered = LogicalPlanBuilder::from(Arc::clone(plan)).window([ordinal.clone()])?;
    let ordinal = Expr::Column(Column::from_name(ordinal.schema_name().to_string())).alias(ORDINAL);
    numbered.project(columns.into_iter().chain([ordinal]))?.build()
}

/// Returns the columns of a plan, except columns that repeat an earlier column. DataFusion cannot partition by two
/// columns that it knows to be equal.
fn partition_key(plan: &LogicalPlan, columns: &[Expr]) -> Vec<Expr> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => partition_key(&alias.input, columns),
        LogicalPlan::Projection(projection) => {
            let values: Vec<Expr> = projection.expr.iter().map(|value| value.clone().unalias()).collect();
            let is_first = |index: &usize| !values[..*index].contains(&values[*index]);
            (0..values.len()).filter(is_first).map(|index| columns[index].clone()).collect()
        }
        _ => columns.to_vec(),
    }
}
