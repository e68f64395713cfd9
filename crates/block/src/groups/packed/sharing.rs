//! Chooses the columns whose codes refer to dictionaries of pages, and the rows at which pages then end.
//!
//! A column benefits if each page contains far fewer of its distinct values than the piece (one column group of one
//! segment). Examples are columns that the rows are sorted by, and columns with few frequent and many rare values. All
//! such columns share one dictionary if that takes fewer bits than one dictionary per column. Sharing saves bytes if
//! the columns have the same values. Values that occur in only one column make the codes of all columns longer.
//!
//! A *piece code* is the index of a value among the values of its set. A *page code* is the index of a value in the
//! dictionary of one page. Tuples store page codes.

use std::ops::Range;
use std::sync::Arc;

use taut_encoding::Choice;

use super::PAGE_HEAD_BYTES;
use super::arrangement::{Arrangement, Heap, PageGeometry, arrange};
use super::bits::{PADDING, width_of};
use super::field::{FieldKind, PLAIN};
use super::page_dictionary::{self, DIRECTORY_ENTRY_BYTES, distance_bytes};
use super::plan::{FieldPlan, Source};
use crate::values::{ColumnValues, Datums};

/// Marks a value that occurs in no row.
const NO_ROW: u32 = u32::MAX;
/// Maximum width of a number field whose distances from the base become piece codes. All distances of this width then
/// count as values, even if they do not occur.
const DENSE_WIDTH_MAX: u32 = 12;
/// Maximum bits of a page code.
const WIDTH_MAX: u32 = 16;
/// Percentage of the mean number of distinct values per page for which page codes have enough bits. A page ends when no
/// code is left for its next value, so pages with more distinct values become shorter.
const VALUES_PERCENT: usize = 85;
/// Bytes that a page takes in tables outside of its own section.
const PAGE_RECORD_BYTES: usize = 64;
/// Bytes of one zone of one column.
const ZONE_BYTES: usize = 24;
/// Maximum number of columns in a group that has a zone for each page. In wider groups, a zone covers several pages.
const ZONES_MAX: usize = 16;

/// Columns that share one dictionary in each page.
pub(super) struct DictionarySet {
    /// Distinct values of all columns in the piece, ascending.
    values: Vec<i64>,
    members: Vec<SetMember>,
    /// Bits of a page code.
    width: u32,
    /// Bits that the set saves, estimated for pages of equal length.
    saved_bits: i64,
    /// Bits of the dictionaries of the set, estimated for pages of equal length.
    dictionary_bits: usize,
}

/// A column of a set.
struct SetMember {
    ordinal: usize,
    /// Piece code of each row. A null row has an arbitrary code, which may add an entry to its page that no row needs.
    piece_codes: Arc<Vec<u32>>,
    /// Bits per row without the set.
    width_without_set: u32,
    /// Bits of all rows without the set.
    bits_without_set: usize,
}

/// The sets of a piece, and the values in each of its pages.
#[derive(Default)]
pub(super) struct Sharing {
    sets: Vec<DictionarySet>,
    /// For each page and set, the piece codes of the values in the page, ascending. The index of a piece code in this
    /// list is the page code.
    pages: Vec<Vec<Vec<u32>>>,
}

impl DictionarySet {
    /// Creates a set of some columns, each with its distinct values. The piece codes of a column index its own values.
    /// If the set has more values, the codes are converted to indexes of the values of the set.
    fn new(columns: Vec<(Vec<i64>, SetMember)>, rows: usize, page_rows: usize) -> Self {
        let mut values: Vec<i64> = columns.iter().flat_map(|(values, _)| values).copied().collect();
        values.sort_unstable();
        values.dedup();
        let member = |(column_values, mut member): (Vec<i64>, SetMember)| {
            if column_values.len() < values.len() {
                // Every value of a column is a value of the set.
                let ordinal = |value: &i64| values.binary_search(value).unwrap_or(0) as u32;
                let ordinals: Vec<u32> = column_values.iter().map(ordinal).collect();
                member.piece_codes = Arc::new(member.piece_codes.iter().map(|code| ordinals[*code as usize]).collect());
            }
            member
        };
        let members = columns.into_iter().map(member).collect();
        let mut set = Self { values, members, width: 0, saved_bits: 0, dictionary_bits: 0 };
        let (mut pages, mut entries, mut bytes) = (0, 0, 0);
        for first in (0..rows).step_by(page_rows) {
            let codes = set.piece_codes_within(first..rows.min(first + page_rows));
            (pages, entries) = (pages + 1, entries + codes.len());
            bytes += DIRECTORY_ENTRY_BYTES + set.gaps(&codes).map(distance_bytes).sum::<usize>();
        }
        // A page has at least one row, so there must be at least one page code for each column.
        let page_values = (entries * VALUES_PERCENT).div_ceil(100 * pages).max(set.members.len());
        set.width = width_of(page_values as u128 - 1);
        let bits_before: usize = set.members.iter().map(|member| member.bits_without_set).sum();
        set.dictionary_bits = 8 * bytes;
        set.saved_bits =
            bits_before as i64 - (set.members.len() * rows * set.width as usize + set.dictionary_bits) as i64;
        set
    }

    /// Piece codes of the values in some rows, ascending.
    fn piece_codes_within(&self, rows: Range<usize>) -> Vec<u32> {
        let mut seen = vec![false; self.values.len()];
        for member in &self.members {
            member.piece_codes[rows.clone()].iter().for_each(|code| seen[*code as usize] = true);
        }
        // There are fewer than 2^32 values.
        seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(code, _)| code as u32).collect()
    }

    /// Finds the first row of each value in `rows`, for a page that begins with them. Values that do not occur get
    /// [`NO_ROW`]. Returns the row at which the page must end: the first row whose value has no page code left, or the
    /// end of `rows`.
    fn find_first_rows(&self, rows: Range<usize>, first_rows: &mut [u32]) -> usize {
        first_rows.fill(NO_ROW);
        for member in &self.members {
            // A segment has at most 65,536 rows.
            for (row, code) in (rows.start as u32..).zip(&member.piece_codes[rows.clone()]) {
                let first = &mut first_rows[*code as usize];
                *first = row.min(*first);
            }
        }
        let mut occurring: Vec<u32> = first_rows.iter().copied().filter(|row| *row != NO_ROW).collect();
        occurring.sort_unstable();
        occurring.get(1 << self.width).map_or(rows.end, |row| *row as usize)
    }

    /// Upper bound of the bytes of the dictionary of a page that ends at `end`. Counts each entry by its distance from
    /// the base, because the gap to the previous entry is not greater.
    fn bytes_max(&self, end: usize, first_rows: &[u32]) -> usize {
        let values = self.values.iter().zip(first_rows).filter(|(_, row)| (**row as usize) < end);
        values.map(|(value, _)| distance_bytes(value.wrapping_sub(self.values[0]) as u64)).sum()
    }

    /// Distance of each value from the previous value, for values given by ascending piece codes. The first is the
    /// distance from the base.
    fn gaps(&self, piece_codes: &[u32]) -> impl Iterator<Item = u64> {
        let mut last = self.values[0];
        piece_codes.iter().map(move |code| {
            let value = self.values[*code as usize];
            value.wrapping_sub(std::mem::replace(&mut last, value)) as u64
        })
    }

    fn plan(&self, columns: &[(&ColumnValues, Choice, &str)], set: usize, member: usize) -> FieldPlan {
        let values = columns[self.members[member].ordinal].0;
        let source = Source::PageCodes { set, member };
        let mut plan = FieldPlan::new(values, FieldKind::PageDictionary, self.width, source);
        // A group has at most 16,384 columns.
        (plan.record.base, plan.record.entries) = (self.values[0].into(), set as u32);
        plan
    }
}

/// Columns that may benefit from dictionaries of pages, with their distinct values.
fn candidates(columns: &[(&ColumnValues, Choice, &str)], plans: &[FieldPlan]) -> Vec<(Vec<i64>, SetMember)> {
    let mut candidates = vec![];
    for (ordinal, (plan, (values, choice, _))) in plans.iter().zip(columns).enumerate() {
        let Datums::Narrow(numbers) = &values.datums else { continue };
        let record = &plan.record;
        if *choice != Choice::Auto || record.flags & PLAIN != 0 || record.width == 0 {
            continue;
        }
        let (column_values, codes) = match plan.distinct() {
            Some(distinct) => {
                (distinct.rows.iter().map(|row| numbers[*row as usize]).collect(), distinct.codes.clone())
            }
            None if record.kind == FieldKind::Number && record.width <= DENSE_WIDTH_MAX => {
                let base = record.base as i64;
                let column_values: Vec<i64> =
                    (0..1 << record.width).map(|distance| base.saturating_add(distance)).collect();
                // The number of a null row is arbitrary. The mask keeps its code within the values.
                let mask = column_values.len() - 1;
                (
                    column_values,
                    Arc::new(numbers.iter().map(|number| (number.wrapping_sub(base) as usize & mask) as u32).collect()),
                )
            }
            None => continue,
        };
        let bits_without_set = record.width as usize * values.rows() + 8 * plan.table.len();
        let member = SetMember { ordinal, piece_codes: codes, width_without_set: record.width, bits_without_set };
        candidates.push((column_values, member));
    }
    candidates
}

impl Sharing {
    /// Chooses the sets of columns. Changes plans and pages if the sets save at least an eighth of the bits of all
    /// tuples.
    pub(super) fn choose(
        columns: &[(&ColumnValues, Choice, &str)],
        plans: &mut [FieldPlan],
        heaps: &[Option<Heap>],
        arrangement: &mut Arrangement,
    ) -> Self {
        // If all columns are levels, there are no columns that could share a dictionary.
        let Some(rows) = columns.first().map(|(values, ..)| values.rows()) else { return Self::default() };
        // The sets shorten tuples, so pages will have more rows: a quarter more is assumed.
        let page_rows = (rows / arrangement.page_ends.len() * 5 / 4).clamp(1, rows);
        // Row predicates and indexes can use a dictionary of the piece, but not dictionaries of pages. So page codes
        // must be shorter than the codes or distances that the columns store otherwise.
        let is_shorter = |set: &DictionarySet| set.members.iter().all(|member| set.width < member.width_without_set);
        // A set must save more than half a bit per row.
        let is_worthwhile =
            |set: &DictionarySet| set.saved_bits * 2 > rows as i64 && set.width <= WIDTH_MAX && is_shorter(set);
        let sets_of_one =
            candidates(columns, plans).into_iter().map(|column| DictionarySet::new(vec![column], rows, page_rows));
        let mut sets: Vec<DictionarySet> = sets_of_one.filter(is_worthwhile).collect();
        // One dictionary for all sets saves dictionaries. But then all codes are at least as long as the longest code.
        let longest = sets.iter().map(|set| set.width).max().unwrap_or(0);
        let added_bits: usize = sets.iter().map(|set| (longest - set.width) as usize * rows).sum();
        if sets.len() > 1 && added_bits < sets.iter().map(|set| set.dictionary_bits).sum() {
            let copy_members = |set: &DictionarySet| {
                let copies =
                    set.members.iter().map(|member| SetMember { piece_codes: member.piece_codes.clone(), ..*member });
                copies.map(|member| (set.values.clone(), member)).collect::<Vec<_>>()
            };
            let merged = DictionarySet::new(sets.iter().flat_map(copy_members).collect(), rows, page_rows);
            if merged.width <= WIDTH_MAX && merged.saved_bits > sets.iter().map(|set| set.saved_bits).sum() {
                sets = vec![merged];
            }
        }
        let bits = (arrangement.geometry.tuple_bits * rows) as i64;
        if sets.is_empty() || sets.iter().map(|set| set.saved_bits).sum::<i64>() * 8 < bits {
            return Self::default();
        }
        Self::apply_if_smaller(sets, columns, plans, heaps, arrangement).unwrap_or_default()
    }

    /// Changes plans and pages for the sets. If that saves less than an eighth of the bytes, or a single row does not
    /// fit a page, restores them and returns `None`.
    fn apply_if_smaller(
        sets: Vec<DictionarySet>,
        columns: &[(&ColumnValues, Choice, &str)],
        plans: &mut [FieldPlan],
        heaps: &[Option<Heap>],
        arrangement: &mut Arrangement,
    ) -> Option<Self> {
        let rows = columns.first().map_or(0, |(values, ..)| values.rows());
        let mut changed: Vec<(usize, FieldPlan)> = vec![];
        for (number, set) in sets.iter().enumerate() {
            let members = set.members.iter().enumerate();
            changed.extend(members.map(|(member, column)| (column.ordinal, set.plan(columns, number, member))));
        }
        let swap = |plans: &mut [FieldPlan], changed: &mut [(usize, FieldPlan)]| {
            changed.iter_mut().for_each(|(ordinal, plan)| std::mem::swap(&mut plans[*ordinal], plan));
        };
        swap(plans, &mut changed);
        let geometry = arrange(plans, heaps, rows);
        let mut sharing = Self { sets, pages: vec![] };
        if let Some(page_ends) = sharing.fill_pages(geometry, heaps, rows) {
            sharing.assign_dictionary_bytes(plans);
            let page_overhead = PAGE_RECORD_BYTES + ZONE_BYTES * columns.len().min(ZONES_MAX);
            let bytes = |bits: usize, pages: usize| bits * rows / 8 + pages * page_overhead;
            let tables: usize = changed.iter().map(|(_, plan)| plan.table.len()).sum();
            let before = bytes(arrangement.geometry.tuple_bits, arrangement.page_ends.len()) + tables;
            let dictionaries: u64 = changed.iter().map(|(ordinal, _)| plans[*ordinal].record.stored_bytes).sum();
            let after = bytes(geometry.tuple_bits, page_ends.len()) + dictionaries as usize;
            if after * 8 <= before * 7 {
                *arrangement = Arrangement { geometry, page_ends };
                return Some(sharing);
            }
        }
        swap(plans, &mut changed);
        arrange(plans, heaps, rows);
        None
    }

    /// Returns the end row (exclusive) of each page, and stores the values of each page in `self.pages`. A page ends
    /// when it is full, or when one of its dictionaries has no code left. Returns `None` if a single row is too long.
    fn fill_pages(&mut self, geometry: PageGeometry, heaps: &[Option<Heap>], rows: usize) -> Option<Vec<u32>> {
        let page_room =
            geometry.page_bytes.checked_sub(PAGE_HEAD_BYTES + PADDING + DIRECTORY_ENTRY_BYTES * self.sets.len())?;
        let heaps: Vec<&Heap> = heaps.iter().flatten().collect();
        let (mut ends, mut first) = (vec![], 0);
        // For each set, the first row of each value in the page.
        let mut first_rows: Vec<Vec<u32>> = self.sets.iter().map(|set| vec![NO_ROW; set.values.len()]).collect();
        while first < rows {
            let mut end =
                rows.min((page_room * 8).checked_div(geometry.tuple_bits).map_or(rows, |capacity| first + capacity));
            for (set, first_rows) in self.sets.iter().zip(&mut first_rows) {
                end = set.find_first_rows(first..end, first_rows);
            }
            // The bound counts the values of all rows up to `end`, including rows that do not fit, so the page may be
            // shorter than necessary.
            let mut bytes: usize =
                self.sets.iter().zip(&first_rows).map(|(set, first_rows)| set.bytes_max(end, first_rows)).sum();
            for row in first..end {
                bytes += heaps.iter().map(|heap| heap.length(row)).sum::<usize>();
                if geometry.bytes_for(row - first + 1) + bytes > page_room {
                    end = row;
                    break;
                }
            }
            if end == first {
                return None;
            }
            let page_values = |first_rows: &Vec<u32>| {
                let piece_codes = first_rows.iter().enumerate().filter(|(_, row)| (**row as usize) < end);
                // There are fewer than 2^32 values.
                piece_codes.map(|(code, _)| code as u32).collect()
            };
            self.pages.push(first_rows.iter().map(page_values).collect());
            ends.push(end as u32);
            first = end;
        }
        Some(ends)
    }

    /// Divides the bytes of the dictionaries of each set among its columns, and stores the shares in their plans.
    fn assign_dictionary_bytes(&self, plans: &mut [FieldPlan]) {
        for (number, set) in self.sets.iter().enumerate() {
            let page_bytes = |codes: &Vec<Vec<u32>>| {
                DIRECTORY_ENTRY_BYTES + set.gaps(&codes[number]).map(distance_bytes).sum::<usize>()
            };
            let bytes: usize = self.pages.iter().map(page_bytes).sum();
            for (ordinal, member) in set.members.iter().enumerate() {
                let share = bytes / set.members.len() + if ordinal == 0 { bytes % set.members.len() } else { 0 };
                plans[member.ordinal].record.stored_bytes = share as u64;
            }
        }
    }

    /// Dictionaries of a page. Empty if there are no sets.
    pub(super) fn page_dictionaries(&self, page: usize) -> PageDictionaries<'_> {
        let pages = self.pages.get(page).map_or(&[][..], Vec::as_slice);
        let sets = || self.sets.iter().zip(pages);
        let values = |(set, piece_codes): (&DictionarySet, &Vec<u32>)| {
            (set.values[0], piece_codes.iter().map(|code| set.values[*code as usize]).collect())
        };
        let page_codes = |(set, piece_codes): (&DictionarySet, &Vec<u32>)| {
            let mut page_codes = vec![0; set.values.len()];
            // Page codes have at most 16 bits.
            piece_codes.iter().enumerate().for_each(|(page_code, code)| page_codes[*code as usize] = page_code as u32);
            page_codes
        };
        let bytes = page_dictionary::write(sets().map(values));
        PageDictionaries { sharing: self, bytes, page_codes: sets().map(page_codes).collect() }
    }
}

/// Dictionaries of one page.
pub(super) struct PageDictionaries<'a> {
    sharing: &'a Sharing,
    pub bytes: Vec<u8>,
    /// For each set, the page code of each piece code. Zero if the value is not in the page.
    page_codes: Vec<Vec<u32>>,
}

impl PageDictionaries<'_> {
    /// Codes of one column of a set: the page code of each piece code, and the piece code of each row of the segment. A
    /// null row has an arbitrary piece code.
    pub(super) fn codes(&self, set: usize, member: usize) -> (&[u32], &[u32]) {
        (&self.page_codes[set], &self.sharing.sets[set].members[member].piece_codes)
    }
}
