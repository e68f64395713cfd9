//! Relations, their columns, defaults, indexes, sequences and comments.

use datafusion::common::ScalarValue;
use taut_store::{CommentTarget, Identity, Sequence, Table};
use taut_types::{ColumnIndex, is_temporary_relation};

use super::objects::{Index, Objects, Relation, RelationDefinition, column_number};
use super::{
    CatalogRow, CatalogType, SystemCatalog, flag, integer, oid, optional_text, server, small, smalls, text, types,
};

pub const PG_CLASS: SystemCatalog = SystemCatalog {
    name: "pg_class",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("relname", CatalogType::Text),
        ("relnamespace", CatalogType::BigInt),
        ("reltype", CatalogType::BigInt),
        ("reloftype", CatalogType::BigInt),
        ("relowner", CatalogType::BigInt),
        ("relam", CatalogType::BigInt),
        ("relfilenode", CatalogType::BigInt),
        ("reltablespace", CatalogType::BigInt),
        ("relpages", CatalogType::Integer),
        ("reltuples", CatalogType::Real),
        ("reltoastrelid", CatalogType::BigInt),
        ("relhasindex", CatalogType::Boolean),
        ("relisshared", CatalogType::Boolean),
        ("relpersistence", CatalogType::Text),
        ("relkind", CatalogType::Text),
        ("relnatts", CatalogType::SmallInt),
        ("relchecks", CatalogType::SmallInt),
        ("relhasrules", CatalogType::Boolean),
        ("relhastriggers", CatalogType::Boolean),
        ("relhassubclass", CatalogType::Boolean),
        ("relrowsecurity", CatalogType::Boolean),
        ("relforcerowsecurity", CatalogType::Boolean),
        ("relispopulated", CatalogType::Boolean),
        ("relreplident", CatalogType::Text),
        ("relispartition", CatalogType::Boolean),
        ("reloptions", CatalogType::Texts),
    ],
    rows: |objects| objects.relations.iter().map(|relation| class(objects, relation)).collect(),
};

fn class(objects: &Objects<'_>, relation: &Relation<'_>) -> CatalogRow {
    let count = |count: usize| i16::try_from(count).unwrap_or(i16::MAX);
    let (mut access_method, mut rows, mut has_index, mut checks, mut has_triggers) = (0, -1.0, false, 0, false);
    let (kind, columns) = match &relation.definition {
        RelationDefinition::Table(table) => {
            let constraints = &table.constraints;
            access_method = server::TABLE_METHOD_OID;
            rows = table.rows() as f32;
            has_index = !table.design.indexes.is_empty() || !constraints.keys.is_empty();
            checks = count(constraints.checks.len());
            // PostgreSQL checks foreign keys by triggers.
            has_triggers = !constraints.foreign_keys.is_empty() || !constraints.referenced_by.is_empty();
            ("r", count(table.visible_columns().count()))
        }
        RelationDefinition::View(view) => {
            ("v", count(objects.view_columns.get(view.name.as_str()).map_or(0, |columns| columns.fields().len())))
        }
        // A sequence has the columns last_value, log_cnt and is_called in PostgreSQL.
        RelationDefinition::Sequence(_) => ("S", 3),
        RelationDefinition::Index(index) => {
            access_method = index.method.map_or(0, server::index_method_oid);
            rows = index.table.rows() as f32;
            ("i", count(index.columns.len()))
        }
    };
    vec![
        oid(relation.oid),
        text(relation.unqualified()),
        oid(objects.schema_oid(&relation.name)),
        oid(0),
        oid(0),
        oid(server::OWNER_OID),
        oid(access_method),
        oid(if kind == "v" { 0 } else { relation.oid }),
        oid(0),
        integer(0),
        ScalarValue::Float32(Some(rows)),
        oid(0),
        flag(has_index),
        flag(false),
        text(if is_temporary_relation(&relation.name) { "t" } else { "p" }),
        text(kind),
        small(columns),
        small(checks),
        // PostgreSQL expands views by rules.
        flag(kind == "v"),
        flag(has_triggers),
        flag(false),
        flag(false),
        flag(false),
        flag(true),
        text(if kind == "r" { "d" } else { "n" }),
        flag(false),
        ScalarValue::Null,
    ]
}

pub const PG_ATTRIBUTE: SystemCatalog = SystemCatalog {
    name: "pg_attribute",
    columns: &[
        ("attrelid", CatalogType::BigInt),
        ("attname", CatalogType::Text),
        ("atttypid", CatalogType::BigInt),
        ("attstattarget", CatalogType::Integer),
        ("attlen", CatalogType::SmallInt),
        ("attnum", CatalogType::SmallInt),
        ("attndims", CatalogType::Integer),
        ("attcacheoff", CatalogType::Integer),
        ("atttypmod", CatalogType::Integer),
        ("attbyval", CatalogType::Boolean),
        ("attstorage", CatalogType::Text),
        ("attnotnull", CatalogType::Boolean),
        ("atthasdef", CatalogType::Boolean),
        ("atthasmissing", CatalogType::Boolean),
        ("attidentity", CatalogType::Text),
        ("attgenerated", CatalogType::Text),
        ("attisdropped", CatalogType::Boolean),
        ("attislocal", CatalogType::Boolean),
        ("attinhcount", CatalogType::Integer),
        ("attcollation", CatalogType::BigInt),
        ("attoptions", CatalogType::Texts),
    ],
    rows: |objects| objects.relations.iter().flat_map(|relation| attributes(objects, relation)).collect(),
};

/// A column of a relation.
struct Attribute {
    name: String,
    /// Oid, byte length and modifier of its type, as [`types::of_column`] returns them.
    data_type: (i64, i16, i32),
    is_not_null: bool,
    has_default: bool,
    identity: &'static str,
    generated: &'static str,
}

impl Attribute {
    fn plain(name: impl Into<String>, data_type: (i64, i16, i32)) -> Self {
        let name = name.into();
        Self { name, data_type, is_not_null: false, has_default: false, identity: "", generated: "" }
    }

    fn of_table(table: &Table, column: ColumnIndex) -> Self {
        let constraints = &table.constraints;
        let declared = table.schema.column(column);
        let identity = match constraints.sequences.get(&column).and_then(|owned| owned.identity) {
            Some(Identity::Always) => "a",
            Some(Identity::ByDefault) => "d",
            None => "",
        };
        Self {
            is_not_null: !declared.nullable,
            has_default: stored_default(table, column).is_some(),
            identity,
            generated: if constraints.generated.contains_key(&column) { "s" } else { "" },
            ..Self::plain(declared.name.clone(), types::of_column(declared.logical_type))
        }
    }
}

fn attributes(objects: &Objects<'_>, relation: &Relation<'_>) -> Vec<CatalogRow> {
    let attributes: Vec<Attribute> = match &relation.definition {
        RelationDefinition::Table(table) => {
            table.visible_columns().map(|column| Attribute::of_table(table, column)).collect()
        }
        RelationDefinition::View(view) => {
            let columns = objects.view_columns.get(view.name.as_str());
            let columns = columns.into_iter().flat_map(|columns| columns.fields());
            columns.map(|field| Attribute::plain(field.name(), types::of_query_column(field.data_type()))).collect()
        }
        RelationDefinition::Index(index) => {
            let columns = index.columns.iter().map(|column| {
                let logical = index.table.schema.column(*column).logical_type;
                Attribute::plain(crate::constraints::shown_name(index.table, *column), types::of_column(logical))
            });
            columns.collect()
        }
        RelationDefinition::Sequence(_) => Vec::new(),
    };
    let row = |(index, attribute): (usize, Attribute)| {
        let (type_oid, bytes, modifier) = attribute.data_type;
        let is_by_value = (1..=8).contains(&bytes);
        vec![
            oid(relation.oid),
            text(attribute.name),
            oid(type_oid),
            integer(-1),
            small(bytes),
            small(i16::try_from(index + 1).unwrap_or(i16::MAX)),
            integer(0),
            integer(-1),
            integer(modifier),
            flag(is_by_value),
            text(if bytes == -1 { "x" } else { "p" }),
            flag(attribute.is_not_null),
            flag(attribute.has_default),
            flag(false),
            text(attribute.identity),
            text(attribute.generated),
            flag(false),
            flag(true),
            integer(0),
            oid(if types::is_text(type_oid) { server::COLLATION_OID } else { 0 }),
            ScalarValue::Null,
        ]
    };
    attributes.into_iter().enumerate().map(row).collect()
}

pub const PG_ATTRDEF: SystemCatalog = SystemCatalog {
    name: "pg_attrdef",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("adrelid", CatalogType::BigInt),
        ("adnum", CatalogType::SmallInt),
        ("adbin", CatalogType::Text),
    ],
    rows: |objects| {
        let of_table = |(table_oid, table): (i64, &Table)| {
            let row = |column: ColumnIndex| {
                let default = stored_default(table, column)?;
                let default_oid = objects.default_oid(table, column);
                Some(vec![oid(default_oid), oid(table_oid), small(column_number(table, column)), text(default)])
            };
            table.visible_columns().filter_map(row).collect::<Vec<_>>()
        };
        objects.tables().flat_map(of_table).collect()
    },
};

/// Returns the default of a column, or the expression of a generated column. Returns `None` for an identity column.
fn stored_default(table: &Table, column: ColumnIndex) -> Option<&str> {
    let constraints = &table.constraints;
    let is_identity = constraints.sequences.get(&column).is_some_and(|owned| owned.identity.is_some());
    let default = constraints.defaults.get(&column).filter(|_| !is_identity);
    default.or_else(|| constraints.generated.get(&column)).map(String::as_str)
}

pub const PG_INDEX: SystemCatalog = SystemCatalog {
    name: "pg_index",
    columns: &[
        ("indexrelid", CatalogType::BigInt),
        ("indrelid", CatalogType::BigInt),
        ("indnatts", CatalogType::SmallInt),
        ("indnkeyatts", CatalogType::SmallInt),
        ("indisunique", CatalogType::Boolean),
        ("indnullsnotdistinct", CatalogType::Boolean),
        ("indisprimary", CatalogType::Boolean),
        ("indisexclusion", CatalogType::Boolean),
        ("indimmediate", CatalogType::Boolean),
        ("indisclustered", CatalogType::Boolean),
        ("indisvalid", CatalogType::Boolean),
        ("indisready", CatalogType::Boolean),
        ("indislive", CatalogType::Boolean),
        ("indkey", CatalogType::SmallInts),
        ("indoption", CatalogType::SmallInts),
        ("indexprs", CatalogType::Text),
        ("indpred", CatalogType::Text),
    ],
    rows: |objects| {
        let indexes = objects.relations.iter().filter_map(|relation| match &relation.definition {
            RelationDefinition::Index(index) => Some((relation.oid, index)),
            _ => None,
        });
        indexes.map(|(index_oid, index)| index_row(objects, index_oid, index)).collect()
    },
};

fn index_row(objects: &Objects<'_>, index_oid: i64, index: &Index<'_>) -> CatalogRow {
    let count = small(i16::try_from(index.columns.len()).unwrap_or(i16::MAX));
    let numbers: Vec<i16> = index.columns.iter().map(|column| index_column_number(index.table, *column)).collect();
    let parts = index.columns.iter().zip(&numbers).filter(|(_, number)| **number == 0);
    let expressions: Vec<String> =
        parts.map(|(column, _)| crate::constraints::shown_name(index.table, *column)).collect();
    vec![
        oid(index_oid),
        oid(objects.relation_oid(&index.table.name)),
        count.clone(),
        count,
        flag(index.is_unique),
        flag(false),
        flag(index.is_primary),
        flag(false),
        flag(true),
        flag(false),
        flag(true),
        flag(true),
        flag(true),
        smalls(&numbers),
        smalls(&vec![0; numbers.len()]),
        optional_text(Some(expressions.join(", ")).as_deref().filter(|text| !text.is_empty())),
        optional_text(index.predicate),
    ]
}

/// Returns the number of the table column that a column of an index stands for; 0 for an expression. A partial index on
/// column `a` has a hidden column with the expression `a`. For this column, the function returns the number of `a`.
fn index_column_number(table: &Table, column: ColumnIndex) -> i16 {
    let shown = crate::constraints::shown_name(table, column);
    match table.visible_column(&shown) {
        Some(visible) => column_number(table, visible),
        None => column_number(table, column),
    }
}

pub const PG_SEQUENCE: SystemCatalog = SystemCatalog {
    name: "pg_sequence",
    columns: &[
        ("seqrelid", CatalogType::BigInt),
        ("seqtypid", CatalogType::BigInt),
        ("seqstart", CatalogType::BigInt),
        ("seqincrement", CatalogType::BigInt),
        ("seqmax", CatalogType::BigInt),
        ("seqmin", CatalogType::BigInt),
        ("seqcache", CatalogType::BigInt),
        ("seqcycle", CatalogType::Boolean),
    ],
    rows: |objects| {
        let row = |relation: &Relation<'_>| {
            let RelationDefinition::Sequence(sequence) = relation.definition else { return None };
            let Sequence { logical_type, start, increment, max, min, cycles, .. } = sequence;
            let number = |value: i64| ScalarValue::Int64(Some(value));
            let numbers = [*start, *increment, *max, *min, 1].map(number);
            let head = [oid(relation.oid), oid(types::of_column(*logical_type).0)];
            Some(head.into_iter().chain(numbers).chain([flag(*cycles)]).collect())
        };
        objects.relations.iter().filter_map(row).collect()
    },
};

pub const PG_DESCRIPTION: SystemCatalog = SystemCatalog {
    name: "pg_description",
    columns: &[
        ("objoid", CatalogType::BigInt),
        ("classoid", CatalogType::BigInt),
        ("objsubid", CatalogType::Integer),
        ("description", CatalogType::Text),
    ],
    rows: |objects| {
        let row = |Comment { object, class, column, text: comment }: Comment<'_>| {
            vec![oid(object), oid(class), integer(column), text(comment)]
        };
        comments(objects).map(row).collect()
    },
};

/// A comment, as system catalogs identify its object.
pub struct Comment<'a> {
    /// Oid of the object.
    pub object: i64,
    /// Oid of the catalog of the object, such as `pg_class`.
    pub class: i64,
    /// Number of the column, or 0 for the object itself.
    pub column: i32,
    pub text: &'a str,
}

/// The comments on objects that exist.
pub fn comments<'a>(objects: &'a Objects<'_>) -> impl Iterator<Item = Comment<'a>> {
    objects.catalog.comments().filter_map(|(on, text)| {
        let (object, class, column) = match on {
            CommentTarget::Schema(schema) => (*objects.schemas.get(schema)?, server::PG_NAMESPACE_OID, 0),
            CommentTarget::Function(function) => (objects.function_oid(function), server::PG_PROC_OID, 0),
            on => {
                let (name, column) = commented(objects, on)?;
                (objects.relation_oid(&name), server::PG_CLASS_OID, column)
            }
        };
        Some(Comment { object, class, column, text })
    })
}

/// Returns the name of a commented relation, and the number of the commented column or 0. Returns `None` if the object
/// does not exist or is no relation.
fn commented(objects: &Objects<'_>, on: &CommentTarget) -> Option<(String, i32)> {
    let catalog = objects.catalog;
    Some(match on {
        CommentTarget::Table(table) => (catalog.table_of(*table)?.name.clone(), 0),
        CommentTarget::Column(table, column) => {
            let table = catalog.table_of(*table)?;
            (table.name.clone(), column_number(table, *column).into())
        }
        CommentTarget::View(view) => (view.clone(), 0),
        CommentTarget::ViewColumn(view, column) => {
            let columns = objects.view_columns.get(view.as_str())?;
            (view.clone(), i32::try_from(columns.index_of(column).ok()? + 1).ok()?)
        }
        CommentTarget::Sequence(sequence) => (catalog.sequence_of(*sequence)?.name.clone(), 0),
        CommentTarget::Schema(_) | CommentTarget::Function(_) => return None,
    })
}
