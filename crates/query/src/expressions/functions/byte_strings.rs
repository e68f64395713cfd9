//! Functions of bytes: single bits and bytes, and the functions of text that PostgreSQL also has for bytes.
//!
//! A string beside bytes is parsed as bytes, like a string literal in PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, exec_err};
use memchr::memmem;

use super::super::bytes::read;
use super::definition::ArgumentType::{Bytes, Integer, Text};
use super::definition::{ArgumentType, Definition, complete_rows, integers, result};

pub(super) const FUNCTIONS: [Definition; 4] = [
    Definition {
        name: "get_bit",
        arguments: &[&[Bytes, Integer], &[Text, Integer]],
        result: result::integer,
        compute: |arguments| {
            of_rows(arguments, |row| row.bit().map(|(byte, bit)| i32::from(row.bytes(0)[byte] >> bit & 1)))
        },
    },
    Definition {
        name: "get_byte",
        arguments: &[&[Bytes, Integer], &[Text, Integer]],
        result: result::integer,
        compute: |arguments| of_rows(arguments, |row| row.byte().map(|byte| i32::from(row.bytes(0)[byte]))),
    },
    Definition {
        name: "set_bit",
        arguments: &[&[Bytes, Integer, Integer], &[Text, Integer, Integer]],
        result: result::bytes,
        compute: |arguments| changed(arguments, with_bit),
    },
    Definition {
        name: "set_byte",
        arguments: &[&[Bytes, Integer, Integer], &[Text, Integer, Integer]],
        result: result::bytes,
        compute: |arguments| changed(arguments, with_byte),
    },
];

/// Pairs of arguments of which at least one is bytes.
const PAIRS: &[&[ArgumentType]] = &[&[Bytes, Bytes], &[Bytes, Text], &[Text, Bytes]];

/// The functions for bytes that have the names of functions of text.
pub(super) static OF_TEXT: [Definition; 7] = [
    Definition {
        name: "bit_length",
        arguments: &[&[Bytes]],
        result: result::integer,
        compute: |arguments| {
            of_rows(arguments, |row| i32::try_from(8 * row.bytes(0).len()).map_err(|_| out_of_range()))
        },
    },
    Definition {
        name: "btrim",
        arguments: PAIRS,
        result: result::bytes,
        compute: |arguments| changed(arguments, |row| Ok(trimmed(row, true, true).to_vec())),
    },
    Definition {
        name: "ltrim",
        arguments: PAIRS,
        result: result::bytes,
        compute: |arguments| changed(arguments, |row| Ok(trimmed(row, true, false).to_vec())),
    },
    Definition {
        name: "rtrim",
        arguments: PAIRS,
        result: result::bytes,
        compute: |arguments| changed(arguments, |row| Ok(trimmed(row, false, true).to_vec())),
    },
    Definition {
        name: "overlay",
        arguments: &[
            &[Bytes, Bytes, Integer],
            &[Bytes, Text, Integer],
            &[Text, Bytes, Integer],
            &[Bytes, Bytes, Integer, Integer],
            &[Bytes, Text, Integer, Integer],
            &[Text, Bytes, Integer, Integer],
        ],
        result: result::bytes,
        compute: |arguments| changed(arguments, overlaid),
    },
    Definition {
        name: "strpos",
        arguments: PAIRS,
        result: result::integer,
        compute: |arguments| {
            of_rows(arguments, |row| Ok(memmem::find(row.bytes(0), row.bytes(1)).map_or(0, |at| at as i32 + 1)))
        },
    },
    Definition {
        name: "substr",
        arguments: &[&[Bytes, Integer], &[Bytes, Integer, Integer]],
        result: result::bytes,
        compute: substrings,
    },
];

/// Returns the bytes of an argument that is [`Bytes`] or [`Text`].
pub(super) fn bytes_of(argument: &ArrayRef) -> Result<ArrayRef> {
    match argument.as_binary_view_opt() {
        Some(_) => Ok(Arc::clone(argument)),
        None => Ok(read(argument, &result::bytes(&[]), false)?),
    }
}

/// One row of arguments without nulls. Arguments that are not integers are bytes.
struct BytesRow<'a> {
    arguments: &'a [ArrayRef],
    row: usize,
}

impl<'a> BytesRow<'a> {
    fn bytes(&self, index: usize) -> &'a [u8] {
        self.arguments[index].as_binary_view().value(self.row)
    }

    fn integer(&self, index: usize) -> i64 {
        self.arguments[index].as_primitive::<Int64Type>().value(self.row)
    }

    /// Returns the index of a byte, which is the second argument.
    fn byte(&self) -> Result<usize> {
        self.index(self.bytes(0).len())
    }

    /// Returns the indexes of a byte and of a bit in it. The second argument is the index of the bit in all bytes. The
    /// first bit of a byte is the least significant one.
    fn bit(&self) -> Result<(usize, usize)> {
        let bit = self.index(self.bytes(0).len() * 8)?;
        Ok((bit / 8, bit % 8))
    }

    fn index(&self, count: usize) -> Result<usize> {
        let index = self.integer(1);
        match usize::try_from(index) {
            Ok(index) if index < count => Ok(index),
            _ => exec_err!("index {index} out of valid range, 0..{}", count as i64 - 1),
        }
    }
}

/// Converts the strings among arguments to bytes.
fn with_bytes(arguments: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let converted = arguments.iter().map(|argument| match argument.as_primitive_opt::<Int64Type>() {
        Some(_) => Ok(Arc::clone(argument)),
        None => bytes_of(argument),
    });
    converted.collect()
}

/// Computes an integer for each row without nulls.
fn of_rows(arguments: &[ArrayRef], compute: impl Fn(&BytesRow<'_>) -> Result<i32>) -> Result<ArrayRef> {
    let arguments = with_bytes(arguments)?;
    integers(complete_rows(&arguments).map(|row| match row {
        Some(row) => compute(&BytesRow { arguments: &arguments, row }).map(Some),
        None => Ok(None),
    }))
}

/// Computes bytes for each row without nulls.
fn changed(arguments: &[ArrayRef], compute: impl Fn(&BytesRow<'_>) -> Result<Vec<u8>>) -> Result<ArrayRef> {
    let arguments = with_bytes(arguments)?;
    let results = complete_rows(&arguments).map(|row| match row {
        Some(row) => compute(&BytesRow { arguments: &arguments, row }).map(Some),
        None => Ok(None),
    });
    Ok(Arc::new(results.collect::<Result<BinaryViewArray>>()?))
}

fn with_bit(row: &BytesRow<'_>) -> Result<Vec<u8>> {
    let (byte, bit) = row.bit()?;
    let mut bytes = row.bytes(0).to_vec();
    match row.integer(2) {
        0 => bytes[byte] &= !(1 << bit),
        1 => bytes[byte] |= 1 << bit,
        _ => return exec_err!("new bit must be 0 or 1"),
    }
    Ok(bytes)
}

/// Sets a byte to the lowest eight bits of the third argument.
fn with_byte(row: &BytesRow<'_>) -> Result<Vec<u8>> {
    let byte = row.byte()?;
    let mut bytes = row.bytes(0).to_vec();
    bytes[byte] = row.integer(2) as u8;
    Ok(bytes)
}

/// Removes the bytes that the second argument contains from the ends of the first.
fn trimmed<'a>(row: &BytesRow<'a>, at_start: bool, at_end: bool) -> &'a [u8] {
    let (bytes, removed) = (row.bytes(0), row.bytes(1));
    let is_kept = |byte: &u8| !removed.contains(byte);
    let start = if at_start { bytes.iter().position(is_kept).unwrap_or(bytes.len()) } else { 0 };
    let end = if at_end { bytes.iter().rposition(is_kept).map_or(0, |last| last + 1) } else { bytes.len() };
    &bytes[start.min(end)..end]
}

/// Returns the bytes from the 1-based position `start` up to, but without, the position `end`. Positions may be outside
/// of the bytes.
fn between(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    let index = |position: i64| usize::try_from(position.max(1) - 1).unwrap_or(usize::MAX).min(bytes.len());
    let (start, end) = (index(start), index(end));
    &bytes[start.min(end)..end]
}

fn substrings(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let has_length = arguments.len() > 2;
    changed(arguments, |row| {
        let start = row.integer(1);
        let end = match has_length.then(|| row.integer(2)) {
            None => i64::MAX,
            Some(..0) => return exec_err!("negative substring length not allowed"),
            Some(length) => start.saturating_add(length),
        };
        Ok(between(row.bytes(0), start, end).to_vec())
    })
}

fn out_of_range() -> DataFusionError {
    ArrowError::ArithmeticOverflow("integer out of range".to_owned()).into()
}

/// Replaces the bytes from the position that is the third argument. Their number is the fourth argument, or the length
/// of the replacement.
fn overlaid(row: &BytesRow<'_>) -> Result<Vec<u8>> {
    let (bytes, replacement, start) = (row.bytes(0), row.bytes(1), row.integer(2));
    if start <= 0 {
        return exec_err!("negative substring length not allowed");
    }
    let length = if row.arguments.len() > 3 { row.integer(3) } else { replacement.len() as i64 };
    let Some(end) = start.checked_add(length).filter(|end| i32::try_from(*end).is_ok()) else {
        return Err(out_of_range());
    };
    Ok([between(bytes, 1, start), replacement, between(bytes, end, i64::MAX)].concat())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    fn bytes(value: &[u8]) -> ArrayRef {
        Arc::new(BinaryViewArray::from_iter([Some(value)]))
    }

    fn integer(value: i64) -> ArrayRef {
        Arc::new(Int64Array::from(vec![value]))
    }

    fn call(name: &str, arguments: &[ArrayRef]) -> Result<ArrayRef> {
        let definition = FUNCTIONS.iter().chain(&OF_TEXT).find(|definition| definition.name == name);
        (definition.unwrap().compute)(arguments)
    }

    #[test]
    fn functions_return_bytes() {
        let five = || bytes(&[0x12, 0x34, 0x56, 0x78, 0x90]);
        for (name, arguments, expected) in [
            ("btrim", vec![five(), bytes(&[0x90, 0x12])], &[0x34, 0x56, 0x78][..]),
            ("ltrim", vec![five(), bytes(&[0x90, 0x12])], &[0x34, 0x56, 0x78, 0x90]),
            ("rtrim", vec![five(), bytes(&[0x90, 0x12])], &[0x12, 0x34, 0x56, 0x78]),
            ("btrim", vec![bytes(&[1, 1]), bytes(&[1])], &[]),
            ("overlay", vec![five(), bytes(&[2, 3]), integer(2), integer(3)], &[0x12, 2, 3, 0x90]),
            ("overlay", vec![bytes(&[1, 2]), bytes(&[9]), integer(2), integer(-1)], &[1, 9, 1, 2]),
            ("substr", vec![five(), integer(3), integer(2)], &[0x56, 0x78]),
            ("substr", vec![five(), integer(-1), integer(4)], &[0x12, 0x34]),
            ("substr", vec![five(), integer(i64::MAX), integer(i64::MAX)], &[]),
            ("set_bit", vec![five(), integer(30), integer(0)], &[0x12, 0x34, 0x56, 0x38, 0x90]),
            ("set_byte", vec![bytes(&[1, 2]), integer(1), integer(-1)], &[1, 255]),
        ] {
            assert_eq!(call(name, &arguments).unwrap().as_binary_view().value(0), expected, "{name}");
        }
        for (name, arguments) in [
            ("get_byte", vec![bytes(&[]), integer(0)]),
            ("get_bit", vec![five(), integer(40)]),
            ("get_bit", vec![five(), integer(-1)]),
            ("set_bit", vec![five(), integer(0), integer(2)]),
            ("substr", vec![five(), integer(1), integer(-1)]),
            ("overlay", vec![five(), five(), integer(0)]),
        ] {
            assert!(call(name, &arguments).is_err(), "{name}");
        }
    }
}
