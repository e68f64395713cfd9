//! AVX-512 operations on one register, with one function per lane width. Comparisons return one bit per lane.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::kernels::loops::loops;
use crate::kernels::{MASK_WORDS, VectorBits};

/// Register of 64 bytes.
type Register = __m512i;

/// Result of a predicate on a register: one bit per lane.
type Mask = u64;

/// Loads lanes, which must fill a register.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
fn load<L>(lanes: &[L]) -> Register {
    assert_eq!(size_of_val(lanes), size_of::<Register>(), "the lanes of a register");
    // SAFETY: the slice has the bytes that are loaded; the load needs no alignment.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// Writes all cells. There must be one per lane of the register.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
fn store<L>(lanes: Register, cells: &mut [MaybeUninit<L>]) {
    assert_eq!(size_of_val(cells), size_of::<Register>(), "a cell for each lane");
    // SAFETY: the slice has the bytes that are written; the store needs no alignment.
    unsafe { _mm512_storeu_si512(cells.as_mut_ptr().cast(), lanes) };
}

/// Whether any bit is set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
fn any(bits: &VectorBits) -> bool {
    let words: &[u64; MASK_WORDS] = bits;
    // SAFETY: the array has the 128 bytes that are loaded; the load needs no alignment.
    let (low, high) =
        unsafe { (_mm512_loadu_si512(words.as_ptr().cast()), _mm512_loadu_si512(words[8..].as_ptr().cast())) };
    let all = _mm512_or_si512(low, high);
    _mm512_test_epi64_mask(all, all) != 0
}

/// Declares functions that need AVX-512.
macro_rules! with_avx512 {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[$note])*
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

with_avx512! {
    /// Bits that are set in both registers.
    fn and(left: Register, right: Register) -> Register {
        _mm512_and_si512(left, right)
    }

    /// Lanes that pass at least one of two predicates.
    fn either(left: Mask, right: Mask) -> Mask {
        left | right
    }

    /// One bit per lane of a group.
    fn bits_8(masks: [Mask; 2]) -> [u64; 2] {
        masks
    }
    fn bits_16(masks: [Mask; 2]) -> [u64; 1] {
        [masks[0] | masks[1] << 32]
    }
    fn bits_32(masks: [Mask; 2]) -> [u32; 1] {
        [(masks[0] | masks[1] << 16) as u32]
    }
    fn bits_64(masks: [Mask; 2]) -> [u16; 1] {
        [(masks[0] | masks[1] << 8) as u16]
    }

    /// Operands of [`in_range_8`] and its siblings: the first lane of a range, and the number of lanes after it.
    fn range_8(low: u8, span: u8) -> [Register; 2] {
        [_mm512_set1_epi8(low as i8), _mm512_set1_epi8(span as i8)]
    }
    fn range_16(low: u16, span: u16) -> [Register; 2] {
        [_mm512_set1_epi16(low as i16), _mm512_set1_epi16(span as i16)]
    }
    fn range_32(low: u32, span: u32) -> [Register; 2] {
        [_mm512_set1_epi32(low as i32), _mm512_set1_epi32(span as i32)]
    }
    fn range_64(low: u64, span: u64) -> [Register; 2] {
        [_mm512_set1_epi64(low as i64), _mm512_set1_epi64(span as i64)]
    }

    /// Whether each lane is in a range.
    fn in_range_8(lanes: Register, range: [Register; 2]) -> Mask {
        _mm512_cmple_epu8_mask(_mm512_sub_epi8(lanes, range[0]), range[1])
    }
    fn in_range_16(lanes: Register, range: [Register; 2]) -> Mask {
        u64::from(_mm512_cmple_epu16_mask(_mm512_sub_epi16(lanes, range[0]), range[1]))
    }
    fn in_range_32(lanes: Register, range: [Register; 2]) -> Mask {
        u64::from(_mm512_cmple_epu32_mask(_mm512_sub_epi32(lanes, range[0]), range[1]))
    }
    fn in_range_64(lanes: Register, range: [Register; 2]) -> Mask {
        u64::from(_mm512_cmple_epu64_mask(_mm512_sub_epi64(lanes, range[0]), range[1]))
    }

    /// Whether each lane equals the same lane of the other register.
    fn equal_8(left: Register, right: Register) -> Mask {
        _mm512_cmpeq_epi8_mask(left, right)
    }
    fn equal_16(left: Register, right: Register) -> Mask {
        u64::from(_mm512_cmpeq_epi16_mask(left, right))
    }
    fn equal_32(left: Register, right: Register) -> Mask {
        u64::from(_mm512_cmpeq_epi32_mask(left, right))
    }
    fn equal_64(left: Register, right: Register) -> Mask {
        u64::from(_mm512_cmpeq_epi64_mask(left, right))
    }

    /// Lanes shifted down by `shift`. The top `shift` bits of each lane are undefined.
    fn shr_8(lanes: Register, shift: usize) -> Register {
        _mm512_srlv_epi16(lanes, _mm512_set1_epi16(shift as i16))
    }
    fn shr_16(lanes: Register, shift: usize) -> Register {
        _mm512_srlv_epi16(lanes, _mm512_set1_epi16(shift as i16))
    }
    fn shr_32(lanes: Register, shift: usize) -> Register {
        _mm512_srlv_epi32(lanes, _mm512_set1_epi32(shift as i32))
    }
    fn shr_64(lanes: Register, shift: usize) -> Register {
        _mm512_srlv_epi64(lanes, _mm512_set1_epi64(shift as i64))
    }

    /// Lanes of `low` shifted down by `shift`, with the low bits of `high` above them. `shift` must not be zero.
    fn join_8(low: Register, high: Register, shift: usize) -> Register {
        let low = _mm512_srlv_epi16(low, _mm512_set1_epi16(shift as i16));
        let high = _mm512_sllv_epi16(high, _mm512_set1_epi16(8 - shift as i16));
        let is_low = _mm512_set1_epi8((0xff_u8 >> shift) as i8);
        // Bits of `low` where `is_low` is one, else bits of `high`.
        _mm512_ternarylogic_epi32::<0xca>(is_low, low, high)
    }
    fn join_16(low: Register, high: Register, shift: usize) -> Register {
        _mm512_shrdv_epi16(low, high, _mm512_set1_epi16(shift as i16))
    }
    fn join_32(low: Register, high: Register, shift: usize) -> Register {
        _mm512_shrdv_epi32(low, high, _mm512_set1_epi32(shift as i32))
    }
    fn join_64(low: Register, high: Register, shift: usize) -> Register {
        _mm512_shrdv_epi64(low, high, _mm512_set1_epi64(shift as i64))
    }

    /// Placeholder for `ordered_32` at the lane widths that no floating-point type has.
    fn ordered_none(bits: Register) -> Register {
        bits
    }
    /// Ordered integers of floating-point numbers: if the sign bit is set, all other bits are inverted.
    fn ordered_32(bits: Register) -> Register {
        let sign = _mm512_srai_epi32::<31>(bits);
        _mm512_ternarylogic_epi32::<0x78>(bits, sign, _mm512_set1_epi32(i32::MAX))
    }
    fn ordered_64(bits: Register) -> Register {
        let sign = _mm512_srai_epi64::<63>(bits);
        _mm512_ternarylogic_epi64::<0x78>(bits, sign, _mm512_set1_epi64(i64::MAX))
    }

    /// Registers for a table of 256 bits that is indexed by bytes: its 32 bytes twice, and a mask for each bit of a
    /// byte.
    fn table_8(bits: &[u64; MASK_WORDS]) -> [Register; 2] {
        let word = |index: usize| bits[index % 4] as i64;
        let flags = _mm512_setr_epi64(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
        [flags, _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64)]
    }
    fn in_table_8(table: [Register; 2], lanes: Register) -> Mask {
        // Indexes are taken modulo 64. Bits that are shifted in from the neighbouring byte do no harm, because both
        // halves of the table register are equal.
        let flags = _mm512_permutexvar_epi8(_mm512_srli_epi16::<3>(lanes), table[0]);
        _mm512_test_epi8_mask(flags, _mm512_permutexvar_epi8(lanes, table[1]))
    }

    /// Registers for a table of 1,024 bits that is indexed by lanes of 16 bits and more.
    fn table_of(bits: &[u64; MASK_WORDS]) -> [Register; 2] {
        let half = |at: usize| {
            let word = |index: usize| bits[at + index] as i64;
            _mm512_setr_epi64(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7))
        };
        [half(0), half(8)]
    }
    fn in_table_16(table: [Register; 2], lanes: Register) -> Mask {
        let flags = _mm512_permutex2var_epi16(table[0], _mm512_srli_epi16::<4>(lanes), table[1]);
        let position = _mm512_and_si512(lanes, _mm512_set1_epi16(15));
        let bit = _mm512_sllv_epi16(_mm512_set1_epi16(1), position);
        let inside = _mm512_cmple_epu16_mask(lanes, _mm512_set1_epi16(1023));
        u64::from(_mm512_mask_test_epi16_mask(inside, flags, bit))
    }
    fn in_table_32(table: [Register; 2], lanes: Register) -> Mask {
        let flags = _mm512_permutex2var_epi32(table[0], _mm512_srli_epi32::<5>(lanes), table[1]);
        let bit = _mm512_rolv_epi32(_mm512_set1_epi32(1), lanes);
        let inside = _mm512_cmple_epu32_mask(lanes, _mm512_set1_epi32(1023));
        u64::from(_mm512_mask_test_epi32_mask(inside, flags, bit))
    }
    fn in_table_64(table: [Register; 2], lanes: Register) -> Mask {
        let flags = _mm512_permutex2var_epi64(table[0], _mm512_srli_epi64::<6>(lanes), table[1]);
        let bit = _mm512_rolv_epi64(_mm512_set1_epi64(1), lanes);
        let inside = _mm512_cmple_epu64_mask(lanes, _mm512_set1_epi64(1023));
        u64::from(_mm512_mask_test_epi64_mask(inside, flags, bit))
    }
}

loops!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2", lanes_8, u8, i8, u64, widths 1 2 3 4 5 6 7 8;
    _mm512_set1_epi8, _mm512_sub_epi8, range_8, in_range_8, equal_8, bits_8,
    shr_8, join_8, ordered_none, table_8, in_table_8
);
loops!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2", lanes_16, u16, i16, u64, widths 9 10 11 12 13 14 15 16;
    _mm512_set1_epi16, _mm512_sub_epi16, range_16, in_range_16, equal_16, bits_16,
    shr_16, join_16, ordered_none, table_of, in_table_16
);
loops!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2", lanes_32, u32, i32, u32, widths 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32;
    _mm512_set1_epi32, _mm512_sub_epi32, range_32, in_range_32, equal_32, bits_32,
    shr_32, join_32, ordered_32, table_of, in_table_32
);
loops!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2", lanes_64, u64, i64, u16, widths 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63;
    _mm512_set1_epi64, _mm512_sub_epi64, range_64, in_range_64, equal_64, bits_64,
    shr_64, join_64, ordered_64, table_of, in_table_64
);
