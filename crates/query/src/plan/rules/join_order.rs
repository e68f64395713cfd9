//! Orders inner joins by the catalog's statistics.
//!
//! DataFusion joins tables in the order in which they are written. This rule takes every maximal region of inner joins
//! as a graph of relations and conditions. It finds the cheapest tree, bushy trees included, by dynamic programming
//! over connected sets of at most [`RELATIONS_MAX`] relations. Larger regions are not changed, nor are regions with a
//! relation without statistics. Two expressions that both equal a third are also joined directly if that is cheaper. A
//! semi-join above a region first moves down to one relation of the region. It does so if its keys come from that
//! relation, and few of the relation's rows pass it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinConstraint, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Join, JoinType, LogicalPlan, Operator, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::estimate::{Cardinality, RelationEstimate, estimate, semi_join_selectivity};

/// Maximum relations of a region that is ordered. The search visits every split of every set: 3^10 = 59,049 steps.
const RELATIONS_MAX: usize = 10;
/// Maximum share of a relation's rows that a semi-join keeps if it moves down to the relation.
const SEMI_JOIN_SELECTIVITY_MAX: f64 = 0.2;
/// Cost of a row that is inserted into a hash table, relative to a row that probes it or is returned.
const BUILD_COST: f64 = 2.0;

/// Rule that orders inner joins, as the module describes.
#[derive(Debug, Default)]
pub struct JoinOrder;

impl OptimizerRule for JoinOrder {
    fn name(&self) -> &str {
        "taut_join_order"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        // The rule traverses the plan itself: it must see each region once, from its root.
        None
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|node| {
            if let LogicalPlan::Join(join) = &node
                && join.join_type == JoinType::LeftSemi
                && let Some(moved) = push_semi_join(join)?
            {
                return Ok(Transformed::new(order_below(moved)?, true, TreeNodeRecursion::Jump));
            }
            if !is_region(&node) {
                return Ok(Transformed::no(node));
            }
            Ok(match order_region(&node)? {
                Some(ordered) => Transformed::new(ordered, true, TreeNodeRecursion::Jump),
                None => Transformed::no(node),
            })
        })
    }
}

/// Orders all regions of a plan that the traversal in [`JoinOrder`] does not enter.
fn order_below(plan: LogicalPlan) -> Result<LogicalPlan> {
    let ordered = plan.transform_down(|node| {
        if !is_region(&node) {
            return Ok(Transformed::no(node));
        }
        Ok(match order_region(&node)? {
            Some(ordered) => Transformed::new(ordered, true, TreeNodeRecursion::Jump),
            None => Transformed::no(node),
        })
    })?;
    Ok(ordered.data)
}

fn is_region(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Join(join)
            if join.join_type == JoinType::Inner
                && join.null_equality == NullEquality::NullEqualsNothing
                && join.join_constraint == JoinConstraint::On
    )
}

/// Relations and conditions of a region. Its relations are the *leaves*: the plans below its joins.
#[derive(Default)]
struct Region {
    leaves: Vec<LogicalPlan>,
    equalities: Vec<(Expr, Expr)>,
    conditions: Vec<Expr>,
}

/// Expressions that are equal in every row of a region: `a.x = b.y AND b.y = c.z` also joins `a` with `c`.
type EquivalenceClass = Vec<Expr>;

impl Region {
    /// Separates equalities of two relations from other conditions. A comma join below a subquery has such equalities
    /// among its conditions. An equality with an expression over several relations is an ordinary condition: it is
    /// applied once all of them are joined, whatever the order.
    fn find_equalities(&mut self) {
        let Self { leaves, equalities, conditions } = self;
        let one_of = |expression: &Expr| relations_of(expression, leaves).filter(|set| set.count_ones() == 1);
        let joins_two = |left: &Expr, right: &Expr| matches!((one_of(left), one_of(right)), (Some(first), Some(second)) if first != second);
        let wider = equalities.extract_if(.., |(left, right)| !joins_two(left, right));
        let wider: Vec<Expr> = wider.map(|(left, right)| left.eq(right)).collect();
        conditions.retain(|condition| {
            let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return true };
            if !joins_two(left, right) {
                return true;
            }
            equalities.push((left.as_ref().clone(), right.as_ref().clone()));
            false
        });
        conditions.extend(wider);
    }
}

fn collect_region(plan: &LogicalPlan, region: &mut Region) {
    match plan {
        LogicalPlan::Join(join) if is_region(plan) => {
            collect_region(&join.left, region);
            collect_region(&join.right, region);
            region.equalities.extend(join.on.iter().cloned());
            region.conditions.extend(join.filter.iter().cloned().flat_map(split_conjunction_owned));
        }
        leaf => region.leaves.push(leaf.clone()),
    }
}

/// Groups equalities into classes. Expressions of a class on the same side of a join are already equal. A join of two
/// sets of relations therefore needs only one equality of each class that has expressions on both sides. This requires
/// that no relation has two expressions of the class and that each expression returns the same value each time. Every
/// other equality is a separate class.
fn equivalence_classes(region: &Region) -> Vec<EquivalenceClass> {
    let is_volatile = |(left, right): &&(Expr, Expr)| left.is_volatile() || right.is_volatile();
    let (alone, stable): (Vec<_>, Vec<_>) = region.equalities.iter().partition(is_volatile);
    let mut merged: Vec<Vec<&(Expr, Expr)>> = Vec::new();
    for equality in stable {
        let (left, right) = equality;
        let touches =
            |(first, second): &(Expr, Expr)| [first, second].iter().any(|side| *side == left || *side == right);
        let (joined, apart) = merged.into_iter().partition(|class: &Vec<_>| class.iter().any(|other| touches(other)));
        merged = apart;
        merged.push(std::iter::once(equality).chain(joined.into_iter().flatten()).collect());
    }
    let as_class = |equalities: &[&(Expr, Expr)]| {
        let mut class = EquivalenceClass::new();
        for expression in equalities.iter().flat_map(|(left, right)| [left, right]) {
            if !class.contains(expression) {
                class.push(expression.clone());
            }
        }
        class
    };
    let is_sound = |class: &EquivalenceClass| {
        let sets: Vec<RelationSet> =
            class.iter().filter_map(|expression| relations_of(expression, &region.leaves)).collect();
        sets.iter().enumerate().all(|(index, set)| sets[..index].iter().all(|other| other & set == 0))
    };
    let alone = alone.into_iter().map(|equality| vec![equality]);
    merged
        .into_iter()
        .chain(alone)
        .flat_map(|equalities| match as_class(&equalities) {
            class if is_sound(&class) => vec![class],
            _ => equalities.iter().map(|equality| as_class(&[*equality])).collect(),
        })
        .collect()
}

/// A set of relations, one bit each.
type RelationSet = u32;

/// Relations that an expression reads. Returns `None` if it reads no column, or a column that no relation has.
fn relations_of(expression: &Expr, leaves: &[LogicalPlan]) -> Option<RelationSet> {
    let mut set = 0;
    for column in expression.column_refs() {
        let index = leaves.iter().position(|leaf| leaf.schema().has_column(column))?;
        set |= 1 << index;
    }
    (set != 0).then_some(set)
}

/// Cheapest tree found for a set of relations.
#[derive(Clone, Copy)]
struct Tree {
    size: Cardinality,
    cost: f64,
    /// The two halves, or `None` for a single relation. The left half is built into the hash table.
    halves: Option<(RelationSet, RelationSet)>,
}

/// Orders the joins of a region. Returns `None` if there is nothing to order or statistics are missing.
fn order_region(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut region = Region::default();
    collect_region(plan, &mut region);
    let count = region.leaves.len();
    if !(2..=RELATIONS_MAX).contains(&count) {
        return Ok(None);
    }
    region.find_equalities();
    let classes = equivalence_classes(&region);
    let Some(graph) = Graph::new(&region, &classes) else { return Ok(None) };
    let Some(trees) = find_cheapest_trees(&graph) else { return Ok(None) };
    // Joins within a leaf, such as in a derived table, are separate regions.
    let leaves = region.leaves.iter().cloned().map(order_below).collect::<Result<Vec<_>>>()?;
    let mut applied = vec![false; region.conditions.len()];
    let ordered = build_plan((1 << count) - 1, &trees, &leaves, &region, &graph, &mut applied)?;
    if *ordered.schema() == *plan.schema() {
        return Ok(Some(ordered));
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(ordered))?)))
}

/// Relations of a region, and the relations that each condition joins.
struct Graph<'a> {
    relations: Vec<RelationEstimate>,
    classes: Vec<Vec<ClassExpression<'a>>>,
    conditions: Vec<RelationSet>,
}

/// An expression of a class: the relations that it reads and its number of distinct values.
struct ClassExpression<'a> {
    expression: &'a Expr,
    relations: RelationSet,
    distinct: f64,
}

impl<'a> Graph<'a> {
    fn new(region: &Region, classes: &'a [EquivalenceClass]) -> Option<Self> {
        let leaves = &region.leaves;
        let relations = leaves.iter().map(estimate).collect::<Option<Vec<_>>>()?;
        let side = |expression: &'a Expr| {
            let set = relations_of(expression, leaves)?;
            let distinct = relations[set.trailing_zeros() as usize].distinct_estimate_of(expression);
            Some(ClassExpression { expression, relations: set, distinct })
        };
        let classes = classes.iter().map(|class| class.iter().map(side).collect()).collect::<Option<Vec<_>>>()?;
        let conditions = region.conditions.iter().map(|c| relations_of(c, leaves)).collect::<Option<Vec<_>>>()?;
        Some(Self { relations, classes, conditions })
    }

    /// Equalities that join two disjoint sets of relations. Each class that has expressions over both sets contributes
    /// one, between the expressions with the fewest distinct values.
    fn join_equalities(
        &self,
        left: RelationSet,
        right: RelationSet,
    ) -> impl Iterator<Item = (&ClassExpression<'a>, &ClassExpression<'a>)> {
        let fewest = |class: &'_ [ClassExpression<'a>], whole: RelationSet| {
            let inside = class.iter().enumerate().filter(|(_, side)| side.relations & !whole == 0);
            inside.min_by(|(_, one), (_, other)| one.distinct.total_cmp(&other.distinct)).map(|(index, _)| index)
        };
        self.classes.iter().filter_map(move |class| Some((&class[fewest(class, left)?], &class[fewest(class, right)?])))
    }
}

/// Finds the cheapest tree of every connected set, indexed by set. Returns `None` if the relations are not all
/// connected.
fn find_cheapest_trees(graph: &Graph<'_>) -> Option<Vec<Option<Tree>>> {
    let count = graph.relations.len();
    let all: RelationSet = (1 << count) - 1;
    let mut trees: Vec<Option<Tree>> = vec![None; 1 << count];
    for (index, relation) in graph.relations.iter().enumerate() {
        trees[1 << index] = Some(Tree { size: relation.size(), cost: 0.0, halves: None });
    }
    for set in 1..=all {
        if set.count_ones() < 2 {
            continue;
        }
        let mut best: Option<Tree> = None;
        // Visits every split once: `half` is the one with the lowest relation.
        let lowest = set & set.wrapping_neg();
        let mut half = (set - 1) & set;
        while half != 0 {
            let rest = set & !half;
            if half & lowest != 0
                && let (Some(left), Some(right)) = (trees[half as usize], trees[rest as usize])
                && graph.join_equalities(half, rest).next().is_some()
            {
                let candidate = join_trees((half, left), (rest, right), graph);
                if best.as_ref().is_none_or(|best| candidate.cost < best.cost) {
                    best = Some(candidate);
                }
            }
            half = (half - 1) & set;
        }
        trees[set as usize] = best;
    }
    trees[all as usize].is_some().then_some(trees)
}

fn join_trees((half, left): (RelationSet, Tree), (rest, right): (RelationSet, Tree), graph: &Graph<'_>) -> Tree {
    let keys: Vec<_> = graph.join_equalities(half, rest).map(|(left, right)| (left.distinct, right.distinct)).collect();
    let mut size = left.size.join(right.size, &keys);
    let whole = half | rest;
    for condition in &graph.conditions {
        if condition & !whole == 0 && condition & !half != 0 && condition & !rest != 0 {
            size.rows = (size.rows / 3.0).max(1.0);
        }
    }
    let (build, probe) = (left.size.rows.min(right.size.rows), left.size.rows.max(right.size.rows));
    let cost = left.cost + right.cost + size.rows + BUILD_COST * build + probe;
    let halves = if left.size.rows <= right.size.rows { (half, rest) } else { (rest, half) };
    Tree { size, cost, halves: Some(halves) }
}

/// Builds the plan of a set's tree. Each condition is attached to the lowest join that has all its columns.
fn build_plan(
    set: RelationSet,
    trees: &[Option<Tree>],
    leaves: &[LogicalPlan],
    region: &Region,
    graph: &Graph<'_>,
    applied: &mut [bool],
) -> Result<LogicalPlan> {
    let halves = trees[set as usize].and_then(|tree| tree.halves);
    let Some((left, right)) = halves else { return Ok(leaves[set.trailing_zeros() as usize].clone()) };
    let left_plan = build_plan(left, trees, leaves, region, graph, applied)?;
    let right_plan = build_plan(right, trees, leaves, region, graph, applied)?;
    let mut filters = Vec::new();
    for (index, condition) in graph.conditions.iter().enumerate() {
        if condition & !set == 0 && !std::mem::replace(&mut applied[index], true) {
            filters.push(region.conditions[index].clone());
        }
    }
    let on = graph
        .join_equalities(left, right)
        .map(|(left, right)| (left.expression.clone(), right.expression.clone()))
        .collect();
    Ok(LogicalPlan::Join(Join::try_new(
        Arc::new(left_plan),
        Arc::new(right_plan),
        on,
        conjunction(filters),
        JoinType::Inner,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?))
}

/// Rewrites `(a JOIN b JOIN c) SEMI JOIN s ON a.k = s.k` as `(a SEMI JOIN s ON a.k = s.k) JOIN b JOIN c`. Both are
/// equal because an inner join keeps or drops a row of `a` by its values alone. Returns `None` if that is not possible
/// or has little benefit.
fn push_semi_join(join: &Join) -> Result<Option<LogicalPlan>> {
    let (inner, columns) = match join.left.as_ref() {
        LogicalPlan::Projection(projection) if projection.expr.iter().all(|e| matches!(e, Expr::Column(_))) => {
            (projection.input.as_ref(), Some(projection))
        }
        other => (other, None),
    };
    if !is_region(inner) || join.filter.is_some() || join.on.is_empty() || join.null_aware {
        return Ok(None);
    }
    let mut region = Region::default();
    collect_region(inner, &mut region);
    let mut target: RelationSet = 0;
    for (key, _) in &join.on {
        let Some(set) = relations_of(key, &region.leaves) else { return Ok(None) };
        target |= set;
    }
    if target.count_ones() != 1 {
        return Ok(None);
    }
    let index = target.trailing_zeros() as usize;
    let leaf = &region.leaves[index];
    let (Some(left), Some(right)) = (estimate(leaf), estimate(&join.right)) else { return Ok(None) };
    if semi_join_selectivity(&left, &right, &join.on) > SEMI_JOIN_SELECTIVITY_MAX {
        return Ok(None);
    }
    let reduced =
        LogicalPlan::Join(Join { left: Arc::new(leaf.clone()), schema: Arc::clone(leaf.schema()), ..join.clone() });
    let moved = replace_leaf(inner, leaf, &reduced)?;
    Ok(Some(match columns {
        Some(projection) => LogicalPlan::Projection(Projection::try_new(projection.expr.clone(), Arc::new(moved))?),
        None => moved,
    }))
}

/// Replaces one leaf of a region by a plan of the same schema.
fn replace_leaf(plan: &LogicalPlan, leaf: &LogicalPlan, replacement: &LogicalPlan) -> Result<LogicalPlan> {
    if plan == leaf {
        return Ok(replacement.clone());
    }
    match plan {
        LogicalPlan::Join(join) if is_region(plan) => Ok(LogicalPlan::Join(Join {
            left: Arc::new(replace_leaf(&join.left, leaf, replacement)?),
            right: Arc::new(replace_leaf(&join.right, leaf, replacement)?),
            ..join.clone()
        })),
        other => Ok(other.clone()),
    }
}
