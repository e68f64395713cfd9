//! Fields of a packed tuple, as described in the head of a piece (one column group of one segment).
//!
//! ```text
//! offset  size  field
//! 0       1     kind          0 nulls, 1 number, 2 dictionary, 3 inline, 4 inline fsst, 5 dictionary of pages
//! 1       1     width         bits of the value, 0..=128
//! 2       1     flags         1 nullable, 2 overflow, 4 plain (width of the type, not of the data), 8 lengths
//! 3       1     zero
//! 4       4     bit           bit of the tuple at which the field begins
//! 8       16    base          number, dictionary of pages: the number whose distance is zero;
//!                             inline with lengths: the least length
//! 24      4     entries       dictionary: number of entries; dictionary of pages: its ordinal in each page
//! 28      4     table_at      dictionary, fsst: offset of the table in the head, a multiple of 64
//! 32      4     table_length
//! 36      4     zero
//! 40      8     stored_bytes  inline: bytes of the values in the heaps of pages and in overflow sections; dictionary
//!                             of pages: bytes of the dictionaries of all pages, divided among their fields
//!
//! field in a tuple:   [null bit, if nullable] [overflow bit, if overflow] [value: width bits]
//! ```
//!
//! A `number` is a distance from the base. A `dictionary` code is the ordinal of a value in a sorted list. The list is
//! a plain chunk of the column's type, or the dictionary of the page (see `page_dictionary`). An `inline` value is the
//! offset at which the value ends in the heap of its page. The value begins where the preceding value ends. This is the
//! value of the preceding inline field of the tuple. For the first inline field, it is the value of the last inline
//! field of the previous tuple. With `lengths`, an `inline` value is the length of the value minus the least length
//! (see `lengths`). Either all inline fields of a piece have `lengths`, or none.

use std::sync::OnceLock;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use taut_encoding::Chunk;
use taut_types::LogicalType;

use super::bits::mask;
use super::lengths::{Length, Lengths};
use super::symbols::Symbols;
use crate::bytes::{u32_at, u64_at};
use crate::error::{Corrupt, corrupt_at};

pub(crate) const FIELD_BYTES: usize = 48;
pub(crate) const NULLABLE: u8 = 1;
pub(crate) const OVERFLOW: u8 = 2;
pub(crate) const PLAIN: u8 = 4;
pub(crate) const LENGTHS: u8 = 8;
/// Upper bound of the stored bytes of a column of a segment.
const STORED_BYTES_MAX: u64 = 1 << 40;
/// Maximum number of dictionaries in a page: the maximum number of columns in a group.
const PAGE_DICTIONARIES_MAX: u32 = 16_384;

/// Record of the field table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub kind: FieldKind,
    pub width: u32,
    pub flags: u8,
    pub bit: u32,
    pub base: i128,
    pub entries: u32,
    pub table_at: u32,
    pub table_length: u32,
    pub stored_bytes: u64,
}

/// Kind of the values of a field. The codes are stored in files and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FieldKind {
    Nulls = 0,
    Number = 1,
    Dictionary = 2,
    Inline = 3,
    InlineFsst = 4,
    PageDictionary = 5,
}

/// A checked field.
#[derive(Debug)]
pub(crate) struct Field {
    pub logical: LogicalType,
    pub record: Record,
    /// Bit of the tuple at which the value begins, after the bits for null and overflow.
    pub value_bit: usize,
    pub null_bit: Option<usize>,
    pub overflow_bit: Option<usize>,
    pub values: FieldValues,
}

/// Source of the values of a field.
#[derive(Debug)]
pub(crate) enum FieldValues {
    Nulls,
    Number,
    Dictionary {
        chunk: Box<Chunk>,
        decoded: OnceLock<ArrayRef>,
    },
    /// Codes of the dictionary of a page.
    PageDictionary,
    Inline {
        start: InlineStart,
        symbols: Option<Symbols>,
    },
}

/// Location of the start of an inline value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InlineStart {
    /// The value begins where the preceding value ends. The field of that value is in the same tuple or in the
    /// previous one.
    AfterPreceding(PrecedingEnd),
    /// The value begins at the offset in an anchor plus the lengths of the values between the anchor and the value.
    ByLengths(Lengths),
}

/// Field that stores the end of the value before an inline value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrecedingEnd {
    /// Bit of its tuple at which the value of this field begins.
    pub value_bit: usize,
    pub width: u32,
    /// Whether this field is in the previous tuple.
    pub in_previous_tuple: bool,
}

impl Record {
    /// Bits of the field in a tuple.
    pub fn bits(&self) -> usize {
        usize::from(self.flags & NULLABLE != 0) + usize::from(self.flags & OVERFLOW != 0) + self.width as usize
    }

    /// Whether the values are in the heaps of pages.
    pub fn is_inline(&self) -> bool {
        matches!(self.kind, FieldKind::Inline | FieldKind::InlineFsst)
    }

    pub fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&[self.kind as u8, self.width as u8, self.flags, 0]);
        bytes.extend_from_slice(&self.bit.to_le_bytes());
        bytes.extend_from_slice(&self.base.to_le_bytes());
        for word in [self.entries, self.table_at, self.table_length, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.stored_bytes.to_le_bytes());
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let kinds = [
            FieldKind::Nulls,
            FieldKind::Number,
            FieldKind::Dictionary,
            FieldKind::Inline,
            FieldKind::InlineFsst,
            FieldKind::PageDictionary,
        ];
        let mut base = [0; 16];
        base.copy_from_slice(&bytes[8..24]);
        let record = Self {
            kind: kinds.into_iter().find(|kind| *kind as u8 == bytes[0])?,
            width: u32::from(bytes[1]),
            flags: bytes[2],
            bit: u32_at(bytes, 4),
            base: i128::from_le_bytes(base),
            entries: u32_at(bytes, 24),
            table_at: u32_at(bytes, 28),
            table_length: u32_at(bytes, 32),
            stored_bytes: u64_at(bytes, 40),
        };
        let zeros = bytes[3] == 0 && bytes[36..40] == [0; 4];
        let flags_are_known = record.flags <= NULLABLE | OVERFLOW | PLAIN | LENGTHS;
        (zeros && flags_are_known && record.stored_bytes <= STORED_BYTES_MAX).then_some(record)
    }

    /// Whether the record is valid for a column of type `logical`.
    fn is_valid_for(&self, logical: LogicalType) -> bool {
        let (overflows, has_length) = (self.flags & OVERFLOW != 0, self.flags & LENGTHS != 0);
        if has_length && !(self.is_inline() && u32::try_from(self.base).is_ok()) {
            return false;
        }
        match self.kind {
            FieldKind::Nulls => self.width == 0 && self.flags == 0,
            FieldKind::Number => {
                let is_narrow = logical.plain_bytes().is_some_and(|bytes| bytes <= 8);
                let base_fits = !is_narrow || i64::try_from(self.base).is_ok();
                !logical.is_bytes() && !overflows && base_fits && self.width <= if is_narrow { 64 } else { 128 }
            }
            FieldKind::Dictionary => {
                !overflows && self.width <= 16 && self.entries > 0 && u64::from(self.entries) <= mask(self.width) + 1
            }
            FieldKind::Inline | FieldKind::InlineFsst => logical.is_bytes() && self.width <= 32,
            FieldKind::PageDictionary => {
                let is_narrow = logical.plain_bytes().is_some_and(|bytes| bytes <= 8);
                let base_fits = i64::try_from(self.base).is_ok();
                !overflows && is_narrow && base_fits && self.width <= 16 && self.entries <= PAGE_DICTIONARIES_MAX
            }
        }
    }
}

/// Parses and checks the field table of a head.
pub(crate) fn parse_fields(
    head: &Buffer,
    fields: std::ops::Range<usize>,
    tables_at: usize,
    (page_bytes, tuple_bits): (usize, usize),
    types: &[LogicalType],
) -> Result<Vec<Field>, Corrupt> {
    let mut parsed = Vec::with_capacity(types.len());
    for (ordinal, logical) in types.iter().enumerate() {
        let at = fields.start + ordinal * FIELD_BYTES;
        let record = Record::parse(&head[at..at + FIELD_BYTES])
            .filter(|record| record.is_valid_for(*logical))
            .ok_or(corrupt_at(at, "a field of the column's type"))?;
        let value_bit = record.bit as usize + record.bits() - record.width as usize;
        if value_bit + record.width as usize > tuple_bits {
            return Err(corrupt_at(at + 4, "a field inside the tuple"));
        }
        let table = field_table(head, &record, tables_at).ok_or(corrupt_at(at + 28, "a table inside the head"))?;
        let null_bit = (record.flags & NULLABLE != 0).then_some(record.bit as usize);
        let overflow_bit = (record.flags & OVERFLOW != 0).then(|| value_bit - 1);
        let values = match record.kind {
            FieldKind::Nulls => FieldValues::Nulls,
            FieldKind::Number => FieldValues::Number,
            FieldKind::PageDictionary => FieldValues::PageDictionary,
            FieldKind::Dictionary => {
                let at = record.table_at as usize;
                let chunk = Chunk::parse(table, *logical, record.entries as usize)
                    .map_err(|corrupt| Corrupt::from(corrupt).shifted_by(at))?;
                if chunk.nulls() > 0 {
                    return Err(corrupt_at(at, "a dictionary without null"));
                }
                FieldValues::Dictionary { chunk: Box::new(chunk), decoded: OnceLock::new() }
            }
            FieldKind::Inline | FieldKind::InlineFsst => {
                let symbols = match record.kind {
                    FieldKind::InlineFsst => {
                        Some(Symbols::parse(&table).ok_or(corrupt_at(record.table_at as usize, "a table of symbols"))?)
                    }
                    _ => None,
                };
                // `link_inline` sets the final value when all inline fields are known.
                let start = InlineStart::AfterPreceding(PrecedingEnd {
                    value_bit,
                    width: record.width,
                    in_previous_tuple: true,
                });
                FieldValues::Inline { start, symbols }
            }
        };
        parsed.push(Field { logical: *logical, record, value_bit, null_bit, overflow_bit, values });
    }
    link_inline(&mut parsed, page_bytes)
        .ok_or(corrupt_at(fields.start, "lengths in at most 4 inline fields, and then in all of them"))?;
    Ok(parsed)
}

/// Bytes of the table of a field, empty if its kind has no table. Returns `None` if the offset or length of the table
/// is corrupt.
fn field_table(head: &Buffer, record: &Record, tables_at: usize) -> Option<Buffer> {
    let (at, length) = (record.table_at as usize, record.table_length as usize);
    if !matches!(record.kind, FieldKind::Dictionary | FieldKind::InlineFsst) {
        return (at == 0 && length == 0).then(|| Buffer::from_vec(Vec::<u8>::new()));
    }
    let is_inside = at >= tables_at && at.is_multiple_of(64) && at + length <= head.len();
    is_inside.then(|| head.slice_with_length(at, length))
}

/// Sets the [`InlineStart`] of each inline field. Returns `None` if some of the fields have lengths and others do not,
/// or if too many have lengths.
fn link_inline(fields: &mut [Field], page_bytes: usize) -> Option<()> {
    let inline = || fields.iter().filter(|field| field.record.is_inline());
    let has_length = |field: &&Field| field.record.flags & LENGTHS != 0;
    let length = |field: &Field| Length {
        bit: field.value_bit,
        mask: mask(field.record.width),
        // Parsing has checked that the base fits 32 bits.
        base: field.record.base as usize,
    };
    let Some(last) = inline().last() else { return Some(()) };
    let mut preceding_end =
        PrecedingEnd { value_bit: last.value_bit, width: last.record.width, in_previous_tuple: true };
    let lengths: Vec<Length> = inline().filter(has_length).map(length).collect();
    if !lengths.is_empty() && inline().any(|field| !has_length(&field)) {
        return None;
    }
    let mut lengths = if lengths.is_empty() { None } else { Some(Lengths::for_fields(&lengths, page_bytes)?) };
    for field in fields {
        let this_end = PrecedingEnd { value_bit: field.value_bit, width: field.record.width, in_previous_tuple: false };
        if let FieldValues::Inline { start, .. } = &mut field.values {
            let preceding = std::mem::replace(&mut preceding_end, this_end);
            *start = match &mut lengths {
                Some(lengths) => InlineStart::ByLengths(lengths.next()?),
                None => InlineStart::AfterPreceding(preceding),
            };
        }
    }
    Some(())
}

impl Field {
    /// Lengths by which inline values are found. Returns `None` if the field stores no lengths.
    pub fn lengths(&self) -> Option<&Lengths> {
        match &self.values {
            FieldValues::Inline { start: InlineStart::ByLengths(lengths), .. } => Some(lengths),
            _ => None,
        }
    }

    /// Entries of the dictionary of the field, decoded once. Returns `None` if the field has no dictionary in the head.
    pub fn dictionary(&self) -> Option<&ArrayRef> {
        match &self.values {
            FieldValues::Dictionary { chunk, decoded } => Some(decoded.get_or_init(|| chunk.decode(0..chunk.rows()))),
            _ => None,
        }
    }
}
