//! Runs of a scan whose rows are collected in order.

use std::sync::Arc;

use parking_lot::Mutex;
use taut_store::Table;

use super::morsels::{Morsel, WorkQueue};

/// Maximum number of morsels in a run: those whose indexes are searched together.
const MORSELS_MAX: usize = 1_024;

/// Divides the morsels of one scan into runs of consecutive morsels, which are taken in order. It is an extension in
/// the config with which the scan is executed.
///
/// The target is `rows` rows per run that pass the conditions of the scan. The number of morsels in a run adapts to the
/// share of rows that passed in the runs so far. Near the end, runs get shorter, so that threads end at about the same
/// time.
#[derive(Debug)]
pub struct ScanRuns {
    rows: usize,
    /// Number of runs that are computed at once or wait.
    at_once: usize,
    state: Mutex<Remaining>,
}

#[derive(Debug)]
struct Remaining {
    /// All morsels of the scan; `None` before the first run is taken.
    morsels: Option<Arc<[Morsel]>>,
    next: usize,
    /// Number of morsels of the next run.
    run: usize,
}

impl ScanRuns {
    /// Runs with about this many rows, of which `at_once` are in use at the same time.
    pub fn new(rows: usize, at_once: usize) -> Self {
        Self { rows, at_once: at_once.max(1), state: Mutex::new(Remaining { morsels: None, next: 0, run: 1 }) }
    }

    /// Whether all runs are taken.
    pub fn are_exhausted(&self) -> bool {
        let state = self.state.lock();
        state.morsels.as_ref().is_some_and(|morsels| state.next >= morsels.len())
    }

    /// Takes the next run.
    pub(super) fn take(&self, table: &Table) -> WorkQueue {
        let mut state = self.state.lock();
        let Remaining { morsels, next, run } = &mut *state;
        let morsels = morsels.get_or_insert_with(|| WorkQueue::all(table).into_morsels().into());
        let rest = &morsels[(*next).min(morsels.len())..];
        let count = (*run).min(rest.len().div_ceil(self.at_once)).min(rest.len());
        *next += count;
        WorkQueue::from_morsels(rest[..count].to_vec())
    }

    /// Reports the number of rows of a finished run.
    pub fn report(&self, rows: usize) {
        let mut state = self.state.lock();
        if rows < self.rows / 2 {
            state.run = (state.run * 2).min(MORSELS_MAX);
        } else if rows > self.rows {
            state.run = (state.run / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_of(morsels: usize, at_once: usize) -> ScanRuns {
        let runs = ScanRuns::new(100, at_once);
        runs.state.lock().morsels = Some((0..morsels).map(Morsel::Page).collect());
        runs
    }

    #[test]
    fn runs_grow_while_few_rows_pass_and_shrink_otherwise() {
        let runs = runs_of(10_000, 2);
        let size = || runs.state.lock().run;
        assert_eq!(size(), 1);
        (0..20).for_each(|_| runs.report(3));
        assert_eq!(size(), MORSELS_MAX);
        runs.report(70);
        assert_eq!(size(), MORSELS_MAX);
        (0..20).for_each(|_| runs.report(5_000));
        assert_eq!(size(), 1);
        assert!(!runs.are_exhausted());
    }
}
