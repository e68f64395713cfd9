//! Reads numbers at given rows of a chunk, eight or four at a time, with AVX2.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::VECTOR_ROWS;

/// Rows that are read together.
const ROWS: usize = 8;

/// Reverses the lowest three bits of each byte. The other bits must be zero.
#[inline]
#[target_feature(enable = "avx2")]
fn reversed(bytes: __m256i) -> __m256i {
    let order = _mm256_set1_epi64x(0x0703_0501_0602_0400);
    _mm256_shuffle_epi8(order, bytes)
}

/// Positions of the numbers at eight rows. Packed words are stored in lines of 128 bytes. A line has one word of each
/// lane.
struct BitPositions {
    /// Index of the line with the number's first word.
    lines: __m256i,
    /// Offset of the number in its first word, in bits.
    shifts: __m256i,
    /// The lane of the number.
    lanes: __m256i,
}

/// Computes the positions of the numbers at eight rows of a chunk. The bits of a row are:
///
/// ```text
/// | vector   | low    | high, reversed | lane     |
/// | 31 .. 10 | 9 .. 7 | 6 .. n         | n-1 .. 0 |      2^n lanes in a vector
/// ```
///
/// `high` and `low` together are the ordinal of the number in its lane. The bits of `high` are in reverse order. See
/// `bit_packing::first_index`.
#[inline]
#[target_feature(enable = "avx2")]
fn bit_positions<const BITS: i32>(width: __m256i, rows: __m256i) -> BitPositions {
    let all = |value: u32| _mm256_set1_epi32(value as i32);
    let by = |shift: i32| _mm_cvtsi32_si128(shift);
    // Number of lanes in a vector.
    let lanes = VECTOR_ROWS as u32 / BITS as u32;
    let lane = _mm256_and_si256(rows, all(lanes - 1));
    let reversed_bits = _mm256_srli_epi32::<4>(_mm256_and_si256(rows, all(127 & !(lanes - 1))));
    let low_bits = _mm256_and_si256(_mm256_srli_epi32::<7>(rows), all(7));
    let ordinal = _mm256_or_si256(_mm256_slli_epi32::<3>(reversed(reversed_bits)), low_bits);
    let bit = _mm256_mullo_epi32(ordinal, width);
    // A vector has one line for each bit of the width.
    let vector_line = _mm256_mullo_epi32(_mm256_srli_epi32::<10>(rows), width);
    let word = _mm256_srl_epi32(bit, by(BITS.trailing_zeros() as i32));
    let shifts = _mm256_and_si256(bit, all(BITS as u32 - 1));
    BitPositions { lines: _mm256_add_epi32(vector_line, word), shifts, lanes: lane }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(rows: &[u32; ROWS]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are loaded; the load needs no alignment.
    unsafe { _mm256_loadu_si256(rows.as_ptr().cast()) }
}

/// Declares the function for one lane type. `$eight` reads the numbers at eight rows.
macro_rules! gather {
    ($name:ident, $lane:ident, $eight:expr) => {
        /// Writes the number at `rows[i]` to `out[i]`, for each index `i`. The machine must have AVX2.
        ///
        /// # Panics
        /// If a row is past the packed vectors, or `rows` and `out` have different lengths. If the width is zero or
        /// greater than the bits of a lane.
        #[target_feature(enable = "avx2")]
        pub(in crate::kernels) fn $name(width: usize, packed: &[$lane], rows: &[u32], out: &mut [MaybeUninit<$lane>]) {
            const BITS: usize = <$lane>::BITS as usize;
            assert!((1..=BITS).contains(&width), "a packed number has at least one bit and fits a lane");
            let vectors = packed.len() / (VECTOR_ROWS / BITS * width);
            let last = rows.iter().fold(0, |last, row| last.max(*row));
            assert!((last as usize) < vectors * VECTOR_ROWS, "rows must be within the packed vectors");
            assert!(size_of_val(packed) <= i32::MAX as usize, "word indexes have 32 bits");
            assert_eq!(rows.len(), out.len(), "a cell for each row");
            let (eights, rest) = rows.as_chunks::<ROWS>();
            let (cells, rest_cells) = out.as_chunks_mut::<ROWS>();
            for (rows, cells) in eights.iter().zip(cells) {
                // SAFETY: all rows are within the packed vectors.
                let numbers = unsafe { $eight(width, packed, load(rows)) };
                for (cell, number) in cells.iter_mut().zip(numbers) {
                    cell.write(number as $lane);
                }
            }
            let mut padded = [0; ROWS];
            padded[..rest.len()].copy_from_slice(rest);
            if !rest.is_empty() {
                // SAFETY: as above. The padding is row 0, which exists because `rest` is not empty.
                let numbers = unsafe { $eight(width, packed, load(&padded)) };
                for (cell, number) in rest_cells.iter_mut().zip(numbers) {
                    cell.write(number as $lane);
                }
            }
        }
    };
}
gather!(gather_8, u8, gather_eight::<8, u8>);
gather!(gather_16, u16, gather_eight::<16, u16>);
gather!(gather_32, u32, gather_eight::<32, u32>);
gather!(gather_64, u64, gather_eight_64);

/// Four indexes of 32 bits each, as `usize`.
#[inline]
#[target_feature(enable = "avx2")]
fn to_indexes(indexes: __m128i) -> [usize; 4] {
    let (low, high) = (_mm_cvtsi128_si64(indexes) as u64, _mm_extract_epi64::<1>(indexes) as u64);
    [low as u32 as usize, (low >> 32) as usize, high as u32 as usize, (high >> 32) as usize]
}

/// Words of 32 bits at eight indexes, each loaded on its own. The gather instruction is slower on machines that run it
/// in microcode, and has fewer loads in flight at a time.
///
/// # Safety
/// There must be a word at each index.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words_32(base: *const i32, indexes: __m256i) -> __m256i {
    let [a, b, c, d] = to_indexes(_mm256_castsi256_si128(indexes));
    let [e, f, g, h] = to_indexes(_mm256_extracti128_si256::<1>(indexes));
    // SAFETY: the caller guarantees that there are words at these indexes.
    let word = |index: usize| unsafe { base.add(index).read() };
    _mm256_setr_epi32(word(a), word(b), word(c), word(d), word(e), word(f), word(g), word(h))
}

/// Like [`words_32`], for words of 64 bits at four indexes.
///
/// # Safety
/// Like [`words_32`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words_64(base: *const i64, indexes: __m128i) -> __m256i {
    let [a, b, c, d] = to_indexes(indexes);
    // SAFETY: the caller guarantees that there are words at these indexes.
    let word = |index: usize| unsafe { base.add(index).read() };
    _mm256_setr_epi64x(word(a), word(b), word(c), word(d))
}

/// Numbers at eight rows, for lanes of up to 32 bits.
///
/// # Safety
/// The rows must be within the packed vectors, the width from 1 to `BITS`, and `BITS` the bits of a lane.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather_eight<const BITS: i32, L>(width: usize, packed: &[L], rows: __m256i) -> [u32; ROWS] {
    let all = |value: i32| _mm256_set1_epi32(value);
    let by = |shift: i32| _mm_cvtsi32_si128(shift);
    let widths = all(width as i32);
    let BitPositions { lines, shifts, lanes } = bit_positions::<BITS>(widths, rows);
    // Converts each position to the index of a 32-bit word and the offset of the lane in this word, in bits.
    let lanes_of_word = 32 / BITS;
    let lane_words = _mm256_srl_epi32(lanes, by(lanes_of_word.trailing_zeros() as i32));
    let words = _mm256_add_epi32(_mm256_slli_epi32::<5>(lines), lane_words);
    let lane_bits = _mm256_mullo_epi16(_mm256_and_si256(lanes, all(lanes_of_word - 1)), all(BITS));
    let lane_of = |words| _mm256_and_si256(_mm256_srlv_epi32(words, lane_bits), all((u32::MAX >> (32 - BITS)) as i32));
    let is_split = _mm256_cmpgt_epi32(_mm256_add_epi32(shifts, widths), all(BITS));
    // If a number ends in its first word, `next` is the same word. `number_mask` then removes the bits from `next`.
    let next = _mm256_add_epi32(words, _mm256_and_si256(is_split, all(32)));
    let base = packed.as_ptr().cast();
    // SAFETY: all rows are within the packed vectors, and so are their words of 4 bytes: a vector has a multiple of 128
    // bytes. A number that does not end in its first word has bits in the next word of its lane, one line later.
    let (low, high) = unsafe { (words_32(base, words), words_32(base, next)) };
    let low = _mm256_srlv_epi32(lane_of(low), shifts);
    let high = _mm256_sllv_epi32(lane_of(high), _mm256_sub_epi32(all(BITS), shifts));
    let number_mask = all((u32::MAX >> (32 - width)) as i32);
    let mut numbers = [0; ROWS];
    // SAFETY: the array has the 32 bytes that are written; the store needs no alignment.
    unsafe {
        let masked = _mm256_and_si256(_mm256_or_si256(low, high), number_mask);
        _mm256_storeu_si256(numbers.as_mut_ptr().cast(), masked);
    }
    numbers
}

/// Like [`gather_eight`], for lanes of 64 bits.
///
/// # Safety
/// Like [`gather_eight`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather_eight_64(width: usize, packed: &[u64], rows: __m256i) -> [u64; ROWS] {
    let BitPositions { lines, shifts, lanes } = bit_positions::<64>(_mm256_set1_epi32(width as i32), rows);
    let words = _mm256_add_epi32(_mm256_slli_epi32::<4>(lines), lanes);
    let number_mask = _mm256_set1_epi64x((u64::MAX >> (64 - width)) as i64);
    let base = packed.as_ptr().cast();
    let mut numbers = [0; ROWS];
    let halves = [
        (_mm256_castsi256_si128(words), _mm256_castsi256_si128(shifts)),
        (_mm256_extracti128_si256::<1>(words), _mm256_extracti128_si256::<1>(shifts)),
    ];
    for ((words, shifts), numbers) in halves.into_iter().zip(numbers.as_chunks_mut::<{ ROWS / 2 }>().0) {
        let is_split = _mm_cmpgt_epi32(_mm_add_epi32(shifts, _mm_set1_epi32(width as i32)), _mm_set1_epi32(64));
        let next = _mm_add_epi32(words, _mm_and_si128(is_split, _mm_set1_epi32(16)));
        let shifts = _mm256_cvtepu32_epi64(shifts);
        // SAFETY: all rows are within the packed vectors, and so are their words. A number that does not end in its
        // first word has bits in the next word of its lane, one line later.
        let (low, high) = unsafe { (words_64(base, words), words_64(base, next)) };
        let low = _mm256_srlv_epi64(low, shifts);
        let high = _mm256_sllv_epi64(high, _mm256_sub_epi64(_mm256_set1_epi64x(64), shifts));
        let masked = _mm256_and_si256(_mm256_or_si256(low, high), number_mask);
        // SAFETY: the array has the 32 bytes that are written; the store needs no alignment.
        unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().cast(), masked) };
    }
    numbers
}
