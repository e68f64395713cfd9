//! Text and bytes.
//!
//! The file of an encoding begins with a diagram of its bytes. It contains the function `write`, and a type for reading
//! with the functions `parse`, `views` (a range), `views_at` (single positions) and `filter`. [`Bytes`] is the enum of
//! these types.

mod choose;
mod dictionary;
mod front_coded;
mod fsst;
mod predicate;
mod strings;

use std::borrow::Cow;
use std::ops::Range;

use arrow_array::{Array, BinaryViewArray};
use taut_types::{DatumPredicate, Encoding};

use crate::Bitmap;
use crate::choice::{Choice, EncodeError};
use crate::codes::Codes;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Views;

use choose::BytesPlan;
use dictionary::BytesDictionary;
use front_coded::FrontCoded;
use fsst::Fsst;
use predicate::BytesPredicate;
use strings::Strings;

/// Strings of a chunk, by their encoding.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// One string for all rows.
    Constant(Strings),
    /// Strings end to end, not encoded.
    Plain(Strings),
    /// Encodings `dictionary` and `run_length`.
    Dictionary(BytesDictionary),
    /// Compressed by a table of frequent short strings.
    Fsst(Fsst),
    /// Each string without the prefix that it shares with the previous string.
    FrontCoded(FrontCoded),
}

/// Encodes strings. At least one must not be null. `head` holds the counts of rows and nulls, and `writer` the
/// validity.
pub(crate) fn encode(
    array: &BinaryViewArray,
    choice: Choice,
    mut head: Head,
    mut writer: Writer,
) -> Result<Vec<u8>, EncodeError> {
    // The lower 32 bits of a view are the length.
    let length = |row: usize| if array.is_valid(row) { array.views()[row] as u32 as usize } else { 0 };
    let heap_bytes = (0..array.len()).map(length).sum();
    if heap_bytes > i32::MAX as usize {
        return Err(EncodeError::TooLong { bytes: heap_bytes });
    }
    let plan = match choice {
        Choice::Auto => choose::plan(array, heap_bytes),
        Choice::Ordered => choose::plan_by_order(array)?,
        Choice::Plain => BytesPlan::Plain,
        Choice::Forced(encoding) => choose::plan_forced(array, encoding)?,
    };
    head.encoding = plan.encoding();
    match plan {
        BytesPlan::Constant(row) => {
            let value = array.value(row);
            strings::write([value].into_iter(), value.len(), &mut head, &mut writer);
        }
        BytesPlan::Plain => {
            let value = |row| if array.is_valid(row) { array.value(row) } else { &[] };
            strings::write((0..array.len()).map(value), heap_bytes, &mut head, &mut writer);
        }
        BytesPlan::Dictionary(distinct) | BytesPlan::RunLength(distinct) => {
            dictionary::write(array, &distinct, &mut head, &mut writer);
        }
        BytesPlan::Fsst(compressor) => {
            if !fsst::write(&compressor, array, &mut head, &mut writer) {
                let reason = "the compressed values are longer than 2 GiB";
                return Err(EncodeError::Impossible { encoding: Encoding::Fsst, reason });
            }
        }
        BytesPlan::FrontCoded(lengths) => {
            if !front_coded::write(array, &lengths, &mut head, &mut writer) {
                let reason = "the values, repeated for nulls, are longer than 2 GiB";
                return Err(EncodeError::Impossible { encoding: Encoding::FrontCoded, reason });
            }
        }
    }
    Ok(writer.finish(head))
}

impl Bytes {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, is_text: bool, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        Ok(match head.encoding {
            Encoding::Constant => Self::Constant(Strings::parse(head, is_text, 1, parts)?),
            Encoding::Plain => Self::Plain(Strings::parse(head, is_text, head.rows, parts)?),
            Encoding::Dictionary | Encoding::RunLength => {
                Self::Dictionary(BytesDictionary::parse(head, is_text, parts)?)
            }
            Encoding::Fsst => Self::Fsst(Fsst::parse(head, is_text, parts)?),
            Encoding::FrontCoded => Self::FrontCoded(FrontCoded::parse(head, is_text, parts)?),
            Encoding::BitPacked
            | Encoding::FrameOfReference
            | Encoding::Delta
            | Encoding::RunLengthDelta
            | Encoding::Bitmap
            | Encoding::TwoByteDelta
            | Encoding::Patched
            | Encoding::Alp => {
                return Err(CorruptChunk { at: 0, expected: "an encoding of text and bytes" });
            }
        })
    }

    /// Readable name of the encodings.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Constant(_) => "constant".to_owned(),
            Self::Plain(_) => "plain".to_owned(),
            Self::Dictionary(dictionary) => dictionary.description(),
            Self::Fsst(_) => "fsst".to_owned(),
            Self::FrontCoded(_) => "front_coded".to_owned(),
        }
    }

    /// Strings of a range of rows.
    pub(crate) fn views(&self, rows: Range<usize>) -> Views {
        match self {
            Self::Constant(strings) => repeat_first(strings, rows.len()),
            Self::Plain(strings) => strings.views(rows).0,
            Self::Dictionary(dictionary) => dictionary.views(rows),
            Self::Fsst(fsst) => fsst.views(rows).0,
            Self::FrontCoded(strings) => strings.views(rows).0,
        }
    }

    /// Strings at ascending positions.
    pub(crate) fn views_at(&self, positions: &[u32]) -> Views {
        match self {
            Self::Constant(strings) => repeat_first(strings, positions.len()),
            Self::Plain(strings) => strings.views_at(positions),
            Self::Dictionary(dictionary) => dictionary.views_at(positions),
            Self::Fsst(fsst) => fsst.views_at(positions),
            Self::FrontCoded(strings) => strings.views_at(positions),
        }
    }

    /// Clears the rows of a range that fail a predicate other than [`DatumPredicate::Null`].
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        match self {
            Self::Constant(strings) => {
                if BytesPredicate::new(predicate).admits(strings.get(0)) == negated {
                    selection.clear_range(rows);
                }
            }
            Self::Plain(strings) => strings.filter(predicate, negated, rows, selection),
            Self::Dictionary(dictionary) => {
                dictionary.codes().filter(&dictionary.predicate_on_codes(predicate), negated, rows, selection);
            }
            Self::Fsst(fsst) => fsst.filter(predicate, negated, rows, selection),
            Self::FrontCoded(strings) => strings.filter(predicate, negated, rows, selection),
        }
    }

    /// Selects the rows that pass a predicate other than [`DatumPredicate::Null`], and no others. `rows` is the number
    /// of all rows. Returns `false`, and changes nothing, if [`Bytes::filter`] is as fast.
    pub(crate) fn select(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: usize,
        selection: &mut Bitmap,
    ) -> bool {
        match self {
            Self::Dictionary(dictionary) => {
                dictionary.codes().select(&dictionary.predicate_on_codes(predicate), negated, rows, selection)
            }
            _ => false,
        }
    }

    /// Distinct strings. Returns `None` if there is no dictionary and the chunk is not constant.
    pub(crate) fn entries(&self) -> Option<Views> {
        match self {
            Self::Constant(strings) => Some(strings.views(0..1).0),
            Self::Dictionary(dictionary) => Some(dictionary.table().clone()),
            _ => None,
        }
    }

    /// Codes of the rows. Returns `None` if there is no dictionary.
    pub(crate) fn codes(&self) -> Option<&Codes> {
        match self {
            Self::Dictionary(dictionary) => Some(dictionary.codes()),
            _ => None,
        }
    }

    /// String of one row. Empty if it cannot be read.
    pub(crate) fn value(&self, row: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Constant(strings) => strings.get(0).into(),
            Self::Plain(strings) => strings.get(row).into(),
            Self::Dictionary(dictionary) => dictionary.value(row).into(),
            Self::Fsst(fsst) => fsst.value(row).into(),
            Self::FrontCoded(strings) => strings.value(row).into(),
        }
    }

    /// Codes whose entries pass a predicate. Returns `None` if there is no dictionary and the chunk is not constant.
    pub(crate) fn codes_that_pass(&self, predicate: &DatumPredicate) -> Option<Vec<Range<u32>>> {
        match self {
            Self::Constant(strings) => {
                let codes = 0..u32::from(BytesPredicate::new(predicate).admits(strings.get(0)));
                Some(vec![codes])
            }
            Self::Dictionary(dictionary) => Some(dictionary.codes_that_pass(predicate)),
            Self::Plain(_) | Self::Fsst(_) | Self::FrontCoded(_) => None,
        }
    }

    /// Whether the ends of all strings ascend, and all text is UTF-8.
    pub(crate) fn is_valid(&self, rows: usize) -> bool {
        match self {
            Self::Constant(strings) | Self::Plain(strings) => strings.views(0..strings.len()).1,
            Self::Dictionary(dictionary) => dictionary.entries().views(0..dictionary.entries().len()).1,
            Self::Fsst(fsst) => fsst.views(0..rows).1,
            Self::FrontCoded(strings) => strings.views(0..rows).1,
        }
    }

    /// Approximate decoded bytes of a row: its view, and its share of the heap unless rows share the bytes of a
    /// dictionary.
    pub(crate) fn row_bytes(&self, rows: usize) -> usize {
        let view = size_of::<u128>();
        match self {
            Self::Constant(_) | Self::Dictionary(_) => view,
            Self::Plain(strings) => view + strings.heap_bytes() / rows.max(1),
            Self::Fsst(fsst) => view + fsst.row_bytes(),
            Self::FrontCoded(strings) => view + strings.row_bytes(),
        }
    }
}

fn repeat_first(strings: &Strings, count: usize) -> Views {
    let mut views = strings.views(0..1).0;
    views.repeat_last(count);
    views
}
