//! Packing of 1,024 numbers into a fixed number of bits each, in the transposed layout of FastLanes.
//!
//! With lanes of `T` bits, a vector has `1024 / T` lanes of `T` numbers each. The numbers with ordinal `g` in their
//! lanes form *group* `g`. In the unpacked values, a group is contiguous and begins at `first_index(g)`, so that one
//! instruction works on as many lanes as fit its register. When packed, each lane is a stream of `T * width` bits. The
//! stream consists of words, which are integers of `T` bits. The words of all lanes are interleaved:
//!
//! ```text
//! packed word w of lane l, at w * lanes + l:   bits w*T .. (w+1)*T of the lane's stream
//! number of group g in lane l:                 bits g*width .. (g+1)*width of the lane's stream
//! ```
//!
//! A *line* is one word of each lane: 128 bytes. A row is always a row of the chunk. One value of a lane, an unsigned
//! integer of `T` bits, is also called a lane where its position does not matter, as in [`Lane`].
//!
//! Crate `fastlanes` writes the same format, and tests compare these loops with it. The loops are written here so that
//! the width can be an ordinary variable. One loop then serves all widths, can be fused with the step after it (adding
//! a base, widening, comparing), and is compiled for wider vectors.

use std::mem::MaybeUninit;

use arrow_buffer::ArrowNativeType;

use crate::VECTOR_ROWS;
use crate::kernels::{Native, Retain, with_wide_vectors};

/// Unsigned integer that packed numbers are unpacked to.
pub(crate) trait Lane: ArrowNativeType + Ord + Retain {
    /// Bits of the integer.
    const BITS: usize;
    /// Number of lanes of a vector, and of numbers in a group, which has one number of each lane.
    const GROUP_LANES: usize = VECTOR_ROWS / Self::BITS;
    /// Greatest value.
    const MAX: Self;
    /// Low bits of a number.
    fn from_i128(number: i128) -> Self;
    /// Low bits of a number.
    fn from_u64(number: u64) -> Self;
    /// Low 64 bits of the value.
    fn to_u64(self) -> u64;
    /// The value as a number.
    fn to_u128(self) -> u128;
    /// `self - other`, modulo the range of the integer.
    fn minus(self, other: Self) -> Self;
    /// `self` shifted down by `shift` bits, which must be less than [`Lane::BITS`].
    fn shr(self, shift: usize) -> Self;
    /// `self` shifted up by `shift` bits, which must be less than [`Lane::BITS`].
    fn shl(self, shift: usize) -> Self;
    /// Bits that are set in both.
    fn and(self, other: Self) -> Self;
    /// Bits that are set in one or both.
    fn or(self, other: Self) -> Self;
    /// Bits that are set in exactly one.
    fn xor(self, other: Self) -> Self;
}

macro_rules! lane {
    ($native:ty) => {
        impl Lane for $native {
            const BITS: usize = <$native>::BITS as usize;
            const MAX: Self = <$native>::MAX;
            #[inline(always)]
            fn from_i128(number: i128) -> Self {
                number as Self
            }
            #[inline(always)]
            fn from_u64(number: u64) -> Self {
                number as Self
            }
            #[inline(always)]
            fn to_u64(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn to_u128(self) -> u128 {
                self.into()
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn shr(self, shift: usize) -> Self {
                self.wrapping_shr(shift as u32)
            }
            #[inline(always)]
            fn shl(self, shift: usize) -> Self {
                self.wrapping_shl(shift as u32)
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    };
}
lane!(u8);
lane!(u16);
lane!(u32);
lane!(u64);
lane!(u128);

/// Order of the eight parts of 16 values in every 128 values. The permutation is its own inverse.
const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// Index in the vector of a group's first value, which is in lane 0. The group's other values follow it. Every multiple
/// of the number of lanes is the first index of one group.
#[inline(always)]
pub(super) fn first_index<L: Lane>(group: usize) -> usize {
    ORDER[group / 8] * 16 + group % 8 * 128
}

/// Group of the value at an index in the vector. Inverse of [`first_index`].
#[inline(always)]
pub(crate) fn group_of<L: Lane>(index: usize) -> usize {
    ORDER[index % 128 / L::GROUP_LANES * L::GROUP_LANES / 16] * 8 + index / 128
}

/// Greatest number of `width` bits.
#[inline(always)]
fn mask<L: Lane>(width: usize) -> L {
    if width == 0 { L::default() } else { L::MAX.shr(L::BITS - width) }
}

/// Bytes of a packed vector.
pub(crate) fn packed_bytes(width: usize) -> usize {
    VECTOR_ROWS / 8 * width
}

/// Packs a vector into `packed_bytes(width)` bytes, which must be zero before the call.
///
/// # Panics
/// If the width is greater than the bits of a lane, or the output is shorter than the packed vector.
pub(crate) fn pack<L: Lane>(width: usize, values: &[L; VECTOR_ROWS], packed: &mut [L]) {
    assert!(width <= L::BITS && packed.len() >= width * L::GROUP_LANES, "too few bytes for a packed vector");
    if width > 0 {
        with_wide_vectors(move || pack_groups(width, values, packed));
    }
}

#[inline(always)]
fn pack_groups<L: Lane>(width: usize, values: &[L; VECTOR_ROWS], packed: &mut [L]) {
    let mask = mask::<L>(width);
    for group in 0..L::BITS {
        let first = first_index::<L>(group);
        let values = &values[first..first + L::GROUP_LANES];
        let (word, shift) = (group * width / L::BITS, group * width % L::BITS);
        let (low, high) = packed[word * L::GROUP_LANES..].split_at_mut(L::GROUP_LANES);
        for (low, value) in low.iter_mut().zip(values) {
            *low = low.or(value.and(mask).shl(shift));
        }
        if shift + width > L::BITS {
            for (high, value) in high[..L::GROUP_LANES].iter_mut().zip(values) {
                *high = value.and(mask).shr(L::BITS - shift);
            }
        }
    }
}

/// Unpacks a vector, passing each number through `map`.
///
/// # Panics
/// If the width is greater than the bits of a lane, or the input is shorter than the packed vector.
#[inline]
pub(crate) fn unpack<L: Lane, O: Copy>(width: usize, packed: &[L], out: &mut [O; VECTOR_ROWS], map: impl Fn(L) -> O) {
    let cells = out.as_mut_ptr().cast::<[MaybeUninit<O>; VECTOR_ROWS]>();
    // SAFETY: `MaybeUninit<O>` has the layout of `O`, and `unpack_into` only writes values of `O` through it.
    unpack_into(width, packed, unsafe { &mut *cells }, map);
}

/// Unpacks a vector without changing its numbers.
///
/// # Panics
/// Like [`unpack`].
#[inline]
pub(crate) fn unpack_lanes<L: Lane>(width: usize, packed: &[L], out: &mut [L; VECTOR_ROWS]) {
    assert!(width <= L::BITS && packed.len() >= width * L::GROUP_LANES, "a packed vector is cut off");
    if width == 0 {
        return out.fill(L::default());
    }
    let cells = out.as_mut_ptr().cast::<[MaybeUninit<L>; VECTOR_ROWS]>();
    // SAFETY: `MaybeUninit<L>` has the layout of `L`, and only values of `L` are written through it.
    if !L::unpack_lanes(width, packed, L::default(), unsafe { &mut *cells }) {
        unpack(width, packed, out, |lane| lane);
    }
}

/// Unpacks a vector and appends its numbers to `out`, passing each through `map`.
///
/// # Panics
/// Like [`unpack`].
#[inline]
pub(crate) fn append_unpacked<L: Lane, O: Copy>(width: usize, packed: &[L], out: &mut Vec<O>, map: impl Fn(L) -> O) {
    out.reserve(VECTOR_ROWS);
    unpack_into(width, packed, &mut out.spare_capacity_mut()[..VECTOR_ROWS], map);
    // SAFETY: the capacity was reserved, and `unpack_into` has written all 1,024 cells after the old length.
    unsafe { out.set_len(out.len() + VECTOR_ROWS) };
}

/// Unpacks a vector and appends its numbers to `out`, with `base` added to each, modulo the native integer.
///
/// # Panics
/// Like [`unpack`].
#[inline]
pub(crate) fn append_sums<L: Lane, O: Native>(width: usize, packed: &[L], base: O, out: &mut Vec<O>) {
    if size_of::<O>() == size_of::<L>() {
        assert!(width <= L::BITS && packed.len() >= width * L::GROUP_LANES, "a packed vector is cut off");
        out.reserve(VECTOR_ROWS);
        let cells = out.spare_capacity_mut()[..VECTOR_ROWS].as_mut_ptr().cast::<[MaybeUninit<L>; VECTOR_ROWS]>();
        // SAFETY: the capacity for the cells of a vector was reserved. Both types are integers of one size, and so of
        // one alignment, and hold any bits.
        if L::unpack_lanes(width, packed, L::from_i128(base.to_number()), unsafe { &mut *cells }) {
            // SAFETY: `unpack_lanes` has written all cells.
            return unsafe { out.set_len(out.len() + VECTOR_ROWS) };
        }
    }
    append_unpacked(width, packed, out, |lane| base.plus(lane.to_u64()));
}

/// Writes every cell of `out`, which must have the length of a vector.
#[inline(always)]
fn unpack_into<L: Lane, O: Copy>(width: usize, packed: &[L], out: &mut [MaybeUninit<O>], map: impl Fn(L) -> O) {
    assert!(width <= L::BITS && packed.len() >= width * L::GROUP_LANES, "a packed vector is cut off");
    assert_eq!(out.len(), VECTOR_ROWS, "a vector has its fixed length");
    if width == 0 {
        return out.fill(MaybeUninit::new(map(L::default())));
    }
    let mut lanes = [const { MaybeUninit::uninit() }; VECTOR_ROWS];
    if L::unpack_lanes(width, packed, L::default(), &mut lanes) {
        let lanes = &lanes;
        with_wide_vectors(move || {
            for (out, lane) in out.iter_mut().zip(lanes) {
                // SAFETY: `unpack_lanes` has written all lanes.
                out.write(map(unsafe { lane.assume_init() }));
            }
        });
    } else {
        with_wide_vectors(move || unpack_groups(width, packed, out, map));
    }
}

#[inline(always)]
fn unpack_groups<L: Lane, O: Copy>(width: usize, packed: &[L], out: &mut [MaybeUninit<O>], map: impl Fn(L) -> O) {
    let mask = mask::<L>(width);
    for group in 0..L::BITS {
        let first = first_index::<L>(group);
        let out = &mut out[first..first + L::GROUP_LANES];
        let (word, shift) = (group * width / L::BITS, group * width % L::BITS);
        let low = &packed[word * L::GROUP_LANES..][..L::GROUP_LANES];
        if shift + width <= L::BITS {
            for (out, low) in out.iter_mut().zip(low) {
                out.write(map(low.shr(shift).and(mask)));
            }
        } else {
            let high = &packed[(word + 1) * L::GROUP_LANES..][..L::GROUP_LANES];
            for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
                out.write(map(low.shr(shift).or(high.shl(L::BITS - shift)).and(mask)));
            }
        }
    }
}

/// Range of the words of a packed vector that hold the values of a group.
#[inline(always)]
pub(crate) fn group_words<L: Lane>(width: usize, group: usize) -> std::ops::Range<usize> {
    group * width / L::BITS * L::GROUP_LANES..((group + 1) * width).div_ceil(L::BITS) * L::GROUP_LANES
}

/// Unpacks the values of one group, passing each through `map`. Uses wide vectors only if it is inlined into a loop
/// that [`with_wide_vectors`] compiles.
///
/// # Panics
/// If the vector has no such group, or the width is zero or greater than the bits of a lane. If the input is cut off,
/// or the output is shorter than a group.
#[inline(always)]
pub(crate) fn unpack_group<L: Lane, O>(width: usize, packed: &[L], group: usize, out: &mut [O], map: impl Fn(L) -> O) {
    assert!((1..=L::BITS).contains(&width) && group < L::BITS, "group {group} of a vector of {width} bits");
    let (packed, shift, mask) = (&packed[group_words::<L>(width, group)], group * width % L::BITS, mask::<L>(width));
    let (low, out) = (&packed[..L::GROUP_LANES], &mut out[..L::GROUP_LANES]);
    if shift + width <= L::BITS {
        for (out, low) in out.iter_mut().zip(low) {
            *out = map(low.shr(shift).and(mask));
        }
    } else {
        for ((out, low), high) in out.iter_mut().zip(low).zip(&packed[L::GROUP_LANES..][..L::GROUP_LANES]) {
            *out = map(low.shr(shift).or(high.shl(L::BITS - shift)).and(mask));
        }
    }
}

/// Number of rows whose numbers are buffered on the stack.
const GATHER_BUFFER_ROWS: usize = 256;

/// Appends the numbers at the given rows of packed vectors, passing each through `map`.
///
/// # Panics
/// If a row is past the vectors, or the width is greater than the bits of a lane.
#[inline]
pub(crate) fn append_extracted<L: Lane, O: Copy>(
    width: usize,
    packed: &[L],
    rows: &[u32],
    out: &mut Vec<O>,
    map: impl Fn(L) -> O,
) {
    let mut lanes = [const { MaybeUninit::uninit() }; GATHER_BUFFER_ROWS];
    for rows in rows.chunks(GATHER_BUFFER_ROWS) {
        let lanes = &mut lanes[..rows.len()];
        if L::gather_lanes(width, packed, rows, lanes) {
            // SAFETY: `gather_lanes` has written all of these lanes.
            out.extend(lanes.iter().map(|lane| map(unsafe { lane.assume_init() })));
        } else {
            let words = L::GROUP_LANES * width;
            out.extend(rows.iter().map(|row| {
                let (vector, index) = (*row as usize / VECTOR_ROWS, *row as usize % VECTOR_ROWS);
                map(extract(width, &packed[vector * words..], index))
            }));
        }
    }
}

/// Reads one number of a packed vector.
///
/// # Panics
/// If the index is past the vector, the width is greater than the bits of a lane, or the input is cut off.
#[inline]
pub(crate) fn extract<L: Lane>(width: usize, packed: &[L], index: usize) -> L {
    if width == 0 {
        return L::default();
    }
    let (group, lane) = (group_of::<L>(index), index % L::GROUP_LANES);
    let (word, shift) = (group * width / L::BITS, group * width % L::BITS);
    let first = word * L::GROUP_LANES + lane;
    // If the number ends in its first word, `next` is the same word, which avoids a branch. The mask then removes the
    // bits that come from `next`.
    let next = first + if shift + width > L::BITS { L::GROUP_LANES } else { 0 };
    packed[first].shr(shift).or(packed[next].shl(L::BITS - 1 - shift).shl(1)).and(mask(width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::InstructionSet;
    use fastlanes::BitPacking;
    use taut_testkit::Random;

    /// Compares packing, unpacking, appending and extracting with crate `fastlanes`, for every width of a lane type.
    fn check<L: Lane>(reference: unsafe fn(usize, &[L], &mut [L])) {
        let mut random = Random(7);
        for width in 0..=L::BITS {
            let values: [L; VECTOR_ROWS] = std::array::from_fn(|_| L::from_u64(random.number()));
            let mut expected = vec![L::default(); width * L::GROUP_LANES];
            // SAFETY: the slices have the lengths that `unchecked_pack` requires.
            unsafe { reference(width, &values, &mut expected) };
            let mut packed = vec![L::default(); width * L::GROUP_LANES];
            pack(width, &values, &mut packed);
            assert!(packed == expected, "pack, width {width} of {}", L::BITS);

            let masked = values.map(|value| value.and(mask(width)));
            let mut unpacked = [L::default(); VECTOR_ROWS];
            unpack(width, &packed, &mut unpacked, |lane| lane);
            assert!(unpacked == masked, "unpack, width {width} of {}", L::BITS);
            unpacked.fill(L::default());
            unpack_lanes(width, &packed, &mut unpacked);
            assert!(unpacked == masked, "unpack lanes, width {width} of {}", L::BITS);
            let mut appended = vec![7_i64];
            append_unpacked(width, &packed, &mut appended, |lane| lane.to_u64() as i64);
            check_sums::<L, i16>(width, &packed, &masked);
            check_sums::<L, i32>(width, &packed, &masked);
            check_sums::<L, i64>(width, &packed, &masked);
            check_sums::<L, i128>(width, &packed, &masked);
            let wide: Vec<i64> = std::iter::once(7).chain(masked.iter().map(|lane| lane.to_u64() as i64)).collect();
            assert_eq!(appended, wide, "append, width {width} of {}", L::BITS);
            let both = [packed.clone(), packed.clone()].concat();
            for step in [1, 7, 64, 500] {
                let rows: Vec<u32> = (0..2 * VECTOR_ROWS as u32).rev().step_by(step).collect();
                let mut found = vec![7_i64];
                append_extracted(width, &both, &rows, &mut found, |lane| lane.to_u64() as i64);
                let expected = rows.iter().map(|row| masked[*row as usize % VECTOR_ROWS].to_u64() as i64);
                assert_eq!(
                    found,
                    [7].into_iter().chain(expected).collect::<Vec<_>>(),
                    "gather, width {width} of {}",
                    L::BITS
                );
            }
            for group in (0..L::BITS).filter(|_| width > 0) {
                let (first, mut out) = (first_index::<L>(group), vec![L::default(); L::GROUP_LANES]);
                assert!(
                    (first..first + L::GROUP_LANES).all(|index| group_of::<L>(index) == group),
                    "group {group} of {}",
                    L::BITS
                );
                unpack_group(width, &packed, group, &mut out, |lane| lane);
                assert!(out == masked[first..][..L::GROUP_LANES], "group {group}, width {width} of {}", L::BITS);
            }
            for (index, value) in masked.iter().enumerate() {
                assert!(extract(width, &packed, index) == *value, "extract {index}, width {width} of {}", L::BITS);
            }
        }
    }

    fn check_sums<L: Lane, O: Native + std::fmt::Debug>(width: usize, packed: &[L], numbers: &[L; VECTOR_ROWS]) {
        for base in [O::default(), O::from_number(-77), O::MAX] {
            let mut sums = vec![O::MIN];
            append_sums(width, packed, base, &mut sums);
            let expected = numbers.iter().map(|number| base.plus(number.to_u64()));
            let expected: Vec<O> = std::iter::once(O::MIN).chain(expected).collect();
            assert_eq!(sums, expected, "sums with {base:?}, width {width} of {}", L::BITS);
        }
    }

    #[test]
    fn loops_agree_with_fastlanes() {
        InstructionSet::for_each_available(|_| {
            check::<u8>(BitPacking::unchecked_pack);
            check::<u16>(BitPacking::unchecked_pack);
            check::<u32>(BitPacking::unchecked_pack);
            check::<u64>(BitPacking::unchecked_pack);
        });
    }
}
