//! The names that a statement can use. They belong to tables and views of one snapshot, to system tables, to files, and
//! to batches that a program has registered.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as PlannerStatement;
use parking_lot::RwLock;
use taut_sql::{
    CATALOG, INFORMATION_SCHEMA, Names, PG_CATALOG, PUBLIC, QualifiedName, SYSTEM, SYSTEM_SCHEMAS, Statement, TARGET,
    UNQUALIFIED, WRITTEN, schema_in_database,
};
use taut_store::{AttachedSnapshot, Catalog, Store, View};
use taut_types::{TEMPORARY_SCHEMA, is_temporary_relation, relation_name, split_relation_name};

use crate::error::QueryError;
use crate::exec::operators::Interrupt;
use crate::exec::reads::StatementReads;
use crate::exec::scan::TautTable;
use crate::mover::MoverState;
use crate::plan::files::text_table;
use crate::plan::functions::PlannedFunction;
use crate::plan::rules::{set_interrupt, with_materialized_rows, with_own_rows};
use crate::plan::{NameResolver, RelationNames, unmaterialized_plan};
use crate::session::attached::check_functions;
use crate::session::information_schema::InformationSchema;
use crate::session::pg_catalog::PgCatalog;
use crate::session::search_path::SearchPath;
use crate::session::settings::SettingValues;
use crate::session::system_tables::{SystemSchema, SystemState};

/// Maximum nesting depth of views and functions. Also ends the expansion of one that refers to itself.
pub const VIEW_DEPTH_MAX: usize = 32;

/// Catalog of one statement. All its tables come from one snapshot.
#[derive(Clone)]
pub struct StatementCatalog {
    /// Store of the tables.
    pub store: Arc<Store>,
    /// Snapshot that defines tables and views.
    pub snapshot: Arc<Catalog>,
    /// Schemas in which names without a schema are looked up.
    pub search_path: SearchPath,
    /// Column names that the statement may refer to. Tables hide all other columns. `None` if no column is hidden.
    pub names: Option<Arc<Names>>,
    /// In the query of a view: the tables and views that the query reads, each with its columns at the creation of the
    /// view. Columns added since then are not visible.
    pub visible: Option<Arc<BTreeMap<String, Vec<String>>>>,
    /// Session that plans views.
    pub session: Weak<RwLock<SessionState>>,
    /// Files, by path.
    pub files: Arc<dyn SchemaProvider>,
    /// Relations that exist only in this statement, by name. They hide tables and views of the same name.
    pub relations: Vec<(Cow<'static, str>, Arc<dyn TableProvider>)>,
    /// Name of the table that the statement changes.
    pub changed: Option<String>,
    /// State of the mover, for `taut.mover`.
    pub mover: Arc<MoverState>,
    /// Values of the settings, for `taut.settings`.
    pub settings: Arc<SettingValues>,
    /// Records the read set of the statement; `None` if its transaction does not need one.
    pub reads: Option<Arc<StatementReads>>,
    /// Whether the visible rows obey keys and foreign keys, so that plans may rely on them.
    pub are_keys_valid: bool,
    /// Start of the transaction in progress, which `now()` returns. `None` if no transaction is in progress.
    pub transaction_start: Option<DateTime<Utc>>,
    /// Interrupt that cancels the statement.
    pub interrupt: Interrupt,
    /// Whether to plan merge joins, which can spill, instead of hash joins.
    pub prefers_merge_joins: bool,
    /// Number of enclosing views and functions that are being expanded.
    pub view_depth: usize,
    /// The attached databases.
    pub attached: Arc<[AttachedSnapshot]>,
    /// Name of the attached database to which this catalog belongs. `None` for the session's own database.
    pub database: Option<Arc<str>>,
    /// Name of the attached database that the statement changes. `None` for the session's own database.
    pub target: Option<Arc<str>>,
}

impl StatementCatalog {
    /// Returns `session` with this catalog and with the interrupt, start time, read set and join preference of its
    /// statement.
    pub fn state(self, mut session: SessionState) -> SessionState {
        session.config_mut().set_extension(Arc::new(self.interrupt.clone()));
        set_interrupt(&mut session, &self.interrupt);
        if self.prefers_merge_joins {
            session.config_mut().options_mut().optimizer.prefer_hash_join = false;
        }
        if self.transaction_start.is_some() {
            session.execution_props_mut().query_execution_start_time = self.transaction_start;
        }
        if let Some(reads) = &self.reads {
            session.config_mut().set_extension(Arc::clone(reads));
        }
        let catalog = Arc::new(self);
        session.config_mut().set_extension(Arc::new(NameResolver(Arc::clone(&catalog) as Arc<dyn RelationNames>)));
        session.register_catalog_list(catalog);
        session
    }

    /// The same catalog for a statement that changes an attached database. `target` is the catalog of that database.
    pub fn for_target(&self, name: &Arc<str>, target: Self) -> Self {
        let attached = self.attached.iter().cloned().map(|database| match database.name == *name {
            true => {
                let (store, catalog) = (Arc::clone(&target.store), Arc::clone(&target.snapshot));
                AttachedSnapshot { store, catalog, ..database }
            }
            false => database,
        });
        Self {
            store: Arc::clone(&self.store),
            snapshot: Arc::clone(&self.snapshot),
            search_path: self.search_path.clone(),
            files: Arc::clone(&self.files),
            mover: Arc::clone(&self.mover),
            settings: Arc::clone(&self.settings),
            attached: attached.collect(),
            target: Some(Arc::clone(name)),
            ..target
        }
    }

    /// The catalog of an attached database. It contains no other database.
    pub fn attached(&self, name: &str) -> Option<Self> {
        let database = self.attached.iter().find(|database| *database.name == *name)?;
        Some(Self {
            store: Arc::clone(&database.store),
            snapshot: Arc::clone(&database.catalog),
            search_path: SearchPath::of_view(&[]),
            visible: None,
            relations: Vec::new(),
            changed: None,
            attached: Arc::new([]),
            database: Some(Arc::clone(&database.name)),
            ..self.clone()
        })
    }

    /// Columns of a table or view that the query of a view sees. `None` for all.
    fn visible_columns(&self, relation: &str) -> Option<&[String]> {
        self.visible.as_ref()?.get(relation).map(Vec::as_slice).filter(|columns| !columns.is_empty())
    }

    /// Looks up a table or view of the user by its name with schema.
    async fn relation(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.snapshot.table(name) {
            if let Some(reads) = &self.reads {
                reads.record_lookup(&self.store, table.id);
            }
            let visible = self.visible_columns(name);
            let table = TautTable::new(Arc::clone(&self.store), Arc::clone(table), self.names.as_deref(), visible);
            return Ok(Some(Arc::new(match self.database == self.target {
                false => table.attached(),
                true if self.are_keys_valid => table,
                true => table.without_keys(),
            })));
        }
        match self.snapshot.view(name) {
            Some(view) => Ok(Some(self.view(view).await?)),
            None => Ok(None),
        }
    }

    /// Whether the statement sees a relation of the search path. A view reads only the relations that it read when it
    /// was created. A relation of the same name in an earlier schema does not replace them.
    fn sees(&self, relation: &str) -> bool {
        self.visible.as_ref().is_none_or(|visible| visible.contains_key(relation))
    }

    /// Looks up a name without a schema. It can be a relation of the statement, a table or view of the search path, a
    /// system catalog of PostgreSQL, or a file.
    async fn unqualified(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some((_, relation)) = self.relations.iter().find(|(known, _)| *known == name) {
            return Ok(Some(Arc::clone(relation)));
        }
        let candidates = self.search_path.candidates(&self.snapshot, name);
        for candidate in candidates.filter(|candidate| self.sees(candidate)) {
            if let Some(relation) = self.relation(&candidate).await? {
                return Ok(Some(relation));
            }
            // A sequence or an index hides relations of the same name in later schemas of the path, as in other
            // statements.
            let hides_later = !self.search_path.is_default() || is_temporary_relation(&candidate);
            if hides_later && !self.snapshot.is_name_free(&candidate) {
                return Ok(None);
            }
        }
        match PgCatalog::new(self).table(name).await? {
            Some(table) => Ok(Some(table)),
            None => self.file(name).await,
        }
    }

    /// Looks up a file, or registered batches.
    async fn file(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match text_table(name).map_err(|error| DataFusionError::External(Box::new(error)))? {
            Some(table) => Ok(Some(table)),
            None => self.files.table(name).await,
        }
    }

    /// Returns the columns of a view. Returns `None` if the view cannot be planned.
    pub async fn columns_of_view(&self, name: &str) -> Option<SchemaRef> {
        Some(self.relation(name).await.ok()??.schema())
    }

    async fn view(&self, view: &View) -> Result<Arc<dyn TableProvider>> {
        let View { name, sql, search_path, relations, functions: _ } = view;
        if self.view_depth >= VIEW_DEPTH_MAX {
            return plan_err!("view {name:?} stands on more than {VIEW_DEPTH_MAX} views, or on itself");
        }
        if self.database != self.target {
            check_functions(name, sql).map_err(|error| DataFusionError::External(Box::new(QueryError::from(error))))?;
        }
        let Some(session) = self.session.upgrade() else {
            return plan_err!("view {name:?} is read without a session");
        };
        let parsed = taut_sql::parse(sql).map_err(|error| plan_datafusion_err!("view {name:?}: {error}"))?;
        let Some(Statement::Planned { statement, names, .. }) = parsed.into_iter().next() else {
            return plan_err!("view {name:?} is not a query");
        };
        let session = session.read().clone();
        let visible = (!relations.is_empty()).then(|| Arc::new(relations.clone()));
        let search_path = SearchPath::of_view(search_path);
        let view_depth = self.view_depth + 1;
        let state = Self { search_path, names, visible, view_depth, ..self.clone() }.state(session);
        let mut plan = Box::pin(unmaterialized_plan(&state, &statement)).await?;
        if let Some(visible) = self.visible_columns(name) {
            let columns = plan.schema().columns().into_iter().filter(|column| visible.contains(&column.name));
            let columns: Vec<Expr> = columns.map(Expr::Column).collect();
            if columns.len() < plan.schema().fields().len() {
                plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
            }
        }
        Ok(Arc::new(ViewRows { statement, table: ViewTable::new(plan, Some(sql.to_owned())) }))
    }
}

#[async_trait]
impl RelationNames for StatementCatalog {
    fn relation(&self, name: &str) -> Option<QualifiedName> {
        let qualified = |relation: &str| {
            let (schema, name) = split_relation_name(relation);
            (schema.into_owned(), name.into_owned())
        };
        if [TARGET, WRITTEN].contains(&name) {
            return self.changed.as_deref().map(qualified).map(|(schema, name)| match &self.target {
                Some(database) => (schema_in_database(database, &schema), name),
                None => (schema, name),
            });
        }
        if self.relations.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let candidates = self.search_path.candidates(&self.snapshot, name);
        let mut candidates = candidates.filter(|candidate| self.sees(candidate));
        let found = candidates.find(|candidate| !self.snapshot.is_name_free(candidate))?;
        let is_relation = self.snapshot.table(&found).is_some() || self.snapshot.view(&found).is_some();
        is_relation.then(|| qualified(&found))
    }

    fn has_functions(&self) -> bool {
        self.has_any_function()
    }

    async fn function(&self, name: &[String]) -> Result<Option<PlannedFunction>> {
        match self.find_function(name) {
            Some((catalog, function)) => catalog.planned(&function).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Table provider of a view. Each reference to the view computes its `WITH` queries separately.
#[derive(Debug)]
struct ViewRows {
    statement: Arc<PlannerStatement>,
    /// Plan of the view without materializations.
    table: ViewTable,
}

#[async_trait]
impl TableProvider for ViewRows {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.table.get_table_definition()
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        let plan = self.table.logical_plan();
        // An error is not expected: the same traversals succeeded when the plan was made.
        let materialized = with_materialized_rows(plan.clone(), &self.statement).and_then(with_own_rows);
        Some(materialized.map_or(Cow::Borrowed(plan), Cow::Owned))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.table.scan(state, projection, filters, limit).await
    }
}

impl Debug for StatementCatalog {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "StatementCatalog(version {})", self.snapshot.version())
    }
}

impl CatalogProviderList for StatementCatalog {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        let attached = self.attached.iter().map(|database| database.name.as_ref().to_owned());
        std::iter::once(CATALOG.to_owned()).chain(attached).collect()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let catalog = if name == CATALOG { Some(self.clone()) } else { self.attached(name) };
        catalog.map(|catalog| Arc::new(catalog) as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        let system = SYSTEM_SCHEMAS.map(str::to_owned);
        self.snapshot.schemas().map(str::to_owned).chain(system).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            UNQUALIFIED => Some(Arc::new(UserSchema { catalog: self.clone(), name: None })),
            // These show the session's own database only.
            INFORMATION_SCHEMA | PG_CATALOG if self.database.is_some() => None,
            SYSTEM => {
                let Self { store, snapshot, mover, settings, .. } = self.clone();
                let is_attached = self.database.is_some();
                Some(Arc::new(SystemSchema(SystemState { store, snapshot, mover, settings, is_attached })))
            }
            INFORMATION_SCHEMA => Some(Arc::new(InformationSchema::new(self))),
            PG_CATALOG => Some(Arc::new(PgCatalog::new(self))),
            name if name == TEMPORARY_SCHEMA || self.snapshot.has_schema(name) => {
                Some(Arc::new(UserSchema { catalog: self.clone(), name: Some(name.to_owned()) }))
            }
            name => {
                let name_in_attached = Some(PUBLIC.to_owned());
                Some(Arc::new(UserSchema { catalog: self.attached(name)?, name: name_in_attached }))
            }
        }
    }
}

/// A schema of the user, or the lookup of names without a schema.
#[derive(Debug)]
struct UserSchema {
    catalog: StatementCatalog,
    /// `None` for names without a schema.
    name: Option<String>,
}

#[async_trait]
impl SchemaProvider for UserSchema {
    fn table_names(&self) -> Vec<String> {
        let snapshot = &self.catalog.snapshot;
        let tables = snapshot.tables().map(|table| table.name.as_str());
        let names = tables.chain(snapshot.views().map(|view| view.name.as_str())).map(split_relation_name);
        let is_inside = |schema: &str| match &self.name {
            Some(name) => schema == name,
            None => {
                schema == TEMPORARY_SCHEMA || self.catalog.search_path.schemas().iter().any(|known| known == schema)
            }
        };
        names.filter(|(schema, _)| is_inside(schema)).map(|(_, name)| name.into_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(schema) = &self.name else { return self.catalog.unqualified(name).await };
        match self.catalog.relation(&relation_name(schema, name)).await? {
            // Registered batches are in schema `public`.
            None if schema == PUBLIC && self.catalog.database.is_none() => self.catalog.file(name).await,
            found => Ok(found),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}
