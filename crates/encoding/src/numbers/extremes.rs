//! Extremes of packed numbers: the greatest, or the least, of each few neighbours. They are no part of a chunk; whoever
//! reads it more than once may keep them beside it.
//!
//! ```text
//! packed    | 32 numbers of 27 bits | 32 numbers | ...     rows of a vector (see `kernels/bit_packing.rs`)
//! extremes  | key                   | key        | ...     u16, in the order of the numbers
//! ```
//!
//! A key is the highest 16 bits of the extreme's distance from the base. Where numbers lie in no order, zones of thousands
//! all reach nearly from the least to the greatest; of 32 neighbours, 3 % have one of the greatest thousandth. A test that
//! lets few numbers pass, at one end of all, then reads the keys, which are a fiftieth of the bytes, and the rows whose key
//! may pass. These are small materialized aggregates (Moerkotte, 1998), of so few rows that memory gives them in one piece,
//! and made when a scan would have gained from them, as column imprints are (Sidirourgos and Kersten, 2013).

use std::ops::Range;

use arrow_buffer::{Buffer, ToByteSlice};
use taut_types::Test;

use super::packed::Packed;
use crate::kernels::{Lane, MASK_WORDS, mask_of_bytes, prefetch, row_of, row_words, unpack_row, wide, word_of_bytes};
use crate::lane_test::LaneTest;
use crate::native::with_lane;
use crate::{CHUNK_ROWS_MAX, VECTOR_ROWS};

/// Bits of a key.
const KEY_BITS: usize = 16;
/// Where more than one row of a vector in so many may pass, a scan of all takes no longer: more than 6 to 10 %, by the width
/// of numbers. Measured: `cargo run --release -p taut-encoding --example few_rows`.
const CANDIDATES_MIN: usize = 14;
/// The most keys of a chunk: of rows of numbers of 64 bits.
const KEYS_MAX: usize = CHUNK_ROWS_MAX / 16;
/// The most lanes of a row whose numbers are wider than a key.
const ROW_LANES_MAX: usize = VECTOR_ROWS / 32;

/// Which end of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extreme {
    /// The lower end.
    Least,
    /// The upper end.
    Greatest,
}

impl Packed {
    /// The extremes of neighbours, where numbers are wider than their keys.
    pub(crate) fn extremes(&self, extreme: Extreme) -> Option<Buffer> {
        if self.width() <= KEY_BITS {
            return None;
        }
        Some(with_lane!(self.width(), L => self.extremes_of_lanes::<L>(extreme)))
    }

    fn extremes_of_lanes<L: Lane>(&self, extreme: Extreme) -> Buffer {
        let (vectors, shift) = (self.vectors_count(), self.width() - KEY_BITS);
        let mut keys: Vec<u16> = Vec::with_capacity(vectors * L::BITS);
        let mut lanes = [L::default(); VECTOR_ROWS];
        for vector in 0..vectors {
            self.lanes_of(vector, &mut lanes);
            let (lanes, keys) = (&lanes, &mut keys);
            wide(move || {
                for row in lanes.chunks_exact(L::LANES) {
                    let of_two = |one: L, other: &L| match extreme {
                        Extreme::Least => one.min(*other),
                        Extreme::Greatest => one.max(*other),
                    };
                    keys.push(row.iter().fold(row[0], of_two).down(shift).to_u64() as u16);
                }
            });
        }
        Buffer::from_vec(keys)
    }

    /// The rows of a range that pass a test, found by looking only at those whose extreme may pass, and how many these
    /// are. `None` where they are many, the test is no range, or these are not the extremes of the numbers.
    pub(crate) fn find_by_extremes(
        &self,
        test: &Test,
        extreme: Extreme,
        extremes: &Buffer,
        rows: Range<usize>,
    ) -> Option<(Vec<u32>, usize)> {
        if self.width() <= KEY_BITS {
            return None;
        }
        with_lane!(self.width(), L => {
            let (low, high) = LaneTest::<L>::new(test, false, self.domain(), self.base()).bounds()?;
            let candidates = self.candidates::<L>((low, high), extreme, extremes, &rows)?;
            Some((self.passing((low, high), &candidates, &rows), candidates.len() * L::LANES))
        })
    }

    /// The rows of vectors, counted through all of them in the order of their numbers, that may have a number in a range.
    /// Their words come from memory meanwhile.
    fn candidates<L: Lane>(
        &self,
        (low, high): (L, L),
        extreme: Extreme,
        extremes: &Buffer,
        rows: &Range<usize>,
    ) -> Option<Vec<usize>> {
        let (width, key) = (self.width(), |lane: L| lane.down(self.width() - KEY_BITS).to_u64() as u16);
        if extremes.len() != self.vectors_count() * L::BITS * size_of::<u16>() {
            return None;
        }
        let (low, high) = match extreme {
            Extreme::Least => (0, key(high)),
            Extreme::Greatest => (key(low), u16::MAX),
        };
        let first = rows.start / L::LANES;
        let keys = &extremes.typed_data::<u16>()[first..rows.end.div_ceil(L::LANES)];
        let mut bits = [0; KEYS_MAX / 64];
        for (keys, bits) in keys.chunks(VECTOR_ROWS).zip(bits.chunks_exact_mut(MASK_WORDS)) {
            let mut bytes = [0; VECTOR_ROWS];
            let flags = &mut bytes;
            wide(move || {
                for (flag, key) in flags.iter_mut().zip(keys) {
                    *flag = u8::from((low..=high).contains(key));
                }
            });
            bits.copy_from_slice(&mask_of_bytes(&bytes));
        }
        let count = bits.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        if count * CANDIDATES_MIN > keys.len() {
            return None;
        }
        let mut candidates = Vec::with_capacity(count);
        for (mut word, first) in bits.into_iter().zip((first..).step_by(64)) {
            while word != 0 {
                let candidate = first + word.trailing_zeros() as usize;
                let row = row_of::<L>(candidate % L::BITS * L::LANES);
                let words = &self.vector::<L>(candidate / L::BITS)[row_words::<L>(width, row)];
                prefetch(words.to_byte_slice());
                candidates.push(candidate);
                word &= word - 1;
            }
        }
        Some(candidates)
    }

    /// The rows of a range whose number is in a range, where only those of candidates can be.
    fn passing<L: Lane>(&self, (low, high): (L, L), candidates: &[usize], rows: &Range<usize>) -> Vec<u32> {
        let (width, span) = (self.width(), high.minus(low));
        let mut passing = Vec::with_capacity(candidates.len());
        wide(|| {
            for candidate in candidates {
                let (vector, first) = (candidate / L::BITS, candidate % L::BITS * L::LANES);
                let mut bytes = [0; ROW_LANES_MAX];
                let bytes = &mut bytes[..L::LANES];
                unpack_row(width, self.vector::<L>(vector), row_of::<L>(first), bytes, |lane| {
                    u8::from(lane.minus(low) <= span)
                });
                let mut bits = word_of_bytes(bytes);
                while bits != 0 {
                    // A chunk has at most 2^16 rows.
                    passing.push((candidate * L::LANES) as u32 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        });
        // The first and the last row of a vector may reach outside.
        passing.truncate(passing.partition_point(|row| (*row as usize) < rows.end));
        passing.drain(..passing.partition_point(|row| (*row as usize) < rows.start));
        passing
    }
}
