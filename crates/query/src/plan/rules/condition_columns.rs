//! Orders and partitions by a condition, such as `ORDER BY a > 1 AND b < 2` and `PARTITION BY a = b`. DataFusion does
//! not recognize that rows are sorted by such an expression, and fails. This rule computes the condition as a column
//! below the sort or the window.
//!
//! It does the same with volatile expressions, such as `ORDER BY random()`. DataFusion would compute them more than
//! once for a row, or drop the sort.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Sort, Window, ident};
use datafusion::optimizer::AnalyzerRule;

/// Rule that sorts and partitions by conditions as columns.
#[derive(Debug, Default)]
pub struct ConditionColumns;

impl AnalyzerRule for ConditionColumns {
    fn name(&self) -> &str {
        "taut_condition_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let changed = match &node {
                LogicalPlan::Sort(sort) => sorted(sort)?,
                LogicalPlan::Window(window) => partitioned(window)?,
                _ => None,
            };
            Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })?;
        Ok(changed.data)
    }
}

fn sorted(sort: &Sort) -> Result<Option<LogicalPlan>> {
    let mut columns = Columns::new(&sort.input);
    let order = sort.expr.iter().map(|order| columns.order(order)).collect::<Result<Vec<_>>>()?;
    let Some(input) = columns.input()? else { return Ok(None) };
    let sorted = LogicalPlanBuilder::from(input).sort_with_limit(order, sort.fetch)?.project(columns.of_input)?;
    Ok(Some(sorted.build()?))
}

fn partitioned(window: &Window) -> Result<Option<LogicalPlan>> {
    let mut columns = Columns::new(&window.input);
    let windows = window.window_expr.iter().map(|expression| {
        let name = NamePreserver::new_for_projection().save(expression);
        let replaced = expression.clone().transform_up(|part| match part {
            Expr::WindowFunction(mut function) => {
                let params = &mut function.params;
                for key in &mut params.partition_by {
                    *key = columns.column(key)?;
                }
                for order in &mut params.order_by {
                    *order = columns.order(order)?;
                }
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(replaced.data))
    });
    let windows = windows.collect::<Result<Vec<_>>>()?;
    let Some(input) = columns.input()? else { return Ok(None) };
    let output = window.schema.columns().into_iter().map(Expr::Column);
    Ok(Some(LogicalPlanBuilder::from(input).window(windows)?.project(output)?.build()?))
}

/// Columns of an input, and conditions that become columns.
struct Columns<'a> {
    plan: &'a LogicalPlan,
    schema: &'a DFSchema,
    of_input: Vec<Expr>,
    conditions: Vec<Expr>,
}

impl<'a> Columns<'a> {
    fn new(plan: &'a LogicalPlan) -> Self {
        let of_input = plan.schema().columns().into_iter().map(Expr::Column).collect();
        Self { plan, schema: plan.schema(), of_input, conditions: Vec::new() }
    }

    fn order(&mut self, order: &SortExpr) -> Result<SortExpr> {
        Ok(order.with_expr(self.column(&order.expr)?))
    }

    /// Returns the column of a condition or of a volatile expression, and other expressions unchanged.
    fn column(&mut self, expression: &Expr) -> Result<Expr> {
        let becomes_column = expression.is_volatile() || expression.get_type(self.schema)? == DataType::Boolean;
        if matches!(expression, Expr::Column(_)) || !becomes_column {
            return Ok(expression.clone());
        }
        let index = self.conditions.iter().position(|condition| condition == expression).unwrap_or_else(|| {
            self.conditions.push(expression.clone());
            self.conditions.len() - 1
        });
        Ok(ident(condition_name(index)))
    }

    /// Returns the input with the conditions as columns, or `None` if there are no conditions.
    fn input(&self) -> Result<Option<LogicalPlan>> {
        if self.conditions.is_empty() {
            return Ok(None);
        }
        let conditions = self.conditions.iter().enumerate();
        let conditions = conditions.map(|(index, condition)| condition.clone().alias(condition_name(index)));
        let columns = self.of_input.iter().cloned().chain(conditions);
        Ok(Some(LogicalPlanBuilder::from(self.plan.clone()).project(columns)?.build()?))
    }
}

fn condition_name(index: usize) -> String {
    format!("taut condition {index}")
}
