//! Differences of neighbours, bit-packed: encoding `delta`.
//!
//! ```text
//! part: vectors * plain_bytes   the first number of each vector of 1,024 rows; floating point as keys
//! part: packed steps, as in `packed.rs`: number - number before - base; zero in the first row of a vector
//! parts: exceptions, as in `exceptions.rs`: steps in place of the packed ones; the head's `entries` counts them
//! ```
//!
//! `base` is in the head: the least step that is packed, which may be negative, so that evenly stepping numbers need no
//! bits and falling ones as few as rising ones. A number is the sum of all steps before it in its vector: a single one
//! costs that vector's unpacking, which makes this no encoding for columns that are looked up by position.
//!
//! Steps that are rare and far from the others are exceptions: those of a column that ascends within each value of the
//! column before it in a sort order, and begins anew with the next. They are signed integers of the type's plain width;
//! where some step needs more there are none, and a step that does not fit 64 bits above the least cannot be stored.

use std::ops::Range;

use taut_types::Test;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::{Lane, MASK_WORDS, wide};
use crate::lane_test::{LaneTest, filter_vectors};
use crate::native::{Native, with_lane};
use crate::numbers::bounds::{BoundsTest, bounds_of_steps, mask_of};
use crate::numbers::exceptions::{self, Exceptions, Window};
use crate::numbers::packed::{self, Packed};
use crate::numbers::plain::{self, Plain};
use crate::{Bitmap, VECTOR_ROWS};

/// Up to so many rows of a vector have the packed steps before them summed up, from one to the next; of more, all numbers
/// are decoded.
const FEW_ROWS: usize = 16;
/// Vectors that come from memory while one is summed up, which takes less time than memory to answer.
const VECTORS_AHEAD: usize = 3;

/// Differences of neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    rows: usize,
    firsts: Plain,
    steps: Packed,
    exceptions: Exceptions,
}

/// The least and the greatest difference of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) min: i128,
    pub(crate) max: i128,
}

/// The low bits of a step.
#[inline(always)]
pub(crate) fn step<N: Native>(left: N, right: N) -> i64 {
    right.to_number().wrapping_sub(left.to_number()) as i64
}

impl Steps {
    /// The steps of numbers, which are at most `spread` apart; `None` where one has more than 128 bits. A single
    /// number makes a step of zero.
    pub(crate) fn of<N: Native>(values: &[N], spread: Option<i128>) -> Option<Self> {
        let (left, right) = (values, values.get(1..).unwrap_or_default());
        if spread.is_some_and(|spread| spread <= i64::MAX.into()) {
            let first = left.iter().zip(right).next().map_or(0, |(left, right)| step(*left, *right));
            let (min, max) = wide(move || {
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

    /// Bits of a step above the least one, `None` where 64 are not enough.
    pub(crate) fn width(self) -> Option<usize> {
        packed::width_of(self.min, self.max)
    }
}

/// Bytes of the parts without exceptions.
pub(crate) fn bytes(rows: usize, width: usize, plain_bytes: usize) -> usize {
    padded(rows.div_ceil(VECTOR_ROWS) * plain_bytes) + packed::bytes(rows, width)
}

/// Which steps are packed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    least: i128,
    width: usize,
    /// Rows whose step is not packed, also those that begin a vector: whether all numbers ascend is seen from them.
    exceptions: Vec<u16>,
}

impl Plan {
    /// The plan of fewest bytes for numbers that are at most `spread` apart; `None` where there is none.
    pub(crate) fn of<N: Native>(values: &[N], spread: Option<i128>, plain_bytes: usize) -> Option<Self> {
        let steps = Steps::of(values, spread)?;
        let whole = steps.width().map(|width| Self { least: steps.min, width, exceptions: vec![] });
        let window = window(sampled_steps(values, spread)?, steps, plain_bytes);
        let patched = window.filter(|window| steps.width().is_none_or(|width| window.width < width)).map(|window| {
            let outside = (1..values.len()).filter(|row| !window.holds(step(values[row - 1], values[*row])));
            // A chunk has at most 2^16 rows.
            let exceptions = outside.map(|row| row as u16).collect();
            Self { least: window.base.into(), width: window.width, exceptions }
        });
        [whole, patched].into_iter().flatten().min_by_key(|plan| plan.bytes(values.len(), plain_bytes))
    }

    /// Bytes of the parts.
    pub(crate) fn bytes(&self, rows: usize, plain_bytes: usize) -> usize {
        let exceptions = self.exceptions.len();
        bytes(rows, self.width, plain_bytes) + padded(2 * exceptions) + padded(exceptions * plain_bytes)
    }
}

/// Neighbours whose steps are looked at before all are.
const SAMPLE_ROWS: usize = 1024;

/// Steps evenly spread over numbers that are at most `spread` apart; none where a step may have more than 64 bits.
pub(crate) fn sampled_steps<N: Native>(values: &[N], spread: Option<i128>) -> Option<Vec<i64>> {
    if spread.is_none_or(|spread| spread > i64::MAX.into()) {
        return Some(vec![]);
    }
    let pairs = values.iter().zip(values.get(1..)?);
    Some(pairs.step_by(values.len().div_ceil(SAMPLE_ROWS)).map(|(left, right)| step(*left, *right)).collect())
}

/// The steps that are packed where others are exceptions, by a sample of them; `None` where an exception might not fit
/// the plain width.
pub(crate) fn window(mut sample: Vec<i64>, steps: Steps, plain_bytes: usize) -> Option<Window<i64>> {
    // Booleans, of one byte, have no sign; wider steps than 64 bits are not sampled.
    let bits = (8 * plain_bytes).min(64);
    let fits = bits > 8 && steps.min >= i128::MIN >> (128 - bits) && steps.max <= i128::MAX >> (128 - bits);
    // Checked to fit.
    (fits && !sample.is_empty())
        .then(|| Window::of_sample(&mut sample, (steps.min as i64, steps.max as i64), plain_bytes))
}

/// Writes the parts of numbers by their plan; sets what the head says.
pub(crate) fn write<N: Native>(values: &[N], plan: &Plan, head: &mut Head, writer: &mut Writer) {
    (head.base, head.width) = (plan.least, plan.width);
    let firsts: Vec<N> = values.iter().step_by(VECTOR_ROWS).copied().collect();
    plain::write(&firsts, head.plain_bytes, false, writer);
    // Steps of more than 64 bits are cut, and so is the least one: their distance, which fits, is right.
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

/// The sum of some lanes, which fits 64 bits.
fn sum_of_lanes<L: Lane>(lanes: &[L]) -> u64 {
    // A register adds the more numbers at once the narrower their sums are.
    wide(move || match L::BITS {
        8 | 16 => u64::from(lanes.iter().fold(0_u32, |sum, lane| sum.wrapping_add(lane.to_u64() as u32))),
        _ => lanes.iter().fold(0, |sum: u64, lane| sum.wrapping_add(lane.to_u64())),
    })
}

/// The sum of some numbers and one.
fn sum_of<N: Native>(number: N, numbers: &[N]) -> N {
    wide(move || numbers.iter().fold(number, |sum, number| sum.sum(*number)))
}

impl Delta {
    /// Takes the parts that the head announces.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let firsts = Plain::parse(parts, head.plain_bytes, false, head.rows.div_ceil(VECTOR_ROWS))?;
        let steps = Packed::parse(parts, head.base, head.width, head.rows)?;
        Ok(Self { rows: head.rows, firsts, steps, exceptions: Exceptions::parse(head, parts)? })
    }

    /// The encoding as a person reads it.
    pub(crate) fn description(&self) -> String {
        match self.exceptions.len() {
            0 => format!("delta({})", self.steps.width()),
            exceptions => format!("delta({}) with {exceptions} exceptions", self.steps.width()),
        }
    }

    /// The steps of a vector; in place of that to its first number, anything.
    #[inline(always)]
    fn steps_of<N: Native>(&self, vector: usize, steps: &mut [N; VECTOR_ROWS]) {
        self.steps.vector_of(vector, steps);
        self.exceptions.correct(vector * VECTOR_ROWS..(vector + 1) * VECTOR_ROWS, steps);
    }

    /// Numbers between which those of a vector lie; `ascends` says that no step goes down.
    fn bounds_of(&self, vector: usize, ascends: bool) -> (i128, i128) {
        let first = vector * VECTOR_ROWS;
        let steps = (self.rows - first).min(VECTOR_ROWS) - 1;
        let domain = match self.exceptions.any_within(first..first + VECTOR_ROWS) {
            true => (if ascends { 0 } else { i128::MIN }, i128::MAX),
            false => self.steps.domain(),
        };
        bounds_of_steps(&self.firsts, vector, steps, domain, ascends)
    }

    /// Whether numbers of up to 64 bits are read as 128, which are summed up the faster before that.
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
            self.steps_of(vector, &mut numbers);
            numbers[0] = S::from_number(self.firsts.value(vector));
            let (before, part) = numbers[..end - first].split_at(row - first);
            let (mut sum, out) = (sum_of(S::default(), before), &mut *out);
            // Summed up on the way out, so that they are written once.
            wide(move || {
                out.extend(part.iter().map(|step| {
                    sum = sum.sum(*step);
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
        // Sums of a vector's packed steps fit 64 bits, unless these are as wide as that.
        let are_sums_narrow = self.steps.width() + VECTOR_ROWS.ilog2() as usize <= u64::BITS as usize;
        let mut numbers = [S::default(); VECTOR_ROWS];
        let vector_of = |row: u32| row as usize / VECTOR_ROWS;
        let vectors: Vec<&[u32]> = positions.chunk_by(|left, right| vector_of(*left) == vector_of(*right)).collect();
        vectors.iter().take(VECTORS_AHEAD).for_each(|rows| self.steps.ask_for(vector_of(rows[0])));
        for (place, these) in vectors.iter().enumerate() {
            if let Some(ahead) = vectors.get(place + VECTORS_AHEAD) {
                self.steps.ask_for(vector_of(ahead[0]));
            }
            let vector = vector_of(these[0]);
            if these.len() <= FEW_ROWS && are_sums_narrow {
                with_lane!(self.steps.width(), L => self.append_few::<L, S, O>(vector, these, out));
                continue;
            }
            self.steps_of(vector, &mut numbers);
            let (mut sum, last) = (S::from_number(self.firsts.value(vector)), these[these.len() - 1]);
            numbers[0] = S::default();
            for number in &mut numbers[..=last as usize % VECTOR_ROWS] {
                sum = sum.sum(*number);
                *number = sum;
            }
            out.extend(these.iter().map(|row| O::from_number(numbers[*row as usize % VECTOR_ROWS].to_number())));
        }
    }

    /// Appends the numbers of few rows of a vector. Its steps are summed up as they are packed, in lanes narrower than
    /// numbers; what all of them are counted from is added for each row.
    fn append_few<L: Lane, S: Native, O: Native>(&self, vector: usize, rows: &[u32], out: &mut Vec<O>) {
        let mut lanes = [L::default(); VECTOR_ROWS];
        self.steps.lanes_of(vector, &mut lanes);
        let first = vector * VECTOR_ROWS;
        // What begins the vector is no step.
        let mut exceptions = self.exceptions.within(first + 1..first + VECTOR_ROWS).peekable();
        let (least, mut packed, mut summed) = (self.steps.base(), 0_u64, 0);
        let mut sum = S::from_number(self.firsts.value(vector));
        for row in rows {
            let row = *row as usize % VECTOR_ROWS;
            packed += sum_of_lanes(&lanes[summed + 1..=row]);
            summed = row;
            while let Some((_, step)) = exceptions.next_if(|(place, _)| *place < row) {
                sum = sum.sum(S::from_number(step.wrapping_sub(least)));
            }
            let steps = least.wrapping_mul(row as i128).wrapping_add(packed.into());
            out.push(O::from_number(sum.sum(S::from_number(steps)).to_number()));
        }
    }

    /// Clears the rows of a range that fail a test. Only vectors whose bounds leave that open are decoded: where
    /// numbers ascend, those at the ends of the range asked for.
    pub(crate) fn filter(&self, test: &Test, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        if self.firsts.bytes() < 16 {
            self.filter_lanes::<i64, u64>(test, negated, rows, selection);
        } else {
            self.filter_lanes::<i128, u128>(test, negated, rows, selection);
        }
    }

    fn filter_lanes<N: Native, L: Lane>(&self, test: &Test, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let on_bounds = BoundsTest::new(test, negated);
        let on_lanes = LaneTest::<L>::new(test, negated, (N::MIN.to_number(), N::MAX.to_number()), 0);
        let mut numbers = [N::default(); VECTOR_ROWS];
        let mut lanes = [L::default(); VECTOR_ROWS];
        let ascends = self.steps.base() >= 0 && self.exceptions.least().is_none_or(|least| least >= 0);
        filter_vectors(rows, selection, |vector| -> [u64; MASK_WORDS] {
            let (low, high) = self.bounds_of(vector, ascends);
            if let Some(all) = on_bounds.verdict(low, high) {
                return mask_of(all);
            }
            self.steps_of(vector, &mut numbers);
            let mut sum = N::from_number(self.firsts.value(vector).wrapping_sub(numbers[0].to_number()));
            for (lane, step) in lanes.iter_mut().zip(&numbers) {
                sum = sum.sum(*step);
                *lane = L::from_i128(sum.to_number());
            }
            on_lanes.mask(&lanes)
        });
    }
}
