//! Sort runs of a table, and the partitions of a scan that reads them in order.

use std::ops::Range;

use datafusion::arrow::compute::SortOptions;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use taut_store::Table;
use taut_types::SortColumn;

/// Number of sort runs up to which a merge is faster than a sort.
const MERGED_RUNS_MAX: usize = 64;

/// The blocks of a table as sort runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedBlocks {
    /// Ordinals of the blocks of each run in the table.
    pub runs: Vec<Range<usize>>,
}

impl SortedBlocks {
    /// The sort runs of a table. `None` if the table has no sort order.
    pub fn from_table(table: &Table) -> Option<Self> {
        if table.design.sort_by.is_empty() {
            return None;
        }
        let ends = table.runs.iter().skip(1).copied().chain([table.blocks.len()]);
        Some(Self { runs: table.runs.iter().copied().zip(ends).map(|(start, end)| start..end).collect() })
    }

    /// Splits the blocks among partitions of a scan. A partition gets one run, or a part of the only run, so that it
    /// returns its rows in order. Returns `None` if a partition would have to read several runs, or if there are too
    /// many runs to merge.
    pub fn partitions(&self, count: usize) -> Option<Vec<Range<usize>>> {
        match self.runs.as_slice() {
            [] => Some(vec![0..0; count]),
            [run] => {
                let share = run.len().div_ceil(count).max(1);
                let start = |index: usize| (run.start + index * share).min(run.end);
                Some((0..count).map(|index| start(index)..start(index + 1)).collect())
            }
            // A merge holds a batch and an open segment of each run.
            runs if count > 1 && runs.len() <= MERGED_RUNS_MAX.max(8 * count) => {
                let mut partitions = runs.to_vec();
                partitions.resize(partitions.len().max(count), 0..0);
                Some(partitions)
            }
            _ => None,
        }
    }
}

/// Whether the sort order of a table satisfies a requested order: the request must be a prefix of it.
pub fn satisfies_order(sort_by: &[SortColumn], requested: &[PhysicalSortExpr], table_columns: &[usize]) -> bool {
    requested.len() <= sort_by.len()
        && requested.iter().zip(sort_by).all(|(request, stored)| {
            let column = request.expr.downcast_ref::<Column>().and_then(|column| table_columns.get(column.index()));
            column == Some(&stored.column.index())
                && request.options == SortOptions { descending: stored.descending, nulls_first: stored.nulls_first }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_is_cut_and_several_are_merged() {
        let one = SortedBlocks { runs: std::iter::once(0..5).collect() };
        assert_eq!(one.partitions(2), Some(vec![0..3, 3..5]));
        assert_eq!(one.partitions(8).unwrap().iter().map(Range::len).sum::<usize>(), 5);
        let two = SortedBlocks { runs: vec![0..2, 2..4] };
        assert_eq!(two.partitions(3), Some(vec![0..2, 2..4, 0..0]));
        assert_eq!(two.partitions(1), None);
        // Two partitions merge at most 64 runs, nine partitions at most 72.
        let many = SortedBlocks { runs: (0..65).map(|run| run..run + 1).collect() };
        assert_eq!((many.partitions(2), many.partitions(9).unwrap().len()), (None, 65));
    }
}
