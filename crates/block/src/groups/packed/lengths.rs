//! Finds inline values by their lengths.
//!
//! A field usually stores the end of its value, which needs as many bits as an offset in the page. The length of a
//! short value needs fewer bits, so the fields of a piece (one column group of one segment) may store lengths instead.
//! There is then an *anchor* for each group of tuples. It stores the offset in the heap at which the values of the
//! group begin. A value begins at its anchor plus the lengths that precede it in the group.
//!
//! ```text
//! page     │ head │ dictionaries │ tuple 0 │ tuple 1 │ ... │ anchor 0 │ anchor 1 │ ... │ heap │ zeros │
//!                                                            u16 in pages of at most 64 KiB, else u32
//! ```
//!
//! The more inline fields a tuple has, the fewer tuples form a group. At most [`GROUP_LENGTHS`] lengths lie between an
//! anchor and the next.

use std::ops::Range;

use super::PackedPage;
use super::bits::{Tuples, load_narrow};
use crate::bytes::{u16_at, u32_at};

/// Maximum number of lengths from one anchor to the next.
const GROUP_LENGTHS: usize = 16;
/// Maximum number of inline fields in a piece that stores lengths. With more fields, pieces store ends, because reading
/// one field would read the lengths of all fields.
pub(super) const FIELDS_MAX: usize = 4;

/// Width of the anchors of a piece, and number of tuples per anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchors {
    group_rows: usize,
    /// Bytes of one anchor.
    bytes: usize,
}

impl Anchors {
    /// Anchors of a piece with `fields` inline fields. Returns `None` for no fields, or more than [`FIELDS_MAX`].
    pub fn for_fields(fields: usize, page_bytes: usize) -> Option<Self> {
        let bytes = if page_bytes <= 1 << 16 { 2 } else { 4 };
        (1..=FIELDS_MAX)
            .contains(&fields)
            .then(|| Self { group_rows: GROUP_LENGTHS / fields.next_power_of_two(), bytes })
    }

    /// Bits of an anchor, divided by the number of tuples that share it.
    pub fn bits_per_tuple(self) -> usize {
        8 * self.bytes / self.group_rows
    }

    /// Bytes of the anchors of `rows` tuples in a page.
    pub fn bytes_for(self, rows: usize) -> usize {
        rows.div_ceil(self.group_rows) * self.bytes
    }

    /// Appends the anchors of a page. `starts` are the offsets in the heap at which the values of each tuple begin.
    pub fn write(self, starts: &[usize], page: &mut Vec<u8>) {
        for start in starts.iter().step_by(self.group_rows) {
            // Offsets are less than the bytes of a page.
            page.extend_from_slice(&(*start as u32).to_le_bytes()[..self.bytes]);
        }
    }
}

/// Lookup of the values of one inline field of a piece, by lengths and anchors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub anchors: Anchors,
    /// Lengths of all inline fields of the piece. Only the first `count` are used.
    fields: [Length; FIELDS_MAX],
    count: usize,
    /// Ordinal of this field among the inline fields.
    ordinal: usize,
}

/// Bits of a tuple that store the length of one inline field, and the base of that length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Length {
    /// Offset in the tuple, in bits.
    pub bit: usize,
    /// Mask of the bits of the length.
    pub mask: u64,
    /// Least length. The tuple stores the difference from it.
    pub base: usize,
}

impl Length {
    /// Reads the length from the tuple that begins at bit `tuple`.
    #[inline(always)]
    fn read(self, tuples: &[u8], tuple: usize) -> usize {
        // Both numbers have at most 32 bits.
        self.base + (load_narrow(tuples, tuple + self.bit) & self.mask) as usize
    }
}

/// Sum of the lengths of some fields of a tuple.
#[inline(always)]
fn sum_lengths(lengths: &[Length], tuples: &[u8], tuple: usize) -> usize {
    lengths.iter().map(|length| length.read(tuples, tuple)).sum()
}

/// A tuple, and the offset in the heap at which its values begin. Finding a value moves the cursor to the next tuple,
/// so that reading tuples in order reads each length once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    row: usize,
    /// Offset in the heap.
    start: usize,
}

impl Cursor {
    /// Position before any tuple has been read.
    pub const UNSET: Self = Self { row: usize::MAX, start: 0 };
}

impl Lengths {
    /// One [`Lengths`] for each inline field of a piece. Returns `None` for no fields, or more than [`FIELDS_MAX`].
    pub fn for_fields(fields: &[Length], page_bytes: usize) -> Option<impl Iterator<Item = Self>> {
        let anchors = Anchors::for_fields(fields.len(), page_bytes)?;
        let mut padded = [Length::default(); FIELDS_MAX];
        padded[..fields.len()].copy_from_slice(fields);
        let count = fields.len();
        Some((0..count).map(move |ordinal| Self { anchors, fields: padded, count, ordinal }))
    }

    /// Bytes of anchors that are attributed to this field, in pages that end at the rows `page_ends`. The fields of a
    /// piece share its anchors.
    pub fn anchor_bytes(&self, page_ends: &[u32]) -> u64 {
        let starts = std::iter::once(&0).chain(page_ends);
        let page_bytes = |(start, end): (&u32, &u32)| self.anchors.bytes_for((end - start) as usize);
        let bytes: usize = starts.zip(page_ends).map(page_bytes).sum();
        (bytes / self.count + if self.ordinal == 0 { bytes % self.count } else { 0 }) as u64
    }

    /// Range in the heap of the value of this field in tuple `row`. In a damaged page the range may exceed the heap.
    #[inline(always)]
    pub(super) fn value_range(&self, page: &PackedPage, row: usize) -> Range<usize> {
        let mut cursor = page.cursor.get();
        if cursor.row != row {
            cursor = self.seek(page, row, cursor);
        }
        let Tuples { bytes, stride } = page.tuples();
        let tuple = row * stride;
        let (start, length) = (cursor.start, self.fields[self.ordinal].read(bytes, tuple));
        if self.count == 1 {
            page.cursor.set(Cursor { row: row + 1, start: start + length });
            return start..start + length;
        }
        let start = start + sum_lengths(&self.fields[..self.ordinal], bytes, tuple);
        let next = start + length + sum_lengths(&self.fields[self.ordinal + 1..self.count], bytes, tuple);
        page.cursor.set(Cursor { row: row + 1, start: next });
        start..start + length
    }

    /// Cursor at tuple `row`. Continues from `cursor` if that is at an earlier tuple of the same group, else starts at
    /// the anchor of the group.
    fn seek(&self, page: &PackedPage, row: usize, cursor: Cursor) -> Cursor {
        let first = row - row % self.anchors.group_rows;
        let is_behind = (first..row).contains(&cursor.row);
        let mut cursor = if is_behind { cursor } else { Cursor { row: first, start: self.read_anchor(page, first) } };
        let Tuples { bytes, stride } = page.tuples();
        while cursor.row < row {
            cursor.start += sum_lengths(&self.fields[..self.count], bytes, cursor.row * stride);
            cursor.row += 1;
        }
        cursor
    }

    /// Offset in the heap at which the values of the group of tuple `row` begin.
    fn read_anchor(&self, page: &PackedPage, row: usize) -> usize {
        let at = page.anchors_at + row / self.anchors.group_rows * self.anchors.bytes;
        match self.anchors.bytes {
            2 => u16_at(&page.bytes, at).into(),
            _ => u32_at(&page.bytes, at) as usize,
        }
    }
}
