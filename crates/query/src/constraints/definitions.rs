//! Text of constraints and indexes, as `CREATE TABLE` and `CREATE INDEX` write them.

use taut_store::{Catalog, Check, ForeignKey, ReferentialAction, Table, UniqueKey};
use taut_types::{ColumnIndex, Schema, quote_identifier, relation_sql};

use super::shown_name;

/// Returns the definition of a key, such as `PRIMARY KEY (a, b)` or `UNIQUE (a, b)`.
pub fn key_definition(table: &Table, key: &UniqueKey) -> String {
    let kind = if key.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{kind} ({})", column_names(&table.schema, &key.columns))
}

/// Returns the definition of a foreign key, such as `FOREIGN KEY (a) REFERENCES t(b) ON DELETE CASCADE`.
pub fn foreign_key_definition(table: &Table, key: &ForeignKey, catalog: &Catalog) -> String {
    let referenced = catalog
        .table_of(key.table)
        .map(|parent| format!("{}({})", relation_sql(&parent.name), column_names(&parent.schema, &key.referenced)));
    let action = match key.on_delete {
        ReferentialAction::NoAction => "",
        ReferentialAction::Cascade => " ON DELETE CASCADE",
        ReferentialAction::SetNull => " ON DELETE SET NULL",
    };
    let columns = column_names(&table.schema, &key.columns);
    format!("FOREIGN KEY ({columns}) REFERENCES {}{action}", referenced.unwrap_or_default())
}

/// Returns the definition of a check constraint, such as `CHECK (a > 0)`.
pub fn check_definition(check: &Check) -> String {
    format!("CHECK ({})", check.condition)
}

/// Returns the definition of an index, such as `CREATE UNIQUE INDEX i ON t USING csb (a, lower(b)) WHERE c`. `method`
/// is `None` for keys.
pub fn index_definition(
    table: &Table,
    name: &str,
    method: Option<&str>,
    columns: &[ColumnIndex],
    is_unique: bool,
    predicate: Option<&str>,
) -> String {
    let unique = if is_unique { "UNIQUE " } else { "" };
    let method = method.map(|method| format!("USING {method} ")).unwrap_or_default();
    let part = |column: &ColumnIndex| match table.constraints.is_hidden(*column) {
        true => shown_name(table, *column),
        false => quote_identifier(&table.schema.column(*column).name),
    };
    let parts = columns.iter().map(part).collect::<Vec<_>>().join(", ");
    let predicate = predicate.map(|predicate| format!(" WHERE ({predicate})")).unwrap_or_default();
    let (name, table) = (quote_identifier(name), relation_sql(&table.name));
    format!("CREATE {unique}INDEX {name} ON {table} {method}({parts}){predicate}")
}

/// Names of columns, quoted as in SQL.
fn column_names(schema: &Schema, columns: &[ColumnIndex]) -> String {
    columns.iter().map(|column| quote_identifier(&schema.column(*column).name)).collect::<Vec<_>>().join(", ")
}
