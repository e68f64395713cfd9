//! Upkeep: rows that are in no block are sealed, blocks with many deleted rows are written anew, and the log is let go.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use taut_store::{BlockFile, CommitError, Synchronous, Table};

use super::{Done, Outcome, QuerySession, ddl};
use crate::error::{QueryError, Result};
use crate::load::{Target, partitioning_of};
use crate::table::TautTable;

/// A block of which so many of 100 rows are deleted is written anew.
const DELETED_PERCENT: u64 = 25;
/// Rows and bytes in no block from which on they are sealed after a commit.
const DELTA_ROWS_MAX: u64 = 1 << 20;
const DELTA_BYTES_MAX: usize = 64 << 20;
/// Bytes of log from which on a checkpoint is taken after a commit.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// How often rows are moved again that others change meanwhile.
const ATTEMPTS_MAX: usize = 10;

impl QuerySession {
    /// Writes the catalog, and lets the log go.
    pub(super) fn checkpoint(&self) -> Result<Outcome> {
        self.store.checkpoint()?;
        Ok(Outcome::Done(Done::of("CHECKPOINT")))
    }

    /// Seals the rows of tables that are in no block, of all tables where none is named, and writes blocks anew of which
    /// many rows are deleted; where it is `full`, all blocks of which any is.
    pub(super) async fn vacuum(&self, full: bool, names: &[String]) -> Result<Outcome> {
        if self.is_in_transaction() {
            return Err(QueryError::Transaction {
                message: "VACUUM and ALTER TABLE ... COMPACT cannot be part of a transaction".to_owned(),
                sqlstate: "25001",
            });
        }
        let names: Vec<String> = match names {
            [] => self.snapshot().tables().map(|table| table.name.clone()).collect(),
            names => names.to_vec(),
        };
        let deleted_percent = if full { 0 } else { DELETED_PERCENT };
        for name in &names {
            let mut attempts = 0;
            loop {
                attempts += 1;
                match self.compact(&self.table(name)?, deleted_percent, false).await {
                    Err(error) if is_busy(&error) && attempts < ATTEMPTS_MAX => {}
                    done => break done?,
                }
            }
        }
        self.store.checkpoint()?;
        Ok(Outcome::Done(Done::of("VACUUM")))
    }

    /// Puts the rows of a table that are in no block, and of blocks with more deleted rows than so many of 100, into new
    /// blocks.
    async fn compact(&self, table: &Arc<Table>, deleted_percent: u64, settled: bool) -> Result<()> {
        let is_moved = |block: &&Arc<BlockFile>| {
            let deleted = table.delta.deleted_of_block(block.id()).map_or(0, |deleted| deleted.count());
            deleted * 100 > block.entry().rows * deleted_percent
        };
        let blocks: Vec<Arc<BlockFile>> = table.blocks.iter().filter(is_moved).map(Arc::clone).collect();
        if blocks.is_empty() && table.delta.has_no_pages() {
            return Ok(());
        }
        let part = Arc::new(table.with_blocks(blocks, settled));
        if part.blocks.is_empty() && part.delta.has_no_pages() {
            return Ok(());
        }
        let scan = TautTable::new(Arc::clone(&self.store), Arc::clone(&part), None);
        let scan = provider_as_source(Arc::new(scan) as Arc<dyn TableProvider>);
        let scan = LogicalPlanBuilder::scan(table.name.as_str(), scan, None)?.build()?;
        let (design, partitioning) = (Arc::clone(&table.design), partitioning_of(table));
        self.fill(&table.name, Target::Sorted { table: part, design, partitioning }, scan, None).await?;
        Ok(())
    }

    /// Keeps deltas and log within bounds. What fails here is tried again after the next commit.
    pub(super) async fn tend(&self) {
        if self.is_in_transaction() {
            return;
        }
        let is_large = |table: &&Arc<Table>| {
            let rows = table.delta.page_rows();
            let is_large = rows > DELTA_ROWS_MAX || table.delta.page_bytes() > DELTA_BYTES_MAX;
            is_large && rows > self.store.unsealed_rows()
        };
        let snapshot = self.store.snapshot();
        let large: Vec<_> = snapshot.tables().filter(is_large).collect();
        if large.is_empty() && self.store.log_bytes() <= LOG_BYTES_MAX {
            return;
        }
        let Some(_only_one) = self.store.begin_upkeep() else { return };
        for table in large {
            // A transaction may have such rows locked: it is not tried again after each commit.
            let sealed = self.compact(table, DELETED_PERCENT, true).await;
            let rows = table.delta.page_rows();
            self.store.set_unsealed_rows(if sealed.is_ok() { 0 } else { rows + rows / 4 });
        }
        if self.store.log_bytes() > LOG_BYTES_MAX {
            let _ = self.store.checkpoint();
        }
    }

    /// Says what is certain of a commit of this session when it returns.
    pub(super) fn set_synchronous(&self, synchronous: Synchronous) -> Outcome {
        self.transactions.lock().synchronous = synchronous;
        Outcome::Done(Done::of("SET"))
    }

    pub(super) fn show_synchronous(&self) -> Result<Outcome> {
        let name = match self.transactions.lock().synchronous {
            Synchronous::Full => "full",
            Synchronous::Normal => "normal",
            Synchronous::Off => "off",
        };
        ddl::rows(&[("synchronous", vec![name.to_owned()])])
    }
}

/// Whether rows could not be moved since a transaction changes them.
fn is_busy(error: &QueryError) -> bool {
    let conflict = |error: &CommitError| {
        matches!(error, CommitError::RowsChanged { .. } | CommitError::RowsLocked | CommitError::NoBlock { .. })
    };
    match error {
        QueryError::Commit(error) => conflict(error),
        QueryError::Engine(error) => match error.find_root() {
            datafusion::error::DataFusionError::External(inner) => inner.downcast_ref().is_some_and(conflict),
            _ => false,
        },
        _ => false,
    }
}
