//! Pace of the mover: it works at most half of the time, so that queries get processor time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use taut_store::Store;
use tokio::sync::Mutex;

use super::{MoverOptions, Shared};

/// Minimum working time before a rest. Shorter working times are added up.
const STRETCH_MIN: Duration = Duration::from_millis(10);
/// Interval at which a rest checks whether a task has begun to wait.
const REST_STEP: Duration = Duration::from_millis(5);

/// Rests for as long as the mover has worked. Skips the rest if a task waits for a maintenance lock, or if commits are
/// about to wait.
#[derive(Debug)]
pub struct Pace {
    store: Weak<Store>,
    options: Arc<MoverOptions>,
    /// Number of tasks that wait for maintenance locks.
    waiting: Arc<AtomicUsize>,
    working_since: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(store: Weak<Store>, shared: &Shared) -> Self {
        let (options, waiting) = (Arc::clone(&shared.options), Arc::clone(&shared.waiting));
        Self { store, options, waiting, working_since: Mutex::new(Instant::now()) }
    }

    /// Restarts the working time. Called when the mover starts to work after it had nothing to do.
    pub async fn begin(&self) {
        *self.working_since.lock().await = Instant::now();
    }

    /// Rests if enough time was spent working. Called between two batches of rows. Streams that rest at the same time
    /// share one rest.
    pub async fn rest(&self) {
        let mut since = self.working_since.lock().await;
        let worked = since.elapsed();
        if worked < STRETCH_MIN {
            return;
        }
        let begun = Instant::now();
        while begun.elapsed() < worked && !self.is_urgent() {
            tokio::time::sleep(REST_STEP.min(worked.saturating_sub(begun.elapsed()))).await;
        }
        *since = Instant::now();
    }

    /// Whether a task waits for a maintenance lock, or the delta of a table exceeds half of the size at which commits
    /// wait.
    fn is_urgent(&self) -> bool {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let Some(store) = self.store.upgrade() else { return true };
        let factor = u64::from(self.options.hard_factor).div_ceil(2).max(1);
        store.snapshot().tables().any(|table| {
            table.delta.page_rows() > self.options.delta_rows.saturating_mul(factor)
                || table.delta.page_bytes() as u64 > (self.options.delta_bytes as u64).saturating_mul(factor)
        })
    }
}
