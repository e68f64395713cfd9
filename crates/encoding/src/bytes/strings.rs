//! Strings of bytes, end to end: encodings `plain` and `constant`, and the entries of a dictionary.
//!
//! ```text
//! part: count * 4    u32 each: the end of the value in the heap; it begins at the end of the previous value
//! part: heap_bytes   the bytes of all values
//! ```
//!
//! Ends and UTF-8 are checked when values are read, so that reading a few values does not check all of them.

use std::ops::Range;

use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::Bitmap;
use crate::bytes::predicate::BytesPredicate;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Views;

/// Strings, end to end.
#[derive(Clone, Debug)]
pub(crate) struct Strings {
    ends: ScalarBuffer<u32>,
    heap: Buffer,
    is_text: bool,
}

/// Writes the parts of strings, and sets the head fields that describe them. `heap_bytes` is the total length of the
/// strings, which must be less than 2 GiB.
pub(crate) fn write<'a>(
    values: impl ExactSizeIterator<Item = &'a [u8]>,
    heap_bytes: usize,
    head: &mut Head,
    writer: &mut Writer,
) {
    let mut ends: Vec<u32> = Vec::with_capacity(values.len());
    let mut heap = Vec::with_capacity(heap_bytes);
    for value in values {
        heap.extend_from_slice(value);
        ends.push(heap.len() as u32);
    }
    head.heap_bytes = heap.len();
    writer.push_part(ends.as_slice().to_byte_slice());
    writer.push_part(&heap);
}

impl Strings {
    /// Reads `count` strings.
    pub(crate) fn parse(head: &Head, is_text: bool, count: usize, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let ends = parts.read_part(4 * count, "ends of values")?;
        let heap = parts.read_part(head.heap_bytes, "bytes of values")?;
        Ok(Self { ends: ScalarBuffer::from(ends), heap, is_text })
    }

    /// Number of strings.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all strings.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap.len()
    }

    fn start(&self, index: usize) -> u32 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }

    fn range(&self, index: usize) -> Range<usize> {
        self.start(index) as usize..self.ends[index] as usize
    }

    /// String at an index. Empty if its ends are impossible.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        self.heap.get(self.range(index)).unwrap_or_default()
    }

    /// Strings of a range, and whether all of them are valid.
    pub(crate) fn views(&self, range: Range<usize>) -> (Views, bool) {
        let mut views = Views::new(self.heap.clone(), self.is_text, range.len());
        let start = if range.is_empty() { 0 } else { self.start(range.start) };
        let is_valid = views.append(start, &self.ends[range]);
        (views, is_valid)
    }

    /// Strings at ascending positions.
    pub(crate) fn views_at(&self, positions: &[u32]) -> Views {
        let mut views = Views::new(self.heap.clone(), self.is_text, positions.len());
        for position in positions {
            views.push(self.range(*position as usize));
        }
        views
    }

    /// Index of the first string for which `is_before` is false. The strings must ascend.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let predicate = BytesPredicate::new(predicate);
        selection.retain(rows, |row| predicate.admits(self.get(row)) != negated);
    }
}
