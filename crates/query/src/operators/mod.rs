//! What is done to the physical operators of every plan before it runs: a cancelled statement ends in each of them,
//! strings that they pass on hold no more memory than they need, and hash joins tell scans which keys they have.

mod checked_filter;
mod interruptible;
mod join_keys;
mod string_views;

pub use interruptible::{Interrupt, make_interruptible};
pub use join_keys::{BuildKeys, JoinKeys, KeySet};
