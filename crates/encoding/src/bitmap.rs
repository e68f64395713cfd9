//! Which rows of a segment are still selected: one bit a row, row `r` at bit `r % 64` of word `r / 64`.

use std::ops::Range;

use arrow_buffer::BooleanBuffer;

use crate::VECTOR_ROWS;
use crate::kernels::{append_positions, wide};

/// One bit per row of a segment. Bits past the last row are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// `len` rows, all selected.
    pub fn all_set(len: usize) -> Self {
        let mut bitmap = Self::none(0);
        bitmap.set_all(len);
        bitmap
    }

    /// `len` rows, none selected.
    pub fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Takes all rows away, and makes room for so many.
    pub(crate) fn reset(&mut self, rows: usize) {
        self.words.clear();
        self.words.reserve(rows.div_ceil(64));
        self.len = 0;
    }

    /// Selects all of so many rows.
    pub(crate) fn set_all(&mut self, rows: usize) {
        self.reset(rows);
        self.extend_set(rows);
    }

    /// Adds rows behind all others, which end with a word. All of them are selected.
    pub(crate) fn extend_set(&mut self, rows: usize) {
        debug_assert!(self.len.is_multiple_of(64), "rows end inside a word");
        self.len += rows;
        self.words.resize(self.len.div_ceil(64), u64::MAX);
        if let Some(last) = self.words.last_mut()
            && !self.len.is_multiple_of(64)
        {
            *last = (1 << (self.len % 64)) - 1;
        }
    }

    /// Number of rows, selected or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bits, 64 a word.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bits, 64 a word. Whoever writes leaves the bits past the last row at zero.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Whether a row is selected.
    ///
    /// # Panics
    /// When the row lies outside.
    #[inline]
    pub fn get(&self, row: usize) -> bool {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] >> (row % 64) & 1 != 0
    }

    /// Selects a row.
    ///
    /// # Panics
    /// When the row lies outside.
    #[inline]
    pub fn set(&mut self, row: usize) {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] |= 1 << (row % 64);
    }

    /// Deselects a row.
    ///
    /// # Panics
    /// When the row lies outside.
    #[inline]
    pub fn clear(&mut self, row: usize) {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] &= !(1 << (row % 64));
    }

    /// Selects the rows of a range.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn set_range(&mut self, rows: Range<usize>) {
        self.change(rows, |word, mask| word | mask);
    }

    /// Deselects the rows of a range.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn clear_range(&mut self, rows: Range<usize>) {
        self.change(rows, |word, mask| word & !mask);
    }

    /// How many rows are selected.
    pub fn count(&self) -> usize {
        let words = self.words.as_slice();
        wide(move || words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()) as usize
    }

    /// How many rows of a range are selected.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn count_range(&self, rows: Range<usize>) -> usize {
        self.masked(rows).map(|(word, mask)| (word & mask).count_ones() as usize).sum()
    }

    /// Whether no row of a range is selected; true of an empty range.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn is_range_empty(&self, rows: Range<usize>) -> bool {
        self.masked(rows).all(|(word, mask)| word & mask == 0)
    }

    /// Whether every row of a range is selected; true of an empty range.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn is_range_full(&self, rows: Range<usize>) -> bool {
        self.masked(rows).all(|(word, mask)| word & mask == mask)
    }

    /// The first selected row at or after `row`.
    pub fn next_set(&self, row: usize) -> Option<usize> {
        let first = row / 64;
        let head = self.words.get(first)? & (u64::MAX << (row % 64));
        let rest = self.words[first + 1..].iter().copied();
        let found = std::iter::once(head).chain(rest).enumerate().find(|(_, word)| *word != 0);
        found.map(|(index, word)| (first + index) * 64 + word.trailing_zeros() as usize)
    }

    /// The selected rows, ascending.
    pub fn positions(&self) -> Vec<u32> {
        self.positions_counted(self.count())
    }

    /// As [`Bitmap::positions`], where it is known how many they are.
    pub fn positions_counted(&self, count: usize) -> Vec<u32> {
        // With some room behind them, which the kernel writes to.
        let mut positions = Vec::with_capacity(count + VECTOR_ROWS);
        self.append_positions(0..self.len, &mut positions);
        positions
    }

    /// Appends the selected rows of a range, ascending.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn append_positions(&self, rows: Range<usize>, positions: &mut Vec<u32>) {
        let words = self.word_range(&rows);
        let masked = |index: usize| [self.words[index] & word_mask(index, &rows)];
        // A segment has at most 2^16 rows.
        let row = |index: usize| (64 * index) as u32;
        if let Some(last) = words.clone().next_back() {
            append_positions(&masked(words.start), row(words.start), positions);
            if words.len() > 1 {
                append_positions(&self.words[words.start + 1..last], row(words.start + 1), positions);
                append_positions(&masked(last), row(last), positions);
            }
        }
    }

    /// How many runs the selected rows make up.
    pub fn run_count(&self) -> usize {
        let mut before = 0;
        let starts =
            |word: &u64| (word & !(word << 1 | std::mem::replace(&mut before, word >> 63))).count_ones() as usize;
        self.words.iter().map(starts).sum()
    }

    /// Of some ascending rows those that are selected, by how many are selected before them.
    ///
    /// # Panics
    /// When a row is outside.
    pub fn places(&self, rows: &[u32]) -> Vec<u32> {
        let (words, mut places) = (self.words.as_slice(), Vec::with_capacity(rows.len()));
        let (mut counted, mut before) = (0, 0);
        for row in rows {
            let (index, bit) = (*row as usize / 64, 1_u64 << (row % 64));
            let word = words[index];
            if word & bit != 0 {
                before += words[counted..index].iter().map(|word| word.count_ones()).sum::<u32>();
                counted = index;
                places.push(before + (word & (bit - 1)).count_ones());
            }
        }
        places
    }

    /// The runs of selected rows, ascending.
    pub fn runs(&self) -> Vec<Range<u32>> {
        let mut runs = Vec::with_capacity(self.run_count());
        let mut start = 0;
        let mut end_at = |row: u32| {
            if start < row {
                runs.push(start..row);
            }
            start = row + 1;
        };
        // A segment has at most 2^16 rows.
        for (word, first) in self.words.iter().zip((0..).step_by(64)) {
            let mut unselected = !word;
            while unselected != 0 {
                end_at(first + unselected.trailing_zeros());
                unselected &= unselected - 1;
            }
        }
        end_at(self.len as u32);
        runs
    }

    /// Keeps of this selection what another of the same length selects too.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn intersect(&mut self, other: &Self) {
        assert_eq!(self.len, other.len, "selections of different lengths");
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= theirs;
        }
    }

    /// The bits of whole vectors.
    ///
    /// # Panics
    /// When a vector reaches outside.
    pub(crate) fn vectors_mut(&mut self, vectors: Range<usize>) -> &mut [[u64; VECTOR_ROWS / 64]] {
        assert!(vectors.end * VECTOR_ROWS <= self.len, "vectors {vectors:?} of {} rows", self.len);
        &mut self.words.as_chunks_mut().0[vectors]
    }

    /// The bits of up to 64 rows from one on, of which those from `end` on are zero.
    #[inline]
    pub(crate) fn bits_from(&self, row: usize, end: usize) -> u64 {
        if row >= end {
            return 0;
        }
        let word = |index: usize| self.words.get(index).copied().unwrap_or(0);
        let bits = word(row / 64) >> (row % 64) | word(row / 64 + 1) << 1 << (63 - row % 64);
        if end - row < 64 { bits & !(u64::MAX << (end - row)) } else { bits }
    }

    /// Clears the rows of a range, inside one vector, whose bit in the vector's mask is zero.
    pub(crate) fn intersect_words(&mut self, rows: Range<usize>, mask: &[u64; VECTOR_ROWS / 64]) {
        let words = self.word_range(&rows);
        let first = words.start;
        for (index, word) in self.words[words].iter_mut().enumerate() {
            let index = first + index;
            *word &= mask[index % mask.len()] | !word_mask(index, &rows);
        }
    }

    /// Deselects those rows of a range whose bit in `passes` is zero; the first bit is that of the first row.
    ///
    /// # Panics
    /// When the range reaches outside, or has not as many rows as there are bits.
    pub fn intersect_range(&mut self, rows: Range<usize>, passes: &BooleanBuffer) {
        assert!(
            rows.end <= self.len && rows.len() == passes.len(),
            "{} bits for {rows:?} of {}",
            passes.len(),
            self.len
        );
        for (row, passing) in rows.clone().step_by(64).zip(passes.bit_chunks().iter_padded()) {
            let failing = !passing & word_mask(0, &(0..rows.end - row));
            self.words[row / 64] &= !(failing << (row % 64));
            // The rest lies in the next word, if there is one.
            let rest = failing >> 1 >> (63 - row % 64);
            if rest != 0 {
                self.words[row / 64 + 1] &= !rest;
            }
        }
    }

    /// Deselects those of some selected rows, ascending, whose bit in `passes` is zero; the first bit is that of the first
    /// of them.
    ///
    /// # Panics
    /// When a row is outside, or there are not as many rows as bits.
    pub fn intersect_rows(&mut self, rows: &[u32], passes: &BooleanBuffer) {
        assert_eq!(rows.len(), passes.len(), "one bit for each row");
        for (rows, passing) in rows.chunks(64).zip(passes.bit_chunks().iter_padded()) {
            for (index, row) in rows.iter().enumerate() {
                self.words[*row as usize / 64] &= !((!passing >> index & 1) << (row % 64));
            }
        }
    }

    /// Clears those of some selected rows, up to a vector of them, whose bit in a mask of them is zero.
    pub(crate) fn intersect_at(&mut self, rows: &[u32], mask: &[u64; VECTOR_ROWS / 64]) {
        for (rows, mask) in rows.chunks(64).zip(mask) {
            for (index, row) in rows.iter().enumerate() {
                self.words[*row as usize / 64] ^= (!mask >> index & 1) << (row % 64);
            }
        }
    }

    /// Clears the rows of a range that lie in one word and whose bit in `mask` is zero.
    #[inline]
    pub(crate) fn intersect_word(&mut self, rows: &Range<usize>, index: usize, mask: u64) {
        self.words[index] &= mask | !word_mask(index, rows);
    }

    /// Selects what another selection of the same length selects too, in a range.
    pub(crate) fn unite(&mut self, rows: Range<usize>, other: &Self) {
        let words = self.word_range(&rows);
        for index in words {
            self.words[index] |= other.words[index] & word_mask(index, &rows);
        }
    }

    /// Of the selected rows of a range, keeps those that `keep` wants; it is asked once for each, ascending.
    pub(crate) fn retain(&mut self, rows: Range<usize>, mut keep: impl FnMut(usize) -> bool) {
        let words = self.word_range(&rows);
        let first = words.start;
        for (index, word) in self.words[words].iter_mut().enumerate() {
            let base = (first + index) * 64;
            let mut left = *word & word_mask(first + index, &rows);
            while left != 0 {
                let bit = left & left.wrapping_neg();
                if !keep(base + bit.trailing_zeros() as usize) {
                    *word &= !bit;
                }
                left ^= bit;
            }
        }
    }

    /// The words that a range touches, each with the mask of its bits that lie in the range.
    fn masked(&self, rows: Range<usize>) -> impl Iterator<Item = (u64, u64)> {
        let words = self.word_range(&rows);
        let first = words.start;
        self.words[words].iter().enumerate().map(move |(index, word)| (*word, word_mask(first + index, &rows)))
    }

    fn change(&mut self, rows: Range<usize>, operation: impl Fn(u64, u64) -> u64) {
        let words = self.word_range(&rows);
        let first = words.start;
        // Only the words at the ends have bits of other rows.
        let last = words.len().saturating_sub(1);
        for (index, word) in self.words[words].iter_mut().enumerate() {
            let is_end = index == 0 || index == last;
            *word = operation(*word, if is_end { word_mask(first + index, &rows) } else { u64::MAX });
        }
    }

    fn word_range(&self, rows: &Range<usize>) -> Range<usize> {
        assert!(rows.end <= self.len, "rows {rows:?} of {}", self.len);
        if rows.is_empty() { 0..0 } else { rows.start / 64..rows.end.div_ceil(64) }
    }
}

/// The bits of word `index` that belong to `rows`, which must touch that word.
#[inline]
pub(crate) fn word_mask(index: usize, rows: &Range<usize>) -> u64 {
    let low = rows.start.saturating_sub(index * 64);
    let high = rows.end.saturating_sub(index * 64).min(64);
    if low >= high {
        return 0;
    }
    (u64::MAX >> (64 - (high - low))) << low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_single_bits() {
        for len in [0, 1, 63, 64, 65, 130, 200] {
            for start in (0..=len).step_by(3) {
                for end in (start..=len).step_by(7).chain([len]) {
                    let mut set = Bitmap::none(len);
                    set.set_range(start..end);
                    let mut cleared = Bitmap::all_set(len);
                    cleared.clear_range(start..end);
                    for row in 0..len {
                        assert_eq!(set.get(row), (start..end).contains(&row));
                        assert_eq!(cleared.get(row), !set.get(row));
                    }
                    assert_eq!(set.count(), end - start);
                    assert_eq!(set.positions(), (start as u32..end as u32).collect::<Vec<_>>());
                    for bitmap in [&set, &cleared] {
                        let runs = bitmap.runs();
                        assert!(runs.iter().cloned().flatten().eq(bitmap.positions()));
                        assert!(runs.iter().all(|run| !run.is_empty()));
                        assert!(runs.windows(2).all(|runs| runs[0].end < runs[1].start));
                        assert_eq!(bitmap.run_count(), runs.len());
                    }
                    let every_third: Vec<u32> = (0..len as u32).step_by(3).collect();
                    let place = |row: &u32| set.positions().binary_search(row).ok().map(|place| place as u32);
                    assert_eq!(set.places(&every_third), every_third.iter().filter_map(place).collect::<Vec<_>>());
                    assert_eq!(set.next_set(0), (start < end).then_some(start));
                    assert!(set.is_range_full(start..end) && cleared.is_range_empty(start..end));
                    assert_eq!(set.is_range_empty(0..len), start == end);
                    assert_eq!(cleared.is_range_full(0..len), start == end);
                    assert_eq!(set.count_range(len / 2..len), end.saturating_sub(start.max(len / 2)));
                }
            }
        }
    }

    #[test]
    fn answers_of_a_test_are_taken_row_by_row() {
        let third = |row: usize| row.is_multiple_of(3);
        for len in [1, 63, 64, 65, 130, 200] {
            for start in 0..len {
                for end in [start, start + 1, len.min(start + 64), len] {
                    // A bit more in front, so that the bits do not begin with a byte.
                    let passes =
                        BooleanBuffer::collect_bool(end - start + 1, |bit| third(start + bit.saturating_sub(1)));
                    let passes = passes.slice(1, end - start);
                    let mut by_range = Bitmap::all_set(len);
                    by_range.intersect_range(start..end, &passes);
                    for row in 0..len {
                        assert_eq!(
                            by_range.get(row),
                            !(start..end).contains(&row) || third(row),
                            "{row} of {start}..{end}"
                        );
                    }
                    let rows: Vec<u32> = (start as u32..end as u32).collect();
                    let mut by_rows = Bitmap::all_set(len);
                    by_rows.intersect_rows(&rows, &passes);
                    assert_eq!(by_rows, by_range);
                }
            }
        }
    }

    #[test]
    fn single_bits_and_intersection() {
        let mut bitmap = Bitmap::none(100);
        for row in [0, 63, 64, 99] {
            bitmap.set(row);
        }
        assert_eq!((bitmap.next_set(1), bitmap.next_set(65), bitmap.next_set(100)), (Some(63), Some(99), None));
        bitmap.clear(64);
        let mut other = Bitmap::all_set(100);
        other.clear(0);
        bitmap.intersect(&other);
        assert_eq!(bitmap.positions(), [63, 99]);
    }
}
