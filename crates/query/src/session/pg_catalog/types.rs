//! `pg_type`: the types of columns of tables, queries and system catalogs, with the oids that PostgreSQL assigns.

use datafusion::arrow::datatypes::DataType;
use taut_types::LogicalType;

use crate::expressions::{PgType, TYPES, find_type};

use super::objects::PG_CATALOG_OID;
use super::{CatalogType, SystemCatalog, flag, integer, oid, small, text};

pub const PG_TYPE: SystemCatalog = SystemCatalog {
    name: "pg_type",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("typname", CatalogType::Text),
        ("typnamespace", CatalogType::BigInt),
        ("typowner", CatalogType::BigInt),
        ("typlen", CatalogType::SmallInt),
        ("typbyval", CatalogType::Boolean),
        ("typtype", CatalogType::Text),
        ("typcategory", CatalogType::Text),
        ("typispreferred", CatalogType::Boolean),
        ("typisdefined", CatalogType::Boolean),
        ("typdelim", CatalogType::Text),
        ("typrelid", CatalogType::BigInt),
        ("typelem", CatalogType::BigInt),
        ("typarray", CatalogType::BigInt),
        ("typnotnull", CatalogType::Boolean),
        ("typbasetype", CatalogType::BigInt),
        ("typtypmod", CatalogType::Integer),
        ("typndims", CatalogType::Integer),
        ("typcollation", CatalogType::BigInt),
    ],
    rows: |_| {
        let row = |type_oid: i64, name: String, bytes: i16, category: &str, element: i64, array: i64| {
            let is_preferred = ["bool", "text", "oid", "float8", "timestamptz", "interval"].contains(&name.as_str());
            let kind = if name == "unknown" { "p" } else { "b" };
            vec![
                oid(type_oid),
                text(name),
                oid(PG_CATALOG_OID),
                oid(super::server::OWNER_OID),
                small(bytes),
                flag((1..=8).contains(&bytes)),
                text(kind),
                text(category),
                flag(is_preferred),
                flag(true),
                text(","),
                oid(0),
                oid(element),
                oid(array),
                flag(false),
                oid(0),
                integer(-1),
                integer(0),
                oid(if category == "S" { super::server::COLLATION_OID } else { 0 }),
            ]
        };
        let of_array = |item: &PgType| row(item.array, format!("_{}", item.name), -1, "A", item.oid, 0);
        let items = TYPES.iter().map(|item| row(item.oid, item.name.into(), item.bytes, item.category, 0, item.array));
        items.chain(TYPES.iter().filter(|item| item.array != 0).map(of_array)).collect()
    },
};

/// Returns the oid, the byte length of a value and the modifier of the type of a table column. As in PostgreSQL, the
/// length is -1 if it varies, and the modifier is -1 if there is none.
pub fn of_column(logical: LogicalType) -> (i64, i16, i32) {
    let (name, modifier) = match logical {
        LogicalType::Boolean => ("bool", -1),
        LogicalType::SmallInt => ("int2", -1),
        LogicalType::Integer => ("int4", -1),
        LogicalType::BigInt => ("int8", -1),
        LogicalType::Real => ("float4", -1),
        LogicalType::Double => ("float8", -1),
        // PostgreSQL's modifier: the precision in the upper 16 bits, the scale in the lower 16 bits, plus 4.
        LogicalType::Decimal { precision, scale } => ("numeric", ((i32::from(precision) << 16) | i32::from(scale)) + 4),
        LogicalType::Date => ("date", -1),
        LogicalType::Timestamp => ("timestamp", -1),
        LogicalType::TimestampTz => ("timestamptz", -1),
        LogicalType::Varchar => ("varchar", -1),
        LogicalType::Bytea => ("bytea", -1),
    };
    let found = find_type(name);
    (found.oid, found.bytes, modifier)
}

/// Like [`of_column`], for a column of a query. A type that PostgreSQL does not have is `unknown`.
pub fn of_query_column(data_type: &DataType) -> (i64, i16, i32) {
    if let Some(logical) = LogicalType::from_arrow(data_type) {
        return of_column(logical);
    }
    let name = match data_type {
        DataType::List(item) => {
            let (item, ..) = of_query_column(item.data_type());
            return (TYPES.iter().find(|known| known.oid == item).map_or(0, |known| known.array), -1, -1);
        }
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        data_type if data_type.is_integer() => "int8",
        _ => "unknown",
    };
    let found = find_type(name);
    (found.oid, found.bytes, -1)
}

/// Whether values of a type are text.
pub fn is_text(oid: i64) -> bool {
    TYPES.iter().any(|known| known.oid == oid && known.category == "S")
}
