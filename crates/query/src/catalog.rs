//! The names that a statement can use: tables and views of one snapshot, system tables, and files.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use parking_lot::RwLock;
use taut_store::{Catalog, Store};

use crate::mover::Shared;
use crate::operators::Interrupt;
use crate::reads::StatementReads;
use crate::rules::set_interrupt;
use crate::statement::{self, CATALOG, Names, PUBLIC, Statement};
use crate::system_tables::SystemSchema;
use crate::table::TautTable;

/// The schema of the system tables.
pub const SYSTEM: &str = "taut";

/// Views may stand on views, but not this deep, nor on themselves.
const VIEW_DEPTH_MAX: usize = 32;

/// The catalog of one statement. All its tables come from one snapshot.
#[derive(Clone)]
pub struct StatementCatalog {
    /// Where the tables are.
    pub store: Arc<Store>,
    /// Which tables there are.
    pub snapshot: Arc<Catalog>,
    /// The columns that the statement can mean; the tables have no others for it.
    pub names: Option<Arc<Names>>,
    /// The session, for planning views.
    pub session: Weak<RwLock<SessionState>>,
    /// Files, by their paths.
    pub files: Arc<dyn SchemaProvider>,
    /// Relations that this statement has beside tables.
    pub relations: Vec<(&'static str, Arc<dyn TableProvider>)>,
    /// What moves rows in the background.
    pub mover: Arc<Shared>,
    /// What the statement reads, where that matters.
    pub reads: Option<Arc<StatementReads>>,
    /// Whether the rows that it sees obey keys and foreign keys, and plans may be made on that.
    pub keys_hold: bool,
    /// What ends the statement.
    pub interrupt: Interrupt,
    /// Whether its joins are to be such as spill.
    pub prefers_merge_joins: bool,
    /// How many views stand on each other where this catalog is used.
    pub view_depth: usize,
}

impl StatementCatalog {
    /// A session's state with the names of this catalog.
    pub fn state(self, mut session: SessionState) -> SessionState {
        session.config_mut().set_extension(Arc::new(self.interrupt.clone()));
        set_interrupt(&mut session, self.interrupt.clone());
        if self.prefers_merge_joins {
            session.config_mut().options_mut().optimizer.prefer_hash_join = false;
        }
        if let Some(reads) = &self.reads {
            session.config_mut().set_extension(Arc::clone(reads));
        }
        session.register_catalog_list(Arc::new(self));
        session
    }

    async fn view(&self, name: &str, sql: &str) -> Result<Arc<dyn TableProvider>> {
        if self.view_depth >= VIEW_DEPTH_MAX {
            return plan_err!("view {name:?} stands on more than {VIEW_DEPTH_MAX} views, or on itself");
        }
        let Some(session) = self.session.upgrade() else {
            return plan_err!("view {name:?} is read without a session");
        };
        let parsed = statement::parse(sql).map_err(|error| plan_datafusion_err!("view {name:?}: {error}"))?;
        let Some(Statement::Engine { statement, names, .. }) = parsed.into_iter().next() else {
            return plan_err!("view {name:?} is no query");
        };
        let session = session.read().clone();
        let state = Self { names, view_depth: self.view_depth + 1, ..self.clone() }.state(session);
        let plan = Box::pin(state.statement_to_plan(statement.as_ref().clone())).await?;
        Ok(Arc::new(ViewTable::new(plan, Some(sql.to_owned()))))
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
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), SYSTEM.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PUBLIC => Some(Arc::new(PublicSchema(self.clone()))),
            SYSTEM => {
                let (store, snapshot, mover) =
                    (Arc::clone(&self.store), Arc::clone(&self.snapshot), Arc::clone(&self.mover));
                Some(Arc::new(SystemSchema { store, snapshot, mover }))
            }
            _ => None,
        }
    }
}

/// The user's tables and views, and files.
#[derive(Debug)]
struct PublicSchema(StatementCatalog);

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        let snapshot = &self.0.snapshot;
        let tables = snapshot.tables().map(|table| table.name.clone());
        tables.chain(snapshot.views().map(|view| view.name.clone())).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let catalog = &self.0;
        if let Some((_, relation)) = catalog.relations.iter().find(|(known, _)| *known == name) {
            return Ok(Some(Arc::clone(relation)));
        }
        if let Some(table) = catalog.snapshot.table(name) {
            if let Some(reads) = &catalog.reads {
                reads.look_up(table.id);
            }
            let table = TautTable::new(Arc::clone(&catalog.store), Arc::clone(table), catalog.names.as_deref());
            return Ok(Some(Arc::new(if catalog.keys_hold { table } else { table.without_keys() })));
        }
        match catalog.snapshot.view(name) {
            Some(view) => Ok(Some(catalog.view(name, &view.sql).await?)),
            None => catalog.files.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.snapshot.table(name).is_some() || self.0.snapshot.view(name).is_some()
    }
}
