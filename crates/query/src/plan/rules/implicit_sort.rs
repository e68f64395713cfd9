//! Sort order that foreign keys imply for the rows of a join (Halverson et al., 2006, section 2.2).
//!
//! Rows of the *many* side of a join repeat the row of the *one* side that they reference. If the result is sorted by
//! the key of the *one* side, all columns of that side come in runs. Column abstraction and the encodings of columns
//! store each run once. If the key is not in the result, the rows are sorted by all columns of the *one* side.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, JoinType, LogicalPlan, Operator, TableScan};
use taut_store::ForeignKey;
use taut_types::ColumnIndex;

use super::lineage::{Origin, foreign_key_of, origin, scanned_table_rows};

/// Returns the indexes of the output columns by which the rows of a plan should be sorted. For each *one* side of its
/// joins, these are the columns of its key. If the key is not in the output, they are all columns of that side. The
/// side with the fewest rows comes first: its runs are the longest.
///
/// # Errors
/// If DataFusion cannot copy the plan.
pub fn implicit_sort(plan: &LogicalPlan) -> Result<Vec<usize>> {
    // A relation that is read twice, such as a view, may be one shared node of the plan. The copy has two nodes.
    let plan = &plan.clone().transform_up(|node| Ok(Transformed::yes(node)))?.data;
    let output: Vec<Option<Origin<'_>>> = plan.schema().columns().iter().map(|column| origin(plan, column)).collect();
    let mut sides = foreign_key_joins(plan);
    sides.sort_by_key(|side| scanned_table_rows(side.one_side));
    let mut sorted = Vec::new();
    for ForeignKeyJoin { many_side, one_side, key } in sides {
        let index_of = |scan: &TableScan, column: ColumnIndex| {
            output.iter().position(|known| known.is_some_and(|at| std::ptr::eq(at.scan, scan) && at.column == column))
        };
        // A column of the foreign key equals the column that it references.
        let pairs = key.columns.iter().zip(&key.referenced);
        let key_columns: Option<Vec<usize>> = pairs
            .map(|(own, referenced)| index_of(one_side, *referenced).or_else(|| index_of(many_side, *own)))
            .collect();
        let columns = key_columns.unwrap_or_else(|| {
            let is_of_side = |index: &usize| output[*index].is_some_and(|at| std::ptr::eq(at.scan, one_side));
            (0..output.len()).filter(is_of_side).collect()
        });
        for column in columns {
            if !sorted.contains(&column) {
                sorted.push(column);
            }
        }
    }
    Ok(sorted)
}

/// A join on a foreign key.
struct ForeignKeyJoin<'a> {
    many_side: &'a TableScan,
    one_side: &'a TableScan,
    key: ForeignKey,
}

/// Finds the tables of a plan that are referenced by another table of the plan and joined to it by that foreign key.
fn foreign_key_joins(plan: &LogicalPlan) -> Vec<ForeignKeyJoin<'_>> {
    let mut equalities = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        find_equalities(node, &mut equalities);
        Ok(TreeNodeRecursion::Continue)
    });
    let mut sides: Vec<ForeignKeyJoin<'_>> = Vec::new();
    for (first, second) in &equalities {
        for (many, one) in [(first, second), (second, first)] {
            let equal: Vec<_> = equalities
                .iter()
                .flat_map(|(left, right)| [(left, right), (right, left)])
                .filter(|(own, other)| own.is_in_same_scan(many) && other.is_in_same_scan(one))
                .map(|(own, other)| (own.column, other.column))
                .collect();
            let is_known = |side: &ForeignKeyJoin<'_>| {
                std::ptr::eq(side.one_side, one.scan) && std::ptr::eq(side.many_side, many.scan)
            };
            if !sides.iter().any(is_known)
                && let Some(key) = foreign_key_of(many.scan, one.scan, &equal)
            {
                sides.push(ForeignKeyJoin { many_side: many.scan, one_side: one.scan, key });
            }
        }
    }
    sides
}

/// Collects the pairs of stored columns that are equal in all rows of a node, by the node's own conditions.
fn find_equalities<'a>(node: &'a LogicalPlan, equalities: &mut Vec<(Origin<'a>, Origin<'a>)>) {
    let mut conditions: Vec<&'a Expr> = Vec::new();
    match node {
        LogicalPlan::Join(join) if returns_both_sides(join.join_type) => {
            conditions.extend(join.filter.iter());
            let on = join.on.iter().map(|(left, right)| (left, right));
            equalities.extend(on.filter_map(|(left, right)| {
                Some((origin(&join.left, column_in(left)?)?, origin(&join.right, column_in(right)?)?))
            }));
        }
        LogicalPlan::Filter(filter) => conditions.push(&filter.predicate),
        _ => return,
    }
    let inputs = node.inputs();
    let origin_of = |column: &Column| {
        let input = inputs.iter().find(|input| input.schema().has_column(column))?;
        origin(input, column)
    };
    for condition in conditions.into_iter().flat_map(split_conjunction) {
        if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition
            && let (Some(left), Some(right)) = (column_in(left), column_in(right))
            && let (Some(left), Some(right)) = (origin_of(left), origin_of(right))
        {
            equalities.push((left, right));
        }
    }
}

/// Whether a join returns the columns of both sides.
fn returns_both_sides(join: JoinType) -> bool {
    matches!(join, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full)
}

fn column_in(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        _ => None,
    }
}
