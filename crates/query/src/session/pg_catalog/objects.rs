//! The relations and functions of a snapshot, each with an oid.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use taut_sql::INFORMATION_SCHEMA;
use taut_store::{Catalog, Sequence, Table, View};
use taut_types::{ColumnIndex, PUBLIC_SCHEMA, sibling_name, split_relation_name};

use crate::session::catalog::StatementCatalog;
use crate::session::search_path::SearchPath;
use crate::session::settings::SettingValues;

/// Oid of the schema `pg_catalog`, as in PostgreSQL.
pub const PG_CATALOG_OID: i64 = 11;
/// Oid of the schema `public`, as in PostgreSQL.
const PUBLIC_OID: i64 = 2200;
/// The first oid that PostgreSQL assigns to objects of users.
const FIRST_OID: i64 = 16_384;
/// Number of oids for objects of users. Only the lower half of the 32-bit range is used, so every oid fits in an SQL
/// `integer`.
const OIDS: i64 = i32::MAX as i64 - FIRST_OID;

/// The relations of a snapshot, and the state of the session that system catalogs show.
pub struct Objects<'a> {
    pub catalog: &'a Catalog,
    pub search_path: &'a SearchPath,
    pub settings: &'a SettingValues,
    /// The schemas, with their oids.
    pub schemas: BTreeMap<String, i64>,
    /// Tables, views, sequences and indexes.
    pub relations: Vec<Relation<'a>>,
    /// Columns of the views that can be planned.
    pub view_columns: HashMap<&'a str, SchemaRef>,
    oids: HashMap<String, i64>,
}

/// A table, view, sequence or index.
pub struct Relation<'a> {
    pub oid: i64,
    /// Name, with the schema unless that is `public`.
    pub name: String,
    pub definition: RelationDefinition<'a>,
}

pub enum RelationDefinition<'a> {
    Table(&'a Table),
    View(&'a View),
    Sequence(&'a Sequence),
    Index(Index<'a>),
}

/// An index, or the index that PostgreSQL would have for a key.
pub struct Index<'a> {
    pub table: &'a Table,
    pub columns: &'a [ColumnIndex],
    /// Access method, such as `csb`. `None` for a key that has no index.
    pub method: Option<&'static str>,
    pub is_unique: bool,
    pub is_primary: bool,
    /// Condition of a partial index.
    pub predicate: Option<&'a str>,
}

impl Relation<'_> {
    /// The name without its schema.
    pub fn unqualified(&self) -> String {
        split_relation_name(&self.name).1.into_owned()
    }

    /// The schema.
    pub fn schema(&self) -> String {
        split_relation_name(&self.name).0.into_owned()
    }
}

impl<'a> Objects<'a> {
    /// Collects the relations that a statement can read, and assigns their oids.
    pub async fn of(statement: &'a StatementCatalog) -> Self {
        let catalog: &Catalog = &statement.snapshot;
        let mut view_columns = HashMap::new();
        for view in catalog.views() {
            if let Some(columns) = statement.columns_of_view(&view.name).await {
                view_columns.insert(view.name.as_str(), columns);
            }
        }
        let mut oids = Oids::default();
        let mut schemas = BTreeMap::from([(super::SCHEMA.to_owned(), PG_CATALOG_OID)]);
        for schema in catalog.schemas().chain([INFORMATION_SCHEMA]) {
            let known = (schema == PUBLIC_SCHEMA).then_some(PUBLIC_OID);
            schemas.insert(schema.to_owned(), known.unwrap_or_else(|| oids.add(format!("schema\0{schema}"))));
        }
        let mut relations = Vec::new();
        let mut add = |name: String, key: String, definition| {
            relations.push(Relation { oid: oids.add(key), name, definition });
        };
        let mut tables: Vec<&Arc<Table>> = catalog.tables().collect();
        tables.sort_by_key(|table| &table.name);
        for table in tables {
            add(table.name.clone(), relation_key(&table.name), RelationDefinition::Table(table));
            for (name, index) in indexes(table) {
                add(sibling_name(&table.name, name), index_key(table, name), RelationDefinition::Index(index));
            }
        }
        for view in catalog.views() {
            add(view.name.clone(), relation_key(&view.name), RelationDefinition::View(view));
        }
        for sequence in catalog.sequences() {
            add(sequence.name.clone(), relation_key(&sequence.name), RelationDefinition::Sequence(sequence));
        }
        for table in catalog.tables() {
            for name in table.constraints.names() {
                oids.add(constraint_key(table, name));
            }
            for column in table.visible_columns() {
                oids.add(default_key(table, column));
            }
        }
        for function in catalog.functions() {
            oids.add(function_key(&function.name));
        }
        let (search_path, settings) = (&statement.search_path, statement.settings.as_ref());
        Self { catalog, search_path, settings, schemas, relations, view_columns, oids: oids.known }
    }

    /// Returns the oid of the object with a key such as `relation\0t`, or 0 if there is none.
    fn oid(&self, key: &str) -> i64 {
        self.oids.get(key).copied().unwrap_or_default()
    }

    /// Oid of a table, view or sequence, or 0 if there is none.
    pub fn relation_oid(&self, name: &str) -> i64 {
        self.oid(&relation_key(name))
    }

    /// Oid of a function, or 0 if there is none.
    pub fn function_oid(&self, name: &str) -> i64 {
        self.oid(&function_key(name))
    }

    /// Oid of an index of a table, or 0 if there is none.
    pub fn index_oid(&self, table: &Table, name: &str) -> i64 {
        self.oid(&index_key(table, name))
    }

    /// Oid of a constraint of a table, or 0 if there is none.
    pub fn constraint_oid(&self, table: &Table, name: &str) -> i64 {
        self.oid(&constraint_key(table, name))
    }

    /// Oid of the default of a column, or 0 for a hidden column.
    pub fn default_oid(&self, table: &Table, column: ColumnIndex) -> i64 {
        self.oid(&default_key(table, column))
    }

    /// Oid of the schema of a relation.
    pub fn schema_oid(&self, relation: &str) -> i64 {
        self.schemas.get(split_relation_name(relation).0.as_ref()).copied().unwrap_or_default()
    }

    /// Whether the search path finds this relation by its name without a schema.
    pub fn is_visible(&self, relation: &Relation<'_>) -> bool {
        let name = relation.unqualified();
        let mut candidates = self.search_path.candidates(self.catalog, &name);
        candidates.find(|candidate| !self.catalog.is_name_free(candidate)).as_ref() == Some(&relation.name)
    }

    /// The tables, with their oids.
    pub fn tables(&self) -> impl Iterator<Item = (i64, &'a Table)> {
        self.relations.iter().filter_map(|relation| match relation.definition {
            RelationDefinition::Table(table) => Some((relation.oid, table)),
            _ => None,
        })
    }
}

/// Number of a column in system catalogs, from 1. Returns 0 for a hidden column, which stores an index expression.
pub fn column_number(table: &Table, column: ColumnIndex) -> i16 {
    let index = table.visible_columns().position(|visible| visible == column);
    index.and_then(|index| i16::try_from(index + 1).ok()).unwrap_or(0)
}

/// The indexes of a table, and the keys that have no index.
fn indexes(table: &Table) -> impl Iterator<Item = (&str, Index<'_>)> {
    let keys = &table.constraints.keys;
    let designs = table.design.indexes.iter().map(move |design| {
        let key = keys.iter().find(|key| key.name == design.name);
        let parts = design.columns.iter().filter_map(|column| table.constraints.index_columns.get(column));
        let index = Index {
            table,
            columns: key.map_or(&design.columns, |key| &key.columns),
            method: Some(design.kind.name()),
            is_unique: key.is_some(),
            is_primary: key.is_some_and(|key| key.is_primary),
            predicate: parts.filter_map(|part| part.predicate.as_deref()).next(),
        };
        (design.name.as_str(), index)
    });
    // A key is plain if it has no index.
    let is_plain = |name: &str| !table.design.indexes.iter().any(|design| design.name == name);
    let others = keys.iter().filter(move |key| is_plain(&key.name)).map(move |key| {
        let (columns, is_primary) = (&key.columns, key.is_primary);
        let index = Index { table, columns, method: None, is_unique: true, is_primary, predicate: None };
        (key.name.as_str(), index)
    });
    designs.chain(others)
}

fn relation_key(name: &str) -> String {
    format!("relation\0{name}")
}

fn function_key(name: &str) -> String {
    format!("function\0{name}")
}

fn index_key(table: &Table, name: &str) -> String {
    format!("index\0{name}\0{}", table.name)
}

fn constraint_key(table: &Table, name: &str) -> String {
    format!("constraint\0{name}\0{}", table.name)
}

fn default_key(table: &Table, column: ColumnIndex) -> String {
    format!("default\0{}\0{}", table.schema.column(column).name, table.name)
}

/// Assigns distinct oids to keys such as `relation\0t`. An oid is derived from the hash of its key. If it is taken, the
/// key gets the next free oid.
#[derive(Default)]
struct Oids {
    known: HashMap<String, i64>,
    used: HashSet<i64>,
}

impl Oids {
    fn add(&mut self, key: String) -> i64 {
        let mut offset = hash(&key) % OIDS;
        while !self.used.insert(offset) {
            offset = (offset + 1) % OIDS;
        }
        self.known.insert(key, FIRST_OID + offset);
        FIRST_OID + offset
    }
}

/// The hash FNV-1a, folded to 31 bits. Unlike the hashes of the standard library, it never changes.
fn hash(key: &str) -> i64 {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    i64::from(((hash >> 32) ^ hash) as u32 >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in PostgreSQL, objects of users have oids from [`FIRST_OID`] on.
    #[test]
    fn oids_are_distinct_and_those_of_users() {
        let mut oids = Oids::default();
        let added: HashSet<i64> = (0..100_000).map(|number| oids.add(format!("relation t{number}"))).collect();
        assert_eq!(added.len(), 100_000);
        assert!(added.iter().all(|oid| (FIRST_OID..=i64::from(i32::MAX)).contains(oid)));
        assert_eq!(hash("relation t"), hash("relation t"));
    }
}
