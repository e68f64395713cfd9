//! Sparse index: finds the blocks of a sorted table that may hold a value, from the catalog alone.
//!
//! For each block, the catalog contains the bounds of each sort column. Erling's row-wise index (2012) is similar: its
//! top level has an entry for each page. Within a run, the bounds of the first column ascend or descend from block to
//! block, so binary search finds the blocks that may have a value of it. Of these, the bounds of the other columns
//! exclude more: blocks of one value of the first column have disjoint bounds of the second. No other block is opened.
//!
//! ```text
//!   block            0                    1                    2
//!   first column     [a, a]               [a, b]               [b, b]
//!   second column    [1, 5]               [1, 9]               [4, 9]       first = a AND second = 7: block 1
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use taut_types::{ColumnIndex, ColumnPredicate, ColumnStatistics, Datum, DatumPredicate, TableDesign};

use super::{BlockEntry, Table};
use crate::BlockFile;

/// Bounds of a sort column in a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortBounds {
    /// The column.
    pub column: ColumnIndex,
    /// Lower bound of its values.
    pub min: Datum,
    /// Upper bound of its values.
    pub max: Datum,
    /// Whether the column has nulls in the block.
    pub has_nulls: bool,
}

impl SortBounds {
    /// The bounds of the sort columns of a design that have bounds, from the statistics of a block.
    pub(crate) fn of(design: &TableDesign, statistics: &[ColumnStatistics]) -> Box<[Self]> {
        let bounds = design.sort_by.iter().filter_map(|key| {
            let ColumnStatistics { min, max, nulls, .. } = statistics.get(key.column.index())?;
            Some(Self { column: key.column, min: min.clone()?, max: max.clone()?, has_nulls: *nulls > 0 })
        });
        bounds.collect()
    }

    fn may_admit(&self, predicate: &ColumnPredicate) -> bool {
        predicate.column != self.column || predicate.may_admit(Some((&self.min, &self.max)), self.has_nulls)
    }
}

/// The bounds of a block as the catalog stores them: an array. Before format version 20, they were those of the first
/// sort column, or null.
#[derive(Default)]
pub(super) struct BoundsOfBlock(pub Box<[SortBounds]>);

impl<'de> Deserialize<'de> for BoundsOfBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundsVisitor)
    }
}

struct BoundsVisitor;

impl<'de> Visitor<'de> for BoundsVisitor {
    type Value = BoundsOfBlock;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bounds of sort columns")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BoundsOfBlock::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let bounds = SortBounds::deserialize(MapAccessDeserializer::new(map))?;
        Ok(BoundsOfBlock(Box::new([bounds])))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, bounds: A) -> Result<Self::Value, A::Error> {
        Box::deserialize(SeqAccessDeserializer::new(bounds)).map(BoundsOfBlock)
    }
}

impl BlockEntry {
    /// Whether the block may have rows that pass all of `predicates`, judged by the catalog alone.
    pub fn may_match(&self, predicates: &[ColumnPredicate]) -> bool {
        self.sort_bounds.iter().all(|bounds| predicates.iter().all(|predicate| bounds.may_admit(predicate)))
    }
}

/// The runs of a table, each with the direction in which the bounds of its blocks are sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseIndex {
    runs: Vec<RunOrder>,
}

#[derive(Clone, Debug)]
struct RunOrder {
    blocks: Range<usize>,
    /// The column whose bounds are sorted from block to block, and the direction. `None` if the bounds are not sorted.
    sorted_by: Option<(ColumnIndex, Direction)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

impl SparseIndex {
    /// Reads the bounds of all blocks. The order is derived from the bounds alone.
    fn of(table: &Table) -> Self {
        let run = |(run, start): (usize, &usize)| {
            let end = table.runs.get(run + 1).copied().unwrap_or(table.blocks.len());
            let bounds: Option<Vec<&SortBounds>> =
                table.blocks[*start..end].iter().map(|block| block.entry().sort_bounds.first()).collect();
            RunOrder { blocks: *start..end, sorted_by: bounds.and_then(|bounds| sort_direction(&bounds)) }
        };
        Self { runs: table.runs.iter().enumerate().map(run).collect() }
    }
}

/// The direction of the bounds from block to block, if all are of one column.
fn sort_direction(bounds: &[&SortBounds]) -> Option<(ColumnIndex, Direction)> {
    let column = bounds.first()?.column;
    let ascends = |pair: &[&SortBounds]| pair[0].min <= pair[1].min && pair[0].max <= pair[1].max;
    let descends = |pair: &[&SortBounds]| pair[0].min >= pair[1].min && pair[0].max >= pair[1].max;
    if bounds.iter().any(|sort_bounds| sort_bounds.column != column) {
        None
    } else if bounds.windows(2).all(ascends) {
        Some((column, Direction::Ascending))
    } else if bounds.windows(2).all(descends) {
        Some((column, Direction::Descending))
    } else {
        None
    }
}

impl Table {
    /// Indexes of the blocks that may have rows that pass all of `predicates`, judged by the catalog alone.
    pub fn blocks_that_may_match<'a>(&'a self, predicates: &'a [ColumnPredicate]) -> impl Iterator<Item = usize> + 'a {
        let runs = &self.sparse_index.get_or_init(|| SparseIndex::of(self)).runs;
        let indexes = runs.iter().flat_map(move |run| {
            let can_search_by = |predicate: &&ColumnPredicate, column| {
                predicate.column == column && !predicate.negated && predicate.condition != DatumPredicate::Null
            };
            let sorted_by = run.sorted_by.and_then(|(column, direction)| {
                predicates
                    .iter()
                    .find(|predicate| can_search_by(predicate, column))
                    .map(|predicate| (predicate, direction))
            });
            match sorted_by {
                Some((predicate, direction)) => self.search_run(run.blocks.clone(), &predicate.condition, direction),
                None => run.blocks.clone(),
            }
        });
        let admitted = self.admitted_partitions(predicates).unwrap_or_default();
        let is_admitted = move |index: &usize| match self.partition_of(*index) {
            Some(partition) => admitted.get(partition as usize).copied().unwrap_or(true),
            None => true,
        };
        indexes.filter(is_admitted).filter(|index| self.blocks[*index].entry().may_match(predicates))
    }

    /// The blocks of a sorted run that may have values which pass a predicate.
    fn search_run(&self, run: Range<usize>, predicate: &DatumPredicate, direction: Direction) -> Range<usize> {
        let blocks = &self.blocks[run.clone()];
        let is_below = |block: &Arc<BlockFile>| {
            block.entry().sort_bounds.first().is_some_and(|sort_bounds| predicate.is_above(&sort_bounds.max))
        };
        let is_above = |block: &Arc<BlockFile>| {
            block.entry().sort_bounds.first().is_some_and(|sort_bounds| predicate.is_below(&sort_bounds.min))
        };
        let (low, high) = match direction {
            Direction::Ascending => {
                (blocks.partition_point(is_below), blocks.partition_point(|block| !is_above(block)))
            }
            Direction::Descending => {
                (blocks.partition_point(is_above), blocks.partition_point(|block| !is_below(block)))
            }
        };
        run.start + low..run.start + high.max(low)
    }
}

#[cfg(test)]
mod tests {
    use taut_types::{Column, LogicalType, Schema};

    use super::*;
    use crate::Store;
    use crate::catalog::{BlockId, TableId};

    /// A minimum and a maximum.
    type Bounds = (i128, i128);

    /// A table of blocks with these bounds of two columns; a run begins at each of `runs`. A column whose minimum
    /// exceeds its maximum has no bounds.
    fn table(bounds: &[(Bounds, Bounds)], runs: &[usize]) -> Table {
        let columns = ["k", "l"].map(|name| Column::new(name, LogicalType::BigInt, true)).to_vec();
        let schema = Schema::new(columns).unwrap();
        let store = Store::in_memory().unwrap();
        let directory = store.directory();
        let block = |(number, (first, second)): (usize, &(Bounds, Bounds))| {
            let bounds = [(ColumnIndex(0), first), (ColumnIndex(1), second)].into_iter();
            let bounds = bounds.filter(|(_, (min, max))| min <= max).map(|(column, (min, max))| SortBounds {
                column,
                min: Datum::Number(*min),
                max: Datum::Number(*max),
                has_nulls: false,
            });
            let entry = BlockEntry {
                id: BlockId(number as u64),
                file_bytes: 0,
                header_bytes: 0,
                header_checksum: 0,
                rows: 1,
                plain_bytes: 0,
                segments: 1,
                layout: "column".into(),
                sort_bounds: bounds.collect(),
            };
            Arc::new(BlockFile::new(Arc::clone(directory), entry))
        };
        Table {
            blocks: Arc::new(bounds.iter().enumerate().map(block).collect()),
            runs: Arc::new(runs.to_vec()),
            ..Table::empty(TableId(1), "t", Arc::new(schema), Arc::new(TableDesign::default()))
        }
    }

    #[test]
    fn blocks_found_by_search_are_those_whose_bounds_admit() {
        const NONE: Bounds = (1, 0);
        let of_first = |bounds: &[Bounds], runs: &[usize]| {
            table(&bounds.iter().map(|first| (*first, NONE)).collect::<Vec<_>>(), runs)
        };
        let tables = [
            of_first(&[(0, 4), (4, 4), (4, 9), (12, 20)], &[0]),
            of_first(&[(12, 20), (4, 9), (4, 4), (0, 4)], &[0]),
            of_first(&[(0, 4), (4, 9), (9, 7 + 9), (3, 5), (1, 2)], &[0, 3]),
            of_first(&[(5, 9), (0, 3), (4, 8)], &[0]),
            of_first(&[(0, 4), NONE, (4, 9)], &[0]),
            of_first(&[], &[]),
            table(&[((0, 4), (3, 9)), ((4, 4), (0, 2)), ((4, 4), (3, 7)), ((4, 6), (0, 9))], &[0]),
            table(&[(NONE, (3, 9)), ((4, 4), (0, 2)), ((4, 4), NONE)], &[0]),
        ];
        let ranges = (-1..22).flat_map(|low| (low..22).map(move |high| DatumPredicate::Range { low, high }));
        let lists = [
            DatumPredicate::OneOf(Arc::from([4])),
            DatumPredicate::OneOf(Arc::from([2, 13])),
            DatumPredicate::OneOf(Arc::from([])),
        ];
        let conditions: Vec<DatumPredicate> = ranges.chain(lists).collect();
        let second = ColumnPredicate {
            column: ColumnIndex(1),
            condition: DatumPredicate::Range { low: 3, high: 3 },
            negated: false,
        };
        for table in &tables {
            for condition in &conditions {
                for negated in [false, true] {
                    let first = ColumnPredicate { column: ColumnIndex(0), condition: condition.clone(), negated };
                    for predicates in [vec![first.clone()], vec![second.clone(), first.clone()]] {
                        let found: Vec<_> = table.blocks_that_may_match(&predicates).collect();
                        let may_match = |index: &usize| table.blocks[*index].entry().may_match(&predicates);
                        let expected: Vec<_> = (0..table.blocks.len()).filter(may_match).collect();
                        assert_eq!(found, expected, "{predicates:?} of {table:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn bounds_of_further_columns_exclude_blocks() {
        let equals = |column, value: i128| ColumnPredicate {
            column: ColumnIndex(column),
            condition: DatumPredicate::OneOf(Arc::from([value])),
            negated: false,
        };
        let table = table(&[((1, 1), (1, 5)), ((1, 2), (1, 9)), ((2, 2), (4, 9))], &[0]);
        let found = |first, second| {
            let predicates = [equals(0, first), equals(1, second)];
            table.blocks_that_may_match(&predicates).collect::<Vec<_>>()
        };
        assert_eq!(found(1, 7), [1]);
        assert_eq!(found(1, 3), [0, 1]);
        assert_eq!(found(2, 9), [1, 2]);
        assert_eq!(found(3, 9), [0_usize; 0]);
    }
}
