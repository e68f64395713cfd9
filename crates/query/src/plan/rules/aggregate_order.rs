//! Order of the rows that an aggregate gets from a subquery with `ORDER BY`.
//!
//! The rows of `SELECT string_agg(y, ',') FROM (SELECT y FROM t ORDER BY x)` have an order in PostgreSQL. The engine
//! aggregates them in any order, on several threads. Here the aggregate gets the order as its own:
//!
//! ```text
//!   Aggregate: string_agg(z.y)                    string_agg(z.y ORDER BY z.order)
//!     SubqueryAlias: z
//!       Projection: t.y                           t.y, t.x AS order
//!         Sort: t.x
//! ```
//!
//! Values of `DISTINCT` are in their own order, as in PostgreSQL.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr};
use datafusion::optimizer::AnalyzerRule;

/// Rule that gives aggregates the order of their rows. It runs before type coercion.
#[derive(Debug, Default)]
pub struct AggregateOrder;

impl AnalyzerRule for AggregateOrder {
    fn name(&self) -> &str {
        "taut_aggregate_order"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            if !aggregate.aggr_expr.iter().any(has_free_order) {
                return Ok(Transformed::no(node));
            }
            let Ordered { plan, order } = match ordered(&aggregate.input)? {
                Some(ordered) => ordered,
                None => Ordered { plan: aggregate.input.as_ref().clone(), order: Vec::new() },
            };
            let names = NamePreserver::new(&node);
            let calls = aggregate.aggr_expr.iter().map(|call| {
                let name = names.save(call);
                let ordered = call.clone().transform_up(|part| match part {
                    Expr::AggregateFunction(mut call) if is_free(&call) => {
                        // Distinct values come from a sort.
                        call.params.order_by = match call.params.distinct {
                            true => vec![call.params.args[0].clone().sort(true, false)],
                            false => order.clone(),
                        };
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

fn has_free_order(call: &Expr) -> bool {
    call.exists(|part| Ok(matches!(part, Expr::AggregateFunction(call) if is_free(call)))).unwrap_or(false)
}

/// Whether the result of a call depends on the order of its rows, and the call does not name one.
fn is_free(call: &AggregateFunction) -> bool {
    let has_order = matches!(call.func.name(), "array_agg" | "string_agg" | "first_value" | "last_value" | "nth_value");
    has_order && call.params.order_by.is_empty()
}

/// A plan whose rows have an order.
struct Ordered {
    plan: LogicalPlan,
    /// Order by columns of the plan.
    order: Vec<SortExpr>,
}

/// The order that the rows of a plan have from an `ORDER BY` below it. Projections pass on the columns that it needs.
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
                let names = (0..order.len()).map(|index| free_name(projection.schema.as_ref(), index));
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
fn free_name(schema: &DFSchema, index: usize) -> String {
    let is_free = |name: &String| schema.fields().iter().all(|field| field.name() != name);
    (0..).map(|number| format!("taut order {}", index + number * 100)).find(is_free).unwrap_or_default()
}
