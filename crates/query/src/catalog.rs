//! The names that a statement can use: tables and views of one snapshot, and the system tables.

use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use parking_lot::RwLock;
use taut_store::{Catalog, Store};

use crate::statement::{self, Statement};
use crate::system_tables::SystemSchema;
use crate::table::TautTable;

/// The catalog's name.
pub const CATALOG: &str = "taut";
/// The schema of the user's tables and views.
pub const PUBLIC: &str = "public";
/// The schema of the system tables.
pub const SYSTEM: &str = "taut";

/// Views may stand on views, but not this deep, nor on themselves.
const VIEW_DEPTH_MAX: usize = 32;

/// The catalog of one session. All tables of a statement come from one snapshot.
pub struct SessionCatalog {
    store: Arc<Store>,
    snapshot: RwLock<Arc<Catalog>>,
    state: OnceLock<Weak<RwLock<SessionState>>>,
    view_depth: AtomicUsize,
}

impl SessionCatalog {
    /// The catalog of a store's newest snapshot.
    pub fn new(store: Arc<Store>) -> Arc<Self> {
        let snapshot = RwLock::new(store.snapshot());
        Arc::new(Self { store, snapshot, state: OnceLock::new(), view_depth: AtomicUsize::new(0) })
    }

    /// Says which session plans the views.
    pub fn bind(&self, state: Weak<RwLock<SessionState>>) {
        // A session binds its own catalog, once.
        let _ = self.state.set(state);
    }

    /// Moves to the newest snapshot, as every statement does when it begins.
    pub fn refresh(&self) -> Arc<Catalog> {
        let newest = self.store.snapshot();
        *self.snapshot.write() = Arc::clone(&newest);
        newest
    }

    /// The snapshot of the running statement.
    pub fn snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.snapshot.read())
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    async fn view(&self, name: &str, sql: &str) -> Result<Arc<dyn TableProvider>> {
        let state = self.state.get().and_then(Weak::upgrade);
        let Some(state) = state else { return plan_err!("view {name:?} is read without a session") };
        let state = state.read().clone();
        let parsed = statement::parse(sql).map_err(|error| plan_datafusion_err!("view {name:?}: {error}"))?;
        let Some(Statement::Engine(query)) = parsed.into_iter().next() else {
            return plan_err!("view {name:?} is no query");
        };
        let depth = self.view_depth.fetch_add(1, Ordering::Relaxed);
        let plan = if depth >= VIEW_DEPTH_MAX {
            plan_err!("view {name:?} stands on more than {VIEW_DEPTH_MAX} views, or on itself")
        } else {
            Box::pin(state.statement_to_plan(*query)).await
        };
        self.view_depth.fetch_sub(1, Ordering::Relaxed);
        Ok(Arc::new(ViewTable::new(plan?, Some(sql.to_owned()))))
    }
}

impl Debug for SessionCatalog {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionCatalog(version {})", self.snapshot().version())
    }
}

/// The catalog as the engine sees it.
#[derive(Debug)]
pub struct CatalogNames(pub Arc<SessionCatalog>);

impl CatalogProvider for CatalogNames {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), SYSTEM.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PUBLIC => Some(Arc::new(PublicSchema(Arc::clone(&self.0)))),
            SYSTEM => Some(Arc::new(SystemSchema(Arc::clone(&self.0)))),
            _ => None,
        }
    }
}

/// The user's tables and views.
#[derive(Debug)]
struct PublicSchema(Arc<SessionCatalog>);

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        let snapshot = self.0.snapshot();
        let tables = snapshot.tables().map(|table| table.name.clone());
        tables.chain(snapshot.views().map(|view| view.name.clone())).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let snapshot = self.0.snapshot();
        if let Some(table) = snapshot.table(name) {
            return Ok(Some(Arc::new(TautTable::new(Arc::clone(&self.0.store), Arc::clone(table)))));
        }
        match snapshot.view(name) {
            Some(view) => Ok(Some(self.0.view(name, &view.sql).await?)),
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        let snapshot = self.0.snapshot();
        snapshot.table(name).is_some() || snapshot.view(name).is_some()
    }
}
