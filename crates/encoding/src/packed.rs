//! Bit-packed numbers: encodings `bit_packed` and `frame_of_reference`, codes, and values of runs.
//!
//! ```text
//! part: per vector of 1,024 numbers, the last one padded by zeros:
//!   128 * width bytes   number - base, in `width` bits, laid out as in `kernels/bit_packing.rs`
//! ```
//!
//! `base` is in the head: the least number for `frame_of_reference`, zero for `bit_packed`, which therefore cannot hold
//! negative numbers. `width` is the number of bits of the greatest distance, `number - base`. One outlier widens every
//! number, so columns with outliers get another encoding. A distance of more than 64 bits cannot be packed.

use std::ops::Range;

use arrow_buffer::{Buffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::head::{CorruptChunk, Parts, Writer};
use crate::kernels::{
    LINE_BYTES, Lane, LaneSource, MASK_WORDS, Native, append_extracted, append_sums, append_unpacked, extract, pack,
    packed_bytes, prefetch, unpack, unpack_lanes, with_lane, with_wide_vectors,
};
use crate::lane_predicate::{LanePredicate, filter_vectors};
use crate::{Bitmap, VECTOR_ROWS};

/// Number of consecutive vectors that are read in the same way: row by row, or by unpacking whole vectors.
const DENSITY_VECTORS: usize = 16;
/// Maximum number of consecutive rows that are read without unpacking their vector. The vector's other cache lines then
/// need not be loaded.
const EXTRACTED_ROWS_MAX: usize = 16;
/// If one row per this many bytes is read, or more, loading all bytes in order is faster than loading the cache line of
/// each row.
const PREFETCHED_BYTES_PER_ROW: usize = 128;
/// Rows that are read between two prefetches.
const BATCH_ROWS: usize = 48;
/// Distance in bytes from the rows that are read to the lines that are prefetched.
const PREFETCH_AHEAD_BYTES: usize = 2048;

/// Maximum width for which [`LanePredicate::select`] is used. It works part by part, so that the bits of a part stay in
/// the L1 cache between being set and cleared. For wider numbers this gains little: reading the numbers takes much
/// longer than writing the bits.
const PARTS_WIDTH_MAX: usize = 16;

/// Maximum rows per vector that are read one by one. More rows cost as much as unpacking the vector. The limit is lower
/// if a register has more lanes.
const fn single_rows_max<L>() -> usize {
    40 * size_of::<L>()
}

/// Bit-packed numbers.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    base: i128,
    width: usize,
    data: Buffer,
}

/// Number of bits of `max - base`. Returns `None` if it is more than 64, or if `max` is less than `base`.
pub(crate) fn width_of<N: Native>(base: N, max: N) -> Option<usize> {
    let distance = max.to_number().checked_sub(base.to_number())?;
    let distance = u64::try_from(distance).ok()?;
    Some((u64::BITS - distance.leading_zeros()) as usize)
}

/// Bytes of the part of `numbers` packed numbers.
pub(crate) fn bytes(numbers: usize, width: usize) -> usize {
    numbers.div_ceil(VECTOR_ROWS) * packed_bytes(width)
}

/// Writes numbers as one part, packed as their distances from a base. The distances must fit the width.
pub(crate) fn write<N: Native>(values: &[N], base: N, width: usize, writer: &mut Writer) {
    with_lane!(width, L => write_lanes::<L, N>(values, base, width, writer));
}

fn write_lanes<L: Lane, N: Native>(values: &[N], base: N, width: usize, writer: &mut Writer) {
    let words = L::GROUP_LANES * width;
    let mut packed = vec![L::default(); values.len().div_ceil(VECTOR_ROWS) * words];
    if width > 0 {
        let mut lanes = [L::default(); VECTOR_ROWS];
        for (packed, values) in packed.chunks_exact_mut(words).zip(values.chunks(VECTOR_ROWS)) {
            let target = &mut lanes;
            with_wide_vectors(move || {
                for (lane, value) in target.iter_mut().zip(values) {
                    *lane = L::from_u64(value.minus(base));
                }
            });
            lanes[values.len()..].fill(L::default());
            pack(width, &lanes, packed);
        }
    }
    writer.push_part(packed.as_slice().to_byte_slice());
}

impl Packed {
    /// Reads the packed numbers of this many rows.
    pub(crate) fn parse(parts: &mut Parts, base: i128, width: usize, rows: usize) -> Result<Self, CorruptChunk> {
        Ok(Self { base, width, data: parts.read_part(bytes(rows, width), "packed numbers")? })
    }

    /// Bits of a packed number.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Number to which the packed distances are added.
    pub(crate) fn base(&self) -> i128 {
        self.base
    }

    /// Least and greatest number that this base and width can hold.
    pub(crate) fn domain(&self) -> (i128, i128) {
        let distance = if self.width == 0 { 0 } else { u64::MAX >> (64 - self.width) };
        (self.base, self.base.saturating_add(distance.into()))
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        let base = O::from_number(self.base);
        if let Some(base) = self.base_if_widened::<O>() {
            self.append_mapped(rows, out, move |distance| O::from_number(base.wrapping_add(distance as i64).into()));
        } else {
            out.reserve(rows.len());
            with_lane!(self.width, L => {
                let append_vector = |packed: &[L], out: &mut Vec<O>| append_sums(self.width, packed, base, out);
                self.append_lanes(rows, out, append_vector, move |lane: L| base.plus(lane.to_u64()));
            });
        }
    }

    /// Appends the result of `map` for each distance of a range.
    #[inline]
    pub(crate) fn append_mapped<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>, map: impl Fn(u64) -> O + Copy) {
        out.reserve(rows.len());
        with_lane!(self.width, L => {
            let map = move |lane: L| map(lane.to_u64());
            self.append_lanes(rows, out, |packed: &[L], out| append_unpacked(self.width, packed, out, map), map);
        });
    }

    /// The base, if numbers are widened to 128 bits but can be computed in 64, which is faster.
    fn base_if_widened<O: Native>(&self) -> Option<i64> {
        let (low, high) = self.domain();
        if size_of::<O>() < 16 || i64::try_from(high).is_err() {
            return None;
        }
        i64::try_from(low).ok()
    }

    /// Appends the numbers of a range: whole vectors by `append_vector`, parts of vectors by `map`.
    fn append_lanes<L: Lane, O: Native>(
        &self,
        rows: Range<usize>,
        out: &mut Vec<O>,
        append_vector: impl Fn(&[L], &mut Vec<O>),
        map: impl Fn(L) -> O + Copy,
    ) {
        self.for_each_vector::<L>(rows, |packed, part| {
            if part.len() == VECTOR_ROWS {
                append_vector(packed, out);
            } else if part.len() <= EXTRACTED_ROWS_MAX {
                out.extend(part.map(|row| map(extract(self.width, packed, row))));
            } else {
                let mut vector = [O::default(); VECTOR_ROWS];
                unpack(self.width, packed, &mut vector, map);
                out.extend_from_slice(&vector[part]);
            }
        });
    }

    /// Visits the packed vectors of a range, each with the part of it that lies in the range.
    #[inline(always)]
    fn for_each_vector<L: Lane>(&self, rows: Range<usize>, mut visit: impl FnMut(&[L], Range<usize>)) {
        let mut row = rows.start;
        while row < rows.end {
            let first = row - row % VECTOR_ROWS;
            let end = rows.end.min(first + VECTOR_ROWS);
            visit(self.vector(row / VECTOR_ROWS), row - first..end - first);
            row = end;
        }
    }

    /// Number of vectors.
    pub(super) fn vector_count(&self) -> usize {
        self.data.len() / packed_bytes(self.width).max(1)
    }

    /// Packed words of a vector.
    #[inline(always)]
    pub(super) fn vector<L: Lane>(&self, vector: usize) -> &[L] {
        let words = L::GROUP_LANES * self.width;
        &self.data.typed_data()[vector * words..][..words]
    }

    /// Unpacks the numbers of a vector. Numbers past the last row are undefined.
    pub(crate) fn unpack_vector<O: Native>(&self, vector: usize, out: &mut [O; VECTOR_ROWS]) {
        let base = O::from_number(self.base);
        with_lane!(self.width, L => {
            unpack(self.width, self.vector::<L>(vector), out, |lane| base.plus(lane.to_u64()));
        });
    }

    /// Unpacks the distances of a vector's numbers from the base. `L` must be wide enough for them. Distances past the
    /// last row are undefined.
    pub(crate) fn unpack_vector_lanes<L: Lane>(&self, vector: usize, lanes: &mut [L; VECTOR_ROWS]) {
        unpack_lanes(self.width, self.vector(vector), lanes);
    }

    /// Prefetches a vector.
    pub(crate) fn prefetch_vector(&self, vector: usize) {
        let bytes = packed_bytes(self.width);
        prefetch(&self.data[vector * bytes..][..bytes]);
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        out.reserve(positions.len());
        with_lane!(self.width, L => self.append_lanes_at::<L, O>(positions, out));
    }

    fn append_lanes_at<L: Lane, O: Native>(&self, mut positions: &[u32], out: &mut Vec<O>) {
        if positions.len() <= single_rows_max::<L>() * DENSITY_VECTORS {
            return self.append_one_by_one::<L, O>(positions, out);
        }
        // Splitting positions at every sixteenth vector costs little. If sixteen vectors have few rows, these are read
        // one by one.
        while let Some(first) = positions.first() {
            let end = (*first as usize / VECTOR_ROWS + DENSITY_VECTORS) * VECTOR_ROWS;
            let (group, rest) = positions.split_at(positions.partition_point(|row| (*row as usize) < end));
            if group.len() <= single_rows_max::<L>() * DENSITY_VECTORS {
                self.append_one_by_one::<L, O>(group, out);
            } else {
                self.append_by_unpacking::<L, O>(group, out);
            }
            positions = rest;
        }
    }

    /// Reads the numbers one by one. If many cache lines of their vectors are needed, prefetches all lines in order,
    /// ahead of the rows, which is several times as fast.
    fn append_one_by_one<L: Lane, O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return };
        let (base, width, packed) = (O::from_number(self.base), self.width, self.data.typed_data());
        let vector_bytes = packed_bytes(width);
        let vectors = *first as usize / VECTOR_ROWS..*last as usize / VECTOR_ROWS + 1;
        let mut bytes = &self.data[vectors.start * vector_bytes..vectors.end * vector_bytes];
        if positions.len() * PREFETCHED_BYTES_PER_ROW < bytes.len() {
            return append_extracted(width, packed, positions, out, |lane: L| base.plus(lane.to_u64()));
        }
        let batch_bytes = bytes.len().div_ceil(positions.len().div_ceil(BATCH_ROWS)).next_multiple_of(LINE_BYTES);
        prefetch(&bytes[..PREFETCH_AHEAD_BYTES.min(bytes.len())]);
        bytes = bytes.get(PREFETCH_AHEAD_BYTES..).unwrap_or_default();
        for positions in positions.chunks(BATCH_ROWS) {
            let (next, rest) = bytes.split_at(batch_bytes.min(bytes.len()));
            prefetch(next);
            bytes = rest;
            append_extracted(width, packed, positions, out, |lane: L| base.plus(lane.to_u64()));
        }
    }

    /// Unpacks each vector, and picks the numbers from it.
    fn append_by_unpacking<L: Lane, O: Native>(&self, mut positions: &[u32], out: &mut Vec<O>) {
        let base = O::from_number(self.base);
        let mut lanes = [L::default(); VECTOR_ROWS];
        while let Some(first) = positions.first() {
            let vector = *first as usize / VECTOR_ROWS;
            let end = (vector + 1) * VECTOR_ROWS;
            let (vector_positions, rest) = positions.split_at(positions.partition_point(|row| (*row as usize) < end));
            unpack_lanes(self.width, self.vector::<L>(vector), &mut lanes);
            out.extend(vector_positions.iter().map(|row| base.plus(lanes[*row as usize % VECTOR_ROWS].to_u64())));
            positions = rest;
        }
    }

    /// Number of one row.
    pub(crate) fn value(&self, row: usize) -> i128 {
        let (vector, index) = (row / VECTOR_ROWS, row % VECTOR_ROWS);
        let distance = with_lane!(self.width, L => extract(self.width, self.vector::<L>(vector), index).to_u64());
        self.base.wrapping_add(distance.into())
    }

    /// Visits the numbers of a range, at most a vector at a time. They must fit 16 bits.
    pub(crate) fn visit_codes(&self, rows: Range<usize>, mut visit: impl FnMut(&[u16])) {
        let mut codes = [0; VECTOR_ROWS];
        if self.width <= 8 {
            self.for_each_vector::<u8>(rows, |packed, part| {
                unpack(self.width, packed, &mut codes, u16::from);
                visit(&codes[part]);
            });
        } else {
            with_lane!(self.width, L => self.for_each_vector::<L>(rows, |packed, part| {
                unpack(self.width, packed, &mut codes, |lane| lane.to_u64() as u16);
                visit(&codes[part]);
            }));
        }
    }

    /// One bit per number of a vector, set if its distance is the greatest that the width can hold. The width must not
    /// be zero.
    pub(crate) fn mask_of_greatest(&self, vector: usize) -> [u64; MASK_WORDS] {
        with_lane!(self.width, L => {
            LanePredicate::<L>::equal_to(<L as Lane>::MAX.shr(<L as Lane>::BITS - self.width))
                .mask_of(LaneSource::Packed { width: self.width, packed: self.vector(vector) })
        })
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        with_lane!(self.width, L => {
            self.filter_lanes(&LanePredicate::<L>::new(predicate, negated, self.domain(), self.base), rows, selection);
        });
    }

    /// Selects the rows that pass a predicate, and no others. `rows` is the number of all rows. Returns `false`, and
    /// changes nothing, if [`Packed::filter`] is as fast.
    pub(crate) fn select(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: usize,
        selection: &mut Bitmap,
    ) -> bool {
        if !(1..=PARTS_WIDTH_MAX).contains(&self.width) {
            return false;
        }
        with_lane!(self.width, L => {
            let source = LaneSource::Packed { width: self.width, packed: self.data.typed_data() };
            let predicate = LanePredicate::<L>::new(predicate, negated, self.domain(), self.base);
            predicate.select(source, packed_bytes(self.width), rows, selection);
        });
        true
    }

    /// Clears the rows at ascending positions that fail a predicate. The cache lines in between are not read.
    pub(crate) fn filter_at(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        positions: &[u32],
        selection: &mut Bitmap,
    ) {
        with_lane!(self.width, L => {
            let predicate = LanePredicate::<L>::new(predicate, negated, self.domain(), self.base);
            let mut lanes = Vec::with_capacity(VECTOR_ROWS);
            for positions in positions.chunks(VECTOR_ROWS) {
                lanes.clear();
                append_extracted(self.width, self.data.typed_data(), positions, &mut lanes, |lane: L| lane);
                selection.intersect_at(positions, &predicate.mask(&lanes));
            }
        });
    }

    /// Like [`Packed::filter`], but `correct` changes the mask of each vector before the mask is applied. `correct`
    /// gets the index of the vector and its mask.
    pub(crate) fn filter_corrected(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: Range<usize>,
        selection: &mut Bitmap,
        mut correct: impl FnMut(usize, &mut [u64; MASK_WORDS]),
    ) {
        with_lane!(self.width, L => {
            let predicate = LanePredicate::<L>::new(predicate, negated, self.domain(), self.base);
            let constant = if self.width == 0 { Some(predicate.admits(L::default())) } else { predicate.fixed_result() };
            filter_vectors(rows, selection, |vector| {
                let mut mask = match constant {
                    Some(passes) => [if passes { u64::MAX } else { 0 }; MASK_WORDS],
                    None => predicate.mask_of(LaneSource::Packed { width: self.width, packed: self.vector(vector) }),
                };
                correct(vector, &mut mask);
                mask
            });
        });
    }

    /// Clears the rows of a range whose number is not the index of a true flag.
    pub(crate) fn filter_flags(
        &self,
        flags: impl ExactSizeIterator<Item = bool>,
        rows: Range<usize>,
        selection: &mut Bitmap,
    ) {
        with_lane!(self.width, L => self.filter_lanes(&LanePredicate::<L>::from_flags(flags), rows, selection));
    }

    fn filter_lanes<L: Lane>(&self, predicate: &LanePredicate<L>, rows: Range<usize>, selection: &mut Bitmap) {
        if self.width > 0 {
            predicate.filter(LaneSource::Packed { width: self.width, packed: self.data.typed_data() }, rows, selection);
        } else if !predicate.admits(L::default()) {
            selection.clear_range(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_is_that_of_the_distance() {
        assert_eq!(width_of(5_i64, 5), Some(0));
        assert_eq!(width_of(-1_i64, 0), Some(1));
        assert_eq!(width_of(i64::MIN, i64::MAX), Some(64));
        assert_eq!(width_of(0_i128, 1 << 63), Some(64));
        assert_eq!(width_of(-1_i128, i128::from(u64::MAX)), None);
        assert_eq!(width_of(i128::MIN, i128::MAX), None);
    }
}
