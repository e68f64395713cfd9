//! Hidden relations that functions on oids read. A call such as `pg_get_constraintdef(x)` is rewritten to a subquery on
//! one of them. Names such as `taut object` avoid clashes with the columns of the statement.

use taut_types::quote_identifier;

use super::objects::{Index, Objects, RelationDefinition};
use super::{CatalogRow, CatalogType, SystemCatalog, flag, integer, oid, text};
use crate::constraints::{check_definition, foreign_key_definition, index_definition, key_definition};

/// The definition of each constraint, index and view.
pub const DEFINITIONS: SystemCatalog = SystemCatalog {
    name: taut_sql::OBJECT_DEFINITIONS,
    columns: &[
        ("taut object", CatalogType::BigInt),
        ("taut kind", CatalogType::Text),
        ("taut definition", CatalogType::Text),
    ],
    rows: |objects| {
        let row = |object: i64, kind: &str, definition: String| vec![oid(object), text(kind), text(definition)];
        let mut rows: Vec<CatalogRow> = Vec::new();
        for relation in &objects.relations {
            match &relation.definition {
                RelationDefinition::View(view) => rows.push(row(relation.oid, "view", view.sql.clone())),
                RelationDefinition::Index(index) => {
                    rows.push(row(relation.oid, "index", definition_of_index(&relation.unqualified(), index)));
                }
                RelationDefinition::Table(_) | RelationDefinition::Sequence(_) => {}
            }
        }
        for (_, table) in objects.tables() {
            let constraints = &table.constraints;
            let mut add = |name: &str, definition: String| {
                rows.push(row(objects.constraint_oid(table, name), "constraint", definition));
            };
            constraints
                .keys
                .iter()
                .filter(|key| !key.is_index)
                .for_each(|key| add(&key.name, key_definition(table, key)));
            for key in &constraints.foreign_keys {
                add(&key.name, foreign_key_definition(table, key, objects.catalog));
            }
            constraints.checks.iter().for_each(|check| add(&check.name, check_definition(check)));
        }
        rows
    },
};

/// The comment on each relation, with column number 0, and on each column, with its number.
pub const COMMENTS: SystemCatalog = SystemCatalog {
    name: taut_sql::OBJECT_COMMENTS,
    columns: &[
        ("taut object", CatalogType::BigInt),
        ("taut column", CatalogType::Integer),
        ("taut comment", CatalogType::Text),
    ],
    rows: |objects| {
        let comments = super::relations::comments(objects);
        comments.map(|comment| vec![oid(comment.object), integer(comment.column), text(comment.text)]).collect()
    },
};

/// The names by which a statement can refer to each relation: with its schema and, if the search path finds the
/// relation, without it.
pub const NAMES: SystemCatalog = SystemCatalog {
    name: taut_sql::OBJECT_NAMES,
    columns: &[
        ("taut object", CatalogType::BigInt),
        ("taut name", CatalogType::Text),
        ("taut is visible", CatalogType::Boolean),
        ("taut shortest name", CatalogType::Text),
    ],
    rows: |objects: &Objects<'_>| {
        let mut rows = Vec::new();
        for relation in &objects.relations {
            let (schema, name) = (relation.schema(), relation.unqualified());
            let (schema, name) = (quote_identifier(&schema), quote_identifier(&name));
            let is_visible = objects.is_visible(relation);
            let qualified = format!("{schema}.{name}");
            let shortest_name = if is_visible { &name } else { &qualified };
            let mut add = |text_of_name: &str| {
                rows.push(vec![oid(relation.oid), text(text_of_name), flag(is_visible), text(shortest_name)]);
            };
            add(&qualified);
            if is_visible {
                add(&name);
            }
        }
        rows
    },
};

/// `CREATE INDEX` for an index.
pub fn definition_of_index(name: &str, index: &Index<'_>) -> String {
    index_definition(index.table, name, index.method, index.columns, index.is_unique, index.predicate)
}
