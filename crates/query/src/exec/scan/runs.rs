//! Divides a scan into runs of morsels, for an operator that collects the rows of the scan in order.

use std::sync::Arc;

use parking_lot::Mutex;
use taut_store::Table;

use super::morsels::{Morsel, WorkQueue};

/// Maximum number of morsels in a run.
const MORSELS_MAX: usize = 1_024;

/// Divides the morsels of one scan into runs of consecutive morsels, which are taken in order. It is an extension of
/// the session configuration of the scan.
///
/// A run should return about `rows_target` rows. If a run returns less than half of that, later runs get twice the
/// morsels. If it returns more than `rows_target`, later runs get half the morsels. Near the end of the scan, runs get
/// shorter, so that all threads end at about the same time.
#[derive(Debug)]
pub struct ScanRuns {
    rows_target: usize,
    /// Maximum number of runs that are being computed, or whose rows wait to be collected.
    runs_max: usize,
    progress: Mutex<RunProgress>,
}

#[derive(Debug)]
struct RunProgress {
    /// All morsels of the scan; `None` before the first run is taken.
    morsels: Option<Arc<[Morsel]>>,
    /// Index of the first morsel of the next run.
    next: usize,
    /// Number of morsels in the next run, unless the scan is near its end.
    run_morsels: usize,
}

impl ScanRuns {
    /// Creates runs that should return about `rows_target` rows each. At most `runs_max` of them are open at a time.
    pub fn new(rows_target: usize, runs_max: usize) -> Self {
        let progress = RunProgress { morsels: None, next: 0, run_morsels: 1 };
        Self { rows_target, runs_max: runs_max.max(1), progress: Mutex::new(progress) }
    }

    /// Whether all runs are taken.
    pub fn are_exhausted(&self) -> bool {
        let progress = self.progress.lock();
        progress.morsels.as_ref().is_some_and(|morsels| progress.next >= morsels.len())
    }

    /// Takes the next run.
    pub(super) fn take(&self, table: &Table) -> WorkQueue {
        let mut progress = self.progress.lock();
        let RunProgress { morsels, next, run_morsels } = &mut *progress;
        let morsels = morsels.get_or_insert_with(|| WorkQueue::all(table).into_morsels().into());
        let rest = &morsels[(*next).min(morsels.len())..];
        let count = (*run_morsels).min(rest.len().div_ceil(self.runs_max)).min(rest.len());
        *next += count;
        WorkQueue::from_morsels(rest[..count].to_vec())
    }

    /// Adapts the number of morsels of later runs to the number of rows that a run returned.
    pub fn adapt(&self, returned_rows: usize) {
        let RunProgress { run_morsels, .. } = &mut *self.progress.lock();
        if returned_rows < self.rows_target / 2 {
            *run_morsels = (*run_morsels * 2).min(MORSELS_MAX);
        } else if returned_rows > self.rows_target {
            *run_morsels = (*run_morsels / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_of(morsels: usize, runs_max: usize) -> ScanRuns {
        let runs = ScanRuns::new(100, runs_max);
        runs.progress.lock().morsels = Some((0..morsels).map(Morsel::Page).collect());
        runs
    }

    #[test]
    fn runs_grow_while_few_rows_pass_and_shrink_if_many_pass() {
        let runs = runs_of(10_000, 2);
        let size = || runs.progress.lock().run_morsels;
        assert_eq!(size(), 1);
        (0..20).for_each(|_| runs.adapt(3));
        assert_eq!(size(), MORSELS_MAX);
        runs.adapt(70);
        assert_eq!(size(), MORSELS_MAX);
        (0..20).for_each(|_| runs.adapt(5_000));
        assert_eq!(size(), 1);
        assert!(!runs.are_exhausted());
    }
}
