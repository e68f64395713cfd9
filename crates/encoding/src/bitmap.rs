//! Selection of the rows of a segment: one bit per row, row `r` at bit `r % 64` of word `r / 64`, a `u64`.

use std::ops::Range;

use arrow_buffer::BooleanBuffer;

use crate::VECTOR_ROWS;
use crate::kernels::{append_positions, with_wide_vectors};

/// One bit per row of a segment. Bits past the last row are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// Bitmap of `len` rows, all selected.
    pub fn all_set(len: usize) -> Self {
        let mut bitmap = Self::none(0);
        bitmap.set_all(len);
        bitmap
    }

    /// Bitmap of `len` rows, none selected.
    pub fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Removes all rows and reserves memory for `rows`.
    pub(crate) fn reset(&mut self, rows: usize) {
        self.words.clear();
        self.words.reserve(rows.div_ceil(64));
        self.len = 0;
    }

    /// Resizes the bitmap to `rows` rows, all selected.
    pub(crate) fn set_all(&mut self, rows: usize) {
        self.reset(rows);
        self.extend_set(rows);
    }

    /// Appends `rows` selected rows. The current length must be a multiple of 64.
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

    /// Whether the bitmap has no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bits of the rows, 64 per word.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Mutable bits of the rows, 64 per word. The caller must leave the bits past the last row at zero.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Whether a row is selected.
    ///
    /// # Panics
    /// If the row is past the end.
    #[inline]
    pub fn get(&self, row: usize) -> bool {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] >> (row % 64) & 1 != 0
    }

    /// Selects a row.
    ///
    /// # Panics
    /// If the row is past the end.
    #[inline]
    pub fn set(&mut self, row: usize) {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] |= 1 << (row % 64);
    }

    /// Deselects a row.
    ///
    /// # Panics
    /// If the row is past the end.
    #[inline]
    pub fn clear(&mut self, row: usize) {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] &= !(1 << (row % 64));
    }

    /// Selects the rows of a range.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn set_range(&mut self, rows: Range<usize>) {
        self.update_range(rows, |word, mask| word | mask);
    }

    /// Deselects the rows of a range.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn clear_range(&mut self, rows: Range<usize>) {
        self.update_range(rows, |word, mask| word & !mask);
    }

    /// Number of selected rows.
    pub fn count(&self) -> usize {
        let words = self.words.as_slice();
        with_wide_vectors(move || words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()) as usize
    }

    /// Number of selected rows in a range.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn count_range(&self, rows: Range<usize>) -> usize {
        self.masked(rows).map(|(word, mask)| (word & mask).count_ones() as usize).sum()
    }

    /// Whether no row of a range is selected. True for an empty range.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn is_range_empty(&self, rows: Range<usize>) -> bool {
        self.masked(rows).all(|(word, mask)| word & mask == 0)
    }

    /// Whether every row of a range is selected. True for an empty range.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn is_range_full(&self, rows: Range<usize>) -> bool {
        self.masked(rows).all(|(word, mask)| word & mask == mask)
    }

    /// First selected row at or after `row`. Returns `None` if no such row exists.
    pub fn next_set(&self, row: usize) -> Option<usize> {
        let first = row / 64;
        let head = self.words.get(first)? & (u64::MAX << (row % 64));
        let rest = self.words[first + 1..].iter().copied();
        let found = std::iter::once(head).chain(rest).enumerate().find(|(_, word)| *word != 0);
        found.map(|(index, word)| (first + index) * 64 + word.trailing_zeros() as usize)
    }

    /// Positions of the selected rows, ascending.
    pub fn positions(&self) -> Vec<u32> {
        self.positions_counted(self.count())
    }

    /// Like [`Bitmap::positions`], for callers that know `count`, the number of selected rows.
    pub fn positions_counted(&self, count: usize) -> Vec<u32> {
        // The kernel writes past the last position.
        let mut positions = Vec::with_capacity(count + VECTOR_ROWS);
        self.append_positions(0..self.len, &mut positions);
        positions
    }

    /// Appends the positions of the selected rows of a range, ascending.
    ///
    /// # Panics
    /// If the range reaches past the end.
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

    /// Number of runs that the selected rows form.
    pub fn run_count(&self) -> usize {
        let mut last_bit = 0;
        let starts =
            |word: &u64| (word & !(word << 1 | std::mem::replace(&mut last_bit, word >> 63))).count_ones() as usize;
        self.words.iter().map(starts).sum()
    }

    /// For each selected row in `rows`, its ordinal among the selected rows. `rows` must ascend.
    ///
    /// # Panics
    /// If a row is past the end.
    pub fn ordinals(&self, rows: &[u32]) -> Vec<u32> {
        let (words, mut ordinals) = (self.words.as_slice(), Vec::with_capacity(rows.len()));
        let (mut counted_words, mut rows_before) = (0, 0);
        for row in rows {
            let (index, bit) = (*row as usize / 64, 1_u64 << (row % 64));
            let word = words[index];
            if word & bit != 0 {
                rows_before += words[counted_words..index].iter().map(|word| word.count_ones()).sum::<u32>();
                counted_words = index;
                ordinals.push(rows_before + (word & (bit - 1)).count_ones());
            }
        }
        ordinals
    }

    /// Runs of selected rows, ascending.
    pub fn runs(&self) -> Vec<Range<u32>> {
        let mut runs = Vec::with_capacity(self.run_count());
        let mut start = 0;
        let mut end_run = |row: u32| {
            if start < row {
                runs.push(start..row);
            }
            start = row + 1;
        };
        // A segment has at most 2^16 rows.
        for (word, first) in self.words.iter().zip((0..).step_by(64)) {
            let mut unselected = !word;
            while unselected != 0 {
                end_run(first + unselected.trailing_zeros());
                unselected &= unselected - 1;
            }
        }
        end_run(self.len as u32);
        runs
    }

    /// Deselects the rows that `other` does not select.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn intersect(&mut self, other: &Self) {
        assert_eq!(self.len, other.len, "selections of different lengths");
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Mutable words of a range of vectors, 16 words per vector.
    ///
    /// # Panics
    /// If a vector reaches past the end.
    pub(crate) fn vectors_mut(&mut self, vectors: Range<usize>) -> &mut [[u64; VECTOR_ROWS / 64]] {
        assert!(vectors.end * VECTOR_ROWS <= self.len, "vectors {vectors:?} of {} rows", self.len);
        &mut self.words.as_chunks_mut().0[vectors]
    }

    /// Bits of up to 64 rows from `row` on. The bits of rows from `end` on are zero.
    #[inline]
    pub(crate) fn bits_from(&self, row: usize, end: usize) -> u64 {
        if row >= end {
            return 0;
        }
        let word = |index: usize| self.words.get(index).copied().unwrap_or(0);
        let bits = word(row / 64) >> (row % 64) | word(row / 64 + 1) << 1 << (63 - row % 64);
        if end - row < 64 { bits & !(u64::MAX << (end - row)) } else { bits }
    }

    /// Deselects the rows of a range whose bit in `mask` is zero. The range lies in one vector, and `mask` has a bit
    /// for each row of that vector.
    pub(crate) fn intersect_words(&mut self, rows: Range<usize>, mask: &[u64; VECTOR_ROWS / 64]) {
        let words = self.word_range(&rows);
        let first = words.start;
        for (index, word) in self.words[words].iter_mut().enumerate() {
            let index = first + index;
            *word &= mask[index % mask.len()] | !word_mask(index, &rows);
        }
    }

    /// Deselects the rows of a range whose bit in `passes` is zero. The first bit belongs to the first row of the
    /// range.
    ///
    /// # Panics
    /// If the range reaches past the end, or its length is not the number of bits.
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
            // Bits that do not fit in this word belong to the next word.
            let rest = failing >> 1 >> (63 - row % 64);
            if rest != 0 {
                self.words[row / 64 + 1] &= !rest;
            }
        }
    }

    /// Deselects the rows of `rows` whose bit in `passes` is zero. The rows must ascend and be selected. Bit `i`
    /// belongs to `rows[i]`.
    ///
    /// # Panics
    /// If a row is past the end, or `rows` and `passes` have different lengths.
    pub fn intersect_rows(&mut self, rows: &[u32], passes: &BooleanBuffer) {
        assert_eq!(rows.len(), passes.len(), "one bit for each row");
        for (rows, passing) in rows.chunks(64).zip(passes.bit_chunks().iter_padded()) {
            for (index, row) in rows.iter().enumerate() {
                self.words[*row as usize / 64] &= !((!passing >> index & 1) << (row % 64));
            }
        }
    }

    /// Deselects the rows of `rows` whose bit in `mask` is zero. Bit `i` belongs to `rows[i]`. There must be at most
    /// 1,024 rows, all selected.
    pub(crate) fn intersect_at(&mut self, rows: &[u32], mask: &[u64; VECTOR_ROWS / 64]) {
        for (rows, mask) in rows.chunks(64).zip(mask) {
            for (index, row) in rows.iter().enumerate() {
                self.words[*row as usize / 64] ^= (!mask >> index & 1) << (row % 64);
            }
        }
    }

    /// Deselects the rows of a range that lie in word `index` and whose bit in `mask` is zero.
    #[inline]
    pub(crate) fn intersect_word(&mut self, rows: &Range<usize>, index: usize, mask: u64) {
        self.words[index] &= mask | !word_mask(index, rows);
    }

    /// Selects the rows of a range that another selection of the same length selects.
    pub(crate) fn unite(&mut self, rows: Range<usize>, other: &Self) {
        let words = self.word_range(&rows);
        for index in words {
            self.words[index] |= other.words[index] & word_mask(index, &rows);
        }
    }

    /// Deselects the selected rows of a range for which `keep` returns false. Calls `keep` once per row, ascending.
    pub(crate) fn retain(&mut self, rows: Range<usize>, mut keep: impl FnMut(usize) -> bool) {
        let words = self.word_range(&rows);
        let first = words.start;
        for (index, word) in self.words[words].iter_mut().enumerate() {
            let base = (first + index) * 64;
            let mut remaining = *word & word_mask(first + index, &rows);
            while remaining != 0 {
                let bit = remaining & remaining.wrapping_neg();
                if !keep(base + bit.trailing_zeros() as usize) {
                    *word &= !bit;
                }
                remaining ^= bit;
            }
        }
    }

    /// Words that a range touches, each with the mask of its bits that lie in the range.
    fn masked(&self, rows: Range<usize>) -> impl Iterator<Item = (u64, u64)> {
        let words = self.word_range(&rows);
        let first = words.start;
        self.words[words].iter().enumerate().map(move |(index, word)| (*word, word_mask(first + index, &rows)))
    }

    /// Replaces each word of a range by the result of `operation` on the word and the mask of its bits in the range.
    fn update_range(&mut self, rows: Range<usize>, operation: impl Fn(u64, u64) -> u64) {
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

/// Mask of the bits of word `index` that belong to `rows`.
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
                    let ordinal = |row: &u32| set.positions().binary_search(row).ok().map(|ordinal| ordinal as u32);
                    assert_eq!(set.ordinals(&every_third), every_third.iter().filter_map(ordinal).collect::<Vec<_>>());
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
    fn intersections_deselect_only_rows_that_fail() {
        let third = |row: usize| row.is_multiple_of(3);
        for len in [1, 63, 64, 65, 130, 200] {
            for start in 0..len {
                for end in [start, start + 1, len.min(start + 64), len] {
                    // One more bit in front, so that the bits do not begin at a byte boundary.
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
    fn bits_can_be_set_cleared_and_intersected() {
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
