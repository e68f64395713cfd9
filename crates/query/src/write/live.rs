//! Reads rows of a table that are not deleted, for statements that copy them to other blocks.

use std::sync::Arc;

use datafusion::arrow::array::UInt32Array;
use datafusion::arrow::compute::take;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use taut_block::{ScanReport, SegmentReader, Selection};
use taut_store::{BlockFile, CommitError, ContainerId, OldRows, OpenBlock, ReadCounters, RowSet, Table};
use taut_types::{ColumnIndex, Predicate};

use crate::error::{QueryError, Result};

/// Opens a segment of a block and selects its rows that are not deleted.
///
/// # Errors
/// If the block file cannot be read.
pub fn live_rows<'a>(table: &'a Table, open: &'a OpenBlock, segment: usize) -> Result<(SegmentReader<'a>, Selection)> {
    let mut reader = open.block().open_segment(open, segment);
    let deleted = table.delta.deleted_of_block(open.file().id()).and_then(|deleted| deleted.segment(segment));
    if let Some(deleted) = deleted {
        reader.exclude(deleted);
    }
    let selection = reader.filter(&Predicate::default(), &mut ScanReport::default());
    let selection = selection.map_err(|error| open.locate(error))?;
    Ok((reader, selection))
}

/// Reads columns of some rows of one version of a table, deleted rows included. Returns one batch per segment.
///
/// # Errors
/// If a block cannot be read, or is no longer in the table.
pub fn read_rows(table: &Table, rows: &RowSet, columns: &[ColumnIndex]) -> Result<Vec<RecordBatch>> {
    let indexes: Vec<usize> = columns.iter().map(|column| column.index()).collect();
    let schema = Arc::new(table.schema.arrow().project(&indexes).map_err(DataFusionError::from)?);
    let mut batches = Vec::new();
    for (container, segment, rows) in rows.segments() {
        let positions: Vec<u32> = rows.iter().collect();
        let arrays = match table.delta.page(container) {
            Some(page) => {
                let positions = UInt32Array::from(positions);
                let columns = page.columns(&indexes).into_iter();
                columns
                    .map(|column| Ok(take(&column, &positions, None).map_err(DataFusionError::from)?))
                    .collect::<Result<_>>()?
            }
            None => {
                let block = table.blocks.iter().find(|block| ContainerId::of(block.id()) == Some(container));
                let block = block.ok_or_else(|| CommitError::RowsChanged { table: table.name.clone() })?;
                let open = block.open(&ReadCounters::new())?;
                let mut reader = open.block().open_segment(&open, usize::from(segment));
                let count = positions.len();
                let selection = Selection::Positions(positions);
                let arrays = reader.project(&selection, 0..count, columns, &mut ScanReport::default());
                arrays.map_err(|error| open.locate(error))?
            }
        };
        batches.push(RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(DataFusionError::from)?);
    }
    Ok(batches)
}

/// Describes the rows that new blocks replace: all rows of `blocks` and, if `with_pages` is true, of all delta pages.
/// The new blocks omit the rows that are deleted.
///
/// # Errors
/// If a block cannot be read.
pub fn old_rows(table: &Table, blocks: &[Arc<BlockFile>], with_pages: bool) -> Result<OldRows> {
    let pages = if with_pages { table.delta.pages() } else { &[] };
    let pages: Vec<(ContainerId, u32)> = pages.iter().map(|page| (page.id(), page.rows() as u32)).collect();
    let containers =
        blocks.iter().filter_map(|block| ContainerId::of(block.id())).chain(pages.iter().map(|(page, _)| *page));
    let omitted: Vec<_> =
        containers.filter_map(|container| Some((container, Arc::clone(table.delta.deleted(container)?)))).collect();
    let mut nulls = Vec::new();
    if !pages.is_empty() || !omitted.is_empty() {
        nulls = vec![0; table.schema.len()];
        for block in blocks {
            let open = block.open(&ReadCounters::new())?;
            for (index, nulls) in nulls.iter_mut().enumerate() {
                let statistics = open.block().statistics(&open, ColumnIndex::from(index));
                *nulls += statistics.map_err(|error| QueryError::from(open.locate(error)))?.nulls;
            }
        }
    }
    let blocks = blocks.iter().map(|block| block.id()).collect();
    Ok(OldRows { blocks, pages, nulls, omitted: Some(omitted), relocations: None })
}
