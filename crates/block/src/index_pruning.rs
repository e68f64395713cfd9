//! Index pruning: finds segments of a block in which no row passes a predicate, by searching the indexes of several
//! segments together.
//!
//! Most segments have no row with a rare value. Checking one segment after another needs a reader for each, and waits
//! for one tree node after another. Here, the trees of several segments are searched together, so that their cache
//! misses overlap.

use std::ops::Bound;
use std::sync::Arc;

use taut_index::{CsbTree, ZoneMap};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, IndexKind};

use crate::indexes::{ProbePredicate, TreeIndex, bloom_rules_out};
use crate::statistics::ColumnSummary;
use crate::{Block, BlockError, ScanReport, Sections};

/// Maximum length of a list for which indexes are searched here. The reader of each segment handles longer lists.
const LIST_MAX: usize = 64;
/// Maximum expected number of passing rows in a segment whose indexes are searched. If two rows are expected, about one
/// segment in seven has none.
const ROWS_EXPECTED_MAX: f64 = 2.0;

/// Result of searching the indexes of some segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedSegments {
    /// The segments, each with the kind of index that rules it out, or `None` if no index does.
    segments: Vec<(usize, Option<IndexKind>)>,
    /// Number of segments whose indexes were searched.
    probed: usize,
}

impl PrunedSegments {
    /// Maximum number of segments that a caller should search in one call. Bounds the bytes of indexes in memory.
    pub const SEGMENTS_MAX: usize = 16;

    /// Segments that are not ruled out.
    pub fn remaining(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().filter(|(_, ruled_out_by)| ruled_out_by.is_none()).map(|(segment, _)| *segment)
    }

    /// Number of segments that are ruled out.
    pub fn ruled_out_count(&self) -> usize {
        self.segments.iter().filter(|(_, ruled_out_by)| ruled_out_by.is_some()).count()
    }

    /// Whether at least half of the segments whose indexes were searched are ruled out.
    pub fn is_majority_ruled_out(&self) -> bool {
        self.ruled_out_count() * 2 >= self.probed
    }

    /// Adds the segments that are ruled out to a report.
    pub fn add_to_report(&self, report: &mut ScanReport) {
        for kind in self.segments.iter().filter_map(|(_, ruled_out_by)| *ruled_out_by) {
            report.segments += 1;
            match kind {
                IndexKind::Bloom => report.count_skip_by_bloom(),
                IndexKind::CsbTree => report.count_skip_by_csb(),
            }
        }
    }
}

/// The indexes of a block that can rule out segments for some column predicates.
pub struct IndexProbes<'a> {
    block: &'a Block,
    sections: &'a dyn Sections,
    predicates: Vec<(&'a ColumnPredicate, Arc<ColumnSummary>)>,
    /// Index searches. Bloom filters come before trees, because they cost less.
    probes: Vec<IndexProbe>,
}

/// Search of one index: ordinals of the predicates on its first column and, if there is one, on its second.
struct IndexProbe {
    index: usize,
    kind: IndexKind,
    columns: usize,
    first: usize,
    second: Option<usize>,
}

impl Block {
    /// Indexes that can be searched for some column predicates. Returns `None` if there are none. Reads only
    /// statistics.
    ///
    /// # Errors
    /// If statistics cannot be read or parsed.
    pub fn index_probes<'a>(
        &'a self,
        sections: &'a dyn Sections,
        predicates: &'a [ColumnPredicate],
    ) -> Result<Option<IndexProbes<'a>>, BlockError> {
        let mut probes = vec![];
        for index in 0..self.header.indexes() {
            let Some((kind, columns)) = self.index(index) else { continue };
            let predicate_on = |column: ColumnIndex| {
                predicates.iter().position(|predicate| predicate.column == column && !predicate.negated)
            };
            let Some(first) =
                predicate_on(columns[0]).filter(|first| can_find_few_rows(kind, &predicates[*first].condition))
            else {
                continue;
            };
            let second = columns.get(1).and_then(|column| predicate_on(*column));
            probes.push(IndexProbe { index, kind, columns: columns.len(), first, second });
        }
        if probes.is_empty() {
            return Ok(None);
        }
        probes.sort_by_key(|probe| probe.kind != IndexKind::Bloom);
        let predicates = predicates.iter().map(|predicate| Ok((predicate, self.summary(sections, predicate.column)?)));
        let predicates = predicates.collect::<Result<_, BlockError>>()?;
        Ok(Some(IndexProbes { block: self, sections, predicates, probes }))
    }

    /// Finds segments in which no row passes all column predicates, like [`IndexProbes::prune`]. If no index can be
    /// searched, all segments remain.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If a segment does not exist.
    pub fn prune(
        &self,
        sections: &dyn Sections,
        predicates: &[ColumnPredicate],
        segments: impl IntoIterator<Item = usize>,
    ) -> Result<PrunedSegments, BlockError> {
        match self.index_probes(sections, predicates)? {
            Some(probes) => probes.prune(segments),
            None => Ok(PrunedSegments {
                segments: segments.into_iter().map(|segment| (segment, None)).collect(),
                probed: 0,
            }),
        }
    }
}

impl IndexProbes<'_> {
    /// Whether zone maps do not rule out a segment, but statistics suggest that an index does. Reads no section.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn may_prune(&self, segment: usize) -> bool {
        self.probes.iter().any(|probe| self.is_selective(probe, segment)) && self.zones_admit(segment)
    }

    /// Finds segments in which no row passes, by searching the indexes of all given segments together. Does not search
    /// in segments for which [`IndexProbes::may_prune`] returns false. The result contains these segments as remaining.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If a segment does not exist.
    pub fn prune(&self, segments: impl IntoIterator<Item = usize>) -> Result<PrunedSegments, BlockError> {
        let mut segments: Vec<_> = segments.into_iter().map(|segment| (segment, None)).collect();
        // Indexes in `segments` of the segments that no index has ruled out.
        let mut undecided: Vec<usize> =
            (0..segments.len()).filter(|index| self.may_prune(segments[*index].0)).collect();
        let probed = undecided.len();
        for probe in &self.probes {
            let is_selective = |index: &usize| self.is_selective(probe, segments[*index].0);
            let searched: Vec<usize> = undecided.iter().copied().filter(is_selective).collect();
            let ordinals: Vec<usize> = searched.iter().map(|index| segments[*index].0).collect();
            let have_rows = match probe.kind {
                IndexKind::Bloom => self.probe_filters(probe, &ordinals)?,
                IndexKind::CsbTree => self.probe_trees(probe, &ordinals)?,
            };
            for (index, _) in searched.into_iter().zip(have_rows).filter(|(_, has_rows)| !has_rows) {
                segments[index].1 = Some(probe.kind);
            }
            undecided.retain(|index| segments[*index].1.is_none());
        }
        Ok(PrunedSegments { segments, probed })
    }

    /// Whether zone maps leave some rows of a segment for each predicate.
    fn zones_admit(&self, segment: usize) -> bool {
        self.predicates.iter().all(|(predicate, summary)| summary.may_match_in(segment, predicate))
    }

    /// Whether statistics suggest that few rows of a segment pass, and binary search cannot find these rows.
    fn is_selective(&self, probe: &IndexProbe, segment: usize) -> bool {
        let ordinals = std::iter::once(probe.first).chain(probe.second);
        let share: f64 = ordinals
            .map(|ordinal| {
                let (predicate, summary) = &self.predicates[ordinal];
                expected_share(&predicate.condition, summary.zones(segment))
            })
            .product();
        let zones = self.predicates[probe.first].1.zones(segment).zones();
        share * self.block.segment_rows(segment) as f64 <= ROWS_EXPECTED_MAX
            && zones.iter().any(|zone| !zone.is_ascending)
    }

    /// Returns for each segment whether it may have a passing row, by its Bloom filter.
    fn probe_filters(&self, probe: &IndexProbe, segments: &[usize]) -> Result<Vec<bool>, BlockError> {
        let predicate = &self.predicates[probe.first].0.condition;
        let has_rows = |segment: &usize| {
            let section = self.block.header.index_section(*segment, probe.index);
            let ruled_out = bloom_rules_out(&self.sections.section(section)?, predicate);
            Ok(!ruled_out.map_err(|corrupt| crate::error::Corrupt::from(corrupt).in_section(section))?)
        };
        segments.iter().map(has_rows).collect()
    }

    /// Returns for each segment whether it may have a passing row, by its tree.
    fn probe_trees(&self, probe: &IndexProbe, segments: &[usize]) -> Result<Vec<bool>, BlockError> {
        let mut trees = Vec::with_capacity(segments.len());
        for segment in segments {
            let section = self.block.header.index_section(*segment, probe.index);
            let bytes = self.sections.section(section)?;
            let tree = TreeIndex::parse(&bytes, self.block.segment_rows(*segment), probe.columns);
            trees.push(tree.map_err(|corrupt| corrupt.in_section(section))?);
        }
        let mut has_rows = vec![false; segments.len()];
        // Keys to search for, each with the index of its tree.
        let (mut keys, mut tree_of_key) = (vec![], vec![]);
        for (index, tree) in trees.iter().enumerate() {
            let search = match tree.has_code_keys(0) {
                // Codes belong to a dictionary, which is not read here.
                true => None,
                false => {
                    let second = probe.second.filter(|_| !tree.has_code_keys(1));
                    let predicate = |ordinal: usize| without_codes(self.predicates[ordinal].0);
                    tree.plan_search(predicate(probe.first), second.map(predicate), LIST_MAX)
                }
            };
            match search {
                None => has_rows[index] = true,
                Some(search) => {
                    tree_of_key.resize(tree_of_key.len() + search.keys.len(), index);
                    keys.extend(search.keys.into_iter().map(|interval| (tree.tree(), interval)));
                }
            }
        }
        for (index, has_key) in tree_of_key.into_iter().zip(CsbTree::contain_keys(&keys)) {
            has_rows[index] |= has_key;
        }
        Ok(has_rows)
    }
}

fn without_codes(predicate: &ColumnPredicate) -> ProbePredicate<'_> {
    ProbePredicate { predicate: &predicate.condition, codes: None }
}

/// Whether a predicate may pass only few rows, and an index of this kind can be searched for them.
fn can_find_few_rows(kind: IndexKind, predicate: &DatumPredicate) -> bool {
    match predicate {
        DatumPredicate::Range { low, high } => kind == IndexKind::CsbTree || low == high,
        DatumPredicate::OneOf(numbers) => numbers.len() <= LIST_MAX,
        DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } => low == high,
        DatumPredicate::BytesOneOf(values) => values.len() <= LIST_MAX,
        DatumPredicate::BytesRange { .. } | DatumPredicate::Null => false,
    }
}

/// Estimated share of a segment's rows that pass a predicate. Assumes that numbers are spread evenly, and that no row
/// equals a given string.
fn expected_share(predicate: &DatumPredicate, zones: &ZoneMap) -> f64 {
    let numbers_between = |low: i128, high: i128| high.abs_diff(low) as f64 + 1.0;
    match (predicate, zones.number_bounds()) {
        (DatumPredicate::Range { low, high }, Some((least, greatest))) => {
            let (low, high) = ((*low).max(least), (*high).min(greatest));
            if low > high { 0.0 } else { numbers_between(low, high) / numbers_between(least, greatest) }
        }
        (DatumPredicate::OneOf(numbers), Some((least, greatest))) => {
            (numbers.len() as f64 / numbers_between(least, greatest)).min(1.0)
        }
        (DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) }, _) if low == high => {
            0.0
        }
        (DatumPredicate::BytesOneOf(_), _) => 0.0,
        _ => 1.0,
    }
}
