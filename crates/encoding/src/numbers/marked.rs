//! Packed numbers with many exceptions: encoding `patched` with an inner encoding.
//!
//! ```text
//! part: distances from `base` in `width` bits, as in `packed.rs`; the greatest of them marks an exception
//! part: 2 * vectors    u16 each: exceptions before each vector of 1,024 rows
//! part: heap_bytes     the exceptions in order, a chunk of `entries` rows without nulls, whose encoding is `inner`
//! ```
//!
//! The position of an exception is not stored: the mark in its row is enough. The inner chunk encodes its number, and
//! may have marked exceptions itself. The encoding is for skewed numbers. With a Zipf distribution of exponent 2, three
//! bits hold eleven in twelve numbers. A number then takes 3.7 bits on average, exceptions included. It takes 5.8 bits
//! if exceptions are stored with their rows, and its entropy is 2.4 bits. A narrower width would come closer to the
//! entropy. But more numbers would then be exceptions, which are slow (see [`EXCEPTION_BITS`]), so that a vector would
//! take three times as long to decode.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};
use taut_types::{DatumPredicate, Encoding};

use crate::choice::{Choice, EncodeError};
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::{MASK_WORDS, Native, deposit};
use crate::numbers::exceptions::{self, Window};
use crate::numbers::{self, Nesting, Numbers};
use crate::packed::{self, Packed, width_of};
use crate::{Bitmap, VECTOR_ROWS};

/// Maximum number of nested chunks of exceptions.
pub(crate) const DEPTH_MAX: usize = 3;
/// Widths of packed numbers that are tried. Wider ones leave exceptions that `exceptions.rs` stores just as well.
const WIDTHS: [usize; 7] = [1, 2, 3, 4, 5, 6, 8];
/// Number of bits that cost as much as decoding an exception. Decoding an exception takes more than a nanosecond,
/// decoding a packed number a fifth of one.
const EXCEPTION_BITS: usize = 8;
/// Bytes of an inner chunk in addition to its values, for its head and the padding of its parts.
const CHUNK_OVERHEAD_BYTES: usize = 4 * 64;

/// Window of the packed numbers, and the cost of all numbers estimated from a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkedPlan<N> {
    /// Range of the numbers that are packed. It excludes the greatest number that the width can hold, which is the
    /// mark.
    pub(crate) window: Window<N>,
    /// Bits of all numbers.
    pub(crate) bits: usize,
    /// The bits, plus [`EXCEPTION_BITS`] for each exception.
    pub(crate) cost: usize,
}

impl<N: Native> MarkedPlan<N> {
    /// The plan with the least cost for `rows` numbers, from a sorted sample of them. Returns `None` if marking saves
    /// nothing.
    pub(crate) fn from_sample(sample: &[N], rows: usize, plain_bytes: usize, depth: usize) -> Option<Self> {
        let least = LeastCost::find(sample, plain_bytes, depth.min(DEPTH_MAX));
        let overhead_bits = 8 * CHUNK_OVERHEAD_BYTES * least.chunks + 16 * rows.div_ceil(VECTOR_ROWS);
        // A sample misses some rare numbers. One more exception in the sample accounts for them.
        let scale_up =
            |bits: usize| (bits + exceptions::bits(plain_bytes)) * rows.div_ceil(sample.len()) + overhead_bits;
        Some(Self { window: least.window?, bits: scale_up(least.bits), cost: scale_up(least.cost) })
    }
}

/// Least cost of storing sorted numbers.
struct LeastCost<N> {
    bits: usize,
    cost: usize,
    /// Number of nested chunks of exceptions.
    chunks: usize,
    /// `None` if all numbers are packed.
    window: Option<Window<N>>,
}

impl<N: Native> LeastCost<N> {
    fn find(sorted: &[N], plain_bytes: usize, depth: usize) -> Self {
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
            return Self { bits: 0, cost: 0, chunks: 0, window: None };
        };
        let full_width = width_of(*first, *last).unwrap_or(8 * plain_bytes).min(8 * plain_bytes);
        let packed = sorted.len() * full_width;
        let mut best = Self { bits: packed, cost: packed, chunks: 0, window: None };
        for width in WIDTHS {
            let bits = width * sorted.len();
            if depth == 0 || bits >= best.cost {
                break;
            }
            // The numbers in a window are not stored as exceptions. This saves bits only if storing them at
            // `full_width` takes more bits than storing a number of `width` bits in every row. `minus` truncates
            // distances to 64 bits, so 128-bit numbers may seem closer to each other here than they are. The window is
            // checked again below.
            let reach = (1 << width) - 2;
            let inside_min = bits / full_width + 1;
            if !sorted.windows(inside_min).any(|inside| inside[inside_min - 1].minus(inside[0]) <= reach) {
                continue;
            }
            let inside = densest_window(sorted, reach.into());
            if inside.len() < inside_min || inside.len() == sorted.len() {
                continue;
            }
            let outside = [&sorted[..inside.start], &sorted[inside.end..]].concat();
            let outside_cost = Self::find(&outside, plain_bytes, depth - 1);
            let cost = bits + outside.len() * EXCEPTION_BITS + outside_cost.cost;
            if cost < best.cost {
                let base = sorted[inside.start];
                let top = base.to_number().saturating_add((1 << width) - 2).min(N::MAX.to_number());
                let window = Some(Window { base, top: N::from_number(top), width });
                best = Self { bits: bits + outside_cost.bits, cost, chunks: outside_cost.chunks + 1, window };
            }
        }
        best
    }
}

/// Longest range of sorted numbers that are at most `reach` apart.
fn densest_window<N: Native>(sorted: &[N], reach: u128) -> Range<usize> {
    let (mut best, mut start) = (0..0, 0);
    for (end, number) in sorted.iter().enumerate() {
        while number.to_number().wrapping_sub(sorted[start].to_number()) as u128 > reach {
            start += 1;
        }
        if end + 1 - start > best.len() {
            best = start..end + 1;
        }
    }
    best
}

/// Writes the parts of numbers, and sets the head fields that describe them. Numbers outside the window become
/// exceptions.
pub(crate) fn write<N: Native>(
    values: &[N],
    window: Window<N>,
    nesting: Nesting,
    head: &mut Head,
    writer: &mut Writer,
) -> Result<(), EncodeError> {
    // An exception is packed as the first number past the window.
    let mark = window.base.plus((1 << window.width) - 1);
    let packed: Vec<N> = values.iter().map(|value| if window.contains(*value) { *value } else { mark }).collect();
    let mut exceptions: Vec<N> = vec![];
    let mut exceptions_before: Vec<u16> = vec![];
    for vector in values.chunks(VECTOR_ROWS) {
        // Fewer than 2^16 exceptions precede a vector: a chunk has at most 2^16 rows, and the vector has at least one
        // of them.
        exceptions_before.push(exceptions.len() as u16);
        exceptions.extend(vector.iter().filter(|value| !window.contains(**value)));
    }
    let inner = Head { plain_bytes: head.plain_bytes, rows: exceptions.len(), ..Head::new(head.encoding) };
    let inner_writer = Writer::with_capacity(exceptions.len() * head.plain_bytes);
    let chunk = numbers::encode(&exceptions, nesting.inner(), Choice::Auto, inner, inner_writer)?;
    (head.base, head.width, head.entries) = (window.base.to_number(), window.width, exceptions.len());
    (head.heap_bytes, head.inner) = (chunk.len(), Encoding::from_code(chunk[0]));
    packed::write(&packed, window.base, window.width, writer);
    writer.push_part(exceptions_before.to_byte_slice());
    writer.push_part(&chunk);
    Ok(())
}

/// Packed numbers. The greatest number of the width marks an exception.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    packed: Packed,
    /// Number of exceptions before each vector, ascending.
    exceptions_before: ScalarBuffer<u16>,
    count: usize,
    exceptions: Box<Numbers>,
}

impl Marked {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, nesting: Nesting, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let corrupt = |at, expected| Err(CorruptChunk { at, expected });
        if nesting.depth == 0 {
            return corrupt(1, "at most three nested chunks of exceptions");
        }
        if head.width == 0 {
            return corrupt(2, "a width of at least one bit, for the mark");
        }
        let packed = Packed::parse(parts, head.base, head.width, head.rows)?;
        let at = parts.at();
        let exceptions_before =
            parts.read_part(2 * head.rows.div_ceil(VECTOR_ROWS), "exceptions before each vector")?;
        let exceptions_before = ScalarBuffer::<u16>::from(exceptions_before);
        if !exceptions_before.is_sorted()
            || exceptions_before.last().is_some_and(|last| usize::from(*last) > head.entries)
        {
            return corrupt(
                at,
                "ascending counts of exceptions before each vector, none above the number of exceptions",
            );
        }
        let at = parts.at();
        let chunk = parts.read_part(head.heap_bytes, "a chunk of exceptions")?;
        let in_inner_chunk = |corrupt: CorruptChunk| CorruptChunk { at: corrupt.at + at, ..corrupt };
        let (inner, mut inner_parts) = Head::parse(chunk, head.plain_bytes, head.entries).map_err(in_inner_chunk)?;
        if head.inner != Some(inner.encoding) {
            return corrupt(1, "the encoding of the chunk of exceptions");
        }
        if inner.nulls > 0 {
            return corrupt(at + 8, "exceptions without null");
        }
        let exceptions = Numbers::parse(&inner, nesting.inner(), &mut inner_parts).map_err(in_inner_chunk)?;
        inner_parts.finish().map_err(in_inner_chunk)?;
        Ok(Self { packed, exceptions_before, count: head.entries, exceptions: Box::new(exceptions) })
    }

    /// Readable name of the encodings.
    pub(crate) fn description(&self) -> String {
        let (width, inner) = (self.packed.width(), self.exceptions.description());
        format!("patched({width}) with {} exceptions in {inner}", self.count)
    }

    /// Ordinals of the exceptions of a vector.
    fn exceptions_of_vector(&self, vector: usize) -> Range<usize> {
        let end = self.exceptions_before.get(vector + 1).map_or(self.count, |end| usize::from(*end));
        usize::from(self.exceptions_before[vector])..end
    }

    /// Ordinals of the exceptions of the vectors that a range of rows touches.
    fn exceptions_of_rows(&self, rows: &Range<usize>) -> Range<usize> {
        if rows.is_empty() {
            return 0..0;
        }
        self.exceptions_of_vector(rows.start / VECTOR_ROWS).start
            ..self.exceptions_of_vector((rows.end - 1) / VECTOR_ROWS).end
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        let start = out.len();
        self.packed.append(rows.clone(), out);
        let out = &mut out[start..];
        let all = self.exceptions_of_rows(&rows);
        let numbers: Vec<O> = self.exceptions.decode(all.clone());
        let mut row = rows.start;
        while row < rows.end {
            let vector = row / VECTOR_ROWS;
            let first = vector * VECTOR_ROWS;
            let range = row - first..rows.end.min(first + VECTOR_ROWS) - first;
            let vector_exceptions = self.exceptions_of_vector(vector);
            let numbers = &numbers[vector_exceptions.start - all.start..vector_exceptions.end - all.start];
            let target = &mut out[row - rows.start..first + range.end - rows.start];
            overwrite_marked(&self.packed.mask_of_greatest(vector), range.clone(), numbers, target);
            row = first + range.end;
        }
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let start = out.len();
        self.packed.append_at(positions, out);
        let out = &mut out[start..];
        let mark = O::from_number(self.packed.domain().1);
        let mut marks = (usize::MAX, [0; MASK_WORDS]);
        // Indexes into the positions, and ordinals of their exceptions. The ordinals ascend, because the positions do.
        let (mut out_indexes, mut ordinals) = (vec![], vec![]);
        for (out_index, position) in positions.iter().enumerate() {
            if out[out_index] != mark {
                continue;
            }
            let (vector, index) = (*position as usize / VECTOR_ROWS, *position as usize % VECTOR_ROWS);
            if marks.0 != vector {
                marks = (vector, self.packed.mask_of_greatest(vector));
            }
            let words = marks.1[..index / 64].iter().map(|word| word.count_ones()).sum::<u32>();
            let count = words + (marks.1[index / 64] & !(u64::MAX << (index % 64))).count_ones();
            let vector_exceptions = self.exceptions_of_vector(vector);
            let exception = vector_exceptions.start + count as usize;
            if exception < vector_exceptions.end {
                out_indexes.push(out_index);
                // A chunk has at most 2^16 rows.
                ordinals.push(exception as u32);
            }
        }
        let numbers: Vec<O> = self.exceptions.gather(&ordinals);
        for (out_index, number) in out_indexes.into_iter().zip(numbers) {
            out[out_index] = number;
        }
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let all = self.exceptions_of_rows(&rows);
        let mut passing = Bitmap::all_set(self.count);
        self.exceptions.filter(predicate, negated, all.clone(), &mut passing);
        let none_passes = passing.is_range_empty(all);
        self.packed.filter_corrected(predicate, negated, rows, selection, |vector, mask| {
            let vector_exceptions = self.exceptions_of_vector(vector);
            let mut next = vector_exceptions.start;
            for (mask, marks) in mask.iter_mut().zip(self.packed.mask_of_greatest(vector)) {
                *mask &= !marks;
                if marks == 0 || none_passes {
                    continue;
                }
                *mask |= deposit(passing.bits_from(next, vector_exceptions.end), marks);
                next += marks.count_ones() as usize;
            }
        });
    }
}

/// Writes the exceptions of a vector to the marked rows in `range`, a range of its rows. `numbers` are the exceptions
/// of the whole vector, and `target` are the cells of the range.
fn overwrite_marked<O: Native>(marks: &[u64; MASK_WORDS], range: Range<usize>, numbers: &[O], target: &mut [O]) {
    let mut numbers = numbers.iter();
    if range.len() == VECTOR_ROWS {
        for (target, marks) in target.as_chunks_mut::<64>().0.iter_mut().zip(marks) {
            let mut remaining = *marks;
            while remaining != 0 {
                let Some(number) = numbers.next() else { return };
                target[remaining.trailing_zeros() as usize % 64] = *number;
                remaining &= remaining - 1;
            }
        }
        return;
    }
    for row in (0..VECTOR_ROWS).filter(|row| marks[row / 64] >> (row % 64) & 1 != 0) {
        let Some(number) = numbers.next() else { return };
        if let Some(target) = row.checked_sub(range.start).and_then(|index| target.get_mut(index)) {
            *target = *number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTING: Nesting = Nesting { is_float: false, depth: DEPTH_MAX };

    /// Skewed distribution: `n` has a probability of about `1 / (n * (n + 1))`.
    fn skewed(row: u64) -> i64 {
        let hash = row.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (u64::MAX / (hash | 1)) as i64
    }

    fn chunk(values: &[i64]) -> Vec<u8> {
        let mut sample = values.to_vec();
        sample.sort_unstable();
        let plan = MarkedPlan::from_sample(&sample, values.len(), 8, DEPTH_MAX).unwrap();
        let mut writer = Writer::with_capacity(0);
        let mut head = Head { plain_bytes: 8, rows: values.len(), ..Head::new(Encoding::Patched) };
        write(values, plan.window, NESTING, &mut head, &mut writer).unwrap();
        writer.finish(head)
    }

    fn parse(bytes: &[u8], rows: usize) -> Result<Numbers, CorruptChunk> {
        let (head, mut parts) = Head::parse(bytes.into(), 8, rows)?;
        let numbers = Numbers::parse(&head, NESTING, &mut parts)?;
        parts.finish()?;
        Ok(numbers)
    }

    #[test]
    fn skewed_numbers_take_less_than_five_bits_each() {
        let values: Vec<i64> = (0..65_536).map(skewed).collect();
        let bytes = chunk(&values);
        assert!(bytes.len() * 8 < values.len() * 5, "{} bits", bytes.len() * 8);
        let numbers = parse(&bytes, values.len()).unwrap();
        assert!(matches!(numbers, Numbers::Marked(_)), "{}", numbers.description());
        assert_eq!(numbers.decode::<i64>(0..values.len()), values);
        assert_eq!(numbers.decode::<i64>(1_030..1_031), values[1_030..1_031]);
    }

    #[test]
    fn windows_contain_most_numbers() {
        let window_of = |numbers: &[i64]| {
            let mut sample: Vec<i64> = numbers.to_vec();
            sample.sort_unstable();
            MarkedPlan::from_sample(&sample, sample.len(), 8, 1).map(|plan| plan.window)
        };
        let around: Vec<i64> = (0..1000).map(|row| if row % 5 == 0 { row * 1000 - 500_000 } else { row % 3 }).collect();
        assert_eq!(window_of(&around), Some(Window { base: 0, top: 2, width: 2 }));
        assert_eq!(window_of(&[i64::MAX; 20]), None);
        let ends: Vec<i64> = (0..100).map(|row| if row % 9 == 0 { i64::MIN } else { i64::MAX }).collect();
        assert_eq!(window_of(&ends), Some(Window { base: i64::MAX, top: i64::MAX, width: 1 }));
        assert_eq!(parse(&chunk(&ends), 100).unwrap().decode::<i64>(0..100), ends);
    }

    #[test]
    fn contradictory_fields_are_rejected() {
        let values: Vec<i64> = (0..3_000).map(skewed).collect();
        let bytes = chunk(&values);
        let damaged = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            parse(&bytes, values.len()).map(|_| ()).unwrap_err()
        };
        assert_eq!(damaged(1, Encoding::Alp as u8).expected, "the encoding of the chunk of exceptions");
        assert_eq!(damaged(2, 0).at, 2);
        // The chunk has three vectors. The count of exceptions before the last one is too large.
        let width = usize::from(bytes[2]);
        let before = 64 + packed::bytes(values.len(), width).next_multiple_of(64);
        assert_eq!(damaged(before + 5, 0xff).at, before);
        assert_eq!(damaged(before + 64 + 8, 1).expected, "exceptions without null");
        // Nested chunks, each as the exceptions of the next one.
        let mut nested = chunk(&values);
        for _ in 0..DEPTH_MAX {
            let rows = 1_100;
            let mut head = Head { plain_bytes: 8, rows, ..Head::new(Encoding::Patched) };
            (head.width, head.entries, head.inner) = (1, values.len().min(rows), Some(Encoding::Patched));
            head.heap_bytes = nested.len();
            let mut writer = Writer::with_capacity(0);
            writer.push_part(&vec![0xff; packed::bytes(rows, 1)]);
            writer.push_part(&[0; 4]);
            writer.push_part(&nested);
            nested = writer.finish(head);
        }
        assert!(parse(&nested, 1_100).is_err());
    }
}
