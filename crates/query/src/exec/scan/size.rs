//! Sizes of the scans of a plan.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use taut_block::SEGMENT_ROWS;

use super::morsels::rows_of_all;
use super::source::ScanSource;

/// Rows of all scans of a plan, deleted rows included. A table that is scanned twice counts twice.
pub fn rows_of(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = plan.downcast_ref::<DataSourceExec>().and_then(|exec| exec.data_source().downcast_ref::<ScanSource>());
    let own = own.map_or(0, |scan| rows_of_all(scan.table.stored()));
    plan.children().into_iter().map(rows_of).sum::<u64>() + own
}

/// Approximate bytes of a batch of a plan that only returns the rows of a scan.
const BATCH_BYTES: f64 = 16_777_216.0;
/// Maximum rows of such a batch.
const BATCH_ROWS_MAX: usize = 8 * SEGMENT_ROWS;

/// Suitable number of rows per batch of a plan that only returns the rows of a scan: several segments, unless rows are
/// wide. `None` for other plans, whose operators need batches that fit the caches.
pub fn batch_rows_of(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some(exec) = plan.downcast_ref::<DataSourceExec>() {
        let scan = exec.data_source().downcast_ref::<ScanSource>()?;
        let row_bytes: f64 = scan.columns.iter().map(|column| scan.table.row_bytes(*column)).sum();
        return Some((BATCH_BYTES / row_bytes.max(1.0)).clamp(1.0, BATCH_ROWS_MAX as f64) as usize);
    }
    let hands_on =
        plan.downcast_ref::<CoalescePartitionsExec>().is_some() || plan.downcast_ref::<CooperativeExec>().is_some();
    match plan.children().as_slice() {
        [child] if hands_on => batch_rows_of(child),
        _ => None,
    }
}
