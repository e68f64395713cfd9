//! Slotted rows: the standard row store, and the baseline for the other layouts.
//!
//! The page follows Halverson et al. (2006), figure 1(a). Tuples grow from the front. The slots that point to them grow
//! from the back. The header of a tuple is only its null bitmap. In the paper, it has 8 to 16 bytes for a storage
//! manager, which Taut does not have. Blocks never change, but this page format would allow updates in place. A tuple
//! can move while its slot keeps its position, and free space is contiguous.
//!
//! ```text
//! page                                                     page_bytes long
//! offset   size          field
//! 0        4             rows         as in the directory
//! 4        4             free_at      end of the last tuple
//! 8        8             zero
//! 16       ...           tuples
//! free_at  ...           free space
//!          rows * 2|4    slots        offsets of tuples, the first at the end of the page; u32 if pages exceed 32 KiB
//!
//! tuple
//! 0        (F + 7) / 8   null bitmap  bit f of field f
//!          ...           attributes of fixed width, in order: numbers (`taut_types::datum`) in the type's plain width
//!          n * 2|4       ends of attributes of variable width, from the start of the tuple; the highest bit is set if
//!                        the bytes are a reference to an overflow section; u32 if pages exceed 32 KiB
//!          ...           their bytes
//!
//! field record in the head
//! 0        8             stored_bytes in tuples and overflow sections
//! 8        4             nulls
//! 12       4             zero
//! ```

mod build;
mod read;

pub(crate) use build::build;

use std::cell::Cell;
use std::ops::Range;

use arrow_buffer::Buffer;
use taut_encoding::{Bitmap, search_ascending};
use taut_index::RowRanges;
use taut_types::{ColumnPredicate, Datum, DatumPredicate, Encoding, LogicalType};

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::error::{Corrupt, corrupt_at};
use crate::groups::field_predicate::{BytesPredicate, FieldPredicate, deselect_ranges, retain};
use crate::groups::filtered_pages::FilteredPages;
use crate::groups::pages::{Directory, Pages};
use crate::{BlockError, PAGE_BYTES};

const PAGE_HEAD_BYTES: usize = 16;
const FIELD_BYTES: usize = 16;

/// Offsets of the attributes in a tuple, derived from the types of the columns and the page size.
#[derive(Debug)]
struct TupleLayout {
    attributes: Vec<Attribute>,
    /// Bytes of the fixed part of a tuple: null bitmap, attributes of fixed width, and ends.
    fixed_bytes: usize,
    /// Bytes of a slot. The end of an attribute has the same width.
    slot_bytes: usize,
}

/// Position of one attribute in a tuple.
#[derive(Clone, Copy, Debug)]
enum Attribute {
    /// A number of `width` bytes at an offset in the tuple.
    Fixed { at: usize, width: usize },
    /// Bytes whose end is stored at `end_at` in the tuple. They begin at the end that is stored at `previous_end_at`.
    /// The bytes of the first such attribute begin after the fixed part.
    Variable { end_at: usize, previous_end_at: Option<usize> },
}

impl TupleLayout {
    fn new(types: &[LogicalType], page_bytes: usize) -> Self {
        let slot_bytes = if page_bytes <= PAGE_BYTES { 2 } else { 4 };
        let mut at = types.len().div_ceil(8);
        let mut attributes: Vec<Attribute> = vec![];
        for logical in types {
            let width = logical.plain_bytes().unwrap_or(0);
            attributes.push(Attribute::Fixed { at, width });
            at += width;
        }
        let mut previous_end_at = None;
        for (attribute, _) in attributes.iter_mut().zip(types).filter(|(_, logical)| logical.is_bytes()) {
            *attribute = Attribute::Variable { end_at: at, previous_end_at };
            previous_end_at = Some(at);
            at += slot_bytes;
        }
        Self { attributes, fixed_bytes: at, slot_bytes }
    }

    fn is_null(tuple: &[u8], ordinal: usize) -> bool {
        tuple[ordinal / 8] >> (ordinal % 8) & 1 != 0
    }

    /// Reads a slot or an end.
    #[inline(always)]
    fn read_offset(&self, bytes: &[u8], at: usize) -> usize {
        if self.slot_bytes == 2 { u16_at(bytes, at).into() } else { u32_at(bytes, at) as usize }
    }

    /// Offset in a page of the slot of a tuple. Returns `None` if the page is too short.
    fn slot_at(&self, page: &[u8], row: usize) -> Option<usize> {
        page.len().checked_sub((row + 1) * self.slot_bytes)
    }

    /// Offset of a tuple, read from a page that is not checked. Returns `None` if the page is too short.
    fn unchecked_tuple_offset(&self, page: &[u8], row: usize) -> Option<usize> {
        self.slot_at(page, row).map(|at| self.read_offset(page, at))
    }

    /// Offset of a tuple, read from a page whose head is checked.
    #[inline(always)]
    fn tuple_offset(&self, page: &[u8], row: usize) -> usize {
        self.read_offset(page, page.len() - (row + 1) * self.slot_bytes)
    }

    /// Whether the fixed part of a tuple fits at this offset of a page whose head is checked.
    #[inline(always)]
    fn is_tuple_at(&self, page: &[u8], offset: usize) -> bool {
        offset >= PAGE_HEAD_BYTES && offset.saturating_add(self.fixed_bytes) <= u32_at(page, 4) as usize
    }

    /// Smallest byte range in the fixed part of a tuple that contains the attributes with these ordinals. For an
    /// attribute of variable width, the range contains its end.
    fn fixed_range(&self, ordinals: &[usize]) -> Range<usize> {
        let ranges = ordinals.iter().map(|ordinal| match self.attributes[*ordinal] {
            Attribute::Fixed { at, width } => at..at + width,
            Attribute::Variable { end_at, .. } => end_at..end_at + self.slot_bytes,
        });
        ranges.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or(0..1)
    }

    /// Appends the offsets of consecutive tuples to `tuples`.
    fn append_tuple_offsets(&self, page: &[u8], rows: Range<usize>, tuples: &mut Vec<usize>) {
        let slots = &page[page.len() - rows.end * self.slot_bytes..page.len() - rows.start * self.slot_bytes];
        if self.slot_bytes == 2 {
            tuples.extend(slots.rchunks_exact(2).map(|slot| usize::from(u16::from_le_bytes([slot[0], slot[1]]))));
        } else {
            tuples.extend(slots.rchunks_exact(4).map(|slot| u32_at(slot, 0) as usize));
        }
    }

    /// Flag in the end of an attribute: its bytes are a reference to an overflow section.
    fn reference_bit(&self) -> usize {
        1 << (8 * self.slot_bytes - 1)
    }
}

/// Reads a number of `width` bytes.
#[inline(always)]
fn read_number(bytes: &[u8], at: usize, width: usize) -> i64 {
    match width {
        1 => i64::from(bytes[at] as i8),
        2 => i64::from(i16::from_le_bytes([bytes[at], bytes[at + 1]])),
        4 => i64::from(u32_at(bytes, at) as i32),
        _ => u64_at(bytes, at) as i64,
    }
}

fn read_wide_number(bytes: &[u8], at: usize) -> i128 {
    (u128::from(u64_at(bytes, at)) | u128::from(u64_at(bytes, at + 8)) << 64) as i128
}

/// Slotted pages of one column group of one segment, open for reading.
pub(crate) struct SlottedPages<'a> {
    pub pages: Pages<'a>,
    pub directory: Directory,
    head: Buffer,
    types: Vec<LogicalType>,
    layout: TupleLayout,
    /// How much of each page has been checked.
    checked: Vec<Checked>,
}

/// How much of a page has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checked {
    Nothing,
    /// The head is checked. All slots are inside the page, but the offset in each slot must be checked before use.
    Head,
    /// The head and all slots are checked. Each slot points to a tuple.
    Slots,
}

/// A page that is checked as far as its reader needs.
struct SlottedPage {
    bytes: Buffer,
    /// Ordinal of its section in the piece (one column group of one segment), for errors.
    section: usize,
}

impl FilteredPages<SlottedPage> for SlottedPages<'_> {
    fn directory(&self) -> &Directory {
        &self.directory
    }

    fn load_page(&mut self, number: usize, rows: usize) -> Result<SlottedPage, BlockError> {
        self.checked_page(number, rows, Checked::Slots)
    }
}

impl<'a> SlottedPages<'a> {
    /// Opens a piece with columns of these types, and checks its head.
    pub fn open(mut pages: Pages<'a>, head: Buffer, types: Vec<LogicalType>, rows: usize) -> Result<Self, BlockError> {
        let directory = Directory::parse(&head, rows, types.len(), FIELD_BYTES, pages.section_count())
            .map_err(|corrupt| pages.corrupt_error(0, corrupt))?;
        pages.set_pages(directory.page_ends.len());
        let layout = TupleLayout::new(&types, directory.page_bytes);
        if directory.tuple_bits != 8 * layout.fixed_bytes {
            return Err(pages.corrupt_error(0, corrupt_at(20, "the bits of the fixed part of a tuple")));
        }
        let checked = vec![Checked::Nothing; directory.page_ends.len()];
        Ok(Self { pages, directory, head, types, layout, checked })
    }

    /// Loads a page of `rows` rows. Checks the parts that `required` names, unless an earlier call has checked them.
    fn checked_page(&mut self, number: usize, rows: usize, required: Checked) -> Result<SlottedPage, BlockError> {
        let bytes = self.pages.page(number)?.clone();
        let section = self.pages.page_section(number);
        let checked = self.checked[number];
        if checked < required {
            self.check_page(&bytes, rows, checked, required)
                .map_err(|corrupt| self.pages.corrupt_error(section, corrupt))?;
            self.checked[number] = required;
        }
        Ok(SlottedPage { bytes, section })
    }

    fn check_page(&self, bytes: &[u8], rows: usize, checked: Checked, required: Checked) -> Result<(), Corrupt> {
        if checked < Checked::Head {
            self.check_head(bytes, rows)?;
        }
        if required < Checked::Slots {
            return Ok(());
        }
        let slots_at = bytes.len() - rows * self.layout.slot_bytes;
        let slots = &bytes[slots_at..];
        let bounds = |(least, greatest): (usize, usize), slot: usize| (least.min(slot), greatest.max(slot));
        let no_bounds = (usize::MAX, 0);
        let (least, greatest) = if self.layout.slot_bytes == 2 {
            let slots = slots.chunks_exact(2).map(|slot| usize::from(u16::from_le_bytes([slot[0], slot[1]])));
            slots.fold(no_bounds, bounds)
        } else {
            slots.chunks_exact(4).map(|slot| u32_at(slot, 0) as usize).fold(no_bounds, bounds)
        };
        let is_tuple_at = |slot| self.layout.is_tuple_at(bytes, slot);
        if is_tuple_at(least) && is_tuple_at(greatest) {
            Ok(())
        } else {
            Err(corrupt_at(slots_at, "offsets of tuples"))
        }
    }

    fn check_head(&self, bytes: &[u8], rows: usize) -> Result<(), Corrupt> {
        if bytes.len() != self.directory.page_bytes {
            return Err(corrupt_at(bytes.len(), "a page as long as the head says"));
        }
        if u32_at(bytes, 0) as usize != rows {
            return Err(corrupt_at(0, "as many rows as the directory says"));
        }
        let slots_at = bytes.len().checked_sub(rows * self.layout.slot_bytes);
        if slots_at.is_none_or(|slots_at| u32_at(bytes, 4) as usize > slots_at) {
            return Err(corrupt_at(4, "free space between tuples and slots"));
        }
        Ok(())
    }

    /// Whether the column with this ordinal has nulls in this piece.
    fn has_nulls(&self, ordinal: usize) -> bool {
        u32_at(&self.head, self.directory.fields.start + ordinal * FIELD_BYTES + 8) > 0
    }

    /// Finds the rows that pass a predicate by binary search, in rows of one page whose values ascend. Returns `None`
    /// if `rows` spans several pages, if the column has nulls, or if its values are not numbers of up to 64 bits.
    pub fn search(
        &mut self,
        ordinal: usize,
        predicate: &DatumPredicate,
        rows: Range<usize>,
    ) -> Result<Option<Vec<Range<usize>>>, BlockError> {
        let Attribute::Fixed { at, width: width @ ..=8 } = self.layout.attributes[ordinal] else { return Ok(None) };
        let number = self.directory.page_ends.partition_point(|end| *end as usize <= rows.start);
        if self.has_nulls(ordinal) || number == self.directory.page_ends.len() {
            return Ok(None);
        }
        let page_rows = self.directory.page_rows(number);
        if rows.end > page_rows.end {
            return Ok(None);
        }
        let page = self.checked_page(number, page_rows.len(), Checked::Head)?;
        let is_corrupt = Cell::new(false);
        let found = search_ascending(predicate, rows, |row| {
            let tuple = self.layout.tuple_offset(&page.bytes, row - page_rows.start);
            if !self.layout.is_tuple_at(&page.bytes, tuple) {
                is_corrupt.set(true);
                return 0;
            }
            read_number(&page.bytes, tuple + at, width).into()
        });
        match is_corrupt.get() {
            true => Err(self.pages.corrupt_error(page.section, corrupt_at(4, "offsets of tuples"))),
            false => Ok(found),
        }
    }

    /// Deselects rows in `ranges` that fail a predicate on the column with this ordinal.
    pub fn filter(
        &mut self,
        ordinal: usize,
        predicate: &ColumnPredicate,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        if predicate.condition == DatumPredicate::Null {
            return self.filter_nulls(ordinal, !predicate.negated, ranges, selection);
        }
        self.filter_nulls(ordinal, false, ranges, selection)?;
        let Attribute::Fixed { at, width } = self.layout.attributes[ordinal] else {
            return self.filter_variable(ordinal, predicate, ranges, selection);
        };
        // The base of the distances is `i64::MIN`, so that every `i64` has a distance.
        let distances = FieldPredicate::on_numbers(predicate, i64::MIN.into(), u64::MAX);
        let distance = |number: i64| number as u64 ^ 1 << 63;
        let mut tuples = vec![];
        self.visit_selected_pages(ranges, selection, |piece, page, rows, first, selection| {
            let bytes = page.bytes.as_slice();
            tuples.clear();
            piece.layout.append_tuple_offsets(bytes, rows.start - first..rows.end - first, &mut tuples);
            let (tuples, begin) = (tuples.as_slice(), rows.start);
            let tuple = |row: usize| tuples[row - begin];
            match width {
                1 => distances.apply(rows, selection, |row| distance(read_number(bytes, tuple(row) + at, 1))),
                2 => distances.apply(rows, selection, |row| distance(read_number(bytes, tuple(row) + at, 2))),
                4 => distances.apply(rows, selection, |row| distance(read_number(bytes, tuple(row) + at, 4))),
                8 => distances.apply(rows, selection, |row| distance(read_number(bytes, tuple(row) + at, 8))),
                _ => retain(rows, selection, |row| {
                    predicate.admits(Some(&Datum::Number(read_wide_number(bytes, tuple(row) + at))))
                }),
            }
            Ok(())
        })
    }

    fn filter_nulls(
        &mut self,
        ordinal: usize,
        nulls_pass: bool,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        if !self.has_nulls(ordinal) {
            if nulls_pass {
                deselect_ranges(ranges, selection);
            }
            return Ok(());
        }
        self.visit_selected_pages(ranges, selection, |piece, page, rows, first, selection| {
            let bytes = page.bytes.as_slice();
            retain(rows, selection, |row| {
                TupleLayout::is_null(&bytes[piece.layout.tuple_offset(bytes, row - first)..], ordinal) == nulls_pass
            });
            Ok(())
        })
    }

    /// Deselects rows whose variable-width value fails a predicate. Null rows are already deselected.
    fn filter_variable(
        &mut self,
        ordinal: usize,
        predicate: &ColumnPredicate,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        let bytes_predicate = BytesPredicate::new(predicate);
        if let Some(passes) = bytes_predicate.fixed_result() {
            if !passes {
                deselect_ranges(ranges, selection);
            }
            return Ok(());
        }
        self.retain_selected(ranges, selection, |piece, page, row| {
            piece.admits_variable(ordinal, page, row, &bytes_predicate)
        })
    }

    /// Storage of the column with this ordinal: encoding, its description, and stored bytes.
    pub fn storage(&self, ordinal: usize) -> (Encoding, String, u64) {
        let stored_bytes = u64_at(&self.head, self.directory.fields.start + ordinal * FIELD_BYTES);
        (Encoding::Plain, "plain".to_owned(), stored_bytes)
    }
}
