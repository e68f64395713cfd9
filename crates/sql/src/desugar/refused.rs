//! Syntax that the planner accepts, but PostgreSQL rejects or interprets differently.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint, JoinOperator,
    LimitClause, ObjectNamePart, OrderBy, OrderByKind, Query, Select, TableFactor, TableWithJoins, UnaryOperator,
    Value,
};

use crate::error::SqlError;
use crate::syntax::has_query;

/// Returns an error for an `ORDER BY` with a constant that is not a position, such as `-1`, `1.5` or `'a'`.
pub(super) fn check_order(query: &Query) -> ControlFlow<SqlError> {
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &query.order_by else {
        return ControlFlow::Continue(());
    };
    for order in order {
        let error = match &order.expr {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
                Expr::Value(value) if matches!(value.value, Value::Number(..)) => {
                    format!("ORDER BY position {} is not in select list", order.expr)
                }
                _ => continue,
            },
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) if number.bytes().all(|byte| byte.is_ascii_digit()) => continue,
                Value::Placeholder(_) => continue,
                _ => "non-integer constant in ORDER BY".to_owned(),
            },
            _ => continue,
        };
        return ControlFlow::Break(SqlError::syntax(error));
    }
    ControlFlow::Continue(())
}

/// Returns an error for a subquery in `LIMIT` or `OFFSET`.
pub(super) fn check_limit(query: &Query) -> ControlFlow<SqlError> {
    let (limit, offset) = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            (limit.as_ref(), offset.as_ref().map(|part| &part.value))
        }
        Some(LimitClause::OffsetCommaLimit { limit, offset }) => (Some(limit), Some(offset)),
        None => return ControlFlow::Continue(()),
    };
    match limit.into_iter().chain(offset).any(has_query) {
        true => ControlFlow::Break(SqlError::unsupported(
            "a subquery in LIMIT or OFFSET",
            "numbers, parameters and expressions of them are",
        )),
        false => ControlFlow::Continue(()),
    }
}

/// Returns an error for joins of a `FROM` clause that have no condition.
pub(super) fn check_joins(select: &Select) -> ControlFlow<SqlError> {
    select.from.iter().try_for_each(check_conditions)
}

/// Returns an error for parenthesized joins that have no condition.
pub(super) fn check_nested_joins(table: &TableFactor) -> ControlFlow<SqlError> {
    match table {
        TableFactor::NestedJoin { table_with_joins, .. } => check_conditions(table_with_joins),
        _ => ControlFlow::Continue(()),
    }
}

fn check_conditions(from: &TableWithJoins) -> ControlFlow<SqlError> {
    for join in &from.joins {
        if let JoinOperator::Join(JoinConstraint::None)
        | JoinOperator::Inner(JoinConstraint::None)
        | JoinOperator::Left(JoinConstraint::None)
        | JoinOperator::LeftOuter(JoinConstraint::None)
        | JoinOperator::Right(JoinConstraint::None)
        | JoinOperator::RightOuter(JoinConstraint::None)
        | JoinOperator::FullOuter(JoinConstraint::None) = &join.join_operator
        {
            let what = format!("a join with {} without a condition", join.relation);
            return ControlFlow::Break(SqlError::unsupported(what, "ON, USING, NATURAL and CROSS JOIN are"));
        }
    }
    ControlFlow::Continue(())
}

/// Returns an error for `count(a, b)` and `count(t.*)`, which the planner treats as `count(*)`, and for `DISTINCT *`.
/// Accepts `count(DISTINCT a, b)`.
pub(super) fn check_count(function: &Function) -> ControlFlow<SqlError> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return ControlFlow::Continue(()) };
    let FunctionArguments::List(list) = &function.args else { return ControlFlow::Continue(()) };
    let is_of_table =
        |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(_)));
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let is_wildcard = |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
    if is_distinct && list.args.iter().any(is_wildcard) {
        return ControlFlow::Break(SqlError::unsupported(
            function.to_string(),
            "count(*) and count(DISTINCT column) are",
        ));
    }
    let is_refused = list.args.iter().any(is_of_table) || (list.args.len() > 1 && !is_distinct);
    if name.value.eq_ignore_ascii_case("count") && is_refused {
        return ControlFlow::Break(SqlError::unsupported(function.to_string(), "count(*) and count(column) are"));
    }
    ControlFlow::Continue(())
}
