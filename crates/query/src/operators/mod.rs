//! What is done to the physical operators of every plan before it runs: a cancelled statement ends in each of them,
//! strings that they pass on hold no more memory than they need, hash joins give scans the set of their keys, and semi
//! joins read each key of their inner side once.

mod checked_filter;
mod distinct_keys;
mod interruptible;
mod join_keys;
mod string_views;

pub use interruptible::{Interrupt, make_interruptible};
pub use join_keys::{BuildKeys, JoinKeys, KeySet};
