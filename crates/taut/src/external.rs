//! Stored tables as providers for a DataFusion instance that the caller runs: in Rust, or in another library through
//! DataFusion's foreign function interface.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as EngineSession, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use tokio::runtime::Handle;

use crate::{Error, Session};

/// A stored table, with the context and the threads that its scans need.
#[derive(Clone)]
pub struct ExternalTable {
    /// The table. Each scan reads the newest rows.
    pub provider: Arc<dyn TableProvider>,
    /// Decodes the predicates that another library passes. `provider` holds it too.
    pub context: Arc<SessionContext>,
    /// Runtime whose threads run the scans.
    pub runtime: Handle,
}

impl ExternalTable {
    pub(crate) fn new(session: Session, name: &str, runtime: Handle) -> std::result::Result<Self, Error> {
        let schema = session.query.table_provider(name)?.schema();
        let context = Arc::new(session.query.context().clone());
        let provider = NewestTable { session, name: name.to_owned(), schema, _context: Arc::clone(&context) };
        Ok(Self { provider: Arc::new(provider), context, runtime })
    }
}

impl Debug for ExternalTable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.provider.fmt(formatter)
    }
}

/// Provider of a table. Each scan reads the newest rows at the time of the scan.
struct NewestTable {
    session: Session,
    name: String,
    schema: SchemaRef,
    /// Kept alive because DataFusion's foreign function interface holds only a weak reference to it.
    _context: Arc<SessionContext>,
}

impl Debug for NewestTable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "table {:?} of Taut", self.name)
    }
}

#[async_trait]
impl TableProvider for NewestTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// The scan evaluates predicates exactly, except those that call functions: the caller's function may differ from
    /// Taut's function of the same name.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let calls = |filter: &&Expr| filter.exists(|part| Ok(matches!(part, Expr::ScalarFunction(_))));
        let support = |filter| match calls(filter)? {
            true => Ok(TableProviderFilterPushDown::Unsupported),
            false => Ok(TableProviderFilterPushDown::Exact),
        };
        filters.iter().map(support).collect()
    }

    /// Plans with Taut's own session state. The scan could not read predicates planned by the caller's state.
    async fn scan(
        &self,
        _state: &dyn EngineSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let newest = self.session.query.table_provider(&self.name);
        let newest = newest.map_err(|error| DataFusionError::External(Box::new(error)))?;
        if newest.schema() != self.schema {
            return plan_err!("table {:?} has other columns by now; register it again", self.name);
        }
        newest.scan(&self.session.query.context().state(), projection, filters, limit).await
    }
}
