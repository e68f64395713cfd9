//! Savings from the order of numbers: whether `delta`, `run_length_delta`, `bitmap` or `two_byte_delta` beats the
//! encoding chosen by the values alone.
//!
//! Measured in millions of 64-bit numbers per second (`examples/throughput.rs`, "ordered"; two shared cores of an AMD
//! EPYC), decoding all rows, gathering 1 % of them, and filtering 1 %:
//!
//! ```text
//!                                 decode   gather   filter
//! bit_packed, up to 16 bits        4,000      130    4,300
//! bit_packed, 17 to 32 bits        2,300      140    1,900
//! bit_packed, 33 to 64 bits        1,150      135    1,000
//! two_byte_delta                   5,500      330    5,600
//! bitmap, all bits set             5,000       43   20,000
//! bitmap, every second bit set     1,250       34   20,000
//! delta                            1,600       35    9,000
//! run_length_delta, runs of 4        900       30    5,200
//! ```
//!
//! Steps that are exceptions cost less than the bits that they save.
//!
//! Therefore `two_byte_delta` is chosen if it is no larger, and a full bitmap if it is half as large. The other
//! encodings must save more, the faster the encoding that they replace decodes: see [`Before::share`].

use taut_types::Encoding;

use crate::kernels::Native;
use crate::numbers::choose::{Found, Profile};
use crate::numbers::delta::{Steps, step};
use crate::numbers::{bitmap, delta, run_length, run_length_delta, two_byte_delta};
use crate::packed;

/// Maximum neighbours in a sample.
const SAMPLE_ROWS: usize = 256;
/// Maximum bits per row of a bitmap. With more, a bitmap is decoded bit by bit and slowly.
const BITS_PER_ROW_MAX: usize = 4;

/// Encoding chosen by the values alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) encoding: Encoding,
    /// Bits of a packed number.
    pub(crate) width: usize,
    pub(crate) bytes: usize,
}

impl Before {
    /// Maximum size of `delta`, `run_length_delta` or a bitmap with gaps, in twelfths of the size of this encoding.
    fn share(&self) -> usize {
        match self.encoding {
            Encoding::BitPacked | Encoding::FrameOfReference => match self.width {
                0..=16 => 3,
                17..=32 => 6,
                _ => 8,
            },
            _ => 6,
        }
    }

    /// Whether `delta`, `run_length_delta` or a bitmap with gaps is small enough, with `bytes` bytes, to replace this
    /// encoding.
    fn yields_to(&self, bytes: usize) -> bool {
        bytes * 12 <= self.bytes * self.share()
    }
}

/// Steps of a sample of neighbours.
fn sample<N: Native>(values: &[N]) -> Vec<i64> {
    let stride = values.len().div_ceil(SAMPLE_ROWS);
    let pairs = values.iter().zip(&values[1..]).step_by(stride);
    pairs.map(|(left, right)| step(*left, *right)).collect()
}

/// Bits of steps above the least of them.
fn width_of(steps: impl Iterator<Item = i64>) -> Option<usize> {
    let bounds = steps.fold(None, |bounds: Option<(i64, i64)>, step| {
        Some(bounds.map_or((step, step), |(min, max)| (min.min(step), max.max(step))))
    });
    let (min, max) = bounds.unwrap_or((0, 0));
    packed::width_of(min, max)
}

/// Bytes of `delta` for `rows` rows, with exceptions or without, from a sample of steps. A sample can only be narrower
/// than all steps.
fn sampled_delta_bytes(sample: &[i64], rows: usize, spread: i128, plain_bytes: usize) -> Option<usize> {
    let whole = width_of(sample.iter().copied()).map(|width| delta::bytes(rows, width, plain_bytes));
    let window = delta::window(sample.to_vec(), Steps { min: -spread, max: spread }, plain_bytes);
    let patched = window.map(|window| {
        let exceptions = window.outside(sample) * rows / sample.len();
        delta::bytes(rows, window.width, plain_bytes) + exceptions * (2 + plain_bytes)
    });
    whole.into_iter().chain(patched).min()
}

/// Encoding that replaces `before`, if one is worthwhile. It is never larger than `before`.
pub(crate) fn choose<N: Native>(
    values: &[N],
    profile: &Profile<N>,
    plain_bytes: usize,
    before: Before,
) -> Option<Encoding> {
    let rows = values.len();
    // Differences are within 64 bits of each other. Wider ones are rare and not worth the search.
    let spread = profile.spread().filter(|spread| *spread <= i64::MAX.into())?;
    let is_packed = matches!(before.encoding, Encoding::BitPacked | Encoding::FrameOfReference);
    let by_order = choose_by_order(values, profile, plain_bytes, before);
    let fits_two_bytes = is_packed && spread <= u16::MAX.into() && two_byte_delta::bytes(rows) <= before.bytes;
    by_order.or(fits_two_bytes.then_some(Encoding::TwoByteDelta))
}

/// Smallest of the encodings that use the order of rows.
pub(crate) fn smallest<N: Native>(
    values: &[N],
    profile: &Profile<N>,
    plain_bytes: usize,
    found: &mut Found<N>,
) -> Encoding {
    let (rows, runs, spread) = (values.len(), profile.runs, profile.spread());
    if runs == 1 {
        return Encoding::Constant;
    }
    let width = packed::width_of(profile.min, profile.max);
    let mut best = (run_length::bytes_least(runs, width, plain_bytes), Encoding::RunLength);
    // If all runs have one row, words are wider than the steps of `delta`, because they also hold the length of a run.
    let runs_plan = if runs == rows { None } else { run_length_delta::RunLengthDeltaPlan::of(values, spread) };
    found.delta = delta::DeltaPlan::of(values, spread, plain_bytes);
    let others = [
        (runs_plan.map(|plan| plan.bytes(plain_bytes)), Encoding::RunLengthDelta),
        (found.delta.as_ref().map(|plan| plan.bytes(rows, plain_bytes)), Encoding::Delta),
    ];
    for (bytes, encoding) in others {
        best = bytes.map_or(best, |bytes| best.min((bytes, encoding)));
    }
    best.1
}

fn choose_by_order<N: Native>(
    values: &[N],
    profile: &Profile<N>,
    plain_bytes: usize,
    before: Before,
) -> Option<Encoding> {
    let (rows, spread) = (values.len(), profile.spread());
    // Numbers that do not repeat may ascend strictly. `spread` then gives the bits of a bitmap.
    let bits = bitmap::bits_of(rows, spread).filter(|bits| profile.runs == rows && *bits <= rows * BITS_PER_ROW_MAX);
    let bitmap_bytes = bits.map(|bits| bitmap::bytes(rows, bits));
    let is_full = bits.is_some_and(|bits| bits <= rows + rows / 16)
        && bitmap_bytes.is_some_and(|bytes| bytes * 2 <= before.bytes);
    let bitmap_bytes = bitmap_bytes.filter(|bytes| is_full || before.yields_to(*bytes));

    let steps = sample(values);
    let delta_bytes = spread.and_then(|spread| sampled_delta_bytes(&steps, rows, spread, plain_bytes));
    let delta_bytes = delta_bytes.filter(|bytes| before.yields_to(*bytes));
    let runs_width = width_of(steps.into_iter().filter(|step| *step != 0));
    let runs_bytes = runs_width.map(|width| profile.runs * (width + 1) / 8);
    let runs_bytes = runs_bytes.filter(|bytes| profile.runs < rows && before.yields_to(*bytes));
    if bitmap_bytes.is_none() && delta_bytes.is_none() && runs_bytes.is_none() {
        return None;
    }

    let steps = Steps::of(values, spread)?;
    let bitmap_bytes = bitmap_bytes.filter(|_| steps.min > 0);
    if is_full && bitmap_bytes.is_some() {
        return Some(Encoding::Bitmap);
    }
    let delta_bytes = delta_bytes.and_then(|_| delta::DeltaPlan::of(values, spread, plain_bytes));
    let delta_bytes = delta_bytes.map(|plan| plan.bytes(rows, plain_bytes));
    let runs_bytes = runs_bytes
        .and_then(|_| run_length_delta::RunLengthDeltaPlan::of(values, spread))
        .map(|plan| plan.bytes(plain_bytes));
    let candidates =
        [(bitmap_bytes, Encoding::Bitmap), (delta_bytes, Encoding::Delta), (runs_bytes, Encoding::RunLengthDelta)];
    let candidates = candidates.into_iter().filter_map(|(bytes, encoding)| Some((bytes?, encoding)));
    candidates
        .filter(|(bytes, _)| before.yields_to(*bytes))
        .min_by_key(|(bytes, _)| *bytes)
        .map(|(_, encoding)| encoding)
}
