//! Order of the rows that an aggregate gets from a subquery with `ORDER BY`.
//!
//! The rows of `SELECT string_agg(y, ',') FROM (SELECT y FROM t ORDER BY x)` have an order in PostgreSQL. DataFusion
//! aggregates them in any order, on several threads. This rule adds the order to the call of the aggregate:
//!
//! ```text
//!   plan                                          with the order
//!   Aggregate: string_agg(z.y)                    string_agg(z.y ORDER BY z.order)
//!     SubqueryAlias: z
//!       Projection: t.y                           t.y, t.x AS order
//!         Sort: t.x
//! ```
//!
//! DataFusion has one order for all aggregates of a query. If one aggregate names an order, or is `DISTINCT`, the other
//! aggregates get no order.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, not_impl_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr};
use datafusion::optimizer::AnalyzerRule;

/// Rule that orders the input of aggregates by the `ORDER BY` of a subquery. It runs before type coercion.
#[derive(Debug, Default)]
pub struct AggregateOrder;

impl AnalyzerRule for AggregateOrder {
    fn name(&self) -> &str {
        "taut_aggregate_order"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            check_orders(&aggregate.aggr_expr)?;
            let calls = calls(&aggregate.aggr_expr)?;
            if !calls.iter().any(needs_order) || !calls.iter().all(has_no_order) {
                return Ok(Transformed::no(node));
            }
            let Some(Ordered { plan, order }) = ordered(&aggregate.input)? else { return Ok(Transformed::no(node)) };
            let names = NamePreserver::new(&node);
            let calls = aggregate.aggr_expr.iter().map(|call| {
                let name = names.save(call);
                let ordered = call.clone().transform_up(|part| match part {
                    Expr::AggregateFunction(mut call) if needs_order(&call) => {
                        call.params.order_by.clone_from(&order);
                        Ok(Transformed::yes(Expr::AggregateFunction(call)))
                    }
                    part => Ok(Transformed::no(part)),
                })?;
                Ok(name.restore(ordered.data))
            });
            let calls = calls.collect::<Result<Vec<_>>>()?;
            let changed = LogicalPlanBuilder::from(plan).aggregate(aggregate.group_expr.clone(), calls)?.build()?;
            Ok(Transformed::yes(changed))
        })?;
        Ok(changed.data)
    }
}

/// Calls of aggregates in the expressions of an aggregation.
fn calls(expressions: &[Expr]) -> Result<Vec<AggregateFunction>> {
    let mut calls = Vec::new();
    for expression in expressions {
        expression.apply(|part| {
            if let Expr::AggregateFunction(call) = part {
                calls.push(call.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(calls)
}

/// Whether the result of a call depends on the order of its rows.
fn needs_order(call: &AggregateFunction) -> bool {
    matches!(call.func.name(), "array_agg" | "string_agg" | "first_value" | "last_value" | "nth_value")
}

fn has_no_order(call: &AggregateFunction) -> bool {
    call.params.order_by.is_empty() && !(call.params.distinct && needs_order(call))
}

/// Refuses aggregates with different orders if one of them is `DISTINCT`: DataFusion would compute the `DISTINCT`
/// aggregate in the order of another one.
fn check_orders(expressions: &[Expr]) -> Result<()> {
    let calls: Vec<_> = calls(expressions)?.into_iter().filter(needs_order).collect();
    let mut orders = calls.iter().map(|call| &call.params.order_by).filter(|order| !order.is_empty());
    let first = orders.next();
    let differ = first.is_some_and(|first| orders.any(|order| order != first));
    if differ && calls.iter().any(|call| call.params.distinct) {
        return not_impl_err!("aggregates with different ORDER BY beside one with DISTINCT are not supported");
    }
    Ok(())
}

/// A plan whose rows have an order.
struct Ordered {
    plan: LogicalPlan,
    /// Order by columns of the plan.
    order: Vec<SortExpr>,
}

/// Returns a plan and the order that its rows have from an `ORDER BY` below it. Adds the columns that the order needs
/// to the projections in between. Returns `None` if the rows have no such order.
fn ordered(plan: &LogicalPlan) -> Result<Option<Ordered>> {
    Ok(match plan {
        LogicalPlan::Sort(sort) => Some(Ordered { plan: plan.clone(), order: sort.expr.clone() }),
        LogicalPlan::Limit(limit) => match ordered(&limit.input)? {
            Some(Ordered { plan: input, order }) => {
                Some(Ordered { plan: plan.with_new_exprs(plan.expressions(), vec![input])?, order })
            }
            None => None,
        },
        LogicalPlan::Filter(filter) => match ordered(&filter.input)? {
            Some(Ordered { plan, order }) => {
                let plan = LogicalPlanBuilder::from(plan).filter(filter.predicate.clone())?.build()?;
                Some(Ordered { plan, order })
            }
            None => None,
        },
        LogicalPlan::SubqueryAlias(alias) => match ordered(&alias.input)? {
            Some(Ordered { plan, order }) => {
                let order = order.into_iter().map(|order| {
                    let renamed = order.expr.clone().transform_up(|part| match part {
                        Expr::Column(column) => {
                            let index = plan.schema().index_of_column(&column)?;
                            let name = plan.schema().field(index).name();
                            let column = Column::new(Some(alias.alias.clone()), name);
                            Ok(Transformed::yes(Expr::Column(column)))
                        }
                        part => Ok(Transformed::no(part)),
                    })?;
                    Ok(order.with_expr(renamed.data))
                });
                let order = order.collect::<Result<Vec<_>>>()?;
                let plan = LogicalPlanBuilder::from(plan).alias(alias.alias.clone())?.build()?;
                Some(Ordered { plan, order })
            }
            None => None,
        },
        LogicalPlan::Projection(projection) => match ordered(&projection.input)? {
            Some(Ordered { plan, order }) => {
                let names = (0..order.len()).map(|index| unused_name(projection.schema.as_ref(), index));
                let names: Vec<String> = names.collect();
                let added = order.iter().zip(&names).map(|(order, name)| order.expr.clone().alias(name));
                let columns: Vec<Expr> = projection.expr.iter().cloned().chain(added).collect();
                let by_name = |name: String| Expr::Column(Column::from_name(name));
                let order = order.iter().zip(names).map(|(order, name)| order.with_expr(by_name(name))).collect();
                Some(Ordered { plan: LogicalPlanBuilder::from(plan).project(columns)?.build()?, order })
            }
            None => None,
        },
        _ => None,
    })
}

/// Name of an added column that a projection does not have.
fn unused_name(schema: &DFSchema, index: usize) -> String {
    let is_unused = |name: &String| schema.fields().iter().all(|field| field.name() != name);
    (0..).map(|number| format!("taut order {}", index + number * 100)).find(is_unused).unwrap_or_default()
}
