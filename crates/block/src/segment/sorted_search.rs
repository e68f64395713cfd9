//! Binary search in sorted zones (Chasseur and Patel, 2013, section 4.4).

use taut_index::{RowRanges, Zone};
use taut_types::DatumPredicate;

use super::{PlannedPredicate, SegmentReader};
use crate::{AccessPaths, BlockError, ScanReport};

impl SegmentReader<'_> {
    /// Narrows `ranges` by binary search for each predicate, in the zones in which its column ascends. The search
    /// decides the predicate for all rows of these zones.
    pub(super) fn search_sorted(
        &mut self,
        planned: &mut [PlannedPredicate<'_>],
        ranges: &mut RowRanges,
        report: &mut ScanReport,
    ) -> Result<(), BlockError> {
        for planned in planned {
            let predicate = planned.predicate;
            let is_searchable = !predicate.negated && predicate.condition != DatumPredicate::Null;
            if !is_searchable || planned.is_decided() {
                continue;
            }
            let summary = self.block.summary(self.sections, predicate.column)?;
            let Some(span) = ranges.span() else { return Ok(()) };
            let zones = summary.zones(self.segment).overlapping_zones(&span);
            if zones.1.iter().any(|zone| zone.is_ascending) && self.search_zones(planned, zones, ranges)? {
                report.sorted_searches += 1;
                report.paths |= AccessPaths::SORTED_SEARCH;
            }
        }
        Ok(())
    }

    /// Searches the ascending zones of a column that have uncertain rows. Returns true if any zone was searched.
    /// `zones` are all zones that overlap the span of `ranges`, and `start` is the first row of the first of them.
    fn search_zones(
        &mut self,
        planned: &mut PlannedPredicate<'_>,
        (mut start, zones): (u32, &[Zone]),
        ranges: &mut RowRanges,
    ) -> Result<bool, BlockError> {
        let predicate = planned.predicate;
        let uncertain = ranges.without(&planned.certain);
        let (mut remaining, mut certain, mut searched) = (RowRanges::none(), RowRanges::none(), false);
        for zone in zones {
            let rows = start..zone.rows_end;
            start = rows.end;
            let found = if zone.is_ascending && uncertain.overlaps(&rows) {
                let (piece, ordinal) = self.piece(predicate.column)?;
                piece.search(ordinal, &predicate.condition, rows.start as usize..rows.end as usize)?
            } else {
                None
            };
            match found {
                Some(found) => {
                    searched = true;
                    for part in found {
                        // Rows of a zone fit 32 bits.
                        remaining.push(part.start as u32..part.end as u32);
                        certain.push(part.start as u32..part.end as u32);
                    }
                }
                None => {
                    planned.certain.within(rows.clone()).for_each(|part| certain.push(part));
                    remaining.push(rows);
                }
            }
        }
        if searched {
            ranges.intersect(&remaining);
            planned.certain = certain;
            planned.uncertain = ranges.without(&planned.certain);
        }
        Ok(searched)
    }
}
