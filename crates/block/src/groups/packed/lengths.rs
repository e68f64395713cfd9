//! Inline values that are found by their lengths.
//!
//! A field that says where its value ends has as many bits as an offset in the page, which is more than a short value takes
//! itself. So the fields of a piece may say how long their values are instead; then *anchors*, one for each group of tuples,
//! say where in the heap the values of the group begin, and the lengths before a value in its group are added up.
//!
//! ```text
//! page     │ head │ dictionaries │ tuple 0 │ tuple 1 │ ... │ anchor 0 │ anchor 1 │ ... │ heap │ zeros │
//!                                                            u16 where page_bytes are up to 64 KiB, else u32
//! ```
//!
//! The more inline fields a tuple has the fewer tuples a group: no value is more than [`GROUP_LENGTHS`] lengths behind its anchor.

use std::ops::Range;

use super::Page;
use super::bits::{Tuples, load_narrow};
use crate::groups::pages::u32_at;
use crate::header::u16_at;

/// Lengths from an anchor to the next.
const GROUP_LENGTHS: usize = 16;
/// Pieces with more inline fields than this say where values end: each field would read the lengths of all.
pub(super) const FIELDS_MAX: usize = 4;

/// How often a piece has anchors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchors {
    group_rows: usize,
    /// Bytes of one.
    bytes: usize,
}

impl Anchors {
    /// Those of a piece with some inline fields, if it can have lengths.
    pub fn of(fields: usize, page_bytes: usize) -> Option<Self> {
        let bytes = if page_bytes <= 1 << 16 { 2 } else { 4 };
        (1..=FIELDS_MAX)
            .contains(&fields)
            .then(|| Self { group_rows: GROUP_LENGTHS / fields.next_power_of_two(), bytes })
    }

    /// Bits of a tuple, as its share.
    pub fn bits(self) -> usize {
        8 * self.bytes / self.group_rows
    }

    /// Bytes in a page of some tuples.
    pub fn bytes_of(self, rows: usize) -> usize {
        rows.div_ceil(self.group_rows) * self.bytes
    }

    /// Appends those of a page, of the place in the heap where the values of each tuple begin.
    pub fn write(self, starts: &[usize], page: &mut Vec<u8>) {
        for start in starts.iter().step_by(self.group_rows) {
            // Less than the bytes of a page.
            page.extend_from_slice(&(*start as u32).to_le_bytes()[..self.bytes]);
        }
    }
}

/// How the values of one inline field of a piece are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub anchors: Anchors,
    /// Of all inline fields of the piece, of which there are `count`.
    fields: [Length; FIELDS_MAX],
    count: usize,
    /// The place of this field among them.
    own: usize,
}

/// The length of one value of a tuple.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Length {
    /// Where in the tuple it is.
    pub bit: usize,
    /// Its bits.
    pub mask: u64,
    /// The length that zero stands for.
    pub base: usize,
}

impl Length {
    #[inline(always)]
    fn of(self, tuples: &[u8], tuple: usize) -> usize {
        // Fewer than 33 bits each.
        self.base + (load_narrow(tuples, tuple + self.bit) & self.mask) as usize
    }
}

/// Of some fields of a tuple together.
#[inline(always)]
fn sum(lengths: &[Length], tuples: &[u8], tuple: usize) -> usize {
    lengths.iter().map(|length| length.of(tuples, tuple)).sum()
}

/// Where the values of a tuple begin. It goes on to the next one with each that is found: who reads tuples in order looks
/// at each length once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    row: usize,
    /// In the heap.
    start: usize,
}

impl Cursor {
    /// That no tuple was looked at.
    pub const NOWHERE: Self = Self { row: usize::MAX, start: 0 };
}

impl Lengths {
    /// Those of each inline field of a piece, if it can have lengths.
    pub fn all(fields: &[Length], page_bytes: usize) -> Option<impl Iterator<Item = Self>> {
        let anchors = Anchors::of(fields.len(), page_bytes)?;
        let mut padded = [Length::default(); FIELDS_MAX];
        padded[..fields.len()].copy_from_slice(fields);
        let count = fields.len();
        Some((0..count).map(move |own| Self { anchors, fields: padded, count, own }))
    }

    /// The share of this field in the anchors of pages that end at these rows.
    pub fn anchor_bytes(&self, page_ends: &[u32]) -> u64 {
        let starts = std::iter::once(&0).chain(page_ends);
        let of_page = |(start, end): (&u32, &u32)| self.anchors.bytes_of((end - start) as usize);
        let bytes: usize = starts.zip(page_ends).map(of_page).sum();
        (bytes / self.count + if self.own == 0 { bytes % self.count } else { 0 }) as u64
    }

    /// Where in the heap the value of a tuple lies; a page that is damaged may have less.
    #[inline(always)]
    pub(super) fn find(&self, page: &Page, row: usize) -> Range<usize> {
        let mut cursor = page.cursor.get();
        if cursor.row != row {
            cursor = self.seek(page, row, cursor);
        }
        let Tuples { bytes, stride } = page.tuples();
        let tuple = row * stride;
        let (start, own) = (cursor.start, self.fields[self.own].of(bytes, tuple));
        if self.count == 1 {
            page.cursor.set(Cursor { row: row + 1, start: start + own });
            return start..start + own;
        }
        let start = start + sum(&self.fields[..self.own], bytes, tuple);
        let next = start + own + sum(&self.fields[self.own + 1..self.count], bytes, tuple);
        page.cursor.set(Cursor { row: row + 1, start: next });
        start..start + own
    }

    /// From the anchor before a tuple, or from a tuple behind that, to where its values begin.
    fn seek(&self, page: &Page, row: usize, cursor: Cursor) -> Cursor {
        let first = row - row % self.anchors.group_rows;
        let is_behind = (first..row).contains(&cursor.row);
        let mut cursor = if is_behind { cursor } else { Cursor { row: first, start: self.anchor(page, first) } };
        let Tuples { bytes, stride } = page.tuples();
        while cursor.row < row {
            cursor.start += sum(&self.fields[..self.count], bytes, cursor.row * stride);
            cursor.row += 1;
        }
        cursor
    }

    /// Where the values of the first tuple of a group begin.
    fn anchor(&self, page: &Page, row: usize) -> usize {
        let at = page.anchors_at + row / self.anchors.group_rows * self.anchors.bytes;
        match self.anchors.bytes {
            2 => u16_at(&page.bytes, at).into(),
            _ => u32_at(&page.bytes, at) as usize,
        }
    }
}
