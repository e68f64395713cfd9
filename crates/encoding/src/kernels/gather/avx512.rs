//! Reads numbers at given rows of a chunk, sixteen or eight at a time, with AVX-512.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::VECTOR_ROWS;

/// Rows that are read together.
const ROWS: usize = 16;

/// Positions of the numbers at sixteen rows, for lanes of up to 32 bits.
struct BitPositions {
    /// Index of the 32-bit word in which the number begins.
    words: __m512i,
    /// Offset in this word, in bits, of the part that belongs to the lane.
    lane_bits: __m512i,
    /// Offset of the number in this part, in bits.
    shifts: __m512i,
}

/// Computes the positions of the numbers at sixteen rows of a chunk. The bits of a row are:
///
/// ```text
/// | vector   | low    | high, reversed | lane     |
/// | 31 .. 10 | 9 .. 7 | 6 .. n         | n-1 .. 0 |      2^n lanes in a vector
/// ```
///
/// `high` and `low` together are the ordinal of the number in its lane. The bits of `high` are in reverse order. See
/// `bit_packing::first_index`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn bit_positions<const BITS: u32>(width: __m512i, rows: __m512i) -> BitPositions {
    let all = |value: u32| _mm512_set1_epi32(value as i32);
    // Number of lanes in a vector.
    let lanes = VECTOR_ROWS as u32 / BITS;
    let order = _mm512_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7, 0, 4, 2, 6, 1, 5, 3, 7);
    let lane = _mm512_and_si512(rows, all(lanes - 1));
    let reversed_bits = _mm512_srli_epi32::<4>(_mm512_and_si512(rows, all(127 & !(lanes - 1))));
    let low_bits = _mm512_and_si512(_mm512_srli_epi32::<7>(rows), all(7));
    let high_bits = _mm512_permutexvar_epi32(reversed_bits, order);
    let ordinal = _mm512_or_si512(_mm512_slli_epi32::<3>(high_bits), low_bits);
    let bit = _mm512_mullo_epi32(ordinal, width);
    // Packed words are stored in lines of 128 bytes. A line has one word of each lane. A vector has one line for each
    // bit of the width.
    let vector_line = _mm512_mullo_epi32(_mm512_srli_epi32::<10>(rows), width);
    let (word, lane_words) = match BITS {
        8 => (_mm512_srli_epi32::<3>(bit), _mm512_srli_epi32::<2>(lane)),
        16 => (_mm512_srli_epi32::<4>(bit), _mm512_srli_epi32::<1>(lane)),
        _ => (_mm512_srli_epi32::<5>(bit), lane),
    };
    let words = _mm512_add_epi32(_mm512_slli_epi32::<5>(_mm512_add_epi32(vector_line, word)), lane_words);
    let lane_bits = match BITS {
        8 => _mm512_slli_epi32::<3>(_mm512_and_si512(lane, all(3))),
        16 => _mm512_slli_epi32::<4>(_mm512_and_si512(lane, all(1))),
        _ => _mm512_setzero_si512(),
    };
    BitPositions { words, lane_bits, shifts: _mm512_and_si512(bit, all(BITS - 1)) }
}

macro_rules! gather {
    ($name:ident, $lane:ident, $bits:literal, $narrow:ident) => {
        /// Writes the number at `rows[i]` to `out[i]`, for each index `i`. The machine must have AVX-512.
        ///
        /// # Panics
        /// If a row is past the packed vectors, or `rows` and `out` have different lengths. If the width is zero or
        /// greater than the bits of a lane.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        pub(in crate::kernels) fn $name(width: usize, packed: &[$lane], rows: &[u32], out: &mut [MaybeUninit<$lane>]) {
            assert!((1..=$bits).contains(&width), "a packed number has at least one bit and fits a lane");
            let vectors = packed.len() / (VECTOR_ROWS / $bits * width);
            assert!(
                rows.iter().fold(0, |last, row| last.max(*row)) < (vectors * VECTOR_ROWS) as u32,
                "rows must be within the packed vectors"
            );
            assert_eq!(rows.len(), out.len(), "a cell for each row");
            assert!(size_of_val(packed) <= i32::MAX as usize, "word indexes have 32 bits");
            let all = |value: u32| _mm512_set1_epi32(value as i32);
            let (widths, number_mask) = (all(width as u32), all(u32::MAX >> (32 - width)));
            for (rows, out) in rows.chunks(ROWS).zip(out.chunks_mut(ROWS)) {
                let used = u16::MAX >> (ROWS - rows.len());
                // SAFETY: only as many rows are loaded as the slice has. The others become row 0, which exists.
                let rows = unsafe { _mm512_maskz_loadu_epi32(used, rows.as_ptr().cast()) };
                let BitPositions { words, lane_bits, shifts } = bit_positions::<$bits>(widths, rows);
                let base = packed.as_ptr().cast();
                // SAFETY: all rows are within the packed vectors, and so are their words of 4 bytes: a vector has a
                // multiple of 128 bytes.
                let low = unsafe { _mm512_i32gather_epi32::<4>(words, base) };
                let split = _mm512_cmpgt_epu32_mask(_mm512_add_epi32(shifts, widths), all($bits));
                // SAFETY: a number that does not end in its first word has bits in the next word of its lane, one line
                // later.
                let high = unsafe {
                    let words = _mm512_add_epi32(words, all(32));
                    _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), split, words, base)
                };
                let lane = |words| _mm512_and_si512(_mm512_srlv_epi32(words, lane_bits), all(u32::MAX >> (32 - $bits)));
                let low = _mm512_srlv_epi32(lane(low), shifts);
                let high = _mm512_sllv_epi32(lane(high), _mm512_sub_epi32(all($bits), shifts));
                let numbers = _mm512_and_si512(_mm512_or_si512(low, high), number_mask);
                // SAFETY: only as many cells are written as `out` has.
                unsafe { $narrow(out.as_mut_ptr().cast(), used, numbers) };
            }
        }
    };
}
gather!(gather_8, u8, 8, _mm512_mask_cvtepi32_storeu_epi8);
gather!(gather_16, u16, 16, _mm512_mask_cvtepi32_storeu_epi16);
gather!(gather_32, u32, 32, _mm512_mask_storeu_epi32);

/// Like [`gather_32`], for lanes of 64 bits, eight rows at a time.
///
/// # Panics
/// Like [`gather_32`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::kernels) fn gather_64(width: usize, packed: &[u64], rows: &[u32], out: &mut [MaybeUninit<u64>]) {
    assert!((1..=64).contains(&width), "a packed number has at least one bit and fits a lane");
    let vectors = packed.len() / (VECTOR_ROWS / 64 * width);
    assert!(
        rows.iter().fold(0, |last, row| last.max(*row)) < (vectors * VECTOR_ROWS) as u32,
        "rows must be within the packed vectors"
    );
    assert_eq!(rows.len(), out.len(), "a cell for each row");
    assert!(size_of_val(packed) <= i32::MAX as usize, "word indexes have 32 bits");
    let all = |value: u32| _mm256_set1_epi32(value as i32);
    let (widths, number_mask) = (all(width as u32), _mm512_set1_epi64((u64::MAX >> (64 - width)) as i64));
    let order = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    for (rows, out) in rows.chunks(8).zip(out.chunks_mut(8)) {
        let used = u8::MAX >> (8 - rows.len());
        // SAFETY: only as many rows are loaded as the slice has. The others become row 0, which exists.
        let rows = unsafe { _mm256_maskz_loadu_epi32(used, rows.as_ptr().cast()) };
        let lane = _mm256_and_si256(rows, all(15));
        let reversed_bits = _mm256_and_si256(_mm256_srli_epi32::<4>(rows), all(7));
        let low_bits = _mm256_and_si256(_mm256_srli_epi32::<7>(rows), all(7));
        let high_bits = _mm256_permutexvar_epi32(reversed_bits, order);
        let ordinal = _mm256_or_si256(_mm256_slli_epi32::<3>(high_bits), low_bits);
        let bit = _mm256_mullo_epi32(ordinal, widths);
        // A line has 16 words, one of each lane. A vector has one line for each bit of the width.
        let vector_line = _mm256_mullo_epi32(_mm256_srli_epi32::<10>(rows), widths);
        let line = _mm256_add_epi32(vector_line, _mm256_srli_epi32::<6>(bit));
        let words = _mm256_add_epi32(_mm256_slli_epi32::<4>(line), lane);
        let shifts = _mm256_and_si256(bit, all(63));
        let base = packed.as_ptr().cast();
        // SAFETY: all rows are within the packed vectors, and so are their words.
        let low = unsafe { _mm512_i32gather_epi64::<8>(words, base) };
        let split = _mm256_cmpgt_epu32_mask(_mm256_add_epi32(shifts, widths), all(64));
        // SAFETY: a number that does not end in its first word has bits in the next word of its lane, one line later.
        let high = unsafe {
            let words = _mm256_add_epi32(words, all(16));
            _mm512_mask_i32gather_epi64::<8>(_mm512_setzero_si512(), split, words, base)
        };
        let shifts = _mm512_cvtepu32_epi64(shifts);
        let low = _mm512_srlv_epi64(low, shifts);
        let high = _mm512_sllv_epi64(high, _mm512_sub_epi64(_mm512_set1_epi64(64), shifts));
        let numbers = _mm512_and_si512(_mm512_or_si512(low, high), number_mask);
        // SAFETY: only as many cells are written as `out` has.
        unsafe { _mm512_mask_storeu_epi64(out.as_mut_ptr().cast(), used, numbers) };
    }
}
