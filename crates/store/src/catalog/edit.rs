//! Changes to a catalog, which a commit makes and publishes together.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use taut_types::{Partitioning, Schema, TableDesign};

use super::change::{Change, OldRows};
use super::check::check_design;
use super::{BlockId, Catalog, Table, TableId, TablePartitions, View};
use crate::delta::{Delta, Misplaced, UnitId};
use crate::directory::Directory;
use crate::error::CommitError;
use crate::{BlockFile, NewBlock};

/// A catalog being changed. It starts from the newest one, so that whatever a caller found in an older one is
/// checked again: a table or block that is gone meanwhile is an error.
#[derive(Clone, Debug)]
pub struct CatalogEdit {
    catalog: Catalog,
    directory: Arc<Directory>,
    changes: Vec<Change>,
    added: Vec<Arc<BlockFile>>,
    removed: Vec<Arc<BlockFile>>,
}

/// What an edit leads to: another catalog, which names blocks that the one before did not, and the other way round.
/// A block may be in both lists; then it is in neither catalog.
#[derive(Debug)]
pub(crate) struct Changed {
    pub catalog: Catalog,
    pub changes: Vec<Change>,
    pub added: Vec<Arc<BlockFile>>,
    pub removed: Vec<Arc<BlockFile>>,
}

/// How the rows of new blocks lie, compared with those of the blocks that they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// Block for block at the same places, deleted rows too: what is deleted stays so.
    Same,
    /// In the same order: the new blocks take the place of the old ones in their run.
    Kept,
    /// In the sort order of the table's design: the new blocks are a run of their own.
    Sorted,
}

impl CatalogEdit {
    pub(crate) fn new(catalog: &Catalog, directory: &Arc<Directory>) -> Self {
        let (changes, added, removed) = (Vec::new(), Vec::new(), Vec::new());
        Self { catalog: catalog.clone(), directory: Arc::clone(directory), changes, added, removed }
    }

    /// Ends the edit.
    pub(crate) fn finish(mut self) -> Changed {
        self.catalog.version += 1;
        Changed { catalog: self.catalog, changes: self.changes, added: self.added, removed: self.removed }
    }

    /// The catalog with the changes so far.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether a block comes with this edit.
    pub(crate) fn has_added(&self, unit: UnitId) -> bool {
        self.added.iter().any(|block| UnitId::of(block.id()) == Some(unit))
    }

    /// Says that names mean something else now than before.
    pub(crate) fn new_definitions(&mut self) {
        self.catalog.definitions = self.directory.allocate_definitions();
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.catalog.version = version;
    }

    /// The catalog that it has led to, as one that was always so.
    pub(crate) fn into_catalog(self) -> Catalog {
        self.catalog
    }

    /// Creates an empty table.
    ///
    /// # Errors
    /// When the name is taken, or the design does not fit the schema.
    pub fn create_table(&mut self, name: &str, schema: Schema, design: TableDesign) -> Result<TableId, CommitError> {
        let table = self.directory.allocate_table();
        let (name, schema, design) = (name.to_owned(), Arc::new(schema), Arc::new(design));
        self.make(Change::CreateTable { table, name, schema, design })?;
        Ok(table)
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// When it is gone.
    pub fn drop_table(&mut self, table: TableId) -> Result<(), CommitError> {
        self.make(Change::DropTable { table })
    }

    /// Removes all rows of a table.
    ///
    /// # Errors
    /// When it is gone.
    pub fn truncate(&mut self, table: TableId) -> Result<(), CommitError> {
        self.make(Change::Truncate { table })
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// When it is gone, or the name is taken.
    pub fn rename_table(&mut self, table: TableId, name: &str) -> Result<(), CommitError> {
        self.make(Change::RenameTable { table, name: name.to_owned() })
    }

    /// Adds the rows of one load, which are in the sort order of the table's design from block to block, or else from
    /// block to block of each partition. A range that has no boundaries yet takes those of the blocks.
    ///
    /// # Errors
    /// When the table is gone, or a block does not have its columns.
    pub fn append_blocks(&mut self, table: TableId, blocks: Vec<NewBlock>) -> Result<(), CommitError> {
        self.make(Change::AppendBlocks { table, blocks })
    }

    /// Puts blocks with the same rows in the place of others without deleted rows, as after a change of the table's
    /// design. See [`CatalogEdit::replace_rows`].
    ///
    /// # Errors
    /// As [`CatalogEdit::replace_rows`].
    pub fn replace_blocks(
        &mut self,
        table: TableId,
        old: &[BlockId],
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.replace_rows(table, OldRows::of_blocks(old), new, order)
    }

    /// Puts blocks with the same rows, but those that are deleted, in the place of other blocks and of pages.
    ///
    /// The new blocks lie where the first of the old ones was. To keep their order, the old ones must be neighbours
    /// in one run.
    ///
    /// # Errors
    /// When the table or an old block is gone, other rows of it were deleted meanwhile, the new blocks do not have its
    /// columns, or have not as many rows.
    pub fn replace_rows(
        &mut self,
        table: TableId,
        old: OldRows,
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.make(Change::ReplaceRows { table, old, new, order })
    }

    /// Says how further blocks of a table are laid out. The blocks it has stay as they are; where the design divides rows
    /// in another way than before, they count as not divided.
    ///
    /// # Errors
    /// When the table is gone, or the design does not fit its columns.
    pub fn set_design(&mut self, table: TableId, design: TableDesign) -> Result<(), CommitError> {
        self.make(Change::SetDesign { table, design: Arc::new(design) })
    }

    /// Gives a table other partitions of its design. The blocks it has then count as not divided.
    ///
    /// # Errors
    /// When the table is gone, or these are not partitions of its design.
    pub fn set_partitioning(&mut self, table: TableId, partitioning: Partitioning) -> Result<(), CommitError> {
        self.make(Change::SetPartitioning { table, partitioning: Arc::new(partitioning) })
    }

    /// Creates a view.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn create_view(&mut self, name: &str, sql: &str) -> Result<(), CommitError> {
        self.make(Change::CreateView { name: name.to_owned(), sql: sql.to_owned() })
    }

    /// Drops a view.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn drop_view(&mut self, name: &str) -> Result<(), CommitError> {
        self.make(Change::DropView { name: name.to_owned() })
    }

    /// Makes a change, and remembers it.
    ///
    /// # Errors
    /// When it cannot be made; nothing has changed then.
    pub(crate) fn make(&mut self, change: Change) -> Result<(), CommitError> {
        self.apply(&change)?;
        self.changes.push(change);
        Ok(())
    }

    /// Makes a change of which the log says that it was made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn redo(&mut self, change: &Change) -> Result<(), CommitError> {
        self.apply(change)
    }

    /// Inserts rows, whose columns are those of the table.
    ///
    /// # Errors
    /// When the table is gone.
    pub(crate) fn insert_rows(&mut self, table: TableId, mut rows: RecordBatch) -> Result<(), CommitError> {
        while rows.num_rows() > 0 {
            let place = self.find(table)?.delta.place(rows.num_rows(), |_| true);
            let page = place.page.or_else(|| self.directory.allocate_page()).ok_or(CommitError::TooLarge)?;
            let first = rows.slice(0, place.rows);
            self.make(Change::InsertRows { table, page, first: place.first, rows: first })?;
            rows = rows.slice(place.rows, rows.num_rows() - place.rows);
        }
        Ok(())
    }

    /// Changes the rows of a table that are in no block, without remembering how.
    pub(crate) fn change_rows<T>(
        &mut self,
        table: TableId,
        change: impl FnOnce(&mut Delta) -> T,
    ) -> Result<T, CommitError> {
        self.change_table(table, |table| Ok(change(&mut table.delta)))
    }

    fn apply(&mut self, change: &Change) -> Result<(), CommitError> {
        match change {
            Change::CreateTable { table, name, schema, design } => {
                self.check_name(name)?;
                check_design(design, schema).map_err(|what| columns_differ(name, schema, what))?;
                let table = Table::empty(*table, name, Arc::clone(schema), Arc::clone(design));
                let table = Table { partitions: partitions_of(design, 0), ..table };
                self.catalog.tables.insert_mut(name.clone(), Arc::new(table));
                Ok(())
            }
            Change::DropTable { table } => {
                let dropped = Arc::clone(self.find(*table)?);
                self.catalog.tables.remove_mut(&dropped.name);
                self.removed.extend(dropped.blocks.iter().map(Arc::clone));
                Ok(())
            }
            Change::Truncate { table } => {
                let removed = Arc::clone(&self.find(*table)?.blocks);
                self.change_table(*table, |table| {
                    let (id, schema, design) = (table.id, Arc::clone(&table.schema), Arc::clone(&table.design));
                    let empty = Table::empty(id, &table.name, schema, design);
                    // Boundaries of partitions are not rows.
                    let partitions = table.partitions.as_ref().map(|partitions| {
                        let partitioning = partitions.partitioning.clone();
                        Arc::new(TablePartitions { partitioning, of_blocks: vec![] })
                    });
                    *table = Table { partitions, ..empty };
                    Ok(())
                })?;
                self.removed.extend(removed.iter().map(Arc::clone));
                Ok(())
            }
            Change::RenameTable { table, name } => {
                self.check_name(name)?;
                let mut renamed = self.find(*table)?.as_ref().clone();
                self.catalog.tables.remove_mut(&renamed.name);
                renamed.name.clone_from(name);
                self.catalog.tables.insert_mut(name.clone(), Arc::new(renamed));
                Ok(())
            }
            Change::AppendBlocks { table, blocks } => {
                self.check_blocks(blocks)?;
                self.change_table(*table, |table| append(table, blocks))?;
                self.added.extend(blocks.iter().map(|block| Arc::clone(&block.file)));
                Ok(())
            }
            Change::ReplaceRows { table, old, new, order } => {
                self.check_blocks(new)?;
                let removed = self.change_table(*table, |table| replace(table, old, new, *order))?;
                self.added.extend(new.iter().map(|block| Arc::clone(&block.file)));
                self.removed.extend(removed);
                Ok(())
            }
            Change::SetDesign { table, design } => self.change_table(*table, |table| {
                check_design(design, &table.schema).map_err(|what| columns_differ(&table.name, &table.schema, what))?;
                if design.partition_by != table.design.partition_by {
                    table.partitions = partitions_of(design, table.blocks.len());
                }
                table.design = Arc::clone(design);
                Ok(())
            }),
            Change::SetPartitioning { table, partitioning } => self.change_table(*table, |table| {
                if !is_of_design(partitioning, table) {
                    return Err(columns_differ(&table.name, &table.schema, "partitions".to_owned()));
                }
                let of_blocks = vec![None; table.blocks.len()];
                let partitioning = partitioning.as_ref().clone();
                table.partitions = Some(Arc::new(TablePartitions { partitioning, of_blocks }));
                Ok(())
            }),
            Change::CreateView { name, sql } => {
                self.check_name(name)?;
                self.catalog.views.insert_mut(name.clone(), View { name: name.clone(), sql: sql.clone() });
                Ok(())
            }
            Change::DropView { name } => match self.catalog.views.remove_mut(name) {
                true => Ok(()),
                false => Err(CommitError::NoView { name: name.clone() }),
            },
            Change::InsertRows { table, page, first, rows } => self.change_table(*table, |table| {
                let appended = table.delta.append(&table.schema, (*page, *first), rows);
                appended.map_err(|Misplaced| CommitError::Misplaced { table: table.name.clone() })
            }),
            Change::DeleteRows { table, unit, segment, rows } => self.change_table(*table, |table| {
                if !table.has_unit(*unit) {
                    return Err(CommitError::RowsChanged { table: table.name.clone() });
                }
                table.delta.delete(*unit, *segment, rows);
                Ok(())
            }),
        }
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    fn find(&self, table: TableId) -> Result<&Arc<Table>, CommitError> {
        self.catalog.table_of(table).ok_or(CommitError::NoTable { table })
    }

    /// Puts a changed copy of a table in its place.
    fn change_table<T>(
        &mut self,
        table: TableId,
        change: impl FnOnce(&mut Table) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let mut changed = self.find(table)?.as_ref().clone();
        let blocks = Arc::clone(&changed.blocks);
        let value = change(&mut changed)?;
        if !Arc::ptr_eq(&blocks, &changed.blocks) {
            changed.sparse_index = Arc::default();
        }
        self.catalog.tables.insert_mut(changed.name.clone(), Arc::new(changed));
        Ok(value)
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

/// Adds the blocks of a load.
fn append(table: &mut Table, blocks: &[NewBlock]) -> Result<(), CommitError> {
    fits(table, blocks)?;
    let partitions = take_partitions(table, blocks);
    let (mut all, mut runs) = (table.blocks.as_ref().clone(), table.runs.as_ref().clone());
    for (place, block) in blocks.iter().enumerate() {
        all.push(Arc::clone(&block.file));
        Arc::make_mut(&mut table.statistics).iter_mut().zip(&block.statistics).for_each(|(all, new)| all.merge(new));
        if place == 0 || !continues(table, &partitions[place - 1], &partitions[place]) {
            runs.push(all.len() - 1);
        }
    }
    (table.blocks, table.runs) = (Arc::new(all), Arc::new(runs));
    if let Some(known) = &mut table.partitions {
        Arc::make_mut(known).of_blocks.extend(partitions.iter().map(|place| place.partition));
    }
    Ok(())
}

/// Puts new blocks in the place of old rows; returns the blocks that these were in.
fn replace(
    table: &mut Table,
    old: &OldRows,
    new: &[NewBlock],
    order: RowOrder,
) -> Result<Vec<Arc<BlockFile>>, CommitError> {
    fits(table, new)?;
    let old_blocks: BTreeSet<BlockId> = old.blocks.iter().copied().collect();
    let present: BTreeSet<BlockId> = table.blocks.iter().map(|block| block.id()).collect();
    if let Some(block) = old_blocks.difference(&present).next() {
        return Err(CommitError::NoBlock { table: table.name.clone(), block: *block });
    }
    let is_old = |block: &Arc<BlockFile>| old_blocks.contains(&block.id());
    let whole = table.runs().filter(|run| run.iter().any(is_old)).count() == 1
        && table.blocks.split(|block| !is_old(block)).filter(|part| !part.is_empty()).count() == 1;
    if order != RowOrder::Sorted && !(whole && old.pages.is_empty()) {
        return Err(CommitError::NotOneRun { table: table.name.clone() });
    }
    let removed: Vec<_> = table.blocks.iter().filter(|block| is_old(block)).map(Arc::clone).collect();
    if order == RowOrder::Same {
        move_deleted(table, &removed, new)?;
    } else {
        leave_out(table, old, &removed, new)?;
    }
    let partitions = take_partitions(table, new);
    let new: Vec<_> = new.iter().map(|block| Arc::clone(&block.file)).zip(partitions).collect();
    match removed.is_empty() {
        true => {
            let first = table.blocks.len();
            let (mut all, mut runs) = (table.blocks.as_ref().clone(), table.runs.as_ref().clone());
            for (at, (block, place)) in new.iter().enumerate() {
                if at == 0 || !continues(table, &new[at - 1].1, place) {
                    runs.push(first + at);
                }
                all.push(Arc::clone(block));
            }
            (table.blocks, table.runs) = (Arc::new(all), Arc::new(runs));
            if let Some(known) = &mut table.partitions {
                Arc::make_mut(known).of_blocks.extend(new.iter().map(|(_, place)| place.partition));
            }
        }
        false => splice(table, &old_blocks, &new, order),
    }
    Ok(removed)
}

/// Takes what is deleted of old blocks over to new ones that have the same rows at the same places.
fn move_deleted(table: &mut Table, old: &[Arc<BlockFile>], new: &[NewBlock]) -> Result<(), CommitError> {
    let rows = |entry: &crate::BlockEntry| (entry.rows, entry.segments);
    let is_same = old.iter().map(|block| rows(block.entry())).eq(new.iter().map(|block| rows(block.entry())));
    if !is_same {
        let (expected, found) =
            (rows_of(old.iter().map(|block| block.entry())), rows_of(new.iter().map(NewBlock::entry)));
        return Err(CommitError::RowsDiffer { table: table.name.clone(), expected, found });
    }
    for (old, new) in old.iter().zip(new) {
        let (Some(old), new) = (UnitId::of(old.id()), UnitId::of(new.file.id())) else { continue };
        let Some(deleted) = table.delta.deleted(old).cloned() else { continue };
        let new = new.ok_or_else(|| CommitError::RowsChanged { table: table.name.clone() })?;
        table.delta.forget_block(old);
        deleted.segments().for_each(|(segment, rows)| table.delta.delete(new, segment, rows));
    }
    Ok(())
}

/// Forgets old blocks and pages, whose rows but the deleted ones must be as many as those of new blocks.
fn leave_out(
    table: &mut Table,
    old: &OldRows,
    removed: &[Arc<BlockFile>],
    new: &[NewBlock],
) -> Result<(), CommitError> {
    let changed = || CommitError::RowsChanged { table: table.name.clone() };
    let blocks: Vec<UnitId> = removed.iter().filter_map(|block| UnitId::of(block.id())).collect();
    let mut units = blocks.clone();
    let mut expected: u64 = rows_of(removed.iter().map(|block| block.entry()));
    for (page, rows) in &old.pages {
        let found = table.delta.page(*page).ok_or_else(changed)?;
        if found.rows() != *rows as usize {
            return Err(changed());
        }
        expected += u64::from(*rows);
        units.push(*page);
    }
    let mut left_out = 0;
    for unit in &units {
        let deleted = table.delta.deleted(*unit);
        left_out += deleted.map_or(0, |deleted| deleted.count());
        if let Some(seen) = &old.left_out
            && seen.iter().find(|(seen, _)| seen == unit).map(|(_, rows)| rows) != deleted
        {
            return Err(changed());
        }
    }
    let found = rows_of(new.iter().map(NewBlock::entry));
    expected -= left_out;
    if expected != found {
        return Err(CommitError::RowsDiffer { table: table.name.clone(), expected, found });
    }
    if left_out > 0 || !old.pages.is_empty() {
        if old.nulls.len() != table.schema.len() {
            return Err(columns_differ(&table.name, &table.schema, "counts of nulls".to_owned()));
        }
        let before = rows_of(removed.iter().map(|block| block.entry()));
        for (place, statistics) in Arc::make_mut(&mut table.statistics).iter_mut().enumerate() {
            new.iter().for_each(|block| statistics.merge(&block.statistics[place]));
            statistics.rows -= before;
            statistics.nulls = statistics.nulls.saturating_sub(old.nulls[place]);
            // Its least or greatest value may be gone.
            statistics.exact &= left_out == 0;
        }
    }
    blocks.into_iter().for_each(|block| table.delta.forget_block(block));
    table.delta.remove_pages(|page| old.pages.iter().any(|(old, _)| *old == page));
    Ok(())
}

fn rows_of<'a>(blocks: impl Iterator<Item = &'a crate::BlockEntry>) -> u64 {
    blocks.map(|block| block.rows).sum()
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
fn partitions_of(design: &TableDesign, blocks: usize) -> Option<Arc<TablePartitions>> {
    let partitioning = Partitioning::without_boundaries(design.partition_by?)?;
    Some(Arc::new(TablePartitions { partitioning, of_blocks: vec![None; blocks] }))
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
            let partitioning = partitioning.as_ref().clone();
            table.partitions = Some(Arc::new(TablePartitions { partitioning, of_blocks }));
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
    table.runs = Arc::new((0..blocks.len()).filter(begins).collect());
    if let Some(partitions) = &mut table.partitions {
        Arc::make_mut(partitions).of_blocks = blocks.iter().map(|(_, place, _)| place.partition).collect();
    }
    table.blocks = Arc::new(blocks.into_iter().map(|(.., block)| block).collect());
}
