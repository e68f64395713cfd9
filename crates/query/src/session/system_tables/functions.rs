//! `taut.functions`: one row for each function in SQL.

use taut_sql::FunctionDefinition;
use taut_types::split_relation_name;

use super::{SystemColumn, SystemRows, SystemState, SystemTable, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "functions",
    description: "The functions that `CREATE FUNCTION` has created.",
    columns: &[
        SystemColumn::text("schema_name", "Schema of the function."),
        SystemColumn::text("function_name", "Name of the function."),
        SystemColumn::text("parameters", "Its parameters, as `CREATE FUNCTION` declares them."),
        SystemColumn::text("returns", "The result, as `CREATE FUNCTION` declares it."),
        SystemColumn::text("volatility", "`IMMUTABLE`, `STABLE` or `VOLATILE`, as declared."),
        SystemColumn::text("on_null", "`STRICT` if the result is null for a null argument, otherwise `CALLED`."),
        SystemColumn::text("body", "The query that computes the result."),
    ],
    rows,
};

fn rows(state: &SystemState) -> SystemRows {
    let functions = state.snapshot.functions().filter_map(|function| {
        let (schema, name) = split_relation_name(&function.name);
        let definition = FunctionDefinition::parse(&function.definition).ok()?;
        let parameters: Vec<String> = definition.parameters.iter().map(ToString::to_string).collect();
        let on_null = if definition.is_strict { "STRICT" } else { "CALLED" };
        let volatility = definition.volatility.to_string();
        let names = [schema.into_owned(), name.into_owned(), parameters.join(", ")];
        let options = [definition.returns.to_string(), volatility, on_null.to_owned(), definition.body];
        Some(names.into_iter().chain(options).collect::<Vec<String>>())
    });
    let functions: Vec<Vec<String>> = functions.collect();
    let columns = (0..TABLE.columns.len()).map(|column| texts(functions.iter().map(|row| row.get(column).cloned())));
    Box::new(std::iter::once(Ok(columns.collect())))
}
