//! Predicates on whole vectors that clear the bits of failing rows in a selection.
//!
//! The loops are in `loops.rs`. If none exists for a machine or a lane type, [`Retain::retain`] returns false. The
//! caller then evaluates the predicate with one byte per row, which every machine supports.

use std::mem::MaybeUninit;

use crate::VECTOR_ROWS;
use crate::kernels::MASK_WORDS;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{InstructionSet, avx2, avx512, gather, narrow};

/// Lanes of vectors, in one of three layouts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LaneSource<'a, L> {
    /// Packed vectors, one after the other, with at least one bit per number.
    Packed {
        /// Bits of a number.
        width: usize,
        /// Words of the vectors.
        packed: &'a [L],
    },
    /// The lanes themselves. The last vector may be shorter.
    Plain(&'a [L]),
    /// Bits of floating-point numbers. Predicates compare integers that sort like the numbers, which the loops compute
    /// from the bits. The last vector may be shorter.
    Floats(&'a [L]),
}

/// Predicate that the loops support.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KernelPredicate<'a, L> {
    /// `lane - low <= span`, modulo the lane.
    Range {
        /// First lane that passes.
        low: L,
        /// Distance from the first to the last lane that passes.
        span: L,
    },
    /// The lane is one of these 1 to [`ONE_OF_MAX`] values.
    OneOf(&'a [L]),
    /// The flag at index `lane - low`, modulo the lane, is 1. Flags are bytes of 0 and 1.
    Table {
        /// Lane of the first flag.
        low: L,
        /// One flag per lane.
        flags: &'a [u8],
    },
}

/// Maximum number of values that are compared one after the other.
pub(crate) const ONE_OF_MAX: usize = 6;

/// Bits of the rows of one vector.
pub(crate) type VectorBits = [u64; MASK_WORDS];

/// Operations of a lane type that use the vector instructions of this machine.
pub(crate) trait Retain: Sized {
    /// Clears the bits of lanes that fail the predicate, or of lanes that pass if `negated`. There is one array of bits
    /// per vector. Bits past the last lane are undefined. Returns false, and changes nothing, if there is no loop for
    /// the predicate.
    ///
    /// # Panics
    /// If the source has fewer vectors than there are arrays of bits.
    fn retain(_: &LaneSource<Self>, _: &KernelPredicate<Self>, _negated: bool, _: &mut [VectorBits]) -> bool {
        false
    }

    /// Like [`Retain::retain`], for packed numbers of up to three bits. Calls `passes` for each possible number.
    fn retain_narrow(_: &LaneSource<Self>, _passes: impl Fn(Self) -> bool, _: &mut [VectorBits]) -> bool {
        false
    }

    /// Unpacks a vector, with `base` added to each number, modulo the lane. Returns false, and writes nothing, if no
    /// loop supports this machine and width. Otherwise writes all cells.
    ///
    /// # Panics
    /// If the packed vector is cut off.
    fn unpack_lanes(_width: usize, _packed: &[Self], _base: Self, _: &mut [MaybeUninit<Self>; VECTOR_ROWS]) -> bool {
        false
    }

    /// Reads the numbers at some rows of packed vectors. Returns false, and writes nothing, if no loop supports this
    /// machine and width. Otherwise writes all cells.
    ///
    /// # Panics
    /// If a row is past the vectors, or there are not as many cells as rows.
    fn gather_lanes(_width: usize, _packed: &[Self], _rows: &[u32], _: &mut [MaybeUninit<Self>]) -> bool {
        false
    }
}

impl Retain for u128 {}

#[cfg(target_arch = "x86_64")]
macro_rules! retain {
    ($lane:ident, $module:ident, $gather:ident $(, $narrow:item)?) => {
        impl Retain for $lane {
            $($narrow)?

            fn retain(
                source: &LaneSource<Self>,
                predicate: &KernelPredicate<Self>,
                negated: bool,
                selected: &mut [VectorBits],
            ) -> bool {
                source.check(selected.len());
                match InstructionSet::current() {
                    InstructionSet::Portable => false,
                    // SAFETY: the machine has the instructions of the current set.
                    InstructionSet::Avx2 => unsafe { avx2::$module::retain(source, predicate, negated, selected) },
                    // SAFETY: as above.
                    InstructionSet::Avx512 => unsafe { avx512::$module::retain(source, predicate, negated, selected) },
                }
            }

            fn unpack_lanes(
                width: usize,
                packed: &[Self],
                base: Self,
                out: &mut [MaybeUninit<Self>; VECTOR_ROWS],
            ) -> bool {
                if !(1..=Self::BITS as usize).contains(&width) {
                    return false;
                }
                match InstructionSet::current() {
                    InstructionSet::Portable => return false,
                    // SAFETY: the machine has the instructions of the current set.
                    InstructionSet::Avx2 => unsafe { avx2::$module::unpack(width, packed, base, out) },
                    // SAFETY: as above.
                    InstructionSet::Avx512 => unsafe { avx512::$module::unpack(width, packed, base, out) },
                }
                true
            }

            fn gather_lanes(width: usize, packed: &[Self], rows: &[u32], out: &mut [MaybeUninit<Self>]) -> bool {
                if !(1..=Self::BITS as usize).contains(&width) {
                    return false;
                }
                match InstructionSet::current() {
                    InstructionSet::Portable => return false,
                    // SAFETY: the machine has the instructions of the current set.
                    InstructionSet::Avx2 => unsafe { gather::avx2::$gather(width, packed, rows, out) },
                    // SAFETY: as above.
                    InstructionSet::Avx512 => unsafe { gather::avx512::$gather(width, packed, rows, out) },
                }
                true
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
retain!(
    u8,
    lanes_8,
    gather_8,
    fn retain_narrow(source: &LaneSource<u8>, passes: impl Fn(u8) -> bool, selected: &mut [VectorBits]) -> bool {
        match source {
            LaneSource::Packed { width: width @ 1..=narrow::WIDTH_MAX, packed }
                if InstructionSet::current() == InstructionSet::Avx512 =>
            {
                source.check(selected.len());
                let mut table = narrow::Passes::default();
                for (number, is_passing) in (0..1 << width).zip(&mut table) {
                    *is_passing = passes(number);
                }
                // SAFETY: the machine has the instructions of the current set, and GFNI belongs to that set.
                unsafe { narrow::retain(*width, packed, &table, selected) };
                true
            }
            _ => false,
        }
    }
);
#[cfg(target_arch = "x86_64")]
retain!(u16, lanes_16, gather_16);
#[cfg(target_arch = "x86_64")]
retain!(u32, lanes_32, gather_32);
#[cfg(target_arch = "x86_64")]
retain!(u64, lanes_64, gather_64);
#[cfg(not(target_arch = "x86_64"))]
mod portable {
    impl super::Retain for u8 {}
    impl super::Retain for u16 {}
    impl super::Retain for u32 {}
    impl super::Retain for u64 {}
}

impl<'a, L> LaneSource<'a, L> {
    /// Checks that the source has at least `vectors` vectors.
    ///
    /// # Panics
    /// If there are fewer vectors, or the width is zero or greater than the bits of a lane.
    #[cfg(target_arch = "x86_64")]
    fn check(&self, vectors: usize) {
        match self {
            Self::Packed { width, packed } => {
                assert!(
                    (1..=8 * size_of::<L>()).contains(width),
                    "a packed number has at least one bit and fits a lane"
                );
                assert!(size_of_val(*packed) >= width * VECTOR_ROWS / 8 * vectors, "a packed vector is cut off");
            }
            Self::Plain(lanes) | Self::Floats(lanes) => {
                assert!(lanes.len().div_ceil(VECTOR_ROWS) >= vectors, "lanes are cut off");
            }
        }
    }

    /// Source of a range of the vectors.
    pub(crate) fn vectors(&self, vectors: std::ops::Range<usize>) -> Self {
        let rows = |lanes: &'a [L]| &lanes[vectors.start * VECTOR_ROWS..lanes.len().min(vectors.end * VECTOR_ROWS)];
        match *self {
            Self::Packed { width, packed } => {
                let words = width * VECTOR_ROWS / (8 * size_of::<L>());
                Self::Packed { width, packed: &packed[vectors.start * words..vectors.end * words] }
            }
            Self::Plain(lanes) => Self::Plain(rows(lanes)),
            Self::Floats(bits) => Self::Floats(rows(bits)),
        }
    }
}
