//! Mapping of rows to groups.
//!
//! ```text
//! l_returnflag   codes 0..3    ┐
//! l_linestatus   codes 0..2    ┘ index = returnflag * 2 + linestatus, 0..6
//!                                  array of the segment: index -> group of the partition, or none yet
//! ```
//!
//! Suppose that each key column of a segment has codes, or numbers in a small range. The keys of a row then form a
//! small number, the *index* of the row. An array maps each index to a group. When an index first occurs in a segment,
//! its key values are looked up in the hash table of the scan's partition. If all keys are numbers in small ranges in
//! all segments, the segments share one array, and each group is looked up once. In other segments each row is looked
//! up.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use taut_block::{BlockError, ScanReport, SegmentReader, Selection};
use taut_types::ColumnIndex;

use super::sums::Groups;

/// Maximum number of indexes of a segment. With more, rows are looked up by hash, because each segment needs
/// a new array.
const SEGMENT_INDEXES_MAX: usize = 1 << 17;
/// Maximum number of indexes of the array that segments share, with four bytes each.
pub const SHARED_INDEXES_MAX: usize = 1 << 21;
/// Entry of an index that has no group yet.
const NO_GROUP: u32 = u32::MAX;
/// Minimum average rows of a run. Shorter runs are read as rows.
const RUN_ROWS_MIN: usize = 8;

/// An error of storage or of DataFusion.
pub enum AggregateError {
    Block(BlockError),
    Engine(datafusion::common::DataFusionError),
}

impl From<BlockError> for AggregateError {
    fn from(error: BlockError) -> Self {
        Self::Block(error)
    }
}

impl From<datafusion::common::DataFusionError> for AggregateError {
    fn from(error: datafusion::common::DataFusionError) -> Self {
        Self::Engine(error)
    }
}

/// Conversion of a key column to a number below `count`. The last number stands for null, if there are nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMapping {
    /// The code of the value.
    Codes { count: usize },
    /// The distance of the number from `low`.
    Distance { low: i64, count: usize },
}

impl KeyMapping {
    /// Returns the conversion of a column whose numbers have these bounds. `None` if their distance overflows.
    pub fn from_bounds((low, high): (i128, i128)) -> Option<Self> {
        let count = usize::try_from(high.checked_sub(low)?).ok()?.checked_add(2)?;
        Some(Self::Distance { low: i64::try_from(low).ok()?, count })
    }

    /// Number of possible values.
    pub fn count(self) -> usize {
        match self {
            Self::Codes { count } | Self::Distance { count, .. } => count,
        }
    }
}

/// Method by which the rows of a segment find their groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentKeys {
    /// There are no keys, and one group.
    None,
    /// By an index into the array of the segment, or into the array that segments share.
    Indexed { mappings: Vec<KeyMapping>, uses_shared_array: bool },
    /// By their values.
    Hashed,
}

/// Groups of the rows of a batch.
#[derive(Debug, Default)]
pub struct BatchGroups {
    runs: Vec<(u32, usize)>,
    rows: Vec<u32>,
    is_in_runs: bool,
}

impl BatchGroups {
    /// The groups, as runs or by row.
    pub fn get(&self) -> Groups<'_> {
        if self.is_in_runs { Groups::Runs(&self.runs) } else { Groups::Rows(&self.rows) }
    }

    /// Whether the groups are in runs.
    pub fn is_in_runs(&self) -> bool {
        self.is_in_runs
    }
}

/// Groups of a partition.
pub struct PartitionGroups {
    columns: Vec<ColumnIndex>,
    values: Box<dyn GroupValues>,
    /// Group of each index in the current segment.
    segment_groups: Vec<u32>,
    /// Group of each index in all segments. Empty without `shared_mappings`.
    shared_groups: Vec<u32>,
    shared_mappings: Option<Vec<KeyMapping>>,
    scratch: Vec<usize>,
}

impl PartitionGroups {
    /// Creates a map without groups. `shared_mappings` are the conversions of the keys that segments share, if there
    /// are any. If a segment has numbers outside of these ranges, all its rows are looked up by hash.
    pub fn new(columns: Vec<ColumnIndex>, schema: SchemaRef, shared_mappings: Option<Vec<KeyMapping>>) -> Result<Self> {
        let values = new_group_values(schema, &GroupOrdering::None)?;
        let (segment_groups, shared_groups) = (Vec::new(), Vec::new());
        let mut keys = Self { columns, values, segment_groups, shared_groups, shared_mappings, scratch: Vec::new() };
        keys.clear_shared_groups();
        Ok(keys)
    }

    fn clear_shared_groups(&mut self) {
        self.shared_groups.clear();
        if let Some(mappings) = &self.shared_mappings {
            self.shared_groups.resize(mappings.iter().map(|mapping| mapping.count()).product(), NO_GROUP);
        }
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        if self.columns.is_empty() { 1 } else { self.values.len() }
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.values.size() + (self.segment_groups.capacity() + self.shared_groups.capacity()) * size_of::<u32>()
    }

    /// Returns the key values of all groups, one array per key, and removes the groups.
    pub fn emit_all(&mut self) -> Result<Vec<ArrayRef>> {
        if self.columns.is_empty() {
            return Ok(Vec::new());
        }
        let arrays = self.values.emit(EmitTo::All)?;
        // With several columns, `values` still stores the hashes of the emitted groups, which would lead to groups that
        // no longer exist.
        self.values.clear_shrink(0);
        self.clear_shared_groups();
        Ok(arrays)
    }

    /// Chooses the method by which the rows of a segment find their groups.
    pub fn begin_segment(&mut self, reader: &mut SegmentReader<'_>) -> Result<SegmentKeys, AggregateError> {
        if self.columns.is_empty() {
            return Ok(SegmentKeys::None);
        }
        if let Some(mappings) = &self.shared_mappings
            && !self.has_key_runs(reader)?
        {
            for (column, mapping) in self.columns.iter().zip(mappings) {
                if !is_in_range(mapping, reader, *column)? {
                    return Ok(SegmentKeys::Hashed);
                }
            }
            return Ok(SegmentKeys::Indexed { mappings: mappings.clone(), uses_shared_array: true });
        }
        let (mut mappings, mut indexes) = (Vec::with_capacity(self.columns.len()), 1_usize);
        for column in &self.columns {
            let mapping = match reader.code_count(*column)? {
                Some(count) => Some(KeyMapping::Codes { count }),
                None => match reader.number_summary(*column)? {
                    Some(summary) => KeyMapping::from_bounds(summary.bounds.unwrap_or((0, 0))),
                    None => None,
                },
            };
            let Some(mapping) = mapping else { return Ok(SegmentKeys::Hashed) };
            indexes = indexes.saturating_mul(mapping.count());
            if indexes > SEGMENT_INDEXES_MAX {
                return Ok(SegmentKeys::Hashed);
            }
            mappings.push(mapping);
        }
        self.segment_groups.clear();
        self.segment_groups.resize(indexes, NO_GROUP);
        Ok(SegmentKeys::Indexed { mappings, uses_shared_array: false })
    }

    /// Whether all keys are stored in runs, with few enough codes that the runs can be long.
    fn has_key_runs(&self, reader: &mut SegmentReader<'_>) -> Result<bool, AggregateError> {
        let all = Selection::All(reader.rows());
        let mut indexes = 1_usize;
        for column in &self.columns {
            let Some(count) = reader.code_count(*column)? else { return Ok(false) };
            indexes = indexes.saturating_mul(count);
            if reader.code_runs(&all, 0..1, *column)?.is_none() {
                return Ok(false);
            }
        }
        Ok(indexes.saturating_mul(RUN_ROWS_MIN) <= reader.rows())
    }

    /// Finds the groups of some selected rows. Creates new groups as needed.
    pub fn find_groups(
        &mut self,
        keys: &SegmentKeys,
        reader: &mut SegmentReader<'_>,
        (selection, rows): (&Selection, std::ops::Range<usize>),
        groups: &mut BatchGroups,
        report: &mut ScanReport,
    ) -> Result<(), AggregateError> {
        groups.runs.clear();
        groups.rows.clear();
        groups.is_in_runs = false;
        match keys {
            SegmentKeys::None => {
                groups.is_in_runs = true;
                groups.runs.push((0, rows.len()));
            }
            SegmentKeys::Indexed { mappings, uses_shared_array } => {
                if self.find_runs(mappings, reader, (selection, rows.clone()), groups)? {
                    groups.is_in_runs = true;
                } else {
                    self.compute_indexes(mappings, reader, (selection, rows.clone()), groups)?;
                }
                self.replace_indexes(*uses_shared_array, reader, (selection, rows), groups, report)?;
            }
            SegmentKeys::Hashed => {
                let arrays = reader.project(selection, rows, &self.columns, report)?;
                self.values.intern(&arrays, &mut self.scratch)?;
                // There are at most as many groups as rows.
                groups.rows.extend(self.scratch.iter().map(|group| *group as u32));
            }
        }
        Ok(())
    }

    /// Computes indexes in runs. Returns false unless all keys are stored in long runs.
    fn find_runs(
        &self,
        mappings: &[KeyMapping],
        reader: &mut SegmentReader<'_>,
        (selection, rows): (&Selection, std::ops::Range<usize>),
        groups: &mut BatchGroups,
    ) -> Result<bool, AggregateError> {
        if mappings.iter().any(|mapping| matches!(mapping, KeyMapping::Distance { .. })) {
            return Ok(false);
        }
        let mut merged: Vec<(u32, usize)> = vec![(0, rows.len())];
        for (column, mapping) in self.columns.iter().zip(mappings) {
            let Some(runs) = reader.code_runs(selection, rows.clone(), *column)? else { return Ok(false) };
            merged = split_runs(&merged, &runs, mapping.count());
            if merged.len() * RUN_ROWS_MIN > rows.len() {
                return Ok(false);
            }
        }
        groups.runs = merged;
        Ok(true)
    }

    /// Computes the index of each row.
    fn compute_indexes(
        &self,
        mappings: &[KeyMapping],
        reader: &mut SegmentReader<'_>,
        (selection, rows): (&Selection, std::ops::Range<usize>),
        groups: &mut BatchGroups,
    ) -> Result<(), AggregateError> {
        let indexes = &mut groups.rows;
        indexes.resize(rows.len(), 0);
        for (column, mapping) in self.columns.iter().zip(mappings) {
            // At most 2^21 indexes.
            let count = mapping.count() as u32;
            match mapping {
                KeyMapping::Codes { .. } => {
                    let codes = reader.codes(selection, rows.clone(), *column)?.unwrap_or_default();
                    indexes.iter_mut().zip(codes).for_each(|(index, code)| *index = *index * count + u32::from(code));
                }
                KeyMapping::Distance { low, .. } => {
                    let (numbers, nulls) = reader.numbers(selection, rows.clone(), *column)?.unwrap_or_default();
                    let last = count - 1;
                    // Corrupt numbers may lie outside their bounds.
                    let ordinal = |number: i64| (number.wrapping_sub(*low) as u64).min(u64::from(last)) as u32;
                    match nulls {
                        None => indexes
                            .iter_mut()
                            .zip(numbers)
                            .for_each(|(index, number)| *index = *index * count + ordinal(number)),
                        Some(nulls) => {
                            for ((index, number), is_valid) in indexes.iter_mut().zip(numbers).zip(nulls.iter()) {
                                *index = *index * count + if is_valid { ordinal(number) } else { last };
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Replaces indexes by groups. Creates new groups as needed.
    fn replace_indexes(
        &mut self,
        uses_shared_array: bool,
        reader: &mut SegmentReader<'_>,
        (selection, rows): (&Selection, std::ops::Range<usize>),
        groups: &mut BatchGroups,
        report: &mut ScanReport,
    ) -> Result<(), AggregateError> {
        // First rows of new groups, and their indexes.
        let (mut positions, mut new) = (Vec::new(), Vec::new());
        let mut row = rows.start;
        let table = if uses_shared_array { &mut self.shared_groups } else { &mut self.segment_groups };
        let mut record_index = |index: u32, row: usize| {
            let group = &mut table[index as usize];
            if *group == NO_GROUP {
                *group = 0;
                positions.push(selection.position(row));
                new.push(index);
            }
        };
        match groups.is_in_runs {
            true => groups.runs.iter().for_each(|(index, length)| {
                record_index(*index, row);
                row += length;
            }),
            false => groups.rows.iter().zip(rows).for_each(|(index, row)| record_index(*index, row)),
        }
        if !new.is_empty() {
            let count = positions.len();
            let arrays = reader.project(&Selection::Positions(positions), 0..count, &self.columns, report)?;
            self.values.intern(&arrays, &mut self.scratch)?;
            for (index, group) in new.iter().zip(&self.scratch) {
                // There are at most as many groups as rows.
                table[*index as usize] = *group as u32;
            }
        }
        match groups.is_in_runs {
            true => groups.runs.iter_mut().for_each(|(index, _)| *index = table[*index as usize]),
            false => groups.rows.iter_mut().for_each(|index| *index = table[*index as usize]),
        }
        Ok(())
    }
}

/// Whether the numbers of a segment are within the range of a mapping for the whole table.
fn is_in_range(mapping: &KeyMapping, reader: &SegmentReader<'_>, column: ColumnIndex) -> Result<bool, BlockError> {
    let KeyMapping::Distance { low, count } = mapping else { return Ok(false) };
    let Some(summary) = reader.number_summary(column)? else { return Ok(false) };
    // The last number stands for null.
    let (low, high) = (i128::from(*low), i128::from(*low) + *count as i128 - 2);
    Ok(summary.bounds.is_none_or(|(least, greatest)| low <= least && greatest <= high))
}

/// Splits runs of indexes by the runs of a further key.
fn split_runs(outer: &[(u32, usize)], inner: &[(u16, usize)], count: usize) -> Vec<(u32, usize)> {
    let mut merged: Vec<(u32, usize)> = Vec::with_capacity(outer.len() + inner.len());
    let mut inner = inner.iter().copied();
    let mut current = inner.next();
    for (index, rows) in outer {
        let mut left = *rows;
        while left > 0
            && let Some((code, length)) = &mut current
        {
            let shared = left.min(*length);
            // At most 2^17 indexes.
            merged.push((index * count as u32 + u32::from(*code), shared));
            (left, *length) = (left - shared, *length - shared);
            if *length == 0 {
                current = inner.next();
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_runs_cuts_where_either_key_changes() {
        assert_eq!(split_runs(&[(0, 6)], &[(1, 2), (0, 4)], 2), [(1, 2), (0, 4)]);
        assert_eq!(split_runs(&[(1, 2), (0, 4)], &[(2, 3), (0, 3)], 3), [(5, 2), (2, 1), (0, 3)]);
    }

    #[test]
    fn from_bounds_counts_null() {
        assert_eq!(KeyMapping::from_bounds((5, 7)), Some(KeyMapping::Distance { low: 5, count: 4 }));
        assert_eq!(KeyMapping::from_bounds((i128::MIN, i128::MAX)), None);
    }
}
