//! Differences of neighbours, bit-packed: encoding `delta`.
//!
//! ```text
//! part: vectors * plain_bytes   the first number of each vector of 1,024 rows; floating point as keys
//! part: packed steps, as in `packed.rs`: number - number before - base; zero in the first row of a vector
//! ```
//!
//! `base` is in the head: the least step, which may be negative, so that evenly stepping numbers need no bits and
//! falling ones as few as rising ones. A number is the sum of all steps before it in its vector: a single one costs
//! a vector's decoding, which makes this no encoding for columns that are looked up by position. A step that does
//! not fit 64 bits above the least one cannot be packed.

use std::ops::Range;

use taut_types::Test;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::{Lane, MASK_WORDS, wide};
use crate::lane_test::{LaneTest, filter_vectors};
use crate::native::Native;
use crate::numbers::bounds::{BoundsTest, bounds_of_steps, mask_of};
use crate::numbers::packed::{self, Packed};
use crate::numbers::plain::{self, Plain};
use crate::{Bitmap, VECTOR_ROWS};

/// Differences of neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    rows: usize,
    firsts: Plain,
    steps: Packed,
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

/// Bytes of the parts.
pub(crate) fn bytes(rows: usize, width: usize, plain_bytes: usize) -> usize {
    padded(rows.div_ceil(VECTOR_ROWS) * plain_bytes) + packed::bytes(rows, width)
}

/// Writes the parts of numbers of these steps, which fit the width; sets what the head says.
pub(crate) fn write<N: Native>(values: &[N], steps: Steps, width: usize, head: &mut Head, writer: &mut Writer) {
    (head.base, head.width) = (steps.min, width);
    let firsts: Vec<N> = values.iter().step_by(VECTOR_ROWS).copied().collect();
    plain::write(&firsts, head.plain_bytes, false, writer);
    // Steps of more than 64 bits are cut, and so is the least one: their distance, which fits, is right.
    let least = steps.min as i64;
    let mut distances = Vec::with_capacity(values.len());
    for vector in values.chunks(VECTOR_ROWS) {
        distances.push(least);
        distances.extend(vector.iter().zip(&vector[1..]).map(|(left, right)| step(*left, *right)));
    }
    packed::write(&distances, least, width, writer);
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
        Ok(Self { rows: head.rows, firsts, steps })
    }

    /// The encoding as a person reads it.
    pub(crate) fn description(&self) -> String {
        format!("delta({})", self.steps.width())
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
            self.steps.vector_of(vector, &mut numbers);
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
        let mut numbers = [S::default(); VECTOR_ROWS];
        for these in positions.chunk_by(|left, right| *left as usize / VECTOR_ROWS == *right as usize / VECTOR_ROWS) {
            let Some(first) = these.first() else { continue };
            let vector = *first as usize / VECTOR_ROWS;
            self.steps.vector_of(vector, &mut numbers);
            let (mut sum, mut next) = (S::from_number(self.firsts.value(vector)), 1);
            for row in these {
                let row = *row as usize % VECTOR_ROWS;
                if next <= row {
                    sum = sum_of(sum, &numbers[next..=row]);
                    next = row + 1;
                }
                out.push(O::from_number(sum.to_number()));
            }
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
        filter_vectors(rows, selection, |vector| -> [u64; MASK_WORDS] {
            let steps = (self.rows - vector * VECTOR_ROWS).min(VECTOR_ROWS) - 1;
            let (low, high) = bounds_of_steps(&self.firsts, vector, steps, self.steps.domain());
            if let Some(all) = on_bounds.verdict(low, high) {
                return mask_of(all);
            }
            self.steps.vector_of(vector, &mut numbers);
            let mut sum = N::from_number(self.firsts.value(vector).wrapping_sub(numbers[0].to_number()));
            for (lane, step) in lanes.iter_mut().zip(&numbers) {
                sum = sum.sum(*step);
                *lane = L::from_i128(sum.to_number());
            }
            on_lanes.mask(&lanes)
        });
    }
}
