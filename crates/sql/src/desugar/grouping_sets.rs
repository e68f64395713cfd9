//! `ROLLUP` and `CUBE` that the planner rejects, because they have lists of columns or are within `GROUPING SETS`:
//!
//! ```text
//!   ROLLUP ((a, b), c)                    GROUPING SETS ((a, b, c), (a, b), ())
//!   GROUPING SETS (CUBE (a, b), (c))      GROUPING SETS ((a, b), (a), (b), (), (c))
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};

use crate::error::SqlError;

/// The greatest number of lists in `CUBE`, as in PostgreSQL.
const CUBE_MAX: usize = 12;

/// Replaces a part of `GROUP BY`.
pub(super) fn rewrite(group: &mut Expr) -> ControlFlow<SqlError> {
    let sets = match group {
        Expr::Rollup(lists) if lists.iter().any(|list| list.len() != 1) => rollup(lists),
        Expr::Cube(lists) if lists.iter().any(|list| list.len() != 1) => cube(lists)?,
        Expr::GroupingSets(sets) => {
            let mut expanded = Vec::with_capacity(sets.len());
            for set in sets {
                match nested(set) {
                    Some(("rollup", lists)) => expanded.extend(rollup(&lists)),
                    Some((_, lists)) => expanded.extend(cube(&lists)?),
                    None => expanded.push(set.clone()),
                }
            }
            expanded
        }
        _ => return ControlFlow::Continue(()),
    };
    *group = Expr::GroupingSets(sets);
    ControlFlow::Continue(())
}

/// The lists of a `ROLLUP` or `CUBE` that is a member of `GROUPING SETS`, where the parser reads a call of a function.
fn nested(set: &[Expr]) -> Option<(&'static str, Vec<Vec<Expr>>)> {
    let [Expr::Function(function)] = set else { return None };
    let name = function.name.to_string().to_ascii_lowercase();
    let kind = ["rollup", "cube"].into_iter().find(|kind| *kind == name)?;
    let FunctionArguments::List(list) = &function.args else { return None };
    let columns = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(columns))) => Some(columns.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(vec![column.clone()]),
        _ => None,
    };
    Some((kind, list.args.iter().map(columns).collect::<Option<_>>()?))
}

/// The first lists together, for each number of lists from all to none.
fn rollup(lists: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=lists.len()).rev().map(|count| lists[..count].concat()).collect()
}

/// Each choice of lists.
fn cube(lists: &[Vec<Expr>]) -> ControlFlow<SqlError, Vec<Vec<Expr>>> {
    if lists.len() > CUBE_MAX {
        return ControlFlow::Break(SqlError::syntax(format!("CUBE is limited to {CUBE_MAX} elements")));
    }
    let choice = |number: usize| {
        let is_chosen = |index: &usize| number >> (lists.len() - 1 - index) & 1 == 1;
        (0..lists.len()).filter(is_chosen).flat_map(|index| lists[index].iter().cloned()).collect()
    };
    ControlFlow::Continue((0..1_usize << lists.len()).rev().map(choice).collect())
}
