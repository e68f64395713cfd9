//! Identifiers: their case, and names of relations.

use datafusion_common::TableReference;
use datafusion_sql::planner::object_name_to_table_reference;
use datafusion_sql::sqlparser::ast::{Ident, ObjectName};
use taut_types::{PUBLIC_SCHEMA, relation_name};

use crate::error::{Result, SqlError};

/// Name of the database in SQL, the first part of `taut.public.t`.
pub const CATALOG: &str = "taut";
/// Name of the schema that always exists.
pub const PUBLIC: &str = PUBLIC_SCHEMA;
/// Name of the schema in which the planner looks up names without a schema: the relations of the search path.
pub const UNQUALIFIED: &str = "taut search path";
/// Name of the schema of the system tables.
pub const SYSTEM: &str = "taut";
/// Name of the schema of the standard's system views.
pub const INFORMATION_SCHEMA: &str = "information_schema";

/// Name of the schema of PostgreSQL's system catalogs.
pub const PG_CATALOG: &str = "pg_catalog";
/// Name, in `pg_catalog`, of the list of definitions that functions such as `pg_get_constraintdef` look up.
pub const OBJECT_DEFINITIONS: &str = "taut object definitions";
/// Name, in `pg_catalog`, of the list of names that functions such as `to_regclass` look up.
pub const OBJECT_NAMES: &str = "taut object names";
/// Name, in `pg_catalog`, of the list of comments that `obj_description` and `col_description` look up.
pub const OBJECT_COMMENTS: &str = "taut comments";
/// Name of the function that fails if a relation does not exist, such as `t` in `'t'::regclass`.
pub const FOUND_RELATION: &str = "taut found relation";
/// Read-only schemas: no statement can change their relations.
pub const SYSTEM_SCHEMAS: [&str; 3] = [SYSTEM, INFORMATION_SCHEMA, PG_CATALOG];

/// Name that an identifier refers to, as in PostgreSQL: in lower case unless the identifier is quoted.
pub fn normalize(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
    }
}

/// Name that consists of one identifier, such as the name of a schema.
///
/// # Errors
/// If the name is qualified.
pub fn single_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(normalize).ok_or_else(|| improper_name(name)),
        _ => Err(improper_name(name)),
    }
}

/// Reference to a table, view, sequence or index that a statement defines or changes, with or without a schema. It has
/// the name of the database only if it is not [`CATALOG`].
///
/// # Errors
/// If the name is in a read-only schema.
pub fn relation_reference(name: &ObjectName) -> Result<TableReference> {
    match object_name_to_table_reference(name.clone(), true)? {
        TableReference::Full { catalog, schema, table } if &*catalog != CATALOG => {
            check_writable(&schema)?;
            Ok(TableReference::Full { catalog, schema, table })
        }
        TableReference::Full { schema, table, .. } | TableReference::Partial { schema, table } => {
            check_writable(&schema)?;
            Ok(TableReference::Partial { schema, table })
        }
        bare => Ok(bare),
    }
}

/// # Errors
/// If a schema is read-only.
fn check_writable(schema: &str) -> Result<()> {
    match SYSTEM_SCHEMAS.contains(&schema) {
        true => Err(SqlError::unsupported(
            format!("a change of schema {schema:?}"),
            "it is read-only; schema public and those of CREATE SCHEMA can be changed",
        )),
        false => Ok(()),
    }
}

/// Text that identifies a relation in storage: see [`relation_name`]. A reference without a schema is in `public`.
pub fn name_of_reference(reference: &TableReference) -> String {
    relation_name(reference.schema().unwrap_or(PUBLIC), reference.table())
}

/// Name under which a statement attaches a database.
///
/// # Errors
/// If the name is reserved.
pub(crate) fn database_name(name: String) -> Result<String> {
    let is_reserved = name.starts_with("pg_") || [CATALOG, PUBLIC, INFORMATION_SCHEMA, UNQUALIFIED].contains(&&*name);
    match is_reserved || name.is_empty() {
        true => Err(SqlError::ReservedDatabase { name }),
        false => Ok(name),
    }
}

/// Name of a schema that a statement creates or drops.
///
/// # Errors
/// If the name is qualified, or reserved.
pub(crate) fn schema_name(name: &ObjectName) -> Result<String> {
    let name = single_name(name)?;
    match name.starts_with("pg_") || SYSTEM_SCHEMAS.contains(&name.as_str()) || name == UNQUALIFIED {
        true => Err(SqlError::ReservedSchema { name }),
        false => Ok(name),
    }
}

/// Name of a schema that a statement creates, drops or renames, after the name of its database. That is `None` for the
/// session's own.
///
/// # Errors
/// If the name has more parts, or is reserved.
pub(crate) fn qualified_schema(name: &ObjectName) -> Result<(Option<String>, String)> {
    let [database, schema] = name.0.as_slice() else { return Ok((None, schema_name(name)?)) };
    let database = single_name(&ObjectName(vec![database.clone()]))?;
    let schema = schema_name(&ObjectName(vec![schema.clone()]))?;
    Ok((Some(database).filter(|database| database != CATALOG), schema))
}

fn improper_name(name: &ObjectName) -> SqlError {
    SqlError::syntax(format!("improper qualified name (too many dotted names): {name}"))
}
