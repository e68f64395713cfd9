//! Floating point as decimal integers: encoding `alp` (Afroozeh, Kuffó, Boncz: Adaptive Lossless floating-Point
//! compression, 2023).
//!
//! ```text
//! part: integers minus `base` in `width` bits, as in `packed.rs`; base and integers lie within 2^51 of zero
//! parts: exceptions as ordered integers, as in `exceptions.rs`; the head's `entries` counts them
//!
//! value = integer * 10^factor * 10^-exponent, each product rounded to a double; a real is rounded once more
//! ```
//!
//! Most floating-point values were decimal numbers first: 1234.56 is the integer 123456 with exponent 2. But the double
//! nearest to 10^-2 is not exact, and a product with it is often wrong in the last bit. A product with the double
//! nearest to 10^-14 seldom is. With exponent 14, integers end in zeros. `factor` counts these zeros, so that they are
//! not stored: 1234.56 is 123456 with exponent 14 and factor 12. A value that does not decode bit for bit is an
//! exception: a NaN, an infinity, minus zero, or a value of many digits.
//!
//! Reals are computed as doubles, so hardly any of them are exceptions. Values never decrease as their integers
//! increase, so a range of values is a range of integers.

use std::ops::Range;
use std::sync::Arc;

use taut_types::{DatumPredicate, f32_from_ordered, f32_to_ordered, f64_from_ordered, f64_to_ordered};

use crate::Bitmap;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Native;
use crate::numbers::exceptions::{self, Exceptions, Window};
use crate::packed::{self, Packed};

/// Powers of ten from 10^0 on, as the nearest doubles. The values of all files depend on them.
const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
const INVERSES: [f64; 19] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-17,
    1e-18,
];
/// 1.5 * 2^52. The doubles between 2^52 and 2^53 are exactly the integers. Adding this number therefore rounds a value,
/// and the bits of the sum are the bits of this number plus the rounded integer.
const ROUNDING: f64 = 6_755_399_441_055_744.0;
/// Bound of the absolute value of integers that are written. It is half the bound of integers that are read, because a
/// [`Window`] may reach past the integers in it.
const WRITTEN_MAX: f64 = (1_u64 << 50) as f64;
const READ_MAX: i128 = 1 << 51;
/// Number of sampled values on which exponents and factors are tried.
const SAMPLE_ROWS: usize = 128;

/// Powers of ten that values are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    exponent: usize,
    factor: usize,
    /// Whether values are reals.
    is_real: bool,
}

impl Scale {
    /// Double of an integer within 2^51 of zero.
    #[inline(always)]
    fn to_double(self, integer: i64) -> f64 {
        let integer = f64::from_bits(ROUNDING.to_bits().wrapping_add_signed(integer)) - ROUNDING;
        integer * POWERS[self.factor] * INVERSES[self.exponent]
    }

    /// Ordered integer of the floating-point number that a decimal integer encodes. The integer must be within 2^51 of
    /// zero.
    #[inline(always)]
    fn to_ordered(self, integer: i64) -> i64 {
        let value = self.to_double(integer);
        if self.is_real { f32_to_ordered(value as f32).into() } else { f64_to_ordered(value) }
    }

    /// Decimal integer of the value with this ordered integer. Returns `None` if it does not decode to the same value.
    #[inline(always)]
    fn to_integer(self, ordered: i64) -> Option<i64> {
        // The ordered integer of a real has 32 bits.
        let value = if self.is_real { f32_from_ordered(ordered as i32).into() } else { f64_from_ordered(ordered) };
        let rounded = value * POWERS[self.exponent] * INVERSES[self.factor] + ROUNDING - ROUNDING;
        let integer = rounded as i64;
        (rounded.abs() < WRITTEN_MAX && self.to_ordered(integer) == ordered).then_some(integer)
    }
}

/// Integers of floating-point values, and the values that have none.
#[derive(Clone, Debug)]
pub(crate) struct Decimals {
    scale: Scale,
    window: Window<i64>,
    integers: Vec<i64>,
    /// Rows whose value has no integer, or one outside the window.
    exceptions: Vec<u16>,
}

impl Decimals {
    /// Finds the decimal integers of one or more numbers, with the exponent and factor that are best for a sample.
    /// Returns `None` if the sample takes more than `bits_max` bits per row.
    pub(crate) fn find<N: Native>(values: &[N], plain_bytes: usize, bits_max: usize) -> Option<Self> {
        // Ordered integers have 64 bits at most.
        let ordered = |value: &N| value.to_number() as i64;
        let step = values.len().div_ceil(SAMPLE_ROWS);
        let sample: Vec<i64> = values.iter().step_by(step).map(ordered).collect();
        let scale = best_scale(&sample, plain_bytes, bits_max)?;
        let mut sample: Vec<i64> = sample.into_iter().filter_map(|ordered| scale.to_integer(ordered)).collect();
        let decimal_integers: Vec<Option<i64>> = values.iter().map(|value| scale.to_integer(ordered(value))).collect();
        let integers = || decimal_integers.iter().copied().flatten();
        let bounds = (integers().min().unwrap_or(0), integers().max().unwrap_or(0));
        if sample.is_empty() {
            sample.push(bounds.0);
        }
        let window = Window::from_sample(&mut sample, bounds, plain_bytes);
        let is_outside = |integer: &Option<i64>| integer.is_none_or(|integer| !window.contains(integer));
        // A chunk has at most 2^16 rows.
        let outside =
            decimal_integers.iter().enumerate().filter(|(_, integer)| is_outside(integer)).map(|(row, _)| row as u16);
        let exceptions = outside.collect();
        let packed = |integer: Option<i64>| integer.filter(|integer| window.contains(*integer)).unwrap_or(window.base);
        Some(Self { scale, window, integers: decimal_integers.iter().copied().map(packed).collect(), exceptions })
    }

    /// Bits of the parts, without padding of the exceptions.
    pub(crate) fn estimate_bits(&self, plain_bytes: usize) -> usize {
        self.window.bits(self.integers.len(), self.exceptions.len(), plain_bytes)
    }
}

/// Exponent and factor with which a sample takes the fewest bits. Returns `None` if it takes more than `bits_max` bits
/// per row.
fn best_scale(sample: &[i64], plain_bytes: usize, bits_max: usize) -> Option<Scale> {
    let exception_bits = exceptions::bits(plain_bytes);
    let mut best = (sample.len().saturating_mul(bits_max).saturating_add(1), None);
    for exponent in (0..POWERS.len()).rev() {
        for factor in 0..=exponent {
            let scale = Scale { exponent, factor, is_real: plain_bytes == 4 };
            let (mut min, mut max, mut bits) = (i64::MAX, i64::MIN, 0);
            for ordered in sample {
                match scale.to_integer(*ordered) {
                    Some(integer) => (min, max) = (min.min(integer), max.max(integer)),
                    None => bits += exception_bits,
                }
                if bits >= best.0 {
                    break;
                }
            }
            bits += sample.len() * packed::width_of(min.min(max), max).unwrap_or(0);
            if bits < best.0 {
                best = (bits, Some(scale));
            }
        }
    }
    best.1
}

/// Packed integers of floating-point values, and exceptions.
#[derive(Clone, Debug)]
pub(crate) struct Alp {
    scale: Scale,
    integers: Packed,
    exceptions: Exceptions,
}

/// Writes the parts of values from their decimal integers, and sets the head fields that describe them.
pub(crate) fn write<N: Native>(values: &[N], decimals: &Decimals, head: &mut Head, writer: &mut Writer) {
    let Decimals { scale, window, integers, exceptions } = decimals;
    (head.base, head.width) = (window.base.into(), window.width);
    (head.exponent, head.factor) = (scale.exponent, scale.factor);
    packed::write(integers, window.base, window.width, writer);
    exceptions::write(values, exceptions, head, writer);
}

impl Alp {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.exponent >= POWERS.len() || head.factor > head.exponent {
            return Err(CorruptChunk {
                at: 44,
                expected: "an exponent of at most 18, and a factor of at most the exponent",
            });
        }
        let integers = Packed::parse(parts, head.base, head.width, head.rows)?;
        let (low, high) = integers.domain();
        if low < -READ_MAX || high > READ_MAX {
            return Err(CorruptChunk { at: 16, expected: "integers within 2^51 of zero" });
        }
        let scale = Scale { exponent: head.exponent, factor: head.factor, is_real: head.plain_bytes == 4 };
        Ok(Self { scale, integers, exceptions: Exceptions::parse(head, parts)? })
    }

    /// Readable name of the encodings.
    pub(crate) fn description(&self) -> String {
        let Scale { exponent, factor, .. } = self.scale;
        let (width, exceptions) = (self.integers.width(), self.exceptions.len());
        format!("alp({exponent}-{factor}) of patched({width}) with {exceptions} exceptions")
    }

    /// The number of a row, as an ordered integer.
    pub(crate) fn value(&self, row: usize) -> i128 {
        // `parse` has checked that integers are small.
        let ordered = || self.scale.to_ordered(self.integers.value(row) as i64).into();
        self.exceptions.number(row).unwrap_or_else(ordered)
    }

    /// Appends the numbers of a range of rows.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        let start = out.len();
        // `parse` has checked that integers are small.
        let (scale, base) = (self.scale, self.integers.base() as i64);
        let integer = move |distance: u64| base.wrapping_add(distance as i64);
        // The type is tested once here, not for each value.
        if scale.is_real {
            let ordered =
                move |distance| O::from_number(f32_to_ordered(scale.to_double(integer(distance)) as f32).into());
            self.integers.append_mapped(rows.clone(), out, ordered);
        } else {
            let ordered = move |distance| O::from_number(f64_to_ordered(scale.to_double(integer(distance))).into());
            self.integers.append_mapped(rows.clone(), out, ordered);
        }
        self.exceptions.apply(rows, &mut out[start..]);
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let start = out.len();
        let mut integers: Vec<i64> = Vec::with_capacity(positions.len());
        self.integers.append_at(positions, &mut integers);
        out.extend(integers.into_iter().map(|integer| O::from_number(self.scale.to_ordered(integer).into())));
        self.exceptions.apply_at(positions, &mut out[start..]);
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let on_integers = self.predicate_on_integers(predicate);
        if self.exceptions.len() == 0 {
            return self.integers.filter(&on_integers, negated, rows, selection);
        }
        let correct = self.exceptions.mask_corrector(predicate, negated, rows.clone());
        self.integers.filter_corrected(&on_integers, negated, rows, selection, correct);
    }

    /// Predicate on decimal integers that is equivalent to a predicate on ordered integers. Rounding preserves the
    /// order of products with a positive number, so ordered integers never decrease as decimal integers increase. Each
    /// ordered integer that is written has exactly one decimal integer.
    fn predicate_on_integers(&self, predicate: &DatumPredicate) -> DatumPredicate {
        match predicate {
            DatumPredicate::Range { low, high } => {
                let end = high.checked_add(1).map_or(self.integers.domain().1 + 1, |end| self.lower_bound(end));
                DatumPredicate::Range { low: self.lower_bound(*low), high: end - 1 }
            }
            DatumPredicate::OneOf(values) => {
                let integer = |ordered: &i128| {
                    let is_in_range = !self.scale.is_real || i32::try_from(*ordered).is_ok();
                    let ordered = i64::try_from(*ordered).ok().filter(|_| is_in_range)?;
                    self.scale.to_integer(ordered).map(i128::from)
                };
                let mut integers: Vec<i128> = values.iter().filter_map(integer).collect();
                integers.sort_unstable();
                integers.dedup();
                DatumPredicate::OneOf(integers.into())
            }
            DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_) | DatumPredicate::Null => {
                DatumPredicate::OneOf(Arc::from([]))
            }
        }
    }

    /// Smallest decimal integer whose double, as an ordered integer, is at least `ordered`. Returns one more than the
    /// greatest decimal integer if all doubles are smaller.
    fn lower_bound(&self, ordered: i128) -> i128 {
        let (mut low, high) = self.integers.domain();
        let mut end = high + 1;
        while low < end {
            // `midpoint` rounds towards zero. It would return `end` for -2 and -1, and the search would not finish.
            let middle = low + (end - low) / 2;
            // `parse` has checked that integers are small.
            if i128::from(self.scale.to_ordered(middle as i64)) < ordered { low = middle + 1 } else { end = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use taut_testkit::Random;

    use super::*;

    #[test]
    fn decimals_round_trip_bit_for_bit_or_are_exceptions() {
        let scale = |is_real| Scale { exponent: 14, factor: 12, is_real };
        for cents in -100_000..100_000_i64 {
            let ordered = f64_to_ordered(cents as f64 / 100.0);
            assert!(
                scale(false).to_integer(ordered).is_none_or(|integer| scale(false).to_ordered(integer) == ordered),
                "{cents}"
            );
            let ordered = f32_to_ordered((cents as f64 / 100.0) as f32).into();
            assert_eq!(scale(true).to_integer(ordered), Some(cents));
        }
        let none = [f64::NAN, -f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MAX, 0.123, 1e300];
        for value in none {
            assert_eq!(scale(false).to_integer(f64_to_ordered(value)), None, "{value}");
        }
        assert_eq!(scale(false).to_integer(f64_to_ordered(f64::from_bits(0x7ff8_0000_0000_1234))), None);
        assert_eq!(scale(false).to_integer(f64_to_ordered(0.0)), Some(0));
    }

    #[test]
    fn bounds_are_found_on_both_sides_of_zero() {
        let values: Vec<i64> = (-700..300).map(|tenths| f64_to_ordered(f64::from(tenths) / 10.0)).collect();
        let decimals = Decimals::find(&values, 8, usize::MAX).unwrap();
        let mut writer = Writer::with_capacity(0);
        let mut head = Head { plain_bytes: 8, rows: values.len(), ..Head::new(taut_types::Encoding::Alp) };
        write(&values, &decimals, &mut head, &mut writer);
        let (head, mut parts) = Head::parse(writer.finish(head).into(), 8, values.len()).unwrap();
        let alp = Alp::parse(&head, &mut parts).unwrap();
        for (row, ordered) in values.iter().enumerate() {
            let found = alp.lower_bound((*ordered).into()) as i64;
            assert_eq!(
                (alp.scale.to_ordered(found), alp.lower_bound(i128::from(*ordered) + 1) as i64),
                (*ordered, found + 1),
                "{row}"
            );
        }
    }

    #[test]
    fn ordered_integers_never_fall_as_decimals_grow() {
        let mut random = Random(1);
        for exponent in 0..POWERS.len() {
            for factor in 0..=exponent {
                for is_real in [false, true] {
                    let scale = Scale { exponent, factor, is_real };
                    let first = (random.number() >> 12) as i64 - (1 << 51);
                    for start in [-50, first.clamp(-(1 << 51), (1 << 51) - 100), -(1 << 51), (1 << 51) - 100] {
                        let values: Vec<i64> = (start..=start + 100).map(|integer| scale.to_ordered(integer)).collect();
                        assert!(values.is_sorted(), "{scale:?} from {start}");
                    }
                }
            }
        }
    }
}
