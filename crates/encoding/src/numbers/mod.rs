//! Numbers: values of all fixed-width types, which `taut_types::datum` maps to integers. The integers of floating-point
//! values are called *ordered integers*, because they sort like the values.
//!
//! The file of an encoding begins with a diagram of its bytes. It contains the function `write`, and a type for reading
//! with the functions `parse`, `append` (a range), `append_at` (single positions) and `filter`. [`Numbers`] is the enum
//! of these types. `constant` has no file, because its number is in the head. `bit_packed` and `frame_of_reference`
//! share `packed.rs`. `patched` has two files: `patched.rs`, and `marked.rs` for the variant with an inner encoding.

mod alp;
mod bitmap;
mod bounds;
mod choose;
mod delta;
mod dictionary;
mod exceptions;
mod extremes;
mod marked;
mod patched;
mod plain;
mod run_length;
mod run_length_delta;
mod run_words;
mod statistics;
mod two_byte_delta;

use std::ops::Range;

use arrow_buffer::Buffer;
use taut_types::{DatumPredicate, Encoding};

use crate::choice::{Choice, EncodeError};
use crate::codes::Codes;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::{InstructionSet, Native, compress};
use crate::lane_predicate::LanePredicate;
use crate::packed::{self, Packed};
use crate::{Bitmap, SelectedRuns, VECTOR_ROWS, distinct, search};

use alp::{Alp, Decimals};
use bitmap::SetBits;
use choose::ChoiceScratch;
use delta::Delta;
use dictionary::NumberDictionary;
use marked::{DEPTH_MAX, Marked};
use patched::Patched;
use plain::Plain;
use run_length::RunLength;
use run_length_delta::RunLengthDelta;
use statistics::Statistics;
use two_byte_delta::TwoByteDelta;

pub use extremes::Extreme;

/// Rows that are decoded together to select some of them. Their numbers fit the L1 cache.
const SELECT_ROWS: usize = 4 * VECTOR_ROWS;
/// Maximum number of decoded bytes per selected row (`rows * value_bytes / selected`) up to which all rows are decoded
/// and the selected numbers compacted. Above it, reading the selected numbers one by one is faster. This is the maximum
/// for AVX-512, which compacts a register of 64 bytes at a time. For AVX2, which compacts at most eight values at a
/// time, it is two thirds of this, and values of 8 bytes gain nothing. Measured: `cargo bench -p taut-encoding --bench
/// predicate_speed`.
const DECODED_BYTES_PER_SELECTED_MAX: usize = 24;

/// Numbers of a chunk, by their encoding.
#[derive(Clone, Debug)]
pub(crate) enum Numbers {
    /// One number for all rows, held in the head.
    Constant(i128),
    /// Native integers, not encoded.
    Plain(Plain),
    /// Encodings `bit_packed` and `frame_of_reference`.
    Packed(Packed),
    /// Distinct numbers and codes.
    Dictionary(NumberDictionary),
    /// Runs of equal numbers.
    RunLength(RunLength),
    /// Differences of neighbours.
    Delta(Delta),
    /// Runs of equal numbers, each with the step from the previous run.
    RunLengthDelta(RunLengthDelta),
    /// Strictly ascending numbers as set bits.
    SetBits(SetBits),
    /// Distances from a base in two bytes each.
    TwoByteDelta(TwoByteDelta),
    /// `patched`: exceptions stored with their positions.
    Patched(Patched),
    /// `patched` with an inner encoding: the greatest packed number marks an exception, and the exceptions form an
    /// inner chunk.
    Marked(Marked),
    /// Floating point as decimal integers, with exceptions.
    Alp(Alp),
}

/// Context of numbers: a chunk of a column, or a chunk of exceptions within one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nesting {
    /// Whether the numbers are ordered integers of floating point.
    is_float: bool,
    /// Number of chunks of exceptions that may still nest within this chunk.
    depth: usize,
}

impl Nesting {
    /// Context of a column's own chunk.
    pub(crate) fn for_column(is_float: bool) -> Self {
        Self { is_float, depth: DEPTH_MAX }
    }

    /// Context of a chunk of exceptions within this chunk.
    fn inner(self) -> Self {
        Self { depth: self.depth.saturating_sub(1), ..self }
    }
}

/// Encodes numbers. `head` holds the plain width and the counts of rows and nulls, and `writer` the validity.
pub(crate) fn encode<N: Native>(
    values: &[N],
    nesting: Nesting,
    choice: Choice,
    mut head: Head,
    mut writer: Writer,
) -> Result<Vec<u8>, EncodeError> {
    let is_float = nesting.is_float;
    let statistics = Statistics::collect(values, head.plain_bytes);
    let mut scratch = ChoiceScratch::default();
    head.encoding = match choice {
        Choice::Auto => choose::choose(&statistics, nesting, &mut scratch),
        Choice::Ordered => choose::smallest_by_order(&statistics, &mut scratch),
        Choice::Plain => Encoding::Plain,
        Choice::Forced(encoding) => encoding,
    };
    let impossible = |reason| EncodeError::Impossible { encoding: head.encoding, reason };
    match head.encoding {
        Encoding::Constant if statistics.runs > 1 => return Err(impossible("values differ")),
        Encoding::Constant => head.base = statistics.min.to_number(),
        Encoding::Plain => plain::write(values, head.plain_bytes, is_float, &mut writer),
        Encoding::BitPacked if statistics.min.to_number() < 0 => return Err(impossible("a number is negative")),
        Encoding::BitPacked | Encoding::FrameOfReference => {
            let base = if head.encoding == Encoding::BitPacked { N::from_number(0) } else { statistics.min };
            let Some(width) = packed::width_of(base, statistics.max) else {
                return Err(impossible("numbers are more than 64 bits apart"));
            };
            (head.base, head.width) = (base.to_number(), width);
            packed::write(values, base, width, &mut writer);
        }
        Encoding::Dictionary => {
            let Some(distinct) = scratch.distinct.or_else(|| distinct::of_numbers(values, values.len())) else {
                return Err(impossible("there are too many distinct values"));
            };
            dictionary::write(&distinct, &mut head, &mut writer);
        }
        Encoding::RunLength => run_length::write(values, (statistics.min, statistics.max), &mut head, &mut writer),
        Encoding::Fsst | Encoding::FrontCoded => return Err(impossible("it is for text and bytes")),
        Encoding::Patched => {
            if choice != Choice::Auto {
                choose::find_windows(&statistics, nesting, usize::MAX, &mut scratch);
            }
            match (scratch.marked, scratch.window) {
                (Some(plan), _) => marked::write(values, plan.window, nesting, &mut head, &mut writer)?,
                (None, Some(window)) => patched::write(values, window, &mut head, &mut writer),
                (None, None) => return Err(impossible("no range of numbers can be packed")),
            }
        }
        Encoding::Alp if !is_float => return Err(impossible("it is for floating point")),
        Encoding::Alp => {
            let Some(decimals) = scratch.decimals.or_else(|| Decimals::find(values, head.plain_bytes, usize::MAX))
            else {
                return Err(impossible("no exponent is better than another"));
            };
            alp::write(values, &decimals, &mut head, &mut writer);
        }
        Encoding::Delta => {
            let plan =
                scratch.delta.or_else(|| delta::DeltaPlan::for_values(values, statistics.spread(), head.plain_bytes));
            let Some(plan) = plan else {
                return Err(impossible("differences of neighbours are more than 64 bits apart"));
            };
            delta::write(values, &plan, &mut head, &mut writer);
        }
        Encoding::RunLengthDelta => {
            let plan = || run_length_delta::RunLengthDeltaPlan::for_values(values, statistics.spread());
            let Some(plan) = scratch.run_length_delta.or_else(plan) else {
                return Err(impossible("differences between runs need too many bits"));
            };
            run_length_delta::write(values, plan, &mut head, &mut writer);
        }
        Encoding::Bitmap => {
            let ascends = values.is_sorted_by(|left, right| left < right);
            let Some(bits) = bitmap::bit_count(values.len(), statistics.spread()).filter(|_| ascends) else {
                return Err(impossible("numbers do not ascend strictly, or are too far apart"));
            };
            bitmap::write(values, bits, &mut head, &mut writer);
        }
        Encoding::TwoByteDelta => {
            if two_byte_delta::estimate(&statistics).is_none() {
                return Err(impossible("numbers are more than 65,535 apart"));
            }
            two_byte_delta::write(values, statistics.min, &mut head, &mut writer);
        }
    }
    Ok(writer.finish(head))
}

impl Numbers {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, nesting: Nesting, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let is_float = nesting.is_float;
        Ok(match head.encoding {
            Encoding::Constant => Self::Constant(head.base),
            Encoding::Plain => Self::Plain(Plain::parse(parts, head.plain_bytes, is_float, head.rows)?),
            Encoding::BitPacked | Encoding::FrameOfReference => {
                Self::Packed(Packed::parse(parts, head.base, head.width, head.rows)?)
            }
            Encoding::Dictionary => Self::Dictionary(NumberDictionary::parse(head, parts)?),
            Encoding::RunLength => Self::RunLength(RunLength::parse(head, parts)?),
            Encoding::Delta => Self::Delta(Delta::parse(head, parts)?),
            Encoding::RunLengthDelta => Self::RunLengthDelta(RunLengthDelta::parse(head, parts)?),
            Encoding::Bitmap => Self::SetBits(SetBits::parse(head, parts)?),
            Encoding::TwoByteDelta => Self::TwoByteDelta(TwoByteDelta::parse(head, parts)?),
            Encoding::Patched if head.inner.is_some() => Self::Marked(Marked::parse(head, nesting, parts)?),
            Encoding::Patched => Self::Patched(Patched::parse(head, parts)?),
            Encoding::Alp if is_float => Self::Alp(Alp::parse(head, parts)?),
            Encoding::Fsst | Encoding::FrontCoded | Encoding::Alp => {
                return Err(CorruptChunk { at: 0, expected: "an encoding of numbers" });
            }
        })
    }

    /// Readable name of the encodings.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Constant(_) => "constant".to_owned(),
            Self::Plain(_) => "plain".to_owned(),
            Self::Packed(packed) if packed.base() == 0 => format!("bit_packed({})", packed.width()),
            Self::Packed(packed) => format!("frame_of_reference({})", packed.width()),
            Self::Dictionary(dictionary) => dictionary.description(),
            Self::RunLength(runs) => runs.description(),
            Self::Delta(delta) => delta.description(),
            Self::RunLengthDelta(runs) => runs.description(),
            Self::SetBits(bits) => bits.description(),
            Self::TwoByteDelta(_) => "two_byte_delta".to_owned(),
            Self::Patched(patched) => patched.description(),
            Self::Marked(marked) => marked.description(),
            Self::Alp(alp) => alp.description(),
        }
    }

    /// Bytes of plain numbers. Returns `None` for other encodings.
    pub(crate) fn plain_buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Plain(plain) => Some(plain.buffer()),
            _ => None,
        }
    }

    /// Numbers of a range of rows. Floating point is returned as ordered integers.
    pub(crate) fn decode<O: Native>(&self, rows: Range<usize>) -> Vec<O> {
        let mut numbers = Vec::with_capacity(rows.len());
        self.append(rows, &mut numbers);
        numbers
    }

    /// Numbers of the rows of selected runs. Floating point is returned as ordered integers.
    pub(crate) fn decode_runs<O: Native>(&self, runs: &SelectedRuns<'_>) -> Vec<O> {
        let mut numbers = Vec::with_capacity(runs.span().len());
        self.append_runs(runs, &mut numbers);
        numbers
    }

    /// Appends the numbers of the rows of selected runs. Floating point is appended as ordered integers.
    pub(crate) fn append_runs<O: Native>(&self, runs: &SelectedRuns<'_>, numbers: &mut Vec<O>) {
        if let Self::Plain(plain) = self {
            return runs.iter().for_each(|run| plain.append(run, numbers));
        }
        numbers.reserve(runs.len());
        self.append_compacted(runs.span(), numbers, &mut vec![], |decoded| runs.close_gaps(decoded));
    }

    /// Appends some numbers of a range. `compact` moves these numbers to the front and returns their count. If
    /// `numbers` has no capacity for the whole range, the range is decoded to `buffer`, so that `numbers` is not
    /// reallocated for it.
    fn append_compacted<O: Native>(
        &self,
        rows: Range<usize>,
        numbers: &mut Vec<O>,
        buffer: &mut Vec<O>,
        compact: impl FnOnce(&mut [O]) -> usize,
    ) {
        let start = numbers.len();
        if numbers.capacity() - start >= rows.len() {
            self.append(rows, numbers);
            let count = compact(&mut numbers[start..]);
            numbers.truncate(start + count);
        } else {
            buffer.clear();
            self.append(rows, buffer);
            let count = compact(buffer);
            numbers.extend_from_slice(&buffer[..count]);
        }
    }

    /// Appends the numbers of a range of rows. Floating point is appended as ordered integers.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, numbers: &mut Vec<O>) {
        match self {
            Self::Constant(number) => numbers.resize(numbers.len() + rows.len(), O::from_number(*number)),
            Self::Plain(plain) => plain.append(rows, numbers),
            Self::Packed(packed) => packed.append(rows, numbers),
            Self::Dictionary(dictionary) => dictionary.append(rows, numbers),
            Self::RunLength(runs) => runs.append(rows, numbers),
            Self::Delta(delta) => delta.append(rows, numbers),
            Self::RunLengthDelta(runs) => runs.append(rows, numbers),
            Self::SetBits(bits) => bits.append(rows, numbers),
            Self::TwoByteDelta(delta) => delta.append(rows, numbers),
            Self::Patched(patched) => patched.append(rows, numbers),
            Self::Marked(marked) => marked.append(rows, numbers),
            Self::Alp(alp) => alp.append(rows, numbers),
        }
    }

    /// Whether [`Numbers::append_selected`] is faster than reading `selected` of the rows one by one, for values of
    /// this width.
    pub(crate) fn is_select_fast(&self, selected: usize, rows: usize, value_bytes: usize) -> bool {
        let is_decoded_fast = match self {
            Self::Constant(_) | Self::Plain(_) | Self::Packed(_) | Self::Dictionary(_) => true,
            Self::RunLength(_) | Self::Patched(_) | Self::Alp(_) => true,
            // The first three decode slowly, because they sum up steps or search set bits. `two_byte_delta` decodes
            // fast, but reads single rows fast too.
            Self::Delta(_) | Self::RunLengthDelta(_) | Self::SetBits(_) | Self::TwoByteDelta(_) => false,
            Self::Marked(_) => false,
        };
        let (bytes_max, decoded_bytes_per_selected_max) = match InstructionSet::current() {
            InstructionSet::Portable => return false,
            InstructionSet::Avx2 => (4, DECODED_BYTES_PER_SELECTED_MAX * 2 / 3),
            InstructionSet::Avx512 => (8, DECODED_BYTES_PER_SELECTED_MAX),
        };
        is_decoded_fast && value_bytes <= bytes_max && selected * decoded_bytes_per_selected_max >= rows * value_bytes
    }

    /// Appends the numbers of the selected rows. `selected` is the number of selected rows. Decodes [`SELECT_ROWS`]
    /// rows at a time and compacts the selected numbers. Floating point is appended as ordered integers.
    pub(crate) fn append_selected<O: Native>(&self, selection: &Bitmap, selected: usize, numbers: &mut Vec<O>) {
        numbers.reserve(selected);
        let mut buffer = vec![];
        for (words, first) in selection.words().chunks(SELECT_ROWS / 64).zip((0..).step_by(SELECT_ROWS)) {
            if words.iter().any(|word| *word != 0) {
                let rows = first..selection.len().min(first + SELECT_ROWS);
                self.append_compacted(rows, numbers, &mut buffer, |decoded| compress(decoded, words));
            }
        }
    }

    /// Numbers at ascending positions. Floating point is returned as ordered integers.
    pub(crate) fn gather<O: Native>(&self, positions: &[u32]) -> Vec<O> {
        let mut numbers = Vec::with_capacity(positions.len());
        self.append_at(positions, &mut numbers);
        numbers
    }

    /// Appends the numbers at ascending positions. Floating point is appended as ordered integers.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], numbers: &mut Vec<O>) {
        match self {
            Self::Constant(number) => numbers.resize(numbers.len() + positions.len(), O::from_number(*number)),
            Self::Plain(plain) => plain.append_at(positions, numbers),
            Self::Packed(packed) => packed.append_at(positions, numbers),
            Self::Dictionary(dictionary) => dictionary.append_at(positions, numbers),
            Self::RunLength(runs) => runs.append_at(positions, numbers),
            Self::Delta(delta) => delta.append_at(positions, numbers),
            Self::RunLengthDelta(runs) => runs.append_at(positions, numbers),
            Self::SetBits(bits) => bits.append_at(positions, numbers),
            Self::TwoByteDelta(delta) => delta.append_at(positions, numbers),
            Self::Patched(patched) => patched.append_at(positions, numbers),
            Self::Marked(marked) => marked.append_at(positions, numbers),
            Self::Alp(alp) => alp.append_at(positions, numbers),
        }
    }

    /// Finds the rows that pass a predicate by binary search, as ranges. The numbers of the rows must ascend. Returns
    /// `None` if the encoding has no fast access to the number of a row, or if [`search::numbers`] returns `None`.
    pub(crate) fn search(&self, predicate: &DatumPredicate, rows: Range<usize>) -> Option<Vec<Range<usize>>> {
        match self {
            Self::Constant(number) => search::numbers(predicate, rows, |_| *number),
            Self::Plain(plain) => search::numbers(predicate, rows, |row| plain.value(row)),
            Self::Packed(packed) => search::numbers(predicate, rows, |row| packed.value(row)),
            Self::Dictionary(dictionary) => search::numbers(predicate, rows, |row| dictionary.value(row)),
            Self::RunLength(runs) => search::numbers(predicate, rows, |row| runs.value(row)),
            Self::TwoByteDelta(delta) => search::numbers(predicate, rows, |row| delta.value(row)),
            Self::Patched(patched) => search::numbers(predicate, rows, |row| patched.value(row)),
            Self::Alp(alp) => search::numbers(predicate, rows, |row| alp.value(row)),
            Self::Delta(_) | Self::RunLengthDelta(_) | Self::SetBits(_) | Self::Marked(_) => None,
        }
    }

    /// Clears the rows of a range that fail a predicate other than [`DatumPredicate::Null`].
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        match self {
            Self::Constant(number) => {
                let predicate = LanePredicate::<u128>::new(predicate, negated, (i128::MIN, i128::MAX), 0);
                if !predicate.admits(*number as u128) {
                    selection.clear_range(rows);
                }
            }
            Self::Plain(plain) => plain.filter(predicate, negated, rows, selection),
            Self::Packed(packed) => packed.filter(predicate, negated, rows, selection),
            Self::Dictionary(dictionary) => {
                dictionary.codes().filter(&dictionary.predicate_on_codes(predicate), negated, rows, selection);
            }
            Self::RunLength(runs) => runs.filter(predicate, negated, rows, selection),
            Self::Delta(delta) => delta.filter(predicate, negated, rows, selection),
            Self::RunLengthDelta(runs) => runs.filter(predicate, negated, rows, selection),
            Self::SetBits(bits) => bits.filter(predicate, negated, rows, selection),
            Self::TwoByteDelta(delta) => delta.filter(predicate, negated, rows, selection),
            Self::Patched(patched) => patched.filter(predicate, negated, rows, selection),
            Self::Marked(marked) => marked.filter(predicate, negated, rows, selection),
            Self::Alp(alp) => alp.filter(predicate, negated, rows, selection),
        }
    }

    /// Selects the rows that pass a predicate other than [`DatumPredicate::Null`], and no others. `rows` is the number
    /// of all rows. Returns `false`, and changes nothing, if [`Numbers::filter`] is as fast.
    pub(crate) fn select(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: usize,
        selection: &mut Bitmap,
    ) -> bool {
        match self {
            Self::Packed(packed) => packed.select(predicate, negated, rows, selection),
            Self::Dictionary(dictionary) => {
                dictionary.codes().select(&dictionary.predicate_on_codes(predicate), negated, rows, selection)
            }
            _ => false,
        }
    }

    /// Clears the selected rows that fail a predicate other than [`DatumPredicate::Null`]. Reads them one by one.
    /// `selected` is the number of selected rows. Returns `false`, and changes nothing, if that is never faster than
    /// [`Numbers::filter`].
    pub(crate) fn filter_selected(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        selected: usize,
        selection: &mut Bitmap,
    ) -> bool {
        let Self::Packed(packed) = self else { return false };
        packed.filter_at(predicate, negated, &selection.positions_counted(selected), selection);
        true
    }

    /// Like [`Packed::extremes`]. Returns `None` for encodings other than `bit_packed` and `frame_of_reference`.
    pub(crate) fn extremes(&self, extreme: Extreme) -> Option<Buffer> {
        match self {
            Self::Packed(packed) => packed.extremes(extreme),
            _ => None,
        }
    }

    /// Like [`Packed::find_by_extremes`].
    pub(crate) fn find_by_extremes(
        &self,
        predicate: &DatumPredicate,
        (extreme, extremes): (Extreme, &Buffer),
        rows: Range<usize>,
    ) -> Option<(Vec<u32>, usize)> {
        match self {
            Self::Packed(packed) => packed.find_by_extremes(predicate, extreme, extremes, rows),
            _ => None,
        }
    }

    /// Whether the encoding stores the distinct numbers.
    pub(crate) fn has_entries(&self) -> bool {
        matches!(self, Self::Constant(_) | Self::Dictionary(_))
    }

    /// Count of the distinct numbers, or 0 if the encoding does not store them.
    pub(crate) fn entry_count(&self) -> usize {
        match self {
            Self::Constant(_) => 1,
            Self::Dictionary(dictionary) => dictionary.entries().len(),
            _ => 0,
        }
    }

    /// Appends the distinct numbers, if the encoding stores them. Floating point is appended as ordered integers.
    pub(crate) fn append_entries<O: Native>(&self, numbers: &mut Vec<O>) {
        match self {
            Self::Constant(number) => numbers.push(O::from_number(*number)),
            Self::Dictionary(dictionary) => dictionary.entries().append(0..dictionary.entries().len(), numbers),
            _ => {}
        }
    }

    /// Codes of the rows. Returns `None` if there is no dictionary.
    pub(crate) fn codes(&self) -> Option<&Codes> {
        match self {
            Self::Dictionary(dictionary) => Some(dictionary.codes()),
            _ => None,
        }
    }
}
