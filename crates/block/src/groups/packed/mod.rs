//! Packed rows ("super-tuples"): dense, bit-aligned whole rows, without slots and without a header per tuple.
//!
//! After Halverson et al. (2006), section 2.1: a page is an array of tuples of one size, so a scan finds a tuple by
//! multiplication. After Holloway and DeWitt (2008), section 4.2: pages are 32 KiB long, and fields have as many bits
//! as the data needs, without alignment. The head of a piece (one column group of one segment) contains the widths,
//! bases and dictionaries for all its pages. A dictionary for one page is in that page. Therefore **reading a whole row
//! touches at most two sections: the head and one page** (and overflow sections if a value is longer than 8 KiB).
//!
//! ```text
//! page
//! offset   size            field
//! 0        4               rows          as in the directory
//! 4        4               dictionary_bytes  zero if no field refers to dictionaries of pages
//! 8        8               zero
//! 16       ...             dictionaries  see `page_dictionary`
//!          rows * bits     tuples        tuple i at bit i * tuple_bits; see `field` for its fields
//!          ...             anchors       see `lengths`
//!          ...             heap          inline values, row by row, in each row in the order of the fields
//!          24              zeros         so that loads of whole words stay inside
//! ```
//!
//! `tuple_bits` is rounded up to whole bytes if that costs at most 1/32 of a tuple and its inline values. Every load of
//! a field then has the same shift.

mod arrangement;
mod bits;
mod build;
mod dictionary;
mod field;
mod lengths;
mod page_dictionary;
mod plan;
mod read;
mod sharing;
mod symbols;

pub(crate) use build::build;
pub(crate) use plan::field_bytes;

use std::cell::Cell;
use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer};
use taut_encoding::{Bitmap, Chunk};
use taut_index::RowRanges;
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate, Encoding, LogicalType};

use self::bits::{NARROW_BITS, PADDING, Tuples, is_set, load, load_narrow, load_wide, mask, word};
use self::field::{FIELD_BYTES, Field, FieldKind, FieldValues, PLAIN};
use self::lengths::{Anchors, Cursor};
use self::page_dictionary::DIRECTORY_ENTRY_BYTES;
use crate::BlockError;
use crate::bytes::u32_at;
use crate::error::corrupt_at;
use crate::groups::field_predicate::{BytesPredicate, FieldPredicate, deselect_ranges, retain};
use crate::groups::filtered_pages::FilteredPages;
use crate::groups::pages::{Directory, Pages};

const PAGE_HEAD_BYTES: usize = 16;

/// Pages of packed rows of one column group of one segment, open for reading.
pub(crate) struct PackedPages<'a> {
    pub pages: Pages<'a>,
    pub directory: Directory,
    fields: Vec<Field>,
    /// Anchors of the pages, if inline values are found by lengths.
    anchors: Option<Anchors>,
    /// Number of dictionaries in each page: see `page_dictionary`.
    page_dictionaries: usize,
    /// Scratch space of reads: ranges of inline values in the heap.
    value_ranges: Vec<Range<usize>>,
}

/// A checked page.
struct PackedPage {
    bytes: Buffer,
    /// Ordinal of its section in the piece, for errors.
    section: usize,
    tuples_at: usize,
    anchors_at: usize,
    heap: Range<usize>,
    stride: usize,
    /// Cached position after the last inline value that was found.
    cursor: Cell<Cursor>,
}

impl PackedPage {
    fn tuples(&self) -> Tuples<'_> {
        Tuples { bytes: &self.bytes[self.tuples_at..], stride: self.stride }
    }
}

impl<'a> PackedPages<'a> {
    /// Opens a piece with fields of these types, and checks its head.
    pub fn open(mut pages: Pages<'a>, head: &Buffer, types: &[LogicalType], rows: usize) -> Result<Self, BlockError> {
        let directory = Directory::parse(head, rows, types.len(), FIELD_BYTES, pages.section_count())
            .map_err(|corrupt| pages.corrupt_error(0, corrupt))?;
        pages.set_pages(directory.page_ends.len());
        let tuples = (directory.page_bytes, directory.tuple_bits);
        let fields = field::parse_fields(head, directory.fields.clone(), directory.tables_at, tuples, types)
            .map_err(|corrupt| pages.corrupt_error(0, corrupt))?;
        let last_dictionary = fields.iter().filter_map(Field::page_dictionary_ordinal).max();
        let page_dictionaries = last_dictionary.map_or(0, |last| last + 1);
        let anchors = fields.iter().find_map(Field::lengths).map(|lengths| lengths.anchors);
        Ok(Self { pages, directory, fields, anchors, page_dictionaries, value_ranges: vec![] })
    }

    /// Loads a page of `rows` rows, and checks it.
    fn checked_page(&mut self, page: usize, rows: usize) -> Result<PackedPage, BlockError> {
        let bytes = self.pages.page(page)?.clone();
        let section = self.pages.page_section(page);
        let stride = self.directory.tuple_bits;
        if bytes.len() < PAGE_HEAD_BYTES {
            return Err(self.pages.corrupt_error(section, corrupt_at(bytes.len(), "the head of a page")));
        }
        let dictionary_bytes = u32_at(&bytes, 4) as usize;
        let directory_bytes = self.page_dictionaries * DIRECTORY_ENTRY_BYTES;
        if dictionary_bytes < directory_bytes || dictionary_bytes > 0 && directory_bytes == 0 {
            return Err(self
                .pages
                .corrupt_error(section, corrupt_at(4, "dictionaries if and only if fields refer to them")));
        }
        let tuples_at = PAGE_HEAD_BYTES + dictionary_bytes;
        let anchors_at = tuples_at + (rows * stride).div_ceil(8);
        let heap_at = anchors_at + self.anchors.map_or(0, |anchors| anchors.bytes_for(rows));
        if bytes.len() < heap_at + PADDING || bytes.len() > self.directory.page_bytes {
            let corrupt = corrupt_at(bytes.len(), "a page that holds its tuples");
            return Err(self.pages.corrupt_error(section, corrupt));
        }
        if u32_at(&bytes, 0) as usize != rows {
            return Err(self.pages.corrupt_error(section, corrupt_at(0, "as many rows as the directory says")));
        }
        let heap = heap_at..bytes.len() - PADDING;
        Ok(PackedPage { bytes, section, tuples_at, anchors_at, heap, stride, cursor: Cell::new(Cursor::UNSET) })
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
        let field = &self.fields[ordinal];
        let codes = match &field.values {
            FieldValues::Nulls => Some(FieldPredicate::Fixed(false)),
            FieldValues::Number if field.record.width <= 64 => {
                Some(FieldPredicate::on_numbers(predicate, field.record.base, mask(field.record.width)))
            }
            FieldValues::Number => None,
            FieldValues::Dictionary { chunk, .. } => Some(FieldPredicate::on_codes(&passing_entries(chunk, predicate))),
            FieldValues::PageDictionary => return self.filter_page_codes(ordinal, predicate, ranges, selection),
            FieldValues::Inline { .. } => return self.filter_inline(ordinal, predicate, ranges, selection),
        };
        match codes {
            Some(codes) => self.filter_field(ordinal, &codes, false, ranges, selection),
            None => self.filter_wide(ordinal, predicate, ranges, selection),
        }
    }

    /// Deselects rows in `ranges` whose entry in the dictionary of a field has a false flag. Null rows stay selected if
    /// and only if `null_passes` is true.
    pub fn filter_codes(
        &mut self,
        ordinal: usize,
        flags: &BooleanBuffer,
        null_passes: bool,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        self.filter_field(ordinal, &FieldPredicate::on_codes(flags), null_passes, ranges, selection)
    }

    /// Ranges of codes whose dictionary entries pass a predicate. Returns `None` if the field has no dictionary in the
    /// head.
    pub fn codes_that_pass(&self, ordinal: usize, predicate: &DatumPredicate) -> Option<Vec<Range<u32>>> {
        let FieldValues::Dictionary { chunk, .. } = &self.fields[ordinal].values else { return None };
        let flags = passing_entries(chunk, &ColumnPredicate::new(ColumnIndex(0), predicate.clone()));
        // A dictionary has at most 65,536 entries.
        Some(flags.set_slices().map(|(start, end)| start as u32..end as u32).collect())
    }

    /// Dictionary entries of a field. Returns `None` if the field has no dictionary in the head.
    pub fn dictionary(&self, ordinal: usize) -> Option<ArrayRef> {
        self.fields[ordinal].dictionary().cloned()
    }

    fn filter_field(
        &mut self,
        ordinal: usize,
        predicate: &FieldPredicate,
        null_passes: bool,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        let null_bit = self.fields[ordinal].null_bit;
        if *predicate == FieldPredicate::Fixed(true) && (null_bit.is_none() || null_passes) {
            return Ok(());
        }
        if *predicate == FieldPredicate::Fixed(false) && (null_bit.is_none() || !null_passes) {
            deselect_ranges(ranges, selection);
            return Ok(());
        }
        self.visit_selected_pages(ranges, selection, |piece, page, rows, first, selection| {
            piece.fields[ordinal].filter(page, predicate, null_passes, rows, first, selection);
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
        let field = &self.fields[ordinal];
        let Some(null_bit) = field.null_bit else {
            if matches!(field.values, FieldValues::Nulls) != nulls_pass {
                deselect_ranges(ranges, selection);
            }
            return Ok(());
        };
        self.visit_selected_pages(ranges, selection, |_, page, rows, first, selection| {
            let Tuples { bytes, stride } = page.tuples();
            retain(rows, selection, |row| is_set(bytes, (row - first) * stride + null_bit) == nulls_pass);
            Ok(())
        })
    }

    /// Deselects rows that fail a predicate, in a field of numbers of more than 64 bits.
    fn filter_wide(
        &mut self,
        ordinal: usize,
        predicate: &ColumnPredicate,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        self.visit_selected_pages(ranges, selection, |piece, page, rows, first, selection| {
            let field = &piece.fields[ordinal];
            let Tuples { bytes, stride } = page.tuples();
            retain(rows, selection, |row| {
                let tuple = (row - first) * stride;
                let is_null = field.null_bit.is_some_and(|null_bit| is_set(bytes, tuple + null_bit));
                let distance = load_wide(bytes, tuple + field.value_bit, field.record.width);
                let datum = Datum::Number(field.record.base.wrapping_add(distance as i128));
                !is_null && predicate.admits(Some(&datum))
            });
            Ok(())
        })
    }

    fn filter_inline(
        &mut self,
        ordinal: usize,
        predicate: &ColumnPredicate,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        let not_null = ColumnPredicate { column: predicate.column, condition: DatumPredicate::Null, negated: true };
        self.filter(ordinal, &not_null, ranges, selection)?;
        let bytes_predicate = BytesPredicate::new(predicate);
        match bytes_predicate.fixed_result() {
            Some(true) => return Ok(()),
            Some(false) => return self.filter_field(ordinal, &FieldPredicate::Fixed(false), false, ranges, selection),
            None => {}
        }
        let mut scratch = vec![];
        self.retain_selected(ranges, selection, |piece, page, row| {
            piece.admits_inline(ordinal, page, row, &bytes_predicate, &mut scratch)
        })
    }

    /// Storage of the column with this ordinal: outermost encoding, its description, and stored bytes.
    pub fn storage(&self, ordinal: usize) -> (Encoding, String, u64) {
        let field = &self.fields[ordinal];
        let record = &field.record;
        let rows = self.directory.page_ends.last().copied().unwrap_or(0);
        let anchors = field.lengths().map_or(0, |lengths| lengths.anchor_bytes(&self.directory.page_ends));
        let bits = record.bits() as u64 * u64::from(rows);
        let bytes = bits.div_ceil(8) + anchors + record.stored_bytes + u64::from(record.table_length);
        let is_plain = record.flags & PLAIN != 0;
        let (encoding, text) = match record.kind {
            FieldKind::Nulls => (Encoding::Constant, "constant".to_owned()),
            FieldKind::Number if is_plain => (Encoding::Plain, "plain".to_owned()),
            FieldKind::Number if record.width == 0 => (Encoding::Constant, "constant".to_owned()),
            FieldKind::Number if record.base == 0 => (Encoding::BitPacked, format!("bit_packed({})", record.width)),
            FieldKind::Number => (Encoding::FrameOfReference, format!("frame_of_reference({})", record.width)),
            FieldKind::Dictionary => {
                (Encoding::Dictionary, format!("dictionary({}) of bit_packed({})", record.entries, record.width))
            }
            FieldKind::PageDictionary => (Encoding::Dictionary, self.describe_page_dictionary(field)),
            FieldKind::Inline => (Encoding::Plain, "plain".to_owned()),
            FieldKind::InlineFsst => (Encoding::Fsst, "fsst".to_owned()),
        };
        (encoding, text, bytes)
    }
}

impl FilteredPages<PackedPage> for PackedPages<'_> {
    fn directory(&self) -> &Directory {
        &self.directory
    }

    fn load_page(&mut self, number: usize, rows: usize) -> Result<PackedPage, BlockError> {
        self.checked_page(number, rows)
    }
}

impl Field {
    /// Deselects rows of a page that fail a predicate on distances or codes. Null rows stay selected if and only if
    /// `null_passes` is true. The page begins with row `first` of the segment.
    fn filter(
        &self,
        page: &PackedPage,
        predicate: &FieldPredicate,
        null_passes: bool,
        rows: Range<usize>,
        first: usize,
        selection: &mut Bitmap,
    ) {
        let (bit, mask) = (self.value_bit, mask(self.record.width));
        let Tuples { bytes, stride } = page.tuples();
        let nulls = match (self.null_bit, null_passes) {
            (Some(null_bit), true) => {
                let mut nulls = selection.clone();
                retain(rows.clone(), &mut nulls, |row| is_set(bytes, (row - first) * stride + null_bit));
                Some(nulls)
            }
            _ => None,
        };
        if self.record.width <= NARROW_BITS && stride.is_multiple_of(8) {
            // Tuples of whole bytes: the shift is the same for all.
            let (at, shift, stride) = (bit / 8, bit % 8, stride / 8);
            predicate.apply(rows.clone(), selection, |row| word(bytes, (row - first) * stride + at) >> shift & mask);
        } else if self.record.width <= NARROW_BITS {
            predicate.apply(rows.clone(), selection, |row| load_narrow(bytes, (row - first) * stride + bit) & mask);
        } else {
            predicate.apply(rows.clone(), selection, |row| load(bytes, (row - first) * stride + bit) & mask);
        }
        match (self.null_bit, nulls) {
            (_, Some(nulls)) => {
                for row in rows.filter(|row| nulls.get(*row)) {
                    selection.set(row);
                }
            }
            (Some(null_bit), None) => {
                retain(rows, selection, |row| !is_set(bytes, (row - first) * stride + null_bit));
            }
            (None, None) => {}
        }
    }
}

/// One flag per dictionary entry: whether it passes a predicate.
fn passing_entries(entries: &Chunk, predicate: &ColumnPredicate) -> BooleanBuffer {
    let mut passing = Bitmap::all_set(entries.rows());
    entries.filter(predicate, 0..entries.rows(), &mut passing);
    BooleanBuffer::collect_bool(entries.rows(), |code| passing.get(code))
}
