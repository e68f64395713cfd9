//! Returns rows in the order of the table, or of the files, where users see the order.
//!
//! Users see the order in the rows of a query, also under `LIMIT` and `OFFSET`. They see it in the rows that
//! `INSERT ... SELECT`, `CREATE TABLE AS` and `COPY ... TO` write. They see it in numbers from a sequence, and in
//! windows over all rows without an order, such as `row_number() OVER ()`. There, the operator that merges partitions
//! in any order is replaced, and rows of one partition are not distributed over several. Aggregates, joins and sorts
//! read their rows as before.
//!
//! ```text
//!   CoalescePartitionsExec                OrderedCollectExec
//!     ProjectionExec               =>       ProjectionExec
//!       DataSourceExec: table=t               DataSourceExec: table=t
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, Partitioning, ReplaceChildrenOptions,
};

use crate::exec::insert::InsertExec;
use crate::exec::operators::{MaterializeExec, OrderedCollectExec, SequenceProjectionExec};
use crate::exec::scan::scan_source;
use crate::plan::engine::TautOptions;
use crate::plan::rules::window_order::is_window_over_all;

type Plan = Arc<dyn ExecutionPlan>;

/// Rule that returns rows in order. The setting `preserve_insertion_order` turns it off.
#[derive(Debug, Default)]
pub struct InsertionOrder;

impl PhysicalOptimizerRule for InsertionOrder {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        with_insertion_order(plan, config)
    }

    fn name(&self) -> &str {
        "taut_insertion_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns a plan whose rows are in order in one partition, if the order is visible and known.
///
/// # Errors
/// If an operator does not accept its new input.
pub fn with_insertion_order(plan: Plan, config: &ConfigOptions) -> Result<Plan> {
    if config.extensions.get::<TautOptions>().is_some_and(|options| !options.preserve_insertion_order) {
        return Ok(plan);
    }
    // The numbers of sequences and of windows are visible in any part of a plan.
    let numbered =
        plan.transform_up(|node| match node.is::<SequenceProjectionExec>() || is_window_over_all(&node) {
            true => Ok(Transformed::yes(with_ordered_input(node)?)),
            false => Ok(Transformed::no(node)),
        })?;
    visible(numbered.data)
}

/// Returns a plan with the same rows in order, if the order is known.
fn visible(plan: Plan) -> Result<Plan> {
    if let Some(subqueries) = plan.downcast_ref::<ScalarSubqueryExec>() {
        let input = visible(Arc::clone(subqueries.input()))?;
        return with_first_input(&plan, input);
    }
    if let Some(merge) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return match OrderedPlan::of(merge.input())? {
            Some(ordered) => Ok(ordered.collect(merge.fetch())),
            None => Ok(plan),
        };
    }
    if plan.output_partitioning().partition_count() > 1
        && let Some(ordered) = OrderedPlan::of(&plan)?
    {
        return Ok(if ordered.order == Order::OnePartition { plan } else { ordered.collect(None) });
    }
    if let Some(insert) = plan.downcast_ref::<InsertExec>() {
        return with_ordered_rows(insert, &plan);
    }
    let shows_order = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<MaterializeExec>()
        || plan.is::<DataSinkExec>()
        || plan.is::<AnalyzeExec>();
    if shows_order { with_ordered_input(plan) } else { Ok(plan) }
}

/// Returns an insert that writes its rows in order.
fn with_ordered_rows(insert: &InsertExec, plan: &Plan) -> Result<Plan> {
    let partitions = insert.input().output_partitioning().partition_count();
    if partitions == 1 {
        return with_ordered_input(Arc::clone(plan));
    }
    if insert.has_table_order() {
        return Ok(Arc::clone(plan));
    }
    let Some(ordered) = OrderedPlan::of(insert.input())? else { return Ok(Arc::clone(plan)) };
    let input = match ordered.order {
        // The blocks of each partition follow the blocks of the previous partition, so files need not be collected.
        Order::OnePartition | Order::Partitions => ordered.plan,
        Order::Scan => ordered.collect(None),
    };
    with_inputs(Arc::clone(plan), vec![input])
}

fn with_ordered_input(plan: Plan) -> Result<Plan> {
    match plan.children().as_slice() {
        [input] => {
            let ordered = visible(Arc::clone(input))?;
            with_inputs(plan, vec![ordered])
        }
        _ => Ok(plan),
    }
}

/// Replaces the first input of an operator.
fn with_first_input(plan: &Plan, input: Plan) -> Result<Plan> {
    let others = plan.children().into_iter().skip(1).cloned();
    with_inputs(Arc::clone(plan), std::iter::once(input).chain(others).collect())
}

fn with_inputs(plan: Plan, inputs: Vec<Plan>) -> Result<Plan> {
    plan.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// A plan, and the order of its rows.
struct OrderedPlan {
    plan: Plan,
    order: Order,
}

/// The order of the rows of a plan with several partitions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// One partition returns all rows. Its index is not known.
    OnePartition,
    /// The rows come from one scan of a table, whose partitions share the work.
    Scan,
    /// The rows of each partition follow the rows of the previous partition.
    Partitions,
}

impl OrderedPlan {
    /// Returns a plan with the same rows in order, and that order. Operators that would change the order are removed.
    /// Returns `None` if the rows have no known order.
    fn of(plan: &Plan) -> Result<Option<Self>> {
        let known = |plan: &Plan, order| Ok(Some(Self { plan: Arc::clone(plan), order }));
        if let Some(scan) = scan_source(plan) {
            return known(
                plan,
                if !scan.is_shared() {
                    Order::Partitions
                } else if scan.has_one_morsel() {
                    Order::OnePartition
                } else {
                    Order::Scan
                },
            );
        }
        if plan.is::<DataSourceExec>() || plan.is::<StreamingTableExec>() {
            return known(plan, Order::Partitions);
        }
        if let Some(exchange) = plan.downcast_ref::<RepartitionExec>() {
            let is_needless = matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_))
                && exchange.input().output_partitioning().partition_count() == 1;
            return if is_needless { Self::of(exchange.input()) } else { Ok(None) };
        }
        if plan.is::<UnionExec>() {
            let mut inputs = Vec::new();
            for input in plan.children() {
                let Some(ordered) = Self::of(input)? else { return Ok(None) };
                inputs.push(ordered.into_partitions());
            }
            return known(&with_inputs(Arc::clone(plan), inputs)?, Order::Partitions);
        }
        if let Some(subqueries) = plan.downcast_ref::<ScalarSubqueryExec>() {
            // The subqueries are computed once for all runs of a scan.
            let Some(input) = Self::of(subqueries.input())? else { return Ok(None) };
            return known(&with_first_input(plan, input.into_partitions())?, Order::Partitions);
        }
        let passes_rows = plan.is::<ProjectionExec>()
            || plan.is::<FilterExec>()
            || plan.is::<CooperativeExec>()
            || plan.is::<LocalLimitExec>();
        match (passes_rows, plan.children().as_slice()) {
            (true, [input]) => match Self::of(input)? {
                Some(input) => known(&with_inputs(Arc::clone(plan), vec![input.plan])?, input.order),
                None => Ok(None),
            },
            _ if plan.output_partitioning().partition_count() == 1 => {
                known(&visible(Arc::clone(plan))?, Order::Partitions)
            }
            _ => Ok(None),
        }
    }

    /// Returns a plan in which the rows of each partition follow the rows of the previous partition.
    fn into_partitions(self) -> Plan {
        match self.order {
            Order::Partitions => self.plan,
            Order::OnePartition | Order::Scan => self.collect(None),
        }
    }

    /// Returns the rows in one partition.
    fn collect(self, fetch: Option<usize>) -> Plan {
        let Self { plan, order } = self;
        match order {
            Order::OnePartition => Arc::new(CoalescePartitionsExec::new(plan).with_fetch(fetch)),
            Order::Scan => Arc::new(OrderedCollectExec::of_scan(plan, fetch)),
            Order::Partitions if plan.output_partitioning().partition_count() == 1 => match fetch {
                Some(_) => Arc::new(GlobalLimitExec::new(plan, 0, fetch)),
                None => plan,
            },
            Order::Partitions => Arc::new(OrderedCollectExec::of_partitions(plan, fetch)),
        }
    }
}
