//! Names of tables and views of this database.

use datafusion::common::TableReference;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::ObjectName;

use crate::error::{QueryError, Result};

/// Name of the catalog.
pub const CATALOG: &str = "taut";
/// Schema of the user's tables and views.
pub const PUBLIC: &str = "public";

/// Name of a table or view of this database, without its optional schema `public`.
pub(crate) fn local_name(name: &ObjectName) -> Result<String> {
    match object_name_to_table_reference(name.clone(), true)? {
        TableReference::Bare { table } => Ok(table.to_string()),
        TableReference::Partial { schema, table } if &*schema == PUBLIC => Ok(table.to_string()),
        TableReference::Full { catalog, schema, table } if &*schema == PUBLIC && &*catalog == CATALOG => {
            Ok(table.to_string())
        }
        other => Err(QueryError::unsupported(
            format!("{other} as a table that can be changed"),
            "tables live in schema public; taut and information_schema are read-only",
        )),
    }
}
