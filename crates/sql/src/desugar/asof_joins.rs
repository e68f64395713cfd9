//! `ASOF JOIN`, which joins each left row to the nearest right row, as a join with a lateral subquery.
//!
//! ```text
//!   t ASOF JOIN u ON t.k = u.k AND t.at >= u.at
//!   t JOIN LATERAL (SELECT * FROM u WHERE t.k = u.k AND t.at >= u.at ORDER BY u.at DESC LIMIT 1) AS u ON true
//! ```
//!
//! The parser supports neither `ASOF JOIN ... ON` nor `ASOF JOIN ... USING`. So the tokens are changed before parsing.
//! The word `ASOF` is removed, and the column [`MARK`] is added before the conditions or columns.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, LimitClause, ObjectName,
    OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Value,
    WildcardAdditionalOptions, visit_expressions,
};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::SqlError;
use crate::identifiers::normalize;
use crate::syntax::{all_of, column, derived_table, integer, quoted, relation_name, select, without_joins};
use crate::tokens::{contains, is_word, without_spaces};

/// Column that marks a join as an `ASOF JOIN`.
const MARK: &str = "taut asof";

/// Marks each `ASOF JOIN` of a statement with [`MARK`], and returns the new tokens. `tokens` are the tokens of `sql` if
/// an earlier step changed them. Returns `tokens` if the statement has no such join.
pub(crate) fn mark_asof_joins(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    if !contains(sql, "asof") {
        return tokens;
    }
    let Some(mut read) = without_spaces(sql, tokens.as_ref()) else {
        return tokens;
    };
    let mut is_changed = false;
    for at in (0..read.len()).rev() {
        if !is_word(&read, at, "asof") || !begins_join(&read, at) {
            continue;
        }
        let Some(constraint) = constraint_after(&read, at) else { continue };
        let span = read[constraint].span;
        let mark = Token::make_word(MARK, Some('"'));
        let (place, marks) = match is_word(&read, constraint, "on") {
            true => (constraint + 1, [mark, Token::make_keyword("AND")]),
            false => (constraint + 2, [mark, Token::Comma]),
        };
        read.splice(place..place, marks.map(|token| TokenWithSpan { token, span }));
        read.remove(at);
        is_changed = true;
    }
    if is_changed { Some(read) } else { tokens }
}

/// Whether the word `asof` at `at` begins a join. It does if `JOIN`, `INNER JOIN`, `LEFT JOIN` or `LEFT OUTER JOIN`
/// follows and no `AS` precedes it.
fn begins_join(tokens: &[TokenWithSpan], at: usize) -> bool {
    let follows = |words: &[&str]| words.iter().enumerate().all(|(index, word)| is_word(tokens, at + 1 + index, word));
    let forms: [&[&str]; 4] = [&["join"], &["inner", "join"], &["left", "join"], &["left", "outer", "join"]];
    let is_alias = at.checked_sub(1).is_some_and(|before| is_word(tokens, before, "as"));
    !is_alias && forms.iter().any(|form| follows(form))
}

/// Returns the index of the `ON` or `USING` token of a join. Returns `None` if the join ends first or has a
/// `MATCH_CONDITION`.
fn constraint_after(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            Token::SemiColon => return None,
            _ if depth == 0 && (is_word(tokens, at, "on") || is_word(tokens, at, "using")) => return Some(at),
            _ if depth == 0 && is_word(tokens, at, "match_condition") => return None,
            _ => {}
        }
    }
    None
}

/// Replaces the `ASOF` joins of the `SELECT`s of a query. Must run before other rewrites of joins.
pub(super) fn rewrite_in_body(body: &mut SetExpr) -> ControlFlow<SqlError> {
    match body {
        SetExpr::Select(select) => select.from.iter_mut().try_for_each(rewrite),
        SetExpr::SetOperation { left, right, .. } => {
            rewrite_in_body(left)?;
            rewrite_in_body(right)
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Replaces the `ASOF` joins of a `FROM` item: marked joins and joins with `MATCH_CONDITION`.
pub(super) fn rewrite(from: &mut TableWithJoins) -> ControlFlow<SqlError> {
    for index in 0..from.joins.len() {
        let left = (index == 0).then(|| relation_name(&from.relation)).flatten();
        rewrite_join(&mut from.joins[index], left.as_deref())?;
    }
    ControlFlow::Continue(())
}

/// Replaces one join if it is an `ASOF JOIN`. `left` is the name of its left relation, or `None` if the left side is
/// another join or has no name.
fn rewrite_join(join: &mut Join, left: Option<&str>) -> ControlFlow<SqlError> {
    let Some((is_outer, constraint)) = marked(&join.join_operator) else { return ControlFlow::Continue(()) };
    let Some(right) = relation_name(&join.relation) else {
        return refused("ASOF JOIN of a relation without a name");
    };
    let (conditions, merged) = match constraint {
        Constraint::Unsupported(what) => return refused(what),
        Constraint::On(conditions) if has_unqualified_column(&conditions) => {
            return refused("a condition of ASOF JOIN with a column without the name of its relation");
        }
        Constraint::On(conditions) => (conditions, Vec::new()),
        Constraint::Using(columns) => {
            let Some(left) = left else { return refused("ASOF JOIN ... USING after another join") };
            let compare = |(index, name): (usize, &Ident)| {
                let name = normalize(name);
                let op = if index + 1 == columns.len() { BinaryOperator::GtEq } else { BinaryOperator::Eq };
                binary(column(left, &name), op, column(&right, &name))
            };
            (columns.iter().enumerate().map(compare).collect(), columns)
        }
    };
    let order = nearest(&conditions, &right)?;
    let opt_exclude = (!merged.is_empty()).then(|| {
        let names = merged.iter().map(|name| ObjectName::from(vec![quoted(&normalize(name))]));
        ExcludeSelectItem::Multiple(names.collect())
    });
    let all = WildcardAdditionalOptions { opt_exclude, ..WildcardAdditionalOptions::default() };
    let rows = vec![without_joins(join.relation.clone())];
    let mut nearest = select(vec![SelectItem::Wildcard(all)], rows, all_of(conditions));
    limit_to_first(&mut nearest, order);
    join.relation = derived_table(nearest, &right, &[]);
    if let TableFactor::Derived { lateral, .. } = &mut join.relation {
        *lateral = true;
    }
    let always = JoinConstraint::On(Expr::value(Value::Boolean(true)));
    join.join_operator = if is_outer { JoinOperator::Left(always) } else { JoinOperator::Join(always) };
    ControlFlow::Continue(())
}

fn refused<T>(what: &str) -> ControlFlow<SqlError, T> {
    ControlFlow::Break(SqlError::unsupported(what, "t ASOF JOIN u ON t.a = u.a AND t.at >= u.at is"))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Whether a condition contains an unqualified column. In the lateral subquery, such a name could resolve to a column
/// of another relation.
fn has_unqualified_column(conditions: &[Expr]) -> bool {
    let is_unqualified = |part: &Expr| match part {
        Expr::Identifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    conditions.iter().any(|condition| visit_expressions(condition, is_unqualified).is_break())
}

/// The join condition of an `ASOF JOIN`: conjuncts, columns, or the description of an unsupported one for the error.
enum Constraint {
    On(Vec<Expr>),
    Using(Vec<Ident>),
    Unsupported(&'static str),
}

/// Returns whether an `ASOF JOIN` is a left outer join, and its join condition. Returns `None` for other joins.
fn marked(operator: &JoinOperator) -> Option<(bool, Constraint)> {
    let (is_outer, constraint) = match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (false, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (true, constraint),
        JoinOperator::AsOf { match_condition, constraint } => {
            let mut conditions = conjuncts(match_condition);
            let constraint = match constraint {
                JoinConstraint::On(condition) => {
                    conditions.extend(conjuncts(condition));
                    Constraint::On(conditions)
                }
                JoinConstraint::None => Constraint::On(conditions),
                JoinConstraint::Using(_) => Constraint::Unsupported("ASOF JOIN with MATCH_CONDITION and USING"),
                JoinConstraint::Natural => Constraint::Unsupported("NATURAL ASOF JOIN"),
            };
            return Some((false, constraint));
        }
        _ => return None,
    };
    let is_mark = |expression: &Expr| matches!(expression, Expr::Identifier(name) if name.value == MARK);
    match constraint {
        JoinConstraint::On(condition @ Expr::BinaryOp { op: BinaryOperator::Or, .. }) => {
            let mut first = condition;
            while let Expr::BinaryOp { left, .. } = first {
                first = left;
            }
            is_mark(first).then_some((is_outer, Constraint::Unsupported("ASOF JOIN with OR outside of parentheses")))
        }
        JoinConstraint::On(condition) => {
            let conditions = conjuncts(condition);
            let (mark, conditions) = conditions.split_first()?;
            is_mark(mark).then(|| (is_outer, Constraint::On(conditions.to_vec())))
        }
        JoinConstraint::Using(names) => {
            let names: Vec<Ident> = names.iter().filter_map(|name| name.0.last()?.as_ident().cloned()).collect();
            let (mark, names) = names.split_first()?;
            (mark.value == MARK).then(|| (is_outer, Constraint::Using(names.to_vec())))
        }
        _ => None,
    }
}

fn conjuncts(condition: &Expr) -> Vec<Expr> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut parts = conjuncts(left);
            parts.extend(conjuncts(right));
            parts
        }
        other => vec![other.clone()],
    }
}

/// Returns the order that sorts the nearest right row first: by the right operand of the only inequality. For
/// `t.at >= u.at`, that is `u.at DESC`.
///
/// Breaks with an error unless there is exactly one inequality and it compares the two relations.
fn nearest(conditions: &[Expr], right: &str) -> ControlFlow<SqlError, OrderByExpr> {
    use BinaryOperator::{Gt, GtEq, Lt, LtEq};
    let inequality = |condition: &Expr| match condition {
        Expr::BinaryOp { left, op: op @ (Gt | GtEq | Lt | LtEq), right } => {
            Some((left.as_ref().clone(), matches!(op, Gt | GtEq), right.as_ref().clone()))
        }
        _ => None,
    };
    let mut found = conditions.iter().filter_map(inequality);
    let (Some((low, is_greater, high)), None) = (found.next(), found.next()) else {
        let message = match conditions.iter().filter_map(inequality).count() {
            0 => "Missing ASOF JOIN inequality",
            _ => "Multiple ASOF JOIN inequalities",
        };
        return ControlFlow::Break(SqlError::syntax(message));
    };
    let (expr, descending) = match (reads(&low, right), reads(&high, right)) {
        (false, true) => (high, is_greater),
        (true, false) => (low, !is_greater),
        _ => return refused("an inequality of ASOF JOIN without the names of both relations"),
    };
    let options = OrderByOptions { asc: Some(!descending), nulls_first: None };
    ControlFlow::Continue(OrderByExpr { expr, options, with_fill: None })
}

/// Whether an expression contains a column that is qualified by the name `relation`.
fn reads(expression: &Expr, relation: &str) -> bool {
    let found = visit_expressions(expression, |part| match part {
        Expr::CompoundIdentifier(parts) if parts.first().is_some_and(|first| normalize(first) == relation) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Limits a query to its first row in `order`.
fn limit_to_first(query: &mut Query, order: OrderByExpr) {
    query.order_by = Some(OrderBy { kind: OrderByKind::Expressions(vec![order]), interpolate: None });
    let limit = Some(integer(1));
    query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
}
