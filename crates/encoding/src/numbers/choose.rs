//! Choice of the encoding for the numbers of a segment, from one pass over them and a sample.

use taut_types::Encoding;

use crate::distinct::{self, Distinct};
use crate::head::padded;
use crate::kernels::{Native, wide};
use crate::numbers::alp::Decimals;
use crate::numbers::delta;
use crate::numbers::exceptions::Window;
use crate::numbers::order::{self, Before};
use crate::numbers::{Nesting, marked, run_length};
use crate::packed::{self, width_of};
use crate::{VECTOR_ROWS, codes};

/// Minimum average rows of a run. Shorter runs are not worth a binary search per lookup.
const RUN_ROWS_MIN: usize = 8;
/// Rows whose distinct values are counted before a dictionary of all rows is tried.
const SAMPLE_ROWS: usize = 1024;

/// Results of the choice of an encoding that writing reuses.
#[derive(Clone, Debug)]
pub(crate) struct Found<N> {
    pub(crate) distinct: Option<Distinct<N>>,
    pub(crate) window: Option<Window<N>>,
    /// If present, used instead of `window`.
    pub(crate) marked: Option<marked::MarkedPlan<N>>,
    pub(crate) decimals: Option<Decimals>,
    pub(crate) delta: Option<delta::DeltaPlan>,
}

impl<N> Default for Found<N> {
    fn default() -> Self {
        Self { distinct: None, window: None, marked: None, decimals: None, delta: None }
    }
}

/// Results of one pass over the numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile<N> {
    pub(crate) min: N,
    pub(crate) max: N,
    /// Number of runs of equal numbers.
    pub(crate) runs: usize,
}

impl<N: Native> Profile<N> {
    /// Profile of at least one number.
    pub(crate) fn of(values: &[N]) -> Self {
        let first = values.first().copied().unwrap_or_default();
        wide(move || {
            let (mut min, mut max, mut runs) = (first, first, 1);
            for value in values {
                min = min.min(*value);
                max = max.max(*value);
            }
            // Counted in parts, so that each count fits the lanes of a vector.
            for part in 0..values.len().div_ceil(128) {
                let left = &values[part * 128..values.len().min(part * 128 + 128)];
                let right = &values[part * 128 + 1..values.len().min(part * 128 + 129)];
                runs += left.iter().zip(right).map(|(left, right)| u8::from(left != right)).sum::<u8>() as usize;
            }
            Self { min, max, runs }
        })
    }

    /// Distance of the greatest number from the least. Returns `None` if it overflows 128 bits.
    pub(crate) fn spread(&self) -> Option<i128> {
        self.max.to_number().checked_sub(self.min.to_number())
    }

    /// Chooses an encoding by the values, or one that uses their order if it is smaller still. Leaves in `found` what
    /// it had to compute.
    pub(crate) fn choose(&self, values: &[N], plain_bytes: usize, nesting: Nesting, found: &mut Found<N>) -> Encoding {
        let encoding = self.choose_by_values(values, plain_bytes, nesting, found);
        let rows = values.len();
        let base = if encoding == Encoding::BitPacked { N::from_number(0) } else { self.min };
        let width = width_of(base, self.max);
        let bytes = match (encoding, found.marked) {
            (Encoding::Patched, Some(plan)) => plan.bits / 8,
            // Values with outliers, and decimals, rarely have an order that pays off.
            (Encoding::Constant | Encoding::Patched | Encoding::Alp, _) => return encoding,
            (Encoding::BitPacked | Encoding::FrameOfReference, _) => packed::bytes(rows, width.unwrap_or(64)),
            (Encoding::Dictionary, _) => {
                let entries = found.distinct.as_ref().map_or(0, |found| found.entries.len());
                padded(entries * plain_bytes) + codes::bytes(rows, self.runs, entries)
            }
            (Encoding::RunLength, _) => run_length::bytes_least(self.runs, width, plain_bytes),
            _ => padded(rows * plain_bytes),
        };
        let before = Before { encoding, width: width.unwrap_or(64), bytes };
        order::choose(values, self, plain_bytes, before).unwrap_or(encoding)
    }

    /// Chooses the encoding of fewest bits per row, weighed against the cost of decoding:
    ///
    /// - Packed numbers decode as fast as memory. They must save an eighth of plain numbers.
    /// - Runs and dictionaries must be half as large.
    /// - Exceptions and decimals must save a third of packed or plain numbers, and a fifth of a dictionary. One
    ///   exception in a hundred rows costs less than the narrower lanes gain. Decimals cost two products, which leaves
    ///   them three quarters of the speed of packed numbers.
    /// - Marked exceptions decode at half the speed. With their decoding time counted as bits, they must save half of
    ///   packed numbers, and a fifth of others.
    ///
    /// Leaves in `found` what it had to compute.
    fn choose_by_values(&self, values: &[N], plain_bytes: usize, nesting: Nesting, found: &mut Found<N>) -> Encoding {
        if self.runs == 1 {
            return Encoding::Constant;
        }
        let rows = values.len();
        let plain_bits = 8 * plain_bytes;
        // The last vector of packed numbers is padded, which decides if there are few rows.
        let padded = rows.next_multiple_of(VECTOR_ROWS);
        let packed_bits = width_of(self.min, self.max).filter(|width| padded * width * 8 <= rows * plain_bits * 7);
        let best_bits = packed_bits.unwrap_or(plain_bits);
        let value_bits = width_of(self.min, self.max).unwrap_or(plain_bits).min(plain_bits);
        if self.runs * RUN_ROWS_MIN <= rows && self.runs * (16 + value_bits) * 2 <= rows * best_bits {
            return Encoding::RunLength;
        }
        // Bits of a whole chunk.
        let bits_max = packed_bits.map_or(rows * plain_bits, |bits| padded * bits) * 2 / 3;
        let corrected = if nesting.is_float { self.decimals(values, plain_bytes, bits_max, found) } else { None };
        let corrected = corrected.or_else(|| self.exceptions(values, plain_bytes, nesting, bits_max, found));
        let dictionary_max = corrected.map_or(usize::MAX, |(_, bits)| bits * 5 / 4);
        if best_bits > 8 && self.dictionary_pays(values, plain_bits, best_bits, dictionary_max, &mut found.distinct) {
            return Encoding::Dictionary;
        }
        if let Some((encoding, _)) = corrected {
            return encoding;
        }
        let least_bits = width_of(N::from_number(0), self.max).filter(|_| self.min.to_number() >= 0);
        match packed_bits {
            None => Encoding::Plain,
            Some(bits) if least_bits == Some(bits) => Encoding::BitPacked,
            Some(_) => Encoding::FrameOfReference,
        }
    }

    /// Finds the windows of `patched` from a sample. Sets the window of marked exceptions only if it is to be used, and
    /// returns their cost then. Otherwise returns the bits of `patched` if they are at most `bits_max`.
    pub(crate) fn find_windows(
        &self,
        values: &[N],
        plain_bytes: usize,
        nesting: Nesting,
        bits_max: usize,
        found: &mut Found<N>,
    ) -> Option<usize> {
        let mut sample = sample_of(values);
        let window = Window::of_sample(&mut sample, (self.min, self.max), plain_bytes);
        let mut bits = window.bits(values.len(), 0, plain_bytes);
        if bits <= bits_max {
            bits = window.bits(values.len(), window.outside(values), plain_bytes);
        }
        let plan = marked::MarkedPlan::of_sample(&sample, values.len(), plain_bytes, nesting.depth);
        let cost_max = (bits / 5 * 4).min(bits_max / 4 * 3);
        found.window = Some(window);
        found.marked = plan.filter(|plan| plan.cost <= cost_max && plan.window.outside(values) > 0);
        found.marked.map(|plan| plan.cost).or((bits <= bits_max).then_some(bits))
    }

    /// Encoding `patched` and its bits. Returns `None` if these are too many.
    fn exceptions(
        &self,
        values: &[N],
        plain_bytes: usize,
        nesting: Nesting,
        bits_max: usize,
        found: &mut Found<N>,
    ) -> Option<(Encoding, usize)> {
        Some((Encoding::Patched, self.find_windows(values, plain_bytes, nesting, bits_max, found)?))
    }

    /// Encoding `alp` and its bits. Returns `None` if these are too many.
    fn decimals(
        &self,
        values: &[N],
        plain_bytes: usize,
        bits_max: usize,
        found: &mut Found<N>,
    ) -> Option<(Encoding, usize)> {
        found.decimals = Decimals::of(values, plain_bytes, bits_max / values.len());
        let bits = found.decimals.as_ref()?.bits(plain_bytes);
        (bits <= bits_max).then_some((Encoding::Alp, bits))
    }

    fn dictionary_pays(
        &self,
        values: &[N],
        plain_bits: usize,
        best_bits: usize,
        bits_max: usize,
        found: &mut Option<Distinct<N>>,
    ) -> bool {
        let rows = values.len();
        let pays = |entries: usize| {
            let code_bits = (usize::BITS - entries.saturating_sub(1).leading_zeros()) as usize;
            let bits = entries * plain_bits + rows.next_multiple_of(VECTOR_ROWS) * code_bits;
            bits * 2 <= rows * best_bits && bits <= bits_max
        };
        let sample = sample_of(values);
        // If half the values of a sample are distinct, the column has too many distinct values for a dictionary.
        match distinct::of_numbers(&sample, sample.len() / 2) {
            Some(sample) if pays(sample.entries.len()) => {}
            _ => return false,
        }
        let entries_max = (1..=16).map(|bits| 1 << bits).take_while(|entries| pays(*entries)).last().unwrap_or(1);
        *found = distinct::of_numbers(values, entries_max);
        found.is_some()
    }
}

/// Sample of evenly spaced numbers.
fn sample_of<N: Native>(values: &[N]) -> Vec<N> {
    values.iter().step_by(values.len().div_ceil(SAMPLE_ROWS)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, encode};
    use arrow_array::{ArrayRef, Int64Array};
    use std::sync::Arc;
    use taut_types::LogicalType;

    fn choose(values: &[i64]) -> Encoding {
        Profile::of(values).choose(values, 8, Nesting::of_column(false), &mut Found::default())
    }

    #[test]
    fn runs_are_counted() {
        for rows in [1, 2, 127, 128, 129, 130, 1000] {
            for length in [1, 2, 3, 64, 128, 500] {
                let values: Vec<i32> = (0..rows).map(|row| row / length).collect();
                let profile = Profile::of(&values);
                assert_eq!(profile.runs, (rows as usize).div_ceil(length as usize), "{rows} rows, runs of {length}");
                assert_eq!((profile.min, profile.max), (0, (rows - 1) / length));
            }
        }
    }

    #[test]
    fn decimals_in_floating_point_are_found_and_fractions_are_not() {
        let choose = |value: &dyn Fn(i64) -> f64| {
            let keys: Vec<i64> = (0..65_536).map(|row| taut_types::f64_to_ordered(value(row))).collect();
            Profile::of(&keys).choose(&keys, 8, Nesting::of_column(true), &mut Found::default())
        };
        assert_eq!(choose(&|row| (row * 7_919 % 99_991) as f64 / 100.0), Encoding::Alp);
        assert_eq!(choose(&|row| if row % 50 == 3 { f64::NAN } else { (row * 7_919 % 99_991) as f64 }), Encoding::Alp);
        assert_eq!(choose(&|row| (row as f64).sin()), Encoding::Plain);
    }

    #[test]
    fn each_encoding_has_its_data() {
        // Hashed twice, otherwise there would be few distinct deltas between rows.
        let hash = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        let mixed = |row: i64| (hash(hash(row) >> 29) >> 20).rem_euclid(4_001);
        let values = |value: &dyn Fn(i64) -> i64| (0..65_536).map(value).collect::<Vec<i64>>();
        assert_eq!(choose(&values(&|_| 5)), Encoding::Constant);
        assert_eq!(choose(&values(&mixed)), Encoding::BitPacked);
        assert_eq!(choose(&values(&|row| mixed(row) - 7)), Encoding::FrameOfReference);
        assert_eq!(choose(&values(&|row| mixed(row) % 7 * (i64::MAX / 7))), Encoding::Dictionary);
        assert_eq!(choose(&values(&|row| mixed(row / 100))), Encoding::RunLength);
        let outlier = |row: i64| if row % 300 == 7 { i64::MIN + row } else { mixed(row) };
        assert_eq!(choose(&values(&outlier)), Encoding::Patched);
        let skewed = |row: i64| (u64::MAX / (row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) as u64 | 1)) as i64;
        assert_eq!(choose(&values(&skewed)), Encoding::Patched);
        assert_eq!(choose(&values(&|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64))), Encoding::Plain);
    }
    /// Ascending numbers with gaps.
    fn every_second(rows: usize) -> Vec<i64> {
        (0_i64..)
            .filter(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40 & 1 != 0)
            .take(rows)
            .collect()
    }

    fn order_key(row: i64) -> i64 {
        let order = row * 2 / 7;
        order / 8 * 32 + order % 8
    }

    #[test]
    fn order_has_its_encodings() {
        let values = |value: &dyn Fn(i64) -> i64| (0..65_536).map(value).collect::<Vec<i64>>();
        let hash = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40;
        assert_eq!(choose(&values(&|row| row + 5_000_000)), Encoding::Bitmap);
        assert_eq!(choose(&every_second(65_536)), Encoding::Bitmap);
        assert_eq!(choose(&values(&|row| 1_000_000 * row - hash(row).rem_euclid(999))), Encoding::Delta);
        assert_eq!(choose(&values(&|row| -7 * row)), Encoding::Delta);
        assert_eq!(choose(&values(&order_key)), Encoding::RunLengthDelta);
        assert_eq!(choose(&values(&|row| hash(row).rem_euclid(65_000) - 9)), Encoding::TwoByteDelta);
        // One row out of order makes two deltas exceptions. With one in ten rows there would be too many.
        assert_eq!(choose(&values(&|row| if row == 40_001 { 0 } else { row })), Encoding::Delta);
        assert_eq!(choose(&values(&|row| if row % 10 == 1 { 0 } else { row })), Encoding::TwoByteDelta);
    }

    #[test]
    fn the_choice_is_never_larger_than_that_by_values_alone() {
        let hash = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        let shapes: [&dyn Fn(i64) -> i64; 9] = [
            &|row| row,
            &|row| -3 * row,
            &|row| row * row,
            &|row| row / 9 * 25 + i64::MIN,
            &|row| hash(row / 5),
            &|row| hash(row) >> 45,
            &|row| row * 3600 + (hash(row) >> 58),
            &|row| row % 100,
            &order_key,
        ];
        for rows in [1, 2, 9, 63, 500, 1024, 1025, 5000, 65_536] {
            for (index, shape) in shapes.iter().enumerate() {
                let values: Vec<i64> = (0..rows).map(shape).collect();
                let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
                let size = |choice| encode(&array, LogicalType::BigInt, choice).unwrap().len();
                let before =
                    Profile::of(&values).choose_by_values(&values, 8, Nesting::of_column(false), &mut Found::default());
                let (before, now) = (size(Choice::Forced(before)), size(Choice::Auto));
                assert!(now <= before, "shape {index} of {rows} rows: {now} bytes, before {before}");
            }
        }
    }
}
