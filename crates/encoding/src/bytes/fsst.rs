//! Text and bytes, compressed by a table of frequent short strings: encoding `fsst` (Boncz, Neumann, Leis, 2020).
//!
//! ```text
//! part: entries * 8    symbols: up to 8 bytes each, padded by zeros
//! part: entries        lengths of the symbols, 1 ..= 8
//! part: vectors * 4    u32 each: offset in the heap of the first value of a vector
//! part: packed         per row, the end of its value, counted from that offset; as in `packed.rs`
//! part: heap_bytes     codes of all values: a byte below 255 is the index of a symbol, 255 precedes a literal byte
//! ```
//!
//! Crate `fsst-rs` finds the symbols and compresses. The code below decompresses, because the crate panics on bytes
//! that it did not write. Decompression takes about a nanosecond per code and copies the bytes. The encoding is
//! worthwhile only if it saves much space, and never for values that are mostly read by predicates.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, BinaryViewArray};
use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use fsst::Compressor;
use taut_types::DatumPredicate;

use crate::bytes::predicate::BytesPredicate;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Views;
use crate::packed::{self, Packed};
use crate::{Bitmap, VECTOR_ROWS};

const ESCAPE: u8 = 255;
/// Maximum rows of a vector whose ends are read one by one. For more rows, unpacking all ends is cheaper.
const ENDS_EXTRACTED_MAX: usize = 16;

/// Compressed strings.
#[derive(Clone, Debug)]
pub(crate) struct Fsst {
    symbols: Arc<Symbols>,
    starts: ScalarBuffer<u32>,
    ends: Packed,
    heap: Buffer,
    is_text: bool,
    /// Approximate decoded bytes of a row.
    row_bytes: usize,
}

#[derive(Clone, Debug)]
struct Symbols {
    symbols: [[u8; 8]; 256],
    lengths: [u8; 256],
}

/// Compressor for the values at these rows.
pub(crate) fn train(array: &BinaryViewArray, rows: impl Iterator<Item = usize>) -> Compressor {
    Compressor::train(&rows.filter(|row| array.is_valid(*row)).map(|row| array.value(row)).collect())
}

/// Bytes of the values at these rows, before and after compression.
pub(crate) fn measure(
    compressor: &Compressor,
    array: &BinaryViewArray,
    rows: impl Iterator<Item = usize>,
) -> (usize, usize) {
    let values: Vec<&[u8]> = rows.filter(|row| array.is_valid(*row)).map(|row| array.value(row)).collect();
    let (mut compressed, mut ends) = (vec![], vec![]);
    compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(&values, &mut compressed, &mut ends);
    (values.iter().map(|value| value.len()).sum(), compressed.len())
}

/// Writes the parts of values, compressed, and sets the head fields that describe them. Returns `false`, and writes
/// nothing, if the compressed values exceed 2 GiB.
pub(crate) fn write(compressor: &Compressor, array: &BinaryViewArray, head: &mut Head, writer: &mut Writer) -> bool {
    let value = |row| if array.is_valid(row) { array.value(row) } else { &[] };
    let values: Vec<&[u8]> = (0..array.len()).map(value).collect();
    let (mut heap, mut ends) = (vec![], vec![]);
    compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(&values, &mut heap, &mut ends);
    if heap.len() > i32::MAX as usize {
        return false;
    }
    head.decoded_bytes = values.iter().map(|value| value.len()).sum();
    // All ends fit 31 bits, as was just checked.
    let ends: Vec<i64> = ends.into_iter().map(|end| end as i64).collect();
    let first_end = |vector: usize| if vector == 0 { 0 } else { ends[vector * VECTOR_ROWS - 1] as u32 };
    let starts: Vec<u32> = (0..array.len().div_ceil(VECTOR_ROWS)).map(first_end).collect();
    let relative = |(row, end): (usize, &i64)| end - i64::from(starts[row / VECTOR_ROWS]);
    let ends: Vec<i64> = ends.iter().enumerate().map(relative).collect();
    let symbols: Vec<u64> = compressor.symbol_table().iter().map(|symbol| symbol.to_u64()).collect();
    let width = packed::width_of(0, ends.iter().copied().max().unwrap_or(0)).unwrap_or(64);
    (head.entries, head.width, head.heap_bytes) = (symbols.len(), width, heap.len());
    writer.push_part(symbols.as_slice().to_byte_slice());
    writer.push_part(compressor.symbol_lengths());
    writer.push_part(starts.as_slice().to_byte_slice());
    packed::write(&ends, 0, width, writer);
    writer.push_part(&heap);
    true
}

impl Fsst {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, is_text: bool, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.entries > ESCAPE.into() {
            return Err(CorruptChunk { at: 12, expected: "at most 255 symbols" });
        }
        if head.decoded_bytes > 8 * head.heap_bytes {
            return Err(CorruptChunk { at: 40, expected: "at most 8 bytes per compressed byte" });
        }
        // A code without a symbol decodes to nothing.
        let mut symbols = Symbols { symbols: [[0; 8]; 256], lengths: [0; 256] };
        let bytes = parts.read_part(8 * head.entries, "symbols")?;
        for (symbol, bytes) in symbols.symbols.iter_mut().zip(bytes.as_chunks().0) {
            *symbol = *bytes;
        }
        let at = parts.at();
        let lengths = parts.read_part(head.entries, "lengths of symbols")?;
        if lengths.iter().any(|length| *length > 8) {
            return Err(CorruptChunk { at, expected: "symbols of at most 8 bytes" });
        }
        symbols.lengths[..head.entries].copy_from_slice(&lengths);
        let starts = parts.read_part(4 * head.rows.div_ceil(VECTOR_ROWS), "starts of vectors")?;
        let ends = Packed::parse(parts, 0, head.width, head.rows)?;
        let heap = parts.read_part(head.heap_bytes, "compressed values")?;
        let row_bytes = head.decoded_bytes.div_ceil(head.rows.max(1));
        Ok(Self { symbols: Arc::new(symbols), starts: ScalarBuffer::from(starts), ends, heap, is_text, row_bytes })
    }

    /// Approximate decoded bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Compressed value of a row. `end` is its end, and `end_before` the end of the previous row. Each is counted from
    /// the first value of the row's vector.
    #[inline]
    fn compressed(&self, row: usize, end_before: u64, end: u64) -> &[u8] {
        let start = if row.is_multiple_of(VECTOR_ROWS) { 0 } else { end_before };
        let first = u64::from(self.starts[row / VECTOR_ROWS]);
        let offset = |end: u64| usize::try_from(first.saturating_add(end)).unwrap_or(usize::MAX);
        self.heap.get(offset(start)..offset(end)).unwrap_or_default()
    }

    /// Compressed value of a row, from the ends of rows from `first` on.
    #[inline]
    fn compressed_in(&self, row: usize, ends: &[i64], first: usize) -> &[u8] {
        let end_before = if row == 0 { 0 } else { ends[row - 1 - first] as u64 };
        self.compressed(row, end_before, ends[row - first] as u64)
    }

    fn compressed_at(&self, row: usize) -> &[u8] {
        // Ends are never negative: their base is zero.
        let end_before = if row == 0 { 0 } else { self.ends.value(row - 1) as u64 };
        self.compressed(row, end_before, self.ends.value(row) as u64)
    }

    /// Strings of a range of rows, and whether all of them are valid.
    pub(crate) fn views(&self, rows: Range<usize>) -> (Views, bool) {
        let first = rows.start.saturating_sub(1);
        let mut ends: Vec<i64> = vec![];
        self.ends.append(first..rows.end, &mut ends);
        self.decompress(rows.map(|row| self.compressed_in(row, &ends, first)))
    }

    /// Strings at ascending positions.
    pub(crate) fn views_at(&self, positions: &[u32]) -> Views {
        self.decompress(positions.iter().map(|row| self.compressed_at(*row as usize))).0
    }

    fn decompress<'a>(&'a self, values: impl ExactSizeIterator<Item = &'a [u8]>) -> (Views, bool) {
        let count = values.len();
        let mut heap = Heap::with_capacity(count * (self.row_bytes + 1));
        let mut is_valid = true;
        let mut ends: Vec<u32> = Vec::with_capacity(count);
        for value in values {
            is_valid &= self.symbols.decompress(value, &mut heap);
            ends.push(u32::try_from(heap.len).unwrap_or(u32::MAX));
        }
        let mut views = Views::new(heap.into(), self.is_text, count);
        is_valid &= views.append(0, &ends);
        (views, is_valid)
    }

    /// String of one row.
    pub(crate) fn value(&self, row: usize) -> Vec<u8> {
        let mut heap = Heap::with_capacity(self.row_bytes);
        self.symbols.decompress(self.compressed_at(row), &mut heap);
        heap.bytes.truncate(heap.len);
        heap.bytes
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let predicate = BytesPredicate::new(predicate);
        let mut heap = Heap::with_capacity(self.row_bytes);
        let mut admits = |codes: &[u8]| {
            heap.len = 0;
            self.symbols.decompress(codes, &mut heap);
            predicate.admits(&heap.bytes[..heap.len]) != negated
        };
        let mut ends: Vec<i64> = Vec::with_capacity(VECTOR_ROWS);
        let mut first = rows.start;
        while first < rows.end {
            let part = first..rows.end.min((first / VECTOR_ROWS + 1) * VECTOR_ROWS);
            first = part.end;
            if selection.count_range(part.clone()) <= ENDS_EXTRACTED_MAX {
                selection.retain(part, |row| admits(self.compressed_at(row)));
                continue;
            }
            ends.clear();
            let start = part.start.saturating_sub(1);
            self.ends.append(start..part.end, &mut ends);
            selection.retain(part, |row| admits(self.compressed_in(row, &ends, start)));
        }
    }
}

/// Decompressed bytes: the first `len` bytes, and free space after them for whole symbols.
struct Heap {
    bytes: Vec<u8>,
    len: usize,
}

impl Heap {
    fn with_capacity(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes + 64], len: 0 }
    }
}

impl From<Heap> for Buffer {
    fn from(mut heap: Heap) -> Self {
        heap.bytes.truncate(heap.len);
        heap.bytes.into()
    }
}

impl Symbols {
    /// Appends the decompressed bytes of these codes. Returns false if the last code is an escape without a byte.
    #[inline]
    fn decompress(&self, codes: &[u8], heap: &mut Heap) -> bool {
        // A code decompresses to at most eight bytes, and each write is eight bytes wide.
        let end_max = heap.len + 8 * codes.len() + 8;
        if heap.bytes.len() < end_max {
            heap.bytes.resize(end_max.max(heap.bytes.len() * 2), 0);
        }
        let mut at = heap.len;
        let mut codes = codes.iter();
        let mut is_whole = true;
        while let Some(code) = codes.next() {
            if *code == ESCAPE {
                let Some(byte) = codes.next() else {
                    is_whole = false;
                    break;
                };
                heap.bytes[at] = *byte;
                at += 1;
            } else {
                heap.bytes[at..at + 8].copy_from_slice(&self.symbols[usize::from(*code)]);
                at += usize::from(self.lengths[usize::from(*code)]);
            }
        }
        heap.len = at;
        is_whole
    }
}
