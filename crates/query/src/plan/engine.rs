//! The engine of a database: memory, threads and spill files that all sessions share, and the configuration of
//! DataFusion with Taut's planning rules.

use std::sync::Arc;

use datafusion::common::config::ConfigExtension;
use datafusion::common::extensions_options;
use datafusion::error::Result;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use taut_sql::{CATALOG, UNQUALIFIED};

use crate::exec::operators::JOIN_VALUES_MAX;
use crate::expressions::{CheckedArithmetic, Guards, OperandTypes, SessionZone, session_state, set_parser_options};
use crate::plan::derived_keys::DerivedKeys;
use crate::plan::files::with_text_formats;
use crate::plan::rules::{
    self, AggregateInScan, AggregateOrder, ComputedKeys, ConditionColumns, CorrectDependencies, CorrelatedSubqueries,
    DateComparisons, GroupConditions, GroupingSets, InsertionOrder, IntervalKeys, JoinElimination, JoinOrder,
    LateVolatile, LongExpressions, MaterializingPlanner, NestedCoalesce, NotIn, RepeatedOrder, SequenceCalls,
    SetComparisons, SetOperations, StatisticsWithoutLiterals, Subqueries, UnambiguousFilterPushdown, UnionOrder,
    UnmergedInLists, WindowConstants, WindowOrder,
};
use crate::runtime::memory::QueryMemory;
use crate::runtime::spill::SpillDirectory;
use crate::runtime::workers::Workers;

extensions_options! {
    /// Taut's own settings of a session. They do not affect results, except for the order of rows without `ORDER BY`.
    pub struct TautOptions {
        /// Whether scans compute partial aggregations on codes, runs and 64-bit numbers.
        pub aggregate_in_scan: bool, default = true
        /// Whether rows are returned in the order of the table or the files where the order is visible.
        pub preserve_insertion_order: bool, default = true
    }
}

impl ConfigExtension for TautOptions {
    const PREFIX: &'static str = "taut";
}

/// Maximum bytes of the smaller side of a join, times the number of threads, for which one thread builds the hash table
/// for all threads. The other threads are idle during the build, but the rows of the larger side need not be
/// repartitioned. The more threads are idle, the smaller the side must be.
const SHARED_BUILD_BYTES: usize = 512 << 20;
/// Maximum rows of that side, times the number of threads: see [`SHARED_BUILD_BYTES`].
const SHARED_BUILD_ROWS: usize = 32_000_000;

/// Maximum bytes of the list of values that a join passes to a scan. A batch of few rows counts as one of 8,192 rows,
/// because its columns are allocated at that size. The limit allows three columns of eight bytes, or one such column
/// and short text, with their null masks. Lists are made of rows, not of distinct values, so longer lists cost more
/// time than they save.
const JOIN_VALUES_BYTES: usize = 3 * 8 * 8_192 + 4_096;

/// Maximum number of sorted runs that are merged at once. A merge holds a batch of each run and cannot spill. Merging
/// as many runs as fit in memory would leave no memory for the sort of a join's other side.
const MERGE_RUNS_MAX: usize = 8;

/// Number of merges of [`MERGE_RUNS_MAX`] runs that fit in the memory of one thread.
const MERGES_IN_MEMORY: usize = 4;

/// Resources that sessions share: memory, threads and temporary files.
#[derive(Debug)]
pub struct Engine {
    threads: usize,
    runtime: Arc<RuntimeEnv>,
    workers: Arc<Workers>,
    spill_directory: SpillDirectory,
    memory_bytes: usize,
}

impl Engine {
    /// Creates an engine with limits on threads and bytes of memory. Sorts, aggregations and joins that need more
    /// memory write spill files.
    ///
    /// # Errors
    /// If DataFusion does not accept these settings.
    pub fn new(threads: usize, memory_bytes: usize, spill_directory: SpillDirectory) -> Result<Self> {
        let pool = Arc::new(QueryMemory::new(memory_bytes));
        let disk = DiskManagerBuilder::default()
            .with_temp_file_factory(Arc::new(spill_directory.clone()))
            .with_max_spill_merge_fan_in(MERGE_RUNS_MAX);
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?;
        Ok(Self { threads: threads.max(1), runtime, workers: Arc::default(), spill_directory, memory_bytes })
    }

    /// Directory of the spill files.
    pub fn spill_directory(&self) -> &SpillDirectory {
        &self.spill_directory
    }

    /// Number of threads that a query uses.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Threads that run queries, registered while they are parked.
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Creates a context with PostgreSQL's grammar, exact decimal literals and Taut's planner rules.
    pub fn context(&self) -> SessionContext {
        let mut config = SessionConfig::new()
            .with_target_partitions(self.threads)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, UNQUALIFIED)
            .with_extension(Arc::clone(&self.workers))
            .with_extension(Arc::new(self.spill_directory.clone()));
        let options = config.options_mut();
        options.extensions.insert(TautOptions::default());
        set_parser_options(options);
        // Each sort of each thread reserves these bytes for its merge. If memory is short, enough must remain for the
        // sort itself.
        let reserved = &mut options.execution.sort_spill_reservation_bytes;
        *reserved = (*reserved).min(self.memory_bytes / self.threads / MERGES_IN_MEMORY);
        // The check compares nullability, and would fail: DataFusion plans `x IS TRUE` as never null, and executes it
        // as nullable.
        options.execution.skip_physical_aggregate_schema_check = true;
        let optimizer = &mut options.optimizer;
        optimizer.hash_join_single_partition_threshold = SHARED_BUILD_BYTES / self.threads;
        optimizer.hash_join_single_partition_threshold_rows = SHARED_BUILD_ROWS / self.threads;
        optimizer.hash_join_inlist_pushdown_max_distinct_values = JOIN_VALUES_MAX;
        optimizer.hash_join_inlist_pushdown_max_size = JOIN_VALUES_BYTES;
        let state = with_text_formats(session_state())
            .with_config(config)
            .with_runtime_env(Arc::clone(&self.runtime))
            .with_query_planner(Arc::new(MaterializingPlanner))
            .with_relation_planners(vec![Arc::new(DerivedKeys)])
            .with_analyzer_rules(rules::analyzer_rules(analyzer_rules()))
            .with_optimizer_rules(rules::optimizer_rules(optimizer_rules()))
            .with_physical_optimizer_rules(rules::physical_rules(physical_rules()))
            .build();
        let context = SessionContext::new_with_state(state);
        crate::plan::assignment_cast::register(&context);
        context
    }
}

/// DataFusion's analyzer rules with Taut's rules. Before type coercion: the order of aggregates, set operations, nested
/// `coalesce`, long expressions, types of operands, and constants of windows. After it: the time zone of the session,
/// comparisons with subqueries, subqueries, and volatile functions above sorts. Then conditions in sorts and windows,
/// intervals as keys, checked arithmetic, and guards.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(AggregateOrder));
    rules.insert(1, Arc::new(SetOperations));
    rules.insert(2, Arc::new(NestedCoalesce));
    rules.insert(3, Arc::new(LongExpressions));
    rules.insert(4, Arc::new(OperandTypes));
    rules.insert(5, Arc::new(WindowConstants));
    rules.push(Arc::new(SessionZone));
    rules.push(Arc::new(SetComparisons));
    rules.push(Arc::new(Subqueries));
    rules.push(Arc::new(CorrelatedSubqueries));
    rules.push(Arc::new(LateVolatile));
    rules.push(Arc::new(ConditionColumns));
    rules.push(Arc::new(IntervalKeys));
    rules.push(Arc::new(CheckedArithmetic));
    rules.push(Arc::new(Guards));
    rules
}

/// DataFusion's optimizer rules with Taut's rules. Comparisons of dates follow the simplifier, which computes their
/// constants. The join order follows filter pushdown: only then are joins adjacent, without filters between them, and
/// the predicates of each scan known. Keys of joins are prepared, and joins eliminated, when scans read only the
/// columns in use. Repeated orders are removed last. The rule that simplifies expressions does not merge `IN` lists.
/// The rule that pushes filters down does not move conditions on groups. Rules that use functional dependencies do not
/// use wrong dependencies.
fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let wrapped = |rule: Arc<dyn OptimizerRule + Send + Sync>| -> Arc<dyn OptimizerRule + Send + Sync> {
        match rule.name() {
            "simplify_expressions" => Arc::new(UnmergedInLists(rule)),
            "push_down_filter" => Arc::new(GroupConditions(rule)),
            "eliminate_duplicated_expr" | "eliminate_join" | "optimize_projections" | "replace_distinct_aggregate" => {
                Arc::new(CorrectDependencies(rule))
            }
            _ => rule,
        }
    };
    let mut rules: Vec<_> = Optimizer::new().rules.into_iter().map(wrapped).collect();
    let after = |rules: &[Arc<dyn OptimizerRule + Send + Sync>], name| {
        rules.iter().position(|rule| rule.name() == name).map_or(rules.len(), |at| at + 1)
    };
    rules.insert(after(&rules, "simplify_expressions"), Arc::new(DateComparisons));
    rules.insert(after(&rules, "push_down_filter"), Arc::new(JoinOrder));
    rules.push(Arc::new(ComputedKeys));
    rules.push(Arc::new(JoinElimination));
    rules.push(Arc::new(RepeatedOrder));
    rules
}

/// DataFusion's physical rules with Taut's rules. First: inputs of grouping sets. Before the rules that choose join
/// algorithms: `NOT IN`. Before the rules that distribute and sort rows: calls on sequences, and windows without an
/// order. Last, before the final check: the order of unions, aggregation in scans, and the order of rows. Filters are
/// pushed down only by unambiguous names. Statistics of constants are not used.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let wrapped = |rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>| -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
        match rule.name() {
            "aggregate_statistics" => Arc::new(StatisticsWithoutLiterals(rule)),
            name if name.starts_with("FilterPushdown") => Arc::new(UnambiguousFilterPushdown(rule)),
            _ => rule,
        }
    };
    let mut rules: Vec<_> = PhysicalOptimizer::new().rules.into_iter().map(wrapped).collect();
    rules.insert(0, Arc::new(GroupingSets));
    rules.insert(1, Arc::new(NotIn));
    rules.insert(2, Arc::new(SequenceCalls));
    rules.insert(3, Arc::new(WindowOrder));
    let before = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    rules.insert(before, Arc::new(UnionOrder));
    rules.insert(before + 1, Arc::new(AggregateInScan));
    rules.insert(before + 2, Arc::new(InsertionOrder));
    rules
}
