//! Transactions: several at once compared with a model, single conflicts, and threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod conflicts;
mod gate;
mod keys;
mod model;
mod random;
mod relocations;
mod rows;
mod threads;
