//! Reads values from packed pages: whole columns, single rows, inline bytes.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use taut_encoding::{LINE_BYTES, prefetch};

use super::bits::{NARROW_BITS, Tuples, is_set, load, load_narrow, load_wide, mask};
use super::field::{Field, FieldValues, InlineStart};
use super::symbols::Symbols;
use super::{PAGE_HEAD_BYTES, PackedPage, PackedPages};
use crate::BlockError;
use crate::bytes::u32_at;
use crate::error::corrupt_at;
use crate::groups::field_predicate::BytesPredicate;
use crate::groups::output::{Output, StoredNumber, Values, with_numbers};
use crate::groups::pages::PREFETCHED_LINES_MAX;
use crate::selection::{PageRows, Rows};

impl PackedPages<'_> {
    /// Reads the columns with these ordinals in the given rows. Each page is loaded once for all columns.
    pub fn read(&mut self, ordinals: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        let output = |ordinal: &usize| {
            let field = &self.fields[*ordinal];
            match &field.values {
                FieldValues::Nulls => Output::of_nulls(field.logical),
                FieldValues::Dictionary { .. } => Output::of_codes(field.logical, rows.len()),
                _ => Output::new(field.logical, rows.len()),
            }
        };
        let mut outputs: Vec<Output> = ordinals.iter().map(output).collect();
        let page_ends = std::mem::take(&mut self.directory.page_ends);
        let tuple_bits = self.directory.tuple_bits;
        let tuple = 0..tuple_bits.div_ceil(8).max(1);
        // If no page has dictionaries, their length is not read from the heads of pages.
        let has_dictionaries = self.page_dictionaries > 0;
        let prefetched = self.pages.prefetch_rows(
            rows,
            &page_ends,
            tuple,
            |_, _| 0,
            |page, row| {
                let dictionary_bytes = if has_dictionaries && page.len() >= 8 { u32_at(page, 4) as usize } else { 0 };
                Some(PAGE_HEAD_BYTES + dictionary_bytes + row * tuple_bits / 8)
            },
        );
        let result = prefetched.and_then(|is_sparse| {
            // Pages that are loaded, but whose rows are not appended yet.
            let mut pages = vec![];
            rows.for_each_page(&page_ends, |number, part| {
                let count = if number == 0 { page_ends[0] } else { page_ends[number] - page_ends[number - 1] };
                pages.push((self.checked_page(number, count as usize)?, part));
                if is_sparse {
                    return Ok(());
                }
                let appended = self.append_columns(ordinals, &pages, &mut outputs);
                pages.clear();
                appended
            })?;
            // If few rows of each page are read, it is faster to append column by column, each from all pages.
            self.append_columns(ordinals, &pages, &mut outputs)
        });
        self.directory.page_ends = page_ends;
        result?;
        let arrays = ordinals.iter().zip(outputs).map(|(ordinal, output)| {
            let array = output.finish(self.fields[*ordinal].dictionary());
            array.map_err(|expected| self.pages.corrupt_error(0, corrupt_at(0, expected)))
        });
        arrays.collect()
    }

    fn append_columns(
        &mut self,
        ordinals: &[usize],
        pages: &[(PackedPage, PageRows<'_>)],
        outputs: &mut [Output],
    ) -> Result<(), BlockError> {
        for (ordinal, output) in ordinals.iter().zip(outputs) {
            for (page, rows) in pages {
                self.append(*ordinal, page, rows, output)?;
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        ordinal: usize,
        page: &PackedPage,
        rows: &PageRows<'_>,
        output: &mut Output,
    ) -> Result<(), BlockError> {
        if matches!(output.values, Values::Text(_)) {
            self.append_text(ordinal, page, rows, output)?;
        }
        let field = &self.fields[ordinal];
        if field.page_dictionary_ordinal().is_some() {
            let table = self.padded_page_entries(field, page)?;
            with_numbers!(&mut output.values, vector => {
                append_field(field, page, rows, vector, |code| StoredNumber::from_stored(table[code as usize]));
            }, else {});
        } else {
            append_numbers(field, page, rows, output);
        }
        let tuples = page.tuples();
        match field.null_bit {
            Some(null_bit) => {
                rows.for_each(|row| output.nulls.append(!is_set(tuples.bytes, row * tuples.stride + null_bit)));
            }
            None => output.nulls.append_n_non_nulls(rows.len()),
        }
        Ok(())
    }

    /// Appends inline values. Appends an empty value for a null row.
    fn append_text(
        &mut self,
        ordinal: usize,
        page: &PackedPage,
        rows: &PageRows<'_>,
        output: &mut Output,
    ) -> Result<(), BlockError> {
        let Values::Text(text) = &mut output.values else { return Ok(()) };
        let overflow_bytes = &mut output.overflow_bytes;
        let heap = page.heap();
        let mut value_ranges = std::mem::take(&mut self.value_ranges);
        value_ranges.clear();
        if !matches!(rows, PageRows::Range(_)) {
            // Values that are far apart are prefetched together, so that their cache misses overlap.
            let field = &self.fields[ordinal];
            rows.for_each(|row| {
                let value = page.inline_range(field, row);
                let bytes = heap.get(value.clone()).unwrap_or_default();
                prefetch(&bytes[..bytes.len().min(PREFETCHED_LINES_MAX * LINE_BYTES)]);
                value_ranges.push(value);
            });
        }
        let mut values = value_ranges.iter();
        let mut heap_bytes_left = heap.len();
        let appended = rows.try_for_each(|row| {
            let field = &self.fields[ordinal];
            let value = values.next().cloned().unwrap_or_else(|| page.inline_range(field, row));
            let Some(value) = heap.get(value) else { return Err(self.corrupt_inline(page)) };
            if field.is_overflow(page, row) {
                let (bytes, range) = self.overflow(page, value)?;
                *overflow_bytes += range.len();
                if *overflow_bytes > self.pages.overflow_bytes {
                    return Err(self.corrupt_inline(page));
                }
                text.push(&bytes[range]);
                return Ok(());
            }
            // In a damaged page, values may overlap. Their total length could then exceed memory.
            heap_bytes_left = heap_bytes_left.checked_sub(value.len()).ok_or_else(|| self.corrupt_inline(page))?;
            match &field.values {
                FieldValues::Inline { symbols: Some(symbols), .. } => {
                    text.push_with(Symbols::bytes_max(value.len()), |free| symbols.decompress(value, free));
                }
                _ => text.push(value),
            }
            Ok(())
        });
        self.value_ranges = value_ranges;
        appended
    }

    /// Whether an inline value passes a predicate. The value must not be null.
    pub(super) fn admits_inline(
        &mut self,
        ordinal: usize,
        page: &PackedPage,
        row: usize,
        predicate: &BytesPredicate<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, BlockError> {
        let field = &self.fields[ordinal];
        let Some(value) = page.heap().get(page.inline_range(field, row)) else { return Err(self.corrupt_inline(page)) };
        if field.is_overflow(page, row) {
            let (bytes, range) = self.overflow(page, value)?;
            return Ok(predicate.admits(&bytes[range]));
        }
        Ok(match &field.values {
            FieldValues::Inline { symbols: Some(symbols), .. } => {
                scratch.resize(scratch.len().max(Symbols::bytes_max(value.len())), 0);
                let length = symbols.decompress(value, scratch);
                predicate.admits(&scratch[..length])
            }
            _ => predicate.admits(value),
        })
    }

    /// Returns the overflow section to which a reference points, and the range of the value in it.
    fn overflow(&mut self, page: &PackedPage, reference: &[u8]) -> Result<(Buffer, Range<usize>), BlockError> {
        self.pages.overflow(reference)?.ok_or_else(|| self.corrupt_inline(page))
    }

    #[cold]
    fn corrupt_inline(&self, page: &PackedPage) -> BlockError {
        self.pages.corrupt_error(page.section, corrupt_at(page.heap.start, "inline values that do not overlap"))
    }
}

impl Field {
    /// Whether the bytes of an inline value are a reference to an overflow section.
    #[inline(always)]
    fn is_overflow(&self, page: &PackedPage, row: usize) -> bool {
        let tuples = page.tuples();
        self.overflow_bit.is_some_and(|overflow_bit| is_set(tuples.bytes, row * tuples.stride + overflow_bit))
    }
}

impl PackedPage {
    /// Bytes of the inline values of the page.
    fn heap(&self) -> &[u8] {
        &self.bytes[self.heap.clone()]
    }

    /// Range of an inline value in the heap. In a damaged page the range may exceed the heap.
    #[inline(always)]
    fn inline_range(&self, field: &Field, row: usize) -> Range<usize> {
        let FieldValues::Inline { start, .. } = &field.values else { return 0..0 };
        let preceding = match start {
            InlineStart::AfterPreceding(preceding) => preceding,
            InlineStart::ByLengths(lengths) => return lengths.value_range(self, row),
        };
        let Tuples { bytes, stride } = self.tuples();
        let tuple = row * stride;
        let start = match preceding.in_previous_tuple {
            true if row == 0 => 0,
            true => load_narrow(bytes, tuple - stride + preceding.value_bit) & mask(preceding.width),
            false => load_narrow(bytes, tuple + preceding.value_bit) & mask(preceding.width),
        };
        let end = load_narrow(bytes, tuple + field.value_bit) & mask(field.record.width);
        // Start and end have at most 32 bits.
        start as usize..end as usize
    }
}

/// Appends the numbers or codes of a field.
fn append_numbers(field: &Field, page: &PackedPage, rows: &PageRows<'_>, output: &mut Output) {
    let width = field.record.width;
    match &mut output.values {
        Values::Text(_) => {}
        Values::Nulls(count) => *count += rows.len(),
        // Codes have at most 16 bits.
        Values::Codes(codes) => append_field(field, page, rows, codes, |code| code as u32),
        Values::Decimals(vector) if width > 64 || field.logical.plain_bytes() == Some(16) => {
            let base = field.record.base;
            if width <= 64 {
                return append_field(field, page, rows, vector, |distance| base.wrapping_add(i128::from(distance)));
            }
            let tuples = page.tuples();
            rows.for_each(|row| {
                let distance = load_wide(tuples.bytes, row * tuples.stride + field.value_bit, width);
                vector.push(base.wrapping_add(distance as i128));
            });
        }
        values => {
            // The type has at most 64 bits. Parsing has checked that the base fits them.
            let base = field.record.base as i64;
            with_numbers!(values, vector => {
                append_field(field, page, rows, vector, |distance| StoredNumber::from_stored(base.wrapping_add(distance as i64)));
            }, else {});
        }
    }
}

#[inline(always)]
fn append_field<T>(
    field: &Field,
    page: &PackedPage,
    rows: &PageRows<'_>,
    vector: &mut Vec<T>,
    value: impl Fn(u64) -> T,
) {
    let (tuples, width, bit) = (page.tuples(), field.record.width, field.value_bit);
    if rows.for_each_run(|run| tuples.extend(run, bit, width, vector, &value)) {
        return;
    }
    let mask = mask(width);
    if width <= NARROW_BITS {
        rows.for_each(|row| vector.push(value(load_narrow(tuples.bytes, row * tuples.stride + bit) & mask)));
    } else {
        rows.for_each(|row| vector.push(value(load(tuples.bytes, row * tuples.stride + bit) & mask)));
    }
}
