//! Inner loops. This is the only module of the crate in which `unsafe` is allowed.
//!
//! Each file wraps its unsafe lines in functions that are safe for any argument. The `SAFETY` notes give the reasons.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bit_packing;
mod compress;
mod deposit;
#[cfg(target_arch = "x86_64")]
mod gather;
mod instruction_set;
#[cfg(target_arch = "x86_64")]
mod loops;
mod masks;
#[cfg(target_arch = "x86_64")]
mod narrow;
mod native;
mod positions;
mod prefetch;
mod retain;
mod views;
mod wide;

pub(crate) use bit_packing::{
    Lane, append_extracted, append_sums, append_unpacked, extract, group_of, group_words, pack, packed_bytes, unpack,
    unpack_group, unpack_lanes,
};
pub(crate) use compress::{Compress, compress};
pub(crate) use deposit::deposit;
pub use instruction_set::InstructionSet;
pub(crate) use masks::{MASK_WORDS, mask_of_bytes, word_of_bytes};
pub(crate) use native::{Native, with_lane, with_native};
pub(crate) use positions::append_positions;
pub use prefetch::{LINE_BYTES, prefetch};
pub(crate) use retain::{KernelPredicate, LaneSource, ONE_OF_MAX, Retain, VectorBits};
pub(crate) use views::Views;
pub(crate) use wide::with_wide_vectors;
