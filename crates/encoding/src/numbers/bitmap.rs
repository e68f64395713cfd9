//! Strictly ascending numbers as set bits: encoding `bitmap`.
//!
//! ```text
//! part: bits     heap_bytes        u64 words: bit b is set if base + b is a number
//! part: ranks    blocks * 2        u16 each: bits set before each block of 512
//! part: starts   vectors * 4       u32 each: the bit of the first row of each vector of 1,024
//! ```
//!
//! `base`, the first number, is in the head. Row `r` is the r-th set bit, found in two steps: `starts` and `ranks`
//! locate its block, and the bits of the block are counted. The row of a number is the rank of its bit, which is found
//! in the bits of one block. So a predicate on a range of numbers passes a range of rows, and reads no numbers. The
//! encoding is only for numbers with few gaps, because a number that does not occur takes a bit too.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::Native;
use crate::numbers::delta::step;
use crate::{Bitmap, VECTOR_ROWS};

const WORD_BITS: usize = 64;
const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: usize = BLOCK_WORDS * WORD_BITS;
/// Maximum bits per row.
const BITS_PER_ROW_MAX: usize = 64;

/// Strictly ascending numbers as set bits.
#[derive(Clone, Debug)]
pub(crate) struct SetBits {
    rows: usize,
    base: i128,
    words: ScalarBuffer<u64>,
    ranks: ScalarBuffer<u16>,
    starts: ScalarBuffer<u32>,
}

/// Number of bits for `rows` strictly ascending numbers. `spread` is the difference between the last and the first.
/// Returns `None` if the numbers are too far apart.
pub(crate) fn bit_count(rows: usize, spread: Option<i128>) -> Option<usize> {
    let bits = usize::try_from(spread?).ok()?.checked_add(1)?;
    (bits <= rows.saturating_mul(BITS_PER_ROW_MAX).max(BLOCK_BITS)).then_some(bits)
}

/// Bytes of the parts.
pub(crate) fn bytes(rows: usize, bits: usize) -> usize {
    let (words, blocks, vectors) = (bits.div_ceil(WORD_BITS), bits.div_ceil(BLOCK_BITS), rows.div_ceil(VECTOR_ROWS));
    padded(8 * words) + padded(2 * blocks) + padded(4 * vectors)
}

/// Writes the parts of strictly ascending numbers, and sets the fields of the head that describe them. `bits` is the
/// result of [`bit_count`].
pub(crate) fn write<N: Native>(values: &[N], bits: usize, head: &mut Head, writer: &mut Writer) {
    let first = values.first().copied().unwrap_or_default();
    let mut words = vec![0_u64; bits.div_ceil(WORD_BITS)];
    for value in values {
        let bit = step(first, *value) as usize;
        words[bit / WORD_BITS] |= 1 << (bit % WORD_BITS);
    }
    let mut rank = 0;
    let ranks = words.chunks(BLOCK_WORDS).map(|block| {
        let block_rank = rank;
        rank += count_set_bits(block);
        // The last block has a set bit, so fewer than 2^16 set bits precede it.
        block_rank as u16
    });
    let ranks: Vec<u16> = ranks.collect();
    // The index of a bit is below 2^22, because there are at most 64 bits for each of 2^16 rows.
    let starts: Vec<u32> = values.iter().step_by(VECTOR_ROWS).map(|value| step(first, *value) as u32).collect();
    (head.base, head.heap_bytes) = (first.to_number(), 8 * words.len());
    writer.push_part(words.as_slice().to_byte_slice());
    writer.push_part(ranks.as_slice().to_byte_slice());
    writer.push_part(starts.as_slice().to_byte_slice());
}

fn count_set_bits(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// Position of the set bit with this rank in a word. The word must have more set bits than `rank`.
fn select_bit(mut word: u64, mut rank: usize) -> usize {
    let mut bit = 0;
    for half in [32, 16, 8, 4, 2, 1] {
        let low = (word & ((1 << half) - 1)).count_ones() as usize;
        if rank >= low {
            (rank, bit, word) = (rank - low, bit + half, word >> half);
        }
    }
    bit
}

impl SetBits {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let words = head.heap_bytes / 8;
        if words == 0 || !head.heap_bytes.is_multiple_of(8) {
            return Err(CorruptChunk { at: 36, expected: "a bitmap of one or more whole words" });
        }
        if words > head.rows.max(BLOCK_WORDS) {
            return Err(CorruptChunk { at: 36, expected: "at most 64 bits per row" });
        }
        let bits = ScalarBuffer::from(parts.read_part(head.heap_bytes, "a bitmap")?);
        let ranks = ScalarBuffer::from(parts.read_part(2 * words.div_ceil(BLOCK_WORDS), "ranks of blocks")?);
        let starts = ScalarBuffer::from(parts.read_part(4 * head.rows.div_ceil(VECTOR_ROWS), "bits of first rows")?);
        Ok(Self { rows: head.rows, base: head.base, words: bits, ranks, starts })
    }

    /// Readable name of the encoding.
    pub(crate) fn description(&self) -> String {
        format!("bitmap({} bits)", self.words.len() * WORD_BITS)
    }

    /// The word that holds the bit of a row, and the number of bits set before that word. Returns the last word if the
    /// words have too few set bits.
    fn word_of(&self, row: usize) -> (usize, usize) {
        let block_of = |vector: usize| self.starts.get(vector).map(|bit| *bit as usize / BLOCK_BITS);
        let last = self.ranks.len() - 1;
        let first = block_of(row / VECTOR_ROWS).unwrap_or(0).min(last);
        let end = block_of(row / VECTOR_ROWS + 1).unwrap_or(last).clamp(first, last) + 1;
        let is_before = |rank: &u16| usize::from(*rank) <= row;
        let block = first + self.ranks[first..end].partition_point(is_before).saturating_sub(1);
        self.word_from(block * BLOCK_WORDS, self.ranks[block].into(), row)
    }

    /// Like [`SetBits::word_of`], but searches from `word` on. `rank` is the number of bits set before `word`.
    fn word_from(&self, mut word: usize, mut rank: usize, row: usize) -> (usize, usize) {
        while word + 1 < self.words.len() {
            let next = rank + self.words[word].count_ones() as usize;
            if next > row {
                break;
            }
            (word, rank) = (word + 1, next);
        }
        (word, rank)
    }

    /// Count of the numbers below `number`.
    fn rank_of(&self, number: i128) -> usize {
        if number <= self.base {
            return 0;
        }
        let Some(bit) = number.checked_sub(self.base) else { return self.rows };
        let bits = self.words.len() * WORD_BITS;
        let Some(bit) = usize::try_from(bit).ok().filter(|bit| *bit < bits) else { return self.rows };
        let (block, word) = (bit / BLOCK_BITS, bit / WORD_BITS);
        let below = self.words[word] & ((1 << (bit % WORD_BITS)) - 1);
        let rank = usize::from(self.ranks[block]) + count_set_bits(&self.words[block * BLOCK_WORDS..word]);
        (rank + below.count_ones() as usize).min(self.rows)
    }

    /// Row of a number. Returns `None` if the number does not occur.
    fn row_of(&self, number: i128) -> Option<usize> {
        let bit = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let is_set = self.words.get(bit / WORD_BITS)? >> (bit % WORD_BITS) & 1 != 0;
        is_set.then(|| self.rank_of(number))
    }

    /// Appends the numbers of a range of rows.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        if rows.is_empty() {
            return;
        }
        let base = O::from_number(self.base);
        let (first, rank) = self.word_of(rows.start);
        let end = out.len() + rows.len();
        let mut skip = rows.start.saturating_sub(rank);
        out.reserve(rows.len());
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let mut remaining = *word;
            while skip > 0 && remaining != 0 {
                remaining &= remaining - 1;
                skip -= 1;
            }
            let number = base.plus((index * WORD_BITS) as u64);
            if remaining == u64::MAX && end - out.len() >= WORD_BITS {
                out.extend((0..WORD_BITS as u64).map(|bit| number.plus(bit)));
                continue;
            }
            let set = (remaining.count_ones() as usize).min(end - out.len());
            out.extend((0..set).map(|_| {
                let bit = remaining.trailing_zeros();
                remaining &= remaining.wrapping_sub(1);
                number.plus(bit.into())
            }));
            if out.len() == end {
                return;
            }
        }
        // In damaged bytes, words with too few set bits leave rows without a number.
        out.resize(end, base);
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let base = O::from_number(self.base);
        let (mut word, mut rank) = (0, 0);
        out.extend(positions.iter().map(|row| {
            let row = *row as usize;
            // Neighbouring positions are often in one block.
            (word, rank) = match self.ranks.get(word / BLOCK_WORDS + 1) {
                Some(next) if usize::from(*next) <= row => self.word_of(row),
                _ => self.word_from(word, rank, row),
            };
            let bit = select_bit(self.words[word], row.saturating_sub(rank));
            base.plus((word * WORD_BITS + bit) as u64)
        }));
    }

    /// Deselects the rows of a range that fail a predicate. The row of a number is its rank.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        // First undecided row. Ranges of passing rows are visited in ascending order.
        let mut next = rows.start;
        let mut apply_match = |matching: Range<usize>| {
            let matching = matching.start.clamp(next, rows.end)..matching.end.clamp(next, rows.end);
            if negated {
                selection.clear_range(matching.clone());
            } else {
                selection.clear_range(next..matching.start);
            }
            next = matching.end;
        };
        match predicate {
            DatumPredicate::Range { low, high } if low <= high => {
                let end = high.checked_add(1).map_or(self.rows, |number| self.rank_of(number));
                apply_match(self.rank_of(*low)..end);
            }
            DatumPredicate::OneOf(numbers) => {
                let first = numbers.partition_point(|number| *number < self.base);
                let last = self.base.saturating_add((self.words.len() * WORD_BITS) as i128);
                let candidates = numbers[first..].iter().take_while(|number| **number <= last);
                candidates.filter_map(|number| self.row_of(*number)).for_each(|row| apply_match(row..row + 1));
            }
            DatumPredicate::Range { .. }
            | DatumPredicate::BytesRange { .. }
            | DatumPredicate::BytesOneOf(_)
            | DatumPredicate::Null => {}
        }
        if !negated {
            selection.clear_range(next..rows.end);
        }
    }
}
