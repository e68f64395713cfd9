//! Pace of background work. It runs at most half of the time, so that queries get processor time.

use std::fmt::{self, Debug, Formatter};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// Minimum working time before a rest. Shorter working times add up.
const WORK_TIME_MIN: Duration = Duration::from_millis(10);
/// Interval at which a rest checks whether the work has become urgent.
const REST_STEP: Duration = Duration::from_millis(5);

/// Makes background work rest for as long as it has worked. Skips the rest while the work is urgent.
pub struct Pace {
    is_urgent: Box<dyn Fn() -> bool + Send + Sync>,
    working_since: Mutex<Instant>,
}

impl Pace {
    /// Creates a pace for background work. The work does not rest while `is_urgent` returns true.
    pub fn new(is_urgent: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_urgent: Box::new(is_urgent), working_since: Mutex::new(Instant::now()) }
    }

    /// Restarts the working time. Call when work begins after a time without work.
    pub async fn begin(&self) {
        *self.working_since.lock().await = Instant::now();
    }

    /// Rests if the work has taken long enough. Call between two batches of rows. Streams that rest at the same time
    /// share one rest.
    pub async fn rest(&self) {
        let mut since = self.working_since.lock().await;
        let work_time = since.elapsed();
        if work_time < WORK_TIME_MIN {
            return;
        }
        let begun = Instant::now();
        while begun.elapsed() < work_time && !(self.is_urgent)() {
            tokio::time::sleep(REST_STEP.min(work_time.saturating_sub(begun.elapsed()))).await;
        }
        *since = Instant::now();
    }
}

impl Debug for Pace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pace").finish_non_exhaustive()
    }
}
