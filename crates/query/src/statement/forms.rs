//! Rewrite of syntax that the planner does not support into equivalent syntax.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Ident, Parens, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, Statement, UnaryOperator, Value, Values,
    Visit, VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use super::mutation::{is_default, item, select};
use super::{long_unions, normalize, row_values};

/// Rewrites syntax that the planner does not support, everywhere in a statement.
pub(super) fn replace(statement: &mut EngineStatement) {
    match statement {
        EngineStatement::Statement(ast) => {
            let _: ControlFlow<()> = ast.as_mut().visit(&mut Forms);
        }
        EngineStatement::Explain(explain) => replace(&mut explain.statement),
        _ => {}
    }
}

struct Forms;

impl VisitorMut for Forms {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        values_with_queries(&mut query.body);
        long_unions::balance(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<()> {
        row_values::replace_in_statement(statement);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        row_values::replace_in_select(select);
        distinct_names(&mut select.projection);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        floating_literal(expression);
        distinct_from_first(expression);
        row_values::replace(expression);
        ControlFlow::Continue(())
    }
}

/// Turns a number with an exponent, such as `1e300`, into double precision, because a decimal has only 38 digits.
/// Numbers without an exponent stay exact.
fn floating_literal(expression: &mut Expr) {
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

/// Regroups `a IS DISTINCT FROM b AND c` as `(a IS DISTINCT FROM b) AND c`. The parser reads all that follows `FROM` as
/// the right operand. Inner expressions are visited first, so that a `NOT` or `AND` in front gets the regrouped
/// expression as its operand, and must be regrouped too. Only this case leaves an `AND` or `OR` as a direct operand:
/// elsewhere it would be in parentheses.
fn distinct_from_first(expression: &mut Expr) {
    let joins_less: fn(&BinaryOperator) -> bool = match expression {
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
    if !matches!(operand.as_ref(), Expr::BinaryOp { op, .. } if joins_less(op)) {
        return;
    }
    let mut whole = std::mem::replace(operand.as_mut(), Expr::value(Value::Null));
    let mut first = &mut whole;
    while matches!(first, Expr::BinaryOp { op, .. } if joins_less(op))
        && let Expr::BinaryOp { left, .. } = first
    {
        first = left;
    }
    std::mem::swap(first, operand);
    std::mem::swap(first, expression);
    if matches!(first, Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..)) {
        // In parentheses, because the text may be printed and parsed again.
        *first = Expr::Nested(Box::new(first.clone()));
    }
    *expression = whole;
}

/// Maximum rows with subqueries in a `VALUES` list that is rewritten. More rows are too many for the planner.
const QUERY_ROWS_MAX: usize = 256;

/// Rewrites rows of `VALUES` with subqueries as `SELECT ... UNION ALL ...`. The rows between them stay in `VALUES`. A
/// list with `DEFAULT` stays as it is.
pub(super) fn values_with_queries(body: &mut SetExpr) {
    let SetExpr::Values(values) = body else { return };
    let has_query = |row: &Parens<Vec<Expr>>| row.content.iter().any(has_query);
    let with_queries = values.rows.iter().filter(|row| has_query(row)).count();
    let has_default = || values.rows.iter().flat_map(|row| &row.content).any(is_default);
    if !(1..=QUERY_ROWS_MAX).contains(&with_queries) || has_default() {
        return;
    }
    let rows = std::mem::take(&mut values.rows);
    let mut parts: Vec<SetExpr> = Vec::new();
    for row in rows {
        if has_query(&row) {
            let columns = row.content.into_iter().zip(1..).map(|(value, place)| item(value, &format!("column{place}")));
            parts.push(*select(columns.collect(), Vec::new(), None).body);
        } else if let Some(SetExpr::Values(plain)) = parts.last_mut() {
            plain.rows.push(row);
        } else {
            parts.push(SetExpr::Values(Values { rows: vec![row], ..values.clone() }));
        }
    }
    *body = united(parts);
}

/// `UNION ALL` of all parts, as a balanced tree.
pub(super) fn united(mut parts: Vec<SetExpr>) -> SetExpr {
    let right = parts.split_off(parts.len() / 2);
    if parts.is_empty() {
        return right.into_iter().next().unwrap_or_else(|| {
            SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: Vec::new() })
        });
    }
    SetExpr::SetOperation {
        left: Box::new(united(parts)),
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        right: Box::new(united(right)),
    }
}

fn has_query(expression: &Expr) -> bool {
    struct Found;
    impl Visitor for Found {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expression.visit(&mut Found).is_break()
}

/// Renames output columns that repeat the name of an earlier one: `id, id` becomes `id, id AS id_1`.
pub(super) fn distinct_names(items: &mut [SelectItem]) {
    let mut names: Vec<Name> = items.iter().filter_map(Name::of).collect();
    if !(1..names.len()).any(|place| names[place].is_among(&names[..place])) {
        return;
    }
    let mut place = 0;
    for item in items {
        let Some(name) = Name::of(item) else { continue };
        if name.is_among(&names[..place])
            && let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = &*item
        {
            let other = (1..).map(|number| Name::Alias(format!("{}_{number}", name.text())));
            if let Some(Name::Alias(alias)) = other.into_iter().find(|other| !other.is_among(&names)) {
                names[place] = Name::Alias(alias.clone());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
            }
        }
        place += 1;
    }
}

/// Name that the planner gives an output column of a query.
#[derive(Clone, Debug)]
enum Name {
    /// An alias, or the text of an expression.
    Alias(String),
    /// A column, with its relation if that is named.
    Column(Option<String>, String),
    /// The text of an expression with a subquery. The planner leaves the subquery out of the name.
    Query(String),
    /// All columns of all relations, or of one.
    All(Option<String>),
}

impl Name {
    /// Returns `None` if an item has several names, or if its names are not known.
    fn of(item: &SelectItem) -> Option<Self> {
        let is_plain = |options: &WildcardAdditionalOptions| {
            let WildcardAdditionalOptions { opt_exclude, opt_except, opt_replace, opt_rename, opt_ilike, .. } = options;
            opt_exclude.is_none()
                && opt_except.is_none()
                && opt_replace.is_none()
                && opt_rename.is_none()
                && opt_ilike.is_none()
        };
        Some(match item {
            SelectItem::ExprWithAlias { alias, .. } => Self::Alias(normalize(alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => Self::Column(None, normalize(name)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => match names.as_slice() {
                [relation @ .., name] => {
                    let relation: Vec<String> = relation.iter().map(normalize).collect();
                    Self::Column(Some(relation.join(".")), normalize(name))
                }
                [] => return None,
            },
            SelectItem::UnnamedExpr(expression) => match expression {
                Expr::Subquery(_) => Self::Alias(expression.to_string()),
                _ if has_query(expression) => Self::Query(expression.to_string()),
                _ => Self::Alias(expression.to_string()),
            },
            SelectItem::Wildcard(options) if is_plain(options) => Self::All(None),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if is_plain(options) =>
            {
                let parts = name.0.iter().map(|part| part.as_ident().map(normalize));
                Self::All(Some(parts.collect::<Option<Vec<_>>>()?.join(".")))
            }
            _ => return None,
        })
    }

    fn text(&self) -> &str {
        match self {
            Self::Alias(name) | Self::Column(_, name) | Self::Query(name) => name,
            Self::All(_) => "*",
        }
    }

    /// Whether the planner considers this name equal to one of the others.
    fn is_among(&self, others: &[Self]) -> bool {
        others.iter().any(|other| match (self, other) {
            (Self::Column(Some(mine), name), Self::Column(Some(other), known)) => mine == other && name == known,
            (Self::Column(..), Self::All(None)) => true,
            (Self::Column(Some(mine), _), Self::All(Some(other))) => mine == other,
            (Self::Query(_), Self::Query(_)) => true,
            (Self::All(_), _) | (_, Self::All(_)) => false,
            _ => self.text() == other.text(),
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    #[test]
    fn forms_are_replaced_where_the_planner_does_not_know_them() {
        for (text, expected) in [
            ("SELECT a, b, t.a, u.a", "SELECT a, b, t.a AS \"a_1\", u.a AS \"a_2\""),
            ("SELECT t.a, u.a", "SELECT t.a, u.a"),
            ("SELECT t.a, u.a, t.a", "SELECT t.a, u.a, t.a AS \"a_1\""),
            ("SELECT 1, 1, 1 AS x, 2 AS X", "SELECT 1, 1 AS \"1_1\", 1 AS x, 2 AS \"x_1\""),
            ("SELECT a AS a_1, a, a", "SELECT a AS a_1, a, a AS \"a_2\""),
            ("SELECT a AS \"A\", a", "SELECT a AS \"A\", a"),
            ("SELECT *, a, a + 1", "SELECT *, a AS \"a_1\", a + 1"),
            ("SELECT t.*, a, t.a, u.a", "SELECT t.*, a, t.a AS \"a_1\", u.a AS \"a_2\""),
            (
                "SELECT (SELECT x FROM (SELECT y, y) AS q(x, z))",
                "SELECT (SELECT x FROM (SELECT y, y AS \"y_1\") AS q (x, z))",
            ),
            ("EXPLAIN SELECT a, a", "EXPLAIN SELECT a, a AS \"a_1\""),
            ("SELECT a IS DISTINCT FROM b AND c OR d", "SELECT (a IS DISTINCT FROM b) AND c OR d"),
            ("VALUES (1, 2)", "VALUES (1, 2)"),
            (
                "SELECT x WHERE (a, b, c) <= (1, 2, 3)",
                "SELECT x WHERE (a < 1 OR a = 1 AND (b < 2 OR b = 2 AND (c <= 3)))",
            ),
            (
                "DELETE FROM t WHERE a = 1 AND (b, c) IN (SELECT 1, 2)",
                "DELETE FROM t WHERE a = 1 AND EXISTS (SELECT 1 AS \"one\" FROM (SELECT 1, 2) AS \"taut rows\" \
                 (\"taut value 1\", \"taut value 2\") WHERE \"taut rows\".\"taut value 1\" = b AND \"taut rows\".\"taut value 2\" = c)",
            ),
            (
                "INSERT INTO t VALUES ((SELECT 1) + 1, 2), (3, 1e2)",
                "INSERT INTO t SELECT (SELECT 1) + 1 AS \"column1\", 2 AS \"column2\" UNION ALL \
                 VALUES (3, CAST('1e2' AS DOUBLE PRECISION))",
            ),
            ("INSERT INTO t VALUES ((SELECT 1), DEFAULT)", "INSERT INTO t VALUES ((SELECT 1), DEFAULT)"),
        ] {
            let dialect = PostgreSqlDialect {};
            let mut parser = DFParserBuilder::new(text).with_dialect(&dialect).build().unwrap();
            let mut statement = parser.parse_statement().unwrap();
            replace(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
