//! Runs of equal numbers, each as its length and the step from the previous run: encoding `run_length_delta`.
//!
//! ```text
//! part: vectors * plain_bytes   the number of the first run of each vector of 1,024 words; floating point as ordered
//!                               integers
//! part: vectors * 2             u16 each: the row at which that run begins
//! part: words, packed as in `packed.rs`:
//!         bits 0 .. run_bits        rows of the run - 1
//!         bits run_bits .. width    number - number of the previous run - base; zero in the first word of a vector
//! ```
//!
//! The head holds `width`, `run_bits` in the field `entries`, the number of words in `runs`, and the least step in
//! `base`. A run too long for its bits is continued by a word with the same number. The encoding is for ascending
//! sequences with small steps and duplicates, which take less than a byte per run. It also holds numbers that do not
//! ascend, but predicates then read every run. A row is found by summing up the runs before it in its vector of words.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};
use taut_types::DatumPredicate;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::{Native, with_wide_vectors};
use crate::lane_predicate::LanePredicate;
use crate::numbers::bounds::{BoundsPredicate, bounds_of_steps};
use crate::numbers::delta::{Steps, step, width_of_steps};
use crate::numbers::plain::{self, Plain};
use crate::numbers::statistics::Statistics;
use crate::packed::{self, Packed};
use crate::run_ends::run_starts;
use crate::{Bitmap, VECTOR_ROWS};

/// Maximum bits of the length of a run. A chunk has at most 2^16 rows.
const RUN_BITS_MAX: usize = 16;
/// Number of cells that are written at once. The next run overwrites the cells past the end of a run.
const STRIDE: usize = 8;

/// Maximum number of rows per row that is read, in a vector of words, for which decoding all rows is faster than
/// finding single runs.
const ROWS_PER_READ_MAX: usize = 4;

/// Runs of equal numbers, as lengths and steps.
#[derive(Clone, Debug)]
pub(crate) struct RunLengthDelta {
    rows: usize,
    runs: usize,
    run_bits: usize,
    least: i128,
    firsts: Plain,
    starts: ScalarBuffer<u16>,
    words: Packed,
}

/// Layout of runs in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunLengthDeltaPlan {
    steps: Steps,
    run_bits: usize,
    width: usize,
    words: usize,
}

impl RunLengthDeltaPlan {
    /// The plan with the fewest bytes for numbers that are at most `spread` apart. Returns `None` if 64 bits are too
    /// few for a word.
    pub(crate) fn for_values<N: Native>(values: &[N], spread: Option<i128>) -> Option<Self> {
        let starts = run_starts(values);
        let runs: Vec<N> = starts.iter().map(|row| values[*row]).collect();
        let steps = Steps::between_neighbours(&runs, spread)?;
        // Number of words in addition to one per run, by the number of bits of a length.
        let mut extra_words = [0; RUN_BITS_MAX + 1];
        let ends = starts[1..].iter().copied().chain([values.len()]);
        for rows in ends.zip(&starts).map(|(end, start)| end - start - 1) {
            let mut bits = 0;
            while rows >> bits > 0 {
                extra_words[bits] += rows >> bits;
                bits += 1;
            }
        }
        let plan = |run_bits: usize| {
            // A word that continues a run has a step of zero.
            let steps =
                if extra_words[run_bits] > 0 { Steps { min: steps.min.min(0), max: steps.max.max(0) } } else { steps };
            let width = run_bits + steps.width()?;
            (width <= 64).then_some(Self { steps, run_bits, width, words: runs.len() + extra_words[run_bits] })
        };
        (0..=RUN_BITS_MAX).filter_map(plan).min_by_key(|plan| plan.bytes(0))
    }

    /// Bytes of the parts.
    pub(crate) fn bytes(&self, plain_bytes: usize) -> usize {
        let vectors = self.words.div_ceil(VECTOR_ROWS);
        padded(vectors * plain_bytes) + padded(2 * vectors) + packed::bytes(self.words, self.width)
    }
}

/// Bytes of the words, from a sample of the steps of neighbours. Assumes a word per run, with one bit for its length.
pub(crate) fn estimate_of_sample<N: Native>(sample: Vec<i64>, statistics: &Statistics<'_, N>) -> Option<usize> {
    let width = width_of_steps(sample.into_iter().filter(|step| *step != 0))?;
    Some(statistics.runs * (width + 1) / 8)
}

/// Writes the parts of numbers as planned, and sets the head fields that describe them.
pub(crate) fn write<N: Native>(values: &[N], plan: RunLengthDeltaPlan, head: &mut Head, writer: &mut Writer) {
    (head.base, head.width, head.runs) = (plan.steps.min, plan.width, plan.words);
    head.entries = plan.run_bits;
    let (mut firsts, mut first_rows, mut words) = (vec![], Vec::<u16>::new(), Vec::<i64>::with_capacity(plan.words));
    let starts = run_starts(values);
    let mut last = None;
    for (index, start) in starts.iter().enumerate() {
        let (mut row, end) = (*start, starts.get(index + 1).copied().unwrap_or(values.len()));
        while row < end {
            let rows = (end - row).min(1 << plan.run_bits);
            let number = values[row];
            let distance = match last {
                Some(last) if !words.len().is_multiple_of(VECTOR_ROWS) => {
                    step(last, number).wrapping_sub(plan.steps.min as i64)
                }
                _ => {
                    firsts.push(number);
                    // A chunk has at most 2^16 rows.
                    first_rows.push(row as u16);
                    0
                }
            };
            words.push(distance << (plan.run_bits % 64) | (rows as i64 - 1));
            (last, row) = (Some(number), row + rows);
        }
    }
    plain::write(&firsts, head.plain_bytes, false, writer);
    writer.push_part(first_rows.as_slice().to_byte_slice());
    packed::write(&words, 0, plan.width, writer);
}

/// Fills the cells from `at` on with the numbers of runs. `last` is the number before them. Returns the index of the
/// first unfilled cell, and the last number.
#[inline(always)]
fn fill_runs<O: Native>(
    runs: impl Iterator<Item = (O, usize)>,
    cells: &mut [O],
    mut at: usize,
    mut last: O,
) -> (usize, O) {
    for (number, length) in runs {
        last = number;
        let end = cells.len().min(at + length);
        match cells[at..].first_chunk_mut::<STRIDE>() {
            Some(cells) if length <= STRIDE => *cells = [number; STRIDE],
            _ => cells[at..end].fill(number),
        }
        at = end;
        if at == cells.len() {
            break;
        }
    }
    (at, last)
}

impl RunLengthDelta {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let run_bits = head.entries;
        if run_bits > RUN_BITS_MAX.min(head.width) {
            return Err(CorruptChunk {
                at: 12,
                expected: "at most 16 bits for the length of a run, and no more than its word has",
            });
        }
        if head.runs == 0 {
            return Err(CorruptChunk { at: 32, expected: "at least one run" });
        }
        let vectors = head.runs.div_ceil(VECTOR_ROWS);
        let firsts = Plain::parse(parts, head.plain_bytes, false, vectors)?;
        let starts = ScalarBuffer::from(parts.read_part(2 * vectors, "first rows of vectors")?);
        let words = Packed::parse(parts, 0, head.width, head.runs)?;
        Ok(Self { rows: head.rows, run_bits, least: head.base, runs: head.runs, firsts, starts, words })
    }

    /// Readable name of the encoding.
    pub(crate) fn description(&self) -> String {
        format!("run_length_delta({}) of bit_packed({})", self.runs, self.words.width())
    }

    /// Index of the vector of words that holds a row.
    fn vector_of(&self, row: usize) -> usize {
        self.starts.partition_point(|start| usize::from(*start) <= row).saturating_sub(1)
    }

    /// Rows of a vector of words.
    fn rows_of(&self, vector: usize) -> Range<usize> {
        let end = self.starts.get(vector + 1).map_or(self.rows, |start| usize::from(*start));
        usize::from(self.starts[vector])..end
    }

    /// Number and rows of each run of a vector of words. The words are unpacked to `words`.
    #[inline(always)]
    fn runs<'a, S: Native>(
        &self,
        vector: usize,
        words: &'a mut [i64; VECTOR_ROWS],
    ) -> impl Iterator<Item = (S, usize)> + use<'a, S> {
        self.words.unpack_vector(vector, words);
        let (run_bits, least) = (self.run_bits, S::from_number(self.least));
        let run_mask = (1_u64 << run_bits) - 1;
        let words = &words[..(self.runs - vector * VECTOR_ROWS).min(VECTOR_ROWS)];
        let mut number = S::from_number(self.firsts.value(vector).wrapping_sub(self.least));
        words.iter().map(move |word| {
            let word = *word as u64;
            number = number.plus(word >> run_bits).wrapping_sum(least);
            (number, (word & run_mask) as usize + 1)
        })
    }

    /// Visits all runs, each with its number and its count of rows.
    pub(crate) fn visit_runs(&self, mut visit: impl FnMut(i128, usize)) {
        let mut words = [0; VECTOR_ROWS];
        for vector in 0..self.starts.len() {
            self.runs::<i128>(vector, &mut words).for_each(|(number, rows)| visit(number, rows));
        }
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        if rows.is_empty() {
            return;
        }
        let (begin, first) = (out.len(), self.vector_of(rows.start));
        let mut row = usize::from(self.starts[first]);
        out.resize(begin + rows.len(), O::default());
        let (mut at, mut last, mut words) = (0, O::default(), [0; VECTOR_ROWS]);
        for vector in first..self.starts.len() {
            let (mut runs, cells) = (self.runs::<O>(vector, &mut words), &mut out[begin..]);
            while row < rows.start
                && let Some((number, length)) = runs.next()
            {
                row += length;
                (at, last) = (row.saturating_sub(rows.start).min(cells.len()), number);
                cells[..at].fill(number);
            }
            if at == cells.len() {
                return;
            }
            (at, last) = with_wide_vectors(move || fill_runs(runs, cells, at, last));
        }
        // In damaged bytes, runs that end too early leave rows without a number.
        out[begin + at..].fill(last);
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, mut positions: &[u32], out: &mut Vec<O>) {
        let (mut words, mut decoded) = ([0; VECTOR_ROWS], Vec::<O>::new());
        while let Some(first) = positions.first() {
            let vector = self.vector_of(*first as usize);
            let rows = self.rows_of(vector);
            let (vector_positions, rest) =
                positions.split_at(positions.partition_point(|row| (*row as usize) < rows.end).max(1));
            if vector_positions.len() * ROWS_PER_READ_MAX >= rows.len() {
                decoded.clear();
                self.append(rows.clone(), &mut decoded);
                // In damaged bytes, a vector may begin after its rows.
                let number =
                    |row: &u32| decoded.get((*row as usize).wrapping_sub(rows.start)).copied().unwrap_or_default();
                out.extend(vector_positions.iter().map(number));
                positions = rest;
                continue;
            }
            let mut runs = self.runs::<O>(vector, &mut words);
            let (mut number, mut end) = (O::default(), rows.start);
            for row in vector_positions {
                while end <= *row as usize
                    && let Some((next, length)) = runs.next()
                {
                    (number, end) = (next, end + length);
                }
                out.push(number);
            }
            positions = rest;
        }
    }

    /// Clears the rows of a range that fail a predicate. Evaluates it run by run in the vectors of words whose bounds
    /// do not decide.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let on_bounds = BoundsPredicate::new(predicate, negated);
        let on_numbers = LanePredicate::<u128>::new(predicate, negated, (i128::MIN, i128::MAX), 0);
        let mut words = [0; VECTOR_ROWS];
        let (mut vector, mut start) = (self.vector_of(rows.start), rows.start);
        while start < rows.end {
            let vector_rows = self.rows_of(vector);
            let is_last = vector + 1 == self.starts.len();
            let end = if is_last { rows.end } else { vector_rows.end.clamp(start, rows.end) };
            if !selection.is_range_empty(start..end) {
                match self.decide_vector(vector, &on_bounds) {
                    Some(true) => {}
                    Some(false) => selection.clear_range(start..end),
                    None => {
                        let mut row = vector_rows.start;
                        for (number, length) in self.runs::<i128>(vector, &mut words) {
                            let run = row.max(start)..(row + length).min(end);
                            row += length;
                            if !run.is_empty() && !on_numbers.admits(number as u128) {
                                selection.clear_range(run);
                            }
                        }
                    }
                }
            }
            (vector, start) = (vector + 1, end);
        }
    }

    fn decide_vector(&self, vector: usize, on_bounds: &BoundsPredicate) -> Option<bool> {
        let words = (self.runs - vector * VECTOR_ROWS).min(VECTOR_ROWS);
        let step_bits = self.words.width() - self.run_bits;
        let greatest = self.least.saturating_add((1_i128 << step_bits) - 1);
        let steps = (self.least, greatest);
        let (low, high) = bounds_of_steps(&self.firsts, vector, words - 1, steps, self.least >= 0);
        on_bounds.decide(low, high)
    }
}
