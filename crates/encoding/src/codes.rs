//! Codes of a dictionary: one number per row, packed or in runs.
//!
//! ```text
//! inner encoding bit_packed:   part: packed codes, as in `packed.rs`
//! inner encoding run_length:   part: ends of runs, as in `run_ends.rs`
//!                              part: one packed code per run
//! ```
//!
//! Codes have at most 16 bits. They are not checked against the dictionary: a lookup of a code out of range returns
//! some entry, or the empty string.

use std::ops::Range;

use taut_types::{DatumPredicate, Encoding};

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::lane_predicate::LanePredicate;
use crate::packed::{self, Packed};
use crate::run_ends::{self, RunEnds, run_starts};
use crate::{Bitmap, VECTOR_ROWS};

/// A code per row.
#[derive(Clone, Debug)]
pub(crate) enum Codes {
    /// A packed code per row.
    Packed(Packed),
    /// A packed code per run.
    Runs(RunEnds, Packed),
}

/// Minimum average rows of a run for which a binary search per row is worthwhile.
const RUN_ROWS_MIN: usize = 8;

/// Bits of a code. A dictionary has at most 2^16 entries.
pub(crate) fn width_of(entries: usize) -> usize {
    packed::width_of(0, entries as i32 - 1).unwrap_or(16)
}

/// Whether runs take less than half the bytes of packed codes, and are long enough for binary search.
fn are_runs_worthwhile(rows: usize, runs: usize, width: usize) -> bool {
    runs * RUN_ROWS_MIN <= rows && runs * (16 + width) * 2 < rows * width
}

/// Bytes of the parts of `rows` codes that form `runs` runs, in the layout that `write` chooses.
pub(crate) fn bytes(rows: usize, runs: usize, entries: usize) -> usize {
    let width = width_of(entries);
    if are_runs_worthwhile(rows, runs, width) {
        padded(2 * runs) + packed::bytes(runs, width)
    } else {
        packed::bytes(rows, width)
    }
}

/// Writes the parts of codes and sets the head fields that describe them. Codes are written in runs if `in_runs` is
/// true, or if it is `None` and runs are worthwhile. `entries` is one more than the greatest possible code.
pub(crate) fn write(codes: &[i32], entries: usize, in_runs: Option<bool>, head: &mut Head, writer: &mut Writer) {
    let width = width_of(entries);
    head.width = width;
    head.entries = entries;
    let runs = 1 + codes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    if in_runs.unwrap_or(are_runs_worthwhile(codes.len(), runs, width)) {
        let starts = run_starts(codes);
        let values: Vec<i32> = starts.iter().map(|row| codes[*row]).collect();
        (head.inner, head.runs) = (Some(Encoding::RunLength), starts.len());
        writer.push_part(&run_ends::write(&starts, codes.len()));
        packed::write(&values, 0, width, writer);
    } else {
        head.inner = Some(Encoding::BitPacked);
        packed::write(codes, 0, width, writer);
    }
}

/// Predicate that passes the listed codes and no others.
pub(crate) fn one_of(codes: impl Iterator<Item = i128>) -> DatumPredicate {
    let mut codes: Vec<i128> = codes.collect();
    // Already sorted, unless damaged entries are out of order.
    codes.sort_unstable();
    codes.dedup();
    DatumPredicate::OneOf(codes.into())
}

impl Codes {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.width > 16 {
            return Err(CorruptChunk { at: 2, expected: "codes of at most 16 bits" });
        }
        match head.inner {
            Some(Encoding::BitPacked) => Ok(Self::Packed(Packed::parse(parts, 0, head.width, head.rows)?)),
            Some(Encoding::RunLength) => {
                let ends = RunEnds::parse(parts, head.runs)?;
                Ok(Self::Runs(ends, Packed::parse(parts, 0, head.width, head.runs)?))
            }
            _ => Err(CorruptChunk { at: 1, expected: "codes that are packed or in runs" }),
        }
    }

    /// Readable name of the encoding.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Packed(packed) => format!("bit_packed({})", packed.width()),
            Self::Runs(ends, _) => format!("run_length({})", ends.len()),
        }
    }

    /// Visits the codes of a range, up to a vector at a time.
    pub(crate) fn visit(&self, rows: Range<usize>, mut visit: impl FnMut(&[u16])) {
        match self {
            Self::Packed(packed) => packed.visit_codes(rows, visit),
            Self::Runs(ends, packed) => {
                let mut buffer = [0; VECTOR_ROWS];
                let mut filled = 0;
                visit_runs(ends, packed, rows, |code, rows| {
                    let mut remaining = rows.len();
                    while remaining > 0 {
                        let part = remaining.min(VECTOR_ROWS - filled);
                        buffer[filled..filled + part].fill(code);
                        (filled, remaining) = (filled + part, remaining - part);
                        if filled == VECTOR_ROWS {
                            visit(&buffer);
                            filled = 0;
                        }
                    }
                });
                visit(&buffer[..filled]);
            }
        }
    }

    /// Visits the codes of a range run by run. Each packed code is visited as a run of one row.
    pub(crate) fn visit_runs(&self, rows: Range<usize>, mut visit: impl FnMut(u16, Range<usize>)) {
        match self {
            Self::Packed(packed) => {
                let mut row = rows.start;
                packed.visit_codes(rows, |codes| {
                    for code in codes {
                        visit(*code, row..row + 1);
                        row += 1;
                    }
                });
            }
            Self::Runs(ends, packed) => visit_runs(ends, packed, rows, visit),
        }
    }

    /// Codes of the rows at ascending positions.
    pub(crate) fn gather(&self, positions: &[u32]) -> Vec<u16> {
        let mut codes: Vec<i32> = Vec::with_capacity(positions.len());
        match self {
            Self::Packed(packed) => packed.append_at(positions, &mut codes),
            Self::Runs(ends, packed) => {
                let mut last = (usize::MAX, 0);
                ends.visit_at(positions, |run| {
                    if last.0 != run {
                        last = (run, packed.value(run) as i32);
                    }
                    codes.push(last.1);
                });
            }
        }
        // `parse` admits codes of at most 16 bits.
        codes.into_iter().map(|code| code as u16).collect()
    }

    /// Code of one row.
    pub(crate) fn value(&self, row: usize) -> u16 {
        // `parse` admits codes of at most 16 bits.
        match self {
            Self::Packed(packed) => packed.value(row) as u16,
            Self::Runs(ends, packed) => packed.value(ends.run_of(row)) as u16,
        }
    }

    /// Clears the rows of a range whose code fails a predicate on numbers.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        match self {
            Self::Packed(packed) => packed.filter(predicate, negated, rows, selection),
            Self::Runs(ends, packed) => {
                let predicate = LanePredicate::<u16>::new(predicate, negated, (0, u16::MAX.into()), 0);
                filter_runs(ends, packed, &predicate, rows, selection);
            }
        }
    }

    /// Like [`Packed::select`], for a predicate on codes as numbers.
    pub(crate) fn select(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: usize,
        selection: &mut Bitmap,
    ) -> bool {
        match self {
            Self::Packed(packed) => packed.select(predicate, negated, rows, selection),
            Self::Runs(..) => false,
        }
    }

    /// Clears the rows of a range whose code has a false flag, or no flag. Flag `i` belongs to code `i`.
    pub(crate) fn filter_flags(
        &self,
        flags: impl ExactSizeIterator<Item = bool>,
        rows: Range<usize>,
        selection: &mut Bitmap,
    ) {
        match self {
            Self::Packed(packed) => packed.filter_flags(flags, rows, selection),
            Self::Runs(ends, packed) => {
                filter_runs(ends, packed, &LanePredicate::<u16>::from_flags(flags), rows, selection);
            }
        }
    }
}

fn visit_runs(ends: &RunEnds, packed: &Packed, rows: Range<usize>, mut visit: impl FnMut(u16, Range<usize>)) {
    let runs = ends.runs_of(&rows);
    let mut codes: Vec<i32> = vec![];
    packed.append(runs.clone(), &mut codes);
    // `parse` admits codes of at most 16 bits.
    ends.visit(rows, |run, rows| visit(codes[run - runs.start] as u16, rows));
}

fn filter_runs(
    ends: &RunEnds,
    packed: &Packed,
    predicate: &LanePredicate<u16>,
    rows: Range<usize>,
    selection: &mut Bitmap,
) {
    visit_runs(ends, packed, rows, |code, rows| {
        if !predicate.admits(code) {
            selection.clear_range(rows);
        }
    });
}
