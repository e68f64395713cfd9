//! Changes to a catalog, which a commit makes and publishes together.

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use taut_types::{ColumnIndex, Partitioning, Schema, TableDesign};

use super::change::{Change, OldRows};
use super::check::check_design;
use super::table_blocks::{append, columns_differ, is_of_design, partitions_of, replace, set_nullable};
use super::{BlockId, Catalog, Constraints, Table, TableId, TablePartitions, View};
use crate::delta::{Delta, Misplaced, RowSet, UnitId};
use crate::directory::Directory;
use crate::error::CommitError;
use crate::moves::Moves;
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
    moves: Vec<(TableId, Arc<Moves>)>,
}

/// What an edit leads to: another catalog, which names blocks that the one before did not, and the other way round.
/// A block may be in both lists; then it is in neither catalog.
#[derive(Debug)]
pub(crate) struct Changed {
    pub catalog: Catalog,
    pub changes: Vec<Change>,
    pub added: Vec<Arc<BlockFile>>,
    pub removed: Vec<Arc<BlockFile>>,
    /// Where rows went, as far as that is known.
    pub moves: Vec<(TableId, Arc<Moves>)>,
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
        let (catalog, directory) = (catalog.clone(), Arc::clone(directory));
        Self { catalog, directory, changes: vec![], added: vec![], removed: vec![], moves: vec![] }
    }

    /// Ends the edit.
    pub(crate) fn finish(mut self) -> Changed {
        self.catalog.version += 1;
        let Self { catalog, changes, added, removed, moves, .. } = self;
        Changed { catalog, changes, added, removed, moves }
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

    /// Puts blocks with the same rows, but those that are deleted, in the place of other blocks and of pages. Where it is
    /// said where each row goes, rows that were deleted since they were read are deleted in the new blocks.
    ///
    /// The new blocks lie where the first of the old ones was. To keep their order, the old ones must be neighbours
    /// in one run.
    ///
    /// # Errors
    /// When the table or an old block is gone, a page has got more rows, other rows were deleted meanwhile and it is not
    /// known where they go, or the new blocks do not have its columns, or have not as many rows.
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

    /// Says what the rows of a table must obey from now on, and those it has do obey.
    ///
    /// Of a foreign key both tables are told: the one that is referenced by `referenced_by`, after the one that references it.
    ///
    /// # Errors
    /// When the table is gone, or they do not fit it and the tables that they reference.
    pub fn set_constraints(&mut self, table: TableId, constraints: Constraints) -> Result<(), CommitError> {
        self.make(Change::SetConstraints { table, constraints: Arc::new(constraints) })
    }

    /// Says whether a column may hold nulls from now on. The rows that there are hold none, if it may not.
    ///
    /// # Errors
    /// When the table is gone or has no such column, it is one of the primary key, or nulls may be among rows that are
    /// deleted or in no block.
    pub fn set_nullable(&mut self, table: TableId, column: ColumnIndex, nullable: bool) -> Result<(), CommitError> {
        self.make(Change::SetNullable { table, column, nullable })
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
        let Change::ReplaceRows { table, old, order, .. } = &change else {
            self.apply(&change)?;
            self.changes.push(change);
            return Ok(());
        };
        let table = *table;
        let deleted = match order {
            RowOrder::Same => RowSet::default(),
            _ => old.deleted_since(self.find(table)?)?,
        };
        self.apply(&change)?;
        self.changes.push(change);
        for (unit, segment, rows) in deleted.segments() {
            // They were deleted before: no row changes now.
            self.change_rows(table, |delta| delta.delete(unit, segment, rows))?;
            self.changes.push(Change::DeleteRows { table, unit, segment, rows: rows.clone() });
        }
        Ok(())
    }

    /// Makes a change of which the log says that it was made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn redo(&mut self, change: &Change) -> Result<(), CommitError> {
        self.apply(change)
    }

    /// Puts a table in the place of its version that is there, without remembering how.
    pub(crate) fn put_table(&mut self, table: Table) {
        self.catalog.tables.insert(Arc::new(table));
    }

    /// Inserts rows, whose columns are those of the table.
    ///
    /// # Errors
    /// When the table is gone.
    pub(crate) fn insert_rows(&mut self, table: TableId, rows: RecordBatch) -> Result<(), CommitError> {
        let mut rest = Some(rows);
        while let Some(rows) = rest.filter(|rows| rows.num_rows() > 0) {
            let place = self.find(table)?.delta.place(rows.num_rows(), |page| self.directory.may_grow(page));
            let page = place.page.or_else(|| self.directory.allocate_page()).ok_or(CommitError::TooLarge)?;
            let (here, behind) = split_at(rows, place.rows);
            self.make(Change::InsertRows { table, page, first: place.first, rows: here })?;
            rest = behind;
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
                self.catalog.tables.insert(Arc::new(table));
                Ok(())
            }
            Change::DropTable { table } => {
                let dropped = Arc::clone(self.find(*table)?);
                if let Some(child) = dropped.constraints.referenced_by.iter().find(|child| *child != table) {
                    let by = self.catalog.table_of(*child).map(|child| child.name.clone()).unwrap_or_default();
                    return Err(CommitError::Referenced { table: dropped.name.clone(), by });
                }
                for key in dropped.constraints.foreign_keys.iter().filter(|key| key.table != *table) {
                    self.change_table(key.table, |parent| {
                        Arc::make_mut(&mut parent.constraints).referenced_by.remove(table);
                        Ok(())
                    })?;
                }
                self.catalog.tables.remove(*table);
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
                    let (constraints, delta) = (Arc::clone(&table.constraints), table.delta.emptied());
                    *table = Table { partitions, constraints, delta, contents: table.contents + 1, ..empty };
                    Ok(())
                })?;
                self.removed.extend(removed.iter().map(Arc::clone));
                Ok(())
            }
            Change::RenameTable { table, name } => {
                self.check_name(name)?;
                let mut renamed = self.find(*table)?.as_ref().clone();
                renamed.name.clone_from(name);
                self.catalog.tables.insert(Arc::new(renamed));
                Ok(())
            }
            Change::AppendBlocks { table, blocks } => {
                self.check_blocks(blocks)?;
                self.change_table(*table, |table| {
                    table.contents += 1;
                    append(table, blocks)
                })?;
                self.added.extend(blocks.iter().map(|block| Arc::clone(&block.file)));
                Ok(())
            }
            Change::ReplaceRows { table, old, new, order } => {
                self.check_blocks(new)?;
                let removed = self.change_table(*table, |table| replace(table, old, new, *order))?;
                self.added.extend(new.iter().map(|block| Arc::clone(&block.file)));
                let moves = match order {
                    RowOrder::Same => Some(Arc::new(same_places(&removed, new))),
                    _ => old.moves.clone(),
                };
                self.moves.extend(moves.map(|moves| (*table, moves)));
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
            Change::SetConstraints { table, constraints } => {
                let changed = self.find(*table)?;
                let fits = constraints.check(*table, &changed.schema, &self.catalog);
                fits.map_err(|expected| CommitError::Constraints { table: changed.name.clone(), expected })?;
                self.change_table(*table, |table| {
                    table.constraints = Arc::clone(constraints);
                    let looked_up = constraints.looked_up();
                    table.delta.set_keys(looked_up.iter().map(|columns| &**columns));
                    Ok(())
                })
            }
            Change::SetNullable { table, column, nullable } => {
                self.change_table(*table, |table| set_nullable(table, *column, *nullable))
            }
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
                table.contents += 1;
                let appended = table.delta.append(&table.schema, (*page, *first), rows);
                appended.map_err(|Misplaced| CommitError::Misplaced { table: table.name.clone() })
            }),
            Change::DeleteRows { table, unit, segment, rows } => self.change_table(*table, |table| {
                if !table.has_unit(*unit) {
                    return Err(CommitError::RowsChanged { table: table.name.clone() });
                }
                table.contents += 1;
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
        self.catalog.tables.insert(Arc::new(changed));
        Ok(value)
    }

    fn check_name(&self, name: &str) -> Result<(), CommitError> {
        let is_index = |table: &Arc<Table>| table.design.indexes.iter().any(|index| index.name == name);
        if self.catalog.tables.named(name).is_some()
            || self.catalog.views.contains_key(name)
            || self.catalog.tables.iter().any(is_index)
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

/// The first rows, and those behind them.
pub(crate) fn split_at(rows: RecordBatch, first: usize) -> (RecordBatch, Option<RecordBatch>) {
    match rows.num_rows() - first {
        0 => (rows, None),
        behind => (rows.slice(0, first), Some(rows.slice(first, behind))),
    }
}

/// The moves of the rows of blocks to blocks that have them at the same places.
fn same_places(old: &[Arc<BlockFile>], new: &[NewBlock]) -> Moves {
    let units = old.iter().zip(new).map(|(old, new)| (UnitId::of(old.id()), UnitId::of(new.file.id())));
    Moves::of_blocks(units.filter_map(|(old, new)| old.zip(new)))
}
