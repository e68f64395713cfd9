//! Limits that determine when the mover runs.

use std::time::Duration;

/// Limits for the mover of a database. They do not change while the database is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverOptions {
    /// Whether background compaction is on when the database is opened. `SET mover` changes it later.
    pub is_on: bool,
    /// Number of delta rows of a table above which they are written to blocks.
    pub delta_rows: u64,
    /// Size of the delta of a table, in bytes, above which its rows are written to blocks.
    pub delta_bytes: usize,
    /// Factor for backpressure. Above this many times `delta_rows`, `delta_bytes` or `log_bytes`, a commit waits for
    /// compaction or runs it.
    pub backpressure_factor: u32,
    /// Share of deleted rows, in percent, above which a block is rewritten.
    pub deleted_percent: u64,
    /// Number of deleted rows of a table at which blocks above `deleted_percent` are rewritten even while the table is
    /// in use.
    pub deleted_rows: u64,
    /// Minimum number of inputs of a merge: sort runs, or small neighbouring blocks of an unsorted table. The result of
    /// the merge must be at least `merge_inputs / 2` times as large as the largest input.
    pub merge_inputs: usize,
    /// Maximum plain bytes that one compaction rewrites, if it can be divided.
    pub compaction_bytes: u64,
    /// Maximum rows that one compaction rewrites, if it can be divided.
    pub compaction_rows: u64,
    /// Time for which a table must be unchanged before compactions that are not urgent run on it.
    pub idle: Duration,
    /// Size of the log, in bytes, above which a checkpoint is taken.
    pub log_bytes: u64,
}

impl MoverOptions {
    /// Reduces `delta_bytes` so that commits wait before the delta of a table takes more than a quarter of
    /// `memory_bytes`.
    pub fn limited_to_memory(self, memory_bytes: usize) -> Self {
        let delta_bytes = self.delta_bytes.min(memory_bytes / 4 / (self.backpressure_factor.max(1) as usize));
        Self { delta_bytes, ..self }
    }

    /// Returns limits for a full compaction: it rewrites each block with a deleted row, and merges two or more inputs.
    pub(crate) fn for_full_compaction(&self) -> Self {
        Self { deleted_percent: 0, merge_inputs: 2, ..self.clone() }
    }
}

impl Default for MoverOptions {
    fn default() -> Self {
        Self {
            is_on: true,
            delta_rows: 1 << 20,
            delta_bytes: 64 << 20,
            backpressure_factor: 4,
            deleted_percent: 25,
            deleted_rows: 1 << 16,
            merge_inputs: 8,
            compaction_bytes: 1 << 30,
            compaction_rows: 16 << 20,
            idle: Duration::from_secs(60),
            log_bytes: 64 << 20,
        }
    }
}
