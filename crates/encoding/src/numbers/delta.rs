//! Differences of neighbours, bit-packed: encoding `delta`.
//!
//! ```text
//! part: vectors * plain_bytes   the first number of each vector of 1,024 rows; floating point as ordered integers
//! part: packed steps, as in `packed.rs`: number - previous number - base; zero in the first row of a vector
//! parts: exceptions, as in `exceptions.rs`: steps that replace the packed ones; the head's `entries` counts them
//! ```
//!
//! `base` is in the head: the least packed step, which may be negative. Evenly spaced numbers therefore need no bits,
//! and descending numbers need as few as ascending ones. A number is the first number of its vector plus the steps up
//! to it. Reading one number unpacks that vector, so the encoding is not for columns that are looked up by position.
//!
//! Rare steps that are far from the others are exceptions. For example, the second column of a sort order ascends
//! within each value of the first column, and then starts again. Exceptions are signed integers of the type's plain
//! width. If some step needs more, there are no exceptions. Numbers whose least and greatest steps are 2^64 or more
//! apart cannot be stored.

use std::ops::Range;

use taut_types::DatumPredicate;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::{Lane, MASK_WORDS, Native, with_lane, with_wide_vectors};
use crate::lane_predicate::{LanePredicate, filter_vectors};
use crate::numbers::bounds::{BoundsPredicate, bounds_of_steps, uniform_mask};
use crate::numbers::exceptions::{self, Exceptions, Window};
use crate::numbers::plain::{self, Plain};
use crate::numbers::statistics::Statistics;
use crate::packed::{self, Packed};
use crate::{Bitmap, VECTOR_ROWS};

/// Maximum rows of a vector whose numbers are computed by summing the packed steps up to each. For more rows, all
/// numbers are decoded.
const SUMMED_ROWS_MAX: usize = 16;
/// Number of vectors to prefetch ahead. Summing up one vector takes less time than a load from memory.
const VECTORS_AHEAD: usize = 3;

/// Numbers as differences of neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    rows: usize,
    firsts: Plain,
    steps: Packed,
    exceptions: Exceptions,
}

/// Least and greatest difference of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) min: i128,
    pub(crate) max: i128,
}

/// Step from one number to the next, truncated to 64 bits.
#[inline(always)]
pub(crate) fn step<N: Native>(left: N, right: N) -> i64 {
    right.to_number().wrapping_sub(left.to_number()) as i64
}

impl Steps {
    /// Steps of numbers that are at most `spread` apart. Returns `None` if a step needs more than 128 bits. A single
    /// number has one step of zero.
    pub(crate) fn between_neighbours<N: Native>(values: &[N], spread: Option<i128>) -> Option<Self> {
        let (left, right) = (values, values.get(1..).unwrap_or_default());
        if spread.is_some_and(|spread| spread <= i64::MAX.into()) {
            let first = left.iter().zip(right).next().map_or(0, |(left, right)| step(*left, *right));
            let (min, max) = with_wide_vectors(move || {
                left.iter().zip(right).fold((first, first), |(min, max), (left, right)| {
                    let step = step(*left, *right);
                    (min.min(step), max.max(step))
                })
            });
            return Some(Self { min: min.into(), max: max.into() });
        }
        let step = |(left, right): (&N, &N)| right.to_number().checked_sub(left.to_number());
        let mut steps: Option<Self> = None;
        for pair in left.iter().zip(right) {
            let step = step(pair)?;
            let (min, max) = steps.map_or((step, step), |steps| (steps.min.min(step), steps.max.max(step)));
            steps = Some(Self { min, max });
        }
        Some(steps.unwrap_or(Self { min: 0, max: 0 }))
    }

    /// Number of bits of `max - min`. Returns `None` if it is more than 64.
    pub(crate) fn width(self) -> Option<usize> {
        packed::width_of(self.min, self.max)
    }
}

/// Bytes of the parts, without exceptions.
fn bytes(rows: usize, width: usize, plain_bytes: usize) -> usize {
    padded(rows.div_ceil(VECTOR_ROWS) * plain_bytes) + packed::bytes(rows, width)
}

/// Choice of the steps that are packed, and their width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeltaPlan {
    least: i128,
    width: usize,
    /// Rows whose step is not packed. Includes rows that begin a vector, because their steps show whether all numbers
    /// ascend.
    exceptions: Vec<u16>,
}

impl DeltaPlan {
    /// The plan with the fewest bytes for numbers that are at most `spread` apart. Returns `None` if the numbers cannot
    /// be stored.
    pub(crate) fn for_values<N: Native>(values: &[N], spread: Option<i128>, plain_bytes: usize) -> Option<Self> {
        let steps = Steps::between_neighbours(values, spread)?;
        let without_exceptions = steps.width().map(|width| Self { least: steps.min, width, exceptions: vec![] });
        // Steps that may need more than 64 bits are not sampled.
        let is_sampled = spread.is_some_and(|spread| spread <= i64::MAX.into()) && !values.is_empty();
        let sample = if is_sampled { sample_steps(values, PLAN_ROWS) } else { vec![] };
        let window = find_window(sample, steps, plain_bytes);
        let patched = window.filter(|window| steps.width().is_none_or(|width| window.width < width)).map(|window| {
            let outside = (1..values.len()).filter(|row| !window.contains(step(values[row - 1], values[*row])));
            // A chunk has at most 2^16 rows.
            let exceptions = outside.map(|row| row as u16).collect();
            Self { least: window.base.into(), width: window.width, exceptions }
        });
        [without_exceptions, patched].into_iter().flatten().min_by_key(|plan| plan.bytes(values.len(), plain_bytes))
    }

    /// Bytes of the parts.
    pub(crate) fn bytes(&self, rows: usize, plain_bytes: usize) -> usize {
        let exceptions = self.exceptions.len();
        bytes(rows, self.width, plain_bytes) + padded(2 * exceptions) + padded(exceptions * plain_bytes)
    }
}

/// Maximum number of steps in the sample that decides whether a plan is made.
const ESTIMATE_ROWS: usize = 256;
/// Maximum number of steps in the sample from which the [`Window`] of a plan is found.
const PLAN_ROWS: usize = 1024;

/// Sample of at most `rows_max` evenly spaced steps, truncated to 64 bits.
fn sample_steps<N: Native>(values: &[N], rows_max: usize) -> Vec<i64> {
    let pairs = values.iter().zip(&values[1..]).step_by(values.len().div_ceil(rows_max));
    pairs.map(|(left, right)| step(*left, *right)).collect()
}

/// Sample of steps for [`estimate_of_sample`]. The numbers must be at most 64 bits apart.
pub(crate) fn estimate_sample<N: Native>(values: &[N]) -> Vec<i64> {
    sample_steps(values, ESTIMATE_ROWS)
}

/// Number of bits of the greatest step minus the least step. Returns `None` if it is more than 64.
pub(crate) fn width_of_steps(steps: impl Iterator<Item = i64>) -> Option<usize> {
    let bounds = steps.fold(None, |bounds: Option<(i64, i64)>, step| {
        Some(bounds.map_or((step, step), |(min, max)| (min.min(step), max.max(step))))
    });
    let (min, max) = bounds.unwrap_or((0, 0));
    packed::width_of(min, max)
}

/// Estimated bytes of the parts, with exceptions or without, from a sample of steps. The estimate can be too low,
/// because the sample can miss the extreme steps.
pub(crate) fn estimate_of_sample<N: Native>(
    sample: &[i64],
    statistics: &Statistics<'_, N>,
    spread: i128,
) -> Option<usize> {
    let (rows, plain_bytes) = (statistics.rows(), statistics.plain_bytes);
    let without_exceptions = width_of_steps(sample.iter().copied()).map(|width| bytes(rows, width, plain_bytes));
    let window = find_window(sample.to_vec(), Steps { min: -spread, max: spread }, plain_bytes);
    let patched = window.map(|window| {
        let exceptions = window.count_outside(sample) * rows / sample.len();
        bytes(rows, window.width, plain_bytes) + exceptions * (2 + plain_bytes)
    });
    without_exceptions.into_iter().chain(patched).min()
}

/// Range of the steps that are packed, from a sample of steps. Returns `None` if an exception might not fit the plain
/// width.
fn find_window(mut sample: Vec<i64>, steps: Steps, plain_bytes: usize) -> Option<Window<i64>> {
    // Booleans have one byte and no sign. Steps of more than 64 bits are not sampled.
    let bits = (8 * plain_bytes).min(64);
    let exceptions_fit = bits > 8 && steps.min >= i128::MIN >> (128 - bits) && steps.max <= i128::MAX >> (128 - bits);
    // The check ensures that both ends fit 64 bits.
    (exceptions_fit && !sample.is_empty())
        .then(|| Window::from_sample(&mut sample, (steps.min as i64, steps.max as i64), plain_bytes))
}

/// Writes the parts of numbers as planned, and sets the head fields that describe them.
pub(crate) fn write<N: Native>(values: &[N], plan: &DeltaPlan, head: &mut Head, writer: &mut Writer) {
    (head.base, head.width) = (plan.least, plan.width);
    let firsts: Vec<N> = values.iter().step_by(VECTOR_ROWS).copied().collect();
    plain::write(&firsts, head.plain_bytes, false, writer);
    // Steps of more than 64 bits are truncated, like the least one. The difference is still correct, because it fits 64
    // bits.
    let least = plan.least as i64;
    let mut steps = Vec::with_capacity(values.len());
    steps.push(least);
    steps.extend(values.iter().zip(&values[1..]).map(|(left, right)| step(*left, *right)));
    let mut packed = steps.clone();
    packed.iter_mut().step_by(VECTOR_ROWS).for_each(|step| *step = least);
    for row in &plan.exceptions {
        packed[usize::from(*row)] = least;
    }
    packed::write(&packed, least, plan.width, writer);
    exceptions::write(&steps, &plan.exceptions, head, writer);
}

/// Sum of lanes, which must fit 64 bits.
fn sum_of_lanes<L: Lane>(lanes: &[L]) -> u64 {
    // The narrower the sums, the more numbers a register adds at once.
    with_wide_vectors(move || match L::BITS {
        8 | 16 => u64::from(lanes.iter().fold(0_u32, |sum, lane| sum.wrapping_add(lane.to_u64() as u32))),
        _ => lanes.iter().fold(0, |sum: u64, lane| sum.wrapping_add(lane.to_u64())),
    })
}

/// Sum of `number` and `numbers`.
fn sum_from<N: Native>(number: N, numbers: &[N]) -> N {
    with_wide_vectors(move || numbers.iter().fold(number, |sum, number| sum.wrapping_sum(*number)))
}

impl Delta {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let firsts = Plain::parse(parts, head.plain_bytes, false, head.rows.div_ceil(VECTOR_ROWS))?;
        let steps = Packed::parse(parts, head.base, head.width, head.rows)?;
        Ok(Self { rows: head.rows, firsts, steps, exceptions: Exceptions::parse(head, parts)? })
    }

    /// Readable name of the encoding.
    pub(crate) fn description(&self) -> String {
        match self.exceptions.len() {
            0 => format!("delta({})", self.steps.width()),
            exceptions => format!("delta({}) with {exceptions} exceptions", self.steps.width()),
        }
    }

    /// Steps of a vector. The step to its first number is undefined.
    #[inline(always)]
    fn unpack_steps<N: Native>(&self, vector: usize, steps: &mut [N; VECTOR_ROWS]) {
        self.steps.unpack_vector(vector, steps);
        self.exceptions.apply(vector * VECTOR_ROWS..(vector + 1) * VECTOR_ROWS, steps);
    }

    /// Bounds of the numbers of a vector. `ascends` is true if no step is negative.
    fn vector_bounds(&self, vector: usize, ascends: bool) -> (i128, i128) {
        let first = vector * VECTOR_ROWS;
        let steps = (self.rows - first).min(VECTOR_ROWS) - 1;
        let domain = match self.exceptions.any_within(first..first + VECTOR_ROWS) {
            true => (if ascends { 0 } else { i128::MIN }, i128::MAX),
            false => self.steps.domain(),
        };
        bounds_of_steps(&self.firsts, vector, steps, domain, ascends)
    }

    /// Whether numbers of up to 64 bits are read as 128 bits. They are then summed up in 64 bits, which is faster.
    fn is_widened<O: Native>(&self) -> bool {
        size_of::<O>() == 16 && self.firsts.bytes() < 16
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        if self.is_widened::<O>() {
            self.append_sums::<i64, O>(rows, out);
        } else {
            self.append_sums::<O, O>(rows, out);
        }
    }

    fn append_sums<S: Native, O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        out.reserve(rows.len());
        let mut numbers = [S::default(); VECTOR_ROWS];
        let mut row = rows.start;
        while row < rows.end {
            let first = row - row % VECTOR_ROWS;
            let end = rows.end.min(first + VECTOR_ROWS);
            let vector = row / VECTOR_ROWS;
            self.unpack_steps(vector, &mut numbers);
            numbers[0] = S::from_number(self.firsts.value(vector));
            let (skipped, part) = numbers[..end - first].split_at(row - first);
            let (mut sum, out) = (sum_from(S::default(), skipped), &mut *out);
            // Summed up while they are appended, so that they are written once.
            with_wide_vectors(move || {
                out.extend(part.iter().map(|step| {
                    sum = sum.wrapping_sum(*step);
                    O::from_number(sum.to_number())
                }));
            });
            row = end;
        }
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        if self.is_widened::<O>() {
            self.append_sums_at::<i64, O>(positions, out);
        } else {
            self.append_sums_at::<O, O>(positions, out);
        }
    }

    fn append_sums_at<S: Native, O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        // Sums of a vector's packed steps fit 64 bits, unless the steps are nearly 64 bits wide.
        let are_sums_narrow = self.steps.width() + VECTOR_ROWS.ilog2() as usize <= u64::BITS as usize;
        let mut numbers = [S::default(); VECTOR_ROWS];
        let vector_of = |row: u32| row as usize / VECTOR_ROWS;
        let vectors: Vec<&[u32]> = positions.chunk_by(|left, right| vector_of(*left) == vector_of(*right)).collect();
        vectors.iter().take(VECTORS_AHEAD).for_each(|rows| self.steps.prefetch_vector(vector_of(rows[0])));
        for (index, vector_rows) in vectors.iter().enumerate() {
            if let Some(ahead) = vectors.get(index + VECTORS_AHEAD) {
                self.steps.prefetch_vector(vector_of(ahead[0]));
            }
            let vector = vector_of(vector_rows[0]);
            if vector_rows.len() <= SUMMED_ROWS_MAX && are_sums_narrow {
                with_lane!(self.steps.width(), L => self.append_few_rows::<L, S, O>(vector, vector_rows, out));
                continue;
            }
            self.unpack_steps(vector, &mut numbers);
            let (mut sum, last) = (S::from_number(self.firsts.value(vector)), vector_rows[vector_rows.len() - 1]);
            numbers[0] = S::default();
            for number in &mut numbers[..=last as usize % VECTOR_ROWS] {
                sum = sum.wrapping_sum(*number);
                *number = sum;
            }
            out.extend(vector_rows.iter().map(|row| O::from_number(numbers[*row as usize % VECTOR_ROWS].to_number())));
        }
    }

    /// Appends the numbers of few rows of a vector. Sums up the packed steps in lanes that are narrower than the
    /// numbers, and then adds the base of all steps before each row.
    fn append_few_rows<L: Lane, S: Native, O: Native>(&self, vector: usize, rows: &[u32], out: &mut Vec<O>) {
        let mut lanes = [L::default(); VECTOR_ROWS];
        self.steps.unpack_vector_lanes(vector, &mut lanes);
        let first = vector * VECTOR_ROWS;
        // The first number of the vector has no step.
        let mut exceptions = self.exceptions.within(first + 1..first + VECTOR_ROWS).peekable();
        let (least, mut packed, mut summed) = (self.steps.base(), 0_u64, 0);
        let mut sum = S::from_number(self.firsts.value(vector));
        for row in rows {
            let row = *row as usize % VECTOR_ROWS;
            packed += sum_of_lanes(&lanes[summed + 1..=row]);
            summed = row;
            while let Some((_, step)) = exceptions.next_if(|(offset, _)| *offset < row) {
                sum = sum.wrapping_sum(S::from_number(step.wrapping_sub(least)));
            }
            let steps = least.wrapping_mul(row as i128).wrapping_add(packed.into());
            out.push(O::from_number(sum.wrapping_sum(S::from_number(steps)).to_number()));
        }
    }

    /// Clears the rows of a range that fail a predicate. Decodes only vectors whose bounds do not decide. If numbers
    /// ascend, these are the vectors at the ends of the predicate's range.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        if self.firsts.bytes() < 16 {
            self.filter_lanes::<i64, u64>(predicate, negated, rows, selection);
        } else {
            self.filter_lanes::<i128, u128>(predicate, negated, rows, selection);
        }
    }

    fn filter_lanes<N: Native, L: Lane>(
        &self,
        predicate: &DatumPredicate,
        negated: bool,
        rows: Range<usize>,
        selection: &mut Bitmap,
    ) {
        let on_bounds = BoundsPredicate::new(predicate, negated);
        let on_lanes = LanePredicate::<L>::new(predicate, negated, (N::MIN.to_number(), N::MAX.to_number()), 0);
        let mut numbers = [N::default(); VECTOR_ROWS];
        let mut lanes = [L::default(); VECTOR_ROWS];
        let ascends = self.steps.base() >= 0 && self.exceptions.least().is_none_or(|least| least >= 0);
        filter_vectors(rows, selection, |vector| -> [u64; MASK_WORDS] {
            let (low, high) = self.vector_bounds(vector, ascends);
            if let Some(passes) = on_bounds.decide(low, high) {
                return uniform_mask(passes);
            }
            self.unpack_steps(vector, &mut numbers);
            let mut sum = N::from_number(self.firsts.value(vector).wrapping_sub(numbers[0].to_number()));
            for (lane, step) in lanes.iter_mut().zip(&numbers) {
                sum = sum.wrapping_sum(*step);
                *lane = L::from_i128(sum.to_number());
            }
            on_lanes.mask(&lanes)
        });
    }
}
