//! Predicates on whole vectors that produce bits directly: they clear the rows of a selection that fail.
//!
//! The loops are in `loops.rs`. If a machine or a lane type has none, [`Keep::keep`] returns false. The caller then
//! evaluates the predicate with one byte per row, which every machine supports.

use std::mem::MaybeUninit;

use crate::VECTOR_ROWS;
use crate::kernels::MASK_WORDS;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{Instructions, avx2, avx512, gather, narrow};

/// Lanes of vectors, in one of three forms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a, L> {
    /// Packed vectors, one after the other, with at least one bit per number.
    Packed {
        /// Bits of a number.
        width: usize,
        /// Words of the vectors.
        packed: &'a [L],
    },
    /// The lanes themselves. The last vector may be shorter.
    Plain(&'a [L]),
    /// Bits of floating-point numbers. The lanes are their ordered integers. The last vector may be shorter.
    Floats(&'a [L]),
}

/// Predicate that has loops of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Predicate<'a, L> {
    /// `lane - low <= span`, modulo the lane.
    Range {
        /// First lane that passes.
        low: L,
        /// Number of lanes after it that pass too.
        span: L,
    },
    /// The lane is one of these 1 to [`FEW`] values.
    Few(&'a [L]),
    /// The flag at index `lane - low`, modulo the lane, is 1. Flags are bytes of 0 and 1.
    Table {
        /// Lane of the first flag.
        low: L,
        /// One flag per lane.
        flags: &'a [u8],
    },
}

/// Maximum values that are compared one after the other.
pub(crate) const FEW: usize = 6;

/// Bits of the rows of one vector.
pub(crate) type VectorBits = [u64; MASK_WORDS];

/// Operations of a lane type that use the vector instructions of this machine.
pub(crate) trait Keep: Sized {
    /// Clears the bits of lanes that fail the predicate, or of lanes that pass if `negated`. There is one array of bits
    /// per vector. Bits past the last lane are undefined. Returns false, and changes nothing, if there is no loop for
    /// the predicate.
    ///
    /// # Panics
    /// If the source has fewer vectors than there are arrays of bits.
    fn keep(_: &Source<Self>, _: &Predicate<Self>, _negated: bool, _: &mut [VectorBits]) -> bool {
        false
    }

    /// Like [`Keep::keep`], for packed numbers of so few bits that `passes` is called for each possible number.
    fn keep_narrow(_: &Source<Self>, _passes: impl Fn(Self) -> bool, _: &mut [VectorBits]) -> bool {
        false
    }

    /// Unpacks a vector, with `base` added to each number, modulo the lane. Returns false, and writes nothing, if there
    /// is no loop for that. Otherwise writes all cells.
    ///
    /// # Panics
    /// If the packed vector is cut off.
    fn unpack_lanes(_width: usize, _packed: &[Self], _base: Self, _: &mut [MaybeUninit<Self>; VECTOR_ROWS]) -> bool {
        false
    }

    /// Reads the numbers at some rows of packed vectors. Returns false, and writes nothing, if there is no loop for
    /// that. Otherwise writes all cells.
    ///
    /// # Panics
    /// If a row is past the vectors, or the numbers of cells and rows differ.
    fn gather_lanes(_width: usize, _packed: &[Self], _rows: &[u32], _: &mut [MaybeUninit<Self>]) -> bool {
        false
    }
}

impl Keep for u128 {}

#[cfg(target_arch = "x86_64")]
macro_rules! keep {
    ($lane:ident, $module:ident, $gather:ident $(, $narrow:item)?) => {
        impl Keep for $lane {
            $($narrow)?

            fn keep(
                source: &Source<Self>,
                predicate: &Predicate<Self>,
                negated: bool,
                selected: &mut [VectorBits],
            ) -> bool {
                source.check(selected.len());
                match Instructions::current() {
                    Instructions::Portable => false,
                    // SAFETY: the machine has the instructions of the current set.
                    Instructions::Avx2 => unsafe { avx2::$module::keep(source, predicate, negated, selected) },
                    // SAFETY: as above.
                    Instructions::Avx512 => unsafe { avx512::$module::keep(source, predicate, negated, selected) },
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
                match Instructions::current() {
                    Instructions::Portable => return false,
                    // SAFETY: the machine has the instructions of the current set.
                    Instructions::Avx2 => unsafe { avx2::$module::unpack(width, packed, base, out) },
                    // SAFETY: as above.
                    Instructions::Avx512 => unsafe { avx512::$module::unpack(width, packed, base, out) },
                }
                true
            }

            fn gather_lanes(width: usize, packed: &[Self], rows: &[u32], out: &mut [MaybeUninit<Self>]) -> bool {
                if !(1..=Self::BITS as usize).contains(&width) {
                    return false;
                }
                match Instructions::current() {
                    Instructions::Portable => return false,
                    // SAFETY: the machine has the instructions of the current set.
                    Instructions::Avx2 => unsafe { gather::avx2::$gather(width, packed, rows, out) },
                    // SAFETY: as above.
                    Instructions::Avx512 => unsafe { gather::avx512::$gather(width, packed, rows, out) },
                }
                true
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
keep!(
    u8,
    bytes,
    gather_8,
    fn keep_narrow(source: &Source<u8>, passes: impl Fn(u8) -> bool, selected: &mut [VectorBits]) -> bool {
        match source {
            Source::Packed { width: width @ 1..=narrow::WIDTH_MAX, packed }
                if Instructions::current() == Instructions::Avx512 =>
            {
                source.check(selected.len());
                let mut table = narrow::Passes::default();
                for (number, is_passing) in (0..1 << width).zip(&mut table) {
                    *is_passing = passes(number);
                }
                // SAFETY: the machine has the instructions of the current set, and GFNI belongs to that set.
                unsafe { narrow::keep(*width, packed, &table, selected) };
                true
            }
            _ => false,
        }
    }
);
#[cfg(target_arch = "x86_64")]
keep!(u16, halves, gather_16);
#[cfg(target_arch = "x86_64")]
keep!(u32, words, gather_32);
#[cfg(target_arch = "x86_64")]
keep!(u64, doubles, gather_64);
#[cfg(not(target_arch = "x86_64"))]
mod others {
    impl super::Keep for u8 {}
    impl super::Keep for u16 {}
    impl super::Keep for u32 {}
    impl super::Keep for u64 {}
}

impl<'a, L> Source<'a, L> {
    /// Checks that the source has at least `vectors` vectors.
    ///
    /// # Panics
    /// If there are fewer, or packed numbers have no bits or more than the lane.
    #[cfg(target_arch = "x86_64")]
    fn check(&self, vectors: usize) {
        match self {
            Self::Packed { width, packed } => {
                assert!((1..=8 * size_of::<L>()).contains(width), "a number has its bits");
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
