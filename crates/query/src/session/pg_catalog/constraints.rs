//! `pg_constraint`: keys, foreign keys and checks.

use datafusion::common::ScalarValue;
use taut_store::{ReferentialAction, Table};
use taut_types::ColumnIndex;

use super::objects::{Objects, column_number};
use super::{CatalogRow, CatalogType, SystemCatalog, flag, integer, oid, optional_text, smalls, text};
use crate::session::information_schema::referenced_key;

pub const PG_CONSTRAINT: SystemCatalog = SystemCatalog {
    name: "pg_constraint",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("conname", CatalogType::Text),
        ("connamespace", CatalogType::BigInt),
        ("contype", CatalogType::Text),
        ("condeferrable", CatalogType::Boolean),
        ("condeferred", CatalogType::Boolean),
        ("convalidated", CatalogType::Boolean),
        ("conrelid", CatalogType::BigInt),
        ("contypid", CatalogType::BigInt),
        ("conindid", CatalogType::BigInt),
        ("conparentid", CatalogType::BigInt),
        ("confrelid", CatalogType::BigInt),
        ("confupdtype", CatalogType::Text),
        ("confdeltype", CatalogType::Text),
        ("confmatchtype", CatalogType::Text),
        ("conislocal", CatalogType::Boolean),
        ("coninhcount", CatalogType::Integer),
        ("connoinherit", CatalogType::Boolean),
        ("conkey", CatalogType::SmallInts),
        ("confkey", CatalogType::SmallInts),
        ("conbin", CatalogType::Text),
    ],
    rows: |objects| objects.tables().flat_map(|(table_oid, table)| rows(objects, table_oid, table)).collect(),
};

/// Fields that differ between the kinds of constraints.
struct Constraint<'a> {
    name: &'a str,
    kind: &'static str,
    columns: ScalarValue,
    index: i64,
    /// The table and the columns that a foreign key references.
    references: Option<(i64, ScalarValue)>,
    on_delete: &'static str,
    condition: Option<&'a str>,
}

fn rows(objects: &Objects<'_>, table_oid: i64, table: &Table) -> Vec<CatalogRow> {
    let constraints = &table.constraints;
    let keys = constraints.keys.iter().filter(|key| !key.is_index).map(|key| Constraint {
        name: &key.name,
        kind: if key.is_primary { "p" } else { "u" },
        columns: numbers(table, &key.columns),
        index: objects.index_oid(table, &key.name),
        references: None,
        on_delete: " ",
        condition: None,
    });
    let foreign = constraints.foreign_keys.iter().map(|key| {
        let parent = objects.catalog.table_of(key.table);
        let references = parent.map(|parent| {
            let index = referenced_key(&parent.constraints, &key.referenced);
            let index = index.map_or(0, |key| objects.index_oid(parent, &key.name));
            (objects.relation_oid(&parent.name), numbers(parent, &key.referenced), index)
        });
        Constraint {
            name: &key.name,
            kind: "f",
            columns: numbers(table, &key.columns),
            index: references.as_ref().map_or(0, |(.., index)| *index),
            references: references.map(|(parent, columns, _)| (parent, columns)),
            on_delete: match key.on_delete {
                ReferentialAction::NoAction => "a",
                ReferentialAction::Cascade => "c",
                ReferentialAction::SetNull => "n",
            },
            condition: None,
        }
    });
    let checks = constraints.checks.iter().map(|check| Constraint {
        name: &check.name,
        kind: "c",
        columns: ScalarValue::Null,
        index: 0,
        references: None,
        on_delete: " ",
        condition: Some(&check.condition),
    });
    let row = |constraint: Constraint<'_>| {
        let is_foreign = constraint.kind == "f";
        let (parent, referenced) = constraint.references.unwrap_or((0, ScalarValue::Null));
        vec![
            oid(objects.constraint_oid(table, constraint.name)),
            text(constraint.name),
            oid(objects.schema_oid(&table.name)),
            text(constraint.kind),
            flag(false),
            flag(false),
            flag(true),
            oid(table_oid),
            oid(0),
            oid(constraint.index),
            oid(0),
            oid(parent),
            text(if is_foreign { "a" } else { " " }),
            text(constraint.on_delete),
            text(if is_foreign { "s" } else { " " }),
            flag(true),
            integer(0),
            // PostgreSQL passes checks on to tables that inherit from this one, but no other constraints.
            flag(constraint.kind != "c"),
            constraint.columns,
            referenced,
            optional_text(constraint.condition),
        ]
    };
    keys.chain(foreign).chain(checks).map(row).collect()
}

fn numbers(table: &Table, columns: &[ColumnIndex]) -> ScalarValue {
    let numbers: Vec<i16> = columns.iter().map(|column| column_number(table, *column)).collect();
    smalls(&numbers)
}
