//! `ATTACH`, `DETACH` and `SHOW DATABASES`. A session can read the tables and views of attached databases, beside its
//! own database.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::TableReference;
use taut_sql::CATALOG;
use taut_store::{AttachError as StoreError, AttachedSnapshot};

use super::ddl::text_rows;
use super::{Done, Outcome, QuerySession};
use crate::error::{AttachError, QueryError, Result};

/// Functions whose results depend on the session: on its database, its search path, or its earlier calls.
const FUNCTIONS_OF_SESSION: [&str; 6] = ["nextval", "currval", "setval", "lastval", "regclass", "current_schema"];

impl QuerySession {
    /// Snapshots of the attached databases for the next statement: from the transaction in progress, or else the
    /// newest.
    pub(super) fn attached(&self) -> Arc<[AttachedSnapshot]> {
        let of_transaction = self.transactions.lock().attached();
        of_transaction.unwrap_or_else(|| self.store.attached())
    }

    pub(super) fn attach(&self, path: &str, name: &str, if_not_exists: bool) -> Result<Outcome> {
        self.check_no_transaction("ATTACH")?;
        if self.snapshot().has_schema(name) {
            return Err(AttachError::NameOfSchema { name: name.to_owned() }.into());
        }
        let done = Done::with_tag("ATTACH");
        match self.store.attach(name, Path::new(path)) {
            Err(StoreError::NameTaken { .. }) if if_not_exists => {
                let notice = format!("database {name:?} already exists, skipping");
                Ok(Outcome::Done(Done { notices: vec![notice], ..done }))
            }
            attached => {
                attached.map_err(AttachError::from)?;
                Ok(Outcome::Done(done))
            }
        }
    }

    pub(super) fn detach(&self, name: &str, if_exists: bool) -> Result<Outcome> {
        self.check_no_transaction("DETACH")?;
        let done = Done::with_tag("DETACH");
        match self.store.detach(name) {
            true => Ok(Outcome::Done(done)),
            false if if_exists => {
                let notice = format!("database {name:?} does not exist, skipping");
                Ok(Outcome::Done(Done { notices: vec![notice], ..done }))
            }
            false => Err(AttachError::Missing { name: name.to_owned() }.into()),
        }
    }

    pub(super) fn show_databases(&self) -> Result<Outcome> {
        let attached = self.attached();
        let mut names: Vec<String> = attached.iter().map(|database| database.name.as_ref().to_owned()).collect();
        names.push(CATALOG.to_owned());
        names.sort();
        text_rows(&[("database_name", names)])
    }

    /// Returns an error if a transaction is in progress, because all of its statements see the same databases.
    fn check_no_transaction(&self, statement: &str) -> Result<()> {
        match self.is_in_transaction() {
            true => Err(QueryError::Transaction {
                message: format!("{statement} cannot run inside a transaction block"),
                hint: None,
                sqlstate: "25001",
            }),
            false => Ok(()),
        }
    }

    /// Refuses a schema that has the name of an attached database.
    pub(super) fn check_schema_name(&self, schema: &str) -> Result<()> {
        match self.is_attached(schema) {
            true => Err(AttachError::NameOfSchema { name: schema.to_owned() }.into()),
            false => Ok(()),
        }
    }

    /// Whether a database is attached under a name.
    pub(super) fn is_attached(&self, name: &str) -> bool {
        self.attached().iter().any(|database| *database.name == *name)
    }

    /// Refuses a relation of an attached database in a statement that changes or defines relations.
    pub(super) fn check_is_own(&self, relation: &TableReference) -> Result<()> {
        match self.attached_database_of(relation) {
            None => Ok(()),
            Some(database) => Err(AttachError::ReadOnly { relation: relation.to_string(), database }.into()),
        }
    }

    /// Refuses a view that reads a relation of an attached database. A view must work in sessions after the database is
    /// detached.
    pub(super) fn check_view_reads_own(&self, sql: &str) -> Result<()> {
        let read = taut_sql::relations_of(sql)?;
        match read.iter().find(|relation| self.attached_database_of(relation).is_some()) {
            None => Ok(()),
            Some(relation) => Err(AttachError::View { relation: relation.to_string() }.into()),
        }
    }

    /// The attached database that contains a relation. `None` for relations of the session's own database.
    fn attached_database_of(&self, relation: &TableReference) -> Option<String> {
        match relation {
            TableReference::Bare { .. } => None,
            TableReference::Full { catalog, .. } => (**catalog != *CATALOG).then(|| (**catalog).to_owned()),
            // A schema hides a database of the same name.
            TableReference::Partial { schema, .. } => {
                let is_database = self.is_attached(schema) && !self.snapshot().has_schema(schema);
                is_database.then(|| (**schema).to_owned())
            }
        }
    }
}

/// Refuses a view of an attached database that calls a function of the session.
pub(super) fn check_functions(view: &str, sql: &str) -> Result<(), AttachError> {
    let sql = sql.to_lowercase();
    match FUNCTIONS_OF_SESSION.into_iter().find(|function| sql.contains(function)) {
        Some(function) => Err(AttachError::ViewCalls { view: view.to_owned(), function }),
        None => Ok(()),
    }
}
