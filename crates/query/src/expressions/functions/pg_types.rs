//! PostgreSQL's types that Taut supports, with their oids, and the function `format_type`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;

use super::definition::ArgumentType::Integer;
use super::definition::{Definition, result};

pub(super) const FUNCTIONS: [Definition; 1] = [Definition {
    name: "format_type",
    arguments: &[&[Integer, Integer]],
    result: result::text,
    compute: format_types,
}];

/// A type of PostgreSQL, as in `pg_type`.
#[derive(Debug)]
pub struct PgType {
    pub oid: i64,
    /// Name in `pg_type`.
    pub name: &'static str,
    /// Name in SQL.
    pub sql_name: &'static str,
    /// Length of a value in bytes. It is -1 if the length varies, and -2 for a string with a zero byte at the end.
    pub bytes: i16,
    /// PostgreSQL's code of the category: `N` for numbers, `S` for text, and so on.
    pub category: &'static str,
    /// Oid of the array type of this type; 0 if there is none.
    pub array: i64,
}

const fn of(
    oid: i64,
    name: &'static str,
    sql_name: &'static str,
    bytes: i16,
    category: &'static str,
    array: i64,
) -> PgType {
    PgType { oid, name, sql_name, bytes, category, array }
}

const UNKNOWN: PgType = of(705, "unknown", "unknown", -2, "X", 0);

/// The types that columns of tables, views and system catalogs can have.
pub const TYPES: [PgType; 17] = [
    of(16, "bool", "boolean", 1, "B", 1000),
    of(17, "bytea", "bytea", -1, "U", 1001),
    of(20, "int8", "bigint", 8, "N", 1016),
    of(21, "int2", "smallint", 2, "N", 1005),
    of(23, "int4", "integer", 4, "N", 1007),
    of(25, "text", "text", -1, "S", 1009),
    of(26, "oid", "oid", 4, "N", 1028),
    of(700, "float4", "real", 4, "N", 1021),
    of(701, "float8", "double precision", 8, "N", 1022),
    UNKNOWN,
    of(1043, "varchar", "character varying", -1, "S", 1015),
    of(1082, "date", "date", 4, "D", 1182),
    of(1083, "time", "time without time zone", 8, "D", 1183),
    of(1114, "timestamp", "timestamp without time zone", 8, "D", 1115),
    of(1184, "timestamptz", "timestamp with time zone", 8, "D", 1185),
    of(1186, "interval", "interval", 16, "T", 1187),
    of(1700, "numeric", "numeric", -1, "N", 1231),
];

/// Looks up a type by its name in `pg_type`. Returns `unknown` if no type has the name.
pub fn find_type(name: &str) -> PgType {
    TYPES.into_iter().find(|known| known.name == name).unwrap_or(UNKNOWN)
}

/// Returns the SQL name of each type. The result of a null oid is null. A null modifier means no modifier.
fn format_types(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (oids, modifiers) = (arguments[0].as_primitive::<Int64Type>(), arguments[1].as_primitive::<Int64Type>());
    let name = |row: usize| {
        let modifier = modifiers.is_valid(row).then(|| modifiers.value(row));
        oids.is_valid(row).then(|| format_type(oids.value(row), modifier))
    };
    Ok(Arc::new((0..oids.len()).map(name).collect::<StringArray>()))
}

fn format_type(oid: i64, modifier: Option<i64>) -> String {
    if let Some(item) = TYPES.iter().find(|known| known.array == oid && oid != 0) {
        return format_type(item.oid, modifier) + "[]";
    }
    let Some(found) = TYPES.iter().find(|known| known.oid == oid) else {
        // As in PostgreSQL.
        return if oid == 0 { "-" } else { "???" }.to_owned();
    };
    match modifier {
        Some(modifier) if modifier >= 4 && found.name == "numeric" => {
            let digits = modifier - 4;
            format!("numeric({},{})", digits >> 16, digits & 0xffff)
        }
        _ => found.sql_name.to_owned(),
    }
}
