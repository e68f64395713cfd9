//! `WITH` queries whose rows are computed once, however often the statement reads them.
//!
//! DataFusion's planner replaces each name of a `WITH` query by a copy of its plan. `SELECT * FROM x, x AS y` would
//! then call `random()` for `x` and for `y`. As in PostgreSQL, a query that calls volatile functions is computed once,
//! and so is one that is `AS MATERIALIZED`. PostgreSQL ignores `NOT MATERIALIZED` for a query with volatile functions.
//!
//! ```text
//!   SubqueryAlias: x                 SubqueryAlias: x
//!     Projection: random()    =>       Materialize: x          the same rows for each copy
//!                                        Projection: random()
//! ```
//!
//! Other queries are inlined at each reference. Each copy then reads only the columns and rows that are needed there.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, SubqueryAlias, UserDefinedLogicalNode, UserDefinedLogicalNodeCore, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use datafusion::sql::parser::Statement;
use parking_lot::Mutex;
use taut_sql::with_queries;

use super::correlated::outer_columns;
use crate::exec::operators::MaterializeExec;
use crate::expressions::is_single_row;
use crate::runtime::shared_rows::SharedRows;

/// A `WITH` query whose rows are computed once. Each copy of the node reads these rows.
#[derive(Clone, Debug)]
pub struct Materialize {
    name: Arc<str>,
    input: LogicalPlan,
    /// `None` if the rows are read only once, so that they need not be stored.
    shared: Option<SharedByCopies>,
}

/// Rows that the copies of a [`Materialize`] share, in the current physical plan. A later plan of the same statement
/// has its own rows.
#[derive(Clone, Debug, Default)]
struct SharedByCopies(Arc<Mutex<Weak<SharedRows>>>);

impl SharedByCopies {
    fn rows(&self) -> Arc<SharedRows> {
        let mut current = self.0.lock();
        // A plan that ran out of memory is replaced by a plan that needs less memory, which needs new rows.
        if let Some(rows) = current.upgrade().filter(|rows| !rows.has_failed()) {
            return rows;
        }
        let rows = Arc::new(SharedRows::default());
        *current = Arc::downgrade(&rows);
        rows
    }
}

impl Materialize {
    /// Whether the rows are stored, so that each copy of this part of a plan has the same rows.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The input of the node.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// Returns the materialization at the root of a plan, if there is one.
    pub fn from_plan(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(Extension { node }) => node.as_any().downcast_ref(),
            _ => None,
        }
    }

    fn id(&self) -> Option<*const Mutex<Weak<SharedRows>>> {
        self.shared.as_ref().map(|shared| Arc::as_ptr(&shared.0))
    }
}

impl PartialEq for Materialize {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id() && self.name == other.name && self.input == other.input
    }
}

impl Eq for Materialize {}

impl Hash for Materialize {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for Materialize {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for Materialize {
    fn name(&self) -> &str {
        "Materialize"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Materialize: {}", self.name)
    }

    fn with_exprs_and_inputs(&self, _expressions: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.pop()) {
            (Some(input), None) => Ok(Self { input, ..self.clone() }),
            _ => internal_err!("a materialization has one input"),
        }
    }
}

/// DataFusion's planner, extended by materializations.
#[derive(Debug)]
pub struct MaterializingPlanner;

#[async_trait]
impl QueryPlanner for MaterializingPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Self)]);
        planner.create_physical_plan(plan, session).await
    }
}

#[async_trait]
impl ExtensionPlanner for MaterializingPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(node), [input]) = (node.as_any().downcast_ref::<Materialize>(), inputs) else { return Ok(None) };
        let rows = node.shared.as_ref().map(SharedByCopies::rows);
        Ok(Some(Arc::new(MaterializeExec::new(Arc::clone(&node.name), Arc::clone(input), rows))))
    }
}

/// Adds materializations to a plan of DataFusion's planner. Call before anything else changes the plan. The planner
/// puts the same `Arc` below each alias that refers to a `WITH` query. This function recognizes copies by the address
/// of the `Arc`.
///
/// # Errors
/// If the plan cannot be traversed.
pub fn with_materialized_rows(plan: LogicalPlan, statement: &Statement) -> Result<LogicalPlan> {
    let queries = with_queries(statement);
    if queries.is_empty() || !queries.values().any(|is_materialized| *is_materialized) && !calls_volatile(&plan)? {
        return Ok(plan);
    }
    let mut found = WithQueries { queries, ..WithQueries::default() };
    found.count(&plan, false)?;
    if found.materialized.is_empty() { Ok(plan) } else { found.replace(plan) }
}

/// Copies a plan such that its materializations have rows of their own. Nodes that share rows in `plan` also share rows
/// in the copy, but share none with `plan`. Each reference to a view gets such a copy.
///
/// # Errors
/// If the plan cannot be traversed.
pub fn with_own_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut own: HashMap<_, SharedByCopies> = HashMap::new();
    let renewed = plan.transform_up_with_subqueries(|node| {
        let Some((materialize, id)) = Materialize::from_plan(&node).and_then(|found| Some((found, found.id()?))) else {
            return Ok(Transformed::no(node));
        };
        let shared = Some(own.entry(id).or_default().clone());
        let renewed = Materialize { shared, ..materialize.clone() };
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(renewed) })))
    })?;
    Ok(renewed.data)
}

/// The `WITH` queries of a plan.
#[derive(Default)]
struct WithQueries {
    /// Names of the queries of the statement, and whether they are declared `AS MATERIALIZED`.
    queries: BTreeMap<String, bool>,
    /// Queries that are computed once, by the address of their plan.
    materialized: HashMap<*const LogicalPlan, WithQuery>,
    /// Plans with materializations, by the address of the plan that they replace.
    replaced: HashMap<*const LogicalPlan, LogicalPlan>,
}

#[derive(Default)]
struct WithQuery {
    /// Whether the rows are read more than once.
    is_repeated: bool,
}

impl WithQueries {
    /// Finds the queries that are computed once, and whether each is read more than once. `is_repeated` is true for
    /// parts of a plan that may run several times: the subqueries of expressions, and the steps of a recursive query.
    fn count(&mut self, plan: &LogicalPlan, is_repeated: bool) -> Result<()> {
        if let LogicalPlan::SubqueryAlias(alias) = plan
            && let Some(is_declared) = self.queries.get(alias.alias.table()).copied()
        {
            let address = Arc::as_ptr(&alias.input);
            if let Some(query) = self.materialized.get_mut(&address) {
                query.is_repeated = true;
                return Ok(());
            }
            // A query with outer columns returns different rows for each row of the outer query.
            if (is_declared || calls_volatile(&alias.input)?) && outer_columns(&alias.input)?.is_empty() {
                self.materialized.insert(address, WithQuery { is_repeated });
                // The inputs of the query are read once.
                return self.count_inputs(plan, false);
            }
        }
        self.count_inputs(plan, is_repeated)
    }

    fn count_inputs(&mut self, plan: &LogicalPlan, is_repeated: bool) -> Result<()> {
        plan.apply_subqueries(|subquery| {
            self.count(subquery, true)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        match plan {
            LogicalPlan::RecursiveQuery(query) => {
                self.count(&query.static_term, is_repeated)?;
                self.count(&query.recursive_term, true)
            }
            _ => plan.inputs().into_iter().try_for_each(|input| self.count(input, is_repeated)),
        }
    }

    fn replace(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let replaced = plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::SubqueryAlias(alias) = &node else { return Ok(Transformed::no(node)) };
            let address = Arc::as_ptr(&alias.input);
            if !self.materialized.contains_key(&address) {
                return Ok(Transformed::no(node));
            }
            let input = self.materialize(alias)?;
            let alias = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
            Ok(Transformed::new(LogicalPlan::SubqueryAlias(alias), true, TreeNodeRecursion::Jump))
        })?;
        Ok(replaced.data)
    }

    /// Returns the input of an alias as a materialization, the same for each copy.
    fn materialize(&mut self, alias: &SubqueryAlias) -> Result<LogicalPlan> {
        let address = Arc::as_ptr(&alias.input);
        if let Some(replaced) = self.replaced.get(&address) {
            return Ok(replaced.clone());
        }
        let input = self.replace(alias.input.as_ref().clone())?;
        let is_repeated = self.materialized.get(&address).is_some_and(|query| query.is_repeated);
        let shared = is_repeated.then(SharedByCopies::default);
        let node = Materialize { name: alias.alias.table().into(), input, shared };
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        self.replaced.insert(address, plan.clone());
        Ok(plan)
    }
}

/// Whether two runs of a plan may return different rows, because the plan or a subquery in it calls a volatile
/// function. Ignores rows that are computed once.
pub fn calls_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if Materialize::from_plan(node).is_some_and(Materialize::is_shared) {
            return Ok(TreeNodeRecursion::Jump);
        }
        node.apply_expressions(|expression| {
            // `single_row` checks that a scalar subquery, which was rewritten to a join, returns at most one row. It is
            // declared volatile, but its results are repeatable.
            found |= expression.exists(|part| match part {
                Expr::ScalarFunction(call) => {
                    Ok(call.func.signature().volatility == Volatility::Volatile && !is_single_row(&call.func))
                }
                _ => Ok(false),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
