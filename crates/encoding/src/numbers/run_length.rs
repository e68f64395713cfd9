//! Runs of equal numbers: encoding `run_length`.
//!
//! ```text
//! part: ends of runs, as in `run_ends.rs`
//! part: one number per run, packed (inner encoding frame_of_reference) or plain (inner encoding plain)
//! ```
//!
//! The number and the length of a run share one word instead (inner encoding run_length) if that is smaller: see
//! `run_words.rs`.
//!
//! A row is found by binary search over the ends. The encoding is not for columns that are looked up by position.

use std::ops::Range;

use taut_types::{DatumPredicate, Encoding};

use crate::Bitmap;
use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::Native;
use crate::lane_predicate::LanePredicate;
use crate::numbers::plain::{self, Plain};
use crate::numbers::run_words::{self, RunWords, RunWordsPlan};
use crate::numbers::statistics::Statistics;
use crate::packed::{self, Packed};
use crate::run_ends::{self, RunEnds, run_starts};

/// Runs of equal numbers.
#[derive(Clone, Debug)]
pub(crate) struct RunLength {
    ends: RunEnds,
    values: RunValues,
}

/// Number of each run, by its encoding.
#[derive(Clone, Debug)]
enum RunValues {
    Plain(Plain),
    Packed(Packed),
    Words(RunWords),
}

/// Bytes of the parts of ends and numbers.
fn bytes(runs: usize, width: Option<usize>, plain_bytes: usize) -> usize {
    let plain = padded(runs * plain_bytes);
    padded(2 * runs) + width.filter(|width| *width < 8 * plain_bytes).map_or(plain, |width| packed::bytes(runs, width))
}

/// Lower bound of the bytes of the parts, in either layout. The number of words is known only when they are written.
pub(crate) fn estimate<N: Native>(statistics: &Statistics<'_, N>) -> usize {
    let bytes = bytes(statistics.runs, statistics.width(), statistics.plain_bytes);
    bytes.min(run_words::bytes_least(statistics.runs))
}

/// Bits of the ends and numbers of runs, without padding.
pub(crate) fn estimate_bits<N: Native>(statistics: &Statistics<'_, N>) -> usize {
    let plain_bits = statistics.plain_bits();
    statistics.runs * (16 + statistics.width().map_or(plain_bits, |width| width.min(plain_bits)))
}

/// Writes the parts of numbers in runs, and sets the head fields that describe them. `min` and `max` are the least and
/// greatest number.
pub(crate) fn write<N: Native>(values: &[N], (min, max): (N, N), head: &mut Head, writer: &mut Writer) {
    let starts = run_starts(values);
    if let Some(plan) = RunWordsPlan::for_runs(&starts, values.len(), (min, max))
        && plan.bytes() < bytes(starts.len(), packed::width_of(min, max), head.plain_bytes)
    {
        return run_words::write(values, min, &starts, plan, head, writer);
    }
    let runs: Vec<N> = starts.iter().map(|row| values[*row]).collect();
    head.runs = starts.len();
    writer.push_part(&run_ends::write(&starts, values.len()));
    match packed::width_of(min, max) {
        Some(width) if width < 8 * head.plain_bytes => {
            (head.inner, head.width, head.base) = (Some(Encoding::FrameOfReference), width, min.to_number());
            packed::write(&runs, min, width, writer);
        }
        _ => {
            head.inner = Some(Encoding::Plain);
            plain::write(&runs, head.plain_bytes, false, writer);
        }
    }
}

impl RunLength {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.inner == Some(Encoding::RunLength) {
            let (ends, words) = RunWords::parse(head, parts)?;
            return Ok(Self { ends, values: RunValues::Words(words) });
        }
        let ends = RunEnds::parse(parts, head.runs)?;
        let values = match head.inner {
            Some(Encoding::FrameOfReference) => {
                RunValues::Packed(Packed::parse(parts, head.base, head.width, head.runs)?)
            }
            Some(Encoding::Plain) => RunValues::Plain(Plain::parse(parts, head.plain_bytes, false, head.runs)?),
            _ => return Err(CorruptChunk { at: 1, expected: "run values that are packed or plain" }),
        };
        Ok(Self { ends, values })
    }

    /// Ends of the runs.
    pub(crate) fn ends(&self) -> &RunEnds {
        &self.ends
    }

    /// Readable name of the encodings.
    pub(crate) fn description(&self) -> String {
        match &self.values {
            RunValues::Plain(_) => format!("run_length({}) of plain", self.ends.len()),
            RunValues::Packed(packed) => {
                format!("run_length({}) of frame_of_reference({})", self.ends.len(), packed.width())
            }
            RunValues::Words(words) => format!("run_length({}) of {}-bit words", self.ends.len(), words.word_bits()),
        }
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        let (runs, values) = self.values_of::<O>(&rows);
        out.reserve(rows.len());
        self.ends.visit(rows, |run, rows| {
            let value = values[run - runs.start];
            out.resize(out.len() + rows.len(), value);
        });
    }

    /// Runs of a range of rows, and their numbers.
    fn values_of<O: Native>(&self, rows: &Range<usize>) -> (Range<usize>, Vec<O>) {
        let runs = self.ends.runs_of(rows);
        let mut values = vec![];
        match &self.values {
            RunValues::Plain(plain) => plain.append(runs.clone(), &mut values),
            RunValues::Packed(packed) => packed.append(runs.clone(), &mut values),
            RunValues::Words(words) => words.append(runs.clone(), &mut values),
        }
        (runs, values)
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let mut last = None;
        self.ends.visit_at(positions, |run| {
            let value = match last {
                Some((last_run, value)) if last_run == run => value,
                _ => O::from_number(self.value_of_run(run)),
            };
            last = Some((run, value));
            out.push(value);
        });
    }

    /// Number of each run of a range, and its number of rows in the range.
    pub(crate) fn runs(&self, rows: Range<usize>) -> Vec<(i128, usize)> {
        let (runs, values) = self.values_of::<i128>(&rows);
        let mut runs_with_rows = Vec::with_capacity(values.len());
        self.ends.visit(rows, |run, rows| runs_with_rows.push((values[run - runs.start], rows.len())));
        runs_with_rows
    }

    fn value_of_run(&self, run: usize) -> i128 {
        match &self.values {
            RunValues::Plain(plain) => plain.value(run),
            RunValues::Packed(packed) => packed.value(run),
            RunValues::Words(words) => words.value(run),
        }
    }

    /// Number of one row.
    pub(crate) fn value(&self, row: usize) -> i128 {
        self.value_of_run(self.ends.run_of(row))
    }

    /// Clears the rows of a range that fail a predicate, run by run.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let predicate = LanePredicate::<u128>::new(predicate, negated, (i128::MIN, i128::MAX), 0);
        let (runs, values) = self.values_of::<i128>(&rows);
        self.ends.visit(rows, |run, rows| {
            if !predicate.admits(values[run - runs.start] as u128) {
                selection.clear_range(rows);
            }
        });
    }
}
