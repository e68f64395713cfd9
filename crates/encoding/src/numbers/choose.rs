//! Chooses the encoding for the numbers of a chunk.
//!
//! [`Statistics`] are collected once. Each encoding has, in its own file, a function that estimates its bytes from
//! them. [`estimate`] calls the function of one encoding. Some estimates need more work, such as a pass over all steps
//! (the differences of neighbours). This work is done only if a sample suggests that the encoding may be chosen.
//! [`ChoiceScratch`] holds its results, which the writer reuses. The choice has two stages:
//!
//! 1. [`choose_by_values`]: among the encodings that ignore the order of rows.
//! 2. [`choose_by_order`]: whether `bitmap`, `delta` or `run_length_delta` replaces that encoding. The smallest of
//!    them wins, or the first in this order if several are equally small. If none of them replaces it,
//!    `two_byte_delta` may.
//!
//! The second stage weighs bytes against speed. The table shows millions of 64-bit numbers per second, for three
//! operations. They decode all rows, gather 1 % of the rows, and evaluate a predicate that 1 % of the rows pass. It was
//! measured with `benches/throughput.rs`, "ordered", on two shared cores of an AMD EPYC:
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
//! The table has no `delta` with exceptions. Applying exceptions takes less time than reading the bits that they save.
//!
//! Because of these speeds, `two_byte_delta` replaces packed numbers if it is no larger than they are. A bitmap in
//! which nearly all bits are set replaces an encoding that is at least twice as large. The faster the replaced encoding
//! decodes, the more the other encodings must save: see [`ValueEncoding::replacement_twelfths_max`].

use taut_types::Encoding;

use crate::distinct::{self, Distinct};
use crate::kernels::Native;
use crate::numbers::alp::Decimals;
use crate::numbers::delta::{self, DeltaPlan, Steps};
use crate::numbers::exceptions::Window;
use crate::numbers::marked::MarkedPlan;
use crate::numbers::run_length_delta::{self, RunLengthDeltaPlan};
use crate::numbers::statistics::Statistics;
use crate::numbers::{Nesting, bitmap, dictionary, patched, plain, run_length, two_byte_delta};
use crate::packed;

/// Minimum average rows of a run. Shorter runs are not worth a binary search per lookup.
const RUN_ROWS_MIN: usize = 8;
/// Rows whose distinct values are counted before a dictionary of all rows is tried.
const SAMPLE_ROWS: usize = 1024;
/// Maximum bits per row of a bitmap. A sparser bitmap decodes slowly, bit by bit.
const BITMAP_BITS_PER_ROW_MAX: usize = 4;

/// Intermediate results of the choice, which the writer reuses.
#[derive(Clone, Debug)]
pub(crate) struct ChoiceScratch<N> {
    pub(crate) distinct: Option<Distinct<N>>,
    pub(crate) window: Option<Window<N>>,
    /// If present, used instead of `window`.
    pub(crate) marked: Option<MarkedPlan<N>>,
    pub(crate) decimals: Option<Decimals>,
    pub(crate) delta: Option<DeltaPlan>,
    pub(crate) run_length_delta: Option<RunLengthDeltaPlan>,
}

impl<N> Default for ChoiceScratch<N> {
    fn default() -> Self {
        Self { distinct: None, window: None, marked: None, decimals: None, delta: None, run_length_delta: None }
    }
}

/// Encoding chosen by the values alone.
#[derive(Clone, Copy, Debug)]
struct ValueEncoding {
    encoding: Encoding,
    /// Bits of a packed number.
    width: usize,
    bytes: usize,
}

impl ValueEncoding {
    /// Maximum size of `delta`, `run_length_delta` or a bitmap with gaps, in twelfths of the size of this encoding.
    fn replacement_twelfths_max(&self) -> usize {
        match self.encoding {
            Encoding::BitPacked | Encoding::FrameOfReference => match self.width {
                0..=16 => 3,
                17..=32 => 6,
                _ => 8,
            },
            _ => 6,
        }
    }

    /// Whether a `delta`, `run_length_delta` or bitmap with gaps that takes `bytes` bytes may replace this encoding.
    fn is_replaceable_by(&self, bytes: usize) -> bool {
        bytes * 12 <= self.bytes * self.replacement_twelfths_max()
    }
}

/// Bytes of the parts of an encoding, by its own estimate. Returns `None` if the encoding cannot hold the numbers, or
/// if `scratch` lacks a result that it needs. Only the first stage finds distinct numbers, decimals, and the [`Window`]
/// of the numbers that `patched` packs. A bitmap also needs numbers that ascend strictly, which is not checked.
///
/// The estimate equals the bytes that are written, with three exceptions. It is a lower bound for `run_length`. It
/// ignores the padding of exceptions that are stored with their rows. It estimates *marked exceptions* from a sample.
/// These are stored without their rows, because a mark in place of the packed number shows the row (see `marked.rs`).
fn estimate<N: Native>(
    encoding: Encoding,
    statistics: &Statistics<'_, N>,
    scratch: &mut ChoiceScratch<N>,
) -> Option<usize> {
    let (values, rows, spread) = (statistics.values, statistics.rows(), statistics.spread());
    let plain_bytes = statistics.plain_bytes;
    match encoding {
        Encoding::Constant => (statistics.runs == 1).then_some(0),
        Encoding::Plain => Some(plain::estimate(statistics)),
        Encoding::BitPacked => Some(packed::bytes(rows, statistics.width_from_zero()?)),
        Encoding::FrameOfReference => Some(packed::bytes(rows, statistics.width()?)),
        Encoding::Dictionary => Some(dictionary::estimate(statistics, scratch.distinct.as_ref()?.entries.len())),
        Encoding::RunLength => Some(run_length::estimate(statistics)),
        Encoding::Patched => match (scratch.marked, scratch.window) {
            (Some(plan), _) => Some(plan.bits / 8),
            (None, window) => Some(patched::estimate_bits(statistics, window?, window?.count_outside(values)) / 8),
        },
        Encoding::Alp => Some(scratch.decimals.as_ref()?.estimate_bits(plain_bytes) / 8),
        Encoding::Bitmap => Some(bitmap::bytes(rows, bitmap::bit_count(rows, spread)?)),
        Encoding::TwoByteDelta => two_byte_delta::estimate(statistics),
        Encoding::Delta => {
            scratch.delta = scratch.delta.take().or_else(|| DeltaPlan::for_values(values, spread, plain_bytes));
            Some(scratch.delta.as_ref()?.bytes(rows, plain_bytes))
        }
        Encoding::RunLengthDelta => {
            scratch.run_length_delta =
                scratch.run_length_delta.or_else(|| RunLengthDeltaPlan::for_values(values, spread));
            Some(scratch.run_length_delta?.bytes(plain_bytes))
        }
        Encoding::Fsst | Encoding::FrontCoded => None,
    }
}

/// Bytes and encoding of the smallest candidate. Of equally small candidates, returns the first. Returns `None` if no
/// candidate can hold the numbers.
fn choose_smallest<N: Native>(
    candidates: impl IntoIterator<Item = Encoding>,
    statistics: &Statistics<'_, N>,
    scratch: &mut ChoiceScratch<N>,
) -> Option<(usize, Encoding)> {
    let candidates = candidates.into_iter();
    let sizes = candidates.filter_map(|encoding| Some((estimate(encoding, statistics, scratch)?, encoding)));
    sizes.min_by_key(|(bytes, _)| *bytes)
}

/// Chooses an encoding by the values, or one that uses their order if it saves enough. Stores in `scratch` the results
/// that the writer reuses.
pub(crate) fn choose<N: Native>(
    statistics: &Statistics<'_, N>,
    nesting: Nesting,
    scratch: &mut ChoiceScratch<N>,
) -> Encoding {
    let encoding = choose_by_values(statistics, nesting, scratch);
    // Values with outliers, and decimals, rarely have an order that saves space.
    let has_outliers = encoding == Encoding::Patched && scratch.marked.is_none();
    if has_outliers || matches!(encoding, Encoding::Constant | Encoding::Alp) {
        return encoding;
    }
    let width = match encoding {
        Encoding::BitPacked => statistics.width_from_zero(),
        _ => statistics.width(),
    };
    let Some(bytes) = estimate(encoding, statistics, scratch) else { return encoding };
    let by_values = ValueEncoding { encoding, width: width.unwrap_or(64), bytes };
    choose_by_order(statistics, by_values, scratch).unwrap_or(encoding)
}

/// Smallest of the encodings that use the order of rows, regardless of the cost of decoding.
pub(crate) fn smallest_by_order<N: Native>(statistics: &Statistics<'_, N>, scratch: &mut ChoiceScratch<N>) -> Encoding {
    if statistics.runs == 1 {
        return Encoding::Constant;
    }
    // If all runs have one row, `run_length_delta` is larger than `delta`. It stores a word for each run, made of the
    // length of the run and the step to it. The word is no narrower than the step. It also stores the row at which each
    // vector of words begins.
    let has_runs = statistics.runs < statistics.rows();
    let candidates = [Encoding::RunLength, Encoding::Delta, Encoding::RunLengthDelta];
    let candidates = candidates.into_iter().filter(|encoding| has_runs || *encoding != Encoding::RunLengthDelta);
    choose_smallest(candidates, statistics, scratch).map_or(Encoding::RunLength, |(_, encoding)| encoding)
}

/// Chooses the encoding with the fewest bits per row, weighed against the cost of decoding:
///
/// - Packed numbers decode as fast as memory is read. They must be an eighth smaller than plain numbers.
/// - Runs and dictionaries must be half as large as packed numbers, or as plain ones if packing saves too little.
/// - `patched` and `alp` must be a third smaller than packed or plain numbers, and a fifth smaller than a dictionary.
///   One exception in a hundred rows costs less time than unpacking narrower numbers saves. `alp` costs two
///   multiplications per number, so it decodes at three quarters of the speed of packed numbers.
/// - `patched` with marked exceptions decodes at half the speed of packed numbers. Its cost is its bits, plus bits that
///   account for the time of decoding (see [`MarkedPlan`]). The cost must be at most half of the bits of packed or
///   plain numbers. It must also be a fifth less than the bits of `patched` whose exceptions are stored with their
///   rows.
///
/// Stores in `scratch` the results that the writer reuses.
fn choose_by_values<N: Native>(
    statistics: &Statistics<'_, N>,
    nesting: Nesting,
    scratch: &mut ChoiceScratch<N>,
) -> Encoding {
    if statistics.runs == 1 {
        return Encoding::Constant;
    }
    let (rows, plain_bits) = (statistics.rows(), statistics.plain_bits());
    // Bits of a whole chunk. The last vector of packed numbers is padded, which matters if there are few rows.
    let packed_bits = |width: usize| 8 * packed::bytes(rows, width);
    let packed_width = statistics.width().filter(|width| packed_bits(*width) * 8 <= rows * plain_bits * 7);
    let row_bits = packed_width.unwrap_or(plain_bits);
    if statistics.runs * RUN_ROWS_MIN <= rows && run_length::estimate_bits(statistics) * 2 <= rows * row_bits {
        return Encoding::RunLength;
    }
    let bits_max = packed_width.map_or(rows * plain_bits, packed_bits) * 2 / 3;
    let with_exceptions = if nesting.is_float { find_decimals(statistics, bits_max, scratch) } else { None };
    let with_exceptions = with_exceptions.or_else(|| {
        let bits = find_windows(statistics, nesting, bits_max, scratch)?;
        Some((Encoding::Patched, bits))
    });
    let dictionary_bits_max = with_exceptions.map_or(usize::MAX, |(_, bits)| bits * 5 / 4);
    if row_bits > 8 && is_dictionary_worthwhile(statistics, row_bits, dictionary_bits_max, scratch) {
        return Encoding::Dictionary;
    }
    if let Some((encoding, _)) = with_exceptions {
        return encoding;
    }
    match packed_width {
        None => Encoding::Plain,
        Some(width) if statistics.width_from_zero() == Some(width) => Encoding::BitPacked,
        Some(_) => Encoding::FrameOfReference,
    }
}

/// Finds the windows of `patched`, with and without marked exceptions, from a sample. If marked exceptions are better,
/// sets their plan and returns its cost. Otherwise returns the bits of `patched` if they are at most `bits_max`.
pub(crate) fn find_windows<N: Native>(
    statistics: &Statistics<'_, N>,
    nesting: Nesting,
    bits_max: usize,
    scratch: &mut ChoiceScratch<N>,
) -> Option<usize> {
    let (values, plain_bytes) = (statistics.values, statistics.plain_bytes);
    let mut sample = sample(values);
    let window = Window::from_sample(&mut sample, (statistics.min, statistics.max), plain_bytes);
    let mut bits = patched::estimate_bits(statistics, window, 0);
    if bits <= bits_max {
        bits = patched::estimate_bits(statistics, window, window.count_outside(values));
    }
    let plan = MarkedPlan::from_sample(&sample, values.len(), plain_bytes, nesting.depth);
    let cost_max = (bits / 5 * 4).min(bits_max / 4 * 3);
    scratch.window = Some(window);
    scratch.marked = plan.filter(|plan| plan.cost <= cost_max && plan.window.count_outside(values) > 0);
    scratch.marked.map(|plan| plan.cost).or((bits <= bits_max).then_some(bits))
}

/// Encoding `alp` and its bits. Returns `None` if it takes more than `bits_max` bits.
fn find_decimals<N: Native>(
    statistics: &Statistics<'_, N>,
    bits_max: usize,
    scratch: &mut ChoiceScratch<N>,
) -> Option<(Encoding, usize)> {
    scratch.decimals = Decimals::find(statistics.values, statistics.plain_bytes, bits_max / statistics.rows());
    let bits = scratch.decimals.as_ref()?.estimate_bits(statistics.plain_bytes);
    (bits <= bits_max).then_some((Encoding::Alp, bits))
}

/// Whether a dictionary takes at most half of `row_bits` bits per row, and at most `bits_max` bits. Stores the distinct
/// numbers in `scratch` if so.
fn is_dictionary_worthwhile<N: Native>(
    statistics: &Statistics<'_, N>,
    row_bits: usize,
    bits_max: usize,
    scratch: &mut ChoiceScratch<N>,
) -> bool {
    let is_worthwhile = |entries: usize| {
        let bits = dictionary::estimate_bits(statistics, entries);
        bits * 2 <= statistics.rows() * row_bits && bits <= bits_max
    };
    let sample = sample(statistics.values);
    // If half the values of a sample are distinct, the column has too many distinct values for a dictionary.
    match distinct::of_numbers(&sample, sample.len() / 2) {
        Some(sample) if is_worthwhile(sample.entries.len()) => {}
        _ => return false,
    }
    let entries_max = (1..=16).map(|bits| 1 << bits).take_while(|entries| is_worthwhile(*entries)).last().unwrap_or(1);
    scratch.distinct = distinct::of_numbers(statistics.values, entries_max);
    scratch.distinct.is_some()
}

/// Sample of evenly spaced numbers.
fn sample<N: Native>(values: &[N]) -> Vec<N> {
    values.iter().step_by(values.len().div_ceil(SAMPLE_ROWS)).copied().collect()
}

/// Encoding that uses the order of rows and replaces `by_values`. It is never larger. Returns `None` if no such
/// encoding is worthwhile.
fn choose_by_order<N: Native>(
    statistics: &Statistics<'_, N>,
    by_values: ValueEncoding,
    scratch: &mut ChoiceScratch<N>,
) -> Option<Encoding> {
    // All differences must fit 64 bits. Columns with wider differences are rare and not worth the search.
    let spread = statistics.spread().filter(|spread| *spread <= i64::MAX.into())?;
    choose_by_steps(statistics, spread, by_values, scratch).or_else(|| {
        let is_packed = matches!(by_values.encoding, Encoding::BitPacked | Encoding::FrameOfReference);
        let bytes = two_byte_delta::estimate(statistics).filter(|_| is_packed)?;
        (bytes <= by_values.bytes).then_some(Encoding::TwoByteDelta)
    })
}

/// Smallest of `bitmap`, `delta` and `run_length_delta` that is worth its cost of decoding. A sample of steps decides
/// which of them are tried.
fn choose_by_steps<N: Native>(
    statistics: &Statistics<'_, N>,
    spread: i128,
    by_values: ValueEncoding,
    scratch: &mut ChoiceScratch<N>,
) -> Option<Encoding> {
    let (rows, runs) = (statistics.rows(), statistics.runs);
    // Numbers that do not repeat may ascend strictly. `spread` then gives the bits of a bitmap.
    let bits =
        bitmap::bit_count(rows, Some(spread)).filter(|bits| runs == rows && *bits <= rows * BITMAP_BITS_PER_ROW_MAX);
    let bitmap_bytes = bits.map(|bits| bitmap::bytes(rows, bits));
    let is_full = bits.is_some_and(|bits| bits <= rows + rows / 16)
        && bitmap_bytes.is_some_and(|bytes| bytes * 2 <= by_values.bytes);
    let try_bitmap = bitmap_bytes.is_some_and(|bytes| is_full || by_values.is_replaceable_by(bytes));

    let sample = delta::estimate_sample(statistics.values);
    let may_replace = |bytes: Option<usize>| bytes.is_some_and(|bytes| by_values.is_replaceable_by(bytes));
    let try_delta = may_replace(delta::estimate_of_sample(&sample, statistics, spread));
    let try_runs = runs < rows && may_replace(run_length_delta::estimate_of_sample(sample, statistics));
    if !try_bitmap && !try_delta && !try_runs {
        return None;
    }

    let is_ascending = Steps::between_neighbours(statistics.values, Some(spread))?.min > 0;
    if is_full && is_ascending {
        return Some(Encoding::Bitmap);
    }
    let candidates = [
        (Encoding::Bitmap, try_bitmap && is_ascending),
        (Encoding::Delta, try_delta),
        (Encoding::RunLengthDelta, try_runs),
    ];
    let candidates = candidates.into_iter().filter(|(_, is_tried)| *is_tried).map(|(encoding, _)| encoding);
    choose_smallest(candidates, statistics, scratch)
        .filter(|(bytes, _)| by_values.is_replaceable_by(*bytes))
        .map(|(_, encoding)| encoding)
}

#[cfg(test)]
mod tests;
