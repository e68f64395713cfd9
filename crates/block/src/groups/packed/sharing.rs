//! Choosing the columns whose codes refer to dictionaries of pages, and where pages end then.
//!
//! A column is worth it where a page has much fewer of its values than the piece: where rows are sorted by it or by
//! columns before it, and where few values are frequent and many are rare. All such columns share one dictionary where
//! that takes fewer bits than one for each, which is so where they have the same values: codes of values that few columns
//! have lengthen those of all.

use std::ops::Range;
use std::sync::Arc;

use taut_encoding::Choice;

use super::PAGE_HEAD_BYTES;
use super::arrangement::{Arrangement, Heap, Shape, arrange};
use super::bits::{PADDING, width_of};
use super::field::{Kind, PLAIN};
use super::page_dictionary::{self, SET_BYTES, distance_bytes};
use super::plan::{FieldPlan, Source};
use crate::values::{ColumnValues, Keys};

/// No row.
const NEVER: u32 = u32::MAX;
/// Numbers of up to so many bits are codes as they are, whether or not all of them are there.
const DENSE_WIDTH_MAX: u32 = 12;
/// The longest codes.
const WIDTH_MAX: u32 = 16;
/// Pages end where a dictionary is full, so that codes need not be as long as in the page of most values: they are chosen
/// for so many percent of the values of a page in the mean.
const VALUES_PERCENT: usize = 85;
/// Bytes of a page in all but its own section: entries of tables, and the zone of a column.
const PAGE_RECORD_BYTES: usize = 64;
const ZONE_BYTES: usize = 24;
/// Columns of which a page has a zone, at most.
const ZONES_MAX: usize = 16;

/// Columns whose codes refer to the same dictionary in each page.
pub(super) struct Set {
    /// All values in the piece, ascending.
    values: Vec<i64>,
    members: Vec<Member>,
    /// Bits of a code.
    width: u32,
    /// Bits that the set saves, and bits of its dictionaries, as far as pages of equal length tell.
    saved: i64,
    dictionary_bits: usize,
}

/// A column of a set.
struct Member {
    place: usize,
    /// For each row the place of its value among those of the set; any place under null, whose value the dictionary of
    /// the page then has for nothing.
    codes: Arc<Vec<u32>>,
    /// Bits of a row, and of all of them, without the set.
    width: u32,
    bits: usize,
}

/// What the pages of a piece refer to.
#[derive(Default)]
pub(super) struct Sharing {
    sets: Vec<Set>,
    /// For each page and set, the places of the page's values, ascending.
    pages: Vec<Vec<Vec<u32>>>,
}

impl Set {
    /// The set of some columns, each with its values.
    fn of(columns: Vec<(Vec<i64>, Member)>, rows: usize, page_rows: usize) -> Self {
        let mut values: Vec<i64> = columns.iter().flat_map(|(values, _)| values).copied().collect();
        values.sort_unstable();
        values.dedup();
        let member = |(own, mut member): (Vec<i64>, Member)| {
            if own.len() < values.len() {
                // Every value is among those of all.
                let place = |value: &i64| values.binary_search(value).unwrap_or(0) as u32;
                let places: Vec<u32> = own.iter().map(place).collect();
                member.codes = Arc::new(member.codes.iter().map(|code| places[*code as usize]).collect());
            }
            member
        };
        let members = columns.into_iter().map(member).collect();
        let mut set = Self { values, members, width: 0, saved: 0, dictionary_bits: 0 };
        let (mut pages, mut entries, mut bytes) = (0, 0, 0);
        for first in (0..rows).step_by(page_rows) {
            let codes = set.codes_within(first..rows.min(first + page_rows));
            (pages, entries) = (pages + 1, entries + codes.len());
            bytes += SET_BYTES + set.gaps(&codes).map(distance_bytes).sum::<usize>();
        }
        // One value of each column must have room.
        let typical = (entries * VALUES_PERCENT).div_ceil(100 * pages).max(set.members.len());
        set.width = width_of(typical as u128 - 1);
        let before: usize = set.members.iter().map(|member| member.bits).sum();
        set.dictionary_bits = 8 * bytes;
        set.saved = before as i64 - (set.members.len() * rows * set.width as usize + set.dictionary_bits) as i64;
        set
    }

    /// The places of the values in some rows, ascending.
    fn codes_within(&self, rows: Range<usize>) -> Vec<u32> {
        let mut seen = vec![false; self.values.len()];
        for member in &self.members {
            member.codes[rows.clone()].iter().for_each(|code| seen[*code as usize] = true);
        }
        // Fewer than 2^32.
        seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(code, _)| code as u32).collect()
    }

    /// Finds the first of some rows that has each value; rows end before the one for whose values there are no codes.
    fn see(&self, rows: Range<usize>, seen: &mut [u32]) -> usize {
        seen.fill(NEVER);
        for member in &self.members {
            // A segment has at most 65,536 rows.
            for (row, code) in (rows.start as u32..).zip(&member.codes[rows.clone()]) {
                let seen = &mut seen[*code as usize];
                *seen = row.min(*seen);
            }
        }
        let mut new: Vec<u32> = seen.iter().copied().filter(|row| *row != NEVER).collect();
        new.sort_unstable();
        new.get(1 << self.width).map_or(rows.end, |row| *row as usize)
    }

    /// At least as many bytes as the dictionary of rows up to `end` has: a gap is no longer than the distance from the base.
    fn bytes_max(&self, end: usize, seen: &[u32]) -> usize {
        let values = self.values.iter().zip(seen).filter(|(_, row)| (**row as usize) < end);
        values.map(|(value, _)| distance_bytes(value.wrapping_sub(self.values[0]) as u64)).sum()
    }

    /// The distances between the values at some places, the first from the base.
    fn gaps(&self, codes: &[u32]) -> impl Iterator<Item = u64> {
        let mut last = self.values[0];
        codes.iter().map(move |code| {
            let value = self.values[*code as usize];
            value.wrapping_sub(std::mem::replace(&mut last, value)) as u64
        })
    }

    fn plan(&self, columns: &[(&ColumnValues, Choice, &str)], set: usize, member: usize) -> FieldPlan {
        let values = columns[self.members[member].place].0;
        let source = Source::PageCodes { set, member };
        let mut plan = FieldPlan::new(values, Kind::PageDictionary, self.width, source);
        // A group has at most 16,384 columns.
        (plan.record.base, plan.record.entries) = (self.values[0].into(), set as u32);
        plan
    }
}

/// The columns that may be worth it, with their values.
fn candidates(columns: &[(&ColumnValues, Choice, &str)], plans: &[FieldPlan]) -> Vec<(Vec<i64>, Member)> {
    let mut found = vec![];
    for (place, (plan, (values, choice, _))) in plans.iter().zip(columns).enumerate() {
        let Keys::Narrow(numbers) = &values.keys else { continue };
        let record = &plan.record;
        if *choice != Choice::Auto || record.flags & PLAIN != 0 || record.width == 0 {
            continue;
        }
        let (own, codes) = match plan.distinct() {
            Some(distinct) => {
                (distinct.rows.iter().map(|row| numbers[*row as usize]).collect(), distinct.codes.clone())
            }
            None if record.kind == Kind::Number && record.width <= DENSE_WIDTH_MAX => {
                let base = record.base as i64;
                let own: Vec<i64> = (0..1 << record.width).map(|distance| base.saturating_add(distance)).collect();
                // Distances of up to twelve bits, and under null any number: of it as many bits.
                let mask = own.len() - 1;
                (
                    own,
                    Arc::new(numbers.iter().map(|number| (number.wrapping_sub(base) as usize & mask) as u32).collect()),
                )
            }
            None => continue,
        };
        let bits = record.width as usize * values.rows() + 8 * plan.table.len();
        found.push((own, Member { place, codes, width: record.width, bits }));
    }
    found
}

impl Sharing {
    /// Finds the sets of columns, and where they save an eighth of the tuples changes plans and pages.
    pub(super) fn choose(
        columns: &[(&ColumnValues, Choice, &str)],
        plans: &mut [FieldPlan],
        heaps: &[Option<Heap>],
        arrangement: &mut Arrangement,
    ) -> Self {
        // Without columns, where all are levels, there is nothing to share.
        let Some(rows) = columns.first().map(|(values, ..)| values.rows()) else { return Self::default() };
        // Shorter tuples make pages of more rows.
        let page_rows = (rows / arrangement.page_ends.len() * 5 / 4).clamp(1, rows);
        // Codes of the piece answer more than those of pages do.
        let is_shorter = |set: &Set| set.members.iter().all(|member| set.width < member.width);
        let worth = |set: &Set| set.saved * 2 > rows as i64 && set.width <= WIDTH_MAX && is_shorter(set);
        let own = candidates(columns, plans).into_iter().map(|column| Set::of(vec![column], rows, page_rows));
        let mut sets: Vec<Set> = own.filter(worth).collect();
        // One dictionary takes the place of several, and the codes of all are at least as long as the longest.
        let longest = sets.iter().map(|set| set.width).max().unwrap_or(0);
        let longer: usize = sets.iter().map(|set| (longest - set.width) as usize * rows).sum();
        if sets.len() > 1 && longer < sets.iter().map(|set| set.dictionary_bits).sum() {
            let copy = |set: &Set| {
                let copies = set.members.iter().map(|member| Member { codes: member.codes.clone(), ..*member });
                copies.map(|member| (set.values.clone(), member)).collect::<Vec<_>>()
            };
            let all = Set::of(sets.iter().flat_map(copy).collect(), rows, page_rows);
            if all.width <= WIDTH_MAX && all.saved > sets.iter().map(|set| set.saved).sum() {
                sets = vec![all];
            }
        }
        let bits = (arrangement.shape.tuple_bits * rows) as i64;
        if sets.is_empty() || sets.iter().map(|set| set.saved).sum::<i64>() * 8 < bits {
            return Self::default();
        }
        Self::try_on(sets, columns, plans, heaps, arrangement).unwrap_or_default()
    }

    /// Changes plans and pages, unless that saves less than was thought.
    fn try_on(
        sets: Vec<Set>,
        columns: &[(&ColumnValues, Choice, &str)],
        plans: &mut [FieldPlan],
        heaps: &[Option<Heap>],
        arrangement: &mut Arrangement,
    ) -> Option<Self> {
        let rows = columns.first().map_or(0, |(values, ..)| values.rows());
        let mut changed: Vec<(usize, FieldPlan)> = vec![];
        for (number, set) in sets.iter().enumerate() {
            let members = set.members.iter().enumerate();
            changed.extend(members.map(|(member, column)| (column.place, set.plan(columns, number, member))));
        }
        let swap = |plans: &mut [FieldPlan], changed: &mut [(usize, FieldPlan)]| {
            changed.iter_mut().for_each(|(place, plan)| std::mem::swap(&mut plans[*place], plan));
        };
        swap(plans, &mut changed);
        let shape = arrange(plans, heaps, rows);
        let mut sharing = Self { sets, pages: vec![] };
        if let Some(page_ends) = sharing.cut(shape, heaps, rows) {
            sharing.tell_bytes(plans);
            let page_overhead = PAGE_RECORD_BYTES + ZONE_BYTES * columns.len().min(ZONES_MAX);
            let bytes = |bits: usize, pages: usize| bits * rows / 8 + pages * page_overhead;
            let tables: usize = changed.iter().map(|(_, plan)| plan.table.len()).sum();
            let before = bytes(arrangement.shape.tuple_bits, arrangement.page_ends.len()) + tables;
            let dictionaries: u64 = changed.iter().map(|(place, _)| plans[*place].record.stored_bytes).sum();
            let after = bytes(shape.tuple_bits, page_ends.len()) + dictionaries as usize;
            if after * 8 <= before * 7 {
                *arrangement = Arrangement { shape, page_ends };
                return Some(sharing);
            }
        }
        swap(plans, &mut changed);
        arrange(plans, heaps, rows);
        None
    }

    /// Finds the rows at which pages end, and the values of each: a page takes as many rows as fit, and as its
    /// dictionaries have codes for. `None` where a row alone is too long.
    fn cut(&mut self, shape: Shape, heaps: &[Option<Heap>], rows: usize) -> Option<Vec<u32>> {
        let room = shape.page_bytes.checked_sub(PAGE_HEAD_BYTES + PADDING + SET_BYTES * self.sets.len())?;
        let heaps: Vec<&Heap> = heaps.iter().flatten().collect();
        let (mut ends, mut first) = (vec![], 0);
        // For each set and value the first row of the page that has it.
        let mut seen: Vec<Vec<u32>> = self.sets.iter().map(|set| vec![NEVER; set.values.len()]).collect();
        while first < rows {
            let mut end = rows.min((room * 8).checked_div(shape.tuple_bits).map_or(rows, |most| first + most));
            for (set, seen) in self.sets.iter().zip(&mut seen) {
                end = set.see(first..end, seen);
            }
            // Those of rows that are left out after all only make the page shorter than it could be.
            let mut bytes: usize = self.sets.iter().zip(&seen).map(|(set, seen)| set.bytes_max(end, seen)).sum();
            for row in first..end {
                bytes += heaps.iter().map(|heap| heap.length(row)).sum::<usize>();
                if shape.bytes_of(row - first + 1) + bytes > room {
                    end = row;
                    break;
                }
            }
            if end == first {
                return None;
            }
            let of_page = |seen: &Vec<u32>| {
                let places = seen.iter().enumerate().filter(|(_, row)| (**row as usize) < end);
                // Fewer than 2^32.
                places.map(|(place, _)| place as u32).collect()
            };
            self.pages.push(seen.iter().map(of_page).collect());
            ends.push(end as u32);
            first = end;
        }
        Some(ends)
    }

    /// Tells plans their share of the bytes of dictionaries.
    fn tell_bytes(&self, plans: &mut [FieldPlan]) {
        for (number, set) in self.sets.iter().enumerate() {
            let of_page =
                |codes: &Vec<Vec<u32>>| SET_BYTES + set.gaps(&codes[number]).map(distance_bytes).sum::<usize>();
            let bytes: usize = self.pages.iter().map(of_page).sum();
            for (place, member) in set.members.iter().enumerate() {
                let share = bytes / set.members.len() + if place == 0 { bytes % set.members.len() } else { 0 };
                plans[member.place].record.stored_bytes = share as u64;
            }
        }
    }

    /// The dictionaries of a page; none where no column refers to any.
    pub(super) fn page(&self, page: usize) -> PageDictionaries<'_> {
        let pages = self.pages.get(page).map_or(&[][..], Vec::as_slice);
        let sets = || self.sets.iter().zip(pages);
        let values = |(set, places): (&Set, &Vec<u32>)| {
            (set.values[0], places.iter().map(|place| set.values[*place as usize]).collect())
        };
        let codes = |(set, places): (&Set, &Vec<u32>)| {
            let mut codes = vec![0; set.values.len()];
            // Codes have 16 bits at most.
            places.iter().enumerate().for_each(|(code, place)| codes[*place as usize] = code as u32);
            codes
        };
        let bytes = page_dictionary::write(sets().map(values));
        PageDictionaries { sharing: self, bytes, codes: sets().map(codes).collect() }
    }
}

/// The dictionaries of a page.
pub(super) struct PageDictionaries<'a> {
    sharing: &'a Sharing,
    pub bytes: Vec<u8>,
    /// For each set, the code in the page of each of its values.
    codes: Vec<Vec<u32>>,
}

impl PageDictionaries<'_> {
    /// The codes in the page of the values of a set, and for each row of a column of it the place of its value among
    /// them; any place under null.
    pub(super) fn codes(&self, set: usize, member: usize) -> (&[u32], &[u32]) {
        (&self.codes[set], &self.sharing.sets[set].members[member].codes)
    }
}
