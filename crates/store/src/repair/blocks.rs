//! The blocks of a table: copied if they are intact, otherwise rewritten with the rows that can still be read.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use taut_block::{BlockBuilder, BlockError, BlockImage, ScanReport};
use taut_types::{ColumnIndex, ColumnStatistics, Predicate};

use super::{DamagedBlock, RepairError, RepairedTable, TableLoss};
use crate::delta::ContainerId;
use crate::directory::Directory;
use crate::error::{CommitError, FileError, ReadError};
use crate::files::block_name;
use crate::store::entry_of;
use crate::verify::check_block_file;
use crate::{BlockEntry, BlockFile, OpenBlock, Table};

/// Salvages the blocks of a table into a new directory. Returns the table with these blocks, and its report.
///
/// # Errors
/// If a file cannot be written, or a block cannot be read and may be intact.
pub(super) fn salvage_blocks(
    damaged: &Arc<Directory>,
    table: &Table,
    new: &Arc<Directory>,
) -> Result<(Table, RepairedTable), RepairError> {
    let mut report = RepairedTable {
        name: table.name.clone(),
        rows: 0,
        copied_blocks: 0,
        rewritten_blocks: 0,
        losses: vec![],
        without_loss: vec![],
    };
    let (mut indexes, mut blocks, mut rewritten) = (Vec::new(), Vec::new(), Vec::new());
    for (index, file) in table.blocks.iter().enumerate() {
        let error = match check_block_file(file) {
            Ok(()) => {
                copy_block(damaged, file.entry(), new)?;
                report.copied_blocks += 1;
                indexes.push(index);
                blocks.push(BlockFile::new(Arc::clone(new), file.entry().clone()).with_map(file.columns().cloned()));
                continue;
            }
            Err(error) => error.into_damage().map_err(RepairError::Unreadable)?,
        };
        let path = damaged.disk.path(&block_name(file.id()));
        let salvaged = Salvaged::read(table, file)?;
        let (lost_rows, count) = salvaged.lost_rows(table, file);
        // The lost rows may all have been deleted before.
        match count {
            0 => report.without_loss.push(DamagedBlock { path, error }),
            _ => report.losses.push(TableLoss::Rows { path, rows: lost_rows, count, error }),
        }
        if let Some((image, design)) = salvaged.image {
            let entry = entry_of(file.id(), &image, &design);
            new.write_file(&block_name(file.id()), |mut to| image.write_to(&mut to))?;
            report.rewritten_blocks += 1;
            indexes.push(index);
            blocks.push(BlockFile::new(Arc::clone(new), entry));
            rewritten.push(file.id());
        }
    }
    let is_changed = indexes.len() < table.blocks.len() || !rewritten.is_empty();
    let mut salvaged = table.restricted_to(&indexes, usize::MAX);
    // Rewritten blocks do not contain the deleted rows.
    rewritten.into_iter().filter_map(ContainerId::of).for_each(|container| salvaged.delta.forget_block(container));
    salvaged.blocks = Arc::new(blocks.into_iter().map(Arc::new).collect());
    if is_changed || salvaged.statistics.iter().any(|column| column.rows != salvaged.block_rows()) {
        salvaged.statistics = Arc::new(merge_statistics(&salvaged)?);
    }
    report.rows = salvaged.rows();
    Ok((salvaged, report))
}

/// Copies an intact block byte for byte.
fn copy_block(damaged: &Directory, entry: &BlockEntry, new: &Directory) -> Result<(), FileError> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let name = block_name(entry.id);
    let read = |source| damaged.error("read", &name, source);
    let file = damaged.disk.open(&name).map_err(read)?;
    new.write_file(&name, |to| {
        let mut at = 0;
        while at < entry.file_bytes {
            let mut bytes = vec![0; CHUNK_BYTES.min(entry.file_bytes - at) as usize];
            file.read_at(at, &mut bytes).map_err(|source| io::Error::other(read(source)))?;
            to.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    })
}

/// The readable part of a damaged block.
struct Salvaged {
    /// A new block with the remaining live rows, and its design. `None` if there are no such rows.
    image: Option<(BlockImage, Arc<taut_types::TableDesign>)>,
    /// Row ranges of the segments that were read.
    read: Vec<Range<u64>>,
}

impl Salvaged {
    /// Reads each segment separately.
    ///
    /// # Errors
    /// If the file cannot be read and may be intact.
    fn read(table: &Table, file: &Arc<BlockFile>) -> Result<Self, RepairError> {
        let nothing = || Self { image: None, read: Vec::new() };
        let Some(open) = unless_damaged(file.open_damaged())? else { return Ok(nothing()) };
        let block = open.block();
        if !block.has_types(&table.schema) {
            return Ok(nothing());
        }
        let locate = |error| open.locate_in_file(error);
        // A block whose columns differ from those of the table is rewritten with the columns of the table.
        let (schema, design) = match file.columns() {
            None => unless_damaged(block.description(&open).map_err(locate))?,
            Some(_) => {
                let design = unless_damaged(block.design(&open).map_err(locate))?.flatten();
                design.map(|design| (table.schema.as_ref().clone(), design))
            }
        }
        .map_or_else(
            || (Arc::clone(&table.schema), Arc::clone(&table.design)),
            |(schema, design)| (Arc::new(schema), Arc::new(design)),
        );
        let mut builder = BlockBuilder::new(Arc::clone(&schema), Arc::clone(&design));
        let mut read = Vec::new();
        for segment in 0..block.segments() {
            let columns = read_live_rows(table, &open, segment).map_err(|error| open.locate_in_file(error));
            let Some(columns) = unless_damaged(columns)? else { continue };
            let Ok(batch) = RecordBatch::try_new(schema.arrow(), columns) else { continue };
            if builder.push(&batch).is_err() {
                return Ok(nothing());
            }
            let start = block.segment_start(segment);
            read.push(start..start + block.segment_rows(segment) as u64);
        }
        if builder.rows() == 0 {
            return Ok(Self { image: None, read });
        }
        let image = builder.finish().ok().map(|image| (image, design));
        Ok(if image.is_some() { Self { image, read } } else { nothing() })
    }

    /// The rows of the block that were not read, and the number of live rows among them.
    fn lost_rows(&self, table: &Table, file: &BlockFile) -> (Vec<Range<u64>>, u64) {
        let (mut lost_rows, mut at): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        for read in self.read.iter().cloned().chain(std::iter::once(file.entry().rows..file.entry().rows)) {
            if at < read.start {
                lost_rows.push(at..read.start);
            }
            at = read.end;
        }
        let rows_before = file.entry().rows - table.delta.deleted_of_block(file.id()).map_or(0, |rows| rows.count());
        let rows_after = self.image.as_ref().map_or(0, |(image, _)| image.rows);
        (lost_rows, rows_before.saturating_sub(rows_after))
    }
}

/// The value that was read, or `None` if it is damaged.
///
/// # Errors
/// If the file cannot be read and may be intact.
fn unless_damaged<T>(read: Result<T, ReadError>) -> Result<Option<T>, RepairError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => error.into_damage().map(|_| None).map_err(RepairError::Unreadable),
    }
}

/// The columns of the live rows of a segment.
fn read_live_rows(table: &Table, open: &OpenBlock, segment: usize) -> Result<Vec<arrow_array::ArrayRef>, BlockError> {
    let mut report = ScanReport::default();
    let mut reader = table.open_segment(open, segment);
    let selection = reader.filter(&Predicate::default(), &mut report)?;
    let columns: Vec<ColumnIndex> = (0..table.schema.len()).map(ColumnIndex::from).collect();
    reader.project(&selection, 0..selection.len(), &columns, &mut report)
}

/// Column statistics over all blocks of a table.
fn merge_statistics(table: &Table) -> Result<Vec<ColumnStatistics>, CommitError> {
    let mut all = vec![ColumnStatistics::empty(); table.schema.len()];
    for file in table.blocks.iter() {
        let unreadable = |error: ReadError| CommitError::Unreadable { source: Box::new(error) };
        let open = file.open(&Arc::default()).map_err(unreadable)?;
        for (column, statistics) in all.iter_mut().enumerate() {
            let of_block = open.block().statistics(&open, ColumnIndex::from(column));
            statistics.merge(&of_block.map_err(|error| unreadable(open.locate(error)))?);
        }
    }
    Ok(all)
}
