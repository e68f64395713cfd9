//! Single numbers of packed vectors, by their rows.
//!
//! A number lies in one or two words of its lane (see `bit_packing.rs`). Words that lie far apart come from memory one
//! by one unless they are asked for together, so a register of rows is computed into a register of
//! addresses, and all of them are loaded one right after the other.

pub(super) mod avx2;
pub(super) mod avx512;
