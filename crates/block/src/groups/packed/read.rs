//! Values out of packed pages: whole columns, single rows, inline bytes.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;

use super::bits::{NARROW_BITS, is_set, load, load_narrow, load_wide, mask};
use super::field::{Field, FieldValues};
use super::symbols::Symbols;
use super::{PackedPiece, Page};
use crate::BlockError;
use crate::groups::output::{Native, Output, Values, with_natives, wrong};
use crate::groups::pages::REFERENCE_BYTES;
use crate::selection::{PageRows, Rows};

/// Where an inline value lies.
enum Inline {
    Null,
    /// In the page.
    Page(Range<usize>),
    /// In an overflow section.
    Elsewhere(Buffer, Range<usize>),
}

impl PackedPiece<'_> {
    /// The columns at these places, for some rows. Pages are visited once, each for all columns.
    pub fn read(&mut self, places: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        let output = |place: &usize| {
            let field = &self.fields[*place];
            match &field.values {
                FieldValues::Nulls => Output::of_nulls(field.logical),
                FieldValues::Dictionary { .. } => Output::of_codes(field.logical, rows.len()),
                _ => Output::new(field.logical, rows.len()),
            }
        };
        let mut outputs: Vec<Output> = places.iter().map(output).collect();
        let page_ends = std::mem::take(&mut self.directory.page_ends);
        let result = rows.by_page(&page_ends, |number, part| {
            let count = if number == 0 { page_ends[0] } else { page_ends[number] - page_ends[number - 1] };
            let page = self.page_of(number, count as usize)?;
            places.iter().zip(&mut outputs).try_for_each(|(place, output)| self.append(*place, &page, &part, output))
        });
        self.directory.page_ends = page_ends;
        result?;
        let arrays = places.iter().zip(outputs).map(|(place, output)| {
            let array = output.finish(self.fields[*place].dictionary());
            array.map_err(|expected| self.pages.corrupt(0, wrong(0, expected)))
        });
        arrays.collect()
    }

    fn append(
        &mut self,
        place: usize,
        page: &Page,
        rows: &PageRows<'_>,
        output: &mut Output,
    ) -> Result<(), BlockError> {
        let field = &self.fields[place];
        if matches!(output.values, Values::Text(_)) {
            return self.append_text(place, page, rows, output);
        }
        append_numbers(field, page, rows, output);
        let tuples = page.tuples();
        match field.null_bit {
            Some(null_bit) => {
                rows.each(|row| output.nulls.append(!is_set(tuples.bytes, row * tuples.stride + null_bit)));
            }
            None => output.nulls.append_n_non_nulls(rows.len()),
        }
        Ok(())
    }

    fn append_text(
        &mut self,
        place: usize,
        page: &Page,
        rows: &PageRows<'_>,
        output: &mut Output,
    ) -> Result<(), BlockError> {
        let Values::Text(text) = &mut output.values else { return Ok(()) };
        let mut left = page.heap.len();
        rows.try_each(|row| {
            let value = self.inline(place, page, row)?;
            output.nulls.append(!matches!(value, Inline::Null));
            // Damage may let values share bytes; then they could have more in all than there is memory.
            let is_too_long = match &value {
                Inline::Null => false,
                Inline::Page(range) => {
                    let is_too_long = range.len() > left;
                    left = left.saturating_sub(range.len());
                    is_too_long
                }
                Inline::Elsewhere(_, range) => {
                    output.referred += range.len();
                    output.referred > self.pages.overflow_bytes
                }
            };
            if is_too_long {
                return Err(self.pages.corrupt(page.section, wrong(page.heap.start, "values that share no bytes")));
            }
            match (value, &self.fields[place].values) {
                (Inline::Null, _) => text.push(&[]),
                (Inline::Elsewhere(bytes, range), _) => text.push(&bytes[range]),
                (Inline::Page(range), FieldValues::Inline { symbols: Some(symbols), .. }) => {
                    let codes = &page.bytes[range];
                    text.push_with(Symbols::bytes_max(codes.len()), |room| symbols.decompress(codes, room));
                }
                (Inline::Page(range), _) => text.push(&page.bytes[range]),
            }
            Ok(())
        })
    }

    /// Calls `visit` with an inline value, `None` for null.
    pub(super) fn with_inline<T>(
        &mut self,
        place: usize,
        page: &Page,
        row: usize,
        scratch: &mut Vec<u8>,
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, BlockError> {
        Ok(match self.inline(place, page, row)? {
            Inline::Null => visit(None),
            Inline::Elsewhere(bytes, range) => visit(Some(&bytes[range])),
            Inline::Page(range) => match &self.fields[place].values {
                FieldValues::Inline { symbols: Some(symbols), .. } => {
                    let codes = &page.bytes[range];
                    scratch.resize(scratch.len().max(Symbols::bytes_max(codes.len())), 0);
                    let length = symbols.decompress(codes, scratch);
                    visit(Some(&scratch[..length]))
                }
                _ => visit(Some(&page.bytes[range])),
            },
        })
    }

    /// Finds the value of an inline field.
    #[inline]
    fn inline(&mut self, place: usize, page: &Page, row: usize) -> Result<Inline, BlockError> {
        let field = &self.fields[place];
        let FieldValues::Inline { before, .. } = &field.values else { return Ok(Inline::Null) };
        let tuples = page.tuples();
        let (bytes, tuple) = (tuples.bytes, row * tuples.stride);
        if field.null_bit.is_some_and(|null_bit| is_set(bytes, tuple + null_bit)) {
            return Ok(Inline::Null);
        }
        let start = match before.in_previous_tuple {
            true if row == 0 => 0,
            true => load_narrow(bytes, tuple - tuples.stride + before.value_bit) & mask(before.width),
            false => load_narrow(bytes, tuple + before.value_bit) & mask(before.width),
        };
        let end = load_narrow(bytes, tuple + field.value_bit) & mask(field.record.width);
        // Both have at most 32 bits.
        let value = page.heap.start + start as usize..page.heap.start + end as usize;
        if value.start > value.end || value.end > page.heap.end {
            return Err(self.pages.corrupt(page.section, wrong(value.start, "an inline value inside the heap")));
        }
        if field.overflow_bit.is_some_and(|overflow_bit| is_set(bytes, tuple + overflow_bit)) {
            let at = value.start;
            let found = match value.len() {
                REFERENCE_BYTES => self.pages.overflow(&page.bytes[value])?,
                _ => None,
            };
            return match found {
                Some((bytes, range)) => Ok(Inline::Elsewhere(bytes, range)),
                None => Err(self.pages.corrupt(page.section, wrong(at, "a reference to a value of the piece"))),
            };
        }
        Ok(Inline::Page(value))
    }
}

/// Appends the numbers or codes of a field.
fn append_numbers(field: &Field, page: &Page, rows: &PageRows<'_>, output: &mut Output) {
    let width = field.record.width;
    match &mut output.values {
        Values::Nulls(count) => *count += rows.len(),
        // At most 16 bits.
        Values::Codes(codes) => extend(field, page, rows, codes, |code| code as u32),
        Values::Decimals(vector) if width > 64 || field.logical.plain_bytes() == Some(16) => {
            let base = field.record.base;
            if width <= 64 {
                return extend(field, page, rows, vector, |distance| base.wrapping_add(i128::from(distance)));
            }
            let tuples = page.tuples();
            rows.each(|row| {
                let distance = load_wide(tuples.bytes, row * tuples.stride + field.value_bit, width);
                vector.push(base.wrapping_add(distance as i128));
            });
        }
        values => {
            // Parsing has checked that the base of a type of at most 64 bits fits them.
            let base = field.record.base as i64;
            with_natives!(values, vector => {
                extend(field, page, rows, vector, |distance| Native::of(base.wrapping_add(distance as i64)));
            }, else {});
        }
    }
}

#[inline(always)]
fn extend<T>(field: &Field, page: &Page, rows: &PageRows<'_>, vector: &mut Vec<T>, value: impl Fn(u64) -> T) {
    let (tuples, width, bit) = (page.tuples(), field.record.width, field.value_bit);
    match rows {
        PageRows::Range(rows) => tuples.extend(rows.clone(), bit, width, vector, value),
        PageRows::Positions { .. } => {
            let mask = mask(width);
            if width <= NARROW_BITS {
                rows.each(|row| vector.push(value(load_narrow(tuples.bytes, row * tuples.stride + bit) & mask)));
            } else {
                rows.each(|row| vector.push(value(load(tuples.bytes, row * tuples.stride + bit) & mask)));
            }
        }
    }
}
