//! The rows of a segment that a filter selects.

use std::ops::Range;

use std::sync::OnceLock;

use arrow_buffer::BooleanBuffer;
use roaring::RoaringBitmap;
use taut_encoding::{Bitmap, SelectedRuns};

/// Rows of one segment, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All rows of the segment. Contains their number.
    All(usize),
    /// Consecutive rows.
    Range(Range<u32>),
    /// Rows by position.
    Positions(Vec<u32>),
    /// Many rows that are not consecutive.
    Bits(SelectedBits),
}

/// A selection is stored as bits if at least one row in this many is selected.
const BITS_MIN: usize = 16;
/// Bits are read in runs only if a run has at least this many rows on average.
const RUN_ROWS_MIN: usize = 12;
/// Bits are read in runs only if, from the first to the last selected row, at least one row in this many is selected. A
/// read in runs decodes all rows between them.
const RUNS_DENSITY_MIN: usize = 2;

/// Selected rows as a bitmap. Positions and runs are derived on first use.
#[derive(Clone, Debug)]
pub struct SelectedBits {
    bitmap: Bitmap,
    count: usize,
    positions: OnceLock<Vec<u32>>,
    runs: OnceLock<Option<Runs>>,
}

/// Runs of selected rows, which are long and close together.
#[derive(Clone, Debug)]
struct Runs {
    ranges: Vec<Range<u32>>,
    /// Number of rows in all earlier runs, for each run.
    before: Vec<u32>,
}

/// Selected rows in the form in which they are read.
#[derive(Clone, Debug)]
pub(crate) enum Rows<'a> {
    /// Consecutive rows.
    Range(Range<usize>),
    /// Rows by position, ascending and not all consecutive.
    Positions(&'a [u32]),
    /// Long runs of rows, at least two.
    Runs(SelectedRuns<'a>),
    /// All rows whose bits are set.
    Bits(&'a SelectedBits),
}

impl Runs {
    /// Runs of a bitmap with `count` set bits. Returns `None` unless they are long and close together.
    fn of(bitmap: &Bitmap, count: usize) -> Option<Self> {
        if bitmap.run_count() * RUN_ROWS_MIN > count {
            return None;
        }
        let ranges = bitmap.runs();
        let (first, last) = (ranges.first()?, ranges.last()?);
        if (last.end - first.start) as usize > RUNS_DENSITY_MIN * count {
            return None;
        }
        let mut rows = 0;
        let counted = |range: &Range<u32>| {
            rows += range.end - range.start;
            rows - (range.end - range.start)
        };
        let before = ranges.iter().map(counted).collect();
        Some(Self { ranges, before })
    }

    /// Position in the segment of the selected row with ordinal `index`.
    fn row(&self, index: usize) -> u32 {
        // A segment has at most 65,536 rows.
        let index = index as u32;
        let run = self.before.partition_point(|before| *before <= index) - 1;
        self.ranges[run].start + (index - self.before[run])
    }

    /// Number of selected rows before a row of the segment.
    fn count_before(&self, row: u32) -> usize {
        let Some(run) = self.ranges.partition_point(|range| range.start < row).checked_sub(1) else { return 0 };
        let range = &self.ranges[run];
        (self.before[run] + (row.min(range.end) - range.start)) as usize
    }

    /// The selected rows with the ordinals `rows`, in the form in which they are read.
    fn slice(&self, rows: Range<usize>) -> Rows<'_> {
        if rows.is_empty() {
            return Rows::Range(0..0);
        }
        let runs = SelectedRuns::new(&self.ranges, self.row(rows.start)..self.row(rows.end - 1) + 1);
        if runs.span().len() == runs.len() { Rows::Range(runs.span()) } else { Rows::Runs(runs) }
    }
}

impl SelectedBits {
    fn new(bitmap: Bitmap, count: usize) -> Self {
        Self { bitmap, count, positions: OnceLock::new(), runs: OnceLock::new() }
    }

    /// The rows as runs. Returns `None` unless the runs are long and close together. Derived on first use.
    fn runs(&self) -> Option<&Runs> {
        self.runs.get_or_init(|| Runs::of(&self.bitmap, self.count)).as_ref()
    }

    /// Bitmap of the selected rows.
    pub(crate) fn bitmap(&self) -> &Bitmap {
        &self.bitmap
    }

    /// Number of selected rows.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Positions of the selected rows. Derived on first use.
    pub(crate) fn positions(&self) -> &[u32] {
        self.positions.get_or_init(|| self.bitmap.positions())
    }
}

impl PartialEq for SelectedBits {
    fn eq(&self, other: &Self) -> bool {
        self.bitmap == other.bitmap
    }
}

impl Eq for SelectedBits {}

impl Selection {
    /// Number of selected rows.
    pub fn len(&self) -> usize {
        match self {
            Self::All(rows) => *rows,
            Self::Range(rows) => rows.len(),
            Self::Positions(positions) => positions.len(),
            Self::Bits(bits) => bits.count,
        }
    }

    /// Whether no row is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Position in the segment of the selected row with ordinal `index`.
    ///
    /// # Panics
    /// If fewer rows are selected.
    pub fn position(&self, index: usize) -> u32 {
        match self {
            // A segment has at most 65,536 rows.
            Self::All(_) => index as u32,
            Self::Range(range) => range.start + index as u32,
            Self::Positions(positions) => positions[index],
            Self::Bits(bits) => bits.runs().map_or_else(|| bits.positions()[index], |runs| runs.row(index)),
        }
    }

    /// Next batch to read: a range of ordinals of selected rows, which begins at `first` and has at most `rows_max`
    /// rows. If the selected rows have few or no gaps, the batch ends at a multiple of `rows_max` rows of the segment.
    /// If `rows_max` is a whole number of vectors, no vector is then decoded twice.
    ///
    /// # Panics
    /// If `rows_max` is zero.
    pub fn batch(&self, first: usize, rows_max: usize) -> Range<usize> {
        let end_of = |row: usize| (row - row % rows_max).saturating_add(rows_max);
        let end = match self {
            Self::Range(rows) => end_of(rows.start as usize + first) - rows.start as usize,
            Self::Bits(bits) => match bits.runs() {
                // A segment has at most 65,536 rows.
                Some(runs) => runs.count_before(end_of(runs.row(first) as usize).min(bits.bitmap.len()) as u32),
                None => first.saturating_add(rows_max),
            },
            Self::All(_) | Self::Positions(_) => first.saturating_add(rows_max),
        };
        first..end.min(self.len())
    }

    /// For each row in `rows` that is selected, its ordinal among the selected rows, ascending.
    pub fn places(&self, rows: &RoaringBitmap) -> Vec<u32> {
        // A segment has at most 65,536 rows.
        let end = match self {
            Self::All(rows) => *rows as u32,
            Self::Range(rows) => rows.end,
            Self::Positions(positions) => positions.last().map_or(0, |last| last + 1),
            Self::Bits(bits) => bits.bitmap.len() as u32,
        };
        let start = if let Self::Range(rows) = self { rows.start.min(end) } else { 0 };
        let mut found = vec![0; rows.len() as usize];
        let count = rows.range(start..end).next_many(&mut found).len();
        found.truncate(count);
        match self {
            Self::All(_) => found,
            Self::Range(_) => found.iter().map(|row| row - start).collect(),
            Self::Positions(positions) => {
                // Setting a bit for each row costs less than searching for each row.
                let mut is_found = Bitmap::none(end as usize);
                found.iter().for_each(|row| is_found.set(*row as usize));
                let places = positions.iter().zip(0..).filter(|(row, _)| is_found.get(**row as usize));
                places.map(|(_, place)| place).collect()
            }
            Self::Bits(bits) => bits.bitmap.ordinals(&found),
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

    /// Selection of rows by ascending position, for few rows.
    pub(crate) fn of_few(positions: Vec<u32>) -> Self {
        match Rows::of(&positions) {
            // A segment has at most 65,536 rows.
            Rows::Range(rows) => Self::Range(rows.start as u32..rows.end as u32),
            _ => Self::Positions(positions),
        }
    }

    /// Whether a selection of `rows` rows is stored as positions, unless they are consecutive.
    pub(crate) fn are_few(rows: usize, segment_rows: usize) -> bool {
        rows * BITS_MIN < segment_rows
    }

    /// Selection of the rows whose bits are set.
    pub(crate) fn of(bitmap: Bitmap) -> Self {
        let count = bitmap.count();
        Self::of_counted(bitmap, count)
    }

    /// Selection of the rows whose bits are set. `count` is their number.
    pub(crate) fn of_counted(bitmap: Bitmap, count: usize) -> Self {
        if count == bitmap.len() {
            return Self::All(count);
        }
        let first = bitmap.next_set(0).unwrap_or(0);
        if bitmap.len() - first >= count && bitmap.is_range_full(first..first + count) {
            // A segment has at most 65,536 rows.
            return Self::Range(first as u32..(first + count) as u32);
        }
        match Self::are_few(count, bitmap.len()) {
            true => Self::Positions(bitmap.positions_counted(count)),
            false => Self::Bits(SelectedBits::new(bitmap, count)),
        }
    }

    /// The selected rows with the ordinals `rows`.
    ///
    /// # Panics
    /// If fewer rows are selected.
    pub(crate) fn slice(&self, rows: Range<usize>) -> Rows<'_> {
        assert!(rows.end <= self.len(), "rows {rows:?} of a selection of {}", self.len());
        match self {
            Self::All(_) => Rows::Range(rows),
            Self::Range(range) => Rows::Range(range.start as usize + rows.start..range.start as usize + rows.end),
            Self::Positions(positions) => Rows::of(&positions[rows]),
            Self::Bits(bits) => match bits.runs() {
                Some(runs) => runs.slice(rows),
                None if rows.len() == bits.count => Rows::Bits(bits),
                None => Rows::of(&bits.positions()[rows]),
            },
        }
    }
}

impl<'a> Rows<'a> {
    /// Rows by ascending position. Consecutive positions become a range.
    pub fn of(positions: &'a [u32]) -> Self {
        match (positions.first(), positions.last()) {
            (Some(first), Some(last)) if (last - first) as usize + 1 == positions.len() => {
                Self::Range(*first as usize..*last as usize + 1)
            }
            (None, _) => Self::Range(0..0),
            _ => Self::Positions(positions),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Range(rows) => rows.len(),
            Self::Positions(positions) => positions.len(),
            Self::Runs(runs) => runs.len(),
            Self::Bits(bits) => bits.count,
        }
    }

    /// Deselects the rows whose bit in `passes` is zero. Bit i belongs to the row with ordinal i among these rows.
    pub fn deselect_failing(&self, passes: &BooleanBuffer, selection: &mut Bitmap) {
        match self {
            Self::Range(rows) => selection.intersect_range(rows.clone(), passes),
            Self::Positions(positions) => selection.intersect_rows(positions, passes),
            Self::Bits(bits) => selection.intersect_rows(bits.positions(), passes),
            Self::Runs(runs) => {
                let mut before = 0;
                for run in runs.iter() {
                    let rows = run.len();
                    selection.intersect_range(run, &passes.slice(before, rows));
                    before += rows;
                }
            }
        }
    }

    /// Calls `visit` for each page that has some of these rows, with the page and its rows. `page_ends` are the rows of
    /// the segment at which pages end.
    pub fn by_page<E>(
        &self,
        page_ends: &[u32],
        mut visit: impl FnMut(usize, PageRows<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Range(rows) => by_page(rows, page_ends, |page, first, rows| {
                visit(page, PageRows::Range(rows.start - first..rows.end - first))
            })?,
            Self::Runs(runs) => by_page(&runs.span(), page_ends, |page, first, rows| {
                // A segment has at most 65,536 rows.
                let runs = runs.within(rows.start as u32..rows.end as u32);
                let span = runs.span();
                match span.len() - runs.len() {
                    _ if runs.is_empty() => Ok(()),
                    0 => visit(page, PageRows::Range(span.start - first..span.end - first)),
                    _ => visit(page, PageRows::Runs { first, runs }),
                }
            })?,
            Self::Bits(bits) => return Self::Positions(bits.positions()).by_page(page_ends, visit),
            Self::Positions(positions) => {
                let (mut rest, mut page) = (*positions, 0);
                while let Some(position) = rest.first() {
                    page += leading(&page_ends[page..], |end| end <= *position);
                    let first = if page == 0 { 0 } else { page_ends[page - 1] };
                    let (here, behind) = rest.split_at(leading(rest, |row| row < page_ends[page]));
                    visit(page, PageRows::Positions { first, positions: here })?;
                    rest = behind;
                }
            }
        }
        Ok(())
    }
}

/// Calls `visit` for each page of consecutive rows, with the page, its first row, and the part of `rows` in it.
fn by_page<E>(
    rows: &Range<usize>,
    page_ends: &[u32],
    mut visit: impl FnMut(usize, usize, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut row = rows.start;
    let mut page = page_ends.partition_point(|end| *end as usize <= row);
    while row < rows.end {
        let first = if page == 0 { 0 } else { page_ends[page - 1] as usize };
        let end = rows.end.min(page_ends[page] as usize);
        visit(page, first, row..end)?;
        (row, page) = (end, page + 1);
    }
    Ok(())
}

/// Number of elements that pass. All of them must be at the front. Fast if they are few.
fn leading(numbers: &[u32], passes: impl Fn(u32) -> bool) -> usize {
    let mut step = 1;
    while step < numbers.len() && passes(numbers[step - 1]) {
        step *= 2;
    }
    let (known, bound) = (step / 2, step.min(numbers.len()));
    known + numbers[known..bound].partition_point(|number| passes(*number))
}

/// Selected rows of one page. Visitors get each row as its ordinal in the page, which a range already has.
#[derive(Clone, Debug)]
pub(crate) enum PageRows<'a> {
    Range(Range<usize>),
    /// Runs of rows, as positions in the segment. The page begins with row `first` of the segment.
    Runs {
        first: usize,
        runs: SelectedRuns<'a>,
    },
    /// Positions in the segment. The page begins with row `first` of the segment.
    Positions {
        first: u32,
        positions: &'a [u32],
    },
}

impl PageRows<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(rows) => rows.len(),
            Self::Runs { runs, .. } => runs.len(),
            Self::Positions { positions, .. } => positions.len(),
        }
    }

    /// Calls `visit` with each run of consecutive rows. Returns false, and makes no call, if the rows are stored as
    /// positions.
    #[inline]
    pub fn each_run(&self, mut visit: impl FnMut(Range<usize>)) -> bool {
        match self {
            Self::Range(rows) => visit(rows.clone()),
            Self::Runs { first, runs } => runs.iter().for_each(|run| visit(run.start - first..run.end - first)),
            Self::Positions { .. } => return false,
        }
        true
    }

    /// Calls `visit` with the ordinal of each row in the page.
    #[inline]
    pub fn each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Self::Range(rows) => rows.clone().for_each(visit),
            Self::Runs { first, runs } => runs.iter().for_each(|run| run.for_each(|row| visit(row - first))),
            Self::Positions { first, positions } => {
                for position in *positions {
                    visit((position - first) as usize);
                }
            }
        }
    }

    /// Calls `visit` with the ordinal of each row in the page, until it fails.
    #[inline]
    pub fn try_each<E>(&self, mut visit: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Range(rows) => rows.clone().try_for_each(visit),
            Self::Runs { first, runs } => {
                runs.iter().try_for_each(|mut run| run.try_for_each(|row| visit(row - first)))
            }
            Self::Positions { first, positions } => {
                positions.iter().try_for_each(|position| visit((position - first) as usize))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use taut_index::RowRanges;

    use super::*;

    #[test]
    fn leading_numbers_are_counted() {
        let numbers: Vec<u32> = (0..70).collect();
        for length in 0..70 {
            for bound in 0..75 {
                assert_eq!(leading(&numbers[..length], |number| number < bound), length.min(bound as usize));
            }
        }
    }

    #[test]
    fn bitmaps_become_the_simplest_selection() {
        let mut bitmap = Bitmap::none(100);
        assert_eq!(Selection::of(bitmap.clone()), Selection::Range(0..0));
        bitmap.set_range(70..80);
        assert_eq!(Selection::of(bitmap.clone()), Selection::Range(70..80));
        bitmap.set(99);
        let bits = Selection::of(bitmap.clone());
        assert!(matches!(bits, Selection::Bits(_)) && bits.len() == 11);
        assert_eq!(bits.positions(), [70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 99]);
        let mut bitmap = Bitmap::none(100);
        [3, 5].into_iter().for_each(|row| bitmap.set(row));
        assert_eq!(Selection::of(bitmap), Selection::Positions(vec![3, 5]));
        assert_eq!(Selection::of(Bitmap::all_set(100)), Selection::All(100));
    }

    #[test]
    fn few_rows_are_what_their_bits_would_be() {
        for (parts, left_out) in [
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
            left_out.iter().for_each(|row| bits.clear(*row as usize));
            assert!(Selection::are_few(ranges.rows() as usize, 1_000), "{ranges:?}");
            let few = ranges.iter().flatten().filter(|row| !left_out.contains(row)).collect();
            assert_eq!(Selection::of_few(few), Selection::of(bits), "{ranges:?} without {left_out:?}");
        }
        assert!(!Selection::are_few(63, 1_000));
    }

    #[test]
    fn some_of_the_selected_rows_have_places() {
        let rows: RoaringBitmap = [0, 3, 7, 8, 40, 99, 100, 5000].into_iter().collect();
        let mut bitmap = Bitmap::none(100);
        bitmap.set_range(7..41);
        bitmap.set(99);
        for selection in [
            Selection::All(100),
            Selection::Range(3..40),
            Selection::Positions(vec![1, 3, 99]),
            Selection::of(bitmap),
            Selection::none(),
        ] {
            let positions = selection.positions().into_iter().enumerate();
            let expected: Vec<u32> =
                positions.filter(|(_, row)| rows.contains(*row)).map(|(place, _)| place as u32).collect();
            assert_eq!(selection.places(&rows), expected, "{selection:?}");
        }
    }

    #[test]
    fn rows_with_few_gaps_are_read_in_runs() {
        let mut bitmap = Bitmap::all_set(100);
        [0, 40, 41, 90].into_iter().for_each(|row| bitmap.clear(row));
        let expected = bitmap.positions();
        let selection = Selection::of(bitmap);
        for (start, end) in (0..=expected.len()).flat_map(|start| (start..=expected.len()).map(move |end| (start, end)))
        {
            let rows = selection.slice(start..end);
            let is_range = start == end || (expected[end - 1] - expected[start]) as usize == end - start - 1;
            assert!(if is_range { matches!(rows, Rows::Range(_)) } else { matches!(rows, Rows::Runs(_)) });
            assert_eq!(rows.len(), end - start);
            // Every third fails.
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
        assert_eq!(batches(41), [0..39, 39..79, 79..96]);
        assert_eq!(batches(45), [0..42, 42..87, 87..96]);
        assert_eq!(batches(usize::MAX), vec![0..96; 1]);
        assert_eq!(Selection::Range(70..230).batch(3, 50), 3..30);
        assert_eq!((Selection::All(90).batch(40, 40), Selection::All(90).batch(80, 40)), (40..80, 80..90));
    }

    #[test]
    fn short_runs_and_runs_far_apart_are_not_read_as_such() {
        for cleared in [(0..1000).step_by(12).map(|row| row..row + 1).collect(), vec![20..490, 510..980]] {
            let mut bitmap = Bitmap::all_set(1000);
            cleared.into_iter().for_each(|rows| bitmap.clear_range(rows));
            let bits = SelectedBits::new(bitmap.clone(), bitmap.count());
            assert!(bits.runs().is_none() && bits.positions() == bitmap.positions());
        }
    }

    #[test]
    fn rows_are_visited_page_by_page() {
        let page_ends = [3, 5, 9];
        for rows in [vec![0, 1, 2, 3, 4, 5, 6, 7, 8], vec![2, 3], vec![0, 2, 4, 8], vec![2, 6, 7], vec![5], vec![]] {
            let mut bitmap = Bitmap::none(9);
            rows.iter().for_each(|row| bitmap.set(*row as usize));
            let ranges = bitmap.runs();
            for way in [Rows::of(&rows), Rows::Runs(SelectedRuns::new(&ranges, 0..9))] {
                let (mut visited, mut tried, mut in_runs) = (vec![], vec![], vec![]);
                let seen = way.by_page(&page_ends, |page, part| {
                    let first = if page == 0 { 0 } else { page_ends[page - 1] };
                    let row_of = |row: usize| row as u32 + first;
                    part.each(|row| visited.push(row_of(row)));
                    part.try_each(|row| {
                        tried.push(row_of(row));
                        Ok::<_, ()>(())
                    })?;
                    if !part.each_run(|run| in_runs.extend(run.map(row_of))) {
                        part.each(|row| in_runs.push(row_of(row)));
                    }
                    assert!(part.len() > 0 && row_of(0) <= visited[visited.len() - part.len()]);
                    assert!(visited[visited.len() - 1] < page_ends[page]);
                    Ok::<_, ()>(())
                });
                assert_eq!((seen, &visited, &tried, &in_runs), (Ok(()), &rows, &rows, &rows));
            }
        }
    }
}
