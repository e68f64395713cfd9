//! Runs a compaction: reads its rows and writes them to new blocks, in the order of the table.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use taut_store::{CommitError, Store, Table};

use super::MoverState;
use super::policy::{Compaction, CompactionKind};
use super::status::{Amount, Job};
use crate::error::{QueryError, Result};
use crate::exec::insert::{Target, TargetTable};
use crate::exec::scan::TautTable;
use crate::runtime::pace::Pace;
use crate::runtime::progress::ProgressCounter;

/// Maximum rows of a compaction that records row relocations, at 8 bytes per row. In a larger compaction, a concurrent
/// change of one of the rows is a conflict, and the compaction is retried.
const RELOCATED_ROWS_MAX: u64 = 64 << 20;
/// Number of successive failures from which conflicts are reported as errors.
const CONFLICTS_REPORTED_MIN: u32 = 10;

/// Resources for running a compaction.
pub(crate) struct Worker<'a> {
    pub store: &'a Arc<Store>,
    pub context: &'a SessionContext,
    pub threads: usize,
    pub pace: Option<Arc<Pace>>,
    pub progress: Option<ProgressCounter>,
}

/// Drop guard of a running job: records that the job was cancelled, unless it has ended.
struct RunningJob<'a> {
    shared: &'a MoverState,
    job: Job,
    started: Instant,
    has_ended: bool,
}

impl<'a> RunningJob<'a> {
    fn begin(shared: &'a MoverState, job: Job, activity: String) -> Self {
        shared.status.lock().begin(job, activity);
        Self { shared, job, started: Instant::now(), has_ended: false }
    }

    fn done(mut self, before: Amount, after: Amount) {
        self.has_ended = true;
        self.shared.status.lock().end_successful(self.job, self.started.elapsed(), before, after);
    }

    fn end_failed(mut self, error: &QueryError) {
        self.has_ended = true;
        let mut status = self.shared.status.lock();
        let is_reported = !is_conflict(error) || status.get(self.job).failures + 1 >= CONFLICTS_REPORTED_MIN;
        status.end_failed(self.job, self.started.elapsed(), is_reported.then(|| error.to_string()));
    }
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.status.lock().end_cancelled(self.job);
        }
    }
}

impl MoverState {
    /// Runs a compaction of a table. The caller must hold the maintenance lock of the table.
    ///
    /// # Errors
    /// If a block cannot be read or written, or another commit has changed rows of the compaction. The table then keeps
    /// its old blocks and pages.
    pub async fn compact(&self, worker: &Worker<'_>, table: &Arc<Table>, compaction: &Compaction) -> Result<()> {
        let part = Arc::new(table.restricted_to(&compaction.blocks, compaction.pages));
        let before = Amount {
            rows: part.rows(),
            blocks: part.blocks.len() as u64,
            bytes: part.file_bytes() + part.delta.page_bytes() as u64,
        };
        let running = RunningJob::begin(self, Some((table.id, compaction.kind)), activity(compaction, before));
        match worker.rewrite_rows(part, compaction).await {
            Ok(after) => {
                running.done(before, after);
                Ok(())
            }
            Err(error) => {
                running.end_failed(&error);
                Err(error)
            }
        }
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// If a file cannot be written. The log then keeps all commits.
    pub fn checkpoint(&self, store: &Store) -> Result<()> {
        let bytes = store.log_bytes();
        let running = RunningJob::begin(self, None, format!("writes the catalog and deletes {bytes} bytes of log"));
        match store.checkpoint().map_err(QueryError::from) {
            Ok(()) => {
                running.done(Amount { bytes, ..Amount::default() }, Amount::default());
                Ok(())
            }
            Err(error) => {
                running.end_failed(&error);
                Err(error)
            }
        }
    }
}

fn activity(compaction: &Compaction, before: Amount) -> String {
    let Amount { rows, blocks, .. } = before;
    match compaction.kind {
        CompactionKind::Seal => format!("writes {rows} delta rows to blocks"),
        CompactionKind::Clean => format!("rewrites {rows} rows of {blocks} blocks, without the deleted ones"),
        CompactionKind::Merge => format!("merges {rows} rows of {blocks} blocks"),
    }
}

impl Worker<'_> {
    /// Writes the rows of `part`, which contains only the blocks and pages to replace, to new blocks. Returns the
    /// amount written.
    async fn rewrite_rows(&self, part: Arc<Table>, compaction: &Compaction) -> Result<Amount> {
        let (store, name) = (Arc::clone(self.store), part.name.clone());
        // Unsorted rows are read block by block. Several sort runs are merged, with one stream each.
        let is_merged = !part.design.sort_by.is_empty() && part.runs.len() > 1;
        let partitions = match is_merged {
            true => self.threads.max(2),
            false if part.design.sort_by.is_empty() => 1,
            false => self.threads,
        };
        let rows = match part.rows() <= RELOCATED_ROWS_MAX {
            true => TautTable::with_row_ids(Arc::clone(&store), Arc::clone(&part)),
            false => TautTable::whole(Arc::clone(&store), Arc::clone(&part)),
        };
        let target = TargetTable { store, target: Target::Moved { table: part, order: compaction.order } };
        let rows = LogicalPlanBuilder::scan(name.as_str(), provider_as_source(Arc::new(rows)), None)?.build()?;
        let target = provider_as_source(Arc::new(target));
        let plan =
            LogicalPlanBuilder::insert_into(rows, TableReference::bare(name), target, InsertOp::Append)?.build()?;
        let mut state = self.context.state();
        let config = state.config_mut();
        config.options_mut().execution.target_partitions = partitions;
        if let Some(pace) = &self.pace {
            config.set_extension(Arc::clone(pace));
        }
        if let Some(progress) = &self.progress {
            config.set_extension(Arc::new(progress.clone()));
        }
        let physical = state.create_physical_plan(&plan).await?;
        let counts: Vec<_> = execute_stream(Arc::clone(&physical), state.task_ctx())?.try_collect().await?;
        let count = |batch: &datafusion::arrow::record_batch::RecordBatch| {
            batch.column(0).as_primitive::<UInt64Type>().iter().flatten().sum::<u64>()
        };
        let written = physical.metrics().unwrap_or_default();
        let metric = |name: &str| written.sum_by_name(name).map_or(0, |value| value.as_usize() as u64);
        let rows = counts.iter().map(count).sum();
        Ok(Amount { rows, blocks: metric("blocks_written"), bytes: metric("bytes_written") })
    }
}

/// Whether a compaction failed because rows, blocks or the design ([`TableDesign`](taut_types::TableDesign)) of the
/// table changed concurrently.
pub(crate) fn is_conflict(error: &QueryError) -> bool {
    let conflict = |error: &CommitError| {
        matches!(
            error,
            CommitError::RowsChanged { .. }
                | CommitError::RowsLocked
                | CommitError::NoBlock { .. }
                | CommitError::NotOneRun { .. }
                | CommitError::NoTable { .. }
                | CommitError::Design { .. }
                | CommitError::SortOrder { .. }
        )
    };
    match error {
        QueryError::Commit(error) => conflict(error),
        QueryError::Engine(error) => match error.find_root() {
            datafusion::error::DataFusionError::External(inner) => {
                inner.downcast_ref().is_some_and(conflict) || inner.downcast_ref().is_some_and(is_conflict)
            }
            _ => false,
        },
        _ => false,
    }
}
