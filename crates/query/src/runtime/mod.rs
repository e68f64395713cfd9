//! Resources of running statements: memory, threads and spill files, which all statements of a database share, and the
//! progress and cancellation of each.

pub mod cancellation;
pub mod memory;
pub mod pace;
pub mod progress;
pub mod session_value;
pub mod shared_rows;
pub mod spill;
pub mod temporary_disk;
pub mod workers;
