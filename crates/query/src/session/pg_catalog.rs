//! The schema `pg_catalog`: the system catalogs of PostgreSQL from which programs read the tables, columns, constraints
//! and indexes of a database.
//!
//! ```text
//!   objects.rs       the relations of a snapshot, each with an oid
//!   relations.rs     pg_class, pg_attribute, pg_attrdef, pg_index, pg_sequence, pg_description
//!   constraints.rs   pg_constraint
//!   types.rs         pg_type
//!   lists.rs         pg_tables, pg_views, pg_indexes, pg_sequences
//!   server.rs        pg_namespace, pg_database, pg_roles, pg_am, pg_proc, pg_settings, and catalogs without rows
//!   functions.rs     relations that pg_get_constraintdef, to_regclass and similar functions read
//! ```
//!
//! The catalogs describe the relations of the user. An oid is a hash of the name of its object. Unless hashes collide,
//! it is the same in every session, and stays the same until the object is renamed.

mod constraints;
mod functions;
mod lists;
mod objects;
mod relations;
mod server;
mod types;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::MemTable;

use self::objects::Objects;
use super::catalog::StatementCatalog;

/// Name of the schema `pg_catalog`.
const SCHEMA: &str = taut_sql::PG_CATALOG;

/// Declaration of a system catalog.
pub struct SystemCatalog {
    /// Name in schema `pg_catalog`.
    pub name: &'static str,
    /// Names and types of its columns. Columns of PostgreSQL that have no meaning in Taut are omitted.
    columns: &'static [(&'static str, CatalogType)],
    rows: fn(&Objects<'_>) -> Vec<CatalogRow>,
}

impl SystemCatalog {
    /// All system catalogs.
    pub const ALL: [Self; 29] = [
        relations::PG_CLASS,
        relations::PG_ATTRIBUTE,
        relations::PG_ATTRDEF,
        relations::PG_INDEX,
        relations::PG_SEQUENCE,
        relations::PG_DESCRIPTION,
        constraints::PG_CONSTRAINT,
        types::PG_TYPE,
        lists::PG_TABLES,
        lists::PG_VIEWS,
        lists::PG_INDEXES,
        lists::PG_SEQUENCES,
        lists::PG_MATVIEWS,
        server::PG_NAMESPACE,
        server::PG_DATABASE,
        server::PG_ROLES,
        server::PG_USER,
        server::PG_AM,
        server::PG_PROC,
        server::PG_SETTINGS,
        server::PG_COLLATION,
        server::PG_DEPEND,
        server::PG_ENUM,
        server::PG_EXTENSION,
        server::PG_INHERITS,
        server::PG_TRIGGER,
        functions::DEFINITIONS,
        functions::NAMES,
        functions::COMMENTS,
    ];

    /// Whether the catalog is listed for users. Only functions read the other catalogs.
    pub fn is_listed(&self) -> bool {
        self.name.starts_with("pg_")
    }

    /// Names and SQL types of the columns.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns.iter().map(|(name, kind)| (*name, kind.sql_type()))
    }

    fn batch(&self, objects: &Objects<'_>) -> Result<RecordBatch> {
        let rows = (self.rows)(objects);
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (index, (name, kind)) in self.columns.iter().enumerate() {
            fields.push(Field::new(*name, kind.arrow(), true));
            arrays.push(kind.array(rows.iter().map(|row| &row[index]))?);
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }
}

/// SQL type of a column of a system catalog.
#[derive(Clone, Copy)]
enum CatalogType {
    Boolean,
    SmallInt,
    Integer,
    /// A bigint or an oid.
    BigInt,
    Real,
    Text,
    /// An array of smallint.
    SmallInts,
    /// An array of text.
    Texts,
}

impl CatalogType {
    fn arrow(self) -> DataType {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        match self {
            Self::Boolean => DataType::Boolean,
            Self::SmallInt => DataType::Int16,
            Self::Integer => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Text => DataType::Utf8,
            Self::SmallInts => list(DataType::Int16),
            Self::Texts => list(DataType::Utf8),
        }
    }

    fn sql_type(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
            Self::Real => "real",
            Self::Text => "text",
            Self::SmallInts => "smallint[]",
            Self::Texts => "text[]",
        }
    }

    fn array<'a>(self, values: impl Iterator<Item = &'a ScalarValue>) -> Result<ArrayRef> {
        let null = ScalarValue::try_from(&self.arrow())?;
        let typed = |value: &ScalarValue| if value.is_null() { null.clone() } else { value.clone() };
        let values: Vec<ScalarValue> = values.map(typed).collect();
        match values.is_empty() {
            true => Ok(new_empty_array(&self.arrow())),
            false => ScalarValue::iter_to_array(values),
        }
    }
}

/// The values of a row, one for each column. `ScalarValue::Null` is a null of any type.
type CatalogRow = Vec<ScalarValue>;

fn oid(value: i64) -> ScalarValue {
    ScalarValue::Int64(Some(value))
}

fn text(value: impl Into<String>) -> ScalarValue {
    ScalarValue::Utf8(Some(value.into()))
}

fn optional_text(value: Option<&str>) -> ScalarValue {
    ScalarValue::Utf8(value.map(str::to_owned))
}

fn flag(value: bool) -> ScalarValue {
    ScalarValue::Boolean(Some(value))
}

fn small(value: i16) -> ScalarValue {
    ScalarValue::Int16(Some(value))
}

fn integer(value: i32) -> ScalarValue {
    ScalarValue::Int32(Some(value))
}

fn smalls(values: &[i16]) -> ScalarValue {
    let values: Vec<ScalarValue> = values.iter().map(|value| small(*value)).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Int16))
}

fn text_list(values: &[String]) -> ScalarValue {
    let values: Vec<ScalarValue> = values.iter().map(text).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8))
}

/// The schema `pg_catalog`, with the relations that one statement can read.
pub struct PgCatalog(StatementCatalog);

impl PgCatalog {
    pub fn new(catalog: &StatementCatalog) -> Self {
        Self(catalog.clone())
    }
}

impl Debug for PgCatalog {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("PgCatalog")
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        SystemCatalog::ALL.iter().filter(|table| table.is_listed()).map(|table| table.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = SystemCatalog::ALL.into_iter().find(|table| table.name == name) else { return Ok(None) };
        let batch = table.batch(&Objects::of(&self.0).await)?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        SystemCatalog::ALL.iter().any(|table| table.name == name)
    }
}
