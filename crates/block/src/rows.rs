//! Encoding of a few rows outside of blocks, for a log of changes. The rows are encoded and decoded as a whole.
//!
//! ```text
//! offset  size         field
//! 0       4            rows         u32
//! 4       (C + 7) / 8  has_nulls    bit c for column c; unused bits are zero
//!                      then, for each column in the order of the schema
//!         (rows+7)/8   nulls        bit r for row r, only if the column has nulls; unused bits are zero
//!                      a column of fixed width
//!         rows * w     numbers      (see `taut_types::datum`) in the type's plain width; zero under a null
//!                      a column of text or bytes
//!         rows * 4     lengths      u32; zero under a null
//!         ...          values       end to end
//! ```
//!
//! All integers are little-endian. The encoding is canonical: [`decode`] accepts only bytes that [`encode`] writes for
//! the decoded rows. It has no compression, because long-lived rows are stored in blocks. Callers add a checksum and a
//! version.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use taut_types::{Column, LogicalType, Schema};

use crate::builder::check_batch;
use crate::groups::output::{Output, StoredNumber, Text, Values, with_numbers};
use crate::values::{ColumnValues, Datums};
use crate::{BuildError, CorruptRows};

/// Appends the encoding of a batch of rows to `output`. The batch has the Arrow types of the schema.
///
/// # Errors
/// If the batch does not fit the schema, a decimal has more digits than its type, or there are 2^32 rows or more. In
/// these cases, nothing is appended.
pub fn encode(schema: &Schema, batch: &RecordBatch, output: &mut Vec<u8>) -> Result<(), BuildError> {
    check_batch(schema, batch)?;
    let found = batch.num_rows() as u64;
    let rows = u32::try_from(found).map_err(|_| BuildError::TooLarge { what: "rows", found })?;
    let start = output.len();
    output.extend_from_slice(&rows.to_le_bytes());
    append_bits(schema.len(), |column| batch.column(column).null_count() > 0, output);
    for (column, array) in schema.columns().iter().zip(batch.columns()) {
        let values = ColumnValues::for_column(Arc::clone(array), column).inspect_err(|_| output.truncate(start))?;
        append_column(&values, output);
    }
    Ok(())
}

/// Decodes rows that [`encode`] has encoded. The batch has the Arrow types of the schema. Memory use is at most a small
/// multiple of the length of `bytes`, even if the bytes are corrupt.
///
/// # Errors
/// If the bytes are not an encoding of rows of this schema.
pub fn decode(schema: &Arc<Schema>, bytes: &[u8]) -> Result<RecordBatch, CorruptRows> {
    let mut reader = Reader { bytes, at: 0 };
    let rows = reader.read_values(1, 4, "a count of rows")?;
    // `read_values` has returned exactly four bytes, so there is a first chunk.
    let rows = rows.as_chunks().0.first().map_or(0, |rows| u32::from_le_bytes(*rows)) as usize;
    let has_nulls = reader.read_bits(schema.len(), "a bit for each column")?;
    let mut arrays = Vec::with_capacity(schema.len());
    for (index, column) in schema.columns().iter().enumerate() {
        let nulls = if is_set(has_nulls, index) { reader.read_nulls(column, rows)? } else { None };
        arrays.push(reader.read_column(column.logical_type, rows, nulls)?);
    }
    if reader.at < bytes.len() {
        return Err(reader.corrupt_here("the end"));
    }
    RecordBatch::try_new(schema.arrow(), arrays).map_err(|_| CorruptRows { at: 0, expected: "columns of the schema" })
}

/// Appends a bitmap of `count` bits.
fn append_bits(count: usize, is_set: impl FnMut(usize) -> bool, output: &mut Vec<u8>) {
    let bits = BooleanBuffer::collect_bool(count, is_set);
    output.extend_from_slice(&bits.inner().as_slice()[..count.div_ceil(8)]);
}

fn append_column(values: &ColumnValues, output: &mut Vec<u8>) {
    if let Some(nulls) = values.nulls() {
        append_bits(values.rows(), |row| nulls.is_null(row), output);
    }
    match (&values.datums, values.logical.plain_bytes()) {
        // A number of a type of 8, 16 or 32 bits fits the integer to which it is cast.
        (Datums::Narrow(numbers), Some(1)) => {
            append_plain(numbers, |number| (number as i8).to_le_bytes(), values.nulls(), output)
        }
        (Datums::Narrow(numbers), Some(2)) => {
            append_plain(numbers, |number| (number as i16).to_le_bytes(), values.nulls(), output)
        }
        (Datums::Narrow(numbers), Some(4)) => {
            append_plain(numbers, |number| (number as i32).to_le_bytes(), values.nulls(), output)
        }
        (Datums::Narrow(numbers), _) => append_plain(numbers, i64::to_le_bytes, values.nulls(), output),
        (Datums::Wide(numbers), _) => append_plain(numbers, i128::to_le_bytes, values.nulls(), output),
        (Datums::Bytes(views), _) => {
            // The low 32 bits of a view are its length.
            append_plain(views.views(), |view| (view as u32).to_le_bytes(), values.nulls(), output);
            views.iter().flatten().for_each(|value| output.extend_from_slice(value));
        }
    }
}

/// Appends values in their plain width, with zeros under nulls.
fn append_plain<V: Copy, const WIDTH: usize>(
    values: &[V],
    plain: impl Fn(V) -> [u8; WIDTH],
    nulls: Option<&NullBuffer>,
    output: &mut Vec<u8>,
) {
    let start = output.len();
    output.resize(start + WIDTH * values.len(), 0);
    let slots = output[start..].as_chunks_mut().0;
    for (row, (slot, value)) in slots.iter_mut().zip(values).enumerate() {
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
            *slot = plain(*value);
        }
    }
}

/// Reader of encoded rows. `at` is the offset of the next byte to read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads the bytes of the next `count` values of `width` bytes each.
    fn read_values(&mut self, count: usize, width: usize, expected: &'static str) -> Result<&'a [u8], CorruptRows> {
        let length = count.checked_mul(width).filter(|length| *length <= self.bytes.len() - self.at);
        let length = length.ok_or_else(|| self.corrupt_here(expected))?;
        let values = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(values)
    }

    fn read_bits(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], CorruptRows> {
        let bits = self.read_values(count.div_ceil(8), 1, expected)?;
        if let Some(last) = bits.last().filter(|_| !count.is_multiple_of(8))
            && last >> (count % 8) != 0
        {
            return Err(CorruptRows { at: self.at - 1, expected: "unused bits that are zero" });
        }
        Ok(bits)
    }

    /// Reads the null bits of a column that has nulls.
    fn read_nulls(&mut self, column: &Column, rows: usize) -> Result<Option<NullBuffer>, CorruptRows> {
        if !column.nullable {
            return Err(self.corrupt_here("no nulls, because the column is not nullable"));
        }
        let at = self.at;
        let bits = self.read_bits(rows, "a bit for each row")?;
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| !is_set(bits, row)));
        match nulls.null_count() {
            0 => Err(CorruptRows { at, expected: "at least one null, because the column has nulls" }),
            _ => Ok(Some(nulls)),
        }
    }

    /// Reads the values of a column.
    fn read_column(
        &mut self,
        logical: LogicalType,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, CorruptRows> {
        // For text and bytes, these numbers are lengths.
        let width = logical.plain_bytes().unwrap_or(size_of::<u32>());
        let numbers_at = self.at;
        let numbers = self.read_values(rows, width, "a number for each row")?;
        let corrupt_number = |row: usize, expected| CorruptRows { at: numbers_at + row * width, expected };
        if let Some(nulls) = &nulls {
            let is_not_zero =
                |row: &usize| nulls.is_null(*row) && numbers[row * width..][..width].iter().any(|byte| *byte != 0);
            if let Some(row) = (0..rows).find(is_not_zero) {
                return Err(corrupt_number(row, "zero under a null"));
            }
        }
        let values_at = self.at;
        let mut column = match logical.is_bytes() {
            true => self.read_text(logical, numbers)?,
            false => {
                decode_numbers(logical, numbers, width).map_err(|(row, expected)| corrupt_number(row, expected))?
            }
        };
        match &nulls {
            Some(nulls) => column.nulls.append_buffer(nulls),
            None => column.nulls.append_n_non_nulls(rows),
        }
        let first_invalid_at = || values_at + valid_length(lengths_of(numbers), &self.bytes[values_at..self.at]);
        column.finish(None).map_err(|expected| CorruptRows { at: first_invalid_at(), expected })
    }

    /// Reads values of the given lengths, which are stored end to end.
    fn read_text(&mut self, logical: LogicalType, lengths: &[u8]) -> Result<Output, CorruptRows> {
        let mut end = 0_usize;
        let mut ends = Vec::with_capacity(lengths.len() / size_of::<u32>() + 1);
        ends.push(0);
        for length in lengths_of(lengths) {
            end = end.saturating_add(length);
            // If the values exceed the bytes, `read_values` fails below.
            ends.push(end as i64);
        }
        let heap = self.read_values(end, 1, "as many bytes as the lengths say")?;
        Ok(Output::of_text(logical, Text::from_parts(heap.to_vec(), ends)))
    }

    /// Error at the offset of the next byte.
    fn corrupt_here(&self, expected: &'static str) -> CorruptRows {
        CorruptRows { at: self.at, expected }
    }
}

fn is_set(bits: &[u8], index: usize) -> bool {
    bits[index / 8] >> (index % 8) & 1 != 0
}

fn lengths_of(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.as_chunks().0.iter().map(|length| u32::from_le_bytes(*length) as usize)
}

/// Number of bytes before the first value that is not valid UTF-8.
fn valid_length(lengths: impl Iterator<Item = usize>, values: &[u8]) -> usize {
    let mut at = 0;
    for length in lengths {
        if str::from_utf8(&values[at..at + length]).is_err() {
            break;
        }
        at += length;
    }
    at
}

/// Decodes numbers that are stored in the plain width of their type. The error is a row, and the value expected there.
fn decode_numbers(logical: LogicalType, bytes: &[u8], width: usize) -> Result<Output, (usize, &'static str)> {
    let mut output = Output::new(logical, bytes.len() / width);
    match (&mut output.values, width) {
        (Values::Decimals(values), 16) => {
            values.extend(bytes.as_chunks().0.iter().map(|number| i128::from_le_bytes(*number)));
        }
        (values, _) => with_numbers!(values, values => extend(values, bytes, width), else {}),
    }
    let first_invalid = match (&output.values, logical) {
        // Every byte except zero was read as true.
        (Values::Booleans(_), _) => bytes.iter().position(|byte| *byte > 1).map(|row| (row, "0 or 1")),
        (Values::Decimals(values), LogicalType::Decimal { precision, .. }) => {
            let limit = 10_u128.pow(precision.min(38).into());
            values.iter().position(|value| value.unsigned_abs() >= limit).map(|row| (row, "as many digits as the type"))
        }
        _ => None,
    };
    first_invalid.map_or(Ok(output), Err)
}

fn extend<N: StoredNumber>(values: &mut Vec<N>, bytes: &[u8], width: usize) {
    match width {
        1 => values.extend(bytes.iter().map(|number| N::from_stored((*number).into()))),
        2 => values.extend(bytes.as_chunks().0.iter().map(|number| N::from_stored(i16::from_le_bytes(*number).into()))),
        4 => values.extend(bytes.as_chunks().0.iter().map(|number| N::from_stored(i32::from_le_bytes(*number).into()))),
        _ => values.extend(bytes.as_chunks().0.iter().map(|number| N::from_stored(i64::from_le_bytes(*number)))),
    }
}
