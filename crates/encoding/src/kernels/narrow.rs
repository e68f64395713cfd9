//! Predicates on packed numbers of up to three bits, without unpacking them.
//!
//! A predicate on up to three bits is a table of up to eight entries. A lane of eight numbers takes one, two or three
//! bytes, and one byte of the result shows which of these numbers pass. So an instruction on bytes works on several
//! hundred numbers. A group has one number of each lane (see `bit_packing.rs`).
//!
//! ```text
//! bytes of 64 lanes    bits g * width .. (g + 1) * width of a lane are its number in group g
//!   predicate          a byte per lane: bit g is set if the number in group g passes
//!   transposed         for each eight lanes a byte per group, with a bit per lane
//!   bytes in order     the bits of 64 lanes of a group are a word of the mask
//! ```
//!
//! The transposing instruction belongs to GFNI and multiplies matrices of 8 x 8 bits. Eight bytes form a matrix.

use std::arch::x86_64::*;

use crate::VECTOR_ROWS;
use crate::kernels::VectorBits;

/// Maximum width of the numbers, in bits.
pub(super) const WIDTH_MAX: usize = 3;

/// Whether each number of up to [`WIDTH_MAX`] bits passes.
pub(super) type Passes = [bool; 1 << WIDTH_MAX];

/// Bytes of a register.
const BYTES: usize = 64;
/// Lanes of a vector, each with as many bytes as a number has bits.
const LANES: usize = VECTOR_ROWS / 8;

/// Matrix that eight bytes are multiplied by to transpose them. Byte `g` of the product has one bit of each of the
/// eight bytes: the bit of group `g`. Its position is the position of the bit that is set in byte `g` of this matrix.
const IDENTITY: u64 = 0x8040_2010_0804_0201;

/// Like [`IDENTITY`], for bytes whose bits are groups 0, 4, 1, 5, 2, 6, 3 and 7, from the lowest on.
const EVEN_BITS_FIRST: u64 = 0x8020_0802_4010_0401;

/// An array with a byte for each byte of a register, computed from its position.
macro_rules! bytes {
    ($index:ident => $byte:expr) => {{
        let (mut bytes, mut $index) = ([0; BYTES], 0);
        while $index < BYTES {
            bytes[$index] = ($byte) as u8;
            $index += 1;
        }
        bytes
    }};
}

/// Reverses each eight bytes, because a product has the first byte of its matrix in its highest bits.
static REVERSE: [u8; BYTES] = bytes!(index => (index % 16) ^ 7);

/// For each half of the mask's sixteen words: the positions of its bytes in the two registers of transposed bits,
/// counted through both. Word `w` of the mask is group `w / 2` of the 64 lanes in register `w % 2`. In a register,
/// every eight lanes have eight bytes, one for each group.
static MASK_BYTE_POSITIONS: [[u8; BYTES]; 2] = [
    bytes!(index => index / 8 % 2 * BYTES + index % 8 * 8 + index / 16),
    bytes!(index => index / 8 % 2 * BYTES + index % 8 * 8 + index / 16 + 4),
];

/// The second of two three-bit numbers, looked up by the six bits of both.
static SECONDS: [u8; BYTES] = bytes!(index => index / 8);

/// Six bits of two three-bit numbers, looked up by the same bits in another order. The low four bits of the index come
/// from the byte in which the numbers end, the next two bits from the byte before it.
static TWO_AND_FOUR: [u8; BYTES] = bytes!(index => index % 16 * 4 + index / 16);

/// Like [`TWO_AND_FOUR`]. The low two bits of the index come from the byte in which the numbers end, the next four bits
/// from the byte before it.
static FOUR_AND_TWO: [u8; BYTES] = bytes!(index => index % 4 * 16 + index / 4);

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn load(bytes: &[u8; BYTES]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are loaded; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn load_words(words: &[u64; 8]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are loaded; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn store_words(bits: __m512i, words: &mut [u64; 8]) {
    // SAFETY: the array has the 64 bytes that are written; the store needs no alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), bits) };
}

/// Bits of `ones` where `bits` is one, else bits of `zeros`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn choose(bits: __m512i, ones: __m512i, zeros: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xca>(bits, ones, zeros)
}

/// Clears the bits of packed numbers that do not pass.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn retain(width: usize, packed: &[u8], passes: &Passes, selected: &mut [VectorBits]) {
    match width {
        1 => retain_groups::<1, { LANES }>(packed, passes, selected),
        2 => retain_groups::<2, { 2 * LANES }>(packed, passes, selected),
        3 => retain_groups::<3, { 3 * LANES }>(packed, passes, selected),
        width => unreachable!("{width} bits are unpacked"),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn retain_groups<const WIDTH: usize, const PACKED_BYTES: usize>(
    packed: &[u8],
    passes: &Passes,
    selected: &mut [VectorBits],
) {
    let tables = if WIDTH == 3 { tables_of_two(passes) } else { tables_of_one(passes) };
    let (positions, reverse) = ([load(&MASK_BYTE_POSITIONS[0]), load(&MASK_BYTE_POSITIONS[1])], load(&REVERSE));
    // Transposing also puts the groups of two-bit numbers in order.
    let matrix = _mm512_set1_epi64(if WIDTH == 2 { EVEN_BITS_FIRST } else { IDENTITY } as i64);
    for (packed, selected) in packed.as_chunks::<PACKED_BYTES>().0.iter().zip(selected) {
        let [low, high] = selected.as_chunks_mut::<8>().0 else { unreachable!("a mask has sixteen words") };
        let selected_before = [load_words(low), load_words(high)];
        let any = _mm512_or_si512(selected_before[0], selected_before[1]);
        if _mm512_test_epi64_mask(any, any) == 0 {
            continue;
        }
        // All registers are loaded before the first is used, in the order of the bytes in memory.
        let mut bytes = [[_mm512_setzero_si512(); 2]; WIDTH];
        for (register, bytes) in bytes.as_flattened_mut().iter_mut().zip(packed.as_chunks().0) {
            *register = load(bytes);
        }
        let mut transposed = [_mm512_setzero_si512(); 2];
        for (half, transposed) in transposed.iter_mut().enumerate() {
            let bytes = bytes.map(|bytes| bytes[half]);
            let passing = match WIDTH {
                1 => choose(bytes[0], tables[1], tables[0]),
                2 => pass_two_bits(bytes[0], bytes[1], tables),
                _ => pass_three_bits(bytes[0], bytes[1], bytes[2], tables),
            };
            *transposed = _mm512_gf2p8affine_epi64_epi8::<0>(matrix, _mm512_shuffle_epi8(passing, reverse));
        }
        for ((words, selected_before), positions) in [low, high].into_iter().zip(selected_before).zip(positions) {
            store_words(
                _mm512_and_si512(selected_before, _mm512_permutex2var_epi8(transposed[0], positions, transposed[1])),
                words,
            );
        }
    }
}

/// For each number of up to two bits, all ones if it passes, else zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn tables_of_one(passes: &Passes) -> [__m512i; 4] {
    [0, 1, 2, 3].map(|number| _mm512_set1_epi8(-i8::from(passes[number])))
}

/// One bit per group, set if its two-bit number passes. From the lowest bit on, the groups are 0, 4, 1, 5, 2, 6, 3 and
/// 7.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn pass_two_bits(first: __m512i, second: __m512i, entries: [__m512i; 4]) -> __m512i {
    // The low bits of the numbers in the first byte, alternating with the low bits of the numbers in the second byte.
    // Then the high bits in the same order. Bits that are shifted in from a neighbouring byte are not chosen.
    let even = _mm512_set1_epi8(0x55);
    let low = choose(even, first, _mm512_slli_epi16::<1>(second));
    let high = choose(even, _mm512_srli_epi16::<1>(first), second);
    choose(high, choose(low, entries[3], entries[2]), choose(low, entries[1], entries[0]))
}

/// Tables that map the six bits of two three-bit numbers to two bits, one per number, set if the number passes. Table
/// `i` is for groups `2 * i` and `2 * i + 1`, with the six bits in the order of [`pass_three_bits`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn tables_of_two(passes: &Passes) -> [__m512i; 4] {
    let first = _mm512_set1_epi64(i64::from_le_bytes(passes.map(u8::from)));
    let second = _mm512_permutexvar_epi8(load(&SECONDS), first);
    let both = _mm512_or_si512(first, _mm512_slli_epi16::<1>(second));
    [
        both,
        _mm512_slli_epi16::<2>(_mm512_permutexvar_epi8(load(&TWO_AND_FOUR), both)),
        _mm512_slli_epi16::<4>(_mm512_permutexvar_epi8(load(&FOUR_AND_TWO), both)),
        _mm512_slli_epi16::<6>(both),
    ]
}

/// One bit per group, set if its three-bit number passes. Tables are indexed by the lowest six bits of a byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn pass_three_bits(first: __m512i, second: __m512i, third: __m512i, tables: [__m512i; 4]) -> __m512i {
    let two_and_four = choose(_mm512_set1_epi8(0x0f), second, _mm512_srli_epi16::<2>(first));
    let four_and_two = choose(_mm512_set1_epi8(0x03), third, _mm512_srli_epi16::<2>(second));
    let groups_0_1 = _mm512_permutexvar_epi8(first, tables[0]);
    let groups_2_3 = _mm512_permutexvar_epi8(two_and_four, tables[1]);
    let groups_4_5 = _mm512_permutexvar_epi8(four_and_two, tables[2]);
    let groups_6_7 = _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(third), tables[3]);
    _mm512_or_si512(_mm512_or_si512(groups_0_1, groups_2_3), _mm512_or_si512(groups_4_5, groups_6_7))
}
