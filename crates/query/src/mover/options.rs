//! When the mover moves rows.

use std::time::Duration;

/// The bounds by which the mover goes. They hold for a database as long as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverOptions {
    /// Whether it works in the background from the start; `SET mover` changes that.
    pub is_on: bool,
    /// Rows of a table in no block from which on they are sealed.
    pub delta_rows: u64,
    /// Bytes of a table in no block from which on they are sealed.
    pub delta_bytes: usize,
    /// At so many times `delta_rows`, `delta_bytes` or `log_bytes` a commit waits for the mover's work, or does it.
    pub hard_factor: u32,
    /// A block of which so many of 100 rows are deleted is written anew.
    pub deleted_percent: u64,
    /// Deleted rows of a table from which on such blocks are not left until it lies idle.
    pub deleted_rows: u64,
    /// So many runs of a sorted table, or small neighbours of another, are merged where each is at most as large as all of
    /// them divided by half this number.
    pub merged_parts: usize,
    /// Plain bytes that a piece of work moves at most, where it can be divided.
    pub piece_bytes: u64,
    /// Rows that a piece of work moves at most, where it can be divided.
    pub piece_rows: u64,
    /// How long a table lies unchanged until work is done on it that was not urgent.
    pub idle: Duration,
    /// Bytes of log from which on a checkpoint is taken.
    pub log_bytes: u64,
}

impl MoverOptions {
    /// With rows of a table in no block that take no more than a quarter of some bytes before a commit waits, however large
    /// the bounds.
    pub fn within(self, memory_bytes: usize) -> Self {
        let delta_bytes = self.delta_bytes.min(memory_bytes / 4 / (self.hard_factor.max(1) as usize));
        Self { delta_bytes, ..self }
    }

    /// As if all that may be done were worth it.
    pub(crate) fn full(&self) -> Self {
        Self { deleted_percent: 0, merged_parts: 2, ..self.clone() }
    }
}

impl Default for MoverOptions {
    fn default() -> Self {
        Self {
            is_on: true,
            delta_rows: 1 << 20,
            delta_bytes: 64 << 20,
            hard_factor: 4,
            deleted_percent: 25,
            deleted_rows: 1 << 16,
            merged_parts: 8,
            piece_bytes: 1 << 30,
            piece_rows: 16 << 20,
            idle: Duration::from_secs(60),
            log_bytes: 64 << 20,
        }
    }
}
