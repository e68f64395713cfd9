//! Names of sequences in defaults, which are stored as text. In a stored default, a name without a schema refers to
//! `public`, whatever the search path of a session.

use std::borrow::Cow;
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast;
use taut_sql::{PUBLIC, name_of_reference, parse_expression};
use taut_types::{quote_identifier, relation_sql, split_relation_name};

const SEQUENCE_FUNCTIONS: [&str; 3] = ["nextval", "currval", "setval"];

/// Returns the names of the sequences in a default.
pub fn sequences_of_default(sql: &str) -> Vec<String> {
    let mut names = Vec::new();
    for_each_sequence(sql, |name| names.push(name.clone()));
    names
}

/// Returns a default in which a sequence is renamed.
pub fn renamed_sequence(sql: &str, name: &str, new_name: &str) -> String {
    let renamed = for_each_sequence(sql, |used| {
        if used == name {
            new_name.clone_into(used);
        }
    });
    renamed.unwrap_or_else(|| sql.to_owned())
}

/// Returns a default that calls `nextval` of a sequence.
pub fn default_of_sequence(name: &str) -> String {
    format!("nextval('{}')", relation_sql(name).replace('\'', "''"))
}

/// Returns a default with other names of its sequences. `name` returns the new name for a reference in the default, or
/// `None` if the reference does not change.
pub fn with_named_sequences(sql: &str, mut name: impl FnMut(&TableReference) -> Option<String>) -> String {
    let named = for_each_relation_sql(sql, |text| {
        if let Some(name) = name(&TableReference::parse_str(text)) {
            *text = relation_sql(&name);
        }
    });
    named.unwrap_or_else(|| sql.to_owned())
}

/// Replaces the sequences of a query that its calls, such as `nextval('s')`, name by a literal. `name` returns the name
/// for a reference in the query. The query then names the sequence with its schema.
///
/// # Errors
/// If `name` returns an error.
pub fn query_with_named_sequences<E>(
    query: &mut ast::Statement,
    mut name: impl FnMut(&TableReference) -> Result<String, E>,
) -> Result<(), E> {
    let mut error = None;
    rename_in(query, &mut |text| match name(&TableReference::parse_str(text)) {
        Ok(name) => {
            let (schema, name) = split_relation_name(&name);
            *text = format!("{}.{}", quote_identifier(&schema), quote_identifier(&name));
        }
        Err(found) => error = error.take().or(Some(found)),
    });
    error.map_or(Ok(()), Err)
}

/// Returns a stored default in which the names of sequences have their schemas, so that they do not depend on the
/// search path.
pub fn qualified_default(sql: &str) -> Cow<'_, str> {
    if !contains_sequence_function(sql) {
        return Cow::Borrowed(sql);
    }
    let qualified = for_each_relation_sql(sql, |text| {
        let reference = TableReference::parse_str(text);
        if reference.schema().is_none() {
            *text = format!("{PUBLIC}.{}", quote_identifier(reference.table()));
        }
    });
    qualified.map_or(Cow::Borrowed(sql), Cow::Owned)
}

/// Whether a text may call a function of sequences.
fn contains_sequence_function(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    SEQUENCE_FUNCTIONS.iter().any(|function| sql.contains(function))
}

/// Calls `change` with the name of each sequence in a stored default. `change` may replace the name. Returns the
/// changed default, or `None` if it cannot be parsed.
fn for_each_sequence(sql: &str, mut change: impl FnMut(&mut String)) -> Option<String> {
    for_each_relation_sql(sql, |text| {
        let mut name = name_of_reference(&TableReference::parse_str(text));
        let before = name.clone();
        change(&mut name);
        if name != before {
            *text = relation_sql(&name);
        }
    })
}

/// Calls `change` with the SQL text of each sequence name in a default. `change` may replace the text. Returns the
/// changed default, or `None` if it cannot be parsed.
fn for_each_relation_sql(sql: &str, mut change: impl FnMut(&mut String)) -> Option<String> {
    let mut expression = parse_expression(sql).ok()?;
    rename_in(&mut expression, &mut change);
    Some(expression.to_string())
}

/// Calls `change` with the SQL text of each sequence name in a syntax tree.
fn rename_in(tree: &mut impl ast::VisitMut, change: &mut impl FnMut(&mut String)) {
    let _: ControlFlow<()> = ast::visit_expressions_mut(tree, |part| {
        if let ast::Expr::Function(function) = part
            && SEQUENCE_FUNCTIONS.iter().any(|known| function.name.to_string().eq_ignore_ascii_case(known))
            && let ast::FunctionArguments::List(list) = &mut function.args
            && let Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))) =
                list.args.first_mut()
            && let ast::Value::SingleQuotedString(text) = &mut value.value
        {
            change(text);
        }
        ControlFlow::Continue(())
    });
}
