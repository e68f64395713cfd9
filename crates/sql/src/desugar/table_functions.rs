//! Functions in `FROM` that use columns of the tables before them, or number their rows. They become lateral
//! subqueries:
//!
//! ```text
//!   FROM t, unnest(t.tags) AS g(tag)               FROM t, LATERAL (SELECT unnest(t.tags) AS tag) AS g
//!   FROM t, generate_series(1, t.n) AS i           FROM t, LATERAL (SELECT unnest(generate_series(1, t.n)) AS i) AS i
//!   FROM unnest(a) WITH ORDINALITY AS g(tag, n)    FROM (SELECT unnest(a) AS tag,
//!                                                        unnest(generate_series(1, cardinality(a))) AS n) AS g
//! ```
//!
//! A function that splits a text into rows becomes the one that returns an array: `string_to_table(s, ',')` becomes
//! `unnest(string_to_array(s, ','))`, also in a select list. So does PostgreSQL's `regexp_matches`. In a select list,
//! the flag `g` distinguishes it from DuckDB's `regexp_matches`, which returns a boolean.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Query, Select, SelectItem,
    TableAlias, TableFactor, TableFunctionArgs, Value, Visit, Visitor,
};

use crate::error::SqlError;
use crate::syntax;

const UNNEST: &str = "unnest";
/// Table functions that DataFusion can also call in expressions, where they return an array.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Functions that return rows, and the functions that return the same values as an array.
const SPLITS: [(&str, &str); 3] = [
    (MATCHES, "taut_regexp_matches"),
    ("regexp_split_to_table", "regexp_split_to_array"),
    ("string_to_table", "string_to_array"),
];
const MATCHES: &str = "regexp_matches";

/// Rewrites a function that splits a text in a select list.
pub(super) fn rewrite_split(expression: &mut Expr) {
    if let Expr::Function(function) = expression
        && function.over.is_none()
        && let Some(name) = unqualified(&function.name)
        && let Some(array_function) = array_function(&name)
        && (name != MATCHES || has_global_flag(function))
    {
        function.name = ObjectName::from(Ident::new(array_function));
        *expression = syntax::call(UNNEST, vec![expression.clone()]);
    }
}

/// Whether the flags of a regular expression, the third argument, are a literal with a `g`.
fn has_global_flag(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    match list.args.as_slice() {
        [_, _, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(flags)))] => {
            matches!(&flags.value, Value::SingleQuotedString(flags) if flags.contains('g'))
        }
        _ => false,
    }
}

fn array_function(function: &str) -> Option<&'static str> {
    SPLITS.iter().find(|(name, _)| *name == function).map(|(_, array_function)| *array_function)
}

/// Rewrites the functions in a `FROM`.
pub(super) fn rewrite(select: &mut Select) -> ControlFlow<SqlError> {
    for (index, from) in select.from.iter_mut().enumerate() {
        rewrite_table(&mut from.relation, index > 0)?;
        for join in &mut from.joins {
            rewrite_table(&mut join.relation, true)?;
        }
    }
    ControlFlow::Continue(())
}

fn rewrite_table(table: &mut TableFactor, follows_tables: bool) -> ControlFlow<SqlError> {
    remove_lateral(table);
    let (arrays, name, alias, with_ordinality) = match table {
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
            (array_exprs.clone(), UNNEST.to_owned(), alias, *with_ordinality)
        }
        TableFactor::Table { name, alias, args: Some(TableFunctionArgs { args, .. }), with_ordinality, .. } => {
            let is_known = |function: &String| {
                function == UNNEST || SERIES.contains(&function.as_str()) || array_function(function).is_some()
            };
            let Some(function) = unqualified(name).filter(is_known) else {
                return match *with_ordinality {
                    true => ControlFlow::Break(SqlError::unsupported(
                        format!("WITH ORDINALITY of {name}"),
                        "that of unnest, generate_series, string_to_table, regexp_split_to_table and regexp_matches is",
                    )),
                    false => ControlFlow::Continue(()),
                };
            };
            let Some(arguments) = expressions(args) else { return ControlFlow::Continue(()) };
            let arrays = match array_function(&function) {
                Some(array_function) => vec![syntax::call(array_function, arguments)],
                None if function == UNNEST => arguments,
                None => vec![syntax::call(&function, arguments)],
            };
            (arrays, function, alias, *with_ordinality)
        }
        _ => return ControlFlow::Continue(()),
    };
    let has_columns = arrays.iter().any(|array| array.visit(&mut Columns { depth: 0 }).is_break());
    if !has_columns && !with_ordinality && array_function(&name).is_none() {
        return ControlFlow::Continue(());
    }
    let alias = alias.take();
    let mut columns = names(alias.as_ref(), &name, arrays.len()).into_iter();
    let mut projection: Vec<SelectItem> = Vec::new();
    let unnested = |array: Expr| syntax::call(UNNEST, vec![array]);
    // The elements of the array of matches are arrays, whose elements `cardinality` would count.
    let length = |array: &Expr| match name == MATCHES {
        true => syntax::call("array_length", vec![array.clone(), syntax::integer(1)]),
        false => syntax::call("cardinality", vec![array.clone()]),
    };
    let lengths: Vec<Expr> = arrays.iter().map(length).collect();
    for array in arrays {
        let alias = columns.next().unwrap_or_else(|| Ident::new(&name));
        projection.push(SelectItem::ExprWithAlias { expr: unnested(array), alias });
    }
    if with_ordinality {
        let length = match lengths.as_slice() {
            [length] => length.clone(),
            _ => syntax::call("greatest", lengths),
        };
        let numbers = syntax::call("generate_series", vec![syntax::integer(1), length]);
        let alias = columns.next().unwrap_or_else(|| Ident::new("ordinality"));
        projection.push(SelectItem::ExprWithAlias { expr: unnested(numbers), alias });
    }
    let relation = alias.map_or_else(|| Ident::new(&name), |alias| alias.name);
    *table = TableFactor::Derived {
        lateral: has_columns && follows_tables,
        subquery: syntax::select(projection, Vec::new(), None),
        alias: Some(TableAlias { explicit: true, name: relation, columns: Vec::new(), at: None }),
        sample: None,
    };
    ControlFlow::Continue(())
}

/// Removes `LATERAL` before a function, which has no effect: a function sees the tables before it also without it.
fn remove_lateral(table: &mut TableFactor) {
    let TableFactor::Function { name, args, with_ordinality, alias, .. } = table else { return };
    let (args, alias) = (std::mem::take(args), alias.take());
    *table = match expressions(&args) {
        Some(array_exprs) if unqualified(name).is_some_and(|function| function == UNNEST) => TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: *with_ordinality,
        },
        _ => {
            let args = TableFunctionArgs { args, settings: None };
            syntax::table_factor(name.clone(), Some(args), *with_ordinality, alias)
        }
    };
}

/// The name of a function in lower case, without its schema.
fn unqualified(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(|part| part.as_ident()).map(|name| name.value.to_lowercase())
}

/// The arguments of a function. Returns `None` if one has a name or is not an expression.
fn expressions(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    let expression = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
        _ => None,
    };
    arguments.iter().map(expression).collect()
}

/// Returns the column names of a table function. A single column without a name is named after the alias, or else after
/// the function.
fn names(alias: Option<&TableAlias>, function: &str, columns: usize) -> Vec<Ident> {
    match alias {
        Some(alias) if !alias.columns.is_empty() => alias.columns.iter().map(|column| column.name.clone()).collect(),
        Some(alias) if columns == 1 => vec![alias.name.clone()],
        _ => vec![Ident::new(function); columns],
    }
}

/// Whether the arguments of a function name a column, outside of subqueries.
pub fn has_columns(arguments: &TableFunctionArgs) -> bool {
    arguments.args.iter().any(|argument| argument.visit(&mut Columns { depth: 0 }).is_break())
}

/// Visitor that stops at the first column name outside of subqueries.
struct Columns {
    depth: usize,
}

impl Visitor for Columns {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) if self.depth == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
