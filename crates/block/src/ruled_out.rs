//! Finds segments of a block in which no row passes a predicate, by searching the indexes of several segments together.
//!
//! Most segments have no row with a rare value. Checking one segment after another needs a reader for each, and waits
//! for one tree node after another. Here, the trees of several segments are searched side by side.

use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;

use arrow_buffer::Buffer;
use taut_index::{CsbTree, ZoneMap};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, IndexKind};

use crate::indexes::{Asked, HEAD_BYTES, TreeIndex, bloom_rules_out};
use crate::statistics::ColumnSummary;
use crate::{Block, BlockError, ScanReport, Sections};

/// Maximum length of a list that is searched here. Longer lists are left to each segment.
const KEYS_MAX: usize = 64;
/// Maximum expected number of passing rows in a segment whose indexes are searched. If two are expected, a seventh of
/// the segments has none.
const ROWS_EXPECTED_MAX: f64 = 2.0;

/// Result of searching the indexes of some segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// Segments, each with the kind of index that rules it out, if any does.
    segments: Vec<(usize, Option<IndexKind>)>,
    asked: usize,
}

impl RuledOut {
    /// Maximum number of segments in one call. With more, much of the indexes would be held in memory.
    pub const SEGMENTS_MAX: usize = 16;

    /// Segments that are not ruled out.
    pub fn left(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().filter(|(_, by)| by.is_none()).map(|(segment, _)| *segment)
    }

    /// Number of segments that are ruled out.
    pub fn count(&self) -> usize {
        self.segments.iter().filter(|(_, by)| by.is_some()).count()
    }

    /// Whether at least half of the segments whose indexes were searched are ruled out.
    pub fn are_most(&self) -> bool {
        self.count() * 2 >= self.asked
    }

    /// Adds the segments that are ruled out to a report.
    pub fn report(&self, report: &mut ScanReport) {
        for kind in self.segments.iter().filter_map(|(_, by)| *by) {
            report.segments += 1;
            match kind {
                IndexKind::Bloom => report.count_skip_by_bloom(),
                IndexKind::CsbTree => report.count_skip_by_csb(),
            }
        }
    }
}

/// The indexes of a block that can rule out segments for some column predicates.
pub struct IndexQuestions<'a> {
    block: &'a Block,
    sections: &'a dyn Sections,
    predicates: Vec<(&'a ColumnPredicate, Arc<ColumnSummary>)>,
    /// Index searches, the cheaper ones first.
    questions: Vec<Question>,
}

/// Search of one index: ordinals of the predicates on its first column and, if there is one, on its second.
struct Question {
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
    pub fn questions<'a>(
        &'a self,
        sections: &'a dyn Sections,
        predicates: &'a [ColumnPredicate],
    ) -> Result<Option<IndexQuestions<'a>>, BlockError> {
        let mut questions = vec![];
        for index in 0..self.header.indexes() {
            let (kind, columns) = self.header.index(index);
            let on = |column: ColumnIndex| {
                predicates.iter().position(|predicate| predicate.column == column && !predicate.negated)
            };
            let Some(first) = on(columns[0]).filter(|first| can_be_rare(kind, &predicates[*first].condition)) else {
                continue;
            };
            let second = columns.get(1).and_then(|column| on(*column));
            questions.push(Question { index, kind, columns: columns.len(), first, second });
        }
        if questions.is_empty() {
            return Ok(None);
        }
        questions.sort_by_key(|question| question.kind != IndexKind::Bloom);
        let predicates = predicates.iter().map(|predicate| Ok((predicate, self.summary(sections, predicate.column)?)));
        let predicates = predicates.collect::<Result<_, BlockError>>()?;
        Ok(Some(IndexQuestions { block: self, sections, predicates, questions }))
    }

    /// Finds segments in which no row passes all of some column predicates, like [`IndexQuestions::rule_out`].
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If a segment does not exist.
    pub fn rule_out(
        &self,
        sections: &dyn Sections,
        predicates: &[ColumnPredicate],
        segments: impl IntoIterator<Item = usize>,
    ) -> Result<RuledOut, BlockError> {
        match self.questions(sections, predicates)? {
            Some(questions) => questions.rule_out(segments),
            None => Ok(RuledOut { segments: segments.into_iter().map(|segment| (segment, None)).collect(), asked: 0 }),
        }
    }
}

impl IndexQuestions<'_> {
    /// Whether it is likely that an index rules out a segment that zone maps do not rule out. Reads nothing.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn expect_none(&self, segment: usize) -> bool {
        self.questions.iter().any(|question| self.expects_few(question, segment)) && self.zones_admit(segment)
    }

    /// Finds segments in which no row passes, by searching the indexes of all given segments together. Segments that
    /// zone maps rule out do not count as ruled out here. Neither do segments for which an index is of little use.
    ///
    /// # Errors
    /// If a section cannot be read or parsed.
    ///
    /// # Panics
    /// If a segment does not exist.
    pub fn rule_out(&self, segments: impl IntoIterator<Item = usize>) -> Result<RuledOut, BlockError> {
        let mut segments: Vec<_> = segments.into_iter().map(|segment| (segment, None)).collect();
        let mut open: Vec<usize> = (0..segments.len()).filter(|place| self.expect_none(segments[*place].0)).collect();
        let asked = open.len();
        for question in &self.questions {
            let places: Vec<usize> =
                open.iter().copied().filter(|place| self.expects_few(question, segments[*place].0)).collect();
            let numbers: Vec<usize> = places.iter().map(|place| segments[*place].0).collect();
            let have_rows = match question.kind {
                IndexKind::Bloom => self.ask_filters(question, &numbers)?,
                IndexKind::CsbTree => self.ask_trees(question, &numbers)?,
            };
            for (place, _) in places.into_iter().zip(have_rows).filter(|(_, has_rows)| !has_rows) {
                segments[place].1 = Some(question.kind);
            }
            open.retain(|place| segments[*place].1.is_none());
        }
        Ok(RuledOut { segments, asked })
    }

    /// Whether zone maps do not rule out a segment.
    fn zones_admit(&self, segment: usize) -> bool {
        self.predicates.iter().all(|(predicate, summary)| summary.may_match_in(segment, predicate))
    }

    /// Whether so few rows of a segment are expected to pass that there may be none, and binary search cannot find that
    /// out.
    fn expects_few(&self, question: &Question, segment: usize) -> bool {
        let places = std::iter::once(question.first).chain(question.second);
        let share: f64 = places
            .map(|place| {
                let (predicate, summary) = &self.predicates[place];
                even_share(&predicate.condition, summary.zones(segment))
            })
            .product();
        let zones = self.predicates[question.first].1.zones(segment).zones();
        share * self.block.segment_rows(segment) as f64 <= ROWS_EXPECTED_MAX
            && zones.iter().any(|zone| !zone.is_ascending)
    }

    /// Whether each of some segments may have a passing row, by its Bloom filter.
    fn ask_filters(&self, question: &Question, segments: &[usize]) -> Result<Vec<bool>, BlockError> {
        let predicate = &self.predicates[question.first].0.condition;
        let has_rows = |segment: &usize| {
            let section = self.block.header.index_section(*segment, question.index);
            let ruled_out = bloom_rules_out(&self.sections.section(section)?, predicate);
            Ok(!ruled_out.map_err(|corrupt| crate::error::Corrupt::from(corrupt).in_section(section))?)
        };
        segments.iter().map(has_rows).collect()
    }

    /// Whether each of some segments may have a passing row, by its tree.
    fn ask_trees(&self, question: &Question, segments: &[usize]) -> Result<Vec<bool>, BlockError> {
        let numbers = segments.iter().map(|segment| self.block.header.index_section(*segment, question.index));
        let read: Vec<(u32, Buffer)> =
            numbers.map(|section| Ok((section, self.sections.section(section)?))).collect::<Result<_, BlockError>>()?;
        // The heads of all sections, and of their trees, are fetched from memory together.
        let head = |bytes: &Buffer| bytes.first().unwrap_or(&0) ^ bytes.get(HEAD_BYTES).unwrap_or(&0);
        black_box(read.iter().fold(0, |all, (_, bytes)| all ^ head(bytes)));
        let mut trees = Vec::with_capacity(read.len());
        for ((section, bytes), segment) in read.iter().zip(segments) {
            let tree = TreeIndex::parse(bytes, self.block.segment_rows(*segment), question.columns);
            trees.push(tree.map_err(|corrupt| corrupt.in_section(*section))?);
        }
        let mut has_rows = vec![false; segments.len()];
        let (mut places, mut asked) = (vec![], vec![]);
        for (place, tree) in trees.iter().enumerate() {
            let sought = match tree.takes_codes(0) {
                // Codes belong to a dictionary, which is not read here.
                true => None,
                false => {
                    let second = question.second.filter(|_| !tree.takes_codes(1));
                    let predicate = |place: usize| uncoded(self.predicates[place].0);
                    tree.sought(predicate(question.first), second.map(predicate), KEYS_MAX)
                }
            };
            match sought {
                None => has_rows[place] = true,
                Some(sought) => {
                    places.resize(places.len() + sought.keys.len(), place);
                    asked.extend(sought.keys.into_iter().map(|keys| (tree.tree(), keys)));
                }
            }
        }
        for (place, has_keys) in places.into_iter().zip(CsbTree::have_keys(&asked)) {
            has_rows[place] |= has_keys;
        }
        Ok(has_rows)
    }
}

fn uncoded(predicate: &ColumnPredicate) -> Asked<'_> {
    Asked { predicate: &predicate.condition, codes: None }
}

/// Whether few rows may pass a predicate, and an index of this kind can find that out.
fn can_be_rare(kind: IndexKind, predicate: &DatumPredicate) -> bool {
    match predicate {
        DatumPredicate::Range { low, high } => kind == IndexKind::CsbTree || low == high,
        DatumPredicate::OneOf(numbers) => numbers.len() <= KEYS_MAX,
        DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } => low == high,
        DatumPredicate::BytesOneOf(values) => values.len() <= KEYS_MAX,
        DatumPredicate::BytesRange { .. } | DatumPredicate::Null => false,
    }
}

/// Estimated share of a segment's rows that pass a predicate, if numbers are spread evenly. Equality with a text is
/// taken to pass no row.
fn even_share(predicate: &DatumPredicate, zones: &ZoneMap) -> f64 {
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
