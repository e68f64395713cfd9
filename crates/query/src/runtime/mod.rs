//! What all statements of a database share while they run: memory, threads, spill files, progress, cancellation.

pub mod cancellation;
pub mod memory;
pub mod pace;
pub mod progress;
pub mod spill;
pub mod workers;
