//! The engine under all sessions of a database: threads, memory and planning rules.

use std::sync::Arc;

use datafusion::common::config::{ConfigExtension, Dialect};
use datafusion::common::extensions_options;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::memory::QueryMemory;
use crate::rules::{
    self, AggregateInScan, FloatingPoint, JoinElimination, JoinOrder, LongExpressions, NotIn, Subqueries,
};
use crate::spill::SpillDirectory;
use crate::statement::{CATALOG, PUBLIC};
use crate::workers::Workers;

extensions_options! {
    /// Settings of a session that are Taut's own. None changes an answer.
    pub struct TautOptions {
        /// Whether scans compute partial aggregations on codes, runs and 64-bit numbers.
        pub aggregate_in_scan: bool, default = true
    }
}

impl ConfigExtension for TautOptions {
    const PREFIX: &'static str = "taut";
}

/// Up to this size, divided by the threads, one thread builds the hash table of a join for all. It then idles the
/// others for a moment, but saves them from exchanging every row of the larger side: the fewer threads there are, the
/// more that weighs.
const SHARED_BUILD_BYTES: usize = 512 << 20;
/// As [`SHARED_BUILD_BYTES`], in rows.
const SHARED_BUILD_ROWS: usize = 32_000_000;

/// Up to so many values that a join looks for are told to the scan of its other side as a list, which indexes, zone maps
/// and Bloom filters know what to do with; an index never searches for more.
pub(crate) const JOIN_VALUES_MAX: usize = 2048;
/// Bytes of such a list. A batch of few rows counts as one of 8,192, for which its columns have room: this is three columns of
/// eight bytes, or one of them beside short text, with their null masks. What a list is made of are rows, not distinct ones, so
/// that more of them take longer than they save.
const JOIN_VALUES_BYTES: usize = 3 * 8 * 8_192 + 4_096;

/// How many sorted runs are merged at once. A merge holds a batch of each and cannot spill: one of as many as find room would
/// leave none for the sort of a join's other side.
const RUNS_OF_MERGE: usize = 8;

/// How many merges of sorted runs find room in the memory of a thread.
const MERGES_OF_MEMORY: usize = 4;

/// What sessions share: memory, temporary files, and how they plan.
#[derive(Debug)]
pub struct Engine {
    threads: usize,
    runtime: Arc<RuntimeEnv>,
    workers: Arc<Workers>,
    spills: SpillDirectory,
    memory_bytes: usize,
}

impl Engine {
    /// An engine that runs queries on some threads, in some bytes of memory; what sorts, aggregations and joins need
    /// beyond it they write to spill files.
    ///
    /// # Errors
    /// When the engine does not take these settings.
    pub fn new(threads: usize, memory_bytes: usize, spills: SpillDirectory) -> Result<Self> {
        let pool = Arc::new(QueryMemory::new(memory_bytes));
        let disk = DiskManagerBuilder::default()
            .with_temp_file_factory(Arc::new(spills.clone()))
            .with_max_spill_merge_fan_in(RUNS_OF_MERGE);
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?;
        Ok(Self { threads: threads.max(1), runtime, workers: Arc::default(), spills, memory_bytes })
    }

    /// Where spill files go.
    pub fn spills(&self) -> &SpillDirectory {
        &self.spills
    }

    /// How many threads a query uses.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The threads that run queries, which say when they park.
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// A fresh context: PostgreSQL's grammar, exact decimal literals, our join order.
    pub fn context(&self) -> SessionContext {
        let mut config = SessionConfig::new()
            .with_target_partitions(self.threads)
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, PUBLIC)
            .with_extension(Arc::clone(&self.workers));
        let options = config.options_mut();
        options.extensions.insert(TautOptions::default());
        options.sql_parser.dialect = Dialect::PostgreSQL;
        // 0.05 is the decimal it looks like, so that comparisons with decimal columns are exact.
        options.sql_parser.parse_float_as_decimal = true;
        // A timestamp with time zone is an instant, and shown in UTC; without a zone here it would be a timestamp without.
        options.execution.time_zone = Some("+00:00".to_owned());
        // So that an unknown name is shown where it stands.
        options.sql_parser.collect_spans = true;
        // Each sort of each thread sets this aside for its merge: with little memory, what is left is to be enough to sort in.
        let reserved = &mut options.execution.sort_spill_reservation_bytes;
        *reserved = (*reserved).min(self.memory_bytes / self.threads / MERGES_OF_MEMORY);
        let optimizer = &mut options.optimizer;
        optimizer.hash_join_single_partition_threshold = SHARED_BUILD_BYTES / self.threads;
        optimizer.hash_join_single_partition_threshold_rows = SHARED_BUILD_ROWS / self.threads;
        optimizer.hash_join_inlist_pushdown_max_distinct_values = JOIN_VALUES_MAX;
        optimizer.hash_join_inlist_pushdown_max_size = JOIN_VALUES_BYTES;
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_runtime_env(Arc::clone(&self.runtime))
            .with_analyzer_rules(rules::analyzer_rules(analyzer_rules()))
            .with_optimizer_rules(rules::optimizer_rules(optimizer_rules()))
            .with_physical_optimizer_rules(rules::physical_rules(physical_rules()))
            .build();
        let context = SessionContext::new_with_state(state);
        crate::assign::register(&context);
        context
    }
}

/// The engine's rules, with ours on long expressions and on types before its coercion, and that on subqueries behind it.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(LongExpressions));
    rules.insert(1, Arc::new(FloatingPoint));
    rules.push(Arc::new(Subqueries));
    rules
}

/// The engine's rules with the join order after the rule that moves conditions down to the scans: only then are the
/// regions of joins bare and the scans known with their conditions. Needless joins go last, when scans read no columns but
/// those that are used.
fn optimizer_rules() -> Vec<Arc<dyn datafusion::optimizer::OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let after = rules.iter().position(|rule| rule.name() == "push_down_filter").map_or(rules.len(), |at| at + 1);
    rules.insert(after, Arc::new(JoinOrder));
    rules.push(Arc::new(JoinElimination));
    rules
}

/// The engine's rules, with that on `NOT IN` before those that choose how to join, and that on aggregations last before the
/// check of the whole.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.insert(0, Arc::new(NotIn));
    let before = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    rules.insert(before, Arc::new(AggregateInScan));
    rules
}
