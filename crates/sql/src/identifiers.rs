//! Identifiers: their case, and the names of the tables and views of a database.

use datafusion_common::TableReference;
use datafusion_sql::planner::object_name_to_table_reference;
use datafusion_sql::sqlparser::ast::{Ident, ObjectName};

use crate::error::{Result, SqlError};

/// Name of the catalog that SQL sees.
pub const CATALOG: &str = "taut";
/// Name of the schema of the user's tables and views.
pub const PUBLIC: &str = "public";

/// Name that an identifier refers to, as in PostgreSQL: in lower case unless the identifier is quoted.
pub fn normalize(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
    }
}

/// Name of a table or view of the user, without its optional schema `public`.
///
/// # Errors
/// If the name is in another schema or catalog.
pub fn local_name(name: &ObjectName) -> Result<String> {
    match object_name_to_table_reference(name.clone(), true)? {
        TableReference::Bare { table } => Ok(table.to_string()),
        TableReference::Partial { schema, table } if &*schema == PUBLIC => Ok(table.to_string()),
        TableReference::Full { catalog, schema, table } if &*schema == PUBLIC && &*catalog == CATALOG => {
            Ok(table.to_string())
        }
        other => Err(SqlError::unsupported(
            format!("{other} as a table that can be changed"),
            "tables live in schema public; taut and information_schema are read-only",
        )),
    }
}
