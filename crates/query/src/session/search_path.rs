//! The search path of a session: the schemas in which names without a schema are looked up.

use std::sync::Arc;

use datafusion::common::TableReference;
use taut_sql::PUBLIC;
use taut_store::Catalog;
use taut_types::relation_name;

use crate::error::{QueryError, Result};

/// Schemas in which names without a schema are looked up, in order. Some may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath(Arc<[String]>);

impl SearchPath {
    pub fn new(schemas: &[String]) -> Self {
        Self(schemas.into())
    }

    /// The search path with which a view was created.
    pub fn of_view(schemas: &[String]) -> Self {
        if schemas.is_empty() { Self::default() } else { Self::new(schemas) }
    }

    /// The schemas as a view stores them: none for the default.
    pub fn to_stored(&self) -> Vec<String> {
        if self.is_default() { Vec::new() } else { self.0.to_vec() }
    }

    pub fn schemas(&self) -> &[String] {
        &self.0
    }

    pub fn is_default(&self) -> bool {
        matches!(&*self.0, [schema] if schema == PUBLIC)
    }

    /// The schema of new relations: the first that exists.
    pub fn current<'a>(&'a self, catalog: &Catalog) -> Option<&'a str> {
        self.0.iter().map(String::as_str).find(|schema| catalog.has_schema(schema))
    }

    /// What a name without a schema may stand for, in the order of the path.
    pub fn candidates(&self, name: &str) -> impl Iterator<Item = String> {
        self.0.iter().map(move |schema| relation_name(schema, name))
    }

    /// The relation that a statement names. If no relation has the name, returns the name in the current schema; a
    /// lookup of it finds nothing.
    ///
    /// # Errors
    /// If the name has no schema, and the path is empty.
    pub fn name(&self, catalog: &Catalog, reference: &TableReference) -> Result<String> {
        self.name_beside(catalog, reference, None)
    }

    /// Like [`SearchPath::name`], for a statement that creates `new`: the name may stand for the new relation.
    ///
    /// # Errors
    /// If the name has no schema, and the path is empty.
    pub fn name_beside(&self, catalog: &Catalog, reference: &TableReference, new: Option<&str>) -> Result<String> {
        let name = reference.table();
        if let Some(schema) = reference.schema() {
            return Ok(relation_name(schema, name));
        }
        if self.is_default() {
            return Ok(relation_name(PUBLIC, name));
        }
        let exists = |candidate: &String| new == Some(candidate.as_str()) || !catalog.is_name_free(candidate);
        if let Some(found) = self.candidates(name).find(exists) {
            return Ok(found);
        }
        let schema = self.current(catalog).or(self.0.first().map(String::as_str));
        schema.map(|schema| relation_name(schema, name)).ok_or_else(|| QueryError::no_relation(name))
    }

    /// The name of a relation that a statement creates.
    ///
    /// # Errors
    /// If its schema does not exist.
    pub fn new_name(&self, catalog: &Catalog, reference: &TableReference) -> Result<String> {
        let schema = match reference.schema() {
            Some(schema) if catalog.has_schema(schema) => schema,
            Some(schema) => return Err(QueryError::no_schema(schema)),
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
