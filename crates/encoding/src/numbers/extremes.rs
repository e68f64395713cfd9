//! Extremes of packed numbers: the greatest, or the least, of each group of neighbours. They are not part of a chunk. A
//! caller that reads a chunk repeatedly may cache them.
//!
//! A group has one number of each lane (see `bit_packing.rs`): 32 numbers of up to 32 bits, or 16 wider numbers.
//!
//! ```text
//! packed    | 32 numbers of 27 bits | 32 numbers | ...     groups
//! extremes  | first                 | first      | ...     u16 each: key of the most extreme number of the group
//!           | second                | second     | ...     u16 each: key of the second most extreme number
//!           | index                 | index      | ...     u8 each: index in the group of the most extreme number
//! ```
//!
//! A key is the highest 16 bits of a number's distance from the base. If numbers are unordered, every zone of thousands
//! of rows spans nearly the whole value range. But only 3 % of the groups of 32 neighbours contain one of the greatest
//! thousandth of the numbers. If only few numbers at one end pass a predicate, a scan therefore reads mostly the first
//! keys, which are a fiftieth of the bytes. If the most extreme number of a group passes and the second most extreme
//! does not, no other number of the group passes. The index is then the result, and no number is read. For the greatest
//! thousandth, this holds in 97 of 100 groups that have a passing number. In the other three, all numbers are read.
//!
//! These are small materialized aggregates (Moerkotte, 1998) of very small groups: a group is read from memory as a
//! whole. They are built once a scan would have gained from them, like column imprints (Sidirourgos and Kersten, 2013).

use std::ops::Range;

use arrow_buffer::{Buffer, MutableBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::kernels::{
    Lane, MASK_WORDS, group_of, group_words, mask_of_bytes, prefetch, unpack_group, with_lane, with_wide_vectors,
    word_of_bytes,
};
use crate::lane_predicate::LanePredicate;
use crate::packed::Packed;
use crate::{CHUNK_ROWS_MAX, VECTOR_ROWS};

/// Bits of a key.
const KEY_BITS: usize = 16;
/// Bytes of the extremes of one group.
const EXTREME_BYTES: usize = 2 * size_of::<u16>() + size_of::<u8>();
/// Minimum number of groups for each candidate: a group whose most extreme number may pass. If the share of candidates
/// is greater, a scan of all numbers is as fast.
const GROUPS_PER_CANDIDATE_MIN: usize = 5;
/// Minimum number of groups for each group that must be read. If the share of such groups is greater, a scan of all
/// numbers is as fast. Measured, like [`GROUPS_PER_CANDIDATE_MIN`]: `cargo bench -p taut-encoding --bench few_rows`.
const GROUPS_PER_UNDECIDED_MIN: usize = 14;
/// Maximum keys of a chunk: one for each group of 16 numbers. Numbers of up to 32 bits have fewer, longer groups.
const KEYS_MAX: usize = CHUNK_ROWS_MAX / 16;
/// Maximum lanes of a group. Numbers wider than a key have lanes of at least 32 bits.
const GROUP_LANES_MAX: usize = VECTOR_ROWS / 32;

/// End of the value range of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extreme {
    /// The lower end.
    Least,
    /// The upper end.
    Greatest,
}

/// Group that may contain a passing number.
enum Candidate {
    /// Exactly one number of the group passes. The value is its row.
    Only(u32),
    /// The numbers of the group must be read. The value is the ordinal of the group in the chunk.
    Undecided(usize),
}

/// Extremes, split into their parts.
struct ExtremeParts<'a> {
    firsts: &'a [u16],
    seconds: &'a [u16],
    indexes: &'a [u8],
}

impl<'a> ExtremeParts<'a> {
    /// Splits the extremes of `groups` groups. Returns `None` if the length does not match.
    fn new(extremes: &'a Buffer, groups: usize) -> Option<Self> {
        if extremes.len() != groups * EXTREME_BYTES {
            return None;
        }
        let (keys, indexes) = (extremes.typed_data::<u16>(), &extremes[2 * groups * size_of::<u16>()..]);
        let (firsts, seconds) = keys[..2 * groups].split_at(groups);
        Some(Self { firsts, seconds, indexes })
    }
}

impl Packed {
    /// Extremes of all groups. Returns `None` if the numbers are not wider than a key.
    pub(crate) fn extremes(&self, extreme: Extreme) -> Option<Buffer> {
        if self.width() <= KEY_BITS {
            return None;
        }
        Some(with_lane!(self.width(), L => self.build_extremes::<L>(extreme)))
    }

    fn build_extremes<L: Lane>(&self, extreme: Extreme) -> Buffer {
        let (vectors, width) = (self.vector_count(), self.width());
        let groups = vectors * L::BITS;
        let (mut keys, mut seconds, mut indexes) =
            (Vec::with_capacity(2 * groups), Vec::with_capacity(groups), Vec::with_capacity(groups));
        let mut lanes = [L::default(); VECTOR_ROWS];
        for vector in 0..vectors {
            self.unpack_vector_lanes(vector, &mut lanes);
            let (lanes, keys, seconds, indexes) = (&lanes, &mut keys, &mut seconds, &mut indexes);
            with_wide_vectors(move || {
                for group in lanes.chunks_exact(L::GROUP_LANES) {
                    let mut without_first = [L::default(); GROUP_LANES_MAX];
                    let without_first = &mut without_first[..L::GROUP_LANES];
                    without_first.copy_from_slice(group);
                    let first = extreme.select(group);
                    // `first` is one of the lanes, so it has a position.
                    let index = group.iter().position(|lane| *lane == first).unwrap_or(0);
                    without_first[index] = match extreme {
                        Extreme::Least => L::MAX,
                        Extreme::Greatest => L::default(),
                    };
                    keys.push(key_of(first, width));
                    seconds.push(key_of(extreme.select(without_first), width));
                    indexes.push(index as u8);
                }
            });
        }
        keys.append(&mut seconds);
        let mut parts = MutableBuffer::with_capacity(groups * EXTREME_BYTES);
        parts.extend_from_slice(&keys);
        parts.extend_from_slice(&indexes);
        parts.into()
    }

    /// Finds the rows of a range that pass a predicate, and returns them with the number of rows that were read. Reads
    /// only the groups that the extremes do not decide. Returns `None` if there are too many such groups, or the
    /// predicate is not a range. Also if `extremes` does not have the length for the numbers of this chunk.
    pub(crate) fn find_by_extremes(
        &self,
        predicate: &DatumPredicate,
        extreme: Extreme,
        extremes: &Buffer,
        rows: Range<usize>,
    ) -> Option<(Vec<u32>, usize)> {
        if self.width() <= KEY_BITS {
            return None;
        }
        with_lane!(self.width(), L => {
            let (low, high) = LanePredicate::<L>::new(predicate, false, self.domain(), self.base()).bounds()?;
            let (candidates, undecided) = self.candidates::<L>((low, high), extreme, extremes, &rows)?;
            Some((self.rows_between((low, high), &candidates, &rows), undecided * L::GROUP_LANES))
        })
    }

    /// Groups that may have a number between the bounds, and how many of them must be read. Prefetches the words of the
    /// groups that must be read. Returns `None` if there are too many candidates or groups to read. Also if `extremes`
    /// does not have the length for the numbers of this chunk.
    fn candidates<L: Lane>(
        &self,
        (low, high): (L, L),
        extreme: Extreme,
        extremes: &Buffer,
        rows: &Range<usize>,
    ) -> Option<(Vec<Candidate>, usize)> {
        let (width, parts) = (self.width(), ExtremeParts::new(extremes, self.vector_count() * L::BITS)?);
        let (low_key, high_key) = (key_of(low, width), key_of(high, width));
        let (least, greatest) = match extreme {
            Extreme::Least => (0, high_key),
            Extreme::Greatest => (low_key, u16::MAX),
        };
        let first = rows.start / L::GROUP_LANES;
        let keys = &parts.firsts[first..rows.end.div_ceil(L::GROUP_LANES)];
        let mut bits = [0; KEYS_MAX / 64];
        for (keys, bits) in keys.chunks(VECTOR_ROWS).zip(bits.chunks_exact_mut(MASK_WORDS)) {
            let mut bytes = [0; VECTOR_ROWS];
            let flags = &mut bytes;
            with_wide_vectors(move || {
                for (flag, key) in flags.iter_mut().zip(keys) {
                    *flag = u8::from((least..=greatest).contains(key));
                }
            });
            bits.copy_from_slice(&mask_of_bytes(&bytes));
        }
        let count = bits.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        if count * GROUPS_PER_CANDIDATE_MIN > keys.len() {
            return None;
        }
        // A key equal to the key of a bound proves nothing, unless the bound is the end of the domain.
        let end = L::MAX.shr(L::BITS - width);
        let is_in = |key: u16| (key > low_key || low == L::default()) && (key < high_key || high >= end);
        let is_out = |key: u16| match extreme {
            Extreme::Least => key > high_key,
            Extreme::Greatest => key < low_key,
        };
        let (mut candidates, mut undecided) = (Vec::with_capacity(count), 0);
        for (mut word, first) in bits.into_iter().zip((first..).step_by(64)) {
            while word != 0 {
                let candidate = first + word.trailing_zeros() as usize;
                word &= word - 1;
                if is_in(parts.firsts[candidate]) && is_out(parts.seconds[candidate]) {
                    // A chunk has at most 2^16 rows.
                    let row = candidate * L::GROUP_LANES + usize::from(parts.indexes[candidate]);
                    candidates.push(Candidate::Only(row as u32));
                    continue;
                }
                let group = group_of::<L>(candidate % L::BITS * L::GROUP_LANES);
                let words = &self.vector::<L>(candidate / L::BITS)[group_words::<L>(width, group)];
                prefetch(words.to_byte_slice());
                candidates.push(Candidate::Undecided(candidate));
                undecided += 1;
            }
        }
        (undecided * GROUPS_PER_UNDECIDED_MIN <= keys.len()).then_some((candidates, undecided))
    }

    /// Rows of a range whose number is between the bounds. Only the candidates are checked.
    fn rows_between<L: Lane>(&self, (low, high): (L, L), candidates: &[Candidate], rows: &Range<usize>) -> Vec<u32> {
        let (width, span) = (self.width(), high.minus(low));
        let mut passing = Vec::with_capacity(candidates.len());
        with_wide_vectors(|| {
            for candidate in candidates {
                let candidate = match candidate {
                    Candidate::Only(row) => {
                        passing.push(*row);
                        continue;
                    }
                    Candidate::Undecided(candidate) => candidate,
                };
                let (vector, first) = (candidate / L::BITS, candidate % L::BITS * L::GROUP_LANES);
                let mut bytes = [0; GROUP_LANES_MAX];
                let bytes = &mut bytes[..L::GROUP_LANES];
                unpack_group(width, self.vector::<L>(vector), group_of::<L>(first), bytes, |lane| {
                    u8::from(lane.minus(low) <= span)
                });
                let mut bits = word_of_bytes(bytes);
                while bits != 0 {
                    // A chunk has at most 2^16 rows.
                    passing.push((candidate * L::GROUP_LANES) as u32 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        });
        // The first and the last group may reach past the range.
        passing.truncate(passing.partition_point(|row| (*row as usize) < rows.end));
        passing.drain(..passing.partition_point(|row| (*row as usize) < rows.start));
        passing
    }
}

impl Extreme {
    /// The most extreme of `lanes`, which must not be empty.
    fn select<L: Lane>(self, lanes: &[L]) -> L {
        let more_extreme = |one: L, other: &L| match self {
            Self::Least => one.min(*other),
            Self::Greatest => one.max(*other),
        };
        lanes.iter().fold(lanes[0], more_extreme)
    }
}

/// Highest [`KEY_BITS`] of a lane of `width` bits.
fn key_of<L: Lane>(lane: L, width: usize) -> u16 {
    lane.shr(width - KEY_BITS).to_u64().min(u16::MAX.into()) as u16
}
