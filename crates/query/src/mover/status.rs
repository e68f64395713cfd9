//! State and statistics of the mover, for `taut.mover`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use taut_store::{Catalog, TableId};

use super::policy::CompactionKind;

/// Delay after the first failure. Doubles with each further failure.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Maximum delay after an error.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Maximum delay after a conflict with concurrent changes of the same rows.
const RETRY_MAX_AFTER_CONFLICT: Duration = Duration::from_secs(1);

/// One kind of compaction of a table, or `None` for checkpoints.
pub(crate) type Job = Option<(TableId, CompactionKind)>;

/// Amount of data read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub rows: u64,
    pub blocks: u64,
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

/// State and statistics of one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobStatistics {
    /// Description of the current run, if the job is running.
    pub activity: Option<String>,
    /// Number of successful runs.
    pub times: u64,
    /// Data that was read and replaced.
    pub before: Amount,
    /// Data that was written to replace it.
    pub after: Amount,
    pub work_time: Duration,
    pub done_at: Option<SystemTime>,
    /// The last error and its time.
    pub error: Option<(String, SystemTime)>,
    /// Number of failures since the last successful run.
    pub failures: u32,
    pub retry_at: Option<Instant>,
}

/// Records of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Status(BTreeMap<Job, JobStatistics>);

impl Status {
    pub fn get(&self, job: Job) -> JobStatistics {
        self.0.get(&job).cloned().unwrap_or_default()
    }

    /// Whether a job failed so recently that it must not be retried yet.
    pub fn must_wait(&self, job: Job) -> bool {
        self.0.get(&job).and_then(|record| record.retry_at).is_some_and(|at| at > Instant::now())
    }

    /// Earliest time at which a failed job may be retried.
    pub fn retry_at(&self) -> Option<Instant> {
        let now = Instant::now();
        self.0.values().filter_map(|record| record.retry_at).filter(|at| *at > now).min()
    }

    /// Whether a compaction of a table is running.
    pub fn is_running(&self, table: TableId) -> bool {
        CompactionKind::ALL
            .iter()
            .any(|work| self.0.get(&Some((table, *work))).is_some_and(|record| record.activity.is_some()))
    }

    pub fn begin(&mut self, job: Job, activity: String) {
        self.0.entry(job).or_default().activity = Some(activity);
    }

    pub fn end_successful(&mut self, job: Job, work_time: Duration, before: Amount, after: Amount) {
        let record = self.0.entry(job).or_default();
        record.times += 1;
        record.before.add(before);
        record.after.add(after);
        record.work_time += work_time;
        record.done_at = Some(SystemTime::now());
        (record.activity, record.failures, record.retry_at) = (None, 0, None);
    }

    /// Records a failure: an error to report, or `None` for a conflict with concurrent changes, which is not reported.
    pub fn end_failed(&mut self, job: Job, work_time: Duration, error: Option<String>) {
        let record = self.0.entry(job).or_default();
        let delay_max = if error.is_some() { RETRY_MAX } else { RETRY_MAX_AFTER_CONFLICT };
        let wait = RETRY_MIN.saturating_mul(1 << record.failures.min(16)).min(delay_max);
        record.work_time += work_time;
        record.failures += 1;
        record.retry_at = Some(Instant::now() + wait);
        record.activity = None;
        if let Some(error) = error {
            record.error = Some((error, SystemTime::now()));
        }
    }

    /// Records that a job was cancelled.
    pub fn end_cancelled(&mut self, job: Job) {
        self.0.entry(job).or_default().activity = None;
    }

    /// Removes records of tables that no longer exist.
    pub fn retain_tables(&mut self, catalog: &Catalog) {
        self.0.retain(|job, _| job.is_none_or(|(table, _)| catalog.table_of(table).is_some()));
    }
}
