//! Converts one byte per row, 0 or 1, to one bit per row.

use crate::VECTOR_ROWS;

/// Words of the mask of a vector.
pub(crate) const MASK_WORDS: usize = VECTOR_ROWS / 64;

/// Mask whose bit `r` is byte `r`. Each byte must be 0 or 1.
#[inline]
pub(crate) fn mask_of_bytes(bytes: &[u8; VECTOR_ROWS]) -> [u64; MASK_WORDS] {
    let mut mask = [0; MASK_WORDS];
    for (word, bytes) in mask.iter_mut().zip(bytes.chunks_exact(64)) {
        *word = word_of_bytes(bytes);
    }
    mask
}

/// Word whose bit `i` is byte `i`. There must be 16, 32, 48 or 64 bytes, each 0 or 1.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn word_of_bytes(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8, _mm_slli_epi16};
    bytes.chunks_exact(16).enumerate().fold(0, |word, (index, bytes)| {
        // SAFETY: the chunk has the 16 bytes that are loaded; the load needs no alignment.
        let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        // SAFETY: every x86-64 machine has SSE2.
        let bits = unsafe { _mm_movemask_epi8(_mm_slli_epi16::<7>(bytes)) };
        word | (bits as u64) << (16 * index)
    })
}

/// Word whose bit `i` is byte `i`. There must be 16, 32, 48 or 64 bytes, each 0 or 1.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn word_of_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |word, (index, byte)| word | u64::from(*byte) << index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_equals_its_byte() {
        for step in 1..70 {
            let bytes: [u8; VECTOR_ROWS] = std::array::from_fn(|row| u8::from(row % step == step / 2));
            let mask = mask_of_bytes(&bytes);
            for (row, byte) in bytes.iter().enumerate() {
                assert_eq!(mask[row / 64] >> (row % 64) & 1, u64::from(*byte), "row {row}, step {step}");
            }
        }
    }
}
