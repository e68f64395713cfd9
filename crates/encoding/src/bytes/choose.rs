//! Chooses the encoding of the strings of a segment, from samples.

use arrow_array::{Array, BinaryViewArray};
use fsst::Compressor;
use taut_types::Encoding;

use crate::VECTOR_ROWS;
use crate::bytes::front_coded::{Lengths, RESTART_ROWS};
use crate::bytes::fsst as symbols;
use crate::choice::EncodeError;
use crate::distinct::{self, Distinct};

/// Rows whose distinct values are counted before a dictionary of all rows is tried.
const SAMPLE_ROWS: usize = 4096;
/// Rows on which the symbols of fsst are trained and measured.
const TRAINING_ROWS: usize = 1024;
/// Number of stretches of rows in which the shared prefixes of neighbours are measured.
const SAMPLED_STRETCHES: usize = 64;
/// Minimum bytes of all strings for fsst. With fewer bytes, fsst saves no space.
const FSST_BYTES_MIN: usize = 16 << 10;
/// Bytes of the end offset of a plain string.
const PLAIN_END_BYTES: usize = 4;
/// Approximate bytes of the end offset of a string in `fsst`.
const FSST_END_BYTES: usize = 2;

/// Encoding chosen for strings, with the intermediate results that the writer reuses.
pub(crate) enum BytesPlan {
    /// Every row that is not null has the value of this row.
    Constant(usize),
    Plain,
    Dictionary(Distinct<u32>),
    RunLength(Distinct<u32>),
    Fsst(Box<Compressor>),
    FrontCoded(Lengths),
}

impl BytesPlan {
    /// Encoding that the plan is for.
    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Self::Constant(_) => Encoding::Constant,
            Self::Plain => Encoding::Plain,
            Self::Dictionary(_) => Encoding::Dictionary,
            Self::RunLength(_) => Encoding::RunLength,
            Self::Fsst(_) => Encoding::Fsst,
            Self::FrontCoded(_) => Encoding::FrontCoded,
        }
    }
}

/// Plan for a forced encoding.
pub(crate) fn plan_forced(array: &BinaryViewArray, encoding: Encoding) -> Result<BytesPlan, EncodeError> {
    let impossible = |reason| EncodeError::Impossible { encoding, reason };
    let distinct = || distinct::of_bytes(array, array.len()).ok_or(impossible("there are too many distinct values"));
    Ok(match encoding {
        Encoding::Plain => BytesPlan::Plain,
        Encoding::Dictionary => BytesPlan::Dictionary(distinct()?),
        Encoding::RunLength => BytesPlan::RunLength(distinct()?),
        Encoding::Fsst => BytesPlan::Fsst(Box::new(symbols::train(array, sample(array.len(), TRAINING_ROWS)))),
        Encoding::Constant => BytesPlan::Constant(constant_row(array).ok_or(impossible("values differ"))?),
        Encoding::FrontCoded => BytesPlan::FrontCoded(Lengths::measure(array, 0..array.len())),
        Encoding::BitPacked
        | Encoding::FrameOfReference
        | Encoding::Delta
        | Encoding::RunLengthDelta
        | Encoding::Bitmap
        | Encoding::TwoByteDelta
        | Encoding::Patched
        | Encoding::Alp => return Err(impossible("it is for numbers")),
    })
}

/// Chooses an encoding whose saving is worth the cost of decoding. Prefers a dictionary that saves two fifths, because
/// it also makes predicates and decoding faster. Otherwise chooses the smaller of `fsst`, which must save a quarter,
/// and `front_coded`, which must save a half. All rows of plain strings decode five times as fast as with `fsst` or
/// `front_coded`. A single plain string is read twice as fast as with `fsst`, and four times as fast as with
/// `front_coded`.
pub(crate) fn plan(array: &BinaryViewArray, heap_bytes: usize) -> BytesPlan {
    if let Some(row) = constant_row(array) {
        return BytesPlan::Constant(row);
    }
    let plain_bytes = heap_bytes + PLAIN_END_BYTES * array.len();
    if let Some(distinct) = dictionary(array, heap_bytes, plain_bytes) {
        return BytesPlan::Dictionary(distinct);
    }
    let mut best = (plain_bytes as f64, BytesPlan::Plain);
    if let Some(lengths) = front_coded(array, plain_bytes) {
        best = (lengths.encoded_bytes() as f64, BytesPlan::FrontCoded(lengths));
    }
    if heap_bytes >= FSST_BYTES_MIN {
        let compressor = symbols::train(array, sample(array.len(), TRAINING_ROWS));
        // If the sample skips rows, symbols are measured on rows that they were not trained on.
        let test_rows = sample(array.len(), TRAINING_ROWS).map(|row| (row + 1).min(array.len() - 1));
        let (before, after) = symbols::measure(&compressor, array, test_rows);
        let ends = (FSST_END_BYTES * array.len().next_multiple_of(VECTOR_ROWS)) as f64;
        let expected = heap_bytes as f64 * after as f64 / before.max(1) as f64 + ends;
        if expected < 0.75 * plain_bytes as f64 && expected < best.0 {
            return BytesPlan::Fsst(Box::new(compressor));
        }
    }
    best.1
}

/// Chooses the smaller of `run_length` and `front_coded`, even if another encoding is smaller still.
pub(crate) fn plan_by_order(array: &BinaryViewArray) -> Result<BytesPlan, EncodeError> {
    if let Some(row) = constant_row(array) {
        return Ok(BytesPlan::Constant(row));
    }
    let lengths = Lengths::measure(array, 0..array.len());
    // Bytes of a run besides its value: the end offset of the value, the end of the run, and a code.
    const RUN_BYTES: usize = PLAIN_END_BYTES + 4;
    let (mut last, mut runs_bytes) = (None, 0);
    // Null rows repeat the previous value.
    for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
        let value = array.value(row);
        if last != Some(value) {
            runs_bytes += value.len() + RUN_BYTES;
            last = Some(value);
        }
    }
    if lengths.encoded_bytes() <= runs_bytes && lengths.decoded_bytes() <= i32::MAX as usize {
        return Ok(BytesPlan::FrontCoded(lengths));
    }
    plan_forced(array, Encoding::RunLength)
}

/// Lengths for `front_coded`. Returns `None` if the encoding takes more than half of the plain bytes, or is impossible.
fn front_coded(array: &BinaryViewArray, plain_bytes: usize) -> Option<Lengths> {
    let rows = array.len();
    let is_worthwhile = |bytes: usize, sampled_rows: usize| 2 * bytes * rows <= plain_bytes * sampled_rows;
    // Prefixes are shared by neighbours, so the sample consists of stretches of rows.
    let stretches = sample(rows, SAMPLED_STRETCHES).map(|first| first..rows.min(first + RESTART_ROWS));
    let (bytes, sampled_rows) = stretches.fold((0, 0), |(bytes, sampled_rows), stretch| {
        (bytes + Lengths::measure(array, stretch.clone()).suffix_bytes(), sampled_rows + stretch.len())
    });
    if !is_worthwhile(bytes, sampled_rows) {
        return None;
    }
    let lengths = Lengths::measure(array, 0..rows);
    let is_possible = lengths.decoded_bytes() <= i32::MAX as usize;
    (is_possible && is_worthwhile(lengths.encoded_bytes(), rows)).then_some(lengths)
}

/// First row that is not null, if all other rows have its value or are null.
fn constant_row(array: &BinaryViewArray) -> Option<usize> {
    let first = (0..array.len()).find(|row| array.is_valid(*row))?;
    let (view, value) = (array.views()[first], array.value(first));
    let is_same =
        |row: usize| array.is_null(row) || array.views()[row] as u64 == view as u64 && array.value(row) == value;
    (first + 1..array.len()).all(is_same).then_some(first)
}

fn dictionary(array: &BinaryViewArray, heap_bytes: usize, plain_bytes: usize) -> Option<Distinct<u32>> {
    let rows = array.len();
    let (values, padded) = (rows - array.null_count(), rows.next_multiple_of(VECTOR_ROWS));
    let value_bytes = heap_bytes.div_ceil(values) + PLAIN_END_BYTES;
    let sampled_values = sample(rows, SAMPLE_ROWS).filter(|row| array.is_valid(*row)).count();
    let sampled_distinct = distinct::count_of_bytes(array, sample(rows, SAMPLE_ROWS));
    // If nearly all values of a 1/16 sample are distinct, more than a quarter of all values are distinct.
    if rows > SAMPLE_ROWS && sampled_distinct * 20 > sampled_values * 17 {
        return None;
    }
    let budget = |code_bits: usize| (plain_bytes * 3 / 5).saturating_sub(padded * code_bits / 8) / value_bytes;
    let entries_max = (1..=16).map(|code_bits| budget(code_bits).min(1 << code_bits)).max()?;
    distinct::of_bytes(array, entries_max)
}

/// Positions of at most `count` rows, evenly spread over `rows` rows.
fn sample(rows: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(rows.div_ceil(count).max(1))
}
