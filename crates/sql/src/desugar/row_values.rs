//! Rewrite of row comparisons, such as `(a, b) < (1, 2)`, into comparisons of their values. The planner would treat the
//! rows as structures, in which nulls are equal to nulls and less than all other values.
//!
//! ```text
//! (a, b) = (c, d)                    a = c AND b = d
//! (a, b) < (c, d)                    a < c OR a = c AND b < d
//! (a, b) IN ((1, 2), (3, 4))         a = 1 AND b = 2 OR a = 3 AND b = 4
//! WHERE (a, b) IN (query)            EXISTS (SELECT ... FROM (query) WHERE they are equal)
//! WHERE (a, b) NOT IN (query)        NOT EXISTS (SELECT ... FROM (query) WHERE they are equal or nulls decide)
//! (a, b) IN (query) as a value       true if the first EXISTS holds, else null if the second does, else false
//! ```

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Delete, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select, Statement,
    UnaryOperator, Update, Value,
};

use crate::syntax::{all_of, alone, any_of, case, column, derived, equal, is_null, item, null, select};

/// Relation of the rows to search. No user relation has this name.
const ROWS: &str = "taut rows";

/// Rewrites a row comparison in any position.
pub(super) fn replace(expression: &mut Expr) {
    let replaced = match expression {
        Expr::BinaryOp { left, op, right } => compared(left, op, right),
        Expr::IsDistinctFrom(left, right) => distinct(left, right),
        Expr::IsNotDistinctFrom(left, right) => distinct(left, right).map(not),
        Expr::IsNull(row) => values_of(row).and_then(|row| all_of(row.into_iter().map(is_null))),
        Expr::IsNotNull(row) => {
            values_of(row).and_then(|row| all_of(row.into_iter().map(|value| Expr::IsNotNull(Box::new(value)))))
        }
        Expr::Between { expr, negated, low, high } => {
            let (low, high) = (compared(expr, &BinaryOperator::GtEq, low), compared(expr, &BinaryOperator::LtEq, high));
            low.zip(high).and_then(|(low, high)| all_of([low, high])).map(|is| if *negated { not(is) } else { is })
        }
        Expr::InList { expr, list, negated } => {
            let equal = list.iter().map(|other| compared(expr, &BinaryOperator::Eq, other));
            let any = equal.collect::<Option<Vec<_>>>().and_then(balanced);
            any.map(|is| if *negated { not(is) } else { is })
        }
        Expr::InSubquery { expr, subquery, negated } => {
            values_of(expr).map(|row| value_of_membership(&row, subquery, *negated))
        }
        _ => None,
    };
    if let Some(replaced) = replaced {
        *expression = Expr::Nested(Box::new(replaced));
    }
}

/// Rewrites `IN` with a row and a subquery in the `WHERE` of a query, where null counts as false.
pub(super) fn replace_in_select(select: &mut Select) {
    select.selection.iter_mut().for_each(replace_where);
}

/// Like [`replace_in_select`], in an `UPDATE` or `DELETE`.
pub(super) fn replace_in_statement(statement: &mut Statement) {
    if let Statement::Update(Update { selection: Some(condition), .. })
    | Statement::Delete(Delete { selection: Some(condition), .. }) = statement
    {
        replace_where(condition);
    }
}

fn replace_where(condition: &mut Expr) {
    let replaced = match condition {
        Expr::Nested(inner) => return replace_where(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            replace_where(left);
            return replace_where(right);
        }
        Expr::InSubquery { expr, subquery, negated } => {
            values_of(expr).map(|row| exists(&row, subquery, *negated, *negated))
        }
        _ => None,
    };
    if let Some(replaced) = replaced {
        *condition = replaced;
    }
}

/// Values of a row expression. `None` for other expressions.
fn values_of(expression: &Expr) -> Option<Vec<Expr>> {
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    match expression {
        Expr::Tuple(values) => Some(values.clone()),
        Expr::Nested(inner) => values_of(inner),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => match &function.args {
            FunctionArguments::List(list) => list.args.iter().map(value).collect(),
            _ => None,
        },
        _ => None,
    }
}

fn pairs(left: &Expr, right: &Expr) -> Option<Vec<(Expr, Expr)>> {
    let (left, right) = (values_of(left)?, values_of(right)?);
    (left.len() == right.len()).then(|| left.into_iter().zip(right).collect())
}

/// Compares two rows by an operator: the first values that differ decide which row is less.
fn compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let by = |op: &BinaryOperator, (left, right): (Expr, Expr)| match compared(&left, op, &right) {
        Some(rows) => Expr::Nested(Box::new(rows)),
        None => Expr::BinaryOp { left: Box::new(operand(left)), op: op.clone(), right: Box::new(operand(right)) },
    };
    let strict = match op {
        BinaryOperator::Eq => return all_of(pairs(left, right)?.into_iter().map(|pair| by(op, pair))),
        BinaryOperator::NotEq => return any_of(pairs(left, right)?.into_iter().map(|pair| by(op, pair))),
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        _ => return None,
    };
    let mut pairs = pairs(left, right)?;
    let last = by(op, pairs.pop()?);
    let decided = |behind: Expr, pair: (Expr, Expr)| {
        let tied = all_of([by(&BinaryOperator::Eq, pair.clone()), Expr::Nested(Box::new(behind))]);
        any_of([Some(by(&strict, pair)), tied].into_iter().flatten())
    };
    pairs.into_iter().rev().try_fold(last, decided)
}

fn distinct(left: &Expr, right: &Expr) -> Option<Expr> {
    // In parentheses, because the text may be parsed again. The parser would then read what follows as part of the
    // operand.
    let distinct =
        |(left, right)| Expr::Nested(Box::new(Expr::IsDistinctFrom(Box::new(operand(left)), Box::new(operand(right)))));
    any_of(pairs(left, right)?.into_iter().map(distinct))
}

/// The disjunction of many conditions, as a balanced tree.
fn balanced(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() <= 1 {
        return conditions.pop().map(|condition| Expr::Nested(Box::new(condition)));
    }
    let right = conditions.split_off(conditions.len() / 2);
    any_of([balanced(conditions)?, balanced(right)?])
}

/// Builds `[NOT] EXISTS` of a row of the query that equals `row`. With `or_unknown`, rows whose comparison is null
/// count too.
fn exists(row: &[Expr], query: &Query, negated: bool, or_unknown: bool) -> Expr {
    // No column of `row` may have one of these names: it would be resolved as a column of the query.
    let names: Vec<String> = (1..=row.len()).map(|index| format!("taut value {index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let is_equal = |(value, name): (&Expr, &&str)| {
        let (value, other) = (operand(value.clone()), column(ROWS, name));
        let is_equal = equal(other.clone(), value.clone());
        match or_unknown {
            true => any_of([is_equal, is_null(other), is_null(value)]).map(|any| Expr::Nested(Box::new(any))),
            false => Some(is_equal),
        }
    };
    let condition = all_of(row.iter().zip(&names).filter_map(is_equal));
    let one = item(Expr::value(Value::Number("1".to_owned(), false)), "one");
    let rows = derived(Box::new(query.clone()), ROWS, &names);
    Expr::Exists { subquery: select(vec![one], vec![alone(rows)], condition), negated }
}

fn value_of_membership(row: &[Expr], query: &Query, negated: bool) -> Expr {
    let is = |is: bool| Expr::value(Value::Boolean(is != negated));
    case(vec![(exists(row, query, false, false), is(true)), (exists(row, query, false, true), null())], is(false))
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
