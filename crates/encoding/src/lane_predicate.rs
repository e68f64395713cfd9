//! Predicate on numbers, translated once so that it compares lanes.
//!
//! A lane is an unsigned integer that holds `number - origin`, modulo the range of the integer. The origin is the base
//! of packed numbers, or zero for codes and plain numbers. So negative plain numbers become lanes in the upper half of
//! the range. For bounds that lanes can hold, one subtraction that wraps around handles all of these cases:
//! `low <= x <= high` is `x - low <= high - low`.

use std::ops::Range;

use taut_types::DatumPredicate;

use crate::kernels::{
    KernelPredicate, Lane, LaneSource, MASK_WORDS, ONE_OF_MAX, VectorBits, mask_of_bytes, unpack, unpack_lanes,
    with_wide_vectors,
};
use crate::{Bitmap, NumberFilter, VECTOR_ROWS};

/// Span below which a list of numbers becomes a table of flags.
const TABLE_MAX: u128 = 1 << 16;

/// Bytes of a source that [`LanePredicate::select`] filters as one part. A part has at least [`PART_VECTORS_MIN`]
/// vectors. Measured with `predicate_speed` on columns out of cache.
const PART_BYTES: usize = 8192;
const PART_VECTORS_MIN: usize = 8;

/// Predicate on lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanePredicate<L> {
    kind: Kind<L>,
    /// Whether the result is inverted: lanes pass if and only if they fail `kind`.
    negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind<L> {
    /// No lane passes.
    Nothing,
    /// `lane - low <= span`.
    Range { low: L, span: L },
    /// The lane is one of these.
    OneOf(Vec<L>),
    /// The flag at index `lane - low` is 1.
    Table { low: L, flags: Vec<u8> },
    /// `lane - low` is one of `distances`, which ascend.
    Sorted { low: L, distances: Vec<L>, filter: NumberFilter },
}

impl<L: Lane> LanePredicate<L> {
    /// Translates a predicate. A lane is a number minus `origin`. `domain` is the least and the greatest number that
    /// lanes can hold. A predicate on bytes or nulls fails for every lane, before negation.
    pub(crate) fn new(predicate: &DatumPredicate, negated: bool, domain: (i128, i128), origin: i128) -> Self {
        let lane = |number: i128| L::from_i128(number.wrapping_sub(origin));
        let kind = match predicate {
            DatumPredicate::Range { low, high } => {
                let (low, high) = ((*low).max(domain.0), (*high).min(domain.1));
                if low > high {
                    Kind::Nothing
                } else {
                    Kind::Range { low: lane(low), span: L::from_i128(high.wrapping_sub(low)) }
                }
            }
            DatumPredicate::OneOf(numbers) => {
                let first = numbers.partition_point(|number| *number < domain.0);
                let end = numbers.partition_point(|number| *number <= domain.1);
                Self::list_kind(numbers.get(first..end).unwrap_or_default(), origin)
            }
            DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_) | DatumPredicate::Null => Kind::Nothing,
        };
        match kind {
            // The lanes outside the range are a range too, which wraps around.
            Kind::Range { low, span } if negated && span != L::MAX => {
                let low = low.minus(L::MAX.minus(span));
                Self { kind: Kind::Range { low, span: L::MAX.minus(span).minus(L::from_u64(1)) }, negated: false }
            }
            _ => Self { kind, negated },
        }
    }

    fn list_kind(numbers: &[i128], origin: i128) -> Kind<L> {
        let lane = |number: &i128| L::from_i128(number.wrapping_sub(origin));
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Kind::Nothing };
        let span = last.wrapping_sub(*first) as u128;
        let distances = numbers.iter().map(|number| number.wrapping_sub(*first));
        if span == numbers.len() as u128 - 1 {
            Kind::Range { low: lane(first), span: L::from_i128(last.wrapping_sub(*first)) }
        } else if numbers.len() <= ONE_OF_MAX {
            Kind::OneOf(numbers.iter().map(lane).collect())
        } else if span < TABLE_MAX {
            let mut flags = vec![0; span as usize + 1];
            distances.for_each(|distance| flags[distance as usize] = 1);
            Kind::Table { low: lane(first), flags }
        } else {
            let distances: Vec<L> = distances.map(L::from_i128).collect();
            let filter = NumberFilter::new(distances.iter().map(|distance| distance.to_u64()));
            Kind::Sorted { low: lane(first), distances, filter }
        }
    }

    /// Predicate that passes only this lane.
    pub(crate) fn equal_to(lane: L) -> Self {
        Self { kind: Kind::Range { low: lane, span: L::default() }, negated: false }
    }

    /// Predicate on codes: a code passes if its flag is true. Codes past the flags fail.
    pub(crate) fn from_flags(flags: impl ExactSizeIterator<Item = bool>) -> Self {
        let flags: Vec<u8> = flags.map(u8::from).collect();
        let negated = false;
        let (Some(first), Some(last)) =
            (flags.iter().position(|flag| *flag != 0), flags.iter().rposition(|flag| *flag != 0))
        else {
            return Self { kind: Kind::Nothing, negated };
        };
        let low = L::from_i128(first as i128);
        let kind = if flags[first..=last].iter().all(|flag| *flag != 0) {
            Kind::Range { low, span: L::from_i128((last - first) as i128) }
        } else {
            Kind::Table { low, flags: flags[first..=last].to_vec() }
        };
        Self { kind, negated }
    }

    /// Whether a lane passes.
    #[inline]
    pub(crate) fn admits(&self, lane: L) -> bool {
        let is_match = match &self.kind {
            Kind::Nothing => false,
            Kind::Range { low, span } => lane.minus(*low) <= *span,
            Kind::OneOf(lanes) => lanes.contains(&lane),
            Kind::Table { low, flags } => usize::try_from(lane.minus(*low).to_u128())
                .ok()
                .and_then(|index| flags.get(index))
                .is_some_and(|flag| *flag != 0),
            Kind::Sorted { low, distances, .. } => distances.binary_search(&lane.minus(*low)).is_ok(),
        };
        is_match != self.negated
    }

    /// Whether all lanes pass (`true`) or none does (`false`). Returns `None` if that depends on the lane.
    pub(crate) fn fixed_result(&self) -> Option<bool> {
        match &self.kind {
            Kind::Nothing => Some(self.negated),
            Kind::Range { span, .. } if *span == L::MAX => Some(!self.negated),
            _ => None,
        }
    }

    /// Least and greatest lane that pass, if exactly the lanes between them pass. Otherwise returns `None`.
    pub(crate) fn bounds(&self) -> Option<(L, L)> {
        match &self.kind {
            Kind::Range { low, span } if !self.negated && *span <= L::MAX.minus(*low) => {
                // Number of lanes above the range.
                let above = L::MAX.minus(*low).minus(*span);
                Some((*low, L::MAX.minus(above)))
            }
            _ => None,
        }
    }

    /// Clears the rows of a range that fail. `source` must have the vectors of all rows.
    pub(crate) fn filter(&self, source: LaneSource<L>, rows: Range<usize>, selection: &mut Bitmap) {
        if let Some(all) = self.fixed_result() {
            if !all {
                selection.clear_range(rows);
            }
            return;
        }
        let whole = rows.start.div_ceil(VECTOR_ROWS)..rows.end / VECTOR_ROWS;
        let mut filter_edge = |rows: Range<usize>| {
            filter_vectors(rows, selection, |vector| self.mask_of(source.vectors(vector..vector + 1)));
        };
        if whole.is_empty() {
            return filter_edge(rows);
        }
        filter_edge(rows.start..whole.start * VECTOR_ROWS);
        filter_edge(whole.end * VECTOR_ROWS..rows.end);
        self.retain(source.vectors(whole.clone()), selection.vectors_mut(whole));
    }

    /// Selects the rows of a source that pass, and no others. `vector_bytes` is the length of a vector of the source.
    /// Works part by part: sets all bits of a part, and clears the bits of failing rows while the part is in the L1
    /// cache.
    pub(crate) fn select(&self, source: LaneSource<L>, vector_bytes: usize, rows: usize, selection: &mut Bitmap) {
        selection.reset(rows);
        let vectors = if self.fixed_result().is_none() { rows / VECTOR_ROWS } else { 0 };
        let part_vectors = (PART_BYTES / vector_bytes).max(PART_VECTORS_MIN);
        for first in (0..vectors).step_by(part_vectors) {
            let part = first..vectors.min(first + part_vectors);
            selection.extend_set(part.len() * VECTOR_ROWS);
            self.retain(source.vectors(part.clone()), selection.vectors_mut(part));
        }
        let rest = selection.len()..rows;
        selection.extend_set(rest.len());
        self.filter(source, rest, selection);
    }

    /// One bit per lane of one vector, set if the lane passes. Bits past the last lane are undefined.
    pub(crate) fn mask_of(&self, vector: LaneSource<L>) -> [u64; MASK_WORDS] {
        let mut bits = [[u64::MAX; MASK_WORDS]];
        self.retain(vector, &mut bits);
        bits[0]
    }

    /// Clears the bits of lanes that fail. Bits past the last lane are undefined afterwards.
    fn retain(&self, source: LaneSource<L>, selected: &mut [VectorBits]) {
        if L::retain_narrow(&source, |lane| self.admits(lane), selected) {
            return;
        }
        let predicate = match &self.kind {
            Kind::Range { low, span } => Some(KernelPredicate::Range { low: *low, span: *span }),
            Kind::OneOf(values) => Some(KernelPredicate::OneOf(values)),
            Kind::Table { low, flags } => Some(KernelPredicate::Table { low: *low, flags }),
            Kind::Nothing | Kind::Sorted { .. } => None,
        };
        if predicate.is_some_and(|predicate| L::retain(&source, &predicate, self.negated, selected)) {
            return;
        }
        for (vector, selected) in selected.iter_mut().enumerate() {
            if selected.iter().any(|word| *word != 0) {
                let mask = match source.vectors(vector..vector + 1) {
                    LaneSource::Packed { width, packed } => self.mask_of_packed(width, packed),
                    LaneSource::Plain(lanes) => self.mask(lanes),
                    LaneSource::Floats(bits) => self.mask_of_floats(bits),
                };
                selected.iter_mut().zip(mask).for_each(|(word, mask)| *word &= mask);
            }
        }
    }

    /// One bit per floating-point number, set if the number passes. `bits` holds the bits of at most 1,024 numbers.
    fn mask_of_floats(&self, bits: &[L]) -> [u64; MASK_WORDS] {
        let mut ordered = [L::default(); VECTOR_ROWS];
        let target = &mut ordered;
        with_wide_vectors(move || {
            for (lane, bits) in target.iter_mut().zip(bits) {
                // If the sign bit is set, all other bits are inverted.
                let inverted = L::default().minus(bits.shr(L::BITS - 1)).shr(1);
                *lane = bits.xor(inverted);
            }
        });
        self.mask(&ordered[..bits.len()])
    }

    /// One bit per lane of a packed vector, set if the lane passes.
    fn mask_of_packed(&self, width: usize, packed: &[L]) -> [u64; MASK_WORDS] {
        let mut bytes = [0; VECTOR_ROWS];
        if let Kind::Range { low, span } = &self.kind {
            let (low, span) = (*low, *span);
            unpack(width, packed, &mut bytes, move |lane| u8::from(lane.minus(low) <= span));
        } else {
            let mut lanes = [L::default(); VECTOR_ROWS];
            unpack_lanes(width, packed, &mut lanes);
            self.mark_passing(&lanes, &mut bytes);
        }
        self.mask_of_flags(&bytes)
    }

    /// One bit per lane, set if the lane passes. There are at most 1,024 lanes. Bits past the last lane are undefined.
    pub(crate) fn mask(&self, lanes: &[L]) -> [u64; MASK_WORDS] {
        let mut bytes = [0; VECTOR_ROWS];
        self.mark_passing(lanes, &mut bytes);
        self.mask_of_flags(&bytes)
    }

    fn mask_of_flags(&self, bytes: &[u8; VECTOR_ROWS]) -> [u64; MASK_WORDS] {
        let mask = mask_of_bytes(bytes);
        if self.negated { mask.map(|word| !word) } else { mask }
    }

    /// Sets the byte of each lane that passes to 1. All bytes must be 0 before.
    fn mark_passing(&self, lanes: &[L], bytes: &mut [u8; VECTOR_ROWS]) {
        match &self.kind {
            Kind::Nothing => {}
            Kind::Range { low, span } => {
                let (low, span) = (*low, *span);
                with_wide_vectors(move || {
                    for (byte, lane) in bytes.iter_mut().zip(lanes) {
                        *byte = u8::from(lane.minus(low) <= span);
                    }
                });
            }
            Kind::OneOf(values) => with_wide_vectors(move || {
                for value in values {
                    let value = *value;
                    for (byte, lane) in bytes.iter_mut().zip(lanes) {
                        *byte |= u8::from(*lane == value);
                    }
                }
            }),
            Kind::Table { low, flags } => {
                for (byte, lane) in bytes.iter_mut().zip(lanes) {
                    // An index that overflows `usize` is past the table.
                    let index = usize::try_from(lane.minus(*low).to_u128()).unwrap_or(usize::MAX);
                    *byte = flags.get(index).copied().unwrap_or(0);
                }
            }
            Kind::Sorted { low, distances, filter } => {
                let first = *low;
                filter.mark_candidates(lanes.iter().map(move |lane| lane.minus(first).to_u64()), bytes);
                for (mut word, first) in mask_of_bytes(bytes).into_iter().zip((0..).step_by(64)) {
                    while word != 0 {
                        let row = first + word.trailing_zeros() as usize;
                        bytes[row] = u8::from(distances.binary_search(&lanes[row].minus(*low)).is_ok());
                        word &= word - 1;
                    }
                }
            }
        }
    }
}

/// Clears each row of `rows` in `selection` whose mask bit is zero. `mask_of` returns the mask of the vector at an
/// index. Vectors without a selected row are skipped.
pub(crate) fn filter_vectors(
    rows: Range<usize>,
    selection: &mut Bitmap,
    mut mask_of: impl FnMut(usize) -> [u64; MASK_WORDS],
) {
    if rows.is_empty() {
        return;
    }
    for vector in rows.start / VECTOR_ROWS..rows.end.div_ceil(VECTOR_ROWS) {
        let first = vector * VECTOR_ROWS;
        let part = rows.start.max(first)..rows.end.min(first + VECTOR_ROWS);
        if !selection.is_range_empty(part.clone()) {
            selection.intersect_words(part, &mask_of(vector));
        }
    }
}

#[cfg(test)]
mod tests;
