//! Catalogs with readable names instead of oids: `pg_tables`, `pg_views`, `pg_matviews` (always empty), `pg_indexes`
//! and `pg_sequences`.

use datafusion::common::ScalarValue;

use super::functions::definition_of_index;
use super::objects::{Objects, Relation, RelationDefinition};
use super::server::{NO_ROWS, OWNER};
use super::{CatalogRow, CatalogType, SystemCatalog, flag, optional_text, text};

pub const PG_TABLES: SystemCatalog = SystemCatalog {
    name: "pg_tables",
    columns: &[
        ("schemaname", CatalogType::Text),
        ("tablename", CatalogType::Text),
        ("tableowner", CatalogType::Text),
        ("tablespace", CatalogType::Text),
        ("hasindexes", CatalogType::Boolean),
        ("hasrules", CatalogType::Boolean),
        ("hastriggers", CatalogType::Boolean),
        ("rowsecurity", CatalogType::Boolean),
    ],
    rows: |objects| {
        each(objects, |relation| {
            let RelationDefinition::Table(table) = &relation.definition else { return None };
            let constraints = &table.constraints;
            let has_triggers = !constraints.foreign_keys.is_empty() || !constraints.referenced_by.is_empty();
            let has_indexes = !table.design.indexes.is_empty() || !constraints.keys.is_empty();
            let flags = [has_indexes, false, has_triggers, false].map(flag);
            Some([names(relation), vec![text(OWNER), ScalarValue::Null], flags.into()].concat())
        })
    },
};

pub const PG_VIEWS: SystemCatalog = SystemCatalog {
    name: "pg_views",
    columns: &[
        ("schemaname", CatalogType::Text),
        ("viewname", CatalogType::Text),
        ("viewowner", CatalogType::Text),
        ("definition", CatalogType::Text),
    ],
    rows: |objects| {
        each(objects, |relation| {
            let RelationDefinition::View(view) = &relation.definition else { return None };
            Some([names(relation), vec![text(OWNER), text(&view.sql)]].concat())
        })
    },
};

pub const PG_MATVIEWS: SystemCatalog = SystemCatalog {
    name: "pg_matviews",
    columns: &[
        ("schemaname", CatalogType::Text),
        ("matviewname", CatalogType::Text),
        ("matviewowner", CatalogType::Text),
        ("tablespace", CatalogType::Text),
        ("hasindexes", CatalogType::Boolean),
        ("ispopulated", CatalogType::Boolean),
        ("definition", CatalogType::Text),
    ],
    rows: NO_ROWS,
};

pub const PG_INDEXES: SystemCatalog = SystemCatalog {
    name: "pg_indexes",
    columns: &[
        ("schemaname", CatalogType::Text),
        ("tablename", CatalogType::Text),
        ("indexname", CatalogType::Text),
        ("tablespace", CatalogType::Text),
        ("indexdef", CatalogType::Text),
    ],
    rows: |objects| {
        each(objects, |relation| {
            let RelationDefinition::Index(index) = &relation.definition else { return None };
            let name = relation.unqualified();
            let table = taut_types::unqualified_name(&index.table.name);
            let definition = definition_of_index(&name, index);
            Some(vec![text(relation.schema()), text(table), text(name), ScalarValue::Null, text(definition)])
        })
    },
};

pub const PG_SEQUENCES: SystemCatalog = SystemCatalog {
    name: "pg_sequences",
    columns: &[
        ("schemaname", CatalogType::Text),
        ("sequencename", CatalogType::Text),
        ("sequenceowner", CatalogType::Text),
        ("data_type", CatalogType::Text),
        ("start_value", CatalogType::BigInt),
        ("min_value", CatalogType::BigInt),
        ("max_value", CatalogType::BigInt),
        ("increment_by", CatalogType::BigInt),
        ("cycle", CatalogType::Boolean),
        ("cache_size", CatalogType::BigInt),
        ("last_value", CatalogType::BigInt),
    ],
    rows: |objects| {
        each(objects, |relation| {
            let RelationDefinition::Sequence(sequence) = relation.definition else { return None };
            let number = |value: i64| ScalarValue::Int64(Some(value));
            let head = vec![text(OWNER), optional_text(Some(&sequence.logical_type.sql_name()))];
            let numbers = [sequence.start, sequence.min, sequence.max, sequence.increment].map(number);
            let last = ScalarValue::Int64(sequence.is_called.then_some(sequence.last));
            Some([names(relation), head, numbers.into(), vec![flag(sequence.cycles), number(1), last]].concat())
        })
    },
};

fn each(objects: &Objects<'_>, row: impl Fn(&Relation<'_>) -> Option<CatalogRow>) -> Vec<CatalogRow> {
    objects.relations.iter().filter_map(row).collect()
}

/// Schema and name of a relation, the first two columns of a row.
fn names(relation: &Relation<'_>) -> CatalogRow {
    vec![text(relation.schema()), text(relation.unqualified())]
}
