//! Sets of rows of one segment as ranges: sorted, disjoint, not empty and not adjacent.

use std::ops::Range;

/// Set of rows of a segment, as ascending ranges with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRanges {
    ranges: Vec<Range<u32>>,
}

impl RowRanges {
    /// Empty set of rows.
    pub fn none() -> Self {
        Self::default()
    }

    /// Set of the rows `0..rows`.
    pub fn full(rows: u32) -> Self {
        let mut all = Self::none();
        all.push(0..rows);
        all
    }

    /// Adds a range of rows at the end. An empty range adds nothing. A range that begins where the last one ends
    /// extends it.
    ///
    /// # Panics
    /// If the range begins before the end of the last one.
    pub fn push(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) => {
                assert!(range.start >= last.end, "row ranges are pushed in order");
                if range.start == last.end { last.end = range.end } else { self.ranges.push(range) }
            }
            None => self.ranges.push(range),
        }
    }

    /// Ranges of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.ranges.iter().cloned()
    }

    /// Range from the first row to the last, or `None` for an empty set.
    pub fn span(&self) -> Option<Range<u32>> {
        Some(self.ranges.first()?.start..self.ranges.last()?.end)
    }

    /// Number of rows in the set.
    pub fn rows(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the set contains a row.
    pub fn contains(&self, row: u32) -> bool {
        let first = self.ranges.partition_point(|existing| existing.end <= row);
        self.ranges.get(first).is_some_and(|existing| existing.start <= row)
    }

    /// Whether the set contains any row of a range.
    pub fn overlaps(&self, range: &Range<u32>) -> bool {
        let first = self.ranges.partition_point(|existing| existing.end <= range.start);
        self.ranges.get(first).is_some_and(|existing| existing.start < range.end) && !range.is_empty()
    }

    /// The rows of `range` that are in this set, as ascending ranges.
    pub fn within(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let first = self.ranges.partition_point(|existing| existing.end <= range.start);
        let clipped = self.ranges[first..].iter().take_while({
            let end = range.end;
            move |existing| existing.start < end
        });
        clipped
            .map(move |existing| existing.start.max(range.start)..existing.end.min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// Keeps only the rows that are also in the other set.
    pub fn intersect(&mut self, other: &Self) {
        let mut both = Self::none();
        for range in other.iter() {
            for part in self.within(range) {
                both.push(part);
            }
        }
        *self = both;
    }

    /// Rows of this set that are not in the other one.
    pub fn without(&self, other: &Self) -> Self {
        let mut remaining = Self::none();
        for range in self.iter() {
            let mut start = range.start;
            for part in other.within(range.clone()) {
                remaining.push(start..part.start);
                start = part.end;
            }
            remaining.push(start..range.end);
        }
        remaining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROWS: u32 = 40;

    fn ranges_of(rows: &[bool]) -> RowRanges {
        let mut ranges = RowRanges::none();
        for (row, _) in rows.iter().enumerate().filter(|(_, member)| **member) {
            ranges.push(row as u32..row as u32 + 1);
        }
        ranges
    }

    fn row_flags(ranges: &RowRanges) -> Vec<bool> {
        (0..ROWS).map(|row| ranges.iter().any(|range| range.contains(&row))).collect()
    }

    proptest! {
        #[test]
        fn agrees_with_sets_of_rows(
            left in proptest::collection::vec(any::<bool>(), ROWS as usize),
            right in proptest::collection::vec(any::<bool>(), ROWS as usize),
            window in (0..ROWS, 0..=ROWS),
        ) {
            let (a, b) = (ranges_of(&left), ranges_of(&right));
            prop_assert_eq!(row_flags(&a), left.clone());
            prop_assert_eq!((0..ROWS).map(|row| a.contains(row)).collect::<Vec<_>>(), left.clone());
            prop_assert_eq!(a.rows(), left.iter().filter(|member| **member).count() as u64);
            let (first, last) = (left.iter().position(|member| *member), left.iter().rposition(|member| *member));
            prop_assert_eq!(a.span(), first.zip(last).map(|(first, last)| first as u32..last as u32 + 1));
            let mut both = a.clone();
            both.intersect(&b);
            let expected: Vec<_> = left.iter().zip(&right).map(|(l, r)| *l && *r).collect();
            prop_assert_eq!(&both, &ranges_of(&expected));
            let expected: Vec<_> = left.iter().zip(&right).map(|(l, r)| *l && !*r).collect();
            prop_assert_eq!(a.without(&b), ranges_of(&expected));
            let window = window.0..window.1;
            let expected = (0..ROWS).any(|row| window.contains(&row) && left[row as usize]);
            prop_assert_eq!(a.overlaps(&window), expected);
            prop_assert_eq!(a.within(window).count() > 0, expected);
        }
    }

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut ranges = RowRanges::none();
        ranges.push(0..3);
        ranges.push(3..3);
        ranges.push(3..5);
        assert_eq!(ranges, RowRanges::full(5));
        assert!(RowRanges::full(0).is_empty());
    }
}
