//! Bloom filters: each excludes keys that do not occur in a segment.
//!
//! Blocked filters (Putze, Sanders, Singler, 2007), as in Apache Parquet. A key sets one bit in each of the eight words
//! of one block of 256 bits. A lookup therefore reads one cache line.
//!
//! ```text
//! offset  size          field
//! 0       4             blocks   a power of two
//! 4       60            zero
//! 64      32 * blocks   eight words of 32 bits each
//! ```
//!
//! About ten bits per distinct key give one false positive in a hundred. A filter does not support ranges.

use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use taut_types::Datum;
use twox_hash::XxHash3_64;

use crate::csb_tree::CorruptIndex;
use crate::little_endian::u32_at;

const HEAD_BYTES: usize = 64;
const WORDS: usize = 8;
const BITS_PER_KEY: usize = 10;
const BLOCKS_MAX: usize = 1 << 16;
/// Odd multipliers that select a bit in each word, as in the Parquet format.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// Bloom filter over the keys of a segment.
#[derive(Clone, Debug)]
pub struct Bloom {
    words: ScalarBuffer<u32>,
}

/// Hash of a key for [`Bloom::build`] and [`Bloom::may_contain`].
pub fn bloom_hash(key: &Datum) -> u64 {
    match key {
        Datum::Number(number) => XxHash3_64::oneshot(&number.to_le_bytes()),
        Datum::Bytes(bytes) => XxHash3_64::oneshot(bytes),
    }
}

/// Masks of a hash: one bit in each word of its block.
fn block_masks(hash: u64) -> [u32; WORDS] {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// Index of the first word in the block of a hash. `words` is the number of words of the filter, whose number of blocks
/// is a power of two.
fn first_word(hash: u64, words: usize) -> usize {
    ((hash >> 32) as usize & (words / WORDS - 1)) * WORDS
}

impl Bloom {
    /// Builds the bytes of a filter over the keys with these hashes, which may repeat.
    pub fn build(hashes: &[u64]) -> Vec<u8> {
        let mut distinct = hashes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let blocks = (distinct.len() * BITS_PER_KEY).div_ceil(32 * WORDS).next_power_of_two().min(BLOCKS_MAX);
        let mut words = vec![0_u32; blocks * WORDS];
        for hash in distinct {
            let first = first_word(hash, words.len());
            words[first..first + WORDS].iter_mut().zip(block_masks(hash)).for_each(|(word, bit)| *word |= bit);
        }
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&(blocks as u32).to_le_bytes());
        bytes.extend_from_slice(words.as_slice().to_byte_slice());
        bytes.resize(bytes.len().next_multiple_of(HEAD_BYTES), 0);
        bytes
    }

    /// Parses a filter. Checks its head and length.
    ///
    /// # Errors
    /// If the head is invalid, or the length does not match its count of blocks.
    pub fn parse(bytes: &Buffer) -> Result<Self, CorruptIndex> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Err(CorruptIndex { at: 0, expected: "a head of 64 bytes" });
        };
        let blocks = u32_at(head, 0) as usize;
        if !blocks.is_power_of_two() || blocks > BLOCKS_MAX {
            return Err(CorruptIndex { at: 0, expected: "a power of two of blocks" });
        }
        if head[4..].iter().any(|byte| *byte != 0) {
            return Err(CorruptIndex { at: 4, expected: "zeros" });
        }
        let length = blocks * WORDS * 4;
        if bytes.len() != (HEAD_BYTES + length).next_multiple_of(HEAD_BYTES) {
            return Err(CorruptIndex { at: HEAD_BYTES, expected: "as many blocks as the head says" });
        }
        Ok(Self { words: ScalarBuffer::from(bytes.slice_with_length(HEAD_BYTES, length)) })
    }

    /// Whether a key with this hash may occur.
    pub fn may_contain(&self, hash: u64) -> bool {
        let first = first_word(hash, self.words.len());
        self.words[first..first + WORDS].iter().zip(block_masks(hash)).all(|(word, bit)| word & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_members_and_few_others_are_found() {
        for count in [1, 2, 100, 65_536_i128] {
            let hashes: Vec<u64> = (0..count).map(|number| bloom_hash(&Datum::Number(number * 7))).collect();
            let bytes = Buffer::from(Bloom::build(&hashes));
            let filter = Bloom::parse(&bytes).unwrap();
            assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
            let false_positives =
                (1..=10_000_i128).filter(|number| filter.may_contain(bloom_hash(&Datum::Number(-number)))).count();
            assert!(false_positives <= 300, "{false_positives} of 10,000 for {count} keys");
            for length in 0..bytes.len().min(200) {
                assert!(Bloom::parse(&bytes.slice_with_length(0, length)).is_err());
            }
        }
    }

    #[test]
    fn a_damaged_head_is_rejected() {
        let good = Bloom::build(&[1, 2, 3]);
        for (at, value) in [(0, 0), (0, 3), (0, 8), (3, 0x80), (9, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Bloom::parse(&Buffer::from(bytes)).is_err(), "byte {at}");
        }
    }
}
