//! Row counts and batch sizes of the scans of a plan.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use taut_block::SEGMENT_ROWS;

use super::morsels::table_rows;
use super::source::ScanSource;
use crate::exec::operators::OrderedCollectExec;

/// Rows of all scans of a plan, deleted rows included. A table that is scanned twice counts twice.
pub fn scanned_rows(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let scanned =
        plan.downcast_ref::<DataSourceExec>().and_then(|exec| exec.data_source().downcast_ref::<ScanSource>());
    let scanned = scanned.map_or(0, |scan| table_rows(scan.table.stored()));
    plan.children().into_iter().map(scanned_rows).sum::<u64>() + scanned
}

/// Approximate bytes of a batch of a plan that only returns the rows of a scan.
const BATCH_BYTES: f64 = 16_777_216.0;
/// Maximum rows of such a batch.
const BATCH_ROWS_MAX: usize = 8 * SEGMENT_ROWS;

/// Suitable number of rows per batch of a plan that only returns the rows of a scan: several segments, unless rows are
/// wide. `None` for other plans, whose operators need batches that fit the caches.
pub fn suitable_batch_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some(exec) = plan.downcast_ref::<DataSourceExec>() {
        let scan = exec.data_source().downcast_ref::<ScanSource>()?;
        let row_bytes: f64 = scan.columns.iter().map(|column| scan.table.row_bytes(*column)).sum();
        return Some((BATCH_BYTES / row_bytes.max(1.0)).clamp(1.0, BATCH_ROWS_MAX as f64) as usize);
    }
    let passes_rows =
        plan.is::<CoalescePartitionsExec>() || plan.is::<CooperativeExec>() || plan.is::<OrderedCollectExec>();
    match plan.children().as_slice() {
        [child] if passes_rows => suitable_batch_rows(child),
        _ => None,
    }
}
