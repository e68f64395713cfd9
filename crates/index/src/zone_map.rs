//! Zone maps: bounds and null counts of consecutive row ranges of one column of one segment.
//!
//! A zone map is an array of records of equal size, ordered by row. The column's type determines the form: `narrow`
//! (numbers of at most 64 bits), `wide` (decimals of more than 18 digits) or `bytes`.
//!
//! ```text
//! offset  size   field
//! 0       4      rows_end   u32; the zone covers the rows from the end of the previous zone
//! 4       4      word       bits 0..17 nulls, 17..22 length of min, 22..27 length of max, 27 unbounded,
//!                           28 has bounds, 29 ascending; lengths are in bytes, and 0 for numbers
//! 8       8|16   min        i64 | i128 | prefix of up to 16 bytes, then zeros
//! 16|24   8|16   max        i64 | i128 | prefix of up to 16 bytes, rounded up if cut, then zeros
//! ```
//!
//! A cut `min` is below the least value, and a cut `max` is above the greatest. A greatest value that begins with 16
//! bytes of `0xff` and is longer has no upper bound: the zone is unbounded. A zone with only nulls has no bounds.

use std::ops::Range;

use taut_types::{ColumnPredicate, Datum, DatumPredicate, LogicalType};

use crate::RowRanges;
use crate::little_endian::u32_at;

/// Maximum bytes of a bound on text or bytes.
pub const BYTES_PREFIX: usize = 16;

const NULLS_BITS: u32 = 17;
const LENGTH_BITS: u32 = 5;
const MIN_LENGTH_SHIFT: u32 = NULLS_BITS;
const MAX_LENGTH_SHIFT: u32 = MIN_LENGTH_SHIFT + LENGTH_BITS;
const UNBOUNDED: u32 = 1 << 27;
const HAS_BOUNDS: u32 = 1 << 28;
const ASCENDING: u32 = 1 << 29;
const RECORD_HEAD: usize = 8;
/// Minimum share of the range of all numbers that a zone must exclude on average to be worth its bytes.
const EXCLUDED_SHARE_MIN: f64 = 1.0 / 32.0;
/// Minimum rows of a merged zone. Merged zones exclude little, but they rule out most of a segment if only extreme
/// values pass. Merged zones of fifty columns take 0.15 % of the bytes of packed rows.
const MERGED_ROWS_MIN: u32 = 8192;

/// Bounds and null count of consecutive rows of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Row after the last row of the zone, counted in the segment.
    pub rows_end: u32,
    /// Number of rows that are null.
    pub nulls: u32,
    /// Lower and upper bound of all values that are not null, or `None` if all rows are null. The upper bound is absent
    /// if none is short enough. Bounds of numbers are exact: the minimum and maximum of the zone.
    pub bounds: Option<(Datum, Option<Datum>)>,
    /// Whether the rows ascend without nulls, so that binary search finds values. False if all values are equal.
    pub is_ascending: bool,
}

/// Format of the bounds in a zone map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFormat {
    /// Numbers of at most 64 bits.
    Narrow,
    /// Numbers of up to 128 bits.
    Wide,
    /// Prefixes of text or bytes.
    Bytes,
}

/// Error: the bytes of a zone map are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: expected {expected}")]
pub struct CorruptZoneMap {
    /// Offset in the bytes of the zone map.
    pub at: usize,
    /// What was expected at the offset.
    pub expected: &'static str,
}

/// Zones of one column of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneMap {
    zones: Vec<Zone>,
    /// All zones merged into one. Checking it first rules out most zone maps.
    overall: Option<Zone>,
    /// Whether no zone has nulls, and both bounds ascend from zone to zone. Binary search then finds the zones that may
    /// pass a predicate.
    is_sorted: bool,
}

impl ZoneFormat {
    /// Form for a logical type.
    pub fn for_type(logical: LogicalType) -> Self {
        match logical.plain_bytes() {
            Some(..=8) => Self::Narrow,
            Some(_) => Self::Wide,
            None => Self::Bytes,
        }
    }

    /// Bytes of the record of one zone.
    pub fn record_bytes(self) -> usize {
        RECORD_HEAD + 2 * self.bound_bytes()
    }

    fn bound_bytes(self) -> usize {
        match self {
            Self::Narrow => 8,
            Self::Wide | Self::Bytes => BYTES_PREFIX,
        }
    }
}

/// Greatest lower bound of `bytes` that a zone can hold.
pub fn lower_prefix(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(BYTES_PREFIX)]
}

/// Least upper bound of `bytes` that a zone can hold, or `None` if there is none.
pub fn upper_prefix(bytes: &[u8]) -> Option<Box<[u8]>> {
    if bytes.len() <= BYTES_PREFIX {
        return Some(bytes.into());
    }
    let last = bytes[..BYTES_PREFIX].iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bound: Box<[u8]> = bytes[..=last].into();
    bound[last] += 1;
    Some(bound)
}

impl Zone {
    /// Whether some row may pass a predicate.
    pub fn may_admit(&self, predicate: &ColumnPredicate) -> bool {
        match (&self.bounds, &predicate.condition) {
            (Some((_, None)), DatumPredicate::Null) => predicate.negated || self.nulls > 0,
            (Some((_, None)), _) => true,
            (Some((min, Some(max))), _) => predicate.may_admit(Some((min, max)), self.nulls > 0),
            (None, _) => predicate.may_admit(None, self.nulls > 0),
        }
    }

    /// Merges this zone with the zone after it.
    fn merge(self, next: Self) -> Self {
        let bounds = match (self.bounds, next.bounds) {
            (Some((min, max)), Some((other_min, other_max))) => {
                let max = max.zip(other_max).map(|(max, other_max)| max.max(other_max));
                Some((min.min(other_min), max))
            }
            (bounds, None) | (None, bounds) => bounds,
        };
        Self { rows_end: next.rows_end, nulls: self.nulls + next.nulls, bounds, is_ascending: false }
    }

    /// Difference of the bounds, if they are numbers.
    fn bounds_width(&self) -> Option<f64> {
        match &self.bounds {
            Some((Datum::Number(min), Some(Datum::Number(max)))) => Some(max.wrapping_sub(*min) as u128 as f64),
            _ => None,
        }
    }

    /// Whether the bounds prove that every row passes a predicate. `rows` is the number of rows of the zone.
    pub fn admits_all(&self, predicate: &ColumnPredicate, rows: u32) -> bool {
        match (&self.bounds, &predicate.condition) {
            (None, DatumPredicate::Null) => !predicate.negated && self.nulls == rows,
            (Some((min, Some(max))), _) if self.nulls == 0 => predicate.admits_all(min, max),
            (Some((_, None)), DatumPredicate::Null) => self.nulls == 0 && predicate.negated,
            _ => false,
        }
    }
}

/// Merges zones into longer zones if the short zones would rule out hardly more rows. This is the case for unordered
/// numbers, if the bounds of a zone are on average almost as far apart as the bounds of all zones together. Otherwise,
/// or if only some zones have nulls, returns the zones unchanged.
pub fn merge_similar_zones(zones: Vec<Zone>) -> Vec<Zone> {
    let widths: Option<f64> = zones.iter().map(Zone::bounds_width).sum();
    let is_mergeable = |zone: &Zone| !zone.is_ascending && (zone.nulls > 0) == (zones[0].nulls > 0);
    let Some(widths) = widths.filter(|_| zones.len() > 1 && zones.iter().all(is_mergeable)) else { return zones };
    let overall = zones.iter().cloned().reduce(Zone::merge);
    let excludes_little = |overall: &Zone| {
        let overall_width = overall.bounds_width();
        overall_width.is_some_and(|width| widths >= (1.0 - EXCLUDED_SHARE_MIN) * width * zones.len() as f64)
    };
    if !overall.as_ref().is_some_and(excludes_little) {
        return zones;
    }
    let (mut merged, mut start): (Vec<Zone>, u32) = (Vec::new(), 0);
    for zone in zones {
        match merged.pop_if(|last| last.rows_end - start < MERGED_ROWS_MIN) {
            Some(last) => merged.push(last.merge(zone)),
            None => {
                start = merged.last().map_or(0, |last| last.rows_end);
                merged.push(zone);
            }
        }
    }
    merged
}

impl ZoneMap {
    /// Creates a zone map from zones in order of rows.
    pub fn new(zones: Vec<Zone>) -> Self {
        let overall = zones.iter().cloned().reduce(Zone::merge);
        let follows = |pair: &[Zone]| match (&pair[0].bounds, &pair[1].bounds) {
            (Some((min, Some(max))), Some((next_min, Some(next_max)))) => min <= next_min && max <= next_max,
            _ => false,
        };
        let is_sorted = zones.iter().all(|zone| zone.nulls == 0) && zones.windows(2).all(follows);
        Self { zones, overall, is_sorted }
    }

    /// Zones, in order of rows.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Least and greatest number of all zones, if values are numbers and not all null.
    pub fn number_bounds(&self) -> Option<(i128, i128)> {
        match &self.overall.as_ref()?.bounds {
            Some((Datum::Number(least), Some(Datum::Number(greatest)))) => Some((*least, *greatest)),
            _ => None,
        }
    }

    /// Zones that overlap a range of rows. Returns the first row of these zones, and the zones.
    pub fn overlapping_zones(&self, rows: &Range<u32>) -> (u32, &[Zone]) {
        let first = self.zones.partition_point(|zone| zone.rows_end <= rows.start);
        let start = self.zone_start(first);
        let count = match rows.end > start {
            true => self.zones[first..].partition_point(|zone| zone.rows_end < rows.end) + 1,
            false => 0,
        };
        (start, &self.zones[first..self.zones.len().min(first + count)])
    }

    /// First row of a zone.
    fn zone_start(&self, zone: usize) -> u32 {
        zone.checked_sub(1).map_or(0, |previous| self.zones[previous].rows_end)
    }

    /// Zones whose rows may pass a predicate, found by binary search. Returns the first row of these zones, and the
    /// zones. Returns all zones if they are not sorted, or if the predicate is negated.
    fn candidate_zones(&self, predicate: &ColumnPredicate) -> (u32, &[Zone]) {
        if !self.is_sorted || predicate.negated {
            return (0, &self.zones);
        }
        let is_below = |zone: &Zone| match &zone.bounds {
            Some((_, Some(max))) => predicate.condition.is_above(max),
            _ => false,
        };
        let is_above = |zone: &Zone| zone.bounds.as_ref().is_some_and(|(min, _)| predicate.condition.is_below(min));
        let first = self.zones.partition_point(is_below);
        let count = self.zones[first..].partition_point(|zone| !is_above(zone));
        (self.zone_start(first), &self.zones[first..first + count])
    }

    /// Whether some row may pass a predicate. Compares only the bounds of all zones together.
    pub fn may_admit(&self, predicate: &ColumnPredicate) -> bool {
        self.overall.as_ref().is_some_and(|overall| overall.may_admit(predicate))
    }

    /// Removes from `ranges` the rows of zones in which no row can pass. Returns the number of zones that are ruled
    /// out.
    pub fn prune(&self, predicate: &ColumnPredicate, ranges: &mut RowRanges) -> usize {
        if !self.may_admit(predicate) {
            *ranges = RowRanges::none();
            return self.zones.len();
        }
        let (mut start, zones) = self.candidate_zones(predicate);
        let (mut remaining, mut ruled_out) = (RowRanges::none(), self.zones.len() - zones.len());
        for zone in zones {
            if zone.may_admit(predicate) {
                remaining.push(start..zone.rows_end)
            } else {
                ruled_out += 1
            }
            start = zone.rows_end;
        }
        if ruled_out > 0 {
            ranges.intersect(&remaining);
        }
        ruled_out
    }

    /// Rows of the zones whose bounds prove that every row passes a predicate.
    pub fn rows_certain_to_pass(&self, predicate: &ColumnPredicate) -> RowRanges {
        let (mut start, zones) = self.candidate_zones(predicate);
        let mut certain = RowRanges::none();
        for zone in zones {
            if zone.admits_all(predicate, zone.rows_end - start) {
                certain.push(start..zone.rows_end);
            }
            start = zone.rows_end;
        }
        certain
    }

    /// Appends the bytes of all zones.
    ///
    /// # Panics
    /// If a bound is not of this form, or does not fit: bytes longer than 16, or a narrow number over 64 bits.
    pub fn write(&self, form: ZoneFormat, bytes: &mut Vec<u8>) {
        for zone in &self.zones {
            write_zone(zone, form, bytes);
        }
    }

    /// Parses the zones of a segment of `rows` rows. They must cover it exactly.
    ///
    /// # Errors
    /// If the bytes are not what [`ZoneMap::write`] writes.
    pub fn parse(bytes: &[u8], form: ZoneFormat, rows: u32) -> Result<Self, CorruptZoneMap> {
        let record_bytes = form.record_bytes();
        if !bytes.len().is_multiple_of(record_bytes) {
            return Err(CorruptZoneMap { at: 0, expected: "whole zone records" });
        }
        let mut zones = Vec::with_capacity(bytes.len() / record_bytes);
        let mut start = 0;
        for (index, record) in bytes.chunks_exact(record_bytes).enumerate() {
            let zone = parse_zone(record, form, start)
                .map_err(|expected| CorruptZoneMap { at: index * record_bytes, expected })?;
            start = zone.rows_end;
            zones.push(zone);
        }
        if start != rows {
            return Err(CorruptZoneMap { at: bytes.len(), expected: "zones up to the last row of the segment" });
        }
        Ok(Self::new(zones))
    }
}

fn write_zone(zone: &Zone, form: ZoneFormat, bytes: &mut Vec<u8>) {
    assert!(zone.nulls < 1 << NULLS_BITS, "a zone has at most as many rows as a segment");
    let mut word = zone.nulls;
    let (mut min, mut max) = ([0; BYTES_PREFIX], [0; BYTES_PREFIX]);
    if zone.is_ascending {
        word |= ASCENDING;
    }
    if let Some((low, high)) = &zone.bounds {
        word |= HAS_BOUNDS | write_bound(low, form, &mut min) << MIN_LENGTH_SHIFT;
        word |= match high {
            Some(high) => write_bound(high, form, &mut max) << MAX_LENGTH_SHIFT,
            None => UNBOUNDED,
        };
    }
    bytes.extend_from_slice(&zone.rows_end.to_le_bytes());
    bytes.extend_from_slice(&word.to_le_bytes());
    bytes.extend_from_slice(&min[..form.bound_bytes()]);
    bytes.extend_from_slice(&max[..form.bound_bytes()]);
}

/// Writes one bound. Returns the length of a bound of bytes, and zero for a number.
fn write_bound(datum: &Datum, form: ZoneFormat, field: &mut [u8; BYTES_PREFIX]) -> u32 {
    match (datum, form) {
        (Datum::Number(number), ZoneFormat::Narrow | ZoneFormat::Wide) => {
            let is_narrow = i64::try_from(*number).is_ok();
            assert!(is_narrow || form == ZoneFormat::Wide, "a number of a narrow type fits 64 bits");
            *field = number.to_le_bytes();
            0
        }
        (Datum::Bytes(prefix), ZoneFormat::Bytes) => {
            field[..prefix.len()].copy_from_slice(prefix);
            prefix.len() as u32
        }
        _ => unreachable!("a bound has the kind of its column"),
    }
}

fn parse_zone(record: &[u8], form: ZoneFormat, start: u32) -> Result<Zone, &'static str> {
    let (head, bounds) = record.split_at(RECORD_HEAD);
    let (min, max) = bounds.split_at(form.bound_bytes());
    let rows_end = u32_at(head, 0);
    let word = u32_at(head, 4);
    let nulls = word & ((1 << NULLS_BITS) - 1);
    if rows_end <= start {
        return Err("zones in order of rows");
    }
    if nulls > rows_end - start {
        return Err("no more nulls than rows in a zone");
    }
    if word >= ASCENDING << 1 {
        return Err("zero in reserved bits of a zone");
    }
    let is_ascending = word & ASCENDING != 0;
    if is_ascending && (nulls > 0 || word & HAS_BOUNDS == 0) {
        return Err("values in a zone that ascends");
    }
    if word & HAS_BOUNDS == 0 {
        if nulls != rows_end - start {
            return Err("bounds in a zone that has values");
        }
        if word != nulls || bounds.iter().any(|byte| *byte != 0) {
            return Err("zeros in place of bounds");
        }
        return Ok(Zone { rows_end, nulls, bounds: None, is_ascending: false });
    }
    let low = parse_bound(min, form, word >> MIN_LENGTH_SHIFT)?;
    let high = match word & UNBOUNDED {
        0 => Some(parse_bound(max, form, word >> MAX_LENGTH_SHIFT)?),
        _ => None,
    };
    if high.as_ref().is_some_and(|high| low > *high) {
        return Err("a lower bound at most as great as the upper one");
    }
    Ok(Zone { rows_end, nulls, bounds: Some((low, high)), is_ascending })
}

fn parse_bound(field: &[u8], form: ZoneFormat, length: u32) -> Result<Datum, &'static str> {
    let length = (length & ((1 << LENGTH_BITS) - 1)) as usize;
    if form == ZoneFormat::Bytes {
        let (Some(prefix), Some(rest)) = (field.get(..length), field.get(length..)) else {
            return Err("a bound of at most 16 bytes");
        };
        return if rest.iter().all(|byte| *byte == 0) {
            Ok(Datum::Bytes(prefix.into()))
        } else {
            Err("zeros after a bound")
        };
    }
    if length != 0 {
        return Err("no length of a number");
    }
    // Sign-extends eight bytes to sixteen.
    let sign = if field[field.len() - 1] & 0x80 == 0 { 0 } else { u8::MAX };
    let mut number = [sign; BYTES_PREFIX];
    number[..field.len()].copy_from_slice(field);
    Ok(Datum::Number(i128::from_le_bytes(number)))
}

#[cfg(test)]
mod tests;
