//! Values out of slotted pages.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;

use super::{Attribute, Page, Shape, SlottedPiece, key_of, wide_key_of};
use crate::BlockError;
use crate::groups::output::{Native, Output, Values, with_natives, wrong};
use crate::selection::{PageRows, Rows};

/// Where a value of variable width lies.
pub(super) enum Variable {
    Null,
    /// In the page.
    Page(Range<usize>),
    /// In an overflow section.
    Elsewhere(Buffer, Range<usize>),
}

impl SlottedPiece<'_> {
    /// The columns at these places, for some rows. Pages are visited once, each for all columns.
    pub fn read(&mut self, places: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        let mut outputs: Vec<Output> = places.iter().map(|place| Output::new(self.types[*place], rows.len())).collect();
        let page_ends = std::mem::take(&mut self.directory.page_ends);
        let mut tuples = vec![];
        let result = rows.by_page(&page_ends, |number, part| {
            let count = if number == 0 { page_ends[0] } else { page_ends[number] - page_ends[number - 1] };
            let page = self.page_of(number, count as usize)?;
            tuples.clear();
            // Slots are looked up once for all columns.
            part.each(|row| tuples.push(self.slot(&page.bytes, row)));
            let mut columns = places.iter().zip(&mut outputs);
            columns.try_for_each(|(place, output)| self.append(*place, &page, &part, &tuples, output))
        });
        self.directory.page_ends = page_ends;
        result?;
        let finish = |output: Output| output.finish(None);
        let arrays = outputs.into_iter().map(finish);
        arrays.map(|array| array.map_err(|expected| self.pages.corrupt(0, wrong(0, expected)))).collect()
    }

    fn append(
        &mut self,
        place: usize,
        page: &Page,
        rows: &PageRows<'_>,
        tuples: &[usize],
        output: &mut Output,
    ) -> Result<(), BlockError> {
        let bytes = page.bytes.as_slice();
        match (self.shape.attributes[place], &mut output.values) {
            (Attribute::Fixed { at, width: 16 }, Values::Decimals(vector)) => {
                vector.extend(tuples.iter().map(|tuple| wide_key_of(bytes, tuple + at)));
            }
            (Attribute::Fixed { at, width }, values) => {
                with_natives!(values, vector => extend(vector, bytes, tuples, at, width), else {});
            }
            (Attribute::Variable { .. }, Values::Text(_)) => return self.append_text(place, page, rows, output),
            (Attribute::Variable { .. }, _) => {}
        }
        for tuple in tuples {
            output.nulls.append(!Shape::is_null(&bytes[*tuple..], place));
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
        let mut left = page.bytes.len();
        rows.try_each(|row| {
            let value = self.variable(place, page, row)?;
            output.nulls.append(!matches!(value, Variable::Null));
            // Damage may let values share bytes; then they could have more in all than there is memory.
            let is_too_long = match &value {
                Variable::Null => false,
                Variable::Page(range) => {
                    let is_too_long = range.len() > left;
                    left = left.saturating_sub(range.len());
                    is_too_long
                }
                Variable::Elsewhere(_, range) => {
                    output.referred += range.len();
                    output.referred > self.pages.overflow_bytes
                }
            };
            if is_too_long {
                return Err(self.pages.corrupt(page.section, wrong(0, "values that share no bytes")));
            }
            match value {
                Variable::Null => text.push(&[]),
                Variable::Page(range) => text.push(&page.bytes[range]),
                Variable::Elsewhere(bytes, range) => text.push(&bytes[range]),
            }
            Ok(())
        })
    }

    /// Finds a value of variable width.
    #[inline]
    pub(super) fn variable(&mut self, place: usize, page: &Page, row: usize) -> Result<Variable, BlockError> {
        let Attribute::Variable { end_at, before } = self.shape.attributes[place] else { return Ok(Variable::Null) };
        let tuple_at = self.slot(&page.bytes, row);
        let tuple = &page.bytes[tuple_at..];
        if Shape::is_null(tuple, place) {
            return Ok(Variable::Null);
        }
        let bit = self.shape.reference_bit();
        let start = match before {
            Some(before) => self.shape.offset(tuple, before) & (bit - 1),
            None => self.shape.fixed_bytes,
        };
        let end = self.shape.offset(tuple, end_at);
        let (is_reference, end) = (end & bit != 0, end & (bit - 1));
        if start > end || end > tuple.len() {
            let corrupt = wrong(tuple_at + end_at, "a value inside the page");
            return Err(self.pages.corrupt(page.section, corrupt));
        }
        let value = tuple_at + start..tuple_at + end;
        if !is_reference {
            return Ok(Variable::Page(value));
        }
        match self.pages.overflow(&page.bytes[value])? {
            Some((bytes, range)) => Ok(Variable::Elsewhere(bytes, range)),
            None => {
                let corrupt = wrong(tuple_at + start, "a reference to a value of the piece");
                Err(self.pages.corrupt(page.section, corrupt))
            }
        }
    }
}

/// Appends the attribute of `width` bytes at offset `at` of each tuple.
fn extend<N: Native>(vector: &mut Vec<N>, bytes: &[u8], tuples: &[usize], at: usize, width: usize) {
    match width {
        1 => vector.extend(tuples.iter().map(|tuple| N::of(key_of(bytes, tuple + at, 1)))),
        2 => vector.extend(tuples.iter().map(|tuple| N::of(key_of(bytes, tuple + at, 2)))),
        4 => vector.extend(tuples.iter().map(|tuple| N::of(key_of(bytes, tuple + at, 4)))),
        _ => vector.extend(tuples.iter().map(|tuple| N::of(key_of(bytes, tuple + at, 8)))),
    }
}
