//! An edit of a catalog: changes that one commit publishes together.

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use taut_types::{
    Column, ColumnIndex, Datum, LogicalType, Partitioning, Schema, TEMPORARY_SCHEMA, TableDesign,
    is_temporary_relation, split_relation_name,
};

use super::change::{Change, OldRows};
use super::check::check_design;
use super::columns::{add_column, drop_column, rename_column, set_type};
use super::table_blocks::{append_blocks, columns_error, matches_design, partitions_of, replace_rows, set_nullable};
use super::{BlockId, Catalog, CommentTarget, Constraints, Sequence, SequenceId, Table, TableId, TablePartitions, View};
use crate::delta::{ContainerId, Delta, Misplaced, RowSet};
use crate::directory::Directory;
use crate::error::CommitError;
use crate::relocations::RowRelocations;
use crate::{BlockFile, NewBlock};

/// A catalog being changed. It may be newer than the snapshot in which a caller found a table or block. If that table
/// or block no longer exists, the change is an error.
#[derive(Clone, Debug)]
pub struct CatalogEdit {
    catalog: Catalog,
    directory: Arc<Directory>,
    /// Directory of the blocks of temporary tables, if the edit may change them.
    temporary: Option<Arc<Directory>>,
    changes: Vec<Change>,
    added: Vec<Arc<BlockFile>>,
    removed: Vec<Arc<BlockFile>>,
    relocations: Vec<(TableId, Arc<RowRelocations>)>,
}

/// Result of an edit: a new catalog, and the blocks by which it differs from the previous one. A block in both lists is
/// in neither catalog.
#[derive(Debug)]
pub(crate) struct AppliedEdit {
    pub catalog: Catalog,
    pub changes: Vec<Change>,
    pub added: Vec<Arc<BlockFile>>,
    pub removed: Vec<Arc<BlockFile>>,
    /// Row relocations, as far as they are known.
    pub relocations: Vec<(TableId, Arc<RowRelocations>)>,
}

/// Order of the rows of new blocks, compared with the blocks that they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// Each new block has the rows of one old block at the same positions, deleted ones included. Deletions stay valid.
    #[serde(rename = "same")]
    SamePositions,
    /// The order of the old blocks. The new blocks take the position of the old ones in their run.
    #[serde(rename = "kept")]
    SameOrder,
    /// The sort order of the table's design. The new blocks form a separate run.
    Sorted,
}

impl CatalogEdit {
    pub(crate) fn new(catalog: &Catalog, directory: &Arc<Directory>) -> Self {
        let (catalog, directory) = (catalog.clone(), Arc::clone(directory));
        let (changes, added, removed, relocations) = (vec![], vec![], vec![], vec![]);
        Self { catalog, directory, temporary: None, changes, added, removed, relocations }
    }

    /// Allows changes of temporary relations, whose blocks are in `directory`.
    pub(crate) fn with_temporary(self, directory: Option<&Arc<Directory>>) -> Self {
        Self { temporary: directory.cloned(), ..self }
    }

    /// Ends the edit and returns its result.
    pub(crate) fn finish(mut self) -> AppliedEdit {
        self.catalog.version += 1;
        let Self { catalog, changes, added, removed, relocations, .. } = self;
        AppliedEdit { catalog, changes, added, removed, relocations }
    }

    /// The catalog after the changes so far.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether this edit adds the container as a block.
    pub(crate) fn has_added(&self, container: ContainerId) -> bool {
        self.added.iter().any(|block| ContainerId::of(block.id()) == Some(container))
    }

    /// Assigns a new [`Catalog::definitions_id()`].
    pub(crate) fn renew_definitions_id(&mut self) {
        self.catalog.definitions_id = self.directory.allocate_definitions_id();
    }

    /// Begins a timeline with the commit of this edit. Called when a commit is replayed.
    pub(crate) fn begin_timeline(&mut self, time: i64) {
        self.catalog.timelines = self.catalog.timelines.with(self.catalog.version + 1, time);
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.catalog.version = version;
    }

    /// The catalog after all changes, without the changes.
    pub(crate) fn into_catalog(self) -> Catalog {
        self.catalog
    }

    /// Creates a schema.
    ///
    /// # Errors
    /// If it exists.
    pub fn create_schema(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::CreateSchema { name: name.to_owned() })
    }

    /// Drops a schema.
    ///
    /// # Errors
    /// If it does not exist, is `public`, or has tables, views or sequences.
    pub fn drop_schema(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropSchema { name: name.to_owned() })
    }

    /// Creates an empty table. Returns its id.
    ///
    /// # Errors
    /// If the name is taken, its schema does not exist, or the design does not fit the schema.
    pub fn create_table(&mut self, name: &str, schema: Schema, design: TableDesign) -> Result<TableId, CommitError> {
        let table = match is_temporary_relation(name) {
            true => TableId::allocate_temporary(),
            false => self.directory.allocate_table(),
        };
        let (name, schema, design) = (name.to_owned(), Arc::new(schema), Arc::new(design));
        self.apply_and_record(Change::CreateTable { table, name, schema, design })?;
        Ok(table)
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// If the table does not exist, another table has a foreign key to it, or a view reads it.
    pub fn drop_table(&mut self, table: TableId) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropTable { table })
    }

    /// Removes all rows of a table.
    ///
    /// # Errors
    /// If the table does not exist.
    pub fn truncate(&mut self, table: TableId) -> Result<(), CommitError> {
        self.apply_and_record(Change::Truncate { table })
    }

    /// Renames a table.
    ///
    /// # Errors
    /// If the table or the schema of the new name does not exist, the name is taken, or a view reads the table.
    pub fn rename_table(&mut self, table: TableId, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::RenameTable { table, name: name.to_owned() })
    }

    /// Adds the blocks of one load. Their rows are in the sort order of the table's design across the blocks, or across
    /// the blocks of each partition. A range partitioning without boundaries takes its boundaries from the blocks.
    ///
    /// # Errors
    /// If the table does not exist, or a block does not have its columns.
    pub fn append_blocks(&mut self, table: TableId, blocks: Vec<NewBlock>) -> Result<(), CommitError> {
        self.apply_and_record(Change::AppendBlocks { table, blocks })
    }

    /// Replaces blocks without deleted rows by blocks with the same rows, for example after a change of the table's
    /// design. See [`CatalogEdit::replace_rows`].
    ///
    /// # Errors
    /// If the rows cannot be replaced, as for [`CatalogEdit::replace_rows`].
    pub fn replace_blocks(
        &mut self,
        table: TableId,
        old: &[BlockId],
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.replace_rows(table, OldRows::of_blocks(old), new, order)
    }

    /// Replaces blocks and pages by blocks with the same live rows. If `old` has row relocations, rows that were
    /// deleted since they were read are deleted in the new blocks.
    ///
    /// The new blocks take the position of the first of the old ones. To keep the order of their rows, the old blocks
    /// must be neighbours in one run.
    ///
    /// # Errors
    /// If
    /// - the table or an old block does not exist,
    /// - a page has another number of rows than `old` states,
    /// - other rows were deleted meanwhile and their relocations are not known, or
    /// - the new blocks have other columns than the table, or another number of rows than they replace.
    pub fn replace_rows(
        &mut self,
        table: TableId,
        old: OldRows,
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.apply_and_record(Change::ReplaceRows { table, old, new, order })
    }

    /// Sets the design of future blocks of a table. Existing blocks are not rewritten. If the design changes the
    /// partitioning, they become unpartitioned.
    ///
    /// # Errors
    /// If the table does not exist, or the design does not fit its columns.
    pub fn set_design(&mut self, table: TableId, design: TableDesign) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetDesign { table, design: Arc::new(design) })
    }

    /// Sets the partitioning of a table, for example its range boundaries. It must match the design. Existing blocks
    /// become unpartitioned.
    ///
    /// # Errors
    /// If the table does not exist, or the partitioning does not match its design.
    pub fn set_partitioning(&mut self, table: TableId, partitioning: Partitioning) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetPartitioning { table, partitioning: Arc::new(partitioning) })
    }

    /// Sets the constraints of a table. Its existing rows must satisfy them.
    ///
    /// Adding a foreign key requires two calls: first for the referencing table, then for `referenced_by` of the
    /// referenced table.
    ///
    /// # Errors
    /// If the table does not exist, or the constraints do not fit it and the tables that they reference.
    pub fn set_constraints(&mut self, table: TableId, constraints: Constraints) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetConstraints { table, constraints: Arc::new(constraints) })
    }

    /// Sets whether a column may hold nulls. If not, the existing rows must not have any.
    ///
    /// # Errors
    /// If the table or the column does not exist, a column of the primary key would become nullable, or a column would
    /// become NOT NULL while the table has deleted rows or rows in no block.
    pub fn set_nullable(&mut self, table: TableId, column: ColumnIndex, nullable: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetNullable { table, column, nullable })
    }

    /// Appends a column to a table. Its value in all existing rows is `value`, or null. No block is rewritten.
    ///
    /// # Errors
    /// If
    /// - the table does not exist, has a column of that name, or has as many columns as a table can have,
    /// - the value is not of the type of the column, or
    /// - the column is not nullable, there is no value, and the table has rows, deleted ones included.
    pub fn add_column(&mut self, table: TableId, column: Column, value: Option<Datum>) -> Result<(), CommitError> {
        self.apply_and_record(Change::AddColumn { table, column, value })
    }

    /// Drops a column with its default and its forced encoding. The indexes of the columns after it decrease by one, in
    /// foreign keys of other tables too. No block is rewritten.
    ///
    /// # Errors
    /// If the table or the column does not exist, it is the only column, or a key, foreign key, index, sort order or
    /// partitioning uses it. The conditions of checks are not examined.
    pub fn drop_column(&mut self, table: TableId, column: ColumnIndex) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropColumn { table, column })
    }

    /// Renames a column. The conditions of checks are not changed.
    ///
    /// # Errors
    /// If the table or the column does not exist, or the name is taken.
    pub fn rename_column(&mut self, table: TableId, column: ColumnIndex, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::RenameColumn { table, column, name: name.to_owned() })
    }

    /// Sets the type of a column of a table without rows. To change the type of a column with values, one edit
    /// truncates the table, sets the type, and appends blocks with the converted rows.
    ///
    /// # Errors
    /// If the table or the column does not exist, the table has rows, or the design or a foreign key does not allow the
    /// type.
    pub fn set_type(
        &mut self,
        table: TableId,
        column: ColumnIndex,
        logical_type: LogicalType,
    ) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetType { table, column, logical_type })
    }

    /// Creates a view, or replaces the view of its name if `replaces`.
    ///
    /// # Errors
    /// If the name is taken, its schema does not exist, or a permanent view reads a temporary relation.
    pub fn create_view(&mut self, view: View, replaces: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::CreateView { view, replaces })
    }

    /// Drops a view.
    ///
    /// # Errors
    /// If there is no view of that name, or another view reads it.
    pub fn drop_view(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropView { name: name.to_owned() })
    }

    /// Creates a sequence. Assigns its id, and returns it.
    ///
    /// # Errors
    /// If the name is taken, its schema does not exist, or its numbers are not within its limits.
    pub fn create_sequence(&mut self, sequence: Sequence) -> Result<SequenceId, CommitError> {
        let id = match is_temporary_relation(&sequence.name) {
            true => SequenceId::allocate_temporary(),
            false => SequenceId(self.directory.allocate_table().0),
        };
        self.apply_and_record(Change::CreateSequence { sequence: Sequence { id, ..sequence } })?;
        Ok(id)
    }

    /// Drops a sequence that belongs to no column.
    ///
    /// # Errors
    /// If the sequence does not exist, or a column owns it.
    pub fn drop_sequence(&mut self, sequence: SequenceId) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropSequence { sequence })
    }

    /// Replaces the definition of a sequence, its name included. If `restarts`, its last number is also replaced.
    ///
    /// # Errors
    /// If the sequence does not exist, the name is taken, or its numbers are not within its limits.
    pub fn alter_sequence(&mut self, sequence: Sequence, restarts: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::AlterSequence { sequence, restarts })
    }

    /// Sets the comment on an object, or removes it if `comment` is `None`.
    ///
    /// # Errors
    /// If the object does not exist.
    pub fn set_comment(&mut self, on: CommentTarget, comment: Option<String>) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetComment { on, comment })
    }

    /// Takes the next numbers of a sequence.
    ///
    /// # Errors
    /// If the sequence does not exist, or has fewer than `count` numbers left.
    pub(crate) fn next_values(&mut self, sequence: SequenceId, count: usize) -> Result<Vec<i64>, CommitError> {
        let mut advanced = self.find_sequence(sequence)?.clone();
        let numbers = advanced.take(count)?;
        if let Some(last) = numbers.last() {
            self.apply_and_record(Change::AdvanceSequence { sequence, last: *last, is_called: true })?;
        }
        Ok(numbers)
    }

    /// Sets the last number of a sequence, or the next one if `is_called` is false.
    ///
    /// # Errors
    /// If the sequence does not exist, or the number is not within its limits.
    pub(crate) fn set_value(&mut self, sequence: SequenceId, last: i64, is_called: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::AdvanceSequence { sequence, last, is_called })
    }

    /// Applies a change and records it. If it replaces rows, rows that were deleted since the caller read them are
    /// deleted in the new blocks, and these deletions are recorded too.
    ///
    /// # Errors
    /// If the change cannot be made. Nothing has changed then.
    pub(crate) fn apply_and_record(&mut self, change: Change) -> Result<(), CommitError> {
        let Change::ReplaceRows { table, old, order, .. } = &change else {
            self.apply(&change)?;
            self.record(change);
            return Ok(());
        };
        let table = *table;
        let deleted = match order {
            RowOrder::SamePositions => RowSet::default(),
            _ => old.later_deletions(self.find(table)?)?,
        };
        self.apply(&change)?;
        self.changes.push(change);
        for (container, segment, rows) in deleted.segments() {
            // These rows were already deleted, so this does not count as a change of rows.
            self.change_rows(table, |delta| delta.delete(container, segment, rows))?;
            self.changes.push(Change::DeleteRows { table, container, segment, rows: rows.clone() });
        }
        Ok(())
    }

    /// Adds a change to the list. Consecutive advances of one sequence are recorded as one.
    fn record(&mut self, change: Change) {
        let sequence_of = |change: &Change| match change {
            Change::AdvanceSequence { sequence, .. } => Some(*sequence),
            _ => None,
        };
        match self.changes.last_mut() {
            Some(last) if sequence_of(&change).is_some() && sequence_of(last) == sequence_of(&change) => *last = change,
            _ => self.changes.push(change),
        }
    }

    /// Repeats a change from the log, without recording it.
    ///
    /// # Errors
    /// If the change cannot be made.
    pub(crate) fn redo(&mut self, change: &Change) -> Result<(), CommitError> {
        match change.has_relation_name() {
            true => self.apply(&change.with_upgraded_names(&self.catalog)),
            false => self.apply(change),
        }
    }

    /// Replaces a table by another version of it, without recording a change.
    pub(crate) fn put_table(&mut self, table: Table) {
        self.catalog.tables.insert(Arc::new(table));
    }

    /// Inserts rows with the columns of the table.
    ///
    /// # Errors
    /// If the table does not exist.
    pub(crate) fn insert_rows(&mut self, table: TableId, rows: RecordBatch) -> Result<(), CommitError> {
        let mut rest = Some(rows);
        while let Some(rows) = rest.filter(|rows| rows.num_rows() > 0) {
            let directory = self.directory_of(table);
            let position = self.find(table)?.delta.append_position(rows.num_rows(), |page| directory.may_grow(page));
            let page = position.page.or_else(|| directory.allocate_page()).ok_or(CommitError::TooLarge)?;
            let (here, after) = split_at(rows, position.rows);
            self.apply_and_record(Change::InsertRows { table, page, first: position.first, rows: here })?;
            rest = after;
        }
        Ok(())
    }

    /// Changes the delta of a table, without recording a change.
    pub(crate) fn change_rows<T>(
        &mut self,
        table: TableId,
        change: impl FnOnce(&mut Delta) -> T,
    ) -> Result<T, CommitError> {
        self.change_table(table, |table| Ok(change(&mut table.delta)))
    }

    fn apply(&mut self, change: &Change) -> Result<(), CommitError> {
        match change {
            // The log contains no temporary relations, so it must not contain their schema either.
            Change::CreateSchema { name } | Change::DropSchema { name } if name == TEMPORARY_SCHEMA => {
                Err(CommitError::NoSchema { schema: name.clone() })
            }
            Change::CreateSchema { name } if self.catalog.has_schema(name) => {
                Err(CommitError::SchemaExists { schema: name.clone() })
            }
            Change::CreateSchema { name } => {
                self.catalog.schemas.insert_mut(name.clone());
                Ok(())
            }
            Change::DropSchema { name } => {
                if let Some(relation) = self.catalog.relations_of_schema(name).next() {
                    let (schema, relation) = (name.clone(), relation.to_owned());
                    return Err(CommitError::SchemaNotEmpty { schema, relation });
                }
                match self.catalog.schemas.remove_mut(name) {
                    true => Ok(()),
                    false => Err(CommitError::NoSchema { schema: name.clone() }),
                }
            }
            Change::CreateTable { table, name, schema, design } => {
                self.check_name(name, table.is_temporary())?;
                check_design(design, schema).map_err(|what| columns_error(name, schema, what))?;
                let table = Table::empty(*table, name, Arc::clone(schema), Arc::clone(design));
                let table = Table { partitions: partitions_of(design, 0), ..table };
                self.catalog.tables.insert(Arc::new(table));
                self.add_temporary_schema(name);
                Ok(())
            }
            Change::DropTable { table } => {
                let dropped = Arc::clone(self.find(*table)?);
                self.check_no_view_on(&dropped.name)?;
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
                self.catalog.comments.remove_if(|on| on.table() == Some(*table));
                for owned in dropped.constraints.sequences.values() {
                    self.remove_sequence(owned.sequence);
                }
                self.removed.extend(dropped.blocks.iter().map(Arc::clone));
                Ok(())
            }
            Change::Truncate { table } => {
                let removed = Arc::clone(&self.find(*table)?.blocks);
                self.change_table(*table, |table| {
                    let (id, schema, design) = (table.id, Arc::clone(&table.schema), Arc::clone(&table.design));
                    let empty = Table::empty(id, &table.name, schema, design);
                    // Partition boundaries are not rows, so they stay.
                    let partitions = table.partitions.as_ref().map(|partitions| {
                        let partitioning = partitions.partitioning.clone();
                        Arc::new(TablePartitions { partitioning, of_blocks: vec![] })
                    });
                    let (constraints, delta) = (Arc::clone(&table.constraints), table.delta.without_rows());
                    *table =
                        Table { partitions, constraints, delta, content_version: table.content_version + 1, ..empty };
                    Ok(())
                })?;
                self.removed.extend(removed.iter().map(Arc::clone));
                Ok(())
            }
            Change::RenameTable { table, name } => {
                self.check_name(name, table.is_temporary())?;
                let mut renamed = self.find(*table)?.as_ref().clone();
                self.check_no_view_on(&renamed.name)?;
                renamed.name.clone_from(name);
                self.catalog.tables.insert(Arc::new(renamed));
                Ok(())
            }
            Change::AppendBlocks { table, blocks } => {
                self.check_blocks(*table, blocks)?;
                self.change_table(*table, |table| {
                    table.content_version += 1;
                    append_blocks(table, blocks)
                })?;
                self.added.extend(blocks.iter().map(|block| Arc::clone(&block.file)));
                Ok(())
            }
            Change::ReplaceRows { table, old, new, order } => {
                self.check_blocks(*table, new)?;
                let removed = self.change_table(*table, |table| replace_rows(table, old, new, *order))?;
                self.added.extend(new.iter().map(|block| Arc::clone(&block.file)));
                let relocations = match order {
                    RowOrder::SamePositions => Some(Arc::new(same_positions(&removed, new))),
                    _ => old.relocations.clone(),
                };
                self.relocations.extend(relocations.map(|relocations| (*table, relocations)));
                self.removed.extend(removed);
                Ok(())
            }
            Change::SetDesign { table, design } => self.change_table(*table, |table| {
                check_design(design, &table.schema).map_err(|what| columns_error(&table.name, &table.schema, what))?;
                if design.partition_by != table.design.partition_by {
                    table.partitions = partitions_of(design, table.blocks.len());
                }
                table.design = Arc::clone(design);
                Ok(())
            }),
            Change::SetPartitioning { table, partitioning } => self.change_table(*table, |table| {
                if !matches_design(partitioning, table) {
                    return Err(columns_error(&table.name, &table.schema, "partitions".to_owned()));
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
                    let lookup_columns = constraints.lookup_columns();
                    table.delta.set_keys(lookup_columns.iter().map(|columns| &**columns));
                    Ok(())
                })
            }
            Change::SetNullable { table, column, nullable } => {
                self.change_table(*table, |table| set_nullable(table, *column, *nullable))
            }
            Change::AddColumn { table, column, value } => {
                self.change_table(*table, |table| add_column(table, column, value.as_ref()))
            }
            Change::DropColumn { table, column } => {
                let children = self.children_with_keys_on(*table, *column)?;
                let owned = self.find(*table)?.constraints.sequences.get(column).copied();
                self.change_table(*table, |table| drop_column(table, *column))?;
                self.catalog.comments.drop_column(*table, *column);
                if let Some(owned) = owned {
                    self.remove_sequence(owned.sequence);
                }
                for (child, constraints) in children {
                    self.change_table(child, |child| {
                        child.constraints = Arc::new(constraints);
                        Ok(())
                    })?;
                }
                Ok(())
            }
            Change::RenameColumn { table, column, name } => {
                self.change_table(*table, |table| rename_column(table, *column, name))
            }
            Change::SetType { table, column, logical_type } => {
                let catalog = self.catalog.clone();
                self.change_table(*table, |table| set_type(table, *column, *logical_type, &catalog))
            }
            Change::CreateView { view, replaces } => {
                if !(*replaces && self.catalog.views.contains_key(&view.name)) {
                    self.check_name(&view.name, is_temporary_relation(&view.name))?;
                }
                if !is_temporary_relation(&view.name)
                    && let Some(relation) = view.relations.keys().find(|relation| is_temporary_relation(relation))
                {
                    return Err(CommitError::Temporary { relation: relation.clone(), other: view.name.clone() });
                }
                self.catalog.views.insert_mut(view.name.clone(), view.clone());
                self.add_temporary_schema(&view.name);
                Ok(())
            }
            Change::DropView { name } => {
                self.check_no_view_on(name)?;
                self.catalog.comments.remove_if(|on| on.view() == Some(name));
                match self.catalog.views.remove_mut(name) {
                    true => Ok(()),
                    false => Err(CommitError::NoView { name: name.clone() }),
                }
            }
            Change::CreateSequence { sequence } => {
                self.check_name(&sequence.name, sequence.id.is_temporary())?;
                self.add_temporary_schema(&sequence.name);
                self.put_sequence(sequence.clone())
            }
            Change::DropSequence { sequence } => {
                let owns =
                    |table: &&Arc<Table>| table.constraints.sequences.values().any(|owned| owned.sequence == *sequence);
                if let Some(owner) = self.catalog.tables.iter().find(owns) {
                    return Err(CommitError::ConstraintsChanged { table: owner.name.clone() });
                }
                match self.remove_sequence(*sequence) {
                    true => Ok(()),
                    false => Err(CommitError::NoSequence { sequence: *sequence }),
                }
            }
            Change::AlterSequence { sequence, restarts } => {
                let old = self.find_sequence(sequence.id)?;
                let from = if *restarts { sequence } else { old };
                let (last, is_called) = (from.last, from.is_called);
                if old.name != sequence.name {
                    self.check_name(&sequence.name, sequence.id.is_temporary())?;
                }
                self.put_sequence(Sequence { last, is_called, ..sequence.clone() })
            }
            Change::AdvanceSequence { sequence, last, is_called } => {
                let found = self.find_sequence(*sequence)?.clone();
                let advanced = Sequence { last: *last, is_called: *is_called, ..found };
                self.put_sequence(advanced)
            }
            Change::SetComment { on, comment } => {
                if !on.exists(&self.catalog) {
                    return Err(CommitError::NoCommentedObject);
                }
                self.catalog.comments.set(on, comment.as_deref());
                Ok(())
            }
            Change::InsertRows { table, page, first, rows } => self.change_table(*table, |table| {
                table.content_version += 1;
                let appended = table.delta.append(&table.schema, (*page, *first), rows);
                appended.map_err(|Misplaced| CommitError::Misplaced { table: table.name.clone() })
            }),
            Change::DeleteRows { table, container, segment, rows } => self.change_table(*table, |table| {
                if !table.has_container(*container) {
                    return Err(CommitError::RowsChanged { table: table.name.clone() });
                }
                table.content_version += 1;
                table.delta.delete(*container, *segment, rows);
                Ok(())
            }),
        }
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Directory of the blocks and pages of a table.
    fn directory_of(&self, table: TableId) -> &Arc<Directory> {
        self.temporary.as_ref().filter(|_| table.is_temporary()).unwrap_or(&self.directory)
    }

    /// Adds the temporary schema if a new relation is in it. A merged catalog contains this schema while the session
    /// has temporary relations.
    fn add_temporary_schema(&mut self, relation: &str) {
        if is_temporary_relation(relation) && !self.catalog.has_schema(TEMPORARY_SCHEMA) {
            self.catalog.schemas.insert_mut(TEMPORARY_SCHEMA.to_owned());
        }
    }

    /// The other tables with foreign keys to a table, and their constraints after a column of that table is dropped.
    ///
    /// # Errors
    /// If the table does not exist, or a foreign key references the column.
    fn children_with_keys_on(
        &self,
        table: TableId,
        column: ColumnIndex,
    ) -> Result<Vec<(TableId, Constraints)>, CommitError> {
        let parent = self.find(table)?;
        let children = parent.constraints.referenced_by.iter().filter(|child| **child != table);
        let shifted = |child: &TableId| {
            let constraints = self.find(*child)?.constraints.without_referenced_column(table, column);
            let name = || parent.schema.columns().get(column.index()).map(|column| column.name.clone());
            let in_use = || CommitError::ColumnInUse { table: parent.name.clone(), column: name().unwrap_or_default() };
            Ok((*child, constraints.ok_or_else(in_use)?))
        };
        children.map(shifted).collect()
    }

    fn find_sequence(&self, sequence: SequenceId) -> Result<&Sequence, CommitError> {
        self.catalog.sequence_of(sequence).ok_or(CommitError::NoSequence { sequence })
    }

    /// Removes a sequence with its comment. Returns whether it existed.
    fn remove_sequence(&mut self, sequence: SequenceId) -> bool {
        self.catalog.comments.set(&CommentTarget::Sequence(sequence), None);
        self.catalog.sequences.remove_mut(&sequence)
    }

    fn put_sequence(&mut self, sequence: Sequence) -> Result<(), CommitError> {
        sequence.check().map_err(|expected| CommitError::Sequence { expected })?;
        self.catalog.sequences.insert_mut(sequence.id, sequence);
        Ok(())
    }

    fn find(&self, table: TableId) -> Result<&Arc<Table>, CommitError> {
        self.catalog.table_of(table).ok_or(CommitError::NoTable { table })
    }

    /// Replaces a table by a changed copy.
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

    /// Checks that the schema of a new name exists, and that nothing else has the name. The temporary schema exists for
    /// temporary relations, and only for them.
    fn check_name(&self, name: &str, is_temporary: bool) -> Result<(), CommitError> {
        let schema = split_relation_name(name).0;
        let exists = match is_temporary_relation(name) {
            true => is_temporary && self.temporary.is_some(),
            false => !is_temporary && self.catalog.has_schema(&schema),
        };
        if !exists {
            return Err(CommitError::NoSchema { schema: schema.into_owned() });
        }
        match self.catalog.is_name_free(name) {
            true => Ok(()),
            false => Err(CommitError::NameTaken { name: name.to_owned() }),
        }
    }

    fn check_no_view_on(&self, relation: &str) -> Result<(), CommitError> {
        match self.catalog.views_on(relation).next() {
            Some(view) => Err(CommitError::ViewDepends { relation: relation.to_owned(), view: view.name.clone() }),
            None => Ok(()),
        }
    }

    fn check_blocks(&self, table: TableId, blocks: &[NewBlock]) -> Result<(), CommitError> {
        let directory = self.directory_of(table);
        let foreign = blocks.iter().find(|block| !Arc::ptr_eq(block.file.directory(), directory));
        foreign.map_or(Ok(()), |block| Err(CommitError::ForeignBlock { block: block.file.id() }))
    }
}

/// Splits rows into the first `first` rows and the rest, which is `None` if it is empty.
pub(crate) fn split_at(rows: RecordBatch, first: usize) -> (RecordBatch, Option<RecordBatch>) {
    match rows.num_rows() - first {
        0 => (rows, None),
        after => (rows.slice(0, first), Some(rows.slice(first, after))),
    }
}

/// Row relocations from old blocks to new blocks with the same rows at the same positions.
fn same_positions(old: &[Arc<BlockFile>], new: &[NewBlock]) -> RowRelocations {
    let containers = old.iter().zip(new).map(|(old, new)| (ContainerId::of(old.id()), ContainerId::of(new.file.id())));
    RowRelocations::of_blocks(containers.filter_map(|(old, new)| old.zip(new)))
}
