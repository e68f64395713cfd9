//! What AVX-512 does to the lanes of one register, under one name per width of lanes.

use std::arch::x86_64::*;

use crate::kernels::MASK_WORDS;

/// Declares functions that need AVX-512.
macro_rules! with_avx512 {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[$note])*
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            pub(super) fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

/// A register.
type Lanes = __m512i;

with_avx512! {
    /// The bits of each lane from `shift`; what is then above them is undefined.
    fn down_8(lanes: Lanes, shift: usize) -> Lanes {
        _mm512_srlv_epi16(lanes, _mm512_set1_epi16(shift as i16))
    }
    fn down_16(lanes: Lanes, shift: usize) -> Lanes {
        _mm512_srlv_epi16(lanes, _mm512_set1_epi16(shift as i16))
    }
    fn down_32(lanes: Lanes, shift: usize) -> Lanes {
        _mm512_srlv_epi32(lanes, _mm512_set1_epi32(shift as i32))
    }
    fn down_64(lanes: Lanes, shift: usize) -> Lanes {
        _mm512_srlv_epi64(lanes, _mm512_set1_epi64(shift as i64))
    }

    /// The bits of each lane of `low` from `shift`, which is not zero, and above them those of `high`.
    fn join_8(low: Lanes, high: Lanes, shift: usize) -> Lanes {
        let low = _mm512_srlv_epi16(low, _mm512_set1_epi16(shift as i16));
        let high = _mm512_sllv_epi16(high, _mm512_set1_epi16(8 - shift as i16));
        let is_low = _mm512_set1_epi8((0xff_u8 >> shift) as i8);
        // Where the first has ones the second, else the third.
        _mm512_ternarylogic_epi32::<0xca>(is_low, low, high)
    }
    fn join_16(low: Lanes, high: Lanes, shift: usize) -> Lanes {
        _mm512_shrdv_epi16(low, high, _mm512_set1_epi16(shift as i16))
    }
    fn join_32(low: Lanes, high: Lanes, shift: usize) -> Lanes {
        _mm512_shrdv_epi32(low, high, _mm512_set1_epi32(shift as i32))
    }
    fn join_64(low: Lanes, high: Lanes, shift: usize) -> Lanes {
        _mm512_shrdv_epi64(low, high, _mm512_set1_epi64(shift as i64))
    }

    /// The keys of floating-point numbers, of which there are none so short.
    fn key_none(bits: Lanes) -> Lanes {
        bits
    }
    /// The keys of floating-point numbers: where the sign is set, the other bits are turned.
    fn key_32(bits: Lanes) -> Lanes {
        let sign = _mm512_srai_epi32::<31>(bits);
        _mm512_ternarylogic_epi32::<0x78>(bits, sign, _mm512_set1_epi32(i32::MAX))
    }
    fn key_64(bits: Lanes) -> Lanes {
        let sign = _mm512_srai_epi64::<63>(bits);
        _mm512_ternarylogic_epi64::<0x78>(bits, sign, _mm512_set1_epi64(i64::MAX))
    }

    /// The registers in which a table of 256 bits is looked up by bytes: its bytes, which are 32, twice, and the
    /// bit of each place in a byte.
    fn table_8(bits: &[u64; MASK_WORDS]) -> [Lanes; 2] {
        let word = |index: usize| bits[index % 4] as i64;
        let flags = _mm512_setr_epi64(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
        [flags, _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64)]
    }
    fn in_table_8(table: [Lanes; 2], lanes: Lanes) -> u64 {
        // Places are taken modulo 64: bits that come from the neighbour do no harm, as there are two equal halves.
        let flags = _mm512_permutexvar_epi8(_mm512_srli_epi16::<3>(lanes), table[0]);
        _mm512_test_epi8_mask(flags, _mm512_permutexvar_epi8(lanes, table[1]))
    }

    /// The registers in which a table of 1,024 bits is looked up by longer lanes.
    fn table_of(bits: &[u64; MASK_WORDS]) -> [Lanes; 2] {
        let half = |at: usize| {
            let word = |index: usize| bits[at + index] as i64;
            _mm512_setr_epi64(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7))
        };
        [half(0), half(8)]
    }
    fn in_table_16(table: [Lanes; 2], lanes: Lanes) -> u64 {
        let flags = _mm512_permutex2var_epi16(table[0], _mm512_srli_epi16::<4>(lanes), table[1]);
        let place = _mm512_and_si512(lanes, _mm512_set1_epi16(15));
        let bit = _mm512_sllv_epi16(_mm512_set1_epi16(1), place);
        let inside = _mm512_cmple_epu16_mask(lanes, _mm512_set1_epi16(1023));
        u64::from(_mm512_mask_test_epi16_mask(inside, flags, bit))
    }
    fn in_table_32(table: [Lanes; 2], lanes: Lanes) -> u64 {
        let flags = _mm512_permutex2var_epi32(table[0], _mm512_srli_epi32::<5>(lanes), table[1]);
        let bit = _mm512_rolv_epi32(_mm512_set1_epi32(1), lanes);
        let inside = _mm512_cmple_epu32_mask(lanes, _mm512_set1_epi32(1023));
        u64::from(_mm512_mask_test_epi32_mask(inside, flags, bit))
    }
    fn in_table_64(table: [Lanes; 2], lanes: Lanes) -> u64 {
        let flags = _mm512_permutex2var_epi64(table[0], _mm512_srli_epi64::<6>(lanes), table[1]);
        let bit = _mm512_rolv_epi64(_mm512_set1_epi64(1), lanes);
        let inside = _mm512_cmple_epu64_mask(lanes, _mm512_set1_epi64(1023));
        u64::from(_mm512_mask_test_epi64_mask(inside, flags, bit))
    }
}
