//! `PIVOT` without a list of values: `PIVOT t ON k USING sum(p)`, and `t PIVOT (sum(p) FOR k IN (ANY))`.
//!
//! The columns of such a query depend on rows. Therefore the caller first runs a query for the values of each such
//! `PIVOT`, inner ones first. It lists the values in the statement, and then runs the statement:
//!
//! ```text
//!   written    PIVOT t ON k USING sum(p)
//!   values     SELECT k AS value, k::text AS text FROM t WHERE k IS NOT NULL GROUP BY 1, 2
//!   run        SELECT * FROM t PIVOT (sum(p) FOR k IN ('10'::integer AS "10", '9'::integer AS "9"))
//! ```

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    CastKind, Cte, DataType, Expr, ExprWithAlias, GroupByExpr, PivotValueSource, Query, SelectItem, SetExpr,
    Statement as Ast, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut, With,
};

use crate::desugar::desugar;
use crate::dialect::parse_expression;
use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::syntax::{aliased, is_not_null, parenthesized, quoted, select, without_joins};

/// Maximum number of values of a `PIVOT` that does not list them.
pub const PIVOT_VALUES_MAX: usize = 10_000;

/// Returns a query for the values of the first `PIVOT` without a list of values. Its columns are the values and the
/// same values as strings. Returns `None` if there is no such `PIVOT`.
///
/// # Errors
/// If the table of the `PIVOT` is not supported.
pub fn pivot_values_query(statement: &PlannerStatement) -> Result<Option<PlannerStatement>> {
    let Some(query) = open_pivot(statement) else { return Ok(None) };
    let mut query = PlannerStatement::Statement(Box::new(Ast::Query(query)));
    desugar(&mut query)?;
    Ok(Some(query))
}

/// Whether a statement has a `PIVOT` that does not list its values.
pub(crate) fn has_open_pivot(statement: &PlannerStatement) -> bool {
    open_pivot(statement).is_some()
}

fn open_pivot(statement: &PlannerStatement) -> Option<Box<Query>> {
    let found = match statement {
        PlannerStatement::Statement(ast) => ast.visit(&mut OpenPivotFinder { scopes: Vec::new() }),
        PlannerStatement::Explain(explain) => return open_pivot(&explain.statement),
        _ => return None,
    };
    match found {
        ControlFlow::Break(query) => Some(query),
        ControlFlow::Continue(()) => None,
    }
}

/// Adds the values to the first `PIVOT` without a list, whose query [`pivot_values_query`] returns. Each value is
/// written as a string that is cast to `type_name`.
///
/// # Errors
/// If no statement can write values of the type.
pub fn list_pivot_values(statement: &mut PlannerStatement, texts: &[String], type_name: &str) -> Result<()> {
    let value = |text: &String| {
        let literal = format!("'{}'::{type_name}", text.replace('\'', "''"));
        Ok(ExprWithAlias { expr: parse_expression(&literal)?, alias: Some(quoted(text)) })
    };
    let values = texts.iter().map(value).collect::<Result<Vec<_>>>()?;
    let mut lister = ValueLister { values: Some(values) };
    match statement {
        PlannerStatement::Statement(ast) => {
            let _: ControlFlow<()> = VisitMut::visit(ast, &mut lister);
            Ok(())
        }
        PlannerStatement::Explain(explain) => list_pivot_values(&mut explain.statement, texts, type_name),
        _ => Ok(()),
    }
}

/// Returns an error for statements whose columns must be known before they run.
pub(crate) fn check(statement: &PlannerStatement) -> Result<()> {
    let refused = match statement {
        PlannerStatement::Statement(ast) => match ast.as_ref() {
            Ast::CreateView(_) => "a view",
            Ast::Prepare { .. } => "PREPARE",
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let allowed = "PIVOT t ON a IN (1, 2) USING sum(b) is";
    Err(SqlError::unsupported(format!("PIVOT without a list of the values in {refused}"), allowed))
}

/// The queries of a `WITH` around the visited part.
struct WithScope {
    with: With,
    /// Addresses of the queries.
    queries: Vec<*const Query>,
    /// Number of queries that are visible to the visited part.
    visible: usize,
}

/// Visitor that stops at the first `PIVOT` without values, inner ones first. Returns the query for its values.
struct OpenPivotFinder {
    scopes: Vec<WithScope>,
}

impl OpenPivotFinder {
    /// Sets the number of visible queries for a query in `WITH`, or for the parts after it if `is_after` is true.
    fn set_visible(&mut self, query: &Query, is_after: bool) {
        if let Some(scope) = self.scopes.last_mut()
            && let Some(position) = scope.queries.iter().position(|known| std::ptr::eq(*known, query))
        {
            scope.visible = position + usize::from(is_after);
        }
    }

    /// Returns a `WITH` clause with the queries that are visible to the visited part. Returns `None` if there are none.
    fn with(&self) -> Option<With> {
        let mut with = self.scopes.first()?.with.clone();
        let mut visible: Vec<Cte> = Vec::new();
        for scope in &self.scopes {
            with.recursive |= scope.with.recursive;
            for cte in &scope.with.cte_tables[..scope.visible] {
                visible.retain(|known| normalize(&known.alias.name) != normalize(&cte.alias.name));
                visible.push(cte.clone());
            }
        }
        with.cte_tables = visible;
        Some(with).filter(|with| !with.cte_tables.is_empty())
    }
}

impl Visitor for OpenPivotFinder {
    type Break = Box<Query>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Query>> {
        self.set_visible(query, false);
        if let Some(with) = &query.with {
            let queries = with.cte_tables.iter().map(|cte| std::ptr::from_ref(cte.query.as_ref())).collect();
            self.scopes.push(WithScope { with: with.clone(), queries, visible: 0 });
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Query>> {
        if query.with.is_some() {
            self.scopes.pop();
        }
        self.set_visible(query, true);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Box<Query>> {
        match factor {
            TableFactor::Pivot { table, value_column, value_source: PivotValueSource::Any(order), .. }
                if order.is_empty()
                    && let Some(column) = value_column.last() =>
            {
                let mut query = values_query(table, column);
                query.with = self.with();
                ControlFlow::Break(query)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn values_query(table: &TableFactor, column: &Expr) -> Box<Query> {
    let column = parenthesized(column.clone());
    let text = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(column.clone()),
        data_type: DataType::Text,
        array: false,
        format: None,
    };
    let items: Vec<SelectItem> = vec![aliased(column.clone(), "value"), aliased(text, "text")];
    let mut query = select(items, vec![without_joins(table.clone())], Some(is_not_null(column)));
    if let SetExpr::Select(select) = query.body.as_mut() {
        let position = |number: &str| Expr::value(Value::Number(number.to_owned(), false));
        select.group_by = GroupByExpr::Expressions(vec![position("1"), position("2")], Vec::new());
    }
    query
}

/// Visitor that lists the values of the first `PIVOT` without values.
struct ValueLister {
    values: Option<Vec<ExprWithAlias>>,
}

impl VisitorMut for ValueLister {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Pivot { value_source: source @ PivotValueSource::Any(_), .. } = factor
            && matches!(source, PivotValueSource::Any(order) if order.is_empty())
            && let Some(values) = self.values.take()
        {
            *source = PivotValueSource::List(values);
        }
        ControlFlow::Continue(())
    }
}
