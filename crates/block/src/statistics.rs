//! Statistics of one column of a block. Each column has its own section, so that a scan reads only the statistics of
//! columns with predicates.
//!
//! ```text
//! offset  size     field
//! 0       8        rows
//! 8       8        nulls
//! 16      8        plain_bytes
//! 24      4        segments        S
//! 28      4        tail_at         offset of the tail
//! 32      S * 16   segment table   zones_end u32 (zones of segments 0 to this one), nulls u32, plain_bytes u64
//!         ...      zone maps       of segment 0, of segment 1, ...: see `taut_index::zone_map`
//! tail_at 256      sketch          registers of the distinct sketch
//!         4        flags           1 has min, 2 has max, 4 both are values of the column, not only bounds
//!         4        min_length
//!         4        max_length
//!         ...      min, max        i128, or bytes
//! ```
//!
//! The data that a scan needs comes first. Only query planning reads the tail.

use std::sync::Arc;

use arrow_buffer::Buffer;
use taut_index::{Zone, ZoneFormat, ZoneMap};
use taut_types::{ColumnPredicate, ColumnStatistics, Datum, DistinctSketch, LogicalType};

use crate::bytes::{u32_at, u64_at};
use crate::error::{Corrupt, corrupt_at};
use crate::values::ColumnBounds;

const FIXED_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 16;
const TAIL_FIXED_BYTES: usize = DistinctSketch::BYTES + 12;
const HAS_MIN: u32 = 1;
const HAS_MAX: u32 = 2;
const IS_EXACT: u32 = 4;

/// Statistics of a column, collected while its block is built.
#[derive(Default)]
pub(crate) struct StatisticsBuilder {
    /// Zones and plain bytes of each segment.
    pub segments: Vec<(Vec<Zone>, u64)>,
    pub bounds: ColumnBounds,
    pub sketch: DistinctSketch,
}

impl StatisticsBuilder {
    /// Encodes the section. Returns its bytes and the same statistics in parsed form.
    pub fn finish(self, logical: LogicalType) -> (Vec<u8>, ColumnStatistics) {
        let form = ZoneFormat::for_type(logical);
        let bounds = self.bounds.shorten();
        let mut statistics = ColumnStatistics {
            min: bounds.min,
            max: bounds.max,
            exact: !bounds.is_inexact,
            distinct: self.sketch,
            ..ColumnStatistics::default()
        };
        let (mut table, mut zones, mut zones_end) = (vec![], vec![], 0u32);
        let segments = self.segments.len() as u32;
        for (segment, plain_bytes) in self.segments {
            let nulls: u32 = segment.iter().map(|zone| zone.nulls).sum();
            statistics.rows += segment.last().map_or(0, |zone| u64::from(zone.rows_end));
            statistics.nulls += u64::from(nulls);
            statistics.plain_bytes += plain_bytes;
            zones_end += segment.len() as u32;
            table.extend_from_slice(&zones_end.to_le_bytes());
            table.extend_from_slice(&nulls.to_le_bytes());
            table.extend_from_slice(&plain_bytes.to_le_bytes());
            ZoneMap::new(segment).write(form, &mut zones);
        }
        let mut bytes = vec![];
        for count in [statistics.rows, statistics.nulls, statistics.plain_bytes] {
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.extend_from_slice(&segments.to_le_bytes());
        bytes.extend_from_slice(&((FIXED_BYTES + table.len() + zones.len()) as u32).to_le_bytes());
        bytes.append(&mut table);
        bytes.append(&mut zones);
        write_tail(&statistics, &mut bytes);
        (bytes, statistics)
    }
}

fn write_tail(statistics: &ColumnStatistics, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(statistics.distinct.as_bytes());
    let stored = |bound: &Option<Datum>| match bound {
        Some(Datum::Number(number)) => number.to_le_bytes().to_vec(),
        Some(Datum::Bytes(bytes)) => bytes.to_vec(),
        None => vec![],
    };
    let flag_if = |is_set, flag| if is_set { flag } else { 0 };
    let flags = flag_if(statistics.min.is_some(), HAS_MIN)
        | flag_if(statistics.max.is_some(), HAS_MAX)
        | flag_if(statistics.exact, IS_EXACT);
    let (min, max) = (stored(&statistics.min), stored(&statistics.max));
    for word in [flags, min.len() as u32, max.len() as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&min);
    bytes.extend_from_slice(&max);
}

/// Parsed statistics of one column of a block.
#[derive(Debug)]
pub struct ColumnSummary {
    logical: LogicalType,
    bytes: Buffer,
    tail_at: usize,
    rows: u64,
    nulls: u64,
    plain_bytes: u64,
    segments: Vec<SegmentSummary>,
}

/// Statistics of a column in one segment.
#[derive(Debug)]
pub(crate) struct SegmentSummary {
    pub zones: ZoneMap,
    pub nulls: u64,
    pub plain_bytes: u64,
}

impl ColumnSummary {
    /// Parses a section. `segment_rows` yields the number of rows of each segment of the block.
    pub(crate) fn parse(
        bytes: Buffer,
        logical: LogicalType,
        segment_rows: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Arc<Self>, Corrupt> {
        if bytes.len() < FIXED_BYTES + TAIL_FIXED_BYTES {
            return Err(corrupt_at(bytes.len(), "the fixed part of statistics"));
        }
        let count = segment_rows.len();
        if u32_at(&bytes, 24) as usize != count {
            return Err(corrupt_at(24, "as many segments as the block has"));
        }
        let tail_at = u32_at(&bytes, 28) as usize;
        let zones_at = FIXED_BYTES + count * SEGMENT_BYTES;
        if tail_at < zones_at || tail_at > bytes.len() - TAIL_FIXED_BYTES {
            return Err(corrupt_at(28, "the offset of the tail"));
        }
        let record_bytes = ZoneFormat::for_type(logical).record_bytes();
        let (mut segments, mut at, mut rows, mut nulls, mut plain_bytes) = (vec![], zones_at, 0, 0, 0u64);
        for (segment, segment_rows) in segment_rows.enumerate() {
            let entry = FIXED_BYTES + segment * SEGMENT_BYTES;
            let end =
                (u32_at(&bytes, entry) as usize).checked_mul(record_bytes).and_then(|end| end.checked_add(zones_at));
            let Some(end) = end.filter(|end| (at..=tail_at).contains(end)) else {
                return Err(corrupt_at(entry, "the end of a segment's zones"));
            };
            let summary = SegmentSummary {
                // A segment has at most 65,536 rows.
                zones: ZoneMap::parse(&bytes[at..end], ZoneFormat::for_type(logical), segment_rows as u32)
                    .map_err(|corrupt| Corrupt::from(corrupt).shifted_by(at))?,
                nulls: u64::from(u32_at(&bytes, entry + 4)),
                plain_bytes: u64_at(&bytes, entry + 8),
            };
            if summary.zones.zones().iter().map(|zone| u64::from(zone.nulls)).sum::<u64>() != summary.nulls {
                return Err(corrupt_at(entry + 4, "as many nulls as the zones have"));
            }
            rows += segment_rows as u64;
            nulls += summary.nulls;
            plain_bytes = plain_bytes.wrapping_add(summary.plain_bytes);
            segments.push(summary);
            at = end;
        }
        if at != tail_at {
            return Err(corrupt_at(28, "the tail after the zones"));
        }
        for (field, (expected, message)) in [
            (rows, "as many rows as the block has"),
            (nulls, "as many nulls as the segments have"),
            (plain_bytes, "as many plain bytes as the segments have"),
        ]
        .into_iter()
        .enumerate()
        {
            if u64_at(&bytes, field * 8) != expected {
                return Err(corrupt_at(field * 8, message));
            }
        }
        Ok(Arc::new(Self { logical, bytes, tail_at, rows, nulls, plain_bytes, segments }))
    }

    /// Bounds, counts and the distinct sketch of the whole block.
    pub(crate) fn statistics(&self) -> Result<ColumnStatistics, Corrupt> {
        let tail = &self.bytes[self.tail_at..];
        let mut registers = [0; DistinctSketch::BYTES];
        registers.copy_from_slice(&tail[..DistinctSketch::BYTES]);
        let flags_at = self.tail_at + DistinctSketch::BYTES;
        let word = |index: usize| u32_at(tail, DistinctSketch::BYTES + 4 * index);
        let (flags, min_length, max_length) = (word(0), word(1) as usize, word(2) as usize);
        let values = &tail[TAIL_FIXED_BYTES..];
        if flags > (HAS_MIN | HAS_MAX | IS_EXACT) || min_length.checked_add(max_length) != Some(values.len()) {
            return Err(corrupt_at(flags_at, "bounds up to the end of the section"));
        }
        let (min, max) = values.split_at(min_length);
        let bound = |bytes: &[u8], flag| {
            if flags & flag == 0 {
                return if bytes.is_empty() { Ok(None) } else { Err(corrupt_at(flags_at, "a flag for each bound")) };
            }
            if self.logical.is_bytes() {
                return Ok(Some(Datum::Bytes(bytes.into())));
            }
            let number = bytes.try_into().map_err(|_| corrupt_at(flags_at, "a number of 16 bytes"))?;
            Ok(Some(Datum::Number(i128::from_le_bytes(number))))
        };
        let (min, max) = (bound(min, HAS_MIN)?, bound(max, HAS_MAX)?);
        if min.is_some() != (self.nulls < self.rows) || (min.is_none() && max.is_some()) {
            return Err(corrupt_at(flags_at, "a minimum if and only if there are values, and no maximum without it"));
        }
        Ok(ColumnStatistics {
            rows: self.rows,
            nulls: self.nulls,
            min,
            max,
            exact: flags & IS_EXACT != 0,
            plain_bytes: self.plain_bytes,
            distinct: DistinctSketch::from_bytes(registers),
        })
    }

    /// Whether a row of the block may pass a column predicate. Returns false only if zone maps rule out all rows.
    pub fn may_match(&self, predicate: &ColumnPredicate) -> bool {
        (0..self.segments.len()).any(|segment| self.may_match_in(segment, predicate))
    }

    /// Whether a row of a segment may pass a column predicate.
    pub(crate) fn may_match_in(&self, segment: usize, predicate: &ColumnPredicate) -> bool {
        let zones = &self.segments[segment].zones;
        zones.may_admit(predicate) && zones.zones().iter().any(|zone| zone.may_admit(predicate))
    }

    /// Zone map of one segment.
    ///
    /// # Panics
    /// If the block has no such segment.
    pub fn zones(&self, segment: usize) -> &ZoneMap {
        &self.segments[segment].zones
    }

    pub(crate) fn segment(&self, segment: usize) -> &SegmentSummary {
        &self.segments[segment]
    }

    /// Number of rows of the block.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of null rows in the block.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }
}
