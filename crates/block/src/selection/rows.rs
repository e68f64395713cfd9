//! Selected rows as decoders get them, for a whole segment or page by page.

use std::ops::Range;

use arrow_buffer::BooleanBuffer;
use taut_encoding::{Bitmap, SelectedRuns};

use super::SelectedBits;

/// Selected rows as decoders get them, in the simplest of four representations.
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

impl<'a> Rows<'a> {
    /// Rows by ascending position. Consecutive positions become a range.
    pub fn from_positions(positions: &'a [u32]) -> Self {
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
            Self::Bits(bits) => bits.count(),
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

    /// Calls `visit` for each page that contains some of these rows, with the ordinal of the page and the rows in it.
    /// `page_ends` are the end row (exclusive) of each page, as positions in the segment. Stops at the first error.
    pub fn for_each_page<E>(
        &self,
        page_ends: &[u32],
        mut visit: impl FnMut(usize, PageRows<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Range(rows) => for_each_page(rows, page_ends, |page, first, rows| {
                visit(page, PageRows::Range(rows.start - first..rows.end - first))
            })?,
            Self::Runs(runs) => for_each_page(&runs.span(), page_ends, |page, first, rows| {
                // A segment has at most 65,536 rows.
                let runs = runs.within(rows.start as u32..rows.end as u32);
                let span = runs.span();
                match span.len() - runs.len() {
                    _ if runs.is_empty() => Ok(()),
                    0 => visit(page, PageRows::Range(span.start - first..span.end - first)),
                    _ => visit(page, PageRows::Runs { first, runs }),
                }
            })?,
            Self::Bits(bits) => return Self::Positions(bits.positions()).for_each_page(page_ends, visit),
            Self::Positions(positions) => {
                let (mut rest, mut page) = (*positions, 0);
                while let Some(position) = rest.first() {
                    page += count_leading(&page_ends[page..], |end| end <= *position);
                    let first = if page == 0 { 0 } else { page_ends[page - 1] };
                    let (page_positions, after) = rest.split_at(count_leading(rest, |row| row < page_ends[page]));
                    visit(page, PageRows::Positions { first, positions: page_positions })?;
                    rest = after;
                }
            }
        }
        Ok(())
    }
}

/// Calls `visit` for each page that contains some of the consecutive `rows`. The arguments are the ordinal of the page,
/// its first row, and the part of `rows` in it.
fn for_each_page<E>(
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

/// Number of leading elements that pass. No later element may pass. Searches exponentially, so it is fast if few
/// elements pass.
fn count_leading(numbers: &[u32], passes: impl Fn(u32) -> bool) -> usize {
    let mut step = 1;
    while step < numbers.len() && passes(numbers[step - 1]) {
        step *= 2;
    }
    let (counted, bound) = (step / 2, step.min(numbers.len()));
    counted + numbers[counted..bound].partition_point(|number| passes(*number))
}

/// Selected rows of one page. Visitors get the ordinal of each row in the page.
#[derive(Clone, Debug)]
pub(crate) enum PageRows<'a> {
    /// Consecutive rows, as ordinals in the page.
    Range(Range<usize>),
    /// Runs of rows, as positions in the segment. The page begins with row `first` of the segment.
    Runs { first: usize, runs: SelectedRuns<'a> },
    /// Positions in the segment. The page begins with row `first` of the segment.
    Positions { first: u32, positions: &'a [u32] },
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
    pub fn for_each_run(&self, mut visit: impl FnMut(Range<usize>)) -> bool {
        match self {
            Self::Range(rows) => visit(rows.clone()),
            Self::Runs { first, runs } => runs.iter().for_each(|run| visit(run.start - first..run.end - first)),
            Self::Positions { .. } => return false,
        }
        true
    }

    /// Calls `visit` with the ordinal of each row in the page.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(usize)) {
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

    /// Calls `visit` with the ordinal of each row in the page. Stops at the first error.
    #[inline]
    pub fn try_for_each<E>(&self, mut visit: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
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
    use super::*;

    #[test]
    fn leading_numbers_are_counted() {
        let numbers: Vec<u32> = (0..70).collect();
        for length in 0..70 {
            for bound in 0..75 {
                assert_eq!(count_leading(&numbers[..length], |number| number < bound), length.min(bound as usize));
            }
        }
    }

    #[test]
    fn rows_are_visited_page_by_page() {
        let page_ends = [3, 5, 9];
        for rows in [vec![0, 1, 2, 3, 4, 5, 6, 7, 8], vec![2, 3], vec![0, 2, 4, 8], vec![2, 6, 7], vec![5], vec![]] {
            let mut bitmap = Bitmap::none(9);
            rows.iter().for_each(|row| bitmap.set(*row as usize));
            let ranges = bitmap.runs();
            for selected in [Rows::from_positions(&rows), Rows::Runs(SelectedRuns::new(&ranges, 0..9))] {
                let (mut visited, mut tried, mut in_runs) = (vec![], vec![], vec![]);
                let result = selected.for_each_page(&page_ends, |page, part| {
                    let first = if page == 0 { 0 } else { page_ends[page - 1] };
                    let row_of = |row: usize| row as u32 + first;
                    part.for_each(|row| visited.push(row_of(row)));
                    part.try_for_each(|row| {
                        tried.push(row_of(row));
                        Ok::<_, ()>(())
                    })?;
                    if !part.for_each_run(|run| in_runs.extend(run.map(row_of))) {
                        part.for_each(|row| in_runs.push(row_of(row)));
                    }
                    assert!(part.len() > 0 && row_of(0) <= visited[visited.len() - part.len()]);
                    assert!(visited[visited.len() - 1] < page_ends[page]);
                    Ok::<_, ()>(())
                });
                assert_eq!((result, &visited, &tried, &in_runs), (Ok(()), &rows, &rows, &rows));
            }
        }
    }
}
