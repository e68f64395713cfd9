//! `taut.table_options`: one row for each option of a table's design, and for each option of `CREATE TABLE ... AS` that
//! is not part of the design.

use taut_types::{TableDesign, TableOption};

use super::super::STATEMENT_OPTIONS;
use super::{SystemColumn, SystemRows, SystemState, SystemTable, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "table_options",
    description: "The options of `CREATE TABLE ... WITH (...)` and, except for `implicit_sort`, of \
                  `ALTER TABLE ... SET (...)`.",
    columns: &[
        SystemColumn::text("name", "Name of the option."),
        SystemColumn::text("allowed", "Allowed values."),
        SystemColumn::text("default", "Default value; empty for an empty list."),
        SystemColumn::text("description", "Meaning of the option."),
    ],
    rows,
};

fn rows(_: &SystemState) -> SystemRows {
    let all = || TableDesign::OPTIONS.into_iter().chain(STATEMENT_OPTIONS);
    let column = |of: fn(TableOption) -> &'static str| texts(all().map(|option| Some(of(option).to_owned())));
    let columns = vec![
        column(|option| option.name),
        column(|option| option.values),
        column(|option| option.default),
        column(|option| option.description),
    ];
    Box::new(std::iter::once(Ok(columns)))
}
