//! Computes a correlated subquery for all values of its outer columns, which are its domain, at once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, NullEquality, Result, ScalarValue, not_impl_err};
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count;
use datafusion::functions_aggregate::expr_fn::first_value;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, DistinctOn, Expr, ExprFunctionExt, ExprSchemable, FetchType, Join, Limit,
    LogicalPlan, LogicalPlanBuilder, Operator, Projection, SkipType, SortExpr, SubqueryAlias, Union, Window, lit,
};

use super::super::materialized::calls_volatile;

/// Values of the outer columns of a subquery. They are distinct, unless the domain has all rows.
pub struct Domain {
    /// Plan of the query that has these columns.
    source: LogicalPlan,
    pub outer: Vec<Column>,
    /// Whether the domain has all rows of the query, rows with equal values included.
    has_all_rows: bool,
}

/// Rows of a part of the subquery for each row of the domain.
pub struct Unnested {
    pub plan: LogicalPlan,
    /// Columns of the plan with the values of the outer columns, in their order.
    pub keys: Vec<Column>,
}

impl Domain {
    /// Creates the domain of the columns of `input` that `subquery` uses.
    ///
    /// # Errors
    /// If `input`, which is read several times, may return different rows each time. If `subquery` calls volatile
    /// functions, which would run only once for equal rows.
    pub fn new(input: &LogicalPlan, subquery: &LogicalPlan) -> Result<Self> {
        let outer: Vec<Column> =
            outer_columns(subquery)?.into_iter().filter(|column| input.schema().has_column(column)).collect();
        for column in &outer {
            if input.schema().field_from_column(column)?.data_type().is_nested() {
                return not_impl_err!("arrays of the outer query in a correlated subquery are not supported");
            }
        }
        let mut source_of_values = source(input, &outer);
        while let Some(part) = unrepeatable_part(source_of_values)? {
            // Below the filter there are more values. They do no harm, because no row of the query joins to them.
            let LogicalPlan::Filter(filter) = source_of_values else {
                return not_impl_err!(
                    "a correlated subquery over rows of a query with {part} is not supported; store the rows in a table \
                     first"
                );
            };
            source_of_values = source(&filter.input, &outer);
        }
        let source = source_of_values.clone();
        if calls_volatile(subquery)? {
            return not_impl_err!("volatile functions, such as random(), in a correlated subquery are not supported");
        }
        Ok(Self { source, outer, has_all_rows: false })
    }

    /// Creates the domain of all columns and rows of a query, which is read once.
    pub fn of_rows(input: &LogicalPlan) -> Self {
        Self { source: input.clone(), outer: input.schema().columns(), has_all_rows: true }
    }

    fn rows(&self) -> Result<Unnested> {
        let alias = unique("taut domain");
        let columns: Vec<Expr> = as_expressions(&self.outer).map(|column| column.alias(unique("taut key"))).collect();
        let mut plan = LogicalPlanBuilder::from(self.source.clone()).project(columns)?;
        if !self.has_all_rows {
            plan = plan.distinct()?;
        }
        let plan = plan.alias(alias.as_str())?.build()?;
        Ok(Unnested { keys: plan.schema().columns(), plan })
    }

    /// Replaces outer columns by the keys. The expression keeps its name.
    fn replaced(&self, expression: &Expr, keys: &[Column]) -> Result<Expr> {
        let name = NamePreserver::new_for_projection().save(expression);
        let replaced = expression.clone().transform_up(|part| {
            let Expr::OuterReferenceColumn(_, column) = &part else { return Ok(Transformed::no(part)) };
            Ok(match self.outer.iter().position(|outer| outer == column) {
                Some(index) => Transformed::yes(Expr::Column(keys[index].clone())),
                None => Transformed::no(part),
            })
        })?;
        Ok(name.restore(replaced.data))
    }

    fn all_replaced(&self, expressions: &[Expr], keys: &[Column]) -> Result<Vec<Expr>> {
        expressions.iter().map(|expression| self.replaced(expression, keys)).collect()
    }

    fn order(&self, order: &[SortExpr], keys: &[Column]) -> Result<Vec<SortExpr>> {
        order.iter().map(|order| Ok(order.with_expr(self.replaced(&order.expr, keys)?))).collect()
    }

    /// Returns the rows of a plan for each row of the domain. A plan without outer columns returns the same rows for
    /// all.
    pub fn unnest(&self, plan: &LogicalPlan) -> Result<Unnested> {
        if self.outer.is_empty() {
            return Ok(Unnested { plan: plan.clone(), keys: Vec::new() });
        }
        if !uses_outer(plan)? {
            let Unnested { plan: domain, keys } = self.rows()?;
            let plan = LogicalPlanBuilder::from(domain).cross_join(plan.clone())?.build()?;
            return Ok(Unnested { plan, keys });
        }
        match plan {
            LogicalPlan::Subquery(subquery) => self.unnest(&subquery.subquery),
            LogicalPlan::Filter(filter) => {
                let Unnested { plan, keys } = self.unnest(&filter.input)?;
                let predicate = self.replaced(&filter.predicate, &keys)?.unalias();
                Ok(Unnested { plan: LogicalPlanBuilder::from(plan).filter(predicate)?.build()?, keys })
            }
            LogicalPlan::Projection(projection) => {
                let Unnested { plan, keys } = self.unnest(&projection.input)?;
                let columns = as_expressions(&keys).chain(self.all_replaced(&projection.expr, &keys)?);
                Ok(Unnested { plan: LogicalPlanBuilder::from(plan).project(columns)?.build()?, keys })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Unnested { plan, keys } = self.unnest(&alias.input)?;
                // The alias would hide the relation of the keys, so they get new names.
                let names: Vec<String> = keys.iter().map(|_| unique("taut key")).collect();
                let plan = LogicalPlanBuilder::from(renamed(plan, &keys, &names)?).alias(alias.alias.clone())?;
                let keys = names.into_iter().map(|name| Column::new(Some(alias.alias.clone()), name)).collect();
                Ok(Unnested { plan: plan.build()?, keys })
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Sort(sort) => {
                let Unnested { plan, keys } = self.unnest(&sort.input)?;
                let order = self.order(&sort.expr, &keys)?;
                let plan = LogicalPlanBuilder::from(plan).sort_with_limit(order, None)?.build()?;
                Ok(Unnested { plan, keys })
            }
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Unnested { plan, keys } = self.unnest(input)?;
                Ok(Unnested { plan: LogicalPlanBuilder::from(plan).distinct()?.build()?, keys })
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Unnest(unnest) => {
                let Unnested { plan, keys } = self.unnest(&unnest.input)?;
                let plan = LogicalPlanBuilder::from(plan)
                    .unnest_columns_with_options(unnest.exec_columns.clone(), unnest.options.clone())?;
                Ok(Unnested { plan: plan.build()?, keys })
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Values(values) => {
                // Each row is a separate projection.
                let columns = values.schema.columns();
                let rows = values.values.iter().map(|row| {
                    let named = row.iter().zip(&columns).map(|(value, column)| value.clone().alias(&column.name));
                    LogicalPlanBuilder::empty(true).project(named)?.build().map(Arc::new)
                });
                let rows = rows.collect::<Result<Vec<_>>>()?;
                match rows.as_slice() {
                    [row] => self.unnest(row),
                    _ => self.union(&Union { inputs: rows, schema: Arc::clone(&values.schema) }),
                }
            }
            other => {
                let display = other.display().to_string();
                let kind = display.split([':', ' ']).next().unwrap_or_default();
                not_impl_err!("outer columns in a subquery are not supported in {kind}")
            }
        }
    }

    /// Aggregates for each key. Without GROUP BY, a key without rows gets a row too.
    fn aggregate(&self, aggregate: &Aggregate) -> Result<Unnested> {
        if aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
            return not_impl_err!("outer columns in a subquery with GROUPING SETS, ROLLUP or CUBE are not supported");
        }
        let Unnested { plan, keys } = self.unnest(&aggregate.input)?;
        let groups = as_expressions(&keys).chain(self.all_replaced(&aggregate.group_expr, &keys)?);
        let calls = self.all_replaced(&aggregate.aggr_expr, &keys)?;
        let plan = LogicalPlanBuilder::from(plan).aggregate(groups, calls)?.build()?;
        if !aggregate.group_expr.is_empty() {
            return Ok(Unnested { plan, keys });
        }
        let domain = self.rows()?;
        let values = plan.schema().columns().split_off(keys.len());
        let same = same_values(&domain.keys, &keys, [domain.plan.schema(), plan.schema()])?;
        let joined = LogicalPlanBuilder::from(domain.plan).join_on(plan, JoinType::Left, same)?;
        let mut columns: Vec<Expr> = as_expressions(&domain.keys).collect();
        for (value, call) in values.into_iter().zip(&aggregate.aggr_expr) {
            let name = value.name.clone();
            let data_type = aggregate.schema.field_with_unqualified_name(&name)?.data_type().clone();
            let Expr::AggregateFunction(function) = call.clone().unalias_nested().data else {
                return not_impl_err!("outer columns in a subquery are not supported with the aggregate {call}");
            };
            let of_no_rows = function.func.default_value(&data_type)?;
            let column = Expr::Column(value);
            columns.push(match of_no_rows.is_null() {
                true => column,
                false => coalesce(vec![column, lit(of_no_rows)]).alias(name),
            });
        }
        Ok(Unnested { plan: joined.project(columns)?.build()?, keys: domain.keys })
    }

    /// Returns the first rows for each key.
    fn limit(&self, limit: &Limit) -> Result<Unnested> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return not_impl_err!("outer columns in a subquery are supported with LIMIT and OFFSET that are numbers");
        };
        // Moves the limit below projections and aliases, to the sort that it belongs to.
        let lower = |input: &Arc<LogicalPlan>| {
            let limit = Limit { input: Arc::clone(input), skip: limit.skip.clone(), fetch: limit.fetch.clone() };
            Arc::new(LogicalPlan::Limit(limit))
        };
        let (input, order) = match limit.input.as_ref() {
            LogicalPlan::Projection(node) => {
                let lowered = Projection::try_new(node.expr.clone(), lower(&node.input))?;
                return self.unnest(&LogicalPlan::Projection(lowered));
            }
            LogicalPlan::SubqueryAlias(node) => {
                let lowered = SubqueryAlias::try_new(lower(&node.input), node.alias.clone())?;
                return self.unnest(&LogicalPlan::SubqueryAlias(lowered));
            }
            LogicalPlan::Sort(sort) => (&sort.input, sort.expr.as_slice()),
            LogicalPlan::Distinct(Distinct::On(_)) => {
                return not_impl_err!("LIMIT with DISTINCT ON in a correlated subquery is not supported");
            }
            _ => (&limit.input, [].as_slice()),
        };
        let Unnested { plan, keys } = self.unnest(input)?;
        let (skip, fetch) = (skip as u64, fetch.map(|fetch| fetch as u64));
        numbered_rows(plan, keys.clone(), &keys, self.order(order, &keys)?, skip, fetch)
    }

    fn distinct_on(&self, distinct: &DistinctOn) -> Result<Unnested> {
        let Unnested { plan, keys } = self.unnest(&distinct.input)?;
        let on = as_expressions(&keys).chain(self.all_replaced(&distinct.on_expr, &keys)?).collect();
        let columns = as_expressions(&keys).chain(self.all_replaced(&distinct.select_expr, &keys)?).collect();
        let order = distinct.sort_expr.as_ref().map(|order| {
            let by_key = as_expressions(&keys).map(|key| key.sort(true, false));
            Ok::<_, datafusion::error::DataFusionError>(by_key.chain(self.order(order, &keys)?).collect())
        });
        let plan = LogicalPlanBuilder::from(plan).distinct_on(on, columns, order.transpose()?)?.build()?;
        let keys = plan.schema().columns()[..keys.len()].to_vec();
        Ok(Unnested { plan, keys })
    }

    /// Windows for each key: the keys are partitions.
    fn window(&self, window: &Window) -> Result<Unnested> {
        let Unnested { plan, keys } = self.unnest(&window.input)?;
        let windows = window.window_expr.iter().map(|expression| {
            let name = NamePreserver::new_for_projection().save(expression);
            let replaced = self.replaced(expression, &keys)?.transform_up(|part| match part {
                Expr::WindowFunction(mut function) => {
                    function.params.partition_by.extend(as_expressions(&keys));
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(name.restore(replaced.data.unalias()))
        });
        let windows = windows.collect::<Result<Vec<_>>>()?;
        Ok(Unnested { plan: LogicalPlanBuilder::from(plan).window(windows)?.build()?, keys })
    }

    fn join(&self, join: &Join) -> Result<Unnested> {
        let supported = match (uses_outer(&join.left)?, uses_outer(&join.right)?) {
            (_, false) => !matches!(
                join.join_type,
                JoinType::Right | JoinType::Full | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
            ),
            _ => matches!(join.join_type, JoinType::Inner | JoinType::Left),
        };
        if !supported {
            let kind = join.join_type.to_string().to_uppercase();
            return not_impl_err!("outer columns in a subquery are not supported in a {kind} JOIN");
        }
        let condition = |keys: &[Column]| {
            let replaced = all_conditions(join).into_iter().map(|part| Ok(self.replaced(&part, keys)?.unalias()));
            replaced.collect::<Result<Vec<_>>>()
        };
        let left = self.unnest(&join.left)?;
        let mut conditions = condition(&left.keys)?;
        if !uses_outer(&join.right)? {
            if conditions.is_empty() {
                conditions.push(lit(true));
            }
            let right = join.right.as_ref().clone();
            let plan = LogicalPlanBuilder::from(left.plan).join_on(right, join.join_type, conditions)?;
            return Ok(Unnested { plan: plan.build()?, keys: left.keys });
        }
        let right = self.unnest(&join.right)?;
        let columns: Vec<Expr> = as_expressions(&left.plan.schema().columns())
            .chain(as_expressions(&other_columns(&right.plan, &right.keys)))
            .collect();
        let same = same_values(&left.keys, &right.keys, [left.plan.schema(), right.plan.schema()])?;
        let plan = LogicalPlanBuilder::from(left.plan).join_on(
            right.plan,
            join.join_type,
            same.into_iter().chain(conditions),
        )?;
        Ok(Unnested { plan: plan.project(columns)?.build()?, keys: left.keys })
    }

    fn union(&self, union: &Union) -> Result<Unnested> {
        let names: Vec<String> = self.outer.iter().map(|_| unique("taut key")).collect();
        let inputs = union.inputs.iter().map(|input| {
            let Unnested { plan, keys } = self.unnest(input)?;
            renamed(plan, &keys, &names).map(Arc::new)
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let keys = plan.schema().columns()[..names.len()].to_vec();
        // The columns keep the qualifiers of the union in the subquery.
        let columns = plan.schema().columns().split_off(keys.len());
        let columns = columns
            .into_iter()
            .zip(union.schema.iter())
            .map(|(column, (qualifier, field))| Expr::Column(column).alias_qualified(qualifier.cloned(), field.name()));
        let columns: Vec<Expr> = as_expressions(&keys).chain(columns).collect();
        Ok(Unnested { plan: LogicalPlanBuilder::from(plan).project(columns)?.build()?, keys })
    }

    /// Returns the first value for each key, and the number of its rows.
    pub fn first_rows(&self, unnested: Unnested) -> Result<Unnested> {
        let Unnested { plan, keys } = unnested;
        let Some(value) = other_columns(&plan, &keys).into_iter().next() else {
            return not_impl_err!("a correlated subquery without a column is not supported");
        };
        let groups: Vec<Expr> = as_expressions(&keys).collect();
        let first = first_value(Expr::Column(value), Vec::new()).alias("taut first");
        let rows = count(lit(1_i64)).alias("taut rows");
        let plan = LogicalPlanBuilder::from(plan).aggregate(groups, vec![first, rows])?.build()?;
        Ok(Unnested { plan, keys })
    }
}

/// Rows number `skip` + 1 to `skip` + `fetch` of each partition.
fn numbered_rows(
    plan: LogicalPlan,
    keys: Vec<Column>,
    partition: &[Column],
    order: Vec<SortExpr>,
    skip: u64,
    fetch: Option<u64>,
) -> Result<Unnested> {
    let columns = plan.schema().columns();
    let numbered = row_number().partition_by(as_expressions(partition).collect()).order_by(order).build()?;
    let row = Expr::Column(Column::from_name(numbered.schema_name().to_string()));
    let after = row.clone().gt(lit(skip));
    let condition = match fetch {
        Some(fetch) => after.and(row.lt_eq(lit(skip.saturating_add(fetch)))),
        None => after,
    };
    let plan = LogicalPlanBuilder::from(plan).window([numbered])?.filter(condition)?;
    Ok(Unnested { plan: plan.project(as_expressions(&columns))?.build()?, keys })
}

/// Returns a description of the part of a query that may return different rows in a second run, or `None`.
fn unrepeatable_part(plan: &LogicalPlan) -> Result<Option<&'static str>> {
    /// Window functions that return the same for peers, so that the order of equal rows has no effect.
    const BY_PEERS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];
    /// Aggregates whose results depend on the order of rows.
    const BY_ORDER: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];
    if calls_volatile(plan)? {
        return Ok(Some("volatile functions, such as random()"));
    }
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let part = match node {
            LogicalPlan::Limit(_) => Some("LIMIT or OFFSET"),
            LogicalPlan::Distinct(Distinct::On(_)) => Some("DISTINCT ON"),
            LogicalPlan::Window(window) => {
                let is_by_peers =
                    |call: &Expr| BY_PEERS.iter().any(|name| call.schema_name().to_string().starts_with(name));
                (!window.window_expr.iter().all(is_by_peers)).then_some("window functions")
            }
            LogicalPlan::Aggregate(aggregate) => {
                let depends = |call: &Expr| {
                    call.exists(|part| match part {
                        // The last digits of a sum of floating-point numbers depend on the order of the rows.
                        Expr::AggregateFunction(call) => Ok(BY_ORDER.contains(&call.func.name())
                            || !matches!(call.func.name(), "min" | "max" | "count")
                                && call.params.args.iter().any(|argument| {
                                    argument.get_type(aggregate.input.schema()).is_ok_and(|kind| kind.is_floating())
                                })),
                        _ => Ok(false),
                    })
                };
                let mut depends_on_order = false;
                for call in &aggregate.aggr_expr {
                    depends_on_order |= depends(call)?;
                }
                depends_on_order.then_some("aggregates that depend on the order of rows")
            }
            _ => None,
        };
        found = found.or(part);
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Smallest part of a plan that has the columns, found through joins. It has all values that the plan has in these
/// columns, and maybe more.
fn source<'a>(plan: &'a LogicalPlan, columns: &[Column]) -> &'a LogicalPlan {
    let has_all = |plan: &LogicalPlan| columns.iter().all(|column| plan.schema().has_column(column));
    match plan {
        LogicalPlan::Join(join) => {
            // An outer join adds nulls to the columns of its other side.
            let sides: &[_] = match join.join_type {
                JoinType::Inner => &[&join.left, &join.right],
                JoinType::Left => &[&join.left],
                _ => &[],
            };
            sides.iter().find(|side| has_all(side)).map_or(plan, |side| source(side, columns))
        }
        LogicalPlan::Projection(node)
            if node.expr.iter().all(|expression| matches!(expression, Expr::Column(_))) && has_all(&node.input) =>
        {
            source(&node.input, columns)
        }
        _ => plan,
    }
}

/// Outer columns that a plan uses. Excludes columns of the plan itself, which its subqueries and lateral joins use as
/// outer columns.
pub fn outer_columns(plan: &LogicalPlan) -> Result<BTreeSet<Column>> {
    let mut columns = BTreeSet::new();
    let is_own = |column: &Column| plan.inputs().iter().any(|input| input.schema().has_column(column));
    plan.apply_expressions(|expression| {
        expression.apply(|part| {
            match part {
                Expr::OuterReferenceColumn(_, column) => {
                    columns.insert(column.clone());
                }
                Expr::ScalarSubquery(subquery)
                | Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. })
                | Expr::SetComparison(SetComparison { subquery, .. }) => {
                    columns.extend(outer_columns(&subquery.subquery)?.into_iter().filter(|column| !is_own(column)));
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    match plan {
        LogicalPlan::Join(join) => {
            columns.extend(outer_columns(&join.left)?);
            let of_left = |column: &Column| join.left.schema().has_column(column);
            columns.extend(outer_columns(&join.right)?.into_iter().filter(|column| !of_left(column)));
        }
        plan => {
            for input in plan.inputs() {
                columns.extend(outer_columns(input)?);
            }
        }
    }
    Ok(columns)
}

/// Whether an expression has a correlated subquery.
pub fn has_correlated(expression: &Expr) -> bool {
    let is_correlated = |part: &Expr| match part {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Ok(uses_outer(&subquery.subquery)?),
        _ => Ok(false),
    };
    expression.exists(is_correlated).unwrap_or(true)
}

pub fn has_outer(expression: &Expr) -> bool {
    expression.exists(|part| Ok(matches!(part, Expr::OuterReferenceColumn(..)))).unwrap_or(true)
}

/// Whether a plan, or a node below it, uses outer columns.
pub fn uses_outer(plan: &LogicalPlan) -> Result<bool> {
    Ok(!outer_columns(plan)?.is_empty())
}

thread_local! {
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Restarts the numbers of [`unique`] at 1 for another statement.
pub fn restart_names() {
    LAST.set(0);
}

/// A name that no other relation or column of the statement has.
pub fn unique(name: &str) -> String {
    LAST.set(LAST.get() + 1);
    format!("{name} {}", LAST.get())
}

/// Returns the columns of a plan except its keys.
pub fn other_columns(plan: &LogicalPlan, keys: &[Column]) -> Vec<Column> {
    plan.schema().columns().into_iter().filter(|column| !keys.contains(column)).collect()
}

pub fn as_expressions(columns: &[Column]) -> impl Iterator<Item = Expr> {
    columns.iter().cloned().map(Expr::Column)
}

/// Conditions of a join: its equalities and its filter.
pub fn all_conditions(join: &Join) -> Vec<Expr> {
    let operator = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let on = join.on.iter().map(|(left, right)| binary(left.clone(), operator, right.clone()));
    on.chain(join.filter.iter().cloned().flat_map(split_conjunction_owned)).collect()
}

/// Returns conditions that are true if rows have the same values, where null equals null. For a nullable column they
/// compare `coalesce(column, default value)` and `column IS NULL`, which are never null. A join in which null equals
/// null does not work: DataFusion adds equalities of the statement to that join, and in these null equals nothing.
pub fn same_values(left: &[Column], right: &[Column], schemas: [&DFSchema; 2]) -> Result<Vec<Expr>> {
    let mut conditions = Vec::with_capacity(left.len());
    for (left, right) in left.iter().zip(right) {
        let field = schemas[0].field_from_column(left)?;
        let is_nullable = field.is_nullable() || schemas[1].field_from_column(right)?.is_nullable();
        let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
        if !is_nullable {
            conditions.push(left.eq(right));
            continue;
        }
        // A column of nulls without a type has no default value.
        if !field.data_type().is_null() {
            let of_null = lit(ScalarValue::new_default(field.data_type())?);
            let value = |column: &Expr| coalesce(vec![column.clone(), of_null.clone()]);
            conditions.push(value(&left).eq(value(&right)));
        }
        conditions.push(left.is_null().eq(right.is_null()));
    }
    Ok(conditions)
}

pub fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// Returns a plan whose first columns are the keys, renamed to `names`.
pub fn renamed(plan: LogicalPlan, keys: &[Column], names: &[String]) -> Result<LogicalPlan> {
    let others = other_columns(&plan, keys);
    let renamed = as_expressions(keys).zip(names).map(|(key, name)| key.alias(name));
    let columns: Vec<Expr> = renamed.chain(as_expressions(&others)).collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
