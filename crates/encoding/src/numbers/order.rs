//! What the order of numbers saves: whether `delta`, `run_length_delta`, `bitmap` or `two_byte_delta` beats the
//! encoding that the values alone would get.
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
//! So two bytes are taken where they are no larger, a full bitmap where it is half as large; and what has to sum up
//! must save the more, the faster it is without: see [`Before::share`].

use taut_types::Encoding;

use crate::native::Native;
use crate::numbers::choose::Profile;
use crate::numbers::delta::{Steps, step};
use crate::numbers::{bitmap, delta, run_length_delta, two_byte_delta};

/// Neighbours that are looked at before all are.
const SAMPLE_ROWS: usize = 256;
/// A bitmap with more bits per row is decoded bit by bit and slowly.
const BITS_PER_ROW_MAX: usize = 4;

/// The encoding that the values alone would get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) encoding: Encoding,
    /// Bits of a packed number.
    pub(crate) width: usize,
    pub(crate) bytes: usize,
}

impl Before {
    /// How large an encoding that sums up may be, in twelfths of this one.
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

    /// Whether that many bytes are few enough.
    fn yields_to(&self, bytes: usize) -> bool {
        bytes * 12 <= self.bytes * self.share()
    }
}

/// The least and greatest steps of a sample of neighbours: of all, and of those that differ.
fn sample<N: Native>(values: &[N]) -> (Steps, Steps) {
    let stride = values.len().div_ceil(SAMPLE_ROWS);
    let pairs = values.iter().zip(&values[1..]).step_by(stride);
    let steps = |is_wanted: fn(&i64) -> bool| {
        let steps = pairs.clone().map(|(left, right)| step(*left, *right)).filter(is_wanted);
        let bounds = steps.fold(None, |bounds: Option<(i64, i64)>, step| {
            Some(bounds.map_or((step, step), |(min, max)| (min.min(step), max.max(step))))
        });
        bounds.map_or(Steps { min: 0, max: 0 }, |(min, max)| Steps { min: min.into(), max: max.into() })
    };
    (steps(|_| true), steps(|step| *step != 0))
}

/// The encoding that takes the place of the one before, if any does. It is never larger.
pub(crate) fn choose<N: Native>(
    values: &[N],
    profile: &Profile<N>,
    plain_bytes: usize,
    before: Before,
) -> Option<Encoding> {
    let rows = values.len();
    // Differences within 64 bits of each other; wider ones are rare and not worth the search.
    let spread = profile.spread().filter(|spread| *spread <= i64::MAX.into())?;
    let is_packed = matches!(before.encoding, Encoding::BitPacked | Encoding::FrameOfReference);
    let by_order = choose_by_order(values, profile, plain_bytes, before);
    let fits_two_bytes = is_packed && spread <= u16::MAX.into() && two_byte_delta::bytes(rows) <= before.bytes;
    by_order.or(fits_two_bytes.then_some(Encoding::TwoByteDelta))
}

fn choose_by_order<N: Native>(
    values: &[N],
    profile: &Profile<N>,
    plain_bytes: usize,
    before: Before,
) -> Option<Encoding> {
    let (rows, spread) = (values.len(), profile.spread());
    // Numbers that do not repeat may ascend strictly; `spread` then says how many bits they take.
    let bits = bitmap::bits_of(rows, spread).filter(|bits| profile.runs == rows && *bits <= rows * BITS_PER_ROW_MAX);
    let bitmap_bytes = bits.map(|bits| bitmap::bytes(rows, bits));
    let is_full = bits.is_some_and(|bits| bits <= rows + rows / 16)
        && bitmap_bytes.is_some_and(|bytes| bytes * 2 <= before.bytes);
    let bitmap_bytes = bitmap_bytes.filter(|bytes| is_full || before.yields_to(*bytes));

    let (all, changes) = sample(values);
    // A sample can only be narrower than all.
    let delta_bytes =
        all.width().map(|width| delta::bytes(rows, width, plain_bytes)).filter(|bytes| before.yields_to(*bytes));
    let runs_bytes = changes.width().map(|width| profile.runs * (width + 1) / 8);
    let runs_bytes = runs_bytes.filter(|bytes| profile.runs < rows && before.yields_to(*bytes));
    if bitmap_bytes.is_none() && delta_bytes.is_none() && runs_bytes.is_none() {
        return None;
    }

    let steps = Steps::of(values, spread)?;
    let bitmap_bytes = bitmap_bytes.filter(|_| steps.min > 0);
    if is_full && bitmap_bytes.is_some() {
        return Some(Encoding::Bitmap);
    }
    let delta_bytes = delta_bytes.and(steps.width()).map(|width| delta::bytes(rows, width, plain_bytes));
    let runs_bytes =
        runs_bytes.and_then(|_| run_length_delta::Plan::of(values, spread)).map(|plan| plan.bytes(plain_bytes));
    let candidates =
        [(bitmap_bytes, Encoding::Bitmap), (delta_bytes, Encoding::Delta), (runs_bytes, Encoding::RunLengthDelta)];
    let candidates = candidates.into_iter().filter_map(|(bytes, encoding)| Some((bytes?, encoding)));
    candidates
        .filter(|(bytes, _)| before.yields_to(*bytes))
        .min_by_key(|(bytes, _)| *bytes)
        .map(|(_, encoding)| encoding)
}
