//! Parts that both row layouts share: a head section with a directory of pages, the pages, and overflow sections.
//!
//! ```text
//! sections of a piece (one column group of one segment):   head | page 0 | page 1 | ... | overflow 0 | ...
//!
//! head
//! offset  size     field
//! 0       4        rows
//! 4       4        page_bytes      maximum bytes of a page of this piece, a power of two from 32 KiB
//! 8       4        pages           P
//! 12      4        overflows
//! 16      4        fields          F, the number of columns of the group that are not levels
//! 20      4        tuple_bits      bits of a packed tuple, or of the fixed part of a slotted tuple
//! 24      4        levels          see `levels`
//! 28      4        levels_at
//! 32      F * size fields          see `packed::field` and `slotted`
//!         P * 4    page directory  end row (exclusive) of each page
//!                  zeros to a multiple of 64, then tables of the fields, then levels
//! ```
//!
//! A value of more than 8 KiB is stored in an overflow section. Its page contains a reference of three u32: the ordinal
//! of the overflow section, the offset of the value in the section, and the length of the value. A new overflow section
//! begins if the value would make the last section longer than 1 MiB.

use std::ops::Range;

use arrow_buffer::Buffer;
use taut_encoding::{LINE_BYTES, prefetch};

use crate::bytes::u32_at;
use crate::error::{Corrupt, corrupt_at};
use crate::selection::{PageRows, Rows};
use crate::{BlockError, BuildError, PAGE_BYTES, Sections};

pub(crate) const HEAD_BYTES: usize = 32;
/// Offset in the head of the count of levels.
pub(crate) const LEVELS_AT: usize = 24;
/// Maximum rows of a zone: eight vectors.
pub(crate) const ZONE_ROWS: u32 = 8192;
/// Maximum bytes of a value that is stored in its page.
pub(crate) const INLINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of a reference to a value in an overflow section.
pub(crate) const REFERENCE_BYTES: usize = 12;
/// Minimum rows of a page: the longest tuple of a piece must fit this many times.
pub(crate) const PAGE_ROWS_MIN: usize = 4;
/// Maximum bytes of an overflow section, unless a single value is longer.
const OVERFLOW_BYTES_MAX: usize = 1 << 20;
/// A zone in a row layout covers one page for each 16 columns of the group, rounded up. Zones then take at most 2 % of
/// the bytes of the pages.
const COLUMNS_PER_ZONE_PAGE: usize = 16;

/// Rows are prefetched if at most this many rows per page are read on average. With more rows, several share a cache
/// line.
const PREFETCHED_ROWS_MAX: usize = 8;
/// Maximum cache lines of a row, or of one of its values, that are prefetched. The hardware prefetcher loads the lines
/// after them.
pub(crate) const PREFETCHED_LINES_MAX: usize = 4;

/// Parsed head of a piece, up to the tables.
#[derive(Debug)]
pub(crate) struct Directory {
    pub page_bytes: usize,
    pub page_ends: Vec<u32>,
    pub overflows: usize,
    pub tuple_bits: usize,
    /// Range of the field records in the head.
    pub fields: Range<usize>,
    /// Offset in the head after the page directory, where the tables of the fields begin.
    pub tables_at: usize,
}

impl Directory {
    /// Encodes the head up to its tables, without levels.
    pub fn write(&self, rows: usize, fields: &[u8], field_bytes: usize) -> Vec<u8> {
        let words = [
            rows,
            self.page_bytes,
            self.page_ends.len(),
            self.overflows,
            fields.len() / field_bytes,
            self.tuple_bits,
            0,
            0,
        ];
        let mut head: Vec<u8> = words.into_iter().flat_map(|word| (word as u32).to_le_bytes()).collect();
        head.extend_from_slice(fields);
        head.extend(self.page_ends.iter().flat_map(|end| end.to_le_bytes()));
        head.resize(head.len().next_multiple_of(64), 0);
        head
    }

    /// Parses and checks the head of a piece with the given numbers of rows, fields and sections. Does not check
    /// levels.
    pub fn parse(
        head: &[u8],
        rows: usize,
        columns: usize,
        field_bytes: usize,
        sections: usize,
    ) -> Result<Self, Corrupt> {
        if head.len() < HEAD_BYTES {
            return Err(corrupt_at(head.len(), "the head of a piece"));
        }
        let word = |at| u32_at(head, at) as usize;
        let (page_bytes, pages, overflows) = (word(4), word(8), word(12));
        if word(0) != rows {
            return Err(corrupt_at(0, "as many rows as the segment has"));
        }
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES..=1 << 30).contains(&page_bytes) {
            return Err(corrupt_at(4, "a page size from 32 KiB to 1 GiB"));
        }
        if pages == 0 || pages > rows || pages.saturating_add(overflows).saturating_add(1) != sections {
            return Err(corrupt_at(8, "as many pages and overflows as the piece has sections"));
        }
        if word(16) != columns {
            return Err(corrupt_at(16, "as many fields as the group has columns that are not levels"));
        }
        let fields = HEAD_BYTES..HEAD_BYTES + columns * field_bytes;
        let ends_at = fields.end;
        let tables_at = (ends_at + pages * 4).next_multiple_of(64);
        if head.len() < tables_at {
            return Err(corrupt_at(head.len(), "the fields and the directory of pages"));
        }
        let page_ends: Vec<u32> = (0..pages).map(|page| u32_at(head, ends_at + 4 * page)).collect();
        if page_ends[0] == 0 || !page_ends.is_sorted_by(|a, b| a < b) || page_ends[pages - 1] as usize != rows {
            return Err(corrupt_at(ends_at, "ascending ends of pages, the last at the end of the segment"));
        }
        Ok(Self { page_bytes, page_ends, overflows, tuple_bits: word(20), fields, tables_at })
    }

    /// Rows of a page, as a range of rows of the segment.
    pub fn page_rows(&self, page: usize) -> Range<usize> {
        let start = if page == 0 { 0 } else { self.page_ends[page - 1] as usize };
        start..self.page_ends[page] as usize
    }
}

/// End row (exclusive) of each zone of a row layout. `columns` is the number of columns of the group. A zone covers one
/// or more whole pages. If these pages have more than 8,192 rows, they are split into several zones.
pub(crate) fn zone_ends(page_ends: &[u32], columns: usize) -> Vec<u32> {
    let pages = columns.div_ceil(COLUMNS_PER_ZONE_PAGE);
    let (mut ends, mut start) = (vec![], 0);
    for zone in page_ends.chunks(pages) {
        let end = zone[zone.len() - 1];
        while end - start > ZONE_ROWS {
            start += ZONE_ROWS;
            ends.push(start);
        }
        ends.push(end);
        start = end;
    }
    ends
}

/// Overflow sections of a piece that is being built, with the values that are too long for a page.
#[derive(Default)]
pub(crate) struct Overflow {
    pub sections: Vec<Vec<u8>>,
}

impl Overflow {
    /// Appends a value to the last section and returns a reference to it. Begins a new section if the last one is full.
    pub fn push(&mut self, value: &[u8]) -> Result<[u8; REFERENCE_BYTES], BuildError> {
        let too_large = |what, found: usize| BuildError::TooLarge { what, found: found as u64 };
        if self.sections.last().is_none_or(|section| section.len() + value.len() > OVERFLOW_BYTES_MAX) {
            self.sections.push(vec![]);
        }
        let number = self.sections.len() - 1;
        let section = &mut self.sections[number];
        let mut reference = [0; REFERENCE_BYTES];
        for (field, number) in [number, section.len(), value.len()].into_iter().enumerate() {
            let number = u32::try_from(number).map_err(|_| too_large("bytes in one value", number))?;
            reference[field * 4..field * 4 + 4].copy_from_slice(&number.to_le_bytes());
        }
        section.extend_from_slice(value);
        Ok(reference)
    }
}

/// Sections of an open piece. Each is loaded on first use and stays loaded.
pub(crate) struct Pages<'a> {
    sections: &'a dyn Sections,
    section_range: Range<u32>,
    loaded: Vec<Option<Buffer>>,
    /// Number of pages of rows. Zero until the head is parsed.
    pages: usize,
    /// Bytes of the overflow sections that are loaded.
    pub overflow_bytes: usize,
    /// Bytes loaded since the last report.
    pub bytes_read: u64,
    /// Pages loaded since the last report.
    pub pages_read: u64,
}

impl<'a> Pages<'a> {
    pub fn new(sections: &'a dyn Sections, section_range: Range<u32>) -> Self {
        Self {
            sections,
            loaded: vec![None; section_range.len()],
            section_range,
            pages: 0,
            overflow_bytes: 0,
            bytes_read: 0,
            pages_read: 0,
        }
    }

    /// Number of sections of the piece.
    pub fn section_count(&self) -> usize {
        self.loaded.len()
    }

    /// Creates an error that names a section of the piece, given by its ordinal in the piece.
    pub fn corrupt_error(&self, section: usize, corrupt: Corrupt) -> BlockError {
        corrupt.in_section(self.section_range.start + section as u32)
    }

    /// Loads the head section on first use, and returns it.
    pub fn head(&mut self) -> Result<Buffer, BlockError> {
        self.load(0).cloned()
    }

    /// Sets the number of pages, which the parsed head contains.
    pub fn set_pages(&mut self, pages: usize) {
        self.pages = pages;
    }

    /// Loads a page on first use, and returns it.
    pub fn page(&mut self, page: usize) -> Result<&Buffer, BlockError> {
        self.pages_read += u64::from(self.loaded[1 + page].is_none());
        self.load(1 + page)
    }

    /// Ordinal in the piece of the section of a page, for errors.
    pub fn page_section(&self, page: usize) -> usize {
        1 + page
    }

    /// Returns the overflow section to which a reference points, and the range of the value in it. Returns `None` if
    /// the reference is corrupt.
    pub fn overflow(&mut self, reference: &[u8]) -> Result<Option<(Buffer, Range<usize>)>, BlockError> {
        if reference.len() != REFERENCE_BYTES {
            return Ok(None);
        }
        let word = |field: usize| u32_at(reference, 4 * field) as usize;
        let (number, offset, length) = (word(0), word(1), word(2));
        let section = 1 + self.pages + number;
        if section >= self.loaded.len() {
            return Ok(None);
        }
        let is_new = self.loaded[section].is_none();
        let bytes = self.load(section)?.clone();
        self.overflow_bytes += if is_new { bytes.len() } else { 0 };
        let end = offset + length;
        Ok((end <= bytes.len()).then_some((bytes, offset..end)))
    }

    /// Prefetches rows into the processor cache if they are far apart, and returns true if it did. Without prefetching,
    /// a read would wait for memory once per row.
    ///
    /// `slot_at` returns the offset in a page of the slot of a row. If the layout has no slots, it returns any offset.
    /// `row_offset` returns the offset of the row in the page. `bytes` is the range of the row that will be read. Both
    /// closures get pages that are not checked yet.
    pub fn prefetch_rows(
        &mut self,
        rows: &Rows<'_>,
        page_ends: &[u32],
        bytes: Range<usize>,
        slot_at: impl Fn(&[u8], usize) -> usize,
        row_offset: impl Fn(&[u8], usize) -> Option<usize>,
    ) -> Result<bool, BlockError> {
        if rows.len() > PREFETCHED_ROWS_MAX * page_ends.len() {
            return Ok(false);
        }
        let positions = match rows {
            Rows::Positions(positions) => positions,
            Rows::Bits(bits) => bits.positions(),
            Rows::Range(_) | Rows::Runs(_) => &[],
        };
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return Ok(false) };
        let page_of = |row: u32| page_ends.partition_point(|end| *end <= row);
        if positions.len() > PREFETCHED_ROWS_MAX * (page_of(*last) + 1 - page_of(*first)) {
            return Ok(false);
        }
        let prefetch_page_rows = |pages: &Self, number: usize, part: &PageRows<'_>| {
            let Some(page) = &pages.loaded[1 + number] else { return };
            part.for_each(|row| {
                let Some(row) = row_offset(page, row).and_then(|at| page.get(at + bytes.start..)) else { return };
                let row = &row[..bytes.len().min(row.len())];
                prefetch(&row[..row.len().min(PREFETCHED_LINES_MAX * LINE_BYTES)]);
                // A row may begin anywhere in a cache line, so its last byte may lie in one more line.
                prefetch(&row[row.len().saturating_sub(1)..]);
            });
        };
        // The rows of a page are prefetched after the slots of the next page. By then, the slots of the page itself are
        // in the cache.
        let mut previous: Option<(usize, PageRows<'_>)> = None;
        rows.for_each_page(page_ends, |number, part| {
            let page = self.page(number)?;
            prefetch(&page[..page.len().min(LINE_BYTES)]);
            part.for_each(|row| {
                prefetch(page.get(slot_at(page, row)..).and_then(|bytes| bytes.get(..1)).unwrap_or_default())
            });
            if let Some((number, part)) = previous.replace((number, part)) {
                prefetch_page_rows(self, number, &part);
            }
            Ok::<_, BlockError>(())
        })?;
        if let Some((number, part)) = previous {
            prefetch_page_rows(self, number, &part);
        }
        Ok(true)
    }

    fn load(&mut self, section: usize) -> Result<&Buffer, BlockError> {
        let loaded = &mut self.loaded[section];
        match loaded {
            Some(bytes) => Ok(bytes),
            None => {
                let bytes = self.sections.section(self.section_range.start + section as u32)?;
                self.bytes_read += bytes.len() as u64;
                Ok(loaded.insert(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_whole_pages_or_parts_of_long_pages() {
        assert_eq!(zone_ends(&[10, 20, 25], 3), [10, 20, 25]);
        assert_eq!(zone_ends(&[10, 20, 25], 17), [20, 25]);
        assert_eq!(zone_ends(&[20_000], 1), [8192, 16384, 20_000]);
    }

    #[test]
    fn a_directory_round_trips_and_checks_its_bytes() {
        let directory = Directory {
            page_bytes: PAGE_BYTES,
            page_ends: vec![3, 9],
            overflows: 1,
            tuple_bits: 77,
            fields: 0..0,
            tables_at: 0,
        };
        let head = directory.write(9, &[7; 32], 16);
        let parsed = Directory::parse(&head, 9, 2, 16, 4).unwrap();
        assert_eq!((parsed.page_ends, parsed.overflows, parsed.tuple_bits), (vec![3, 9], 1, 77));
        assert_eq!(parsed.fields, 32..64);
        for (rows, columns, sections) in [(8, 2, 4), (9, 1, 4), (9, 2, 5)] {
            assert!(Directory::parse(&head, rows, columns, 16, sections).is_err());
        }
        for length in 0..head.len() {
            assert!(Directory::parse(&head[..length], 9, 2, 16, 4).is_err());
        }
    }
}
