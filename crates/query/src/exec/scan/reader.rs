//! Readers of morsels, and the batches that a scan returns.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{Result, exec_datafusion_err};
use taut_block::{ArrayBuilder, PredicateHistory, ScanReport, SegmentReader, Selection};
use taut_store::{ContainerId, OpenBlock, RowId};
use taut_types::{ColumnIndex, LogicalType, Predicate, Schema};

use super::driver::block_error;
use super::page::PageReader;
use super::source::ScanSource;

/// Output columns of a scan.
#[derive(Debug)]
pub struct Output {
    schema: SchemaRef,
    /// Stored columns among the output columns, in order.
    stored: Vec<ColumnIndex>,
    /// For each output column, whether it is the row id.
    is_row_id: Vec<bool>,
    has_ids: bool,
}

impl Output {
    /// Returns the output columns of a scan.
    pub fn for_scan(source: &ScanSource) -> Self {
        Self::new(&source.columns, source.table().stored().schema.len(), Arc::clone(&source.output))
    }

    /// Creates the output from column indexes in a table with `table_columns` columns. The index after the last column
    /// stands for row ids.
    pub fn new(indexes: &[usize], table_columns: usize, schema: SchemaRef) -> Self {
        let is_row_id: Vec<bool> = indexes.iter().map(|index| *index == table_columns).collect();
        let stored = indexes.iter().zip(&is_row_id).filter(|(_, is_id)| !**is_id);
        let stored = stored.map(|(index, _)| ColumnIndex::from(*index)).collect();
        let has_ids = is_row_id.contains(&true);
        Self { schema, stored, is_row_id, has_ids }
    }

    /// Types of the columns. `None` if row ids are among them.
    pub(super) fn types(&self, table: &Schema) -> Option<Vec<LogicalType>> {
        let types = self.stored.iter().map(|column| table.column(*column).logical_type);
        (!self.has_ids).then(|| types.collect())
    }

    /// Indexes of the columns in the table. `None` if row ids are among them.
    pub fn indexes(&self) -> Option<Vec<usize>> {
        (!self.has_ids).then(|| self.stored.iter().map(|column| column.index()).collect())
    }

    /// Arrow schema of the output.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// Reader of one morsel.
pub enum Reader<'a> {
    /// A segment of a block, with its index.
    Segment(&'a OpenBlock, usize, SegmentReader<'a>),
    /// A delta page.
    Page(PageReader<'a>),
}

impl Reader<'_> {
    /// Rows that pass the predicate and are not deleted.
    ///
    /// # Errors
    /// If a section cannot be read, or a row predicate returns an error for a row.
    pub fn filter(
        &mut self,
        predicate: &Predicate,
        history: &mut PredicateHistory,
        report: &mut ScanReport,
    ) -> Result<Selection> {
        match self {
            Self::Segment(block, _, reader) => {
                let selection = reader.filter_in_order(predicate, history, report);
                selection.map_err(|error| block_error(block, error))
            }
            Self::Page(page) => page.filter(predicate),
        }
    }

    /// Appends the rows at the ordinals `rows` of the selection to one array per column. Returns false and appends
    /// nothing if [`Reader::batch`] is at least as fast.
    ///
    /// # Errors
    /// If a section cannot be read.
    pub(super) fn append(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        output: &Output,
        arrays: &mut [ArrayBuilder],
        report: &mut ScanReport,
    ) -> Result<bool> {
        let Self::Segment(block, _, reader) = self else { return Ok(false) };
        let appended = reader.append(selection, rows, &output.stored, arrays, report);
        appended.map_err(|error| block_error(block, error))
    }

    /// Returns the rows at the ordinals `rows` of the selection.
    ///
    /// # Errors
    /// If a section cannot be read, or row ids are requested and the rows of the block cannot have any.
    pub fn batch(
        &mut self,
        selection: &Selection,
        rows: Range<usize>,
        output: &Output,
        report: &mut ScanReport,
    ) -> Result<RecordBatch> {
        let arrays = match self {
            Self::Segment(block, _, reader) => {
                let arrays = reader.project(selection, rows.clone(), &output.stored, report);
                arrays.map_err(|error| block_error(block, error))?
            }
            Self::Page(page) => page.project(selection, rows.clone(), &output.stored)?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let arrays = if output.has_ids { self.with_ids(arrays, selection, rows, output)? } else { arrays };
        Ok(RecordBatch::try_new_with_options(Arc::clone(&output.schema), arrays, &options)?)
    }

    fn with_ids(
        &self,
        stored: Vec<ArrayRef>,
        selection: &Selection,
        rows: Range<usize>,
        output: &Output,
    ) -> Result<Vec<ArrayRef>> {
        let (container, segment) = self.container_and_segment()?;
        // A segment has at most 65,536 rows.
        let id = |row| RowId::new(container, segment, selection.position(row) as u16).0;
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(rows.map(id)));
        let mut stored = stored.into_iter();
        let arrays = output.is_row_id.iter().map(|is_id| if *is_id { Some(Arc::clone(&ids)) } else { stored.next() });
        Ok(arrays.flatten().collect())
    }

    /// Container and segment of the row ids.
    fn container_and_segment(&self) -> Result<(ContainerId, u16)> {
        match self {
            Self::Segment(block, segment, _) => {
                let id = block.file().id();
                let found = ContainerId::of(id).zip(u16::try_from(*segment).ok());
                found.ok_or_else(|| exec_datafusion_err!("rows of segment {segment} of block {id} can have no ids"))
            }
            Self::Page(page) => Ok((page.page().id(), 0)),
        }
    }
}
