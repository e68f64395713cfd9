//! Reads of single numbers of packed vectors, by their rows in the chunk.
//!
//! A number lies in one or two words of its lane. A word is an integer of as many bits as the lane (see
//! `bit_packing.rs`). Words that are far apart arrive from memory one by one unless they are requested together. The
//! functions here therefore convert a register of rows into a register of addresses, and load all of these in direct
//! succession.

pub(super) mod avx2;
pub(super) mod avx512;
