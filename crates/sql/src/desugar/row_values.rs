//! Rewrites row comparisons, such as `(a, b) < (1, 2)`, to comparisons of their elements. The planner would compare the
//! rows as structs, in which nulls are equal to nulls and less than all other values.
//!
//! ```text
//! (a, b) = (c, d)                    a = c AND b = d
//! (a, b) < (c, d)                    a < c OR a = c AND b < d
//! (a, b) IN ((1, 2), (3, 4))         a = 1 AND b = 2 OR a = 3 AND b = 4
//! (a, b) OVERLAPS (c, d)             overlaps(a, b, c, d)
//! WHERE (a, b) IN (query)            EXISTS (SELECT ... FROM (query) WHERE the comparison is true)
//! WHERE (a, b) NOT IN (query)        NOT EXISTS (SELECT ... FROM (query) WHERE the comparison is true or null)
//! (a, b) < ANY (query)               true if the comparison is true for some row, else null if it is null for some
//!                                    row, else false
//! (a, b) < ALL (query)               false if the comparison is false for some row, else null if it is null for some
//!                                    row, else true
//! (a, b) IN (query) as a value       true if the comparison is true for some row, else null if it is null for some
//!                                    row, else false
//! ```
//!
//! The comparison of two rows is null if no elements differ, and some element is null.

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Delete, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select, Statement,
    UnaryOperator, Update, Value,
};

use crate::syntax::{
    aliased, all_of, any_of, call, case, column, derived_table, equal, is_null, null, select, without_joins,
};

/// Alias of the subquery whose rows are compared. No user relation has this name.
const ROWS: &str = "taut rows";

/// Rewrites a row comparison in any position.
pub(super) fn rewrite_comparison(expression: &mut Expr) {
    write_as_membership(expression);
    let rewritten = match expression {
        Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => overlaps(left, right),
        Expr::BinaryOp { left, op, right } => compare_rows(left, op, right),
        Expr::IsDistinctFrom(left, right) => rows_are_distinct(left, right),
        Expr::IsNotDistinctFrom(left, right) => rows_are_distinct(left, right).map(not),
        Expr::IsNull(row) => row_elements(row).and_then(|row| all_of(row.into_iter().map(is_null))),
        Expr::IsNotNull(row) => {
            row_elements(row).and_then(|row| all_of(row.into_iter().map(|value| Expr::IsNotNull(Box::new(value)))))
        }
        Expr::Between { expr, negated, low, high } => {
            let (low, high) =
                (compare_rows(expr, &BinaryOperator::GtEq, low), compare_rows(expr, &BinaryOperator::LtEq, high));
            low.zip(high)
                .and_then(|(low, high)| all_of([low, high]))
                .map(|condition| if *negated { not(condition) } else { condition })
        }
        Expr::InList { expr, list, negated } => {
            let equal = list.iter().map(|other| compare_rows(expr, &BinaryOperator::Eq, other));
            let any = equal.collect::<Option<Vec<_>>>().and_then(balanced_or);
            any.map(|condition| if *negated { not(condition) } else { condition })
        }
        Expr::InSubquery { expr, subquery, negated } => {
            row_elements(expr).map(|row| membership_value(&row, subquery, *negated))
        }
        Expr::AnyOp { left, compare_op, right, .. } => compare_with_query(left, compare_op, right, true),
        Expr::AllOp { left, compare_op, right } => compare_with_query(left, compare_op, right, false),
        _ => None,
    };
    if let Some(rewritten) = rewritten {
        *expression = Expr::Nested(Box::new(rewritten));
    }
}

/// Rewrites `row IN (query)` in the `WHERE` of a query, where null has the effect of false.
pub(super) fn rewrite_in_select(select: &mut Select) {
    select.selection.iter_mut().for_each(rewrite_condition);
}

/// Rewrites like [`rewrite_in_select`], in an `UPDATE` or `DELETE`.
pub(super) fn rewrite_in_statement(statement: &mut Statement) {
    if let Statement::Update(Update { selection: Some(condition), .. })
    | Statement::Delete(Delete { selection: Some(condition), .. }) = statement
    {
        rewrite_condition(condition);
    }
}

/// Replaces `row = ANY (query)` by `row IN (query)`, and `row <> ALL (query)` by `row NOT IN (query)`.
fn write_as_membership(expression: &mut Expr) {
    let (row, query, negated) = match expression {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return,
    };
    if let (Some(_), Expr::Subquery(query)) = (row_elements(row), query.as_ref()) {
        *expression = Expr::InSubquery { expr: row.clone(), subquery: query.clone(), negated };
    }
}

fn rewrite_condition(condition: &mut Expr) {
    write_as_membership(condition);
    let rewritten = match condition {
        Expr::Nested(inner) => return rewrite_condition(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            rewrite_condition(left);
            return rewrite_condition(right);
        }
        Expr::InSubquery { expr, subquery, negated } => row_elements(expr).map(|row| {
            exists(&row, subquery, *negated, if *negated { NullComparisons::Count } else { NullComparisons::Skip })
        }),
        _ => None,
    };
    if let Some(rewritten) = rewritten {
        *condition = rewritten;
    }
}

/// Returns the elements of a row expression. Returns `None` for other expressions.
fn row_elements(expression: &Expr) -> Option<Vec<Expr>> {
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    match expression {
        Expr::Tuple(values) => Some(values.clone()),
        Expr::Nested(inner) => row_elements(inner),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => match &function.args {
            FunctionArguments::List(list) => list.args.iter().map(value).collect(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns pairs of the elements of two rows. Returns `None` for rows of different lengths and for other expressions.
fn pairs(left: &Expr, right: &Expr) -> Option<Vec<(Expr, Expr)>> {
    let (left, right) = (row_elements(left)?, row_elements(right)?);
    (left.len() == right.len()).then(|| left.into_iter().zip(right).collect())
}

/// Calls the function `overlaps` for two periods, each a row of two elements.
fn overlaps(left: &Expr, right: &Expr) -> Option<Expr> {
    let periods = [row_elements(left)?, row_elements(right)?];
    periods.iter().all(|period| period.len() == 2).then(|| call("overlaps", periods.concat()))
}

/// Compares two rows by an operator. The first two elements that differ determine which row is less.
fn compare_rows(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let compare_pair = |op: &BinaryOperator, (left, right): (Expr, Expr)| match compare_rows(&left, op, &right) {
        Some(rows) => Expr::Nested(Box::new(rows)),
        None => Expr::BinaryOp { left: Box::new(operand(left)), op: op.clone(), right: Box::new(operand(right)) },
    };
    let strict = match op {
        BinaryOperator::Eq => return all_of(pairs(left, right)?.into_iter().map(|pair| compare_pair(op, pair))),
        BinaryOperator::NotEq => return any_of(pairs(left, right)?.into_iter().map(|pair| compare_pair(op, pair))),
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        _ => return None,
    };
    let mut pairs = pairs(left, right)?;
    let last = compare_pair(op, pairs.pop()?);
    let decide_by_first_difference = |rest: Expr, pair: (Expr, Expr)| {
        let tied = all_of([compare_pair(&BinaryOperator::Eq, pair.clone()), Expr::Nested(Box::new(rest))]);
        any_of([Some(compare_pair(&strict, pair)), tied].into_iter().flatten())
    };
    pairs.into_iter().rev().try_fold(last, decide_by_first_difference)
}

/// Rewrites `IS DISTINCT FROM` of two rows: true if any of their elements are distinct.
fn rows_are_distinct(left: &Expr, right: &Expr) -> Option<Expr> {
    // The expression may be printed and parsed again. Without parentheses, the parser would read the following
    // conditions as part of the operand.
    let elements_are_distinct =
        |(left, right)| Expr::Nested(Box::new(Expr::IsDistinctFrom(Box::new(operand(left)), Box::new(operand(right)))));
    any_of(pairs(left, right)?.into_iter().map(elements_are_distinct))
}

/// Joins conditions by `OR` in a balanced tree. Returns `None` if there are none.
fn balanced_or(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() <= 1 {
        return conditions.pop().map(|condition| Expr::Nested(Box::new(condition)));
    }
    let right = conditions.split_off(conditions.len() / 2);
    any_of([balanced_or(conditions)?, balanced_or(right)?])
}

/// How `EXISTS` treats rows whose comparison is null.
#[derive(Clone, Copy)]
enum NullComparisons {
    /// Such rows are treated as different.
    Skip,
    /// Such rows are treated as equal.
    Count,
}

/// Builds `[NOT] EXISTS (SELECT ... FROM (query) WHERE ...)`, which searches the query for a row equal to `row`.
fn exists(row: &[Expr], query: &Query, negated: bool, nulls: NullComparisons) -> Expr {
    // No column of `row` may have one of these names: it would be resolved as a column of the query.
    let names: Vec<String> = (1..=row.len()).map(|index| format!("taut value {index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let is_equal = |(value, name): (&Expr, &&str)| {
        let (value, other) = (operand(value.clone()), column(ROWS, name));
        let is_equal = equal(other.clone(), value.clone());
        match nulls {
            NullComparisons::Count => {
                any_of([is_equal, is_null(other), is_null(value)]).map(|any| Expr::Nested(Box::new(any)))
            }
            NullComparisons::Skip => Some(is_equal),
        }
    };
    let condition = all_of(row.iter().zip(&names).filter_map(is_equal));
    let one = aliased(Expr::value(Value::Number("1".to_owned(), false)), "one");
    let rows = derived_table(Box::new(query.clone()), ROWS, &names);
    Expr::Exists { subquery: select(vec![one], vec![without_joins(rows)], condition), negated }
}

/// Rewrites `row op ANY (query)`, or `row op ALL (query)` if `any` is false. Returns `None` for other operands.
fn compare_with_query(left: &Expr, op: &BinaryOperator, right: &Expr, any: bool) -> Option<Expr> {
    let (row, Expr::Subquery(query)) = (row_elements(left)?, right) else { return None };
    let names: Vec<String> = (1..=row.len()).map(|index| format!("taut value {index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let other = Expr::Tuple(names.iter().map(|name| column(ROWS, name)).collect());
    let comparison = Expr::Nested(Box::new(compare_rows(&Expr::Tuple(row), op, &other)?));
    let exists = |condition: Expr| {
        let one = aliased(Expr::value(Value::Number("1".to_owned(), false)), "one");
        let rows = derived_table(query.clone(), ROWS, &names);
        Expr::Exists { subquery: select(vec![one], vec![without_joins(rows)], Some(condition)), negated: false }
    };
    let boolean = |value: bool| Expr::value(Value::Boolean(value));
    let decides = if any { comparison.clone() } else { not(comparison.clone()) };
    let branches = vec![(exists(decides), boolean(any)), (exists(is_null(comparison)), null())];
    Some(case(branches, boolean(!any)))
}

/// Builds the value of `row [NOT] IN (query)`: true, false or null.
fn membership_value(row: &[Expr], query: &Query, negated: bool) -> Expr {
    let boolean = |is_member: bool| Expr::value(Value::Boolean(is_member != negated));
    let equal_row = exists(row, query, false, NullComparisons::Skip);
    let equal_or_null_row = exists(row, query, false, NullComparisons::Count);
    case(vec![(equal_row, boolean(true)), (equal_or_null_row, null())], boolean(false))
}

fn not(condition: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(condition))) }
}

/// Puts an expression in parentheses if it needs them as an operand.
fn operand(expression: Expr) -> Expr {
    match expression {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Function(_) | Expr::Nested(_) => {
            expression
        }
        other => Expr::Nested(Box::new(other)),
    }
}
