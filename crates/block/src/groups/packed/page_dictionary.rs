//! Dictionaries of pages: ascending numbers at the beginning of a page. Codes in the tuples of the page are indexes
//! into them.
//!
//! After Holloway and DeWitt (2008), section 4.2: a page has fewer distinct values than the piece (one column group of
//! one segment), so its codes are shorter. Each page of a piece has the same number of dictionaries. A field refers to
//! one of them by its ordinal. Several fields may share a dictionary; `sharing` chooses these fields. Codes have the
//! same width in all pages, so that tuples have the same size.
//!
//! ```text
//! after the head of a page (16 bytes), which contains the total length of the dictionaries:
//! offset  size   field
//! 0       D * 8  directory  for each of D dictionaries: count of entries u32, offset at which its entries end u32
//! D * 8          entries    of dictionary 0, then of dictionary 1, ...: each entry is stored as its distance from the
//!                           previous entry, the first as its distance from the base of the fields. A distance is a
//!                           LEB128 number: groups of seven bits, the lowest first; the highest bit of a byte is set
//!                           if another group follows
//! ```

use taut_encoding::Bitmap;
use taut_index::RowRanges;
use taut_types::{ColumnPredicate, Datum, DatumPredicate};

use super::field::{Field, FieldValues};
use super::{PAGE_HEAD_BYTES, PackedPage, PackedPages};
use crate::BlockError;
use crate::bytes::u32_at;
use crate::error::corrupt_at;
use crate::groups::field_predicate::FieldPredicate;
use crate::groups::filtered_pages::FilteredPages;

/// Bytes of one entry in the directory of a page. Each dictionary has one entry.
pub(super) const DIRECTORY_ENTRY_BYTES: usize = 8;
/// Bits of a distance that one byte stores.
const GROUP_BITS: u32 = 7;

/// Bytes of an encoded distance.
pub(super) fn distance_bytes(distance: u64) -> usize {
    ((64 - distance.leading_zeros()).div_ceil(GROUP_BITS)).max(1) as usize
}

/// Appends an encoded distance.
fn push_distance(mut distance: u64, bytes: &mut Vec<u8>) {
    while distance >> GROUP_BITS != 0 {
        // The low bits of the distance, with the bit that marks another group.
        bytes.push(distance as u8 | 1 << GROUP_BITS);
        distance >>= GROUP_BITS;
    }
    bytes.push(distance as u8);
}

/// Takes an encoded distance from the front of `bytes`. Returns `None` if the bytes are corrupt.
#[inline]
fn take_distance(bytes: &mut &[u8]) -> Option<u64> {
    let (mut distance, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & !(1 << GROUP_BITS));
        if shift > 63 || group << shift >> shift != group {
            return None;
        }
        distance |= group << shift;
        if *byte >> GROUP_BITS == 0 {
            return Some(distance);
        }
        shift += GROUP_BITS;
    }
}

/// Encodes the dictionaries of a page. Each has a base and ascending entries, none of them less than the base.
pub(super) fn write(dictionaries: impl Iterator<Item = (i64, Vec<i64>)>) -> Vec<u8> {
    let (mut directory, mut entries) = (vec![], vec![]);
    let dictionaries: Vec<_> = dictionaries.collect();
    for (base, numbers) in &dictionaries {
        let mut last = *base;
        for number in numbers {
            push_distance(number.wrapping_sub(last) as u64, &mut entries);
            last = *number;
        }
        // A page has less than 2^32 bytes.
        directory.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
        directory
            .extend_from_slice(&((dictionaries.len() * DIRECTORY_ENTRY_BYTES + entries.len()) as u32).to_le_bytes());
    }
    directory.append(&mut entries);
    directory
}

/// Decodes the entries of the dictionary with this ordinal in a page with `dictionaries` dictionaries. Returns `None`
/// if the bytes are corrupt.
fn parse(bytes: &[u8], dictionaries: usize, ordinal: usize, base: i64) -> Option<Vec<i64>> {
    let at = ordinal * DIRECTORY_ENTRY_BYTES;
    let start = if ordinal == 0 { dictionaries * DIRECTORY_ENTRY_BYTES } else { u32_at(bytes, at - 4) as usize };
    let (count, end) = (u32_at(bytes, at) as usize, u32_at(bytes, at + 4) as usize);
    let mut rest = bytes.get(start..end)?;
    // Each entry takes at least one byte.
    let mut entries = Vec::with_capacity(count.min(rest.len()));
    let mut number = base;
    for entry in 0..count {
        let distance = take_distance(&mut rest)?;
        if distance == 0 && entry > 0 {
            return None;
        }
        number = number.checked_add_unsigned(distance)?;
        entries.push(number);
    }
    rest.is_empty().then_some(entries)
}

/// Converts a predicate on the entries of a dictionary into a predicate on their codes.
fn predicate_on_codes(entries: &[i64], predicate: &ColumnPredicate) -> FieldPredicate {
    let DatumPredicate::Range { low, high } = &predicate.condition else {
        let flags = entries.iter().map(|entry| predicate.admits(Some(&Datum::Number((*entry).into()))));
        return FieldPredicate::on_codes(&flags.collect());
    };
    let inside = !predicate.negated;
    let start = entries.partition_point(|entry| i128::from(*entry) < *low);
    let end = entries.partition_point(|entry| i128::from(*entry) <= *high);
    if start >= end {
        return FieldPredicate::Fixed(!inside);
    }
    if end - start == entries.len() {
        return FieldPredicate::Fixed(inside);
    }
    FieldPredicate::Range { low: start as u64, span: (end - start - 1) as u64, inside }
}

impl Field {
    /// Ordinal, in each page, of the dictionary to which the field refers. Returns `None` if the field refers to no
    /// dictionary of pages.
    pub fn page_dictionary_ordinal(&self) -> Option<usize> {
        // In the record of such a field, `entries` is the ordinal of the dictionary, not a number of entries.
        matches!(self.values, FieldValues::PageDictionary).then_some(self.record.entries as usize)
    }
}

impl PackedPages<'_> {
    /// Entries of the dictionary to which a field refers in one page.
    fn page_entries(&self, field: &Field, page: &PackedPage) -> Result<Vec<i64>, BlockError> {
        let bytes = &page.bytes[PAGE_HEAD_BYTES..page.tuples_at];
        // Parsing has checked that the base fits 64 bits.
        let base = field.record.base as i64;
        let ordinal = field.page_dictionary_ordinal();
        let entries = ordinal.and_then(|ordinal| parse(bytes, self.page_dictionaries, ordinal, base));
        entries.ok_or_else(|| {
            self.pages.corrupt_error(page.section, corrupt_at(PAGE_HEAD_BYTES, "dictionaries of the page"))
        })
    }

    /// Like [`PackedPages::page_entries`], but padded so that every code of the field's width has an entry.
    pub(super) fn padded_page_entries(&self, field: &Field, page: &PackedPage) -> Result<Vec<i64>, BlockError> {
        let mut entries = self.page_entries(field, page)?;
        entries.resize(1 << field.record.width, field.record.base as i64);
        Ok(entries)
    }

    /// Deselects rows that fail a predicate other than [`DatumPredicate::Null`]. Converts the predicate for each page,
    /// because each page has its own codes.
    pub(super) fn filter_page_codes(
        &mut self,
        ordinal: usize,
        predicate: &ColumnPredicate,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        self.visit_selected_pages(ranges, selection, |piece, page, rows, first, selection| {
            let field = &piece.fields[ordinal];
            let codes = predicate_on_codes(&piece.page_entries(field, page)?, predicate);
            field.filter(page, &codes, false, rows, first, selection);
            Ok(())
        })
    }

    /// Description of the encoding of a field that refers to dictionaries of pages.
    pub(super) fn describe_page_dictionary(&self, field: &Field) -> String {
        let ordinal = field.page_dictionary_ordinal();
        let columns = self.fields.iter().filter(|other| other.page_dictionary_ordinal() == ordinal).count();
        let shared = if columns > 1 { format!(", shared by {columns} columns,") } else { String::new() };
        format!("dictionary of each page{shared} of bit_packed({})", field.record.width)
    }
}

#[cfg(test)]
mod tests {
    use taut_types::ColumnIndex;

    use super::*;

    #[test]
    fn entries_round_trip() {
        let dictionaries = [
            (1, vec![1, 2, 5, 1 << 40]),
            (-7, vec![]),
            (i64::MIN, vec![i64::MIN, -1, 0, i64::MAX]),
            (9, vec![9 + 127, 300]),
        ];
        let bytes = write(dictionaries.iter().cloned());
        for (ordinal, (base, entries)) in dictionaries.iter().enumerate() {
            assert_eq!(parse(&bytes, 4, ordinal, *base).as_ref(), Some(entries), "dictionary {ordinal}");
        }
        let gap_bytes = |gaps: &[u64]| gaps.iter().map(|gap| distance_bytes(*gap)).sum::<usize>();
        assert_eq!(
            bytes.len(),
            4 * DIRECTORY_ENTRY_BYTES + gap_bytes(&[0, 1, 3, (1 << 40) - 5, 0, i64::MAX as u64, 1, 1 << 62, 127, 164])
        );
    }

    #[test]
    fn corrupt_bytes_are_rejected_or_give_ascending_entries() {
        let bytes = write([(0, vec![3, 200, 90_000]), (5, vec![6])].into_iter());
        for at in 0..bytes.len() {
            for value in [0, 1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                for (ordinal, base) in [(0, 0), (1, 5), (1, i64::MAX)] {
                    let entries = parse(&damaged, 2, ordinal, base).unwrap_or_default();
                    assert!(entries.is_sorted_by(|left, right| left < right), "byte {at} is {value}");
                }
            }
        }
        assert_eq!(parse(&bytes, 2, 1, i64::MAX), None);
        // One entry in bytes 8 to 18. Each of these bytes announces another group.
        let endless = [&1_u32.to_le_bytes()[..], &[19, 0, 0, 0], &[0xff; 11]].concat();
        assert_eq!(parse(&endless, 1, 0, 0), None);
    }

    #[test]
    fn predicates_become_predicates_on_codes() {
        let entries = [1, 2, 5, 9, 100];
        let predicates = [
            DatumPredicate::Range { low: 2, high: 9 },
            DatumPredicate::Range { low: 3, high: 4 },
            DatumPredicate::Range { low: -5, high: 100 },
            DatumPredicate::Range { low: 101, high: i128::MAX },
            DatumPredicate::OneOf([2, 9, 77].into()),
        ];
        for predicate in predicates {
            for negated in [false, true] {
                let predicate = ColumnPredicate { column: ColumnIndex(0), condition: predicate.clone(), negated };
                let mut selection = Bitmap::all_set(entries.len());
                predicate_on_codes(&entries, &predicate).apply(0..entries.len(), &mut selection, |row| row as u64);
                for (row, entry) in entries.iter().enumerate() {
                    assert_eq!(
                        selection.get(row),
                        predicate.admits(Some(&Datum::Number((*entry).into()))),
                        "{predicate:?} {entry}"
                    );
                }
            }
        }
    }
}
