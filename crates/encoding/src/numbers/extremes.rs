//! Extremes of packed numbers: the greatest, or the least, of each few neighbours. They are no part of a chunk; whoever
//! reads it more than once may keep them beside it.
//!
//! ```text
//! packed    | 32 numbers of 27 bits | 32 numbers | ...     rows of a vector (see `kernels/bit_packing.rs`)
//! extremes  | first                 | first      | ...     u16 keys, in the order of the numbers
//!           | second                | second     | ...     u16 keys of the most extreme number but one
//!           | place                 | place      | ...     u8, which of the neighbours the first one is
//! ```
//!
//! A key is the highest 16 bits of a number's distance from the base. Where numbers lie in no order, zones of thousands
//! all reach nearly from the least to the greatest; of 32 neighbours, 3 % have one of the greatest thousandth. A test that
//! lets few numbers pass, at one end of all, then reads the first keys, which are a fiftieth of the bytes. Where one may
//! pass, and the second may not, it is the only one of its row: its place is the answer, and no number is read. Of the
//! greatest thousandth that is so for 97 of 100; of the others all numbers of the row are looked at. These are small
//! materialized aggregates (Moerkotte, 1998), of so few rows that memory gives them in one piece,
//! and made when a scan would have gained from them, as column imprints are (Sidirourgos and Kersten, 2013).

use std::ops::Range;

use arrow_buffer::{Buffer, MutableBuffer, ToByteSlice};
use taut_types::Test;

use super::packed::Packed;
use crate::kernels::{Lane, MASK_WORDS, mask_of_bytes, prefetch, row_of, row_words, unpack_row, wide, word_of_bytes};
use crate::lane_test::LaneTest;
use crate::native::with_lane;
use crate::{CHUNK_ROWS_MAX, VECTOR_ROWS};

/// Bits of a key.
const KEY_BITS: usize = 16;
/// Bytes that are kept for a row of a vector.
const KEPT_BYTES: usize = 2 * size_of::<u16>() + size_of::<u8>();
/// Where the first number of more than one row of a vector in so many may pass, a scan of all takes no longer; or
const CANDIDATES_MIN: usize = 5;
/// where the numbers of more than one row in so many are to be looked at. Measured: `cargo run --release -p taut-encoding
/// --example few_rows`.
const UNSURE_MIN: usize = 14;
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

/// What extremes tell of a row of a vector in which a number may pass.
enum Candidate {
    /// The only number of it that passes, as a row of the chunk.
    Only(u32),
    /// The row, counted through all vectors: its numbers are to be looked at.
    Unsure(usize),
}

/// Extremes as they are kept.
struct Kept<'a> {
    firsts: &'a [u16],
    seconds: &'a [u16],
    places: &'a [u8],
}

impl<'a> Kept<'a> {
    /// Those of so many rows of vectors; `None` where they are others.
    fn new(extremes: &'a Buffer, rows: usize) -> Option<Self> {
        if extremes.len() != rows * KEPT_BYTES {
            return None;
        }
        let (keys, places) = (extremes.typed_data::<u16>(), &extremes[2 * rows * size_of::<u16>()..]);
        let (firsts, seconds) = keys[..2 * rows].split_at(rows);
        Some(Self { firsts, seconds, places })
    }
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
        let (vectors, width) = (self.vectors_count(), self.width());
        let rows = vectors * L::BITS;
        let (mut keys, mut seconds, mut places) =
            (Vec::with_capacity(2 * rows), Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut lanes = [L::default(); VECTOR_ROWS];
        for vector in 0..vectors {
            self.lanes_of(vector, &mut lanes);
            let (lanes, keys, seconds, places) = (&lanes, &mut keys, &mut seconds, &mut places);
            wide(move || {
                for row in lanes.chunks_exact(L::LANES) {
                    let mut others = [L::default(); ROW_LANES_MAX];
                    let others = &mut others[..L::LANES];
                    others.copy_from_slice(row);
                    let first = extreme.of(row);
                    // One of them is.
                    let place = row.iter().position(|lane| *lane == first).unwrap_or(0);
                    others[place] = match extreme {
                        Extreme::Least => L::MAX,
                        Extreme::Greatest => L::default(),
                    };
                    keys.push(key_of(first, width));
                    seconds.push(key_of(extreme.of(others), width));
                    places.push(place as u8);
                }
            });
        }
        keys.append(&mut seconds);
        let mut kept = MutableBuffer::with_capacity(rows * KEPT_BYTES);
        kept.extend_from_slice(&keys);
        kept.extend_from_slice(&places);
        kept.into()
    }

    /// The rows of a range that pass a test, found by looking only at numbers of which extremes do not tell, and how many
    /// these are. `None` where they are many, the test is no range, or these are not the extremes of the numbers.
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
            let (candidates, unsure) = self.candidates::<L>((low, high), extreme, extremes, &rows)?;
            Some((self.rows_between((low, high), &candidates, &rows), unsure * L::LANES))
        })
    }

    /// The rows of vectors that may have a number in a range, and in how many of them more than one may be, or none: their
    /// words come from memory meanwhile.
    fn candidates<L: Lane>(
        &self,
        (low, high): (L, L),
        extreme: Extreme,
        extremes: &Buffer,
        rows: &Range<usize>,
    ) -> Option<(Vec<Candidate>, usize)> {
        let (width, kept) = (self.width(), Kept::new(extremes, self.vectors_count() * L::BITS)?);
        let (low_key, high_key) = (key_of(low, width), key_of(high, width));
        let (least, greatest) = match extreme {
            Extreme::Least => (0, high_key),
            Extreme::Greatest => (low_key, u16::MAX),
        };
        let first = rows.start / L::LANES;
        let keys = &kept.firsts[first..rows.end.div_ceil(L::LANES)];
        let mut bits = [0; KEYS_MAX / 64];
        for (keys, bits) in keys.chunks(VECTOR_ROWS).zip(bits.chunks_exact_mut(MASK_WORDS)) {
            let mut bytes = [0; VECTOR_ROWS];
            let flags = &mut bytes;
            wide(move || {
                for (flag, key) in flags.iter_mut().zip(keys) {
                    *flag = u8::from((least..=greatest).contains(key));
                }
            });
            bits.copy_from_slice(&mask_of_bytes(&bytes));
        }
        let count = bits.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        if count * CANDIDATES_MIN > keys.len() {
            return None;
        }
        // Keys of the bounds themselves do not tell, unless the bound is the end of all numbers.
        let end = L::MAX.down(L::BITS - width);
        let is_in = |key: u16| (key > low_key || low == L::default()) && (key < high_key || high >= end);
        let is_out = |key: u16| match extreme {
            Extreme::Least => key > high_key,
            Extreme::Greatest => key < low_key,
        };
        let (mut candidates, mut unsure) = (Vec::with_capacity(count), 0);
        for (mut word, first) in bits.into_iter().zip((first..).step_by(64)) {
            while word != 0 {
                let candidate = first + word.trailing_zeros() as usize;
                word &= word - 1;
                if is_in(kept.firsts[candidate]) && is_out(kept.seconds[candidate]) {
                    // A chunk has at most 2^16 rows.
                    let row = candidate * L::LANES + usize::from(kept.places[candidate]);
                    candidates.push(Candidate::Only(row as u32));
                    continue;
                }
                let row = row_of::<L>(candidate % L::BITS * L::LANES);
                let words = &self.vector::<L>(candidate / L::BITS)[row_words::<L>(width, row)];
                prefetch(words.to_byte_slice());
                candidates.push(Candidate::Unsure(candidate));
                unsure += 1;
            }
        }
        (unsure * UNSURE_MIN <= keys.len()).then_some((candidates, unsure))
    }

    /// The rows of a range whose number is in a range, where only those of candidates can be.
    fn rows_between<L: Lane>(&self, (low, high): (L, L), candidates: &[Candidate], rows: &Range<usize>) -> Vec<u32> {
        let (width, span) = (self.width(), high.minus(low));
        let mut passing = Vec::with_capacity(candidates.len());
        wide(|| {
            for candidate in candidates {
                let candidate = match candidate {
                    Candidate::Only(row) => {
                        passing.push(*row);
                        continue;
                    }
                    Candidate::Unsure(candidate) => candidate,
                };
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

impl Extreme {
    /// The most extreme of some lanes, of which there is one.
    fn of<L: Lane>(self, lanes: &[L]) -> L {
        let of_two = |one: L, other: &L| match self {
            Self::Least => one.min(*other),
            Self::Greatest => one.max(*other),
        };
        lanes.iter().fold(lanes[0], of_two)
    }
}

/// The highest bits of a lane of so many bits.
fn key_of<L: Lane>(lane: L, width: usize) -> u16 {
    lane.down(width - KEY_BITS).to_u64().min(u16::MAX.into()) as u16
}
