//! Maps the columns of a table to the columns of a block. The map is needed if columns of the table were added or
//! dropped after the block was written.
//!
//! ```text
//!   ALTER TABLE t DROP COLUMN b, ADD COLUMN d int DEFAULT 7
//!
//!   columns of the block    a  b  c           d is not stored: each row of the block has the same value
//!                           │     │
//!   columns of the table    a     c  d = 7
//! ```
//!
//! Neither `DROP COLUMN` nor `ADD COLUMN` rewrites the block. Only the next rewrite of the block, for example by
//! compaction, drops the bytes of `b` and stores `d`.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use serde::{Deserialize, Serialize};
use taut_encoding::encode_repeated;
use taut_index::{Zone, lower_prefix, upper_prefix};
use taut_types::{
    ColumnIndex, ColumnStatistics, Datum, GroupKind, IndexDesign, IndexKind, LogicalType, Schema, array_of_datum,
};

use crate::error::Corrupt;
use crate::statistics::{ColumnSummary, StatisticsBuilder};
use crate::values::ColumnValues;
use crate::{Block, BlockError};

/// Section number in errors about columns that the block does not store.
pub(crate) const NOT_STORED: u32 = u32::MAX;

/// Source, in one block, of the values of each column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ColumnMap {
    sources: Vec<ColumnSource>,
}

/// Source, in one block, of the values of one column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnSource {
    /// The block stores the values in its column with this index.
    Stored(ColumnIndex),
    /// The block does not store the values, because the column was added after the block was written.
    Added(AddedColumn),
}

/// A column that a block does not store. All its rows have the same value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddedColumn {
    /// Type of the column.
    #[serde(rename = "type")]
    pub logical_type: LogicalType,
    /// Value of each row. `None` is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Datum>,
}

impl ColumnMap {
    /// Creates the map of a block that stores all `columns` columns of its table, in the same order.
    pub fn identity(columns: usize) -> Self {
        Self { sources: (0..columns).map(|column| ColumnSource::Stored(column.into())).collect() }
    }

    /// Returns the map after `column` is added to the table as its last column.
    #[must_use]
    pub fn with_added(&self, column: AddedColumn) -> Self {
        let added = std::iter::once(ColumnSource::Added(column));
        Self { sources: self.sources.iter().cloned().chain(added).collect() }
    }

    /// Returns the map after a column is dropped from the table.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn without(&self, dropped: ColumnIndex) -> Self {
        let mut sources = self.sources.clone();
        sources.remove(dropped.index());
        Self { sources }
    }

    /// The source of each column of the table, in order.
    pub fn sources(&self) -> &[ColumnSource] {
        &self.sources
    }

    /// Checks that the map fits a table with this schema. The error is the condition that the map does not meet.
    /// [`Block::with_columns`] checks that the block has the stored columns.
    ///
    /// # Errors
    /// If the number of columns or the type of an added column differs from the schema. If an added value does not fit
    /// its type. If two columns of the table refer to the same column of the block.
    pub fn check(&self, schema: &Schema) -> Result<(), &'static str> {
        if self.sources.len() != schema.len() {
            return Err("a source for each column of the table");
        }
        let mut stored: Vec<ColumnIndex> = vec![];
        for (source, column) in self.sources.iter().zip(schema.columns()) {
            match source {
                ColumnSource::Stored(index) => stored.push(*index),
                ColumnSource::Added(added) if added.logical_type != column.logical_type => {
                    return Err("added columns of the types that the table declares");
                }
                ColumnSource::Added(added) if added.array().is_none() => {
                    return Err("values that fit the types of added columns");
                }
                ColumnSource::Added(_) => {}
            }
        }
        stored.sort_unstable();
        match stored.windows(2).all(|pair| pair[0] < pair[1]) {
            true => Ok(()),
            false => Err("a different column of the block for each stored column"),
        }
    }
}

impl AddedColumn {
    /// The value as an array of one row. Returns `None` if the value does not fit the type.
    fn array(&self) -> Option<ArrayRef> {
        array_of_datum(self.value.as_ref(), self.logical_type)
    }

    /// Statistics of this column over `rows` rows.
    ///
    /// # Errors
    /// If the value does not fit the type.
    pub fn statistics(&self, rows: u64) -> Result<ColumnStatistics, BlockError> {
        let (values, mut builder) = self.value_and_statistics()?;
        builder.segments.push((values.zones(&[1], &mut builder.bounds), values.plain_bytes()));
        let (_, of_one_row) = builder.finish(self.logical_type);
        if rows == 0 {
            return Ok(ColumnStatistics::empty());
        }
        let (nulls, plain_bytes) = (of_one_row.nulls * rows, of_one_row.plain_bytes.saturating_mul(rows));
        Ok(ColumnStatistics { rows, nulls, plain_bytes, ..of_one_row })
    }

    fn value_and_statistics(&self) -> Result<(ColumnValues, StatisticsBuilder), BlockError> {
        let values = self.array().and_then(|array| ColumnValues::new(array, self.logical_type).ok());
        let values = values.ok_or_else(invalid_value)?;
        let mut builder = StatisticsBuilder::default();
        values.sketch(&mut builder.sketch);
        Ok((values, builder))
    }

    /// Parsed statistics that a block would store for this column. `segment_rows` yields the number of rows of each
    /// segment.
    pub(crate) fn summary(
        &self,
        segment_rows: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Arc<ColumnSummary>, BlockError> {
        let (values, mut builder) = self.value_and_statistics()?;
        let bounds = match &self.value {
            None => None,
            Some(Datum::Bytes(bytes)) => {
                Some((Datum::Bytes(lower_prefix(bytes).into()), upper_prefix(bytes).map(Datum::Bytes)))
            }
            Some(number) => Some((number.clone(), Some(number.clone()))),
        };
        // Extends the bounds of the column in the whole block to the value.
        values.zones(&[1], &mut builder.bounds);
        for rows in segment_rows.clone() {
            // A segment has at most 65,536 rows.
            let rows_end = rows as u32;
            let nulls = if self.value.is_none() { rows_end } else { 0 };
            let zone = Zone { rows_end, nulls, bounds: bounds.clone(), is_ascending: false };
            builder.segments.push((vec![zone], values.plain_bytes() * rows as u64));
        }
        let (bytes, _) = builder.finish(self.logical_type);
        ColumnSummary::parse(bytes.into(), self.logical_type, segment_rows)
            .map_err(|corrupt| corrupt.in_section(NOT_STORED))
    }

    /// Chunk that a block would store for this column in a segment of `rows` rows.
    pub(crate) fn chunk(&self, rows: usize) -> Result<Buffer, BlockError> {
        let array = self.array().ok_or_else(invalid_value)?;
        let chunk = encode_repeated(&array, self.logical_type, rows).map_err(|_| invalid_value())?;
        Ok(chunk.into())
    }
}

fn invalid_value() -> BlockError {
    Corrupt { at: 0, expected: "a value of the type of an added column" }.in_section(NOT_STORED)
}

/// Maps between the columns of a table and the columns of one of its blocks, in both directions.
#[derive(Clone, Debug)]
pub(crate) struct MappedColumns {
    map: Arc<ColumnMap>,
    /// For each column of the block, the column of the table, or `None` if it was dropped.
    of_stored: Vec<Option<ColumnIndex>>,
}

impl MappedColumns {
    /// Derives the reverse map, for a block that stores `columns` columns.
    ///
    /// # Errors
    /// If the map refers to a column that the block does not store.
    fn new(map: Arc<ColumnMap>, columns: usize) -> Result<Self, BlockError> {
        let mut of_stored = vec![None; columns];
        for (column, source) in map.sources.iter().enumerate() {
            let ColumnSource::Stored(stored) = source else { continue };
            let missing = || Corrupt { at: 0, expected: "a map of the columns of the block" }.in_section(NOT_STORED);
            *of_stored.get_mut(stored.index()).ok_or_else(missing)? = Some(ColumnIndex::from(column));
        }
        Ok(Self { map, of_stored })
    }

    pub fn map(&self) -> &Arc<ColumnMap> {
        &self.map
    }

    /// Number of columns of the table.
    pub fn columns(&self) -> usize {
        self.map.sources.len()
    }

    /// Source of a column of the table.
    pub fn source(&self, column: ColumnIndex) -> &ColumnSource {
        &self.map.sources[column.index()]
    }

    /// The column of the table that is stored in a column of the block. Returns `None` if that column was dropped.
    pub fn of_stored(&self, stored: ColumnIndex) -> Option<ColumnIndex> {
        self.of_stored[stored.index()]
    }
}

impl Block {
    /// Returns the same block with the columns of a table. `map` maps them to the columns of the block. If `map` is
    /// `None`, the block has the columns with which it was written.
    ///
    /// # Errors
    /// If the map refers to a column that the block does not store.
    pub fn with_columns(&self, map: Option<Arc<ColumnMap>>) -> Result<Self, BlockError> {
        let mapped = map.map(|map| MappedColumns::new(map, self.header.columns())).transpose()?;
        let mut block = Self::from(self.header.clone());
        block.mapped = mapped;
        Ok(block)
    }

    /// The map that was passed to [`Block::with_columns`], if any.
    pub fn column_map(&self) -> Option<&Arc<ColumnMap>> {
        self.mapped.as_ref().map(MappedColumns::map)
    }

    /// The column of the block that stores a column of the table. If the block does not store it, the error is the
    /// added column.
    pub(crate) fn source(&self, column: ColumnIndex) -> Result<ColumnIndex, &AddedColumn> {
        match self.mapped.as_ref().map(|mapped| mapped.source(column)) {
            None => Ok(column),
            Some(ColumnSource::Stored(stored)) => Ok(*stored),
            Some(ColumnSource::Added(added)) => Err(added),
        }
    }

    /// Converts an index on columns of the table to the columns with which the block was written. Returns `None` if the
    /// block does not store one of the columns.
    pub fn stored_index(&self, index: &IndexDesign) -> Option<IndexDesign> {
        let columns = index.columns.iter().map(|column| self.source(*column).ok()).collect::<Option<_>>()?;
        Some(IndexDesign { columns, ..index.clone() })
    }

    /// Group of a column, and the ordinal of the column in it. A column that is not stored is alone in a group. The
    /// index of this group is the number of stored groups plus the index of the column.
    pub(crate) fn group_and_ordinal(&self, column: ColumnIndex) -> (usize, usize) {
        match self.source(column) {
            Ok(stored) => self.header.group_and_ordinal(stored.index()),
            Err(_) => (self.header.groups() + column.index(), 0),
        }
    }

    /// Format of a stored group, or of a column that is not stored.
    pub(crate) fn group_kind(&self, group: usize) -> GroupKind {
        if group < self.header.groups() { self.header.group_kind(group) } else { GroupKind::Column }
    }

    /// The column that is not stored and forms the group with this index. Returns `None` for a stored group.
    pub(crate) fn added_column(&self, group: usize) -> Option<&AddedColumn> {
        let column = group.checked_sub(self.header.groups())?;
        self.source(ColumnIndex::from(column)).err()
    }

    /// Kind of an index of the block, and its columns in the table. Returns `None` if one of the columns was dropped.
    pub(crate) fn index(&self, index: usize) -> Option<(IndexKind, Vec<ColumnIndex>)> {
        let (kind, columns) = self.header.index(index);
        let Some(mapped) = &self.mapped else { return Some((kind, columns)) };
        let columns: Option<_> = columns.into_iter().map(|stored| mapped.of_stored(stored)).collect();
        Some((kind, columns?))
    }
}
