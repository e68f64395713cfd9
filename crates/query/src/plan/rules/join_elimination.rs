//! Elimination of joins that a foreign key makes redundant.
//!
//! The rule applies when a table is joined by its foreign key to the referenced table. Of the referenced table, only
//! the key is read. Each row has exactly one partner, whose key columns equal the row's foreign key. The join is
//! replaced by a condition that the columns of the foreign key are not null. A query on a view that joins many tables
//! then pays only for the tables whose columns it reads.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, Projection, TableScan, Union};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use taut_types::ColumnIndex;

use super::lineage::{column_of, foreign_key_of, origin};

/// Rule that eliminates joins, as the module describes. It must run after scans are reduced to the columns in use.
#[derive(Debug, Default)]
pub struct JoinElimination;

impl OptimizerRule for JoinElimination {
    fn name(&self) -> &str {
        "taut_join_elimination"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    /// Repeats until no join is eliminated: without one join, the key of the next may be read only by its own join.
    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut result = Transformed::no(plan);
        loop {
            let step = result.data.transform_up_with_subqueries(|node| match &node {
                LogicalPlan::Join(join) => {
                    Ok(eliminate_join(join)?.map_or_else(|| Transformed::no(node), Transformed::yes))
                }
                _ => Ok(Transformed::no(node)),
            })?;
            if !step.transformed {
                return Ok(Transformed { data: step.data, ..result });
            }
            // Columns of the foreign key have replaced columns of the referenced table. They may be nullable where the
            // replaced columns were not.
            let plan = step.data.transform_up_with_subqueries(|node| Ok(Transformed::yes(recompute_schema(node)?)))?;
            result = Transformed::yes(OptimizeProjections::new().rewrite(plan.data, config)?.data);
        }
    }
}

/// Returns a node with the schema that its inputs imply.
fn recompute_schema(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Union(union) = &node else { return node.recompute_schema() };
    // DataFusion does not recompute the schema of a union. A column is nullable if it is nullable in any input.
    let is_nullable = |index: usize| {
        let mut fields = union.inputs.iter().map(|input| input.schema().fields().get(index));
        fields.any(|field| field.is_none_or(|field| field.is_nullable()))
    };
    let fields = union.schema.iter().enumerate().map(|(index, (qualifier, field))| {
        let field = field.as_ref().clone().with_nullable(field.is_nullable() || is_nullable(index));
        (qualifier.cloned(), Arc::new(field))
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), union.schema.metadata().clone())?;
    let schema = schema.with_functional_dependencies(union.schema.functional_dependencies().clone())?;
    Ok(LogicalPlan::Union(Union { inputs: union.inputs.clone(), schema: Arc::new(schema) }))
}

/// Builds a plan with the rows and columns of a join that does not read one of its sides. Returns `None` if both sides
/// must be read.
fn eliminate_join(join: &Join) -> Result<Option<LogicalPlan>> {
    if join.filter.is_some() || join.null_equality != NullEquality::NullEqualsNothing || join.on.is_empty() {
        return Ok(None);
    }
    let (left, right) = (&join.left, &join.right);
    let swapped_keys = || join.on.iter().map(|(left, right)| (right, left));
    let keys = || join.on.iter().map(|(left, right)| (left, right));
    match join.join_type {
        JoinType::Inner => {
            if let Some(joined) = ReferencedSide::try_new(left, right, keys()) {
                return joined.replace_join(join, left, OnNull::DropRow).map(Some);
            }
            let joined = ReferencedSide::try_new(right, left, swapped_keys());
            joined.map(|joined| joined.replace_join(join, right, OnNull::DropRow)).transpose()
        }
        JoinType::LeftSemi if !join.null_aware => {
            let joined = ReferencedSide::try_new(left, right, keys());
            joined.map(|joined| joined.replace_join(join, left, OnNull::DropRow)).transpose()
        }
        JoinType::RightSemi if !join.null_aware => {
            let joined = ReferencedSide::try_new(right, left, swapped_keys());
            joined.map(|joined| joined.replace_join(join, right, OnNull::DropRow)).transpose()
        }
        JoinType::Left | JoinType::Right => {
            let (remaining, joined) = match join.join_type {
                JoinType::Left => (left, ReferencedSide::try_new(left, right, keys())),
                _ => (right, ReferencedSide::try_new(right, left, swapped_keys())),
            };
            let joined = joined.filter(|joined| joined.preserves_outer_keys(remaining));
            joined.map(|joined| joined.replace_join(join, remaining, OnNull::KeepRow)).transpose()
        }
        _ => Ok(None),
    }
}

/// Effect of the join on a row whose foreign key is null.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnNull {
    /// The row has no partner and is dropped.
    DropRow,
    /// The row stays in the result, with nulls in the columns of the referenced key.
    KeepRow,
}

/// A side of a join that the other side references. Only the referenced key of this side is read.
struct ReferencedSide {
    /// Pairs of a column of this side and the equal column of the other side.
    columns: Vec<(Column, Column)>,
    /// Conditions on the rows of this side, in terms of columns of the other side.
    conditions: Vec<Expr>,
}

impl ReferencedSide {
    fn try_new<'a>(
        from: &LogicalPlan,
        to: &LogicalPlan,
        on: impl Iterator<Item = (&'a Expr, &'a Expr)>,
    ) -> Option<Self> {
        let scan = renamed_scan(to)?;
        let (mut indexes, mut equal, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (own, other) in on {
            let (Expr::Column(own), Expr::Column(other)) = (own, other) else { return None };
            let (from, to) = (origin(from, own)?, origin(to, other)?);
            indexes.push(from);
            equal.push((from.column, to.column));
            columns.push((other.clone(), own.clone()));
        }
        let first = indexes.first()?;
        let key = indexes
            .iter()
            .all(|index| index.is_in_same_scan(first))
            .then(|| foreign_key_of(first.scan, scan, &equal))??;
        let is_of_key = |(own, referenced): &(ColumnIndex, ColumnIndex)| {
            key.columns.iter().zip(&key.referenced).any(|pair| pair == (own, referenced))
        };
        // Any other column of this side would have to be looked up.
        let is_read = |column: &Column| columns.iter().any(|(known, _)| known == column);
        if !equal.iter().all(is_of_key) || !to.schema().columns().iter().all(is_read) {
            return None;
        }
        let own = |name: &str| {
            let column = column_of(scan, name)?;
            let index = equal.iter().position(|(_, referenced)| *referenced == column)?;
            Some(Expr::Column(columns[index].1.clone()))
        };
        let conditions = scan.filters.iter().map(|filter| replace_columns(filter, &own)).collect::<Option<_>>()?;
        Some(Self { columns, conditions })
    }

    /// Whether the key columns of an outer join's result always equal the foreign key's own values. A foreign key of
    /// several columns may be null in only some of them.
    fn preserves_outer_keys(&self, remaining: &LogicalPlan) -> bool {
        self.conditions.is_empty() && (self.columns.len() == 1 || self.nullable_columns(remaining).next().is_none())
    }

    fn nullable_columns(&self, remaining: &LogicalPlan) -> impl Iterator<Item = &Column> {
        let is_nullable = |column: &Column| {
            remaining.schema().maybe_index_of_column(column).is_none_or(|at| remaining.schema().field(at).is_nullable())
        };
        self.columns.iter().map(|(_, own)| own).filter(move |own| is_nullable(own))
    }

    /// Builds a plan with the rows of the remaining side and the columns of the join.
    fn replace_join(&self, join: &Join, remaining: &Arc<LogicalPlan>, on_null: OnNull) -> Result<LogicalPlan> {
        let mut conditions = self.conditions.clone();
        if on_null == OnNull::DropRow {
            conditions
                .extend(self.nullable_columns(remaining).map(|column| Expr::Column(column.clone()).is_not_null()));
        }
        let rows = match conjunction(conditions) {
            Some(condition) => Arc::new(LogicalPlan::Filter(Filter::try_new(condition, Arc::clone(remaining))?)),
            None => Arc::clone(remaining),
        };
        let expressions = join.schema.columns().into_iter().map(|column| {
            match self.columns.iter().find(|(other, _)| *other == column) {
                Some((_, own)) => Expr::Column(own.clone()).alias_qualified(column.relation, column.name),
                None => Expr::Column(column),
            }
        });
        Ok(LogicalPlan::Projection(Projection::try_new(expressions.collect(), rows)?))
    }
}

/// Returns the scan of a plan that only renames columns. `None` for other plans.
fn renamed_scan(plan: &LogicalPlan) -> Option<&TableScan> {
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none().then_some(scan),
        LogicalPlan::SubqueryAlias(alias) => renamed_scan(&alias.input),
        LogicalPlan::Projection(projection) => renamed_scan(&projection.input),
        _ => None,
    }
}

/// Replaces the columns of an expression. Returns `None` if a column has no replacement or the expression has a
/// subquery.
fn replace_columns(expression: &Expr, other: &dyn Fn(&str) -> Option<Expr>) -> Option<Expr> {
    let mut is_complete = true;
    let changed = expression.clone().transform(|node| {
        Ok(match &node {
            Expr::Column(column) => match other(column.name()) {
                Some(other) => Transformed::new(other, true, TreeNodeRecursion::Jump),
                None => {
                    is_complete = false;
                    Transformed::no(node)
                }
            },
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::OuterReferenceColumn(..) => {
                is_complete = false;
                Transformed::no(node)
            }
            _ => Transformed::no(node),
        })
    });
    changed.ok().filter(|_| is_complete).map(|changed| changed.data)
}
