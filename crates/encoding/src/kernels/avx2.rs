//! AVX2 operations on one register, with one function per lane width.
//!
//! A comparison sets all bits of a passing lane, but a selection has one bit per lane. Lanes are therefore narrowed to
//! bytes: one instruction then reads a bit from each of 32 bytes.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::kernels::loops::loops;
use crate::kernels::{MASK_WORDS, VectorBits};

/// Register of 32 bytes.
type Register = __m256i;

/// Result of a predicate on a register: each lane is all ones or all zeros.
type Mask = __m256i;

/// Loads lanes, which must fill a register.
#[inline]
#[target_feature(enable = "avx2")]
fn load<L>(lanes: &[L]) -> Register {
    assert_eq!(size_of_val(lanes), size_of::<Register>(), "the lanes of a register");
    // SAFETY: the slice has the bytes that are loaded; the load needs no alignment.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

/// Writes all cells. There must be one per lane of the register.
#[inline]
#[target_feature(enable = "avx2")]
fn store<L>(lanes: Register, cells: &mut [MaybeUninit<L>]) {
    assert_eq!(size_of_val(cells), size_of::<Register>(), "a cell for each lane");
    // SAFETY: the slice has the bytes that are written; the store needs no alignment.
    unsafe { _mm256_storeu_si256(cells.as_mut_ptr().cast(), lanes) };
}

/// Whether any bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn any(bits: &VectorBits) -> bool {
    bits.iter().fold(0, |all, word| all | word) != 0
}

/// Declares functions that need AVX2.
macro_rules! with_avx2 {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[$note])*
            #[inline]
            #[target_feature(enable = "avx2")]
            fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

with_avx2! {
    /// Bits that are set in both registers.
    fn and(left: Register, right: Register) -> Register {
        _mm256_and_si256(left, right)
    }

    /// Number of bits that lanes are shifted by.
    fn shift_count(shift: usize) -> __m128i {
        _mm_cvtsi32_si128(shift as i32)
    }

    /// Lanes that pass at least one of two predicates.
    fn either(left: Mask, right: Mask) -> Mask {
        _mm256_or_si256(left, right)
    }

    /// One bit per byte of two registers.
    fn bits_of(first: Mask, second: Mask) -> u64 {
        let bits = |bytes: Mask| u64::from(_mm256_movemask_epi8(bytes) as u32);
        bits(first) | bits(second) << 32
    }

    /// One bit per lane of a group.
    fn bits_8(masks: [Mask; 4]) -> [u64; 2] {
        [bits_of(masks[0], masks[1]), bits_of(masks[2], masks[3])]
    }
    fn bits_16(masks: [Mask; 4]) -> [u64; 1] {
        // The instruction packs both halves of a register separately, so the quarters come out as 0 2 1 3. The
        // permutation restores their order.
        let packed = |first: Mask, second: Mask| {
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(first, second))
        };
        [bits_of(packed(masks[0], masks[1]), packed(masks[2], masks[3]))]
    }
    fn bits_32(masks: [Mask; 4]) -> [u32; 1] {
        let (first, second) = (_mm256_packs_epi32(masks[0], masks[1]), _mm256_packs_epi32(masks[2], masks[3]));
        // The first halves of all four masks, then the second halves. The permutation restores their order.
        let halves = _mm256_packs_epi16(first, second);
        let bytes = _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        [_mm256_movemask_epi8(bytes) as u32]
    }
    fn bits_64(masks: [Mask; 4]) -> [u16; 1] {
        // Takes one half of each lane, because both halves are equal.
        let pair = |first: Mask, second: Mask| {
            _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second)))
        };
        let lanes = _mm256_packs_epi32(pair(masks[0], masks[1]), pair(masks[2], masks[3]));
        let halves = _mm_packs_epi16(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
        let order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
        [_mm_movemask_epi8(_mm_shuffle_epi8(halves, order)) as u16]
    }

    /// Operands of [`in_range_8`] and its siblings. AVX2 compares only signed lanes, so the unsigned range becomes a
    /// signed range that begins at the least signed lane. With `half` as half of the value range of a lane, a lane
    /// passes if `lane - (low - half) < span + 1 - half`. `span` must not be the greatest lane.
    fn range_8(low: u8, span: u8) -> [Register; 2] {
        [_mm256_set1_epi8(low.wrapping_sub(1 << 7) as i8), _mm256_set1_epi8((span + 1).wrapping_sub(1 << 7) as i8)]
    }
    fn range_16(low: u16, span: u16) -> [Register; 2] {
        [_mm256_set1_epi16(low.wrapping_sub(1 << 15) as i16), _mm256_set1_epi16((span + 1).wrapping_sub(1 << 15) as i16)]
    }
    fn range_32(low: u32, span: u32) -> [Register; 2] {
        [_mm256_set1_epi32(low.wrapping_sub(1 << 31) as i32), _mm256_set1_epi32((span + 1).wrapping_sub(1 << 31) as i32)]
    }
    fn range_64(low: u64, span: u64) -> [Register; 2] {
        [_mm256_set1_epi64x(low.wrapping_sub(1 << 63) as i64), _mm256_set1_epi64x((span + 1).wrapping_sub(1 << 63) as i64)]
    }

    /// Whether each lane is in a range.
    fn in_range_8(lanes: Register, range: [Register; 2]) -> Mask {
        _mm256_cmpgt_epi8(range[1], _mm256_sub_epi8(lanes, range[0]))
    }
    fn in_range_16(lanes: Register, range: [Register; 2]) -> Mask {
        _mm256_cmpgt_epi16(range[1], _mm256_sub_epi16(lanes, range[0]))
    }
    fn in_range_32(lanes: Register, range: [Register; 2]) -> Mask {
        _mm256_cmpgt_epi32(range[1], _mm256_sub_epi32(lanes, range[0]))
    }
    fn in_range_64(lanes: Register, range: [Register; 2]) -> Mask {
        _mm256_cmpgt_epi64(range[1], _mm256_sub_epi64(lanes, range[0]))
    }

    /// Lanes shifted down by `shift`. The top `shift` bits of each lane are undefined.
    fn shr_8(lanes: Register, shift: usize) -> Register {
        _mm256_srl_epi16(lanes, shift_count(shift))
    }
    fn shr_16(lanes: Register, shift: usize) -> Register {
        _mm256_srl_epi16(lanes, shift_count(shift))
    }
    fn shr_32(lanes: Register, shift: usize) -> Register {
        _mm256_srl_epi32(lanes, shift_count(shift))
    }
    fn shr_64(lanes: Register, shift: usize) -> Register {
        _mm256_srl_epi64(lanes, shift_count(shift))
    }

    /// Lanes of `low` shifted down by `shift`, with the low bits of `high` above them. `shift` must not be zero.
    fn join_8(low: Register, high: Register, shift: usize) -> Register {
        let (low, high) = (_mm256_srl_epi16(low, shift_count(shift)), _mm256_sll_epi16(high, shift_count(8 - shift)));
        let is_low = _mm256_set1_epi8((0xff_u8 >> shift) as i8);
        _mm256_or_si256(_mm256_and_si256(is_low, low), _mm256_andnot_si256(is_low, high))
    }
    fn join_16(low: Register, high: Register, shift: usize) -> Register {
        _mm256_or_si256(_mm256_srl_epi16(low, shift_count(shift)), _mm256_sll_epi16(high, shift_count(16 - shift)))
    }
    fn join_32(low: Register, high: Register, shift: usize) -> Register {
        _mm256_or_si256(_mm256_srl_epi32(low, shift_count(shift)), _mm256_sll_epi32(high, shift_count(32 - shift)))
    }
    fn join_64(low: Register, high: Register, shift: usize) -> Register {
        _mm256_or_si256(_mm256_srl_epi64(low, shift_count(shift)), _mm256_sll_epi64(high, shift_count(64 - shift)))
    }

    /// Placeholder for `ordered_32` at the lane widths that no floating-point type has.
    fn ordered_none(bits: Register) -> Register {
        bits
    }
    /// Ordered integers of floating-point numbers: if the sign bit is set, all other bits are inverted.
    fn ordered_32(bits: Register) -> Register {
        let inverted = _mm256_srli_epi32::<1>(_mm256_srai_epi32::<31>(bits));
        _mm256_xor_si256(bits, inverted)
    }
    fn ordered_64(bits: Register) -> Register {
        let sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), bits);
        _mm256_xor_si256(bits, _mm256_srli_epi64::<1>(sign))
    }

    /// Registers for a table of 256 bits that is indexed by bytes. Each register holds one half of the table, twice.
    fn table_8(bits: &[u64; MASK_WORDS]) -> [Register; 2] {
        let half = |at: usize| _mm256_setr_epi64x(bits[at] as i64, bits[at + 1] as i64, bits[at] as i64, bits[at + 1] as i64);
        [half(0), half(2)]
    }
    fn in_table_8(table: [Register; 2], lanes: Register) -> Mask {
        let index = _mm256_and_si256(_mm256_srli_epi16::<3>(lanes), _mm256_set1_epi8(31));
        let (low, high) = (_mm256_shuffle_epi8(table[0], index), _mm256_shuffle_epi8(table[1], index));
        // The fifth bit of the index selects the half. The shift moves it to the top bit, which the instruction
        // reads.
        let flags = _mm256_blendv_epi8(low, high, _mm256_slli_epi16::<3>(index));
        let bit_masks = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let bit = _mm256_shuffle_epi8(bit_masks, _mm256_and_si256(lanes, _mm256_set1_epi8(7)));
        _mm256_cmpeq_epi8(_mm256_and_si256(flags, bit), bit)
    }

    /// Registers for a table of 1,024 bits that is indexed by lanes of 16 bits and more.
    fn table_of(bits: &[u64; MASK_WORDS]) -> [Register; 4] {
        [load(&bits[..4]), load(&bits[4..8]), load(&bits[8..12]), load(&bits[12..])]
    }
    fn in_table_16(table: [Register; 4], lanes: Register) -> Mask {
        // Widens lanes in the order that the packing instruction restores.
        let zero = _mm256_setzero_si256();
        let (low, high) = (_mm256_unpacklo_epi16(lanes, zero), _mm256_unpackhi_epi16(lanes, zero));
        _mm256_packs_epi32(in_table_32(table, low), in_table_32(table, high))
    }
    fn in_table_32(table: [Register; 4], lanes: Register) -> Mask {
        let word = _mm256_srli_epi32::<5>(lanes);
        let lookup = |register: usize| _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(table[register], word));
        // The low three bits of `word` are an index in a register; the next two select the register. Shifts move each
        // of these two to the top bit, which the instruction reads.
        let is_odd = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(word));
        let is_late = _mm256_castsi256_ps(_mm256_slli_epi32::<27>(word));
        let (early, late) = (_mm256_blendv_ps(lookup(0), lookup(1), is_odd), _mm256_blendv_ps(lookup(2), lookup(3), is_odd));
        let flags = _mm256_castps_si256(_mm256_blendv_ps(early, late, is_late));
        let bit = _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_and_si256(lanes, _mm256_set1_epi32(31)));
        let is_set = _mm256_cmpeq_epi32(_mm256_and_si256(flags, bit), bit);
        and(is_set, in_range_32(lanes, range_32(0, 1023)))
    }
    fn in_table_64(table: [Register; 4], lanes: Register) -> Mask {
        let low = _mm256_permutevar8x32_epi32(lanes, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
        let is_set = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(in_table_32(table, low)));
        and(is_set, in_range_64(lanes, range_64(0, 1023)))
    }
}

loops!(
    "avx2", lanes_8, u8, i8, u64, widths 1 2 3 4 5 6 7 8;
    _mm256_set1_epi8, _mm256_sub_epi8, range_8, in_range_8, _mm256_cmpeq_epi8, bits_8,
    shr_8, join_8, ordered_none, table_8, in_table_8
);
loops!(
    "avx2", lanes_16, u16, i16, u64, widths 9 10 11 12 13 14 15 16;
    _mm256_set1_epi16, _mm256_sub_epi16, range_16, in_range_16, _mm256_cmpeq_epi16, bits_16,
    shr_16, join_16, ordered_none, table_of, in_table_16
);
loops!(
    "avx2", lanes_32, u32, i32, u32, widths 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32;
    _mm256_set1_epi32, _mm256_sub_epi32, range_32, in_range_32, _mm256_cmpeq_epi32, bits_32,
    shr_32, join_32, ordered_32, table_of, in_table_32
);
loops!(
    "avx2", lanes_64, u64, i64, u16, widths 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63;
    _mm256_set1_epi64x, _mm256_sub_epi64, range_64, in_range_64, _mm256_cmpeq_epi64, bits_64,
    shr_64, join_64, ordered_64, table_of, in_table_64
);
