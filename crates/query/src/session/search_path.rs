//! The search path of a session: the schemas in which names without a schema are looked up.

use std::sync::Arc;

use datafusion::common::TableReference;
use taut_sql::{CATALOG, PUBLIC};
use taut_store::Catalog;
use taut_types::{TEMPORARY_SCHEMA, is_temporary_relation, relation_name};

use crate::error::{AttachError, QueryError, Result, TemporaryError};

/// Schemas in which names without a schema are looked up, in order. Some may not exist. Temporary relations come first,
/// unless the path lists their schema at another position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath {
    schemas: Arc<[String]>,
    has_implicit_temporary: bool,
}

impl SearchPath {
    pub fn new(schemas: &[String]) -> Self {
        let has_implicit_temporary = !schemas.iter().any(|schema| schema == TEMPORARY_SCHEMA);
        Self { schemas: schemas.into(), has_implicit_temporary }
    }

    /// Search path of a view, from the schemas that [`Self::to_stored`] returned when the view was created. A permanent
    /// view never reads temporary relations.
    pub fn of_view(schemas: &[String]) -> Self {
        let path = if schemas.is_empty() { Self::default() } else { Self::new(schemas) };
        Self { has_implicit_temporary: false, ..path }
    }

    /// Returns the schemas that a view stores as its search path, or no schemas for the default path.
    pub fn to_stored(&self, view: &str) -> Vec<String> {
        let temporary =
            (self.has_implicit_temporary && is_temporary_relation(view)).then(|| TEMPORARY_SCHEMA.to_owned());
        match temporary.is_none() && self.is_default() {
            true => Vec::new(),
            false => temporary.into_iter().chain(self.schemas.iter().cloned()).collect(),
        }
    }

    /// The schemas that the path lists.
    pub fn schemas(&self) -> &[String] {
        &self.schemas
    }

    /// Whether the path lists only the schema `public`.
    pub fn is_default(&self) -> bool {
        matches!(&*self.schemas, [schema] if schema == PUBLIC)
    }

    /// Returns the schema of new relations: the first schema of the path that exists.
    pub fn current<'a>(&'a self, catalog: &Catalog) -> Option<&'a str> {
        let exists = |schema: &&str| *schema == TEMPORARY_SCHEMA || catalog.has_schema(schema);
        self.schemas.iter().map(String::as_str).find(exists)
    }

    /// Returns the relations to which a name without a schema may refer, in the order of the path. They may not exist.
    pub fn candidates(&self, catalog: &Catalog, name: &str) -> impl Iterator<Item = String> {
        let temporary = self.searches_temporary_first(catalog).then_some(TEMPORARY_SCHEMA);
        let schemas = temporary.into_iter().chain(self.schemas.iter().map(String::as_str));
        schemas.map(move |schema| relation_name(schema, name))
    }

    fn searches_temporary_first(&self, catalog: &Catalog) -> bool {
        self.has_implicit_temporary && catalog.has_schema(TEMPORARY_SCHEMA)
    }

    /// Resolves the name of a relation in a statement. If no relation has the name, returns the name in the current
    /// schema, and the lookup of this name finds nothing.
    ///
    /// # Errors
    /// If the name has no schema, and the path is empty.
    pub fn name(&self, catalog: &Catalog, reference: &TableReference) -> Result<String> {
        self.name_beside(catalog, reference, None)
    }

    /// Like [`SearchPath::name`], for a statement that creates `new`: the name may refer to the new relation.
    ///
    /// # Errors
    /// If the name has no schema, and the path is empty.
    pub fn name_beside(&self, catalog: &Catalog, reference: &TableReference, new: Option<&str>) -> Result<String> {
        let name = reference.table();
        match reference {
            TableReference::Bare { .. } => {}
            TableReference::Full { catalog, .. } if **catalog != *CATALOG => {
                return Err(QueryError::no_relation(reference.to_string()));
            }
            TableReference::Partial { schema, .. } | TableReference::Full { schema, .. } => {
                return Ok(relation_name(schema, name));
            }
        }
        if new.is_none() && self.is_default() && !self.searches_temporary_first(catalog) {
            return Ok(relation_name(PUBLIC, name));
        }
        let exists = |candidate: &String| new == Some(candidate.as_str()) || !catalog.is_name_free(candidate);
        let temporary = || Some(relation_name(TEMPORARY_SCHEMA, name)).filter(|_| self.has_implicit_temporary);
        // If the new relation is the first temporary relation, its schema does not exist yet.
        let new_temporary = new.and_then(|new| temporary().filter(|candidate| candidate == new));
        if let Some(found) = new_temporary.or_else(|| self.candidates(catalog, name).find(exists)) {
            return Ok(found);
        }
        let schema = self.current(catalog).or(self.schemas.first().map(String::as_str));
        schema.map(|schema| relation_name(schema, name)).ok_or_else(|| QueryError::no_relation(name))
    }

    /// Resolves the name of a relation that a statement creates.
    ///
    /// # Errors
    /// If the schema does not exist, or the name has no schema and no schema of the path exists. If the relation is
    /// temporary, but its schema is not [`TEMPORARY_SCHEMA`].
    pub fn new_name(&self, catalog: &Catalog, reference: &TableReference, is_temporary: bool) -> Result<String> {
        if let Some(database) = reference.catalog().filter(|database| *database != CATALOG) {
            return Err(AttachError::Missing { name: database.to_owned() }.into());
        }
        let schema = match reference.schema() {
            Some(TEMPORARY_SCHEMA) => TEMPORARY_SCHEMA,
            Some(schema) if !catalog.has_schema(schema) => return Err(QueryError::no_schema(schema)),
            Some(_) if is_temporary => return Err(TemporaryError::OtherSchema.into()),
            Some(schema) => schema,
            None if is_temporary => TEMPORARY_SCHEMA,
            None => self.current(catalog).ok_or(QueryError::NoCurrentSchema)?,
        };
        Ok(relation_name(schema, reference.table()))
    }
}

impl Default for SearchPath {
    fn default() -> Self {
        Self::new(&[PUBLIC.to_owned()])
    }
}
