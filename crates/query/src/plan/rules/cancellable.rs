//! Planning rules that end when their statement is cancelled.
//!
//! A rule visits every node of a plan, and a plan passes through some 60 rules. Planning a long statement therefore
//! takes seconds. Analyzer rules and physical rules check for cancellation before they begin. Optimizer rules check
//! before each call of `rewrite`, which is usually for one node.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

use crate::exec::operators::Interrupt;
use crate::expressions::pg_sleep;
use crate::runtime::cancellation::StatementCancellation;

/// A rule with checks for cancellation.
#[derive(Debug)]
pub struct Cancellable<R: ?Sized>(Arc<R>);

/// Wraps analyzer rules so that they check for cancellation.
pub fn analyzer_rules(rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Cancellable(rule)) as _).collect()
}

/// Wraps optimizer rules so that they check for cancellation.
pub fn optimizer_rules(rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Cancellable(rule)) as _).collect()
}

/// Wraps physical optimizer rules so that they check for cancellation.
pub fn physical_rules(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Cancellable(rule)) as _).collect()
}

/// Lets the planning rules and the functions of a session state check whether the statement was cancelled.
pub fn set_interrupt(state: &mut SessionState, interrupt: &Interrupt) {
    let cancellation = interrupt.cancellation();
    state.config_mut().options_mut().extensions.insert(StatementCancellation(cancellation.clone()));
    // Functions run without the configuration of their statement.
    let _replaced = state.register_udf(pg_sleep(cancellation.clone()));
}

fn check(options: &ConfigOptions) -> Result<()> {
    options.extensions.get::<StatementCancellation>().map_or(Ok(()), |statement| statement.0.check())
}

impl AnalyzerRule for Cancellable<dyn AnalyzerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check(config)?;
        self.0.analyze(plan, config)
    }
}

impl OptimizerRule for Cancellable<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        check(&config.options())?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Cancellable<dyn PhysicalOptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        check(config)?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check(context.config_options())?;
        self.0.optimize_with_context(plan, context)
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
