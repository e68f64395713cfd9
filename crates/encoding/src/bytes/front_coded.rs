//! Text and bytes without the prefixes that they share with the previous value: encoding `front_coded`.
//!
//! ```text
//! part: ceil(rows / 16) * 4   u32 each: offset in the heap of each sixteenth value, which is stored whole
//! part: packed                per row, bytes of the prefix shared with the previous value; as in `packed.rs`
//! part: packed                per row, bytes of the suffix after the shared prefix, in the same width
//! part: heap_bytes            the suffixes, end to end
//!
//! "https://a.org/1", "https://a.org/2", "https://b.org/"   heap: "https://a.org/1" "2" "b.org/"
//! ```
//!
//! The encoding is for sorted values, and for values that share long prefixes with their neighbours: URLs, paths,
//! numbered keys. One long value widens the stored lengths of all values. A value is rebuilt from the last whole one
//! before it, in at most 16 steps. Reading a range takes these steps once, for its first value. The suffix of a null
//! takes no bytes: a null repeats the previous value, or is empty where a value is stored whole.

use std::ops::Range;

use arrow_array::{Array, BinaryViewArray};
use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::bytes::predicate::BytesPredicate;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Views;
use crate::packed::{self, Packed};
use crate::{Bitmap, VECTOR_ROWS};

/// Number of rows from one value that is stored whole to the next.
pub(crate) const RESTART_ROWS: usize = 16;

/// Strings without the prefixes that they share with the previous string.
#[derive(Clone, Debug)]
pub(crate) struct FrontCoded {
    starts: ScalarBuffer<u32>,
    shared_lengths: Packed,
    suffix_lengths: Packed,
    heap: Buffer,
    is_text: bool,
    rows: usize,
    /// Bytes of all values together: an upper bound for reads of distinct rows.
    decoded_bytes: usize,
}

/// Lengths of the shared prefix and of the suffix of each value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    shared_lengths: Vec<i32>,
    suffix_lengths: Vec<i32>,
}

impl Lengths {
    /// Measures the values of these rows, as if these rows were a whole chunk.
    pub(crate) fn measure(array: &BinaryViewArray, rows: Range<usize>) -> Self {
        let mut lengths =
            Self { shared_lengths: Vec::with_capacity(rows.len()), suffix_lengths: Vec::with_capacity(rows.len()) };
        let mut previous: &[u8] = &[];
        for (index, row) in rows.enumerate() {
            previous = if index.is_multiple_of(RESTART_ROWS) { &[] } else { previous };
            let value = if array.is_valid(row) { array.value(row) } else { previous };
            let shared = shared_bytes(previous, value);
            // Values of a chunk have less than 2 GiB.
            lengths.shared_lengths.push(shared as i32);
            lengths.suffix_lengths.push((value.len() - shared) as i32);
            previous = value;
        }
        lengths
    }

    /// Total bytes of the suffixes.
    pub(crate) fn suffix_bytes(&self) -> usize {
        self.suffix_lengths.iter().map(|suffix| *suffix as usize).sum()
    }

    /// Bytes of the values, including values that are repeated for nulls.
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.shared_lengths.iter().chain(&self.suffix_lengths).map(|length| *length as usize).sum()
    }

    fn width(&self) -> usize {
        let longest = self.shared_lengths.iter().chain(&self.suffix_lengths).copied().max().unwrap_or(0);
        packed::width_of(0, longest).unwrap_or(31)
    }

    /// Bytes of the parts for these lengths, without padding.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let rows = self.suffix_lengths.len();
        let lengths = 2 * rows.next_multiple_of(VECTOR_ROWS) * self.width() / 8;
        4 * rows.div_ceil(RESTART_ROWS) + lengths + self.suffix_bytes()
    }
}

/// Length of the common prefix of two values.
fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    let (left_words, right_words) = (left.as_chunks::<8>().0, right.as_chunks::<8>().0);
    let words = left_words.iter().zip(right_words).take_while(|(left, right)| left == right).count();
    let rest = left[8 * words..].iter().zip(&right[8 * words..]);
    8 * words + rest.take_while(|(left, right)| left == right).count()
}

/// Writes the parts of values with these lengths, and sets the head fields that describe them. Returns `false`, and
/// writes nothing, if the values, including values repeated for nulls, exceed 2 GiB.
pub(crate) fn write(array: &BinaryViewArray, lengths: &Lengths, head: &mut Head, writer: &mut Writer) -> bool {
    let decoded_bytes = lengths.decoded_bytes();
    if decoded_bytes > i32::MAX as usize {
        return false;
    }
    let mut heap = Vec::with_capacity(lengths.suffix_bytes());
    let mut starts: Vec<u32> = Vec::with_capacity(array.len().div_ceil(RESTART_ROWS));
    let mut previous: &[u8] = &[];
    for row in 0..array.len() {
        if row.is_multiple_of(RESTART_ROWS) {
            starts.push(heap.len() as u32);
            previous = &[];
        }
        let value = if array.is_valid(row) { array.value(row) } else { previous };
        heap.extend_from_slice(&value[lengths.shared_lengths[row] as usize..]);
        previous = value;
    }
    (head.width, head.heap_bytes, head.decoded_bytes) = (lengths.width(), heap.len(), decoded_bytes);
    writer.push_part(starts.as_slice().to_byte_slice());
    packed::write(&lengths.shared_lengths, 0, head.width, writer);
    packed::write(&lengths.suffix_lengths, 0, head.width, writer);
    writer.push_part(&heap);
    true
}

impl FrontCoded {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, is_text: bool, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.width > 31 {
            return Err(CorruptChunk { at: 2, expected: "lengths of at most 31 bits" });
        }
        if head.decoded_bytes > RESTART_ROWS * head.heap_bytes {
            return Err(CorruptChunk { at: 40, expected: "at most 16 bytes of values per byte of the heap" });
        }
        let starts = parts.read_part(4 * head.rows.div_ceil(RESTART_ROWS), "starts of whole values")?;
        let shared_lengths = Packed::parse(parts, 0, head.width, head.rows)?;
        let suffix_lengths = Packed::parse(parts, 0, head.width, head.rows)?;
        let heap = parts.read_part(head.heap_bytes, "bytes of values")?;
        let starts = ScalarBuffer::from(starts);
        Ok(Self {
            starts,
            shared_lengths,
            suffix_lengths,
            heap,
            is_text,
            rows: head.rows,
            decoded_bytes: head.decoded_bytes,
        })
    }

    /// Approximate decoded bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.decoded_bytes.div_ceil(self.rows.max(1))
    }

    /// Strings of a range of rows, and whether all of them are valid.
    pub(crate) fn views(&self, rows: Range<usize>) -> (Views, bool) {
        self.rebuild(rows)
    }

    /// Strings at ascending positions.
    pub(crate) fn views_at(&self, positions: &[u32]) -> Views {
        self.rebuild(positions.iter().map(|row| *row as usize)).0
    }

    fn rebuild(&self, rows: impl ExactSizeIterator<Item = usize>) -> (Views, bool) {
        let count = rows.len();
        let mut heap = Vec::with_capacity(count * (self.row_bytes() + 1));
        let mut ends: Vec<u32> = Vec::with_capacity(count);
        let mut cursor = Cursor::new(self);
        let (mut bytes_left, mut last, mut is_valid) = (self.decoded_bytes, None, true);
        for row in rows {
            let value = cursor.value(row);
            // The values of distinct rows have at most `decoded_bytes` bytes together. Hostile lengths can exceed this
            // limit; values beyond it are left empty.
            let bytes = if last == Some(row) { 0 } else { value.len() };
            match bytes_left.checked_sub(bytes) {
                Some(rest) => {
                    bytes_left = rest;
                    heap.extend_from_slice(value);
                }
                None => is_valid = false,
            }
            last = Some(row);
            ends.push(u32::try_from(heap.len()).unwrap_or(u32::MAX));
        }
        let mut views = Views::new(heap.into(), self.is_text, count);
        is_valid &= views.append(0, &ends);
        (views, is_valid && cursor.is_valid)
    }

    /// String of one row.
    pub(crate) fn value(&self, row: usize) -> Vec<u8> {
        Cursor::new(self).value(row).to_vec()
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let predicate = BytesPredicate::new(predicate);
        let mut cursor = Cursor::new(self);
        selection.retain(rows, |row| predicate.admits(cursor.value(row)) != negated);
    }
}

/// Rebuilds the values of ascending rows.
struct Cursor<'a> {
    strings: &'a FrontCoded,
    /// Vector whose lengths are unpacked.
    vector: Option<usize>,
    shared_lengths: Vec<i32>,
    suffix_lengths: Vec<i32>,
    /// The row after the row of `value`.
    next_row: usize,
    /// Offset in the heap of the suffix of the next row.
    heap_at: usize,
    value: Vec<u8>,
    /// False if a length that was read does not fit the heap or the previous value.
    is_valid: bool,
}

impl<'a> Cursor<'a> {
    fn new(strings: &'a FrontCoded) -> Self {
        let (shared_lengths, suffix_lengths) = (Vec::with_capacity(VECTOR_ROWS), Vec::with_capacity(VECTOR_ROWS));
        Self {
            strings,
            vector: None,
            shared_lengths,
            suffix_lengths,
            next_row: 0,
            heap_at: 0,
            value: vec![],
            is_valid: true,
        }
    }

    /// Value of a row, which must not be before the row of the last call.
    #[inline]
    fn value(&mut self, row: usize) -> &[u8] {
        let vector = row / VECTOR_ROWS;
        if self.vector != Some(vector) {
            self.unpack(vector);
        }
        let restart = row - row % RESTART_ROWS;
        if self.next_row <= restart {
            self.next_row = restart;
            self.heap_at = self.strings.starts[restart / RESTART_ROWS] as usize;
            self.value.clear();
        }
        while self.next_row <= row {
            self.replace_by_next();
        }
        &self.value
    }

    fn unpack(&mut self, vector: usize) {
        let first = vector * VECTOR_ROWS;
        let rows = first..self.strings.rows.min(first + VECTOR_ROWS);
        self.shared_lengths.clear();
        self.suffix_lengths.clear();
        self.strings.shared_lengths.append(rows.clone(), &mut self.shared_lengths);
        self.strings.suffix_lengths.append(rows, &mut self.suffix_lengths);
        self.vector = Some(vector);
    }

    /// Replaces the value of a row by the value of the next row, in the same vector.
    #[inline]
    fn replace_by_next(&mut self) {
        let index = self.next_row % VECTOR_ROWS;
        // `parse` admits lengths of at most 31 bits.
        let (shared, suffix) = (self.shared_lengths[index] as usize, self.suffix_lengths[index] as usize);
        let bytes = self.strings.heap.get(self.heap_at..self.heap_at + suffix);
        self.is_valid &= bytes.is_some() && shared <= self.value.len();
        self.value.truncate(shared);
        self.value.extend_from_slice(bytes.unwrap_or_default());
        self.heap_at += suffix;
        self.next_row += 1;
    }
}
