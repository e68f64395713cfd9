//! Reads of single numbers of packed vectors, by their rows.
//!
//! A number lies in one or two words of its lane (see `bit_packing.rs`). Words that are far apart arrive from memory
//! one by one unless they are requested together. A register of rows is therefore turned into a register of addresses,
//! which are all loaded in direct succession.

pub(super) mod avx2;
pub(super) mod avx512;
