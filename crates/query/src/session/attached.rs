//! `ATTACH`, `DETACH` and `SHOW DATABASES`, and statements that change attached databases.
//!
//! A session on the attached database runs such a statement, so that keys, defaults, sequences and transactions are
//! those of this database. Names in the queries of the statement are resolved by the session of the user, with the
//! search path, temporary relations and attached databases that it has:
//!
//! ```text
//!   INSERT INTO a.t SELECT x FROM u     a.t   the session on a: constraints, row ids, commit
//!                                       u     the catalog of the user's session
//! ```

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use taut_sql::{
    CATALOG, ColumnChange, CommentedObject, PUBLIC, Parameters, SchemaChange, Statement, TableChange, TableSource,
};
use taut_store::{AttachError as StoreError, AttachedSnapshot};
use taut_types::TEMPORARY_SCHEMA;

use super::catalog::StatementCatalog;
use super::ddl::text_rows;
use super::{Done, FailOnDrop, Outcome, QuerySession};
use crate::error::{AttachError, QueryError, Result};
use crate::expressions::SchemaAccess;

/// Functions whose results depend on the session: on its database, its search path, or its earlier calls.
const FUNCTIONS_OF_SESSION: [&str; 6] = ["nextval", "currval", "setval", "lastval", "regclass", "current_schema"];

/// The session of the user, for whom a session on an attached database runs a statement.
pub(super) struct UserSession {
    /// Name under which the database of the other session is attached.
    pub database: Arc<str>,
    /// Resolves the names in queries.
    pub catalog: StatementCatalog,
}

impl QuerySession {
    /// Snapshots of the attached databases for the next statement: from the transaction in progress, or else the
    /// newest.
    pub(super) fn attached(&self) -> Arc<[AttachedSnapshot]> {
        let of_transaction = self.transactions.lock().attached();
        of_transaction.unwrap_or_else(|| self.store.attached())
    }

    /// Runs a statement in the attached database that it changes. Returns `None` if it changes none.
    pub(super) async fn run_in_attached(
        &self,
        statement: &Statement,
        parameters: &Parameters,
    ) -> Result<Option<Outcome>> {
        let run = async |session: Arc<Self>| Box::pin(session.run_in_utc(statement, parameters)).await;
        self.in_attached(self.target_database(statement), run).await
    }

    /// Runs a part of a statement on a session of the attached database that it changes. Returns `None` if there is no
    /// such database.
    pub(super) async fn in_attached<T>(
        &self,
        target: Result<Option<AttachedSnapshot>>,
        run: impl AsyncFnOnce(Arc<Self>) -> Result<T>,
    ) -> Result<Option<T>> {
        if matches!(target, Ok(None)) {
            return Ok(None);
        }
        self.begin_statement()?;
        let mut fail_guard = FailOnDrop(Some(self));
        let Some(database) = target? else { return Ok(None) };
        let session = self.session_on(&database)?;
        let outcome = run(Arc::clone(&session)).await;
        self.transactions.lock().keep_locks_of(&database.name, &session.transactions.lock());
        let outcome = outcome?;
        fail_guard.0 = None;
        self.apply_on_commit()?;
        Ok(Some(outcome))
    }

    /// A session on an attached database, for one statement of this session.
    pub(super) fn session_on(&self, database: &AttachedSnapshot) -> Result<Arc<Self>> {
        let context = SessionContext::new_with_state(self.context.state());
        let schemas = context.state_ref().read().config_options().extensions.get::<SchemaAccess>().cloned();
        let mover = self.transactions.lock().mover_of(&database.name);
        let mover = mover.unwrap_or_else(|| self.mover.of_attached(&database.store));
        let mut session = Self::with_context(Arc::clone(&database.store), mover, context);
        // Functions of schemas, unlike those of sequences, are only called by the text of the statement.
        if let Some(schemas) = schemas {
            session.context.state_ref().write().config_mut().options_mut().extensions.insert(schemas);
        }
        session.files = Arc::clone(&self.files);
        session.prepared = Arc::clone(&self.prepared);
        session.running = Arc::clone(&self.running);
        session.progress = Mutex::new(self.progress.lock().clone());
        *session.transactions.lock() = self.transactions.lock().for_attached(&database.name)?;
        let catalog = self.catalog(self.snapshot(), None);
        session.user_session = Some(UserSession { database: Arc::clone(&database.name), catalog });
        Ok(Arc::new(session))
    }

    /// The attached database that the transaction in progress has changed.
    pub(super) fn changed_in_transaction(&self) -> Option<AttachedSnapshot> {
        let changed = self.transactions.lock().changed_other()?;
        self.attached().iter().find(|database| database.name == changed).cloned()
    }

    /// The attached database that a statement changes. Returns `None` if it changes none.
    fn target_database(&self, statement: &Statement) -> Result<Option<AttachedSnapshot>> {
        let found = match statement {
            _ if self.user_session.is_some() => None,
            Statement::CreateSchema { database: Some(database), name, .. }
            | Statement::RenameSchema { database: Some(database), name, .. } => Some(self.writable(database, name)?),
            Statement::Comment { on: CommentedObject::Schema { database: Some(database), name }, .. } => {
                Some(self.writable(database, name)?)
            }
            Statement::DropSchemas { database: Some(database), names, .. } => {
                Some(self.writable(database, &names.join(", "))?)
            }
            other => self.changed_database(&self.targets(other))?,
        };
        let Some(database) = found else { return Ok(None) };
        match self.sequence_function(statement) {
            Some(function) => {
                let database = (*database.name).to_owned();
                Err(AttachError::SequenceFunction { function, database }.into())
            }
            None => Ok(Some(database)),
        }
    }

    /// The relations that a statement defines or changes.
    fn targets(&self, statement: &Statement) -> Vec<TableReference> {
        match statement {
            Statement::CreateTable { name, .. }
            | Statement::CreateSequence { name, .. }
            | Statement::AlterSequence { name, .. }
            | Statement::AlterTable { name, .. }
            | Statement::CopyFrom { name, .. }
            | Statement::SetSchema { name, .. }
            | Statement::CreateView { name, .. }
            | Statement::RenameIndex { name, .. }
            | Statement::AlterView { name, .. }
            | Statement::CreateFunction { name, .. }
            | Statement::Comment { on: CommentedObject::Function { name, .. }, .. }
            | Statement::Comment { on: CommentedObject::Relation { name, .. }, .. }
            | Statement::Comment { on: CommentedObject::Column { relation: name, .. }, .. } => vec![name.clone()],
            Statement::CreateIndex(index) => vec![index.table.clone()],
            Statement::DropFunctions { functions, .. } => functions.iter().map(|(name, _)| name.clone()).collect(),
            Statement::Drop { names, .. } | Statement::Truncate { names, .. } | Statement::Vacuum { names, .. } => {
                names.clone()
            }
            Statement::Mutation { mutation, .. } => vec![mutation.table.clone()],
            Statement::ModifyingWith { statement, .. } => {
                statement.mutations().map(|mutation| mutation.table.clone()).collect()
            }
            Statement::Prepare { mutation, .. } => self.targets(mutation),
            Statement::Execute { name, .. } | Statement::ExplainExecute { name, .. } => self.targets_of_prepared(name),
            Statement::Planned { statement, .. } => match taut_sql::executed_statement(statement) {
                Some(name) => self.targets_of_prepared(&name),
                None => taut_sql::insert_target(statement).into_iter().collect(),
            },
            _ => Vec::new(),
        }
    }

    fn targets_of_prepared(&self, name: &str) -> Vec<TableReference> {
        self.prepared.get(name).map_or_else(|_| Vec::new(), |prepared| self.targets(&prepared))
    }

    /// A function of sequences in the text of a statement. It would refer to the session's own database, and the
    /// statement runs in another one.
    fn sequence_function(&self, statement: &Statement) -> Option<&'static str> {
        match statement {
            Statement::Mutation { mutation, .. } => mutation.sequence_function,
            Statement::ModifyingWith { statement, .. } => taut_sql::sequence_function(&statement.statement),
            Statement::Planned { statement, .. } => match taut_sql::executed_statement(statement) {
                Some(name) => self.sequence_function_of_prepared(&name),
                None => taut_sql::sequence_function(statement),
            },
            Statement::Execute { name, .. } => self.sequence_function_of_prepared(name),
            Statement::CreateView { sql, .. } => taut_sql::sequence_function_of_query(sql),
            Statement::AlterTable { change: TableChange::Schema(changes), .. } => {
                changes.iter().find_map(|change| match change {
                    SchemaChange::Column(ColumnChange::SetType { using: Some(using), .. }) => {
                        taut_sql::sequence_function_in(using.as_ref())
                    }
                    _ => None,
                })
            }
            Statement::CreateTable { source: TableSource::Query { query, .. }, .. } => {
                taut_sql::sequence_function_in(query)
            }
            Statement::Prepare { mutation, .. } => self.sequence_function(mutation),
            _ => None,
        }
    }

    fn sequence_function_of_prepared(&self, name: &str) -> Option<&'static str> {
        self.prepared.get(name).ok().and_then(|prepared| self.sequence_function(&prepared))
    }

    /// The attached database of relations that a statement changes. Returns `None` if they are in the session's own.
    ///
    /// # Errors
    /// If they are in several databases, or the database does not exist or is attached read-only.
    pub(super) fn changed_database(&self, targets: &[TableReference]) -> Result<Option<AttachedSnapshot>> {
        // A session on an attached database runs only statements that change this database.
        if self.user_session.is_some() {
            return Ok(None);
        }
        let databases = || targets.iter().map(|target| self.attached_database_of(target));
        let Some((index, name)) = databases().enumerate().find_map(|(index, name)| Some((index, name?))) else {
            return Ok(None);
        };
        if let Some(other) = databases().position(|other| other.as_ref() != Some(&name)) {
            return Err(AttachError::OtherDatabase { relation: targets[other].to_string(), database: name }.into());
        }
        self.writable(&name, &targets[index].to_string()).map(Some)
    }

    /// Returns an attached database of which a statement changes `object`.
    ///
    /// # Errors
    /// If the database does not exist, or is attached read-only.
    fn writable(&self, database: &str, object: &str) -> Result<AttachedSnapshot> {
        let found = self.attached().iter().find(|attached| *attached.name == *database).cloned();
        let name = database.to_owned();
        match found {
            Some(found) if found.store.is_read_only() => {
                Err(AttachError::ReadOnly { relation: object.to_owned(), database: name }.into())
            }
            Some(found) => Ok(found),
            None => Err(AttachError::Missing { name }.into()),
        }
    }

    pub(super) fn attach(&self, path: &str, name: &str, (if_not_exists, read_only): (bool, bool)) -> Result<Outcome> {
        self.check_no_transaction("ATTACH")?;
        if self.snapshot().has_schema(name) {
            return Err(AttachError::NameOfSchema { name: name.to_owned() }.into());
        }
        let done = Done::with_tag("ATTACH");
        match self.store.attach(name, Path::new(path), read_only) {
            Err(StoreError::NameTaken { .. }) if if_not_exists => {
                let notice = format!("database {name:?} already exists, skipping");
                Ok(Outcome::Done(Done { notices: vec![notice], ..done }))
            }
            attached => {
                let store = attached.map_err(AttachError::from)?;
                if !read_only {
                    self.mover.attach(&store);
                }
                Ok(Outcome::Done(done))
            }
        }
    }

    pub(super) fn detach(&self, name: &str, if_exists: bool) -> Result<Outcome> {
        self.check_no_transaction("DETACH")?;
        let done = Done::with_tag("DETACH");
        match self.store.detach(name) {
            Some(store) => {
                self.mover.detach(&store);
                Ok(Outcome::Done(done))
            }
            None if if_exists => {
                let notice = format!("database {name:?} does not exist, skipping");
                Ok(Outcome::Done(Done { notices: vec![notice], ..done }))
            }
            None => Err(AttachError::Missing { name: name.to_owned() }.into()),
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

    /// Name of the session's database in statements.
    pub(super) fn database_name(&self) -> &str {
        self.user_session.as_ref().map_or(CATALOG, |user_session| &user_session.database)
    }

    /// Returns the name of a relation that a statement changes or defines, without the name of its database.
    ///
    /// # Errors
    /// If the relation is in another database than that of the session.
    pub(super) fn own_reference<'a>(&self, relation: &'a TableReference) -> Result<Cow<'a, TableReference>> {
        let other = || {
            let database = self.database_name().to_owned();
            Err(AttachError::OtherDatabase { relation: relation.to_string(), database }.into())
        };
        let Some(UserSession { database, .. }) = &self.user_session else {
            return match self.attached_database_of(relation) {
                None => Ok(Cow::Borrowed(relation)),
                Some(_) => other(),
            };
        };
        let (schema, table) = match relation {
            TableReference::Full { catalog, schema, table } if catalog == database => (&**schema, table),
            TableReference::Partial { schema, table } if schema == database => (PUBLIC, table),
            _ => return other(),
        };
        match schema == TEMPORARY_SCHEMA {
            true => other(),
            false => Ok(Cow::Owned(TableReference::partial(schema, Arc::clone(table)))),
        }
    }

    /// As [`Self::own_reference`], for a relation that a definition refers to, such as the table of a foreign key. It
    /// is in the same database, so its name needs no database.
    pub(super) fn own_reference_in_definition<'a>(
        &self,
        relation: &'a TableReference,
    ) -> Result<Cow<'a, TableReference>> {
        match relation {
            TableReference::Bare { .. } => Ok(Cow::Borrowed(relation)),
            named => self.own_reference(named),
        }
    }

    /// Returns the text of a view without names of databases: it has to be valid wherever its database is opened.
    ///
    /// # Errors
    /// If the view reads a relation of another database. Names in a view of an attached database need its name, because
    /// in other statements a name without it refers to the session's own database.
    pub(super) fn own_view_text<'a>(&self, sql: &'a str) -> Result<Cow<'a, str>> {
        let read = taut_sql::relations_of(sql)?;
        if let Some(relation) = read.iter().find(|relation| self.own_reference(relation).is_err()) {
            let database = self.database_name().to_owned();
            return Err(AttachError::View { relation: relation.to_string(), database }.into());
        }
        match &self.user_session {
            Some(UserSession { database, .. }) => Ok(Cow::Owned(taut_sql::without_database(sql, database)?)),
            None => Ok(Cow::Borrowed(sql)),
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
