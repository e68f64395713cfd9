//! Encoding of a few rows outside of blocks, for a log of changes. The rows are encoded and decoded as a whole.
//!
//! ```text
//! offset  size         field
//! 0       4            rows         u32
//! 4       (C + 7) / 8  has_nulls    bit c for column c; unused bits are zero
//!                      then, for each column in the order of the schema
//!         (rows+7)/8   nulls        bit r for row r, only if the column has nulls; unused bits are zero
//!                      a column of fixed width
//!         rows * w     keys         (see `taut_types::datum`) in the type's plain width; zero under a null
//!                      a column of text or bytes
//!         rows * 4     lengths      u32; zero under a null
//!         ...          values       end to end
//! ```
//!
//! All integers are little-endian. The encoding is canonical: bytes decode only if encoding the decoded rows gives the
//! same bytes. It is not compressed, because long-lived rows are stored in blocks. Callers add a checksum and a
//! version.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use taut_types::{Column, LogicalType, Schema};

use crate::builder::check;
use crate::groups::output::{Native, Output, Text, Values, with_natives};
use crate::values::{ColumnValues, Datums};
use crate::{BuildError, CorruptRows};

/// Appends the encoding of a batch of rows to `into`. The batch has the Arrow types of the schema.
///
/// # Errors
/// If the batch does not fit the schema, a decimal has more digits than its type, or there are 2^32 rows or more. In
/// these cases, nothing is appended.
pub fn encode(schema: &Schema, batch: &RecordBatch, into: &mut Vec<u8>) -> Result<(), BuildError> {
    check(schema, batch)?;
    let found = batch.num_rows() as u64;
    let rows = u32::try_from(found).map_err(|_| BuildError::TooLarge { what: "rows", found })?;
    let start = into.len();
    into.extend_from_slice(&rows.to_le_bytes());
    append_bits(schema.len(), |column| batch.column(column).null_count() > 0, into);
    for (column, array) in schema.columns().iter().zip(batch.columns()) {
        let values = ColumnValues::of(Arc::clone(array), column).inspect_err(|_| into.truncate(start))?;
        append_column(&values, into);
    }
    Ok(())
}

/// Decodes rows that [`encode`] has encoded. The batch has the Arrow types of the schema. Memory use is at most a small
/// multiple of the length of `bytes`, even if they are corrupt.
///
/// # Errors
/// If the bytes are not an encoding of rows of this schema.
pub fn decode(schema: &Arc<Schema>, bytes: &[u8]) -> Result<RecordBatch, CorruptRows> {
    let mut reader = Reader { bytes, at: 0 };
    let rows = reader.take(1, 4, "a count of rows")?;
    // `take` has returned exactly four bytes, so there is a first chunk.
    let rows = rows.as_chunks().0.first().map_or(0, |rows| u32::from_le_bytes(*rows)) as usize;
    let has_nulls = reader.bits(schema.len(), "a bit for each column")?;
    let mut arrays = Vec::with_capacity(schema.len());
    for (index, column) in schema.columns().iter().enumerate() {
        let nulls = if is_set(has_nulls, index) { reader.nulls(column, rows)? } else { None };
        arrays.push(reader.column(column.logical_type, rows, nulls)?);
    }
    if reader.at < bytes.len() {
        return Err(reader.expected("the end"));
    }
    RecordBatch::try_new(schema.arrow(), arrays).map_err(|_| CorruptRows { at: 0, expected: "columns of the schema" })
}

fn append_bits(count: usize, is_set: impl FnMut(usize) -> bool, into: &mut Vec<u8>) {
    let bits = BooleanBuffer::collect_bool(count, is_set);
    into.extend_from_slice(&bits.inner().as_slice()[..count.div_ceil(8)]);
}

fn append_column(values: &ColumnValues, into: &mut Vec<u8>) {
    if let Some(nulls) = values.nulls() {
        append_bits(values.rows(), |row| nulls.is_null(row), into);
    }
    match (&values.datums, values.logical.plain_bytes()) {
        // A number of a type of 8, 16 or 32 bits fits the integer to which it is cast.
        (Datums::Narrow(numbers), Some(1)) => {
            append_plain(numbers, |number| (number as i8).to_le_bytes(), values.nulls(), into)
        }
        (Datums::Narrow(numbers), Some(2)) => {
            append_plain(numbers, |number| (number as i16).to_le_bytes(), values.nulls(), into)
        }
        (Datums::Narrow(numbers), Some(4)) => {
            append_plain(numbers, |number| (number as i32).to_le_bytes(), values.nulls(), into)
        }
        (Datums::Narrow(numbers), _) => append_plain(numbers, i64::to_le_bytes, values.nulls(), into),
        (Datums::Wide(numbers), _) => append_plain(numbers, i128::to_le_bytes, values.nulls(), into),
        (Datums::Bytes(views), _) => {
            // The low 32 bits of a view are its length.
            append_plain(views.views(), |view| (view as u32).to_le_bytes(), values.nulls(), into);
            views.iter().flatten().for_each(|value| into.extend_from_slice(value));
        }
    }
}

/// Appends values in their plain width, with zeros under nulls.
fn append_plain<V: Copy, const WIDTH: usize>(
    values: &[V],
    plain: impl Fn(V) -> [u8; WIDTH],
    nulls: Option<&NullBuffer>,
    into: &mut Vec<u8>,
) {
    let start = into.len();
    into.resize(start + WIDTH * values.len(), 0);
    let slots = into[start..].as_chunks_mut().0;
    for (row, (slot, value)) in slots.iter_mut().zip(values).enumerate() {
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
            *slot = plain(*value);
        }
    }
}

/// Bytes to decode. `at` is the offset of the first byte that is not read yet.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads the bytes of the next `count` values of `width` bytes each.
    fn take(&mut self, count: usize, width: usize, expected: &'static str) -> Result<&'a [u8], CorruptRows> {
        let length = count.checked_mul(width).filter(|length| *length <= self.bytes.len() - self.at);
        let length = length.ok_or_else(|| self.expected(expected))?;
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    fn bits(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], CorruptRows> {
        let bits = self.take(count.div_ceil(8), 1, expected)?;
        if let Some(last) = bits.last().filter(|_| !count.is_multiple_of(8))
            && last >> (count % 8) != 0
        {
            return Err(CorruptRows { at: self.at - 1, expected: "unused bits that are zero" });
        }
        Ok(bits)
    }

    /// Reads the null bits of a column that has nulls.
    fn nulls(&mut self, column: &Column, rows: usize) -> Result<Option<NullBuffer>, CorruptRows> {
        if !column.nullable {
            return Err(self.expected("a column that takes no nulls to have none"));
        }
        let at = self.at;
        let bits = self.bits(rows, "a bit for each row")?;
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| !is_set(bits, row)));
        match nulls.null_count() {
            0 => Err(CorruptRows { at, expected: "a null in a column that has some" }),
            _ => Ok(Some(nulls)),
        }
    }

    /// Reads the values of a column.
    fn column(
        &mut self,
        logical: LogicalType,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, CorruptRows> {
        // For text and bytes, these numbers are lengths.
        let width = logical.plain_bytes().unwrap_or(size_of::<u32>());
        let keys_at = self.at;
        let keys = self.take(rows, width, "a number for each row")?;
        let wrong = |row: usize, expected| CorruptRows { at: keys_at + row * width, expected };
        if let Some(nulls) = &nulls {
            let has_value =
                |row: &usize| nulls.is_null(*row) && keys[row * width..][..width].iter().any(|byte| *byte != 0);
            if let Some(row) = (0..rows).find(has_value) {
                return Err(wrong(row, "zero under a null"));
            }
        }
        let values_at = self.at;
        let mut output = match logical.is_bytes() {
            true => self.text(logical, keys)?,
            false => numbers(logical, keys, width).map_err(|(row, expected)| wrong(row, expected))?,
        };
        match &nulls {
            Some(nulls) => output.nulls.append_buffer(nulls),
            None => output.nulls.append_n_non_nulls(rows),
        }
        let first_wrong = || values_at + valid_bytes(lengths_of(keys), &self.bytes[values_at..self.at]);
        output.finish(None).map_err(|expected| CorruptRows { at: first_wrong(), expected })
    }

    /// Reads values of the given lengths, which are stored end to end.
    fn text(&mut self, logical: LogicalType, lengths: &[u8]) -> Result<Output, CorruptRows> {
        let mut end = 0_usize;
        let mut ends = Vec::with_capacity(lengths.len() / size_of::<u32>() + 1);
        ends.push(0);
        for length in lengths_of(lengths) {
            end = end.saturating_add(length);
            // If the values exceed the bytes, `take` fails below.
            ends.push(end as i64);
        }
        let heap = self.take(end, 1, "as many bytes as the lengths say")?;
        Ok(Output::of_text(logical, Text::of(heap.to_vec(), ends)))
    }

    fn expected(&self, expected: &'static str) -> CorruptRows {
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
fn valid_bytes(lengths: impl Iterator<Item = usize>, values: &[u8]) -> usize {
    let mut at = 0;
    for length in lengths {
        if str::from_utf8(&values[at..at + length]).is_err() {
            break;
        }
        at += length;
    }
    at
}

/// Converts numbers that are stored in the plain width of their type. The error is a row, and what was expected there.
fn numbers(logical: LogicalType, bytes: &[u8], width: usize) -> Result<Output, (usize, &'static str)> {
    let mut output = Output::new(logical, bytes.len() / width);
    match (&mut output.values, width) {
        (Values::Decimals(values), 16) => {
            values.extend(bytes.as_chunks().0.iter().map(|number| i128::from_le_bytes(*number)));
        }
        (values, _) => with_natives!(values, values => extend(values, bytes, width), else {}),
    }
    let wrong = match (&output.values, logical) {
        // Every byte except zero was read as true.
        (Values::Booleans(_), _) => bytes.iter().position(|byte| *byte > 1).map(|row| (row, "0 or 1")),
        (Values::Decimals(values), LogicalType::Decimal { precision, .. }) => {
            let limit = 10_u128.pow(precision.min(38).into());
            values.iter().position(|value| value.unsigned_abs() >= limit).map(|row| (row, "as many digits as the type"))
        }
        _ => None,
    };
    wrong.map_or(Ok(output), Err)
}

fn extend<N: Native>(values: &mut Vec<N>, bytes: &[u8], width: usize) {
    match width {
        1 => values.extend(bytes.iter().map(|number| N::of((*number).into()))),
        2 => values.extend(bytes.as_chunks().0.iter().map(|number| N::of(i16::from_le_bytes(*number).into()))),
        4 => values.extend(bytes.as_chunks().0.iter().map(|number| N::of(i32::from_le_bytes(*number).into()))),
        _ => values.extend(bytes.as_chunks().0.iter().map(|number| N::of(i64::from_le_bytes(*number)))),
    }
}
