//! `taut.constraints`: one row for each constraint and each default.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use taut_store::{Catalog, ReferentialAction, Table};
use taut_types::{ColumnIndex, Schema, quote_identifier};

use super::{SystemColumn, SystemState, SystemTable, each_table, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "constraints",
    description: "The constraints and defaults of each table.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table."),
        SystemColumn::text("constraint_name", "Name of the constraint; null for `NOT NULL` and defaults."),
        SystemColumn::text(
            "constraint_type",
            "`PRIMARY KEY`, `UNIQUE`, `FOREIGN KEY`, `CHECK`, `NOT NULL` or `DEFAULT`.",
        ),
        SystemColumn::text("columns", "Columns of the constraint, separated by commas; null for checks."),
        SystemColumn::text("definition", "The constraint, as in `CREATE TABLE`."),
    ],
    rows: |state: &SystemState| {
        let catalog = Arc::clone(&state.snapshot);
        each_table(state, move |table| Ok(rows(table, &catalog)))
    },
};

/// One row of the table.
struct ConstraintRow {
    name: Option<String>,
    kind: &'static str,
    columns: String,
    definition: String,
}

fn rows(table: &Table, catalog: &Catalog) -> Vec<ArrayRef> {
    let constraints = &table.constraints;
    let keys = constraints.keys.iter().filter(|key| !key.is_index).map(|key| {
        let kind = if key.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
        let columns = names(&table.schema, &key.columns);
        ConstraintRow {
            name: Some(key.name.clone()),
            kind,
            definition: format!("{kind} ({})", quoted_names(&table.schema, &key.columns)),
            columns,
        }
    });
    let foreign = constraints.foreign_keys.iter().map(|key| {
        let columns = names(&table.schema, &key.columns);
        let parent = catalog.table_of(key.table);
        let referenced = parent.map(|parent| {
            format!("{} ({})", quote_identifier(&parent.name), quoted_names(&parent.schema, &key.referenced))
        });
        let action = match key.on_delete {
            ReferentialAction::NoAction => "",
            ReferentialAction::Cascade => " ON DELETE CASCADE",
            ReferentialAction::SetNull => " ON DELETE SET NULL",
        };
        let (own, referenced) = (quoted_names(&table.schema, &key.columns), referenced.unwrap_or_default());
        let definition = format!("FOREIGN KEY ({own}) REFERENCES {referenced}{action}");
        ConstraintRow { name: Some(key.name.clone()), kind: "FOREIGN KEY", columns, definition }
    });
    let checks = constraints.checks.iter().map(|check| ConstraintRow {
        name: Some(check.name.clone()),
        kind: "CHECK",
        columns: String::new(),
        definition: format!("CHECK ({})", check.condition),
    });
    let not_null = table.schema.columns().iter().filter(|column| !column.nullable).map(|column| ConstraintRow {
        name: None,
        kind: "NOT NULL",
        columns: column.name.clone(),
        definition: "NOT NULL".to_owned(),
    });
    let defaults = constraints.defaults.iter().map(|(column, value)| ConstraintRow {
        name: None,
        kind: "DEFAULT",
        columns: names(&table.schema, &[*column]),
        definition: format!("DEFAULT {value}"),
    });
    let rows: Vec<ConstraintRow> = keys.chain(foreign).chain(checks).chain(not_null).chain(defaults).collect();
    vec![
        texts(rows.iter().map(|_| Some(table.name.clone()))),
        texts(rows.iter().map(|row| row.name.clone())),
        texts(rows.iter().map(|row| Some(row.kind.to_owned()))),
        texts(rows.iter().map(|row| Some(row.columns.clone()).filter(|columns| !columns.is_empty()))),
        texts(rows.iter().map(|row| Some(row.definition.clone()))),
    ]
}

fn names(schema: &Schema, columns: &[ColumnIndex]) -> String {
    columns.iter().map(|column| schema.column(*column).name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Names of columns, quoted as in SQL.
fn quoted_names(schema: &Schema, columns: &[ColumnIndex]) -> String {
    columns.iter().map(|column| quote_identifier(&schema.column(*column).name)).collect::<Vec<_>>().join(", ")
}
