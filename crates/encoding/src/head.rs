//! Layout of a chunk: a fixed head, then parts.
//!
//! ```text
//! offset  size  field
//! 0       1     encoding       outermost, by its code
//! 1       1     inner          encoding of codes, run values or a chunk of exceptions, by its code; else 0
//! 2       1     width          bits of a packed number, code or run value
//! 3       1     plain_bytes    bytes of a plain number: 1, 2, 4, 8, 16; 0 for text and bytes
//! 4       4     rows           1 ..= 65,536
//! 8       4     nulls          0 ..= rows
//! 12      4     entries        of a dictionary; symbols of fsst; exceptions of patched, alp and delta; bits of a word
//!                              (run_length as words, see `run_words.rs`); bits of a run's length (run_length_delta)
//! 16      16    base           of packed numbers; the number of a constant; the first number of a bitmap; the least
//!                              step (delta, run_length_delta)
//! 32      4     runs           number of runs (run_length), or of words that store runs (`run_words.rs`,
//!                              run_length_delta)
//! 36      4     heap_bytes     of the values of text and bytes, end to end; of a bitmap; of a chunk of exceptions
//! 40      4     decoded_bytes  of fsst and front_coded: bytes of all values together
//! 44      1     exponent       of alp
//! 45      1     factor         of alp
//! 46      18    reserved       zero
//! 64      ...   parts          validity (if nulls > 0 and not all rows are null), then the parts of the encoding
//! ```
//!
//! Each part begins at a multiple of 64 and is padded with zeros to the next one. All lengths follow from the head, so
//! that parts need no directory.

use arrow_buffer::{Buffer, MutableBuffer};
use taut_types::Encoding;

use crate::CHUNK_ROWS_MAX;

/// Alignment of parts, in bytes.
const ALIGNMENT: usize = 64;
const HEAD_BYTES: usize = 64;

/// Error: the bytes are not a chunk of the expected type and number of rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt column chunk, byte {at}: expected {expected}")]
pub struct CorruptChunk {
    /// Offset in the chunk.
    pub at: usize,
    /// What the reader expected at the offset.
    pub expected: &'static str,
}

/// Bytes of a part in the chunk, padding included.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Fields of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) encoding: Encoding,
    pub(crate) inner: Option<Encoding>,
    pub(crate) width: usize,
    pub(crate) plain_bytes: usize,
    pub(crate) rows: usize,
    pub(crate) nulls: usize,
    pub(crate) entries: usize,
    pub(crate) base: i128,
    pub(crate) runs: usize,
    pub(crate) heap_bytes: usize,
    pub(crate) decoded_bytes: usize,
    pub(crate) exponent: usize,
    pub(crate) factor: usize,
}

impl Head {
    /// Head of this encoding. All fields that depend on the data are zero.
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            inner: None,
            width: 0,
            plain_bytes: 0,
            rows: 0,
            nulls: 0,
            entries: 0,
            base: 0,
            runs: 0,
            heap_bytes: 0,
            decoded_bytes: 0,
            exponent: 0,
            factor: 0,
        }
    }

    /// Parses and checks the head, and returns it with the parts after it. `plain_bytes` is the plain width of the
    /// column's type in bytes.
    pub(crate) fn parse(bytes: Buffer, plain_bytes: usize, rows: usize) -> Result<(Self, Parts), CorruptChunk> {
        let corrupt = |at, expected| CorruptChunk { at, expected };
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(corrupt(0, "a head of 64 bytes"))?;
        let word = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes) as usize
        };
        let mut base = [0; 16];
        base.copy_from_slice(&head[16..32]);
        let reserved = &head[46..];
        if reserved.iter().any(|byte| *byte != 0) {
            return Err(corrupt(46, "reserved bytes to be zero"));
        }
        let head = Self {
            encoding: Encoding::from_code(head[0]).ok_or(corrupt(0, "the code of an encoding"))?,
            inner: match head[1] {
                0 => None,
                code => Some(Encoding::from_code(code).ok_or(corrupt(1, "the code of an encoding"))?),
            },
            width: head[2].into(),
            plain_bytes: head[3].into(),
            rows: word(4),
            nulls: word(8),
            entries: word(12),
            base: i128::from_le_bytes(base),
            runs: word(32),
            heap_bytes: word(36),
            decoded_bytes: word(40),
            exponent: head[44].into(),
            factor: head[45].into(),
        };
        let check = |is_valid, at, expected| if is_valid { Ok(()) } else { Err(corrupt(at, expected)) };
        check(head.width <= 64, 2, "a width of 0 to 64 bits")?;
        check(head.plain_bytes == plain_bytes, 3, "the plain width of the type")?;
        let is_row_count_valid = head.rows == rows && (1..=CHUNK_ROWS_MAX).contains(&rows);
        check(is_row_count_valid, 4, "the number of rows of the segment")?;
        check(head.nulls <= head.rows, 8, "no more nulls than rows")?;
        check(head.entries <= CHUNK_ROWS_MAX, 12, "at most 65,536 entries")?;
        check(head.runs <= head.rows, 32, "no more runs than rows")?;
        check(head.heap_bytes <= i32::MAX as usize, 36, "a heap of less than 2 GiB")?;
        check(head.decoded_bytes <= i32::MAX as usize, 40, "less than 2 GiB of values")?;
        Ok((head, Parts::new(bytes)))
    }

    fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        // Every narrowing is safe: widths and exponents are at most 64, counts at most 65,536, and heaps were checked
        // to be below 2 GiB.
        bytes[0] = self.encoding as u8;
        bytes[1] = self.inner.map_or(0, |inner| inner as u8);
        bytes[2] = self.width as u8;
        bytes[3] = self.plain_bytes as u8;
        bytes[44] = self.exponent as u8;
        bytes[45] = self.factor as u8;
        bytes[16..32].copy_from_slice(&self.base.to_le_bytes());
        let words = [
            (4, self.rows),
            (8, self.nulls),
            (12, self.entries),
            (32, self.runs),
            (36, self.heap_bytes),
            (40, self.decoded_bytes),
        ];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&(word as u32).to_le_bytes());
        }
        bytes
    }
}

/// Turns a chunk of one row in the encoding `constant` into a chunk of `rows` equal rows. The parts of such a chunk do
/// not depend on the number of rows.
pub(crate) fn repeat_only_row(chunk: &mut [u8], rows: usize) {
    let nulls = u32::from(chunk[8]) * rows as u32;
    // A chunk has at most 65,536 rows.
    chunk[4..8].copy_from_slice(&(rows as u32).to_le_bytes());
    chunk[8..12].copy_from_slice(&nulls.to_le_bytes());
}

/// Reader of the parts of a chunk, one after the other.
#[derive(Debug)]
pub(crate) struct Parts {
    bytes: Buffer,
    at: usize,
}

impl Parts {
    fn new(bytes: Buffer) -> Self {
        // Slices of 16-byte integers need their alignment. Readers of files align chunks, so that copies are rare.
        let is_aligned = (bytes.as_ptr() as usize).is_multiple_of(align_of::<i128>());
        let bytes = if is_aligned {
            bytes
        } else {
            let mut aligned = MutableBuffer::with_capacity(bytes.len());
            aligned.extend_from_slice(bytes.as_slice());
            aligned.into()
        };
        Self { bytes, at: HEAD_BYTES }
    }

    /// Offset of the next part.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Reads the next part, which has `bytes` bytes. `expected` describes the part in errors.
    pub(crate) fn read_part(&mut self, bytes: usize, expected: &'static str) -> Result<Buffer, CorruptChunk> {
        let padded = padded(bytes);
        if padded > self.bytes.len() - self.at {
            return Err(CorruptChunk { at: self.at, expected });
        }
        let part = self.bytes.slice_with_length(self.at, bytes);
        self.at += padded;
        Ok(part)
    }

    /// Checks that no bytes follow the parts that were read.
    pub(crate) fn finish(self) -> Result<(), CorruptChunk> {
        if self.at == self.bytes.len() {
            return Ok(());
        }
        Err(CorruptChunk { at: self.at, expected: "the end of the chunk" })
    }
}

/// Writer of a chunk: parts first, the head at the end.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates a chunk without parts. Reserves memory for about this many bytes of parts.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(HEAD_BYTES + 4 * ALIGNMENT + bytes) };
        writer.bytes.resize(HEAD_BYTES, 0);
        writer
    }

    /// Appends a part.
    pub(crate) fn push_part(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// Sets the head and returns the chunk.
    pub(crate) fn finish(mut self, head: Head) -> Vec<u8> {
        self.bytes[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Vec<u8> {
        let mut writer = Writer::with_capacity(100);
        writer.push_part(&[1; 70]);
        writer.push_part(&[]);
        writer.push_part(&[2; 64]);
        let head = Head { rows: 9, nulls: 3, plain_bytes: 8, base: -5, width: 64, ..Head::new(Encoding::Dictionary) };
        writer.finish(Head { inner: Some(Encoding::BitPacked), heap_bytes: 70, ..head })
    }

    #[test]
    fn heads_and_parts_round_trip() {
        let (head, mut parts) = Head::parse(Buffer::from(chunk()), 8, 9).unwrap();
        assert_eq!((head.encoding, head.inner), (Encoding::Dictionary, Some(Encoding::BitPacked)));
        assert_eq!((head.rows, head.nulls, head.base, head.heap_bytes, head.width), (9, 3, -5, 70, 64));
        assert_eq!(parts.read_part(70, "first").unwrap().as_slice(), [1; 70]);
        assert_eq!(parts.read_part(0, "second").unwrap().as_slice(), [0u8; 0]);
        assert_eq!(parts.at(), 192);
        assert_eq!(parts.read_part(65, "third"), Err(CorruptChunk { at: 192, expected: "third" }));
        assert_eq!(parts.read_part(64, "third").unwrap().as_slice(), [2; 64]);
        parts.finish().unwrap();
    }

    #[test]
    fn errors_name_the_byte_of_the_field() {
        let check = |at: usize, value: u8| {
            let mut bytes = chunk();
            bytes[at] = value;
            Head::parse(bytes.into(), 8, 9).unwrap_err().at
        };
        let cases =
            [(0, 99), (1, 99), (2, 65), (3, 4), (4, 8), (8, 10), (14, 9), (32, 10), (39, 128), (43, 255), (63, 1)];
        for (at, value) in cases {
            let field = if at < 4 { at } else { at / 4 * 4 };
            assert_eq!(check(at, value), field.min(46), "byte {at}");
        }
        assert_eq!(Head::parse(Buffer::from(vec![0; 63]), 8, 9).unwrap_err().at, 0);
        assert!(Head::parse(chunk().into(), 8, 10).is_err());
    }
}
