//! Builds the sections of a slotted piece (one column group of one segment).

use arrow_array::Array;
use taut_encoding::Choice;
use taut_types::{Encoding, LogicalType};

use super::{Attribute, FIELD_BYTES, PAGE_HEAD_BYTES, TupleLayout};
use crate::groups::pages::{Directory, INLINE_BYTES_MAX, Overflow, PAGE_ROWS_MIN, REFERENCE_BYTES};
use crate::values::{ColumnValues, Datums};
use crate::{BuildError, PAGE_BYTES};

/// Builds a piece of slotted rows. Returns its sections, and the end row (exclusive) of each page.
pub(crate) fn build(
    columns: &[(&ColumnValues, Choice, &str)],
    rows: usize,
) -> Result<(Vec<Vec<u8>>, Vec<u32>), BuildError> {
    for (_, choice, name) in columns {
        if let Choice::Forced(encoding) = choice
            && *encoding != Encoding::Plain
        {
            let reason = "slotted rows hold plain values";
            return Err(BuildError::Field { column: (*name).to_owned(), encoding: encoding.name(), reason });
        }
    }
    let types: Vec<LogicalType> = columns.iter().map(|(values, ..)| values.logical).collect();
    let lengths = variable_bytes(columns, rows);
    let variable_bytes_max = lengths.iter().copied().max().unwrap_or(0) as usize;
    let mut page_bytes = PAGE_BYTES;
    let layout = loop {
        let layout = TupleLayout::new(&types, page_bytes);
        if PAGE_HEAD_BYTES + PAGE_ROWS_MIN * (layout.fixed_bytes + variable_bytes_max + layout.slot_bytes) <= page_bytes
        {
            break layout;
        }
        page_bytes *= 2;
    };
    let mut writer = Writer {
        columns,
        layout,
        page_bytes,
        overflow: Overflow::default(),
        stored_bytes: vec![0; columns.len()],
        starts: vec![],
    };
    let (mut sections, mut page_ends) = (vec![vec![]], vec![]);
    let mut first = 0;
    while first < rows {
        let end = writer.page_end(&lengths, first);
        sections.push(writer.build_page(first..end)?);
        page_ends.push(end as u32);
        first = end;
    }
    let directory = Directory {
        page_bytes,
        page_ends: page_ends.clone(),
        overflows: writer.overflow.sections.len(),
        tuple_bits: 8 * writer.layout.fixed_bytes,
        fields: 0..0,
        tables_at: 0,
    };
    let mut fields = vec![];
    for (bytes, (values, ..)) in writer.stored_bytes.iter().zip(columns) {
        // A segment has at most 65,536 rows, so the upper four bytes of the count are zero.
        let nulls = values.nulls().map_or(0, |nulls| nulls.null_count() as u64);
        fields.extend_from_slice(&bytes.to_le_bytes());
        fields.extend_from_slice(&nulls.to_le_bytes());
    }
    sections[0] = directory.write(rows, &fields, FIELD_BYTES);
    sections.append(&mut writer.overflow.sections);
    Ok((sections, page_ends))
}

/// For each row, the bytes that its values of variable width take in the tuple. A value in an overflow section takes
/// the bytes of its reference.
fn variable_bytes(columns: &[(&ColumnValues, Choice, &str)], rows: usize) -> Vec<u32> {
    let mut lengths = vec![0; rows];
    for (values, ..) in columns {
        let Datums::Bytes(views) = &values.datums else { continue };
        for (row, view) in views.views().iter().enumerate() {
            if !values.is_null(row) {
                let length = *view as u32;
                lengths[row] += if length as usize > INLINE_BYTES_MAX { REFERENCE_BYTES as u32 } else { length };
            }
        }
    }
    lengths
}

/// Writer of the pages of a piece.
struct Writer<'a> {
    columns: &'a [(&'a ColumnValues, Choice, &'a str)],
    layout: TupleLayout,
    page_bytes: usize,
    overflow: Overflow,
    /// Bytes of each column, in tuples and overflow sections.
    stored_bytes: Vec<u64>,
    /// Offset of each tuple in the page that is being written.
    starts: Vec<usize>,
}

impl Writer<'_> {
    /// End (exclusive) of the rows that fit into a page that begins with row `first`.
    fn page_end(&self, lengths: &[u32], first: usize) -> usize {
        let mut free = self.page_bytes - PAGE_HEAD_BYTES;
        let fits = |length: &&u32| {
            let needed = self.layout.fixed_bytes + **length as usize + self.layout.slot_bytes;
            let fits = needed <= free;
            free -= needed.min(free);
            fits
        };
        first + lengths[first..].iter().take_while(fits).count()
    }

    fn build_page(&mut self, rows: std::ops::Range<usize>) -> Result<Vec<u8>, BuildError> {
        let mut bytes = vec![0; self.page_bytes];
        bytes[..4].copy_from_slice(&(rows.len() as u32).to_le_bytes());
        let mut at = PAGE_HEAD_BYTES;
        self.starts.clear();
        for row in rows.clone() {
            self.starts.push(at);
            at = self.write_variable(&mut bytes, row, at)?;
        }
        bytes[4..8].copy_from_slice(&(at as u32).to_le_bytes());
        let slot_bytes = self.layout.slot_bytes;
        for (row, start) in self.starts.iter().enumerate() {
            let slot_at = self.page_bytes - (row + 1) * slot_bytes;
            bytes[slot_at..slot_at + slot_bytes].copy_from_slice(&(*start as u32).to_le_bytes()[..slot_bytes]);
        }
        for ordinal in 0..self.columns.len() {
            self.write_fixed(&mut bytes, ordinal, rows.clone());
        }
        Ok(bytes)
    }

    /// Writes the ends and bytes of the variable-width attributes of one row. Returns the offset at which its tuple
    /// ends.
    fn write_variable(&mut self, bytes: &mut [u8], row: usize, tuple: usize) -> Result<usize, BuildError> {
        let mut end = self.layout.fixed_bytes;
        let slot_bytes = self.layout.slot_bytes;
        for (ordinal, (values, ..)) in self.columns.iter().enumerate() {
            let (Attribute::Variable { end_at, .. }, Datums::Bytes(views)) =
                (self.layout.attributes[ordinal], &values.datums)
            else {
                continue;
            };
            let mut flag = 0;
            if !views.is_null(row) {
                let value: &[u8] = views.value(row);
                let start = tuple + end;
                if value.len() > INLINE_BYTES_MAX {
                    bytes[start..start + REFERENCE_BYTES].copy_from_slice(&self.overflow.push(value)?);
                    flag = self.layout.reference_bit();
                    end += REFERENCE_BYTES;
                } else {
                    bytes[start..start + value.len()].copy_from_slice(value);
                    end += value.len();
                }
                self.stored_bytes[ordinal] += value.len() as u64;
            }
            self.stored_bytes[ordinal] += slot_bytes as u64;
            let field = ((end | flag) as u32).to_le_bytes();
            bytes[tuple + end_at..tuple + end_at + slot_bytes].copy_from_slice(&field[..slot_bytes]);
        }
        Ok(tuple + end)
    }

    /// Writes the nulls of one column, and its values if they have fixed width, into the tuples of a page.
    fn write_fixed(&mut self, bytes: &mut [u8], ordinal: usize, rows: std::ops::Range<usize>) {
        let (values, ..) = self.columns[ordinal];
        if let Some(nulls) = values.nulls() {
            for (row, tuple) in rows.clone().zip(&self.starts) {
                bytes[tuple + ordinal / 8] |= u8::from(nulls.is_null(row)) << (ordinal % 8);
            }
        }
        let Attribute::Fixed { at, width } = self.layout.attributes[ordinal] else { return };
        self.stored_bytes[ordinal] += (width * rows.len()) as u64;
        let is_valid = |row| !values.is_null(row);
        match &values.datums {
            Datums::Narrow(numbers) if values.nulls().is_none() => match width {
                1 => write_numbers::<1>(bytes, &self.starts, at, &numbers[rows]),
                2 => write_numbers::<2>(bytes, &self.starts, at, &numbers[rows]),
                4 => write_numbers::<4>(bytes, &self.starts, at, &numbers[rows]),
                _ => write_numbers::<8>(bytes, &self.starts, at, &numbers[rows]),
            },
            Datums::Narrow(numbers) => {
                for (row, tuple) in rows.zip(&self.starts).filter(|(row, _)| is_valid(*row)) {
                    bytes[tuple + at..tuple + at + width].copy_from_slice(&numbers[row].to_le_bytes()[..width]);
                }
            }
            Datums::Wide(numbers) => {
                for (row, tuple) in rows.zip(&self.starts).filter(|(row, _)| is_valid(*row)) {
                    bytes[tuple + at..tuple + at + width].copy_from_slice(&numbers[row].to_le_bytes());
                }
            }
            Datums::Bytes(_) => {}
        }
    }
}

/// Writes a number of `WIDTH` bytes at offset `at` of each tuple.
fn write_numbers<const WIDTH: usize>(bytes: &mut [u8], tuples: &[usize], at: usize, numbers: &[i64]) {
    for (tuple, number) in tuples.iter().zip(numbers) {
        bytes[tuple + at..tuple + at + WIDTH].copy_from_slice(&number.to_le_bytes()[..WIDTH]);
    }
}
