//! Conditions on groups that read no column, such as `HAVING $1 > 0` and `HAVING (SELECT false)`.
//!
//! DataFusion computes them before it aggregates. But an aggregation without `GROUP BY`, or with an empty grouping set,
//! has a group even if it reads no rows. The condition must be able to remove that group:
//!
//! ```text
//!   plan                                    DataFusion's push-down          right
//!   Filter: $1 > 0                          Aggregate: count(*)             Filter: of_group($1 > 0, count(*))
//!     Aggregate: count(*)                     Filter: $1 > 0                  Aggregate: count(*)
//! ```
//!
//! Therefore such a condition becomes the argument of a function that also takes a column of the aggregate.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, Filter, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's filter pushdown, except for conditions that must stay above an aggregate.
#[derive(Debug)]
pub struct GroupConditions(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for GroupConditions {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        self.0.rewrite(with_conditions_of_groups(plan)?, config)
    }
}

fn with_conditions_of_groups(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Filter(Filter { predicate, input, .. }) = &plan else { return Ok(plan) };
    let LogicalPlan::Aggregate(Aggregate { group_expr, schema, .. }) = input.as_ref() else { return Ok(plan) };
    let may_have_empty_group = matches!(group_expr.as_slice(), [] | [Expr::GroupingSet(_)]);
    let is_of_group = |part: &Expr| !matches!(part, Expr::Literal(..)) && part.column_refs().is_empty();
    let parts = split_conjunction_owned(predicate.clone());
    if !may_have_empty_group || !parts.iter().any(is_of_group) {
        return Ok(plan);
    }
    // The last column is an aggregate or the number of the grouping set. Neither is a grouping key.
    let Some(column) = schema.columns().pop() else { return Ok(plan) };
    let parts = parts.into_iter().map(|part| match is_of_group(&part) {
        true => OF_GROUP.call(vec![part, Expr::Column(column.clone())]),
        false => part,
    });
    match conjunction(parts) {
        Some(predicate) => Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::clone(input))?)),
        None => Ok(plan),
    }
}

static OF_GROUP: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::new_from_impl(OfGroup { signature: Signature::any(2, Volatility::Immutable) }));

/// Function that returns its first argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfGroup {
    signature: Signature,
}

impl ScalarUDFImpl for OfGroup {
    fn name(&self) -> &'static str {
        "of_group"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(condition) => Ok(condition),
            None => internal_err!("of_group takes a condition and a column"),
        }
    }
}
