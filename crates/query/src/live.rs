//! The rows of a table that are not deleted, for statements that move them to other blocks.

use std::sync::Arc;

use taut_block::{ScanReport, SegmentReader, Selection};
use taut_store::{BlockFile, OldRows, OpenBlock, ReadCounters, Table, UnitId};
use taut_types::{ColumnIndex, Predicate};

use crate::error::{QueryError, Result};

/// A segment of a block, and its rows that are not deleted.
///
/// # Errors
/// When a section cannot be read.
pub fn live_rows<'a>(table: &Table, open: &'a OpenBlock, segment: usize) -> Result<(SegmentReader<'a>, Selection)> {
    let mut reader = open.block().open_segment(open, segment);
    let deleted = table.delta.deleted_of_block(open.file().id()).and_then(|deleted| deleted.segment(segment));
    if let Some(deleted) = deleted {
        reader.exclude(deleted);
    }
    let selection = reader.filter(&Predicate::default(), &mut ScanReport::default());
    let selection = selection.map_err(|error| open.locate(error))?;
    Ok((reader, selection))
}

/// What is replaced where the live rows of some blocks of a table, and of its pages or not, go to other blocks.
///
/// # Errors
/// When a block cannot be read.
pub fn old_rows(table: &Table, blocks: &[Arc<BlockFile>], with_pages: bool) -> Result<OldRows> {
    let pages = if with_pages { table.delta.pages() } else { &[] };
    let pages: Vec<(UnitId, u32)> = pages.iter().map(|page| (page.id(), page.rows() as u32)).collect();
    let units = blocks.iter().filter_map(|block| UnitId::of(block.id())).chain(pages.iter().map(|(page, _)| *page));
    let left_out: Vec<_> = units.filter_map(|unit| Some((unit, Arc::clone(table.delta.deleted(unit)?)))).collect();
    let mut nulls = Vec::new();
    if !pages.is_empty() || !left_out.is_empty() {
        nulls = vec![0; table.schema.len()];
        for block in blocks {
            let open = block.open(&ReadCounters::new())?;
            for (place, nulls) in nulls.iter_mut().enumerate() {
                let statistics = open.block().statistics(&open, ColumnIndex::from(place));
                *nulls += statistics.map_err(|error| QueryError::from(open.locate(error)))?.nulls;
            }
        }
    }
    let blocks = blocks.iter().map(|block| block.id()).collect();
    Ok(OldRows { blocks, pages, nulls, left_out: Some(left_out) })
}
