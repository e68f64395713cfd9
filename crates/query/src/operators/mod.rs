//! What is done to the physical operators of every plan before it runs: a cancelled statement ends in each of them, and
//! strings that they pass on hold no more memory than they need.

mod checked_filter;
mod interruptible;
mod string_views;

pub use interruptible::{Interrupt, make_interruptible};
