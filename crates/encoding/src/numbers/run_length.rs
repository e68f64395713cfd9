//! Runs of equal numbers: encoding `run_length`.
//!
//! ```text
//! part: ends of runs, as in `run_ends.rs`
//! part: one number per run, packed (inner encoding bit_packed or frame_of_reference) or plain
//! ```
//!
//! A row is found by binary search over the ends: not for columns that are looked up by position.

use std::ops::Range;

use taut_types::{Encoding, Test};

use crate::Bitmap;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::lane_test::LaneTest;
use crate::native::Native;
use crate::numbers::packed::{self, Packed};
use crate::numbers::plain::{self, Plain};
use crate::run_ends::{self, RunEnds, run_starts};

/// Runs of equal numbers.
#[derive(Clone, Debug)]
pub(crate) struct RunLength {
    ends: RunEnds,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Plain(Plain),
    Packed(Packed),
}

/// Writes the parts of numbers in runs, whose least and greatest number are given; sets what the head says.
pub(crate) fn write<N: Native>(values: &[N], (min, max): (N, N), head: &mut Head, writer: &mut Writer) {
    let starts = run_starts(values);
    let runs: Vec<N> = starts.iter().map(|row| values[*row]).collect();
    head.runs = starts.len();
    writer.part(&run_ends::write(&starts, values.len()));
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
    /// Takes the parts that the head announces.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let ends = RunEnds::parse(parts, head.runs)?;
        let values = match head.inner {
            Some(Encoding::FrameOfReference) => Values::Packed(Packed::parse(parts, head.base, head.width, head.runs)?),
            Some(Encoding::Plain) => Values::Plain(Plain::parse(parts, head.plain_bytes, false, head.runs)?),
            _ => return Err(CorruptChunk { at: 1, expected: "run values that are packed or plain" }),
        };
        Ok(Self { ends, values })
    }

    /// The encodings as a person reads them.
    pub(crate) fn description(&self) -> String {
        match &self.values {
            Values::Plain(_) => format!("run_length({}) of plain", self.ends.len()),
            Values::Packed(packed) => {
                format!("run_length({}) of frame_of_reference({})", self.ends.len(), packed.width())
            }
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

    /// The runs of a range of rows, and their numbers.
    fn values_of<O: Native>(&self, rows: &Range<usize>) -> (Range<usize>, Vec<O>) {
        let runs = self.ends.runs_of(rows);
        let mut values = vec![];
        match &self.values {
            Values::Plain(plain) => plain.append(runs.clone(), &mut values),
            Values::Packed(packed) => packed.append(runs.clone(), &mut values),
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

    fn value_of_run(&self, run: usize) -> i128 {
        match &self.values {
            Values::Plain(plain) => plain.value(run),
            Values::Packed(packed) => packed.value(run),
        }
    }

    /// One number.
    pub(crate) fn value(&self, row: usize) -> i128 {
        self.value_of_run(self.ends.run_of(row))
    }

    /// Clears the rows of a range that fail a test, run by run.
    pub(crate) fn filter(&self, test: &Test, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let test = LaneTest::<u128>::new(test, negated, (i128::MIN, i128::MAX), 0);
        let (runs, values) = self.values_of::<i128>(&rows);
        self.ends.visit(rows, |run, rows| {
            if !test.admits(values[run - runs.start] as u128) {
                selection.clear_range(rows);
            }
        });
    }
}
