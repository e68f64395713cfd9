//! Rewrites syntax that the planner does not support into equivalent syntax.

mod array_subqueries;
mod asof_joins;
mod clauses;
mod expression_names;
mod fetch;
mod frame_exclusion;
mod frames;
mod function_macros;
mod function_names;
mod grouped_casts;
mod grouping_sets;
mod hypothetical_ranks;
mod merged_columns;
mod operators;
mod output_names;
mod pattern_arguments;
mod patterns;
mod pivots;
mod qualified_wildcards;
mod recursion;
mod refused;
mod row_values;
mod system_catalogs;
mod table_functions;
mod tables;
mod unions;
mod values;
mod wildcards;
mod windows;
mod with_names;

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Query, Select, SetExpr, Statement, TableFactor, UnaryOperator, Value,
    VisitMut, VisitorMut, WindowType,
};

use crate::error::SqlError;

pub(crate) use self::asof_joins::mark_asof_joins;
pub use self::frame_exclusion::FrameExclusion;
pub use self::frames::{FRAME_END, FRAME_START};
pub use self::function_macros::is_rewritten_function;
pub use self::grouped_casts::NAMED_CAST;
pub(crate) use self::merged_columns::{expand_wildcard, merges_columns};
pub(crate) use self::output_names::make_names_distinct;
use self::output_names::make_names_of_union_distinct;
pub(crate) use self::pivots::GROUPS;
pub use self::table_functions::has_columns;
pub use self::values::rewrite_values_with;
pub(crate) use self::values::rewrite_values_with_queries;
use self::with_names::WithScopes;

/// Rewrites syntax that the planner does not support, everywhere in a statement.
///
/// # Errors
/// If a part of the statement is not supported, or is syntax that PostgreSQL rejects. If a window refers to another
/// window, as in `OVER (w ORDER BY a)`, and `w` does not exist or cannot be refined.
pub(crate) fn desugar(statement: &mut PlannerStatement) -> Result<(), SqlError> {
    match statement {
        PlannerStatement::Statement(ast) => match ast.as_mut().visit(&mut Desugar::default()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        },
        PlannerStatement::Explain(explain) => desugar(&mut explain.statement),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Desugar {
    /// Number of function calls around the visited expression.
    function_depth: usize,
    with: WithScopes,
}

impl VisitorMut for Desugar {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.with.enter(query);
        recursion::rewrite(query)?;
        asof_joins::rewrite_in_body(&mut query.body)?;
        clauses::order_by_positions(query);
        clauses::order_distinct_on(query)?;
        refused::check_order(query)?;
        refused::check_limit(query)?;
        expression_names::name_in_with(query);
        expression_names::name_in_ordered(query);
        rewrite_values_with_queries(&mut query.body);
        values::cast_literals_in_with(query);
        if matches!(*query.body, SetExpr::SetOperation { .. }) {
            make_names_of_union_distinct(&mut query.body);
        }
        unions::balance(&mut query.body);
        fetch::rewrite(query)?;
        windows::resolve_in_query(query)?;
        merged_columns::rewrite_in_query(query)?;
        grouped_casts::name_in_query(query)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.with.leave(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
        expression_names::name_in_statement(statement);
        row_values::rewrite_in_statement(statement);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<SqlError> {
        pivots::rewrite(table)?;
        if let TableFactor::NestedJoin { table_with_joins, .. } = table {
            asof_joins::rewrite(table_with_joins)?;
        }
        expression_names::name_in_table(table);
        values::cast_literals_in_table(table);
        refused::check_nested_joins(table)?;
        merged_columns::rewrite_nested(table)?;
        tables::name_column(table);
        tables::sample(table)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        clauses::select_all(select);
        clauses::group_by_columns(select)?;
        clauses::distinct_on(select)?;
        refused::check_joins(select)?;
        wildcards::normalize_names(select)?;
        qualified_wildcards::qualify(select);
        table_functions::rewrite(select)?;
        tables::name_sides(select);
        row_values::rewrite_in_select(select);
        make_names_distinct(&mut select.projection);
        windows::resolve_in_select(select)?;
        merged_columns::rewrite_in_select(select)?;
        grouped_casts::name_in_select(select)
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        self.function_depth += usize::from(matches!(expression, Expr::Function(_)));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(function) = expression {
            system_catalogs::remove_schema(function);
            refused::check_count(function)?;
            hypothetical_ranks::check(function)?;
            pattern_arguments::translate_fractions(function);
            operators::use_datafusion_name(function);
            function_names::name_sequence(function);
            self.function_depth -= 1;
            if self.function_depth > 0 {
                function_names::use_canonical_name(function);
            }
            if let Some(WindowType::WindowSpec(window)) = &mut function.over {
                frames::rewrite(window)?;
            }
        }
        table_functions::rewrite_split(expression);
        array_subqueries::rewrite(expression)?;
        system_catalogs::rewrite_call(expression);
        system_catalogs::rewrite_cast(expression);
        function_macros::expand(expression);
        cast_exponent_literal(expression);
        operators::rewrite(expression);
        regroup_distinct_from(expression);
        row_values::rewrite_comparison(expression);
        pattern_arguments::rewrite(expression)
    }
}

/// Turns a number with an exponent, such as `1e300`, into double precision, because a decimal has only 38 digits.
/// Numbers without an exponent stay exact.
fn cast_exponent_literal(expression: &mut Expr) {
    if let Expr::Value(value) = expression
        && let Value::Number(number, _) = &value.value
        && number.contains(['e', 'E'])
    {
        value.value = Value::SingleQuotedString(number.clone());
        *expression = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expression.clone()),
            data_type: DataType::DoublePrecision,
            array: false,
            format: None,
        };
    }
}

/// Regroups `a IS DISTINCT FROM b AND c` as `(a IS DISTINCT FROM b) AND c`. The parser reads everything after `FROM` as
/// the right operand. Inner expressions are visited first, so an outer `NOT` or `AND` finds a regrouped operand and is
/// regrouped too. Parentheses in the statement are nodes of the tree, so an `AND` or `OR` within them is not regrouped.
///
/// ```text
/// parsed               NOT (a IS DISTINCT FROM (b AND c))
/// inner expression     NOT ((a IS DISTINCT FROM b) AND c)
/// outer expression     (NOT (a IS DISTINCT FROM b)) AND c
/// ```
fn regroup_distinct_from(expression: &mut Expr) {
    let binds_weaker: fn(&BinaryOperator) -> bool = match expression {
        Expr::BinaryOp { op: BinaryOperator::And, .. } => |op| matches!(op, BinaryOperator::Or),
        _ => |op| matches!(op, BinaryOperator::And | BinaryOperator::Or),
    };
    let (Expr::IsDistinctFrom(_, operand)
    | Expr::IsNotDistinctFrom(_, operand)
    | Expr::UnaryOp { op: UnaryOperator::Not, expr: operand }
    | Expr::BinaryOp { op: BinaryOperator::And, right: operand, .. }) = expression
    else {
        return;
    };
    if !matches!(operand.as_ref(), Expr::BinaryOp { op, .. } if binds_weaker(op)) {
        return;
    }
    let mut root = std::mem::replace(operand.as_mut(), Expr::value(Value::Null));
    let mut first = &mut root;
    while matches!(first, Expr::BinaryOp { op, .. } if binds_weaker(op))
        && let Expr::BinaryOp { left, .. } = first
    {
        first = left;
    }
    std::mem::swap(first, operand);
    std::mem::swap(first, expression);
    if matches!(first, Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..)) {
        // The parentheses are for the parser: the expression may be printed and parsed again.
        *first = Expr::Nested(Box::new(first.clone()));
    }
    *expression = root;
}

#[cfg(test)]
mod tests {
    use datafusion_sql::parser::DFParserBuilder;
    use datafusion_sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    #[test]
    fn unsupported_syntax_is_replaced() {
        for (text, expected) in [
            ("SELECT a, b, t.a, u.a", "SELECT a, b, t.a AS \"a_1\", u.a AS \"a_2\""),
            ("SELECT t.a, u.a", "SELECT t.a, u.a"),
            ("SELECT t.a, u.a, t.a", "SELECT t.a, u.a, t.a AS \"a_1\""),
            ("SELECT 1, 1, 1 AS x, 2 AS X", "SELECT 1 AS \"1\", 1 AS \"1_1\", 1 AS x, 2 AS \"x_1\""),
            ("SELECT a AS a_1, a, a", "SELECT a AS a_1, a, a AS \"a_2\""),
            ("SELECT a AS \"A\", a", "SELECT a AS \"A\", a"),
            ("SELECT *, a, a + 1", "SELECT *, a AS \"a_1\", a + 1 AS \"a + 1\""),
            ("SELECT t.*, a, t.a, u.a", "SELECT t.*, a, t.a AS \"a_1\", u.a AS \"a_2\""),
            (
                "SELECT (SELECT x FROM (SELECT y, y) AS q(x, z))",
                "SELECT (SELECT x FROM (SELECT y, y AS \"y_1\") AS q (x, z)) \
                 AS \"(SELECT x FROM (SELECT y, y) AS q (x, z))\"",
            ),
            ("EXPLAIN SELECT a, a", "EXPLAIN SELECT a, a AS \"a_1\""),
            ("SELECT x WHERE a IS DISTINCT FROM b AND c OR d", "SELECT x WHERE (a IS DISTINCT FROM b) AND c OR d"),
            ("SELECT x WHERE ifnull(abs(IFNULL(a, 1)), ifnull)", "SELECT x WHERE ifnull(abs(nvl(a, 1)), ifnull)"),
            ("SELECT x WHERE ifnull(a, 1) + ifnull(b, 2)", "SELECT x WHERE ifnull(a, 1) + ifnull(b, 2)"),
            ("VALUES (1, 2)", "VALUES (1, 2)"),
            (
                "SELECT SUM(x), a::bigint, (t.B) ORDER BY SUM(x), c + 1",
                "SELECT SUM(x) AS \"sum(x)\", a::BIGINT AS \"a\", (t.B) AS \"b\" ORDER BY 1, c + 1",
            ),
            (
                "WITH q AS (SELECT -1) SELECT x IN (SELECT y + 1) AS i FROM (SELECT 'x' UNION SELECT y + 1) AS r",
                "WITH q AS (SELECT -1 AS \"-1\") SELECT x IN (SELECT y + 1) AS i \
                 FROM (SELECT 'x' AS \"'x'\" UNION SELECT y + 1) AS r",
            ),
            (
                "SELECT x WHERE (a, b, c) <= (1, 2, 3)",
                "SELECT x WHERE (a < 1 OR a = 1 AND (b < 2 OR b = 2 AND (c <= 3)))",
            ),
            (
                "DELETE FROM t WHERE a = 1 AND (b, c) IN (SELECT 1, 2)",
                "DELETE FROM t WHERE a = 1 AND EXISTS (SELECT 1 AS \"one\" FROM (SELECT 1 AS \"1\", 2 AS \"2\") AS \"taut rows\" \
                 (\"taut value 1\", \"taut value 2\") WHERE \"taut rows\".\"taut value 1\" = b \
                 AND \"taut rows\".\"taut value 2\" = c)",
            ),
            (
                "INSERT INTO t VALUES ((SELECT 1) + 1, 2), (3, 1e2)",
                "INSERT INTO t SELECT (SELECT 1) + 1 AS \"column1\", 2 AS \"column2\" UNION ALL \
                 VALUES (3, CAST('1e2' AS DOUBLE PRECISION))",
            ),
            (
                "SELECT sum(a) OVER (w ORDER BY b) AS s FROM t WINDOW w AS (PARTITION BY c), v AS (w)",
                "SELECT sum(a) OVER (PARTITION BY c ORDER BY b) AS s FROM t WINDOW w AS (PARTITION BY c), v AS (PARTITION BY c)",
            ),
            (
                "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND 1 + 1 FOLLOWING) AS s FROM t",
                "SELECT sum(a) OVER (PARTITION BY ('taut frame end 1 + 1'), (1 + 1) ORDER BY b \
                 ROWS BETWEEN 1 PRECEDING AND 0 FOLLOWING) AS s FROM t",
            ),
            ("SELECT t.a, u.a FROM t, u UNION SELECT 1, 2", "SELECT t.a, u.a AS \"a_1\" FROM t, u UNION SELECT 1, 2"),
            ("INSERT INTO t VALUES ((SELECT 1), DEFAULT)", "INSERT INTO t VALUES ((SELECT 1), DEFAULT)"),
        ] {
            let dialect = PostgreSqlDialect {};
            let mut parser = DFParserBuilder::new(text).with_dialect(&dialect).build().unwrap();
            let mut statement = parser.parse_statement().unwrap();
            desugar(&mut statement).unwrap();
            assert_eq!(statement.to_string(), expected);
        }
    }
}
