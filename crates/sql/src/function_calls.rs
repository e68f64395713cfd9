//! Calls of functions in SQL: the query that computes the body of a function, and the calls in a statement.

use std::ops::ControlFlow;

use datafusion_sql::parser::{CopyToSource, CopyToStatement, Statement as PlannerStatement};
use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem, Statement as Ast,
    TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut, visit_expressions, visit_expressions_mut,
};

use crate::desugar::{has_columns, rewrite_values_with};
use crate::error::{Result, SqlError};
use crate::functions::FunctionDefinition;
use crate::identifiers::normalize;
use crate::parse::{parse, parse_function};
use crate::statement::{Statement, is_query};
use crate::syntax::{alias_of, column, quoted, select, table_factor, without_joins};

impl FunctionDefinition {
    /// Parses what [`Display`](std::fmt::Display) writes.
    ///
    /// # Errors
    /// If the text is not a definition.
    pub fn parse(sql: &str) -> Result<Self> {
        parse_function(sql)
    }

    /// Returns a query with the body as a subquery of a relation with the parameters. Its other columns are nulls of
    /// the types of the result, and the default values of the parameters that have one.
    ///
    /// ```text
    ///   SELECT EXISTS (body), CAST(NULL AS type), ..., CAST(default AS type), ...
    ///   FROM (SELECT CAST(NULL AS type) AS parameter, ...) AS name
    /// ```
    ///
    /// # Errors
    /// If the body is not a query.
    pub fn query(&self, name: &str) -> Result<PlannerStatement> {
        let body = self.body_query(name)?;
        let defaults = self.parameters.iter().filter_map(|parameter| Some((parameter.default.as_ref()?, parameter)));
        // A cast to a type without precision and scale would round.
        let is_decimal =
            |name: &str| ["NUMERIC", "DECIMAL", "DEC"].iter().any(|known| name.to_uppercase().starts_with(known));
        let defaults = defaults.map(|(default, parameter)| match is_decimal(&parameter.data_type) {
            true => format!(", ({default})"),
            false => format!(", CAST(({default}) AS {})", parameter.data_type),
        });
        let results = self.returns.types().into_iter().map(|data_type| format!(", CAST(NULL AS {data_type})"));
        let mut sql = format!("SELECT EXISTS ({body}){}{}", results.collect::<String>(), defaults.collect::<String>());
        if !self.parameters.is_empty() {
            let columns = self.columns().zip(&self.parameters);
            let columns = columns
                .map(|(column, parameter)| format!("CAST(NULL AS {}) AS {}", parameter.data_type, quoted(&column)));
            sql += &format!(" FROM (SELECT {}) AS {}", columns.collect::<Vec<_>>().join(", "), quoted(name));
        }
        match parse(&sql)?.pop() {
            Some(Statement::Planned { statement, .. }) => Ok(statement.as_ref().clone()),
            _ => Err(SqlError::function("the body of a function must be a query")),
        }
    }

    /// Returns the body as a query in which parameters have names: `$1` becomes `name.parameter`.
    fn body_query(&self, name: &str) -> Result<Ast> {
        let statements = parse(&self.body)?;
        let [Statement::Planned { statement, .. }] = statements.as_slice() else {
            let what = match statements.len() {
                1 => "a function that changes rows or definitions".to_owned(),
                count => format!("a function body of {count} statements"),
            };
            return Err(SqlError::unsupported(what, "a body of one query is"));
        };
        let PlannerStatement::Statement(ast) = statement.as_ref() else {
            return Err(SqlError::unsupported("EXPLAIN in a function body", "a body of one query is"));
        };
        if !is_query(statement) {
            return Err(SqlError::unsupported("a function that is no query", "a body of one query is"));
        }
        let columns: Vec<String> = self.columns().collect();
        let mut ast = ast.as_ref().clone();
        let replaced = visit_expressions_mut(&mut ast, |expression| {
            let Expr::Value(value) = &expression else { return ControlFlow::Continue(()) };
            let Value::Placeholder(placeholder) = &value.value else { return ControlFlow::Continue(()) };
            let index = placeholder.trim_start_matches('$').parse::<usize>().ok();
            match index.and_then(|index| columns.get(index.checked_sub(1)?)) {
                Some(parameter) => {
                    *expression = column(name, parameter);
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(SqlError::NoParameter { parameter: placeholder.clone() }),
            }
        });
        match replaced {
            ControlFlow::Continue(()) => Ok(ast),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// Returns the distinct names of the functions that a statement calls, each as its parts, such as schema and name.
pub fn called_functions(statement: &PlannerStatement) -> Vec<Vec<String>> {
    let mut calls = Calls::default();
    for_query(statement, &mut |ast| {
        let _: ControlFlow<()> = ast.visit(&mut calls);
    });
    calls.0
}

/// Visitor that collects the names of functions.
#[derive(Default)]
struct Calls(Vec<Vec<String>>);

impl Calls {
    fn add(&mut self, name: &ObjectName) {
        self.0.extend(parts_of(name).filter(|name| !self.0.contains(name)));
    }
}

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression {
            self.add(&function.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } = factor {
            self.add(name);
        }
        ControlFlow::Continue(())
    }
}

/// What replaces the name of a function in a statement.
#[derive(Clone, Debug)]
pub struct RenamedFunction {
    /// The new name.
    pub name: String,
    /// Whether the columns of its rows have names. The alias of the call names a column without a name.
    pub has_names: bool,
    /// Whether its result is a subquery.
    pub is_query: bool,
}

/// Returns the statement with other names for the functions that it calls. `renamed` maps the parts of a name to what
/// replaces it, or returns `None` for a function that keeps its name. In `FROM`, a renamed function whose arguments
/// have columns becomes a lateral subquery.
///
/// # Errors
/// If a call of a renamed function has a clause that only aggregates and window functions have.
pub fn with_renamed_functions(
    statement: &PlannerStatement,
    renamed: impl Fn(&[String]) -> Option<RenamedFunction>,
) -> Result<PlannerStatement> {
    let (mut statement, mut renamer) = (statement.clone(), FunctionRenamer(&renamed));
    let mut part = &mut statement;
    while let PlannerStatement::Explain(explain) = part {
        part = &mut explain.statement;
    }
    let visited = match part {
        PlannerStatement::Statement(ast) => VisitMut::visit(ast, &mut renamer),
        PlannerStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            VisitMut::visit(query, &mut renamer)
        }
        _ => ControlFlow::Continue(()),
    };
    match visited {
        ControlFlow::Continue(()) => Ok(statement),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Kind of a function that is no aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// A function of one row, or one that returns rows.
    Scalar,
    /// A function of a window, such as `lag`.
    Window,
}

/// Refuses clauses that only aggregates and window functions have, such as `DISTINCT` and `OVER`, in calls of other
/// functions, and `DISTINCT` of window functions. `kind_of` returns the kind of the function with a name in lower case,
/// or `None` for aggregates and unknown functions.
///
/// # Errors
/// If a call has such a clause.
pub fn check_clauses(statement: &PlannerStatement, kind_of: impl Fn(&str) -> Option<FunctionKind>) -> Result<()> {
    let mut checked = ControlFlow::Continue(());
    for_query(statement, &mut |ast| {
        checked = visit_expressions(ast, |part| match part {
            Expr::Function(function) => check_clauses_of(function, &kind_of),
            _ => ControlFlow::Continue(()),
        });
    });
    match checked {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn check_clauses_of(function: &Function, kind_of: impl Fn(&str) -> Option<FunctionKind>) -> ControlFlow<SqlError> {
    let Some(clause) = clause_of_aggregates(function) else { return ControlFlow::Continue(()) };
    let parts = parts_of(&function.name).unwrap_or_default();
    let Some(name) = parts.last() else { return ControlFlow::Continue(()) };
    match kind_of(name) {
        Some(FunctionKind::Scalar) => ControlFlow::Break(SqlError::NotAnAggregate { clause, function: name.clone() }),
        Some(FunctionKind::Window) if clause == "DISTINCT" => ControlFlow::Break(SqlError::unsupported(
            format!("DISTINCT of window function {name}"),
            "that of an aggregate is",
        )),
        _ => ControlFlow::Continue(()),
    }
}

/// Name of the first clause of a call that only aggregates and window functions have.
fn clause_of_aggregates(function: &Function) -> Option<&'static str> {
    let (is_distinct, has_clauses) = match &function.args {
        FunctionArguments::List(list) => (list.duplicate_treatment.is_some(), !list.clauses.is_empty()),
        _ => (false, false),
    };
    let clauses = [
        (is_distinct, "DISTINCT"),
        (has_clauses, "ORDER BY"),
        (function.filter.is_some(), "FILTER"),
        (!function.within_group.is_empty(), "WITHIN GROUP"),
        (function.null_treatment.is_some(), "IGNORE NULLS"),
        (function.over.is_some(), "OVER"),
    ];
    clauses.into_iter().find(|(is_given, _)| *is_given).map(|(_, clause)| clause)
}

/// Visitor that renames functions.
struct FunctionRenamer<'a>(&'a dyn Fn(&[String]) -> Option<RenamedFunction>);

impl FunctionRenamer<'_> {
    fn renamed(&self, name: &ObjectName) -> Option<(ObjectName, RenamedFunction)> {
        let renamed = (self.0)(&parts_of(name)?)?;
        // The planner looks up functions in `FROM` by their text, quotes included.
        Some((ObjectName(vec![ObjectNamePart::Identifier(Ident::new(&renamed.name))]), renamed))
    }

    /// Whether an expression calls a function whose result is a subquery.
    fn calls_query(&self, expression: &Expr) -> bool {
        let visited = visit_expressions(expression, |part| match part {
            Expr::Function(function) if self.renamed(&function.name).is_some_and(|(_, renamed)| renamed.is_query) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        visited.is_break()
    }
}

impl VisitorMut for FunctionRenamer<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        // The planner supports subqueries in SELECT, not in VALUES.
        rewrite_values_with(&mut query.body, &|value| self.calls_query(value));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(function) = expression
            && let Some((new_name, _)) = self.renamed(&function.name)
        {
            check_clauses_of(function, |_| Some(FunctionKind::Scalar))?;
            function.name = new_name;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        let TableFactor::Table { name, alias, args: Some(arguments), .. } = factor else {
            return ControlFlow::Continue(());
        };
        let Some((new_name, renamed)) = self.renamed(name) else { return ControlFlow::Continue(()) };
        // A function without an alias has its own name.
        let own_name = name.0.last().and_then(|part| part.as_ident()).map(normalize).unwrap_or_default();
        let mut alias = alias.take().unwrap_or_else(|| alias_of(&own_name, &[]));
        if !renamed.has_names && alias.columns.is_empty() {
            alias = alias_of(&normalize(&alias.name), &[&normalize(&alias.name)]);
        }
        let is_lateral = has_columns(arguments);
        let call = table_factor(new_name, Some(arguments.clone()), false, None);
        *factor = match is_lateral {
            true => {
                let subquery = select(vec![SelectItem::Wildcard(Default::default())], vec![without_joins(call)], None);
                TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None }
            }
            false => match call {
                TableFactor::Table { name, args, .. } => table_factor(name, args, false, Some(alias)),
                other => other,
            },
        };
        ControlFlow::Continue(())
    }
}

fn parts_of(name: &ObjectName) -> Option<Vec<String>> {
    name.0.iter().map(|part| part.as_ident().map(normalize)).collect()
}

fn for_query(statement: &PlannerStatement, visit: &mut dyn FnMut(&Ast)) {
    match statement {
        PlannerStatement::Statement(ast) => visit(ast),
        PlannerStatement::Explain(explain) => for_query(&explain.statement, visit),
        PlannerStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            visit(&Ast::Query(query.clone()));
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn definition(sql: &str) -> FunctionDefinition {
        match parse(&format!("CREATE FUNCTION f{sql}")).unwrap().as_slice() {
            [Statement::CreateFunction { definition, .. }] => definition.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_written_definition_parses_to_itself() {
        let sql = [
            "() RETURNS int LANGUAGE SQL AS 'SELECT 1'",
            "(double precision, b double precision = 1.5, \"C d\" text DEFAULT 'it''s') RETURNS timestamp with time zone \
             STRICT IMMUTABLE LANGUAGE 'sql' AS $$ SELECT 'a''b', $1 -- comment $$",
            "(date date, numeric(10, 2), int[]) RETURNS SETOF int LANGUAGE SQL AS 'SELECT 1;'",
            "(a int) RETURNS TABLE (x int, \"Y\" double precision) STABLE LANGUAGE SQL AS 'SELECT 1, 2'",
            "(a int) RETURNS int RETURN a + 1",
        ];
        for sql in sql {
            let definition = definition(sql);
            assert_eq!(FunctionDefinition::parse(&definition.to_string()).unwrap(), definition, "{definition}");
        }
        let parameters = definition(sql[1]).parameters;
        let names: Vec<Option<&str>> = parameters.iter().map(|parameter| parameter.name.as_deref()).collect();
        assert_eq!(names, [None, Some("b"), Some("C d")]);
        assert_eq!(definition(sql[2]).columns().collect::<Vec<_>>(), ["date", "$2", "$3"]);
    }

    #[test]
    fn parameters_are_columns_in_the_query() {
        let query = |sql: &str| definition(sql).query("f").map(|query| query.to_string());
        let found = query("(a int, int = 7) RETURNS int LANGUAGE SQL AS 'SELECT $1 + $2'").unwrap();
        let parts = [
            "SELECT EXISTS (SELECT \"f\".\"a\" + \"f\".\"$2\"",
            ", CAST((7) AS INT)",
            "FROM (SELECT CAST(NULL AS INT) AS \"a\", CAST(NULL AS INT) AS \"$2\") AS \"f\"",
        ];
        for part in parts {
            assert!(found.contains(part), "{part} is not in {found}");
        }
        for body in ["SELECT $3", "SELECT $0", "SELECT 1; SELECT 2", "", "DROP TABLE t", "INSERT INTO t VALUES (1)"] {
            let sql = format!("(a int) RETURNS int LANGUAGE SQL AS '{body}'");
            assert!(query(&sql).is_err(), "{body}");
        }
    }

    #[test]
    fn calls_are_found_and_renamed() {
        let sql = "SELECT f(a), s.g(1) FROM t, h(t.a) AS x, \"I\"(2) WHERE EXISTS (SELECT f(abs(1)))";
        let Some(Statement::Planned { statement, .. }) = parse(sql).unwrap().pop() else { panic!("not a query") };
        let called: Vec<String> = called_functions(&statement).iter().map(|name| name.join(".")).collect();
        assert_eq!(called.len(), 5, "{called:?}");
        for name in ["f", "s.g", "h", "I", "abs"] {
            assert!(called.iter().any(|known| known == name), "{name} is not in {called:?}");
        }
        let renamed = |name: &[String]| {
            (name.join(".") != "abs").then(|| RenamedFunction {
                name: format!("x_{}", name.len()),
                has_names: false,
                is_query: false,
            })
        };
        let renamed = with_renamed_functions(&statement, renamed).unwrap().to_string();
        for part in [
            "x_1(a)",
            "x_2(1)",
            "LATERAL (SELECT * FROM x_1(t.a)) AS \"x\" (\"x\")",
            "x_1(2) AS \"I\" (\"I\")",
            "x_1(abs(1))",
        ] {
            assert!(renamed.contains(part), "{part} is not in {renamed}");
        }
    }
}
