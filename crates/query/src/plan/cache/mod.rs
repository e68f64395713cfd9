//! Plan cache: plans that later executions of the same statement reuse.
//!
//! A statement that runs again is neither parsed nor optimized again. Its optimized plan is cached, with its parameters
//! as placeholders. The plan holds no rows of any table, so the cache keeps no blocks alive. Each execution binds the
//! parameter values and the tables of the newest snapshot. A query that only looks up a few rows runs without a planner
//! and without other threads: see [`lookup`]. See `docs/adr/0013-cached-plans.md`.

mod convert_values;
mod dml;
pub mod lookup;
mod returning;
mod statements;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, Result, ScalarValue, internal_datafusion_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, TableSource, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use parking_lot::Mutex;
use taut_sql::Value;
use taut_store::{Catalog, Store, TableId};

pub use self::convert_values::convert_exactly;
pub use self::dml::{CachedDml, FoundRows, PlannedDml, TypedPlan};
use self::lookup::Lookup;
pub use self::returning::Returning;
use crate::exec::scan::TautTable;
use crate::plan::rules::with_insertion_order;

pub use statements::StatementCache;

/// A table in a cached plan, without rows: only the columns of a stored table that the statement sees. The rows are
/// bound when the plan runs.
pub struct TableShape {
    id: TableId,
    /// Number of columns of the stored table. This is also the ordinal that stands for row ids.
    table_columns: usize,
    /// Ordinals of the visible columns in the stored table.
    visible: Vec<usize>,
    schema: SchemaRef,
}

impl TableSource for TableShape {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl TableShape {
    /// Returns the shape behind a table source of a cached plan.
    fn from_source(source: &Arc<dyn TableSource>) -> Option<&Self> {
        let source: &dyn TableSource = source.as_ref();
        (source as &dyn std::any::Any).downcast_ref()
    }
}

/// State of the session and the catalog that a cached plan was made for. The plan is invalid in any other state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// Number of the session.
    pub session: u64,
    /// Number of changes to the session's settings so far.
    pub settings: u64,
    /// Identity of the tables and views: see [`Catalog::definitions_id`].
    pub definitions: u64,
}

/// A plan that a statement can cache.
pub trait Cached {
    /// Whether the plan is valid for a cache key and for the tables of a snapshot.
    fn is_valid(&self, cache_key: CacheKey, snapshot: &Catalog) -> bool;
}

/// Plan cache entry of one statement.
#[derive(Debug)]
pub struct CacheEntry<P = CachedPlan>(Arc<Mutex<EntryState<P>>>);

#[derive(Debug)]
enum EntryState<P> {
    /// The statement has not run yet.
    New,
    /// The statement has run once.
    Seen,
    /// The plan of the statement cannot be cached.
    NotCached(CacheKey),
    Cached(Arc<P>),
}

/// Result of a plan cache lookup for a statement that is about to run.
pub enum CacheLookup<P> {
    /// A valid plan.
    Plan(Arc<P>),
    /// No valid plan. The caller should plan the statement and cache the plan.
    ShouldCache,
    /// No plan, and the caller should not cache one.
    NoCache,
}

impl<P> Clone for CacheEntry<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> Default for CacheEntry<P> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(EntryState::New)))
    }
}

impl<P: Cached> CacheEntry<P> {
    /// Returns the cached plan if it is valid.
    pub fn get(&self, cache_key: CacheKey, snapshot: &Catalog) -> Option<Arc<P>> {
        match &*self.0.lock() {
            EntryState::Cached(plan) if plan.is_valid(cache_key, snapshot) => Some(Arc::clone(plan)),
            _ => None,
        }
    }

    /// Looks up the plan of a statement that is about to run. Returns [`CacheLookup::ShouldCache`] only from the second
    /// execution on, because most statements run once.
    pub fn find(&self, cache_key: CacheKey, snapshot: &Catalog) -> CacheLookup<P> {
        let mut state = self.0.lock();
        match &*state {
            EntryState::New => {
                *state = EntryState::Seen;
                CacheLookup::NoCache
            }
            EntryState::Cached(plan) if plan.is_valid(cache_key, snapshot) => CacheLookup::Plan(Arc::clone(plan)),
            EntryState::NotCached(found) if *found == cache_key => CacheLookup::NoCache,
            _ => CacheLookup::ShouldCache,
        }
    }

    /// Caches a plan; `None` records that the plan cannot be cached.
    pub fn store(&self, cache_key: CacheKey, plan: Option<&Arc<P>>) {
        *self.0.lock() = plan.map_or(EntryState::NotCached(cache_key), |plan| EntryState::Cached(Arc::clone(plan)));
    }
}

/// An optimized plan without rows.
pub struct CachedPlan {
    cache_key: CacheKey,
    plan: LogicalPlan,
    /// Types of the parameters `$1`, `$2` and so on.
    parameters: Vec<DataType>,
    /// The tables that the plan reads, with their numbers of rows at planning time.
    tables: Vec<(TableId, u64)>,
    /// Lookup that runs the plan without a planner, if it is simple enough.
    pub lookup: Option<Lookup>,
    /// Whether the plan is valid only if the rows obey the keys of their tables: see [`relies_on_keys`].
    pub relies_on_keys: bool,
}

impl CachedPlan {
    /// Optimizes a query for the plan cache. Returns `None` if the plan cannot be cached, for one of these reasons:
    ///
    /// - It is not a query.
    /// - It reads row ids, or anything other than stored tables.
    /// - A function may return another result in a later execution.
    /// - The best order of its joins may depend on parameter values.
    /// - The type of a parameter is unknown.
    /// - A parameter is used for anything but a comparison with a column. Its value may then determine types, and what
    ///   the optimizer does.
    pub fn compile(plan: &LogicalPlan, state: &SessionState, cache_key: CacheKey) -> Option<Self> {
        if !is_query(plan) || !is_immutable(plan).ok()? || !reads_only_stored_tables(plan).ok()? {
            return None;
        }
        let parameters = parameter_types(plan)?;
        let optimized = state.optimize(plan).ok()?;
        if !parameters.is_empty() && !compares_parameters(&optimized).ok()? {
            return None;
        }
        let relies_on_keys = relies_on_keys(plan);
        let (plan, tables) = replace_tables_by_shapes(optimized).ok()?;
        if tables.len() > 1 && !parameters.is_empty() {
            return None;
        }
        let lookup = Lookup::from_plan(&plan);
        Some(Self { cache_key, plan, parameters, tables, lookup, relies_on_keys })
    }

    /// The tables that the plan reads.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.iter().map(|(table, _)| *table)
    }

    /// Converts values to the types of the parameters. Returns `None` if a value would change its meaning, or if the
    /// number of values is wrong.
    pub fn convert_values(&self, values: &[Value]) -> Option<Vec<ScalarValue>> {
        if values.len() != self.parameters.len() {
            return None;
        }
        values.iter().zip(&self.parameters).map(|(value, wanted)| convert_exactly(value, wanted)).collect()
    }

    /// Returns the plan with the tables of a snapshot and the values of the parameters.
    ///
    /// # Errors
    /// If DataFusion refuses the plan, which is a bug.
    pub fn bind(&self, store: &Arc<Store>, snapshot: &Catalog, values: &[ScalarValue]) -> Result<LogicalPlan> {
        let plan = self.plan.clone().transform_up_with_subqueries(|node| {
            let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
            let shape = TableShape::from_source(&scan.source)
                .ok_or_else(|| internal_datafusion_err!("a cached plan has rows"))?;
            let stored = snapshot.table_of(shape.id);
            let stored = stored.ok_or_else(|| internal_datafusion_err!("a cached plan outlives its table"))?;
            let table = TautTable::from_shape(Arc::clone(store), Arc::clone(stored), shape);
            scan.source = provider_as_source(Arc::new(table));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        })?;
        if values.is_empty() {
            return Ok(plan.data);
        }
        let values = values.iter().map(|value| ScalarAndMetadata::new(value.clone(), None)).collect();
        plan.data.replace_params_with_values(&ParamValues::List(values))
    }

    /// Returns the physical plan for a bound plan that is a single scan, which needs no optimization. It equals the
    /// plan that the planner would return. Returns `None` for other plans.
    ///
    /// # Errors
    /// If DataFusion refuses the plan, which is a bug.
    pub fn scan_plan(&self, bound: &LogicalPlan, state: &SessionState) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some((columns, output)) = self.lookup.as_ref().and_then(Lookup::columns) else { return Ok(None) };
        let mut node = bound;
        while let [input] = node.inputs().as_slice() {
            node = *input;
        }
        let LogicalPlan::TableScan(scan) = node else { return Ok(None) };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<TautTable>() else { return Ok(None) };
        let filters = unnormalize_cols(scan.filters.iter().cloned());
        let source = table.source(state, columns, &filters, None)?.with_output(output);
        let scan = Arc::new(CooperativeExec::new(DataSourceExec::from_data_source(source)));
        Ok(Some(with_insertion_order(scan, state.config_options())?))
    }
}

impl Cached for CachedPlan {
    /// A plan of several tables is invalid if a table has grown or shrunk by more than a factor of `CHANGE_MAX`.
    /// Another join order may then be better.
    fn is_valid(&self, cache_key: CacheKey, snapshot: &Catalog) -> bool {
        /// Maximum factor by which a table may have grown or shrunk.
        const CHANGE_MAX: u64 = 2;
        let has_similar_size = |(id, rows): &(TableId, u64)| {
            let current = snapshot.table_of(*id).map(|table| table.rows());
            current.is_some_and(|current| current <= rows * CHANGE_MAX && *rows <= current * CHANGE_MAX)
        };
        // A single table has no order of joins.
        self.cache_key == cache_key && (self.tables.len() <= 1 || self.tables.iter().all(has_similar_size))
    }
}

impl Debug for CachedPlan {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "CachedPlan({:?}, {})", self.cache_key, self.plan.display())
    }
}

impl TautTable {
    fn shape(&self) -> TableShape {
        let (visible, schema) = self.visible();
        TableShape {
            id: self.stored().id,
            table_columns: self.stored().schema.len(),
            visible: visible.to_vec(),
            schema: Arc::clone(schema),
        }
    }

    fn from_shape(store: Arc<Store>, stored: Arc<taut_store::Table>, shape: &TableShape) -> Self {
        Self::with_visible(store, stored, shape.visible.clone(), Arc::clone(&shape.schema))
    }
}

/// Whether the optimizer may have relied on keys of the tables, such as primary keys. Plans that read a single table
/// row by row do not depend on keys.
fn relies_on_keys(plan: &LogicalPlan) -> bool {
    let is_row_wise = |node: &LogicalPlan| {
        matches!(
            node,
            LogicalPlan::TableScan(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Limit(_)
        )
    };
    // This also visits subqueries in expressions. Their nodes are of other kinds, so a plan with a subquery is assumed
    // to rely on keys.
    let reads = plan.apply_with_subqueries(|node| match is_row_wise(node) {
        true => Ok(TreeNodeRecursion::Continue),
        false => Ok(TreeNodeRecursion::Stop),
    });
    !reads.is_ok_and(|seen| seen == TreeNodeRecursion::Continue)
}

/// Replaces the tables of a plan by shapes without rows. Returns the plan, and the tables with their numbers of rows.
fn replace_tables_by_shapes(plan: LogicalPlan) -> Result<(LogicalPlan, Vec<(TableId, u64)>)> {
    let mut tables = Vec::new();
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source)?;
        let table = provider.downcast_ref::<TautTable>();
        let table = table.filter(|table| !table.is_attached);
        let table = table.ok_or_else(|| internal_datafusion_err!("a table that is not stored"))?;
        tables.push((table.stored().id, table.rows()));
        scan.source = Arc::new(table.shape());
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok((plan.data, tables))
}

/// Whether a plan only returns rows.
fn is_query(plan: &LogicalPlan) -> bool {
    !matches!(
        plan,
        LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::DescribeTable(_)
    )
}

/// Whether all functions of a plan are immutable. Stable functions, such as `now()`, are evaluated during optimization.
fn is_immutable(plan: &LogicalPlan) -> Result<bool> {
    let mut immutable = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                let volatility = match part {
                    Expr::ScalarFunction(function) => function.func.signature().volatility,
                    Expr::AggregateFunction(function) => function.func.signature().volatility,
                    Expr::WindowFunction(function) => function.fun.signature().volatility,
                    Expr::ScalarVariable(..) => Volatility::Stable,
                    _ => Volatility::Immutable,
                };
                immutable &= volatility == Volatility::Immutable;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(immutable)
}

/// Whether all tables of a plan are stored tables, and none returns row ids, which are valid in one snapshot only. Call
/// before optimization, because the optimizer removes some tables.
fn reads_only_stored_tables(plan: &LogicalPlan) -> Result<bool> {
    let mut stored = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            stored &=
                provider.downcast_ref::<TautTable>().is_some_and(|table| !table.has_row_ids() && !table.is_attached);
        }
        // Extension nodes share rows that belong to one execution.
        stored &= !matches!(node, LogicalPlan::Extension(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(stored)
}

/// Whether all parameters of an optimized plan are compared directly with a column.
fn compares_parameters(plan: &LogicalPlan) -> Result<bool> {
    let mut compared = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                compared &= !matches!(part, Expr::Placeholder(_));
                Ok(if is_comparison(part) { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    Ok(compared)
}

/// Whether an expression compares a column with literals and parameters.
fn is_comparison(expression: &Expr) -> bool {
    let is_column = |expression: &Expr| matches!(expression, Expr::Column(_));
    let is_operand = |expression: &Expr| matches!(expression, Expr::Placeholder(_) | Expr::Literal(..));
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let both = |one, other| is_column(one) && is_operand(other);
            op.supports_propagation() && (both(left, right) || both(right, left))
        }
        Expr::InList(list) => is_column(&list.expr) && list.list.iter().all(is_operand),
        Expr::Between(between) => is_column(&between.expr) && is_operand(&between.low) && is_operand(&between.high),
        Expr::Like(like) => is_column(&like.expr) && is_operand(&like.pattern),
        _ => false,
    }
}

/// Types of the parameters `$1`, `$2` and so on. `None` unless the type is known wherever a parameter is used.
fn parameter_types(plan: &LogicalPlan) -> Option<Vec<DataType>> {
    let mut is_typed = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                is_typed &= !matches!(part, Expr::Placeholder(placeholder) if placeholder.field.is_none());
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .ok()?;
    let mut types = plan.get_parameter_types().ok().filter(|_| is_typed)?;
    (1..=types.len()).map(|number| types.remove(&format!("${number}")).flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::scan::tests::{database, session};
    use datafusion::physical_plan::displayable;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn scan_plans_equal_those_of_the_planner() {
        let store = database(true).await;
        let context = session(&store);
        let (state, snapshot) = (context.state(), store.snapshot());
        let cache_key = CacheKey { session: 0, settings: 0, definitions: snapshot.definitions_id() };
        let cases = [
            ("SELECT id FROM m WHERE id >= 5", true),
            ("SELECT s, k, id FROM m WHERE k = 3 AND id < 70000", true),
            ("SELECT s AS word, id AS id, s AS again FROM m AS n WHERE n.k IN (1, 3, 4, 9)", true),
            ("SELECT * FROM (SELECT x, k AS y FROM m WHERE id <> 9) AS inner_one", true),
            ("SELECT id FROM m WHERE id >= $1 AND s = $2", true),
            ("SELECT id FROM m WHERE id > 1000000000000 OR id < 5", false),
            ("SELECT id FROM m WHERE id >= 5 LIMIT 7", false),
            ("SELECT id FROM m WHERE id >= 5 ORDER BY k", false),
            ("SELECT id + 1 FROM m WHERE id >= 5", false),
            ("SELECT count(*) FROM m WHERE id >= 5", false),
        ];
        for (query, is_scan) in cases {
            let plan = state.create_logical_plan(query).await.unwrap();
            let cached =
                CachedPlan::compile(&plan, &state, cache_key).unwrap_or_else(|| panic!("{query} is not cached"));
            let values = [ScalarValue::Int64(Some(5)), ScalarValue::Utf8View(Some("s1".to_owned()))];
            let bound = cached.bind(&store, &snapshot, &values[..cached.parameters.len()]).unwrap();
            let found = cached.scan_plan(&bound, &state).unwrap();
            assert_eq!(found.is_some(), is_scan, "{query}");
            let planned = state.query_planner().create_physical_plan(&bound, &state).await.unwrap();
            if let Some(found) = found {
                let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
                assert_eq!(shown(&found), shown(&planned), "{query}");
                assert_eq!(found.schema(), planned.schema(), "{query}");
            }
        }
    }
}
