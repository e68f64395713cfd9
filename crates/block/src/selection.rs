//! The rows of a segment that a filter selects.

mod bits;
mod rows;

use std::ops::Range;

use roaring::RoaringBitmap;
use taut_encoding::Bitmap;

pub use bits::SelectedBits;
pub(crate) use rows::{PageRows, Rows};

/// Rows of one segment, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All rows of the segment. The value is the number of rows.
    All(usize),
    /// Consecutive rows.
    Range(Range<u32>),
    /// Positions of the rows, ascending.
    Positions(Vec<u32>),
    /// Many rows that are not consecutive.
    Bits(SelectedBits),
}

/// A selection is stored as bits only if at least one in this many rows of the segment is selected.
const ROWS_PER_SELECTED_MAX: usize = 16;

impl Selection {
    /// Number of selected rows.
    pub fn len(&self) -> usize {
        match self {
            Self::All(rows) => *rows,
            Self::Range(rows) => rows.len(),
            Self::Positions(positions) => positions.len(),
            Self::Bits(bits) => bits.count(),
        }
    }

    /// Whether no row is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Position in the segment of the selected row with ordinal `index`.
    ///
    /// # Panics
    /// May panic if `index` is not less than [`Selection::len`].
    pub fn position(&self, index: usize) -> u32 {
        match self {
            // A segment has at most 65,536 rows.
            Self::All(_) => index as u32,
            Self::Range(range) => range.start + index as u32,
            Self::Positions(positions) => positions[index],
            Self::Bits(bits) => bits.runs().map_or_else(|| bits.positions()[index], |runs| runs.row(index)),
        }
    }

    /// Next batch to read: a range of ordinals of selected rows. It begins at `first` and has at most `rows_max` rows.
    /// If the selected rows have few or no gaps, the batch ends at a row of the segment that is a multiple of
    /// `rows_max`. If `rows_max` is a whole number of vectors, no vector is then decoded twice.
    ///
    /// # Panics
    /// If `rows_max` is zero.
    pub fn batch(&self, first: usize, rows_max: usize) -> Range<usize> {
        let end_of = |row: usize| (row - row % rows_max).saturating_add(rows_max);
        let end = match self {
            Self::Range(rows) => end_of(rows.start as usize + first) - rows.start as usize,
            Self::Bits(bits) => match bits.runs() {
                // A segment has at most 65,536 rows.
                Some(runs) => runs.count_before(end_of(runs.row(first) as usize).min(bits.bitmap().len()) as u32),
                None => first.saturating_add(rows_max),
            },
            Self::All(_) | Self::Positions(_) => first.saturating_add(rows_max),
        };
        first..end.min(self.len())
    }

    /// For each selected row in `rows`, its ordinal among the selected rows. Ascending.
    pub fn ordinals(&self, rows: &RoaringBitmap) -> Vec<u32> {
        // A segment has at most 65,536 rows.
        let end = match self {
            Self::All(rows) => *rows as u32,
            Self::Range(rows) => rows.end,
            Self::Positions(positions) => positions.last().map_or(0, |last| last + 1),
            Self::Bits(bits) => bits.bitmap().len() as u32,
        };
        let start = if let Self::Range(rows) = self { rows.start.min(end) } else { 0 };
        // Only rows before `end`, from `start` on, can be selected.
        let mut candidates = vec![0; rows.len() as usize];
        let count = rows.range(start..end).next_many(&mut candidates).len();
        candidates.truncate(count);
        match self {
            Self::All(_) => candidates,
            Self::Range(_) => candidates.iter().map(|row| row - start).collect(),
            Self::Positions(positions) => {
                // Setting a bit for each row costs less than searching for each row.
                let mut candidate_bits = Bitmap::none(end as usize);
                candidates.iter().for_each(|row| candidate_bits.set(*row as usize));
                let ordinals = positions.iter().zip(0..).filter(|(row, _)| candidate_bits.get(**row as usize));
                ordinals.map(|(_, ordinal)| ordinal).collect()
            }
            Self::Bits(bits) => bits.bitmap().ordinals(&candidates),
        }
    }

    /// Positions of the selected rows.
    pub fn positions(&self) -> Vec<u32> {
        match self {
            Self::All(rows) => (0..*rows as u32).collect(),
            Self::Range(rows) => rows.clone().collect(),
            Self::Positions(positions) => positions.clone(),
            Self::Bits(bits) => bits.positions().to_vec(),
        }
    }

    /// A selection without rows.
    pub(crate) fn none() -> Self {
        Self::Range(0..0)
    }

    /// Selection of a few rows, from their ascending positions.
    pub(crate) fn from_positions(positions: Vec<u32>) -> Self {
        match Rows::from_positions(&positions) {
            // A segment has at most 65,536 rows.
            Rows::Range(rows) => Self::Range(rows.start as u32..rows.end as u32),
            _ => Self::Positions(positions),
        }
    }

    /// Whether a selection of `rows` rows that are not consecutive is stored as positions.
    pub(crate) fn is_stored_as_positions(rows: usize, segment_rows: usize) -> bool {
        rows * ROWS_PER_SELECTED_MAX < segment_rows
    }

    /// Selection of the rows whose bits are set.
    pub(crate) fn from_bitmap(bitmap: Bitmap) -> Self {
        let count = bitmap.count();
        Self::from_counted_bitmap(bitmap, count)
    }

    /// Selection of the rows whose bits are set. `count` is their number.
    pub(crate) fn from_counted_bitmap(bitmap: Bitmap, count: usize) -> Self {
        if count == bitmap.len() {
            return Self::All(count);
        }
        let first = bitmap.next_set(0).unwrap_or(0);
        if bitmap.len() - first >= count && bitmap.is_range_full(first..first + count) {
            // A segment has at most 65,536 rows.
            return Self::Range(first as u32..(first + count) as u32);
        }
        match Self::is_stored_as_positions(count, bitmap.len()) {
            true => Self::Positions(bitmap.positions_counted(count)),
            false => Self::Bits(SelectedBits::new(bitmap, count)),
        }
    }

    /// The selected rows with the ordinals `rows`.
    ///
    /// # Panics
    /// If `rows` exceeds the selection.
    pub(crate) fn slice(&self, rows: Range<usize>) -> Rows<'_> {
        assert!(rows.end <= self.len(), "rows {rows:?} of a selection of {}", self.len());
        match self {
            Self::All(_) => Rows::Range(rows),
            Self::Range(range) => Rows::Range(range.start as usize + rows.start..range.start as usize + rows.end),
            Self::Positions(positions) => Rows::from_positions(&positions[rows]),
            Self::Bits(bits) => match bits.runs() {
                Some(runs) => runs.slice(rows),
                None if rows.len() == bits.count() => Rows::Bits(bits),
                None => Rows::from_positions(&bits.positions()[rows]),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_buffer::BooleanBuffer;
    use taut_index::RowRanges;

    use super::*;

    #[test]
    fn bitmaps_become_the_simplest_selection() {
        let mut bitmap = Bitmap::none(100);
        assert_eq!(Selection::from_bitmap(bitmap.clone()), Selection::Range(0..0));
        bitmap.set_range(70..80);
        assert_eq!(Selection::from_bitmap(bitmap.clone()), Selection::Range(70..80));
        bitmap.set(99);
        let bits = Selection::from_bitmap(bitmap.clone());
        assert!(matches!(bits, Selection::Bits(_)) && bits.len() == 11);
        assert_eq!(bits.positions(), [70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 99]);
        let mut bitmap = Bitmap::none(100);
        [3, 5].into_iter().for_each(|row| bitmap.set(row));
        assert_eq!(Selection::from_bitmap(bitmap), Selection::Positions(vec![3, 5]));
        assert_eq!(Selection::from_bitmap(Bitmap::all_set(100)), Selection::All(100));
    }

    #[test]
    fn positions_and_bits_give_the_same_selection() {
        for (parts, cleared) in [
            (vec![], vec![]),
            (vec![(0, 1)], vec![]),
            (vec![(0, 1)], vec![0]),
            (vec![(90, 99)], vec![]),
            (vec![(90, 99)], vec![92, 98]),
            (vec![(3, 5), (9, 10), (70, 80)], vec![9]),
            (vec![(3, 5), (9, 10), (70, 80)], vec![3, 4, 9]),
        ] {
            let (mut ranges, mut bits) = (RowRanges::none(), Bitmap::none(1_000));
            for (start, end) in parts {
                bits.set_range(start as usize..end as usize);
                ranges.push(start..end);
            }
            cleared.iter().for_each(|row| bits.clear(*row as usize));
            assert!(Selection::is_stored_as_positions(ranges.rows() as usize, 1_000), "{ranges:?}");
            let positions = ranges.iter().flatten().filter(|row| !cleared.contains(row)).collect();
            assert_eq!(
                Selection::from_positions(positions),
                Selection::from_bitmap(bits),
                "{ranges:?} without {cleared:?}"
            );
        }
        assert!(!Selection::is_stored_as_positions(63, 1_000));
    }

    #[test]
    fn ordinals_are_positions_among_the_selected_rows() {
        let rows: RoaringBitmap = [0, 3, 7, 8, 40, 99, 100, 5000].into_iter().collect();
        let mut bitmap = Bitmap::none(100);
        bitmap.set_range(7..41);
        bitmap.set(99);
        for selection in [
            Selection::All(100),
            Selection::Range(3..40),
            Selection::Positions(vec![1, 3, 99]),
            Selection::from_bitmap(bitmap),
            Selection::none(),
        ] {
            let positions = selection.positions().into_iter().enumerate();
            let expected: Vec<u32> =
                positions.filter(|(_, row)| rows.contains(*row)).map(|(ordinal, _)| ordinal as u32).collect();
            assert_eq!(selection.ordinals(&rows), expected, "{selection:?}");
        }
    }

    #[test]
    fn rows_with_few_gaps_are_read_in_runs() {
        let mut bitmap = Bitmap::all_set(100);
        [0, 40, 41, 90].into_iter().for_each(|row| bitmap.clear(row));
        let expected = bitmap.positions();
        let selection = Selection::from_bitmap(bitmap);
        for (start, end) in (0..=expected.len()).flat_map(|start| (start..=expected.len()).map(move |end| (start, end)))
        {
            let rows = selection.slice(start..end);
            let is_range = start == end || (expected[end - 1] - expected[start]) as usize == end - start - 1;
            assert!(if is_range { matches!(rows, Rows::Range(_)) } else { matches!(rows, Rows::Runs(_)) });
            assert_eq!(rows.len(), end - start);
            // Every third row fails.
            let passes = BooleanBuffer::collect_bool(end - start, |index| index % 3 != 0);
            let mut left = Bitmap::all_set(100);
            rows.deselect_failing(&passes, &mut left);
            let failing: Vec<u32> = (0..100).filter(|row| !left.get(*row as usize)).collect();
            assert_eq!(failing, expected[start..end].iter().copied().step_by(3).collect::<Vec<_>>());
        }
        assert!((0..expected.len()).all(|index| selection.position(index) == expected[index]));
        let batches = |rows_max: usize| {
            let next =
                |batch: &Range<usize>| (batch.end < selection.len()).then(|| selection.batch(batch.end, rows_max));
            std::iter::successors(next(&(0..0)), next).collect::<Vec<_>>()
        };
        // Batches are ranges of ordinals. The first call returns batches that end at rows 41 and 82 of the segment, the
        // second at rows 45 and 90.
        assert_eq!(batches(41), [0..39, 39..79, 79..96]);
        assert_eq!(batches(45), [0..42, 42..87, 87..96]);
        assert_eq!(batches(usize::MAX), vec![0..96; 1]);
        assert_eq!(Selection::Range(70..230).batch(3, 50), 3..30);
        assert_eq!((Selection::All(90).batch(40, 40), Selection::All(90).batch(80, 40)), (40..80, 80..90));
    }
}
