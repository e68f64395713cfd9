//! Reads values from slotted pages.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;

use super::{Attribute, Checked, SlottedPage, SlottedPages, TupleLayout, read_number, read_wide_number};
use crate::BlockError;
use crate::error::corrupt_at;
use crate::groups::field_predicate::BytesPredicate;
use crate::groups::output::{Output, StoredNumber, Values, with_numbers};
use crate::selection::{PageRows, Rows};

/// If at most this many rows of a page are read, only their slots are checked, not all slots of the page.
const FEW_SLOTS_MAX: usize = 64;

impl SlottedPages<'_> {
    /// Reads the columns with these ordinals in the given rows. Each page is loaded once for all columns.
    pub fn read(&mut self, ordinals: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        let mut outputs: Vec<Output> =
            ordinals.iter().map(|ordinal| Output::new(self.types[*ordinal], rows.len())).collect();
        let page_ends = std::mem::take(&mut self.directory.page_ends);
        let fixed_bytes = self.layout.fixed_range(ordinals);
        let slot_at = |page: &[u8], row| self.layout.slot_at(page, row).unwrap_or(0);
        // Prefetches `fixed_bytes` of the tuples if the rows are far apart.
        let prefetched = self.pages.prefetch_rows(rows, &page_ends, fixed_bytes, slot_at, |page, row| {
            self.layout.unchecked_tuple_offset(page, row)
        });
        let result = prefetched.and_then(|is_sparse| {
            // Pages whose values are not copied yet, and the offsets of their tuples. Each slot is read once for all
            // columns.
            let (mut pages, mut tuples) = (vec![], vec![]);
            rows.for_each_page(&page_ends, |number, part| {
                let first = tuples.len();
                let page = self.load_tuples(number, &page_ends, &part, &mut tuples)?;
                pages.push((page, first..tuples.len()));
                if is_sparse {
                    return Ok(());
                }
                let appended = self.append_columns(ordinals, &pages, &tuples, &mut outputs);
                pages.clear();
                tuples.clear();
                appended
            })?;
            // If few rows of each page are read, copying column by column over all pages is faster.
            self.append_columns(ordinals, &pages, &tuples, &mut outputs)
        });
        self.directory.page_ends = page_ends;
        result?;
        let finish = |output: Output| output.finish(None);
        let arrays = outputs.into_iter().map(finish);
        arrays.map(|array| array.map_err(|expected| self.pages.corrupt_error(0, corrupt_at(0, expected)))).collect()
    }

    /// Loads a page, and appends the offsets of the tuples of `rows` to `tuples`.
    fn load_tuples(
        &mut self,
        number: usize,
        page_ends: &[u32],
        rows: &PageRows<'_>,
        tuples: &mut Vec<usize>,
    ) -> Result<SlottedPage, BlockError> {
        let count = if number == 0 { page_ends[0] } else { page_ends[number] - page_ends[number - 1] };
        // The slots of a few rows are checked one by one, because a page has about a thousand slots.
        let are_few = rows.len() <= FEW_SLOTS_MAX;
        let required = if are_few { Checked::Head } else { Checked::Slots };
        let page = self.checked_page(number, count as usize, required)?;
        let first = tuples.len();
        if !rows.for_each_run(|run| self.layout.append_tuple_offsets(&page.bytes, run, tuples)) {
            rows.for_each(|row| tuples.push(self.layout.tuple_offset(&page.bytes, row)));
        }
        if are_few && !tuples[first..].iter().all(|tuple| self.layout.is_tuple_at(&page.bytes, *tuple)) {
            return Err(self.pages.corrupt_error(page.section, corrupt_at(4, "offsets of tuples")));
        }
        Ok(page)
    }

    fn append_columns(
        &mut self,
        ordinals: &[usize],
        pages: &[(SlottedPage, Range<usize>)],
        tuples: &[usize],
        outputs: &mut [Output],
    ) -> Result<(), BlockError> {
        for (ordinal, output) in ordinals.iter().zip(outputs) {
            let has_nulls = self.has_nulls(*ordinal);
            for (page, rows) in pages {
                self.append(*ordinal, has_nulls, page, &tuples[rows.clone()], output)?;
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        ordinal: usize,
        has_nulls: bool,
        page: &SlottedPage,
        tuples: &[usize],
        output: &mut Output,
    ) -> Result<(), BlockError> {
        let bytes = page.bytes.as_slice();
        match (self.layout.attributes[ordinal], &mut output.values) {
            (Attribute::Fixed { at, width: 16 }, Values::Decimals(vector)) => {
                vector.extend(tuples.iter().map(|tuple| read_wide_number(bytes, tuple + at)));
            }
            (Attribute::Fixed { at, width }, values) => {
                with_numbers!(values, vector => append_attribute(vector, bytes, tuples, at, width), else {});
            }
            (Attribute::Variable { .. }, _) => self.append_text(ordinal, page, tuples, output)?,
        }
        if has_nulls {
            for tuple in tuples {
                output.nulls.append(!TupleLayout::is_null(&bytes[*tuple..], ordinal));
            }
        } else {
            output.nulls.append_n_non_nulls(tuples.len());
        }
        Ok(())
    }

    /// Appends values of variable width. Appends an empty value for a null row.
    fn append_text(
        &mut self,
        ordinal: usize,
        page: &SlottedPage,
        tuples: &[usize],
        output: &mut Output,
    ) -> Result<(), BlockError> {
        let Values::Text(text) = &mut output.values else { return Ok(()) };
        let mut bytes_left = page.bytes.len();
        for tuple in tuples {
            let stored = self.layout.variable_value(&page.bytes[*tuple..], ordinal);
            let (value, is_reference) = stored.ok_or_else(|| self.corrupt_value(page, *tuple))?;
            if is_reference {
                let (bytes, range) = self.overflow(page, *tuple, value)?;
                output.overflow_bytes += range.len();
                if output.overflow_bytes > self.pages.overflow_bytes {
                    return Err(self.corrupt_value(page, *tuple));
                }
                text.push(&bytes[range]);
                continue;
            }
            // In a corrupt page, values may overlap. Without this limit, their total length could exceed memory.
            bytes_left = bytes_left.checked_sub(value.len()).ok_or_else(|| self.corrupt_value(page, *tuple))?;
            text.push(value);
        }
        Ok(())
    }

    /// Whether a value of variable width that is not null passes a predicate.
    pub(super) fn admits_variable(
        &mut self,
        ordinal: usize,
        page: &SlottedPage,
        row: usize,
        predicate: &BytesPredicate<'_>,
    ) -> Result<bool, BlockError> {
        let tuple = self.layout.tuple_offset(&page.bytes, row);
        let stored = self.layout.variable_value(&page.bytes[tuple..], ordinal);
        let (value, is_reference) = stored.ok_or_else(|| self.corrupt_value(page, tuple))?;
        if !is_reference {
            return Ok(predicate.admits(value));
        }
        let (bytes, range) = self.overflow(page, tuple, value)?;
        Ok(predicate.admits(&bytes[range]))
    }

    /// Returns the overflow section to which a reference points, and the range of the value in it.
    fn overflow(
        &mut self,
        page: &SlottedPage,
        tuple: usize,
        reference: &[u8],
    ) -> Result<(Buffer, Range<usize>), BlockError> {
        self.pages.overflow(reference)?.ok_or_else(|| self.corrupt_value(page, tuple))
    }

    #[cold]
    fn corrupt_value(&self, page: &SlottedPage, tuple: usize) -> BlockError {
        self.pages.corrupt_error(page.section, corrupt_at(tuple, "values that do not overlap"))
    }
}

impl TupleLayout {
    /// Stored bytes of an attribute of variable width, and whether they are a reference to an overflow section. Returns
    /// `None` if the stored ends are corrupt.
    #[inline(always)]
    fn variable_value<'t>(&self, tuple: &'t [u8], ordinal: usize) -> Option<(&'t [u8], bool)> {
        let Attribute::Variable { end_at, previous_end_at } = self.attributes[ordinal] else { return None };
        let bit = self.reference_bit();
        let start = match previous_end_at {
            Some(at) => self.read_offset(tuple, at) & (bit - 1),
            None => self.fixed_bytes,
        };
        let end = self.read_offset(tuple, end_at);
        Some((tuple.get(start..end & (bit - 1))?, end & bit != 0))
    }
}

/// Appends to `vector` the attribute of `width` bytes at offset `at` of each tuple.
fn append_attribute<N: StoredNumber>(vector: &mut Vec<N>, bytes: &[u8], tuples: &[usize], at: usize, width: usize) {
    match width {
        1 => vector.extend(tuples.iter().map(|tuple| N::from_stored(read_number(bytes, tuple + at, 1)))),
        2 => vector.extend(tuples.iter().map(|tuple| N::from_stored(read_number(bytes, tuple + at, 2)))),
        4 => vector.extend(tuples.iter().map(|tuple| N::from_stored(read_number(bytes, tuple + at, 4)))),
        _ => vector.extend(tuples.iter().map(|tuple| N::from_stored(read_number(bytes, tuple + at, 8)))),
    }
}
