//! Changes to a catalog, which a commit makes and publishes together.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use taut_types::{ColumnStatistics, Partitioning, Schema, TableDesign};

use super::check::check_design;
use super::{BlockId, Catalog, Table, TableId, TablePartitions, View};
use crate::directory::Directory;
use crate::error::CommitError;
use crate::{BlockFile, NewBlock};

/// A catalog being changed. It starts from the newest one, so that whatever a caller found in an older one is
/// checked again: a table or block that is gone meanwhile is an error.
#[derive(Debug)]
pub struct CatalogEdit {
    catalog: Catalog,
    directory: Arc<Directory>,
    added: Vec<Arc<BlockFile>>,
    removed: Vec<Arc<BlockFile>>,
}

/// What an edit leads to: another catalog, which names blocks that the one before did not, and the other way round.
/// A block may be in both lists; then it is in neither catalog.
#[derive(Debug)]
pub(crate) struct Changed {
    pub catalog: Catalog,
    pub added: Vec<Arc<BlockFile>>,
    pub removed: Vec<Arc<BlockFile>>,
}

/// How the rows of new blocks lie, compared with those of the blocks that they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// In the same order: the new blocks take the place of the old ones in their run.
    Kept,
    /// In the sort order of the table's design: the new blocks are a run of their own.
    Sorted,
}

impl CatalogEdit {
    pub(crate) fn new(catalog: &Catalog, directory: &Arc<Directory>) -> Self {
        Self { catalog: catalog.clone(), directory: Arc::clone(directory), added: Vec::new(), removed: Vec::new() }
    }

    /// Ends the edit.
    pub(crate) fn finish(mut self) -> Changed {
        self.catalog.version += 1;
        self.catalog.next_block = self.directory.next_block();
        Changed { catalog: self.catalog, added: self.added, removed: self.removed }
    }

    /// The catalog with the changes so far.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Creates an empty table.
    ///
    /// # Errors
    /// When the name is taken, or the design does not fit the schema.
    pub fn create_table(&mut self, name: &str, schema: Schema, design: TableDesign) -> Result<TableId, CommitError> {
        self.check_name(name)?;
        check_design(&design, &schema).map_err(|what| columns_differ(name, &schema, what))?;
        let id = TableId(self.catalog.next_table);
        self.catalog.next_table += 1;
        let statistics = vec![ColumnStatistics::empty(); schema.len()];
        let partitions = partitions_of(&design, 0);
        let (schema, design, name) = (Arc::new(schema), Arc::new(design), name.to_owned());
        let table = Table {
            id,
            name,
            schema,
            design,
            blocks: vec![],
            runs: vec![],
            partitions,
            statistics,
            sparse_index: OnceLock::new(),
        };
        self.catalog.tables.insert(table.name.clone(), Arc::new(table));
        Ok(id)
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// When it is gone.
    pub fn drop_table(&mut self, table: TableId) -> Result<(), CommitError> {
        let name = self.table(table)?.name.clone();
        if let Some(table) = self.catalog.tables.remove(&name) {
            self.removed.extend(table.blocks.iter().map(Arc::clone));
        }
        Ok(())
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// When it is gone, or the name is taken.
    pub fn rename_table(&mut self, table: TableId, name: &str) -> Result<(), CommitError> {
        self.check_name(name)?;
        let changed = self.table(table)?;
        let before = std::mem::replace(&mut changed.name, name.to_owned());
        if let Some(table) = self.catalog.tables.remove(&before) {
            self.catalog.tables.insert(name.to_owned(), table);
        }
        Ok(())
    }

    /// Adds the rows of one load, which are in the sort order of the table's design from block to block, or else from
    /// block to block of each partition. A range that has no boundaries yet takes those of the blocks.
    ///
    /// # Errors
    /// When the table is gone, or a block does not have its columns.
    pub fn append_blocks(&mut self, table: TableId, blocks: Vec<NewBlock>) -> Result<(), CommitError> {
        self.check_blocks(&blocks)?;
        let table = self.table(table)?;
        fits(table, &blocks)?;
        let partitions = take_partitions(table, &blocks);
        for (place, block) in blocks.iter().enumerate() {
            if place == 0 || !continues(table, &partitions[place - 1], &partitions[place]) {
                table.runs.push(table.blocks.len());
            }
            table.blocks.push(Arc::clone(&block.file));
            table.statistics.iter_mut().zip(&block.statistics).for_each(|(all, new)| all.merge(new));
        }
        if let Some(known) = &mut table.partitions {
            known.of_blocks.extend(partitions.iter().map(|place| place.partition));
        }
        self.added.extend(blocks.into_iter().map(|block| block.file));
        Ok(())
    }

    /// Puts blocks with the same rows in the place of others, as after a change of the table's design.
    ///
    /// The new blocks lie where the first of the old ones was. To keep their order, the old ones must be neighbours
    /// in one run.
    ///
    /// # Errors
    /// When the table or an old block is gone, the new blocks do not have its columns, or have not as many rows.
    pub fn replace_blocks(
        &mut self,
        table: TableId,
        old: &[BlockId],
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.check_blocks(&new)?;
        let table = self.table(table)?;
        fits(table, &new)?;
        let old: BTreeSet<BlockId> = old.iter().copied().collect();
        let present: BTreeSet<BlockId> = table.blocks.iter().map(|block| block.id()).collect();
        if let Some(block) = old.difference(&present).next() {
            return Err(CommitError::NoBlock { table: table.name.clone(), block: *block });
        }
        let is_old = |block: &Arc<BlockFile>| old.contains(&block.id());
        let whole = table.runs().filter(|run| run.iter().any(is_old)).count() == 1
            && table.blocks.split(|block| !is_old(block)).filter(|part| !part.is_empty()).count() == 1;
        if order == RowOrder::Kept && !whole {
            return Err(CommitError::NotOneRun { table: table.name.clone() });
        }
        let expected = table.blocks.iter().filter(|block| is_old(block)).map(|block| block.entry().rows).sum();
        let found = new.iter().map(|block| block.entry().rows).sum();
        if expected != found {
            return Err(CommitError::RowsDiffer { table: table.name.clone(), expected, found });
        }
        let partitions = take_partitions(table, &new);
        let new: Vec<_> = new.into_iter().map(|block| block.file).zip(partitions).collect();
        let removed: Vec<_> = table.blocks.iter().filter(|block| is_old(block)).map(Arc::clone).collect();
        splice(table, &old, &new, order);
        self.added.extend(new.into_iter().map(|(file, _)| file));
        self.removed.extend(removed);
        Ok(())
    }

    /// Says how further blocks of a table are laid out. The blocks it has stay as they are; where the design divides rows
    /// in another way than before, they count as not divided.
    ///
    /// # Errors
    /// When the table is gone, or the design does not fit its columns.
    pub fn set_design(&mut self, table: TableId, design: TableDesign) -> Result<(), CommitError> {
        let table = self.table(table)?;
        check_design(&design, &table.schema).map_err(|what| columns_differ(&table.name, &table.schema, what))?;
        if design.partition_by != table.design.partition_by {
            table.partitions = partitions_of(&design, table.blocks.len());
        }
        table.design = Arc::new(design);
        Ok(())
    }

    /// Gives a table other partitions of its design. The blocks it has then count as not divided.
    ///
    /// # Errors
    /// When the table is gone, or these are not partitions of its design.
    pub fn set_partitioning(&mut self, table: TableId, partitioning: Partitioning) -> Result<(), CommitError> {
        let table = self.table(table)?;
        if !is_of_design(&partitioning, table) {
            return Err(columns_differ(&table.name, &table.schema, "partitions".to_owned()));
        }
        table.partitions = Some(TablePartitions { partitioning, of_blocks: vec![None; table.blocks.len()] });
        Ok(())
    }

    /// Creates a view.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn create_view(&mut self, name: &str, sql: &str) -> Result<(), CommitError> {
        self.check_name(name)?;
        self.catalog.views.insert(name.to_owned(), View { name: name.to_owned(), sql: sql.to_owned() });
        Ok(())
    }

    /// Drops a view.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn drop_view(&mut self, name: &str) -> Result<(), CommitError> {
        self.catalog.views.remove(name).map(drop).ok_or_else(|| CommitError::NoView { name: name.to_owned() })
    }

    /// The table, as one that may be changed.
    fn table(&mut self, table: TableId) -> Result<&mut Table, CommitError> {
        let found = self.catalog.tables.values_mut().find(|found| found.id == table);
        let found = found.map(Arc::make_mut).ok_or(CommitError::NoTable { table })?;
        // Its blocks may change.
        found.sparse_index = OnceLock::new();
        Ok(found)
    }

    fn check_name(&self, name: &str) -> Result<(), CommitError> {
        let is_index = |table: &Arc<Table>| table.design.indexes.iter().any(|index| index.name == name);
        if self.catalog.tables.contains_key(name)
            || self.catalog.views.contains_key(name)
            || self.catalog.tables.values().any(is_index)
        {
            return Err(CommitError::NameTaken { name: name.to_owned() });
        }
        Ok(())
    }

    fn check_blocks(&self, blocks: &[NewBlock]) -> Result<(), CommitError> {
        let foreign = blocks.iter().find(|block| !Arc::ptr_eq(block.file.directory(), &self.directory));
        foreign.map_or(Ok(()), |block| Err(CommitError::ForeignBlock { block: block.file.id() }))
    }
}

fn columns_differ(table: &str, schema: &Schema, what: String) -> CommitError {
    CommitError::ColumnsDiffer { table: table.to_owned(), what, expected: schema.len() }
}

fn fits(table: &Table, blocks: &[NewBlock]) -> Result<(), CommitError> {
    let fits = |block: &NewBlock| {
        block.statistics.len() == table.schema.len()
            && block.statistics.iter().all(|column| column.rows == block.entry().rows)
    };
    match blocks.iter().find(|block| !fits(block)) {
        Some(block) => Err(columns_differ(&table.name, &table.schema, format!("block {}", block.entry().id))),
        None => Ok(()),
    }
}

/// The partitions that a design leads to without looking at rows, none of which are divided yet.
fn partitions_of(design: &TableDesign, blocks: usize) -> Option<TablePartitions> {
    let partitioning = Partitioning::without_boundaries(design.partition_by?)?;
    Some(TablePartitions { partitioning, of_blocks: vec![None; blocks] })
}

fn is_of_design(partitioning: &Partitioning, table: &Table) -> bool {
    let design = partitioning.design();
    table.design.partition_by == Some(design)
        && partitioning.check(table.schema.column(design.column).logical_type).is_ok()
}

/// Where a block lies among the partitions of its table.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The partition of all its rows.
    partition: Option<u32>,
    /// The partition for which it was written, be it one of the table or of partitions that it no longer has.
    written_for: Option<u32>,
}

/// The place of each block. A range without boundaries takes those of the first block that has some.
fn take_partitions(table: &mut Table, blocks: &[NewBlock]) -> Vec<Place> {
    if table.partitions.is_none() {
        let mut known = blocks.iter().filter_map(|block| block.partition.as_ref());
        if let Some((partitioning, _)) = known.find(|(partitioning, _)| is_of_design(partitioning, table)) {
            let of_blocks = vec![None; table.blocks.len()];
            table.partitions = Some(TablePartitions { partitioning: partitioning.as_ref().clone(), of_blocks });
        }
    }
    let of_table = table.partitions.as_ref().map(|partitions| &partitions.partitioning);
    let place = |block: &NewBlock| {
        let written = block.partition.as_ref();
        let of_table = written.filter(|(by, number)| Some(by.as_ref()) == of_table && *number <= by.nulls());
        Place { partition: of_table.map(|(_, number)| *number), written_for: written.map(|(_, number)| *number) }
    };
    blocks.iter().map(place).collect()
}

/// Whether a block continues the run of the one before it, given that rows came in order to each partition they were
/// written for.
fn continues(table: &Table, before: &Place, next: &Place) -> bool {
    match (&table.partitions, before.partition, next.partition) {
        _ if before.written_for == next.written_for => true,
        (Some(partitions), Some(before), Some(next)) => {
            let (partitioning, sort_by) = (&partitions.partitioning, &table.design.sort_by);
            partitioning.follows(sort_by) && partitioning.rank(before, sort_by) < partitioning.rank(next, sort_by)
        }
        _ => false,
    }
}

/// Puts `new` in the place of `old`. Runs are numbered from 1 meanwhile; one begins where the number changes, or where a
/// partition begins that is not in the order of the run.
fn splice(table: &mut Table, old: &BTreeSet<BlockId>, new: &[(Arc<BlockFile>, Place)], order: RowOrder) {
    const OWN_RUN: usize = 0;
    let mut blocks: Vec<(usize, Place, Arc<BlockFile>)> = Vec::new();
    let mut is_placed = false;
    for (at, block) in table.blocks.iter().enumerate() {
        let run = table.runs.partition_point(|start| *start <= at);
        if !old.contains(&block.id()) {
            let partition = table.partition_of(at);
            blocks.push((run, Place { partition, written_for: partition }, Arc::clone(block)));
        } else if !is_placed {
            is_placed = true;
            let run = if order == RowOrder::Kept { run } else { OWN_RUN };
            blocks.extend(new.iter().map(|(block, place)| (run, place.clone(), Arc::clone(block))));
        }
    }
    let begins = |at: &usize| {
        let Some(before) = at.checked_sub(1).map(|before| &blocks[before]) else { return true };
        before.0 != blocks[*at].0 || !continues(table, &before.1, &blocks[*at].1)
    };
    table.runs = (0..blocks.len()).filter(begins).collect();
    if let Some(partitions) = &mut table.partitions {
        partitions.of_blocks = blocks.iter().map(|(_, place, _)| place.partition).collect();
    }
    table.blocks = blocks.into_iter().map(|(.., block)| block).collect();
}
