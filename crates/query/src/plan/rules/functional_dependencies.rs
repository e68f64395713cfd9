//! Corrects the functional dependencies of a plan before DataFusion's rules use them.
//!
//! A functional dependency: equal values in some columns imply equal values in others. DataFusion derives wrong ones
//! for two operators. In both outputs below, it declares `k`, a key of `w`, a key of the output, although `k` repeats:
//!
//! ```text
//!   SELECT w.k, item FROM w JOIN i ON i.w = w.k GROUP BY w.k, item
//!   SELECT k, unnest(a) FROM w
//! ```
//!
//! A rule that relies on this omits a `DISTINCT`, a join, a sort key or a column of `GROUP BY`. The query then returns
//! wrong rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Dependency, FunctionalDependence, FunctionalDependencies, Result};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Wrapper of a rule that uses functional dependencies. The rule runs on plans whose dependencies are correct.
#[derive(Debug)]
pub struct CorrectDependencies(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for CorrectDependencies {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // A rule that is applied to each node uses dependencies at these nodes only.
        let uses = matches!(plan, LogicalPlan::Distinct(_) | LogicalPlan::Sort(_));
        let plan = if self.0.apply_order().is_none() || uses { corrected(plan)? } else { plan };
        self.0.rewrite(plan, config)
    }
}

/// Replaces wrong dependencies, and the dependencies that operators above have derived from wrong ones. Returns correct
/// plans unchanged.
fn corrected(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut is_wrong = false;
    plan.apply_with_subqueries(|node| {
        is_wrong = correction(node).is_some();
        Ok(if is_wrong { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !is_wrong {
        return Ok(plan);
    }
    let corrected = plan.transform_up_with_subqueries(|node| {
        let derives = !node.schema().functional_dependencies().is_empty();
        let node = if derives { node.recompute_schema()? } else { node };
        match correction(&node) {
            Some(dependencies) => with_dependencies(node, dependencies).map(Transformed::yes),
            None => Ok(Transformed::yes(node)),
        }
    })?;
    Ok(corrected.data)
}

/// Returns the correct dependencies of an operator's output if DataFusion has derived wrong ones.
fn correction(node: &LogicalPlan) -> Option<FunctionalDependencies> {
    let (schema, correct) = match node {
        LogicalPlan::Aggregate(aggregate) => (&aggregate.schema, dependencies_of_groups(aggregate)?),
        LogicalPlan::Unnest(unnest) => (&unnest.schema, FunctionalDependencies::empty()),
        _ => return None,
    };
    (*schema.functional_dependencies() != correct).then_some(correct)
}

/// Derives the dependencies of an aggregation's output. Returns `None` if its input has none, or there are grouping
/// sets: DataFusion's dependencies are then correct.
///
/// Each combination of group columns occurs once in the output. Some of these columns are unique alone if they
/// determine all the others.
fn dependencies_of_groups(aggregate: &Aggregate) -> Option<FunctionalDependencies> {
    let input = aggregate.input.schema();
    if input.functional_dependencies().is_empty() || matches!(aggregate.group_expr[..], [] | [Expr::GroupingSet(_)]) {
        return None;
    }
    let groups = group_columns(&aggregate.group_expr, input);
    let outputs = || (0..aggregate.schema.fields().len()).collect::<Vec<_>>();
    let mut dependencies = Vec::new();
    for dependency in input.functional_dependencies().iter() {
        let output = |column: &usize| groups.iter().position(|group| *group == Some(*column));
        let Some(sources) = dependency.source_indices.iter().map(output).collect::<Option<Vec<_>>>() else { continue };
        let determines = |group: &Option<usize>| group.is_some_and(|column| is_determined(dependency, column));
        let (targets, mode) = match groups.iter().all(determines) {
            true => (outputs(), Dependency::Single),
            false => ((0..groups.len()).filter(|&at| determines(&groups[at])).collect(), Dependency::Multi),
        };
        dependencies.push(FunctionalDependence::new(sources, targets, dependency.nullable).with_mode(mode));
    }
    if !dependencies.iter().any(|dependency| dependency.mode == Dependency::Single) {
        let is_nullable = (0..groups.len()).any(|group| aggregate.schema.field(group).is_nullable());
        let whole = FunctionalDependence::new((0..groups.len()).collect(), outputs(), is_nullable);
        dependencies.push(whole.with_mode(Dependency::Single));
    }
    Some(FunctionalDependencies::new(dependencies))
}

fn is_determined(dependency: &FunctionalDependence, column: usize) -> bool {
    dependency.target_indices.contains(&column) || dependency.source_indices.contains(&column)
}

/// Index of the input column that each distinct group expression is, or `None` for a computed one.
fn group_columns(groups: &[Expr], input: &DFSchema) -> Vec<Option<usize>> {
    let mut distinct: Vec<&Expr> = Vec::with_capacity(groups.len());
    for group in groups {
        if !distinct.contains(&group) {
            distinct.push(group);
        }
    }
    distinct.into_iter().map(|group| input.maybe_index_of_column(group.try_as_col()?)).collect()
}

fn with_dependencies(node: LogicalPlan, dependencies: FunctionalDependencies) -> Result<LogicalPlan> {
    let replaced = |schema: Arc<DFSchema>| -> Result<Arc<DFSchema>> {
        Ok(Arc::new(Arc::unwrap_or_clone(schema).with_functional_dependencies(dependencies)?))
    };
    match node {
        LogicalPlan::Aggregate(mut aggregate) => {
            aggregate.schema = replaced(aggregate.schema)?;
            Ok(LogicalPlan::Aggregate(aggregate))
        }
        LogicalPlan::Unnest(mut unnest) => {
            unnest.schema = replaced(unnest.schema)?;
            Ok(LogicalPlan::Unnest(unnest))
        }
        node => Ok(node),
    }
}
